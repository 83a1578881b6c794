"""What ties the life of one object to another: owner references, finalizers, and deletion that is seen to be complete.

``EnqueueOwner`` maps a change of an owned object to its owner's key. Finalizers are added before anything is created
and removed after everything is deleted. An object counts as gone only after a live read.
"""

from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from typing import Any, Final, Protocol

import msgspec

from polyarch.clock import Clock, SystemClock
from polyarch.kube import patches
from polyarch.kube.errors import Conflict, Invalid, NotFound
from polyarch.kube.patches import JsonPatch
from polyarch.kube.requests import Propagation
from polyarch.kube.resources import Resource
from polyarch.kube.store import ObjectChange
from polyarch.objects import ObjectKey, ObjectMeta, PartialObjectMetadata

# -- owner references --------------------------------------------------------------------------------------------------


class Owner(msgspec.Struct, frozen=True, gc=False):
    """The owner of other objects; when it is deleted, Kubernetes deletes them too."""

    resource: Resource
    key: ObjectKey
    uid: str

    @classmethod
    def of(cls, resource: Resource, metadata: ObjectMeta) -> "Owner":
        return cls(resource, metadata.key, metadata.uid)

    def reference(self) -> dict[str, Any]:
        """An entry of ``ownerReferences``, with ``controller`` and ``blockOwnerDeletion`` set."""
        return {
            "apiVersion": self.resource.api_version,
            "kind": self.resource.kind,
            "name": self.key.name,
            "uid": self.uid,
            "controller": True,
            "blockOwnerDeletion": True,
        }


def owned_by(owner: Owner, document: Mapping[str, Any]) -> dict[str, Any]:
    """The document with a reference to its owner appended.

    Raises ValueError across namespaces: the garbage collector would not find the owner and would delete the object.
    """
    metadata = document["metadata"]
    if owner.key.namespace and metadata.get("namespace", "") != owner.key.namespace:
        raise ValueError(
            f"{document.get('kind')} {metadata['name']} cannot belong to {owner.resource.kind} {owner.key}: "
            "an owner is in the same namespace or in none"
        )
    references = [*metadata.get("ownerReferences", ()), owner.reference()]
    return {**document, "metadata": {**metadata, "ownerReferences": references}}


class Enqueues(Protocol):
    """The part of a work queue that is used."""

    def add(self, key: ObjectKey) -> None: ...


class EnqueueOwner:
    """Enqueues owners: with ``EnqueueOwner(WIDGETS)``, a change of an object enqueues the widget that controls it.

    ``deployments.add_handler(EnqueueOwner(WIDGETS).into(controller.queue))``. Its API version is ignored.
    """

    def __init__(self, owner: Resource) -> None:
        self._owner = owner

    def keys(self, change: ObjectChange[Any]) -> tuple[ObjectKey, ...]:
        """The owners before and after the change: an owner that lost an object is reconciled too."""
        found = (self._key(each.metadata) for each in (change.old, change.new) if each is not None)
        return tuple(dict.fromkeys(key for key in found if key is not None))

    def into(self, queue: Enqueues) -> Callable[[ObjectChange[Any]], None]:
        """An informer handler that enqueues the owners."""

        def handle(change: ObjectChange[Any]) -> None:
            for key in self.keys(change):
                queue.add(key)

        return handle

    def _key(self, metadata: ObjectMeta) -> ObjectKey | None:
        reference = metadata.controller
        if reference is None or reference.kind != self._owner.kind:
            return None
        if reference.api_version.rpartition("/")[0] != self._owner.group:
            return None
        return ObjectKey(metadata.namespace if self._owner.namespaced else "", reference.name)


# -- finalizers --------------------------------------------------------------------------------------------------------


# Several controllers write this list, so each change is a JSON patch that tests the object's uid and the list as read.
# The patches are pure values; :func:`add_finalizer` and :func:`remove_finalizer` send them and, if another controller
# wrote in between, retry with a fresh read, at most three times.

FINALIZERS_PATH: Final = "/metadata/finalizers"
FINALIZER_TRIES: Final = 3


class PatchesObjects(Protocol):
    """The part of the client that is used."""

    async def get(
        self, resource: Resource, name: str, *, namespace: str = "", type: type[PartialObjectMetadata]
    ) -> PartialObjectMetadata: ...

    async def patch(
        self, resource: Resource, name: str, patch: JsonPatch, *, namespace: str = ""
    ) -> PartialObjectMetadata: ...


def adding_finalizer(metadata: ObjectMeta, name: str) -> JsonPatch | None:
    """The patch that adds the finalizer; None if it is present, or if the object is being deleted and takes no more."""
    known = metadata.finalizers or []
    if name in known or metadata.deletion_timestamp is not None:
        return None
    same = patches.test("/metadata/uid", metadata.uid)
    if not known:  # the RFC and the API server disagree on how to test an absent list
        unchanged = patches.test("/metadata/resourceVersion", metadata.resource_version)
        return JsonPatch((same, unchanged, patches.add(FINALIZERS_PATH, [name])))
    return JsonPatch((same, patches.test(FINALIZERS_PATH, known), patches.add(f"{FINALIZERS_PATH}/-", name)))


def removing_finalizer(metadata: ObjectMeta, name: str) -> JsonPatch | None:
    """The patch that removes the finalizer; None if it is absent."""
    known = metadata.finalizers or []
    if name not in known:
        return None
    place = f"{FINALIZERS_PATH}/{known.index(name)}"
    same = patches.test("/metadata/uid", metadata.uid)
    return JsonPatch((same, patches.test(place, name), patches.remove(place)))


KUBERNETES_FINALIZERS: Final = frozenset(
    ("foregroundDeletion", "orphan", "kubernetes", "customresourcecleanup.apiextensions.k8s.io")
)
"""They wait for other objects, so they are never what holds an object in the end."""


def held_by_others(metadata: ObjectMeta, ours: Collection[str]) -> tuple[str, ...]:
    """The finalizers of others that hold an object which is being deleted; empty: it is not, or none does."""
    if metadata.deletion_timestamp is None:
        return ()
    return tuple(each for each in metadata.finalizers or () if each not in ours and each not in KUBERNETES_FINALIZERS)


def held_words(resource: Resource, metadata: ObjectMeta, ours: Collection[str]) -> str:
    """What holds a deletion, and what to do, for people; empty: nothing of others does."""
    if not (others := held_by_others(metadata, ours)):
        return ""
    place = f" -n {metadata.namespace}" if metadata.namespace else ""
    command = f"kubectl edit {resource} {metadata.name}{place}"
    return (
        f"{resource.kind} {metadata.key} is held by {'finalizer' if len(others) == 1 else 'finalizers'} "
        f"{', '.join(others)} of others: let their controller remove {'it' if len(others) == 1 else 'them'}, or do so "
        f"with {command}"
    )


async def add_finalizer(client: PatchesObjects, resource: Resource, metadata: ObjectMeta, name: str) -> bool:
    """Adds the finalizer. False if the object is being deleted, or was replaced by one with another uid."""
    written = await _write_finalizers(client, resource, metadata, lambda seen: adding_finalizer(seen, name))
    return written is not None and name in (written.finalizers or [])


async def remove_finalizer(client: PatchesObjects, resource: Resource, metadata: ObjectMeta, name: str) -> None:
    """Removes the finalizer; an object that is gone is no error."""
    await _write_finalizers(client, resource, metadata, lambda seen: removing_finalizer(seen, name))


async def _write_finalizers(
    client: PatchesObjects,
    resource: Resource,
    metadata: ObjectMeta,
    change: Callable[[ObjectMeta], JsonPatch | None],
) -> ObjectMeta | None:
    """The metadata afterwards; None if the object is gone. Raises ``KubernetesError``, Invalid after three races."""
    where: dict[str, Any] = {"namespace": metadata.namespace}
    seen = metadata
    for attempt in range(1, FINALIZER_TRIES + 1):
        patch = change(seen)
        if patch is None:
            return seen
        try:
            return (await client.patch(resource, metadata.name, patch, **where)).metadata
        except NotFound:
            return None
        except Invalid as error:
            if not error.is_failed_test or attempt == FINALIZER_TRIES:
                raise
        try:
            seen = (await client.get(resource, metadata.name, type=PartialObjectMetadata, **where)).metadata
        except NotFound:
            return None
        if seen.uid != metadata.uid:
            return None
    raise AssertionError("unreachable")


# -- deletion ----------------------------------------------------------------------------------------------------------


# A stale cache may still miss an object that exists, or exists again. So each step reads first, and the DELETE has the
# uid that was read as its precondition: a new object of the same name is not deleted.


class DeletesObjects(Protocol):
    """The part of the client that is used."""

    async def get(
        self, resource: Resource, name: str, *, namespace: str = "", type: type[PartialObjectMetadata]
    ) -> PartialObjectMetadata: ...

    async def delete(
        self,
        resource: Resource,
        name: str,
        *,
        namespace: str = "",
        uid: str | None = None,
        resource_version: str | None = None,
        propagation: Propagation | None = None,
    ) -> None: ...


class DeletionTimeout(Exception):  # noqa: N818 - what is the case
    """An object was not gone in time; the text says what blocks its deletion."""

    def __init__(self, resource: Resource, metadata: ObjectMeta, seconds: float) -> None:
        held = f"held by finalizers {', '.join(metadata.finalizers)}" if metadata.finalizers else "held by nothing seen"
        super().__init__(f"{resource} {metadata.key} is still there after {seconds:g} s, {held}")
        self.metadata = metadata


async def delete_object(
    client: DeletesObjects,
    resource: Resource,
    key: ObjectKey,
    *,
    uid: str = "",
    propagation: Propagation = "Background",
) -> ObjectMeta | None:
    """One step of a deletion; repeat it until it returns None: no such object exists (with this ``uid``, if given).

    Otherwise returns the object as read; its deletion has been requested, by this call or earlier.
    """
    try:
        seen = (await client.get(resource, key.name, namespace=key.namespace, type=PartialObjectMetadata)).metadata
    except NotFound:
        return None
    if uid and seen.uid != uid:
        return None
    if seen.deletion_timestamp is None:
        options: dict[str, Any] = {"namespace": key.namespace, "uid": seen.uid, "propagation": propagation}
        with suppress(NotFound, Conflict):  # gone or replaced: the next step reads again
            await client.delete(resource, key.name, **options)
    return seen


async def delete_object_and_wait(
    client: DeletesObjects,
    resource: Resource,
    key: ObjectKey,
    *,
    uid: str = "",
    propagation: Propagation = "Background",
    seconds: float = 60.0,
    clock: Clock | None = None,
) -> None:
    """For commands; a reconcile calls :func:`delete_object` and requeues.

    Raises :class:`DeletionTimeout` after ``seconds``.
    """
    clock = clock or SystemClock()
    end, pause = clock.monotonic() + seconds, 0.1
    while (seen := await delete_object(client, resource, key, uid=uid, propagation=propagation)) is not None:
        uid = uid or seen.uid
        left = end - clock.monotonic()
        if left <= 0:
            raise DeletionTimeout(resource, seen, seconds)
        await clock.sleep(min(pause, left))
        pause = min(pause * 1.5, 2.0)
