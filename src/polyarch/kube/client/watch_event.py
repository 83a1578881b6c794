"""The events of a list or a watch, typed: the input of the watch state machine (KR-010).

The client decodes them; :mod:`polyarch.kube.runtime.watch` turns them into operations on the store.
"""

from typing import Generic, Protocol, TypeVar

import msgspec

from polyarch.kube.errors import KubernetesError
from polyarch.model.meta import Key, ObjectMeta


class KubernetesObject(Protocol):
    """What the runtime requires of a type: ``metadata``."""

    @property
    def metadata(self) -> ObjectMeta: ...


T = TypeVar("T", bound=KubernetesObject)


class Opened(msgspec.Struct, frozen=True, gc=False):
    """The server accepted a watch or a streaming list."""


class Page(msgspec.Struct, Generic[T], frozen=True):
    """A page of a LIST; the last page has no continue token."""

    objects: list[T]
    resource_version: str
    continue_token: str = ""


class Seen(msgspec.Struct, Generic[T], frozen=True):
    """ADDED or MODIFIED, with the object's present state."""

    object: T


class Removed(msgspec.Struct, frozen=True, gc=False):
    """DELETED, or changed to something that does not decode: the cache must not have the object any more."""

    key: Key
    resource_version: str


class Bookmark(msgspec.Struct, frozen=True, gc=False):
    """All events up to ``resource_version`` were sent; ``initial_end`` marks the end of a streaming list."""

    resource_version: str
    initial_end: bool = False


class Ended(msgspec.Struct, frozen=True, gc=False):
    """The server closed the stream ``lasted`` seconds after it was opened."""

    lasted: float


class Failed(msgspec.Struct, frozen=True):
    """A request or stream failed, or the stream sent an ERROR event."""

    error: KubernetesError
    lasted: float = 0.0


class Missing(msgspec.Struct, frozen=True, gc=False):
    """The server does not have this kind, so there are no objects of it."""


Input = Opened | Page[T] | Seen[T] | Removed | Bookmark | Ended | Failed | Missing
