"""One verdict for each workload and target, and what keeps a workload from a target.

Nothing is decided here that another feature decides: which platforms an image has is the finding of ``images``, whether
placement leaves a pod alone or narrows it is its own decision, tolerations are those that taints would add. A report
that disagreed with what happens would be worse than none. Pure.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final, NamedTuple

import msgspec

from polyarch.images.constraints import PLATFORM_KEYS, constraints_of
from polyarch.images.node_fit import BY_CONTROLLER, ClusterView, NodeView, PodRequirements, with_runtime_class
from polyarch.images.pod_images import ImageEffect as Contribution
from polyarch.images.pod_images import (
    ImageFacts,
    common_platforms,
    failed,
    image_facts,
    images_of,
    on_crio,
    platforms_of,
)
from polyarch.objects import NodeSelector, NodeSelectorTerm, Pod
from polyarch.oci.inspection import Inspection, Status
from polyarch.oci.reference import InvalidReference, parse
from polyarch.placement import rules as placement
from polyarch.placement.api import ClusterPodPlacementConfig
from polyarch.placement.decision import LookupProgress
from polyarch.placement.decision import Reason as PlacementReason
from polyarch.placement.settings import SettingsTable
from polyarch.platforms import NO_RUNTIMES, NodePlatform, NodeRuntimes, PlatformSet, is_crio, shared_platforms
from polyarch.reports.document import Drift, NodeDrift, Reason, TargetVerdict, Verdict
from polyarch.reports.facts import ImageInspections, NodeFact, PodFact, ReportFacts, WorkloadFact
from polyarch.reports.wording import excludes, lacks
from polyarch.taints import pod_rules as taints
from polyarch.taints.decision import TolerationLookupProgress as TaintProgress
from polyarch.taints.settings import TaintSettings
from polyarch.tolerations import REPELS, Taint, Toleration, is_passing, uncovered

EXCLUDING: Final = frozenset(
    {
        PlacementReason.OPERATOR_NAMESPACE,
        PlacementReason.KUBE_NAMESPACE,
        PlacementReason.EXCLUDED_NAMESPACE,
        PlacementReason.OPTED_OUT,
    }
)
"""Rules of placement by which a workload is only counted."""
MOVABLE: Final = (Verdict.RUNS, Verdict.READY)


class WorkloadAssessment(msgspec.Struct, frozen=True):
    """One workload, and what is to be said of it."""

    workload: WorkloadFact
    images: tuple[ImageFacts, ...] = ()
    answers: tuple[TargetVerdict, ...] = ()
    """One for each target, in their order."""
    runs_on: tuple[NodePlatform, ...] = ()
    """The platforms of the nodes that its pods are on, sorted."""
    lacks: Mapping[NodePlatform, tuple[ImageFacts, ...]] = {}
    """By target: the images that its nodes are known not to run, as the runtime of these nodes reads them."""
    is_excluded: bool = False

    def lacking(self, target: NodePlatform) -> tuple[str, ...]:
        """The images that nodes of the target are known not to run."""
        return tuple(each.text for each in self.lacks.get(target, ()))

    @property
    def has_unknown(self) -> bool:
        """Nobody could be asked about one of its images."""
        return any(each.effect is Contribution.UNRESOLVED for each in self.images)


class WorkloadAssessor:
    """Judges the workloads of one set of facts."""

    def __init__(self, facts: ReportFacts, answers: ImageInspections, targets: Sequence[NodePlatform]) -> None:
        self.facts = facts
        self.targets = tuple(targets)
        self.ground = NodeFit(facts.nodes)
        self.table = SettingsTable.of(
            facts.policy,
            facts.cppc or ClusterPodPlacementConfig(),
            operator_namespace=facts.home,
            short_names_searched=facts.short_names_searched,
        )
        self._answers = answers
        self._taints = TaintSettings.of(facts.taints.spec) if facts.taints is not None else None
        self._nodes = {node.name: node for node in facts.nodes}
        self._existing = frozenset(
            NodePlatform(node.labels.get("kubernetes.io/os") or "linux", architecture)
            for node in facts.nodes
            if (architecture := node.labels.get("kubernetes.io/arch"))
        )
        self._architectures = frozenset(node.architecture for node in facts.nodes if node.architecture)
        self._runtimes = NodeRuntimes.of((node.platform, node.runtime) for node in facts.nodes if node.runtime)
        self._compatibility = compatibility_of(facts)

    def judged(self) -> tuple[WorkloadAssessment, ...]:
        """Every workload, in the order of the facts."""
        return tuple(map(self.of, self.facts.workloads))

    def node_of(self, pod: PodFact) -> NodeFact | None:
        """The node that a pod is on, if it is known."""
        return self._nodes.get(pod.node)

    def of(self, workload: WorkloadFact) -> WorkloadAssessment:
        """One workload."""
        answers = self._answers.of(workload.namespace)
        pod, refused = with_runtime_class(workload.template, self.facts.runtime_classes)
        case = placement.examine(self._facts(workload, pod))
        # Every new node gets a pod of a DaemonSet, whoever places the others: the network of kube-system, say.
        comes_anyway = workload.is_daemon_set and case.rule is not PlacementReason.OPERATOR_NAMESPACE
        if not comes_anyway and (case.rule in EXCLUDING or _is_of_system(workload.namespace)):
            return WorkloadAssessment(workload, is_excluded=True)
        images = images_of(workload.template, searched=case.settings.short_names_searched)
        read = image_facts(images, answers, final=True, stale_for=case.settings.images_stale_for)
        decision = placement.decide(case, answers, LookupProgress.ENDED)
        narrows = self.facts.cppc is not None and case.settings.node_aware == "narrow"
        narrowed = frozenset[str]()
        if narrows and decision.reason is PlacementReason.ARCHITECTURES_SET:
            narrowed = frozenset(decision.supported).difference(decision.architectures)
        on = [(node.platform, pod) for pod in workload.pods if (node := self._nodes.get(pod.node)) is not None]
        running = Counter(platform for platform, pod in on if not pod.waits_for)
        added = tuple(self._added(workload, pod, answers))
        lacks = {
            target: lacking_on(read, target, self._compatibility, self.ground.have_crio(pod, target, added, workload))
            for target in self.targets
        }
        return WorkloadAssessment(
            workload,
            read,
            tuple(
                self._answer(workload, pod, refused, read, lacks[target], target, running[target], added, narrowed)
                for target in self.targets
            ),
            tuple(sorted({platform for platform, _ in on})),
            lacks,
        )

    def _answer(
        self,
        workload: WorkloadFact,
        pod: Pod,
        refused: str,
        read: Iterable[ImageFacts],
        lacked: Iterable[ImageFacts],
        target: NodePlatform,
        pods: int,
        added: tuple[Toleration, ...],
        narrowed: frozenset[str],
    ) -> TargetVerdict:
        name = target.short_name
        lacking = tuple(_image_reason(each, name) for each in lacked)
        unknown = tuple(_unknown_reason(each) for each in read if each.effect is Contribution.UNRESOLVED)
        obstacles: tuple[Reason, ...]
        if refused:
            obstacles = (runtime_class_reason(workload.template, workload.path, refused),)
        else:
            obstacles = self.ground.obstacles(
                pod,
                target,
                path=workload.path,
                added=added,
                by_controller=workload.is_daemon_set,
                written=workload.template,
            )
        if target.architecture in narrowed:
            obstacles += (_narrowed(name),)
        reasons = (*lacking, *unknown, *obstacles)
        if lacking:
            verdict = Verdict.IMAGE
        elif unknown:
            verdict = Verdict.UNKNOWN
        elif obstacles:
            verdict = Verdict.CONSTRAINED
        else:
            verdict = Verdict.RUNS if pods else Verdict.READY
        blocks = workload.is_daemon_set and verdict not in MOVABLE and not any(map(names_platforms, obstacles))
        return TargetVerdict(name, verdict, reasons, pods, blocks)

    def _facts(self, workload: WorkloadFact, pod: Pod) -> placement.PodFacts:
        labels = self.facts.labels(workload.namespace)
        return placement.PodFacts(
            pod=pod,
            namespace=workload.namespace,
            settings=self.table.of_namespace(labels),
            nodes=self._existing,
            runtimes=self._runtimes if self._runtimes.is_known else NO_RUNTIMES,
        )

    def _added(self, workload: WorkloadFact, pod: Pod, answers: Mapping[str, Inspection]) -> Iterator[Toleration]:
        """The tolerations that a pod gets when it is created."""
        if self._taints is None or self._taints.state != "active":
            return
        facts = taints.PodFacts(
            pod=pod,
            namespace=workload.namespace,
            settings=self._taints,
            namespace_labels=self.facts.labels(workload.namespace),
            existing=self._architectures,
        )
        decision = taints.decide(taints.examine(facts), answers, TaintProgress.ENDED)
        yield from map(self._taints.toleration, decision.added)


def _is_of_system(namespace: str) -> bool:
    """What a distribution brings along; ``kube-*`` is a rule of placement's."""
    return namespace == "openshift" or namespace.startswith("openshift-")


Compatibility = tuple[tuple[str, frozenset[str]], ...]
"""Architectures of nodes that run programs of others, as taints are told."""


def compatibility_of(facts: ReportFacts) -> Compatibility:
    """The compatibility of the cluster's ArchitectureTaints."""
    return TaintSettings.of(facts.taints.spec).compatibility if facts.taints is not None else ()


def lacking_on(
    images: Sequence[ImageFacts], target: NodePlatform, compatibility: Compatibility, have_crio: Iterable[bool]
) -> tuple[ImageFacts, ...]:
    """The images by which no node of the target runs a pod, as the runtime of the nodes reads them; empty if one does.

    ``have_crio``: for each runtime of the nodes, whether it is CRI-O.
    """
    found = (tuple(_lacking(on_crio(images) if has_crio else images, target, compatibility)) for has_crio in have_crio)
    return min(found, key=len)


def _lacking(images: Sequence[ImageFacts], target: NodePlatform, compatibility: Compatibility) -> Iterable[ImageFacts]:
    if target in common_platforms(images, compatibility):
        return ()
    constraining = [each for each in images if each.effect is Contribution.CONSTRAINS]
    # An image for 32-bit ARM runs on arm64 unless another image of the pod keeps this rule from being applied.
    return [each for each in constraining if target not in (*each.platforms, *each.legacy)] or [
        each for each in constraining if target not in each.platforms
    ]


def _image_reason(finding: ImageFacts, target: str) -> Reason:
    has = platforms_of(finding)
    return Reason("ImageLacksTarget", lacks(finding.text, has, target), value=has, image=finding.text)


def _unknown_reason(finding: ImageFacts) -> Reason:
    return Reason("ImageUnknown", failed([finding]), value=finding.failure, image=finding.text)


def _narrowed(target: str) -> Reason:
    return Reason(
        "NodeAwarePolicy",
        f"PlacementPolicy cluster leaves {target} out as long as no node has it (nodeAware.mode: narrow); list it in "
        "nodeAware.assumeArchitectures",
        "PlacementPolicy cluster: spec.nodeAware.mode",
        "narrow",
    )


# -- what keeps a pod off every node of a target, by path and value ----------------------------------------------------
# Where the target has nodes, these decide, by the scheduler's rules on all their labels and taints. Where it has none
# yet, only what a pod says of platforms counts: which other labels the nodes will have, nobody knows. Taints that go
# away by themselves (a node is not ready, cordoned, or about to be deleted) exclude nothing here. What a RuntimeClass
# adds to the pod counts as the pod's own, under the path of its name.

REQUIRED: Final = "affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution"
_ANYTHING: Final = (Toleration(operator="Exists"),)


class NodeFit:
    """The nodes, by target."""

    def __init__(self, nodes: Iterable[NodeFact]) -> None:
        nodes = tuple(nodes)
        self._numbers = Counter(node.platform for node in nodes)
        self._platforms = {node.name: node.platform for node in nodes}
        self._cluster = ClusterView(map(_view, nodes))
        self._have_crio = {
            platform: frozenset(is_crio(node.runtime) for node in nodes if node.platform == platform)
            for platform in self._numbers
        }
        self._taints = {
            platform: _common(_lasting(node) for node in nodes if node.platform == platform)
            for platform in self._numbers
        }

    def nodes(self, target: NodePlatform) -> int:
        """How many there are of a platform."""
        return self._numbers[target]

    def have_crio(
        self, pod: Pod, target: NodePlatform, added: Iterable[Toleration], workload: WorkloadFact
    ) -> frozenset[bool]:
        """Whether the runtime is CRI-O, of the nodes of the target that the scheduler gives to the pod; of all of them
        if there is none; False if the target has no node."""
        have = self._have_crio.get(target, frozenset((False,)))
        if len(have) == 1:
            return have
        only, none = PlatformSet.of((target,)), PlatformSet.of(())
        own = _tolerations(pod, added, by_controller=workload.is_daemon_set)
        found = []
        for has_crio in sorted(have):
            of_pod = PodRequirements.of(pod, platforms=none if has_crio else only, on_crio=only if has_crio else none)
            if self._takes(msgspec.structs.replace(of_pod, before=own), target):
                found.append(has_crio)
        return frozenset(found) or have

    def obstacles(
        self,
        pod: Pod,
        target: NodePlatform,
        *,
        path: str,
        added: Iterable[Toleration] = (),
        by_controller: bool = False,
        written: Pod | None = None,
    ) -> tuple[Reason, ...]:
        """What keeps the pod off every node of the target; empty if one takes it.

        ``added``: tolerations that the pod gets when created. ``by_controller``: it is a DaemonSet's. ``written``:
        the pod without what its RuntimeClass adds.
        """
        stated = pod.spec.os.name if pod.spec.os is not None else ""
        if stated and stated != target.os:
            return (_reason("OperatingSystem", target, f"{path}.os.name", stated, "it is for {value}"),)
        author = _WrittenPod(pod if written is None else written, path)
        named = pod.spec.node_name
        if named and self._platforms.get(named, target) != target:
            return (_reason("NodeName", target, f"{path}.nodeName", named, "it names node {value}"),)
        if not self.nodes(target):
            return tuple(_without_nodes(pod, target, author))
        own = _tolerations(pod, added, by_controller=by_controller)
        of_pod = PodRequirements.of(pod, platforms=PlatformSet.of((target,)))
        if self._takes(msgspec.structs.replace(of_pod, before=own), target):
            return ()
        return tuple(self._why(of_pod, own, pod, target, author))

    def _takes(self, pod: PodRequirements, target: NodePlatform) -> bool:
        return bool(self._cluster.fit(pod).before.get(target))

    def _why(
        self,
        of_pod: PodRequirements,
        own: tuple[Toleration, ...],
        pod: Pod,
        target: NodePlatform,
        author: "_WrittenPod",
    ) -> Iterator[Reason]:
        found = False
        path = author.path
        anything = msgspec.structs.replace(
            of_pod, node_selector=(), terms=None, before=_ANYTHING, after=(), node_name=""
        )
        for key, value in of_pod.node_selector:
            if not self._takes(msgspec.structs.replace(anything, node_selector=((key, value),)), target):
                found = True
                yield author.selected(key, value, target)
        if not self._takes(msgspec.structs.replace(anything, terms=of_pod.terms), target):
            found = True
            yield _required(pod, target, path)
        if not self._takes(msgspec.structs.replace(anything, before=own), target):
            found = True
            taints = uncovered(self._taints[target], own)
            value = ", ".join(map(str, taints)) or "different taints on different nodes"
            yield _reason(
                "TaintNotTolerated", target, f"{path}.tolerations", value,
                "it does not tolerate the taints of every {target} node: {value}",
            )  # fmt: skip
        if not found:
            yield _reason(
                "NoNodeAdmits", target, path, "",
                "no {target} node fits its nodeSelector, required affinity and tolerations together",
            )  # fmt: skip


def _tolerations(pod: Pod, added: Iterable[Toleration], *, by_controller: bool) -> tuple[Toleration, ...]:
    return (*(pod.spec.tolerations or ()), *(BY_CONTROLLER if by_controller else ()), *added)


class _WrittenPod(NamedTuple):
    """What somebody wrote, without what a RuntimeClass adds to it."""

    pod: Pod
    path: str

    def selected(self, key: str, value: str, target: NodePlatform) -> Reason:
        """A label that the pod's nodes have to have."""
        if key in (self.pod.spec.node_selector or {}) or not self.pod.spec.runtime_class_name:
            return _selected(key, value, target, self.path)
        name = self.pod.spec.runtime_class_name
        return runtime_class_reason(self.pod, self.path, f"its RuntimeClass {name} asks for {key}={value}")


def runtime_class_reason(pod: Pod, path: str, message: str) -> Reason:
    """The pod's RuntimeClass keeps it off."""
    return Reason("RuntimeClass", message, f"{path}.runtimeClassName", pod.spec.runtime_class_name)


def _without_nodes(pod: Pod, target: NodePlatform, author: _WrittenPod) -> Iterator[Reason]:
    constraints = constraints_of(pod)
    if constraints.admits(target):
        return
    found = False
    for key, value in constraints.selector.items():
        if value != (target.architecture if key.endswith("/arch") else target.os):
            found = True
            yield author.selected(key, value, target)
    if not found:
        yield _required(pod, target, author.path)


def _selected(key: str, value: str, target: NodePlatform, path: str) -> Reason:
    message = (
        f"its nodeSelector asks for {key}={value}"
        if key in PLATFORM_KEYS
        else f"no {target.short_name} node has {key}={value}, which its nodeSelector asks for"
    )
    return Reason("NodeSelector", message, f"{path}.nodeSelector[{key}]", value)


def _required(pod: Pod, target: NodePlatform, path: str) -> Reason:
    value = spelled(pod.required)
    return Reason("RequiredAffinity", excludes(target.short_name, value), f"{path}.{REQUIRED}", value)


def _reason(code: str, target: NodePlatform, path: str, value: str, message: str) -> Reason:
    return Reason(code, message.replace("{target}", target.short_name).replace("{value}", value), path, value)


def names_platforms(reason: Reason) -> bool:
    """Whether the workload itself says that it is meant for other platforms."""
    if reason.code == "RequiredAffinity":
        return any(key in reason.value for key in PLATFORM_KEYS)
    if reason.code == "RuntimeClass":
        return any(f" {key}=" in reason.message for key in PLATFORM_KEYS)
    return reason.code == "OperatingSystem" or (
        reason.code == "NodeSelector" and any(f"[{key}]" in reason.path for key in PLATFORM_KEYS)
    )


def spelled(required: NodeSelector | None) -> str:
    """Required affinity on one line: ``kubernetes.io/arch In (amd64) or …``."""
    terms = (required.node_selector_terms if required is not None else None) or ()
    return " or ".join(map(_term, terms)) or "no term, which matches no node"


def _term(term: NodeSelectorTerm) -> str:
    parts = []
    for each in (*(term.match_expressions or ()), *(term.match_fields or ())):
        values = f" ({', '.join(each.values)})" if each.values else ""
        parts.append(f"{each.key} {each.operator}{values}")
    return " and ".join(parts) or "an empty term, which matches no node"


def _view(node: NodeFact) -> NodeView:
    return NodeView(node.name, node.platform, node.labels, before=_lasting(node), has_crio=is_crio(node.runtime))


def _lasting(node: NodeFact) -> tuple[Taint, ...]:
    return tuple(each for each in node.taints if each.effect in REPELS and not is_passing(each))


def _common(several: Iterable[tuple[Taint, ...]]) -> tuple[Taint, ...]:
    """The taints that every one of the nodes has."""
    first, *rest = ({(each.key, each.value, each.effect): each for each in taints} for taints in several)
    shared: Mapping[tuple[str, str, str], Taint] = first
    for each in rest:
        shared = {key: taint for key, taint in shared.items() if key in each}
    return tuple(shared[key] for key in sorted(shared))


# -- drift: what runs, and what would run next -------------------------------------------------------------------------
# A pod's imageID says what it runs, the reference of the template what its successor would run. A tag that was pushed
# again in between makes the two differ in platforms, and a drained node shows it at the worst time.

_PREFIXES = ("docker-pullable://", "docker://")


def running_reference(image_id: str) -> str:
    """The reference of what runs, ``quay.io/acme/web@sha256:…``; empty if the ``imageID`` names no repository."""
    for prefix in _PREFIXES:
        image_id = image_id.removeprefix(prefix)
    if "@" not in image_id:
        return ""
    try:
        return parse(image_id).canonical
    except InvalidReference:
        return ""


def to_ask(facts: ReportFacts, answers: ImageInspections) -> tuple[str, ...]:
    """References that run and are not what the template's image is now: each has to be asked about, too."""
    found = {
        running
        for workload in facts.workloads
        for _, _, running, answer in _running(workload, answers)
        if running and not _is_it(running, answer) and running not in answers.of(workload.namespace)
    }
    return tuple(sorted(found))


def drift_of(workload: WorkloadFact, answers: ImageInspections) -> tuple[Drift, ...]:
    """Each container and image that runs with other platforms than the next pod would have."""
    known = answers.of(workload.namespace)
    found = {}
    for container, image, running, answer in _running(workload, answers):
        if not running or _is_it(running, answer):
            continue
        now, then = _platforms(known.get(running)), _platforms(answer)
        if now is not None and then is not None and now != then:
            found[container, running] = Drift(container, running, image, now, then)
    return tuple(found[key] for key in sorted(found))


def node_drift(judged: Iterable[WorkloadAssessment], facts: ReportFacts) -> tuple[NodeDrift, ...]:
    """By node: the pods that run on it although it could not run their successors."""
    nodes = {node.name: node for node in facts.nodes}
    compatibility = compatibility_of(facts)
    found: dict[str, dict[str, str]] = {}
    for each in judged:
        for pod in each.workload.pods:
            node = nodes.get(pod.node)
            if node is None:
                continue
            lacking = lacking_on(each.images, node.platform, compatibility, (is_crio(node.runtime),))
            if lacking:
                name = f"{each.workload.namespace}/{pod.name}"
                images = ", ".join(image.text for image in lacking)
                found.setdefault(node.name, {})[name] = (
                    f"{name} would not start on {node.name} again: {images} has no {node.platform.short_name}"
                )
    return tuple(
        NodeDrift(name, nodes[name].platform.short_name, tuple(sorted(pods)), tuple(pods[pod] for pod in sorted(pods)))
        for name, pods in sorted(found.items())
    )


def _running(workload: WorkloadFact, answers: ImageInspections) -> Iterator[tuple[str, str, str, Inspection | None]]:
    """Container, image of the template, reference of what runs, and the answer for the template's image."""
    spec = workload.template.spec
    images = {each.name: each.image for each in (*(spec.containers or ()), *(spec.init_containers or ()))}
    known = answers.of(workload.namespace)
    seen = {(each.container, each.image_id) for pod in workload.pods for each in pod.running}
    for container, image_id in sorted(seen):
        image = images.get(container)
        if image is not None:
            yield container, image, running_reference(image_id), known.get(image)


def _is_it(running: str, answer: Inspection | None) -> bool:
    """The running digest is that of the index, or of one of its manifests; without one to compare with it counts so."""
    if answer is None or not answer.digest:
        return True
    digest = running.rpartition("@")[2]
    return digest == answer.digest or any(digest == each.digest for each in answer.entries)


def _platforms(answer: Inspection | None) -> tuple[str, ...] | None:
    """As targets are spelled; None if nobody knows, or if it fits every platform."""
    if answer is None or answer.status is not Status.RESOLVED:
        return None
    return tuple(each.short_name for each in answer.node_platforms)


def misplaced(
    judged: Iterable[WorkloadAssessment], facts: ReportFacts, answers: ImageInspections
) -> Iterator[tuple[str, str]]:
    """Pods on nodes that what they run does not support: the pod and one sentence."""
    nodes = {node.name: node for node in facts.nodes}
    compatibility = compatibility_of(facts)
    for each in judged:
        if not each.workload.pods:
            continue
        known = answers.of(each.workload.namespace)
        by_container = _findings_by_container(each)
        for pod in each.workload.pods:
            node = nodes.get(pod.node)
            if node is None:
                continue
            for running in pod.running:
                actual = known.get(running_reference(running.image_id))
                image = by_container.get(running.container)
                if actual is not None and actual.constrains:
                    platforms = shared_platforms([PlatformSet.of(actual.node_platforms)])
                elif image is not None:
                    platforms = common_platforms(on_crio([image]) if is_crio(node.runtime) else [image])
                else:
                    continue
                if node.platform not in platforms and not _runs_others(node, platforms, compatibility):
                    name = f"{each.workload.namespace}/{pod.name}"
                    yield name, f"{name} is on {node.name} ({node.platform.short_name})"
                    break


def _runs_others(node: NodeFact, platforms: PlatformSet, compatibility: Compatibility) -> bool:
    return any(
        node.architecture == architecture and NodePlatform(node.os, other) in platforms
        for architecture, runs in compatibility
        for other in runs
    )


def _findings_by_container(judged: WorkloadAssessment) -> dict[str, ImageFacts]:
    """The template's images by container, where they restrict."""
    spec = judged.workload.template.spec
    images = {each.text: each for each in judged.images if each.effect is Contribution.CONSTRAINS}
    return {
        container.name: images[container.image]
        for container in (*(spec.containers or ()), *(spec.init_containers or ()))
        if container.image in images
    }
