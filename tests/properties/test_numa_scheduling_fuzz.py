"""Whatever a NodeResourceTopology says, there is a decision, and the order in which it says it changes nothing."""

import random
from typing import Any

import msgspec
import pytest
import scheduling_chances as chances
from hypothesis import given
from hypothesis import strategies as st

from polyarch.numa import names
from polyarch.numa.api.topology import NodeResourceTopology
from polyarch.numa.fit.evaluate import evaluate
from polyarch.numa.fit.facts import ExactOptions, FitDecision, PodFacts, PodObject, node_facts, pod_facts

RESOURCES = ("cpu", "memory", "hugepages-2Mi", "example.com/nic", "example.com/gpu", "pods")
quantities = st.one_of(
    st.integers(-3, 40),
    st.sampled_from(["0", "4", "1500m", "8Gi", "-1", "1e30", "x", "", "9" * 70]),
    st.floats(allow_nan=True, allow_infinity=True),
    st.text(max_size=6),
)
words = st.one_of(
    st.sampled_from(["", "none", "static", "Static", "restricted", "best-effort", "single-numa-node", "pod", "true"]),
    st.sampled_from(
        ["full-pcpus-only=true", "prefer-closest-numa-nodes=true", "0,1", "1,2,9", "2", "10s", "[{}]", "-1"]
    ),
    st.text(max_size=8),
)
own = [value for value in vars(names).values() if isinstance(value, str) and value.startswith(names.PREFIX)]
attributes = st.lists(
    st.fixed_dictionaries(
        {"name": st.sampled_from([names.POLICY, names.SCOPE, names.MAX_NUMA_NODES, *own]), "value": words}
    ),
    max_size=12,
)
zones = st.lists(
    st.fixed_dictionaries(
        {
            "name": st.sampled_from(
                ["node-0", "node-1", "node-2", "node-5", "node-63", "node-64", "node-x", "", "socket-0"]
            ),
            "type": st.sampled_from(["Node", "Node", "Node", "Socket", ""]),
            "costs": st.none()
            | st.lists(
                st.fixed_dictionaries(
                    {"name": st.sampled_from(["node-0", "node-1", "z"]), "value": st.integers(-5, 300)}
                ),
                max_size=3,
            ),
            "attributes": st.none() | attributes,
            "resources": st.none()
            | st.lists(
                st.fixed_dictionaries(
                    {
                        "name": st.sampled_from(RESOURCES),
                        "capacity": quantities,
                        "allocatable": quantities,
                        "available": quantities,
                    }
                ),
                max_size=6,
            ),
        }
    ),
    max_size=6,
)
topologies = st.fixed_dictionaries(
    {
        "metadata": st.just({"name": "worker"}),
        "topologyPolicies": st.none()
        | st.lists(st.sampled_from(["Restricted", "SingleNUMANodePodLevel", "BestEffort", "x"])),
        "attributes": st.none() | attributes,
        "zones": st.none() | zones,
    }
)
options = st.builds(
    ExactOptions,
    strategy=st.sampled_from(["LeastAllocated", "MostAllocated", "BalancedAllocation", "LeastNUMANodes"]),
    weights=st.dictionaries(st.sampled_from(RESOURCES), st.integers(-2, 5)),
    restricted=st.sampled_from(["filter", "score", "ignore"]),
    best_effort=st.sampled_from(["score", "ignore"]),
    unknown_nodes=st.sampled_from(["pass", "reject"]),
)


def some_pod(seed: int) -> PodFacts:
    chance = random.Random(seed)
    document = chances.pod_document(chances.pod(chance, 0, chances.node(chance)))
    if chance.random() < 0.3:
        document["metadata"]["annotations"] = {names.REQUIRE: "aligned"}
    return pod_facts(msgspec.convert(document, PodObject))


def decide(document: dict[str, Any] | None, pod: PodFacts, chosen: ExactOptions) -> FitDecision:
    topology = msgspec.convert(document, NodeResourceTopology) if document is not None else None
    return evaluate(pod, node_facts("worker", topology, None), {}, chosen)


@pytest.mark.req("NS-004", "NS-005")
@given(document=st.none() | topologies, seed=st.integers(0, 10**6), chosen=options)
def test_no_content_of_a_topology_is_an_error(document: dict[str, Any] | None, seed: int, chosen: ExactOptions) -> None:
    """There is a decision, it says one thing or the other, and it takes no more than is there."""
    pod = some_pod(seed)
    found = decide(document, pod, chosen)
    assert found.fits == (not found.kind) == (not found.message)
    assert 0 <= found.score <= 100
    if document is None:
        return
    facts = node_facts("worker", msgspec.convert(document, NodeResourceTopology), None)
    there = {each.id: each.available for each in facts.cells}
    for cell, amounts in found.taken.items():
        assert all(0 < amount <= there[cell][name] for name, amount in amounts.items())
    assert {cell for cells in found.cells.values() for cell in cells} <= there.keys()
    assert list(found.resources) == sorted(found.resources)


@pytest.mark.req("NS-006")
@given(document=topologies, seed=st.integers(0, 10**6), chosen=options, turns=st.randoms(use_true_random=False))
def test_the_order_of_what_a_topology_lists_changes_nothing(
    document: dict[str, Any], seed: int, chosen: ExactOptions, turns: random.Random
) -> None:
    """Of what is listed twice the first one counts, so these are left out."""
    zones = list({each["name"]: each for each in document["zones"] or []}.values())
    for each in zones:
        each["resources"] = list({one["name"]: one for one in each["resources"] or []}.values())
        each["attributes"] = list({one["name"]: one for one in each["attributes"] or []}.values())
        each["costs"] = list({one["name"]: one for one in each["costs"] or []}.values())
    said = list({each["name"]: each for each in document["attributes"] or []}.values())
    pod = some_pod(seed)
    found = decide({**document, "zones": zones, "attributes": said}, pod, chosen)
    turned = [
        {**each, **{part: turns.sample(each[part], len(each[part])) for part in ("resources", "attributes", "costs")}}
        for each in turns.sample(zones, len(zones))
    ]
    assert decide({**document, "zones": turned, "attributes": turns.sample(said, len(said))}, pod, chosen) == found
