"""Asks registries for the images that parked pods wait for (PL-331, PL-333, PL-403).

``waiting.py`` knows what is due; here it is done: one task per attempt, bounded per host, per namespace and in all, so
a host that hangs keeps only its own images waiting, and who names many of them only their own pods (PL-851). A failure
of class auth makes the pods' secrets be read again, and pods whose secret has changed are woken: they come back with
other credentials, and thereby to another look-up (PL-333).

An exception of ours counts as a passing failure of that image (PL-306): it is retried with delays and ends with the
pods' windows, like any other.
"""

import asyncio
from collections.abc import Iterable
from typing import Final, Literal, NamedTuple

import structlog

from polyarch.kube.causes import Causes
from polyarch.kube.clock import Clock
from polyarch.kube.queue import ShutDown, WorkQueue
from polyarch.model.meta import Key
from polyarch.oci.image_reading import BundleMode
from polyarch.oci.inspection import Inspection, InspectionError, Status
from polyarch.placement.answers import Inspects
from polyarch.placement.metrics import PlacementMetrics
from polyarch.placement.retry import MAX_DELAY
from polyarch.placement.secrets import PodCredentials, PullSecrets, PullSource
from polyarch.placement.waiting import Ask, ImageKey, Lookup, Waiting, failure_of

log = structlog.get_logger(__name__)

PER_HOST: Final = 32
PER_NAMESPACE: Final = 64
"""Who names many hosts that hang does not take all places for it (PL-851)."""
IN_ALL: Final = 256
REREAD: Final = 32
"""Places whose secrets are read again after a refusal; several share a look-up only if their secrets are equal."""
JUST_READ: Final = 1.0
"""A secret read so shortly before is not read again."""
REPORT_EVERY: Final = 60.0
"""Seconds between two log lines about the same image, however many pods wait for it (PL-750)."""


class Lane(NamedTuple):
    """Attempts that have only so many places together."""

    kind: Literal["host", "namespace"]
    name: str


class Attempts:
    """The attempts under way. ``queue`` is what ``Waiting`` schedules into."""

    def __init__(
        self,
        waiting: Waiting,
        queue: WorkQueue[ImageKey],
        inspector: Inspects,
        secrets: PullSecrets,
        clock: Clock,
        metrics: PlacementMetrics,
        *,
        per_host: int = PER_HOST,
        per_namespace: int = PER_NAMESPACE,
        in_all: int = IN_ALL,
    ) -> None:
        self._waiting = waiting
        self._queue = queue
        self._inspector = inspector
        self._secrets = secrets
        self._clock = clock
        self._metrics = metrics
        self._per_host = per_host
        self._per_namespace = per_namespace
        self._slots = asyncio.Semaphore(in_all)
        self._causes = Causes()
        self._running: dict[Lane, int] = {}
        self._standing_by: dict[Lane, dict[ImageKey, None]] = {}
        """In the order in which they came; each once."""

    async def run(self) -> None:
        """Makes attempts until cancelled, or until the queue is shut down and nothing is under way."""
        async with asyncio.TaskGroup() as tasks:
            while True:
                await self._slots.acquire()
                try:
                    key = await self._queue.get()
                except ShutDown:
                    return
                self._queue.done(key)
                if not self._begin(key, tasks):
                    self._slots.release()

    def _begin(self, key: ImageKey, tasks: asyncio.TaskGroup) -> bool:
        lanes = self._lanes(key)
        full = next((lane for lane in lanes if not self._has_room(lane)), None)
        ask = self._waiting.start(key) if full is None else None
        if ask is None:
            if full is not None:
                self._standing_by.setdefault(full, {})[key] = None
            for lane in [lane for lane in self._standing_by if self._has_room(lane)]:
                self._call_next(lane)  # the place that this one was called to is another's
            return False
        for lane in lanes:
            self._running[lane] = self._running.get(lane, 0) + 1
        tasks.create_task(self._attempt(key, ask, lanes), name=f"attempt {key.reference}")
        return True

    def _lanes(self, key: ImageKey) -> tuple[Lane, ...]:
        host = Lane("host", key.reference.partition("/")[0])
        lookup = self._waiting.find(key)
        if lookup is None or not lookup.waiters:
            return (host,)
        first = next(iter(lookup.waiters.values()))
        return host, Lane("namespace", first.credentials.source.namespace)

    def _has_room(self, lane: Lane) -> bool:
        return self._running.get(lane, 0) < (self._per_host if lane.kind == "host" else self._per_namespace)

    def _end(self, lanes: Iterable[Lane]) -> None:
        self._slots.release()
        for lane in lanes:
            self._running[lane] -= 1
            if not self._running[lane]:
                del self._running[lane]
        for lane in lanes:
            self._call_next(lane)

    def _call_next(self, lane: Lane) -> None:
        standing_by = self._standing_by.get(lane)
        if standing_by:
            key = next(iter(standing_by))
            del standing_by[key]
            self._queue.add(key)
            if not standing_by:
                del self._standing_by[lane]

    async def _attempt(self, key: ImageKey, ask: Ask, lanes: tuple[Lane, ...]) -> None:
        try:
            await self._make(key, ask)
        except Exception as error:  # noqa: BLE001 - one image that meets a bug of ours must not end the others (PL-306)
            self._bug(key.reference, error)
            self._waiting.give_back(key, MAX_DELAY)
        finally:
            self._end(lanes)

    async def _make(self, key: ImageKey, ask: Ask) -> None:
        if ask.failed_with == "auth":
            await self._reread(key)
        credentials = await self._credentials(key, ask)
        if credentials is None:
            self._waiting.give_back(key, JUST_READ)
            return
        started = self._clock.monotonic()
        answer = await self._ask(ask, credentials, key.bundle)
        self._measure(answer, self._clock.monotonic() - started)
        lookup = self._waiting.finish(key, answer)
        if lookup is not None and failure_of(answer):
            self._report(lookup, answer)
            if failure_of(answer) == "auth" and ask.failed_with != "auth":
                await self._reread(key)

    async def _ask(self, ask: Ask, credentials: PodCredentials, bundle: BundleMode) -> Inspection:
        try:
            return await self._inspector.inspect(
                ask.reference,
                credentials=credentials.store,
                fresh=ask.fresh,
                not_before=ask.not_before,
                bundle=bundle,
                tenant=credentials.source.namespace,
            )
        except Exception as error:  # noqa: BLE001 - counts as a passing failure of that image (PL-306)
            self._bug(ask.reference.canonical, error)
            problem = f"{ask.reference.canonical}: internal error while it was inspected; see polyarch's log"
            failure = InspectionError("internal-error", "transient", problem)
            return Inspection(ask.reference, Status.ERROR, error=failure)

    def _bug(self, image: str, error: Exception) -> None:
        """Counted each time, with its traceback once for each cause (PL-306)."""
        self._metrics.internal_errors.inc()
        log.error("an attempt met a bug", image=image, exc_info=error if self._causes.is_new(error) else None)

    async def _credentials(self, key: ImageKey, ask: Ask) -> PodCredentials | None:
        """Credentials of somebody who waits, as they are now and with the global pull secret as it is now.

        The answer is for all who wait, so it has to be got with what each of them may show (PL-852): those whose
        secrets are others by now are woken and go to another look-up. None if that is everybody who was looked at.
        """
        first = await self._secrets.get(ask.wants[0].credentials.source)
        if first.fingerprint == key.credential:
            return first
        for source, pods in list(self._waiters(key).items())[:REREAD]:
            credentials = await self._secrets.get(source)
            if credentials.fingerprint == key.credential:
                return credentials
            self._waiting.wake_waiters(pods)
        return None

    async def _reread(self, key: ImageKey) -> None:
        """Reads the secrets of those who wait again and wakes the pods of which they changed (PL-333)."""
        sources = {source: pods for source, pods in self._waiters(key).items() if source.names}
        for source, pods in list(sources.items())[:REREAD]:
            credentials = await self._secrets.get(source, since=self._clock.monotonic() - JUST_READ)
            if credentials.fingerprint != key.credential:
                self._waiting.wake_waiters(pods)

    def _waiters(self, key: ImageKey) -> dict[PullSource, list[Key]]:
        """The pods that wait, by where their secrets are."""
        pods: dict[PullSource, list[Key]] = {}
        lookup = self._waiting.find(key)
        for pod, want in lookup.waiters.items() if lookup is not None else ():
            pods.setdefault(want.credentials.source, []).append(pod)
        return pods

    def _measure(self, answer: Inspection, seconds: float) -> None:
        self._metrics.inspect_image.observe(seconds)
        (self._metrics.cache_hit if answer.cached else self._metrics.cache_miss).observe(seconds)
        failure = failure_of(answer)
        self._metrics.attempts.get(failure or "success", self._metrics.attempts["unknown"]).inc()
        if failure:
            self._metrics.failed_inspections.inc()

    def _report(self, lookup: Lookup, answer: Inspection) -> None:
        now = self._clock.monotonic()
        if lookup.reported_at is not None and now - lookup.reported_at < REPORT_EVERY:
            return
        lookup.reported_at = now
        log.warning(
            "image cannot be resolved",
            image=lookup.key.reference,
            failure=failure_of(answer),
            error=answer.error.message if answer.error is not None else "it does not say what it runs on",
            attempts=lookup.failures,
            pods=len(lookup.waiters),
        )
