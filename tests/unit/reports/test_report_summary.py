"""The summary of a report fits into a ConfigMap, whatever names a cluster has."""

import json

import pytest
from report_world import BOTH, cluster, node, pod, reading, report_of, workload

from polyarch.objects import ObjectMeta
from polyarch.platforms import NodePlatform
from polyarch.reports.document import Report
from polyarch.reports.summary import LARGEST, MAX_WORKLOADS, says_the_same, summary_of, text_of
from polyarch.taints.api import ArchitectureTaints
from polyarch.tolerations import Taint


def blocked(images: int, *, each: int = 1, long: int = 0, targets: tuple[str, ...] = ("arm64",)) -> Report:
    """So many images that lack all targets; the last one holds back the most."""
    names = [f"quay.io/acme/{'x' * min(long, 200)}{number}:1" for number in range(images)]
    workloads = [
        workload(f"{'x' * long}w{number}-{copy}", image, cpu=(number + 1) * 1000)
        for number, image in enumerate(names)
        for copy in range(each)
    ]
    readings = (reading(name, "linux/amd64") for name in names)
    return report_of(cluster(*workloads), *readings, targets=tuple(NodePlatform("linux", each) for each in targets))


@pytest.mark.req("RP-030")
def test_the_fifty_heaviest_blockers_are_listed_and_all_are_counted() -> None:
    summary = summary_of(blocked(60))
    assert [each.image for each in summary.blockers] == [f"quay.io/acme/{number}:1" for number in range(59, 9, -1)]
    assert summary.blocker_count == 60
    assert [len(each.curve) for each in summary.sums] == [51]


@pytest.mark.req("RP-030")
def test_of_many_workloads_the_first_are_named_and_all_are_counted() -> None:
    [blocker] = summary_of(blocked(1, each=30)).blockers
    assert (len(blocker.workloads), blocker.workload_count) == (MAX_WORKLOADS, 30)


@pytest.mark.req("RP-030")
@pytest.mark.parametrize(
    ("long", "targets", "listed"),
    [
        (0, ("arm64",), 50),
        (240, ("arm64",), 50),
        (240, ("arm64", "s390x", "ppc64le", "riscv64"), 50),
        (4_000, ("arm64",), 5),
        (20_000, ("arm64",), 1),
    ],
)
def test_whatever_names_there_are_it_fits(long: int, targets: tuple[str, ...], listed: int) -> None:
    """The longest that an API server takes, and longer ones: what is cut is said."""
    summary = summary_of(blocked(60, each=12, long=long, targets=targets))
    assert len(text_of(summary).encode()) <= LARGEST
    assert [each.target for each in summary.sums] == list(targets)
    assert len(summary.blockers) == listed
    assert bool(summary.notes) == (listed < 50)


@pytest.mark.req("RP-030")
def test_platforms_of_nodes_without_end_leave_the_total() -> None:
    nodes = tuple(node(f"n{number}", f"arch{number}-{'x' * 200}") for number in range(300))
    report = report_of(cluster(workload("web", BOTH), nodes=nodes), targets=())
    summary = summary_of(report)
    assert len(text_of(summary).encode()) <= LARGEST
    assert (summary.sums, summary.weight.cores) == ((), 1.0)
    assert "do not fit" in summary.notes[0]


@pytest.mark.req("RP-030")
def test_equal_but_for_the_time_is_the_same() -> None:
    report = blocked(2)
    later = json.loads(text_of(summary_of(report)))
    later["source"]["takenAt"] = "2030-01-01T00:00:00Z"
    assert says_the_same(json.dumps(later), summary_of(report))
    assert not says_the_same(json.dumps(later), summary_of(blocked(3)))
    assert not says_the_same("", summary_of(report))
    assert not says_the_same("{}", summary_of(report))
    deep = text_of(summary_of(report)).rstrip().removesuffix("}") + ',"more":' + "[" * 200_000
    assert not says_the_same(deep, summary_of(report)), "it is written anew, whoever wrote what cannot be decoded"


@pytest.mark.req("RP-030")
def test_what_waits_for_a_toleration_is_in_the_summary() -> None:
    taint = Taint("supported-arch", "arm64", "NoSchedule")
    waiting = workload("w", BOTH, pods=(pod("w-1"),))
    facts = cluster(waiting, nodes=(node("m1", "arm64", taint),), taints=ArchitectureTaints(ObjectMeta(name="cluster")))
    summary = summary_of(report_of(facts))
    assert summary.taints is not None
    assert summary.taints.rows[0].count == 1
    assert summary_of(report_of(cluster(waiting))).taints is None


@pytest.mark.req("RP-030")
def test_the_text_has_lines() -> None:
    """``kubectl get configmap polyarch-report -o yaml`` shows them as they are."""
    assert len(text_of(summary_of(blocked(1))).splitlines()) > 40
