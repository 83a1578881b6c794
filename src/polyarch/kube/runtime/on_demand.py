"""An optional informer, which runs only while a setting needs it (KR-055).

The setting may come and go while the process runs, and RBAC may allow the watch only with that setting. So readiness
does not depend on it; the user of the informer reports its problems.
"""

from collections.abc import Callable, ValuesView
from typing import Any, Generic, Protocol, TypeVar

from polyarch.kube.client.watch_event import KubernetesObject
from polyarch.kube.resources import Resource
from polyarch.kube.runtime.informer import Informer
from polyarch.kube.runtime.store import Change
from polyarch.model.meta import Key

T = TypeVar("T", bound=KubernetesObject)


class Shares(Protocol):
    """The part of ``Informers`` that is used."""

    def informer(
        self,
        resource: Resource,
        type: type[T],
        /,
        *,
        required: bool = ...,
        namespace: str = ...,
        label_selector: str = ...,
        field_selector: str = ...,
    ) -> Informer[T]: ...

    def release(self, informer: Informer[Any], /) -> None: ...


class OnDemand(Generic[T]):
    """The objects of one kind while they are wanted (:meth:`want`); ``handler`` gets every change meanwhile.

    With ``namespace`` and ``name`` it is that one object, which RBAC can allow by its name; with ``label_selector`` the
    objects that have these labels.
    """

    def __init__(
        self,
        informers: Shares,
        resource: Resource,
        type: type[T],
        handler: Callable[[Change[T]], None],
        *,
        namespace: str = "",
        name: str = "",
        label_selector: str = "",
    ) -> None:
        self.resource = resource
        self.type = type
        self._namespace = namespace
        self._labels = label_selector
        self._fields = f"metadata.name={name}" if name else ""
        self._informers = informers
        self._handler = handler
        self._informer: Informer[T] | None = None

    def want(self, wanted: bool) -> None:
        """Starts or stops the watch; stopping drops the cache without calling the handler."""
        if wanted and self._informer is None:
            self._informer = self._informers.informer(
                self.resource,
                self.type,
                required=False,
                namespace=self._namespace,
                label_selector=self._labels,
                field_selector=self._fields,
            )
            self._informer.add_handler(self._handler)
        elif not wanted and self._informer is not None:
            self._informer.remove_handler(self._handler)
            self._informers.release(self._informer)
            self._informer = None

    @property
    def is_wanted(self) -> bool:
        return self._informer is not None

    @property
    def is_known(self) -> bool:
        """The first list is complete."""
        return self._informer is not None and self._informer.has_synced

    @property
    def problem(self) -> str | None:
        """Why the API server refuses the watch."""
        return self._informer.problem if self._informer is not None else None

    @property
    def last_error(self) -> str | None:
        """Why the last request or watch failed; None while the watch is open."""
        return self._informer.last_error if self._informer is not None else None

    @property
    def blind_seconds(self) -> float:
        """Seconds in total during which the watch was broken."""
        return self._informer.blind_seconds if self._informer is not None else 0.0

    def get(self, key: Key) -> T | None:
        return self._informer.store.get(key) if self._informer is not None else None

    def values(self) -> ValuesView[T] | tuple[()]:
        return self._informer.store.values() if self._informer is not None else ()

    async def synced(self) -> None:
        """Returns when the first list is complete, or nothing is wanted."""
        if self._informer is not None:
            await self._informer.synced()
