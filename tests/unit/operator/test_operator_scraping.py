"""Alerts, runbooks and dashboards of all features: every expression is PromQL over metrics that a role exports."""

import json
import re
from pathlib import Path

import promql_parser
import pytest

from polyarch.builds import names as build_names
from polyarch.builds.metrics import BUILD_SECONDS
from polyarch.numa.names import SCHEDULER
from polyarch.operator.components.alerts import GROUPS, LONG_OVERHEAD
from polyarch.operator.components.dashboards import (
    BUILDS_DASHBOARD,
    NUMA_DASHBOARD,
    PLACEMENT_DASHBOARD,
    TAINTS_DASHBOARD,
)
from polyarch.operator.owned_objects import labels
from polyarch.placement import names
from polyarch.taints import names as taint_names

ROOT = Path(__file__).parents[3]
RUNBOOKS = ROOT / "docs" / "guide" / "runbooks"
ALERTS = tuple(alert for group in GROUPS for alert in group.alerts)
DASHBOARDS = (PLACEMENT_DASHBOARD, TAINTS_DASHBOARD, BUILDS_DASHBOARD, NUMA_DASHBOARD)
ROWS = tuple(row for each in DASHBOARDS for row in each.rows)
OF_TARGETS = {"job", "namespace", "pod", "instance", "service", "cluster"}
"""Labels that Prometheus adds to what it scrapes."""
OF_KUBERNETES = {
    "kube_deployment_status_replicas_available": {"namespace", "deployment", "cluster"},
    "kube_daemonset_status_number_unavailable": {"namespace", "daemonset", "cluster"},
    "apiserver_admission_webhook_fail_open_count": {"name", "cluster"},
    "apiserver_admission_webhook_rejection_count": {"name", "error_type", "cluster"},
    "up": OF_TARGETS,
}
"""Of kube-state-metrics, of the API server and of Prometheus, with their labels."""
OF_PROCESS = dict.fromkeys(("process_cpu_seconds_total", "process_resident_memory_bytes"), OF_TARGETS)
"""Of the client library."""


def exported() -> dict[str, set[str]]:
    """Samples that roles export, with their labels: what the page of metrics says, which is made from the code."""
    rows = re.findall(
        r"^\| `(\w+)` \| (\w+) \| (.*?) \|", (ROOT / "docs" / "guide" / "metrics.md").read_text(), re.MULTILINE
    )
    found = {}
    for name, kind, labels_ in rows:
        own = {*re.findall(r"`(\w+)`", labels_), *OF_TARGETS}
        suffixes = ("_bucket", "_sum", "_count") if kind == "histogram" else ("",)
        found |= {name + suffix: own | ({"le"} if suffix == "_bucket" else set()) for suffix in suffixes}
    return found


class Reading:
    """Visits an expression: metrics with the labels they are selected and grouped by, and all that are grouped by."""

    def __init__(self, expression: str) -> None:
        self.metrics: dict[str, set[str]] = {}
        self.grouped: set[str] = set()
        tree = promql_parser.parse(expression.replace("$__rate_interval", "5m"))
        promql_parser.walk(tree, self.visit)

    def visit(self, node: object) -> None:
        selector = getattr(node, "vector_selector", node)
        if isinstance(selector, promql_parser.VectorSelector):
            matched = {matcher.name for matcher in selector.matchers.matchers}
            self.metrics.setdefault(selector.name, set()).update(matched)
        if isinstance(node, promql_parser.AggregateExpr) and node.modifier is not None:
            self.grouped |= set(node.modifier.labels)
            for metric in sources(node.expr):
                self.metrics.setdefault(metric, set()).update(node.modifier.labels)


def sources(tree: object) -> list[str]:
    """The metrics whose labels an expression has: not those that it only compares with."""
    if isinstance(tree, promql_parser.BinaryExpr):
        return sources(tree.lhs) + (sources(tree.rhs) if str(tree.op) == "or" else [])
    if isinstance(tree, promql_parser.Call):
        return [name for argument in tree.args for name in sources(argument)]
    if isinstance(tree, promql_parser.VectorSelector):
        return [tree.name]
    inner = getattr(tree, "vector_selector", getattr(tree, "expr", None))
    return sources(inner) if inner is not None else []


EXPORTED = exported()
QUERIES = [
    *((alert.name, alert.expression) for alert in ALERTS),
    *((panel.title, query.expression) for row in ROWS for panel in row.panels for query in panel.queries),
]


@pytest.mark.req("PL-720", "PL-721")
@pytest.mark.parametrize(
    ("where", "expression"), QUERIES, ids=[f"{number}-{where}" for number, (where, _) in enumerate(QUERIES)]
)
def test_every_query_asks_for_metrics_and_labels_that_exist(where, expression):
    """A misspelt metric is an alert that never fires and a graph that stays empty."""
    known = EXPORTED | OF_PROCESS | OF_KUBERNETES
    reading = Reading(expression)
    assert reading.metrics
    for metric, matched in reading.metrics.items():
        assert metric in known, f"{where}: no role exports {metric}"
        assert matched <= known[metric], f"{where}: {metric} has no such label"


@pytest.mark.parametrize("wrong", ["sum(rate(x[5m])", "rate(x)", "x >> 1"])
def test_the_parser_would_refuse_a_broken_query(wrong):
    """The test above could fail."""
    with pytest.raises(ValueError, match=r"\w"):
        promql_parser.parse(wrong)


@pytest.mark.req("BD-245")
def test_an_overhead_above_a_minute_is_told():
    """By a bound that the histogram has; without it the query would find nothing."""
    (slow,) = [alert for alert in ALERTS if "overhead" in alert.expression]
    assert LONG_OVERHEAD == 60
    assert 'le="60.0"' in slow.expression
    assert float(LONG_OVERHEAD) in BUILD_SECONDS


@pytest.mark.req("PL-720")
def test_an_alert_asks_about_the_namespace_it_is_made_for():
    rule = ALERTS[0].document("ours")
    assert "$NAMESPACE" in ALERTS[0].expression
    assert "$NAMESPACE" not in str(rule)
    assert 'namespace="ours"' in rule["expr"]


@pytest.mark.req("PL-720")
def test_only_what_concerns_every_namespace_is_critical():
    """What one tenant can set off wakes nobody."""
    critical = {alert.name for alert in ALERTS if alert.severity == "critical"}
    assert critical == {"PodPlacementControllerDown", "PolyarchNumaSchedulerDown"}


@pytest.mark.req("PL-720")
@pytest.mark.parametrize("alert", ALERTS, ids=lambda alert: alert.name)
def test_every_alert_has_a_runbook_of_its_name(alert):
    """What it means, how to see it, what to do; short enough for three in the morning."""
    lines = (RUNBOOKS / f"{alert.name}.md").read_text().splitlines()
    assert lines[0] == f"# {alert.name}"
    assert len(lines) <= 30
    for heading in ("## What it means", "## How to see it", "## What to do", "## Is it over"):
        assert heading in lines


@pytest.mark.req("PL-720")
def test_no_runbook_is_of_an_alert_that_is_gone():
    assert {path.stem for path in RUNBOOKS.glob("*.md")} == {"README", *(alert.name for alert in ALERTS)}


@pytest.mark.req("PL-720")
def test_the_list_of_runbooks_says_each_alert_with_its_severity():
    listed = (RUNBOOKS / "README.md").read_text()
    for alert in ALERTS:
        assert f"| [{alert.name}]({alert.name}.md) | {alert.severity} |" in listed


PAGES = sorted(RUNBOOKS.glob("*.md"))


def anchors(page: Path) -> set[str]:
    """Of the headings of a page, as GitHub makes them."""
    headings = re.findall(r"^#+ (.+)$", page.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.req("IN-041", "PL-720")
@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_links_of_a_runbook_lead_somewhere(page):
    """At three in the morning."""
    for target, _, anchor in (link.partition("#") for link in re.findall(r"\]\(([^)]+)\)", page.read_text())):
        file = (page.parent / target).resolve()
        assert file.is_file(), target
        assert not anchor or anchor in anchors(file), f"{target} has no section {anchor}"


@pytest.mark.req("IN-041", "PL-720")
@pytest.mark.parametrize("alert", ALERTS, ids=lambda alert: alert.name)
def test_commands_of_a_runbook_name_what_exists(alert):
    """Deployments, labels, Events, panels."""
    text = (RUNBOOKS / f"{alert.name}.md").read_text()
    workloads = {
        names.CONTROLLER,
        names.WEBHOOK,
        names.ENOEXEC_HANDLER,
        names.ENOEXEC_DAEMON,
        names.OPERATOR,
        taint_names.ROLE,
        build_names.ROLE,
        SCHEDULER,
    }
    assert set(re.findall(r"(?:controller=|deploy[/ ])([a-z][a-z-]+)", text)) <= workloads
    features = (ROOT / "src" / "polyarch" / feature for feature in ("placement", "taints", "builds", "numa"))
    code = "".join(path.read_text() for feature in features for path in feature.rglob("*.py"))
    for reason in re.findall(r"reason=(\w+)", text):
        assert f'"{reason}"' in code
    shown = {panel.title for row in ROWS for panel in row.panels}
    for line in re.findall(r"^Dashboard: .+$", text, re.MULTILINE):
        assert set(re.findall(r"\*([^*]+)\*", line)) <= shown


@pytest.mark.req("PL-721")
@pytest.mark.parametrize("dashboard", DASHBOARDS, ids=lambda dashboard: dashboard.name)
def test_panels_do_not_overlap_and_fill_the_width(dashboard):
    taken: dict[tuple[int, int], str] = {}
    for panel in dashboard.document()["panels"]:
        at = panel["gridPos"]
        assert at["x"] + at["w"] <= 24
        for x in range(at["x"], at["x"] + at["w"]):
            for y in range(at["y"], at["y"] + at["h"]):
                assert (x, y) not in taken, f"{panel['title']} lies over {taken.get((x, y))}"
                taken[x, y] = panel["title"]
    ids = [panel["id"] for panel in dashboard.document()["panels"]]
    assert len(ids) == len(set(ids))


@pytest.mark.req("PL-721")
def test_legends_name_labels_that_their_query_leaves():
    """A legend of a label that was summed away is empty."""
    for row in ROWS:
        for panel in row.panels:
            for query in panel.queries:
                named = {part.split("}}")[0] for part in query.legend.split("{{")[1:]}
                assert named <= Reading(query.expression).grouped | (
                    {"pod"} if " by (" not in query.expression else set()
                )


@pytest.mark.req("IN-010", "PL-721", "TN-083")
@pytest.mark.parametrize("dashboard", DASHBOARDS, ids=lambda dashboard: dashboard.name)
def test_the_shipped_file_is_the_dashboard_and_grafana_finds_it_by_its_label(dashboard):
    shipped = (ROOT / "deploy" / "dashboard" / f"{dashboard.name}.json").read_text()
    assert json.loads(shipped) == dashboard.document()
    found = dashboard.config_map("ours")
    assert found["data"] == {f"{dashboard.name}.json": shipped}
    assert found["metadata"]["labels"] == labels(names.OPERATOR) | {"grafana_dashboard": "1"}
