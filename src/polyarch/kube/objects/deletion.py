"""Delete and wait: an object counts as gone only after a live read (KR-052, PL-522).

A stale cache may still miss an object that exists, or exists again. So each step reads first, and the DELETE has the
uid that was read as its precondition: a new object of the same name is not deleted.
"""

from contextlib import suppress
from typing import Any, Protocol

from polyarch.kube.client.requests import Propagation
from polyarch.kube.clock import Clock, SystemClock
from polyarch.kube.errors import Conflict, NotFound
from polyarch.kube.resources import Resource
from polyarch.model.meta import Key, ObjectMeta, PartialObjectMetadata


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


class StillThere(Exception):  # noqa: N818 - what is the case
    """An object was not gone in time; the text says what blocks its deletion."""

    def __init__(self, resource: Resource, metadata: ObjectMeta, seconds: float) -> None:
        held = f"held by finalizers {', '.join(metadata.finalizers)}" if metadata.finalizers else "held by nothing seen"
        super().__init__(f"{resource} {metadata.key} is still there after {seconds:g} s, {held}")
        self.metadata = metadata


async def delete(
    client: DeletesObjects,
    resource: Resource,
    key: Key,
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


async def delete_and_wait(
    client: DeletesObjects,
    resource: Resource,
    key: Key,
    *,
    uid: str = "",
    propagation: Propagation = "Background",
    seconds: float = 60.0,
    clock: Clock | None = None,
) -> None:
    """For commands; a reconcile calls :func:`delete` and requeues. Raises :class:`StillThere` after ``seconds``."""
    clock = clock or SystemClock()
    end, pause = clock.monotonic() + seconds, 0.1
    while (seen := await delete(client, resource, key, uid=uid, propagation=propagation)) is not None:
        uid = uid or seen.uid
        left = end - clock.monotonic()
        if left <= 0:
            raise StillThere(resource, seen, seconds)
        await clock.sleep(min(pause, left))
        pause = min(pause * 1.5, 2.0)
