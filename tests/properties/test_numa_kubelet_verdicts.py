"""Mode exact against the kubelet model: pods come and go on random nodes, and each verdict is made from what the node's
exporter would publish. The model is compared with the kubelet's own managers in ``test_kubelet_managers``."""

import random
from collections import Counter
from collections.abc import Collection, Mapping

import msgspec
import pytest
import scheduling_chances as chances

from polyarch.numa.fit.evaluate import evaluate
from polyarch.numa.fit.facts import POD, ExactOptions, FitDecision, NodeFacts
from polyarch.sandbox.kubelet_model import admission, cpu_manager, device_manager
from polyarch.sandbox.kubelet_model.admission import ManagerStates
from polyarch.sandbox.kubelet_model.machine import Node, TopologyPolicy
from polyarch.sandbox.kubelet_model.requests import Pod, PodRejected

pytestmark = pytest.mark.req("NS-164")

SEQUENCES = 150
UNSEEN = Mapping[int, Mapping[str, int]]


class Judged(msgspec.Struct, frozen=True):
    """One pod: what was decided, what the kubelet did."""

    place: str
    """For whoever has to look at it again."""
    decision: FitDecision
    refused: PodRejected | None
    held: Mapping[str, tuple[int, ...]]
    """The cells that each container has something of, if the pod was admitted."""
    is_torn: bool
    """Cells do not agree on the groups that they belong to. The kubelet gets there under best-effort, where a block may
    lie on one cell of a group, and what it does then follows from numbers that it publishes nowhere."""


def play(chance: random.Random, policy: TopologyPolicy, seed: int) -> list[Judged]:
    """Pods are admitted, started, and end. Devices that ended init containers keep are remembered, as the ledger does:
    no kubelet lists them."""
    node = chances.node(chance, policy=policy)
    held = admission.at_first(node)
    pods: list[Pod] = []
    unseen: dict[str, UNSEEN] = {}
    judged: list[Judged] = []
    for number in range(chance.randint(4, 14)):
        choice = chance.random()
        if pods and choice < 0.25:
            pods.remove(chance.choice(pods))
            continue
        if pods and choice < 0.4:
            some = chance.choice(pods)
            for each in some.all:
                held = admission.started(held, some, each.name)
        held = reconciled(held, {each.uid for each in pods})
        pod = chances.pod(chance, number, node)
        if not chances.has_room(node, pod, pods):
            continue
        facts = chances.published(node, held, pods)
        decision = evaluate(
            chances.facts_of(pod), facts, without(facts, [unseen[each.uid] for each in pods]), ExactOptions()
        )
        before = admission.forget(held, {each.uid for each in pods})
        held, refused = admission.admit(node, held, pod, pods)
        place = f"{policy} {node.configuration.topology_scope} seed {seed} {pod.name}"
        judged.append(Judged(place, decision, refused, cells_of(node, held, pod), is_torn(before)))
        if refused is None:
            pods.append(pod)
            unseen[pod.uid] = decision.unseen
        held = admission.forget(held, {each.uid for each in pods})
    return judged


def reconciled(held: ManagerStates, there: Collection[str]) -> ManagerStates:
    """As time passes: CPUs and devices of pods that are over are freed; their memory when the next pod comes."""
    return msgspec.structs.replace(
        held, cpus=cpu_manager.forget(held.cpus, there), devices=device_manager.forget(held.devices, there)
    )


def without(facts: NodeFacts, unseen: Collection[UNSEEN]) -> dict[int, dict[str, int]]:
    free = {each.id: dict(each.available) for each in facts.cells}
    for by_cell in unseen:
        for cell, amounts in by_cell.items():
            for name, amount in amounts.items():
                free[cell][name] -= amount
    return free


def cells_of(node: Node, held: ManagerStates, pod: Pod) -> dict[str, tuple[int, ...]]:
    by_container: dict[str, tuple[int, ...]] = {}
    of_device = {(each.resource, each.id): each.cells for each in node.machine.devices}
    for each in pod.all:
        found = {node.machine.by_id[cpu].cell for cpu in held.cpus.held.get(pod.uid, {}).get(each.name, ())}
        found.update(cell for block in held.memory.held.get(pod.uid, {}).get(each.name, ()) for cell in block.cells)
        for resource, ids in held.devices.held.get(pod.uid, {}).get(each.name, {}).items():
            found.update(cell for one in ids for cell in of_device[resource, one])
        if found:
            by_container[each.name] = tuple(sorted(found))
    return by_container


def is_torn(held: ManagerStates) -> bool:
    cells = held.memory.cells
    return any(cells[other].group != each.group for each in cells.values() for other in each.group)


def same_cells(each: Judged) -> bool:
    if POD in each.decision.cells:
        return set(each.decision.cells[POD]) == {cell for cells in each.held.values() for cell in cells}
    return each.decision.cells == each.held


def played(policy: TopologyPolicy) -> list[Judged]:
    return [each for seed in range(SEQUENCES) for each in play(random.Random(seed), policy, seed)]


@pytest.mark.req("NS-050", "NS-051", "NS-052", "NS-053", "NS-054", "NS-060", "NS-061", "NS-062", "NS-063")
@pytest.mark.parametrize("policy", ["single-numa-node", "restricted"])
def test_a_pod_is_sent_where_the_kubelet_admits_it_and_nowhere_else(policy: TopologyPolicy) -> None:
    """No verdict differs, and no cell."""
    judged = played(policy)
    assert [each.place for each in judged if each.decision.fits and each.refused] == []
    assert [each.place for each in judged if not each.decision.fits and not each.refused] == []
    assert [each.place for each in judged if each.decision.cells and not same_cells(each)] == []
    reasons = Counter(each.decision.kind for each in judged)
    assert reasons.keys() >= {"", "short", "no-common-cell", "smt"}
    assert reasons[""] > len(judged) / 3


@pytest.mark.req("NS-064", "NS-111")
@pytest.mark.parametrize("policy", ["best-effort", "none"])
def test_nodes_that_do_not_insist_on_alignment_still_refuse(policy: TopologyPolicy) -> None:
    """The CPU and the memory manager do, and that is seen before."""
    judged = [each for each in played(policy) if not each.is_torn]
    assert [each.place for each in judged if each.decision.fits and each.refused] == []
    assert [each.place for each in judged if not each.decision.fits and not each.refused] == []
    assert [each.place for each in judged if each.decision.cells and not same_cells(each)] == []
    assert any(each.refused for each in judged)
