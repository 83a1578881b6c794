"""What a pass tells: the status of a custom resource, an Event per transition, and metrics (NO-092, NO-095)."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from polyarch.clock import Clock
from polyarch.kube.client import Client
from polyarch.kube.conditions import merged
from polyarch.kube.errors import Conflict, NotFound
from polyarch.kube.events import Recorder, Regarding
from polyarch.kube.informer import Informer
from polyarch.kube.patches import MergePatch
from polyarch.kube.resources import Resource
from polyarch.numa.operator.conditions import STATES
from polyarch.numa.operator.outcome import Announcement
from polyarch.numa.reconcilers.series import NumaSeries
from polyarch.objects import Condition, PartialObjectMetadata, Unstructured

ACTION: Final = "Reconcile"
REMEMBERED: Final = 64
"""Announcements of one object that are known to have been made."""


class Telling:
    """Of one kind of custom resource."""

    def __init__(
        self,
        client: Client,
        resource: Resource,
        cache: Informer[Unstructured],
        *,
        recorder: Recorder,
        series: NumaSeries,
        clock: Clock,
    ) -> None:
        self._client = client
        self._resource = resource
        self._cache = cache
        self._recorder = recorder
        self._series = series
        self._clock = clock
        self._announced: dict[str, tuple[Announcement, ...]] = {}

    async def tell(
        self,
        live: Unstructured,
        status: Mapping[str, Any],
        conditions: Sequence[Condition],
        announcements: Iterable[Announcement] = (),
    ) -> bool:
        """Writes what differs. False: the object has changed meanwhile, look again."""
        self._series.conditions(self._resource.kind, conditions)
        self._announce(live, tuple(announcements))
        known = live.status.get("conditions")
        listed = merged(conditions, known, generation=live.metadata.generation, now=self._clock.now())
        change = difference(live.status, {**status, "conditions": listed})
        if not change:
            return True
        seen = {"resourceVersion": live.metadata.resource_version, "uid": live.metadata.uid}
        patch = MergePatch({"metadata": seen, "status": change})
        try:
            written: PartialObjectMetadata = await self._client.patch(
                self._resource, live.metadata.name, patch, subresource="status"
            )
        except NotFound:
            return True
        except Conflict:
            return False
        self._cache.writes.note_write(live.metadata.key, written.metadata.resource_version)
        if (event := transition(known or (), conditions)) is not None:
            self._post(live, event)
        return True

    def forget(self, name: str) -> None:
        """The object is gone."""
        self._announced.pop(name, None)

    def _announce(self, live: Unstructured, several: tuple[Announcement, ...]) -> None:
        """An Event as long as something stays true, not one per pass."""
        before = self._announced.get(live.metadata.name, ())
        for each in several:
            if each not in before:
                self._post(live, each)
        self._announced[live.metadata.name] = several[:REMEMBERED]

    def _post(self, live: Unstructured, event: Announcement) -> None:
        regarding = Regarding.of(self._resource, live.metadata)
        self._recorder.event(regarding, type=event.type, reason=event.reason, note=event.message, action=ACTION)


def transition(before: Iterable[Mapping[str, Any]], after: Iterable[Condition]) -> Announcement | None:
    """The Event of a change from one of the three states to another, or to another reason for the same one."""
    old = next(
        ((each["type"], each.get("reason")) for each in before if each["type"] in STATES and each["status"] == "True"),
        None,
    )
    new = next((each for each in after if each.type in STATES and each.status == "True"), None)
    if new is None or old == (new.type, new.reason):
        return None
    reason = new.type if new.type == "Available" else new.reason
    return Announcement("Warning" if new.type == "Degraded" else "Normal", reason, new.message or new.type)


def difference(found: Mapping[str, Any], wanted: Mapping[str, Any]) -> dict[str, Any]:
    """The merge patch from one status to the other, field by field; empty if they are the same.

    A map that differs is replaced as a whole: what it had and is not wanted any more is removed by null.
    """
    change: dict[str, Any] = {}
    for name in (*wanted, *(each for each in found if each not in wanted)):
        old, new = found.get(name), wanted.get(name)
        if old == new:
            continue
        both_maps = isinstance(old, Mapping) and isinstance(new, Mapping)
        change[name] = difference(old, new) if both_maps else new  # type: ignore[arg-type]  # both are maps then
    return change
