"""NUMAResourcesOperator and NUMAResourcesScheduler: their types, and what their fields mean.

Decoding is tolerant: an object that was stored under an older schema is read, too, and ``crds`` says what is wrong with
it. Selectors and tolerations stay as they are written, since they are passed on. :class:`GroupSettings` and
:class:`SchedulerSettings` apply defaults when an object is read; only valid objects are compiled into them. Pure.
"""

from collections.abc import Mapping
from typing import Any, Final, Literal, cast, get_args

import msgspec

from polyarch.durations import go_duration, parse_go_duration
from polyarch.kube.resources import Resource
from polyarch.numa.names import CANDIDATES, IGNORABLE, OPERATOR_GROUP, RESTRICTED_POLICY, SCHEDULING_MODE
from polyarch.objects import ObjectMeta

VERSION: Final = "v1"
"""The stored one."""
OLD_VERSION: Final = "v1alpha1"
"""Served with a warning; of the same schema, so that nothing has to be converted."""
OPERATORS: Final = Resource(
    OPERATOR_GROUP, VERSION, "numaresourcesoperators", "NUMAResourcesOperator", namespaced=False
)
SCHEDULERS: Final = Resource(
    OPERATOR_GROUP, VERSION, "numaresourcesschedulers", "NUMAResourcesScheduler", namespaced=False
)

Fingerprinting = Literal["Disabled", "Enabled", "EnabledExclusiveResources"]
RefreshMode = Literal["Periodic", "Events", "PeriodicAndEvents"]
Switch = Literal["Disabled", "Enabled"]
LogLevel = Literal["Normal", "Debug", "Trace", "TraceAll"]
ResyncDebug = Literal["DumpJSONFile", "Disabled"]
PodInformer = Literal["Dedicated", "Shared"]
ResyncDetection = Literal["Relaxed", "Aggressive"]
ScoringType = Literal["LeastAllocated", "MostAllocated", "BalancedAllocation", "LeastNUMANodes"]
SchedulingMode = Literal["exact", "advise"]
RestrictedPolicy = Literal["filter", "score", "ignore"]

VERBOSITY: Final[Mapping[LogLevel, int]] = {"Normal": 2, "Debug": 4, "Trace": 6, "TraceAll": 8}
"""``-v`` of exporter, scheduler and extender."""
TOLERATES_ALL: Final[dict[str, Any]] = {"operator": "Exists"}
"""Exporters run on every node of their group, whatever its taints, unless the group says otherwise."""
REMOVED_MODE: Final = "compat"
"""Still accepted as a scheduling mode, and read as ``exact``."""
MAX_ANNOTATIONS: Final = 8
CANDIDATE_BOUNDS: Final = (1, 16)
DEFAULT_SCORED: Final = (("cpu", 1), ("memory", 1))
ANNOTATION_VALUES: Final[Mapping[str, tuple[str, ...]]] = {
    SCHEDULING_MODE: (*get_args(SchedulingMode), REMOVED_MODE),
    RESTRICTED_POLICY: get_args(RestrictedPolicy),
    CANDIDATES: tuple(str(count) for count in range(CANDIDATE_BOUNDS[0], CANDIDATE_BOUNDS[1] + 1)),
    IGNORABLE: ("true",),
}
"""Values of the annotations that choose how the scheduler works."""


class NamespacedName(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """An object; in ``podExcludes``, globs for pods."""

    namespace: str = ""
    name: str = ""


class NodeGroupConfig(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """``nodeGroups[].config``; empty: the default."""

    pods_fingerprinting: str | None = None
    info_refresh_mode: str | None = None
    info_refresh_period: str | None = None
    info_refresh_pause: str | None = None
    tolerations: list[dict[str, Any]] | None = None


class NodeGroup(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """``nodeGroups[]``: nodes that get exporters, and how these work."""

    machine_config_pool_selector: dict[str, Any] | None = None
    pool_name: str | None = None
    node_selector: dict[str, Any] | None = None
    config: NodeGroupConfig | None = None
    annotations: dict[str, str] | None = None
    disable_pods_fingerprinting: bool | None = None
    """Of v1alpha1; ``config.podsFingerprinting`` wins."""


class NUMAResourcesOperatorSpec(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """``spec`` of a NUMAResourcesOperator."""

    node_groups: list[NodeGroup] | None = None
    image_spec: str | None = None
    log_level: str | None = None
    pod_excludes: list[NamespacedName] | None = None


class NUMAResourcesOperator(msgspec.Struct, frozen=True, rename="camel"):
    """Which nodes publish their NUMA zones; the only one is named ``numaresourcesoperator``."""

    metadata: ObjectMeta = ObjectMeta()
    spec: NUMAResourcesOperatorSpec = NUMAResourcesOperatorSpec()
    status: dict[str, Any] = {}


class ScoredResource(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """``scoringStrategy.resources[]``."""

    name: str = ""
    weight: int = 1


class ScoringStrategy(msgspec.Struct, frozen=True, omit_defaults=True):
    """``scoringStrategy``."""

    type: str | None = None
    resources: list[ScoredResource] | None = None


class NUMAResourcesSchedulerSpec(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """``spec`` of a NUMAResourcesScheduler."""

    image_spec: str | None = None
    scheduler_name: str | None = None
    log_level: str | None = None
    cache_resync_period: str | None = None
    cache_resync_debug: str | None = None
    scheduler_informer: str | None = None
    cache_resync_detection: str | None = None
    scoring_strategy: ScoringStrategy | None = None
    preemption_mode: str | None = None
    replicas: int | None = None


class NUMAResourcesScheduler(msgspec.Struct, frozen=True, rename="camel"):
    """The secondary scheduler; the only one is named ``numaresourcesscheduler``."""

    metadata: ObjectMeta = ObjectMeta()
    spec: NUMAResourcesSchedulerSpec = NUMAResourcesSchedulerSpec()
    status: dict[str, Any] = {}


# -- settings ----------------------------------------------------------------------------------------------------------


class GroupSettings(msgspec.Struct, frozen=True, kw_only=True):
    """How the exporters of one node group work."""

    fingerprinting: Fingerprinting = "EnabledExclusiveResources"
    refresh_mode: RefreshMode = "Periodic"
    refresh_period: float = 10.0
    """Seconds; 0: no timer."""
    paused: bool = False
    """Nothing is published."""
    tolerations: tuple[Mapping[str, Any], ...] = ()
    """Empty: every taint is tolerated."""

    @classmethod
    def of(cls, group: NodeGroup) -> "GroupSettings":
        """The settings of a group that is valid."""
        given, usual = group.config or NodeGroupConfig(), cls()
        by_old_field = usual.fingerprinting
        if group.disable_pods_fingerprinting is not None:
            by_old_field = "Disabled" if group.disable_pods_fingerprinting else "Enabled"
        period = given.info_refresh_period
        return cls(
            fingerprinting=cast("Fingerprinting", given.pods_fingerprinting or by_old_field),
            refresh_mode=cast("RefreshMode", given.info_refresh_mode or usual.refresh_mode),
            refresh_period=parse_go_duration(period) if period else usual.refresh_period,
            paused=given.info_refresh_pause == "Enabled",
            tolerations=tuple(given.tolerations or ()),
        )

    def document(self) -> dict[str, Any]:
        """As ``config`` of a status."""
        document: dict[str, Any] = {
            "podsFingerprinting": self.fingerprinting,
            "infoRefreshMode": self.refresh_mode,
            "infoRefreshPeriod": go_duration(self.refresh_period),
            "infoRefreshPause": "Enabled" if self.paused else "Disabled",
        }
        return document | {"tolerations": [dict(toleration) for toleration in self.tolerations or (TOLERATES_ALL,)]}


def verbosity(spec: NUMAResourcesOperatorSpec) -> int:
    """``-v`` of the exporters."""
    return VERBOSITY[cast("LogLevel", spec.log_level or "Normal")]


class SchedulerSettings(msgspec.Struct, frozen=True, kw_only=True):
    """How the secondary scheduler works."""

    image: str = ""
    """Empty: the stock kube-scheduler of the API server's version."""
    name: str = "topo-aware-scheduler"
    """Of the profile; pods name it."""
    verbosity: int = VERBOSITY["Normal"]
    """Of both containers."""
    resync_period: float = 5.0
    """Seconds; 0: no reservations at all."""
    resync_debug: ResyncDebug = "DumpJSONFile"
    detection: ResyncDetection = "Relaxed"
    scoring: ScoringType = "LeastAllocated"
    scored: tuple[tuple[str, int], ...] = DEFAULT_SCORED
    """Resources and their weights, each at least 1."""
    preempts: bool = False
    """Wanted; see :attr:`evicts`."""
    replicas: int | None = None
    """None: computed."""
    mode: SchedulingMode = "exact"
    restricted_policy: RestrictedPolicy = "filter"
    candidates: int = 1
    """Nodes that a pod may be reserved on at a time."""
    ignorable: bool = False
    """Pods are scheduled without regard to NUMA while the extender is down."""
    without_effect: tuple[str, ...] = ()
    """Fields that are set, and only mattered to a scheduler that compares fingerprints now and then."""
    has_removed_mode: bool = False

    @property
    def evicts(self) -> bool:
        """Whether the extender evicts pods for others: it has to reserve what comes free, or anybody might take it."""
        return self.preempts and bool(self.resync_period)

    @classmethod
    def of(cls, scheduler: NUMAResourcesScheduler) -> "SchedulerSettings":
        """The settings of an object that is valid."""
        spec, usual = scheduler.spec, cls()
        chosen = scheduler.metadata.annotations or {}
        scoring = spec.scoring_strategy
        scored = tuple((resource.name, max(resource.weight, 1)) for resource in (scoring and scoring.resources) or ())
        period = parse_go_duration(spec.cache_resync_period) if spec.cache_resync_period else None
        mode = chosen.get(SCHEDULING_MODE, usual.mode)
        without_effect = {"cacheResyncPeriod": bool(period), "schedulerInformer": bool(spec.scheduler_informer)}
        return cls(
            image=spec.image_spec or "",
            name=spec.scheduler_name or usual.name,
            verbosity=VERBOSITY[cast("LogLevel", spec.log_level or "Normal")],
            resync_period=period if period is not None else usual.resync_period,
            resync_debug=cast("ResyncDebug", spec.cache_resync_debug or usual.resync_debug),
            detection=cast("ResyncDetection", spec.cache_resync_detection or usual.detection),
            scoring=cast("ScoringType", (scoring and scoring.type) or usual.scoring),
            scored=scored or usual.scored,
            preempts=spec.preemption_mode == "Enabled",
            replicas=spec.replicas,
            mode=cast("SchedulingMode", mode if mode != REMOVED_MODE else usual.mode),
            restricted_policy=cast("RestrictedPolicy", chosen.get(RESTRICTED_POLICY, usual.restricted_policy)),
            candidates=int(chosen.get(CANDIDATES, usual.candidates)),
            ignorable=chosen.get(IGNORABLE) == "true",
            without_effect=tuple(name for name, is_set in without_effect.items() if is_set),
            has_removed_mode=mode == REMOVED_MODE,
        )
