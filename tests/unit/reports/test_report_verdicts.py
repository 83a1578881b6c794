"""One verdict for each workload and target."""

from typing import Any

import msgspec
import pytest
from report_world import (
    AMD64,
    ARM64,
    AWAY,
    BOTH,
    DATA,
    ONLY,
    answer_of,
    cluster,
    codes,
    node,
    pod,
    reading,
    report_of,
    workload,
)

from polyarch.images.node_fit import NodeView, PodRequirements, fit_by_platform
from polyarch.images.pod_images import common_platforms, image_facts, images_of, on_crio
from polyarch.objects import Node, ObjectMeta, RuntimeClass
from polyarch.oci.inspection import Entry, Inspection, Status
from polyarch.oci.reference import parse
from polyarch.placement.api import ClusterPodPlacementConfig, PlacementPolicy
from polyarch.platforms import Platform
from polyarch.reports.document import Verdict
from polyarch.reports.facts import (
    ImageInspections,
    ImageRecord,
    NodeObject,
    ReportFacts,
    decode_snapshot,
    encode_snapshot,
)
from polyarch.reports.gather import nodes_of
from polyarch.taints.api import ArchitectureTaints
from polyarch.tolerations import Taint

TAINT = Taint("dedicated", "arm", "NoSchedule")


def affinity(key: str, *values: str) -> dict[str, Any]:
    term = {"matchExpressions": [{"key": key, "operator": "In", "values": list(values)}]}
    return {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [term]}}}


@pytest.mark.req("RP-010")
@pytest.mark.parametrize(
    ("images", "spec", "pods", "verdict", "reasons"),
    [
        ((BOTH,), {}, (pod("w-1", "m1"),), Verdict.RUNS, []),
        ((BOTH,), {}, (pod("w-1", "a1"),), Verdict.READY, []),
        ((DATA,), {}, (), Verdict.READY, []),
        ((BOTH,), {"nodeSelector": {"kubernetes.io/arch": "amd64"}}, (), Verdict.CONSTRAINED, ["NodeSelector"]),
        ((BOTH,), {"nodeSelector": {"pool": "fast"}}, (), Verdict.CONSTRAINED, ["NodeSelector"]),
        ((BOTH,), {"affinity": affinity("kubernetes.io/arch", "amd64")}, (), Verdict.CONSTRAINED, ["RequiredAffinity"]),
        ((BOTH,), {"os": {"name": "windows"}}, (), Verdict.CONSTRAINED, ["OperatingSystem"]),
        ((ONLY,), {}, (), Verdict.IMAGE, ["ImageLacksTarget"]),
        ((ONLY, AWAY), {}, (), Verdict.IMAGE, ["ImageLacksTarget", "ImageUnknown"]),
        ((BOTH, AWAY), {}, (), Verdict.UNKNOWN, ["ImageUnknown"]),
        ((AWAY,), {}, (pod("w-1", "m1"),), Verdict.UNKNOWN, ["ImageUnknown"]),
        ((BOTH,), {"initContainers": [{"name": "i", "image": ONLY}]}, (), Verdict.IMAGE, ["ImageLacksTarget"]),
        (
            (BOTH,),
            {"initContainers": [{"name": "i", "image": ONLY, "restartPolicy": "Always"}]},
            (),
            Verdict.IMAGE,
            ["ImageLacksTarget"],
        ),
    ],
)
def test_the_first_verdict_that_applies(
    images: tuple[str, ...], spec: dict[str, Any], pods: Any, verdict: Verdict, reasons: list[str]
) -> None:
    report = report_of(cluster(workload("w", *images, pods=pods, **spec)))
    answer = answer_of(report, "w")
    assert (answer.verdict, codes(answer)) == (verdict, reasons)


@pytest.mark.req("RP-010")
def test_pods_that_cannot_start_do_not_run_there() -> None:
    """Their image has the target and nothing excludes it, so others could: it is ready, and counts no pod."""
    stuck = msgspec.structs.replace(pod("w-1", "m1"), waits_for="ImagePullBackOff")
    assert report_of(cluster(workload("w", BOTH, pods=(stuck,)))).workloads[0].runs_on == ("arm64",)
    answer = answer_of(report_of(cluster(workload("w", BOTH, pods=(stuck,)))), "w")
    assert (answer.verdict, answer.pods) == ("ready", 0)
    answer = answer_of(report_of(cluster(workload("w", BOTH, pods=(stuck, pod("w-2", "m1"))))), "w")
    assert (answer.verdict, answer.pods) == ("runs", 1)


@pytest.mark.req("RP-010")
def test_a_constraint_is_named_with_its_path_and_value() -> None:
    report = report_of(cluster(workload("w", BOTH, nodeSelector={"kubernetes.io/arch": "amd64"})))
    (reason,) = answer_of(report, "w").reasons
    assert reason.path == "spec.template.spec.nodeSelector[kubernetes.io/arch]"
    assert reason.value == "amd64"


@pytest.mark.req("RP-010")
def test_a_taint_of_all_nodes_of_the_target_excludes_and_one_free_node_does_not() -> None:
    every = (node("a1"), node("m1", "arm64", TAINT), node("m2", "arm64", TAINT))
    answer = answer_of(report_of(cluster(workload("w", BOTH), nodes=every)), "w")
    assert codes(answer) == ["TaintNotTolerated"]
    assert answer.reasons[0].value == "dedicated=arm:NoSchedule"
    one_free = (*every, node("m3", "arm64"))
    assert answer_of(report_of(cluster(workload("w", BOTH), nodes=one_free)), "w").verdict is Verdict.READY


@pytest.mark.req("RP-010")
def test_a_tolerated_taint_and_the_taint_of_a_condition_exclude_nothing() -> None:
    tolerations = [{"key": "dedicated", "operator": "Exists"}]
    tainted = (node("m1", "arm64", TAINT),)
    report = report_of(cluster(workload("w", BOTH, tolerations=tolerations), nodes=tainted))
    assert answer_of(report, "w").verdict is Verdict.READY
    cordoned = (node("m1", "arm64", Taint("node.kubernetes.io/unschedulable", "", "NoSchedule")),)
    assert answer_of(report_of(cluster(workload("w", BOTH), nodes=cordoned)), "w").verdict is Verdict.READY
    avoided = (node("m1", "arm64", Taint("dedicated", "arm", "PreferNoSchedule")),)
    assert answer_of(report_of(cluster(workload("w", BOTH), nodes=avoided)), "w").verdict is Verdict.READY


@pytest.mark.req("RP-010", "TN-067")
@pytest.mark.parametrize(
    "key",
    [
        "ToBeDeletedByClusterAutoscaler",
        "karpenter.sh/unregistered",
        "startup-taint.cluster-autoscaler.kubernetes.io/gpu",
        "readiness.k8s.io/network",
        "ebs.csi.aws.com/agent-not-ready",
    ],
)
def test_a_taint_that_goes_away_by_itself_excludes_nothing(key: str) -> None:
    starting = (node("m1", "arm64", Taint(key, "", "NoExecute")),)
    assert answer_of(report_of(cluster(workload("w", BOTH), nodes=starting)), "w").verdict is Verdict.READY


def on_arm(**scheduling: Any) -> dict[str, RuntimeClass]:
    return {"arm": msgspec.convert({"metadata": {"name": "arm"}, "scheduling": scheduling}, RuntimeClass)}


@pytest.mark.req("RP-010", "TN-066")
def test_what_a_runtime_class_adds_decides_and_is_named_as_its_own() -> None:
    tolerations = [{"key": "dedicated", "operator": "Exists"}]
    classes = on_arm(nodeSelector={"kubernetes.io/arch": "arm64"}, tolerations=tolerations)
    nodes = (node("a1"), node("m1", "arm64", TAINT))
    facts = cluster(workload("w", BOTH, runtimeClassName="arm"), nodes=nodes, runtime_classes=classes)
    report = report_of(facts, targets=(ARM64, AMD64))
    assert answer_of(report, "w").verdict is Verdict.READY
    amd64 = answer_of(report, "w", "amd64")
    assert codes(amd64) == ["RuntimeClass"]
    assert amd64.reasons[0].path == "spec.template.spec.runtimeClassName"
    assert amd64.reasons[0].message == "its RuntimeClass arm asks for kubernetes.io/arch=arm64"


@pytest.mark.req("RP-010", "TN-066")
@pytest.mark.parametrize(
    ("classes", "code"),
    [
        pytest.param(None, [], id="nobody knows the classes"),
        pytest.param({}, ["RuntimeClass"], id="it is not there"),
        pytest.param(on_arm(nodeSelector={"zone": "b"}), ["RuntimeClass"], id="it contradicts the pod"),
        pytest.param(on_arm(nodeSelector={"zone": "a"}), [], id="it agrees with the pod"),
    ],
)
def test_a_pod_that_its_runtime_class_excludes_runs_nowhere(classes, code) -> None:
    nodes = (node("m1", "arm64", zone="a"),)
    asked = workload("w", BOTH, runtimeClassName="arm", nodeSelector={"zone": "a"})
    assert codes(answer_of(report_of(cluster(asked, nodes=nodes, runtime_classes=classes)), "w")) == code


@pytest.mark.req("RP-010", "TN-066")
def test_a_template_that_names_its_node_runs_there_alone() -> None:
    nodes = (node("a1"), node("m1", "arm64", TAINT))
    report = report_of(cluster(workload("w", BOTH, nodeName="m1"), nodes=nodes), targets=(ARM64, AMD64))
    assert answer_of(report, "w").verdict is Verdict.READY
    assert codes(answer_of(report, "w", "amd64")) == ["NodeName"]


@pytest.mark.req("RP-010")
def test_a_toleration_that_polyarch_adds_counts_as_if_it_were_there() -> None:
    nodes = (node("a1"), node("m1", "arm64", Taint("supported-arch", "arm64", "NoSchedule")))
    bare = cluster(workload("w", BOTH), nodes=nodes)
    assert codes(answer_of(report_of(bare), "w")) == ["TaintNotTolerated"]
    managed = cluster(workload("w", BOTH), nodes=nodes, taints=ArchitectureTaints(ObjectMeta(name="cluster")))
    assert answer_of(report_of(managed), "w").verdict is Verdict.READY


@pytest.mark.req("RP-010")
def test_without_a_node_of_the_target_only_what_is_said_of_platforms_counts() -> None:
    nodes = (node("a1"),)
    free = workload("free", BOTH, nodeSelector={"pool": "fast"})
    pinned = workload("pinned", BOTH, affinity=affinity("kubernetes.io/arch", "amd64", "s390x"))
    report = report_of(cluster(free, pinned, nodes=nodes))
    assert answer_of(report, "free").verdict is Verdict.READY
    answer = answer_of(report, "pinned")
    assert answer.verdict is Verdict.CONSTRAINED
    assert answer.reasons[0].value == "kubernetes.io/arch In (amd64, s390x)"


@pytest.mark.req("RP-010")
def test_parts_that_fit_alone_but_not_together_are_named_as_that() -> None:
    nodes = (node("m1", "arm64", pool="x"), node("m2", "arm64", TAINT, pool="x", zone="z"))
    facts = cluster(workload("w", BOTH, nodeSelector={"pool": "x", "zone": "z"}), nodes=nodes)
    assert codes(answer_of(report_of(facts), "w")) == ["NoNodeAdmits"]


# -- the runtime of the nodes, against the judgement of explain and of plans ------------------------------------------

CRIO, CONTAINERD = "cri-o://1.34.0", "containerd://2.1.4"


def node_documents(*runtimes: tuple[str, str]) -> list[dict[str, Any]]:
    """One node for each architecture and runtime, which the label ``runtime`` names as well."""
    return [
        {
            "metadata": {
                "name": f"n{at}",
                "labels": {
                    "kubernetes.io/arch": architecture,
                    "kubernetes.io/os": "linux",
                    "runtime": runtime.partition(":")[0] or "unknown",
                },
            },
            "status": {"nodeInfo": {"architecture": architecture, "containerRuntimeVersion": runtime}},
        }
        for at, (architecture, runtime) in enumerate(runtimes)
    ]


def index(image: str, *platforms: str) -> ImageRecord:
    """As a registry's answer becomes a record; what another spelling means comes after ``=``."""
    entries = tuple(
        Entry(Platform.parse(meaning or stated), f"sha256:{at:064x}", stated=stated if meaning else "")
        for at, (stated, _, meaning) in enumerate(each.partition("=") for each in platforms)
    )
    return ImageRecord.of(
        image, Inspection(parse(image), Status.RESOLVED, "index", digest=f"sha256:{99:064x}", entries=entries)
    )


@pytest.mark.req("RP-010", "PL-219")
@pytest.mark.parametrize("selector", [{}, {"runtime": "cri-o"}, {"runtime": "containerd"}], ids=str)
@pytest.mark.parametrize(
    "runtimes",
    [(CRIO,), (CONTAINERD,), ("",), (CRIO, CONTAINERD)],
    ids=["cri-o", "containerd", "unknown", "both"],
)
@pytest.mark.parametrize(
    "platforms",
    [
        [["linux/386"]],
        [["linux/arm/v7"]],
        [["linux/arm/v6", "linux/386"]],
        [["linux/arm/v7", "linux/amd64"]],
        [["linux/arm/v7"], ["linux/amd64", "linux/arm64"]],
        [["linux/arm/v7"], ["linux/amd64"]],
        [["linux/386"], ["linux/amd64", "linux/arm64"]],
        [["linux/x86_64=linux/amd64", "linux/aarch64=linux/arm64"]],
        [["linux/amd64", "linux/arm64"]],
        [["linux/s390x"]],
    ],
    ids=str,
)
def test_a_target_is_ready_where_explain_finds_a_node_that_takes_the_pod(platforms, runtimes, selector) -> None:
    documents = node_documents(*((arch, runtime) for arch in ("amd64", "arm64") for runtime in runtimes))
    answers = [index(f"r.example/i{at}:1", *of) for at, of in enumerate(platforms)]
    wanted = workload("w", *(each.image for each in answers), nodeSelector=selector)
    facts = cluster(wanted, nodes=nodes_of(msgspec.convert(documents, list[NodeObject])))
    saved = decode_snapshot(encode_snapshot(facts, ImageInspections(answers)))
    report = report_of(saved.facts, *saved.readings, targets=(AMD64, ARM64))

    read = image_facts(images_of(wanted.template), saved.answers.of(""), final=True, stale_for=0.0)
    judged = fit_by_platform(
        PodRequirements.of(wanted.template, platforms=common_platforms(read), on_crio=common_platforms(on_crio(read))),
        map(NodeView.of, msgspec.convert(documents, list[Node])),
    )
    for each in judged:
        answer = answer_of(report, "w", each.platform.short_name)
        assert (answer.verdict is Verdict.READY) == bool(each.fitting), (each, answer)
        images = not each.fitting and {reason.kind for reason, _ in each.mismatches} == {"images"}
        assert (answer.verdict is Verdict.IMAGE) >= images, (each, answer)


@pytest.mark.req("RP-010")
@pytest.mark.parametrize(
    ("platform", "runtime", "target", "verdict", "blockers"),
    [
        ("linux/386", CRIO, "amd64", Verdict.IMAGE, [("r.example/i:1", ("386",))]),
        ("linux/386", CONTAINERD, "amd64", Verdict.READY, []),
        ("linux/arm/v7", CRIO, "arm64", Verdict.IMAGE, [("r.example/i:1", ("arm",))]),
        ("linux/arm/v7", CONTAINERD, "arm64", Verdict.READY, []),
    ],
)
def test_a_blocker_has_the_platforms_that_the_runtime_of_the_nodes_finds(
    platform: str, runtime: str, target: str, verdict: Verdict, blockers: list[tuple[str, tuple[str, ...]]]
) -> None:
    nodes = nodes_of(msgspec.convert(node_documents((target, runtime)), list[NodeObject]))
    facts: ReportFacts = cluster(workload("w", "r.example/i:1", pods=(pod("p", nodes[0].name),)), nodes=nodes)
    wanted = AMD64 if target == "amd64" else ARM64
    report = report_of(facts, index("r.example/i:1", platform), targets=(wanted,), node_drift=True)
    assert answer_of(report, "w", target).verdict is (Verdict.RUNS if verdict is Verdict.READY else verdict)
    assert [(each.image, each.platforms) for each in report.blockers] == blockers
    assert bool(report.node_drift) == bool(blockers)


@pytest.mark.req("RP-010")
def test_a_policy_that_narrows_to_existing_nodes_excludes_the_target() -> None:
    policy = PlacementPolicy(ObjectMeta(name="cluster"), {"nodeAware": {"mode": "narrow"}})
    members = {"nodes": (node("a1"),), "policy": policy, "cppc": ClusterPodPlacementConfig()}
    answer = answer_of(report_of(cluster(workload("w", BOTH), **members)), "w")
    assert codes(answer) == ["NodeAwarePolicy"]
    assert "assumeArchitectures" in answer.reasons[0].message


@pytest.mark.req("RP-010")
def test_a_fallback_is_no_reason_against_a_target() -> None:
    unresolved = {"action": "fallback", "fallbackArchitectures": ["amd64"]}
    policy = PlacementPolicy(ObjectMeta(name="cluster"), {"onUnresolved": unresolved})
    facts = cluster(workload("w", BOTH, AWAY), policy=policy, cppc=ClusterPodPlacementConfig())
    assert codes(answer_of(report_of(facts), "w")) == ["ImageUnknown"]


@pytest.mark.req("RP-010")
@pytest.mark.parametrize(
    ("namespace", "annotations", "excluded"),
    [
        ("shop", None, False),
        ("kube-system", None, True),
        ("openshift-dns", None, True),
        ("openshifted", None, False),
        ("internal-tools", None, True),
        ("shop", {"polyarch.dev/skip-placement": "true"}, True),
    ],
)
def test_what_is_excluded_is_only_counted(namespace: str, annotations: dict[str, str] | None, excluded: bool) -> None:
    policy = PlacementPolicy(ObjectMeta(name="cluster"), {"excludedNamespaces": ["internal-*"]})
    given = workload("w", ONLY, namespace=namespace, annotations=annotations)
    report = report_of(cluster(given, policy=policy))
    counted = {each.verdict: each.workloads for each in report.sums[0].verdicts}
    assert counted[Verdict.EXCLUDED] == int(excluded)
    assert len(report.workloads) == int(not excluded)
    assert (report.sums[0].ready_share is None) == excluded


@pytest.mark.req("RP-010", "RP-011")
@pytest.mark.parametrize("namespace", ["kube-system", "openshift-ovn-kubernetes", "internal-tools"])
def test_a_daemon_set_of_the_system_counts_as_every_other(namespace: str) -> None:
    """Without its network no node of the target works, so all of the rest is not the whole."""
    policy = PlacementPolicy(ObjectMeta(name="cluster"), {"excludedNamespaces": ["internal-*"]})
    network = workload("network", ONLY, kind="DaemonSet", namespace=namespace, cpu=0)
    report = report_of(cluster(workload("web", BOTH, cpu=4000), network, policy=policy))
    assert answer_of(report, "network").verdict is Verdict.IMAGE
    [sums] = [each for each in report.sums if each.target == "arm64"]
    assert sums.blocking_daemon_sets == (f"{namespace}/network",)
    assert sums.ready_share is not None
    assert 0.97 < sums.ready_share < 1


@pytest.mark.req("RP-011")
def test_a_daemon_set_whose_image_lacks_the_target_blocks_every_node_of_it() -> None:
    agent = workload("agent", ONLY, kind="DaemonSet", pods=(pod("agent-1", "a1"),))
    fine = workload("fine", BOTH, kind="DaemonSet")
    meant_for_others = workload("amd", ONLY, kind="DaemonSet", nodeSelector={"kubernetes.io/arch": "amd64"})
    report = report_of(cluster(agent, fine, meant_for_others))
    assert report.sums[0].blocking_daemon_sets == ("shop/agent",)
    assert answer_of(report, "agent").blocks_nodes
    assert answer_of(report, "fine").verdict is Verdict.READY


@pytest.mark.req("RP-011")
def test_a_daemon_set_that_does_not_tolerate_the_nodes_blocks_them() -> None:
    facts = cluster(workload("agent", BOTH, kind="DaemonSet"), nodes=(node("m1", "arm64", TAINT),))
    assert report_of(facts).sums[0].blocking_daemon_sets == ("shop/agent",)


@pytest.mark.req("RP-003")
def test_an_answer_for_one_namespace_counts_there_alone() -> None:
    private = "quay.io/acme/private:1"
    here, there = workload("here", private), workload("there", private, namespace="other")
    report = report_of(cluster(here, there), reading(private, "linux/arm64", namespace="shop"))
    assert answer_of(report, "here").verdict is Verdict.READY
    assert answer_of(report, "there").verdict is Verdict.UNKNOWN


@pytest.mark.req("RP-003")
def test_an_unknown_image_names_class_and_host_and_never_counts_as_movable() -> None:
    report = report_of(cluster(workload("w", AWAY)), targets=(AMD64, ARM64))
    (reason,) = answer_of(report, "w").reasons
    assert (reason.image, reason.value) == (AWAY, "transient quay.io (network)")
    assert [each.ready_share for each in report.sums] == [0.0, 0.0]


@pytest.mark.req("RP-017")
def test_images_that_could_not_be_read_are_counted_by_how_and_the_cure_is_named() -> None:
    """Each once, however many workloads have it; what was read and is no image of a platform is not among them."""
    ecr = "123456789012.dkr.ecr.eu-central-1.amazonaws.com"
    failures = (
        ImageRecord(f"{ecr}/a:1", Status.ERROR, code="unauthorized", host=ecr, http_status=401),
        ImageRecord(f"{ecr}/b:1", Status.ERROR, code="denied", host=ecr, http_status=403),
        ImageRecord("quay.io/acme/gone:1", Status.ERROR, code="not-found", host="quay.io", http_status=404),
        ImageRecord("quay.io/acme/late:1", Status.ERROR, code="rate-limited", host="quay.io", http_status=429),
        ImageRecord("quay.io/acme/odd:1", Status.ERROR, code="malformed", host="quay.io"),
    )
    workloads = [workload(f"w{at}", each.image) for at, each in enumerate((*failures, failures[0]))]
    notes = report_of(cluster(*workloads, workload("away", AWAY)), *failures).notes
    page = "https://github.com/polyarch/polyarch/blob/main/docs/guide/eks.md"
    counts = (
        "6 images could not be read: 2 refused (401 or 403), 1 not found, 1 rate-limited, 1 malformed, 1 unreachable"
    )
    identity = f"give polyarch an identity that may read them, as the nodes have: {page}"
    later = "ask again later, or with credentials, which registries limit less"
    assert notes == (f"{counts}; {identity}; {later}; push what is malformed again",)
    assert report_of(cluster(workload("w", BOTH))).notes == ()


@pytest.mark.req("RP-017")
@pytest.mark.parametrize(
    ("code", "words"),
    [
        (
            "offline-miss",
            (
                "1 not looked up offline; list them in the file of --platforms-file, or have their registries "
                "asked without --offline"
            ),
        ),
        ("tenant-limit", "1 rate-limited; ask again later, or with credentials, which registries limit less"),
        ("ambiguous-manifest", "1 malformed; push what is malformed again"),
        ("unsupported-media-type", "1 unsupported"),
        ("tls", "1 with a certificate that is not trusted"),
        ("blocked", "1 not allowed to be asked for"),
        ("network", "1 unreachable"),
        ("unknown-host", "1 unreachable"),
    ],
)
def test_only_a_registry_that_gave_no_answer_is_unreachable(code: str, words: str) -> None:
    image = ImageRecord("quay.io/acme/x:1", Status.ERROR, code=code, host="quay.io")
    assert report_of(cluster(workload("w", image.image)), image).notes == (f"1 image could not be read: {words}",)


@pytest.mark.req("RP-017")
@pytest.mark.parametrize(
    ("host", "page"),
    [
        ("123456789012.dkr.ecr.cn-north-1.amazonaws.com.cn", "eks.md"),
        ("123456789012.dkr-ecr.eu-central-1.on.aws", "eks.md"),
        ("europe-west3-docker.pkg.dev", "gke.md"),
        ("eu.gcr.io", "gke.md"),
        ("shop.azurecr.io", "aks.md"),
        ("quay.io", "placement.md#private-registries"),
        ("gcr.io.example.com", "placement.md#private-registries"),
        ("registry.example.com:5000", "placement.md#private-registries"),
    ],
)
def test_the_cure_of_a_refused_image_is_the_page_of_its_cloud(host: str, page: str) -> None:
    refused = ImageRecord(f"{host}/a:1", Status.ERROR, code="denied", host=host, http_status=403)
    (note,) = report_of(cluster(workload("w", refused.image)), refused).notes
    assert note.endswith(f"/docs/guide/{page}")
