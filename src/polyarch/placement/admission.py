"""The admission response for one pod, and its cache for equal pods.

The webhook gathers facts and inspections and sends this response; ``polyarch explain`` prints it. The replicas of a
template are equal in everything that rules read, so one response serves all of them as long as the compiled settings,
scoring sources, nodes and keys of their namespace are the same objects, and the inspections are equal. Pure.
"""

from collections.abc import Mapping
from typing import Final, NamedTuple

import msgspec

from polyarch.images.decision_cache import DecisionCache, are_few
from polyarch.images.pod_images import ImageEffect
from polyarch.images.pod_mutation import PodMutation, join_patches
from polyarch.kube.patches import Operation
from polyarch.objects import Pod
from polyarch.oci.inspection import Inspection
from polyarch.placement import names
from polyarch.placement.decision import PlacementDecision, Reason
from polyarch.placement.patch import AdmissionPath, admission_patch
from polyarch.placement.rules import ExaminedPod, PodFacts, UserPod, decide, examine, unavailable
from polyarch.selectors import OPERATORS, Requirement

INLINE: Final = frozenset({Reason.ARCHITECTURES_SET, Reason.ALL_IMAGES_NEUTRAL, Reason.PREFERENCES_ONLY})
"""Decisions that are written at admission, without a gate."""
MAX_WARNINGS: Final = 2
MAX_WARNING: Final = 200
AUDIT_KEY: Final = "decision"


class Admission(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """The response to one admission request."""

    path: AdmissionPath
    decision: PlacementDecision
    """The decision; for a gated pod it is provisional."""
    operations: tuple[Operation, ...]
    warnings: tuple[str, ...]
    audit_annotations: dict[str, str]


def admit(
    case: ExaminedPod,
    decision: PlacementDecision,
    *,
    controller_available: bool,
    deprovisioning: bool = False,
    is_proven: bool = True,
) -> Admission:
    """The response for ``decision``, which was made from the answers that are usable now, if any.

    ``controller_available``: the controller's Lease was renewed within 30 s and the CPPC is not being deleted, so a
    gate will be removed. ``deprovisioning``: the CPPC is being deleted. ``is_proven``: the request comes from an API
    server; otherwise the pod is gated at best, since the controller sees whether it exists.
    """
    path = _path(case, decision, controller_available=controller_available, is_proven=is_proven)
    warnings = warnings_for(case, decision)
    if path is AdmissionPath.UNAVAILABLE:
        decision = unavailable(decision, deprovisioning=deprovisioning)
        warnings = (shortened(decision.message), *warnings)[:MAX_WARNINGS]
    return Admission(
        path=path,
        decision=decision,
        operations=admission_patch(case, decision, path),
        warnings=warnings,
        audit_annotations={AUDIT_KEY: audit_text(decision, path)},
    )


def _path(
    case: ExaminedPod, decision: PlacementDecision, *, controller_available: bool, is_proven: bool
) -> AdmissionPath:
    if case.is_audited:
        return AdmissionPath.AUDIT if case.rule is None else AdmissionPath.IGNORED
    if case.rule is not None:
        return AdmissionPath.IGNORED
    settings = case.settings
    if (
        is_proven
        and settings.inline_enabled
        and not settings.provisional
        and decision.reason in INLINE
        and not decision.no_matching_node
    ):
        return AdmissionPath.INLINE
    if controller_available or settings.unresolved_action == "hold":
        return AdmissionPath.GATED
    return AdmissionPath.UNAVAILABLE


def audit_text(decision: PlacementDecision, path: AdmissionPath) -> str:
    """``ArchitecturesSet amd64,arm64 inline``."""
    return " ".join(part for part in (decision.reason.value, ",".join(decision.architectures), path.value) if part)


def warnings_for(case: ExaminedPod, decision: PlacementDecision) -> tuple[str, ...]:
    """At most two warnings, shown by the client that creates the pod."""
    found = [
        *_ignored_opt_out(case),
        *_foreign_record(case),
        *_no_common_platform(decision),
        *_impossible_term(case.view, decision),
        *_odd_names(decision),
    ]
    return tuple(shortened(warning) for warning in found[:MAX_WARNINGS])


def _ignored_opt_out(case: ExaminedPod) -> list[str]:
    value = (case.pod.metadata.annotations or {}).get(names.SKIP_ANNOTATION)
    if value is None or case.settings.provisional or case.rule in _BEFORE_OPT_OUT:
        return []
    if value != "true":
        return [f'{names.SKIP_ANNOTATION} {value[:40]!r} is ignored: only "true" opts a pod out']
    if case.settings.pod_opt_out == "forbidden":
        return [f"{names.SKIP_ANNOTATION} is ignored: the PlacementPolicy forbids opting out in this namespace"]
    return []


_BEFORE_OPT_OUT: Final = (Reason.OPERATOR_NAMESPACE, Reason.KUBE_NAMESPACE, Reason.EXCLUDED_NAMESPACE, Reason.OPTED_OUT)


def _foreign_record(case: ExaminedPod) -> list[str]:
    """A manifest copied from another pod keeps its architectures, since their author cannot be verified."""
    if case.rule is not Reason.ARCHITECTURE_ALREADY_REQUIRED or not case.view.has_foreign_record:
        return []
    what = f"{names.DECISION_ANNOTATION} was not made for this pod, so its {names.ARCH_KEY} terms count as yours"
    return [f"{what}; remove both to have it placed"]


def _no_common_platform(decision: PlacementDecision) -> list[str]:
    return [decision.message] if decision.reason is Reason.NO_SUPPORTED_ARCHITECTURE else []


def _impossible_term(view: UserPod, decision: PlacementDecision) -> list[str]:
    """A required term of the user whose architectures the images do not support."""
    if decision.reason is not Reason.ARCHITECTURES_SET:
        return []
    required = view.pod.required
    stored = (required.node_selector_terms if required is not None else None) or []
    for term in view.terms:
        if names.ARCH_KEY not in term.keys:
            continue
        own = [
            Requirement(each.key, each.operator, tuple(each.values or ()))
            for at, each in enumerate(stored[term.index].match_expressions or ())
            if each.key == names.ARCH_KEY and at != term.arch_at and each.operator in OPERATORS
        ]
        if not any(all(each.matches({names.ARCH_KEY: value}) for each in own) for value in decision.supported):
            asked = ", ".join(f"{each.operator} {'/'.join(each.values)}".strip() for each in own)
            have = ", ".join(decision.supported)
            return [f"required term {term.index} asks for {names.ARCH_KEY} {asked}, the images have {have}: it is void"]
    return []


def _odd_names(decision: PlacementDecision) -> list[str]:
    for finding in decision.images:
        if finding.effect is ImageEffect.CONSTRAINS and finding.dropped:
            dropped = ", ".join(map(repr, finding.dropped))
            return [f"{finding.text}: architecture {dropped} is passed over, no node label can have that value"]
    return []


def shortened(text: str, limit: int = MAX_WARNING) -> str:
    """The text, cut with an ellipsis at ``limit`` characters."""
    return text if len(text) <= limit else text[: limit - 1] + "…"


# -- cached responses --------------------------------------------------------------------------------------------------

CACHE_ENTRIES: Final = 512
"""Equal pods in the cache, of about 10 KiB each; the least recently used are evicted."""
CACHE_BYTES: Final = 1024 * 1024
"""Limit of all keys together; the cached values take up to thirty times as much."""


class _CachedAdmission(NamedTuple):
    """The last response, and the inputs it was made from."""

    inputs: tuple[dict[str, Inspection], bool, bool]
    admission: Admission


class _CachedPatch(NamedTuple):
    """The last patch with a mutation of another feature, and what it was made from."""

    admission: Admission
    mutation: PodMutation
    operations: tuple[Operation, ...]


class CachedDecision:
    """The decision for equal pods; ``case`` was made for the first of them and is valid for all."""

    __slots__ = ("_admission", "_patch", "case")

    def __init__(self, case: ExaminedPod) -> None:
        self.case = case
        self._admission: _CachedAdmission | None = None
        self._patch: _CachedPatch | None = None

    def admission(
        self, inspections: Mapping[str, Inspection], *, controller_available: bool, deprovisioning: bool
    ) -> Admission:
        """The result of :func:`admit`; the cached one if the inputs are the same."""
        inputs = (dict(inspections), controller_available, deprovisioning)
        cached = self._admission
        if cached is not None and cached.inputs == inputs:
            return cached.admission
        admission = admit(
            self.case,
            decide(self.case, inspections),
            controller_available=controller_available,
            deprovisioning=deprovisioning,
        )
        if are_few(inspections.values()):
            self._admission = _CachedAdmission(inputs, admission)
        return admission

    def patch(self, admission: Admission, mutation: PodMutation) -> tuple[Operation, ...]:
        """The result of :func:`join_patches`; the cached one for the same admission and mutation."""
        if not mutation.operations:
            return admission.operations
        cached = self._patch
        if cached is None or cached.admission is not admission or cached.mutation is not mutation:
            operations = join_patches(admission.operations, mutation.operations)
            cached = self._patch = _CachedPatch(admission, mutation, operations)
        return cached.operations


def decision_cache(capacity: int = CACHE_ENTRIES) -> DecisionCache[PodFacts, CachedDecision]:
    """The decisions for pods that this process admitted recently."""
    return DecisionCache(_examined, _is_current, capacity=capacity, weight=CACHE_BYTES)


def _examined(facts: PodFacts, pod: Pod) -> CachedDecision:
    return CachedDecision(examine(msgspec.structs.replace(facts, pod=pod)))


def _is_current(cached: CachedDecision, facts: PodFacts) -> bool:
    """Compares by identity what is compiled once per namespace: a change creates a new object."""
    before = cached.case.facts
    return (
        before.settings is facts.settings
        and before.sources is facts.sources
        and before.nodes is facts.nodes
        and before.coming is facts.coming
        and before.runtimes is facts.runtimes
        and before.signer is facts.signer
        and before.record_was_sent is facts.record_was_sent
    )
