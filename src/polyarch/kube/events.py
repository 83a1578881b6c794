"""The event recorder: events.k8s.io/v1, posted in the background, repetitions as series.

``Recorder.event`` queues an occurrence and returns; workers post. Repetitions become one Event with a series: the first
occurrence is posted at once, later ones within six minutes of each other are counted and written at most once a minute.
The queue is bounded, and shared by namespaces; beyond the bound, and after several failed tries, an Event is dropped
and counted. A lost Event is no error: state lives in objects, Events are for people."""

import hashlib
import re
from collections import Counter, OrderedDict
from collections.abc import Mapping
from datetime import datetime
from typing import Any, Final, Literal, NamedTuple, Protocol

import msgspec
import structlog

from polyarch.clock import Clock, SystemClock
from polyarch.kube.controller import Controller, NoRequeue
from polyarch.kube.errors import AlreadyExists, ApiError, KubernetesError, NotFound, TooManyRequests
from polyarch.kube.lease import micro_time
from polyarch.kube.metrics import Metrics
from polyarch.kube.patches import MergePatch
from polyarch.kube.queue import Tenants, WorkQueue
from polyarch.kube.rbac import rule
from polyarch.kube.resources import EVENTS, Resource
from polyarch.objects import ObjectMeta

log = structlog.get_logger(__name__)

RIGHTS: Final = (rule(EVENTS, "create", "patch"),)
"""RBAC rules of a recorder, in the namespaces of the objects that its Events regard."""
SERIES_WINDOW: Final = 360.0
"""Occurrences further apart than this are separate Events, as in client-go."""

SERIES_INTERVAL: Final = 60.0
REMEMBERED: Final = 4096
TRIES: Final = 5
BACKOFF: Final = 1.0
"""Seconds; doubled four times it makes at least 15 s, long enough for an API server to restart."""
NOTE_BYTES: Final = 1024
MINIMUM_PART: Final = 50
"""Of the bound, the part that may wait of each namespace whatever others have, up to four times the bound in all."""
_NAME: Final = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")


class Regarding(msgspec.Struct, frozen=True, gc=False):
    """The object that an Event is about. ``namespace`` is empty for cluster-scoped ones."""

    api_version: str
    kind: str
    namespace: str
    name: str
    uid: str = ""

    @classmethod
    def of(cls, resource: Resource, metadata: ObjectMeta) -> "Regarding":
        """An object that was read."""
        return cls(resource.api_version, resource.kind, metadata.namespace, metadata.name, metadata.uid)

    def document(self) -> dict[str, str]:
        members = {"apiVersion": self.api_version, "kind": self.kind, "namespace": self.namespace, "name": self.name}
        return {key: value for key, value in {**members, "uid": self.uid}.items() if value}


class EventsClient(Protocol):
    """The part of the client that a recorder uses."""

    async def create(
        self, resource: Resource, document: Mapping[str, Any], *, namespace: str = "", retry: bool = True
    ) -> Any: ...

    async def patch(
        self, resource: Resource, name: str, patch: MergePatch, *, namespace: str = "", retry: bool = True
    ) -> Any: ...


class _Occurrence(NamedTuple):
    """Two occurrences with equal fields belong to one series."""

    regarding: Regarding
    type: str
    reason: str
    action: str
    note: str
    related: Regarding | None

    def __str__(self) -> str:
        return f"{self.reason} {self.regarding.kind} {self.regarding.namespace}/{self.regarding.name}"


class _Series:
    """The number of occurrences so far, and how many of them the API server knows."""

    __slots__ = ("count", "name", "observed", "posted", "posted_at", "seen_at", "since")

    def __init__(self, name: str, now: float, moment: datetime) -> None:
        self.name = name
        self.count = 1
        self.posted = 0
        self.posted_at = now
        self.seen_at = now
        self.since = self.observed = moment


class Recorder:
    """``controller`` is a qualified name such as ``polyarch.dev/placement-controller``, ``instance`` the pod's name."""

    def __init__(
        self,
        client: EventsClient,
        *,
        controller: str,
        instance: str,
        clock: Clock | None = None,
        size: int = 1000,
        workers: int = 4,
        metrics: Metrics | None = None,
    ) -> None:
        self._client = client
        self._reporting_controller = controller
        self._instance = instance[:128]
        self._clock = clock or SystemClock()
        self._size = size
        self._series: OrderedDict[_Occurrence, _Series] = OrderedDict()
        self._waiting: set[_Occurrence] = set()
        self._waiting_of: Counter[str] = Counter()
        """By namespace; zeros are removed."""
        self._made = 0
        self._dropped = (metrics or Metrics()).counter(
            "polyarch_events_dropped_total", "Events that could not be posted"
        )
        # Named for whose events they are: a process with several roles has several recorders, and their metrics.
        name = f"events-{controller.rpartition('/')[2]}"
        queue: WorkQueue[_Occurrence] = WorkQueue(
            name, self._clock, backoff=BACKOFF, metrics=metrics, tenants=Tenants(_namespace_of)
        )
        self._poster: Controller[_Occurrence] = Controller(
            name, self._post, queue=queue, workers=workers, timeout=30.0, clock=self._clock, metrics=metrics
        )
        self.dropped = 0

    def event(
        self,
        regarding: Regarding,
        *,
        type: Literal["Normal", "Warning"],
        reason: str,
        note: str,
        action: str,
        related: Regarding | None = None,
    ) -> None:
        """Queues an occurrence; never waits, never fails. ``note`` is for people and is cut at 1 024 bytes."""
        occurrence = _Occurrence(regarding, type, reason, action or reason, _cut(note), related)
        now, moment = self._clock.monotonic(), self._clock.now()
        known = self._series.get(occurrence)
        if known is not None and now - known.seen_at < SERIES_WINDOW:
            known.count += 1
            known.seen_at, known.observed = now, moment
            self._series.move_to_end(occurrence)
            if known.posted:
                self._wait(occurrence)
                self._poster.queue.add_after(occurrence, known.posted_at + SERIES_INTERVAL - now)
            return
        waiting = len(self._waiting)
        if waiting >= self._size and (
            self._waiting_of[_namespace_of(occurrence)] >= self._size // MINIMUM_PART or waiting >= 4 * self._size
        ):
            self._drop(str(occurrence), f"{waiting} are waiting to be posted already")
            return
        self._series[occurrence] = _Series(self._name(occurrence, moment), now, moment)
        self._series.move_to_end(occurrence)
        self._wait(occurrence)
        self._poster.queue.add(occurrence)
        self._forget_old(now)

    async def run(self) -> None:
        """Posts until cancelled or closed."""
        await self._poster.run()

    async def close(self, seconds: float) -> None:
        """Posts what is queued, with the counts of series, for at most ``seconds``; then ``run`` returns."""
        for occurrence in self._waiting:
            self._poster.queue.add(occurrence)
        await self._poster.stop(seconds)
        if self._waiting:
            self._drop(
                "events at the end of the process", "the API server did not take them in time", len(self._waiting)
            )

    def _wait(self, occurrence: _Occurrence) -> None:
        if occurrence not in self._waiting:
            self._waiting.add(occurrence)
            self._waiting_of[_namespace_of(occurrence)] += 1

    def _waits_no_more(self, occurrence: _Occurrence) -> None:
        if occurrence in self._waiting:
            self._waiting.remove(occurrence)
            namespace = _namespace_of(occurrence)
            self._waiting_of[namespace] -= 1
            if not self._waiting_of[namespace]:
                del self._waiting_of[namespace]

    async def _post(self, occurrence: _Occurrence) -> NoRequeue:
        series = self._series.get(occurrence)
        if series is None or series.count == series.posted:
            self._waits_no_more(occurrence)
            return NoRequeue()
        count = series.count
        failures = self._poster.queue.failures(occurrence)
        if failures >= TRIES:  # all tries timed out; answered failures are handled below
            return self._give_up(occurrence, "no answer in time")
        try:
            await self._send(occurrence, series)
        except KubernetesError as error:
            if _is_passing(error) and failures + 1 < TRIES:
                raise
            return self._give_up(occurrence, str(error))
        series.posted, series.posted_at = count, self._clock.monotonic()
        if series.count == count:
            self._waits_no_more(occurrence)
        else:
            self._poster.queue.add_after(occurrence, SERIES_INTERVAL)
        return NoRequeue()

    def _give_up(self, occurrence: _Occurrence, why: str) -> NoRequeue:
        self._waits_no_more(occurrence)
        self._series.pop(occurrence, None)
        self._drop(str(occurrence), why)
        return NoRequeue()

    async def _send(self, occurrence: _Occurrence, series: _Series) -> None:
        namespace = occurrence.regarding.namespace or "default"
        if series.posted:
            change = MergePatch({"series": _series(series)})
            try:
                await self._client.patch(EVENTS, series.name, change, namespace=namespace, retry=False)
                return
            except NotFound:  # its time to live has ended
                series.name = self._name(occurrence, series.observed)
        try:
            document = self._document(occurrence, series, namespace)
            await self._client.create(EVENTS, document, namespace=namespace, retry=False)
        except AlreadyExists:
            log.debug("event had arrived although its answer was lost", about=str(occurrence))

    def _document(self, occurrence: _Occurrence, series: _Series, namespace: str) -> dict[str, Any]:
        document: dict[str, Any] = {
            "apiVersion": EVENTS.api_version,
            "kind": EVENTS.kind,
            "metadata": {"name": series.name, "namespace": namespace},
            "eventTime": micro_time(series.since),
            "reportingController": self._reporting_controller,
            "reportingInstance": self._instance,
            "type": occurrence.type,
            "reason": occurrence.reason,
            "action": occurrence.action,
            "note": occurrence.note,
            "regarding": occurrence.regarding.document(),
        }
        if occurrence.related is not None:
            document["related"] = occurrence.related.document()
        if series.count > 1:
            document["series"] = _series(series)
        return document

    def _name(self, occurrence: _Occurrence, moment: datetime) -> str:
        """The object's name and something unique, so that ``kubectl get events`` sorts by object."""
        self._made += 1
        unique = hashlib.blake2b(f"{self._instance} {moment} {self._made}".encode(), digest_size=8).hexdigest()
        name = occurrence.regarding.name[:236]
        return f"{name if _NAME.fullmatch(name) else occurrence.regarding.kind.lower()}.{unique}"

    def _forget_old(self, now: float) -> None:
        """Bounds the memory for series, by their age and by their number; what waits to be posted is kept.

        They stand in the order in which they were last seen.
        """
        while self._series:
            occurrence, series = next(iter(self._series.items()))
            if now - series.seen_at < SERIES_WINDOW or occurrence in self._waiting:
                break
            del self._series[occurrence]
        if len(self._series) > REMEMBERED:
            for occurrence in self._series:
                if occurrence not in self._waiting:
                    del self._series[occurrence]
                    return

    def _drop(self, what: str, why: str, count: int = 1) -> None:
        self.dropped += count
        self._dropped.inc(count)
        log.warning("event dropped", about=what, problem=why, dropped_so_far=self.dropped)


def _namespace_of(occurrence: _Occurrence) -> str:
    return occurrence.regarding.namespace


def _series(series: _Series) -> dict[str, Any]:
    return {"count": series.count, "lastObservedTime": micro_time(series.observed)}


def _is_passing(error: KubernetesError) -> bool:
    """Whether a retry may succeed; not after a refusal (no permission, invalid, namespace terminating)."""
    return not isinstance(error, ApiError) or isinstance(error, TooManyRequests) or error.status >= 500


def _cut(note: str) -> str:
    encoded = note.encode("utf-8", "replace")
    if len(encoded) <= NOTE_BYTES:
        return note
    return encoded[: NOTE_BYTES - 3].decode("utf-8", "ignore") + "…"
