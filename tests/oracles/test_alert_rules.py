"""Every alert judged by promtool, which is Prometheus: when each fires, and when each does not.

An alert has series with which it fires and series with which it does not. From the same series follow the situations
that all alerts have in common: a moment of it, a second installation, more replicas, a scrape that fails.
"""

import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import yaml

from polyarch.operator.components.alerts import GROUPS, OURS
from polyarch.operator.monitoring import Alert
from polyarch.placement.names import CPPC_WEBHOOK, POD_WEBHOOK

HOME = "polyarch-system"
MINUTES = 90
ALERTS: Mapping[str, Alert] = {alert.name: alert for group in GROUPS for alert in group.alerts}

Series = dict[str, str]


def steady(value: float, minutes: int = MINUTES) -> str:
    return f"{value:g}x{minutes}"


def rising(per_minute: float, *, after: int = 0, first: float = 0) -> str:
    """A counter: ``first``, and from minute ``after`` on so much more in each minute."""
    return f"{first:g}x{after} {first + per_minute:g}+{per_minute:g}x{MINUTES - after - 1}"


def begins(value: float, at: int) -> str:
    """A series that is there from a minute on."""
    return f"_x{at} {value:g}x{MINUTES - at}"


class Case(NamedTuple):
    """``labels``: what an alert says besides its name and severity. Series are in the alert's own namespace unless they
    say another one. Both are looked at in the last minute."""

    firing: Series
    silent: Series
    labels: Mapping[str, str]


def available(deployment: str, job: str = "") -> Case:
    """A Deployment without pods; and one that is rolled out: both pods are away for a moment, then one is."""
    replicas = f'kube_deployment_status_replicas_available{{deployment="{deployment}"}}'
    scraped = f'up{{job="{job or deployment}", instance="a"}}'
    rolled = f"{steady(2, 40)} 0x2 {steady(1, 50)}"
    return Case({replicas: steady(0)}, {replicas: rolled, scraped: steady(1)}, {"deployment": deployment})


def level(metric: str, firing: float, silent: float, **labels: str) -> Case:
    """A gauge that is above a bound, and one that is not."""
    return Case({metric: steady(firing)}, {metric: steady(silent)}, labels)


def first_event(metric: str, **labels: str) -> Case:
    """A counter whose series begins with an event, and one that has long been there."""
    return Case({metric: begins(9, MINUTES - 6)}, {metric: steady(7)}, labels)


def of_tenant(metric: str, firing: float, silent: float) -> Case:
    shown = f'{metric}{{namespace="team"}}'
    return Case({shown: steady(firing)}, {shown: steady(silent)}, {"namespace": "team"})


def shares(metric: str, label: str, bad: str, good: str) -> Case:
    """Half of what is counted is bad; one in a hundred is, and before it everything was, of very few."""
    some, others = f'{metric}{{{label}="{bad}"}}', f'{metric}{{{label}="{good}"}}'
    return Case({some: rising(10), others: rising(10)}, {some: rising(1), others: rising(99)}, {})


LEADS = 'polyarch_leader{lease="operator-208d7abd.multiarch.openshift.io", instance="a"}'
CONDITION = 'polyarch_operator_condition{kind="ClusterPodPlacementConfig", type="%s", instance="a"}'
SECONDS = 'polyarch_admission_seconds_%s{job="pod-placement-web-hook", route="pods"%s}'
FAIL_OPEN = f'apiserver_admission_webhook_fail_open_count{{name="{POD_WEBHOOK}", namespace=""}}'
REJECTED = (
    f'apiserver_admission_webhook_rejection_count{{name="{CPPC_WEBHOOK}", error_type="%s", rejection_code="500", '
    'namespace=""}'
)
PASSES = 'polyarch_reconciles_total{job="polyarch-operator", controller="placement", result="%s"}'
REGISTRY = 'polyarch_registry_requests_total{job="pod-placement-controller", host="a", result="%s"}'
NODES = 'polyarch_numa_operator_group_nodes{group="worker", state="%s", instance="a"}'
OVERHEAD = "polyarch_build_overhead_seconds_%s"
UNAVAILABLE = 'kube_daemonset_status_number_unavailable{daemonset="enoexec-event-daemon"}'

CASES: Mapping[str, Case] = {
    "PolyarchOperatorDown": available("polyarch-operator"),
    "PolyarchDegraded": Case(
        {CONDITION % "Degraded": steady(1), LEADS: steady(1)},
        {CONDITION % "Degraded": steady(1), LEADS: steady(0), CONDITION.replace('"a"', '"b"') % "Degraded": steady(0)},
        {"kind": "ClusterPodPlacementConfig"},
    ),
    "PolyarchUnavailable": Case(
        {CONDITION % "Available": steady(0), LEADS: steady(1)},
        # A roll-out of ten minutes.
        {CONDITION % "Available": f"{steady(1, 70)} 0x10 {steady(1, 10)}", LEADS: steady(1)},
        {"kind": "ClusterPodPlacementConfig"},
    ),
    "PolyarchReconcileFailing": Case(
        {PASSES % "error": rising(1), PASSES % "done": steady(40)},
        {PASSES % "error": rising(1), PASSES % "done": rising(0.2)},
        {"job": "polyarch-operator", "controller": "placement"},
    ),
    "PolyarchLeaderMissing": Case(
        {LEADS: steady(0)},
        # The Lease changes hands.
        {LEADS: f"{steady(1, 60)} 0x30", LEADS.replace('"a"', '"b"'): f"0x62 {steady(1, 28)}"},
        {"lease": "operator-208d7abd.multiarch.openshift.io"},
    ),
    "PolyarchWatchBroken": level(
        'polyarch_watch_broken_seconds{job="polyarch-taints", resource="pods"}',
        900,
        45,
        job="polyarch-taints",
        resource="pods",
    ),
    "PolyarchQueueStuck": level(
        'workqueue_oldest_age_seconds{job="polyarch-builder", name="builds"}',
        900,
        45,
        job="polyarch-builder",
        name="builds",
    ),
    "PolyarchInternalErrors": Case(
        {'polyarch_internal_errors_total{job="polyarch-taints"}': f"{steady(0, 80)} 1x10"},
        # The process starts again: its counter does, too.
        {'polyarch_internal_errors_total{job="polyarch-taints"}': f"{steady(3, 75)} 0x15"},
        {"job": "polyarch-taints"},
    ),
    "PolyarchCertificateExpiring": level(
        'polyarch_certificate_expiry_seconds{job="polyarch-operator"}', 86400, 30 * 86400, job="polyarch-operator"
    ),
    "PolyarchAdmissionSlow": Case(
        {
            SECONDS % ("bucket", ', le="1.0"'): rising(20),
            SECONDS % ("bucket", ', le="5.0"'): rising(60),
            SECONDS % ("bucket", ', le="+Inf"'): rising(60),
            SECONDS % ("count", ""): rising(60),
        },
        # Slow, but two reviews in all.
        {
            SECONDS % ("bucket", ', le="1.0"'): steady(0),
            SECONDS % ("bucket", ', le="5.0"'): rising(0.2),
            SECONDS % ("bucket", ', le="+Inf"'): rising(0.2),
            SECONDS % ("count", ""): rising(0.2),
        },
        {"job": "pod-placement-web-hook", "route": "pods"},
    ),
    "PolyarchPodWebhookSkipped": Case(
        {FAIL_OPEN: rising(2)}, {FAIL_OPEN: f"{steady(4, 80)} 6x10"}, {"name": POD_WEBHOOK, "namespace": ""}
    ),
    "PolyarchResourceWebhookFailing": Case(
        {REJECTED % "calling_webhook_error": rising(1)},
        # It refuses what is wrong, as it should.
        {REJECTED % "no_error": rising(1)},
        {"name": CPPC_WEBHOOK, "namespace": ""},
    ),
    "PolyarchRegistriesUnreachable": Case(
        {REGISTRY % "connect": rising(2), REGISTRY % "503": rising(1)},
        {REGISTRY % "connect": rising(9), (REGISTRY % "401").replace('"a"', '"b"'): rising(0.2)},
        {"job": "pod-placement-controller"},
    ),
    "PolyarchNumaNodesSilent": Case(
        {NODES % "desired": steady(5), NODES % "ready": steady(3), LEADS: steady(1)},
        # Nodes join all the time, and each is ready after three minutes.
        {NODES % "desired": steady(5), NODES % "ready": "5x5 4x3 " * 10 + "5x10", LEADS: steady(1)},
        {"group": "worker"},
    ),
    "PodPlacementControllerDown": available("pod-placement-controller"),
    "PodPlacementWebhookDown": available("pod-placement-web-hook"),
    "PolyarchPodsGatedTooLong": of_tenant("polyarch_placement_oldest_gate_seconds", 3600, 130),
    "PolyarchPodsHeld": of_tenant("polyarch_placement_held_pods", 2, 0),
    "PolyarchPodsUnplaced": of_tenant("polyarch_placement_unplaced_pods", 2, 0),
    "PolyarchReviewsUnproven": Case(
        # Other pods of the cluster may post, too: one stranger beside the API server is none of an alert.
        {'polyarch_admission_reviews_total{route="pods", proven="false"}': rising(1)},
        {
            'polyarch_admission_reviews_total{route="pods", proven="false"}': rising(9),
            'polyarch_admission_reviews_total{route="pods", proven="true"}': rising(1),
        },
        {"route": "pods"},
    ),
    "PolyarchInspectionFailing": shares("polyarch_placement_attempts_total", "class", "transient", "success"),
    "PolyarchLookupsDropped": Case(
        {"polyarch_placement_lookups_dropped_total": rising(1)},
        # A burst.
        {"polyarch_placement_lookups_dropped_total": f"{steady(0, 60)} 400x30"},
        {},
    ),
    "PolyarchAdmissionFailing": shares("polyarch_webhook_admissions_total", "outcome", "unavailable", "inline"),
    "PolyarchFactsLeftOut": level('polyarch_placement_facts_left_out{resource="nodes"}', 1, 0, resource="nodes"),
    "ExecFormatErrorHandlerDown": available("enoexec-event-handler-controller"),
    "ExecFormatErrorDaemonDown": Case(
        # Nodes join all the time.
        {UNAVAILABLE: steady(2)},
        {UNAVAILABLE: "0x5 1x3 " * 10 + "1x5"},
        {"daemonset": "enoexec-event-daemon"},
    ),
    "ExecFormatErrorsDetected": first_event(
        'polyarch_exec_format_error_pods_total{namespace="team"}', namespace="team"
    ),
    "PolyarchTaintsDown": available("polyarch-taints"),
    "PolyarchTaintsDegraded": level("polyarch_taints_degraded", 1, 0),
    "PolyarchTaintsPodsGatedTooLong": of_tenant("polyarch_taints_oldest_gate_seconds", 3600, 130),
    "PolyarchNodesUntainted": Case(
        {
            'polyarch_taints_nodes{architecture="arm64", state="waiting", instance="a"}': steady(2),
            'polyarch_leader{lease="polyarch-taints", instance="a"}': steady(1),
        },
        # The former leader shows what it knew.
        {
            'polyarch_taints_nodes{architecture="arm64", state="waiting", instance="a"}': steady(2),
            'polyarch_leader{lease="polyarch-taints", instance="a"}': steady(0),
        },
        {"architecture": "arm64"},
    ),
    "PolyarchBuilderDown": available("polyarch-builder"),
    "PolyarchBuildFailed": first_event('polyarch_build_failures_total{namespace="team"}', namespace="team"),
    "PolyarchBuildWaitingForNode": Case(
        {'polyarch_build_waiting_for_node{arch="arm64"}': steady(1)},
        # Each build waits a moment.
        {'polyarch_build_waiting_for_node{arch="arm64"}': "1 0 " * 45},
        {"arch": "arm64"},
    ),
    "PolyarchBuildsQueued": level("polyarch_build_oldest_queued_seconds", 7200, 300),
    "PolyarchBuildOverhead": Case(
        {OVERHEAD % "count": rising(1), OVERHEAD % 'bucket{le="60.0"}': steady(0)},
        {OVERHEAD % "count": rising(1), OVERHEAD % 'bucket{le="60.0"}': rising(1)},
        {},
    ),
    "PolyarchBuildCleanupAbandoned": Case(
        {"polyarch_build_cleanups_abandoned_total": f"{steady(0, 60)} 1x30"},
        {"polyarch_build_cleanups_abandoned_total": f"{steady(3, 60)} 0x30"},
        {},
    ),
    "PolyarchNumaSchedulerDown": available("secondary-scheduler", "secondary-scheduler-metrics"),
    "PolyarchNumaReservationsUnsettled": level('polyarch_numa_unsettled_seconds{node="n"}', 900, 20, node="n"),
    "PolyarchNumaKubeletRejections": first_event('polyarch_numa_kubelet_rejections_total{node="n"}', node="n"),
    "PolyarchNumaMispredictions": first_event('polyarch_numa_mispredictions_total{node="n"}', node="n"),
}


class Check(NamedTuple):
    """One question to promtool. ``labels``: those of the one alert that there is to be; None: there is to be none."""

    name: str
    alert: str
    series: Series
    labels: Mapping[str, str] | None
    at: Iterable[int] = (MINUTES - 1,)
    """The minutes that it is asked about."""


def located(series: Mapping[str, str], namespace: str = HOME, **further: str) -> Series:
    """The series with the labels of what was scraped where they have none of their own."""

    def complete(selector: str) -> str:
        name, _, rest = selector.partition("{")
        labels = dict(re.findall(r'(\w+)="([^"]*)"', rest))
        labels = {"namespace": namespace, "pod": "a", "instance": "a"} | labels | further
        matchers = ", ".join(f'{label}="{value}"' for label, value in labels.items())
        return f"{name}{{{matchers}}}"

    return {complete(selector): values for selector, values in series.items()}


def expected(check: Check, at: int) -> dict[str, Any]:
    fired = []
    if check.labels is not None:
        alert = ALERTS[check.alert]
        labels = {"severity": alert.severity, "namespace": HOME, **check.labels}
        labels = {name: value for name, value in labels.items() if value}
        fired = [{"exp_labels": labels, "exp_annotations": annotations(alert)}]
    return {"eval_time": f"{at}m", "alertname": check.alert, "exp_alerts": fired}


def annotations(alert: Alert) -> dict[str, str]:
    """Those that say the same in every case."""
    return {"summary": alert.summary}


def judged(checks: Iterable[Check], promtool: str, folder: Path) -> None:
    """Runs all checks at once; what promtool says of those that fail is the failure.

    An alert has a file of its own, since every rule of a file is evaluated in each of its tests.
    """
    by_alert: dict[str, list[Check]] = {}
    for check in checks:
        by_alert.setdefault(check.alert, []).append(check)
    assert by_alert
    for name, several in by_alert.items():
        rule = ALERTS[name].document(HOME)
        rule["annotations"] = annotations(ALERTS[name])
        (folder / f"{name}.rules").write_text(yaml.safe_dump({"groups": [{"name": name, "rules": [rule]}]}))
        tests = [
            {
                "interval": "1m",
                "name": check.name,
                "input_series": [{"series": each, "values": values} for each, values in check.series.items()],
                "alert_rule_test": [expected(check, at) for at in check.at],
            }
            for check in several
        ]
        document = {"rule_files": [f"{name}.rules"], "evaluation_interval": "1m", "tests": tests}
        (folder / f"{name}.yaml").write_text(yaml.safe_dump(document, width=10_000))
    command = [promtool, "test", "rules", *(f"{name}.yaml" for name in by_alert)]
    run = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    told = [line for line in (run.stdout + run.stderr).splitlines() if line.strip() and "Unit Testing" not in line]
    assert run.returncode == 0, "\n".join(line for line in told if "SUCCESS" not in line)


Peer = Callable[[str], str]
TOLD = pytest.mark.req("PL-720", "TN-083", "BD-245", "NO-095")


@TOLD
def test_each_alert_has_a_case() -> None:
    assert CASES.keys() == ALERTS.keys()


@TOLD
def test_prometheus_takes_every_rule(peer: Peer, tmp_path: Path) -> None:
    for group in GROUPS:
        (tmp_path / f"{group.rule}.yaml").write_text(yaml.safe_dump(group.document(HOME)["spec"]))
    rules = [path.name for path in tmp_path.iterdir()]
    run = subprocess.run(
        [peer("promtool"), "check", "rules", *rules], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert run.returncode == 0, run.stdout + run.stderr


@TOLD
def test_each_alert_fires_once_and_says_whom_it_concerns(peer: Peer, tmp_path: Path) -> None:
    judged(
        (Check(name, name, located(case.firing), case.labels) for name, case in CASES.items()),
        peer("promtool"),
        tmp_path,
    )


@TOLD
def test_no_alert_fires_while_nothing_is_wrong(peer: Peer, tmp_path: Path) -> None:
    judged((Check(name, name, located(case.silent), None) for name, case in CASES.items()), peer("promtool"), tmp_path)


@TOLD
def test_no_alert_fires_in_the_first_minutes(peer: Peer, tmp_path: Path) -> None:
    """Of a roll-out, of a restart, of a new installation. Those that tell of an event tell of it at once."""
    waits = {alert.name: int(alert.lasting[:-1]) for alert in ALERTS.values()}
    judged(
        (
            Check(name, name, located(case.firing), None, at=[waits[name] - 1])
            for name, case in CASES.items()
            if waits[name] >= 5
        ),
        peer("promtool"),
        tmp_path,
    )


@TOLD
def test_no_alert_fires_for_another_installation(peer: Peer, tmp_path: Path) -> None:
    """Two of them in one Prometheus, apart by namespace; what is said of tenants' pods is apart by cluster."""
    judged(
        (
            Check(name, name, located(case.silent) | located(case.firing, "elsewhere"), None)
            for name, case in CASES.items()
            if OURS in ALERTS[name].expression
        ),
        peer("promtool"),
        tmp_path,
    )


@TOLD
def test_alerts_of_two_clusters_in_one_prometheus_are_two(peer: Peer, tmp_path: Path) -> None:
    """The label of the cluster survives in each that has something to count."""
    checks = [
        Check(
            name,
            name,
            located(case.firing, cluster="west") | located(case.silent, cluster="east"),
            {"cluster": "west", **case.labels},
        )
        for name, case in CASES.items()
    ]
    judged(checks, peer("promtool"), tmp_path)


@TOLD
def test_replicas_that_say_the_same_are_one_alert(peer: Peer, tmp_path: Path) -> None:
    judged(
        (
            Check(name, name, located(case.firing) | located(case.firing, pod="b", instance="b"), case.labels)
            for name, case in CASES.items()
        ),
        peer("promtool"),
        tmp_path,
    )


@TOLD
def test_a_scrape_that_fails_ends_no_alert(peer: Peer, tmp_path: Path) -> None:
    """Prometheus marks all series of that target as stale."""

    def failed(values: str) -> str:
        return f"{values} stale"

    judged(
        (
            Check(
                name,
                name,
                {each: failed(values) for each, values in located(case.firing).items()},
                case.labels,
                at=[MINUTES + 1],
            )
            for name, case in CASES.items()
        ),
        peer("promtool"),
        tmp_path,
    )


DOWN = sorted(name for name, alert in ALERTS.items() if "absent(" in alert.expression)


@TOLD
@pytest.mark.parametrize("name", DOWN)
def test_a_deployment_that_nobody_counts_is_told_of_unless_it_is_scraped(name: str, peer: Peer, tmp_path: Path) -> None:
    """It was deleted, or kube-state-metrics does not run."""
    case = CASES[name]
    scraped = {each: values for each, values in case.silent.items() if each.startswith("up")}
    away = {each: steady(0) for each in scraped}
    judged(
        [
            Check("nothing is known", name, {'up{job="x"}': steady(1)}, case.labels),
            Check("no pod answers", name, located(away), case.labels),
            Check("a pod answers", name, located(scraped), None),
        ],
        peer("promtool"),
        tmp_path,
    )


@TOLD
@pytest.mark.parametrize("name", DOWN)
def test_a_crash_loop_is_told_of(name: str, peer: Peer, tmp_path: Path) -> None:
    case = CASES[name]
    (replicas,) = case.firing
    looping = {replicas: "0 1 " * (MINUTES // 2)}
    judged([Check("it comes and goes", name, located(looping), case.labels)], peer("promtool"), tmp_path)


@TOLD
def test_a_gap_of_scrapes_makes_no_old_event_new(peer: Peer, tmp_path: Path) -> None:
    """A counter that has been there for long was not scraped for ten minutes, where the window of the alert begins."""
    checks = []
    for name, window in (
        ("ExecFormatErrorsDetected", 30),
        ("PolyarchBuildFailed", 15),
        ("PolyarchNumaKubeletRejections", 30),
        ("PolyarchNumaMispredictions", 60),
    ):
        (counter,) = CASES[name].firing
        before = MINUTES - window - 6
        values = f"{steady(7, before)} stale _x10 {steady(7, window - 5)}"
        checks.append(Check(name, name, located({counter: values}), None, at=range(window + 1, MINUTES)))
    judged(checks, peer("promtool"), tmp_path)


@TOLD
def test_promtool_would_tell_of_an_alert_that_does_not_fire(peer: Peer, tmp_path: Path) -> None:
    """The tests above could fail."""
    case = CASES["PolyarchTaintsDegraded"]
    with pytest.raises(AssertionError, match="FAILED"):
        judged([Check("x", "PolyarchTaintsDegraded", located(case.silent), case.labels)], peer("promtool"), tmp_path)


@TOLD
@pytest.mark.parametrize("alert", ALERTS.values(), ids=lambda alert: alert.name)
def test_a_description_names_labels_that_the_alert_has(alert: Alert) -> None:
    named = set(re.findall(r"\$labels\.(\w+)", alert.description))
    assert named <= CASES[alert.name].labels.keys()


# -- commands of runbooks ----------------------------------------------------------------------------------------------


RUNBOOKS = Path(__file__).parents[2] / "docs" / "guide" / "runbooks"
COMMAND = re.compile(r"^ {4}(\S.*)$", re.MULTILINE)
NOT_TAKEN = re.compile(
    r"unknown (command|flag|shorthand)|[Uu]sage:|error: (invalid|required|expected|must|unable to parse)"
)


@TOLD
@pytest.mark.parametrize("name", ALERTS)
def test_a_runbook_ends_with_a_command_to_paste_and_all_its_commands_are_taken(name: str, peer: Peer) -> None:
    """By kubectl, which then finds no API server, and by our own command's help."""
    text = (RUNBOOKS / f"{name}.md").read_text()
    commands = COMMAND.findall(text)
    assert text.rstrip("\n").endswith(commands[-1])
    assert not re.search(r"\b[A-Z]{3,}\b", re.sub(r"custom-columns=\S+", "", commands[-1])), (
        "nothing has to be filled in"
    )
    for command in commands:
        first, *others = (shlex.split(part) for part in command.split(" | "))
        assert all(shutil.which(words[0]) for words in others)
        if first[0] == "kubectl":
            # Words after the sub-command are taken as they are; a cluster would tell of those.
            words = [peer("kubectl"), "--kubeconfig=/dev/null", "--server=http://127.0.0.1:9", *first[1:]]
            run = subprocess.run(words, capture_output=True, text=True, check=False, timeout=60)
            assert not NOT_TAKEN.search(run.stderr), f"{command}: {run.stderr}"
        else:
            assert first[0] == "polyarch"
            plain = [word for word in first[1:] if word.islower() and not word.startswith("-")]
            words = [sys.executable, "-m", "polyarch", *plain, "--help"]
            run = subprocess.run(words, capture_output=True, text=True, check=False, timeout=60)
            assert run.returncode == 0, f"{command}: {run.stdout}{run.stderr}"
            assert all(word.partition("=")[0] in run.stdout for word in first if word.startswith("-"))
