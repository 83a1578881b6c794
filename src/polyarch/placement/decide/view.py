"""The user's view of a pod: the pod without anything that placement wrote (PL-200).

It lets a manifest copied from a placed pod, and a pod in a second round of admission, be decided as if new. The
decision annotation says which expressions are ours; it is used only if it was made for this pod (PL-853) and only for
expressions that are still on the pod unchanged. Their positions are kept, so that a patch can remove or replace them
in place. Pure.

Two traps. An expression counts as the user's if its term would be empty without it, which matches no node (the user
removed their own part of a copied term). And nothing can be removed from required terms of a stored pod (PL-005), so
there every expression counts as the user's.
"""

from collections.abc import Mapping
from typing import Final

import msgspec

from polyarch.images.pod_images import images_of
from polyarch.objects import NodeSelectorRequirement, NodeSelectorTerm, Pod, PreferredSchedulingTerm
from polyarch.placement import names
from polyarch.placement.decide.decision import Reason
from polyarch.placement.decide.record import Record, Scope, is_believed, read
from polyarch.placement.decide.seal import UNSEALED, Seal

NOWHERE: Final = -1
_NO_LABELS: Final[dict[str, str]] = {}


class Term(msgspec.Struct, frozen=True, gc=False):
    """One required term as the user wrote it, and the positions of our expressions in it."""

    index: int
    """Index in the pod's list of terms."""
    keys: tuple[str, ...]
    """Keys of the user's matchExpressions."""
    is_empty: bool = False
    arch_at: int = NOWHERE
    """Position of our architecture expression, or of our marker, among the term's matchExpressions."""
    os_at: int = NOWHERE

    @property
    def is_closed(self) -> bool:
        """It needs no architecture expression of ours (PL-202)."""
        return self.is_empty or names.ARCH_KEY in self.keys


class View(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """The user's view. Fields of ``pod`` that placement may write must be read from here, not from ``pod``."""

    pod: Pod
    labels: Mapping[str, str]
    """Without the keys of PL-004; selectors of PodPlacementConfigs match against these (PL-033)."""
    node_selector: Mapping[str, str]
    terms: tuple[Term, ...]
    prefers_architecture: bool
    """A preferred term of the user has an architecture expression (PL-203)."""
    created_term: int = NOWHERE
    """Index of the term that we created and that has no other expression."""
    own_preferred: tuple[int, ...] = ()
    """Indexes of our preferred terms."""
    own_gates: tuple[int, ...] = ()
    accounted_labels: frozenset[str] = frozenset()
    """Result labels that the decision annotation says we wrote."""
    has_controller_owner: bool = False
    has_foreign_record: bool = False
    """The pod has a decision annotation that was not made for it (PL-853)."""

    @property
    def is_gated(self) -> bool:
        return bool(self.own_gates)


def user_view(
    pod: Pod, *, stored: bool, namespace: str = "", seal: Seal = UNSEALED, record_was_sent: bool = True
) -> View:
    """The user's view of a pod that arrives at admission in ``namespace``, or of one that is ``stored`` already.

    ``seal`` verifies that a record is ours (PL-853). ``record_was_sent``: see ``provenance``.
    """
    metadata = pod.metadata
    record = read(metadata.annotations)
    if record is not None and record.mode != "enforce":
        record = None  # the annotation of an audit describes expressions that were never written
    is_foreign = False
    if record is not None and seal.has_key:
        images = tuple(use.text for use in images_of(pod))
        is_foreign = not is_believed(record, Scope(namespace, images, seal, record_was_sent))
    record = None if is_foreign else record
    terms, created = _terms(pod, None if stored else record)
    preferred = pod.preferred or ()
    own_preferred = _own_preferred(preferred, record) if record is not None else ()
    return View(
        pod=pod,
        labels=_user_labels(metadata.labels),
        node_selector=pod.spec.node_selector or _NO_LABELS,
        terms=terms,
        prefers_architecture=any(
            _mentions_architecture(term) for index, term in enumerate(preferred) if index not in own_preferred
        ),
        created_term=created,
        own_preferred=own_preferred,
        own_gates=tuple(index for index, gate in enumerate(pod.spec.scheduling_gates or ()) if gate.name == names.GATE),
        accounted_labels=_accounted(record) if record is not None else frozenset(),
        has_controller_owner=any(owner.controller for owner in metadata.owner_references or ()),
        has_foreign_record=is_foreign,
    )


def _user_labels(labels: dict[str, str] | None) -> Mapping[str, str]:
    if not labels:
        return _NO_LABELS
    if names.OWN_LABELS.isdisjoint(labels):
        return labels
    return {key: value for key, value in labels.items() if key not in names.OWN_LABELS}


def _terms(pod: Pod, record: Record | None) -> tuple[tuple[Term, ...], int]:
    required = pod.required
    if required is None or not required.node_selector_terms:
        return (), NOWHERE
    terms, created = [], NOWHERE
    for index, term in enumerate(required.node_selector_terms):
        arch_at, os_at = _own_expressions(term, index, record) if record is not None else (NOWHERE, NOWHERE)
        expressions = term.match_expressions or ()
        keys = tuple(each.key for at, each in enumerate(expressions) if at not in (arch_at, os_at))
        if arch_at != NOWHERE and not keys and not term.match_fields:
            if record is not None and record.created and created == NOWHERE:
                created = index
                continue
            arch_at = os_at = NOWHERE
            keys = tuple(each.key for each in expressions)
        terms.append(Term(index, keys, term.is_empty, arch_at, os_at))
    return tuple(terms), created


def _own_expressions(term: NodeSelectorTerm, index: int, record: Record) -> tuple[int, int]:
    """Positions of our architecture (or marker) expression and of the OS expression directly after it."""
    if not record.names_term(index):
        return NOWHERE, NOWHERE
    expressions = term.match_expressions or []
    arch_at = next((at for at, each in enumerate(expressions) if _is_recorded(each, record)), NOWHERE)
    if arch_at == NOWHERE or record.os is msgspec.UNSET or arch_at + 1 >= len(expressions):
        return arch_at, NOWHERE
    follower = expressions[arch_at + 1]
    is_ours = (
        follower.key == names.OS_KEY
        and follower.operator == "In"
        and follower.values == [record.os]
        and not any(
            each.key in names.OS_KEYS for each in expressions[:arch_at]
        )  # otherwise we would not have written one
    )
    return arch_at, arch_at + 1 if is_ours else NOWHERE


def _is_recorded(requirement: NodeSelectorRequirement, record: Record) -> bool:
    if record.reason == Reason.NO_SUPPORTED_ARCHITECTURE:
        return requirement.key == names.NO_SUPPORTED_ARCH_KEY and requirement.operator == "Exists"
    return (
        requirement.key == names.ARCH_KEY and requirement.operator == "In" and record.names_values(requirement.values)
    )


def _own_preferred(
    preferred: list[PreferredSchedulingTerm] | tuple[PreferredSchedulingTerm, ...], record: Record
) -> tuple[int, ...]:
    wanted = list(record.preferred)
    found = []
    for index, term in enumerate(preferred):
        pair = own_pair(term)
        if pair is not None and pair in wanted:
            wanted.remove(pair)
            found.append(index)
    return tuple(found)


def own_pair(term: PreferredSchedulingTerm) -> tuple[str, int] | None:
    """The architecture and weight of a preferred term that has the form of ours; None for any other."""
    preference = term.preference
    if preference is None or preference.match_fields:
        return None
    match preference.match_expressions:
        case [NodeSelectorRequirement(key=names.ARCH_KEY, operator="In", values=[architecture])]:
            return architecture, term.weight
    return None


def _mentions_architecture(term: PreferredSchedulingTerm) -> bool:
    expressions = term.preference.match_expressions if term.preference is not None else None
    return any(each.key == names.ARCH_KEY for each in expressions or ())


def _accounted(record: Record) -> frozenset[str]:
    match record.reason:
        case Reason.ARCHITECTURES_SET:
            count = len(record.arch) + (record.more_arch or 0)
            amount = names.SINGLE_ARCH_LABEL if count == 1 else names.MULTI_ARCH_LABEL
            architectures = (
                names.ARCHITECTURE_LABELS[each] for each in record.arch if each in names.ARCHITECTURE_LABELS
            )
            return frozenset((amount, *architectures))
        case Reason.NO_SUPPORTED_ARCHITECTURE:
            return frozenset({names.NO_SUPPORTED_ARCH_LABEL})
        case Reason.FALLBACK_SET:
            return frozenset({names.FALLBACK_ARCH_LABEL})
        case _:
            return frozenset()
