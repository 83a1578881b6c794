"""Alerts (PL-720), each with a page in ``docs/guide/runbooks`` that is called like it. Pure."""

from typing import Final

from polyarch.operating.labels import Document
from polyarch.operating.monitoring.alerting import Alert, none_available, prometheus_rule
from polyarch.placement import names

PLACEMENT: Final = (
    Alert(
        name="PodPlacementControllerDown",
        expression=none_available(names.CONTROLLER),
        lasting="1m",
        severity="critical",
        summary="No pod placement controller is available",
        description="Gated pods stay pending until a controller is back; pods with known images are still placed.",
    ),
    Alert(
        name="PodPlacementWebhookDown",
        expression=none_available(names.WEBHOOK),
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
        expression=none_available(names.ENOEXEC_HANDLER),
        lasting="1m",
        severity="critical",
        summary="No handler of exec format errors is available",
        description="Executables in a foreign format are seen on the nodes, but nobody reports them on their pods.",
    ),
    Alert(
        name="ExecFormatErrorDaemonDown",
        expression=(
            f'kube_daemonset_status_number_unavailable{{namespace="$NAMESPACE",daemonset="{names.ENOEXEC_DAEMON}"}} > 0'
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

ALERTS: Final = (*PLACEMENT, *MONITOR_DOWN, *MONITOR_FOUND)


def prometheus_rules(namespace: str, *, monitor: bool) -> list[Document]:
    """The PrometheusRules (PL-002); ``monitor``: also those of the exec-format-error monitor."""
    rules, down, found = names.PROMETHEUS_RULES
    documents = [prometheus_rule(rules, names.CONTROLLER, PLACEMENT, namespace)]
    if monitor:
        documents.append(prometheus_rule(down, names.ENOEXEC_HANDLER, MONITOR_DOWN, namespace))
        documents.append(prometheus_rule(found, names.ENOEXEC_HANDLER, MONITOR_FOUND, namespace))
    return documents
