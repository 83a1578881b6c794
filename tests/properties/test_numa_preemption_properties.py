"""Laws of preemption that hold for every node: judged on a node that is built anew without the victims."""

from collections.abc import Collection, Mapping
from typing import Any, NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from polyarch.numa.fit.evaluate import evaluate
from polyarch.numa.fit.facts import ContainerFacts, ExactOptions, NodeFacts, NodeSettings, PodFacts, ZoneFacts
from polyarch.numa.preemption import (
    DisruptionBudget,
    NodeUsage,
    PodUsage,
    PreemptionCandidate,
    PreemptionRules,
    TerminatingVictims,
    candidate_on_node,
)
from polyarch.selectors import Requirement, Selector

MANY = settings(max_examples=120, deadline=None)
OURS = "topo-aware-scheduler"
NIC = "example.com/nic"
HAS = {"cpu": 8000, "memory": 8000, NIC: 2000}
PREEMPTOR = 100


class Resident(NamedTuple):
    """A pod that holds something of one cell; what of it is known, and how."""

    pod: PodFacts
    cell: int
    is_known: bool
    is_settled: bool

    @property
    def holds(self) -> Mapping[str, int]:
        return self.pod.containers[0].requests


def asking(**requests: int) -> tuple[ContainerFacts, ...]:
    wanted = {NIC if name == "nic" else name: amount * 1000 for name, amount in requests.items() if amount}
    return (ContainerFacts("app", "app", wanted, wanted),)


requests = st.fixed_dictionaries({"cpu": st.integers(1, 6), "memory": st.integers(1, 6), "nic": st.integers(0, 1)})


@st.composite
def residents(draw: st.DrawFn, cells: int) -> list[Resident]:
    found: list[Resident] = []
    left = {cell: dict(HAS) for cell in range(cells)}
    for index in range(draw(st.integers(0, 7))):
        containers = asking(**draw(requests))
        cell = draw(st.integers(0, cells - 1))
        wanted = containers[0].requests
        if any(left[cell][name] < amount for name, amount in wanted.items()):
            continue
        for name, amount in wanted.items():
            left[cell][name] -= amount
        pod = PodFacts(
            namespace="default",
            name=f"pod-{index}",
            uid=f"uid-{index}",
            qos="Guaranteed",
            containers=containers,
            scheduler_name=draw(st.sampled_from([OURS, OURS, OURS, "default-scheduler"])),
            priority=draw(st.sampled_from([0, 1, 2, PREEMPTOR, PREEMPTOR + 1])),
            terminating=draw(st.integers(0, 9)) == 0,
            started_at=f"2026-01-01T00:0{draw(st.integers(0, 9))}:00Z",
            labels={"app": draw(st.sampled_from("ab"))},
        )
        found.append(Resident(pod, cell, draw(st.integers(0, 5)) > 0, draw(st.booleans())))
    return found


def rebuilt(cells: int, policy: Any, scope: Any, there: Collection[Resident]) -> NodeFacts:
    """A node that these pods alone are on, as its zones will show it."""
    built = []
    for cell in range(cells):
        available = dict(HAS)
        for each in there:
            if each.cell == cell:
                available = {name: amount - each.holds.get(name, 0) for name, amount in available.items()}
        built.append(ZoneFacts(id=cell, capacity=HAS, allocatable=HAS, available=available))
    return NodeFacts(name="worker", cells=tuple(built), settings=NodeSettings(policy=policy, scope=scope))


def as_known(cells: int, policy: Any, scope: Any, there: Collection[Resident]) -> NodeUsage:
    """The same node while some pods are known by a reservation alone."""
    reserved: dict[int, dict[str, int]] = {}
    for each in there:
        if not each.is_settled:
            on_cell = reserved.setdefault(each.cell, {})
            for name, amount in each.holds.items():
                on_cell[name] = on_cell.get(name, 0) + amount
    return NodeUsage(
        node=rebuilt(cells, policy, scope, [each for each in there if each.is_settled]),
        reserved=reserved,
        occupants=tuple(
            PodUsage(pod=each.pod, cells={each.cell: each.holds} if each.is_known else None, is_settled=each.is_settled)
            for each in there
        ),
    )


class Case(NamedTuple):
    """A pod that wants to be on a node that has pods."""

    cells: int
    policy: str
    scope: str
    there: list[Resident]
    wanting: PodFacts
    budgets: list[DisruptionBudget]

    def fits_without(self, uids: Collection[str]) -> bool:
        rest = [each for each in self.there if each.pod.uid not in uids]
        return evaluate(self.wanting, rebuilt(self.cells, self.policy, self.scope, rest), {}, ExactOptions()).fits


@st.composite
def cases(draw: st.DrawFn) -> Case:
    cells = draw(st.integers(1, 3))
    containers = asking(**draw(requests))
    if draw(st.booleans()):
        containers += tuple(ContainerFacts("more", "app", each.requests, each.limits) for each in containers)
    return Case(
        cells,
        draw(st.sampled_from(["single-numa-node", "restricted"])),
        draw(st.sampled_from(["container", "pod"])),
        draw(residents(cells)),
        PodFacts(
            namespace="default",
            name="wanting",
            uid="wanting",
            qos="Guaranteed",
            containers=containers,
            priority=PREEMPTOR,
            scheduler_name=OURS,
        ),
        [
            DisruptionBudget(
                namespace="default",
                name=app,
                selector=Selector((Requirement("app", "In", (app,)),)),
                allowed=draw(st.integers(0, 3)),
            )
            for app in draw(st.sampled_from(["", "a", "ab"]))
        ],
    )


@pytest.mark.req("NS-121")
@MANY
@given(cases())
def test_victims_are_minimal_lower_ours_and_known_and_the_pod_then_fits(case: Case) -> None:
    occupancy = as_known(case.cells, case.policy, case.scope, case.there)
    found = candidate_on_node(case.wanting, occupancy, PreemptionRules(scheduler_name=OURS), case.budgets)
    known = {each.pod.uid: each for each in case.there}
    leaving = {uid for uid, each in known.items() if each.pod.terminating and each.is_known}
    if isinstance(found, TerminatingVictims):
        assert {each.uid for each in found.leaving} == leaving
        assert leaving
        assert case.fits_without(leaving)
        return
    if found is None:
        return
    victims = {each.uid for each in found.victims}
    assert victims
    assert not case.fits_without(leaving), "somebody would go although nobody has to"
    assert case.fits_without(victims | leaving)
    for uid in victims:
        assert not case.fits_without((victims - {uid}) | leaving), f"{uid} can be spared"
        assert known[uid].is_known
        assert known[uid].pod.priority < PREEMPTOR
        assert known[uid].pod.scheduler_name == OURS
        assert not known[uid].pod.terminating
    for budget in case.budgets:
        assert sum(budget.covers(each) for each in found.victims) <= budget.allowed


@pytest.mark.req("NS-120")
@MANY
@given(cases())
def test_one_lower_pod_that_is_enough_is_found(case: Case) -> None:
    """Completeness where it can be judged by trying: whenever one pod alone would do, there is a candidate."""
    occupancy = as_known(case.cells, case.policy, case.scope, case.there)
    leaving = {each.pod.uid for each in case.there if each.pod.terminating and each.is_known}
    enough = [
        each
        for each in case.there
        if each.is_known
        and not each.pod.terminating
        and each.pod.priority < PREEMPTOR
        and each.pod.scheduler_name == OURS
        and case.fits_without({each.pod.uid} | leaving)
    ]
    found = candidate_on_node(case.wanting, occupancy, PreemptionRules(scheduler_name=OURS), [])
    if case.fits_without(leaving):
        assert isinstance(found, TerminatingVictims) if leaving else found is None
    elif enough:
        assert isinstance(found, PreemptionCandidate)


@pytest.mark.req("NS-121")
@MANY
@given(cases())
def test_the_order_of_pods_changes_nothing(case: Case) -> None:
    occupancy = as_known(case.cells, case.policy, case.scope, case.there)
    turned = as_known(case.cells, case.policy, case.scope, case.there[::-1])
    assert candidate_on_node(
        case.wanting, occupancy, PreemptionRules(scheduler_name=OURS), case.budgets
    ) == candidate_on_node(case.wanting, turned, PreemptionRules(scheduler_name=OURS), case.budgets)
