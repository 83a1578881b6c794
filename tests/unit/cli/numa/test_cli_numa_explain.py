"""``polyarch numa explain`` as a user runs it, on files."""

from typing import Any

import msgspec
import pytest
from numa_files import listed, machine, pod, topology, zone

from polyarch.cli.numa.explain import PREEMPTION, account, document, text_of
from polyarch.cli.numa.objects import Objects
from polyarch.cli.numa.options import ModeOptions
from polyarch.cli.numa.snapshot import DecisionInputs
from polyarch.numa.api.topology import NodeResourceTopology
from polyarch.numa.extender.state_document import Options
from polyarch.numa.fit.facts import PodFacts, PodObject, node_facts, pod_facts
from polyarch.numa.placement_vectors import PlacementVectors, encode_vectors
from polyarch.numa.snapshot import NodeSnapshot, Snapshot, SnapshotPod, SnapshotReservation

NODES = listed(topology("a", zone(0, cpu="2"), zone(1, cpu="4")), topology("b", zone(0, memory="2Gi"), zone(1)))
FILES: dict[str, Any] = {"nodes.json": NODES, "pod.json": pod("web", cpu="4", memory="4Gi")}
WORDS = ("explain", "-f", "pod.json", "--nrt", "nodes.json")
GOLDEN = """\
shop/web
  qos     Guaranteed
  source  files: nothing else was asked; sums over nodes are not judged
  mode    exact

CONTAINER   KIND   RESOURCE   REQUESTED   ALIGNED
app         app    cpu        4           aligned
app         app    memory     4Gi         aligned

Fits 1 of 2 nodes, 1 short

b (single-numa-node/container): fits, app on cell 1, score 68
  not known: policy and options of the CPU and memory manager, taken to be static where a zone lists it
  CELL   CONTAINER   RESOURCE   REQUESTED   AVAILABLE   RESERVED   FREE   SHORT   RESERVED BY
  0      app         cpu        4           8           0          8      -       -
  0      app         memory     4Gi         2Gi         0          2Gi    2Gi     -
  1      app         cpu        4           8           0          8      -       -
  1      app         memory     4Gi         32Gi        0          32Gi   -       -

a (single-numa-node/container): cannot align container: cpu (short) 'app'
  no cell that it may use has enough
  container app: spec.containers[0].resources cpu: zone 1 has 3 of 4: ask for that, or 1 has to come free (shop/other)
  not known: policy and options of the CPU and memory manager, taken to be static where a zone lists it
  CELL   CONTAINER   RESOURCE   REQUESTED   AVAILABLE   RESERVED   FREE   SHORT   RESERVED BY
  0      app         cpu        4           2           0          2      2       -
  0      app         memory     4Gi         0           0          0      4Gi     -
  1      app         cpu        4           4           1          3      1       shop/other
  1      app         memory     4Gi         32Gi        1Gi        31Gi   -       shop/other
"""


@pytest.mark.req("NS-161")
def test_text_says_where_it_fits_and_what_every_cell_lacks(numa) -> None:
    """The other pod, not admitted yet, has reserved a CPU of the lowest cell that had two."""
    nodes = listed(topology("a", zone(0, cpu="2"), zone(1, cpu="4")), NODES["items"][1])
    other = pod("other", node="a", cpu="3")
    other["spec"]["containers"][0]["resources"]["limits"]["cpu"] = "1"
    nodes["items"][0]["zones"][0]["resources"][1]["available"] = "0"  # memory
    files = {**FILES, "nodes.json": nodes, "others.json": listed(machine("a"), machine("b"), other)}
    ran = numa(*WORDS, "--nodes", "others.json", files=files)
    assert (ran.code, ran.err) == (0, "")
    assert ran.out == GOLDEN


@pytest.mark.req("NS-124")
@pytest.mark.parametrize(
    ("evicts", "changes", "word", "said"),
    [
        (False, {}, "off", "preemption is off (preemptionMode of the NUMAResourcesScheduler)"),
        (True, {}, "on", "Preemption: no pods of lower priority make room for it by leaving."),
        (True, {"preempts": False}, "never", "its preemptionPolicy is Never"),
        (None, {}, None, ""),
        (False, {"priority": 0}, None, ""),
        (False, {"scheduler_name": "default-scheduler"}, None, ""),
    ],
    ids=["off", "on", "must not", "an extender that does not say", "the usual priority", "another scheduler"],
)
def test_an_important_pod_that_waits_is_told_whether_anybody_goes_for_it(
    evicts: bool | None, changes: dict[str, Any], word: str | None, said: str
) -> None:
    choice = ModeOptions().choice("numa explain", Options(scheduler_name="topo", evicts=evicts))
    seen = DecisionInputs(Snapshot(source="live", nodes=()), Objects(), choice)
    facts = PodFacts(namespace="shop", name="web", **{"priority": 1000, "scheduler_name": "topo", **changes})
    found = account(facts, seen, seen.snapshot)
    assert document(found).get("preemption", {"mode": None})["mode"] == word
    text = text_of(found, colour=False)
    assert said in text
    assert any(each in text for each in (*PREEMPTION.values(), "Preemption: ")) is bool(said)


@pytest.mark.req("NS-124")
@pytest.mark.parametrize(
    ("evicts", "asks", "said"),
    [
        (True, "6", "Preemption: it fits node a without shop/big. Disruption budgets may say no."),
        (False, "6", "With preemption: it fits node a without shop/big."),
        (False, "9", "It would not help."),
        (True, "9", "Preemption: no pods of lower priority make room for it by leaving."),
    ],
    ids=["on", "off", "off, for nothing", "on, for nothing"],
)
def test_whom_an_important_pod_would_evict_is_said_before_it_does(evicts: bool, asks: str, said: str) -> None:
    """Of one zone four CPUs are taken, of the other one six, by the less important pod."""

    def asking(name: str, cpu: str, **others: Any) -> PodFacts:
        facts = pod_facts(msgspec.convert(pod(name, cpu=cpu), PodObject))
        return msgspec.structs.replace(facts, scheduler_name="topo", **others)

    facts = node_facts(
        "a",
        msgspec.convert(topology("a", zone(0), zone(1)), NodeResourceTopology),
        {"cpu": "16", "memory": "64Gi", "pods": "9"},
    )
    small, big = asking("small", "4", node_name="a", priority=5), asking("big", "6", node_name="a")
    held = tuple(
        SnapshotReservation(pod=each.full_name, uid=each.uid, cells={cell: each.containers[0].requests})
        for cell, each in enumerate((small, big))
    )
    node = NodeSnapshot(facts=facts, held=held, residents=(SnapshotPod(small), SnapshotPod(big)))
    seen = Snapshot(source="live", nodes=(node,), knows_pods=True)
    choice = ModeOptions().choice("numa explain", Options(scheduler_name="topo", evicts=evicts))
    found = account(asking("web", asks, priority=1000), DecisionInputs(seen, Objects(), choice), seen)
    assert said in text_of(found, colour=False)


@pytest.mark.req("NS-124")
@pytest.mark.parametrize(
    ("evicts", "asks", "said"),
    [
        (True, "6", "Pods of lower priority are on unknown cells of a: "),
        (False, "6", "Whether it would help, nobody knows. Pods of lower priority are on unknown cells of a: "),
        (True, "9", "Preemption: no pods of lower priority make room for it by leaving.\n"),
        (False, "9", "It would not help.\n"),
    ],
    ids=["on", "off", "on, no cell could ever hold it", "off, no cell could ever hold it"],
)
def test_where_nobody_knows_which_zones_pods_are_on_it_is_said(evicts: bool, asks: str, said: str) -> None:
    """The node's object has no placement vectors, as where a container is on several zones."""
    full = topology("a", zone(0, cpu="2"), zone(1, cpu="2"))
    facts = node_facts("a", msgspec.convert(full, NodeResourceTopology), {"cpu": "16", "memory": "64Gi", "pods": "9"})
    low, web = (
        msgspec.structs.replace(pod_facts(msgspec.convert(pod(name, cpu=cpu), PodObject)), scheduler_name="topo")
        for name, cpu in (("low", "6"), ("web", asks))
    )
    node = NodeSnapshot(facts=facts, held=(), residents=(SnapshotPod(msgspec.structs.replace(low, node_name="a")),))
    seen = Snapshot(source="live", nodes=(node,), knows_pods=True)
    choice = ModeOptions().choice("numa explain", Options(scheduler_name="topo", evicts=evicts))
    important = msgspec.structs.replace(web, priority=1000)
    assert said in text_of(account(important, DecisionInputs(seen, Objects(), choice), seen), colour=False)


@pytest.mark.req("NS-161")
def test_as_a_document_with_the_fields_of_a_decision(numa) -> None:
    found = numa(*WORDS, "-o", "json", files=FILES).document
    assert found["schemaVersion"] == "polyarch.dev/numa-explain.v1"
    assert (found["source"], found["pod"], found["qos"]) == ("files", "shop/web", "Guaranteed")
    fits_a, fits_b = found["nodes"]
    assert {key: fits_a[key] for key in ("node", "fits", "cells", "score")} == {
        "node": "a",
        "fits": True,
        "cells": {"app": [1]},
        "score": 43,
    }
    assert "kind" not in fits_a
    assert fits_b["cells"] == {"app": [1]}


@pytest.mark.req("NS-161")
def test_what_does_not_fit_has_kind_message_and_resources_and_no_cells(numa) -> None:
    ran = numa(*WORDS, "-o", "json", files={**FILES, "pod.json": pod("web", cpu="9")})
    assert ran.code == 1
    for each in ran.document["nodes"]:
        assert "cells" not in each
        assert {key: each[key] for key in ("fits", "kind", "message", "container", "resources")} == {
            "fits": False,
            "kind": "short",
            "message": "cannot align container: cpu",
            "container": "app",
            "resources": ["cpu"],
        }
        assert [row["shortfall"] for row in each["amounts"] if row["resource"] == "cpu"] != []


@pytest.mark.req("NS-161")
def test_a_later_container_has_what_the_earlier_ones_leave(numa) -> None:
    made = pod("web", cpu="3")
    second = {"name": "second", "resources": {"limits": {"cpu": "3", "memory": "1Gi"}}}
    made["spec"]["containers"].append(second)
    files = {"nodes.json": topology("a", zone(0, cpu="5")), "pod.json": made}
    (node,) = numa(*WORDS, "-o", "json", files=files).document["nodes"]
    assert node["container"] == "second"
    cpu = next(row for row in node["amounts"] if row["resource"] == "cpu")
    assert (cpu["available"], cpu["free"], cpu["shortfall"]) == ("5", "2", "1")


@pytest.mark.req("NS-161")
@pytest.mark.parametrize(
    ("change", "resource", "said"),
    [
        ({"cpu": "1500m"}, "cpu", "a fraction of a CPU comes from the shared pool"),
        ({"cpu": "1", "ephemeral-storage": "1Gi"}, "ephemeral-storage", "belongs to the node as a whole"),
        ({"cpu": "1", "example.com/nic": "1"}, "example.com/nic", "no cell of a node lists this device"),
        ({"cpu": "1"}, "cpu", "aligned"),
    ],
)
def test_why_each_request_does_or_does_not_align(numa, change: Any, resource: str, said: str) -> None:
    found = numa(*WORDS, "-o", "json", files={**FILES, "pod.json": pod("web", **change)}).document
    (reason,) = [each["reason"] for each in found["demand"] if each["resource"] == resource]
    assert said in reason


@pytest.mark.req("NS-161")
@pytest.mark.parametrize(
    ("attributes", "asks", "said"),
    [
        pytest.param(
            {"cpu-manager-policy": "static", "cpu-manager-options": "full-pcpus-only=true", "threads-per-core": "2"},
            {"cpu": "3"},
            "container app: spec.containers[0].resources cpu: cpu 3 is odd and this node hands out whole cores of 2: "
            "ask for 2 or 4",
            id="half a core",
        ),
        pytest.param(
            {"cpu-manager-policy": "static", "cpu-manager-options": "full-pcpus-only=true", "threads-per-core": "4"},
            {"cpu": "1"},
            "cpu 1 is no multiple of 4 and this node hands out whole cores of 4: ask for 4",
            id="less than a core",
        ),
        pytest.param({}, {"cpu": "99"}, "99 is more than a zone of this node has: ask for 8 or less", id="too large"),
        pytest.param(
            {"cpu-manager-policy": "static", "memory-manager-policy": "Static", "cpu-manager-options": "new-one=true"},
            {"cpu": "1"},
            "not known: what the CPU manager's option new-one does",
            id="an option of a later Kubernetes",
        ),
    ],
)
def test_what_would_have_to_change_is_said_with_its_field_and_number(
    numa, attributes: dict[str, str], asks: dict[str, str], said: str
) -> None:
    nodes = topology("a", zone(0), **attributes)
    files = {**FILES, "nodes.json": nodes, "pod.json": pod("web", **asks)}
    assert said in numa(*WORDS, files=files).out
    (told,) = numa(*WORDS, "-o", "json", files=files).document["nodes"]
    assert any(
        each.removeprefix("container app: ") in said or said.endswith(each) or said in each
        for each in (*told["advice"], *told["notKnown"])
    )


@pytest.mark.req("NS-161")
@pytest.mark.parametrize(
    ("policy", "fits"), [("single-numa-node", False), ("restricted", False), ("best-effort", True), ("none", True)]
)
def test_devices_of_no_zone_fit_where_nothing_insists_on_zones(numa, policy: str, *, fits: bool) -> None:
    """Their plugin names NUMA nodes that the machine does not have: every zone has 0 of them."""
    nodes = topology("a", *(zone(number, **{"x.org/good": "1"}) for number in (0, 1)), policy=policy)
    for each in nodes["zones"]:
        each["resources"].append({"name": "x.org/minus", "capacity": "0", "allocatable": "0", "available": "0"})
    ran = numa(*WORDS, files={**FILES, "nodes.json": nodes, "pod.json": pod("web", **{"x.org/minus": "1"})})
    assert (ran.code == 0) == fits, ran.out
    told = "container app: spec.containers[0].resources x.org/minus: no zone of this node has any. A device plugin"
    assert (told in ran.out) == (not fits)
    both = {"x.org/minus": "1", "x.org/good": "1"}
    assert (numa(*WORDS, files={"pod.json": pod("web", **both)}).code == 0) == fits
    assert numa(*WORDS, files={"pod.json": pod("web", **{"x.org/good": "1"})}).code == 0


@pytest.mark.req("NS-161")
@pytest.mark.parametrize(("on_node", "asks", "told"), [("2", "1", True), ("4", "1", False), ("2", "", False)])
def test_devices_that_several_zones_count_are_said_to_be_unknown(numa, on_node: str, asks: str, *, told: bool) -> None:
    nodes = topology("a", *(zone(number, **{"x.org/gpu": "2"}) for number in (0, 1)))
    made = pod("web", cpu="1", **({"x.org/gpu": asks} if asks else {}))
    files = {"pod.json": made, "nodes.json": nodes, "machines.json": machine("a", **{"x.org/gpu": on_node})}
    ran = numa(*WORDS, "--nodes", "machines.json", files=files)
    assert ran.code == 0
    assert ("not known: which x.org/gpu belong to several zones" in ran.out) == told
    shown = numa("top", "--nrt", "nodes.json", "--nodes", "machines.json", "--resource", "x.org/gpu", "--check")
    assert ("shared-devices" in shown.out) == (on_node == "2")
    assert ("the zones have 4, the node 2" in shown.out) == (on_node == "2")
    assert "shared-devices" not in numa("top", "--nrt", "nodes.json", "--nodes", "machines.json").out


@pytest.mark.req("NS-161")
def test_the_group_that_keeps_memory_away_is_named(numa) -> None:
    """Blocks of memory across zones: none of theirs is given to a container of one zone."""
    nodes = topology("a", zone(0), zone(1), **{"cpu-manager-policy": "static", "memory-manager-policy": "Static"})
    for each in nodes["zones"]:
        each.setdefault("attributes", []).append({"name": "numa.polyarch.dev/memory-group", "value": "0,1"})
    ran = numa(*WORDS, files={**FILES, "nodes.json": nodes, "pod.json": pod("web", cpu="1", memory="1Gi")})
    assert "memory group 0,1: zones 0,1 give out their memory together" in ran.out


@pytest.mark.req("NS-161")
def test_a_burstable_pod_aligns_nothing_and_fits(numa) -> None:
    made = pod("web", cpu="9")
    made["spec"]["containers"][0]["resources"] = {"requests": {"cpu": "9"}}
    ran = numa(*WORDS, files={**FILES, "pod.json": made})
    assert ran.code == 0
    assert "the pod is Burstable: container app has no limits.cpu; only Guaranteed pods get CPUs" in ran.out
    assert "nothing has to be aligned here" in ran.out


@pytest.mark.req("NS-161")
def test_managers_that_hand_out_nothing_are_named(numa) -> None:
    nodes = topology("a", zone(0), **{"cpu-manager-policy": "none"})
    ran = numa(*WORDS, files={**FILES, "nodes.json": nodes})
    assert "no node has a CPU manager with policy static" in ran.out


@pytest.mark.req("NS-161")
def test_one_node_and_other_rules(numa) -> None:
    nodes = listed(topology("a", zone(0), zone(1), policy="restricted"), NODES["items"][1])
    files = {**FILES, "nodes.json": nodes, "pod.json": pod("web", cpu="10")}
    assert numa(*WORDS, "--node", "a", files=files).code == 1
    scored = numa(*WORDS, "--node", "a", "--restricted", "score", "-o", "json")
    assert scored.code == 0
    assert [each["node"] for each in scored.document["nodes"]] == ["a"]


@pytest.mark.req("NS-161")
def test_the_score_follows_strategy_and_weights(numa) -> None:
    def score(*words: str) -> int:
        return int(numa(*WORDS, "--node", "b", "-o", "json", *words, files=FILES).document["nodes"][0]["score"])

    assert score() == 68
    assert score("--strategy", "MostAllocated") == 31
    assert score("--weights", "cpu=3,memory=1") == 59


def bound(vectors: Any = None, **uid: str) -> dict[str, Any]:
    """Node ``a`` with a pod that its object shows: on cell 1, where vectors say so."""
    made = topology("a", zone(0, cpu="6"), zone(1, cpu="4"), nodeTopologyPodsFingerprintMethod="all")
    if isinstance(vectors, PlacementVectors):
        made["attributes"].append({"name": "topology.node.k8s.io/numaplacement-metadata", "value": vectors.metadata})
        for cell, text in vectors.by_zone.items():
            made["zones"][cell]["attributes"] = [{"name": "topology.node.k8s.io/numaplacement-vector", "value": text}]
    there = pod("web", node="a", cpu="4", **uid)
    there["status"] = {"phase": "Running", "startTime": "2026-01-01T10:00:00Z"}
    made["metadata"]["annotations"] = {"numa.polyarch.dev/last-scan": "2026-01-01T12:00:00Z"}
    other = pod("other", node="a", cpu="2")
    other["status"] = there["status"]
    return {"nodes.json": made, "others.json": listed(machine("a"), there, other)}


BOUND = ("explain", "shop/web", "--nrt", "nodes.json", "--nodes", "others.json", "-o", "json")


@pytest.mark.req("NS-161")
def test_a_bound_pod_is_where_the_vectors_say_and_where_it_was_expected(numa) -> None:
    vectors = encode_vectors({("shop", "web", "app"): frozenset({1}), ("shop", "other", "app"): frozenset({0})}, {0, 1})
    ran = numa(*BOUND, files=bound(vectors))
    assert ran.code == 0
    assert ran.document["bound"] == {"node": "a", "predicted": {"app": [0]}, "actual": {"app": [1]}, "note": ""}
    assert ran.document["nodes"] == []


@pytest.mark.req("NS-161")
def test_without_vectors_nobody_knows_where_a_pod_is(numa) -> None:
    found = numa(*BOUND, files=bound()).document["bound"]
    assert (found["predicted"], found["actual"]) == (None, None)
    assert "no placement vectors" in found["note"]


@pytest.mark.req("NS-161")
def test_vectors_of_other_pods_are_not_believed(numa) -> None:
    found = numa(*BOUND, files=bound(encode_vectors({("shop", "gone", "app"): frozenset({1})}, {0, 1}))).document[
        "bound"
    ]
    assert found["actual"] is None
    assert "1 containers, not 2" in found["note"]


@pytest.mark.req("NS-163")
@pytest.mark.parametrize(
    ("words", "said"),
    [
        ((), "give one of them"),
        (("web", "-f", "pod.json"), "give one of them"),
        (("-f", "pod.json", "-n", "shop"), "-n belongs to the name of a pod"),
        (("-f", "two.json", "--nrt", "nodes.json"), "2 pods in it"),
        (("shop/lost", "--nrt", "nodes.json"), "there is no pod 'lost' in namespace 'shop' in the files"),
        (("-f", "pod.json", "--nrt", "nodes.json", "--node", "c"), "there is no node 'c'"),
        (("-f", "pod.json", "--nodes", "nodes.json"), "--nodes belongs to --nrt"),
    ],
)
def test_what_cannot_be_explained_is_told(numa, words: Any, said: str) -> None:
    files = {**FILES, "two.json": listed(pod("web", cpu="1"), pod("more", cpu="1"))}
    ran = numa("explain", *words, files=files)
    assert ran.code == 2
    assert said in " ".join(ran.err.split())


@pytest.mark.req("NS-161")
def test_of_a_pod_that_its_kubelet_refused_it_is_said_what_became_of_it_and_where_it_would_fit(numa) -> None:
    """It holds nothing, so all of its node's cells are judged, and those of the others."""
    refused = pod("web", node="a", cpu="4", memory="4Gi")
    refused["status"] = {"phase": "Failed", "reason": "TopologyAffinityError", "startTime": "2026-01-01T00:00:00Z"}
    files = {"nodes.json": NODES, "others.json": listed(machine("a"), machine("b"), refused)}
    words = ("explain", "shop/web", "--nrt", "nodes.json", "--nodes", "others.json")
    ran = numa(*words, files=files)
    assert ran.code == 0
    assert "It is over: TopologyAffinityError on node a. Where it would fit now:\n\nFits 2 of 2 nodes\n" in ran.out
    assert numa(*words, "-o", "json").document["ended"] == {"reason": "TopologyAffinityError", "node": "a"}
