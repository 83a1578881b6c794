"""Which pods of a node go for one of higher priority."""

from typing import Any

import pytest
from msgspec.structs import replace
from numa_nodes import amounts, cell, container, node, pod

from polyarch.numa.fit.demand import whole_request
from polyarch.numa.fit.facts import ContainerFacts, FitDecision, PodFacts
from polyarch.numa.preemption import (
    BudgetSpec,
    BudgetStatus,
    DisruptionBudget,
    NodeUsage,
    PodDisruptionBudget,
    PodUsage,
    PreemptionCandidate,
    PreemptionRules,
    TerminatingVictims,
    candidate_on_node,
    choose_candidate,
    disruption_budget,
    violating,
)
from polyarch.objects import ObjectMeta
from polyarch.selectors import LabelSelector, Requirement, Selector

OURS = "topo-aware-scheduler"
RULES = PreemptionRules(scheduler_name=OURS)


def running(name: str, on: int, cpus: int, *, priority: int = 0, **others: Any) -> PodUsage:
    """A pod with whole CPUs on one cell; ``started`` in minutes of an hour."""
    minute = others.pop("started", 0)
    is_known = others.pop("known", True)
    is_settled = others.pop("settled", True)
    facts = pod(
        container("app", cpu=cpus, memory=1),
        name=name,
        priority=priority,
        node_name="worker",
        started_at=f"2026-01-01T00:{minute:02}:00Z",
        **{"scheduler_name": OURS, **others},
    )
    cells = {on: amounts({"cpu": cpus, "memory": 1})} if is_known else None
    return PodUsage(pod=facts, cells=cells, is_settled=is_settled)


def occupancy(*occupants: PodUsage, cells: int = 2, cpus: int = 8, name: str = "worker", **reserved: Any) -> NodeUsage:
    """Zones of 8 CPUs that show the settled pods."""
    used: dict[int, float] = dict.fromkeys(range(cells), 0)
    taken: dict[int, dict[str, int]] = {}
    for each in occupants:
        if each.cells == {}:
            continue
        on = next(iter(each.cells)) if each.cells else 0
        wanted = each.pod.containers[0].requests["cpu"] / 1000
        if each.is_settled:
            used[on] += wanted
        else:
            taken.setdefault(on, {})["cpu"] = taken.get(on, {}).get("cpu", 0) + int(wanted * 1000)
    zones = [cell(each, cpu=cpus, memory=64, used={"cpu": used[each]}) for each in range(cells)]
    return NodeUsage(node=node(*zones, name=name), occupants=occupants, reserved=taken | reserved.get("reserved", {}))


def wanting(cpus: int, *, priority: int = 100, **others: Any) -> PodFacts:
    return pod(container("app", cpu=cpus, memory=1), name="wanting", priority=priority, scheduler_name=OURS, **others)


def names(found: PreemptionCandidate | TerminatingVictims | None) -> list[str]:
    assert isinstance(found, PreemptionCandidate), found
    return [each.name for each in found.victims]


@pytest.mark.req("NS-120")
def test_a_pod_that_fails_by_numa_alone_fits_where_a_lower_one_leaves() -> None:
    there = occupancy(running("low", 0, 6), running("lower", 1, 6))
    found = candidate_on_node(wanting(4), there, RULES)
    assert isinstance(found, PreemptionCandidate)
    assert len(found.victims) == 1
    assert found.decision.fits
    assert found.decision.taken


@pytest.mark.req("NS-121")
def test_none_of_the_victims_can_be_spared() -> None:
    there = occupancy(*(running(f"small-{each}", 0, 2) for each in range(4)), running("big", 1, 8, priority=50))
    assert len(names(candidate_on_node(wanting(4), there, RULES))) == 2


@pytest.mark.req("NS-121")
def test_sparing_goes_by_priority_then_by_how_long_they_run() -> None:
    there = occupancy(
        running("old", 0, 4, started=1), running("young", 0, 4, started=30), running("other", 1, 8, priority=9)
    )
    assert names(candidate_on_node(wanting(4), there, RULES)) == ["young"]
    there = occupancy(running("high", 0, 4, priority=5), running("low", 0, 4), running("other", 1, 8, priority=9))
    assert names(candidate_on_node(wanting(4), there, RULES)) == ["low"]


@pytest.mark.req("NS-121")
def test_the_cell_with_the_lower_priorities_is_emptied() -> None:
    there = occupancy(running("a", 0, 4, priority=10), running("b", 0, 4), running("c", 1, 8, priority=5))
    assert names(candidate_on_node(wanting(8), there, RULES)) == ["c"]


@pytest.mark.req("NS-123")
def test_equal_and_higher_priorities_are_never_victims() -> None:
    there = occupancy(running("equal", 0, 8, priority=100), running("higher", 1, 8, priority=101))
    assert candidate_on_node(wanting(4), there, RULES) is None


@pytest.mark.req("NS-120")
def test_pods_of_other_schedulers_are_left_alone() -> None:
    there = occupancy(running("a", 0, 8, scheduler_name="default-scheduler"), running("b", 1, 8, priority=200))
    assert candidate_on_node(wanting(4), there, RULES) is None


@pytest.mark.req("NS-122")
def test_a_node_that_needs_a_pod_whose_cells_nobody_knows_is_no_candidate() -> None:
    assert (
        candidate_on_node(
            wanting(8), occupancy(running("hidden", 0, 8, known=False), running("b", 1, 8, priority=200)), RULES
        )
        is None
    )
    there = occupancy(running("hidden", 0, 8, known=False), running("known", 1, 8, priority=50))
    assert names(candidate_on_node(wanting(8), there, RULES)) == ["known"]


@pytest.mark.req("NS-123")
def test_pods_on_their_way_out_are_waited_for() -> None:
    there = occupancy(running("leaving", 0, 8, terminating=True), running("low", 1, 8))
    found = candidate_on_node(wanting(8), there, RULES)
    assert isinstance(found, TerminatingVictims)
    assert [each.name for each in found.leaving] == ["leaving"]


@pytest.mark.req("NS-123")
def test_waiting_on_one_node_wins_over_evicting_on_another() -> None:
    waits = candidate_on_node(wanting(8), occupancy(running("leaving", 0, 8, terminating=True), name="b"), RULES)
    candidate = candidate_on_node(wanting(8), occupancy(running("x", 0, 8), running("y", 1, 8), name="a"), RULES)
    chosen = choose_candidate([candidate, waits, None])
    assert (chosen.reason, chosen.candidate) == ("WaitsForVictims", None)
    assert chosen.message == "it fits node b once default/leaving has ended"


@pytest.mark.req("NS-120")
def test_reservations_of_victims_leave_with_them_and_those_of_others_stay() -> None:
    unsettled = running("bound", 0, 6, settled=False)
    assert names(candidate_on_node(wanting(8), occupancy(unsettled, running("b", 1, 8, priority=200)), RULES)) == [
        "bound"
    ]
    held = {1: amounts({"cpu": 4})}
    there = occupancy(running("a", 0, 8, priority=200), running("b", 1, 6), reserved=held)
    assert candidate_on_node(wanting(8), there, RULES) is None


@pytest.mark.req("NS-121")
def test_a_budget_that_is_used_up_keeps_its_pods() -> None:
    spent = DisruptionBudget(
        namespace="default", name="db", selector=Selector((Requirement("app", "In", ("db",)),)), allowed=0
    )
    there = occupancy(running("db", 0, 8, labels={"app": "db"}), running("web", 1, 8, priority=50))
    assert names(candidate_on_node(wanting(8), there, RULES, [spent])) == ["web"]
    alone = occupancy(running("db", 0, 8, labels={"app": "db"}), running("b", 1, 8, priority=200))
    assert candidate_on_node(wanting(8), alone, RULES, [spent]) is None


@pytest.mark.req("NS-121")
def test_one_eviction_that_is_allowed_is_not_two() -> None:
    one = DisruptionBudget(namespace="default", name="web", selector=Selector(), allowed=1)
    pods = [running(name, 0, 4).pod for name in ("a", "b")]
    assert violating(pods, [one]) == {"b"}
    assert violating(pods, [one, one]) == {"a", "b"}, "the eviction API refuses pods under two budgets"
    again = DisruptionBudget(
        namespace="default", name="web", selector=Selector(), allowed=0, disrupted=frozenset({"a"})
    )
    assert violating(pods, [again]) == {"b"}


@pytest.mark.req("NS-121")
def test_budgets_are_read_as_the_eviction_api_reads_them() -> None:
    def read(selector: LabelSelector | None) -> DisruptionBudget | None:
        return disruption_budget(
            PodDisruptionBudget(
                metadata=ObjectMeta(name="b", namespace="default"),
                spec=BudgetSpec(selector=selector),
                status=BudgetStatus(disruptions_allowed=2, disrupted_pods={"gone": ""}),
            )
        )

    assert read(None) is None
    everything = read(LabelSelector())
    assert everything is not None
    assert everything.covers(running("x", 0, 1).pod)
    assert (everything.allowed, everything.disrupted) == (2, {"gone"})
    unreadable = read(LabelSelector(match_labels={"not a label": "x"}))
    assert unreadable is not None
    assert unreadable.covers(running("x", 0, 1).pod)


def candidate(name: str, *victims: PodFacts) -> PreemptionCandidate:
    return PreemptionCandidate(decision=FitDecision(node=name, fits=True), victims=victims)


def low(name: str, priority: int, started: int = 0) -> PodFacts:
    return running(name, 0, 1, priority=priority, started=started).pod


@pytest.mark.req("NS-121")
def test_the_order_of_candidates() -> None:
    """Each is better than the next by the next criterion of kube-scheduler; one pod more always costs."""
    ranked = [
        candidate("m", low("a", 1), low("b", 1), low("c", 1)),
        candidate("n", low("a", 2, started=9)),
        candidate("o", low("a", 2, started=8)),
        candidate("p", low("a", 2, started=8)),
        candidate("b", low("a", 2), low("b", -5)),
        candidate("c", low("a", 2), low("b", -4)),
        candidate("q", low("a", 3)),
    ]
    turned = ranked[::-1]
    assert sorted(turned, key=lambda each: each.rank) == ranked
    assert choose_candidate(turned).candidate is ranked[0]


@pytest.mark.req("NS-121")
def test_many_victims_are_named_in_one_line() -> None:
    chosen = choose_candidate([candidate("n", *(low(f"p{each}", 0) for each in range(7)))])
    assert (
        chosen.message == "it fits node n without default/p0, default/p1, default/p2, default/p3, default/p4 and 2 more"
    )


@pytest.mark.req("NS-122")
def test_nothing_helps_where_the_node_is_the_reason() -> None:
    there = occupancy(running("low", 0, 8), running("b", 1, 8))
    assert candidate_on_node(wanting(9), there, RULES) is None
    assert choose_candidate([None]).reason == "NoVictims"
    smt = NodeUsage(
        node=node(cell(0, cpu=8, memory=8), cpu_options={"full-pcpus-only": "true"}, threads_per_core=2),
        occupants=(running("low", 0, 8),),
    )
    assert candidate_on_node(wanting(3), smt, RULES) is None


@pytest.mark.req("NS-120")
def test_blocks_of_memory_over_several_cells_come_apart_when_their_pod_leaves() -> None:
    """Two cells are one group while a pod has memory of both; without it each is a cell again."""
    spanning = pod(container("app", cpu=12, memory=48), name="spanning", scheduler_name=OURS)
    zones = [
        cell(0, cpu=8, memory=32, used={"cpu": 8, "memory": 32}, group=(0, 1)),
        cell(1, cpu=8, memory=32, used={"cpu": 4, "memory": 16}, group=(0, 1)),
    ]
    cells = {0: amounts({"cpu": 8, "memory": 32}), 1: amounts({"cpu": 4, "memory": 16})}
    there = NodeUsage(
        node=node(*zones, policy="restricted"), occupants=(PodUsage(pod=spanning, cells=cells, is_settled=True),)
    )
    assert names(candidate_on_node(wanting(4), there, RULES)) == ["spanning"]


# -- where the sums of the node are too small, too ---------------------------------------------------------------------


def full(*there: PodUsage, cpus: int = 16, **others: Any) -> NodeUsage:
    """Of so many CPUs by its sums, on two zones of 8."""
    usage = occupancy(*there)
    facts = replace(usage.node, allocatable=amounts({"cpu": cpus, "memory": 64, "pods": 110}))
    counted = tuple(replace(each, request=whole_request(each.pod)) for each in there)
    return replace(usage, node=facts, occupants=counted, **others)


def burstable(name: str, cpus: float, **others: Any) -> PodUsage:
    """It holds nothing of a zone."""
    asking = ContainerFacts("app", "app", amounts({"cpu": cpus}))
    about = {"scheduler_name": OURS, **others}
    facts = pod(asking, name=name, qos="Burstable", node_name="worker", **about)
    return PodUsage(pod=facts, cells={}, is_settled=True)


def going(usage: NodeUsage, *proposed: str, **wanted: Any) -> list[str]:
    return sorted(names(candidate_on_node(wanting(8, **wanted), usage, RULES, proposed=proposed)))


@pytest.mark.req("NS-121")
def test_pods_go_that_do_for_the_zone_and_the_sums_and_none_that_only_the_scheduler_proposed() -> None:
    """kube-scheduler proposes the least important pods, of which one zone has one and the other the second."""
    usage = full(running("a", 0, 4), running("b", 1, 4), running("c", 0, 4, priority=1), running("d", 1, 4, priority=1))
    assert going(usage, "a", "b") in (["a", "c"], ["b", "d"])


@pytest.mark.req("NS-121")
def test_a_pod_without_zones_goes_only_as_far_as_sums_need_it() -> None:
    usage = full(running("zone", 0, 8), running("other", 1, 8, priority=200), burstable("small", 1), cpus=17)
    assert going(usage, "zone") == ["zone"]
    usage = full(running("zone", 0, 7), running("other", 1, 8, priority=200), burstable("small", 1), cpus=16)
    assert going(usage, "small", "zone") == ["small", "zone"]


@pytest.mark.req("NS-121")
def test_nobody_goes_by_the_sums_for_a_pod_that_no_zone_can_hold() -> None:
    usage = full(*(running(name, number // 2, 4) for number, name in enumerate("abcd")))
    assert candidate_on_node(wanting(10), usage, RULES, proposed=["a", "b", "c"]) is None


@pytest.mark.req("NS-121")
@pytest.mark.parametrize(
    ("of_victim", "of_pod"),
    [
        ({"has_host_ports": True}, {"has_host_ports": True}),
        ({"has_claims": True}, {"has_claims": True}),
        ({"repels": (Selector(),)}, {}),
        ({"labels": {"app": "db"}}, {"repels": (Selector((Requirement("app", "In", ("db",)),)),)}),
    ],
    ids=["host port", "claims", "its anti-affinity", "anti-affinity of the pod"],
)
def test_a_proposed_pod_that_is_in_the_way_otherwise_always_goes(of_victim: Any, of_pod: Any) -> None:
    others = running("cheap", 0, 8), running("b", 1, 4, priority=200), running("c", 1, 4, priority=200)
    usage = full(*others, burstable("in-the-way", 0.5, priority=9, **of_victim), cpus=17)
    assert going(usage, "cheap", "in-the-way", **of_pod) == ["cheap", "in-the-way"]
    theirs = full(*others, burstable("in-the-way", 0.5, scheduler_name="other", **of_victim), cpus=17)
    assert candidate_on_node(wanting(8, **of_pod), theirs, RULES, proposed=["cheap", "in-the-way"]) is None


@pytest.mark.req("NS-121")
def test_a_proposed_pod_that_the_sums_do_not_need_is_in_the_way_of_something_that_is_not_known() -> None:
    usage = full(running("a", 0, 8), running("b", 1, 8, priority=200), burstable("volume", 1), cpus=18)
    assert going(usage, "a", "volume") == ["a", "volume"]


@pytest.mark.req("NS-121")
def test_the_scheduler_may_know_of_pods_that_are_not_known_here() -> None:
    usage = full(running("a", 0, 8), running("b", 1, 8))
    assert candidate_on_node(wanting(8), usage, RULES, proposed=["a", "new"]) is None


@pytest.mark.req("NS-121")
def test_pods_for_which_the_node_is_kept_count_in_the_sums() -> None:
    coming = pod(container("app", cpu=8, memory=1), name="coming", priority=100, scheduler_name=OURS)
    usage = full(running("a", 0, 8), expected=(coming,))
    assert going(usage, "a") == ["a"]
    assert candidate_on_node(wanting(8), full(running("a", 0, 8)), RULES, proposed=[]) is None, "it fits as it is"


@pytest.mark.req("NS-121")
def test_where_zones_do_a_pod_whose_zone_nobody_knows_may_go_for_the_sums() -> None:
    usage = full(running("unknown", 0, 8, known=False), cpus=12)
    assert going(usage, "unknown") == ["unknown"]
    crowded = full(running("unknown", 0, 4, known=False), running("b", 1, 4, priority=200), cpus=12)
    assert candidate_on_node(wanting(8), crowded, RULES, proposed=["unknown"]) is None


@pytest.mark.req("NS-121")
def test_a_pod_that_the_important_one_has_to_be_beside_is_no_victim() -> None:
    beside = Selector((Requirement("app", "In", ("db",)),))
    there = occupancy(running("db", 0, 8, labels={"app": "db"}), running("web", 1, 8, priority=9))
    assert names(candidate_on_node(wanting(8, attracts=(beside,)), there, RULES)) == ["web"]


@pytest.mark.req("NS-122")
def test_the_node_of_the_nomination_comes_first() -> None:
    dear, cheap = candidate("dear", low("a", 9)), candidate("cheap", low("b", 0))
    assert choose_candidate([dear, cheap]).candidate is cheap
    assert choose_candidate([dear, cheap], nominated="dear").candidate is dear
