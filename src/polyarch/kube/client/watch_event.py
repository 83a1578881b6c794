"""What an API server tells of a list or a watch, typed: the input of the watch machine (KR-010).

The client reads these from the wire, :mod:`polyarch.kube.runtime.watch` turns them into what a store has to do.
"""

from typing import Generic, Protocol, TypeVar

import msgspec

from polyarch.kube.errors import KubernetesError
from polyarch.model.meta import Key, ObjectMeta


class KubernetesObject(Protocol):
    """What the machinery needs of a type: its metadata."""

    @property
    def metadata(self) -> ObjectMeta: ...


T = TypeVar("T", bound=KubernetesObject)


class Opened(msgspec.Struct, frozen=True, gc=False):
    """The server accepted a watch or a streaming list."""


class Page(msgspec.Struct, Generic[T], frozen=True):
    """A page of a LIST; the last one has no continue token."""

    objects: list[T]
    resource_version: str
    continue_token: str = ""


class Seen(msgspec.Struct, Generic[T], frozen=True):
    """ADDED or MODIFIED: this is the object now."""

    object: T


class Removed(msgspec.Struct, frozen=True, gc=False):
    """DELETED, or changed to something that does not decode: for us the object is not there any more."""

    key: Key
    resource_version: str


class Bookmark(msgspec.Struct, frozen=True, gc=False):
    """Everything up to ``resource_version`` was sent; ``initial_end`` marks the end of a streaming list."""

    resource_version: str
    initial_end: bool = False


class Ended(msgspec.Struct, frozen=True, gc=False):
    """The server closed the stream; ``lasted`` seconds after it was opened."""

    lasted: float


class Failed(msgspec.Struct, frozen=True):
    """A request or a stream failed; an ERROR event is one, too."""

    error: KubernetesError
    lasted: float = 0.0


Input = Opened | Page[T] | Seen[T] | Removed | Bookmark | Ended | Failed
