"""Status conditions, merged by type, and a status apply that writes only differences.

A controller computes a list of :class:`Condition`; :func:`merged` combines it with the object's present conditions, so
that ``lastTransitionTime`` moves only when the status changes. Conditions of types that are not the controller's are
unaffected, since a status apply owns only what it names. Where the writer of a condition is dead, another one can set
it with :func:`taking_over`. Merging is pure."""

from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any, Final, Protocol

from polyarch.kube import patches
from polyarch.kube.managed_fields import Fields, applied_fields, differences
from polyarch.kube.patches import Operation
from polyarch.kube.requests import FIELD_MANAGER
from polyarch.kube.resources import Resource
from polyarch.kube.store import WriteExpectations
from polyarch.objects import Condition, PartialObjectMetadata, Unstructured

_NOTHING: Final[Fields] = {"f:status": {}}
"""Of whoever has applied an empty status."""


class AppliesStatus(Protocol):
    """The part of the client that is used."""

    async def apply(
        self,
        resource: Resource,
        document: Mapping[str, Any],
        *,
        namespace: str = "",
        subresource: str = "",
        field_manager: str = ...,
    ) -> PartialObjectMetadata: ...


def merged(
    found: Iterable[Condition], current: Iterable[Mapping[str, Any]] | None, *, generation: int, now: datetime
) -> list[dict[str, Any]]:
    """``found`` as ``status.conditions``, in that order. ``generation`` is that of the object it was computed from."""
    known = {str(each.get("type")): each for each in current or ()}
    return [_merged(each, known.get(each.type) or {}, generation, now) for each in found]


def taking_over(found: Condition, live: Unstructured, *, now: datetime) -> tuple[Operation, ...]:
    """The JSON patch that sets one condition in the place of somebody who applies it and is dead; empty if it is set.

    It is no server-side apply, so nothing has to be withdrawn: the other one takes it back with its next apply.
    """
    metadata, status = live.metadata, live.status
    several = status.get("conditions") or []
    place = next((at for at, each in enumerate(several) if each.get("type") == found.type), None)
    known = several[place] if place is not None else {}
    if all(known.get(field) == getattr(found, field) for field in ("status", "reason", "message")):
        return ()
    wanted = _merged(found, known, metadata.generation, now)
    if place is not None:
        change = patches.replace(f"/status/conditions/{place}", wanted)
    elif several:
        change = patches.add("/status/conditions/-", wanted)
    else:
        path = ("/status/conditions", [wanted]) if status else ("/status", {"conditions": [wanted]})
        change = patches.add(*path)
    return patches.test("/metadata/resourceVersion", metadata.resource_version), change


def _merged(found: Condition, known: Mapping[str, Any], generation: int, now: datetime) -> dict[str, Any]:
    since = known.get("lastTransitionTime") if known.get("status") == found.status else None
    return {
        "type": found.type,
        "status": found.status,
        "reason": found.reason,
        "message": found.message,
        "observedGeneration": generation,
        "lastTransitionTime": since or now.strftime("%Y-%m-%dT%H:%M:%SZ"),
    }


async def apply_status(
    client: AppliesStatus,
    resource: Resource,
    live: Unstructured,
    status: Mapping[str, Any],
    *,
    field_manager: str = FIELD_MANAGER,
    writes: WriteExpectations[Unstructured] | None = None,
) -> bool:
    """Applies ``status`` to ``live`` if it differs; returns whether it was written.

    Raises ``Conflict`` if the object was meanwhile replaced by another one of the same name. ``writes`` are the
    informer's own writes.
    """
    metadata = live.metadata
    document = {
        "apiVersion": resource.api_version,
        "kind": resource.kind,
        "metadata": {"name": metadata.name, "namespace": metadata.namespace, "uid": metadata.uid},
        "status": dict(status),
    }
    owned = applied_fields(live.document, manager=field_manager, subresource="status")
    if not status and owned in (None, {}, _NOTHING):
        return False  # beside a status of others, an empty one always looks different
    if not differences(document, live.document, manager=field_manager, subresource="status"):
        return False
    written = await client.apply(
        resource, document, namespace=metadata.namespace, subresource="status", field_manager=field_manager
    )
    if writes is not None:
        writes.note_write(metadata.key, written.metadata.resource_version)
    return True
