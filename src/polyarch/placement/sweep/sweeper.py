"""The leader's search for pods that the webhook missed (PL-370 to PL-372).

A round lists the Pending pods without a node, from the same list that finds stray gates; with ``scope: all`` also the
pods on nodes, page by page. A missed pod is reported once and counted by namespace; where the policy says ``evict``,
some are evicted. Every round begins anew, so it may be cut off anywhere.

Rounds follow each other at the policy's interval, soon after the webhook was away (then pods of any age count, as they
were created meanwhile), and as soon as an eviction that had to wait may be made.

Images are asked for only where something depends on them: an eviction, or whether a pod is on the wrong node.
"""

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable
from datetime import datetime, timedelta
from typing import Final, Protocol

import structlog

from polyarch.clock import Clock, deadline
from polyarch.images.resolver import LowPriorityLookups
from polyarch.kube.errors import Causes, Forbidden, KubernetesError
from polyarch.kube.informer import Shares
from polyarch.kube.requests import Selection
from polyarch.kube.resources import NAMESPACES, NODES, PODS, Resource
from polyarch.kube.responses import Listing
from polyarch.kube.watch import Page
from polyarch.objects import PartialObjectMetadata, Pod
from polyarch.oci.cache.recent import Recent
from polyarch.placement import names
from polyarch.placement.api.settings import SweepAction
from polyarch.placement.lookups import case_answers
from polyarch.placement.lookups.facts import ClusterFacts
from polyarch.placement.metrics import PlacementMetrics
from polyarch.placement.result.events import Event
from polyarch.placement.sweep import notes
from polyarch.placement.sweep.absence import Absence
from polyarch.placement.sweep.eviction import Eviction, EvictsPods
from polyarch.placement.sweep.verdict import Fault, Judgement, Suspect, judge, suspect
from polyarch.selectors import InvalidSelector, Selector

log = structlog.get_logger(__name__)

BOUND: Final = Selection("", f"{names.SCHEDULING_GATE_LABEL} notin ({names.GATED},{names.REMOVED})", "spec.nodeName!=")
"""Pods on nodes that placement did not finish with."""
AFTER_RETURN: Final = (10.0, 45.0)
"""Seconds after the webhook's return at which pods are looked for: when the API server calls it again, and once more
for what was created until then."""
NOT_READY: Final = 5.0
PAGE: Final = 500
PAUSE_AFTER: Final = 50
"""Pods after which other tasks run."""
EVENTS_PER_SECOND: Final = 200
LOOKUPS: Final = 120.0
"""Seconds that a round waits for registries; what is not known then counts as unknown until the next round."""
REPORTED: Final = 20_000
"""Pods whose report is remembered."""
SOONEST: Final = 10.0
"""Least seconds between two rounds."""


class SweepClient(EvictsPods, Protocol):
    """The part of the client that is needed here."""

    async def list(
        self, resource: Resource, *, type: type[PartialObjectMetadata], resource_version: str = ""
    ) -> Listing[PartialObjectMetadata]: ...

    async def list_page(
        self, resource: Resource, selection: Selection, *, type: type[Pod], continue_token: str = "", limit: int = ...
    ) -> Page[Pod]: ...


class Sweeper:
    """``list_pending`` lists the Pending pods without a node; None: that failed. ``post`` posts an event on a pod."""

    def __init__(
        self,
        *,
        client: SweepClient,
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
        self._absence = Absence(informers, namespace=namespace, returned=self._returned)
        self._eviction = Eviction(
            client, post=post, may_help=lambda: is_leading() and self._absence.is_over, clock=clock, metrics=metrics
        )
        self._reported: Recent[tuple[str, Fault], bool] = Recent(REPORTED)
        self._returns: list[float] = []
        """When to look for what was missed while the webhook was away."""
        self._wake = asyncio.Event()
        self._causes = Causes()
        self.unplaced = 0
        """Pods found unplaced by the last round, for the policy's status."""
        facts.on_change(lambda namespace: self._wake.set() if namespace is None else None)

    async def run(self) -> None:
        """Sweeps until cancelled; for the leader alone."""
        self._returned()  # nobody knows what happened before
        last = self._clock.monotonic()
        wait: float | None = None
        any_age = False
        """The round follows the webhook's return, or ends what such a round began."""
        try:
            while True:
                self._absence.watch(self._actions != {"off"})
                now = self._clock.monotonic()
                interval = self._facts.table.spec.sweep_interval
                regular = max(last + min(wait if wait is not None else interval, interval), last + SOONEST)
                due = min([regular, *self._returns])
                if now < due:
                    await self._rest(due - now)
                    continue
                any_age = any(each <= now for each in self._returns) or (any_age and wait is not None)
                self._returns = [each for each in self._returns if each > now]
                wait = await self._round(any_age=any_age)
                last = self._clock.monotonic()
        finally:
            self._absence.watch(False)
            self._show(Round())

    @property
    def _actions(self) -> set[SweepAction]:
        """What the policy says for any namespace."""
        table = self._facts.table
        return {each.sweep_action for each in (table.spec, *(own for _, _, own in table.overrides))}

    def _returned(self) -> None:
        now = self._clock.monotonic()
        self._returns = [now + each for each in AFTER_RETURN]
        self._wake.set()

    async def _rest(self, seconds: float) -> None:
        self._wake.clear()
        try:
            async with deadline(self._clock, seconds):
                await self._wake.wait()
        except TimeoutError:
            return

    # -- a round -------------------------------------------------------------------------------------------------------

    async def _round(self, *, any_age: bool) -> float | None:
        """Sweeps once; seconds until an eviction that had to wait may be made, if there is one. No error ends the
        sweep (PL-306)."""
        try:
            return await self._sweep(any_age=any_age)
        except KubernetesError as error:
            log.warning("the sweep failed", error=str(error))
        except Exception as error:
            self._metrics.internal_errors.inc()
            log.error("the sweep failed with an internal error", exc_info=error if self._causes.is_new(error) else None)
        return None

    async def _sweep(self, *, any_age: bool) -> float | None:
        if not self._facts.is_complete:
            return NOT_READY
        spec, actions = self._facts.table.spec, self._actions
        if self._facts.is_deprovisioning or actions == {"off"}:
            self._show(Round())
            return None
        younger = None if any_age else self._clock.now() - timedelta(seconds=spec.sweep_min_age)
        current = Round(younger)
        current.within = await self._namespaces()
        if "evict" in actions or spec.sweep_scope == "all":
            current.nodes = await self._nodes()
        until = self._clock.monotonic() + LOOKUPS
        pending = await self._list_pending()
        if pending is None:
            return SOONEST
        await self._look_at_pending(pending, current, until)
        self._show(current)
        if spec.sweep_scope == "all" and current.nodes:
            await self._look_at_bound(current, until)
        self._show(current)
        return await self._eviction.evict(
            current.candidates, latest=current.latest, per_minute=spec.sweep_max_evictions_per_minute
        )

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

    async def _look_at_pending(self, pods: Iterable[Pod], current: "Round", until: float) -> None:
        """Reports with what is known, and asks for images only where pods may be evicted."""
        suspects = await self._suspects(pods, current)
        found = [
            judged
            for each in suspects
            if (judged := judge(each, case_answers.known(self._images, each.case), current.nodes))
        ]
        current.unplaced.update(each.pod.metadata.namespace for each in found)
        await self._report(found)
        evicting = [each for each in suspects if each.case.settings.sweep_action == "evict"]
        current.candidates += await self._judged(evicting, current, until)

    async def _look_at_bound(self, current: "Round", until: float) -> None:
        token = ""
        while True:
            page = await self._client.list_page(PODS, BOUND, type=Pod, continue_token=token, limit=PAGE)
            found = await self._judged(await self._suspects(page.objects, current), current, until)
            current.misplaced.update(each.pod.metadata.namespace for each in found)
            await self._report(found)
            current.candidates += [each for each in found if each.case.settings.sweep_action == "evict"]
            token = page.continue_token
            if not token:
                return

    async def _suspects(self, pods: Iterable[Pod], current: "Round") -> list[Suspect]:
        suspects = []
        for number, pod in enumerate(pods, start=1):
            if number % PAUSE_AFTER == 0:
                await self._clock.sleep(0)
            metadata = pod.metadata
            current.latest = max(current.latest, metadata.creation_timestamp or "")
            if current.within is not None and metadata.namespace not in current.within:
                continue
            facts = self._facts.of(metadata.namespace).about(pod, metadata.namespace, stored=False)
            if (found := suspect(facts, younger=current.younger)) is not None:
                suspects.append(found)
        return suspects

    async def _judged(self, suspects: Iterable[Suspect], current: "Round", until: float) -> list[Judgement]:
        """With the answers that registries give until then."""

        async def one(found: Suspect) -> Judgement | None:
            try:
                async with deadline(self._clock, max(until - self._clock.monotonic(), 0.0)):
                    answers = await case_answers.answers(self._images, found.case)
            except TimeoutError:
                answers = case_answers.known(self._images, found.case)
            return judge(found, answers, current.nodes)

        judged = await asyncio.gather(*(one(each) for each in suspects))
        found = [each for each in judged if each is not None]
        self._eviction.saw(found)
        return found

    async def _report(self, found: Iterable[Judgement]) -> None:
        """A Warning for each pod, once."""
        for each in found:
            key = (each.pod.metadata.uid, each.fault)
            if self._reported.get(key) is None:
                self._reported.put(key, True)
                self._post(each.pod, notes.reported(each))
                await self._clock.sleep(1 / EVENTS_PER_SECOND)

    def _show(self, current: "Round") -> None:
        self.unplaced = sum(current.unplaced.values())
        self._metrics.unplaced_pods.show(current.unplaced)
        self._metrics.misplaced_pods.show(current.misplaced)


class Round:
    """What one round has found; ``younger``: pods created after it are passed over."""

    __slots__ = ("candidates", "latest", "misplaced", "nodes", "unplaced", "within", "younger")

    def __init__(self, younger: datetime | None = None) -> None:
        self.younger = younger
        self.within: frozenset[str] | None = None
        """The namespaces that placement is for; None: all."""
        self.nodes: dict[str, str] = {}
        """Architectures by name."""
        self.unplaced: Counter[str] = Counter()
        self.misplaced: Counter[str] = Counter()
        """By namespace."""
        self.candidates: list[Judgement] = []
        """Found where the policy evicts."""
        self.latest = ""
        """The latest creation time of a pod."""
