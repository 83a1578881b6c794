"""The API server of builds, in memory: what the builder writes, and caches that show it when the test says so."""

import copy
from typing import Any

import msgspec
from memory_api import MemoryApi, merged, plain

from polyarch.builds import names
from polyarch.clock import Clock
from polyarch.kube.errors import Conflict
from polyarch.kube.patches import MergePatch
from polyarch.kube.resources import CONFIGMAPS, JOBS, Resource
from polyarch.kube.store import Store, WriteExpectations
from polyarch.kube.watch import Apply, Delete
from polyarch.objects import ObjectKey, ObjectMeta, PartialObjectMetadata

KINDS: dict[str, Resource] = {
    each.kind: each for each in (names.IMAGE_BUILDS, names.IMAGE_BUILD_RUNS, JOBS, CONFIGMAPS)
}


class Cached(msgspec.Struct, frozen=True, rename="camel"):
    """An object of any of these kinds as a cache has it."""

    metadata: ObjectMeta = ObjectMeta()
    spec: dict[str, Any] | None = None
    status: dict[str, Any] | None = None
    data: dict[str, str] | None = None


class BuildsApi(MemoryApi):
    """With server-side apply, deletion and statuses; UIDs are ``uid-1``, ``uid-2`` …"""

    def __init__(self) -> None:
        super().__init__()
        self._made = 0

    async def create(self, resource: Resource, document: Any, **options: Any) -> Any:
        made = plain(document)
        made.setdefault("metadata", {}).setdefault("namespace", options.get("namespace", ""))
        self._made += 1
        made["metadata"]["uid"] = f"uid-{self._made}"
        made.pop("status", None)
        return await super().create(resource, made, **options)

    async def patch(self, resource: Resource, name: str, patch: Any, **options: Any) -> Any:
        subresource = options.pop("subresource", "")
        known = self._known(resource, options.get("namespace", ""), name)
        uid = patch.document.get("metadata", {}).get("uid") if isinstance(patch, MergePatch) else None
        if uid not in (None, known["metadata"].get("uid")):
            raise Conflict(409, reason="Conflict", name=name)
        if subresource:
            patch = MergePatch({key: patch.document[key] for key in ("metadata", "status") if key in patch.document})
        elif isinstance(patch, MergePatch):
            patch = MergePatch({key: value for key, value in patch.document.items() if key != "status"})
        return await super().patch(resource, name, patch, **options)

    async def apply(self, resource: Resource, document: Any, *, namespace: str = "") -> PartialObjectMetadata:
        name = document["metadata"]["name"]
        if (resource, namespace, name) not in self.objects:
            made: PartialObjectMetadata = await self.create(resource, document, namespace=namespace)
            return made
        await self._before("apply", resource, name)
        known = copy.deepcopy(self._known(resource, namespace, name))
        return msgspec.convert(self._store(resource, merged(known, plain(document))), PartialObjectMetadata)

    async def delete(self, resource: Resource, name: str, **options: Any) -> None:  # type: ignore[override]
        await self._before("delete", resource, name)
        namespace = options.get("namespace", "")
        known = self._known(resource, namespace, name)
        if options.get("uid") not in (None, known["metadata"].get("uid")):
            raise Conflict(409, reason="Conflict", name=name)
        del self.objects[resource, namespace, name]


class Caches:
    """One cache per kind; :meth:`show` lets them see everything."""

    def __init__(self, api: BuildsApi, clock: Clock) -> None:
        self._api = api
        self.stores: dict[str, Store[Cached]] = {kind: Store() for kind in KINDS}
        self.writes = {kind: WriteExpectations(store, clock=clock) for kind, store in self.stores.items()}

    def show(self, *kinds: str) -> None:
        """The caches of these kinds, or of all, catch up with the API server."""
        for kind in kinds or KINDS:
            store = self.stores[kind]
            there = {
                ObjectKey(space, name): o for (res, space, name), o in self._api.objects.items() if res == KINDS[kind]
            }
            outputs = [Apply(msgspec.convert(each, Cached)) for each in there.values()]
            gone = [Delete(key, str(self._api.version)) for key in store if key not in there]
            for output in (*outputs, *gone):
                for change in store.take(output):
                    self.writes[kind].observe(change)
