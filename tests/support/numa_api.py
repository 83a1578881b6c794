"""An API server in memory for the controllers of NUMA: lists with labels, pages and deletions; a recorder of Events."""

import copy
from collections.abc import Sequence
from typing import Any

import msgspec
from memory_api import MemoryApi

from polyarch.kube.resources import Resource
from polyarch.kube.responses import ListResult
from polyarch.kube.store import Store, WriteExpectations
from polyarch.kube.watch import Init, InitApply, InitDone, Page
from polyarch.objects import Unstructured


class NumaApi(MemoryApi):
    """``deleted`` are the names of what was deleted, in order."""

    def __init__(self) -> None:
        super().__init__()
        self.deleted: list[str] = []

    async def list(
        self,
        resource: Resource,
        *,
        type: Any = dict,
        namespace: str = "",
        label_selector: str = "",
        field_selector: str = "",
    ) -> ListResult[Any]:
        await self._before("list", resource, field_selector)
        return ListResult([msgspec.convert(each, type) for each in self._found(resource, label_selector)], "1")

    async def list_page(
        self, resource: Resource, selection: Any, *, type: Any, continue_token: str = "", limit: int = 500
    ) -> Page[Any]:
        await self._before("list", resource, continue_token)
        found = self._found(resource, "")
        start = int(continue_token or 0)
        following = str(start + limit) if start + limit < len(found) else ""
        return Page([msgspec.convert(each, type) for each in found[start : start + limit]], "1", following)

    async def delete(  # type: ignore[override]  # the client's, not the one of the objects' owners
        self, resource: Resource, name: str, *, namespace: str = "", uid: str = "", **options: Any
    ) -> None:
        await self._before("delete", resource, name)
        self._known(resource, namespace, name)
        del self.objects[resource, namespace, name]
        self.deleted.append(name)

    async def patch(self, resource: Resource, name: str, patch: Any, *, subresource: str = "", **options: Any) -> Any:
        return await super().patch(resource, name, patch, **options)

    def _found(self, resource: Resource, label_selector: str) -> Sequence[dict[str, Any]]:
        wanted = [each.partition("=") for each in label_selector.split(",") if each]
        return [
            copy.deepcopy(document)
            for (kind, _, _), document in self.objects.items()
            if kind == resource
            and all(
                name in (labels := document["metadata"].get("labels") or {}) and (not equals or labels[name] == value)
                for name, equals, value in wanted
            )
        ]


class Told:
    """A recorder: ``events`` as (reason, name of the object, note)."""

    def __init__(self) -> None:
        self.events: list[tuple[str, str, str]] = []

    def event(self, regarding: Any, *, type: str, reason: str, note: str, action: str, related: Any = None) -> None:
        self.events.append((reason, regarding.name, note))


class Shown:
    """A cache that shows these objects."""

    def __init__(self, clock: Any, *documents: dict[str, Any]) -> None:
        self.store: Store[Unstructured] = Store()
        self.writes: WriteExpectations[Unstructured] = WriteExpectations(self.store, clock=clock)
        for output in (Init(), *(InitApply(Unstructured(each)) for each in documents), InitDone("1")):
            self.store.take(output)
