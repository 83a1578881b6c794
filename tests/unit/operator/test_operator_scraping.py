"""Alerts, runbooks and dashboards of all features: every expression is PromQL over metrics that a role exports."""

import json
import re
from pathlib import Path

import promql_parser
import pytest

from polyarch.builds import names as build_names
from polyarch.builds.metrics import BUILD_SECONDS, BuildMetrics
from polyarch.clock import SystemClock
from polyarch.images.metrics import LookupMetrics
from polyarch.kube.certificates import FileCertificates
from polyarch.kube.events import Recorder
from polyarch.kube.informer import InformerFactory
from polyarch.kube.metrics import Metrics, QueueMetrics, RequestMetrics
from polyarch.numa.extender.metrics import ExtenderMetrics
from polyarch.objects import Condition
from polyarch.operator.components import alerts
from polyarch.operator.components.alerts import BUILDS_ALERTS as BUILD_ALERTS
from polyarch.operator.components.alerts import LONG_OVERHEAD, NUMA_ALERTS, SCHEDULER_ALERTS
from polyarch.operator.components.alerts import TAINTS_ALERTS as TAINT_ALERTS
from polyarch.operator.components.dashboards import (
    BUILDS_DASHBOARD,
    NUMA_DASHBOARD,
    PLACEMENT_DASHBOARD,
    TAINTS_DASHBOARD,
)
from polyarch.operator.components.numa_cluster import NumaMetrics
from polyarch.operator.owned_objects import labels
from polyarch.placement import names
from polyarch.placement.metrics import PlacementMetrics
from polyarch.run.registries import registry_metrics
from polyarch.run.report_controller import ReportMetrics
from polyarch.taints import names as taint_names
from polyarch.taints.metrics import TaintMetrics

ROOT = Path(__file__).parents[3]
RUNBOOKS = ROOT / "docs" / "guide" / "runbooks"
ALERTS = (*alerts.PLACEMENT_ALERTS, *TAINT_ALERTS, *BUILD_ALERTS, *NUMA_ALERTS, *SCHEDULER_ALERTS)
DASHBOARDS = (PLACEMENT_DASHBOARD, TAINTS_DASHBOARD, BUILDS_DASHBOARD, NUMA_DASHBOARD)
ROWS = tuple(row for each in DASHBOARDS for row in each.rows)
OF_TARGETS = {"job", "namespace", "pod", "instance", "service"}
"""Labels that Prometheus adds to what it scrapes."""
OF_KUBERNETES = {
    "kube_deployment_status_replicas_available": {"namespace", "deployment"},
    "kube_daemonset_status_number_unavailable": {"namespace", "daemonset"},
}
"""Of kube-state-metrics, with their labels."""


def exported(folder: str) -> dict[str, set[str]]:
    """Samples that a role exports from its first scrape on, with their labels."""
    metrics = Metrics(process=True)
    PlacementMetrics(metrics, LookupMetrics(metrics))
    ReportMetrics(metrics)
    TaintMetrics(metrics)
    BuildMetrics(metrics)
    numa = NumaMetrics(metrics)
    numa.nodes({"any": (0, 0)})
    numa.conditions("any", [Condition("Degraded", "False", "AsExpected")])
    extender = ExtenderMetrics(metrics)
    extender.ask_reservations(lambda _: 0)
    registry_metrics(metrics)
    RequestMetrics(metrics)
    QueueMetrics(metrics, "pods", depth=lambda: 0, oldest_age=lambda: 0)
    clock = SystemClock()
    FileCertificates(folder, clock=clock, metrics=metrics)
    InformerFactory(object(), clock=clock, metrics=metrics)
    Recorder(object(), controller="any", instance="any", clock=clock, metrics=metrics)
    found = {}
    for collector in {*metrics.registry._collector_to_names}:
        own = {*getattr(collector, "_labelnames", ()), *OF_TARGETS}
        for family in collector.collect():
            suffixes = {"counter": ("_total",), "histogram": ("_bucket", "_sum", "_count")}.get(family.type, ("",))
            found |= {family.name + suffix: own | ({"le"} if suffix == "_bucket" else set()) for suffix in suffixes}
    return found


class Reading:
    """Visits an expression: the metrics with the labels they are selected by, and all labels that are grouped by."""

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


QUERIES = [
    *((alert.name, alert.expression) for alert in ALERTS),
    *((panel.title, query.expression) for row in ROWS for panel in row.panels for query in panel.queries),
]


@pytest.mark.req("PL-720", "PL-721")
@pytest.mark.parametrize(
    ("where", "expression"), QUERIES, ids=[f"{number}-{where}" for number, (where, _) in enumerate(QUERIES)]
)
def test_every_query_asks_for_metrics_and_labels_that_exist(where, expression, tmp_path):
    """A misspelt metric is an alert that never fires and a graph that stays empty."""
    known = exported(str(tmp_path)) | OF_KUBERNETES
    reading = Reading(expression)
    assert reading.metrics
    for metric, matched in reading.metrics.items():
        assert metric in known, f"{where}: no role exports {metric}"
        assert matched <= known[metric], f"{where}: {metric} has no such label"
        assert reading.grouped <= known[metric], f"{where}: {metric} cannot be grouped by {reading.grouped}"


@pytest.mark.parametrize("wrong", ["sum(rate(x[5m])", "rate(x)", "x >> 1"])
def test_the_parser_would_refuse_a_broken_query(wrong):
    """The test above could fail."""
    with pytest.raises(ValueError, match=r"\w"):
        promql_parser.parse(wrong)


@pytest.mark.req("PL-720")
def test_the_alerts_are_those_that_are_known_with_their_severity_and_delay():
    assert {alert.name: (alert.lasting, alert.severity) for alert in ALERTS} == {
        "PodPlacementControllerDown": ("1m", "critical"),
        "PodPlacementWebhookDown": ("5m", "warning"),
        "ExecFormatErrorHandlerDown": ("1m", "critical"),
        "ExecFormatErrorDaemonDown": ("20m", "warning"),
        "ExecFormatErrorsDetected": ("1m", "critical"),
        "PolyarchPodsHeld": ("10m", "warning"),
        "PolyarchPodsGatedTooLong": ("10m", "warning"),
        "PolyarchInspectionFailing": ("10m", "warning"),
        "PolyarchPodsUnplaced": ("15m", "warning"),
        "PolyarchCertificateExpiring": ("10m", "warning"),
        "PolyarchTaintsDown": ("5m", "warning"),
        "PolyarchTaintsDegraded": ("5m", "warning"),
        "PolyarchTaintsPodsGatedTooLong": ("1m", "warning"),
        "PolyarchNodesUntainted": ("5m", "warning"),
        "PolyarchBuilderDown": ("5m", "warning"),
        "PolyarchBuildFailed": ("0m", "warning"),
        "PolyarchBuildWaitingForNode": ("15m", "warning"),
        "PolyarchBuildOverhead": ("0m", "warning"),
        "PolyarchBuildCleanupAbandoned": ("0m", "warning"),
        "PolyarchNumaDegraded": ("5m", "warning"),
        "PolyarchNumaNodesSilent": ("15m", "warning"),
        "PolyarchNumaSchedulerDown": ("5m", "critical"),
        "PolyarchNumaReservationsUnsettled": ("5m", "warning"),
        "PolyarchNumaKubeletRejections": ("1m", "warning"),
        "PolyarchNumaMispredictions": ("1m", "warning"),
    }


@pytest.mark.req("NO-095")
@pytest.mark.parametrize("alert", [each for each in SCHEDULER_ALERTS if "increase(" in each.expression])
def test_the_first_event_of_a_node_is_told(alert):
    """A node has a series from its first event on, and of a series that begins there is no increase yet. A
    kubelet that refuses one pod in half an hour would never be heard of."""
    (counter,) = set(re.findall(r"increase\((\w+)\[", alert.expression))
    metrics = Metrics()
    ExtenderMetrics(metrics)
    assert f"{counter}{{" not in metrics.render()[0].decode(), "the series is not there from the start"
    assert f"({counter} unless {counter} offset " in alert.expression


@pytest.mark.req("TN-083")
def test_a_gate_of_ten_minutes_is_told():
    (gated,) = [alert for alert in TAINT_ALERTS if "oldest_gate" in alert.expression]
    assert gated.expression.endswith("> 600")


@pytest.mark.req("BD-245")
def test_an_overhead_above_a_minute_is_told():
    """By a bound that the histogram has; without it the query would find nothing."""
    (slow,) = [alert for alert in BUILD_ALERTS if "overhead" in alert.expression]
    assert LONG_OVERHEAD == 60
    assert 'le="60.0"' in slow.expression
    assert float(LONG_OVERHEAD) in BUILD_SECONDS


@pytest.mark.req("PL-002", "PL-630", "PL-720")
def test_the_rules_of_the_monitor_exist_only_with_it():
    """One name and one list, so that disabling the monitor leaves no rule."""

    def made(monitor):
        return {
            document["metadata"]["name"]: [rule["alert"] for rule in document["spec"]["groups"][0]["rules"]]
            for document in alerts.prometheus_rules("ours", monitor=monitor)
        }

    assert list(made(False)) == ["multiarch-tuning-operator"]
    assert list(made(True)) == list(names.PROMETHEUS_RULES)
    assert made(True)["execformaterrormonitor"] == ["ExecFormatErrorHandlerDown", "ExecFormatErrorDaemonDown"]
    assert made(True)["execformaterrorsdetected"] == ["ExecFormatErrorsDetected"]


@pytest.mark.req("PL-720")
def test_an_alert_asks_about_the_namespace_it_is_made_for():
    rules = alerts.prometheus_rules("ours", monitor=True)
    assert "$NAMESPACE" not in str(rules)
    (down,) = [
        rule
        for document in rules
        for rule in document["spec"]["groups"][0]["rules"]
        if rule["alert"] == "PodPlacementControllerDown"
    ]
    assert down["expr"] == (
        'kube_deployment_status_replicas_available{namespace="ours",deployment="pod-placement-controller"} == 0'
    )
    assert down["annotations"]["runbook_url"].endswith("/docs/guide/runbooks/PodPlacementControllerDown.md")


@pytest.mark.req("PL-720")
@pytest.mark.parametrize("alert", ALERTS, ids=lambda alert: alert.name)
def test_every_alert_has_a_runbook_of_its_name(alert):
    """What it means, how to see it, what to do; short enough for three in the morning."""
    lines = (RUNBOOKS / f"{alert.name}.md").read_text().splitlines()
    assert lines[0] == f"# {alert.name}"
    assert len(lines) <= 25
    for heading in ("## What it means", "## How to see it", "## What to do"):
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
