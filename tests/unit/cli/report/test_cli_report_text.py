"""What a terminal shows of a report."""

import re

import msgspec
import pytest
from report_world import AMD64, ARM64, AWAY, BOTH, ONLY, OTHER, cluster, pod, report_of, workload

from polyarch.cli.report.output import TextStyle, report_markdown, report_text
from polyarch.reports.document import Source
from polyarch.reports.page import html_page
from polyarch.reports.report import compare

LONG = "registry.example.com/some/path/to/an/image/with-a-long-name"
FACTS = cluster(
    workload("away", AWAY, namespace="a-namespace-with-a-long-name"),
    workload("pinned", BOTH, nodeSelector={"kubernetes.io/arch": "amd64", "example.com/disk": "fast"}),
    workload("several", ONLY, OTHER, cpu=12_000, replicas=40),
    workload("one", ONLY),
)


@pytest.mark.req("RP-020")
@pytest.mark.parametrize("width", [80, 120, 200])
def test_no_line_is_wider_than_the_terminal_and_nothing_is_left_out(width: int) -> None:
    report = report_of(FACTS, targets=(ARM64, AMD64), node_drift=True)
    plain = report_text(report)
    shown = re.sub(r"\x1b\[[0-9;]*m", "", report_text(report, TextStyle(colour=True, width=width)))
    assert max(map(len, shown.splitlines())) <= width < max(map(len, plain.splitlines()))
    words = set(re.sub(r"[-/:.,;()=\[\]]", " ", plain).split()) - {"the", "last", "six", "columns", "count"}
    assert words <= set(re.sub(r"[-/:.,;()=\[\]]", " ", shown).split())


@pytest.mark.req("RP-024")
def test_reports_of_different_targets_have_nothing_to_compare() -> None:
    report, former = report_of(FACTS, targets=(ARM64,)), report_of(FACTS, targets=(AMD64,))
    found = msgspec.structs.replace(report, comparison=compare(report, former))
    for shown in (report_text(found), report_markdown(found), html_page(found)):
        assert "it asks about no target of this report" in shown


@pytest.mark.req("RP-020")
def test_of_manifests_nothing_is_said_about_nodes() -> None:
    """None of the target is no finding where nobody has said what nodes there are."""
    facts = msgspec.structs.replace(FACTS, nodes=(), source=Source("files", "shop/"))
    for form in (report_text, report_markdown, html_page):
        said = ("NODES", "nodes", "RUN THERE", "runs there, ", "runs here")
        assert any(each in form(report_of(FACTS)) for each in said)
        shown = re.sub("<dl>.*?</dl>|<style>.*?</style>", "", form(report_of(facts)), flags=re.DOTALL)
        assert not [each for each in said if each in shown]


@pytest.mark.req("RP-020")
def test_without_workloads_that_is_said_and_no_empty_table_is_printed() -> None:
    report = report_of(cluster(workload("w", BOTH, namespace="kube-system")))
    for form in (report_text, report_markdown, html_page):
        shown = form(report)
        assert "there is no workload, or each is excluded" in shown
        assert "requests CPU" not in shown
    assert "could today" not in report_markdown(report)
    assert "## Namespaces" not in report_markdown(report)


@pytest.mark.req("RP-025")
def test_markdown_has_what_was_asked_for_besides() -> None:
    """``--diff-nodes`` and ``--by`` with ``-o markdown`` printed nothing more than without."""
    facts = cluster(
        workload("moved", ONLY, pods=(pod("moved-1", "m1"),)), workload("two", BOTH, pods=(pod("t", "a1"),))
    )
    wishes = {"node_drift": True, "pool_label": "kubernetes.io/hostname"}
    shown = report_markdown(report_of(facts, **wishes))
    assert "| m1 | arm64 | shop/moved-1 would not start on m1 again" in shown
    assert "## Node pools\n\n| kubernetes.io/hostname | Workloads" in shown
    assert "| a1 | 1 | 1 core | 100.0 % |" in shown
    still = report_markdown(report_of(cluster(workload("two", BOTH, pods=(pod("t", "a1"),))), **wishes))
    assert "Every pod could start again on its node." in still
