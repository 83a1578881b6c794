"""The report as a document, ``polyarch.dev/report/v1``: what every form of output renders, and nothing more.

Members are only ever added, and lists are in the order in which they are shown: equal facts give equal bytes.
Every text that comes from the cluster (names, labels, images, reasons) is as it was found there: a form that gives
characters a meaning has to escape it.

A *target* is the platform that the report asks about, spelled as its architecture (``arm64``), with its operating
system only where that is not Linux (``windows/amd64``). A *share* is from 0 to 1, of :attr:`Report.basis`. An optional
part is null if there is nothing to say about it: it is left out then, not printed empty. Pure.
"""

from enum import StrEnum
from typing import Final, Literal

import msgspec

SCHEMA: Final = "polyarch.dev/report/v1"
Basis = Literal["cores", "replicas"]


class Verdict(StrEnum):
    """What is to be said of one workload and one target, the best first."""

    RUNS = "runs"
    """Pods run there now, and nothing is in the way of the next ones."""
    READY = "ready"
    """All images support the target, and nothing excludes it."""
    CONSTRAINED = "constrained"
    """The images support it, and something else excludes it."""
    IMAGE = "image"
    """An image lacks the target."""
    UNKNOWN = "unknown"
    """Nobody could be asked about an image that decides."""
    EXCLUDED = "excluded"
    """Opted out, or of an excluded or a system namespace: only counted."""


class Weight(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    """How much a workload is: what its desired replicas request together."""

    cores: float = 0.0
    memory_bytes: int = 0
    replicas: int = 0
    """Desired; of a DaemonSet its desired pods, of a CronJob those of one run."""
    pods: int = 0
    """Those that exist now and have not ended."""


class Reason(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    """One thing that decides a verdict, or is to be known about it."""

    code: str
    """CamelCase and stable: ``ImageLacksTarget``, ``NodeSelector``, ``RequiredAffinity``, ``TaintNotTolerated``, …"""
    message: str
    """One sentence for people."""
    path: str = ""
    """The field of the workload, or the object and its field, such as ``spec.template.spec.nodeSelector``."""
    value: str = ""
    """What stands there."""
    image: str = ""
    """The reference as the workload writes it, if the reason is about one."""


class TargetVerdict(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    """One workload and one target."""

    target: str
    verdict: Verdict
    reasons: tuple[Reason, ...] = ()
    """Why it is not ``runs`` or ``ready``; empty for these two."""
    pods: int = 0
    """Pods that run on the target now."""
    blocks_nodes: bool = False
    """A DaemonSet without which no node of the target is ready for use."""


class Drift(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    """The image that runs and the image that the next pod would run differ in their platforms."""

    container: str
    running: str
    """``imageID`` of the pods."""
    next: str
    """The reference of the template."""
    running_platforms: tuple[str, ...]
    next_platforms: tuple[str, ...]


class WorkloadRow(msgspec.Struct, frozen=True, gc=False, rename="camel", kw_only=True):
    """One workload with its answers, one for each target, in the order of the report's targets."""

    namespace: str
    kind: str
    name: str
    team: str = ""
    weight: Weight
    images: tuple[str, ...]
    runs_on: tuple[str, ...] = ()
    """The platforms of the nodes that its pods are on, as targets are spelled."""
    answers: tuple[TargetVerdict, ...]
    drift: tuple[Drift, ...] = ()
    problems: tuple[str, ...] = ()
    """What makes no sense in it, such as a request that is no quantity: its weight is 0 then."""
    source: str = ""
    """File and line, if it was read from one."""


class Suggestion(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    """The cheapest way out that is known for an image."""

    kind: Literal["tag", "substitute", "publish"]
    reference: str = ""
    """The image to use instead; empty for ``publish``."""
    message: str = ""
    """One sentence: what to do."""


class Blocker(msgspec.Struct, frozen=True, gc=False, rename="camel", kw_only=True):
    """An image that keeps workloads from a target; the heaviest first."""

    target: str
    image: str
    platforms: tuple[str, ...]
    """What it is built for."""
    alone: Weight
    """Of the workloads that would become ready if this image had the target."""
    together: Weight
    """Of the workloads that lack something else besides."""
    workloads: tuple[str, ...]
    """``NAMESPACE/KIND/NAME``: those that it alone keeps back first."""
    suggestion: Suggestion


class CurvePoint(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    """How much could run on the target when so many images are fixed, the heaviest first."""

    images: int
    """How many are fixed; 0 is the state of today."""
    image: str
    """The one that is fixed at this point; empty at 0."""
    cores: float
    """What could run then."""
    share: float


class Saving(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    """What moving everything that is ready would save, as an estimate."""

    cores: float
    """What would move: ready for the target, and not on it now."""
    per_month: float
    """In the unit of the prices; below 0 it would cost more."""
    formula: str
    """The calculation with its numbers, for people."""


class VerdictSum(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    """All workloads of one verdict."""

    verdict: Verdict
    workloads: int
    weight: Weight


class TargetSums(msgspec.Struct, frozen=True, gc=False, rename="camel", kw_only=True):
    """The sums of one target. What is excluded counts in no share."""

    target: str
    nodes: int
    """Nodes of this platform in the cluster."""
    verdicts: tuple[VerdictSum, ...]
    """One for each verdict, in the order of :class:`Verdict`, also if it has no workload."""
    runs_share: float | None
    """Of the weight; null if there is none."""
    ready_share: float | None
    """``runs`` and ``ready`` together: what could run there today."""
    unconstrained_share: float | None
    """What could run there after lifting constraints: ``constrained`` besides."""
    curve: tuple[CurvePoint, ...] = ()
    """What could run there after lifting constraints and fixing images, one after another."""
    blocking_daemon_sets: tuple[str, ...] = ()
    """``NAMESPACE/NAME`` of the DaemonSets without which no node of the target is ready."""
    saving: Saving | None = None


class GroupShare(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    """One target within a group."""

    target: str
    runs_share: float | None
    ready_share: float | None
    unconstrained_share: float | None
    workloads: tuple[int, ...]
    """How many have each verdict, in the order of :class:`Verdict`."""


class Group(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    """Workloads with a namespace, a node pool or a team in common."""

    name: str
    weight: Weight
    workloads: int
    targets: tuple[GroupShare, ...]


class NamedPods(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    """Pods with something in common: how many, and the first names."""

    what: str
    """Such as the reason of their decision."""
    count: int
    names: tuple[str, ...]
    """``NAMESPACE/NAME``, at most 5."""
    message: str = ""


class PlacementPart(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    """What placement has decided, from the pods' own records."""

    reasons: tuple[NamedPods, ...]
    """Pods by the reason of their decision."""
    notable: tuple[NamedPods, ...]
    """Held, Fallback, ReleasedUnconstrained, Unplaced, Misplaced, ExecFormatErrors: those that there are."""


class NodeKind(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    """The nodes of one platform."""

    platform: str
    nodes: int
    cores: float
    """Allocatable."""
    requested_cores: float
    """Of the workloads that run there, by their pods."""
    pods: int


class PartRow(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    """One fact of an optional part."""

    what: str
    count: int
    names: tuple[str, ...] = ()
    message: str = ""


class FeatureSection(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    """What another feature of polyarch says about this cluster."""

    rows: tuple[PartRow, ...]


class NodeDrift(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    """Pods of one node that it could not run once they restart."""

    node: str
    platform: str
    pods: tuple[str, ...]
    """``NAMESPACE/NAME``."""
    reasons: tuple[str, ...]
    """One sentence for each pod."""


class Change(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    """A workload whose verdict is another one than in the former report."""

    target: str
    workload: str
    """``NAMESPACE/KIND/NAME``."""
    before: str
    """Its verdict; empty if it was not there."""
    after: str
    """Its verdict; empty if it is gone."""
    cores: float


class ShareChange(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    """A target's share of ``runs`` and ``ready``, then and now."""

    target: str
    before: float | None
    after: float | None


class Comparison(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    """This report beside a former one."""

    former: str
    """When the facts of the former report were read; empty if it does not say."""
    shares: tuple[ShareChange, ...]
    better: tuple[Change, ...]
    worse: tuple[Change, ...]
    appeared: tuple[Change, ...]
    disappeared: tuple[Change, ...]


class Source(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    """Where the facts are from."""

    kind: Literal["cluster", "files"]
    name: str = ""
    """The context of the kubeconfig, or the files; empty for the cluster in which the report was made."""
    taken_at: str = ""
    """RFC 3339, UTC: when the facts were read; empty for files."""


class Report(msgspec.Struct, frozen=True, gc=False, rename="camel", kw_only=True):
    """Everything that is said about one set of facts."""

    api_version: str = SCHEMA
    kind: str = "Report"
    complete: bool = True
    """False: it was interrupted before all images were asked for."""
    source: Source
    targets: tuple[str, ...]
    basis: Basis
    """What shares are of: requested cores, or replicas if no workload requests any CPU."""
    weight: Weight
    """Of all workloads that are not excluded."""
    sums: tuple[TargetSums, ...]
    """One for each target."""
    nodes: tuple[NodeKind, ...] = ()
    workloads: tuple[WorkloadRow, ...] = ()
    """The heaviest first; those that are excluded are not listed."""
    blockers: tuple[Blocker, ...] = ()
    """By target, then the heaviest first."""
    namespaces: tuple[Group, ...] = ()
    pool_label: str = ""
    """The label that ``pools`` are told apart by."""
    pools: tuple[Group, ...] = ()
    """Node pools; a workload counts for the one that most of its pods are on, and for the nameless one without pods."""
    team_label: str = ""
    teams: tuple[Group, ...] = ()
    placement: PlacementPart | None = None
    numa: FeatureSection | None = None
    taints: FeatureSection | None = None
    builds: FeatureSection | None = None
    node_drift: tuple[NodeDrift, ...] | None = None
    """Null unless it was asked for."""
    comparison: Comparison | None = None
    """Null unless it was asked for."""
    notes: tuple[str, ...] = ()
    """What was assumed, and what nobody was allowed to read."""
