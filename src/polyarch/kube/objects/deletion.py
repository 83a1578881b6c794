"""Delete and wait: an object counts as gone only after a live read (KR-052, PL-522).

A stale cache may miss an object that still exists, or exists again. So each step reads first, and the DELETE carries
the uid that was read: a new object of the same name is not touched.
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
    """An object did not go in time; the text says what holds it."""

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
    """One step, to be repeated until it returns None: there is no such object (of this ``uid``, if one is given).

    Otherwise the object as it was read; its deletion has been asked for, here or before.
    """
    try:
        seen = (await client.get(resource, key.name, namespace=key.namespace, type=PartialObjectMetadata)).metadata
    except NotFound:
        return None
    if uid and seen.uid != uid:
        return None
    if seen.deletion_timestamp is None:
        options: dict[str, Any] = {"namespace": key.namespace, "uid": seen.uid, "propagation": propagation}
        with suppress(NotFound, Conflict):  # gone, or another one of that name: the next step reads again
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
    """For commands; a reconcile takes steps and looks again later. Raises :class:`StillThere` after ``seconds``."""
    clock = clock or SystemClock()
    end, pause = clock.monotonic() + seconds, 0.1
    while (seen := await delete(client, resource, key, uid=uid, propagation=propagation)) is not None:
        uid = uid or seen.uid
        left = end - clock.monotonic()
        if left <= 0:
            raise StillThere(resource, seen, seconds)
        await clock.sleep(min(pause, left))
        pause = min(pause * 1.5, 2.0)
