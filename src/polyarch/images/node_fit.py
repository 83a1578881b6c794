"""Whether a pod can run on a node: the one judgement of plans, reports, explanations and paused rollouts. Pure.

A node takes a pod if the API server accepts the pod (its RuntimeClass exists and does not contradict it), if the
scheduler's filters for nodes admit it (``nodeName``, ``nodeSelector``, required node affinity, taints and cordons), and
if what starts there then runs: the node has the pod's operating system and a platform that all of its images have.
Resources, pod affinity and topology spread are ignored, and whoever prints a result says so.

Sources: ``pkg/scheduler/framework/plugins`` (nodename, nodeaffinity, tainttoleration, nodeunschedulable), the kubelet's
``pkg/kubelet/lifecycle/predicate.go``, ``plugin/pkg/admission/runtimeclass``, and ``pkg/util/tolerations``.

Nodes that are alike for a pod count as one, and equal pods are judged once: a cluster has many nodes and pods, but few
combinations of what they ask for and of the labels and taints there are.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from enum import StrEnum
from typing import Final, Literal, NamedTuple

import msgspec

from polyarch.images.constraints import constraints_of, system_of
from polyarch.objects import Node, Pod, RuntimeClass
from polyarch.platforms import NODE_SYSTEMS, NodePlatform, PlatformSet, is_crio, normal_architecture, normal_system
from polyarch.selectors import InvalidSelector, NodeTerm, admits, is_label_key, is_label_value
from polyarch.tolerations import (
    EFFECTS,
    NO_EXECUTE,
    NO_SCHEDULE,
    OPERATORS,
    REPELS,
    Taint,
    Toleration,
    is_passing,
    is_tolerated,
)

IGNORED: Final = "resources, pod affinity and topology spread constraints"
"""What the judgement does not look at."""
_UNSCHEDULABLE: Final = Taint(key="node.kubernetes.io/unschedulable", effect=NO_SCHEDULE)
"""A cordoned node: the scheduler asks for the toleration of this taint, whether or not the node carries it yet."""
BY_CONTROLLER: Final = (
    Toleration(key="node.kubernetes.io/not-ready", operator="Exists", effect=NO_EXECUTE),
    Toleration(key="node.kubernetes.io/unreachable", operator="Exists", effect=NO_EXECUTE),
    Toleration(key="node.kubernetes.io/disk-pressure", operator="Exists", effect=NO_SCHEDULE),
    Toleration(key="node.kubernetes.io/memory-pressure", operator="Exists", effect=NO_SCHEDULE),
    Toleration(key="node.kubernetes.io/pid-pressure", operator="Exists", effect=NO_SCHEDULE),
    Toleration(key="node.kubernetes.io/unschedulable", operator="Exists", effect=NO_SCHEDULE),
)
"""What the DaemonSet controller adds to its pods (``pkg/controller/daemon/util/daemonset_util.go``)."""


# -- nodes -------------------------------------------------------------------------------------------------------------


def node_platform(labels: Mapping[str, str], architecture: str = "", os: str = "") -> NodePlatform:
    """The platform of a node, by what its kubelet reports, else by its labels; an empty architecture is unknown."""
    return NodePlatform(
        normal_system(os or labels.get("kubernetes.io/os", "") or "linux"),
        normal_architecture(architecture or labels.get("kubernetes.io/arch", "")),
    )


class NodeView(msgspec.Struct, frozen=True):
    """A node, with its taints as they are and as they are planned."""

    name: str
    platform: NodePlatform
    labels: Mapping[str, str]
    before: tuple[Taint, ...] = ()
    after: tuple[Taint, ...] = ()
    has_crio: bool = False

    @classmethod
    def of(cls, node: Node, *, before: Iterable[Taint] | None = None, after: Iterable[Taint] = ()) -> "NodeView":
        """``before``: other taints than those that the node carries. A cordon counts as its taint."""
        labels, info = node.metadata.labels or {}, node.status.node_info
        cordon = (_UNSCHEDULABLE,) if node.spec.unschedulable else ()
        carried = node.spec.taints or () if before is None else before
        return cls(
            name=node.metadata.name,
            platform=node_platform(labels, info.architecture, info.operating_system),
            labels=labels,
            before=tuple(_timeless((*carried, *cordon))),
            after=tuple(_timeless((*after, *cordon))),
            has_crio=is_crio(info.container_runtime_version),
        )

    @property
    def lasting(self) -> "NodeView":
        """The node without taints that come and go by themselves."""
        return msgspec.structs.replace(
            self,
            before=tuple(each for each in self.before if not is_passing(each)),
            after=tuple(each for each in self.after if not is_passing(each)),
        )


def _timeless(taints: Iterable[Taint]) -> Iterator[Taint]:
    """Nodes whose taints differ only in when they were added are alike; so are those that differ in repetition."""
    seen = set()
    for taint in taints:
        taint = msgspec.structs.replace(taint, time_added=None) if taint.time_added else taint
        if taint not in seen:
            seen.add(taint)
            yield taint


# -- pods --------------------------------------------------------------------------------------------------------------

RuntimeClasses = Mapping[str, RuntimeClass]
"""The RuntimeClasses of a cluster by name."""


class AdmittedPod(NamedTuple):
    """A pod as the API server stores it, or why the API server refuses it."""

    pod: Pod
    refused: str = ""


def with_runtime_class(pod: Pod, classes: RuntimeClasses | None) -> AdmittedPod:
    """The pod with what its RuntimeClass adds at admission, before any webhook sees the pod.

    ``classes``: None if nobody knows which there are; then nothing is added.
    """
    name = pod.spec.runtime_class_name
    if not name or classes is None:
        return AdmittedPod(pod)
    found = classes.get(name)
    if found is None:
        return AdmittedPod(pod, f"there is no RuntimeClass {name}, so the API server refuses its pods")
    if found.scheduling is None:
        return AdmittedPod(pod)
    selector = dict(pod.spec.node_selector or {})
    for key, value in (found.scheduling.node_selector or {}).items():
        if selector.setdefault(key, value) != value:
            return AdmittedPod(
                pod,
                f"its nodeSelector {key}={selector[key]} contradicts RuntimeClass {name}, which asks for "
                f"{key}={value}, so the API server refuses its pods",
            )
    held = pod.spec.tolerations or []
    added = [each for each in found.scheduling.tolerations or () if each not in held]
    spec = msgspec.structs.replace(pod.spec, node_selector=selector or None, tolerations=[*held, *added] or None)
    return AdmittedPod(msgspec.structs.replace(pod, spec=spec))


def refusal(pod: Pod) -> str:
    """Why the API server refuses the pod as it is, by the fields that are read here; empty: it may take it.

    Source: ``ValidatePodSpec`` of ``pkg/apis/core/validation``.
    """
    problem = next(_invalid_fields(pod), "")
    return f"spec.{problem}, so the API server refuses the pod" if problem else ""


def _invalid_fields(pod: Pod) -> Iterator[str]:
    if not pod.spec.containers:
        yield "containers: at least one is required"
    for field, containers in (("containers", pod.spec.containers), ("initContainers", pod.spec.init_containers)):
        for number, container in enumerate(containers or ()):
            for name, value in (("name", container.name), ("image", container.image.strip())):
                if not value:
                    yield f"{field}[{number}].{name}: is missing"
            if container.image != container.image.strip():
                yield f"{field}[{number}].image: {container.image[:100]!r} has white space around it"
    if pod.spec.os is not None and pod.spec.os.name not in NODE_SYSTEMS:
        yield f"os.name: {pod.spec.os.name[:100]!r} is neither {' nor '.join(sorted(NODE_SYSTEMS))}"
    for key, value in (pod.spec.node_selector or {}).items():
        if not is_label_key(key):
            yield f"nodeSelector: {key[:100]!r} is no key of a label"
        if not is_label_value(value):
            yield f"nodeSelector[{key}]: {value[:100]!r} is no value of a label"
    required, place = pod.required, "affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution"
    if required is not None and not required.node_selector_terms:
        yield f"{place}.nodeSelectorTerms: at least one is required"
    terms = [
        (f"{place}.nodeSelectorTerms[{number}]", term)
        for number, term in enumerate((required.node_selector_terms if required is not None else None) or ())
    ]
    place = "affinity.nodeAffinity.preferredDuringSchedulingIgnoredDuringExecution"
    for number, preferred in enumerate(pod.preferred or ()):
        if not 1 <= preferred.weight <= 100:
            yield f"{place}[{number}].weight: must be from 1 to 100"
        if preferred.preference is not None:
            terms.append((f"{place}[{number}].preference", preferred.preference))
    for where, term in terms:
        try:
            NodeTerm.parse(term)
        except InvalidSelector as error:
            yield f"{where}.{error}"
    for number, toleration in enumerate(pod.spec.tolerations or ()):
        for problem in _invalid_members(toleration):
            yield f"tolerations[{number}].{problem}"
    gates = [gate.name for gate in pod.spec.scheduling_gates or ()]
    for number, name in enumerate(gates):
        if not is_label_key(name):
            yield f"schedulingGates[{number}].name: {name[:100]!r} is not a qualified name"
        elif name in gates[:number]:
            yield f"schedulingGates[{number}].name: {name} is there already"
    if gates and pod.spec.node_name:
        yield "nodeName: cannot be set together with schedulingGates"


def _invalid_members(toleration: Toleration) -> Iterator[str]:
    if toleration.key and not is_label_key(toleration.key):
        yield f"key: {toleration.key[:100]!r} is no key of a label"
    if not toleration.key and toleration.operator != "Exists":
        yield "operator: must be Exists where the key is empty"
    if toleration.toleration_seconds is not None and toleration.effect != NO_EXECUTE:
        yield f"effect: must be {NO_EXECUTE} where tolerationSeconds is set"
    match toleration.operator:
        case "Exists" if toleration.value:
            yield "value: must be empty where the operator is Exists"
        case "" | "Equal" if not is_label_value(toleration.value):
            yield f"value: {toleration.value[:100]!r} is no value of a label"
        case operator if operator not in OPERATORS:
            yield f"operator: {operator[:100]!r} is none of {', '.join(filter(None, OPERATORS))}"
    if toleration.effect and toleration.effect not in EFFECTS:
        yield f"effect: {toleration.effect[:100]!r} is none of {', '.join(EFFECTS)}"


class PodRequirements(msgspec.Struct, frozen=True):
    """What decides where a pod may run. Equal requirements are equal values."""

    node_selector: tuple[tuple[str, str], ...] = ()
    terms: tuple[NodeTerm, ...] | None = None
    """Of the required node affinity; None: there is none."""
    before: tuple[Toleration, ...] = ()
    after: tuple[Toleration, ...] = ()
    """The tolerations as they are planned."""
    node_name: str = ""
    """The node that the pod names itself: no scheduler is asked."""
    platforms: PlatformSet = PlatformSet.EVERYTHING
    """What all of its images run on."""
    on_crio: PlatformSet | None = None
    """The same on nodes that have CRI-O; None: no other."""
    system: str = ""
    """The operating system of its nodes; empty: whatever its images run on."""
    refused: str = ""
    """Why the API server accepts no such pod."""

    @classmethod
    def of(
        cls,
        pod: Pod,
        added: Iterable[Toleration] = (),
        *,
        by_controller: bool = False,
        platforms: PlatformSet = PlatformSet.EVERYTHING,
        on_crio: PlatformSet | None = None,
        refused: str = "",
    ) -> "PodRequirements":
        """``added``: the tolerations that the pod gets; ``by_controller``: it is a DaemonSet's.

        A taint cannot say an operating system, so a pod whose images do not decide it is for the only system that its
        constraints admit, else for linux.
        """
        required = pod.required
        own = (*(pod.spec.tolerations or ()), *(BY_CONTROLLER if by_controller else ()))
        stated = pod.spec.os.name if pod.spec.os is not None else ""
        if not stated and platforms.is_everything:
            stated = system_of("", constraints_of(pod).admits)
        return cls(
            node_selector=tuple(sorted((pod.spec.node_selector or {}).items())),
            terms=None if required is None else tuple(_parsed(required.node_selector_terms or ())),
            before=own,
            after=(*own, *added),
            node_name=pod.spec.node_name,
            platforms=platforms,
            on_crio=on_crio if on_crio != platforms else None,
            system=stated,
            refused=refused,
        )

    @property
    def keys(self) -> frozenset[str]:
        """The labels that it asks for."""
        return frozenset(key for key, _ in self.node_selector) | {
            each.key for term in self.terms or () for each in term.expressions
        }

    @property
    def names_nodes(self) -> bool:
        """It, or a term, selects nodes by name."""
        return bool(self.node_name) or any(term.fields for term in self.terms or ())


def _parsed(terms: Iterable[object]) -> Iterator[NodeTerm]:
    """A term that Kubernetes would refuse matches no node."""
    for term in terms:
        try:
            yield NodeTerm.parse(term)
        except InvalidSelector:
            continue


# -- the judgement -----------------------------------------------------------------------------------------------------


class MismatchKind(StrEnum):
    """Why a node does not take a pod, in the order in which it is looked at."""

    REFUSED = "refused"
    """The API server accepts no such pod."""
    NODE_NAME = "nodeName"
    SYSTEM = "os"
    """The node has another operating system than the pod."""
    IMAGES = "images"
    """The pod's images do not run on the node."""
    NODE_SELECTOR = "nodeSelector"
    AFFINITY = "affinity"
    TAINT = "taint"


RUNS_NOT: Final = frozenset({MismatchKind.SYSTEM, MismatchKind.IMAGES})
"""What no scheduler looks at: a pod is bound to such a node, and does not run there."""


class Mismatch(msgspec.Struct, frozen=True):
    """The first reason for which a node does not take a pod; ``message`` is the rest of a sentence about the pod."""

    kind: MismatchKind
    message: str


When = Literal["before", "after"]


def mismatch(pod: PodRequirements, node: NodeView, when: When = "before") -> Mismatch | None:
    """Why the node does not take the pod, with the taints and tolerations as they are or as planned; None: it does."""
    if pod.refused:
        return Mismatch(MismatchKind.REFUSED, pod.refused)
    if pod.node_name not in ("", node.name):
        return Mismatch(MismatchKind.NODE_NAME, f"it names node {pod.node_name}")
    return not_running(pod, node.platform, has_crio=node.has_crio) or _not_scheduled(pod, node, when)


def not_running(pod: PodRequirements, platform: NodePlatform, *, has_crio: bool = False) -> Mismatch | None:
    """Why the pod would not run on a node of this platform although it were scheduled there."""
    if pod.system not in ("", platform.os):
        return Mismatch(MismatchKind.SYSTEM, f"it is for {pod.system}, and the node runs {platform.os}")
    if has_crio and pod.on_crio is not None and platform in pod.platforms and platform not in pod.on_crio:
        return Mismatch(MismatchKind.IMAGES, f"its CRI-O finds nothing for {platform} in the index of an image")
    if platform not in pod.platforms and not (has_crio and pod.on_crio is not None and platform in pod.on_crio):
        place = f"not on {platform}" if platform.architecture else "nothing says the node's architecture"
        return Mismatch(MismatchKind.IMAGES, f"its images run on {pod.platforms}, and {place}")
    return None


def _not_scheduled(pod: PodRequirements, node: NodeView, when: When) -> Mismatch | None:
    for key, value in pod.node_selector:
        if node.labels.get(key) != value:
            return Mismatch(MismatchKind.NODE_SELECTOR, f"its nodeSelector asks for {key}={value}")
    if not admits(pod.terms, node.labels, node_name=node.name):
        return Mismatch(MismatchKind.AFFINITY, "its required node affinity does not match the node")
    taints, tolerations = (node.before, pod.before) if when == "before" else (node.after, pod.after)
    # A pod that names its node meets no scheduler, and its kubelet asks for the taints that evict.
    repelling = (NO_EXECUTE,) if pod.node_name else REPELS
    for taint in taints:
        if taint.effect in repelling and not is_tolerated(taint, tolerations):
            return Mismatch(MismatchKind.TAINT, f"it does not tolerate {taint}")
    return None


class FitResult(msgspec.Struct, frozen=True):
    """How many nodes of each platform take the pods; a platform without one is absent."""

    before: Mapping[NodePlatform, int]
    after: Mapping[NodePlatform, int]
    lost: tuple[NodePlatform, ...] = ()
    """The platforms for which the template is blocked, sorted."""
    unfit: Mapping[NodePlatform, int] = {}
    """Nodes that the scheduler gives to the pods afterwards, and on which they do not run."""
    refused: str = ""
    """Why the API server accepts no such pod."""

    @property
    def is_blocked(self) -> bool:
        return bool(self.lost)


class PlatformFit(msgspec.Struct, frozen=True):
    """The nodes of one platform, how many of them take a pod, and why the others do not."""

    platform: NodePlatform
    nodes: int
    fitting: int
    mismatches: tuple[tuple[Mismatch, int], ...] = ()
    """Each with the number of its nodes, the most frequent one first."""


def fit_by_platform(pod: PodRequirements, nodes: Iterable[NodeView]) -> tuple[PlatformFit, ...]:
    """What each platform of the cluster says of a pod that has the tolerations that are planned, by platform."""
    found: dict[NodePlatform, Counter[Mismatch | None]] = {}
    for node in nodes:
        found.setdefault(node.platform, Counter())[mismatch(pod, node, "after")] += 1
    return tuple(
        PlatformFit(
            platform,
            reasons.total(),
            reasons[None],
            tuple((reason, number) for reason, number in reasons.most_common() if reason is not None),
        )
        for platform, reasons in sorted(found.items())
    )


class ClusterView:
    """The nodes of a cluster. Asking about many pods costs little more than about the different ones."""

    def __init__(self, nodes: Iterable[NodeView]) -> None:
        self._nodes = tuple(nodes)
        self._classes: dict[frozenset[str], list[_NodeClass]] = {}
        self._results: dict[tuple[PodRequirements, frozenset[NodePlatform] | None], FitResult] = {}

    def fit(self, pod: PodRequirements, *, hosts: frozenset[NodePlatform] | None = None) -> FitResult:
        """What the planned taints do to pods of a template.

        ``hosts``: of a DaemonSet, the platforms on which it has pods now; each of them counts for itself. For other
        templates one node anywhere is enough.
        """
        known = self._results.get((pod, hosts))
        if known is None:
            known = self._results[pod, hosts] = self._fit(pod, hosts)
        return known

    def _fit(self, pod: PodRequirements, hosts: frozenset[NodePlatform] | None) -> FitResult:
        before: Counter[NodePlatform] = Counter()
        after: Counter[NodePlatform] = Counter()
        unfit: Counter[NodePlatform] = Counter()
        for node, number in self._alike(pod):
            if mismatch(pod, node) is None:
                before[node.platform] += number
            later = mismatch(pod, node, "after")
            if later is None:
                after[node.platform] += number
            elif later.kind in RUNS_NOT and _not_scheduled(pod, node, "after") is None:
                unfit[node.platform] += number
        if hosts is not None:
            lost = {each for each in hosts if before[each] and not after[each]}
        else:
            lost = set() if after else set(before)
        return FitResult(
            dict(sorted(before.items())),
            dict(sorted(after.items())),
            tuple(sorted(lost)),
            dict(sorted(unfit.items())),
            pod.refused,
        )

    def _alike(self, pod: PodRequirements) -> list["_NodeClass"]:
        """The nodes that differ for this pod, each with the number of those like it."""
        if pod.names_nodes:
            return [_NodeClass(node, 1) for node in self._nodes if pod.node_name in ("", node.name)]
        keys = pod.keys
        if keys not in self._classes:
            alike: dict[object, list[NodeView]] = {}
            for node in self._nodes:
                asked = tuple((key, node.labels[key]) for key in sorted(keys) if key in node.labels)
                alike.setdefault((node.platform, node.has_crio, asked, node.before, node.after), []).append(node)
            self._classes[keys] = [_NodeClass(nodes[0], len(nodes)) for nodes in alike.values()]
        return self._classes[keys]


class _NodeClass(NamedTuple):
    """Nodes that are alike: one of them, and how many there are."""

    node: NodeView
    number: int
