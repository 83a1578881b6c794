"""The rules for nodes: what becomes of the taints of one node, and when the nodes of an architecture are tainted. Pure.

A node that is managed and whose architecture is tainted carries the desired taint; of the other taints only those that
are ours are touched, and the rest keep their content and their order. :func:`decide_node` says which taints are
replaced, removed and appended, by index in the list as read; ``patch.node_patch`` makes the patch of it. Deciding again
about the result finds nothing to do. :func:`held_back` and :class:`PendingPodMonitor` say when to begin and to stop.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from enum import StrEnum
from typing import Final, Protocol

import msgspec

from polyarch.images.node_fit import ClusterView, NodeView, PodRequirements
from polyarch.kube.review_tokens import path_without_token
from polyarch.objects import Node, ObjectMeta, Pod
from polyarch.platforms import KNOWN_ARCHITECTURES, PlatformSet, normal_architecture, normal_system
from polyarch.taints.names import (
    ARCH_KEY,
    CONTROL_PLANE_KEYS,
    DISABLED,
    MANAGED_TAINTS_ANNOTATION,
    OPT_OUT,
    OS_KEY,
    POD_WEBHOOK_PATH,
    ROLE,
)
from polyarch.taints.pod_rules import Circumstances, is_terminating, opted_out
from polyarch.taints.settings import TaintSettings
from polyarch.tolerations import NO_EXECUTE, REPELS, Taint, is_tolerated, parse_taints

# -- the taints of one node --------------------------------------------------------------------------------------------


class NodeReason(StrEnum):
    """Why a node carries the taint, does not, or is left as it is."""

    TAINTED = "Tainted"
    FOREIGN_TAINT_SUFFICES = "ForeignTaintSuffices"
    TAINT_MISSING = "TaintMissing"
    TAINT_DIFFERS = "TaintDiffers"
    NOT_RELEASED = "NotReleased"
    PRIMARY_ARCHITECTURE = "PrimaryArchitecture"
    ARCHITECTURE_NOT_MANAGED = "ArchitectureNotManaged"
    OPTED_OUT = "OptedOut"
    NOT_SELECTED = "NotSelected"
    CONTROL_PLANE = "ControlPlane"
    OTHER_SYSTEM = "OtherOperatingSystem"
    REMOVING = "Removing"
    PAUSED = "Paused"
    UNKNOWN = "NodeArchitectureUnknown"
    FOREIGN = "ForeignArchitectureTaint"


class Kind(StrEnum):
    """What is written."""

    NONE = "none"
    APPLY = "apply"
    """The node gets the taint; it had none of ours with this key."""
    CORRECT = "correct"
    """A taint of ours becomes the desired one, or is one too many."""
    REMOVE = "remove"
    """The node loses what is ours."""


_WHY: Final = {
    NodeReason.TAINTED: "it carries {desired}",
    NodeReason.FOREIGN_TAINT_SUFFICES: "it carries {desired}, which somebody else put there",
    NodeReason.TAINT_MISSING: "it has to carry {desired} and does not",
    NodeReason.TAINT_DIFFERS: "it has to carry {desired}, and no other taint of polyarch with key {key}",
    NodeReason.NOT_RELEASED: "nodes of architecture {architecture} are not tainted yet",
    NodeReason.PRIMARY_ARCHITECTURE: "{architecture} is a primary architecture, whose nodes are not tainted in this "
    "mode",
    NodeReason.ARCHITECTURE_NOT_MANAGED: "{architecture} is not one of spec.architectures",
    NodeReason.OPTED_OUT: f"it is labelled {OPT_OUT}={DISABLED}",
    NodeReason.NOT_SELECTED: "spec.nodes.selector does not match it",
    NodeReason.CONTROL_PLANE: "it is a control-plane node, and spec.nodes.excludeControlPlane is true",
    NodeReason.OTHER_SYSTEM: "its operating system {system} is not one of spec.nodes.operatingSystems",
    NodeReason.REMOVING: "the taints of polyarch are being removed",
    NodeReason.PAUSED: "spec.state is paused, so nothing is written",
    NodeReason.UNKNOWN: "neither status.nodeInfo.architecture ({reported}) nor the label kubernetes.io/arch names an "
    "architecture that is known, so it is left as it is",
    NodeReason.FOREIGN: "it carries {foreign}, which is not polyarch's and excludes {desired}: key and effect are "
    "unique on a node; remove that taint, or choose another key",
}


class Replace(msgspec.Struct, frozen=True, gc=False):
    """The taint at this index becomes another one in its place."""

    index: int
    taint: Taint


class NodeDecision(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """What is done about one node, and why. Indexes are those of ``spec.taints`` as read."""

    kind: Kind = Kind.NONE
    reason: NodeReason
    architecture: str = ""
    """Normalised; empty if it is unknown."""
    mismatch: str = ""
    """The label's architecture, if the kubelet reports another one (``NodeArchitectureMismatch``)."""
    managed: bool = False
    desired: Taint | None = None
    """What a managed node of a tainted architecture is to carry."""
    carried: bool = False
    """The desired taint is there."""
    marked: bool = False
    """The desired taint, or one that is ours, is there."""
    replaced: Replace | None = None
    removed: tuple[int, ...] = ()
    appended: Taint | None = None
    adopted: tuple[Taint, ...] = ()
    """The replaced and removed taints of which polyarch has no record: somebody else may have put them there."""
    record: str | None = None
    """The annotation's new value; None leaves it as it is, an empty one removes it."""
    message: str = ""
    """Why, as the rest of a sentence that begins with the node's name."""

    @property
    def waiting(self) -> bool:
        """It is to carry a taint and does not."""
        return self.desired is not None and not self.carried


def decide_node(
    node: Node, settings: TaintSettings, *, released: Collection[str] | None = None, leaving: bool = False
) -> NodeDecision:
    """The decision about one node.

    ``released``: architectures whose nodes may be tainted by now; None: all. ``leaving``: the configuration is
    being deleted, which is as ``state: removing``.
    """
    return _Case(node, settings).decide(released, leaving=leaving or settings.state == "removing")


class _Case:
    def __init__(self, node: Node, settings: TaintSettings) -> None:
        labels, info = node.metadata.labels or {}, node.status.node_info
        self._labels = labels
        self._settings = settings
        self._taints = node.spec.taints or []
        self._text = (node.metadata.annotations or {}).get(MANAGED_TAINTS_ANNOTATION)
        self._recorded = parse_taints(self._text or "")
        self._ours = self._owned()
        reported, labelled = normal_architecture(info.architecture), normal_architecture(labels.get(ARCH_KEY, ""))
        self._reported = info.architecture
        self._mismatch = labelled if reported and labelled and reported != labelled else ""
        self._architecture = architecture_of(node)
        self._system = normal_system(info.operating_system or labels.get(OS_KEY, "") or "linux")
        self._why_unmanaged = self._unmanaged()

    def decide(self, released: Collection[str] | None, *, leaving: bool) -> NodeDecision:
        settings, architecture = self._settings, self._architecture
        if settings.state == "paused" and not leaving:
            return self._nothing(NodeReason.PAUSED, self._wanted())
        if leaving:
            return self._without(NodeReason.REMOVING, every_key=True)
        if not architecture:
            return self._nothing(NodeReason.UNKNOWN)
        if self._why_unmanaged is not None:
            return self._without(self._why_unmanaged)
        desired = self._wanted()
        if desired is None:
            return self._without(NodeReason.PRIMARY_ARCHITECTURE)
        return self._with(desired, may_begin=released is None or architecture in released)

    def _unmanaged(self) -> NodeReason | None:
        settings, labels = self._settings, self._labels
        if labels.get(OPT_OUT) == DISABLED:
            return NodeReason.OPTED_OUT
        if self._architecture not in settings.managed:
            return NodeReason.ARCHITECTURE_NOT_MANAGED
        if self._system not in settings.operating_systems:
            return NodeReason.OTHER_SYSTEM
        if settings.exclude_control_plane and any(key in labels for key in CONTROL_PLANE_KEYS):
            return NodeReason.CONTROL_PLANE
        if settings.node_selector is not None and not settings.node_selector.matches(labels):
            return NodeReason.NOT_SELECTED
        return None

    def _wanted(self) -> Taint | None:
        architecture = self._architecture
        if not architecture or self._why_unmanaged is not None or not self._settings.is_tainted(architecture):
            return None
        return self._settings.taint(architecture)

    # -- with a desired taint -----------------------------------------------------------------------------------------

    def _with(self, desired: Taint, *, may_begin: bool) -> NodeDecision:
        owned = [at for at in self._ours if self._taints[at].key == desired.key]
        there = next((at for at, taint in enumerate(self._taints) if _same(taint, desired)), None)
        if there is not None:
            extra = tuple(at for at in owned if at != there)
            if not extra:
                is_ours = there in owned
                return self._nothing(NodeReason.TAINTED if is_ours else NodeReason.FOREIGN_TAINT_SUFFICES, desired)
            kept = desired if there in owned else None
            return self._change(
                Kind.CORRECT, NodeReason.TAINT_DIFFERS, desired, removed=extra, record=self._record(kept)
            )
        foreign = self._in_the_way(desired, owned)
        if foreign is not None:
            return self._nothing(NodeReason.FOREIGN, desired, foreign=foreign)
        if not may_begin:
            return self._nothing(NodeReason.NOT_RELEASED, desired)
        record = self._record(desired)
        if owned:
            first, *extra_owned = owned
            return self._change(
                Kind.CORRECT,
                NodeReason.TAINT_DIFFERS,
                desired,
                replaced=Replace(first, desired),
                removed=tuple(extra_owned),
                record=record,
            )
        return self._change(Kind.APPLY, NodeReason.TAINT_MISSING, desired, appended=desired, record=record)

    def _in_the_way(self, desired: Taint, owned: Collection[int]) -> Taint | None:
        """A foreign taint with the key and effect of the desired one, which the API server would refuse beside it."""
        pair = desired.key, desired.effect
        beside = ((at, taint) for at, taint in enumerate(self._taints) if (taint.key, taint.effect) == pair)
        return next((taint for at, taint in beside if at not in owned), None)

    # -- without one --------------------------------------------------------------------------------------------------

    def _without(self, why: NodeReason, *, every_key: bool = False) -> NodeDecision:
        """Takes away what is ours: with the key in force, or (``every_key``) all of it and the whole record."""
        key = self._settings.key
        removed = tuple(at for at in self._ours if every_key or self._taints[at].key == key)
        record = "" if every_key else self._record(None)
        if not removed and (record or None) == self._text:
            return self._nothing(why)
        return self._change(Kind.REMOVE, why, None, removed=removed, record=record)

    # -- ownership ----------------------------------------------------------------------------------------------------

    def _owned(self) -> list[int]:
        """Indexes of the taints that are ours."""
        return [at for at, taint in enumerate(self._taints) if self._is_recorded(taint) or self._is_adopted(taint)]

    def _is_recorded(self, taint: Taint) -> bool:
        """An entry stands for the taint that equals it. Only if none does was ours changed by hand, and one like it is
        ours: else a foreign taint with the same value would be ours as soon as we wrote beside it."""
        return any(
            _same(taint, entry) or (_alike(taint, entry) and not any(_same(each, entry) for each in self._taints))
            for entry in self._recorded
        )

    def _is_adopted(self, taint: Taint) -> bool:
        settings = self._settings
        return settings.ownership == "adopt" and taint.key == settings.key and taint.value in KNOWN_ARCHITECTURES

    def _record(self, ours: Taint | None) -> str:
        """The record after the write: entries of former keys stay as long as there is such a taint."""
        former = {entry for entry in self._recorded if entry.key != self._settings.key and self._is_there(entry)}
        return ",".join(sorted(str(entry) for entry in former | ({ours} if ours is not None else set())))

    def _is_there(self, entry: Taint) -> bool:
        return any(_alike(taint, entry) for taint in self._taints)

    # -- decisions ----------------------------------------------------------------------------------------------------

    def _nothing(
        self, reason: NodeReason, desired: Taint | None = None, *, foreign: Taint | None = None
    ) -> NodeDecision:
        return self._change(Kind.NONE, reason, desired, foreign=foreign)

    def _change(
        self,
        kind: Kind,
        reason: NodeReason,
        desired: Taint | None,
        *,
        replaced: Replace | None = None,
        removed: tuple[int, ...] = (),
        appended: Taint | None = None,
        record: str | None = None,
        foreign: Taint | None = None,
    ) -> NodeDecision:
        message = _WHY[reason].format(
            desired=desired,
            key=self._settings.key,
            architecture=self._architecture,
            system=self._system,
            reported=repr(self._reported),
            foreign=foreign,
        )
        carried = desired is not None and any(_same(taint, desired) for taint in self._taints)
        return NodeDecision(
            kind=kind,
            reason=reason,
            architecture=self._architecture,
            mismatch=self._mismatch,
            managed=bool(self._architecture) and self._why_unmanaged is None,
            desired=desired,
            carried=carried,
            marked=carried or bool(self._ours),
            replaced=replaced,
            removed=removed,
            appended=appended,
            adopted=tuple(
                self._taints[at]
                for at in sorted({*removed, *([replaced.index] if replaced is not None else [])})
                if not self._is_recorded(self._taints[at])
            ),
            record=None if (record or None) == self._text else record,
            message=message,
        )


def architecture_of(node: Node) -> str:
    """The node's architecture, normalised; empty if it is unknown."""
    reported = node.status.node_info.architecture or (node.metadata.labels or {}).get(ARCH_KEY, "")
    architecture = normal_architecture(reported)
    return architecture if architecture in KNOWN_ARCHITECTURES else ""


def _same(taint: Taint, other: Taint) -> bool:
    """Whether they are equal but for the time they were added at."""
    return (taint.key, taint.value, taint.effect) == (other.key, other.value, other.effect)


def _alike(taint: Taint, entry: Taint) -> bool:
    """Whether the taint may be what somebody made of the entry by hand."""
    return taint.key == entry.key and (taint.value == entry.value or taint.effect == entry.effect)


# -- when the nodes of an architecture are tainted, in which order, and when that stops --------------------------------
# A taint on the first node of an architecture changes what the whole cluster schedules, so it waits until pods and
# DaemonSets are known to get their tolerations. Afterwards pods are watched that nothing but the taint keeps pending:
# if some appear shortly after nodes were tainted, no further node of that architecture is. Times are seconds that the
# caller passes.

NAMED: Final = 5
"""Objects that a message names."""
WINDOW: Final = 60.0
"""Seconds after a node was tainted in which pods that become pending stop the rollout."""
QUIET_PERIOD: Final = 600.0
"""Seconds without such pods after which it goes on by itself."""
SETTLED: Final = 5.0
"""Seconds that a pod is pending before it counts: one that the webhook missed gets its tolerations meanwhile."""


class RolloutPauseReason(StrEnum):
    """Why no node of an architecture is tainted, as ``status.architectures[].reason`` says it."""

    ADMISSION_NOT_READY = "AdmissionNotReady"
    DAEMON_SETS_NOT_COVERED = "DaemonSetsNotCovered"
    PODS_UNDECIDED = "PodsUndecided"
    PODS_BECAME_PENDING = "PodsBecamePending"


class RolloutPause(msgspec.Struct, frozen=True, gc=False):
    """Why the nodes of an architecture wait; the message is a sentence without its full stop."""

    reason: RolloutPauseReason
    message: str


class RolloutPreconditions(msgspec.Struct, frozen=True, kw_only=True):
    """What has to be known of an architecture before its first node is tainted. None: not known yet."""

    admission: str = ""
    """Why the webhook for pods is not registered or not available; empty: it is both."""
    uncovered: Sequence[str] | None = ()
    """DaemonSets with a pod on such a node and without the toleration in their template."""
    undecided: Sequence[str] | None = ()
    """Unscheduled pods that may run there and wait for the answers about their images."""
    running_prepared: bool = True
    """Pods on nodes have the tolerations that they should have."""


def held_back(architecture: str, settings: TaintSettings, safety: RolloutPreconditions) -> RolloutPause | None:
    """Why the first node of an architecture must not be tainted yet; None: it may."""
    if settings.rollout == "immediate":
        return None
    if safety.admission:
        return RolloutPause(RolloutPauseReason.ADMISSION_NOT_READY, safety.admission)
    if settings.templates != "ignore":
        if safety.uncovered is None:
            return RolloutPause(
                RolloutPauseReason.DAEMON_SETS_NOT_COVERED, "the DaemonSets of the cluster are not known yet"
            )
        if safety.uncovered:
            what = f"DaemonSets with pods on {architecture} nodes whose templates do not tolerate the taint"
            return RolloutPause(RolloutPauseReason.DAEMON_SETS_NOT_COVERED, f"{what}: {named(safety.uncovered)}")
    if settings.effect == NO_EXECUTE and not safety.running_prepared:
        return RolloutPause(
            RolloutPauseReason.PODS_UNDECIDED,
            "pods on nodes are still getting their tolerations; NoExecute would evict them",
        )
    if settings.mode != "secondary-only":
        if safety.undecided is None:
            return RolloutPause(
                RolloutPauseReason.PODS_UNDECIDED, "the unscheduled pods of the cluster are not known yet"
            )
        if safety.undecided:
            what = f"unscheduled pods that may run on {architecture} and wait for the answers about their images"
            return RolloutPause(RolloutPauseReason.PODS_UNDECIDED, f"{what}: {named(safety.undecided)}")
    return None


def in_order(nodes: Mapping[str, int], primary: frozenset[str]) -> tuple[str, ...]:
    """Architectures in the order in which they are tainted, given how many managed nodes each has."""
    return tuple(sorted(nodes, key=lambda each: (each in primary, nodes[each], each)))


def named(names: Iterable[str]) -> str:
    """The first five names, and how many more there are."""
    several = list(names)
    more = f" and {len(several) - NAMED} more" if len(several) > NAMED else ""
    return ", ".join(several[:NAMED]) + more


class PendingPodMonitor(msgspec.Struct, frozen=True, kw_only=True):
    """What happened to pods since nodes of one architecture were tainted.

    Pods are given by uid, with their names. Those that were pending already when the watch began, or that somebody has
    accepted, do not stop anything.
    """

    stopped: bool = False
    tainted_at: float | None = None
    """When the last node of the architecture was tainted."""
    known: frozenset[str] | None = None
    """Pods that do not count; None: nobody has looked yet."""
    since: Mapping[str, float] = {}
    """Pods that count, and when each was first seen."""
    names: tuple[str, ...] = ()
    """Names of the pods that count, at the last look."""
    quiet_since: float | None = None

    def tainted(self, now: float) -> "PendingPodMonitor":
        """A node of the architecture was tainted."""
        return msgspec.structs.replace(self, tainted_at=now)

    def looked(self, now: float, pending: Mapping[str, str]) -> "PendingPodMonitor":
        """The state after a look at the pods that only the taint of this architecture keeps pending."""
        if self.known is None:
            known = frozenset() if self.stopped else frozenset(pending)
        elif self.is_open(now) or self.stopped:
            known = self.known & pending.keys()
        else:
            known = frozenset(pending) - self._unsettled(pending)
        since = {uid: self.since.get(uid, now) for uid in pending if uid not in known}
        seen = msgspec.structs.replace(
            self, known=known, since=since, names=tuple(sorted(pending[uid] for uid in since))
        )
        return seen._resumed(now) if self.stopped else seen._halted(now)

    def accepted(self) -> "PendingPodMonitor":
        """Somebody changed the configuration knowing of these pods: they count no more."""
        known = None if self.known is None else self.known | self.since.keys()
        return PendingPodMonitor(tainted_at=self.tainted_at, known=known)

    def is_open(self, now: float) -> bool:
        """A node was tainted less than a minute ago."""
        return self.tainted_at is not None and now - self.tainted_at <= WINDOW

    def _unsettled(self, pending: Mapping[str, str]) -> frozenset[str]:
        """Pods that appeared while the window was open and are not settled yet."""
        return frozenset(uid for uid in self.since if uid in pending)

    def _halted(self, now: float) -> "PendingPodMonitor":
        stops = any(now - first >= SETTLED for first in self.since.values())
        return msgspec.structs.replace(self, stopped=True) if stops else self

    def _resumed(self, now: float) -> "PendingPodMonitor":
        if self.since:
            return msgspec.structs.replace(self, quiet_since=None)
        quiet_since = now if self.quiet_since is None else self.quiet_since
        if now - quiet_since >= QUIET_PERIOD:
            return PendingPodMonitor(tainted_at=self.tainted_at, known=self.known)
        return msgspec.structs.replace(self, quiet_since=quiet_since)


def stop_message(architecture: str, pods: Sequence[str]) -> str:
    """The sentence of condition ``Degraded`` while tainting of an architecture is stopped."""
    return (
        f"pods became pending when {architecture} nodes were tainted, because they do not tolerate the taint: "
        f"{named(pods) if pods else 'none any more'}; no further {architecture} node is tainted. Give them the "
        "toleration, or images for other nodes, and change the object to go on (an annotation is enough), or wait "
        "10 minutes after the last such pod"
    )


# -- pods that nothing but a taint of ours keeps pending ---------------------------------------------------------------
# A pod counts if it waits for a node, does not tolerate a taint of ours, has not opted out, and would find a node if
# that taint were not there: one that its node selector, its required node affinity and all other taints admit.
# Resources and the like are not looked at: a pod that they keep pending is one that finds a node by these rules.

Pending = Mapping[str, Mapping[str, str]]
"""Architecture whose taint it is → uid of the pod → its namespace and name."""


class KnowsUnscheduled(Protocol):
    """Who watches the pods without a node."""

    def pods(self) -> Iterable[Pod] | None:
        """All of them; None: not known yet."""

    def platforms(self, pod: Pod) -> PlatformSet:
        """What the images of one of them run on."""


PlatformsOf = Callable[[Pod], PlatformSet]
"""What the images of a pod run on."""


def any_platform(_: Pod) -> PlatformSet:
    """Nobody knows the images."""
    return PlatformSet.EVERYTHING


def pending_because_of_taints(
    pods: Iterable[Pod],
    nodes: Iterable[Node],
    settings: TaintSettings,
    labels_of: Callable[[str], Mapping[str, str] | None],
    platforms_of: PlatformsOf = any_platform,
) -> Pending:
    """The pods among ``pods``, which have no node. ``labels_of`` gives the labels of a Namespace, if they are known,
    ``platforms_of`` what the images of a pod run on."""
    if settings.effect not in REPELS:
        return {}
    fleet = list(nodes)
    carried = {taint.value for node in fleet for taint in node.spec.taints or () if _is_ours(taint, settings)}
    taints = [settings.taint(each) for each in sorted(carried)]
    suspects = [pod for pod in pods if _is_suspect(pod, taints, settings, labels_of)]
    if not suspects:
        return {}
    cluster = ClusterView(_views(fleet, settings))
    found: dict[str, dict[str, str]] = {}
    for pod in suspects:
        fit = cluster.fit(PodRequirements.of(pod, platforms=platforms_of(pod)))
        for architecture in {each.architecture for each in fit.lost}:
            found.setdefault(architecture, {})[pod.metadata.uid] = str(pod.metadata.key)
    return found


def _is_suspect(
    pod: Pod,
    taints: Iterable[Taint],
    settings: TaintSettings,
    labels_of: Callable[[str], Mapping[str, str] | None],
) -> bool:
    if pod.spec.node_name or pod.spec.scheduling_gates:
        return False
    if all(is_tolerated(taint, pod.spec.tolerations) for taint in taints):
        return False
    namespace = pod.metadata.namespace
    labels = labels_of(namespace) or {}
    case = Circumstances(pod=pod, namespace=namespace, namespace_labels=labels, settings=settings, is_new=False)
    return not is_terminating(case) and not opted_out(case)


def _is_ours(taint: Taint, settings: TaintSettings) -> bool:
    """It is one that nodes get by the settings, whoever put it there."""
    return (taint.key, taint.effect) == (settings.key, settings.effect) and settings.is_tainted(taint.value)


def _views(nodes: Iterable[Node], settings: TaintSettings) -> Iterator[NodeView]:
    """The nodes with all their taints, and (as they were before) without ours."""
    for node in nodes:
        taints = tuple(node.spec.taints or ())
        others = tuple(taint for taint in taints if not _is_ours(taint, settings))
        yield NodeView.of(node, before=others, after=taints)


# -- whether pods get their tolerations at admission -------------------------------------------------------------------
# The webhook counts as registered and available if the MutatingWebhookConfiguration has an entry for pods, and the
# Service that the entry names has a ready endpoint. An entry with a URL, for a process outside the cluster, is taken at
# its word.

SERVICE_LABEL: Final = "kubernetes.io/service-name"
"""Of an EndpointSlice: the Service whose endpoints it has."""


class ServiceReference(msgspec.Struct, frozen=True, gc=False):
    """admissionregistration.k8s.io/v1 ServiceReference."""

    namespace: str = ""
    name: str = ""
    path: str = ""


class ClientConfig(msgspec.Struct, frozen=True, gc=False):
    """admissionregistration.k8s.io/v1 WebhookClientConfig."""

    service: ServiceReference | None = None
    url: str = ""

    @property
    def path(self) -> str:
        return self.service.path if self.service is not None else self.url


class Webhook(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    """admissionregistration.k8s.io/v1 MutatingWebhook."""

    name: str = ""
    client_config: ClientConfig = ClientConfig()


class WebhookConfiguration(msgspec.Struct, frozen=True, gc=False):
    """admissionregistration.k8s.io/v1 MutatingWebhookConfiguration."""

    metadata: ObjectMeta = ObjectMeta()
    webhooks: list[Webhook] | None = None


class EndpointConditions(msgspec.Struct, frozen=True, gc=False):
    """discovery.k8s.io/v1 EndpointConditions; an absent ``ready`` means ready."""

    ready: bool | None = None


class Endpoint(msgspec.Struct, frozen=True, gc=False):
    """discovery.k8s.io/v1 Endpoint."""

    conditions: EndpointConditions = EndpointConditions()


class EndpointSlice(msgspec.Struct, frozen=True, gc=False):
    """discovery.k8s.io/v1 EndpointSlice."""

    metadata: ObjectMeta = ObjectMeta()
    endpoints: list[Endpoint] | None = None


def admission_problem(
    configuration: WebhookConfiguration | None, slices: Iterable[EndpointSlice], *, namespace: str
) -> str:
    """Why pods do not get their tolerations at admission; empty: they do."""
    entries = [
        each.client_config
        for each in (configuration.webhooks or () if configuration is not None else ())
        if path_without_token(each.client_config.path).endswith(POD_WEBHOOK_PATH)
    ]
    if not entries:
        return f"MutatingWebhookConfiguration {ROLE} has no entry for pods, so they get no tolerations"
    for entry in entries:
        service = entry.service
        if service is None:
            continue
        if (service.namespace, service.name) != (namespace, ROLE):
            return (
                f"MutatingWebhookConfiguration {ROLE} points at Service {service.namespace}/{service.name}, not at "
                f"{namespace}/{ROLE}"
            )
        if not any(endpoint.conditions.ready is not False for each in slices for endpoint in each.endpoints or ()):
            return f"Service {namespace}/{ROLE} has no ready endpoint, so pods get no tolerations"
    return ""
