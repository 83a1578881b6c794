"""Every folder of ``examples/`` does what its README says, with the files as they are shipped.

Policies of examples are put together with the one that all cluster tests share, because a cluster has one only; each
chooses its namespaces by a label of its own.
"""

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from placement_cluster import PlacementCluster, architectures, decision, is_gated, labels, until
from test_placement_schema import EXAMPLE

from polyarch.cli import main
from polyarch.cli.input.objects import read_taints
from polyarch.kube import patches
from polyarch.kube.errors import Conflict, Invalid
from polyarch.kube.patches import JsonPatch
from polyarch.kube.resources import NAMESPACES, PODS
from polyarch.placement import names
from polyarch.placement.api import POLICIES, PPCS
from polyarch.sandbox.cluster import Sandbox
from polyarch.taints.api import ARCHITECTURE_TAINTS, ArchitectureTaints
from polyarch.taints.settings import TaintSettings

EXAMPLES = Path(__file__).parents[2] / "examples"
Json = dict[str, Any]


def documents(file: str) -> list[Json]:
    return list(yaml.safe_load_all((EXAMPLES / file).read_text()))


def explained(capsys: pytest.CaptureFixture[str], *arguments: str, code: int = 0) -> dict[str, Json]:
    """What ``polyarch explain -o json`` says, by pod."""
    files = [str(EXAMPLES / each) if each.endswith(".yaml") else each for each in arguments]
    assert main(["explain", *files, "--offline", "-o", "json"]) == code
    return {each["name"]: each for each in json.loads(capsys.readouterr().out)["pods"]}


@pytest.fixture
async def cluster(placed_sandbox: Sandbox) -> AsyncIterator[PlacementCluster]:
    async with placed_sandbox.client() as client:
        cluster = PlacementCluster(placed_sandbox, client)
        await cluster.configure()
        yield cluster


async def also(cluster: PlacementCluster, file: str) -> None:
    """The overrides of an example's policy, in the policy of the cluster."""
    wanted = documents(file)[0]["spec"]["overrides"]

    async def added() -> bool:
        policy = await cluster.client.get(POLICIES, names.SINGLETON)
        known = {entry["name"] for entry in policy["spec"]["overrides"]}
        operations: list[patches.Operation] = [
            patches.test("/metadata/resourceVersion", policy["metadata"]["resourceVersion"])
        ]
        operations += [patches.add("/spec/overrides/-", entry) for entry in wanted if entry["name"] not in known]
        try:
            await cluster.client.patch(POLICIES, names.SINGLETON, JsonPatch(tuple(operations)))
        except (Conflict, Invalid):  # another test changed it meanwhile
            return False
        return True

    await until(added)


async def labelled_namespace(cluster: PlacementCluster, namespace: str, example: str) -> None:
    change = JsonPatch((patches.add("/metadata/labels/polyarch-example", example),))
    await cluster.client.patch(NAMESPACES, namespace, change)


def test_every_example_is_in_the_readme_and_tested() -> None:
    folders = {path.name for path in EXAMPLES.iterdir() if path.is_dir()}
    readme, tests = (EXAMPLES / "README.md").read_text(), Path(__file__).read_text()
    assert {name for name in folders if f"[{name}]({name}/)" not in readme} == set()
    assert {name for name in folders if f'"{name}/' not in tests} == set()


@pytest.mark.req("PL-045")
async def test_01_policy_is_the_specified_one_and_is_accepted(cluster: PlacementCluster) -> None:
    (policy,) = documents("01-policy/policy.yaml")
    assert policy == yaml.safe_load(EXAMPLE)
    await cluster.client.apply(POLICIES, policy, dry_run=True)


def test_01_policy_settles_each_namespace_its_way(capsys: pytest.CaptureFixture[str]) -> None:
    pods = explained(
        capsys,
        *("-f", "01-policy/pods.yaml", "--platforms-file", "01-policy/platforms.yaml"),
        *("--objects", "01-policy/policy.yaml", "--objects", "01-policy/namespaces.yaml"),
    )
    assert {name: pod["path"] for name, pod in pods.items()} == {
        "ledger": "inline",
        "preview": "audit",
        "agent": "ignored",
    }
    assert any("skip-placement is ignored" in warning for warning in pods["ledger"]["warnings"])


async def test_02_scoring_prefers_for_the_pods_that_it_selects(cluster: PlacementCluster) -> None:
    (scoring,) = documents("02-scoring/scoring.yaml")
    front, cache = documents("02-scoring/pods.yaml")
    async with cluster.namespace() as namespace:
        await cluster.client.create(PPCS, scoring, namespace=namespace)

        async def seen() -> bool:
            stored = await cluster.create(front, namespace, dry_run=True)
            return names.PREFERRED_NODE_AFFINITY_LABEL in labels(stored)

        await until(seen)
        for pod in (front, cache):
            await cluster.create(pod, namespace)
        placed = await cluster.released(namespace, "front")
        preferred = placed["spec"]["affinity"]["nodeAffinity"]["preferredDuringSchedulingIgnoredDuringExecution"]
        assert [(each["weight"], each["preference"]["matchExpressions"][0]["values"]) for each in preferred] == [
            (80, ["arm64"]),
            (20, ["amd64"]),
        ]
        other = await cluster.released(namespace, "cache")
        assert names.PREFERRED_NODE_AFFINITY_LABEL not in labels(other)


async def test_03_audit_says_what_it_would_do_and_does_nothing(cluster: PlacementCluster) -> None:
    await also(cluster, "03-audit/policy.yaml")
    (pod,) = documents("03-audit/pod.yaml")
    async with cluster.namespace() as namespace:
        await labelled_namespace(cluster, namespace, "audit")

        async def audited() -> bool:
            stored = await cluster.create(pod, namespace, dry_run=True)
            found = stored["metadata"].get("annotations", {}).get(names.DECISION_ANNOTATION)
            return found is not None and json.loads(found)["mode"] == "audit" and json.loads(found)["arch"] == ["amd64"]

        await until(audited)
        stored = await cluster.create(pod, namespace)
        assert decision(stored)["reason"] == "ArchitecturesSet"
        assert architectures(stored) is None
        assert labels(stored) == {}


async def test_04_hold_and_fallback_differ_when_the_window_ends(cluster: PlacementCluster) -> None:
    await also(cluster, "04-hold-and-fallback/policy.yaml")
    (pod,) = documents("04-hold-and-fallback/pod.yaml")
    async with cluster.namespace() as held, cluster.namespace() as fallen:
        await labelled_namespace(cluster, held, "hold")
        await labelled_namespace(cluster, fallen, "fallback")
        for namespace in (held, fallen):
            await cluster.create(pod, namespace)
        released = await cluster.released(fallen, "report")
        assert labels(released)[names.FALLBACK_ARCH_LABEL] == "amd64"
        assert architectures(released) == ["amd64"]
        waiting = await cluster.labelled(held, "report", names.IMAGE_INSPECT_ERROR_COUNT_LABEL, names.GIVEN_UP_COUNT)
        assert is_gated(waiting)


def test_05_explain_from_files_needs_no_cluster_and_no_registry(capsys: pytest.CaptureFixture[str]) -> None:
    given = ("-f", "05-explain-from-files/deployment.yaml", "--platforms-file", "05-explain-from-files/platforms.yaml")
    (pod,) = explained(capsys, *given).values()
    assert pod["decision"]["architectures"] == ["amd64", "arm64"]
    nodes = ("--objects", "05-explain-from-files/policy.yaml", "--objects", "05-explain-from-files/nodes.yaml")
    (narrowed,) = explained(capsys, *given, *nodes).values()
    assert narrowed["decision"]["architectures"] == ["arm64"]


async def test_06_private_registry_is_asked_with_the_pods_own_secret(cluster: PlacementCluster) -> None:
    (images,) = documents("06-private-registry/images.yaml")
    (pod,) = documents("06-private-registry/pod.yaml")
    ((user, password),) = images["registry.example.com/team/secret:1"]["users"].items()
    await cluster.seed(images)
    async with cluster.namespace() as namespace:
        (secret,) = pod["spec"]["imagePullSecrets"]
        address = cluster.sandbox.registry.address
        await cluster.pull_secret(namespace, secret["name"], address, username=user, password=password)
        await cluster.create(pod, namespace)
        running = await cluster.running(namespace, "secret")
        assert architectures(running) == ["arm64"]
        assert running["spec"]["nodeName"].startswith("arm64")
        await cluster.client.delete(PODS, "secret", namespace=namespace)


@pytest.mark.req("PL-062")
async def test_07_openshift_is_accepted(cluster: PlacementCluster) -> None:
    (policy,) = documents("07-openshift/policy.yaml")
    await cluster.client.apply(POLICIES, policy, dry_run=True)


@pytest.mark.req("PL-062")
def test_07_openshift_leaves_the_platforms_namespaces_alone(capsys: pytest.CaptureFixture[str]) -> None:
    """By this policy; kube-* by no policy at all."""
    given = ("-f", "07-openshift/pods.yaml", "--platforms-file", "07-openshift/platforms.yaml")
    with_policy = explained(capsys, *given, "--objects", "07-openshift/policy.yaml")
    assert {name: pod["decision"]["reason"] for name, pod in with_policy.items()} == {
        "prober": "ExcludedNamespace",
        "billing": "ArchitecturesSet",
        "proxy": "KubeNamespace",
    }
    without = explained(capsys, *given)
    assert without["prober"]["path"] == "inline"
    assert without["proxy"]["decision"]["reason"] == "KubeNamespace"


@pytest.mark.req("TN-010")
async def test_08_taints_is_accepted_by_the_api_server_and_as_a_file(cluster: PlacementCluster) -> None:
    (document,) = documents("08-taints/taints.yaml")
    made = await cluster.client.create(ARCHITECTURE_TAINTS, document, type=ArchitectureTaints, dry_run=True)
    assert made.spec["nodes"]["perMinute"] == 30
    read = TaintSettings.of(read_taints(str(EXAMPLES / "08-taints/taints.yaml")).spec)
    assert (read.tainted, read.gate_timeout, read.problems) == ({"arm64"}, 120.0, ())


@pytest.mark.req("NO-035", "NO-062")
def test_09_numa_means_two_groups_without_a_shared_node(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """As the operator would plan it for three nodes, judged by the definition's schema."""
    telco = {"example.com/class": "telco"}
    nodes = [
        {
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": {"name": f"amd64-{each}", "labels": telco if each == 1 else {}},
        }
        for each in (1, 2, 3)
    ]
    (tmp_path / "nodes.yaml").write_text(yaml.safe_dump_all(nodes))
    example = EXAMPLES / "09-numa/numa.yaml"
    assert main(["run", "operator", "--plan", str(example), str(tmp_path / "nodes.yaml")]) == 0
    planned, said = capsys.readouterr()
    made = list(yaml.safe_load_all(planned))
    exporters = {each["metadata"]["name"]: each for each in made if each["kind"] == "DaemonSet"}
    assert exporters.keys() == {"numaresourcesoperator-telco", "numaresourcesoperator-others"}
    triggers = {
        name: {flag for flag in each["spec"]["template"]["spec"]["containers"][0]["args"] if "sleep" in flag}
        for name, each in exporters.items()
    }
    assert triggers == {
        "numaresourcesoperator-telco": {"--sleep-interval=0"},
        "numaresourcesoperator-others": {"--sleep-interval=30s"},
    }
    assert "node group telco: 1 node" in said
    assert "node group others: 2 nodes" in said


@pytest.mark.req("NS-053", "NS-162")
def test_10_numa_scheduling_places_one_pod_where_sums_would_do_for_more(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """What the page of the examples shows is what is printed."""
    files = ["-f", str(EXAMPLES / "10-numa-scheduling/pods.yaml")]
    files += ["--nrt", str(EXAMPLES / "10-numa-scheduling/topologies.yaml")]
    assert main(["numa", "simulate", *files]) == 1
    printed = capsys.readouterr().out
    shown = (EXAMPLES / "README.md").read_text(encoding="utf-8")
    for line in printed.splitlines():
        assert line.rstrip() in shown
    assert main(["numa", "explain", *files]) == 0
    assert "Fits 1 of 2 nodes, 1 no-common-cell" in capsys.readouterr().out


@pytest.mark.req("NS-065", "NS-162")
def test_11_numa_what_if_one_pod_is_refused_and_the_larger_one_fits(capsys: pytest.CaptureFixture[str]) -> None:
    """As the page of the examples says."""
    nodes = ["--nrt", str(EXAMPLES / "11-numa-what-if/topologies.yaml")]
    refused, larger = (["-f", str(EXAMPLES / f"11-numa-what-if/pod-{size}gi.yaml")] for size in (20, 36))
    assert main(["numa", "top", *nodes]) == 0
    assert main(["numa", "simulate", *refused, *larger, *nodes]) == 1
    assert "1 pod placed, 1 not" in capsys.readouterr().out
    assert main(["numa", "explain", *refused, *nodes]) == 1
    assert "(no-common-cell)" in capsys.readouterr().out
    assert main(["numa", "simulate", *larger, *nodes, "--fill"]) == 0
    assert "0 more copies fit" in capsys.readouterr().out


@pytest.mark.req("BD-302")
def test_12_image_build_says_which_architecture_is_built_again_and_why(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """What the page of the examples shows is what is printed."""
    facts = ["--facts", str(EXAMPLES / "12-image-build/facts.yaml")]
    assert main(["build", "plan", *facts]) == 0
    shown = (EXAMPLES / "README.md").read_text(encoding="utf-8")
    assert [line for line in capsys.readouterr().out.splitlines() if line.rstrip() not in shown] == []
    assert main(["build", "plan", *facts, "--check"]) == 1
    (wanted,) = documents("12-image-build/web.yaml")
    planned = documents("12-image-build/facts.yaml")[0]["objects"][0]
    assert planned["spec"] == {name: wanted["spec"][name] for name in ("source", "output")}
    assert main(["build", "run", "-f", str(EXAMPLES / "12-image-build/web.yaml"), "--dry-run"]) == 0


@pytest.mark.req("RP-010", "RP-012", "RP-021", "RP-023")
def test_13_report_names_the_image_to_build_first(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """As the page of the examples says."""
    asked = ["-f", str(EXAMPLES / "13-report/workloads.yaml"), "--target", "arm64"]
    asked += ["--platforms-file", str(EXAMPLES / "13-report/platforms.yaml"), "--offline"]
    page = tmp_path / "report.html"
    assert main(["report", *asked, "-o", "json", "-o", f"html={page}"]) == 0
    report = json.loads(capsys.readouterr().out)
    workloads = {workload["name"]: workload["answers"][0]["verdict"] for workload in report["workloads"]}
    assert [name for name, verdict in workloads.items() if verdict == "constrained"] == ["kafka", "payments"]
    assert [name for name, verdict in workloads.items() if verdict == "unknown"] == ["licences"]
    first = report["blockers"][0]
    assert (first["image"], first["alone"]["cores"]) == ("registry.example.com/mesh/proxy:0.9", 12.3)
    text = page.read_text(encoding="utf-8")
    assert "45.2 %" in text
    assert "45.2 %" in (EXAMPLES / "README.md").read_text(encoding="utf-8")
    assert main(["report", *asked, "--fail-under", "80", "--max-unknown", "1"]) == 1
