"""The JSON patch that carries out a decision (PL-101, PL-303).

A patch is the difference between the pod's present and desired state, for our own parts only: labels and annotations by
key, expressions by index in lists that we decode completely, gates by name and index. Nothing is rebuilt from the
partially decoded pod, so unknown fields are never lost, and a second call on our own output with the same facts finds
no difference (PL-114). Order: labels, annotations, affinity, gate. Pure.
"""

from collections.abc import Iterator, Mapping
from typing import Any, Final

from polyarch.kube.patches import Operation, add, pointer, remove, replace, test
from polyarch.objects import NodeAffinity, NodeSelectorRequirement
from polyarch.placement import names
from polyarch.placement.decide import terms
from polyarch.placement.decide.decision import Decision, Reason
from polyarch.placement.decide.rules import Case
from polyarch.placement.decide.view import NOWHERE, Term, View, own_pair
from polyarch.placement.result.outcome import By, Path, Target, audit_annotations, gating, target

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


def admission_patch(case: Case, decision: Decision, path: Path) -> tuple[Operation, ...]:
    """The webhook's patch for a pod on this path; empty if nothing changes."""
    if decision.rule is Reason.EXCLUDED_NAMESPACE:
        return ()
    if case.is_audited:
        wanted = audit_annotations(case, decision)
        return tuple(_annotations(case.view, wanted, owned=_AUDITED))
    if path is Path.GATED:
        return tuple(_difference(case.view, gating(case)))
    return tuple(_difference(case.view, target(case, decision, By.ADMISSION)))


def controller_patch(case: Case, decision: Decision) -> tuple[Operation, ...]:
    """The one PATCH of a stored pod (PL-303); empty if the pod already has the desired state.

    Its first two operations test uid and resourceVersion, so for a pod that has changed the API server answers 422 and
    writes nothing.
    """
    changes = tuple(_difference(case.view, target(case, decision, By.CONTROLLER), test_gate=True))
    if not changes:
        return ()
    metadata = case.pod.metadata
    return (
        test("/metadata/uid", metadata.uid),
        test("/metadata/resourceVersion", metadata.resource_version),
        *changes,
    )


def taken_back(case: Case) -> tuple[Operation, ...]:
    """Removes our expressions and preferred terms, which leaves the affinity that the pod's author wrote."""
    return tuple(_affinity(case.view, None))


def _difference(view: View, wanted: Target, *, test_gate: bool = False) -> Iterator[Operation]:
    yield from _labels(view, wanted.labels)
    yield from _annotations(view, wanted.annotations, owned=names.OWN_ANNOTATIONS)
    yield from _affinity(view, wanted.decision)
    yield from _gates(view, wanted=wanted.gate, test_first=test_gate)


def _labels(view: View, wanted: Mapping[str, str]) -> Iterator[Operation]:
    current = view.pod.metadata.labels
    stale = _stale(current, wanted, names.OWN_LABELS)
    return _members("labels", current, wanted, [key for key in stale if _may_go(view, key)])


def _may_go(view: View, key: str) -> bool:
    """A result label in a template may be in its owner's selector: if it were removed, the owner would create pods
    endlessly."""
    if not view.has_controller_owner or key in names.STATE_LABELS or key in names.INSPECT_ERROR_LABELS:
        return True
    return key in view.accounted_labels


def _annotations(view: View, wanted: Mapping[str, str], owned: frozenset[str]) -> Iterator[Operation]:
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
    for key, value in wanted.items():
        if current.get(key) != value:
            yield add(_POINTERS[member, key], value)
    for key in stale:
        yield remove(_POINTERS[member, key])


def _affinity(view: View, decision: Decision | None) -> Iterator[Operation]:
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


def _new_node_affinity(decision: Decision) -> Json:
    content: Json = {}
    if decision.created:
        content["requiredDuringSchedulingIgnoredDuringExecution"] = {"nodeSelectorTerms": [_created_term(decision)]}
    if decision.preferred:
        content["preferredDuringSchedulingIgnoredDuringExecution"] = [_preference(*each) for each in decision.preferred]
    return content


def _required(view: View, decision: Decision | None) -> Iterator[Operation]:
    if decision is not None and decision.created:
        yield from _create_term(view, decision)
        return
    if view.created_term != NOWHERE:
        if not view.terms:
            yield remove(REQUIRED)
            return
        yield remove(f"{TERMS}/{view.created_term}")
    for term in view.terms:
        yield from _term(view, term, decision)


def _create_term(view: View, decision: Decision) -> Iterator[Operation]:
    wanted = _created_term(decision)
    if view.pod.required is None:
        yield add(REQUIRED, {"nodeSelectorTerms": [wanted]})
        return
    if view.created_term == NOWHERE:
        yield add(TERMS, [wanted])
        return
    present = _expressions(view, view.created_term) or []
    if [_json(each) for each in present] != wanted["matchExpressions"]:
        yield replace(f"{TERMS}/{view.created_term}/matchExpressions", wanted["matchExpressions"])


def _term(view: View, term: Term, decision: Decision | None) -> Iterator[Operation]:
    index = terms.resulting_index(view, term.index)
    path = f"{TERMS}/{index}/matchExpressions"
    present = _expressions(view, term.index)
    wanted: list[NodeSelectorRequirement] = []
    if decision is not None and index in decision.terms:
        wanted.append(terms.architecture_expression(decision.architectures))
        if index in decision.os_terms:
            wanted.append(terms.os_expression(decision.os))
    if term.arch_at == NOWHERE:
        if wanted and present is None:
            yield add(path, [_json(each) for each in wanted])
        elif wanted:
            yield from (add(f"{path}/-", _json(each)) for each in wanted)
        return
    ours = [at for at in (term.arch_at, term.os_at) if at != NOWHERE]
    for at in reversed(ours[len(wanted) :]):
        yield remove(f"{path}/{at}")
    for offset, each in enumerate(wanted):
        at = term.arch_at + offset
        if offset >= len(ours):
            yield add(f"{path}/{at}", _json(each))
        elif present is None or present[at] != each:
            yield replace(f"{path}/{at}", _json(each))


def _preferred(view: View, affinity: NodeAffinity, wanted: tuple[tuple[str, int], ...]) -> Iterator[Operation]:
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


def _gates(view: View, *, wanted: bool, test_first: bool) -> Iterator[Operation]:
    if wanted and not view.own_gates:
        gate = {"name": names.GATE}
        yield add(GATES, [gate]) if view.pod.spec.scheduling_gates is None else add(f"{GATES}/-", gate)
        return
    for at in reversed(view.own_gates[1:] if wanted else view.own_gates):
        if test_first:
            yield test(f"{GATES}/{at}/name", names.GATE)
        yield remove(f"{GATES}/{at}")


def _expressions(view: View, index: int) -> list[NodeSelectorRequirement] | None:
    required = view.pod.required
    terms_of_pod = required.node_selector_terms if required is not None else None
    return terms_of_pod[index].match_expressions if terms_of_pod is not None else None


def _created_term(decision: Decision) -> Json:
    expressions = [terms.architecture_expression(decision.architectures)]
    if decision.os_terms:
        expressions.append(terms.os_expression(decision.os))
    return {"matchExpressions": [_json(each) for each in expressions]}


def _preference(architecture: str, weight: int) -> Json:
    expression = _json(terms.architecture_expression((architecture,)))
    return {"weight": weight, "preference": {"matchExpressions": [expression]}}


def _json(expression: NodeSelectorRequirement) -> Json:
    document: Json = {"key": expression.key, "operator": expression.operator}
    if expression.values is not None:
        document["values"] = expression.values
    return document
