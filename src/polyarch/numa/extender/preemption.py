"""Makes room for a pod that no node will do for: evicts pods of lower priority from cells it needs.

kube-scheduler's own preemption asks no extender without a preemptVerb: it is off in the profile that the operator
makes. Who has to go is decided in ``numa.preemption``; here pods are evicted, by the eviction API alone, the
freed zones are kept, and the pod is nominated. Attempts are made one after the other, outside of the scheduler's
question.

Nobody is evicted for nothing: a node counts only if its object shows no pod that has left, and no pod is evicted while
another node would do, or while zones that were freed for the same pod may still come to it.
"""

import asyncio
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from typing import Final, Literal, Protocol

import msgspec
import structlog
from xxhash import xxh64_intdigest

from polyarch.clock import Clock
from polyarch.kube.errors import Conflict, Invalid, KubernetesError, NotFound, TooManyRequests
from polyarch.kube.events import Recorder, Regarding
from polyarch.kube.informer import Informer, WatchClient
from polyarch.kube.patches import JsonPatch, add, remove, test
from polyarch.kube.resources import POD_DISRUPTION_BUDGETS, PODS, Resource
from polyarch.numa.extender.engine import SchedulerCache
from polyarch.numa.extender.metrics import ExtenderMetrics
from polyarch.numa.extender.wire import ExtenderArgs
from polyarch.numa.fit.facts import FitDecision, PodFacts
from polyarch.numa.preemption import (
    DisruptionBudget,
    NodeUsage,
    PodDisruptionBudget,
    PodUsage,
    PreemptionCandidate,
    PreemptionRules,
    TerminatingVictims,
    actual_zones,
    candidate_on_node,
    choose_candidate,
    disruption_budget,
    listed,
)

log = structlog.get_logger(__name__)

KEPT: Final = 60.0
"""Seconds for which freed NUMA zones are kept for the pod that others were evicted for, once they are free."""
LONGEST_KEPT: Final = 600.0
"""Seconds for which zones are kept at most, while victims end or the node's object does not show yet that they have."""
BETWEEN: Final = 30.0
"""Seconds between two attempts for one pod."""
AFTER_UNCLEAR: Final = 5.0
"""Seconds after an attempt that passed over nodes whose objects were behind."""
AFTER_NOTHING: Final = 600.0
"""Seconds after zones were freed that the pod did not get, as somebody took them who asks no extender."""
CANDIDATES: Final = 100
"""Nodes with victims that are enough to choose from, as for kube-scheduler."""
MOST_WAITING: Final = 1000
"""Pods whose attempt is due; more are left to their next question."""
MOST_GONE: Final = 1000
"""Pods that are remembered as gone: a question about one may come a moment after."""
_AT_A_TIME: Final = 8
"""Nodes that are looked at before others get a turn."""
ACTION: Final = "Preempting"

Result = Literal["evicted", "waits", "none", "refused", "failed"]


class Evicts(Protocol):
    """The part of the client that is used here."""

    async def evict(self, namespace: str, pod: str, *, uid: str | None = None) -> None: ...

    async def patch(
        self, resource: Resource, name: str, patch: JsonPatch, *, namespace: str = "", subresource: str = ""
    ) -> object: ...


class BudgetCache:
    """Kept current by a watch of its own."""

    def __init__(self, client: WatchClient, *, clock: Clock) -> None:
        self._informer = Informer(client, POD_DISRUPTION_BUDGETS, PodDisruptionBudget, clock=clock)

    async def known(self) -> list[DisruptionBudget]:
        """All that cover pods; waits until they were listed once."""
        await self._informer.synced()
        found = (disruption_budget(each) for each in self._informer.store.values())
        return [each for each in found if each is not None]

    async def run(self) -> None:
        """Watches until cancelled."""
        await self._informer.run()


class Nomination(msgspec.Struct, frozen=True):
    """NUMA zones that are free soon, for the pod that others were evicted for."""

    pod: PodFacts
    decision: FitDecision
    victims: tuple[str, ...]
    """Their uids."""
    until: float
    at_most: float


class PreemptionController:
    """Hears of rejected pods; ``run`` makes the attempts."""

    def __init__(
        self,
        client: Evicts,
        books: SchedulerCache,
        *,
        budgets: BudgetCache,
        rules: PreemptionRules,
        recorder: Recorder,
        metrics: ExtenderMetrics,
        clock: Clock,
    ) -> None:
        self._client = client
        self._books = books
        self._budgets = budgets
        self._rules = rules
        self._recorder = recorder
        self._metrics = metrics
        self._clock = clock
        self._waiting: OrderedDict[str, ExtenderArgs] = OrderedDict()
        self._tried: OrderedDict[str, float] = OrderedDict()
        self._kept: dict[str, Nomination] = {}
        self._lapsed: list[Nomination] = []
        self._unclear: OrderedDict[str, tuple[float, tuple[str, ...]]] = OrderedDict()
        """By uid of the pod, when it may be tried again, and nodes whose objects were behind in the last attempt."""
        self.wakes: Callable[[str], None] = lambda node: None
        """Called with a node that a rejected pod is to be asked about again."""
        self._gone: OrderedDict[str, None] = OrderedDict()
        self._arrived = asyncio.Event()

    def rejected(self, asked: ExtenderArgs, now: float) -> None:
        """No node will do for the pod. Returns at once."""
        pod = asked.pod
        if (
            pod.uid in self._gone
            or not pod.preempts
            or pod.scheduler_name != self._rules.scheduler_name
            or self.kept(pod.uid, now) is not None
        ):
            return
        if now - self._tried.get(pod.uid, -BETWEEN) < BETWEEN or len(self._waiting) >= MOST_WAITING:
            return
        known = self._waiting.get(pod.uid)
        # kube-scheduler asks about a nominated node alone first, and then about all of them.
        if known is None or len(known.names) <= len(asked.names):
            self._waiting[pod.uid] = asked
        self._arrived.set()

    def kept(self, uid: str, now: float) -> tuple[FitDecision, float] | None:
        """What is kept for a pod, and for how many more seconds; None: nothing (any more)."""
        found = self._kept.get(uid)
        return (found.decision, found.until - now) if found is not None and now < found.until else None

    def forget(self, uid: str) -> None:
        """The pod is gone: nobody is evicted for it any more."""
        self._waiting.pop(uid, None)
        self._kept.pop(uid, None)
        self._unclear.pop(uid, None)
        self._gone[uid] = None
        if len(self._gone) > MOST_GONE:
            self._gone.popitem(last=False)

    def look(self, now: float) -> None:
        """Once per second or so: keep on what is not free yet, and give up what the pod did not get."""
        ledger = self._books.ledger
        for uid, kept in list(self._kept.items()):
            if self._is_over(kept.pod):
                del self._kept[uid]
                continue
            until = min(now + KEPT, kept.at_most) if self._is_coming(kept) else kept.until
            if now >= until:
                del self._kept[uid]
                self._tried[uid] = now + AFTER_NOTHING - BETWEEN
                self._lapsed.append(kept)
                self._arrived.set()
                continue
            self._kept[uid] = msgspec.structs.replace(kept, until=until)
            if not ledger.held(uid):
                self._books.keep(kept.pod, kept.decision, now, until - now)
        for uid, (due, names) in list(self._unclear.items()):
            if now >= due and (node := next(filter(ledger.is_current, names), "")):
                del self._unclear[uid]
                self.wakes(node)

    def _is_coming(self, kept: Nomination) -> bool:
        """A victim is still ending, or the node's object does not show yet that it has ended."""
        node = kept.decision.node
        there = {each.uid for each in self._books.pods_on(node)}
        return not there.isdisjoint(kept.victims) or not self._books.ledger.is_current(node)

    async def run(self) -> None:
        """Attempts, one after the other, until cancelled."""
        while True:
            await self._arrived.wait()
            self._arrived.clear()
            while self._lapsed:
                lapsed = self._lapsed.pop()
                await self._nominate(lapsed.pod, lapsed.decision.node, ends=True)
            while self._waiting:
                _, asked = self._waiting.popitem(last=False)
                try:
                    await self._attempt(asked)
                except Exception:
                    log.exception("preemption failed", pod=asked.pod.full_name)
                    self._metrics.preempted("failed")

    async def _attempt(self, asked: ExtenderArgs) -> None:
        pod = asked.pod
        now = self._clock.monotonic()
        self._forget(now)
        if self._is_over(pod):
            return
        self._tried.pop(pod.uid, None)
        self._tried[pod.uid] = now
        self._unclear.pop(pod.uid, None)
        budgets = await self._budgets.known()
        choice = choose_candidate(await self._found(asked, budgets))
        if choice.candidate is None:
            if unclear := tuple(filter(self._is_unclear, asked.names)):
                self._tried[pod.uid] = now + AFTER_UNCLEAR - BETWEEN
                self._unclear[pod.uid] = now + AFTER_UNCLEAR, unclear
                if len(self._unclear) > MOST_WAITING:
                    self._unclear.popitem(last=False)
            self._metrics.preempted("waits" if choice.reason == "WaitsForVictims" else "none")
            log.info("nobody is evicted", pod=pod.full_name, reason=choice.reason, message=choice.message)
            return
        # Others had turns meanwhile: decided anew about this one node, in one step with the reservation.
        if self._is_over(pod):
            self._metrics.preempted("none")
            log.info("nobody is evicted", pod=pod.full_name, reason="PodGone")
            return
        if fitting := self._books.fitting(pod, asked.names):
            self._metrics.preempted("none")
            log.info("nobody is evicted", pod=pod.full_name, reason="Fits", node=fitting[0])
            return
        candidate = self._on(choice.candidate.node, pod, budgets)
        if not isinstance(candidate, PreemptionCandidate):
            self._metrics.preempted("none")
            log.info("nobody is evicted", pod=pod.full_name, reason="NodeChanged", node=choice.candidate.node)
            return
        now = self._clock.monotonic()
        victims = tuple(each.uid for each in candidate.victims)
        self._kept[pod.uid] = Nomination(pod, candidate.decision, victims, now + KEPT, now + LONGEST_KEPT)
        self._books.keep(pod, candidate.decision, now, KEPT)
        result = await self._make_room(pod, candidate)
        self._metrics.preempted(result)
        if result != "evicted":
            self._kept.pop(pod.uid, None)
            self._books.drop(pod.uid, self._clock.monotonic())

    def _is_over(self, pod: PodFacts) -> bool:
        """The pod of this attempt is gone, on its way out, or has a node. One that no watch has shown yet may be
        new."""
        known = self._books.pod(pod.uid)
        return pod.uid in self._gone or (known is not None and bool(known.node_name or known.terminating))

    async def _found(
        self, asked: ExtenderArgs, budgets: Sequence[DisruptionBudget]
    ) -> list[PreemptionCandidate | TerminatingVictims]:
        """Enough to choose from; each pod begins with other nodes."""
        found: list[PreemptionCandidate | TerminatingVictims] = []
        candidates = 0
        for index, name in enumerate(_turned(asked)):
            if index % _AT_A_TIME == 0:
                await asyncio.sleep(0)
            one = self._on(name, asked.pod, budgets)
            if one is None:
                continue
            found.append(one)
            candidates += isinstance(one, PreemptionCandidate)
            if candidates >= CANDIDATES or isinstance(one, TerminatingVictims):
                break
        return found

    def _on(
        self, name: str, pod: PodFacts, budgets: Sequence[DisruptionBudget]
    ) -> PreemptionCandidate | TerminatingVictims | None:
        occupancy = self._occupancy(name, pod)
        return candidate_on_node(pod, occupancy, self._rules, budgets) if occupancy is not None else None

    def _is_unclear(self, name: str) -> bool:
        """The node's object still shows pods that have left: that will change."""
        ledger = self._books.ledger
        return ledger.is_explained(name) is True and not ledger.is_current(name)

    def _occupancy(self, name: str, pod: PodFacts) -> NodeUsage | None:
        """None: there is nobody who could make room, or the node's object still shows pods that have left."""
        node = self._books.node(name)
        there = self._books.pods_on(name)
        if node is None or not any(each.terminating or each.priority < pod.priority for each in there):
            return None
        ledger = self._books.ledger
        if not ledger.is_current(name):
            return None
        reservations = ledger.reservations(name)
        settled = [each for each in there if each.uid not in reservations]
        actual = actual_zones(node, settled)
        is_doubted = ledger.is_distrusted(name, self._clock.monotonic())
        occupants = []
        for each in there:
            reservation = reservations.get(each.uid)
            if reservation is not None:
                cells = None if reservation.is_spread else reservation.cells
            else:
                cells = actual.get(each.uid) or (None if is_doubted else ledger.placed(each.uid))
            occupants.append(PodUsage(pod=each, cells=cells, is_settled=reservation is None))
        return NodeUsage(
            node=node,
            occupants=tuple(occupants),
            reserved=dict(ledger.reserved(name)),
            groups=tuple(ledger.groups(name)),
        )

    async def _make_room(self, pod: PodFacts, candidate: PreemptionCandidate) -> Result:
        where = f"node {candidate.node}, where pod {pod.full_name} of higher priority fits {_cells(candidate.decision)}"
        for victim in candidate.victims:
            if self._is_over(pod):
                return "none"
            try:
                await self._client.evict(victim.namespace, victim.name, uid=victim.uid)
            except (NotFound, Conflict):
                continue  # it is gone, or another pod has its name
            except TooManyRequests:
                self._tell(pod, victim, "PreemptionRefused", f"A disruption budget keeps pod {victim.full_name}")
                log.info("eviction refused", pod=victim.full_name, preemptor=pod.full_name)
                return "refused"
            except KubernetesError as error:
                log.warning("a pod could not be evicted", pod=victim.full_name, error=str(error))
                return "failed"
            self._tell(victim, pod, "Preempted", f"Evicted from {where} without it")
            log.info("evicted a pod for another one", pod=victim.full_name, preemptor=pod.full_name)
        without = listed(each.full_name for each in candidate.victims)
        note = f"Fits {_cells(candidate.decision)} of node {candidate.node} without {without}"
        self._tell(pod, candidate.victims[0], "Preempts", note)
        await self._nominate(pod, candidate.node)
        return "evicted"

    async def _nominate(self, pod: PodFacts, node: str, *, ends: bool = False) -> None:
        """So that the scheduler asks about this node first, and counts the pod there for pods of lower priority.
        ``ends``: no longer, or they would wait for ever."""
        path = "/status/nominatedNodeName"
        steps = (test(path, node), remove(path)) if ends else (add(path, node),)
        patch = JsonPatch((test("/metadata/uid", pod.uid), *steps))
        try:
            await self._client.patch(PODS, pod.name, patch, namespace=pod.namespace, subresource="status")
        except KubernetesError as error:
            if ends and isinstance(error, NotFound | Conflict | Invalid):
                return  # the pod is gone, or has another nomination or none
            log.warning("a pod could not be nominated", pod=pod.full_name, node=node, error=str(error))

    def _tell(self, about: PodFacts, related: PodFacts, reason: str, note: str) -> None:
        self._recorder.event(
            _regarding(about), type="Normal", reason=reason, note=note, action=ACTION, related=_regarding(related)
        )

    def _forget(self, now: float) -> None:
        while self._tried and now - next(iter(self._tried.values())) >= BETWEEN:
            self._tried.popitem(last=False)
        if len(self._tried) > MOST_WAITING:  # the first one may have to wait for longer than those behind it
            self._tried = OrderedDict((uid, tried) for uid, tried in self._tried.items() if now - tried < BETWEEN)


def _turned(asked: ExtenderArgs) -> Iterator[str]:
    """From a place of the pod's own, so that many pods do not look at the same nodes."""
    names = asked.names
    start = xxh64_intdigest(asked.pod.uid.encode("utf-8", "surrogatepass"), 0) % len(names) if names else 0
    yield from names[start:]
    yield from names[:start]


def _cells(decision: FitDecision) -> str:
    cells = sorted({cell for several in decision.cells.values() for cell in several})
    return f"NUMA {'cells' if len(cells) > 1 else 'cell'} {', '.join(map(str, cells))}"


def _regarding(pod: PodFacts) -> Regarding:
    return Regarding(PODS.api_version, PODS.kind, pod.namespace, pod.name, pod.uid)
