"""The steps to tainted nodes, and what stands in their way (TN-060, TN-061).

Every step is judged from the cluster as it is: one that is interrupted is continued by whoever plans next. Pure.
"""

from collections import Counter
from collections.abc import Iterator, Mapping
from enum import StrEnum
from typing import Final, Literal

import msgspec

from polyarch.kube.resources import few
from polyarch.objects import Key
from polyarch.taints.decide.node_taints import Kind
from polyarch.taints.decide.rollout import HoldReason, in_order
from polyarch.taints.documents.autoscalers import NodeTemplate
from polyarch.taints.names import REGISTRATION_POLICY, ROLE
from polyarch.taints.plan.judgement import JudgedTemplate, Judgement


class StepState(StrEnum):
    """How far a step is."""

    DONE = "done"
    TODO = "todo"
    BLOCKED = "blocked"


class Step(msgspec.Struct, frozen=True):
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


class Blocked(StrEnum):
    """Reasons of blockers; those of the nodes' controller are used where they say the same."""

    NO_NODE_LEFT = "NoNodeLeft"
    """No node would take the pods of a template."""
    DAEMON_SET_LEAVES = "DaemonSetLeavesNodes"
    """A DaemonSet has pods on nodes of an architecture and would have none there."""
    ADMISSION_NOT_READY = HoldReason.ADMISSION_NOT_READY.value
    PODS_UNDECIDED = HoldReason.PODS_UNDECIDED.value
    PODS_BECAME_PENDING = HoldReason.PODS_BECAME_PENDING.value


Policy = Literal["present", "missing", "unserved", "unwanted"]


class Admission(msgspec.Struct, frozen=True):
    """What adds tolerations to new pods, and taints to new nodes."""

    webhook: str = ""
    """Why the webhook is not registered or not available; empty: it is both."""
    policy: Policy = "present"
    """Whether the registration policy is there; ``unwanted``: the configuration does without one."""
    comes: bool = False
    """A controller runs, or an operator that makes one, and will bring what is missing."""


class Live(msgspec.Struct, frozen=True):
    """What a plan knows besides the judged objects."""

    admission: Admission = Admission()
    rolling: tuple[Key, ...] = ()
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

    judgement: Judgement
    live: Live
    architectures: tuple[ArchitectureRow, ...]
    """In the order in which they are tainted (TN-026)."""
    blockers: tuple[Blocker, ...]
    steps: tuple[Step, ...]

    @property
    def is_done(self) -> bool:
        return all(step.state is StepState.DONE for step in self.steps)


def plan(judgement: Judgement, live: Live) -> Plan:
    """The plan for a judged inventory."""
    blockers = (*_admission_blockers(live), *_template_blockers(judgement), *_pod_blockers(judgement, live))
    rows = _architectures(judgement)
    return Plan(judgement, live, rows, blockers, tuple(_steps(judgement, live, rows, blockers)))


def _architectures(judgement: Judgement) -> tuple[ArchitectureRow, ...]:
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


def _admission_blockers(live: Live) -> Iterator[Blocker]:
    admission = live.admission
    if admission.webhook and not admission.comes:
        yield Blocker(
            "MutatingWebhookConfiguration",
            "",
            ROLE,
            Blocked.ADMISSION_NOT_READY,
            f"{admission.webhook}; install polyarch with its component taints, or start its role",
        )


def _template_blockers(judgement: Judgement) -> Iterator[Blocker]:
    for each in judgement.templates:
        if each.fate.is_blocked:
            template = each.template
            reason = Blocked.DAEMON_SET_LEAVES if template.is_daemon_set else Blocked.NO_NODE_LEFT
            yield Blocker(template.kind, template.key.namespace, template.key.name, reason, _why_blocked(each))


def _why_blocked(each: JudgedTemplate) -> str:
    because = each.decision.message.rstrip(".")
    if each.template.is_daemon_set:
        return f"it has pods on {' and '.join(each.fate.lost)} nodes and would have none there. {because}"
    before = ", ".join(f"{number} {name}" for name, number in each.fate.before.items())
    return f"its pods fit {before} now, and no node once these are tainted. {because}"


def _pod_blockers(judgement: Judgement, live: Live) -> Iterator[Blocker]:
    for architecture, pods in live.pending.items():
        for key in pods:
            namespace, _, name = key.partition("/")
            detail = f"only the taint of {architecture} nodes keeps it pending: give it the toleration, or other images"
            yield Blocker("Pod", namespace, name, Blocked.PODS_BECAME_PENDING, detail)
    if judgement.settings.mode == "secondary-only":
        return
    for each in judgement.unscheduled:
        if each.decision.unresolved and not each.decision.added:
            place = each.pod.metadata.key
            yield Blocker("Pod", place.namespace, place.name, Blocked.PODS_UNDECIDED, each.decision.message.rstrip("."))


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
    judgement: Judgement, live: Live, rows: tuple[ArchitectureRow, ...], blockers: tuple[Blocker, ...]
) -> Iterator[Step]:
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
    found = [each for each in blockers if each.reason != Blocked.ADMISSION_NOT_READY]
    said = f"{len(found)} {'blocker' if len(found) == 1 else 'blockers'}" if found else ""
    yield _step("simulate", 0, is_blocked=bool(found), detail=said)
    nodes = sum(row.to_write for row in rows)
    order = ", ".join(f"{row.to_write} {row.name or 'unknown'}" for row in rows if row.to_write)
    yield _step("taint", nodes, is_blocked=bool(nodes and blockers), detail=order)
    waiting = bool(sets or live.rolling or pods or nodes or blockers) or _admission_step(live.admission).writes > 0
    yield _step("verify", 0, is_open=waiting)


def _admission_step(admission: Admission) -> Step:
    missing = [admission.webhook] if admission.webhook else []
    if admission.policy == "missing":
        missing.append(f"there is no MutatingAdmissionPolicy {REGISTRATION_POLICY}")
    writes = 2 if admission.policy == "missing" and not admission.comes else 0
    blocked = bool(admission.webhook) and not admission.comes
    return _step("admission", writes, is_open=bool(missing), is_blocked=blocked, detail="; ".join(missing))


def _step(id: str, writes: int, *, is_open: bool = False, is_blocked: bool = False, detail: str = "") -> Step:
    state = StepState.BLOCKED if is_blocked else StepState.TODO if writes or is_open else StepState.DONE
    return Step(id, _TITLES[id], state, writes, detail)
