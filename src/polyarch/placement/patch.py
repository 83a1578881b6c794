"""What a decision writes to a pod: the desired labels, annotations, expressions, preferences and gate, as a JSON patch.

The webhook's inline path and the controller use the same functions, so their results differ only in ``by``. A patch is
the difference between the pod's present and desired state, for our own parts only: labels and annotations by key,
expressions by index in lists that are decoded completely, gates by name and index. Nothing is rebuilt from the
partially decoded pod, so unknown fields are never lost, and a second call on our own output with the same facts finds
no difference. Order: labels, annotations, affinity, gate. Pure.
"""

from collections.abc import Iterator, Mapping
from enum import StrEnum
from typing import Any, Final

import msgspec

from polyarch.kube.patches import Operation, add, pointer, remove, replace, test
from polyarch.objects import NodeAffinity, NodeSelectorRequirement, Pod
from polyarch.placement import names
from polyarch.placement.decision import PlacementDecision, PlacementOutcome, Reason, signed_record
from polyarch.placement.rules import (
    ABSENT,
    ExaminedPod,
    UserPod,
    UserTerm,
    architecture_expression,
    os_expression,
    own_pair,
    resulting_index,
)


class AdmissionPath(StrEnum):
    """How admission handles a pod; ``explain`` and metrics use these values."""

    IGNORED = "ignored"
    INLINE = "inline"
    GATED = "gated"
    AUDIT = "audit"
    UNAVAILABLE = "unavailable"


class DecidedBy(StrEnum):
    """Who wrote the outcome."""

    ADMISSION = "admission"
    CONTROLLER = "controller"


class DesiredPod(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """Everything of ours that the pod should have; anything else of ours is removed."""

    labels: Mapping[str, str]
    annotations: Mapping[str, str]
    gate: bool
    decision: PlacementDecision | None = None
    """Defines the expressions and preferred terms; None: there are none."""


_RECORDED: Final = frozenset(
    {
        Reason.ARCHITECTURES_SET,
        Reason.ALL_IMAGES_NEUTRAL,
        Reason.PREFERENCES_ONLY,
        Reason.NO_SUPPORTED_ARCHITECTURE,
        Reason.FALLBACK_SET,
        Reason.PARTIALLY_CONSTRAINED,
        Reason.RELEASED_UNCONSTRAINED,
    }
)
_UNRESOLVED: Final = frozenset({Reason.FALLBACK_SET, Reason.PARTIALLY_CONSTRAINED, Reason.RELEASED_UNCONSTRAINED})


def gated_pod(case: ExaminedPod) -> DesiredPod:
    """Our gate and nothing else."""
    return DesiredPod(
        labels=_state_labels(names.GATED, scoring_applies=case.scoring_applies), annotations={}, gate=True
    )


def desired_pod(case: ExaminedPod, decision: PlacementDecision, by: DecidedBy) -> DesiredPod:
    """What a pod with this decision should have."""
    scoring = case.scoring_applies
    match decision.outcome:
        case PlacementOutcome.IGNORED:
            return DesiredPod(labels=_state_labels(names.NOT_SET, scoring_applies=scoring), annotations={}, gate=False)
        case PlacementOutcome.WAITING:
            return gated_pod(case)
        case PlacementOutcome.FAILING | PlacementOutcome.HELD:
            count = names.RETRYING_COUNT if decision.outcome is PlacementOutcome.FAILING else names.GIVEN_UP_COUNT
            return DesiredPod(
                labels=_state_labels(names.GATED, scoring_applies=scoring) | _inspect_error_labels(count),
                annotations={names.IMAGE_INSPECT_ERROR_ANNOTATION: decision.failure},
                gate=True,
            )
    labels = _state_labels(
        names.REMOVED,
        scoring_applies=scoring,
        affinity=decision.writes_expression,
        preferred=bool(decision.preferred),
    )
    return DesiredPod(
        labels=labels | _result_labels(decision),
        annotations=_desired_annotations(case, decision, by),
        gate=False,
        decision=decision,
    )


def audit_annotations(case: ExaminedPod, decision: PlacementDecision) -> dict[str, str]:
    """The only change to an audited pod: the decision that ``enforce`` would have made."""
    if case.rule is not None:
        return {}
    return {names.DECISION_ANNOTATION: signed_record(decision, by=DecidedBy.ADMISSION, mode="audit", scope=case.scope)}


def _state_labels(
    gate: str, *, scoring_applies: bool, affinity: bool = False, preferred: bool = False
) -> dict[str, str]:
    labels = {
        names.SCHEDULING_GATE_LABEL: gate,
        names.NODE_AFFINITY_LABEL: names.SET if affinity else names.NOT_SET,
    }
    if scoring_applies:
        labels[names.PREFERRED_NODE_AFFINITY_LABEL] = names.SET if preferred else names.NOT_SET
    return labels


def _inspect_error_labels(count: str) -> dict[str, str]:
    return {names.IMAGE_INSPECT_ERROR_LABEL: "", names.IMAGE_INSPECT_ERROR_COUNT_LABEL: count}


def _result_labels(decision: PlacementDecision) -> dict[str, str]:
    match decision.reason:
        case Reason.ARCHITECTURES_SET:
            values = decision.architectures
            labels = {names.SINGLE_ARCH_LABEL if len(values) == 1 else names.MULTI_ARCH_LABEL: ""}
            for value in values:
                if value in names.ARCHITECTURE_LABELS:
                    labels[names.ARCHITECTURE_LABELS[value]] = ""
            return labels
        case Reason.NO_SUPPORTED_ARCHITECTURE:
            return {names.NO_SUPPORTED_ARCH_LABEL: ""}
        case Reason.FALLBACK_SET:
            fallback = {names.FALLBACK_ARCH_LABEL: ".".join(decision.architectures)}
            return fallback | _inspect_error_labels(names.GIVEN_UP_COUNT)
        case Reason.PARTIALLY_CONSTRAINED | Reason.RELEASED_UNCONSTRAINED:
            return _inspect_error_labels(names.GIVEN_UP_COUNT)
        case _:
            return {}


def _desired_annotations(case: ExaminedPod, decision: PlacementDecision, by: DecidedBy) -> dict[str, str]:
    annotations = {}
    if decision.reason in _RECORDED:
        annotations[names.DECISION_ANNOTATION] = signed_record(decision, by=by, mode="enforce", scope=case.scope)
    if decision.sources:
        annotations[names.PREFERRED_AFFINITY_SOURCES_ANNOTATION] = ",".join(map(str, decision.sources))
    if decision.reason in _UNRESOLVED:
        annotations[names.IMAGE_INSPECT_ERROR_ANNOTATION] = decision.failure
    return annotations


# -- the patch ---------------------------------------------------------------------------------------------------------

AFFINITY: Final = "/spec/affinity"
NODE_AFFINITY: Final = f"{AFFINITY}/nodeAffinity"
REQUIRED: Final = f"{NODE_AFFINITY}/requiredDuringSchedulingIgnoredDuringExecution"
TERMS: Final = f"{REQUIRED}/nodeSelectorTerms"
PREFERRED: Final = f"{NODE_AFFINITY}/preferredDuringSchedulingIgnoredDuringExecution"
GATES: Final = "/spec/schedulingGates"

_POINTERS: Final = {
    (member, key): pointer("metadata", member, key)
    for member, keys in (("labels", names.OWN_LABELS), ("annotations", names.OWN_ANNOTATIONS))
    for key in keys
}

_AUDITED: Final = frozenset({names.DECISION_ANNOTATION})

Json = dict[str, Any]


def admission_patch(case: ExaminedPod, decision: PlacementDecision, path: AdmissionPath) -> tuple[Operation, ...]:
    """The webhook's patch for a pod on this path; empty if nothing changes."""
    if decision.rule in (Reason.EXCLUDED_NAMESPACE, Reason.INVALID_POD):
        return ()
    if case.is_audited:
        wanted = audit_annotations(case, decision)
        return tuple(_annotations(case.view, wanted, owned=_AUDITED))
    if path is AdmissionPath.GATED:
        return tuple(_difference(case.view, gated_pod(case)))
    return tuple(_difference(case.view, desired_pod(case, decision, DecidedBy.ADMISSION)))


def controller_patch(case: ExaminedPod, decision: PlacementDecision) -> tuple[Operation, ...]:
    """The one PATCH of a stored pod; empty if the pod already has the desired state.

    Its first two operations test uid and resourceVersion, so for a pod that has changed the API server answers 422 and
    writes nothing.
    """
    changes = tuple(_difference(case.view, desired_pod(case, decision, DecidedBy.CONTROLLER), test_gate=True))
    if not changes:
        return ()
    metadata = case.pod.metadata
    return (
        test("/metadata/uid", metadata.uid),
        test("/metadata/resourceVersion", metadata.resource_version),
        *changes,
    )


def removal_patch(case: ExaminedPod) -> tuple[Operation, ...]:
    """Removes our expressions and preferred terms, which leaves the affinity that the pod's author wrote."""
    return tuple(_affinity(case.view, None))


def _difference(view: UserPod, wanted: DesiredPod, *, test_gate: bool = False) -> Iterator[Operation]:
    yield from _labels(view, wanted.labels)
    yield from _annotations(view, wanted.annotations, owned=names.OWN_ANNOTATIONS)
    yield from _affinity(view, wanted.decision)
    yield from _gates(view, wanted=wanted.gate, test_first=test_gate)


def _labels(view: UserPod, wanted: Mapping[str, str]) -> Iterator[Operation]:
    current = view.pod.metadata.labels
    stale = _stale(current, wanted, names.OWN_LABELS)
    return _members("labels", current, wanted, [key for key in stale if _may_go(view, key)])


def _may_go(view: UserPod, key: str) -> bool:
    """A result label in a template may be in its owner's selector: if it were removed, the owner would create pods
    endlessly."""
    if not view.has_controller_owner or key in names.STATE_LABELS or key in names.INSPECT_ERROR_LABELS:
        return True
    return key in view.accounted_labels


def _annotations(view: UserPod, wanted: Mapping[str, str], owned: frozenset[str]) -> Iterator[Operation]:
    current = view.pod.metadata.annotations
    return _members("annotations", current, wanted, _stale(current, wanted, owned))


def _stale(current: Mapping[str, str] | None, wanted: Mapping[str, str], owned: frozenset[str]) -> list[str]:
    """Keys of ours that are there and not to be there, in a fixed order."""
    return sorted((owned & current.keys()) - wanted.keys()) if current else []


def _members(
    member: str, current: Mapping[str, str] | None, wanted: Mapping[str, str], stale: list[str]
) -> Iterator[Operation]:
    if current is None:
        if wanted:
            yield add(f"/metadata/{member}", dict(wanted))
        return
    if member == "annotations" and _size(current) + _size(wanted) > MAX_ANNOTATIONS:
        return  # the API server would reject the pod for what is ours
    for key, value in wanted.items():
        if current.get(key) != value:
            yield add(_POINTERS[member, key], value)
    for key in stale:
        yield remove(_POINTERS[member, key])


MAX_ANNOTATIONS: Final = 256 * 1024
"""What the API server lets the annotations of an object have, in bytes of keys and values."""


def _size(annotations: Mapping[str, str]) -> int:
    return sum(len(text.encode(errors="replace")) for pair in annotations.items() for text in pair)


def _affinity(view: UserPod, decision: PlacementDecision | None) -> Iterator[Operation]:
    affinity = view.pod.node_affinity
    if affinity is None:
        if decision is not None and (content := _new_node_affinity(decision)):
            if view.pod.spec.affinity is None:
                yield add(AFFINITY, {"nodeAffinity": content})
            else:
                yield add(NODE_AFFINITY, content)
        return
    yield from _required(view, decision)
    yield from _preferred(view, affinity, decision.preferred if decision is not None else ())


def _new_node_affinity(decision: PlacementDecision) -> Json:
    content: Json = {}
    if decision.created:
        content["requiredDuringSchedulingIgnoredDuringExecution"] = {"nodeSelectorTerms": [_created_term(decision)]}
    if decision.preferred:
        content["preferredDuringSchedulingIgnoredDuringExecution"] = [_preference(*each) for each in decision.preferred]
    return content


def _required(view: UserPod, decision: PlacementDecision | None) -> Iterator[Operation]:
    if decision is not None and decision.created:
        yield from _create_term(view, decision)
        return
    if view.created_term != ABSENT:
        if not view.terms:
            yield remove(REQUIRED)
            return
        yield remove(f"{TERMS}/{view.created_term}")
    for term in view.terms:
        yield from _term(view, term, decision)


def _create_term(view: UserPod, decision: PlacementDecision) -> Iterator[Operation]:
    wanted = _created_term(decision)
    if view.pod.required is None:
        yield add(REQUIRED, {"nodeSelectorTerms": [wanted]})
        return
    if view.created_term == ABSENT:
        yield add(TERMS, [wanted])
        return
    present = _expressions(view, view.created_term) or []
    if [_json(each) for each in present] != wanted["matchExpressions"]:
        yield replace(f"{TERMS}/{view.created_term}/matchExpressions", wanted["matchExpressions"])


def _term(view: UserPod, term: UserTerm, decision: PlacementDecision | None) -> Iterator[Operation]:
    index = resulting_index(view, term.index)
    path = f"{TERMS}/{index}/matchExpressions"
    present = _expressions(view, term.index)
    wanted: list[NodeSelectorRequirement] = []
    if decision is not None and index in decision.terms:
        wanted.append(architecture_expression(decision.architectures))
        if index in decision.os_terms:
            wanted.append(os_expression(decision.os))
    if term.arch_at == ABSENT:
        if wanted and present is None:
            yield add(path, [_json(each) for each in wanted])
        elif wanted:
            yield from (add(f"{path}/-", _json(each)) for each in wanted)
        return
    ours = [at for at in (term.arch_at, term.os_at) if at != ABSENT]
    for at in reversed(ours[len(wanted) :]):
        yield remove(f"{path}/{at}")
    for offset, each in enumerate(wanted):
        at = term.arch_at + offset
        if offset >= len(ours):
            yield add(f"{path}/{at}", _json(each))
        elif present is None or present[at] != each:
            yield replace(f"{path}/{at}", _json(each))


def _preferred(view: UserPod, affinity: NodeAffinity, wanted: tuple[tuple[str, int], ...]) -> Iterator[Operation]:
    present = affinity.preferred_during_scheduling_ignored_during_execution
    if present is None:
        if wanted:
            yield add(PREFERRED, [_preference(*each) for each in wanted])
        return
    ours = tuple(own_pair(present[at]) for at in view.own_preferred)
    if ours == wanted:
        return
    if not wanted and len(ours) == len(present):
        yield remove(PREFERRED)
        return
    for at in reversed(view.own_preferred):
        yield remove(f"{PREFERRED}/{at}")
    for each in wanted:
        yield add(f"{PREFERRED}/-", _preference(*each))


def _gates(view: UserPod, *, wanted: bool, test_first: bool) -> Iterator[Operation]:
    if wanted and not view.own_gates:
        gate = {"name": names.GATE}
        yield add(GATES, [gate]) if view.pod.spec.scheduling_gates is None else add(f"{GATES}/-", gate)
        return
    for at in reversed(view.own_gates[1:] if wanted else view.own_gates):
        if test_first:
            yield test(f"{GATES}/{at}/name", names.GATE)
        yield remove(f"{GATES}/{at}")


def _expressions(view: UserPod, index: int) -> list[NodeSelectorRequirement] | None:
    required = view.pod.required
    terms_of_pod = required.node_selector_terms if required is not None else None
    return terms_of_pod[index].match_expressions if terms_of_pod is not None else None


def _created_term(decision: PlacementDecision) -> Json:
    expressions = [architecture_expression(decision.architectures)]
    if decision.os_terms:
        expressions.append(os_expression(decision.os))
    return {"matchExpressions": [_json(each) for each in expressions]}


def _preference(architecture: str, weight: int) -> Json:
    expression = _json(architecture_expression((architecture,)))
    return {"weight": weight, "preference": {"matchExpressions": [expression]}}


def _json(expression: NodeSelectorRequirement) -> Json:
    document: Json = {"key": expression.key, "operator": expression.operator}
    if expression.values is not None:
        document["values"] = expression.values
    return document


# -- our gate, without a decision --------------------------------------------------------------------------------------


def has_gate(pod: Pod) -> bool:
    """Whether the pod has our gate, whatever its labels are."""
    return any(gate.name == names.GATE for gate in pod.spec.scheduling_gates or ())


def bare_release(pod: Pod) -> tuple[Operation, ...]:
    """Removes our gate from a pod that nobody can decide about, and sets its state label."""
    metadata = pod.metadata
    label = {names.SCHEDULING_GATE_LABEL: names.REMOVED}
    gates = [at for at, gate in enumerate(pod.spec.scheduling_gates or ()) if gate.name == names.GATE]
    path = "/spec/schedulingGates"
    return (
        test("/metadata/uid", metadata.uid),
        test("/metadata/resourceVersion", metadata.resource_version),
        add("/metadata/labels", label)
        if metadata.labels is None
        else add(pointer("metadata", "labels", names.SCHEDULING_GATE_LABEL), names.REMOVED),
        *(
            operation
            for at in reversed(gates)
            for operation in (test(f"{path}/{at}/name", names.GATE), remove(f"{path}/{at}"))
        ),
    )
