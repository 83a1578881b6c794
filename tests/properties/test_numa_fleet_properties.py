"""The fleet says of every node what :func:`evaluate` says."""

from random import Random

import pytest
from numa_clusters import a_node, a_pod, some_options

from polyarch.numa.fit.evaluate import evaluate
from polyarch.numa.fit.facts import ExactOptions, NodeFacts, PodFacts
from polyarch.numa.fit.node_index import NumaNodeIndex

NODES = 20
PODS = 10
ROUNDS = 60
"""10 000 pairs of pod and node come from about a minute's part of CPU time."""
Reserved = dict[str, list[dict[int, dict[str, int]]]]


def changed(random: Random, fleets: list[NumaNodeIndex], reserved: Reserved) -> None:
    """One event: a topology, a node that goes, a reservation that comes or goes."""
    name = f"node-{random.randrange(NODES)}"
    event = random.random()
    if event < 0.3:
        node = a_node(random, name)
        for fleet in fleets:
            fleet.put(node)
    elif event < 0.4:
        for fleet in fleets:
            fleet.remove(name)
    elif event < 0.7 or not reserved.get(name):
        amounts = {cell: {"cpu": random.randint(1, 4) * 1000, "memory": 1000} for cell in random.sample(range(5), 2)}
        reserved.setdefault(name, []).append(amounts)
        for fleet in fleets:
            fleet.reserve(name, amounts)
    else:
        amounts = reserved[name].pop(random.randrange(len(reserved[name])))
        for fleet in fleets:
            fleet.release(name, amounts)


def expected_free(node: NodeFacts, reserved: Reserved) -> dict[int, dict[str, int]]:
    free = {}
    for cell in node.cells:
        free[cell.id] = dict(cell.available)
        for each in reserved.get(node.name, ()):
            for resource, amount in each.get(cell.id, {}).items():
                if resource in free[cell.id]:
                    free[cell.id][resource] -= amount
    return {cell: {name: max(0, amount) for name, amount in amounts.items()} for cell, amounts in free.items()}


def held_to(fleet: NumaNodeIndex, pod: PodFacts, names: list[str], reserved: Reserved, options: ExactOptions) -> int:
    """Compares; how many nodes."""
    fits = fleet.fit(pod, names)
    for name, score in zip(fits.names, fits.all_scores, strict=True):
        node = fleet.node(name) or NodeFacts(name=name, has_topology=False)
        expected = evaluate(pod, node, expected_free(node, reserved), options)
        context = pod, node, fleet.reserved(name), options
        assert fits.decision(name) == expected, context
        if expected.fits:
            assert score == expected.score, context
            assert name not in fits.refusals
        else:
            assert score < 0, context
            assert fits.refusals[name].kind == expected.kind, context
            assert fits.refusals[name].message == expected.message, context
    return len(fits.names)


@pytest.mark.req("NS-170")
@pytest.mark.parametrize("seed", range(ROUNDS))
def test_arrays_and_lists_decide_as_the_reference_does(seed: int) -> None:
    random = Random(seed)
    options = some_options(random)
    fleets = [NumaNodeIndex(options)]
    reserved: Reserved = {}
    for number in range(NODES):
        node = a_node(random, f"node-{number}")
        for fleet in fleets:
            fleet.put(node)
    pods = [a_pod(random, f"pod-{number}") for number in range(PODS)]
    compared = 0
    for each in (*pods, *pods[:3]):
        for _ in range(6):
            changed(random, fleets, reserved)
        named = random.sample([f"node-{number}" for number in range(NODES + 1)], random.choice((3, NODES, NODES)))
        for fleet in fleets:
            compared += held_to(fleet, each, named, reserved, options)
    assert compared > PODS
