"""The JSON patch that carries out a decision about a pod (TN-032, TN-042, TN-046).

Only our own parts are written: label and annotations by key, tolerations at the end of the list, the gate by name and
index. Existing tolerations are never touched: the API refuses it, and other controllers compare them. If nothing is to
be done, there is no operation at all, so a second call on our own output is empty. Order: label, annotations,
tolerations, gate, with placement's affinity between the last two (PL-303). Pure.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

import msgspec

from polyarch.kube.patches import Operation, add, pointer, remove, test
from polyarch.objects import ObjectMeta, Pod
from polyarch.taints import names
from polyarch.taints.api.settings import TaintSettings
from polyarch.taints.decide.decision import SOURCES, Outcome, PodDecision, Reason
from polyarch.taints.decide.image_change import ImageChange, recorded
from polyarch.taints.decide.rules import Case
from polyarch.tolerations import Toleration

TOLERATIONS: Final = "/spec/tolerations"
GATES: Final = "/spec/schedulingGates"
_LABEL: Final = pointer("metadata", "labels", names.GATED_LABEL)
_ANNOTATIONS: Final = {
    key: pointer("metadata", "annotations", key) for key in (names.TOLERATIONS_ANNOTATION, names.REASON_ANNOTATION)
}
_NOTHING: Final[Mapping[str, str]] = {}


def admission_patch(case: Case, decision: PodDecision, *, gated_elsewhere: bool = False) -> tuple[Operation, ...]:
    """The patch at admission. ``gated_elsewhere``: placement gates the pod, and its gate serves us, too (TN-046)."""
    if decision.outcome is Outcome.DENIED:
        return ()
    wants_gate = decision.keeps_gate and not gated_elsewhere
    label = names.GATED if wants_gate else ""
    return tuple(_changes(case.pod, decision, case.settings, label=label, wants_gate=wants_gate, test_gate=False))


def change_patch(case: Case, change: ImageChange) -> tuple[Operation, ...]:
    """The patch at admission of an update that changes an image. If something is left to do, which may be events and an
    eviction, the label tells the leader of the role ``taints`` (TN-049)."""
    pod, decision = case.pod, change.decision
    if decision.outcome is Outcome.DENIED:
        return ()
    keeps_gate = decision.keeps_gate and _has_gate(pod)
    present = (pod.metadata.labels or _NOTHING).get(names.GATED_LABEL)
    is_left = bool(change.lost or decision.unresolved) or present == names.CHANGED
    label = names.GATED if keeps_gate else names.CHANGED if is_left else ""
    return tuple(_changes(pod, decision, case.settings, label=label, wants_gate=keeps_gate, test_gate=False))


def stored_patch(case: Case, decision: PodDecision) -> tuple[Operation, ...]:
    """The one PATCH of a stored pod; it lifts our gate unless the decision keeps it.

    Its first two operations test uid and resourceVersion, so for a pod that has changed the API server answers 422 and
    writes nothing.
    """
    keeps_gate = decision.keeps_gate and _has_gate(case.pod)  # one cannot be added to a stored pod
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


def _has_gate(pod: Pod) -> bool:
    return any(gate.name == names.GATE for gate in pod.spec.scheduling_gates or ())


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
