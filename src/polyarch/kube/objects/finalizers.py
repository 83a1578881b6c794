"""Finalizers: added before anything is created, removed after everything is deleted (KR-052).

Several controllers write this list, so each change is a JSON patch that tests the object's uid and the list as read.
The patches are pure values; :func:`add` and :func:`remove` send them and, if another controller wrote in between, retry
with a fresh read, at most three times.
"""

from collections.abc import Callable
from typing import Any, Final, Protocol

from polyarch.kube.client import jsonpatch
from polyarch.kube.client.patches import JsonPatch
from polyarch.kube.errors import Invalid, NotFound
from polyarch.kube.resources import Resource
from polyarch.model.meta import ObjectMeta, PartialObjectMetadata

PATH: Final = "/metadata/finalizers"
TRIES: Final = 3


class PatchesObjects(Protocol):
    """The part of the client that is used."""

    async def get(
        self, resource: Resource, name: str, *, namespace: str = "", type: type[PartialObjectMetadata]
    ) -> PartialObjectMetadata: ...

    async def patch(
        self, resource: Resource, name: str, patch: JsonPatch, *, namespace: str = ""
    ) -> PartialObjectMetadata: ...


def adding(metadata: ObjectMeta, name: str) -> JsonPatch | None:
    """The patch that adds the finalizer; None if it is present, or if the object is being deleted and takes no more."""
    known = metadata.finalizers or []
    if name in known or metadata.deletion_timestamp is not None:
        return None
    same = jsonpatch.test("/metadata/uid", metadata.uid)
    if not known:  # the RFC and the API server disagree on how to test an absent list
        unchanged = jsonpatch.test("/metadata/resourceVersion", metadata.resource_version)
        return JsonPatch((same, unchanged, jsonpatch.add(PATH, [name])))
    return JsonPatch((same, jsonpatch.test(PATH, known), jsonpatch.add(f"{PATH}/-", name)))


def removing(metadata: ObjectMeta, name: str) -> JsonPatch | None:
    """The patch that removes the finalizer; None if it is absent."""
    known = metadata.finalizers or []
    if name not in known:
        return None
    place = f"{PATH}/{known.index(name)}"
    same = jsonpatch.test("/metadata/uid", metadata.uid)
    return JsonPatch((same, jsonpatch.test(place, name), jsonpatch.remove(place)))


async def add(client: PatchesObjects, resource: Resource, metadata: ObjectMeta, name: str) -> bool:
    """Adds the finalizer. False if the object is being deleted, or was replaced by one with another uid."""
    written = await _write(client, resource, metadata, lambda seen: adding(seen, name))
    return written is not None and name in (written.finalizers or [])


async def remove(client: PatchesObjects, resource: Resource, metadata: ObjectMeta, name: str) -> None:
    """Removes the finalizer; an object that is gone is no error."""
    await _write(client, resource, metadata, lambda seen: removing(seen, name))


async def _write(
    client: PatchesObjects,
    resource: Resource,
    metadata: ObjectMeta,
    change: Callable[[ObjectMeta], JsonPatch | None],
) -> ObjectMeta | None:
    """The metadata afterwards; None if the object is gone. Raises ``KubernetesError``, Invalid after three races."""
    where: dict[str, Any] = {"namespace": metadata.namespace}
    seen = metadata
    for attempt in range(1, TRIES + 1):
        patch = change(seen)
        if patch is None:
            return seen
        try:
            return (await client.patch(resource, metadata.name, patch, **where)).metadata
        except NotFound:
            return None
        except Invalid as error:
            if not error.is_failed_test or attempt == TRIES:
                raise
        try:
            seen = (await client.get(resource, metadata.name, type=PartialObjectMetadata, **where)).metadata
        except NotFound:
            return None
        if seen.uid != metadata.uid:
            return None
    raise AssertionError("unreachable")
