"""Runs the lookups that gated pods wait for, and collects the inspections of one pod's images.

``waiting`` decides what is due and ``fair_queue`` what is next; :class:`LookupRunner` runs one task per attempt.
Attempts are limited per host, per namespace and in total, so a host that hangs delays only its own images, and a
namespace with many images only its own pods. After a failure of class auth the pods' secrets are read again; pods whose
secret changed are reconciled and join another lookup with the new credentials. An internal error counts as a transient
failure of that image: it is retried with backoff and ends with the pods' retry windows, like any other.

:class:`PodImageResolver` says what is known of one pod's images, and which lookups it still waits for.
"""

import asyncio
from collections.abc import Iterable
from typing import Final, NamedTuple, Protocol

import structlog

from polyarch.clock import Clock
from polyarch.images.backoff import MAX_DELAY
from polyarch.images.fair_queue import ConcurrencyLimits, FairQueue, QueueEntry
from polyarch.images.metrics import LookupMetrics
from polyarch.images.pod_images import ImageUse
from polyarch.images.pull_secrets import JUST_READ, PodCredentials, PullSecretNames, PullSecretReader, PullSecrets
from polyarch.images.resolver import ImageInspector, PodImageRequest, cached_inspections
from polyarch.images.waiting import (
    ImageLookupKey,
    LookupAttempt,
    PendingImage,
    SharedLookup,
    WaitingPods,
    failure_of,
    is_tenants_own,
)
from polyarch.kube.errors import SeenErrors
from polyarch.kube.queue import ShutDown, WorkQueue
from polyarch.objects import ObjectKey
from polyarch.oci.inspection import Inspection, InspectionError, Status

log = structlog.get_logger(__name__)

MAX_REREAD: Final = 32
"""Pull sources that are read again after an auth failure; sources share a lookup only if their secrets are equal."""
REPORT_INTERVAL: Final = 60.0
"""Seconds between log lines about the same image, however many pods wait for it."""


class LookupRunner:
    """Runs attempts. ``queue``: the work queue that ``Waiting`` schedules into."""

    def __init__(
        self,
        waiting: WaitingPods,
        queue: WorkQueue[ImageLookupKey],
        inspector: ImageInspector,
        secrets: PullSecrets,
        clock: Clock,
        metrics: LookupMetrics,
    ) -> None:
        self._waiting = waiting
        self._queue = queue
        self._inspector = inspector
        self._secrets = secrets
        self._clock = clock
        self._metrics = metrics
        self._limits = ConcurrencyLimits()
        self._causes = SeenErrors()
        self._fair_queue: FairQueue[ImageLookupKey] = FairQueue()
        """Queued lookups, each once per namespace, so the length is bounded by the distinct images of gated pods. Only
        lookups without waiters are dropped: a pod whose lookup was dropped would stay gated."""
        self._tasks: asyncio.TaskGroup | None = None
        waiting.on_close(self._fair_queue.drop)

    @property
    def queued(self) -> int:
        """Number of lookups that are due and queued."""
        return len(self._fair_queue)

    async def run(self) -> None:
        """Runs attempts until cancelled, or until the queue is shut down and no attempt is running."""
        async with asyncio.TaskGroup() as tasks:
            self._tasks = tasks
            try:
                while True:
                    key = await self._queue.get()
                    self._queue.done(key)
                    if (lookup := self._waiting.find(key)) is not None:
                        self._fair_queue.add(key, lookup.namespaces)
                    if not len(self._queue):  # queue everything that is due before choosing, so the order is fair
                        self._start_allowed(tasks)
            except ShutDown:
                return
            finally:
                self._tasks = None  # attempts that end during shutdown must not start others

    async def look_for_new_secrets(self) -> None:
        """Reads the secrets of pods again whose images failed with auth, and wakes those whose secrets changed: they
        join another lookup, which is made at once."""
        for key in [lookup.key for lookup in self._waiting.lookups() if lookup.failure == "auth"]:
            await self._reread(key)

    def _start_allowed(self, tasks: asyncio.TaskGroup) -> None:
        while (entry := self._fair_queue.next(self._limits, waits=self._waits)) is not None:
            if (attempt := self._waiting.start(entry.key)) is not None:
                self._limits.acquire(entry)
                tasks.create_task(self._attempt(entry, attempt), name=f"attempt {entry.key.reference}")

    def _waits(self, key: ImageLookupKey, namespace: str) -> bool:
        lookup = self._waiting.find(key)
        return lookup is not None and namespace in lookup.namespaces

    async def _attempt(self, entry: QueueEntry[ImageLookupKey], attempt: LookupAttempt) -> None:
        try:
            await self._make(entry, attempt)
        except Exception as error:  # noqa: BLE001 - one image must not stop the others
            self._internal_error(entry.key.reference, error)
            self._waiting.give_back(entry.key, MAX_DELAY)
        finally:
            self._limits.release(entry)
            if self._tasks is not None:
                self._start_allowed(self._tasks)

    async def _make(self, entry: QueueEntry[ImageLookupKey], attempt: LookupAttempt) -> None:
        key, started = entry.key, self._clock.monotonic()
        try:
            if attempt.failed_with == "auth":
                await self._reread(key)
            credentials = await self._credentials(key, attempt)
            if credentials is None:
                self._waiting.give_back(key, JUST_READ)
                return
            started = self._clock.monotonic()
            inspection = await self._ask(attempt, credentials, entry)
        except Exception as error:  # noqa: BLE001 - counts as a transient failure of that image
            self._internal_error(attempt.reference.canonical, error)
            problem = f"{attempt.reference.canonical}: internal error while it was inspected; see polyarch's log"
            failure = InspectionError("internal-error", "transient", problem)
            inspection = Inspection(attempt.reference, Status.ERROR, error=failure)
        self._measure(inspection, self._clock.monotonic() - started)
        if is_tenants_own(inspection) and self._waiting.pass_on(key, entry.namespace):
            return
        lookup = self._waiting.finish(key, inspection)
        if lookup is not None and failure_of(inspection):
            self._report(lookup, inspection)
            if failure_of(inspection) == "auth" and attempt.failed_with != "auth":
                await self._reread(key)

    async def _ask(
        self, attempt: LookupAttempt, credentials: PodCredentials, entry: QueueEntry[ImageLookupKey]
    ) -> Inspection:
        return await self._inspector.inspect(
            attempt.reference,
            credentials=credentials.store,
            fresh=attempt.fresh,
            not_before=attempt.not_before,
            bundle=entry.key.bundle,
            tenant=entry.namespace,
        )

    def _internal_error(self, image: str, error: Exception) -> None:
        """Counts and logs an internal error, with the traceback once per cause."""
        self._metrics.internal_errors.inc()
        log.error(
            "image look-up failed with an internal error",
            image=image,
            exc_info=error if self._causes.is_new(error) else None,
        )

    async def _credentials(self, key: ImageLookupKey, attempt: LookupAttempt) -> PodCredentials | None:
        """Current credentials of a waiting pod, with the current global pull secret.

        All waiting pods get the answer, so it must be obtained with credentials that each of them has. Pods
        whose secrets changed are woken and join another lookup. None: the secrets of all checked pods changed.
        """
        first = await self._secrets.get(attempt.wants[0].credentials.source)
        if first.fingerprint == key.credential:
            return first
        for source, pods in list(self._waiters(key).items())[:MAX_REREAD]:
            credentials = await self._secrets.get(source)
            if credentials.fingerprint == key.credential:
                return credentials
            self._waiting.wake_waiters(pods)
        return None

    async def _reread(self, key: ImageLookupKey) -> None:
        """Reads the waiting pods' secrets again and wakes the pods whose secrets changed."""

        async def read(source: PullSecretNames, pods: list[ObjectKey]) -> None:
            credentials = await self._secrets.get(source, since=self._clock.monotonic() - JUST_READ)
            if credentials.fingerprint != key.credential:
                self._waiting.wake_waiters(pods)

        named = [(source, pods) for source, pods in self._waiters(key).items() if source.names]
        async with asyncio.TaskGroup() as tasks:
            for source, pods in named[:MAX_REREAD]:
                tasks.create_task(read(source, pods), name=f"read the pull secrets of {source.namespace} again")

    def _waiters(self, key: ImageLookupKey) -> dict[PullSecretNames, list[ObjectKey]]:
        """Waiting pods by pull source."""
        pods: dict[PullSecretNames, list[ObjectKey]] = {}
        lookup = self._waiting.find(key)
        for pod, want in lookup.waiters.items() if lookup is not None else ():
            pods.setdefault(want.credentials.source, []).append(pod)
        return pods

    def _measure(self, inspection: Inspection, seconds: float) -> None:
        self._metrics.inspect_image.observe(seconds)
        (self._metrics.cache_hit if inspection.cached else self._metrics.cache_miss).observe(seconds)
        failure = failure_of(inspection)
        self._metrics.attempts.get(failure or "success", self._metrics.attempts["unknown"]).inc()
        if failure:
            self._metrics.failed_inspections.inc()

    def _report(self, lookup: SharedLookup, inspection: Inspection) -> None:
        now = self._clock.monotonic()
        if lookup.reported_at is not None and now - lookup.reported_at < REPORT_INTERVAL:
            return
        lookup.reported_at = now
        log.warning(
            "image cannot be resolved",
            image=lookup.key.reference,
            failure=failure_of(inspection),
            error=inspection.error.message if inspection.error is not None else "it does not say what it runs on",
            attempts=lookup.failures,
            pods=len(lookup.waiters),
        )


# -- the answers for a waiting pod's images, and the lookups it still waits for ---------------------------------------
# Answers come from the registry client's cache and from shared lookups; this part sends no request and never waits. If
# an image needs the pod's pull secrets and they are not cached, they are read in the background and the pod is
# reconciled again.


class Waits(Protocol):
    """What is remembered of a waiting pod. Times are ``Clock.monotonic()``."""

    failed_once: dict[str, Inspection]
    """Failures of images that may exist on nodes only, by reference text; replaced, never changed."""

    @property
    def seen_at(self) -> float: ...

    def waits(self, now: float, *, begun: float | None) -> None:
        """It waits for lookups; ``begun``: when the first attempt of one began; None: all are queued."""
        ...

    def waits_for_nothing(self, now: float) -> None:
        """No lookup can provide what is missing, if anything is."""
        ...


class PodImageState(NamedTuple):
    """The state of a pod's images."""

    inspections: dict[str, Inspection]
    """Inspections, including failures, by the text of the reference."""
    wants: tuple[PendingImage, ...] = ()
    """Images that the pod waits for."""
    answered: tuple[PendingImage, ...] = ()
    """Images answered by their lookup. A lookup and its answer are dropped when the last pod leaves it, so the pod
    stays parked there until all its images are known."""
    problems: tuple[str, ...] = ()
    """Problems of the pod's pull secrets, for the events of a failure."""
    pending: bool = False
    """An image has neither answered nor failed since the pod was first seen."""
    undecidable: bool = False
    """The pod is not decided before ``wants`` are known, however long that takes."""


class PodImageResolver:
    """Collects the inspections of one pod's images."""

    def __init__(
        self,
        inspector: ImageInspector,
        secrets: PullSecrets,
        reads: PullSecretReader,
        waiting: WaitingPods,
        clock: Clock,
    ) -> None:
        self._inspector = inspector
        self._secrets = secrets
        self._reads = reads
        self._waiting = waiting
        self._clock = clock

    def resolve(self, request: PodImageRequest, key: ObjectKey, state: Waits) -> PodImageState | None:
        """The state of all images of the pod; None: its pull secrets are being read, then it is reconciled again."""
        known = self._known(request, state) if request.images else PodImageState({})
        if known is None:
            self._reads.want(request.source, key)
        return known

    def _known(self, request: PodImageRequest, state: Waits) -> PodImageState | None:
        inspections = self._cached(request, state)
        missing = [use for use in request.images if use.reference is not None and use.text not in inspections]
        credentials = self._secrets.cached(request.source)
        if not missing:
            known = PodImageState(inspections, problems=credentials.problems if credentials is not None else ())
        elif credentials is not None:
            known = self._looked_up(missing, inspections, credentials, state)
        else:
            return None
        if request.is_impossible(known.inspections):
            if (with_bundles := self._resolve_bundles(request, known)) is None:
                return None
            known = with_bundles
        if not known.wants:
            state.waits_for_nothing(self._clock.monotonic())
        return known

    def _looked_up(
        self, missing: Iterable[ImageUse], inspections: dict[str, Inspection], credentials: PodCredentials, state: Waits
    ) -> PodImageState:
        """Inspections of the shared lookups for the missing images; each lookup is read once."""
        now = self._clock.monotonic()
        wants: list[PendingImage] = []
        answered: list[PendingImage] = []
        begun: list[float] = []
        pending = False
        for use in missing:
            if use.reference is None:
                continue
            if use.text in state.failed_once:
                inspections[use.text] = state.failed_once[use.text]
                continue
            image = ImageLookupKey(use.reference.canonical, credentials.fingerprint)
            not_before = state.seen_at if use.always and use.reference.digest is None else None
            want = PendingImage(image, use.reference, credentials, not_before, since=state.seen_at)
            lookup = self._waiting.find(image)
            is_pending = lookup is None or lookup.is_pending(want)
            if lookup is not None and lookup.serves(want, now) and lookup.inspection is not None:
                inspections[use.text] = lookup.inspection
                answered.append(want)
                continue
            if lookup is not None and lookup.failure and lookup.inspection is not None:
                inspections[use.text] = lookup.inspection
                if use.never and not is_pending:
                    state.failed_once = {**state.failed_once, use.text: lookup.inspection}
                    continue
            wants.append(want)
            pending = pending or is_pending
            if lookup is not None and lookup.started_at is not None:
                begun.append(lookup.started_at)
        if wants:
            state.waits(now, begun=min(begun, default=None))
        return PodImageState(inspections, tuple(wants), tuple(answered), credentials.problems, pending)

    def _resolve_bundles(self, request: PodImageRequest, known: PodImageState) -> PodImageState | None:
        """Checks, before a pod counts as impossible, whether its indexes are operator bundles, which constrain
        nothing.

        Uses the inspections of indexes that were made for this; the others are waited for. None: pull secrets are
        needed that are not cached.
        """
        anybody = PullSecretNames(request.source.namespace, ())
        inspections = dict(known.inspections)
        wants: list[PendingImage] = []
        answered: list[PendingImage] = []
        for use in request.images:
            inspection = inspections.get(use.text)
            if inspection is None or use.reference is None or inspection.kind != "index" or not inspection.constrains:
                continue
            credentials = self._secrets.cached(anybody if inspection.public else request.source)
            if credentials is None:
                return None
            found = self._inspector.peek(use.reference, credentials.store, bundle="always")
            if found is None:
                image = ImageLookupKey(use.reference.canonical, credentials.fingerprint, "always")
                want = PendingImage(image, use.reference, credentials)
                lookup = self._waiting.find(image)
                found = lookup.inspection if lookup is not None else None
                (wants if found is None else answered).append(want)
            if found is not None and not failure_of(found):
                inspections[use.text] = found
        if wants:
            return known._replace(wants=(*known.wants, *wants), answered=(*known.answered, *answered), undecidable=True)
        return known._replace(inspections=inspections)

    def _cached(self, request: PodImageRequest, state: Waits) -> dict[str, Inspection]:
        credentials, now = self._secrets.lazy(request.source), self._clock.monotonic()
        return cached_inspections(request, self._inspector, credentials, since=state.seen_at, now=now)
