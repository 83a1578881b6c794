"""The admission response for one pod: path, patch, warnings and audit annotations.

The webhook gathers facts and image answers and sends this response; ``explain`` prints it. Pure."""

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
    case: ExaminedPod, decision: PlacementDecision, *, controller_available: bool, deprovisioning: bool = False
) -> Admission:
    """The response for ``decision``, which was made from the answers that are usable now, if any.

    ``controller_available``: the controller's Lease was renewed within 30 s and the CPPC is not being deleted, so a
    gate will be removed. ``deprovisioning``: the CPPC is being deleted.
    """
    path = _path(case, decision, controller_available=controller_available)
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


def _path(case: ExaminedPod, decision: PlacementDecision, *, controller_available: bool) -> AdmissionPath:
    if case.is_audited:
        return AdmissionPath.AUDIT if case.rule is None else AdmissionPath.IGNORED
    if case.rule is not None:
        return AdmissionPath.IGNORED
    settings = case.settings
    if (
        settings.inline_enabled
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
        if finding.verdict is ImageEffect.CONSTRAINS and finding.dropped:
            dropped = ", ".join(map(repr, finding.dropped))
            return [f"{finding.text}: architecture {dropped} is passed over, no node label can have that value"]
    return []


def shortened(text: str, limit: int = MAX_WARNING) -> str:
    """The text, cut with an ellipsis at ``limit`` characters."""
    return text if len(text) <= limit else text[: limit - 1] + "…"


# -- Cache of admission decisions for equal pods, such as the replicas of a template.


CACHE_ENTRIES: Final = 512
"""Series in the cache, of about 10 KiB each; the least recently used is evicted."""
CACHE_BYTES: Final = 1024 * 1024
"""Limit of all keys together; the cached values take up to thirty times as much."""


class _CachedAdmission(NamedTuple):
    """The last response, and the inputs it was made from."""

    answers: Mapping[str, Inspection]
    controller_available: bool
    deprovisioning: bool
    admission: Admission


class _CachedPatch(NamedTuple):
    """The last patch with an addition, and what it was made from."""

    admission: Admission
    added: PodMutation
    operations: tuple[Operation, ...]


class CachedDecision:
    """One series; ``case`` was made for its first pod and is valid for all."""

    __slots__ = ("_joined", "_said", "case")

    def __init__(self, case: ExaminedPod) -> None:
        self.case = case
        self._said: _CachedAdmission | None = None
        self._joined: _CachedPatch | None = None

    def admission(
        self, answers: Mapping[str, Inspection], *, controller_available: bool, deprovisioning: bool
    ) -> Admission:
        """The result of :func:`admit`; the cached one if the inputs are the same."""
        said = self._said
        if (
            said is None
            or said.controller_available is not controller_available
            or said.deprovisioning is not deprovisioning
            or said.answers != answers
        ):
            admission = admit(
                self.case,
                decide(self.case, answers),
                controller_available=controller_available,
                deprovisioning=deprovisioning,
            )
            if not are_few(answers.values()):
                return admission
            said = self._said = _CachedAdmission(dict(answers), controller_available, deprovisioning, admission)
        return said.admission

    def patch(self, admission: Admission, added: PodMutation) -> tuple[Operation, ...]:
        """The result of :func:`joined`; the cached one for the same admission and addition."""
        if not added.operations:
            return admission.operations
        made = self._joined
        if made is None or made.admission is not admission or made.added is not added:
            made = self._joined = _CachedPatch(admission, added, join_patches(admission.operations, added.operations))
        return made.operations


def decision_cache(capacity: int = CACHE_ENTRIES) -> DecisionCache[PodFacts, CachedDecision]:
    """The series recently admitted by this process."""
    return DecisionCache(_examined, _is_current, capacity=capacity, weight=CACHE_BYTES)


def _examined(facts: PodFacts, pod: Pod) -> CachedDecision:
    return CachedDecision(examine(msgspec.structs.replace(facts, pod=pod)))


def _is_current(look: CachedDecision, now: PodFacts) -> bool:
    """Compares by identity what is compiled once per namespace: a change creates a new object."""
    then = look.case.facts
    return (
        then.settings is now.settings
        and then.sources is now.sources
        and then.nodes is now.nodes
        and then.seal is now.seal
        and then.record_was_sent is now.record_was_sent
    )
