"""The alerts of all components, each once: the PrometheusRules and the list of runbooks are made from them.

An alert is critical only if it concerns every namespace and whoever reads it has to get up. What one tenant can set off
is a warning and names the namespace. Every expression keeps the label ``cluster``, by which one Prometheus tells
several clusters apart, and asks for the metrics of its own installation by namespace; of replicas it takes the one that
knows.
"""

from typing import Final

from polyarch import names as shared
from polyarch.builds import names as builds_names
from polyarch.numa.names import SCHEDULER
from polyarch.operator.monitoring import Alert, AlertGroup
from polyarch.placement import names as placement_names
from polyarch.taints import names as taints_names

# -- expressions -------------------------------------------------------------------------------------------------------


OURS: Final = 'namespace="$NAMESPACE"'
INSTALLATION: Final = "cluster, namespace"
"""Labels that every expression keeps; where a metric speaks of pods, ``namespace`` is theirs."""


def own(metric: str, **labels: str) -> str:
    """A metric of this installation with these labels; a value after ``~`` is an expression that matches them."""
    matchers = (f'{name}=~"{value[1:]}"' if value[:1] == "~" else f'{name}="{value}"' for name, value in labels.items())
    return f"{metric}{{{', '.join((OURS, *matchers))}}}"


def none_available(deployment: str, *, job: str = "") -> str:
    """No pod of the Deployment is available, or it comes and goes, three times in half an hour and more.

    kube-state-metrics says so. Without its series, because it does not run or because the Deployment is gone, at least
    one pod must have been scraped. ``job``: the Service by which it is scraped, if not called like the Deployment.
    """
    available = own("kube_deployment_status_replicas_available", deployment=deployment)
    most = f"max by ({INSTALLATION}, deployment) ({available})"
    scraped = own("up", job=job or deployment)
    return (
        f"{most} == 0 or changes(({most} > bool 0)[30m:1m]) >= 6"
        f" or absent({available}) unless on () max(max_over_time({scraped}[5m])) > 0"
    )


def rose(counter: str, window: str, *, by: str, more_than: int = 0) -> str:
    """A counter whose series begins with its first event.

    Of that event there is no increase. So a series that was not there in the day before the window counts as a whole; a
    day, as a gap in what was scraped does not make a series new.
    """
    return (
        f"max by (cluster, {by}) (increase({counter}[{window}]) > {more_than}"
        f" or (max_over_time({counter}[5m]) unless count_over_time({counter}[1d] offset {window})) > {more_than})"
    )


# One scrape that fails must not end an alert, which would have to wait for its ``for`` again. So a gauge is read over
# some minutes: its maximum where it is an age, or changes rarely; its minimum where it is above zero now and then as a
# matter of course, as when nodes join.


def by_leader(vector: str, lease: str) -> str:
    """Without the values of replicas that are known not to lead: those are what was true when they led."""
    follows = own("polyarch_leader", lease=lease)
    return f"({vector} unless on (cluster, instance) max_over_time({follows}[5m]) == 0)"


def share(part: str, whole: str, window: str, *, more_than: float, at_least: int) -> str:
    """The share of one counter in another, where enough was counted in the window for a share to mean something."""
    rates = [f"sum by ({INSTALLATION}) (increase({counter}[{window}]))" for counter in (part, whole)]
    return f"{rates[0]} / {rates[1]} > {more_than} and {rates[1]} >= {at_least}"


# -- every role --------------------------------------------------------------------------------------------------------


_ATTEMPTED: Final = "polyarch_reconciles_total"
_RESOURCE_WEBHOOKS: Final = "|".join(
    (
        placement_names.CPPC_WEBHOOK,
        placement_names.PPC_WEBHOOK,
        placement_names.CPPC_DEFAULTS,
        placement_names.CPPC_KEPT,
    )
)
_POD_WEBHOOKS: Final = "|".join((placement_names.POD_WEBHOOK, taints_names.POD_WEBHOOK, taints_names.TEMPLATE_WEBHOOK))


def _reviews(proven: str) -> str:
    reviews = own("polyarch_admission_reviews_total", proven=proven)
    return f"sum by ({INSTALLATION}, route) (increase({reviews}[15m]))"


def _condition(type_: str) -> str:
    values = f"max_over_time({own('polyarch_operator_condition', type=type_)}[5m])"
    return by_leader(values, placement_names.OPERATOR_LEASE)


def _group_nodes(state: str) -> str:
    nodes = own("polyarch_numa_operator_group_nodes", state=state)
    return f"max by ({INSTALLATION}, group) ({by_leader(nodes, placement_names.OPERATOR_LEASE)})"


OPERATOR: Final = AlertGroup(
    rule=shared.OPERATOR,
    controller=shared.OPERATOR,
    alerts=(
        Alert(
            name="PolyarchOperatorDown",
            expression=none_available(shared.OPERATOR),
            lasting="10m",
            summary="No pod of the operator is available",
            description="Settings of polyarch cannot be changed, nothing that breaks is put right, and certificates "
            "are not renewed. Pods are placed as before.",
        ),
        Alert(
            name="PolyarchDegraded",
            expression=f"max by ({INSTALLATION}, kind) ({_condition('Degraded')}) > 0",
            lasting="10m",
            summary="What a custom resource asks for cannot be done",
            description="Condition Degraded of the {{ $labels.kind }} says what is wrong; what ran before runs on.",
        ),
        Alert(
            name="PolyarchUnavailable",
            expression=f"max by ({INSTALLATION}, kind) ({_condition('Available')}) == 0",
            lasting="15m",
            summary="A component does not become available",
            description="Condition Available of the {{ $labels.kind }} has been False for 15 minutes: its pods do not "
            "get ready, or a roll-out hangs.",
        ),
        Alert(
            name="PolyarchReconcileFailing",
            expression=f"sum by ({INSTALLATION}, job, controller) "
            f"(increase({own(_ATTEMPTED, result='~error|terminal')}[15m])) > 5"
            f" unless sum by ({INSTALLATION}, job, controller) "
            f"(increase({own(_ATTEMPTED, result='~done|after')}[15m])) > 0",
            lasting="10m",
            summary="A controller fails, whatever it tries",
            description="Controller {{ $labels.controller }} of {{ $labels.job }} has failed {{ $value | humanize }} "
            "times in 15 minutes and succeeded in nothing.",
        ),
        Alert(
            name="PolyarchLeaderMissing",
            expression=f"max by ({INSTALLATION}, lease) (max_over_time({own('polyarch_leader')}[5m])) == 0",
            lasting="5m",
            summary="No replica leads",
            description="Nobody has held the Lease {{ $labels.lease }} for five minutes, though replicas run: what "
            "only a leader does is not done.",
        ),
        Alert(
            name="PolyarchWatchBroken",
            expression=f"max by ({INSTALLATION}, job, resource) "
            f"(max_over_time({own('polyarch_watch_broken_seconds')}[5m])) > 300",
            lasting="5m",
            summary="A role does not learn of changes in the cluster",
            description="The watch of {{ $labels.resource }} in {{ $labels.job }} has been broken for "
            "{{ $value | humanizeDuration }}: it decides by what it knew then.",
        ),
        Alert(
            name="PolyarchQueueStuck",
            expression=f"max by ({INSTALLATION}, job, name) "
            f"(max_over_time({own('workqueue_oldest_age_seconds')}[5m])) > 600",
            lasting="5m",
            summary="A controller does not get through its work",
            description="The oldest key in queue {{ $labels.name }} of {{ $labels.job }} has been ready for "
            "{{ $value | humanizeDuration }}.",
        ),
        Alert(
            name="PolyarchInternalErrors",
            expression=f"sum by ({INSTALLATION}, job) (increase({own('polyarch_internal_errors_total')}[30m])) > 0",
            summary="polyarch has met a bug",
            description="In half an hour {{ $value | humanize }} errors that nothing in the cluster explains were met "
            "in {{ $labels.job }}; their pods are treated as if a registry had not answered.",
        ),
        Alert(
            name="PolyarchCertificateExpiring",
            expression=f"min by ({INSTALLATION}, job) "
            f"(max_over_time({own('polyarch_certificate_expiry_seconds')}[5m])) < 7 * 24 * 3600",
            lasting="10m",
            summary="A serving certificate ends soon",
            description="The certificate of {{ $labels.job }} ends in {{ $value | humanizeDuration }}; it was not "
            "renewed.",
        ),
        Alert(
            name="PolyarchAdmissionSlow",
            expression=f"histogram_quantile(0.99, sum by ({INSTALLATION}, job, route, le) "
            f"(rate({own('polyarch_admission_seconds_bucket')}[10m]))) > 1"
            f" and sum by ({INSTALLATION}, job, route) "
            f"(increase({own('polyarch_admission_seconds_count')}[10m])) >= 100",
            lasting="10m",
            summary="A webhook makes the API server wait",
            description="One review in a hundred takes route {{ $labels.route }} of {{ $labels.job }} longer than "
            "{{ $value | humanizeDuration }}.",
        ),
        Alert(
            name="PolyarchPodWebhookSkipped",
            expression=rose(
                f'apiserver_admission_webhook_fail_open_count{{name=~"{_POD_WEBHOOKS}"}}', "15m", by="name", more_than=5
            ),
            lasting="5m",
            summary="The API server does not reach the webhook of pods",
            description="In 15 minutes it admitted {{ $value | humanize }} objects without {{ $labels.name }}: nothing "
            "keeps such pods off nodes that their images cannot run on.",
        ),
        Alert(
            name="PolyarchResourceWebhookFailing",
            expression=rose(
                f'apiserver_admission_webhook_rejection_count{{name=~"{_RESOURCE_WEBHOOKS}",'
                'error_type="calling_webhook_error"}',
                "15m",
                by="name",
            ),
            lasting="5m",
            summary="The API server does not reach the webhooks of custom resources",
            description="In 15 minutes {{ $value | humanize }} changes of ClusterPodPlacementConfigs and "
            "PodPlacementConfigs were refused because {{ $labels.name }} did not answer.",
        ),
        Alert(
            name="PolyarchRegistriesUnreachable",
            expression=f"sum by ({INSTALLATION}, job) (increase({own('polyarch_registry_requests_total')}[15m])) >= 10"
            f" unless sum by ({INSTALLATION}, job) "
            f"(increase({own('polyarch_registry_requests_total', result='~[1-4]..')}[15m])) > 0",
            lasting="10m",
            summary="No registry answers",
            description="{{ $labels.job }} has sent {{ $value | humanize }} requests to registries in 15 minutes, and "
            "none of them has answered: pods with images that are not known yet wait, in every namespace.",
        ),
        Alert(
            name="PolyarchNumaNodesSilent",
            expression=f"min_over_time(({_group_nodes('desired')} - {_group_nodes('ready')})[10m:1m]) > 0",
            lasting="15m",
            summary="Nodes do not publish their NUMA zones",
            description="{{ $value }} nodes of group {{ $labels.group }} have no exporter that is ready: what is known "
            "of their zones grows old.",
        ),
    ),
)

# -- placement ---------------------------------------------------------------------------------------------------------


_ATTEMPTS: Final = "polyarch_placement_attempts_total"
_ADMISSIONS: Final = "polyarch_webhook_admissions_total"

PLACEMENT: Final = AlertGroup(
    rule=placement_names.PROMETHEUS_RULES[0],
    controller=placement_names.CONTROLLER,
    alerts=(
        Alert(
            name="PodPlacementControllerDown",
            expression=none_available(placement_names.CONTROLLER),
            lasting="5m",
            severity="critical",
            summary="No pod placement controller is available",
            description="Gated pods stay pending until a controller is back; pods with known images are still placed.",
        ),
        Alert(
            name="PodPlacementWebhookDown",
            expression=none_available(placement_names.WEBHOOK),
            lasting="5m",
            summary="No pod placement webhook is available",
            description="New pods are created without placement: nothing keeps them off nodes their images cannot run "
            "on.",
        ),
        Alert(
            name="PolyarchPodsGatedTooLong",
            expression=f"max by ({INSTALLATION}) (max_over_time(polyarch_placement_oldest_gate_seconds[5m])) > 600",
            lasting="5m",
            summary="A pod is not released",
            description="The oldest gated pod of namespace {{ $labels.namespace }} is {{ $value | humanizeDuration }} "
            "old, and no policy holds it.",
        ),
        Alert(
            name="PolyarchPodsHeld",
            expression=f"max by ({INSTALLATION}) (max_over_time(polyarch_placement_held_pods[5m])) > 0",
            lasting="10m",
            summary="Pods are held because their images cannot be read",
            description="{{ $value }} pods of namespace {{ $labels.namespace }} wait behind the scheduling gate, as "
            "the PlacementPolicy asks for (action hold).",
        ),
        Alert(
            name="PolyarchPodsUnplaced",
            expression=f"max by ({INSTALLATION}) (max_over_time(polyarch_placement_unplaced_pods[5m])) > 0",
            lasting="15m",
            summary="Pods were created past the webhook",
            description="{{ $value }} pending pods of namespace {{ $labels.namespace }} have no architecture "
            "constraint.",
        ),
        Alert(
            name="PolyarchReviewsUnproven",
            expression=(f"{_reviews('false')} > 0 unless on (cluster, namespace, route) {_reviews('true')} > 0"),
            lasting="15m",
            summary="No review is shown to come from the API server",
            description="{{ $labels.route }}: new pods are gated, whatever is known of their images, since "
            "the webhook's path has no valid token.",
        ),
        Alert(
            name="PolyarchInspectionFailing",
            expression=share(
                own(_ATTEMPTS, **{"class": "~limit|transient|configuration|unknown"}),
                own(_ATTEMPTS),
                "15m",
                more_than=0.2,
                at_least=20,
            ),
            lasting="10m",
            summary="Image inspections fail",
            description="{{ $value | humanizePercentage }} of the attempts to read an image failed for no fault of the "
            "pods: registries that do not answer or limit requests, or settings.",
        ),
        Alert(
            name="PolyarchLookupsDropped",
            expression=f"sum by ({INSTALLATION}) "
            f"(increase({own('polyarch_placement_lookups_dropped_total')}[15m])) > 0",
            lasting="15m",
            summary="More images are asked for than can be looked up",
            description="In 15 minutes admissions did not look up {{ $value | humanize }} images because the queue was "
            "full: these pods are gated and start later.",
        ),
        Alert(
            name="PolyarchAdmissionFailing",
            expression=share(
                own(_ADMISSIONS, outcome="~unavailable|error"), own(_ADMISSIONS), "10m", more_than=0.05, at_least=20
            ),
            lasting="10m",
            summary="The webhook lets pods pass unplaced",
            description="For {{ $value | humanizePercentage }} of the new pods the webhook could not decide: it lacked "
            "its configuration, or failed.",
        ),
        Alert(
            name="PolyarchFactsLeftOut",
            expression=f"max by ({INSTALLATION}, resource) "
            f"(max_over_time({own('polyarch_placement_facts_left_out')}[5m])) > 0",
            lasting="15m",
            summary="Pods are decided without what the policy asks for",
            description="The PlacementPolicy needs {{ $labels.resource }}, which polyarch cannot read: rules that ask "
            "for them do not apply.",
        ),
    ),
)

_UNAVAILABLE: Final = own("kube_daemonset_status_number_unavailable", daemonset=placement_names.ENOEXEC_DAEMON)

MONITOR_DOWN: Final = AlertGroup(
    rule=placement_names.PROMETHEUS_RULES[1],
    controller=placement_names.ENOEXEC_HANDLER,
    alerts=(
        Alert(
            name="ExecFormatErrorHandlerDown",
            expression=none_available(placement_names.ENOEXEC_HANDLER),
            lasting="10m",
            summary="No handler of exec format errors is available",
            description="Executables in a foreign format are seen on the nodes, but nobody reports them on their pods.",
        ),
        Alert(
            name="ExecFormatErrorDaemonDown",
            expression=f"max by ({INSTALLATION}, daemonset) (min_over_time({_UNAVAILABLE}[10m])) > 0",
            lasting="20m",
            summary="The exec-format-error monitor does not run on some nodes",
            description="On {{ $value }} nodes an executable in a foreign format goes unnoticed.",
        ),
    ),
)

MONITOR_FOUND: Final = AlertGroup(
    rule=placement_names.PROMETHEUS_RULES[2],
    controller=placement_names.ENOEXEC_HANDLER,
    alerts=(
        Alert(
            name="ExecFormatErrorsDetected",
            expression=rose("polyarch_exec_format_error_pods_total", "30m", by="namespace"),
            summary="Containers run executables in a foreign format",
            description="In half an hour executables of another architecture were started {{ $value | humanize }} "
            "times by pods of namespace {{ $labels.namespace }}.",
        ),
    ),
)

# -- taints ------------------------------------------------------------------------------------------------------------


_WAITING_NODES: Final = f"min_over_time({own('polyarch_taints_nodes', state='waiting')}[5m])"

TAINTS: Final = AlertGroup(
    rule=taints_names.ROLE,
    controller=taints_names.ROLE,
    alerts=(
        Alert(
            name="PolyarchTaintsDown",
            expression=none_available(taints_names.ROLE),
            lasting="5m",
            summary="No pod of polyarch-taints is available",
            description="New pods get no tolerations and stay on untainted nodes; new nodes are not tainted.",
        ),
        Alert(
            name="PolyarchTaintsDegraded",
            expression=f"max by ({INSTALLATION}) (max_over_time({own('polyarch_taints_degraded')}[5m])) > 0",
            lasting="5m",
            summary="ArchitectureTaints is degraded",
            description="Condition Degraded of the ArchitectureTaints says what is wrong, and what to do about it.",
        ),
        Alert(
            name="PolyarchTaintsPodsGatedTooLong",
            expression=f"max by ({INSTALLATION}) (max_over_time(polyarch_taints_oldest_gate_seconds[5m])) > 600",
            lasting="5m",
            summary="A pod waits long for its tolerations",
            description="The oldest pod of namespace {{ $labels.namespace }} with the gate polyarch.dev/tolerations is "
            "{{ $value | humanizeDuration }} old.",
        ),
        Alert(
            name="PolyarchNodesUntainted",
            expression=f"max by ({INSTALLATION}, architecture) ({by_leader(_WAITING_NODES, taints_names.LEASE)}) > 0",
            lasting="10m",
            summary="Managed nodes are not tainted",
            description="{{ $value }} nodes of architecture {{ $labels.architecture }} should carry the taint and do "
            "not.",
        ),
    ),
)

# -- builds ------------------------------------------------------------------------------------------------------------


LONG_OVERHEAD: Final = 60
"""Seconds; a bound of the histogram's buckets."""


def _grew(metric: str, **labels: str) -> str:
    return f"sum by ({INSTALLATION}) (increase({own(metric, **labels)}[1h]))"


BUILDS: Final = AlertGroup(
    rule=builds_names.ROLE,
    controller=builds_names.ROLE,
    alerts=(
        Alert(
            name="PolyarchBuilderDown",
            expression=none_available(builds_names.ROLE),
            lasting="10m",
            summary="No pod of polyarch-builder is available",
            description="Nothing new is built, and nothing that is built is published. Jobs that run go on.",
        ),
        Alert(
            name="PolyarchBuildFailed",
            expression=rose("polyarch_build_failures_total", "15m", by="namespace"),
            summary="An image build failed",
            description="In the last 15 minutes {{ $value | humanize }} builds of namespace {{ $labels.namespace }} "
            "failed. What was published before stays published.",
        ),
        Alert(
            name="PolyarchBuildWaitingForNode",
            expression=f"max by ({INSTALLATION}, arch) "
            f"(min_over_time({own('polyarch_build_waiting_for_node')}[5m])) > 0",
            lasting="15m",
            summary="A build waits for a node of its architecture",
            description="{{ $value }} builds for {{ $labels.arch }} have had no node for 15 minutes.",
        ),
        Alert(
            name="PolyarchBuildsQueued",
            expression=f"max by ({INSTALLATION}) "
            f"(max_over_time({own('polyarch_build_oldest_queued_seconds')}[5m])) > 1800",
            lasting="5m",
            summary="A build does not get its turn",
            description="The oldest build that waits for a Job was created {{ $value | humanizeDuration }} ago: as "
            "many Jobs as may run do, or they do not end.",
        ),
        Alert(
            name="PolyarchBuildOverhead",
            expression=f"{_grew('polyarch_build_overhead_seconds_count')} - "
            f"{_grew('polyarch_build_overhead_seconds_bucket', le=str(float(LONG_OVERHEAD)))} > 0.5",
            summary="Builds take much longer than their slowest architecture",
            description=f"In the last hour {{{{ $value | humanize }}}} builds took more than {LONG_OVERHEAD} s beyond "
            "the time of their slowest Job.",
        ),
        Alert(
            name="PolyarchBuildCleanupAbandoned",
            expression=f"{_grew('polyarch_build_cleanups_abandoned_total')} > 0",
            summary="Images of deleted builds were left in a registry",
            description="In the last hour the images of {{ $value | humanize }} builds could not be deleted within 10 "
            "minutes. Events ImageCleanupAbandoned list their digests.",
        ),
    ),
)

# -- NUMA --------------------------------------------------------------------------------------------------------------


SCHEDULING: Final = AlertGroup(
    rule=shared.NUMA_SCHEDULER,
    controller=shared.NUMA_SCHEDULER,
    alerts=(
        Alert(
            name="PolyarchNumaSchedulerDown",
            expression=none_available(SCHEDULER, job=f"{SCHEDULER}-metrics"),
            lasting="5m",
            severity="critical",
            summary="No pod of the NUMA scheduler is available",
            description="Pods that name this scheduler stay Pending until it and the extender beside it are ready.",
        ),
        Alert(
            name="PolyarchNumaReservationsUnsettled",
            expression=f"max by ({INSTALLATION}, node) "
            f"(max_over_time({own('polyarch_numa_unsettled_seconds')}[5m])) > 300",
            lasting="5m",
            summary="Cells stay reserved because an exporter does not show their pods",
            description="For {{ $value }} s node {{ $labels.node }} has not shown a pod that its kubelet has admitted; "
            "what is reserved there stays reserved.",
        ),
        Alert(
            name="PolyarchNumaKubeletRejections",
            expression=rose(own("polyarch_numa_kubelet_rejections_total"), "30m", by="namespace, node"),
            lasting="1m",
            summary="A kubelet refused a pod for its NUMA alignment",
            description="The kubelet of {{ $labels.node }} failed a pod with TopologyAffinityError: what is known of "
            "its cells was wrong or late.",
        ),
        Alert(
            name="PolyarchNumaMispredictions",
            expression=rose(own("polyarch_numa_mispredictions_total"), "1h", by="namespace, node", more_than=2),
            lasting="1m",
            summary="Pods are not in the NUMA cells where they were expected",
            description="{{ $value | humanize }} times in an hour pods on {{ $labels.node }} were in other cells than "
            "predicted; reservations there count on every cell, which leaves room unused.",
        ),
    ),
)

GROUPS: Final = (OPERATOR, PLACEMENT, MONITOR_DOWN, MONITOR_FOUND, TAINTS, BUILDS, SCHEDULING)
"""All alerts, by the PrometheusRule that has them."""
