"""The alerts of all components."""

from typing import Final

from polyarch.builds import names as builds_names
from polyarch.numa.names import SCHEDULER
from polyarch.operator.monitoring import Alert, none_available, prometheus_rule
from polyarch.operator.owned_objects import Document
from polyarch.placement import names as placement_names
from polyarch.taints import names as taints_names

# -- placement ---------------------------------------------------------------------------------------------------------


PLACEMENT: Final = (
    Alert(
        name="PodPlacementControllerDown",
        expression=none_available(placement_names.CONTROLLER),
        lasting="1m",
        severity="critical",
        summary="No pod placement controller is available",
        description="Gated pods stay pending until a controller is back; pods with known images are still placed.",
    ),
    Alert(
        name="PodPlacementWebhookDown",
        expression=none_available(placement_names.WEBHOOK),
        lasting="5m",
        severity="warning",
        summary="No pod placement webhook is available",
        description="New pods are created without placement: nothing keeps them off nodes their images cannot run on.",
    ),
    Alert(
        name="PolyarchPodsHeld",
        expression="max(polyarch_placement_held_pods) > 0",
        lasting="10m",
        severity="warning",
        summary="Pods are held because their images cannot be read",
        description="{{ $value }} pods wait behind the scheduling gate, as the PlacementPolicy asks for (action hold).",
    ),
    Alert(
        name="PolyarchPodsGatedTooLong",
        expression="histogram_quantile(0.99, sum by (le) (rate(polyarch_placement_gate_seconds_bucket[10m]))) > 60",
        lasting="10m",
        severity="warning",
        summary="Pods wait long behind the scheduling gate",
        description="One pod in a hundred waited longer than {{ $value | humanizeDuration }} to be released.",
    ),
    Alert(
        name="PolyarchInspectionFailing",
        expression=(
            'sum(rate(polyarch_placement_attempts_total{class!="success"}[10m])) '
            "/ sum(rate(polyarch_placement_attempts_total[10m])) > 0.2"
        ),
        lasting="10m",
        severity="warning",
        summary="Image inspections fail",
        description="{{ $value | humanizePercentage }} of the attempts to read an image from its registry failed.",
    ),
    Alert(
        name="PolyarchPodsUnplaced",
        expression="sum by (namespace) (polyarch_placement_unplaced_pods) > 0",
        lasting="15m",
        severity="warning",
        summary="Pods were created past the webhook",
        description="{{ $value }} pending pods of namespace {{ $labels.namespace }} have no architecture constraint.",
    ),
    Alert(
        name="PolyarchCertificateExpiring",
        expression="min by (job) (polyarch_certificate_expiry_seconds) < 7 * 24 * 3600",
        lasting="10m",
        severity="warning",
        summary="A serving certificate ends soon",
        description="The certificate of {{ $labels.job }} ends in {{ $value | humanizeDuration }}; it was not renewed.",
    ),
)
"""In the PrometheusRule ``multiarch-tuning-operator``."""

MONITOR_DOWN: Final = (
    Alert(
        name="ExecFormatErrorHandlerDown",
        expression=none_available(placement_names.ENOEXEC_HANDLER),
        lasting="1m",
        severity="critical",
        summary="No handler of exec format errors is available",
        description="Executables in a foreign format are seen on the nodes, but nobody reports them on their pods.",
    ),
    Alert(
        name="ExecFormatErrorDaemonDown",
        expression=(
            f'kube_daemonset_status_number_unavailable{{namespace="$NAMESPACE",daemonset="{placement_names.ENOEXEC_DAEMON}"}}'
            " > 0"
        ),
        lasting="20m",
        severity="warning",
        summary="The exec-format-error monitor does not run on some nodes",
        description="On {{ $value }} nodes an executable in a foreign format goes unnoticed.",
    ),
)
"""In the PrometheusRule ``execformaterrormonitor``."""

MONITOR_FOUND: Final = (
    Alert(
        name="ExecFormatErrorsDetected",
        expression="sum(rate(mto_enoexecevents_total[6h])) > 0",
        lasting="1m",
        severity="critical",
        summary="Containers run executables in a foreign format",
        description="An executable was started on a node of another architecture within the last six hours.",
    ),
)
"""In the PrometheusRule ``execformaterrorsdetected``."""

PLACEMENT_ALERTS: Final = (*PLACEMENT, *MONITOR_DOWN, *MONITOR_FOUND)


def prometheus_rules(namespace: str, *, monitor: bool) -> list[Document]:
    """The PrometheusRules; ``monitor``: also those of the exec-format-error monitor."""
    rules, down, found = placement_names.PROMETHEUS_RULES
    documents = [prometheus_rule(rules, placement_names.CONTROLLER, PLACEMENT, namespace)]
    if monitor:
        documents.append(prometheus_rule(down, placement_names.ENOEXEC_HANDLER, MONITOR_DOWN, namespace))
        documents.append(prometheus_rule(found, placement_names.ENOEXEC_HANDLER, MONITOR_FOUND, namespace))
    return documents


# -- taints ------------------------------------------------------------------------------------------------------------


TAINTS_ALERTS: Final = (
    Alert(
        name="PolyarchTaintsDown",
        expression=none_available(taints_names.ROLE),
        lasting="5m",
        severity="warning",
        summary="No pod of polyarch-taints is available",
        description="New pods get no tolerations and stay on untainted nodes; new nodes are not tainted.",
    ),
    Alert(
        name="PolyarchTaintsDegraded",
        expression="max(polyarch_taints_degraded) > 0",
        lasting="5m",
        severity="warning",
        summary="ArchitectureTaints is degraded",
        description="Condition Degraded of the ArchitectureTaints says what is wrong, and what to do about it.",
    ),
    Alert(
        name="PolyarchTaintsPodsGatedTooLong",
        expression="max(polyarch_taints_oldest_gate_seconds) > 600",
        lasting="1m",
        severity="warning",
        summary="A pod waits long for its tolerations",
        description="The oldest pod with the gate polyarch.dev/tolerations is {{ $value | humanizeDuration }} old.",
    ),
    Alert(
        name="PolyarchNodesUntainted",
        expression='max by (architecture) (polyarch_taints_nodes{state="waiting"}) > 0',
        lasting="5m",
        severity="warning",
        summary="Managed nodes are not tainted",
        description="{{ $value }} nodes of architecture {{ $labels.architecture }} should carry the taint and do not.",
    ),
)
"""In the PrometheusRule ``polyarch-taints``."""


# -- builds ------------------------------------------------------------------------------------------------------------


LONG_OVERHEAD: Final = 60
"""Seconds; a bound of the histogram's buckets."""

BUILDS_ALERTS: Final = (
    Alert(
        name="PolyarchBuilderDown",
        expression=none_available(builds_names.ROLE),
        lasting="5m",
        severity="warning",
        summary="No pod of polyarch-builder is available",
        description="Nothing new is built, and nothing that is built is published. Jobs that run go on.",
    ),
    Alert(
        name="PolyarchBuildFailed",
        expression='sum by (kind) (increase(polyarch_build_executions_total{result="failed"}[15m])) > 0',
        lasting="0m",
        severity="warning",
        summary="An image build failed",
        description="In the last 15 minutes {{ $value | humanize }} builds ({{ $labels.kind }}) failed. What was "
        "published before stays published.",
    ),
    Alert(
        name="PolyarchBuildWaitingForNode",
        expression="max by (arch) (polyarch_build_waiting_for_node) > 0",
        lasting="15m",
        severity="warning",
        summary="A build waits for a node of its architecture",
        description="{{ $value }} builds for {{ $labels.arch }} have had no node for 15 minutes.",
    ),
    Alert(
        name="PolyarchBuildOverhead",
        expression="sum(increase(polyarch_build_overhead_seconds_count[1h]))"
        f' - sum(increase(polyarch_build_overhead_seconds_bucket{{le="{LONG_OVERHEAD:.1f}"}}[1h])) > 0.5',
        lasting="0m",
        severity="warning",
        summary="Builds take much longer than their slowest architecture",
        description=f"In the last hour {{{{ $value | humanize }}}} builds took more than {LONG_OVERHEAD} s beyond the "
        "time of their slowest Job.",
    ),
    Alert(
        name="PolyarchBuildCleanupAbandoned",
        expression="sum(increase(polyarch_build_cleanups_abandoned_total[1h])) > 0",
        lasting="0m",
        severity="warning",
        summary="Images of deleted builds were left in a registry",
        description="In the last hour the images of {{ $value | humanize }} builds could not be deleted within 10 "
        "minutes. Events ImageCleanupAbandoned list their digests.",
    ),
)
"""In the PrometheusRule ``polyarch-builder``."""


# -- NUMA --------------------------------------------------------------------------------------------------------------


def rose(counter: str, window: str, *, more_than: int = 0) -> str:
    """By node: a counter that has a series from a node's first event on. Of that one there is no increase, since the
    series begins with it; so what was not there before the window counts as a whole."""
    return (
        f"max by (node) (increase({counter}[{window}]) > {more_than} "
        f"or ({counter} unless {counter} offset {window}) > {more_than})"
    )


NUMA_ALERTS: Final = (
    Alert(
        name="PolyarchNumaDegraded",
        expression='max by (kind) (polyarch_numa_operator_condition{type="Degraded"}) > 0',
        lasting="5m",
        severity="warning",
        summary="A custom resource of NUMA is degraded",
        description="Condition Degraded of the {{ $labels.kind }} tells what is wrong; what ran before keeps running.",
    ),
    Alert(
        name="PolyarchNumaNodesSilent",
        expression='max by (group) (polyarch_numa_operator_group_nodes{state="desired"})'
        ' - max by (group) (polyarch_numa_operator_group_nodes{state="ready"}) > 0',
        lasting="15m",
        severity="warning",
        summary="Nodes do not publish their NUMA zones",
        description="{{ $value }} nodes of group {{ $labels.group }} have no exporter that is ready: what is known of "
        "their zones grows old.",
    ),
)
"""In the PrometheusRule ``polyarch-numa-exporter``."""

SCHEDULER_ALERTS: Final = (
    Alert(
        name="PolyarchNumaSchedulerDown",
        expression=none_available(SCHEDULER),
        lasting="5m",
        severity="critical",
        summary="No pod of the NUMA scheduler is available",
        description="Pods that name this scheduler stay Pending until it and the extender beside it are ready.",
    ),
    Alert(
        name="PolyarchNumaReservationsUnsettled",
        expression="max by (node) (polyarch_numa_unsettled_seconds) > 300",
        lasting="5m",
        severity="warning",
        summary="Cells stay reserved because an exporter does not show their pods",
        description="For {{ $value }} s node {{ $labels.node }} has not shown a pod that its kubelet has admitted; "
        "what is reserved there stays reserved.",
    ),
    Alert(
        name="PolyarchNumaKubeletRejections",
        expression=rose("polyarch_numa_kubelet_rejections_total", "30m"),
        lasting="1m",
        severity="warning",
        summary="A kubelet refused a pod for its NUMA alignment",
        description="The kubelet of {{ $labels.node }} failed a pod with TopologyAffinityError: what is known of its "
        "cells was wrong or late.",
    ),
    Alert(
        name="PolyarchNumaMispredictions",
        expression=rose("polyarch_numa_mispredictions_total", "1h", more_than=2),
        lasting="1m",
        severity="warning",
        summary="Pods are not in the NUMA cells where they were expected",
        description="{{ $value }} times in an hour pods on {{ $labels.node }} were in other cells than predicted; "
        "reservations there count on every cell, which leaves room unused.",
    ),
)
"""In the PrometheusRule ``polyarch-numa-scheduler``."""
