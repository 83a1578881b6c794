"""Room is made for a pod that no node will do for: what is evicted, kept, nominated and told."""

import asyncio
import tracemalloc
from collections.abc import Callable, Sequence
from typing import Any

import msgspec
import pytest
from fake_api import FakeApi
from manual_clock import ManualClock
from msgspec.structs import replace
from numa_ledgers import admitted, choose, exclusive, started_ledger, version
from numa_nodes import amounts, container, pod

from polyarch.kube.errors import ApiError, Conflict, NotFound, TooManyRequests
from polyarch.kube.events import Regarding
from polyarch.kube.metrics import Metrics
from polyarch.kube.resources import PODS, Resource
from polyarch.numa.extender import preemption
from polyarch.numa.extender.metrics import ExtenderMetrics
from polyarch.numa.extender.preemption import (
    AFTER_NOTHING,
    AFTER_UNCLEAR,
    BETWEEN,
    CONFIRMED,
    KEPT,
    LONGEST_KEPT,
    MOST_WAITING,
    RETRY,
    SETTLES,
    PreemptionController,
)
from polyarch.numa.extender.wire import ExtenderArgs, ExtenderPreemptionArgs
from polyarch.numa.fit.evaluate import evaluate
from polyarch.numa.fit.facts import ExactOptions, FitDecision, NodeFacts, PodFacts
from polyarch.numa.preemption import DisruptionBudget, PreemptionRules
from polyarch.selectors import Selector

OURS = "topo-aware-scheduler"


def stored(pod: PodFacts) -> dict[str, Any]:
    return {"metadata": {"name": pod.name, "namespace": pod.namespace, "uid": pod.uid}, "status": {}}


class EvictingApi(FakeApi):
    """Tells dry runs from evictions."""

    def __init__(self) -> None:
        super().__init__()
        self.calls: list[tuple[str, str]] = []
        self.tried: list[str] = []
        """Pods whose eviction was tried dry."""
        self.refuses: dict[str, Exception] = {}
        self.refuses_dry: dict[str, Exception] = {}

    async def evict(self, namespace: str, pod: str, *, dry_run: bool = False, **options: Any) -> None:
        self.tried.append(pod) if dry_run else self.calls.append(("evict", f"{namespace}/{pod} {options.get('uid')}"))
        if (error := (self.refuses_dry if dry_run else self.refuses).get(pod)) is not None:
            raise error
        await super().evict(namespace, pod, dry_run=dry_run, **options)

    async def patch(self, resource: Resource, name: str, patch: Any, **options: Any) -> Any:
        assert (resource, options.get("subresource")) == (PODS, "status")
        self.calls.append(("nominate", f"{options.get('namespace')}/{name}"))
        if (error := self.refuses.get(name)) is not None:
            raise error
        return await super().patch(resource, name, patch, **options)


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
        self.api = EvictingApi()
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

    arrivals = 0
    newcomers: tuple[PodFacts, ...] = ()
    is_altered = False
    """The node, since the question."""

    def is_altered_since(self, node: str, number: int) -> bool:
        return self.is_altered

    def arrived_since(self, node: str, number: int) -> tuple[PodFacts, ...]:
        return self.newcomers

    async def known(self) -> list[DisruptionBudget]:
        return self.budgets

    def node(self, name: str) -> NodeFacts | None:
        return self.topology if name == self.topology.name else None

    def pod(self, uid: str) -> PodFacts | None:
        return self.pods.get(uid)

    def pods_on(self, node: str) -> list[PodFacts]:
        return [each for each in self.pods.values() if each.node_name == node]

    def has_sums(self, cpus: int) -> None:
        """CPUs of the node as kube-scheduler counts them."""
        sums = amounts({"cpu": cpus, "memory": 64, "pods": 9})
        self.topology = replace(self.topology, allocatable=sums)

    def nominated(self) -> list[PodFacts]:
        return [each for each in self.pods.values() if each.nominated_node and not each.node_name]

    def decide(self, pod: PodFacts, name: str) -> FitDecision:
        return evaluate(pod, self.topology, self.ledger.free(self.topology), ExactOptions())

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

    async def proposes(self, pod: PodFacts, *victims: str) -> None:
        """kube-scheduler finds that sums and other filters would let the pod pass without these."""
        self.api.put(PODS, stored(pod))
        asked = ExtenderPreemptionArgs(pod, {"worker": frozenset(victims)})
        self.preempting.proposed(asked, self.clock.monotonic())
        await self.attempts()

    def goes(self, name: str) -> None:
        """The pod has left; the node's object does not show it yet."""
        self.ledger.pod_gone(name, self.clock.monotonic())
        del self.pods[name]

    def publishes(self, number: int, *, used: Sequence[dict[str, float]]) -> None:
        """A version of the node's object that shows the pods that are there."""
        sums = self.topology.allocatable
        self.topology = replace(version(number, self.pods_on("worker"), used=used), allocatable=sums)
        self.ledger.topology_seen(self.topology, self.clock.monotonic())

    async def passes(self, seconds: float) -> None:
        """Time, second by second as the extender looks at what has ended with it."""
        for _ in range(int(seconds)):
            await self.clock.run(1)
            now = self.clock.monotonic()
            self.ledger.tick(now)
            self.preempting.look(now)

    @property
    def evicted(self) -> list[str]:
        """Their uids."""
        return [what.split()[1] for call, what in self.api.calls if call == "evict"]

    async def attempts(self, steps: int = 20) -> None:
        task = asyncio.create_task(self.preempting.run())
        await asyncio.sleep(0)
        await self.clock.run(SETTLES)
        for _ in range(steps):
            await asyncio.sleep(0)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)

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
    assert world.api.calls == [("nominate", "default/wanting"), ("evict", "default/second second")]
    assert world.patches == [
        [
            {"op": "test", "path": "/metadata/uid", "value": "wanting"},
            {"op": "test", "path": "/metadata/resourceVersion", "value": "103"},
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
    assert [call for call, _ in world.api.calls] == ["nominate", "evict"]


@pytest.mark.req("NS-122")
async def test_an_eviction_that_a_budget_refuses_ends_the_attempt(world: Preemption) -> None:
    """It is refused dry, so that nobody is nominated and nobody goes."""
    world.api.refuses_dry["second"] = TooManyRequests(429, message="would violate the pod's disruption budget")
    await world.rejects(wanting())
    assert (world.api.tried, world.api.calls) == (["second"], [])
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
    assert world.api.calls[1] == ("evict", "default/first first")


@pytest.mark.req("NS-122")
@pytest.mark.parametrize("error", [NotFound, Conflict])
async def test_a_victim_that_has_gone_meanwhile_needs_no_eviction(
    world: Preemption, error: Callable[..., ApiError]
) -> None:
    world.api.refuses["second"] = error(404, message="gone")
    await world.rejects(wanting())
    assert [call for call, _ in world.api.calls] == ["nominate", "evict"]
    assert world.count("evicted") == 1


@pytest.mark.req("NS-122")
async def test_a_failed_eviction_gives_the_cells_back(world: Preemption) -> None:
    world.api.refuses["second"] = ApiError(500, message="two budgets")
    await world.rejects(wanting())
    assert not world.ledger.held("wanting")
    assert world.count("failed") == 1


@pytest.mark.req("NS-122")
@pytest.mark.parametrize("error", [NotFound(404, message="deleted"), ApiError(500, message="slow etcd")])
async def test_nobody_is_evicted_for_a_pod_that_cannot_be_nominated(world: Preemption, error: ApiError) -> None:
    """A pod that no watch has shown as deleted yet, for one. If it is still there, it is tried again."""
    world.api.refuses["wanting"] = error
    await world.rejects(wanting())
    assert world.evicted == []
    assert not world.ledger.held("wanting")
    assert world.count("failed") == 1
    del world.api.refuses["wanting"]
    await world.passes(BETWEEN + 1)
    await world.attempts()
    assert world.evicted == ["second"]


@pytest.mark.req("NS-122")
async def test_nobody_goes_from_a_node_that_kube_scheduler_may_no_longer_take(world: Preemption) -> None:
    """It was cordoned before the attempt was made again."""
    world.api.refuses_dry["second"] = ApiError(500, message="slow etcd")
    await world.rejects(wanting())
    world.api.refuses_dry.clear()
    world.is_altered = True
    await world.passes(BETWEEN + 1)
    await world.attempts()
    assert world.evicted == []
    world.is_altered = False  # asked again
    await world.passes(BETWEEN)
    await world.rejects(wanting())
    assert world.evicted == ["second"]


@pytest.mark.req("NS-122")
async def test_what_kube_scheduler_says_soon_after_an_attempt_is_not_lost(world: Preemption) -> None:
    """Zones of the node would do, sums would not any more: a pod that aligns nothing has taken them. The question about
    victims came within seconds of an attempt, and kube-scheduler asks no second time."""
    world.fitting_nodes = ["worker"]
    world.has_sums(14)
    await world.rejects(wanting())
    assert world.evicted == []
    world.newcomers = (world.pods["second"],)
    await world.proposes(wanting(), "second")
    await world.passes(AFTER_UNCLEAR + 1)
    await world.attempts()
    assert world.evicted == ["second"]


@pytest.mark.req("NS-122")
async def test_an_event_names_no_pod_of_another_namespace(world: Preemption) -> None:
    await world.rejects(wanting(namespace="tenant-b"))
    (victim, _, to_victim, first), (preemptor, _, to_preemptor, second) = world.told.events
    assert (victim, preemptor, to_victim, to_preemptor) == ("second", "wanting", "", "")
    assert "pod wanting of another namespace" in first
    assert "tenant-b" not in first
    assert second.endswith("without second of another namespace")
    assert "default/" not in second


@pytest.mark.req("NS-122")
async def test_the_pod_is_woken_once_its_zone_is_shown_as_free(world: Preemption) -> None:
    """Another that asks for the same, and would be tried in its place, does not fit what is kept."""
    await world.rejects(wanting())
    await world.passes(2)
    world.goes("second")
    await world.passes(2)
    assert world.woken == []
    world.publishes(3, used=[{"cpu": 6, "memory": 4}, {}])
    await world.passes(2)
    assert world.woken == ["worker"]


@pytest.mark.req("NS-121")
async def test_a_static_pod_which_its_kubelet_makes_again_is_never_evicted(world: Preemption) -> None:
    world.pods["second"] = replace(world.pods["second"], is_static=True)
    await world.rejects(wanting())
    assert world.evicted == ["first"]


@pytest.mark.req("NS-120")
async def test_a_pod_that_must_not_preempt_evicts_nobody(world: Preemption) -> None:
    await world.rejects(wanting(preempts=False))
    await world.rejects(wanting(scheduler_name="default-scheduler"))
    assert not world.api.calls


@pytest.mark.req("NS-123")
async def test_pods_on_their_way_out_are_waited_for(world: Preemption) -> None:
    world.pods["first"] = replace(world.pods["first"], terminating=True)
    await world.rejects(wanting())
    assert world.api.calls == [("nominate", "default/wanting")]
    assert world.count("waits") == 1
    (held,) = world.ledger.held("wanting")
    assert held.cells.keys() == {0}, "nobody else may take what comes free"


@pytest.mark.req("NS-122")
async def test_a_node_whose_cells_nobody_trusts_is_no_candidate(world: Preemption) -> None:
    world.ledger.distrust("worker", world.clock.monotonic())
    await world.rejects(wanting())
    assert not world.api.calls
    assert world.count("none") == 1


@pytest.mark.req("NS-120")
async def test_a_pod_that_was_bound_meanwhile_evicts_nobody(world: Preemption) -> None:
    world.pods["wanting"] = replace(wanting(), node_name="elsewhere")
    await world.rejects(wanting())
    assert not world.api.calls


@pytest.mark.req("NS-122")
async def test_nobody_is_evicted_for_a_pod_that_is_gone(world: Preemption) -> None:
    """It was deleted while its turn had not come."""
    world.preempting.rejected(ExtenderArgs(wanting(), ("worker",)), world.clock.monotonic())
    world.preempting.forget("wanting")
    await world.attempts()
    await world.rejects(wanting())
    assert not world.api.calls, "nor when the scheduler asks once more, as its watch is late"


@pytest.mark.req("NS-122")
async def test_nobody_is_evicted_from_a_node_whose_object_still_shows_pods_that_left() -> None:
    """Their zones may be what the pod needs. Once it shows who is there, the scheduler is woken to ask again."""
    world = Preemption(low("first", 5), low("second", 1), used=FULL)
    world.goes("first")
    await world.rejects(wanting())
    await world.passes(AFTER_UNCLEAR)
    assert not world.api.calls
    assert not world.woken
    world.publishes(3, used=({"cpu": 6, "memory": 4}, {"cpu": 6, "memory": 4}))
    await world.passes(1)
    assert world.woken == ["worker"]
    await world.rejects(wanting())
    assert world.api.calls[-1] == ("evict", "default/second second"), "the attempt that saw nothing does not count"


@pytest.mark.req("NS-122")
async def test_an_exporter_that_has_stopped_costs_one_pod_and_not_one_each_minute(world: Preemption) -> None:
    await world.rejects(wanting())
    world.goes("second")
    for _ in range(20):
        await world.passes(BETWEEN + 1)
        await world.rejects(wanting())
    assert [call for call, _ in world.api.calls if call == "evict"] == ["evict"]


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
    assert [victim for call, victim in world.api.calls if call == "evict"] == ["default/second second"]
    await world.passes(20)
    await world.rejects(wanting())
    assert [victim for call, victim in world.api.calls if call == "evict"][1:] == ["default/first first"]


@pytest.mark.req("NS-122")
async def test_one_pod_that_waits_ten_minutes_keeps_no_others_in_memory(world: Preemption) -> None:
    tried = world.preempting._tried
    tried["waits"] = world.clock.monotonic() + AFTER_NOTHING
    tried.update({f"former-{number}": world.clock.monotonic() for number in range(MOST_WAITING)})
    await world.passes(2 * KEPT)
    await world.rejects(wanting())
    assert list(world.preempting._tried) == ["waits", "wanting"]


def proposal(uid: str, nodes: int) -> ExtenderPreemptionArgs:
    """As it is read from a question: strings of its own."""
    victims = {f"node-{node}": frozenset(f"victim-of-node-{node}-{one}" for one in range(10)) for node in range(nodes)}
    return ExtenderPreemptionArgs(replace(wanting(), uid=uid, name=uid), victims)


@pytest.mark.req("NS-122")
async def test_what_is_proposed_for_pods_that_wait_is_kept_small(world: Preemption) -> None:
    tracemalloc.start()
    try:
        for number in range(100):
            world.preempting.proposed(proposal(f"waits-{number}", 200), 0.0)
        kept, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert kept < 12 << 20


@pytest.mark.req("NS-122")
@pytest.mark.parametrize("limit", ["MOST_WAITING", "MOST_BYTES"])
async def test_pods_are_left_to_their_next_question_if_too_many_wait(
    world: Preemption, monkeypatch: pytest.MonkeyPatch, limit: str
) -> None:
    asked = [proposal(uid, 20) for uid in ("first", "second", "third")]
    monkeypatch.setattr(preemption, limit, {"MOST_WAITING": 2, "MOST_BYTES": 2 * 20 * (160 + 80)}[limit])
    for each in (*asked, *asked):
        world.preempting.proposed(each, 0.0)
    assert [each.pod.uid for each in world.preempting._waiting.all()] == ["first", "second"]
    world.preempting.forget("first")
    world.preempting.proposed(asked[2], 0.0)
    assert [each.pod.uid for each in world.preempting._waiting.all()] == ["second", "third"]


@pytest.mark.req("NS-122")
@pytest.mark.parametrize("limit", ["MOST_WAITING", "MOST_BYTES"])
async def test_the_first_attempt_that_is_to_be_made_again_goes_for_one_too_many(
    world: Preemption, monkeypatch: pytest.MonkeyPatch, limit: str
) -> None:
    asked = [proposal(uid, 20) for uid in ("first", "second", "third")]
    monkeypatch.setattr(preemption, limit, {"MOST_WAITING": 2, "MOST_BYTES": 2 * 20 * (160 + 80)}[limit])
    for each in asked:
        world.preempting._tried[each.pod.uid] = 0.0
        world.preempting.proposed(each, 1.0)
    assert [each.pod.uid for each in world.preempting._again.all()] == ["second", "third"]


@pytest.mark.req("NS-122")
async def test_nobody_is_evicted_while_another_node_would_do(world: Preemption) -> None:
    world.fitting_nodes = ["other"]
    await world.rejects(wanting())
    assert not world.api.calls
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
    assert not world.api.calls
    assert not world.ledger.held("wanting")
    assert world.count("none") == 1


@pytest.mark.req("NS-122")
async def test_no_more_pods_are_evicted_once_the_preemptor_is_gone() -> None:
    """Two victims would have to go, and the first one's eviction outlasts the preemptor."""
    world = Preemption(low("first", 5), low("second", 1), used=FULL)
    evict = world.api.evict

    async def evicting(namespace: str, pod: str, *, uid: str | None = None, dry_run: bool = False) -> None:
        await evict(namespace, pod, uid=uid, dry_run=dry_run)
        if not dry_run:
            world.preempting.forget("wanting")

    world.api.evict = evicting  # type: ignore[method-assign]
    of_both = pod(container("a", cpu=6), container("b", cpu=6), name="wanting", priority=100, scheduler_name=OURS)
    await world.rejects(of_both)
    assert [call for call, _ in world.api.calls] == ["nominate", "evict"]
    assert not world.ledger.held("wanting")


@pytest.mark.req("NS-120")
async def test_nodes_that_are_not_known_are_passed_over(world: Preemption) -> None:
    await world.rejects(wanting(), (*(f"other-{each}" for each in range(20)), "worker"))
    assert world.api.calls[-1] == ("evict", "default/second second")


# -- what was begun is finished ----------------------------------------------------------------------------------------


def of_both(**others: Any) -> PodFacts:
    """It needs both zones, and so two victims."""
    asking = container("a", cpu=6), container("b", cpu=6)
    return pod(*asking, **{"name": "wanting", "priority": 100, "scheduler_name": OURS, **others})


@pytest.mark.req("NS-122")
async def test_no_pod_is_evicted_where_the_eviction_of_another_would_be_refused(world: Preemption) -> None:
    world.api.refuses_dry["second"] = TooManyRequests(429, message="would violate the pod's disruption budget")
    await world.rejects(of_both())
    assert world.api.tried == ["first", "second"]
    assert not world.api.calls
    await world.passes(BETWEEN + 1)
    assert world.woken == ["worker"], "nothing that kube-scheduler watches changes with the budget"


@pytest.mark.req("NS-122")
@pytest.mark.parametrize("error", [TooManyRequests(429, message="too busy"), ApiError(500, message="down")])
async def test_an_eviction_that_fails_after_another_was_made_is_made_again(world: Preemption, error: ApiError) -> None:
    world.api.refuses["second"] = error
    await world.rejects(of_both())
    assert world.api.calls[1:] == [("evict", "default/first first"), ("evict", "default/second second")]
    assert world.count("evicted") == 1
    world.goes("first")
    await world.passes(2 * RETRY)
    await world.attempts()
    del world.api.refuses["second"]
    await world.passes(RETRY + 1)
    await world.attempts()
    assert world.api.calls[-1] == ("evict", "default/second second")
    before = len(world.api.calls)
    await world.passes(3 * RETRY)
    await world.attempts()
    assert len(world.api.calls) == before
    assert world.ledger.held("wanting")


@pytest.mark.req("NS-122")
async def test_a_first_eviction_that_fails_takes_the_nomination_back(world: Preemption) -> None:
    world.api.refuses["second"] = ApiError(500, message="down")
    await world.rejects(wanting())
    assert [each[-1]["op"] for each in world.patches] == ["add", "remove"]
    assert not world.ledger.held("wanting")


# -- another replica leads ---------------------------------------------------------------------------------------------


def changes(world: Preemption, **fields: Any) -> None:
    """The waiting pod as the API server has it, which no watch has shown yet."""
    known = world.api.read(PODS, "wanting", "default")
    for path, value in fields.items():
        part, _, name = path.partition("_")
        known.setdefault(part, {})[name] = value
    world.api.put(PODS, known)


OVERTAKEN: dict[str, dict[str, Any]] = {
    "nominated for another node": {"status_nominatedNodeName": "elsewhere"},
    "bound": {"spec_nodeName": "elsewhere"},
    "on its way out": {"metadata_deletionTimestamp": "2026-01-01T00:00:00Z"},
    "made anew": {"metadata_uid": "another"},
}


@pytest.mark.req("NS-122")
@pytest.mark.parametrize("fields", OVERTAKEN.values(), ids=OVERTAKEN.keys())
async def test_nobody_is_evicted_for_a_pod_of_which_another_replica_has_decided(
    world: Preemption, fields: dict[str, Any]
) -> None:
    """It did so while evictions were tried dry, so a process that stood still meanwhile finds it at the nomination."""
    evict = world.api.evict

    async def evicting(namespace: str, pod: str, *, uid: str | None = None, dry_run: bool = False) -> None:
        await evict(namespace, pod, uid=uid, dry_run=dry_run)
        changes(world, **fields)

    world.api.evict = evicting  # type: ignore[method-assign]
    await world.rejects(wanting())
    assert not world.api.calls
    assert not world.ledger.held("wanting")


@pytest.mark.req("NS-122")
@pytest.mark.parametrize("at_last", [True, False])
async def test_a_nomination_overwrites_nothing_that_was_written_after_the_look(
    world: Preemption, at_last: bool
) -> None:
    """kube-scheduler writes that the pod waits, and another replica where it is to go."""
    patch, tries = world.api.patch, 0

    async def patching(resource: Resource, name: str, change: Any, **options: Any) -> Any:
        nonlocal tries
        tries += 1
        if tries == 1:
            changes(world, status_conditions=[])
        elif tries == 2 and not at_last:
            changes(world, status_nominatedNodeName="elsewhere")
        return await patch(resource, name, change, **options)

    world.api.patch = patching  # type: ignore[method-assign]
    await world.rejects(wanting())
    nominated = world.api.read(PODS, "wanting", "default")["status"].get("nominatedNodeName")
    assert (nominated, world.evicted) == (("worker", ["second"]) if at_last else ("elsewhere", []))


@pytest.mark.req("NS-122")
async def test_a_nomination_that_kube_scheduler_knew_of_is_replaced(world: Preemption) -> None:
    evict = world.api.evict

    async def evicting(namespace: str, pod: str, *, uid: str | None = None, dry_run: bool = False) -> None:
        changes(world, status_nominatedNodeName="before")
        await evict(namespace, pod, uid=uid, dry_run=dry_run)

    world.api.evict = evicting  # type: ignore[method-assign]
    await world.rejects(wanting(nominated_node="before"))
    assert world.evicted == ["second"]


@pytest.mark.req("NS-122")
@pytest.mark.parametrize("fields", [{}, *OVERTAKEN.values()], ids=["it still waits", *OVERTAKEN])
async def test_after_standing_still_the_pod_is_looked_at_before_the_next_eviction(fields: dict[str, Any]) -> None:
    """The first of two evictions outlasts a lease."""
    world = Preemption(low("first", 5), low("second", 1), used=FULL)
    evict = world.api.evict

    async def evicting(namespace: str, pod: str, *, uid: str | None = None, dry_run: bool = False) -> None:
        await evict(namespace, pod, uid=uid, dry_run=dry_run)
        if not dry_run and pod == "first":
            world.clock.advance(20.0)
            changes(world, **fields)

    world.api.evict = evicting  # type: ignore[method-assign]
    await world.rejects(of_both())
    assert world.evicted == (["first"] if fields else ["first", "second"])
    assert bool(world.ledger.held("wanting")) is not bool(fields)


@pytest.mark.req("NS-122")
async def test_an_api_server_that_answers_too_late_lets_nobody_be_evicted_and_is_asked_again() -> None:
    world = Preemption(low("first", 5), low("second", 1), used=FULL)
    evict, get = world.api.evict, world.api.get

    async def evicting(namespace: str, pod: str, *, uid: str | None = None, dry_run: bool = False) -> None:
        await evict(namespace, pod, uid=uid, dry_run=dry_run)
        if not dry_run and pod == "first":
            world.clock.advance(CONFIRMED + 1)
            world.api.get = slow  # type: ignore[method-assign]

    async def slow(*arguments: Any, **options: Any) -> Any:
        world.clock.advance(CONFIRMED + 1)
        return await get(*arguments, **options)

    world.api.evict = evicting  # type: ignore[method-assign]
    await world.rejects(of_both())
    assert world.evicted == ["first"]
    world.api.get = get  # type: ignore[method-assign]
    await world.passes(2 * CONFIRMED + RETRY + 3)
    await world.attempts()
    assert world.evicted == ["first", "second"]


@pytest.mark.req("NS-122")
async def test_the_next_process_keeps_a_node_for_the_pod_that_is_nominated_there(world: Preemption) -> None:
    """Its predecessor was killed after the eviction: nothing but the nomination tells of it."""
    world.has_sums(16)
    world.pods["second"] = replace(world.pods["second"], terminating=True)
    world.pods["wanting"] = replace(wanting(), nominated_node="worker")
    await world.passes(1)
    (held,) = world.ledger.held("wanting")
    assert held.cells.keys() == {1}
    world.goes("second")
    world.publishes(3, used=({"cpu": 6, "memory": 4}, {}))
    await world.passes(KEPT - 2)
    assert world.ledger.held("wanting")
    await world.passes(4)
    assert not world.ledger.held("wanting"), "not for ever"
    await world.passes(BETWEEN)
    assert not world.ledger.held("wanting")


@pytest.mark.req("NS-122")
async def test_a_nomination_that_kube_scheduler_has_cleared_is_kept_once_the_zone_is_shown_as_free(
    world: Preemption,
) -> None:
    """The victim has ended, and the node's object does not show it yet."""
    world.has_sums(16)
    world.goes("second")
    world.pods["wanting"] = replace(wanting(), nominated_node="worker")
    await world.passes(1)
    assert not world.ledger.held("wanting")
    world.pods["wanting"] = wanting()
    world.publishes(3, used=({"cpu": 6, "memory": 4}, {}))
    world.preempting.freed("worker")
    assert world.ledger.held("wanting"), "at once: the next question may be about another pod"


@pytest.mark.req("NS-122")
async def test_a_pod_that_is_nominated_where_it_does_not_fit_keeps_nothing(world: Preemption) -> None:
    world.pods["wanting"] = replace(wanting(), nominated_node="worker")
    await world.passes(5)
    assert not world.ledger.held("wanting")
    assert not world.api.calls


@pytest.mark.req("NS-122")
async def test_a_node_is_kept_for_one_pod_at_a_time(world: Preemption) -> None:
    """The kubelet gives the first one that comes the lowest zone, whichever was kept for it."""
    await world.rejects(wanting())
    await world.rejects(replace(wanting(), name="next", uid="next"))
    assert [victim for call, victim in world.api.calls if call == "evict"] == ["default/second second"]
    await world.passes(AFTER_UNCLEAR + 1)
    assert not world.woken
    world.goes("second")
    world.pods["wanting"] = replace(wanting(), node_name="worker")
    await world.passes(1)
    assert "worker" in world.woken


# -- where sums are missing --------------------------------------------------------------------------------------------


@pytest.mark.req("NS-124")
async def test_who_goes_by_sums_is_decided_here_whatever_kube_scheduler_proposes(world: Preemption) -> None:
    """The zone of the first would do as well, and the second is the less important one."""
    world.has_sums(12)
    await world.proposes(wanting(), "first")
    assert world.api.calls[-1] == ("evict", "default/second second")


@pytest.mark.req("NS-124")
async def test_nobody_is_evicted_by_the_sums_of_a_node_for_a_pod_that_no_zone_can_hold(world: Preemption) -> None:
    world.has_sums(12)
    await world.proposes(exclusive("wanting", 10, 4, priority=100, scheduler_name=OURS), "first", "second")
    assert not world.api.calls
    assert world.count("none") == 1


@pytest.mark.req("NS-124")
async def test_one_attempt_has_the_nodes_of_both_questions(world: Preemption) -> None:
    """The filter call comes first, about nodes whose zones alone are missing."""
    world.has_sums(12)
    world.preempting.rejected(ExtenderArgs(wanting(), ("elsewhere",)), world.clock.monotonic())
    await world.proposes(wanting(), "second")
    assert world.api.calls[-1] == ("evict", "default/second second")
    assert world.count("none") == 0


@pytest.mark.req("NS-122")
async def test_no_other_pod_takes_the_sums_of_a_node_that_is_kept(world: Preemption) -> None:
    world.has_sums(12)
    assert world.preempting.crowded(exclusive("other", 1, 1)) == ()
    await world.proposes(wanting(), "second")
    assert world.preempting.crowded(exclusive("other", 3, 1)) == {"worker"}
    assert world.preempting.crowded(exclusive("other", 1, 1)) == set(), "beside it there is room"
    assert world.preempting.crowded(wanting()) == set()


@pytest.mark.req("NS-124")
async def test_pods_that_came_after_the_question_count(world: Preemption) -> None:
    """By the sums that they take; where one is in the way otherwise, kube-scheduler has to be asked again."""
    world.has_sums(20)
    world.newcomers = (replace(exclusive("late", 6, 4), has_host_ports=True),)
    await world.rejects(replace(wanting(), has_host_ports=True))
    assert not world.api.calls
    late = admitted(exclusive("late", 17, 4, priority=200))
    world.pods["late"], world.newcomers = late, (late,)
    await world.rejects(replace(wanting(), uid="next", name="next"))
    assert not world.api.calls, "without one of the others it has a zone, and the sums are too small"


@pytest.mark.req("NS-122")
async def test_an_attempt_that_has_to_wait_for_another_is_made_without_a_question(world: Preemption) -> None:
    """kube-scheduler wakes no pod that failed by sums when the node is no longer kept."""
    world.has_sums(12)
    await world.proposes(wanting(), "second")
    await world.proposes(replace(wanting(), name="next", uid="next"), "first", "second")
    assert [victim for call, victim in world.api.calls if call == "evict"] == ["default/second second"]
    world.preempting.forget("wanting")
    world.preempting.forget("second")
    del world.pods["second"]
    world.ledger.drop("wanting", "again")
    world.ledger.pod_gone("second", world.clock.monotonic())
    world.publishes(3, used=({"cpu": 6, "memory": 4}, {"cpu": 6, "memory": 4}))
    await world.passes(AFTER_UNCLEAR + 1)
    await world.attempts()
    assert [victim for call, victim in world.api.calls if call == "evict"][1:] == ["default/first first"]
