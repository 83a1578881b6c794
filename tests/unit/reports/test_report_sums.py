"""Blockers, the curve, groups, money, placement's outcome."""

import pytest
from report_world import (
    AMD64,
    ARM64,
    AWAY,
    BOTH,
    DATA,
    ONLY,
    OTHER,
    READINGS,
    cluster,
    node,
    pod,
    reading,
    report_of,
    workload,
)

from polyarch.objects import ObjectMeta
from polyarch.oci.inspection import Status
from polyarch.placement.api import ClusterPodPlacementConfig
from polyarch.reports.document import PartRow, Source
from polyarch.reports.facts import (
    ExecFormatError,
    ImageInspections,
    ImageRecord,
    NodeFact,
    PodFact,
    ReportFacts,
    RunningImage,
    WorkloadFact,
)
from polyarch.reports.sums import newer_tags, suggestions_of
from polyarch.taints.api import ArchitectureTaints
from polyarch.tolerations import Taint


@pytest.mark.req("RP-012", "RP-020")
@pytest.mark.parametrize(
    ("cpu", "replicas", "share", "noted"),
    [
        pytest.param(1000, 1, 0.5, False, id="as much as the other"),
        pytest.param(0, 1, 0.9, True, id="no CPU"),
        pytest.param(0, 9, 0.5, True, id="no CPU, often"),
        pytest.param(0, 0, 1, False, id="no CPU and no pod"),
    ],
)
def test_a_workload_that_requests_no_cpu_weighs_as_for_the_scheduler(cpu, replicas, share, noted) -> None:
    """A share of what requests CPU alone was 1 with half of the workloads unable to move."""
    ready = workload("ready", BOTH, cpu=1000 if cpu else 900)
    report = report_of(cluster(ready, workload("stuck", ONLY, cpu=cpu, replicas=replicas)))
    assert [each.ready_share for each in report.sums if each.target == "arm64"] == [share]
    assert any("requests no CPU" in note for note in report.notes) == noted


@pytest.mark.req("RP-012")
def test_images_are_ordered_by_what_they_hold_back_alone_then_together() -> None:
    facts = cluster(
        workload("small", ONLY, cpu=1000),
        workload("large", OTHER, cpu=3000),
        workload("both", ONLY, OTHER, cpu=9000),
        workload("pinned", ONLY, cpu=5000, nodeSelector={"kubernetes.io/arch": "amd64"}),
    )
    first, second = report_of(facts).blockers
    assert (first.image, first.alone.cores, first.together.cores) == (OTHER, 3.0, 9.0)
    assert (second.image, second.alone.cores, second.together.cores) == (ONLY, 1.0, 14.0)
    assert (second.alone.replicas, second.together.replicas) == (1, 2)
    assert second.workloads[0] == "shop/Deployment/small"
    assert first.platforms == ("amd64",)
    assert first.suggestion.message == f"publish {OTHER} for arm64"


@pytest.mark.req("RP-012")
def test_a_substitute_or_a_newer_tag_that_has_the_target_is_suggested() -> None:
    newer = "quay.io/acme/only:2"
    report = report_of(cluster(workload("a", ONLY), workload("b", OTHER)))
    known = ImageInspections((*READINGS, reading(newer, "linux/arm64")))
    found = suggestions_of(report.blockers, known, {OTHER: BOTH})
    assert found["arm64", ONLY].reference == newer
    assert (found["arm64", OTHER].kind, found["arm64", OTHER].reference) == ("substitute", BOTH)


@pytest.mark.req("RP-012")
def test_a_substitute_or_a_tag_without_the_target_is_not() -> None:
    report = report_of(cluster(workload("a", ONLY), workload("b", OTHER)))
    known = ImageInspections(
        (*READINGS, reading("quay.io/acme/only:2", "linux/amd64"), reading("quay.io/acme/only:0", "linux/arm64"))
    )
    assert suggestions_of(report.blockers, known, {OTHER: ONLY}) == {}


@pytest.mark.req("RP-012")
def test_what_one_namespace_was_told_counts_although_another_was_refused() -> None:
    newer = "quay.io/acme/only:2"
    report = report_of(cluster(workload("a", ONLY)))
    for told, refused in (("bank", "shop"), ("shop", "bank"), ("shop", ""), ("", "shop")):
        error = ImageRecord(newer, Status.ERROR, refused, code="unauthorized", host="quay.io")
        known = ImageInspections((*READINGS, reading(newer, "linux/arm64", namespace=told), error))
        assert suggestions_of(report.blockers, known, {})["arm64", ONLY].reference == newer


@pytest.mark.req("RP-012")
@pytest.mark.parametrize(
    ("tag", "tags", "newer"),
    [
        ("1.27.3", ["1.27.4", "1.27.9", "1.28.0", "1.29.1", "2.0.0", "1.26.9"], ("1.27.9", "1.29.1", "2.0.0")),
        ("1.27-alpine", ["1.28-alpine", "1.28", "1.29-debian"], ("1.28-alpine",)),
        ("v1", ["v2", "2", "v10"], ("v10",)),
        ("latest", ["2", "newest"], ()),
        ("1.2", ["1.2", "1.1"], ()),
    ],
)
def test_at_most_three_newer_tags_of_the_same_form(tag: str, tags: list[str], newer: tuple[str, ...]) -> None:
    assert newer_tags(tag, tags) == newer


@pytest.mark.req("RP-013")
def test_the_curve_says_how_many_images_for_how_much() -> None:
    facts = cluster(
        workload("ready", BOTH, cpu=1000),
        workload("pinned", BOTH, cpu=1000, nodeSelector={"kubernetes.io/arch": "amd64"}),
        workload("large", OTHER, cpu=3000),
        workload("both", ONLY, OTHER, cpu=5000),
    )
    (sums,) = report_of(facts).sums
    assert (sums.ready_share, sums.unconstrained_share) == (0.1, 0.2)
    assert [(point.images, point.image, point.share) for point in sums.curve] == [
        (0, "", 0.2), (1, OTHER, 0.5), (2, ONLY, 1.0),
    ]  # fmt: skip


@pytest.mark.req("RP-013")
def test_what_has_an_unknown_image_as_well_is_not_promised_by_the_curve() -> None:
    (sums,) = report_of(cluster(workload("one", ONLY), workload("unsure", ONLY, AWAY))).sums
    assert [(point.images, point.share) for point in sums.curve] == [(0, 0.0), (1, 0.5)]


@pytest.mark.req("RP-013")
def test_groups_by_namespace_team_and_pool() -> None:
    nodes = (node("a1", pool="old"), node("m1", "arm64", pool="new"))
    facts = cluster(
        workload("one", BOTH, labels={"team": "red"}, pods=(pod("one-1", "a1"), pod("one-2", "a1"), pod("x", "m1"))),
        workload("two", ONLY, namespace="bank", cpu=3000, labels={"team": "red"}),
        nodes=nodes,
    )
    report = report_of(facts, pool_label="pool")
    assert [(each.name, each.targets[0].ready_share) for each in report.namespaces] == [("bank", 0.0), ("shop", 1.0)]
    assert [(each.name, each.targets[0].ready_share) for each in report.teams] == [("red", 0.25)]
    assert (report.teams[0].weight.cores, report.teams[0].weight.replicas, report.teams[0].weight.pods) == (4.0, 2, 3)
    assert {each.name: each.workloads for each in report.pools} == {"old": 1, "": 1}


@pytest.mark.req("RP-013")
def test_the_heaviest_group_is_first() -> None:
    several = (("bank", 1000), ("shop", 5000), ("team", 1000), ("zoo", 9000))
    facts = cluster(*(workload("w", BOTH, namespace=each, cpu=cpu) for each, cpu in several))
    assert [each.name for each in report_of(facts).namespaces] == ["zoo", "shop", "bank", "team"]


@pytest.mark.req("RP-013")
def test_a_share_is_not_all_as_long_as_the_smallest_workload_is_missing() -> None:
    [sums] = report_of(cluster(workload("large", BOTH, cpu=99_999), workload("small", ONLY, cpu=1))).sums
    assert sums.ready_share == 0.9999
    assert [each.share for each in sums.curve] == [0.9999, 1.0]


@pytest.mark.req("RP-013")
def test_shares_are_of_replicas_if_nobody_requests_cpu() -> None:
    report = report_of(cluster(workload("a", BOTH, cpu=0, replicas=3), workload("b", ONLY, cpu=0, replicas=1)))
    assert (report.basis, report.sums[0].ready_share) == ("replicas", 0.75)
    assert "no workload requests CPU: shares are of replicas" in report.notes


@pytest.mark.req("RP-014")
def test_the_saving_is_an_estimate_with_its_formula_and_no_money_without_prices() -> None:
    ready = workload("ready", BOTH, cpu=2000, replicas=5, pods=(pod("ready-1", "a1"),))
    there = workload("there", BOTH, cpu=1000, pods=(pod("there-1", "m1"),))
    agent = workload("agent", BOTH, cpu=1000, kind="DaemonSet", pods=(pod("agent-1", "a1"),))
    facts = cluster(ready, there, agent)
    saving = report_of(facts, prices={"amd64": 0.04, "arm64": 0.03}).sums[0].saving
    assert saving is not None
    assert (saving.cores, saving.per_month) == (10.0, 73.0)
    assert saving.formula == "(10 cores from amd64 x (0.04 - 0.03)) x 730 hours a month"
    assert report_of(facts).sums[0].saving is None
    assert report_of(facts, prices={"amd64": 0.04}).sums[0].saving is None


@pytest.mark.req("RP-015")
def test_pods_by_reason_and_what_is_notable_with_five_names_at_most() -> None:
    pods = (
        *(pod(f"w-{at}", "a1", reason="ArchitecturesSet") for at in range(7)),
        pod("w-held", gated=True, reason="HeldByPolicy"),
        pod("w-fallback", "a1", reason="FallbackSet"),
        pod("w-free", "a1", reason="ReleasedUnconstrained"),
        pod("w-late"),
        pod("w-lost", "m1", reason="ArchitecturesSet"),
    )
    events = (ExecFormatError("shop/x", "2026-03-01T01:00:00Z"), ExecFormatError("shop/y", "2026-02-01T00:00:00Z"))
    facts = cluster(workload("w", ONLY, pods=pods), cppc=ClusterPodPlacementConfig(), exec_format_errors=events)
    running = "quay.io/acme/only@sha256:" + "1" * 64
    misplaced = workload("m", ONLY, pods=(pod("m-1", "m1", image_id=running), pod("m-2", "a1", image_id=running)))
    part = report_of(cluster(*facts.workloads, misplaced, cppc=facts.cppc, exec_format_errors=events)).placement
    assert part is not None
    by_reason = {each.what: each for each in part.reasons}
    assert by_reason["ArchitecturesSet"].count == 8
    assert len(by_reason["ArchitecturesSet"].names) == 5
    assert {each.what: each.names for each in part.notable} == {
        "Held": ("shop/w-held",),
        "Fallback": ("shop/w-fallback",),
        "ReleasedUnconstrained": ("shop/w-free",),
        "Unplaced": ("shop/w-late",),
        "Misplaced": ("shop/m-1",),
        "ExecFormatErrors": ("shop/x",),
    }


def notable(facts: ReportFacts, *readings: ImageRecord) -> dict[str, tuple[int, tuple[str, ...]]]:
    part = report_of(facts, *readings).placement
    return {each.what: (each.count, each.names) for each in part.notable} if part is not None else {}


@pytest.mark.req("RP-015")
def test_of_many_the_first_five_by_name_are_listed_and_all_are_counted() -> None:
    """The same names in every run, whatever order the API server lists pods in."""
    pods = tuple(pod(f"w-{at}", gated=True) for at in (3, 7, 1, 6, 2, 5, 4))
    # Another kind may list the same pod, as while a ReplicaSet changes hands: it is one pod.
    facts = cluster(workload("w", BOTH, pods=pods), workload("v", BOTH, pods=(pod("w-1", gated=True),)))
    assert notable(facts) == {"Held": (7, tuple(f"shop/w-{at}" for at in (1, 2, 3, 4, 5)))}


@pytest.mark.req("RP-015")
@pytest.mark.parametrize(
    "left_alone",
    [
        workload("w", BOTH, pods=(pod("w-1", "a1"),)),
        workload("w", BOTH, pods=(pod("w-1", gated=True),)),
        workload("w", BOTH, kind="DaemonSet", pods=(pod("w-1"),)),
        workload("w", BOTH, namespace="kube-system", pods=(pod("w-1"),)),
        workload("w", BOTH, pods=(pod("w-1", reason="ArchitecturesSet"),)),
    ],
    ids=["has a node", "is held", "of a DaemonSet", "excluded", "decided"],
)
def test_a_pod_that_placement_has_seen_or_leaves_alone_is_not_unplaced(left_alone: WorkloadFact) -> None:
    waiting = workload("late", BOTH, pods=(pod("late-1"),))
    found = notable(cluster(waiting, left_alone, cppc=ClusterPodPlacementConfig()))
    assert found["Unplaced"] == (1, ("shop/late-1",))


@pytest.mark.req("RP-015")
def test_after_placement_was_removed_its_records_are_told_and_nothing_is_expected_of_it() -> None:
    held, decided = pod("w-1", gated=True), pod("w-2", "a1", reason="FallbackSet")
    for pods, expected in (((held,), "Held"), ((decided,), "Fallback")):
        found = notable(cluster(workload("w", BOTH, pods=(*pods, pod("w-3")))))
        assert set(found) == {expected}, "w-3 waits for a node, and for nobody of ours"


@pytest.mark.req("RP-015")
def test_a_pod_of_several_containers_is_misplaced_once() -> None:
    reference = "quay.io/acme/only@sha256:" + "1" * 64
    running = tuple(RunningImage(name, reference) for name in ("main", "c1"))
    facts = cluster(workload("w", ONLY, OTHER, pods=(PodFact("w-1", "m1", running),)), cppc=ClusterPodPlacementConfig())
    assert notable(facts) == {"Misplaced": (1, ("shop/w-1",))}


@pytest.mark.req("RP-015")
@pytest.mark.parametrize(
    ("image", "reads", "misplaced"),
    [
        (BOTH, (reading("quay.io/acme/both@sha256:" + "9" * 64, "linux/amd64"),), True),
        (ONLY, (reading("quay.io/acme/only@sha256:" + "9" * 64, "linux/amd64", "linux/arm64"),), False),
        (AWAY, (), False),
        (BOTH, (ImageRecord("quay.io/acme/both@sha256:" + "9" * 64, Status.ERROR, code="network"),), False),
        (DATA, (), False),
    ],
    ids=["an older image", "a newer image", "nobody knows", "nobody knows what runs", "fits every platform"],
)
def test_what_a_pod_runs_decides_whether_it_is_misplaced(
    image: str, reads: tuple[ImageRecord, ...], misplaced: bool
) -> None:
    running = image.removesuffix(":1") + "@sha256:" + "9" * 64
    facts = cluster(workload("w", image, pods=(pod("w-1", "m1", image_id=running),)), cppc=ClusterPodPlacementConfig())
    assert ("Misplaced" in notable(facts, *reads)) == misplaced


@pytest.mark.req("RP-015")
@pytest.mark.parametrize(
    ("taken", "created", "counts"),
    [
        ("2026-03-02T00:00:00Z", "2026-03-01T00:00:00Z", True),
        ("2026-03-02T00:00:01Z", "2026-03-01T00:00:00Z", False),
        ("2026-03-02T00:00:00Z", "some day", True),
        ("", "2020-01-01T00:00:00Z", True),
    ],
    ids=["a day ago", "more than a day ago", "nobody knows when", "facts without a time"],
)
def test_errors_of_the_last_day_before_the_facts_were_read(taken: str, created: str, counts: bool) -> None:
    facts = cluster(
        workload("w", BOTH),
        cppc=ClusterPodPlacementConfig(),
        exec_format_errors=(ExecFormatError("shop/x", created),),
        source=Source("cluster", "https://example:6443", taken),
    )
    assert ("ExecFormatErrors" in notable(facts)) == counts


@pytest.mark.req("RP-016")
def test_parts_of_features_that_are_absent_are_left_out() -> None:
    report = report_of(cluster(workload("w", BOTH)))
    assert (report.placement, report.numa, report.taints, report.builds) == (None, None, None, None)


@pytest.mark.req("RP-016")
def test_pods_that_wait_for_a_toleration_and_what_numa_says() -> None:
    nodes = (node("m1", "arm64", Taint("supported-arch", "arm64", "NoSchedule")),)
    waiting = workload("w", BOTH, namespace="bank", pods=(pod("w-1"),))
    taints = ArchitectureTaints(ObjectMeta(name="cluster"))
    taints = type(taints)(taints.metadata, type(taints.spec)(state="paused"))
    report = report_of(cluster(waiting, nodes=nodes, taints=taints, numa=(PartRow("FreeZones", 2),)))
    assert report.taints is not None
    assert {each.what: (each.count, each.names) for each in report.taints.rows} == {
        "TaintedNodes": (1, ()),
        "WaitingPods": (1, ("bank/w-1",)),
    }
    assert report.numa is not None


@pytest.mark.req("RP-016")
def test_a_pod_that_another_taint_keeps_waiting_is_none_of_ours() -> None:
    """It may wait for its own reasons beside a taint of polyarch that it tolerates."""
    nodes = (node("m1", "arm64", Taint("example.com/gpu", "", "NoSchedule")),)
    waiting = workload("w", BOTH, pods=(pod("w-1"),))
    pinned = workload("p", BOTH, nodeSelector={"supported-arch": "no"}, pods=(pod("p-1"),))
    report = report_of(
        cluster(waiting, pinned, nodes=nodes, taints=ArchitectureTaints(ObjectMeta(name="cluster"))), targets=(ARM64,)
    )
    assert report.taints is not None
    assert {each.what: (each.count, each.names) for each in report.taints.rows}.get("WaitingPods", (0, ())) == (0, ())


@pytest.mark.req("RP-010")
def test_targets_are_those_of_the_nodes_and_arm64_unless_given() -> None:
    report = report_of(cluster(workload("w", BOTH), nodes=(node("a1"), node("s1", "s390x"))), targets=())
    assert report.targets == ("amd64", "arm64", "s390x")
    windows = NodeFact("w1", "windows", "amd64", {"kubernetes.io/os": "windows"}, (), 8000)
    mixed = report_of(cluster(workload("w", BOTH), nodes=(windows, node("s1", "s390x"))), targets=())
    assert mixed.targets == ("arm64", "s390x", "windows/amd64")
    assert report_of(cluster(workload("w", BOTH)), targets=(ARM64, AMD64, ARM64)).targets == ("arm64", "amd64")
