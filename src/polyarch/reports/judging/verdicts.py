"""One verdict for each workload and target (RP-010, RP-011).

Nothing is decided here that another feature decides: which platforms an image has is the finding of ``pods.images``,
whether placement leaves a pod alone or narrows it is its own decision, tolerations are those that taints would add. A
report that disagreed with what happens would be worse than none. Pure.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final

import msgspec

from polyarch.images.pod_images import Finding, failed, findings, images_of, platforms_of
from polyarch.images.pod_images import Verdict as Contribution
from polyarch.oci.answer import Inspection
from polyarch.placement.api.resources import ClusterPodPlacementConfig
from polyarch.placement.api.settings import SettingsTable
from polyarch.placement.decide import rules as placement
from polyarch.placement.decide.decision import Progress
from polyarch.placement.decide.decision import Reason as PlacementReason
from polyarch.platforms import NodePlatform
from polyarch.reports.document import Answer, Reason, Verdict
from polyarch.reports.facts.cluster import Facts, NodeFact, PodFact, WorkloadFact, target_name
from polyarch.reports.facts.readings import Answers
from polyarch.reports.judging.ground import Ground, names_platforms
from polyarch.reports.wording import lacks
from polyarch.taints import pod_rules as taints
from polyarch.taints.decision import Progress as TaintProgress
from polyarch.taints.settings import TaintSettings
from polyarch.tolerations import Toleration

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


class Judged(msgspec.Struct, frozen=True):
    """One workload, and what is to be said of it."""

    workload: WorkloadFact
    images: tuple[Finding, ...] = ()
    answers: tuple[Answer, ...] = ()
    """One for each target, in their order."""
    runs_on: tuple[NodePlatform, ...] = ()
    """The platforms of the nodes that its pods are on, sorted."""
    is_excluded: bool = False

    def lacking(self, target: NodePlatform) -> tuple[str, ...]:
        """The images that are known not to have the target."""
        return tuple(each.text for each in self.images if _lacks(each, target))

    @property
    def has_unknown(self) -> bool:
        """Nobody could be asked about one of its images."""
        return any(each.verdict is Contribution.UNRESOLVED for each in self.images)


class Judge:
    """Judges the workloads of one set of facts."""

    def __init__(self, facts: Facts, answers: Answers, targets: Sequence[NodePlatform]) -> None:
        self.facts = facts
        self.targets = tuple(targets)
        self.ground = Ground(facts.nodes)
        self.table = SettingsTable.of(
            facts.policy,
            facts.cppc or ClusterPodPlacementConfig(),
            operator_namespace=facts.home,
            short_names_searched=facts.short_names_searched,
        )
        self._answers = answers
        self._taints = TaintSettings.of(facts.taints.spec) if facts.taints is not None else None
        self._nodes = {node.name: node for node in facts.nodes}
        self._existing = frozenset(filter(None, (node.labels.get("kubernetes.io/arch") for node in facts.nodes)))
        self._architectures = frozenset(node.architecture for node in facts.nodes if node.architecture)

    def judged(self) -> tuple[Judged, ...]:
        """Every workload, in the order of the facts."""
        return tuple(map(self.of, self.facts.workloads))

    def node_of(self, pod: PodFact) -> NodeFact | None:
        """The node that a pod is on, if it is known."""
        return self._nodes.get(pod.node)

    def of(self, workload: WorkloadFact) -> Judged:
        """One workload."""
        answers = self._answers.of(workload.namespace)
        case = placement.examine(self._facts(workload))
        if case.rule in EXCLUDING or _is_of_system(workload.namespace):
            return Judged(workload, is_excluded=True)
        images = images_of(workload.template, searched=case.settings.short_names_searched)
        read = findings(images, answers, final=True, stale_for=case.settings.images_stale_for)
        decision = placement.decide(case, answers, Progress.ENDED)
        narrows = self.facts.cppc is not None and case.settings.node_aware == "narrow"
        narrowed = frozenset[str]()
        if narrows and decision.reason is PlacementReason.ARCHITECTURES_SET:
            narrowed = frozenset(decision.supported).difference(decision.architectures)
        on = [(node.platform, pod) for pod in workload.pods if (node := self._nodes.get(pod.node)) is not None]
        running = Counter(platform for platform, pod in on if not pod.waits_for)
        added = tuple(self._added(workload, answers))
        return Judged(
            workload,
            read,
            tuple(self._answer(workload, read, target, running[target], added, narrowed) for target in self.targets),
            tuple(sorted({platform for platform, _ in on})),
        )

    def _answer(
        self,
        workload: WorkloadFact,
        read: Iterable[Finding],
        target: NodePlatform,
        pods: int,
        added: tuple[Toleration, ...],
        narrowed: frozenset[str],
    ) -> Answer:
        read = tuple(read)
        name = target_name(target)
        lacking = tuple(_image_reason(each, name) for each in read if _lacks(each, target))
        unknown = tuple(_unknown_reason(each) for each in read if each.verdict is Contribution.UNRESOLVED)
        obstacles = self.ground.obstacles(
            workload.template, target, path=workload.path, added=added, by_controller=workload.is_daemon_set
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
        return Answer(name, verdict, reasons, pods, blocks)

    def _facts(self, workload: WorkloadFact) -> placement.Facts:
        labels = self.facts.labels(workload.namespace)
        return placement.Facts(
            pod=workload.template,
            namespace=workload.namespace,
            settings=self.table.of_namespace(labels),
            nodes=self._existing,
        )

    def _added(self, workload: WorkloadFact, answers: Mapping[str, Inspection]) -> Iterator[Toleration]:
        """The tolerations that a pod gets when it is created."""
        if self._taints is None or self._taints.state != "active":
            return
        facts = taints.Facts(
            pod=workload.template,
            namespace=workload.namespace,
            settings=self._taints,
            namespace_labels=self.facts.labels(workload.namespace),
            existing=self._architectures,
        )
        decision = taints.decide(taints.examine(facts), answers, TaintProgress.ENDED)
        yield from map(self._taints.toleration, decision.added)


def _is_of_system(namespace: str) -> bool:
    """What a distribution brings along; ``kube-*`` is a rule of placement's (PL-201)."""
    return namespace == "openshift" or namespace.startswith("openshift-")


def _lacks(finding: Finding, target: NodePlatform) -> bool:
    return finding.verdict is Contribution.CONSTRAINS and target not in finding.platforms


def _image_reason(finding: Finding, target: str) -> Reason:
    has = platforms_of(finding)
    return Reason("ImageLacksTarget", lacks(finding.text, has, target), value=has, image=finding.text)


def _unknown_reason(finding: Finding) -> Reason:
    return Reason("ImageUnknown", failed([finding]), value=finding.failure, image=finding.text)


def _narrowed(target: str) -> Reason:
    return Reason(
        "NodeAwarePolicy",
        f"PlacementPolicy cluster leaves {target} out as long as no node has it (nodeAware.mode: narrow); list it in "
        "nodeAware.assumeArchitectures",
        "PlacementPolicy cluster: spec.nodeAware.mode",
        "narrow",
    )
