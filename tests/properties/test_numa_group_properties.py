"""Groups of nodes: what was accepted never overlaps, and a plan depends on nothing but the facts."""

import random
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from polyarch.operator.components.numa_exporter_objects import MAX_NAME_LENGTH, shortened
from polyarch.operator.components.numa_exporter_plan import plan_exporters
from polyarch.operator.components.numa_facts import ExporterFacts, NodeLabels
from polyarch.selectors import admits

Json = dict[str, Any]

KEYS = ("zone", "kind", "node-role.kubernetes.io/worker")
VALUES = ("", "a", "b")
RUNS_IT = {"kubernetes.io/arch": "amd64", "kubernetes.io/os": "linux"}
LABELS = st.dictionaries(st.sampled_from(KEYS), st.sampled_from(VALUES))
EXPRESSIONS = st.one_of(
    st.builds(
        lambda key, operator, values: {"key": key, "operator": operator, "values": values},
        st.sampled_from(KEYS),
        st.sampled_from(["In", "NotIn"]),
        st.lists(st.sampled_from(VALUES), min_size=1, max_size=2),
    ),
    st.builds(
        lambda key, operator: {"key": key, "operator": operator},
        st.sampled_from(KEYS),
        st.sampled_from(["Exists", "DoesNotExist"]),
    ),
)
SELECTORS = st.fixed_dictionaries(
    {}, optional={"matchLabels": LABELS, "matchExpressions": st.lists(EXPRESSIONS, max_size=2)}
)
ENTRIES = st.one_of(
    st.fixed_dictionaries({"poolName": st.sampled_from(["worker", "infra", "Bad"])}),
    st.fixed_dictionaries(
        {"nodeSelector": SELECTORS}, optional={"poolName": st.sampled_from(["left", "right", "worker"])}
    ),
    st.just({}),
)
NODES = st.lists(LABELS, max_size=6).map(
    lambda several: tuple(NodeLabels(f"n{number}", labels) for number, labels in enumerate(several))
)


def observed(groups: list[Json], nodes: tuple[NodeLabels, ...]) -> ExporterFacts:
    return ExporterFacts(
        object={"metadata": {"name": "numaresourcesoperator", "uid": "1"}, "spec": {"nodeGroups": groups}},
        nodes=nodes,
        namespace_labels={"pod-security.kubernetes.io/enforce": "privileged"},
    )


@pytest.mark.req("NO-036")
@given(st.lists(ENTRIES, max_size=4), NODES)
def test_no_node_has_two_exporters(groups: list[Json], nodes: tuple[NodeLabels, ...]) -> None:
    """Whatever was accepted, the DaemonSets select each node at most once, as the scheduler judges; and each
    node that an accepted group names is selected."""
    planned = plan_exporters(observed(groups, nodes))
    if planned.documents is None:
        assert planned.is_degraded
        return
    templates = {
        each["metadata"]["name"]: each["spec"]["template"]["spec"]["affinity"]["nodeAffinity"]
        for each in planned.documents
        if each["kind"] == "DaemonSet"
    }
    assert len(templates) == len(groups)
    for node in nodes:
        selecting = [
            name
            for name, affinity in templates.items()
            if admits(
                affinity["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"], RUNS_IT | node.labels
            )
        ]
        grouped = [name for name, names in planned.group_nodes.items() if node.name in names]
        assert len(selecting) == len(grouped) <= 1


@pytest.mark.req("NO-043")
@given(st.lists(ENTRIES, max_size=4), NODES, st.randoms(use_true_random=False))
def test_a_plan_depends_on_nothing_but_the_facts(
    groups: list[Json], nodes: tuple[NodeLabels, ...], shuffle: random.Random
) -> None:
    """Otherwise a settled cluster would be written again and again."""
    turned = list(nodes)
    shuffle.shuffle(turned)
    one, other = plan_exporters(observed(groups, nodes)), plan_exporters(observed(groups, tuple(turned)))
    assert msgspec.json.encode(one) == msgspec.json.encode(other)


@pytest.mark.req("NO-051")
@given(st.text(alphabet="abc-.", min_size=1, max_size=200), st.text(alphabet="abc-.", min_size=1, max_size=200))
def test_names_fit_and_stay_apart(one: str, other: str) -> None:
    assert len(shortened(one)) <= MAX_NAME_LENGTH
    assert (shortened(one) == shortened(other)) == (one == other)


@pytest.mark.req("NO-004")
@given(st.recursive(st.none() | st.booleans() | st.integers() | st.text(max_size=5), lambda inner: st.lists(inner)))
def test_whatever_was_stored_a_plan_never_fails(odd: Any) -> None:
    """A violation gives Degraded, never a crash."""
    for spec in (odd, {"nodeGroups": odd}, {"nodeGroups": [odd]}, {"nodeGroups": [{"poolName": odd, "config": odd}]}):
        given_object = {"metadata": {"name": "numaresourcesoperator"}, "spec": spec}
        planned = plan_exporters(msgspec.structs.replace(observed([], ()), object=given_object))
        assert planned.conditions
