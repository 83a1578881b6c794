"""Makes room for a pod that no node will do for: evicts pods of lower priority from the zones and sums it needs.

This is the only preemption. kube-scheduler's plugin is its source of facts: nodes whose zones alone are missing come
with a filter call, and nodes whose sums are too small with the question about victims that follows, since the plugin
tries all other filters and this role does not know them. The plugin is told that none will do, as it could neither name
a node whose sums do, nor keep a zone free, nor evict: it deletes. Who has to go is decided in ``numa.preemption``; here
the node is kept for the pod, which is nominated, and pods are evicted, by the eviction API alone. Attempts are made one
after the other, outside of the scheduler's question.

Nobody is evicted for nothing: a node counts only if its object shows no pod that has left, no pod is evicted while
another node would do or while pods are on their way out for the same pod, and every eviction is tried dry before the
first is made. What was begun is finished: evictions that fail later are made again. A nomination outlives the process,
so that the next one keeps the node again. It is also what two replicas agree by, since a process may stand still for
longer than its scheduler leads: none overwrites the nomination of another, and each looks at it once more before an
eviction that comes late.
"""

import asyncio
from collections import OrderedDict
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from sys import intern
from typing import Final, Literal, Protocol

import msgspec
import structlog
from xxhash import xxh64_intdigest

from polyarch.clock import Clock
from polyarch.kube.errors import Conflict, Invalid, KubernetesError, NotFound, TooManyRequests
from polyarch.kube.events import Recorder, Regarding
from polyarch.kube.informer import Informer, WatchClient
from polyarch.kube.patches import JsonPatch, Operation, add, remove, test
from polyarch.kube.resources import POD_DISRUPTION_BUDGETS, PODS, Resource
from polyarch.numa.extender.engine import SchedulerCache
from polyarch.numa.extender.metrics import ExtenderMetrics
from polyarch.numa.extender.wire import ExtenderArgs, ExtenderPreemptionArgs
from polyarch.numa.fit.demand import PodDemandCache, whole_request
from polyarch.numa.fit.facts import FitDecision, NodeFacts, PodFacts, PodObject
from polyarch.numa.preemption import (
    DisruptionBudget,
    NodeUsage,
    PodDisruptionBudget,
    PreemptionCandidate,
    PreemptionRules,
    TerminatingVictims,
    candidate_on_node,
    choose_candidate,
    disruption_budget,
    is_in_the_way,
    listed,
    node_usage,
)
from polyarch.objects import ObjectMeta

log = structlog.get_logger(__name__)

KEPT: Final = 60.0
"""Seconds for which freed NUMA zones are kept for the pod that others were evicted for, once they are free."""
LONGEST_KEPT: Final = 600.0
"""Seconds for which zones are kept at most, while victims end or the node's object does not show yet that they have."""
SETTLES: Final = 0.2
"""Seconds from a filter call to the attempt: the question about victims comes a moment later, if at all."""
RETRY: Final = 5.0
"""Seconds until an eviction that failed is made again, once another victim has gone."""
BETWEEN: Final = 30.0
"""Seconds between two attempts for one pod."""
CONFIRMED: Final = 5.0
"""Seconds from a look at the pod until the last eviction that follows from it: less than a lease lasts."""
NOMINATION_TRIES: Final = 3
"""kube-scheduler may write to the pod between a look and the nomination."""
AFTER_UNCLEAR: Final = 5.0
"""Seconds after an attempt that passed over nodes whose objects were behind."""
AFTER_NOTHING: Final = 600.0
"""Seconds after zones were freed that the pod did not get, as somebody took them who asks no extender."""
CANDIDATES: Final = 100
"""Nodes with victims that are enough to choose from, as for kube-scheduler."""
MOST_WAITING: Final = 1000
"""Pods whose attempt is due; more are left to their next question."""
MOST_BYTES: Final = 32 << 20
"""Of names in one queue of requests: kube-scheduler may propose thousands of pods for each pod."""
MOST_GONE: Final = 1000
"""Pods that are remembered as gone: a question about one may come a moment after."""
_AT_A_TIME: Final = 8
"""Nodes that are looked at before others get a turn."""
ACTION: Final = "Preempting"
NOMINATED: Final = "/status/nominatedNodeName"

Result = Literal["evicted", "waits", "none", "refused", "failed"]


class Evicts(Protocol):
    """The part of the client that is used here."""

    async def evict(self, namespace: str, pod: str, *, uid: str | None = None, dry_run: bool = False) -> None: ...

    async def get(
        self, resource: Resource, name: str, *, namespace: str = "", type: type[PodObject] = ...
    ) -> PodObject: ...

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


class PreemptionRequest(msgspec.Struct, frozen=True):
    """A pod that waits for its attempt, and what kube-scheduler has said of nodes."""

    pod: PodFacts
    due: float
    arrivals: int
    """Of pods at nodes, when kube-scheduler said so."""
    names: tuple[str, ...] = ()
    """Nodes that zones alone keep it off."""
    proposed: Mapping[str, Collection[str]] = {}
    """By node, the uids of pods without which sums and other filters let it pass."""

    @property
    def nodes(self) -> tuple[str, ...]:
        return (*self.names, *(each for each in self.proposed if each not in self.names))

    @property
    def size(self) -> int:
        """Bytes, about: names are interned, so they count as references."""
        return 8 * len(self.names) + sum(160 + 8 * len(uids) for uids in self.proposed.values())


class PreemptionQueue:
    """Requests by uid of their pod, in order; bounded in number and in what they name."""

    def __init__(self) -> None:
        self._requests: OrderedDict[str, PreemptionRequest] = OrderedDict()
        self._size = 0

    def __contains__(self, uid: str) -> bool:
        return uid in self._requests

    def __len__(self) -> int:
        return len(self._requests)

    def get(self, uid: str) -> PreemptionRequest | None:
        return self._requests.get(uid)

    def first(self) -> PreemptionRequest:
        return next(iter(self._requests.values()))

    def all(self) -> list[PreemptionRequest]:
        return list(self._requests.values())

    def has_room_for(self, asked: PreemptionRequest) -> bool:
        """Beside all that is here but the one of the same pod."""
        known = self._requests.get(asked.pod.uid)
        size, others = (known.size, len(self) - 1) if known is not None else (0, len(self))
        return others < MOST_WAITING and (not others or self._size - size + asked.size <= MOST_BYTES)

    def put(self, asked: PreemptionRequest) -> None:
        """In the place of the one of the same pod; the first ones go for one that is too much."""
        while not self.has_room_for(asked):
            self.pop(next(uid for uid in self._requests if uid != asked.pod.uid))
        known = self._requests.get(asked.pod.uid)
        self._size += asked.size - (known.size if known is not None else 0)
        self._requests[asked.pod.uid] = asked

    def pop(self, uid: str) -> PreemptionRequest | None:
        found = self._requests.pop(uid, None)
        self._size -= found.size if found is not None else 0
        return found


class Nomination(msgspec.Struct, frozen=True):
    """A node with zones and sums that are free soon, for the pod that others were evicted for."""

    pod: PodFacts
    decision: FitDecision
    victims: tuple[str, ...]
    """Their uids."""
    until: float
    at_most: float
    arrivals: int = 0
    """Of the request: a node that was altered since may have become one that kube-scheduler does not take."""
    is_free: bool = False
    """The victims have gone, and the node's object shows it."""
    remaining: tuple[PodFacts, ...] = ()
    """Victims whose eviction has to be made, or made again."""
    retry: float = 0.0
    confirmed: float = 0.0
    """When the API server was last asked whether the pod waits and is nominated nowhere else."""

    @property
    def node(self) -> str:
        return self.decision.node


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
        self._waiting = PreemptionQueue()
        self._tried: OrderedDict[str, float] = OrderedDict()
        self._kept: dict[str, Nomination] = {}
        self._lapsed: list[Nomination] = []
        self._again = PreemptionQueue()
        """Attempts that are made again once one of their nodes is clear."""
        self.wakes: Callable[[str], None] = lambda node: None
        """Called with a node that a rejected pod is to be asked about again."""
        self._nominated: dict[str, tuple[PodFacts, float]] = {}
        """Pods that were nominated lately: kube-scheduler clears the nomination of one whose zone is not free yet."""
        self._gone: OrderedDict[str, None] = OrderedDict()
        self._arrived = asyncio.Event()

    def rejected(self, asked: ExtenderArgs, now: float) -> None:
        """No node will do for the pod. Returns at once."""
        self._add(PreemptionRequest(asked.pod, now + SETTLES, self._books.arrivals, names=asked.names), now)

    def proposed(self, asked: ExtenderPreemptionArgs, now: float) -> None:
        """Nodes will do for kube-scheduler without pods that it would delete. Returns at once."""
        self._add(PreemptionRequest(asked.pod, now, self._books.arrivals, proposed=asked.victims), now)

    def _add(self, asked: PreemptionRequest, now: float) -> None:
        pod = asked.pod
        if (
            pod.uid in self._gone
            or not pod.preempts
            or pod.scheduler_name != self._rules.scheduler_name
            or self.kept(pod.uid, now) is not None
        ):
            return
        # Each question has copies of all names, and a thousand of them may be remembered.
        proposed = {intern(node): tuple(map(intern, uids)) for node, uids in asked.proposed.items()}
        asked = msgspec.structs.replace(asked, names=tuple(map(intern, asked.names)), proposed=proposed)
        tried = self._tried.get(pod.uid, -BETWEEN)
        if now - tried < BETWEEN:
            self._try_again(self._with_earlier(asked), tried + BETWEEN)
            return
        if (known := self._waiting.get(pod.uid)) is not None:
            # kube-scheduler asks about a nominated node alone first, and then about all of them.
            names = max(known.names, asked.names, key=len)
            due = min(known.due, asked.due)
            asked = PreemptionRequest(pod, due, known.arrivals, names, asked.proposed or known.proposed)
        if self._waiting.has_room_for(asked):
            self._waiting.put(asked)
            self._arrived.set()

    def _with_earlier(self, asked: PreemptionRequest) -> PreemptionRequest:
        """What kube-scheduler says last counts. It asks about nodes that zones alone are missing of, and then about
        sums."""
        known = self._again.get(asked.pod.uid)
        if known is None or not asked.proposed:
            return asked
        names = tuple(each for each in known.names if each not in asked.proposed)
        return msgspec.structs.replace(asked, names=names, arrivals=known.arrivals)

    def kept(self, uid: str, now: float) -> tuple[FitDecision, float] | None:
        """What is kept for a pod, and for how many more seconds; None: nothing (any more)."""
        found = self._kept.get(uid)
        return (found.decision, found.until - now) if found is not None and now < found.until else None

    def crowded(self, pod: PodFacts) -> Collection[str]:
        """Nodes whose sums hold the pods that they are kept for, and not this one beside them."""
        if not self._kept:
            return ()
        request = whole_request(pod)
        found = set()
        for kept in self._kept.values():
            if kept.pod.uid == pod.uid:
                continue
            usage = self._usage(kept.node, pod)
            gone = [each for each in usage.occupants if each.pod.terminating or each.pod.uid in kept.victims]
            if usage.lacking(request, gone):
                found.add(kept.node)
        return found

    def forget(self, uid: str) -> None:
        """The pod is gone: nobody is evicted for it any more."""
        self._waiting.pop(uid)
        self._kept.pop(uid, None)
        self._again.pop(uid)
        self._gone[uid] = None
        if len(self._gone) > MOST_GONE:
            self._gone.popitem(last=False)

    def look(self, now: float) -> None:
        """Once per second or so: keep on what is not free yet, and give up what the pod did not get."""
        ledger = self._books.ledger
        for uid, kept in list(self._kept.items()):
            if self._is_over(kept.pod):
                del self._kept[uid]
                self.wakes(kept.node)
                continue
            is_coming = self._is_coming(kept)
            until = min(now + KEPT, kept.at_most) if is_coming else kept.until
            if now >= until:
                del self._kept[uid]
                self._tried[uid] = now + AFTER_NOTHING - BETWEEN
                self._lapsed.append(kept)
                self._arrived.set()
                continue
            if not (is_coming or kept.is_free):
                self.wakes(kept.node)
            self._kept[uid] = msgspec.structs.replace(kept, until=until, is_free=not is_coming)
            if kept.remaining and now >= kept.retry:
                self._arrived.set()
            if not ledger.held(uid):
                self._books.keep(kept.pod, kept.decision, now, until - now)
        self._nominated |= {pod.uid: (pod, now + KEPT) for pod in self._books.nominated()}
        for uid, (pod, until) in list(self._nominated.items()):
            if now >= until or self._is_over(pod):
                del self._nominated[uid]
            else:
                self._keep_again(pod, now)
        for asked in self._again.all():
            if now < asked.due or not self._waiting.has_room_for(asked):
                continue
            if node := next((each for each in asked.nodes if self._is_clear(each, asked.pod)), ""):
                self._again.pop(asked.pod.uid)
                if asked.pod.uid not in self._waiting:
                    self._waiting.put(asked)
                self._arrived.set()
                self.wakes(node)

    def freed(self, node: str) -> None:
        """There may be more room on the node: it is kept in the same step, or others would be asked about first."""
        now = self._clock.monotonic()
        for pod, _ in list(self._nominated.values()):
            if pod.nominated_node == node:
                self._keep_again(pod, now)

    def _keep_again(self, pod: PodFacts, now: float) -> None:
        """A nomination of the process before this one, or of another replica: its node is kept here, too."""
        if pod.uid in self._kept or self._books.ledger.held(pod.uid) or self._is_over(pod):
            return
        if now - self._tried.get(pod.uid, -BETWEEN) < 0:
            return  # it had its time
        if not self._is_clear(pod.nominated_node, pod):
            return
        usage = self._usage(pod.nominated_node, pod)
        found = candidate_on_node(pod, usage, self._rules, proposed=())
        if isinstance(found, TerminatingVictims):
            self._keep(pod, found.decision, found.leaving, now)
        elif found is None and not usage.lacking(whole_request(pod), ()):
            decision = self._books.decide(pod, pod.nominated_node)
            if decision.fits:
                self._keep(pod, decision, (), now)

    def _keep(
        self, pod: PodFacts, decision: FitDecision, victims: Sequence[PodFacts], now: float, arrivals: int = 0
    ) -> None:
        uids = tuple(each.uid for each in victims)
        self._kept[pod.uid] = Nomination(pod, decision, uids, now + KEPT, now + LONGEST_KEPT, arrivals)
        self._books.keep(pod, decision, now, KEPT)

    def _give_back(self, uid: str) -> None:
        self._kept.pop(uid, None)
        self._books.drop(uid, self._clock.monotonic())

    def _is_coming(self, kept: Nomination) -> bool:
        """A victim is still ending, or the node's object does not show yet that it has ended."""
        there = {each.uid for each in self._books.pods_on(kept.node)}
        return not there.isdisjoint(kept.victims) or not self._is_current(kept.node, kept.pod)

    async def run(self) -> None:
        """Attempts, one after the other, until cancelled."""
        while True:
            await self._arrived.wait()
            self._arrived.clear()
            while self._lapsed:
                lapsed = self._lapsed.pop()
                await self._end_nomination(lapsed.pod, lapsed.node)
                self.wakes(lapsed.node)
            now = self._clock.monotonic()
            for uid in [uid for uid, kept in self._kept.items() if kept.remaining and now >= kept.retry]:
                await self._evict_remaining(uid)
            while self._waiting:
                first = self._waiting.first()
                if (early := first.due - self._clock.monotonic()) > 0:
                    await self._clock.sleep(early)
                if (asked := self._waiting.pop(first.pod.uid)) is None:
                    continue
                try:
                    await self._attempt(asked)
                except Exception:
                    log.exception("preemption failed", pod=asked.pod.full_name)
                    self._metrics.preempted("failed")

    async def _attempt(self, asked: PreemptionRequest) -> None:
        pod = asked.pod
        now = self._clock.monotonic()
        self._forget(now)
        if self._is_over(pod):
            return
        self._tried.pop(pod.uid, None)
        self._tried[pod.uid] = now
        self._again.pop(pod.uid)
        budgets = await self._budgets.known()
        choice = choose_candidate(await self._found(asked, budgets), nominated=pod.nominated_node)
        # Others had turns meanwhile: decided anew about this one node, in one step with the reservation.
        if self._is_over(pod):
            self._says("none", pod, "PodGone")
            return
        now = self._clock.monotonic()
        crowded = self.crowded(pod)
        fitting = [
            each
            for each in self._books.fitting(pod, asked.names)
            if each not in crowded and self._still_has_sums(each, asked)
        ]
        if choice.waiting is not None and not fitting:
            self._keep(pod, choice.waiting.decision, choice.waiting.leaving, now)
            self._says("waits", pod, choice.reason, choice.message)
            await self._nominate(pod, choice.waiting.node)
            return
        if fitting or choice.candidate is None:
            if fitting or any(self._will_be_clear(each, pod) for each in asked.nodes):
                self._tried[pod.uid] = now + AFTER_UNCLEAR - BETWEEN
                self._try_again(asked, now + AFTER_UNCLEAR)
            reason, message = ("Fits", f"it fits node {fitting[0]}") if fitting else (choice.reason, choice.message)
            self._says("none", pod, reason, message)
            return
        candidate = self._on(choice.candidate.node, asked, budgets)
        if not isinstance(candidate, PreemptionCandidate):
            self._says("none", pod, "NodeChanged", f"node {choice.candidate.node} has changed")
            return
        self._keep(pod, candidate.decision, candidate.victims, now, asked.arrivals)
        result = await self._make_room(pod, candidate)
        self._metrics.preempted(result)
        if result in ("refused", "failed"):
            self._try_again(asked, self._clock.monotonic() + BETWEEN)
        if result != "evicted":
            self._give_back(pod.uid)

    def _says(self, result: Result, pod: PodFacts, reason: str, message: str = "") -> None:
        self._metrics.preempted(result)
        log.info("nobody is evicted", pod=pod.full_name, reason=reason, message=message)

    def _try_again(self, asked: PreemptionRequest, due: float) -> None:
        """kube-scheduler would not ask again: nothing that it watches will have changed."""
        self._again.put(msgspec.structs.replace(asked, due=due))

    def _is_over(self, pod: PodFacts) -> bool:
        """The pod of this attempt is gone, on its way out, or has a node. One that no watch has shown yet may be
        new."""
        known = self._books.pod(pod.uid)
        return pod.uid in self._gone or (known is not None and bool(known.node_name or known.terminating))

    async def _found(
        self, asked: PreemptionRequest, budgets: Sequence[DisruptionBudget]
    ) -> list[PreemptionCandidate | TerminatingVictims]:
        """Enough to choose from; each pod begins with other nodes."""
        found: list[PreemptionCandidate | TerminatingVictims] = []
        candidates = 0
        for index, name in enumerate(_turned(asked)):
            if index % _AT_A_TIME == 0:
                await asyncio.sleep(0)
            one = self._on(name, asked, budgets)
            if one is None:
                continue
            found.append(one)
            candidates += isinstance(one, PreemptionCandidate)
            if candidates >= CANDIDATES or isinstance(one, TerminatingVictims):
                break
        return found

    def _on(
        self, name: str, asked: PreemptionRequest, budgets: Sequence[DisruptionBudget]
    ) -> PreemptionCandidate | TerminatingVictims | None:
        pod = asked.pod
        if not any(each.terminating or each.priority < pod.priority for each in self._books.pods_on(name)):
            return None
        if not self._is_clear(name, pod) or self._books.is_altered_since(name, asked.arrivals):
            return None
        newcomers = self._books.arrived_since(name, asked.arrivals)
        if any(is_in_the_way(each, pod) for each in newcomers):
            return None
        proposed = asked.proposed.get(name, () if newcomers else None)
        if proposed:
            proposed = tuple(each for each in proposed if each not in self._gone)
        return candidate_on_node(pod, self._usage(name, pod), self._rules, budgets, proposed=proposed)

    def _still_has_sums(self, name: str, asked: PreemptionRequest) -> bool:
        """kube-scheduler has found so; others may have come since."""
        if not self._books.arrived_since(name, asked.arrivals):
            return True
        return not self._usage(name, asked.pod).lacking(whole_request(asked.pod), ())

    def _is_clear(self, name: str, pod: PodFacts) -> bool:
        """What another pod finds on a node is not known while the node is kept for one that has not started: a kubelet
        takes the lowest zone, whoever comes first."""
        is_kept = any(each.node == name and each.pod.uid != pod.uid for each in self._kept.values())
        return not is_kept and self._is_current(name, pod)

    def _is_current(self, name: str, pod: PodFacts) -> bool:
        """Zones that show pods which have left show too little room; a pod that aligns nothing there needs none."""
        node = self._books.node(name)
        if node is not None and not (node.has_topology and PodDemandCache(pod).on(node).containers):
            return True
        return self._books.ledger.is_current(name)

    def _will_be_clear(self, name: str, pod: PodFacts) -> bool:
        """The node is kept for another pod, or its object still shows pods that have left."""
        return self._books.ledger.is_explained(name) is not False and not self._is_clear(name, pod)

    def _usage(self, name: str, pod: PodFacts) -> NodeUsage:
        """Without what is reserved for the pod itself."""
        node = self._books.node(name) or NodeFacts(name=name, has_topology=False)
        ledger = self._books.ledger
        there = self._books.pods_on(name)
        bound = {each.uid for each in there}
        reservations = ledger.reservations(name)
        coming = {uid: self._books.pod(uid) for uid in reservations}
        coming |= {uid: kept.pod for uid, kept in self._kept.items() if kept.node == name}
        expected = [each for uid, each in coming.items() if each is not None and uid != pod.uid and uid not in bound]
        is_doubted = ledger.is_distrusted(name, self._clock.monotonic())
        return node_usage(
            node,
            there,
            held={uid: None if each.is_spread else each.cells for uid, each in reservations.items()},
            reserved=dict(ledger.reserved(name)),
            groups=ledger.groups(name),
            predicted=lambda uid: None if is_doubted else ledger.placed(uid),
            expected=expected,
        )

    async def _make_room(self, pod: PodFacts, candidate: PreemptionCandidate) -> Result:
        """All evictions are tried first, so that none is made in vain; then the nomination, which outlives this
        process; then they are made."""
        for victim in candidate.victims:
            if self._is_over(pod):
                return "none"
            if failed := await self._evict(pod, victim, candidate.decision, dry_run=True):
                return failed
        if (confirmed := await self._nominate(pod, candidate.node)) is None:
            return "failed"  # the pod may be gone, and nobody would keep the node after this process
        if (kept := self._kept.get(pod.uid)) is None:
            return "none"
        self._kept[pod.uid] = msgspec.structs.replace(kept, remaining=candidate.victims, confirmed=confirmed)
        failed = await self._evict_remaining(pod.uid)
        left = self._kept.get(pod.uid)
        if left is None:
            return "none"
        if failed and len(left.remaining) == len(candidate.victims):
            await self._end_nomination(pod, candidate.node)
            return failed
        without = listed(_called(each, pod) for each in candidate.victims)
        note = f"Fits {_place(candidate.decision)} of node {candidate.node} without {without}"
        self._tell(pod, candidate.victims[0], "Preempts", note)
        return "evicted"

    async def _evict_remaining(self, uid: str) -> Result | None:
        """The first eviction that fails ends it; it is made again later."""
        while (kept := self._kept.get(uid)) is not None and kept.remaining:
            if self._is_over(kept.pod):
                self._give_back(uid)
                break
            if self._books.is_altered_since(kept.node, kept.arrivals):
                self._give_back(uid)
                await self._end_nomination(kept.pod, kept.node)
                break
            if self._clock.monotonic() - kept.confirmed > CONFIRMED:
                if not await self._confirm(uid, kept):
                    return "failed"
                continue
            victim = kept.remaining[0]
            failed = await self._evict(kept.pod, victim, kept.decision)
            if (kept := self._kept.get(uid)) is None:
                break
            if failed:
                self._kept[uid] = msgspec.structs.replace(kept, retry=self._clock.monotonic() + RETRY)
                return failed
            self._kept[uid] = msgspec.structs.replace(kept, remaining=kept.remaining[1:])
        return None

    async def _confirm(self, uid: str, kept: Nomination) -> bool:
        """Asks for the pod: a process that stood still may not have heard of what became of it. If it does not wait for
        the node any more, the zones are given back. False: there was no answer in time, it is asked again later."""
        now = self._clock.monotonic()
        in_time = False
        try:
            if await self._waiting_pod(kept.pod, kept.node) is None:
                self._give_back(uid)
                return True
            in_time = self._clock.monotonic() - now <= CONFIRMED
        except KubernetesError as error:
            log.warning("a pod could not be asked for", pod=kept.pod.full_name, error=str(error))
        if (known := self._kept.get(uid)) is not None:
            changed = {"confirmed": now} if in_time else {"retry": self._clock.monotonic() + RETRY}
            self._kept[uid] = msgspec.structs.replace(known, **changed)
        return in_time

    async def _evict(
        self, pod: PodFacts, victim: PodFacts, decision: FitDecision, *, dry_run: bool = False
    ) -> Result | None:
        """Why the victim is still there; None: it is not, or will not be."""
        try:
            await self._client.evict(victim.namespace, victim.name, uid=victim.uid, dry_run=dry_run)
        except (NotFound, Conflict):
            return None  # it is gone, or another pod has its name
        except TooManyRequests as error:
            if "disruption budget" in str(error):
                self._tell(pod, victim, "PreemptionRefused", f"A disruption budget keeps pod {_called(victim, pod)}")
            log.info("eviction refused", pod=victim.full_name, preemptor=pod.full_name, error=str(error))
            return "refused"
        except KubernetesError as error:
            log.warning("a pod could not be evicted", pod=victim.full_name, error=str(error))
            return "failed"
        if not dry_run:
            where = f"node {decision.node}, where pod {_called(pod, victim)} of higher priority fits {_place(decision)}"
            self._tell(victim, pod, "Preempted", f"Evicted from {where} without it")
            log.info("evicted a pod for another one", pod=victim.full_name, preemptor=pod.full_name)
        return None

    async def _nominate(self, pod: PodFacts, node: str) -> float | None:
        """So that the scheduler asks about this node first, and counts the pod there for pods of lower priority. When
        the pod was last known to wait; None: it is not known to be nominated."""
        for _ in range(NOMINATION_TRIES):
            now = self._clock.monotonic()
            try:
                found = await self._waiting_pod(pod, node)
                if found is None:
                    return None
                known = test("/metadata/uid", pod.uid), test("/metadata/resourceVersion", found.resource_version)
                await self._patch_status(pod, *known, add(NOMINATED, node))
            except (Conflict, Invalid):
                continue  # the pod has changed meanwhile
            except KubernetesError as error:
                log.warning("a pod could not be nominated", pod=pod.full_name, node=node, error=str(error))
                return None
            return now
        log.warning("a pod could not be nominated: it keeps changing", pod=pod.full_name, node=node)
        return None

    async def _waiting_pod(self, pod: PodFacts, node: str) -> ObjectMeta | None:
        """Of the pod, as the API server has it; None: it is gone, is on its way out, has a node, or was nominated for
        another one since kube-scheduler asked, as another replica does that leads."""
        try:
            found = await self._client.get(PODS, pod.name, namespace=pod.namespace, type=PodObject)
        except NotFound:
            return None
        nominated = (found.status.nominated_node_name if found.status is not None else None) or ""
        if found.metadata.uid != pod.uid or found.metadata.deletion_timestamp is not None:
            reason = "PodGone"
        elif found.spec is not None and found.spec.node_name:
            reason = "PodHasNode"
        elif nominated not in ("", node, pod.nominated_node):
            reason = "NominatedElsewhere"
        else:
            return found.metadata
        log.info("the pod does not wait for this node", pod=pod.full_name, node=node, reason=reason)
        return None

    async def _end_nomination(self, pod: PodFacts, node: str) -> None:
        """Or pods of lower priority would wait for ever for what the pod does not take."""
        try:
            await self._patch_status(pod, test("/metadata/uid", pod.uid), test(NOMINATED, node), remove(NOMINATED))
        except (NotFound, Conflict, Invalid):
            return  # the pod is gone, or has another nomination or none
        except KubernetesError as error:
            log.warning("a nomination could not be taken back", pod=pod.full_name, node=node, error=str(error))

    async def _patch_status(self, pod: PodFacts, *operations: Operation) -> None:
        patch = JsonPatch(operations)
        await self._client.patch(PODS, pod.name, patch, namespace=pod.namespace, subresource="status")

    def _tell(self, about: PodFacts, related: PodFacts, reason: str, note: str) -> None:
        other = _regarding(related)
        if related.namespace != about.namespace:
            other = msgspec.structs.replace(other, namespace="", name="")
        self._recorder.event(_regarding(about), type="Normal", reason=reason, note=note, action=ACTION, related=other)

    def _forget(self, now: float) -> None:
        while self._tried and now - next(iter(self._tried.values())) >= BETWEEN:
            self._tried.popitem(last=False)
        if len(self._tried) > MOST_WAITING:  # the first one may have to wait for longer than those behind it
            self._tried = OrderedDict((uid, tried) for uid, tried in self._tried.items() if now - tried < BETWEEN)


def _turned(asked: PreemptionRequest) -> Iterator[str]:
    """The nominated node, then from a place of the pod's own, so that many pods do not look at the same nodes."""
    nominated = asked.pod.nominated_node
    names = [each for each in asked.nodes if each != nominated]
    if len(names) < len(asked.nodes):
        yield nominated
    start = xxh64_intdigest(asked.pod.uid.encode("utf-8", "surrogatepass"), 0) % len(names) if names else 0
    yield from names[start:]
    yield from names[:start]


def _place(decision: FitDecision) -> str:
    """On a node."""
    zones = sorted({zone for several in decision.cells.values() for zone in several})
    if not zones:
        return "the sums"
    return f"NUMA {'cells' if len(zones) > 1 else 'cell'} {', '.join(map(str, zones))}"


def _called(pod: PodFacts, reader: PodFacts) -> str:
    """In an Event of the other pod: tenants do not see the names of each other's pods."""
    return pod.full_name if pod.namespace == reader.namespace else f"{pod.uid} of another namespace"


def _regarding(pod: PodFacts) -> Regarding:
    return Regarding(PODS.api_version, PODS.kind, pod.namespace, pod.name, pod.uid)
