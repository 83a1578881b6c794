"""The leader's search for pods that the webhook missed.

A sweep lists the Pending pods without a node, from the same list that finds stray gates; with ``scope: all`` also the
pods on nodes, page by page. After replicas of the webhook were lost, a sweep looks at pods on nodes in any case, but
only at those that were created meanwhile: the scheduler took them within a second. A missed pod is reported once and
counted by namespace; where the policy says ``evict``, some are evicted. Every sweep begins anew, so it may be cut off
anywhere.

Sweeps follow each other at the policy's interval, soon after the webhook was away (then pods of any age count, as they
were created meanwhile), and as soon as an eviction that had to wait may be made. Images are asked for only where
something depends on them: an eviction, or whether a pod is on the wrong node.
"""

import asyncio
import math
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable
from datetime import datetime, timedelta
from typing import Final

import msgspec
import structlog

from polyarch.clock import Clock, deadline
from polyarch.images.resolver import LowPriorityLookups
from polyarch.kube.client import Client
from polyarch.kube.errors import Conflict, Forbidden, KubernetesError, NotFound, SeenErrors, TooManyRequests
from polyarch.kube.informer import OnDemandInformer, Shares
from polyarch.kube.requests import ListOptions
from polyarch.kube.resources import DEPLOYMENTS, MUTATING_WEBHOOKS, NAMESPACES, NODES, PODS
from polyarch.kube.store import ObjectChange
from polyarch.objects import ObjectKey, ObjectMeta, PartialObjectMetadata, Pod
from polyarch.oci.lru_cache import LRUCache
from polyarch.placement import names
from polyarch.placement.events import Event
from polyarch.placement.facts import ClusterFacts, image_request
from polyarch.placement.metrics import PlacementMetrics
from polyarch.placement.settings import SweepAction
from polyarch.placement.sweep_rules import (
    EvictionRateLimiter,
    MissedPod,
    MissReason,
    SweepCandidate,
    created,
    evicted_event,
    find_candidate,
    find_missed,
    unplaced_event,
)
from polyarch.selectors import InvalidSelector, Selector

log = structlog.get_logger(__name__)

# -- eviction, through the eviction API, so that PodDisruptionBudgets hold ---------------------------------------------

EVICTION_RETRY_DELAY: Final = 60.0
"""Seconds after which it is looked whether an eviction helped, and one is asked for again that was refused."""


class PodEvictor:
    """``may_help``: whether a new pod would be placed, that is, whether the webhook is there; false as well for a
    process that leads no more, which it may learn of between two evictions."""

    def __init__(
        self,
        client: Client,
        *,
        post: Callable[[Pod, Event], None],
        may_help: Callable[[], bool],
        clock: Clock,
        metrics: PlacementMetrics,
    ) -> None:
        self._client = client
        self._post = post
        self._may_help = may_help
        self._clock = clock
        self._metrics = metrics
        self._limiter = EvictionRateLimiter()

    def saw(self, missed: Iterable[MissedPod]) -> None:
        """The webhook missed these pods, whether or not they may be evicted."""
        for pod in missed:
            if pod.owner is not None:
                self._limiter.saw(pod.owner.uid, pod.pod.metadata.creation_timestamp or "")

    async def evict(self, missed: Iterable[MissedPod], *, latest: str, per_minute: int) -> float | None:
        """Evicts what may be evicted now. Seconds until it is worth looking again; None if there was nothing to evict.

        ``latest``: the latest creation time of the pods that were listed.
        """
        waits: list[float] = []
        for pod in in_fair_order(missed):
            if not self._may_help():
                return EVICTION_RETRY_DELAY
            owner = pod.owner
            now = self._clock.monotonic()
            if owner is None:
                continue
            if (rest := self._limiter.wait(owner.uid, now, per_minute=per_minute)) > 0:
                waits.append(rest)
                continue
            self._limiter.tried(now)
            metadata = pod.pod.metadata
            try:
                await self._client.evict(metadata.namespace, metadata.name, uid=metadata.uid)
            except (NotFound, Conflict):
                continue  # it is gone, or another pod has its name
            except TooManyRequests:
                waits.append(EVICTION_RETRY_DELAY)
                continue
            except KubernetesError as error:
                log.warning("a pod could not be evicted", pod=str(metadata.key), error=str(error))
                return EVICTION_RETRY_DELAY
            self._limiter.granted(owner.uid, now, latest=latest)
            waits.append(EVICTION_RETRY_DELAY)
            self._metrics.evictions.inc()
            self._post(pod.pod, evicted_event(pod))
            log.info("evicted a pod that the webhook missed", pod=str(metadata.key), fault=pod.reason.value)
        return min(waits, default=None)


def in_fair_order(missed: Iterable[MissedPod]) -> list[MissedPod]:
    """Those that may be evicted, namespace by namespace in turn, so that none waits for all pods of another."""
    ranks: Counter[str] = Counter()
    ranked: list[tuple[int, MissedPod]] = []
    for pod in missed:
        if pod.evictable:
            namespace = pod.pod.metadata.namespace
            ranked.append((ranks[namespace], pod))
            ranks[namespace] += 1
    return [pod for _, pod in sorted(ranked, key=lambda pair: pair[0])]


# -- whether the API server can call the webhook -----------------------------------------------------------------------
# Two objects are watched, each by its name, so that no right beyond them is needed: the webhook configuration, and the
# Deployment behind it. A cluster without that Deployment (the webhook runs elsewhere) is judged by the configuration
# alone. What else may keep the API server from calling is not seen here, but the pods that it missed are found by the
# next sweep.


class DeploymentStatus(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    """apps/v1 DeploymentStatus: how many replicas serve, and how many pods besides them do not."""

    available_replicas: int = 0
    unavailable_replicas: int = 0


class DeploymentSpec(msgspec.Struct, frozen=True, gc=False):
    """apps/v1 DeploymentSpec: how many replicas are wanted."""

    replicas: int = 1


class Deployment(msgspec.Struct, frozen=True, gc=False):
    """apps/v1 Deployment."""

    metadata: ObjectMeta = ObjectMeta()
    spec: DeploymentSpec = DeploymentSpec()
    status: DeploymentStatus | None = None


class WebhookAvailability:
    """``on_return`` is called when the webhook is back, or was changed so that it may be; ``on_loss`` when a replica of
    it is lost or its configuration is gone, since when the API server may have asked in vain."""

    def __init__(
        self, informers: Shares, *, namespace: str, on_return: Callable[[], None], on_loss: Callable[[], None]
    ) -> None:
        self._configuration = OnDemandInformer(
            informers,
            MUTATING_WEBHOOKS,
            PartialObjectMetadata,
            self._configuration_changed,
            name=names.WEBHOOK_CONFIGURATION,
        )
        self._deployment = OnDemandInformer(
            informers, DEPLOYMENTS, Deployment, self._deployment_changed, namespace=namespace, name=names.WEBHOOK
        )
        self._on_return = on_return
        self._on_loss = on_loss
        self._is_configured = False
        self._is_available = True
        self._replicas = 0
        self._unavailable = 0

    @property
    def is_available(self) -> bool:
        """The webhook is registered, and a replica of it serves."""
        return self._is_configured and self._is_available

    def watch(self, wanted: bool) -> None:
        """Starts or ends the watches."""
        self._configuration.want(wanted)
        self._deployment.want(wanted)
        if not wanted:
            self._is_configured, self._is_available = False, True

    def _configuration_changed(self, change: ObjectChange[PartialObjectMetadata]) -> None:
        old, new = change.old, change.new
        self._is_configured = new is not None
        if new is None:
            self._on_loss()
        if new is not None and (old is None or old.metadata.generation != new.metadata.generation):
            self._on_return()

    def _deployment_changed(self, change: ObjectChange[Deployment]) -> None:
        was_available = self._is_available
        status = (change.new.status if change.new is not None else None) or DeploymentStatus()
        wanted = max(change.new.spec.replicas, 1) if change.new is not None else 1
        before, self._replicas = self._replicas, status.available_replicas
        failed, self._unavailable = status.unavailable_replicas > self._unavailable, status.unavailable_replicas
        self._is_available = change.new is None or self._replicas > 0
        # Those that a scale-down or a surge has ended count for nothing: of them no pod is left that does not serve.
        if self._replicas < (before if failed else min(before, wanted)):
            self._on_loss()
        if self._is_available and not was_available:
            self._on_return()


# -- the sweep ---------------------------------------------------------------------------------------------------------

BOUND_PODS: Final = ListOptions(
    "", f"{names.SCHEDULING_GATE_LABEL} notin ({names.GATED},{names.REMOVED})", "spec.nodeName!="
)
"""Pods on nodes that placement did not finish with."""
DELAYS_AFTER_RETURN: Final = (10.0, 45.0)
"""Seconds after the webhook's return at which pods are looked for: when the API server calls it again, and once more
for what was created until then."""
NODES_INTERVAL: Final = 600.0
"""Least seconds between two looks at pods on nodes after losses: the list may be all of a cluster's."""
NODES_RETRY: Final = 60.0
"""Seconds after which such a look that failed is tried again."""
LEFT_AT_ONCE: Final = 50
"""Pods that are read anew in one sweep, of those that a look found and whose eviction has to wait."""
UNNOTICED_SECONDS: Final = 120.0
"""How long a replica may be lost before its Deployment shows it: a silent node is NotReady after 50 s."""
FACTS_REQUEUE_DELAY: Final = 5.0
PAGE_SIZE: Final = 500
PAUSE_AFTER: Final = 50
"""Pods after which other tasks run."""
EVENTS_PER_SECOND: Final = 200
LOOKUPS_TIMEOUT: Final = 120.0
"""Seconds that a sweep waits for registries; what is not known then counts as unknown until the next sweep."""
MAX_REPORTED: Final = 20_000
"""Pods whose report is remembered."""
MIN_INTERVAL: Final = 10.0
"""Least seconds between two sweeps."""


class Sweeper:
    """``list_pending`` lists the Pending pods without a node; None: that failed. ``post`` posts an event on a pod."""

    def __init__(
        self,
        *,
        client: Client,
        list_pending: Callable[[], Awaitable[Iterable[Pod] | None]],
        informers: Shares,
        facts: ClusterFacts,
        images: LowPriorityLookups,
        post: Callable[[Pod, Event], None],
        namespace: str,
        is_leading: Callable[[], bool],
        clock: Clock,
        metrics: PlacementMetrics,
    ) -> None:
        self._client = client
        self._list_pending = list_pending
        self._facts = facts
        self._images = images
        self._post = post
        self._clock = clock
        self._metrics = metrics
        self._webhook = WebhookAvailability(
            informers, namespace=namespace, on_return=self._webhook_returned, on_loss=self._webhook_lost
        )
        self._evictor = PodEvictor(
            client,
            post=post,
            may_help=lambda: is_leading() and self._webhook.is_available,
            clock=clock,
            metrics=metrics,
        )
        self._reported: LRUCache[tuple[str, MissReason], bool] = LRUCache(MAX_REPORTED)
        self._return_sweeps: list[float] = []
        """When to look for what was missed while the webhook was away."""
        self._lost_at: datetime | None = None
        """Since when pods may have been missed and taken by a node; None: nothing is known of a loss."""
        self._last_loss: datetime | None = None
        self._nodes_due: float | None = None
        """When to look for them."""
        self._nodes_seen = -math.inf
        """When they were looked for."""
        self._left: list[ObjectKey] = []
        """Pods on nodes that such a look found and that are still to be evicted."""
        self._left_latest = ""
        """The latest creation time of a pod that it listed."""
        self._wake = asyncio.Event()
        self._causes = SeenErrors()
        self.unplaced = 0
        """Pods found unplaced by the last sweep, for the policy's status."""
        facts.on_change(lambda namespace: self._wake.set() if namespace is None else None)

    async def run(self) -> None:
        """Sweeps until cancelled; for the leader alone."""
        self._webhook_returned()  # nobody knows what happened before
        last = self._clock.monotonic()
        wait: float | None = None
        any_age = False
        """The sweep follows the webhook's return, or ends what such a sweep began."""
        try:
            while True:
                self._webhook.watch(self._actions != {"off"})
                now = self._clock.monotonic()
                interval = self._facts.table.spec.sweep_interval
                regular = max(last + min(wait if wait is not None else interval, interval), last + MIN_INTERVAL)
                nodes_due = self._nodes_due if self._nodes_due is not None and self._webhook.is_available else math.inf
                due = min([regular, nodes_due, *self._return_sweeps])
                if now < due:
                    await self._rest(due - now)
                    continue
                after_loss = nodes_due <= now
                any_age = (
                    after_loss or any(each <= now for each in self._return_sweeps) or (any_age and wait is not None)
                )
                self._return_sweeps = [each for each in self._return_sweeps if each > now]
                if after_loss:
                    self._nodes_due = now + NODES_RETRY
                wait = await self._sweep_safely(any_age=any_age, after_loss=after_loss)
                last = self._clock.monotonic()
        finally:
            self._webhook.watch(False)
            self._show(SweepResult())

    @property
    def _actions(self) -> set[SweepAction]:
        """What the policy says for any namespace."""
        table = self._facts.table
        return {each.sweep_action for each in (table.spec, *(own for _, _, own in table.overrides))}

    def _webhook_returned(self) -> None:
        now = self._clock.monotonic()
        self._return_sweeps = [now + each for each in DELAYS_AFTER_RETURN]
        if self._lost_at is not None and self._nodes_due is None:  # a replica that comes and goes puts nothing off
            self._nodes_due = max(self._return_sweeps[-1], self._nodes_seen + NODES_INTERVAL)
        self._wake.set()

    def _webhook_lost(self) -> None:
        self._last_loss = self._clock.now()
        if self._lost_at is None:
            self._lost_at = self._last_loss - timedelta(seconds=UNNOTICED_SECONDS)
        if self._webhook.is_available:  # by other replicas
            self._webhook_returned()
        else:
            self._nodes_due = None  # its return says when

    def _looked_at_nodes(self, begun: datetime) -> None:
        """A look that has ended answers the losses that were known as it began."""
        self._nodes_seen, self._nodes_due, self._lost_at = self._clock.monotonic(), None, None
        if self._last_loss is not None and self._last_loss >= begun:
            self._lost_at = begun - timedelta(seconds=UNNOTICED_SECONDS)
            if self._webhook.is_available:
                self._webhook_returned()

    async def _rest(self, seconds: float) -> None:
        self._wake.clear()
        try:
            async with deadline(self._clock, seconds):
                await self._wake.wait()
        except TimeoutError:
            return

    # -- one sweep -----------------------------------------------------------------------------------------------------

    async def _sweep_safely(self, *, any_age: bool, after_loss: bool) -> float | None:
        """Sweeps once; seconds until an eviction that had to wait may be made, if there is one. No error ends the
        sweep."""
        try:
            return await self._sweep(any_age=any_age, after_loss=after_loss)
        except KubernetesError as error:
            log.warning("the sweep failed", error=str(error))
        except Exception as error:
            self._metrics.internal_errors.inc()
            log.error("the sweep failed with an internal error", exc_info=error if self._causes.is_new(error) else None)
        return None

    async def _sweep(self, *, any_age: bool, after_loss: bool) -> float | None:
        if not self._facts.is_complete:
            return FACTS_REQUEUE_DELAY
        spec, actions, begun = self._facts.table.spec, self._actions, self._clock.now()
        if self._facts.is_deprovisioning or actions == {"off"}:
            self._show(SweepResult())
            return None
        younger = None if any_age else self._clock.now() - timedelta(seconds=spec.sweep_min_age)
        result = SweepResult(younger)
        result.within = await self._namespaces()
        looks_at_nodes = spec.sweep_scope == "all" or after_loss
        if "evict" in actions or looks_at_nodes:
            result.nodes = await self._nodes()
        until = self._clock.monotonic() + LOOKUPS_TIMEOUT
        pending = await self._list_pending()
        if pending is None:
            return MIN_INTERVAL
        await self._sweep_pending(pending, result, until)
        self._show(result)
        if looks_at_nodes and result.nodes:
            older = self._lost_at if spec.sweep_scope != "all" else None
            found = await self._sweep_bound(result, until, older=older)
            self._left = [each.pod.metadata.key for each in found if each.evictable] if older is not None else []
            self._left_latest = result.latest
        elif self._left:
            await self._sweep_left(result, until)
        if after_loss:
            self._looked_at_nodes(begun)
        self._show(result)
        wait = await self._evictor.evict(
            result.evictable, latest=result.latest, per_minute=spec.sweep_max_evictions_per_minute
        )
        return EVICTION_RETRY_DELAY if wait is None and self._left else wait

    async def _namespaces(self) -> frozenset[str] | None:
        """The namespaces that the ClusterPodPlacementConfig selects: the API server asks about no pod of the others,
        so none of them was missed. None: all."""
        selector = self._facts.cppc.spec.namespace_selector if self._facts.cppc is not None else None
        if selector is None or selector.is_empty:
            return None
        try:
            selected = Selector.parse(selector)
        except InvalidSelector as error:
            log.warning("the sweep looks at no pod: the namespaceSelector is invalid", error=str(error))
            return frozenset()
        found = await self._client.list(NAMESPACES, type=PartialObjectMetadata, resource_version="0")
        return frozenset(each.metadata.name for each in found.items if selected.matches(each.metadata.labels or {}))

    async def _nodes(self) -> dict[str, str]:
        """Architectures by node; empty if they may not be listed: then no pod is on the wrong node, and none is
        evicted."""
        try:
            nodes = await self._client.list(NODES, type=PartialObjectMetadata, resource_version="0")
        except Forbidden as error:
            log.warning("the sweep cannot list the nodes", error=str(error))
            return {}
        found = ((node.metadata.name, (node.metadata.labels or {}).get(names.ARCH_KEY)) for node in nodes.items)
        return {name: architecture for name, architecture in found if architecture}

    async def _sweep_pending(self, pods: Iterable[Pod], result: "SweepResult", until: float) -> None:
        """Reports with what is known, and asks for images only where pods may be evicted."""
        candidates = await self._candidates(pods, result)
        found = [
            judged
            for each in candidates
            if (judged := find_missed(each, self._images.known(image_request(each.case)), result.nodes))
        ]
        result.unplaced.update(each.pod.metadata.namespace for each in found)
        await self._report(found)
        evicting = [each for each in candidates if each.case.settings.sweep_action == "evict"]
        result.evictable += await self._missed(evicting, result, until)

    async def _sweep_bound(self, result: "SweepResult", until: float, *, older: datetime | None) -> list[MissedPod]:
        """Returns those found where the policy evicts. ``older``: pods created before it are passed over."""
        token = ""
        evicting: list[MissedPod] = []
        while True:
            page = await self._client.list_page(PODS, BOUND_PODS, type=Pod, continue_token=token, limit=PAGE_SIZE)
            pods = [pod for pod in page.objects if older is None or created(pod) >= older]
            found = await self._missed(await self._candidates(pods, result), result, until)
            result.misplaced.update(each.pod.metadata.namespace for each in found)
            await self._report(found)
            evicting += [each for each in found if each.case.settings.sweep_action == "evict"]
            token = page.continue_token
            if not token:
                result.evictable += evicting
                return evicting

    async def _sweep_left(self, result: "SweepResult", until: float) -> None:
        """Reads some of the pods that are still to be evicted: a list of all would cost too much for a few."""
        keys, rest = self._left[:LEFT_AT_ONCE], self._left[LEFT_AT_ONCE:]
        pods: list[Pod] = []
        for key in keys:
            named = ListOptions(key.namespace, BOUND_PODS.label_selector, f"metadata.name={key.name}")
            pods += (await self._client.list_page(PODS, named, type=Pod, limit=1)).objects
        found = await self._missed(await self._candidates(pods, result), result, until)
        evicting = [each for each in found if each.case.settings.sweep_action == "evict"]
        result.evictable += evicting
        result.latest = max(result.latest, self._left_latest)
        self._left = rest + [each.pod.metadata.key for each in evicting if each.evictable]

    async def _candidates(self, pods: Iterable[Pod], result: "SweepResult") -> list[SweepCandidate]:
        candidates = []
        for number, pod in enumerate(pods, start=1):
            if number % PAUSE_AFTER == 0:
                await self._clock.sleep(0)
            metadata = pod.metadata
            result.latest = max(result.latest, metadata.creation_timestamp or "")
            if result.within is not None and metadata.namespace not in result.within:
                continue
            facts = self._facts.of(metadata.namespace).about(pod, metadata.namespace, stored=False)
            if (found := find_candidate(facts, younger=result.younger)) is not None:
                candidates.append(found)
        return candidates

    async def _missed(
        self, candidates: Iterable[SweepCandidate], result: "SweepResult", until: float
    ) -> list[MissedPod]:
        """With the answers that registries give until then."""

        async def one(found: SweepCandidate) -> MissedPod | None:
            try:
                async with deadline(self._clock, max(until - self._clock.monotonic(), 0.0)):
                    inspections = await self._images.inspections(image_request(found.case))
            except TimeoutError:
                inspections = self._images.known(image_request(found.case))
            return find_missed(found, inspections, result.nodes)

        judged = await asyncio.gather(*(one(each) for each in candidates))
        found = [each for each in judged if each is not None]
        self._evictor.saw(found)
        return found

    async def _report(self, found: Iterable[MissedPod]) -> None:
        """A Warning for each pod, once."""
        for each in found:
            key = (each.pod.metadata.uid, each.reason)
            if self._reported.get(key) is None:
                self._reported.put(key, True)
                self._post(each.pod, unplaced_event(each))
                await self._clock.sleep(1 / EVENTS_PER_SECOND)

    def _show(self, result: "SweepResult") -> None:
        self.unplaced = sum(result.unplaced.values())
        self._metrics.unplaced_pods.show(result.unplaced)
        self._metrics.misplaced_pods.show(result.misplaced)


class SweepResult:
    """What one sweep has found; ``younger``: pods created after it are passed over."""

    __slots__ = ("evictable", "latest", "misplaced", "nodes", "unplaced", "within", "younger")

    def __init__(self, younger: datetime | None = None) -> None:
        self.younger = younger
        self.within: frozenset[str] | None = None
        """The namespaces that placement is for; None: all."""
        self.nodes: dict[str, str] = {}
        """Architectures by name."""
        self.unplaced: Counter[str] = Counter()
        self.misplaced: Counter[str] = Counter()
        """By namespace."""
        self.evictable: list[MissedPod] = []
        """Found where the policy evicts."""
        self.latest = ""
        """The latest creation time of a pod."""
