"""A few objects of an API server in memory, with resourceVersions and preconditions; the surface is the Client's."""

import copy
from collections.abc import Awaitable, Callable
from typing import Any

import msgspec

from polyarch.kube.errors import NO_FIT, AlreadyExists, Conflict, Invalid, NotFound
from polyarch.kube.patches import JsonPatch, MergePatch, PatchError, apply_patch
from polyarch.kube.resources import Resource
from polyarch.objects import PartialObjectMetadata

Hook = Callable[[str, Resource, str], Awaitable[None]]


class MemoryApi:
    """``hook(verb, resource, name)`` runs before each request and may raise or wait; ``requests`` are all of them."""

    def __init__(self) -> None:
        self.objects: dict[tuple[Resource, str, str], dict[str, Any]] = {}
        self.requests: list[tuple[str, str, str]] = []
        self.hook: Hook | None = None
        self.version = 100

    def put(self, resource: Resource, document: dict[str, Any]) -> None:
        """An object that somebody else made."""
        self._store(resource, copy.deepcopy(document))

    def read(self, resource: Resource, name: str, namespace: str = "") -> dict[str, Any]:
        return copy.deepcopy(self.objects[resource, namespace, name])

    def delete(self, resource: Resource, name: str, namespace: str = "") -> None:
        del self.objects[resource, namespace, name]

    def writes(self) -> list[tuple[str, str, str]]:
        return [request for request in self.requests if request[0] != "get"]

    async def get(
        self, resource: Resource, name: str, *, namespace: str = "", type: Any = dict, retry: bool = True
    ) -> Any:
        await self._before("get", resource, name)
        return msgspec.convert(copy.deepcopy(self._known(resource, namespace, name)), type)

    async def create(
        self,
        resource: Resource,
        document: Any,
        *,
        namespace: str = "",
        type: Any = PartialObjectMetadata,
        retry: bool = True,
    ) -> Any:
        name = document["metadata"]["name"]
        await self._before("create", resource, name)
        if (resource, namespace, name) in self.objects:
            raise AlreadyExists(409, reason="AlreadyExists", name=name)
        return msgspec.convert(self._store(resource, plain(document)), type)

    async def replace(
        self,
        resource: Resource,
        document: Any,
        *,
        namespace: str = "",
        complete: bool = False,
        type: Any = PartialObjectMetadata,
        retry: bool = True,
    ) -> Any:
        metadata = document["metadata"]
        await self._before("replace", resource, metadata["name"])
        known = self._known(resource, namespace, metadata["name"])
        if metadata.get("resourceVersion", "") not in ("", known["metadata"]["resourceVersion"]):
            raise Conflict(409, reason="Conflict", name=metadata["name"])
        return msgspec.convert(self._store(resource, plain(document)), type)

    async def patch(
        self,
        resource: Resource,
        name: str,
        patch: JsonPatch | MergePatch,
        *,
        namespace: str = "",
        type: Any = PartialObjectMetadata,
        retry: bool = True,
    ) -> Any:
        await self._before("patch", resource, name)
        known = copy.deepcopy(self._known(resource, namespace, name))
        if isinstance(patch, JsonPatch):
            try:
                known = apply_patch(known, patch.operations)
            except PatchError as error:
                raise Invalid(422, reason="Invalid", message=f"{NO_FIT}: {error}") from None
        else:
            asked = patch.document.get("metadata", {}).get("resourceVersion")
            if asked not in (None, known["metadata"]["resourceVersion"]):
                raise Conflict(409, reason="Conflict", name=name)
            known = merged(known, plain(patch.document))
        return msgspec.convert(self._store(resource, known), type)

    async def _before(self, verb: str, resource: Resource, name: str) -> None:
        self.requests.append((verb, str(resource), name))
        if self.hook is not None:
            await self.hook(verb, resource, name)

    def _known(self, resource: Resource, namespace: str, name: str) -> dict[str, Any]:
        try:
            return self.objects[resource, namespace, name]
        except KeyError:
            raise NotFound(404, reason="NotFound", resource=str(resource), name=name) from None

    def _store(self, resource: Resource, document: dict[str, Any]) -> dict[str, Any]:
        self.version += 1
        metadata = document["metadata"]
        metadata["resourceVersion"] = str(self.version)
        self.objects[resource, metadata.get("namespace", ""), metadata["name"]] = document
        return copy.deepcopy(document)


def plain(document: Any) -> Any:
    """Through JSON, as over the network."""
    return msgspec.json.decode(msgspec.json.encode(document))


def merged(target: Any, patch: Any) -> Any:
    """RFC 7386."""
    if not isinstance(patch, dict):
        return patch
    target = dict(target) if isinstance(target, dict) else {}
    for name, value in patch.items():
        if value is None:
            target.pop(name, None)
        else:
            target[name] = merged(target.get(name), value)
    return target
