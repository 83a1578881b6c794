"""An informer without a watch: its store shows what a test, or the fake API server, tells it."""

import asyncio
from collections.abc import Callable, Iterable
from typing import Any

import msgspec
from manual_clock import ManualClock

from polyarch.kube.store import ObjectChange, Store, WriteExpectations
from polyarch.kube.watch import Apply, Delete, Init, InitApply, InitDone
from polyarch.objects import ObjectKey, decode_hook


class FakeInformer:
    """``sync`` says that the first list is complete; one of ``FakeApi.informer`` is synced and follows the server."""

    def __init__(self, type: Any, clock: Any = None) -> None:
        self.store: Store[Any] = Store()
        self.writes: WriteExpectations[Any] = WriteExpectations(self.store, clock=clock or ManualClock())
        self.problem: str | None = None
        self.last_error: str | None = None
        self.blind_seconds = 0.0
        self.running = False
        self._type = type
        self._handlers: list[Callable[[ObjectChange[Any]], None]] = [self.writes.observe]
        self._synced = asyncio.Event()
        self._version = 0

    @property
    def has_synced(self) -> bool:
        return self._synced.is_set()

    def add_handler(self, handler: Callable[[ObjectChange[Any]], None], /) -> None:
        self._handlers.append(handler)

    def remove_handler(self, handler: Callable[[ObjectChange[Any]], None]) -> None:
        self._handlers.remove(handler)

    async def synced(self) -> None:
        await self._synced.wait()

    def sync(self, done: bool = True) -> None:
        if done:
            self._synced.set()
        else:
            self._synced.clear()

    def put(self, document: dict[str, Any]) -> Any:
        """Adds or changes an object, as a watch event would."""
        self._version += 1
        metadata = {"uid": "uid-" + document["metadata"]["name"], **document["metadata"]}
        metadata["resourceVersion"] = str(self._version)
        return self.show({**document, "metadata": metadata})

    def show(self, document: dict[str, Any]) -> Any:
        """The watch event of an object as the API server has it."""
        object_ = self._decoded(document)
        self._tell(Apply(object_))
        return object_

    def list(self, *documents: dict[str, Any]) -> None:
        """The first list."""
        for output in (Init(), *(InitApply(self._decoded(each)) for each in documents), InitDone("1")):
            self._tell(output)

    def remove(self, name: str, namespace: str = "", *, version: int = 0) -> None:
        self._version += 1
        self._tell(Delete(ObjectKey(namespace, name), str(version or self._version)))

    def keep(self, keys: Iterable[ObjectKey], *, version: int) -> None:
        """Everything but these is gone."""
        for key in set(self.store) - set(keys):
            self.remove(key.name, key.namespace, version=version)

    def _decoded(self, document: dict[str, Any]) -> Any:
        return msgspec.convert(document, self._type, dec_hook=decode_hook)

    def _tell(self, output: Any) -> None:
        for change in self.store.take(output):
            for handler in self._handlers:
                handler(change)
