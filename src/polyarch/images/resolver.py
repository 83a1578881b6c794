"""Inspections of images: those in memory, and the lookups of admissions and of work that nobody waits for.

:func:`cached_inspections` neither waits nor sends a request. Credentials are passed as a store that reads pull secrets
only on demand, so the inspection of an image known to be public needs no secret. :class:`AdmissionLookups` asks
registries within the time of an admission, :class:`LowPriorityLookups` for sweep, warm-up and reports. The lookups of
gated pods are in ``waiting`` and ``lookup_runner``.
"""

import asyncio
from collections.abc import Callable, Iterable, Mapping
from typing import Final, NamedTuple, Protocol

import msgspec
import structlog

from polyarch.clock import Clock, deadline
from polyarch.images.fair_queue import ConcurrencyLimits, FairQueue, QueueEntry
from polyarch.images.metrics import LookupMetrics
from polyarch.images.pod_images import ImageUse, usable_now
from polyarch.images.pull_secrets import JUST_READ, PullSecretNames, PullSecrets
from polyarch.images.waiting import failure_of, is_tenants_own, without_proof
from polyarch.kube.errors import SeenErrors
from polyarch.oci.auth.credential_stores import CredentialStore
from polyarch.oci.cache import BundleMode
from polyarch.oci.concurrency import RequestPriority, RequestQueue, SharedCapacity
from polyarch.oci.inspection import Inspection
from polyarch.oci.lru_cache import LRUCache
from polyarch.oci.reference import Reference
from polyarch.oci.settings import Share

log = structlog.get_logger(__name__)


class ImageInspector(Protocol):
    """The part of the registry client that features use."""

    async def inspect(
        self,
        reference: Reference,
        *,
        credentials: CredentialStore | None = None,
        fresh: bool = False,
        not_before: float | None = None,
        bundle: BundleMode = "auto",
        tenant: str = "",
    ) -> Inspection: ...

    def peek(
        self,
        reference: Reference,
        credentials: CredentialStore | None = None,
        *,
        bundle: BundleMode = "auto",
        stale_for: float | None = None,
    ) -> Inspection | None: ...

    def host_busy(self, reference: Reference, tenant: str = "") -> bool: ...

    def host_low(self, reference: Reference) -> bool: ...


class PodImageRequest(NamedTuple):
    """The images of one pod, as a feature asks for them."""

    images: tuple[ImageUse, ...]
    source: PullSecretNames
    stale_for: float
    """How old the last good reading of a failing image may be."""
    is_impossible: Callable[[Mapping[str, Inspection]], bool]
    """Whether no node runs all images that are known."""


def cached_inspections(
    request: PodImageRequest, inspector: ImageInspector, credentials: CredentialStore, *, since: float, now: float
) -> dict[str, Inspection]:
    """The usable inspections by the text of the reference. ``since``: when the request arrived or the controller first
    saw the pod; with ``imagePullPolicy: Always`` the tag must be checked at or after it."""
    inspections: dict[str, Inspection] = {}
    stale_for = request.stale_for
    for use in request.images:
        if use.reference is None:
            continue
        inspection = inspector.peek(use.reference, credentials, stale_for=stale_for)
        if inspection is not None and usable_now(use, inspection, arrived_at=since, now=now, stale_for=stale_for):
            inspections[use.text] = inspection
    return inspections


# -- admissions --------------------------------------------------------------------------------------------------------
# An admission waits only for its budget, but a registry may take 30 seconds, and pod authors choose how many images and
# hosts there are. So admissions share lookups, as gated pods do: one per image and credential, with limits on how many
# are running and queued, and fair queueing by namespace. If the queue is full, the image is not looked up at admission
# and the pod is gated. A lookup that has been queued for 30 seconds is dropped: its admission was answered long ago,
# and the controller has looked the image up since. If a registry refuses the credentials, the pull secrets are read
# once more. Without this, pods whose secret was just replaced would be gated for ten minutes, until the cached secret
# expires. Failures are cached for 30 seconds, so a burst of equal pods costs one attempt and no budget. A process has
# one instance for all features that decide at admission: they share its answers and its limits.

WAITING_ADMISSIONS: Final = Share(64, per_tenant=32, minimum=4, maximum=256)
"""Admissions of this process that may wait for registries at a time; further ones go without."""
QUEUED_LOOKUPS: Final = Share(1000, per_tenant=250, minimum=50, maximum=4000)
"""Queued lookups; further images are not looked up at admission."""
LOOKUP_TIMEOUT: Final = 30.0
"""Seconds that a lookup may run, and that it may be queued."""
RECENT_FAILURE_PERIOD: Final = 30.0
"""Seconds after a failure during which admissions do not look the image up again."""
MAX_FAILURES: Final = 10_000
MAX_FAILURES_BYTES: Final = 4 * 1024 * 1024
"""Bytes of cached failures."""


PendingInspection = asyncio.Future[Inspection | None]
"""A future answer; its result is None if the lookup timed out or was dropped."""


class AdmissionLookupKey(NamedTuple):
    """The key of a lookup. Pods without pull secrets of their own share lookups across namespaces."""

    reference: str
    source: PullSecretNames
    bundle: BundleMode = "auto"

    @classmethod
    def by(cls, reference: Reference, source: PullSecretNames, bundle: BundleMode = "auto") -> "AdmissionLookupKey":
        return cls(reference.canonical, source if source.names else ANYBODY, bundle)


ANYBODY: Final = PullSecretNames("", ())


NEVER: Final = float("-inf")


class _Lookup:
    """One lookup, queued or running."""

    __slots__ = ("asked_at", "inspection", "key", "not_before", "reference", "revoked", "running", "source", "then")

    def __init__(self, key: AdmissionLookupKey, reference: Reference, source: PullSecretNames, now: float) -> None:
        self.key = key
        self.reference = reference
        self.source = source
        """The pull secrets of the first pod that asked; the lookup counts against that pod's namespace."""
        self.asked_at = now
        self.not_before = NEVER
        """The tag must be checked at or after this time: the latest that any waiting admission needs."""
        self.inspection: PendingInspection = asyncio.get_running_loop().create_future()
        self.running = False
        self.revoked = False
        """It may show credentials that do not count any more."""
        self.then: _Lookup | None = None
        """The next lookup, for admissions that need a later tag check than this one makes."""


class AdmissionLookups:
    """``known`` returns inspections at once, ``inspect_until`` waits for more, ``inspect`` starts or joins a lookup."""

    def __init__(
        self,
        inspector: ImageInspector,
        secrets: PullSecrets,
        clock: Clock,
        metrics: LookupMetrics,
    ) -> None:
        self._inspector = inspector
        self._secrets = secrets
        self._clock = clock
        self._metrics = metrics
        self._limits = ConcurrencyLimits()
        self._fair_queue: FairQueue[AdmissionLookupKey] = FairQueue()
        self._lookups: dict[AdmissionLookupKey, _Lookup] = {}
        self._queued: dict[_Lookup, None] = {}
        """In order of arrival."""
        self._places = SharedCapacity(QUEUED_LOOKUPS)
        self._waiting = SharedCapacity(WAITING_ADMISSIONS)
        self._failures: LRUCache[AdmissionLookupKey, tuple[Inspection, float]] = LRUCache(
            MAX_FAILURES, weight=MAX_FAILURES_BYTES
        )
        self._tasks: set[asyncio.Task[None]] = set()
        self._causes = SeenErrors()

    @property
    def queued(self) -> int:
        """Number of queued lookups."""
        return len(self._queued)

    # -- for an admission ----------------------------------------------------------------------------------------------

    def known(self, request: PodImageRequest, *, since: float) -> dict[str, Inspection]:
        """Inspections that are usable now, and recent failures with their last good readings, by the text of the
        reference. ``since``: when the admission arrived."""
        now, credentials = self._clock.monotonic(), self._secrets.lazy(request.source)
        inspections = cached_inspections(request, self._inspector, credentials, since=since, now=now)
        for use in request.images if len(inspections) < len(request.images) else ():
            if use.text not in inspections and use.reference is not None:
                failed = self.recent_failure(use.reference, request.source)
                if failed is not None:
                    inspections[use.text] = failed
        return inspections

    async def inspect_until(
        self, until: float, request: PodImageRequest, inspections: dict[str, Inspection], *, since: float
    ) -> None:
        """Adds the answers that registries give in time. One failing image decides for the pod, so then none is asked
        for. ``since``: as for :meth:`known`."""
        missing = [use for use in request.images if use.text not in inspections]
        left = until - self._clock.monotonic()
        if left <= 0 or not self._waiting.allows(request.source.namespace):
            return
        if any(not use.never and failure_of(inspections.get(use.text)) for use in request.images):
            return
        namespace = request.source.namespace
        if any(use.reference is None or self._inspector.host_busy(use.reference, namespace) for use in missing):
            return
        asked = self.inspect_all(missing, request.source, since=since)
        if len(asked) == len(missing):
            inspections.update(await self._wait_for(asked, left, request.source.namespace))

    async def inspect_bundles(self, until: float, request: PodImageRequest, inspections: dict[str, Inspection]) -> None:
        """Looks closer at the indexes of a pod that no node can run: an operator bundle constrains nothing.

        Removes the answers for those that could not be looked at in time.
        """
        credentials = self._secrets.lazy(request.source)
        asked: dict[str, PendingInspection] = {}
        for use in request.images:
            inspection = inspections.get(use.text)
            if use.reference is None or inspection is None or inspection.kind != "index" or not inspection.constrains:
                continue
            found = self._inspector.peek(use.reference, credentials, bundle="always")
            if found is not None:
                inspections[use.text] = found
                continue
            del inspections[use.text]
            if (
                self._waiting.allows(request.source.namespace)
                and (pending := self.inspect(use.reference, request.source, bundle="always")) is not None
            ):
                asked[use.text] = pending
        if asked:
            given = await self._wait_for(asked, until - self._clock.monotonic(), request.source.namespace)
            inspections.update({text: inspection for text, inspection in given.items() if not failure_of(inspection)})

    async def _wait_for(
        self, asked: dict[str, PendingInspection], seconds: float, namespace: str
    ) -> dict[str, Inspection]:
        """The answers that arrive within this time."""
        if not self._waiting.take(namespace):
            return finished(asked)
        try:
            async with deadline(self._clock, max(seconds, 0.0)):
                await asyncio.wait(asked.values())
        except TimeoutError:
            pass
        finally:
            self._waiting.give_back(namespace)
        return finished(asked)

    def inspect_all(
        self, uses: Iterable[ImageUse], source: PullSecretNames, *, since: float
    ) -> dict[str, PendingInspection]:
        """Future answers by the text of the reference; images that found the queue full are left out.

        ``since``: with ``imagePullPolicy: Always`` the tag must be checked at or after this time.
        """
        asked = {}
        for use in uses:
            if use.reference is None:
                continue
            not_before = since if use.always and use.reference.digest is None else NEVER
            inspection = self.inspect(use.reference, source, not_before=not_before)
            if inspection is not None:
                asked[use.text] = inspection
        return asked

    # -- one lookup ---------------------------------------------------------------------------------------------------

    def inspect(
        self, reference: Reference, source: PullSecretNames, *, not_before: float = NEVER, bundle: BundleMode = "auto"
    ) -> PendingInspection | None:
        """A future answer, or None if the queue is full and the image is not looked up.

        ``not_before``: the tag must be checked at or after this time. A caller that stops waiting does not cancel
        the lookup, so others that wait for it and later pods get the answer.
        """
        key, namespace, now = (
            AdmissionLookupKey.by(reference, source, bundle),
            source.namespace,
            self._clock.monotonic(),
        )
        self._forget_expired(now)
        lookup = self._lookups.get(key)
        if lookup is not None and lookup.running and not_before > lookup.not_before:
            before, lookup = lookup, lookup.then
        else:
            before = None
        if lookup is None:
            if not self._places.take(namespace):
                self._metrics.lookups_dropped.inc()
                return None
            lookup = _Lookup(key, reference, source, now)
            self._queued[lookup] = None
            if before is not None:
                before.then = lookup
            else:
                self._lookups[key] = lookup
        lookup.not_before = max(lookup.not_before, not_before)
        if before is None and not lookup.running:
            self._fair_queue.add(key, [namespace])
            self._start_allowed()
        return lookup.inspection

    def recent_failure(self, reference: Reference, source: PullSecretNames) -> Inspection | None:
        """The failed answer of the last 30 seconds, with the last good reading that may replace it."""
        key = AdmissionLookupKey.by(reference, source)
        failed = self._failures.get(key)
        if failed is None:
            return None
        inspection, at = failed
        if self._clock.monotonic() - at < RECENT_FAILURE_PERIOD:
            return inspection
        self._failures.pop(key)
        return None

    def revoke(self) -> None:
        """Credentials that all pods share do not count any more: what they may have opened stands in for no failure,
        and of what is under way only public answers count."""
        self._failures.clear()
        for lookup in self._lookups.values():
            lookup.revoked = lookup.running

    async def close(self) -> None:
        """Cancels running lookups and drops queued ones."""
        for lookup in list(self._queued):
            self._forget(lookup)
        for task in (tasks := list(self._tasks)):
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    # -- the queue -----------------------------------------------------------------------------------------------------

    def _start_allowed(self) -> None:
        while (entry := self._fair_queue.next(self._limits, waits=lambda key, namespace: True)) is not None:
            lookup = self._lookups[entry.key]
            self._dequeue(lookup)
            lookup.running = True
            self._limits.acquire(entry)
            task = asyncio.get_running_loop().create_task(self._attempt(entry, lookup), name=f"look up {entry.key[0]}")
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    def _forget_expired(self, now: float) -> None:
        while self._queued and now - (oldest := next(iter(self._queued))).asked_at >= LOOKUP_TIMEOUT:
            self._forget(oldest)

    def _forget(self, lookup: _Lookup) -> None:
        self._dequeue(lookup)
        current = self._lookups[lookup.key]
        if current is lookup:
            del self._lookups[lookup.key]
            self._fair_queue.drop(lookup.key)
        else:
            current.then = None
        lookup.inspection.set_result(None)

    def _dequeue(self, lookup: _Lookup) -> None:
        del self._queued[lookup]
        self._places.give_back(lookup.source.namespace)

    # -- the attempt ---------------------------------------------------------------------------------------------------

    async def _attempt(self, entry: QueueEntry[AdmissionLookupKey], lookup: _Lookup) -> None:
        inspection: Inspection | None = None
        try:
            async with deadline(self._clock, LOOKUP_TIMEOUT):
                inspection = await self._answer_of(lookup, entry.namespace)
            if lookup.revoked:
                inspection = without_proof(inspection)
            if inspection is not None and is_tenants_own(inspection):
                inspection = None  # pods of other namespaces may wait for it, which are not at their limit
                self._metrics.lookups_dropped.inc()
            if inspection is not None and failure_of(inspection):
                self._remember(lookup.key, inspection)
        except TimeoutError:
            log.debug("image look-up timed out", image=lookup.key.reference)
        except Exception as error:
            self._metrics.internal_errors.inc()
            traceback = error if self._causes.is_new(error) else None
            log.error("image look-up failed with an internal error", image=lookup.key.reference, exc_info=traceback)
        finally:
            self._limits.release(entry)
            self._finish(lookup, inspection)

    async def _answer_of(self, lookup: _Lookup, tenant: str) -> Inspection:
        """The registry's answer. If it refuses the secrets and they have been replaced meanwhile, asks again with the
        new ones."""
        source, began = lookup.source, self._clock.monotonic()
        shown = self._secrets.cached(source)
        inspection = await self._inspect(lookup, self._secrets.lazy(source), tenant)
        if failure_of(inspection) != "auth" or not source.names:
            return inspection
        shown = shown or self._secrets.cached(source)
        now = await self._secrets.get(source, since=began - JUST_READ)
        if shown is not None and shown.fingerprint == now.fingerprint:
            return inspection
        return await self._inspect(lookup, now.store, tenant)

    async def _inspect(self, lookup: _Lookup, credentials: CredentialStore, tenant: str) -> Inspection:
        not_before = lookup.not_before if lookup.not_before > NEVER else None
        return await self._inspector.inspect(
            lookup.reference,
            credentials=credentials,
            not_before=not_before,
            bundle=lookup.key.bundle,
            tenant=tenant,
        )

    def _remember(self, key: AdmissionLookupKey, inspection: Inspection) -> None:
        """Caches what decisions need of a failure, without the texts, whose length the registry chooses."""
        good = inspection.last_good
        entries = len(good.entries) + len(good.skipped) if good is not None else 0
        error = inspection.error
        if error is not None:
            error = msgspec.structs.replace(error, message="", attempts=())
        kept = msgspec.structs.replace(inspection, error=error, entries=(), skipped=(), warnings=())
        weight = 2048 + len(key.reference) + sum(map(len, key.source.names)) + 512 * entries
        self._failures.put(key, (kept, self._clock.monotonic()), weight=weight)

    def _finish(self, lookup: _Lookup, inspection: Inspection | None) -> None:
        del self._lookups[lookup.key]
        if (following := lookup.then) is not None:
            self._lookups[lookup.key] = following
            self._fair_queue.add(lookup.key, [following.source.namespace])
        lookup.inspection.set_result(inspection)
        self._start_allowed()


def finished(asked: dict[str, PendingInspection]) -> dict[str, Inspection]:
    """The answers that have arrived."""
    done = {text: inspection.result() for text, inspection in asked.items() if inspection.done()}
    return {text: inspection for text, inspection in done.items() if inspection is not None}


# -- pods that nobody waits for: the sweep's and the warm-up's ---------------------------------------------------------
# A few lookups run at a time, each with a deadline; a host that is paused or does not answer is left alone, and so is
# what failed: whoever asks comes back in minutes. Nothing here is retried, and nothing is kept but what the registry
# client keeps for all.

LOW_PRIORITY_LOOKUPS: Final = Share(8, minimum=1, maximum=32)
"""Lookups at a time that nobody waits for."""
LOW_PRIORITY_TIMEOUT: Final = 30.0
"""Seconds for one image, pull secrets included."""


class LowPriorityLookups:
    """Looks images up, a few at a time, namespaces in turn."""

    def __init__(self, inspector: ImageInspector, secrets: PullSecrets, clock: Clock, metrics: LookupMetrics) -> None:
        self._inspector = inspector
        self._secrets = secrets
        self._clock = clock
        self._metrics = metrics
        self._queue = RequestQueue(LOW_PRIORITY_LOOKUPS)
        self._causes = SeenErrors()

    def known(self, request: PodImageRequest) -> dict[str, Inspection]:
        """The inspections in memory, by the text of the reference; with ``imagePullPolicy: Always``, too, a tag's check
        may be as old as the cache allows."""
        credentials, now = self._secrets.lazy(request.source), self._clock.monotonic()
        return cached_inspections(request, self._inspector, credentials, since=NEVER, now=now)

    async def inspections(self, request: PodImageRequest) -> dict[str, Inspection]:
        """The inspections from memory and from registries; an image without one is left out. If no node runs all of
        the images, indexes are asked for once more, because an operator bundle constrains nothing."""
        found = self.known(request)
        missing = {use.text: use.reference for use in request.images if use.reference and use.text not in found}
        found |= await self._all(missing, request.source, "auto")
        if request.is_impossible(found):
            indexes = {
                use.text: use.reference
                for use in request.images
                if use.reference
                and use.text in found
                and found[use.text].kind == "index"
                and found[use.text].constrains
            }
            found |= await self._all(indexes, request.source, "always")
        return found

    async def inspect(
        self, reference: Reference, source: PullSecretNames, bundle: BundleMode = "auto"
    ) -> Inspection | None:
        """The registry's answer, or one from memory; None if there was none in time, or if it is not asked now."""
        async with self._queue.slot(RequestPriority.MANIFEST, source.namespace):
            known = self._inspector.peek(reference, self._secrets.lazy(source), bundle=bundle)
            if known is not None or self._inspector.host_busy(reference, source.namespace):
                return known
            try:
                async with deadline(self._clock, LOW_PRIORITY_TIMEOUT):
                    credentials = await self._secrets.get(source)
                    return await self._inspector.inspect(
                        reference, credentials=credentials.store, bundle=bundle, tenant=source.namespace
                    )
            except TimeoutError:
                return None
            except Exception as error:
                self._metrics.internal_errors.inc()
                log.error(
                    "image look-up failed with an internal error",
                    image=reference.canonical,
                    exc_info=error if self._causes.is_new(error) else None,
                )
                return None

    async def _all(
        self, references: dict[str, Reference], source: PullSecretNames, bundle: BundleMode
    ) -> dict[str, Inspection]:
        given = await asyncio.gather(*(self.inspect(each, source, bundle) for each in references.values()))
        return {text: inspection for text, inspection in zip(references, given, strict=True) if inspection is not None}
