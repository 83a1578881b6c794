"""Which pods the webhook missed, by the rules that place pods, and which may be evicted (PL-370 to PL-372).

There are two steps, as in ``rules``, because registries are asked in between: :func:`suspect` looks at the pod alone,
:func:`judge` adds the answers for its images and the nodes. Pure: no I/O, no clock.
"""

from collections.abc import Mapping
from datetime import UTC, datetime
from enum import StrEnum
from typing import Final

import msgspec

from polyarch.images.pod_images import images_of
from polyarch.objects import OwnerReference, Pod
from polyarch.oci.answer import Inspection
from polyarch.placement import names
from polyarch.placement.decide import record
from polyarch.placement.decide.decision import Decision, Reason
from polyarch.placement.decide.record import Scope, is_believed
from polyarch.placement.decide.rules import Case, Facts, decide, examine

_ENDED: Final = ("Succeeded", "Failed")


class Fault(StrEnum):
    """What is wrong with a pod."""

    UNPLACED = "unplaced"
    """It waits for a node and was never placed."""
    STALE = "stale"
    """It waits for a node and was placed for other images; counts as unplaced (PL-372)."""
    MISPLACED = "misplaced"
    """It is on a node whose architecture its images do not support."""


class Suspect(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """A pod without a finished decision that should have one."""

    case: Case
    pod: Pod
    """As it is; the case is of the same pod without its node."""
    is_stale: bool = False

    @property
    def node(self) -> str:
        """The name of its node; empty while it waits for one."""
        return self.pod.spec.node_name


class Judgement(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """A pod that the webhook missed, and what would be decided for a new one."""

    fault: Fault
    pod: Pod
    case: Case
    decision: Decision
    evictable: bool = False
    """A new pod would be placed otherwise, and somebody creates it (PL-371)."""
    node_architecture: str = ""

    @property
    def owner(self) -> OwnerReference | None:
        """Who creates the pod anew when it is gone."""
        return self.pod.metadata.controller


def suspect(facts: Facts, *, younger: datetime | None) -> Suspect | None:
    """The pod, if it should have been placed and was not; ``younger``: pods created after it are passed over."""
    pod, settings = facts.pod, facts.settings
    metadata = pod.metadata
    if settings.sweep_action == "off" or settings.mode != "enforce" or settings.provisional or settings.leaving:
        return None
    if metadata.deletion_timestamp is not None or (pod.status is not None and pod.status.phase in _ENDED):
        return None
    if any(gate.name == names.GATE for gate in pod.spec.scheduling_gates or ()):
        return None  # the controller's
    if younger is not None and _created(metadata.creation_timestamp) > younger:
        return None
    is_stale = False
    written = record.read(metadata.annotations)
    if written is not None and written.mode == "enforce":
        images = tuple(use.text for use in images_of(pod))
        is_stale = not written.is_of(images)
        if not is_stale and is_believed(written, Scope(facts.namespace, images, facts.seal)):
            return None
    if not is_stale and (metadata.labels or {}).get(names.SCHEDULING_GATE_LABEL) == names.REMOVED:
        return None
    case = examine(
        msgspec.structs.replace(
            facts,
            pod=msgspec.structs.replace(pod, spec=msgspec.structs.replace(pod.spec, node_name="")),
            stored=False,
            record_was_sent=False,  # a record for other images is still ours (PL-372)
        )
    )
    return Suspect(case=case, pod=pod, is_stale=is_stale) if case.rule is None else None


def judge(found: Suspect, answers: Mapping[str, Inspection], nodes: Mapping[str, str]) -> Judgement | None:
    """The judgement with these answers; None: the pod is fine, or it cannot be said yet. ``nodes``: name to
    architecture; empty if they are not known."""
    decision = decide(found.case, answers)
    if not found.node:
        fault = Fault.STALE if found.is_stale else Fault.UNPLACED
        on_nodes = set(nodes.values())
        gains = _runs_somewhere(decision, on_nodes) and not on_nodes <= set(decision.architectures)
        evictable = gains and _is_recreated(found.pod)
        return Judgement(fault=fault, pod=found.pod, case=found.case, decision=decision, evictable=evictable)
    own = nodes.get(found.node, "")
    known = decision.reason in (Reason.ARCHITECTURES_SET, Reason.NO_SUPPORTED_ARCHITECTURE)
    if not own or not known or own in decision.supported:
        return None
    return Judgement(
        fault=Fault.MISPLACED,
        pod=found.pod,
        case=found.case,
        decision=decision,
        evictable=_runs_somewhere(decision, set(nodes.values())) and _is_recreated(found.pod),
        node_architecture=own,
    )


def _runs_somewhere(decision: Decision, on_nodes: set[str]) -> bool:
    """All images are resolved, and some node can run the new pod: otherwise it would only wait."""
    return decision.reason is Reason.ARCHITECTURES_SET and not on_nodes.isdisjoint(decision.architectures)


def _is_recreated(pod: Pod) -> bool:
    """By a controller of the cluster; the mirror of a static pod belongs to its Node."""
    owner = pod.metadata.controller
    return owner is not None and bool(owner.uid) and owner.kind != "Node"


def _created(text: str | None) -> datetime:
    try:
        return datetime.fromisoformat(text or "")
    except ValueError:
        return datetime.min.replace(tzinfo=UTC)
