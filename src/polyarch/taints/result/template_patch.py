"""The JSON patch of a DaemonSet whose template gets tolerations, and the one that takes them back (TN-050, TN-070).

What we added is recorded in an annotation of the DaemonSet, not of its template, where it would start another rollout.
Exactly that can be removed again; tolerations of others are never touched. Pure.
"""

from collections.abc import Iterable, Mapping
from typing import Final

import msgspec

from polyarch.kube.patches import Operation, add, pointer, remove
from polyarch.objects import DaemonSet, ObjectMeta
from polyarch.taints import names
from polyarch.taints.api.settings import TaintSettings
from polyarch.taints.decide.decision import PodDecision
from polyarch.taints.result.pod_patch import appended, guarded
from polyarch.tolerations import Toleration

TOLERATIONS: Final = "/spec/template/spec/tolerations"
_ANNOTATION: Final = pointer("metadata", "annotations", names.ADDED_TOLERATIONS_ANNOTATION)
_decoder: Final = msgspec.json.Decoder(list[Toleration])


def template_patch(daemon_set: DaemonSet, decision: PodDecision, settings: TaintSettings) -> tuple[Operation, ...]:
    """The patch at admission of the DaemonSet; nothing if the template is covered."""
    if not decision.added:
        return ()
    added = tuple(map(settings.toleration, decision.added))
    return (
        *_record(daemon_set.metadata, added),
        *appended(TOLERATIONS, daemon_set.template.spec.tolerations, added),
    )


def stored_template_patch(
    daemon_set: DaemonSet, decision: PodDecision, settings: TaintSettings
) -> tuple[Operation, ...]:
    """The PATCH of a stored DaemonSet: the same, unless it has changed meanwhile."""
    return guarded(daemon_set.metadata, template_patch(daemon_set, decision, settings))


def restoring_patch(daemon_set: DaemonSet) -> tuple[Operation, ...]:
    """Removes the recorded tolerations that are still there unchanged, and the record (TN-070)."""
    annotations = daemon_set.metadata.annotations or {}
    if names.ADDED_TOLERATIONS_ANNOTATION not in annotations:
        return ()
    present = daemon_set.template.spec.tolerations or []
    return guarded(
        daemon_set.metadata,
        (
            *(remove(f"{TOLERATIONS}/{index}") for index in _places(present, recorded_tolerations(annotations))),
            remove(_ANNOTATION),
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


def _record(metadata: ObjectMeta, added: Iterable[Toleration]) -> tuple[Operation, ...]:
    entries = sorted({*recorded_tolerations(metadata.annotations), *added}, key=_rank)
    text = msgspec.json.encode(entries).decode()
    if metadata.annotations is None:
        return (add("/metadata/annotations", {names.ADDED_TOLERATIONS_ANNOTATION: text}),)
    if metadata.annotations.get(names.ADDED_TOLERATIONS_ANNOTATION) == text:
        return ()
    return (add(_ANNOTATION, text),)


def _rank(toleration: Toleration) -> tuple[str, str, str, str]:
    return toleration.key, toleration.value, toleration.effect, toleration.operator


def _places(present: list[Toleration], ours: Iterable[Toleration]) -> list[int]:
    """Where they are in the list, the last place first, so that removing one moves none of the others."""
    found: list[int] = []
    for each in ours:
        last = (index for index in reversed(range(len(present))) if present[index] == each and index not in found)
        found.extend([index for index in [next(last, -1)] if index >= 0])
    return sorted(found, reverse=True)
