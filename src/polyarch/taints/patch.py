"""The JSON patches that carry out decisions about pods, templates of DaemonSets, and nodes. Pure.

Only our own parts are written. If nothing is to be done, there is no operation at all, so a second call on our own
output is empty. A patch of a stored object begins with a test of its version: whoever changed the object meanwhile
makes the patch fail, and the object is decided about again.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

import msgspec

from polyarch.kube.patches import Operation, add, pointer, remove, replace, test
from polyarch.objects import DaemonSet, Node, ObjectMeta, Pod
from polyarch.taints import names
from polyarch.taints.decision import SOURCES, PodDecision, Reason, TolerationOutcome
from polyarch.taints.names import MANAGED_TAINTS_ANNOTATION
from polyarch.taints.node_rules import Kind, NodeDecision
from polyarch.taints.pod_rules import Case, ImageChange, has_gate, recorded
from polyarch.taints.settings import TaintSettings
from polyarch.tolerations import Taint, Toleration

# -- pods --------------------------------------------------------------------------------------------------------------
# Label and annotations are written by key, tolerations at the end of the list, the gate by name and index. Existing
# tolerations are never touched: the API refuses it, and other controllers compare them. Order: label, annotations,
# tolerations, gate, with placement's affinity between the last two.

TOLERATIONS: Final = "/spec/tolerations"
GATES: Final = "/spec/schedulingGates"
_LABEL: Final = pointer("metadata", "labels", names.GATED_LABEL)
_ANNOTATIONS: Final = {
    key: pointer("metadata", "annotations", key) for key in (names.TOLERATIONS_ANNOTATION, names.REASON_ANNOTATION)
}
_NOTHING: Final[Mapping[str, str]] = {}


def admission_patch(case: Case, decision: PodDecision, *, gated_elsewhere: bool = False) -> tuple[Operation, ...]:
    """The patch at admission. ``gated_elsewhere``: placement gates the pod, and its gate serves us, too."""
    if decision.outcome is TolerationOutcome.DENIED:
        return ()
    wants_gate = decision.keeps_gate and not gated_elsewhere
    label = names.GATED if wants_gate else ""
    return tuple(_changes(case.pod, decision, case.settings, label=label, wants_gate=wants_gate, test_gate=False))


def change_patch(case: Case, change: ImageChange) -> tuple[Operation, ...]:
    """The patch at admission of an update that changes an image. If something is left to do, which may be events and an
    eviction, the label tells the leader of the role ``taints``."""
    pod, decision = case.pod, change.decision
    if decision.outcome is TolerationOutcome.DENIED:
        return ()
    keeps_gate = decision.keeps_gate and has_gate(pod)
    present = (pod.metadata.labels or _NOTHING).get(names.GATED_LABEL)
    is_left = bool(change.lost or decision.unresolved) or present == names.CHANGED
    label = names.GATED if keeps_gate else names.CHANGED if is_left else ""
    return tuple(_changes(pod, decision, case.settings, label=label, wants_gate=keeps_gate, test_gate=False))


def stored_patch(case: Case, decision: PodDecision) -> tuple[Operation, ...]:
    """The one PATCH of a stored pod; it lifts our gate unless the decision keeps it.

    Its first two operations test uid and resourceVersion, so for a pod that has changed the API server answers 422 and
    writes nothing.
    """
    keeps_gate = decision.keeps_gate and has_gate(case.pod)  # one cannot be added to a stored pod
    label = names.GATED if keeps_gate else ""
    changes = tuple(_changes(case.pod, decision, case.settings, label=label, wants_gate=keeps_gate, test_gate=True))
    return guarded(case.pod.metadata, changes)


def bare_release(pod: Pod) -> tuple[Operation, ...]:
    """Lifts our gate from a stored pod that nobody decides about: while taints are being removed, or with none."""
    return guarded(pod.metadata, (*_label(pod, ""), *_gate(pod, wanted=False, test_first=True)))


def guarded(metadata: ObjectMeta, changes: tuple[Operation, ...]) -> tuple[Operation, ...]:
    """The changes, refused by the API server if the object is another one or has changed; nothing if there are none."""
    if not changes:
        return ()
    return (
        test("/metadata/uid", metadata.uid),
        test("/metadata/resourceVersion", metadata.resource_version),
        *changes,
    )


def _changes(
    pod: Pod, decision: PodDecision, settings: TaintSettings, *, label: str, wants_gate: bool, test_gate: bool
) -> Iterator[Operation]:
    yield from _label(pod, label)
    if decision.added:
        yield from _annotations(pod, decision)
        yield from appended(TOLERATIONS, pod.spec.tolerations, map(settings.toleration, decision.added))
    yield from _gate(pod, wanted=wants_gate, test_first=test_gate)


def _label(pod: Pod, value: str) -> Iterator[Operation]:
    """Our label with this value; empty: without it."""
    labels = pod.metadata.labels
    present = (labels or _NOTHING).get(names.GATED_LABEL)
    if value and labels is None:
        yield add("/metadata/labels", {names.GATED_LABEL: value})
    elif value and present != value:
        yield add(_LABEL, value)
    elif not value and present is not None:
        yield remove(_LABEL)


def _annotations(pod: Pod, decision: PodDecision) -> Iterator[Operation]:
    present = pod.metadata.annotations
    wanted = {
        names.TOLERATIONS_ANNOTATION: ",".join(sorted(recorded(pod).union(decision.added))),
        names.REASON_ANNOTATION: _source(present, decision.reason),
    }
    if present is None:
        yield add("/metadata/annotations", wanted)
        return
    for key, value in wanted.items():
        if present.get(key) != value:
            yield add(_ANNOTATIONS[key], value)


def _source(present: Mapping[str, str] | None, reason: Reason) -> str:
    """The rightmost of the reasons that apply, an earlier addition's included."""
    before = (present or _NOTHING).get(names.REASON_ANNOTATION)
    return max((each for each in SOURCES if each in (before, reason)), key=SOURCES.index).value


def appended(path: str, present: Iterable[Any] | None, added: Iterable[Toleration]) -> Iterator[Operation]:
    """Adds tolerations at the end of the list, which is created if there is none."""
    documents = [msgspec.to_builtins(each) for each in added]
    if present is None:
        if documents:
            yield add(path, documents)
        return
    yield from (add(f"{path}/-", each) for each in documents)


def _gate(pod: Pod, *, wanted: bool, test_first: bool) -> Iterator[Operation]:
    gates = pod.spec.scheduling_gates
    ours = [index for index, gate in enumerate(gates or ()) if gate.name == names.GATE]
    if wanted and not ours:
        gate = {"name": names.GATE}
        yield add(GATES, [gate]) if gates is None else add(f"{GATES}/-", gate)
        return
    for index in reversed(ours[1:] if wanted else ours):
        if test_first:
            yield test(f"{GATES}/{index}/name", names.GATE)
        yield remove(f"{GATES}/{index}")


# -- DaemonSets --------------------------------------------------------------------------------------------------------
# What we added is recorded in an annotation of the DaemonSet, not of its template, where it would start another
# rollout. Exactly that can be removed again; tolerations of others are never touched.

TEMPLATE_TOLERATIONS: Final = "/spec/template/spec/tolerations"
_ADDED: Final = pointer("metadata", "annotations", names.ADDED_TOLERATIONS_ANNOTATION)
_decoder: Final = msgspec.json.Decoder(list[Toleration])


def template_patch(daemon_set: DaemonSet, decision: PodDecision, settings: TaintSettings) -> tuple[Operation, ...]:
    """The patch at admission of the DaemonSet; nothing if the template is covered."""
    if not decision.added:
        return ()
    added = tuple(map(settings.toleration, decision.added))
    return (
        *_template_record(daemon_set.metadata, added),
        *appended(TEMPLATE_TOLERATIONS, daemon_set.template.spec.tolerations, added),
    )


def stored_template_patch(
    daemon_set: DaemonSet, decision: PodDecision, settings: TaintSettings
) -> tuple[Operation, ...]:
    """The PATCH of a stored DaemonSet: the same, unless it has changed meanwhile."""
    return guarded(daemon_set.metadata, template_patch(daemon_set, decision, settings))


def restoring_patch(daemon_set: DaemonSet) -> tuple[Operation, ...]:
    """Removes the recorded tolerations that are still there unchanged, and the record."""
    annotations = daemon_set.metadata.annotations or {}
    if names.ADDED_TOLERATIONS_ANNOTATION not in annotations:
        return ()
    present = daemon_set.template.spec.tolerations or []
    return guarded(
        daemon_set.metadata,
        (
            *(
                remove(f"{TEMPLATE_TOLERATIONS}/{index}")
                for index in _places(present, recorded_tolerations(annotations))
            ),
            remove(_ADDED),
        ),
    )


def recorded_tolerations(annotations: Mapping[str, str] | None) -> tuple[Toleration, ...]:
    """What we added to the template, as its DaemonSet's annotation says; nothing if somebody broke the annotation."""
    text = (annotations or {}).get(names.ADDED_TOLERATIONS_ANNOTATION)
    if text is None:
        return ()
    try:
        return tuple(_decoder.decode(text))
    except (msgspec.DecodeError, RecursionError):
        return ()


def _template_record(metadata: ObjectMeta, added: Iterable[Toleration]) -> tuple[Operation, ...]:
    entries = sorted({*recorded_tolerations(metadata.annotations), *added}, key=_rank)
    text = msgspec.json.encode(entries).decode()
    if metadata.annotations is None:
        return (add("/metadata/annotations", {names.ADDED_TOLERATIONS_ANNOTATION: text}),)
    if metadata.annotations.get(names.ADDED_TOLERATIONS_ANNOTATION) == text:
        return ()
    return (add(_ADDED, text),)


def _rank(toleration: Toleration) -> tuple[str, str, str, str]:
    return toleration.key, toleration.value, toleration.effect, toleration.operator


def _places(present: list[Toleration], ours: Iterable[Toleration]) -> list[int]:
    """Where they are in the list, the last place first, so that removing one moves none of the others."""
    found: list[int] = []
    for each in ours:
        last = (index for index in reversed(range(len(present))) if present[index] == each and index not in found)
        found.extend([index for index in [next(last, -1)] if index >= 0])
    return sorted(found, reverse=True)


# -- nodes -------------------------------------------------------------------------------------------------------------
# Taints are named by their index in the list as read, and the patch begins with a test of the resourceVersion, so no
# foreign taint is ever moved or lost. Neither a PUT nor a server-side apply could say that much, since the list is
# atomic.

_TAINTS = "/spec/taints"
_NODE_ANNOTATIONS = "/metadata/annotations"
_RECORD = pointer("metadata", "annotations", MANAGED_TAINTS_ANNOTATION)


def node_patch(node: Node, decision: NodeDecision) -> tuple[Operation, ...]:
    """The operations; empty if nothing is to be written. ``node`` is what was decided about."""
    if decision.kind is Kind.NONE:
        return ()
    return (
        test("/metadata/resourceVersion", node.metadata.resource_version),
        *_node_taints(node, decision),
        *_node_record(node, decision),
    )


def _node_taints(node: Node, decision: NodeDecision) -> list[Operation]:
    operations = []
    if decision.replaced is not None:
        operations.append(replace(f"{_TAINTS}/{decision.replaced.index}", _plain_taint(decision.replaced.taint)))
    operations += [remove(f"{_TAINTS}/{index}") for index in sorted(decision.removed, reverse=True)]
    if decision.appended is not None:
        taint = _plain_taint(decision.appended)
        operations.append(add(_TAINTS, [taint]) if node.spec.taints is None else add(f"{_TAINTS}/-", taint))
    return operations


def _node_record(node: Node, decision: NodeDecision) -> list[Operation]:
    if decision.record is None:
        return []
    if not decision.record:
        return [remove(_RECORD)]
    if node.metadata.annotations is None:
        return [add(_NODE_ANNOTATIONS, {MANAGED_TAINTS_ANNOTATION: decision.record})]
    return [add(_RECORD, decision.record)]


def _plain_taint(taint: Taint) -> dict[str, Any]:
    return {"key": taint.key, "value": taint.value, "effect": taint.effect}
