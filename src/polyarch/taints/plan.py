"""What a cluster needs until its nodes can carry their taints: facts in, steps and blockers out. Pure.

Everything in the inventory is judged by the rules of admission and controllers, as if all was written: a plan that
disagreed with what happens would be worse than none. Every step is judged from the cluster as it is, so one that is
interrupted is continued by whoever plans next.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from enum import StrEnum
from typing import Any, Final, Literal

import msgspec

from polyarch.images.constraints import constraints_of, system_of
from polyarch.images.node_fit import (
    AdmittedPod,
    ClusterView,
    FitResult,
    NodeView,
    PodRequirements,
    with_runtime_class,
)
from polyarch.images.pod_images import common_platforms, images_of, on_crio
from polyarch.kube.patches import Operation
from polyarch.kube.resources import few
from polyarch.objects import Node, ObjectKey, Pod
from polyarch.oci.inspection import Inspection
from polyarch.platforms import KNOWN_ARCHITECTURES, NodePlatform, PlatformSet
from polyarch.taints.decision import PodDecision, TolerationLookupProgress
from polyarch.taints.inventory import ClusterSnapshot, Template, is_terminal
from polyarch.taints.names import MIRROR_ANNOTATION, OPT_OUT, REGISTRATION_POLICY, ROLE
from polyarch.taints.node_rules import Kind, NodeDecision, RolloutPauseReason, decide_node, in_order
from polyarch.taints.node_templates import NodeTemplate
from polyarch.taints.patch import stored_patch
from polyarch.taints.pod_rules import (
    Assessment,
    Case,
    PodFacts,
    TemplateFacts,
    assess,
    decide,
    examine,
    examine_template,
)
from polyarch.taints.settings import TaintSettings
from polyarch.tolerations import Taint

# -- the judgement of an inventory -------------------------------------------------------------------------------------

Answers = Callable[[Pod], Mapping[str, Inspection]]
"""What the images of a pod say, by their texts; an absent one has no answer."""


class NodeEvaluation(msgspec.Struct, frozen=True):
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


class TemplateEvaluation(msgspec.Struct, frozen=True):
    """A template, what its pods get, and where they may run before and after."""

    template: Template
    case: Case
    decision: PodDecision
    architectures: tuple[str, ...] | None
    """A, sorted; None if an image has no answer."""
    fit: FitResult
    passing: bool = False
    """The nodes are counted without taints that go away by themselves: with these it has no node now either."""


class PlannedPod(msgspec.Struct, frozen=True):
    """A pod that exists, and what it gets."""

    pod: Pod
    case: Case
    decision: PodDecision

    @property
    def operations(self) -> tuple[Operation, ...]:
        """What is written to it; nothing if it has what it needs."""
        return stored_patch(self.case, self.decision)


class UnjustifiedTolerations(msgspec.Struct, frozen=True):
    """Tolerations of a pod that its images do not justify; only a new pod would be without them."""

    pod: Pod
    values: tuple[str, ...]
    architectures: tuple[str, ...] | None
    """What its images justify; None if that is not known."""


class ClusterEvaluation(msgspec.Struct, frozen=True):
    """Everything that a plan is made of."""

    settings: TaintSettings
    nodes: tuple[NodeEvaluation, ...]
    templates: tuple[TemplateEvaluation, ...]
    unscheduled: tuple[PlannedPod, ...]
    bound: tuple[PlannedPod, ...]
    """Pods on nodes that get something, if the configuration lets them be written."""
    surplus: tuple[UnjustifiedTolerations, ...]


class PlanBuilder:
    """Judges one inventory. The images of :meth:`pods` have to be known before :meth:`judgement`.

    ``age``: seconds since a pod was created, after which a gate ends.
    """

    def __init__(
        self,
        inventory: ClusterSnapshot,
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
        living = [pod for pod in inventory.pods if not is_terminal(pod)]
        tolerate = settings.running == "tolerate"
        self._unscheduled = [pod for pod in living if not pod.spec.node_name]
        self._bound = [pod for pod in living if pod.spec.node_name] if tolerate else []
        self._cases: dict[tuple[object, ...], Case] = {}
        self._decisions: dict[tuple[object, ...], PodDecision] = {}
        self._assessments: dict[tuple[object, ...], Assessment] = {}
        self._suspects = [pod for pod in living if settings.ownership == "adopt" and _values(pod, settings)]

    def platforms(self, pod: Pod) -> PlatformSet:
        """What the images of a pod run on, as far as that is known."""
        return common_platforms(self._assessment(pod).images, self.settings.compatibility)

    def pods(self) -> Iterator[Pod]:
        """The pods, and those that templates stand for, whose images matter; of equal ones the first."""
        yield from (template.pod for template in self._templates)
        seen = set()
        for pod in (*self._unscheduled, *self._bound):
            if (key := self._alike(pod)) not in seen:
                seen.add(key)
                if self._pod_case(pod).images:
                    yield pod
        yield from {_content(pod): pod for pod in self._suspects}.values()

    def nowhere(self) -> Iterator[Pod]:
        """Those of them that could run on no node. Their indexes may be operator bundles, and are asked for again."""
        impossible = [pod for pod in self.pods() if self._assessment(pod).is_impossible]
        self._assessments.clear()
        return iter(impossible)

    def judgement(self) -> ClusterEvaluation:
        """Everything, as the images say it now."""
        nodes = tuple(NodeEvaluation(node, decide_node(node, self.settings)) for node in self.inventory.nodes)
        views = tuple(map(_view, nodes))
        cluster = ClusterView(views)
        lasting = tuple(view.lasting for view in views)
        healthy = ClusterView(lasting) if lasting != views else None
        return ClusterEvaluation(
            settings=self.settings,
            nodes=nodes,
            templates=tuple(self._judged(template, cluster, healthy) for template in self._templates),
            unscheduled=tuple(map(self.pod, self._unscheduled)),
            bound=tuple(planned for planned in map(self.pod, self._bound) if planned.operations),
            surplus=tuple(self._surplus()),
        )

    def pod(self, pod: Pod) -> PlannedPod:
        """One pod that exists, also in a state that is newer than the inventory."""
        case = self._pod_case(pod)
        has_waited = self._age(pod) >= self.settings.gate_timeout
        key = (*self._alike(pod), has_waited)
        decision = self._decisions.get(key)
        if decision is None:
            progress = TolerationLookupProgress.ENDED if has_waited else TolerationLookupProgress.FAILING
            decision = self._decisions[key] = decide(case, self._answers(pod), progress)
        return PlannedPod(pod, case, decision)

    def template(self, template: Template) -> tuple[Case, PodDecision]:
        """What the pods of a template get, also of one that is newer than the inventory."""
        labels = self.inventory.labels(template.key.namespace)
        if template.workload is None:
            case = examine(self._facts(self._admitted(template.pod).pod, stored=False))
        else:
            facts = TemplateFacts(
                daemon_set=template.workload,
                namespace=template.key.namespace,
                settings=self.settings,
                namespace_labels=labels,
                existing=self._existing,
            )
            case = examine_template(facts)
        return case, decide(case, self._answers(template.pod), TolerationLookupProgress.ENDED)

    # -- templates ----------------------------------------------------------------------------------------------------

    def _admitted(self, pod: Pod) -> AdmittedPod:
        """What webhooks see of the pod."""
        return with_runtime_class(pod, self.inventory.runtime_classes)

    def _judged(self, template: Template, cluster: ClusterView, healthy: ClusterView | None) -> TemplateEvaluation:
        """``healthy``: the cluster without taints that go away by themselves; None: there are none."""
        case, decision = self.template(template)
        # Without the reconciler a template keeps what it has until somebody changes it.
        stays = template.is_daemon_set and self.settings.templates != "reconcile"
        added = () if stays else map(self.settings.toleration, decision.added)
        admitted = self._admitted(template.pod)
        assessment = self._assessment(admitted.pod)
        requirements = PodRequirements.of(
            admitted.pod,
            added,
            by_controller=template.is_daemon_set,
            platforms=common_platforms(assessment.images, self.settings.compatibility),
            on_crio=common_platforms(on_crio(assessment.images), self.settings.compatibility),
            refused=admitted.refused,
        )
        fit, passing = cluster.fit(requirements, hosts=template.hosts), False
        if healthy is not None and not fit.is_blocked:
            later = healthy.fit(requirements, hosts=template.hosts)
            if later.is_blocked:
                fit, passing = later, True
        return TemplateEvaluation(
            template=template,
            case=case,
            decision=decision,
            architectures=None if assessment.unresolved else tuple(sorted(assessment.known.managed)),
            fit=fit,
            passing=passing,
        )

    def _assessment(self, pod: Pod) -> Assessment:
        """What its images say, whether or not the pod is touched. Equal pods are judged once."""
        key = _content(pod)
        if key not in self._assessments:
            self._assessments[key] = self._assessed(pod)
        return self._assessments[key]

    def _assessed(self, pod: Pod) -> Assessment:
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
        """Of equal pods the first is examined."""
        key = self._alike(pod)
        known = self._cases.get(key)
        if known is None:
            known = self._cases[key] = examine(self._facts(pod, stored=True))
        if known.facts.pod is pod:
            return known
        return msgspec.structs.replace(known, facts=msgspec.structs.replace(known.facts, pod=pod))

    def _alike(self, pod: Pod) -> tuple[object, ...]:
        """Equal for stored pods about which the same is decided."""
        metadata, annotations = pod.metadata, pod.metadata.annotations or {}
        labels = tuple(sorted((metadata.labels or {}).items())) if self.settings.pod_selector is not None else ()
        phase = pod.status.phase if pod.status is not None else ""
        marks = (annotations.get(OPT_OUT), MIRROR_ANNOTATION in annotations, metadata.deletion_timestamp is None)
        return (*_content(pod), labels, phase, *marks)

    def _facts(self, pod: Pod, *, stored: bool) -> PodFacts:
        namespace = pod.metadata.namespace
        return PodFacts(
            pod=pod,
            namespace=namespace,
            settings=self.settings,
            namespace_labels=self.inventory.labels(namespace),
            existing=self._existing,
            stored=stored,
        )

    def _surplus(self) -> Iterator[UnjustifiedTolerations]:
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
                yield UnjustifiedTolerations(pod, wrong, justified)


def _content(pod: Pod) -> tuple[object, ...]:
    """Equal for pods whose images, constraints and pull secrets are equal, whatever their nodes and names."""
    spec = msgspec.structs.replace(pod.spec, node_name="") if pod.spec.node_name else pod.spec
    return (pod.metadata.namespace, msgspec.json.encode(spec, order="deterministic"))


def _values(pod: Pod, settings: TaintSettings) -> tuple[str, ...]:
    """The values that the pod's tolerations name for the key of the taint, sorted."""
    named = {
        each.value for each in pod.spec.tolerations or () if _names_value(each.operator) and each.key == settings.key
    }
    return tuple(sorted(named))


def _names_value(operator: str) -> bool:
    return operator in ("", "Equal")


def _view(judged: NodeEvaluation) -> NodeView:
    return NodeView.of(judged.node, after=judged.taints_after)


# -- the plan ----------------------------------------------------------------------------------------------------------


class StepState(StrEnum):
    """How far a step is."""

    DONE = "done"
    TODO = "todo"
    BLOCKED = "blocked"


class BootstrapStep(msgspec.Struct, frozen=True):
    """One of the seven. ``writes``: objects that it has still to write; ``detail`` is a sentence without full stop."""

    id: str
    title: str
    state: StepState
    writes: int = 0
    detail: str = ""


class Blocker(msgspec.Struct, frozen=True):
    """Something that would break if the nodes were tainted now."""

    kind: str
    namespace: str
    name: str
    reason: str
    detail: str


class BlockerReason(StrEnum):
    """Reasons of blockers; those of the nodes' controller are used where they say the same."""

    NO_NODE_LEFT = "NoNodeLeft"
    """No node would take the pods of a template."""
    DAEMON_SET_LEAVES = "DaemonSetLeavesNodes"
    """A DaemonSet has pods on nodes of an architecture and would have none there."""
    ADMISSION_NOT_READY = RolloutPauseReason.ADMISSION_NOT_READY.value
    PODS_UNDECIDED = RolloutPauseReason.PODS_UNDECIDED.value
    PODS_BECAME_PENDING = RolloutPauseReason.PODS_BECAME_PENDING.value


Policy = Literal["present", "missing", "unserved", "unwanted"]


class Admission(msgspec.Struct, frozen=True):
    """What adds tolerations to new pods, and taints to new nodes."""

    webhook: str = ""
    """Why the webhook is not registered or not available; empty: it is both."""
    policy: Policy = "present"
    """Whether the registration policy is there; ``unwanted``: the configuration does without one."""
    comes: bool = False
    """A controller runs, or an operator that makes one, and will bring what is missing."""


class PlanFacts(msgspec.Struct, frozen=True):
    """What a plan knows besides the judged objects."""

    admission: Admission = Admission()
    rolling: tuple[ObjectKey, ...] = ()
    """DaemonSets whose new template is being rolled out."""
    pending: Mapping[str, tuple[str, ...]] = {}
    """Pods that only a taint of ours keeps pending, by its architecture."""
    node_templates: tuple[NodeTemplate, ...] = ()
    """Templates of autoscalers that lack the taint."""
    notes: tuple[str, ...] = ()


class ArchitectureRow(msgspec.Struct, frozen=True):
    """The nodes of one architecture; an empty name: those whose architecture is unknown."""

    name: str
    primary: bool
    nodes: int
    tainted: int
    to_write: int
    """Nodes whose taints will be changed."""


class Plan(msgspec.Struct, frozen=True):
    """What there is, what will be written, and what is in the way."""

    judgement: ClusterEvaluation
    live: PlanFacts
    architectures: tuple[ArchitectureRow, ...]
    """In the order in which they are tainted."""
    blockers: tuple[Blocker, ...]
    steps: tuple[BootstrapStep, ...]

    @property
    def is_done(self) -> bool:
        return all(step.state is StepState.DONE for step in self.steps)


def plan(judgement: ClusterEvaluation, live: PlanFacts) -> Plan:
    """The plan for a judged inventory."""
    blockers = (*_admission_blockers(live), *_template_blockers(judgement), *_pod_blockers(judgement, live))
    rows = _architectures(judgement)
    return Plan(judgement, live, rows, blockers, tuple(_steps(judgement, live, rows, blockers)))


def _architectures(judgement: ClusterEvaluation) -> tuple[ArchitectureRow, ...]:
    nodes: Counter[str] = Counter()
    tainted: Counter[str] = Counter()
    to_write: Counter[str] = Counter()
    for each in judgement.nodes:
        name = each.decision.architecture
        nodes[name] += 1
        tainted[name] += each.decision.carried
        to_write[name] += each.decision.kind is not Kind.NONE
    primary = judgement.settings.primary
    known = {name: number for name, number in nodes.items() if name}
    ordered = [*in_order(known, primary), *([""] if "" in nodes else [])]
    return tuple(ArchitectureRow(name, name in primary, nodes[name], tainted[name], to_write[name]) for name in ordered)


# -- blockers ----------------------------------------------------------------------------------------------------------


def _admission_blockers(live: PlanFacts) -> Iterator[Blocker]:
    admission = live.admission
    if admission.webhook and not admission.comes:
        yield Blocker(
            "MutatingWebhookConfiguration",
            "",
            ROLE,
            BlockerReason.ADMISSION_NOT_READY,
            f"{admission.webhook}; install polyarch with its component taints, or start its role",
        )


def _template_blockers(judgement: ClusterEvaluation) -> Iterator[Blocker]:
    for each in judgement.templates:
        if each.fit.is_blocked:
            template = each.template
            reason = BlockerReason.DAEMON_SET_LEAVES if template.is_daemon_set else BlockerReason.NO_NODE_LEFT
            yield Blocker(template.kind, template.key.namespace, template.key.name, reason, _why_blocked(each))


def _why_blocked(each: TemplateEvaluation) -> str:
    because = each.decision.message.rstrip(".")
    if each.template.is_daemon_set:
        lost = " and ".join(platform.short_name for platform in each.fit.lost)
        return f"it has pods on {lost} nodes and would have none there. {because}"
    now = "once taints that pass are gone" if each.passing else "now"
    return f"its pods fit {counted(each.fit.before)} {now}, and no node once these are tainted. {because}"


def counted(nodes: Mapping[NodePlatform, int]) -> str:
    """``2 amd64, 1 windows/amd64``."""
    return ", ".join(f"{number} {platform.short_name}" for platform, number in nodes.items())


def _pod_blockers(judgement: ClusterEvaluation, live: PlanFacts) -> Iterator[Blocker]:
    for architecture, pods in live.pending.items():
        for key in pods:
            namespace, _, name = key.partition("/")
            detail = f"only the taint of {architecture} nodes keeps it pending: give it the toleration, or other images"
            yield Blocker("Pod", namespace, name, BlockerReason.PODS_BECAME_PENDING, detail)
    if judgement.settings.mode == "secondary-only":
        return
    for each in judgement.unscheduled:
        if each.decision.unresolved and not each.decision.added:
            place = each.pod.metadata.key
            yield Blocker(
                "Pod", place.namespace, place.name, BlockerReason.PODS_UNDECIDED, each.decision.message.rstrip(".")
            )


# -- steps -------------------------------------------------------------------------------------------------------------

_TITLES: Final = {
    "inventory": "look at nodes, templates and images",
    "daemonsets": "add tolerations to the templates of DaemonSets",
    "admission": "have tolerations added to new pods, and taints to new nodes",
    "pods": "add tolerations to pods that exist",
    "simulate": "check that every template keeps a node",
    "taint": "taint the nodes, architecture by architecture",
    "verify": "look at everything again",
}


def _steps(
    judgement: ClusterEvaluation, live: PlanFacts, rows: tuple[ArchitectureRow, ...], blockers: tuple[Blocker, ...]
) -> Iterator[BootstrapStep]:
    settings = judgement.settings
    yield _step("inventory", 0, detail=f"{len(judgement.nodes)} nodes, {len(judgement.templates)} templates")
    sets = 0
    if settings.templates == "reconcile":
        sets = sum(each.template.is_daemon_set and bool(each.decision.added) for each in judgement.templates)
    rolling = f"rolling out: {few(live.rolling)}" if live.rolling else ""
    yield _step("daemonsets", sets, is_open=bool(live.rolling), detail=rolling)
    yield _admission_step(live.admission)
    written = [*judgement.unscheduled, *judgement.bound]
    pods = sum(bool(each.operations) for each in written)
    yield _step("pods", pods)
    found = [each for each in blockers if each.reason != BlockerReason.ADMISSION_NOT_READY]
    said = f"{len(found)} {'blocker' if len(found) == 1 else 'blockers'}" if found else ""
    yield _step("simulate", 0, is_blocked=bool(found), detail=said)
    nodes = sum(row.to_write for row in rows)
    yield _step("taint", nodes, is_blocked=bool(nodes and blockers), detail="; ".join(_node_writes(judgement, rows)))
    waiting = bool(sets or live.rolling or pods or nodes or blockers) or _admission_step(live.admission).writes > 0
    yield _step("verify", 0, is_open=waiting)


def _node_writes(judgement: ClusterEvaluation, rows: Iterable[ArchitectureRow]) -> Iterator[str]:
    """How many nodes of which architecture get a taint, and how many lose one."""
    for words, kinds in (("", (Kind.APPLY, Kind.CORRECT)), ("loses taints: ", (Kind.REMOVE,))):
        numbers = Counter(each.decision.architecture for each in judgement.nodes if each.decision.kind in kinds)
        order = [f"{numbers[row.name]} {row.name or 'unknown'}" for row in rows if numbers[row.name]]
        if order:
            yield words + ", ".join(order)


def _admission_step(admission: Admission) -> BootstrapStep:
    missing = [admission.webhook] if admission.webhook else []
    if admission.policy == "missing":
        missing.append(f"there is no MutatingAdmissionPolicy {REGISTRATION_POLICY}")
    writes = 2 if admission.policy == "missing" and not admission.comes else 0
    blocked = bool(admission.webhook) and not admission.comes
    return _step("admission", writes, is_open=bool(missing), is_blocked=blocked, detail="; ".join(missing))


def _step(id: str, writes: int, *, is_open: bool = False, is_blocked: bool = False, detail: str = "") -> BootstrapStep:
    state = StepState.BLOCKED if is_blocked else StepState.TODO if writes or is_open else StepState.DONE
    return BootstrapStep(id, _TITLES[id], state, writes, detail)


# -- nodes are held back while a cluster is prepared -------------------------------------------------------------------
# The selector of nodes asks for a label that no node has. So ``bootstrap`` can have admission and controller add every
# toleration, with no node tainted yet; ``apply`` takes the one requirement away again. What else the selector says
# stays as the user wrote it.

HELD_BACK: Final[Mapping[str, Any]] = {"key": OPT_OUT, "operator": "In", "values": ["bootstrap"]}
"""The requirement. Somebody who labels a node so lets it go first."""


def is_held(spec: Mapping[str, Any]) -> bool:
    """Whether nodes are held back."""
    return HELD_BACK in _node_expressions(spec)


def held(spec: Mapping[str, Any]) -> Mapping[str, Any]:
    """The same configuration with nodes held back."""
    return spec if is_held(spec) else _with(spec, [*_node_expressions(spec), HELD_BACK])


def released(spec: Mapping[str, Any]) -> Mapping[str, Any]:
    """The same configuration without that."""
    return _with(spec, [each for each in _node_expressions(spec) if each != HELD_BACK]) if is_held(spec) else spec


def node_selector(spec: Mapping[str, Any]) -> Mapping[str, Any]:
    """``nodes.selector``; empty if there is none."""
    return (spec.get("nodes") or {}).get("selector") or {}


def _node_expressions(spec: Mapping[str, Any]) -> list[Any]:
    return node_selector(spec).get("matchExpressions") or []


def _with(spec: Mapping[str, Any], expressions: list[Any]) -> Mapping[str, Any]:
    selector = {**node_selector(spec), "matchExpressions": expressions}
    given = {name: value for name, value in selector.items() if value}
    nodes = {name: value for name, value in (spec.get("nodes") or {}).items() if name != "selector"}
    nodes |= {"selector": given} if given else {}
    rest = {name: value for name, value in spec.items() if name != "nodes"}
    return rest | ({"nodes": nodes} if nodes else {})
