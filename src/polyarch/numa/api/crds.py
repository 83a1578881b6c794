"""The CustomResourceDefinitions of NUMAResourcesOperator and NUMAResourcesScheduler, and whether an object is valid.

Both versions of a kind have one and the same schema, so the API server converts by changing ``apiVersion`` alone, and
nothing is lost in either direction. Words and bounds are those of ``resources``. Pure.
"""

import posixpath
from collections.abc import Iterator, Mapping
from typing import Any, Final, get_args

from polyarch.durations import GO_PATTERN, InvalidDuration, parse_go_duration
from polyarch.kube.resources import Resource
from polyarch.kube.schema import (
    Schema,
    SchemaViolation,
    array,
    boolean,
    cel_text,
    column,
    conditions,
    custom_resource,
    departures,
    integer,
    label_selector,
    obj,
    pruned,
    rule,
    text,
    text_map,
    toleration,
    toleration_problems,
    version,
    without_nulls,
)
from polyarch.numa.api.resources import (
    ANNOTATION_VALUES,
    MAX_ANNOTATIONS,
    OLD_VERSION,
    OPERATORS,
    SCHEDULERS,
    VERSION,
    Fingerprinting,
    GroupSettings,
    LogLevel,
    PodInformer,
    RefreshMode,
    ResyncDebug,
    ResyncDetection,
    SchedulerSettings,
    ScoringType,
    Switch,
)
from polyarch.numa.names import HEARTBEAT, KUBELET_ROOT, OPERATOR_SINGLETON, SCHEDULER_SINGLETON

MAX_NODE_GROUPS: Final = 256
MAX_DURATION_LENGTH: Final = 64
LOG_LEVELS: Final = ("", *get_args(LogLevel))
"""Empty: the default; the predecessor's schema takes it."""
EFFECTS: Final = ("", "NoSchedule", "PreferNoSchedule", "NoExecute")
TOLERATION_OPERATORS: Final = ("", "Exists", "Equal", "Lt", "Gt")

_DEFAULT_GROUP: Final = GroupSettings()
_DEFAULT_SCHEDULER: Final = SchedulerSettings()


def crds() -> tuple[Schema, ...]:
    """Both, ordered by name."""
    return numa_resources_operator(), numa_resources_scheduler()


def numa_resources_operator() -> Schema:
    """The CRD of NUMAResourcesOperator."""
    return _crd(
        OPERATORS,
        OPERATOR_SINGLETON,
        "Publishes the NUMA zones of groups of nodes: an exporter runs on each node of a group. "
        f"The only one is named {OPERATOR_SINGLETON}.",
        operator_spec(),
        _operator_status(),
        short_name="numaresop",
    )


def numa_resources_scheduler() -> Schema:
    """The CRD of NUMAResourcesScheduler."""
    return _crd(
        SCHEDULERS,
        SCHEDULER_SINGLETON,
        "A second scheduler, which places the pods that name it where they fit one NUMA zone. "
        f"The only one is named {SCHEDULER_SINGLETON}.",
        scheduler_spec(),
        _scheduler_status(),
        short_name="numaressched",
    )


def operator_spec() -> Schema:
    """The schema of ``spec`` of a NUMAResourcesOperator."""
    excluded = obj(
        {
            "namespace": text(description="A shell glob for the namespace."),
            "name": text(description="A shell glob for the name."),
        }
    )
    return obj(
        {
            "nodeGroups": array(
                _node_group(), description="The nodes that get an exporter; none: none do.", max_items=MAX_NODE_GROUPS
            ),
            "imageSpec": text(
                description="Image of the exporter; the operator takes it only where EXPORTER_IMAGE_RESTRICTION is "
                "false. Absent: the operator's own image."
            ),
            "logLevel": _log_level("How much the exporters log; absent: Normal."),
            "podExcludes": array(excluded, description="Pods that count for nothing; both globs have to match."),
        },
        description="Which nodes, and how.",
    )


def scheduler_spec() -> Schema:
    """The schema of ``spec`` of a NUMAResourcesScheduler."""
    scored = obj(
        {
            "name": text(description="The resource."),
            "weight": integer(description="How much it counts; less than 1 counts as 1.", format="int64"),
        },
        required=("name",),
    )
    usual = _DEFAULT_SCHEDULER
    return obj(
        {
            "imageSpec": text(
                description="Image of the kube-scheduler; absent: that of the API server's version from "
                "registry.k8s.io."
            ),
            "schedulerName": text(
                description=f"What pods write in spec.schedulerName to be placed by it; absent: {usual.name}."
            ),
            "logLevel": _log_level("How much both containers log; absent: Normal."),
            "cacheResyncPeriod": _duration(
                "spec.cacheResyncPeriod",
                "0: no reservations. Other values have no effect.",
                usual.resync_period,
            ),
            "cacheResyncDebug": text(
                description="DumpJSONFile: what differs is written below /run/pfpstatus. "
                f"Absent: {usual.resync_debug}.",
                enum=get_args(ResyncDebug),
            ),
            "schedulerInformer": text(
                description="Accepted, without effect: the extender watches pods itself.",
                enum=get_args(PodInformer),
            ),
            "cacheResyncDetection": text(
                description="Foreign pods that count: those with exclusive resources, or with Aggressive all. "
                f"Absent: {usual.detection}.",
                enum=get_args(ResyncDetection),
            ),
            "scoringStrategy": obj(
                {
                    "type": text(
                        description=f"Which fitting node is best; absent: {usual.scoring}.",
                        enum=get_args(ScoringType),
                    ),
                    "resources": array(scored, description="What counts, and how much; absent: cpu 1, memory 1."),
                },
                description="How nodes are compared.",
            ),
            "preemptionMode": text(
                description="Enabled: pods of lower priority are evicted where zones or sums keep a pod off; no "
                "effect without reservations (cacheResyncPeriod 0). Absent: Disabled: nobody is evicted.",
                enum=get_args(Switch),
            ),
            "replicas": integer(
                description="Pods of the scheduler; absent: 3 where there are three nodes for them, else 1.",
                format="int32",
                minimum=0,
            ),
        },
        description="How it schedules.",
    )


def _node_group() -> Schema:
    return obj(
        {
            "machineConfigPoolSelector": label_selector(
                "OpenShift: MachineConfigPools by their labels. Elsewhere one label "
                "pools.operator.machineconfiguration.openshift.io/<role> stands for the nodes of this role."
            ),
            "poolName": text(
                description="OpenShift: a MachineConfigPool; HyperShift: a NodePool; elsewhere the role of the nodes, "
                "or the group's name where there is a nodeSelector."
            ),
            "nodeSelector": label_selector("Kubernetes: the nodes by their labels; {} is every node."),
            "config": _config(),
            "annotations": text_map(
                "Further settings of the group, such as numa.polyarch.dev/kubelet-root.",
                most=MAX_ANNOTATIONS,
            ),
            "disablePodsFingerprinting": boolean(
                description="Of v1alpha1: true is podsFingerprinting Disabled, false Enabled; "
                "config.podsFingerprinting wins."
            ),
        }
    )


def _config() -> Schema:
    usual = _DEFAULT_GROUP
    return obj(
        {
            "podsFingerprinting": text(
                description="Whether the object tells which pods it counts: all, or those with exclusive resources. "
                f"Absent: {usual.fingerprinting}.",
                enum=get_args(Fingerprinting),
            ),
            "infoRefreshMode": text(
                description="When a node looks again: at intervals, when the kubelet changed something, or both. "
                f"Absent: {usual.refresh_mode}.",
                enum=get_args(RefreshMode),
            ),
            "infoRefreshPeriod": _duration("infoRefreshPeriod", "The interval; 0 is no timer.", usual.refresh_period),
            "infoRefreshPause": text(
                description="Enabled: nothing is published, and what was published stays. Absent: Disabled.",
                enum=get_args(Switch),
            ),
            "tolerations": array(
                toleration(operators=TOLERATION_OPERATORS, effects=EFFECTS, bounded=False),
                description="Taints that the exporters tolerate; none: every taint is tolerated.",
            ),
        },
        description="How the exporters of the group work.",
    )


def _operator_status() -> Schema:
    name = obj({"namespace": text(description="Its namespace."), "name": text(description="Its name.")})
    # Others wrote conditions of pools, and defaults of pools, with fields of their own: they are kept.
    foreign: Schema = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    pool = obj(
        {
            "name": text(description="Its name."),
            "conditions": array(foreign, description="Its conditions."),
            "config": foreign | {"description": "How the exporters of its nodes work."},
        },
        required=("name",),
    )
    # What we write ourselves needs no rules, whose cost API servers add up over a list without bounds.
    effective = _config()
    effective["properties"] = effective["properties"] | {"infoRefreshPeriod": text(description="The interval.")}
    group = obj(
        {
            "daemonsets": name | {"description": "The DaemonSet of the group."},
            "config": effective,
            "selector": text(description="The name of the group."),
        },
        required=("config", "daemonsets", "selector"),
    )
    return obj(
        {
            "daemonsets": array(name, description="The DaemonSets that are ready."),
            "machineconfigpools": array(pool, description="OpenShift: the pools of the groups."),
            "nodeGroups": array(group, description="The groups whose DaemonSet is ready, and what applies to them."),
            "conditions": conditions(),
            "relatedObjects": _related_objects(),
        },
        description="What was found.",
    )


def _scheduler_status() -> Schema:
    return obj(
        {
            "deployment": obj(
                {"namespace": text(description="Its namespace."), "name": text(description="Its name.")},
                description="The Deployment of the scheduler.",
            ),
            "schedulerName": text(description="What pods write in spec.schedulerName."),
            "cacheResyncPeriod": text(description="The interval that applies."),
            "conditions": conditions(),
            "relatedObjects": _related_objects(),
        },
        description="What was found.",
    )


def _related_objects() -> Schema:
    reference = obj(
        {
            "group": text(description="API group; empty: the core group."),
            "resource": text(description="Plural name."),
            "namespace": text(description="Its namespace."),
            "name": text(description="Its name; empty: all of them."),
        },
        required=("group", "name", "resource"),
    )
    return array(reference, description="Objects to look at when something is wrong.")


def _log_level(description: str) -> Schema:
    return text(description=description, enum=LOG_LEVELS)


def _duration(field: str, description: str, usual: float) -> Schema:
    # A negative one is stored, as it always was, and the operator reports it.
    return text(
        description=f"{description} A duration such as 10s or 1m30s; absent: {usual:g}s.",
        max_length=MAX_DURATION_LENGTH,
        rules=[
            rule(
                f"self.matches({cel_text(GO_PATTERN)})",
                f"{field} must be a duration: numbers with units ns, us, ms, s, m or h, such as 10s, 1m30s or 500ms",
            )
        ],
    )


def _crd(resource: Resource, only: str, description: str, spec: Schema, status: Schema, *, short_name: str) -> Schema:
    columns = [
        column(condition, f'.status.conditions[?(@.type=="{condition}")].status')
        for condition in ("Available", "Progressing", "Degraded")
    ]
    columns.append(column("Age", ".metadata.creationTimestamp", "date"))
    rules = (
        rule(
            f"self.metadata.name == '{only}'",
            f"the only {resource.kind} is named {only}: set metadata.name to {only}",
        ),
    )
    old = version(
        OLD_VERSION,
        description,
        spec,
        status,
        rules=rules,
        columns=columns,
        storage=False,
        deprecation=f"{resource.group}/{OLD_VERSION} {resource.kind} is deprecated; use {resource.api_version}",
    )
    stored = version(VERSION, description, spec, status, rules=rules, columns=columns)
    return custom_resource(resource, [old, stored], short_names=(short_name,))


# -- validation --------------------------------------------------------------------------------------------------------

# The API server rejects most invalid objects. The operator checks again, since an object may have been stored under an
# older schema, and some rules are not for a schema. Problems of groups of nodes and of globs are found in the operator.


Document = Mapping[str, Any]


def operator_violations(document: Document) -> tuple[SchemaViolation, ...]:
    """All violations in the spec of a NUMAResourcesOperator, each with its field."""
    spec = _spec(document)
    wrong = tuple(_schema_violations(operator_spec(), spec))
    return wrong or tuple(_operator_violations(spec))


def scheduler_violations(document: Document) -> tuple[SchemaViolation, ...]:
    """All violations in the spec and the annotations of a NUMAResourcesScheduler."""
    spec = _spec(document)
    wrong = tuple(_schema_violations(scheduler_spec(), spec))
    return wrong or (*_scheduler_violations(spec), *_annotation_violations(document))


def unknown_members(document: Document, schema: Schema) -> tuple[SchemaViolation, ...]:
    """Members that the schema of the spec does not have: the API server drops them, and nobody else would report a
    misspelt one in a file.
    """
    spec = _spec(document)
    known = set(departures(schema, pruned(schema, spec), "spec"))
    return tuple(violation for violation in departures(schema, spec, "spec") if violation not in known)


def _spec(document: Document) -> Any:
    spec = without_nulls(document.get("spec"))
    return {} if spec is None else spec


def _schema_violations(schema: Schema, spec: Any) -> Iterator[SchemaViolation]:
    return departures(schema, pruned(schema, spec), "spec")


def _operator_violations(spec: Document) -> Iterator[SchemaViolation]:
    for index, group in enumerate(spec.get("nodeGroups", ())):
        field = f"spec.nodeGroups[{index}]"
        config = group.get("config", {})
        yield from _duration_violations(f"{field}.config.infoRefreshPeriod", config.get("infoRefreshPeriod"))
        for place, tolerated in enumerate(config.get("tolerations", ())):
            yield from toleration_problems(f"{field}.config.tolerations[{place}]", tolerated)
        annotations = group.get("annotations", {})
        yield from _duration_violations(f"{field}.annotations[{HEARTBEAT}]", annotations.get(HEARTBEAT))
        root = annotations.get(KUBELET_ROOT)
        if root is not None and (not root.startswith("/") or root == "/" or posixpath.normpath(root) != root):
            yield SchemaViolation(
                f"{field}.annotations[{KUBELET_ROOT}]",
                f"{root[:80]!r} is not the directory of a kubelet: write an absolute path without a slash at the end, "
                "such as /var/lib/kubelet",
            )


def _scheduler_violations(spec: Document) -> Iterator[SchemaViolation]:
    yield from _duration_violations("spec.cacheResyncPeriod", spec.get("cacheResyncPeriod"))


def _annotation_violations(document: Document) -> Iterator[SchemaViolation]:
    annotations = (document.get("metadata") or {}).get("annotations") or {}
    for name, values in ANNOTATION_VALUES.items():
        value = annotations.get(name)
        if value is not None and value not in values:
            allowed = f"{values[0]} to {values[-1]}" if len(values) > 4 else ", ".join(values)
            yield SchemaViolation(
                f"metadata.annotations[{name}]", f"{value[:40]!r} is not possible; expected {allowed}"
            )


def _duration_violations(field: str, value: str | None) -> Iterator[SchemaViolation]:
    if not value:
        return
    try:
        if parse_go_duration(value) < 0:
            yield SchemaViolation(field, f"{value[:40]!r} is negative; 0 switches it off")
    except InvalidDuration as error:
        yield SchemaViolation(field, str(error))
