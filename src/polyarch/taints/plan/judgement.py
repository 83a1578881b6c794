"""Judges everything in an inventory by the rules of admission and controllers, as if all was written (TN-002, TN-060).

Nothing is decided here that is not decided there: a plan that disagreed with what happens would be worse than none.
Pure.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping

import msgspec

from polyarch.kube.patches import Operation
from polyarch.objects import Node, Pod
from polyarch.oci.answer import Inspection
from polyarch.platforms import KNOWN_ARCHITECTURES
from polyarch.pods.constraints import constraints_of
from polyarch.pods.images import images_of
from polyarch.pods.reach import system_of
from polyarch.taints.api.settings import TaintSettings
from polyarch.taints.decide.decision import PodDecision, Progress
from polyarch.taints.decide.node_taints import NodeDecision, decide_node
from polyarch.taints.decide.rules import Assessment, Case, Facts, assess, decide, examine
from polyarch.taints.decide.templates import TemplateFacts, examine_template
from polyarch.taints.plan.inventory import Inventory, Template, is_over
from polyarch.taints.plan.simulation import Fate, Guest, Landscape, Site
from polyarch.taints.result.pod_patch import stored_patch
from polyarch.tolerations import Taint

Answers = Callable[[Pod], Mapping[str, Inspection]]
"""What the images of a pod say, by their texts; an absent one has no answer."""


class JudgedNode(msgspec.Struct, frozen=True):
    """A node and what becomes of its taints."""

    node: Node
    decision: NodeDecision

    @property
    def taints_after(self) -> tuple[Taint, ...]:
        """Its taints when the decision is carried out."""
        decision = self.decision
        replaced = decision.replaced
        kept = [
            replaced.taint if replaced is not None and replaced.index == at else taint
            for at, taint in enumerate(self.node.spec.taints or ())
            if at not in decision.removed
        ]
        return (*kept, decision.appended) if decision.appended is not None else tuple(kept)


class JudgedTemplate(msgspec.Struct, frozen=True):
    """A template, what its pods get, and where they may run before and after."""

    template: Template
    case: Case
    decision: PodDecision
    architectures: tuple[str, ...] | None
    """A, sorted; None if an image has no answer (TN-031)."""
    fate: Fate


class JudgedPod(msgspec.Struct, frozen=True):
    """A pod that exists, and what it gets."""

    pod: Pod
    case: Case
    decision: PodDecision

    @property
    def operations(self) -> tuple[Operation, ...]:
        """What is written to it; nothing if it has what it needs."""
        return stored_patch(self.case, self.decision)


class Surplus(msgspec.Struct, frozen=True):
    """Tolerations of a pod that its images do not justify; only a new pod would be without them (TN-082)."""

    pod: Pod
    values: tuple[str, ...]
    architectures: tuple[str, ...] | None
    """What its images justify; None if that is not known."""


class Judgement(msgspec.Struct, frozen=True):
    """Everything that a plan is made of."""

    settings: TaintSettings
    nodes: tuple[JudgedNode, ...]
    templates: tuple[JudgedTemplate, ...]
    unscheduled: tuple[JudgedPod, ...]
    bound: tuple[JudgedPod, ...]
    """Pods on nodes, if the configuration lets them be written (TN-044)."""
    surplus: tuple[Surplus, ...]


class Judge:
    """Judges one inventory. The images of :meth:`pods` have to be known before :meth:`judgement`.

    ``age``: seconds since a pod was created, after which a gate ends (TN-048).
    """

    def __init__(
        self,
        inventory: Inventory,
        settings: TaintSettings,
        answers: Answers,
        age: Callable[[Pod], float] = lambda _: 0.0,
    ) -> None:
        self.settings = settings
        self.inventory = inventory
        self._answers = answers
        self._age = age
        self._existing = inventory.architectures
        self._templates = inventory.templates()
        living = [pod for pod in inventory.pods if not is_over(pod)]
        tolerate = settings.running == "tolerate"
        self._unscheduled = [pod for pod in living if not pod.spec.node_name]
        self._bound = [pod for pod in living if pod.spec.node_name] if tolerate else []
        self._suspects = [pod for pod in living if settings.ownership == "adopt" and _values(pod, settings)]

    def pods(self) -> Iterator[Pod]:
        """The pods, and those that templates stand for, whose images matter."""
        yield from (template.pod for template in self._templates)
        yield from (pod for pod in (*self._unscheduled, *self._bound) if self._pod_case(pod).images)
        yield from self._suspects

    def nowhere(self) -> Iterator[Pod]:
        """Those of them that could run on no node. Their indexes may be operator bundles (RG-046)."""
        return (pod for pod in self.pods() if self._assessment(pod).is_impossible)

    def judgement(self) -> Judgement:
        """Everything, as the images say it now."""
        nodes = tuple(JudgedNode(node, decide_node(node, self.settings)) for node in self.inventory.nodes)
        landscape = Landscape(map(_site, nodes))
        return Judgement(
            settings=self.settings,
            nodes=nodes,
            templates=tuple(self._judged(template, landscape) for template in self._templates),
            unscheduled=tuple(map(self.pod, self._unscheduled)),
            bound=tuple(map(self.pod, self._bound)),
            surplus=tuple(self._surplus()),
        )

    def pod(self, pod: Pod) -> JudgedPod:
        """One pod that exists, also in a state that is newer than the inventory."""
        case = self._pod_case(pod)
        progress = Progress.ENDED if self._age(pod) >= self.settings.gate_timeout else Progress.FAILING
        return JudgedPod(pod, case, decide(case, self._answers(pod), progress))

    def template(self, template: Template) -> tuple[Case, PodDecision]:
        """What the pods of a template get, also of one that is newer than the inventory."""
        labels = self.inventory.labels(template.key.namespace)
        if template.workload is None:
            case = examine(self._facts(template.pod, stored=False))
        else:
            facts = TemplateFacts(
                daemon_set=template.workload,
                namespace=template.key.namespace,
                settings=self.settings,
                namespace_labels=labels,
                existing=self._existing,
            )
            case = examine_template(facts)
        return case, decide(case, self._answers(template.pod), Progress.ENDED)

    # -- templates ----------------------------------------------------------------------------------------------------

    def _judged(self, template: Template, landscape: Landscape) -> JudgedTemplate:
        case, decision = self.template(template)
        # Without the reconciler a template keeps what it has until somebody changes it.
        stays = template.is_daemon_set and self.settings.templates != "reconcile"
        added = () if stays else map(self.settings.toleration, decision.added)
        guest = Guest.of(template.pod, added, by_controller=template.is_daemon_set)
        assessment = self._assessment(template.pod)
        return JudgedTemplate(
            template=template,
            case=case,
            decision=decision,
            architectures=None if assessment.unresolved else tuple(sorted(assessment.known.managed)),
            fate=landscape.fate(guest, hosts=template.hosts),
        )

    def _assessment(self, pod: Pod) -> Assessment:
        """What its images say, whether or not the pod is touched."""
        constraints = constraints_of(pod)
        stated = pod.spec.os.name if pod.spec.os is not None else ""
        case = Case(
            facts=self._facts(pod, stored=False),
            rule=None,
            constraints=constraints,
            system=system_of(stated, constraints.admits),
            images=images_of(pod),
        )
        return assess(case, self._answers(pod), final=True)

    # -- pods ---------------------------------------------------------------------------------------------------------

    def _pod_case(self, pod: Pod) -> Case:
        return examine(self._facts(pod, stored=True))

    def _facts(self, pod: Pod, *, stored: bool) -> Facts:
        namespace = pod.metadata.namespace
        return Facts(
            pod=pod,
            namespace=namespace,
            settings=self.settings,
            namespace_labels=self.inventory.labels(namespace),
            existing=self._existing,
            stored=stored,
        )

    def _surplus(self) -> Iterator[Surplus]:
        for pod in self._suspects:
            assessment = self._assessment(pod)
            values = _values(pod, self.settings)
            if assessment.unresolved:
                wrong = tuple(value for value in values if value not in KNOWN_ARCHITECTURES)
                justified = None
            else:
                justified = tuple(sorted(assessment.known.possible))
                wrong = tuple(value for value in values if value not in justified)
            if wrong:
                yield Surplus(pod, wrong, justified)


def _values(pod: Pod, settings: TaintSettings) -> tuple[str, ...]:
    """The values that the pod's tolerations name for the key of the taint, sorted."""
    named = {
        each.value for each in pod.spec.tolerations or () if _names_value(each.operator) and each.key == settings.key
    }
    return tuple(sorted(named))


def _names_value(operator: str) -> bool:
    return operator in ("", "Equal")


def _site(judged: JudgedNode) -> Site:
    node = judged.node
    return Site(
        name=node.metadata.name,
        architecture=judged.decision.architecture or "unknown",
        labels=node.metadata.labels or {},
        before=_timeless(node.spec.taints or ()),
        after=_timeless(judged.taints_after),
    )


def _timeless(taints: Iterable[Taint]) -> tuple[Taint, ...]:
    """Nodes whose taints differ only in when they were added are alike."""
    return tuple(msgspec.structs.replace(taint, time_added=None) if taint.time_added else taint for taint in taints)
