"""Room is made for a pod that no node will do for: what is evicted, kept, nominated and told."""

import asyncio
from collections.abc import Sequence
from typing import Any

import msgspec
import pytest
from fake_api import FakeApi
from manual_clock import ManualClock
from msgspec.structs import replace
from numa_ledgers import admitted, choose, exclusive, started_ledger, version
from numa_nodes import container, pod

from polyarch.kube.errors import ApiError, Conflict, TooManyRequests
from polyarch.kube.events import Regarding
from polyarch.kube.metrics import Metrics
from polyarch.kube.resources import PODS
from polyarch.numa.extender.metrics import ExtenderMetrics
from polyarch.numa.extender.preemption import (
    AFTER_NOTHING,
    AFTER_UNCLEAR,
    BETWEEN,
    KEPT,
    LONGEST_KEPT,
    MOST_WAITING,
    PreemptionController,
)
from polyarch.numa.extender.wire import ExtenderArgs
from polyarch.numa.fit.facts import FitDecision, NodeFacts, PodFacts
from polyarch.numa.preemption import DisruptionBudget, PreemptionRules
from polyarch.selectors import Selector

OURS = "topo-aware-scheduler"


def stored(pod: PodFacts) -> dict[str, Any]:
    return {"metadata": {"name": pod.name, "namespace": pod.namespace, "uid": pod.uid}, "status": {}}


class Told:
    """A recorder that posts nothing."""

    def __init__(self) -> None:
        self.events: list[tuple[str, str, str, str]] = []

    def event(self, regarding: Regarding, *, reason: str, note: str, related: Regarding, **_: Any) -> None:
        self.events.append((regarding.name, reason, related.name, note))


class Preemption:
    """One node with two cells of 8 CPUs; each pod of lower priority has 6 CPUs of one of them."""

    def __init__(self, *residents: PodFacts, used: Sequence[dict[str, float]]) -> None:
        self.clock = ManualClock()
        self.ledger = started_ledger(scheduler=OURS)
        self.pods = {each.uid: each for each in residents}
        self.topology = version(1)
        self.ledger.topology_seen(self.topology, 0.0)
        for each in residents:
            choose(self.ledger, each, self.topology, now=0.0)
            self.ledger.pod_seen(each, 1.0)
        self.topology = version(2, residents, used=used)
        self.ledger.topology_seen(self.topology, 2.0)
        self.budgets: list[DisruptionBudget] = []
        self.api = FakeApi()
        for each in residents:
            self.api.put(PODS, stored(each))
        self.told = Told()
        self.metrics = Metrics()
        self.woken: list[str] = []
        self.fitting_nodes: list[str] = []
        """Other nodes that would do."""
        self.preempting = PreemptionController(
            self.api,
            self,
            budgets=self,
            rules=PreemptionRules(scheduler_name=OURS),
            recorder=self.told,  # type: ignore[arg-type]
            metrics=ExtenderMetrics(self.metrics),
            clock=self.clock,
        )
        self.preempting.wakes = self.woken.append

    async def known(self) -> list[DisruptionBudget]:
        return self.budgets

    def node(self, name: str) -> NodeFacts | None:
        return self.topology if name == self.topology.name else None

    def pod(self, uid: str) -> PodFacts | None:
        return self.pods.get(uid)

    def pods_on(self, node: str) -> list[PodFacts]:
        return [each for each in self.pods.values() if each.node_name == node]

    def fitting(self, pod: PodFacts, names: Sequence[str]) -> list[str]:
        return self.fitting_nodes

    def keep(self, pod: PodFacts, decision: FitDecision, now: float, seconds: float) -> None:
        self.ledger.hold(pod, [decision], now, ttl=seconds)

    def drop(self, uid: str, now: float) -> None:
        self.ledger.drop(uid, "again")

    async def rejects(self, pod: PodFacts, names: tuple[str, ...] = ("worker",)) -> None:
        """A filter that found no node, and time for what follows."""
        self.api.put(PODS, stored(pod))
        self.preempting.rejected(ExtenderArgs(pod=pod, names=names), self.clock.monotonic())
        await self.attempts(20 + 2 * len(names))

    def goes(self, name: str) -> None:
        """The pod has left; the node's object does not show it yet."""
        self.ledger.pod_gone(name, self.clock.monotonic())
        del self.pods[name]

    def publishes(self, number: int, *, used: Sequence[dict[str, float]]) -> None:
        """A version of the node's object that shows the pods that are there."""
        self.topology = version(number, self.pods_on("worker"), used=used)
        self.ledger.topology_seen(self.topology, self.clock.monotonic())

    async def passes(self, seconds: float) -> None:
        """Time, second by second as the extender looks at what has ended with it."""
        for _ in range(int(seconds)):
            await self.clock.run(1)
            now = self.clock.monotonic()
            self.ledger.tick(now)
            self.preempting.look(now)

    async def attempts(self, steps: int = 20) -> None:
        task = asyncio.create_task(self.preempting.run())
        for _ in range(steps):
            await asyncio.sleep(0)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)

    @property
    def calls(self) -> list[tuple[str, str]]:
        return [(verb, name) for verb, _, name in self.api.requests]

    @property
    def patches(self) -> list[list[dict[str, Any]]]:
        return [msgspec.to_builtins(list(patch.operations)) for _, patch in self.api.patches]

    def count(self, result: str) -> float:
        found = self.metrics.registry.get_sample_value("polyarch_numa_preemptions_total", {"result": result})
        return found or 0.0


def low(name: str, priority: int = 0, **others: Any) -> PodFacts:
    return admitted(exclusive(name, 6, 4, priority=priority, scheduler_name=OURS), **others)


def wanting(**others: Any) -> PodFacts:
    return exclusive("wanting", 4, 4, **{"priority": 100, "scheduler_name": OURS, **others})


FULL: tuple[dict[str, float], ...] = ({"cpu": 6, "memory": 4}, {"cpu": 6, "memory": 4})


@pytest.fixture
def world() -> Preemption:
    return Preemption(low("first", 5), low("second", 1), used=FULL)


@pytest.mark.req("NS-122")
async def test_the_lowest_pod_is_evicted_its_cells_are_kept_and_the_pod_is_nominated(world: Preemption) -> None:
    await world.rejects(wanting())
    assert world.calls == [("evict", "second"), ("patch", "wanting")]
    assert world.patches == [
        [
            {"op": "test", "path": "/metadata/uid", "value": "wanting"},
            {"op": "add", "path": "/status/nominatedNodeName", "value": "worker"},
        ]
    ]
    (held,) = world.ledger.held("wanting")
    assert held.node == "worker"
    assert held.cells.keys() == {1}
    assert world.count("evicted") == 1


@pytest.mark.req("NS-123")
async def test_one_event_on_each_names_the_other(world: Preemption) -> None:
    await world.rejects(wanting())
    assert world.told.events == [
        (
            "second",
            "Preempted",
            "wanting",
            "Evicted from node worker, where pod default/wanting of higher priority fits NUMA cell 1 without it",
        ),
        ("wanting", "Preempts", "second", "Fits NUMA cell 1 of node worker without default/second"),
    ]


@pytest.mark.req("NS-122")
async def test_freed_cells_are_kept_for_a_minute(world: Preemption) -> None:
    await world.rejects(wanting())
    now = world.clock.monotonic()
    kept = world.preempting.kept("wanting", now)
    assert kept is not None
    assert kept[1] == KEPT
    assert world.preempting.kept("wanting", now + KEPT) is None
    assert [each.reason for each in world.ledger.tick(now + KEPT)] == ["ttl"]
    assert not world.ledger.held("wanting")


@pytest.mark.req("NS-122")
async def test_one_attempt_for_a_pod_in_thirty_seconds() -> None:
    world = Preemption(low("first", 200), low("second", 200), used=FULL)
    await world.rejects(wanting())
    await world.rejects(wanting())
    assert world.count("none") == 1
    await world.clock.run(BETWEEN)
    await world.rejects(wanting())
    assert world.count("none") == 2


@pytest.mark.req("NS-122")
async def test_nobody_else_is_evicted_while_the_freed_cells_are_kept(world: Preemption) -> None:
    await world.rejects(wanting())
    await world.clock.run(BETWEEN + 1)
    await world.rejects(wanting())
    assert [call for call, _ in world.calls] == ["evict", "patch"]


@pytest.mark.req("NS-122")
async def test_an_eviction_that_a_budget_refuses_ends_the_attempt(world: Preemption) -> None:
    world.api.refuse(PODS, "evict", error=TooManyRequests(429, message="budget"))
    await world.rejects(wanting())
    assert world.calls == [("evict", "second")]
    assert not world.ledger.held("wanting")
    assert world.preempting.kept("wanting", world.clock.monotonic()) is None
    assert world.count("refused") == 1
    assert world.told.events == [
        ("wanting", "PreemptionRefused", "second", "A disruption budget keeps pod default/second")
    ]


@pytest.mark.req("NS-121")
async def test_a_budget_that_is_used_up_turns_to_the_next_best(world: Preemption) -> None:
    world.pods["second"] = replace(world.pods["second"], labels={"app": "db"})
    world.budgets = [
        DisruptionBudget(
            namespace="default", name="db", selector=Selector.parse({"matchLabels": {"app": "db"}}), allowed=0
        )
    ]
    await world.rejects(wanting())
    assert world.calls[0] == ("evict", "first")


@pytest.mark.req("NS-122")
@pytest.mark.parametrize("is_replaced", [False, True], ids=["gone", "a namesake"])
async def test_a_victim_that_has_gone_meanwhile_needs_no_eviction(world: Preemption, is_replaced: bool) -> None:
    world.api.remove(PODS, "second", "default")
    if is_replaced:
        world.api.put(PODS, stored(low("second")) | {"metadata": {"name": "second", "namespace": "default"}})
    await world.rejects(wanting())
    assert [call for call, _ in world.calls] == ["evict", "patch"]
    assert world.api.evicted == []
    assert world.count("evicted") == 1


@pytest.mark.req("NS-122")
async def test_a_failed_eviction_gives_the_cells_back(world: Preemption) -> None:
    world.api.refuse(PODS, "evict", error=ApiError(500, message="two budgets"))
    await world.rejects(wanting())
    assert not world.ledger.held("wanting")
    assert world.count("failed") == 1


@pytest.mark.req("NS-122")
async def test_the_room_is_made_although_the_nomination_fails(world: Preemption) -> None:
    world.api.refuse(PODS, "patch", error=Conflict(409, message="changed"))
    await world.rejects(wanting())
    assert world.ledger.held("wanting")
    assert world.count("evicted") == 1


@pytest.mark.req("NS-120")
async def test_a_pod_that_must_not_preempt_evicts_nobody(world: Preemption) -> None:
    await world.rejects(wanting(preempts=False))
    await world.rejects(wanting(scheduler_name="default-scheduler"))
    assert not world.calls


@pytest.mark.req("NS-123")
async def test_pods_on_their_way_out_are_waited_for(world: Preemption) -> None:
    world.pods["first"] = replace(world.pods["first"], terminating=True)
    await world.rejects(wanting())
    assert not world.calls
    assert world.count("waits") == 1


@pytest.mark.req("NS-122")
async def test_a_node_whose_cells_nobody_trusts_is_no_candidate(world: Preemption) -> None:
    world.ledger.distrust("worker", world.clock.monotonic())
    await world.rejects(wanting())
    assert not world.calls
    assert world.count("none") == 1


@pytest.mark.req("NS-120")
async def test_a_pod_that_was_bound_meanwhile_evicts_nobody(world: Preemption) -> None:
    world.pods["wanting"] = replace(wanting(), node_name="elsewhere")
    await world.rejects(wanting())
    assert not world.calls


@pytest.mark.req("NS-122")
async def test_nobody_is_evicted_for_a_pod_that_is_gone(world: Preemption) -> None:
    """It was deleted while its turn had not come."""
    world.preempting.rejected(ExtenderArgs(wanting(), ("worker",)), world.clock.monotonic())
    world.preempting.forget("wanting")
    await world.attempts()
    await world.rejects(wanting())
    assert not world.calls, "nor when the scheduler asks once more, as its watch is late"


@pytest.mark.req("NS-122")
async def test_nobody_is_evicted_from_a_node_whose_object_still_shows_pods_that_left() -> None:
    """Their zones may be what the pod needs. Once it shows who is there, the scheduler is woken to ask again."""
    world = Preemption(low("first", 5), low("second", 1), used=FULL)
    world.goes("first")
    await world.rejects(wanting())
    await world.passes(AFTER_UNCLEAR)
    assert not world.calls
    assert not world.woken
    world.publishes(3, used=({"cpu": 6, "memory": 4}, {"cpu": 6, "memory": 4}))
    await world.passes(1)
    assert world.woken == ["worker"]
    await world.rejects(wanting())
    assert world.calls[0] == ("evict", "second"), "the attempt that saw nothing does not count"


@pytest.mark.req("NS-122")
async def test_an_exporter_that_has_stopped_costs_one_pod_and_not_one_each_minute(world: Preemption) -> None:
    await world.rejects(wanting())
    world.goes("second")
    for _ in range(20):
        await world.passes(BETWEEN + 1)
        await world.rejects(wanting())
    assert [call for call, _ in world.calls if call == "evict"] == ["evict"]


@pytest.mark.req("NS-122")
async def test_who_loses_freed_zones_to_others_costs_the_next_pod_ten_minutes_later(world: Preemption) -> None:
    """A pod of the default scheduler may take them, and takes those of the next victim in the same way."""
    await world.rejects(wanting())
    world.goes("second")
    taker = admitted(exclusive("taker", 6, 4, scheduler_name="default-scheduler"))
    world.pods["taker"] = taker
    world.ledger.pod_seen(taker, world.clock.monotonic())
    world.publishes(3, used=FULL)
    await world.passes(KEPT + 2)
    await world.attempts()
    assert not world.ledger.held("wanting")
    await world.passes(AFTER_NOTHING - 10)
    await world.rejects(wanting())
    assert [victim for call, victim in world.calls if call == "evict"] == ["second"]
    await world.passes(20)
    await world.rejects(wanting())
    assert [victim for call, victim in world.calls if call == "evict"][1:] == ["first"]


@pytest.mark.req("NS-122")
async def test_one_pod_that_waits_ten_minutes_keeps_no_others_in_memory(world: Preemption) -> None:
    tried = world.preempting._tried
    tried["waits"] = world.clock.monotonic() + AFTER_NOTHING
    tried.update({f"former-{number}": world.clock.monotonic() for number in range(MOST_WAITING)})
    await world.passes(2 * KEPT)
    await world.rejects(wanting())
    assert list(world.preempting._tried) == ["waits", "wanting"]


@pytest.mark.req("NS-122")
async def test_nobody_is_evicted_while_another_node_would_do(world: Preemption) -> None:
    world.fitting_nodes = ["other"]
    await world.rejects(wanting())
    assert not world.calls
    assert not world.ledger.held("wanting")


@pytest.mark.req("NS-122")
async def test_zones_are_kept_for_a_minute_after_the_victim_has_ended(world: Preemption) -> None:
    await world.rejects(wanting())
    await world.passes(2 * KEPT)
    assert world.ledger.held("wanting"), "the victim takes its time"
    world.goes("second")
    world.publishes(3, used=({"cpu": 6, "memory": 4}, {}))
    await world.passes(KEPT - 1)
    assert world.ledger.held("wanting")
    await world.passes(2)
    assert not world.ledger.held("wanting")


@pytest.mark.req("NS-122")
async def test_zones_are_kept_no_longer_than_ten_minutes_for_a_victim_that_never_ends(world: Preemption) -> None:
    await world.rejects(wanting())
    await world.passes(LONGEST_KEPT + 1)
    assert not world.ledger.held("wanting")


@pytest.mark.req("NS-122")
async def test_a_pod_that_did_not_get_its_zone_is_nominated_no_longer(world: Preemption) -> None:
    """Or pods of lower priority would wait for ever for what it does not take."""
    await world.rejects(wanting())
    world.goes("second")
    world.publishes(3, used=({"cpu": 6, "memory": 4}, {}))
    await world.passes(KEPT + 2)
    await world.attempts()
    assert world.patches[1:] == [
        [
            {"op": "test", "path": "/metadata/uid", "value": "wanting"},
            {"op": "test", "path": "/status/nominatedNodeName", "value": "worker"},
            {"op": "remove", "path": "/status/nominatedNodeName"},
        ]
    ]


@pytest.mark.req("NS-122")
async def test_a_pod_that_got_its_zone_is_left_alone(world: Preemption) -> None:
    await world.rejects(wanting())
    world.pods["wanting"] = replace(wanting(), node_name="worker")
    await world.passes(LONGEST_KEPT + 1)
    await world.attempts()
    assert len(world.patches) == 1


@pytest.mark.req("NS-122")
@pytest.mark.parametrize("ends", ["deleted", "bound"])
async def test_nobody_is_evicted_for_a_pod_that_found_its_end_during_the_attempt(world: Preemption, ends: str) -> None:
    """The pod is deleted, or bound elsewhere, while disruption budgets are read."""

    async def known() -> list[DisruptionBudget]:
        if ends == "deleted":
            world.preempting.forget("wanting")
        else:
            world.pods["wanting"] = replace(wanting(), node_name="elsewhere")
        return []

    world.known = known  # type: ignore[method-assign]
    await world.rejects(wanting())
    assert not world.calls
    assert not world.ledger.held("wanting")
    assert world.count("none") == 1


@pytest.mark.req("NS-122")
async def test_no_more_pods_are_evicted_once_the_preemptor_is_gone() -> None:
    """Two victims would have to go, and the first one's eviction outlasts the preemptor."""
    world = Preemption(low("first", 5), low("second", 1), used=FULL)
    evict = world.api.evict

    async def evicting(namespace: str, pod: str, *, uid: str | None = None) -> None:
        await evict(namespace, pod, uid=uid)
        world.preempting.forget("wanting")

    world.api.evict = evicting  # type: ignore[method-assign]
    of_both = pod(container("a", cpu=6), container("b", cpu=6), name="wanting", priority=100, scheduler_name=OURS)
    await world.rejects(of_both)
    assert [call for call, _ in world.calls] == ["evict"]
    assert not world.ledger.held("wanting")


@pytest.mark.req("NS-120")
async def test_nodes_that_are_not_known_are_passed_over(world: Preemption) -> None:
    await world.rejects(wanting(), (*(f"other-{each}" for each in range(20)), "worker"))
    assert world.calls[0] == ("evict", "second")
