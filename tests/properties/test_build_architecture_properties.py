"""What architectures a build is for does not depend on any order, nor on how many nodes there are."""

from typing import Any

import msgspec
import pytest
from build_wishes import CONTROL_PLANE, NOW, execution, wanted, wish
from hypothesis import given, settings
from hypothesis import strategies as st

from polyarch.builds.api.resources import ArchitectureScheduling, Scheduling
from polyarch.builds.architectures import (
    NodeIndex,
    ResolvedArchitectures,
    auto_profile,
    deciding_labels,
    host_of,
    is_available,
    resolve_architectures,
)
from polyarch.builds.facts.build_facts import BuildFacts, BuildRequest, NodeFacts

ARCHITECTURES = ("amd64", "arm64", "s390x")
names = st.sampled_from([f"node-{each}" for each in range(12)])
labels = st.fixed_dictionaries(
    {}, optional={"pool": st.sampled_from(["a", "b"]), next(iter(CONTROL_PLANE)): st.just("")}
)


def node(name: str, **members: Any) -> NodeFacts:
    return NodeFacts(name=name, **members)


nodes = st.builds(
    node,
    names,
    architecture=st.sampled_from((*ARCHITECTURES, "")),
    operating_system=st.sampled_from(["linux", "linux", "linux", "windows", ""]),
    mismatch=st.sampled_from([False, False, True]),
    labels=labels,
    created=st.sampled_from([NOW - age for age in (1, 10, 29, 30, 31, 1000)]),
    deleting=st.sampled_from([False, False, False, True]),
    ready=st.booleans(),
    schedulable=st.booleans(),
    taints=st.sampled_from([(), (("dedicated", "ci", "NoSchedule"),)]),
    user_namespaces=st.sampled_from([frozenset({""}), frozenset()]),
)
clusters = st.dictionaries(names, nodes, max_size=12).map(
    lambda found: [msgspec.structs.replace(each, name=name) for name, each in found.items()]
)
some = st.lists(st.sampled_from(ARCHITECTURES), unique=True, max_size=2)


@st.composite
def wishes(draw: st.DrawFn) -> BuildRequest:
    members: dict[str, Any] = {"empty": draw(st.sampled_from(["WorkerNodes", "Wait"]))}
    if draw(st.booleans()):
        members["nodeSelector"] = {"matchLabels": {"pool": "a"}}
    members["include"] = draw(some)
    members["exclude"] = [each for each in draw(some) if each not in members["include"]]
    own = ArchitectureScheduling(architecture="arm64", node_selector={"pool": "b"})
    return wish(
        current=draw(st.sampled_from(["", "web-1"])),
        strategy=draw(st.sampled_from(["Native", "PreferNative", "Emulated"])),
        scheduling=Scheduling(per_architecture=draw(st.sampled_from([None, [own]]))),
        **wanted(**members),
    )


executions = st.lists(
    st.builds(
        execution,
        st.sampled_from(["web-1", "web-2", "web-3"]),
        st.sampled_from(ARCHITECTURES),
        phase=st.sampled_from(["Succeeded", "Failed", "Building"]),
        owner=st.sampled_from(["uid-web", "uid-web", "uid-former"]),
    ),
    max_size=3,
    unique_by=lambda each: each.name,
)


def verdicts(facts: BuildFacts) -> list[object]:
    """Everything that is decided from nodes."""
    found: list[object] = [resolve_architectures(facts)]
    for each in ARCHITECTURES:
        host = host_of(facts, each)
        found += [host, is_available(facts, each), auto_profile(facts, each, host.architecture)]
    return found


@pytest.mark.req("BD-006")
@given(wishes(), clusters, executions, st.randoms(use_true_random=False))
def test_no_order_of_nodes_or_executions_matters(of: BuildRequest, cluster: Any, runs: Any, chance: Any) -> None:
    facts = BuildFacts(now=NOW, request=of, nodes=tuple(cluster), executions=tuple(runs))
    chance.shuffle(cluster)
    chance.shuffle(runs)
    again = BuildFacts(now=NOW, request=of, nodes=tuple(cluster), executions=tuple(runs))
    assert verdicts(again) == verdicts(facts)


@pytest.mark.req("BD-042")
@given(wishes(), clusters, executions)
def test_newcomers_come_in_time_and_nothing_else_is_waited_for(of: BuildRequest, cluster: Any, runs: Any) -> None:
    facts = BuildFacts(now=NOW, request=of, nodes=tuple(cluster), executions=tuple(runs))
    resolved = resolve_architectures(facts)
    assert set(resolved.newcomers).isdisjoint(resolved.architectures)
    assert (resolved.requeue_after is not None) == bool(resolved.newcomers) == (resolved.reason == "Settling")
    later = facts
    for _ in ARCHITECTURES:
        if resolved.requeue_after is None:
            break
        later = msgspec.structs.replace(later, now=later.now + resolved.requeue_after)
        before, resolved = resolved, resolve_architectures(later)
        assert set(resolved.newcomers) < set(before.newcomers)
    assert not resolved.newcomers


changes = st.lists(st.one_of(nodes, names), max_size=40)


@pytest.mark.req("BD-348")
@settings(max_examples=200)
@given(wishes(), clusters, changes, executions)
def test_a_sample_kept_by_difference_decides_as_all_nodes_do(
    of: BuildRequest, cluster: Any, changed: Any, runs: Any
) -> None:
    present = {each.name: each for each in cluster}
    index = NodeIndex(cluster)
    wanted_labels = deciding_labels(of.spec)
    before = index.sample(wanted_labels)
    for change in changed:
        if isinstance(change, NodeFacts):
            present[change.name] = change
            effect = index.put(change)
        else:
            present.pop(change, None)
            effect = index.remove(change)
        facts = [
            BuildFacts(now=NOW, request=of, nodes=each, executions=tuple(runs))
            for each in (tuple(present.values()), index.sample(wanted_labels), before)
        ]
        whole, sampled, former = map(verdicts, facts)
        assert sampled == whole
        if not effect.availability:
            assert _available(sampled) == _available(former)
        if not effect.membership:
            assert _known(sampled) == _known(former)
        before = index.sample(wanted_labels)
    linux = [each for each in present.values() if each.operating_system == "linux" and not each.deleting]
    assert index.architectures == tuple(sorted({each.architecture for each in linux} - {""}))


def _available(found: list[object]) -> list[object]:
    """What does not depend on the age of nodes."""
    return [each for each in found if isinstance(each, bool)]


def _known(found: list[object]) -> set[str]:
    """Architectures, newcomers or not."""
    return {
        name
        for each in found
        if isinstance(each, ResolvedArchitectures)
        for name in (*each.architectures, *each.newcomers)
    }
