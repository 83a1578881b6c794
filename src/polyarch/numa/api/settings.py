"""What NUMAResourcesOperator and NUMAResourcesScheduler mean, field by field (NO-002, NO-005, NO-011, NO-013).

Defaults are applied here, when an object is read, and are not written back into it. Only objects that ``validation``
finds nothing wrong with are compiled. Pure.
"""

from collections.abc import Mapping
from typing import Any, Final, Literal, cast, get_args

import msgspec

from polyarch.durations import go_duration, parse_go_duration
from polyarch.numa.api.resources import (
    NodeGroup,
    NodeGroupConfig,
    NUMAResourcesOperatorSpec,
    NUMAResourcesScheduler,
)
from polyarch.numa.names import CANDIDATES, IGNORABLE, RESTRICTED_POLICY, SCHEDULING_MODE

Fingerprinting = Literal["Disabled", "Enabled", "EnabledExclusiveResources"]
RefreshMode = Literal["Periodic", "Events", "PeriodicAndEvents"]
Switch = Literal["Disabled", "Enabled"]
LogLevel = Literal["Normal", "Debug", "Trace", "TraceAll"]
ResyncDebug = Literal["DumpJSONFile", "Disabled"]
Informer = Literal["Dedicated", "Shared"]
Detection = Literal["Relaxed", "Aggressive"]
Scoring = Literal["LeastAllocated", "MostAllocated", "BalancedAllocation", "LeastNUMANodes"]
SchedulingMode = Literal["exact", "advise", "compat"]
RestrictedPolicy = Literal["filter", "score", "ignore"]

VERBOSITY: Final[Mapping[LogLevel, int]] = {"Normal": 2, "Debug": 4, "Trace": 6, "TraceAll": 8}
"""``-v`` of exporter, scheduler and extender."""
TOLERATES_ALL: Final[dict[str, Any]] = {"operator": "Exists"}
"""Exporters run on every node of their group, whatever its taints, unless the group says otherwise."""
MOST_ANNOTATIONS: Final = 8
CANDIDATE_BOUNDS: Final = (1, 16)
USUAL_SCORED: Final = (("cpu", 1), ("memory", 1))
ANNOTATION_VALUES: Final[Mapping[str, tuple[str, ...]]] = {
    SCHEDULING_MODE: get_args(SchedulingMode),
    RESTRICTED_POLICY: get_args(RestrictedPolicy),
    CANDIDATES: tuple(str(each) for each in range(CANDIDATE_BOUNDS[0], CANDIDATE_BOUNDS[1] + 1)),
    IGNORABLE: ("true",),
}
"""Values of the annotations that choose how the scheduler works (NO-013)."""


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
        """As ``config`` of a status (NO-003)."""
        document: dict[str, Any] = {
            "podsFingerprinting": self.fingerprinting,
            "infoRefreshMode": self.refresh_mode,
            "infoRefreshPeriod": go_duration(self.refresh_period),
            "infoRefreshPause": "Enabled" if self.paused else "Disabled",
        }
        return document | {"tolerations": [dict(each) for each in self.tolerations or (TOLERATES_ALL,)]}


def verbosity(spec: NUMAResourcesOperatorSpec) -> int:
    """``-v`` of the exporters."""
    return VERBOSITY[cast("LogLevel", spec.log_level or "Normal")]


class SchedulerSettings(msgspec.Struct, frozen=True, kw_only=True):
    """How the secondary scheduler works."""

    image: str = ""
    """Empty: the stock kube-scheduler of the API server's version (NO-084)."""
    name: str = "topo-aware-scheduler"
    """Of the profile; pods name it."""
    verbosity: int = VERBOSITY["Normal"]
    """Of both containers."""
    resync_period: float = 5.0
    """Seconds; 0: no reservations at all."""
    resync_debug: ResyncDebug = "DumpJSONFile"
    informer: Informer | None = None
    """None: by the versions of the kubelets (NO-083)."""
    detection: Detection = "Relaxed"
    scoring: Scoring = "LeastAllocated"
    scored: tuple[tuple[str, int], ...] = USUAL_SCORED
    """Resources and their weights, each at least 1."""
    preempts: bool = False
    """Wanted; see :attr:`evicts`."""
    replicas: int | None = None
    """None: computed (NO-082)."""
    mode: SchedulingMode = "exact"
    restricted_policy: RestrictedPolicy = "filter"
    candidates: int = 1
    """Nodes that a pod may be reserved on at a time."""
    ignorable: bool = False
    """Pods are scheduled without regard to NUMA while the extender is down."""

    @property
    def evicts(self) -> bool:
        """Whether the extender evicts pods for others: it has to reserve what comes free, or anybody might take it."""
        return self.preempts and self.mode != "compat" and bool(self.resync_period)

    @classmethod
    def of(cls, scheduler: NUMAResourcesScheduler) -> "SchedulerSettings":
        """The settings of an object that is valid."""
        spec, usual = scheduler.spec, cls()
        chosen = scheduler.metadata.annotations or {}
        scoring = spec.scoring_strategy
        scored = tuple((each.name, max(each.weight, 1)) for each in (scoring and scoring.resources) or ())
        period = spec.cache_resync_period
        return cls(
            image=spec.image_spec or "",
            name=spec.scheduler_name or usual.name,
            verbosity=VERBOSITY[cast("LogLevel", spec.log_level or "Normal")],
            resync_period=parse_go_duration(period) if period else usual.resync_period,
            resync_debug=cast("ResyncDebug", spec.cache_resync_debug or usual.resync_debug),
            informer=cast("Informer", spec.scheduler_informer) if spec.scheduler_informer else None,
            detection=cast("Detection", spec.cache_resync_detection or usual.detection),
            scoring=cast("Scoring", (scoring and scoring.type) or usual.scoring),
            scored=scored or usual.scored,
            preempts=spec.preemption_mode == "Enabled",
            replicas=spec.replicas,
            mode=cast("SchedulingMode", chosen.get(SCHEDULING_MODE, usual.mode)),
            restricted_policy=cast("RestrictedPolicy", chosen.get(RESTRICTED_POLICY, usual.restricted_policy)),
            candidates=int(chosen.get(CANDIDATES, usual.candidates)),
            ignorable=chosen.get(IGNORABLE) == "true",
        )
