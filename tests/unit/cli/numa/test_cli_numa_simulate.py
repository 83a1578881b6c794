"""``polyarch numa simulate`` as a user runs it, on files."""

from pathlib import Path
from typing import Any

import msgspec
import pytest
from numa_files import listed, machine, pod, topology, zone

from polyarch.numa.fit.demand import whole_request
from polyarch.numa.fit.facts import PodObject, pod_facts

NODES = listed(topology("a", zone(0), zone(1)), topology("b", zone(0, cpu="4")))
EXAMPLE = Path(__file__).parents[4] / "examples" / "11-numa-what-if"
FILES = {"nodes.json": NODES, "pod.json": pod("web", cpu="3")}


NODES_OF_OTHERS: dict[str, Any] = {
    "apiVersion": "topology.crane.io/v1alpha1",
    "kind": "NodeResourceTopology",
    "metadata": {"name": "c1"},
    "zones": [],
}


def workload(kind: str, **spec: Any) -> dict[str, Any]:
    made = pod("ignored", cpu="3")
    return {
        "apiVersion": "batch/v1" if kind == "Job" else "apps/v1",
        "kind": kind,
        "metadata": {"name": "web", "namespace": "shop"},
        "spec": {**spec, "template": {"metadata": {}, "spec": made["spec"]}},
    }


@pytest.mark.req("NS-162")
def test_a_line_per_pod_and_what_was_counted(numa) -> None:
    ran = numa("simulate", "-f", "pod.json", "--nrt", "nodes.json", "--repeat", "6", "--fill", files=FILES)
    assert (ran.code, ran.err) == (1, "")
    assert ran.out == (
        "POD          NODE   CELLS   SCORE   NOTE\n"
        "shop/web-1   a      0       79      -\n"
        "shop/web-2   a      0       68      -\n"
        "shop/web-3   a      1       79      -\n"
        "shop/web-4   a      1       68      -\n"
        "shop/web-5   b      0       60      -\n"
        "shop/web-6   -      -       -       2 of 2 nodes: cannot align container: cpu (short)\n"
        "\n"
        "5 pods placed, 1 not\n"
        "\n"
        "0 more copies fit\n"
        "What runs out first:\n"
        "  cpu: 2 of 2 nodes, no cell that may be used has enough\n"
    )


@pytest.mark.req("NS-162")
def test_the_same_question_has_the_same_answer_byte_for_byte(numa) -> None:
    words = ("simulate", "-f", "pod.json", "--nrt", "nodes.json", "--repeat", "4", "--fill", "-o", "json")
    first = numa(*words, files=FILES)
    assert first.out == numa(*words).out
    turned = {**FILES, "nodes.json": listed(*reversed(NODES["items"]))}
    assert first.out == numa(*words, files=turned).out


@pytest.mark.req("NS-162")
def test_as_a_document(numa) -> None:
    words = ("simulate", "-f", "pod.json", "--nrt", "nodes.json", "--repeat", "6", "--fill", "--explain", "-o", "json")
    found = numa(*words, files=FILES).document
    assert found["schemaVersion"] == "polyarch.dev/numa-simulation.v1"
    assert found["source"] == "files"
    assert found["unplaced"] == 1
    first, last = found["pods"][0], found["pods"][-1]
    assert {name: first[name] for name in ("pod", "node", "cells", "score")} == {
        "pod": "shop/web-1",
        "node": "a",
        "cells": {"app": [0]},
        "score": 79,
    }
    assert [each["node"] for each in first["nodes"]] == ["a", "b"]
    assert last["node"] is None
    assert last["refusals"][0]["kind"] == "short"
    assert last["refusals"][0]["nodes"] == 2
    assert found["fill"] == {
        "copies": 0,
        "limited": True,
        "nodes": {},
        "runsOut": [
            {"kind": "short", "message": "cannot align container: cpu", "resources": ["cpu"], "nodes": 2},
        ],
    }


@pytest.mark.req("NS-162")
@pytest.mark.parametrize(
    ("given", "names"),
    [
        (workload("Deployment", replicas=2), ["web-1", "web-2"]),
        (workload("Deployment"), ["web"]),
        (workload("Deployment", replicas=0), []),
        (workload("StatefulSet", replicas=2), ["web-0", "web-1"]),
        (workload("Job", parallelism=3, completions=2), ["web-0", "web-1"]),
    ],
)
def test_a_workload_counts_with_its_replicas(numa, given: Any, names: list[str]) -> None:
    files = {**FILES, "all.json": listed(given, pod("last", cpu="1"))}
    found = numa("simulate", "-f", "all.json", "--nrt", "nodes.json", "-o", "json", files=files).document
    assert [each["pod"] for each in found["pods"]] == [f"shop/{name}" for name in (*names, "last")]


@pytest.mark.req("NS-162")
def test_a_pod_is_placed_wherever_it_is_bound_now(numa) -> None:
    files = {**FILES, "pod.json": pod("web", node="elsewhere", cpu="3")}
    ran = numa("simulate", "-f", "pod.json", "--nrt", "nodes.json", "-o", "json", files=files)
    assert ran.document["pods"][0]["node"] == "a"


@pytest.mark.req("NS-162")
def test_drained_pods_go_elsewhere_and_daemons_stay(numa) -> None:
    daemon = pod("daemon", node="b", cpu="1")
    daemon["metadata"]["ownerReferences"] = [{"kind": "DaemonSet", "name": "d", "controller": True}]
    others = listed(machine("a"), machine("b"), pod("web", node="b", cpu="6"), daemon, pod("other", node="a", cpu="1"))
    words = ("simulate", "--drain", "b", "--nrt", "nodes.json", "--nodes", "others.json", "-o", "json")
    ran = numa(*words, files={**FILES, "others.json": others})
    assert ran.code == 0
    assert [(each["pod"], each["node"]) for each in ran.document["pods"]] == [("shop/web", "a")]


@pytest.mark.req("NS-162")
def test_sums_of_pods_that_are_there_count(numa) -> None:
    shared = pod("shared", node="a", cpu="14")
    shared["spec"]["containers"][0]["resources"] = {"requests": {"cpu": "14"}}
    others = listed(machine("a"), machine("b", cpu="2"), shared)
    words = ("simulate", "-f", "pod.json", "--nrt", "nodes.json", "--nodes", "others.json")
    ran = numa(*words, files={**FILES, "others.json": others})
    assert ran.code == 1
    assert "2 of 2 nodes: insufficient cpu (insufficient)" in ran.out


@pytest.mark.req("NS-162")
def test_files_are_never_written(numa) -> None:
    before = {name: str(content) for name, content in FILES.items()}
    ran = numa("simulate", "-f", "pod.json", "--nrt", "nodes.json", "-o", "json=pod.json", files=FILES)
    assert ran.code == 2
    assert "is an input of the command" in ran.err
    assert before == {name: str(content) for name, content in FILES.items()}


@pytest.mark.req("NS-065")
def test_the_worked_case_is_an_example(numa) -> None:
    files = [str(EXAMPLE / name) for name in ("pod-20gi.yaml", "pod-36gi.yaml", "topologies.yaml")]
    ran = numa("simulate", "-f", files[0], "-f", files[1], "--nrt", files[2], "-o", "json")
    refused, spread = ran.document["pods"]
    assert ran.code == 1
    assert refused["refusals"][0]["kind"] == "no-common-cell"
    assert spread["cells"] == {"app": [0, 1]}


TWICE = listed(topology("a"), topology("a"))
BROKEN = zone(0, cpu="eight")


@pytest.mark.req("NS-163")
@pytest.mark.parametrize(
    ("files", "words", "said"),
    [
        ({"nodes.json": pod("web")}, (), "nodes.json: no NodeResourceTopology in it"),
        ({"nodes.json": TWICE}, (), "there is a NodeResourceTopology 'a' already"),
        ({"nodes.json": listed({"kind": "Secret", "metadata": {"name": "s"}})}, (), "--nrt takes"),
        ({"nodes.json": listed(topology("a", BROKEN))}, (), "zones[0].resources[0].available: 'eight' is not a quan"),
        ({"nodes.json": "{"}, (), "nodes.json, document 1"),
        ({"nodes.json": {"kind": "NodeResourceTopology", "metadata": {}, "zones": []}}, (), "metadata.name: missing"),
        ({"nodes.json": {"kind": "NodeResourceTopology", "zones": 3}}, (), "zones: Expected"),
        ({"pod.json": pod("web", cpu="many")}, (), "container app: limits: cpu: 'many' is not a quantity"),
        ({"pod.json": {"kind": "Secret"}}, (), "pod.json, document 1 (line 1): expected Pod, Deployment"),
        ({"pod.json": listed()}, (), "pod.json: no pods in it"),
        ({"pod.json": workload("Deployment", replicas="2")}, (), "spec.replicas: expected a number"),
        ({"pod.json": {"kind": "Deployment", "spec": {}}}, (), "needs a pod template"),
        ({"others.json": listed(machine("a", cpu="?"))}, ("--nodes", "others.json"), "status.allocatable.cpu: '?'"),
        ({}, ("--drain", "c"), "--drain c: there is no node 'c'; there are a"),
        ({}, ("--drain", "a"), "its pods are not known"),
        ({}, ("--cluster",), "either --nrt FILE"),
        ({}, ("--repeat", "0"), "--repeat 0: expected 1 or more"),
        ({}, ("--weights", "cpu=-1"), "--weights cpu=-1: expected RESOURCE=WEIGHT"),
        ({}, ("--weights", "cpu=101"), "--weights cpu=101: expected RESOURCE=WEIGHT"),
        (
            {"pod.json": {**workload("Job"), "apiVersion": "batch.volcano.sh/v1alpha1"}},
            (),
            "Job of batch.volcano.sh/v1alpha1 is another kind than that of Kubernetes",
        ),
        (
            {"nodes.json": {**NODES_OF_OTHERS}},
            (),
            "NodeResourceTopology of topology.crane.io/v1alpha1 is another kind than that of topology.node.k8s.io",
        ),
        ({}, ("--nrt", "lost.json"), "lost.json: No such file"),
    ],
)
def test_bad_input_is_told_by_file_document_and_field(numa, files: Any, words: Any, said: str) -> None:
    ran = numa("simulate", "-f", "pod.json", "--nrt", "nodes.json", *words, files={**FILES, **files})
    assert ran.code == 2
    assert said in " ".join(ran.err.split())
    assert "Traceback" not in ran.err


@pytest.mark.req("NS-163")
def test_a_place_in_yaml_has_its_line(numa) -> None:
    text = "kind: NodeResourceTopology\nmetadata: {name: a}\nzones:\n- name: node-0\n  type: Node\n  resources:\n"
    text += "  - {name: cpu, capacity: 8, allocatable: 8, available: 8}\n  - name: memory\n    capacity: 8X\n"
    ran = numa("simulate", "-f", "pod.json", "--nrt", "nodes.yaml", files={**FILES, "nodes.yaml": text})
    assert ran.code == 2
    assert "nodes.yaml, document 1, line 9: NodeResourceTopology 'a': zones[0].resources[1].capacity: '8X'" in ran.err


@pytest.mark.req("NS-163")
@pytest.mark.parametrize("command", [("simulate", "--explain", "--fill"), ("explain",)])
def test_names_in_files_do_not_reach_the_terminal_as_they_are(numa, command: tuple[str, ...]) -> None:
    """An escape sequence in a file somebody sent could rewrite what the terminal shows."""
    device = "\x1b[2J.example/nic"
    cell = zone(0)
    cell["resources"].append({"name": device, "capacity": "1", "allocatable": "1", "available": "1"})
    wanted = pod("\x1b[2Jweb", cpu="3")
    wanted["spec"]["containers"][0]["resources"]["limits"][device] = "9"
    files = {"pod.json": wanted, "nodes.json": listed(topology("a", cell))}
    ran = numa(*command, "-f", "pod.json", "--nrt", "nodes.json", files=files)
    assert ran.code == 1
    assert "cannot align container" in ran.out
    assert "\x1b" not in ran.out + ran.err


@pytest.mark.req("NS-162")
def test_among_several_architectures_it_is_said_that_only_room_is_judged(numa) -> None:
    """Selectors, affinity and taints are not, so an answer may name a node that the pod cannot use."""
    of = {name: machine(name) for name in ("a", "b")}
    for name, architecture in (("a", "amd64"), ("b", "arm64")):
        of[name]["metadata"]["labels"] = {"kubernetes.io/arch": architecture}
    nodes = listed(topology("a", zone(0)), topology("b", zone(0)))
    words = ("simulate", "-f", "pod.json", "--nrt", "nodes.json", "--nodes", "machines.json")
    files = {"pod.json": pod("web"), "nodes.json": nodes}
    mixed = numa(*words, files={**files, "machines.json": listed(of["a"], of["b"])})
    assert (mixed.code, "nodes of amd64 and arm64: whether a pod may go to each" in mixed.err) == (0, True)
    assert numa(*words, files={**files, "machines.json": listed(of["a"])}).err == ""


@pytest.mark.req("NS-162")
def test_a_weight_of_0_counts_as_the_extender_counts_it(numa) -> None:
    words = ("simulate", "-f", "pod.json", "--nrt", "nodes.json", "--weights")
    assert numa(*words, "cpu=0", files=FILES).out == numa(*words, "cpu=1", files=FILES).out


@pytest.mark.req("NS-162")
def test_a_pod_that_is_resized_counts_as_kube_scheduler_counts_it(numa) -> None:
    """What can never be done does not count; what is deferred does."""
    bound = pod("big", cpu="10")
    bound["spec"]["nodeName"] = "a"
    bound["status"] = {
        "phase": "Running",
        "conditions": [{"type": "PodResizePending", "status": "True", "reason": "Infeasible"}],
        "containerStatuses": [
            {"name": "app", "allocatedResources": {"cpu": "2"}, "resources": {"requests": {"cpu": "2"}}}
        ],
    }
    assert whole_request(pod_facts(msgspec.convert(bound, PodObject)))["cpu"] == 2000
    bound["status"]["conditions"][0]["reason"] = "Deferred"
    assert whole_request(pod_facts(msgspec.convert(bound, PodObject)))["cpu"] == 10000
