"""Paths through admission, warnings and audit."""

from typing import Any

import pytest
from placement_cases import (
    APP,
    SIDE,
    admitted,
    answers,
    arch,
    controlled,
    failure,
    index,
    look,
    neutral,
    pod,
    record,
    required,
    requirement,
    settings,
    source,
    term,
    unknown,
    zone,
)

from polyarch.oci.inspection import Inspection
from polyarch.placement import names
from polyarch.placement.decision import Reason
from polyarch.placement.patch import AdmissionPath

pytestmark = pytest.mark.req("PL-105", "PL-106", "PL-109", "PL-111", "PL-112", "PL-113", "PL-115", "PL-116")

BOTH = answers(index(APP, "amd64", "arm64"))


@pytest.mark.req("PL-110")
@pytest.mark.parametrize(
    ("known", "path"),
    [
        (BOTH, AdmissionPath.INLINE),
        (answers(neutral(APP)), AdmissionPath.INLINE),
        ({}, AdmissionPath.GATED),
        (answers(failure(APP)), AdmissionPath.GATED),
        (answers(unknown(APP)), AdmissionPath.GATED),
        (answers(index(APP)), AdmissionPath.GATED),
    ],
    ids=["architectures", "neutral", "pending", "error", "unknown", "no common platform"],
)
def test_only_complete_outcomes_are_written_at_admission(known: dict[str, Inspection], path: AdmissionPath) -> None:
    result = admitted(pod(), known)
    assert result.admission.path is path
    assert (names.GATE in result.gates) is (path is AdmissionPath.GATED)


@pytest.mark.req("PL-110")
def test_preferences_alone_need_no_answer() -> None:
    result = admitted(pod(nodeSelector={"kubernetes.io/arch": "arm64"}), sources=(source(arm64=1),))
    assert result.admission.path is AdmissionPath.INLINE
    assert not result.case.wants_answers


@pytest.mark.req("PL-110")
def test_inline_can_be_switched_off() -> None:
    result = admitted(pod(), BOTH, using=settings(inline_enabled=False))
    assert result.admission.path is AdmissionPath.GATED
    assert not result.case.wants_answers
    assert required(result.pod) is None


@pytest.mark.req("PL-107")
@pytest.mark.parametrize(
    ("known", "action", "path", "reason"),
    [
        (BOTH, None, AdmissionPath.INLINE, Reason.ARCHITECTURES_SET),
        ({}, None, AdmissionPath.UNAVAILABLE, Reason.CONTROLLER_UNAVAILABLE),
        ({}, "release", AdmissionPath.UNAVAILABLE, Reason.CONTROLLER_UNAVAILABLE),
        ({}, "hold", AdmissionPath.GATED, Reason.IMAGES_NOT_RESOLVED_YET),
        ({}, "fallback", AdmissionPath.GATED, Reason.IMAGES_NOT_RESOLVED_YET),
    ],
    ids=["inline all the same", "default", "release", "hold gates", "fallback without one is hold"],
)
def test_no_gate_without_someone_to_lift_it(
    known: dict[str, Inspection], action: Any, path: AdmissionPath, reason: Reason
) -> None:
    result = admitted(pod(), known, controller_available=False, using=settings(action=action))
    assert result.admission.path is path
    assert result.decision.reason is reason
    if path is AdmissionPath.UNAVAILABLE:
        assert result.gates == []
        assert result.labels == {names.SCHEDULING_GATE_LABEL: "not-set", names.NODE_AFFINITY_LABEL: "not-set"}
        assert "controller is down" in result.admission.warnings[0]
        assert result.annotations == {}


@pytest.mark.req("PL-520")
def test_while_the_cppc_is_deleted_hold_counts_as_release() -> None:
    using = settings(action="hold", retry_window=600.0).deprovisioning()
    assert using.retry_window == 60.0
    assert admitted(pod(), controller_available=False, using=using).admission.path is AdmissionPath.UNAVAILABLE


@pytest.mark.req("PL-117")
def test_a_namespace_not_known_yet_gates_instead_of_placing_inline() -> None:
    result = admitted(pod(), BOTH, using=settings(provisional=True))
    assert result.admission.path is AdmissionPath.GATED
    assert not look(pod(), using=settings(provisional=True)).wants_answers


@pytest.mark.req("PL-201 row 3")
def test_pods_of_excluded_namespaces_are_left_wholly_untouched() -> None:
    stale = pod(labels={names.SCHEDULING_GATE_LABEL: "removed"}, gates=[names.GATE])
    result = admitted(stale, using=settings(excluded_namespaces=("shop",)))
    assert result.admission.operations == ()
    assert result.admission.path is AdmissionPath.IGNORED


@pytest.mark.req("PL-104")
def test_pods_of_other_ineligible_kinds_get_state_labels_only() -> None:
    result = admitted(pod(), namespace="kube-system")
    assert result.labels == {names.SCHEDULING_GATE_LABEL: "not-set", names.NODE_AFFINITY_LABEL: "not-set"}


class TestWarnings:
    """At most two, at most 200 characters each."""

    @pytest.mark.req("PL-118")
    def test_images_without_a_common_platform(self) -> None:
        (warning,) = admitted(pod(APP, SIDE), answers(index(APP, "amd64"), index(SIDE, "arm64"))).admission.warnings
        assert f"{APP} has linux/amd64" in warning
        assert f"{SIDE} has linux/arm64" in warning

    @pytest.mark.req("PL-118")
    @pytest.mark.parametrize(
        ("expression", "warned"),
        [
            (arch("s390x"), True),
            (arch("s390x", "arm64"), False),
            (requirement("kubernetes.io/arch", "NotIn", "amd64", "arm64"), True),
            (requirement("kubernetes.io/arch", "NotIn", "amd64"), False),
            (requirement("kubernetes.io/arch", "Exists"), False),
            (requirement("kubernetes.io/arch", "Sideways", "x"), False),
        ],
    )
    def test_a_term_that_requires_an_architecture_no_image_has(self, expression: dict[str, Any], warned: bool) -> None:
        warnings = admitted(pod(terms=[term(expression), term(zone("a"))]), BOTH).admission.warnings
        assert bool(warnings) is warned
        if warned:
            assert "term 0" in warnings[0]

    @pytest.mark.req("PL-118")
    def test_an_opt_out_that_is_forbidden(self) -> None:
        document = pod(annotations={names.SKIP_ANNOTATION: "true"})
        (warning,) = admitted(document, BOTH, using=settings(pod_opt_out="forbidden")).admission.warnings
        assert "forbids" in warning

    @pytest.mark.req("PL-750")
    def test_an_opt_out_that_is_none(self) -> None:
        (warning,) = admitted(pod(annotations={names.SKIP_ANNOTATION: "yes"}), BOTH).admission.warnings
        assert "'yes'" in warning
        assert '"true"' in warning
        assert admitted(pod(annotations={names.SKIP_ANNOTATION: "true"}), BOTH).admission.warnings == ()

    @pytest.mark.req("PL-750")
    def test_an_architecture_that_no_label_can_say_is_named(self) -> None:
        (warning,) = admitted(pod(), answers(index(APP, "amd64", "linux/a b"))).admission.warnings
        assert "'a b'" in warning

    @pytest.mark.req("PL-118")
    def test_never_more_than_two_nor_longer_than_200(self) -> None:
        document = pod(
            f"quay.io/{'a' * 150}/x:1",
            f"quay.io/{'b' * 150}/x:1",
            annotations={names.SKIP_ANNOTATION: "yes" * 100},
        )
        known = answers(
            *(
                index(each["image"], at)
                for each, at in zip(document["spec"]["containers"], ("amd64", "a b"), strict=True)
            )
        )
        warnings = admitted(document, known, controller_available=False).admission.warnings
        assert len(warnings) == 2
        assert all(len(each) <= 200 for each in warnings)

    @pytest.mark.req("PL-118")
    def test_nothing_to_say_to_the_owner_of_an_ordinary_pod(self) -> None:
        assert admitted(pod(), BOTH).admission.warnings == ()
        assert admitted(pod()).admission.warnings == ()


@pytest.mark.req("PL-119")
@pytest.mark.parametrize(
    ("document", "known", "text"),
    [
        (pod(), BOTH, "ArchitecturesSet amd64,arm64 inline"),
        (pod(), {}, "ImagesNotResolvedYet gated"),
        (pod(owner="DaemonSet"), {}, "DaemonSetPod ignored"),
        (pod(), answers(neutral(APP)), "AllImagesNeutral inline"),
    ],
)
def test_audit_annotations(document: dict[str, Any], known: dict[str, Inspection], text: str) -> None:
    assert admitted(document, known).admission.audit_annotations == {"decision": text}


class TestAuditMode:
    AUDIT = settings(mode="audit")

    @pytest.mark.req("PL-130")
    def test_only_the_annotation_is_added(self) -> None:
        before = pod(labels={"app": "web"}, terms=[term(zone("a"))])
        result = admitted(before, BOTH, using=self.AUDIT, sources=(source(arm64=1),))
        assert result.admission.path is AdmissionPath.AUDIT
        written = record(result.pod)
        assert written is not None
        assert (written["mode"], written["reason"], written["arch"]) == (
            "audit",
            "ArchitecturesSet",
            ["amd64", "arm64"],
        )
        assert result.pod["spec"] == before["spec"]
        assert result.labels == {"app": "web"}
        assert list(result.annotations) == [names.DECISION_ANNOTATION]

    @pytest.mark.req("PL-130")
    def test_unknown_images(self) -> None:
        result = admitted(pod(), using=self.AUDIT)
        assert record(result.pod)["reason"] == "ImagesNotResolvedYet"  # type: ignore[index]
        assert result.gates == []
        assert result.admission.audit_annotations == {"decision": "ImagesNotResolvedYet audit"}

    @pytest.mark.req("PL-130")
    def test_a_pod_that_enforce_would_leave_alone_is_unchanged(self) -> None:
        result = admitted(pod(owner="DaemonSet"), using=self.AUDIT)
        assert result.admission.operations == ()
        assert result.admission.path is AdmissionPath.IGNORED

    @pytest.mark.req("PL-130")
    def test_the_controller_being_away_changes_nothing(self) -> None:
        assert admitted(pod(), using=self.AUDIT, controller_available=False).admission.path is AdmissionPath.AUDIT

    @pytest.mark.req("PL-114", "PL-130")
    def test_a_second_call_is_empty(self) -> None:
        first = admitted(pod(), BOTH, using=self.AUDIT)
        assert admitted(first.pod, BOTH, using=self.AUDIT).admission.operations == ()

    @pytest.mark.req("PL-130")
    def test_an_audits_annotation_takes_nothing_away_from_the_user(self) -> None:
        """It names expressions that were never written: somebody else's equal expression is their own."""
        first = admitted(pod(terms=[term(zone("a"))]), BOTH, using=self.AUDIT).pod
        required(first)[0]["matchExpressions"].append(arch("amd64", "arm64"))  # type: ignore[index]
        assert required(admitted(first, answers(index(APP, "arm64"))).pod) == [
            term(zone("a"), arch("amd64", "arm64")),
        ]

    @pytest.mark.req("PL-131")
    def test_a_pod_that_carries_our_gate_is_finished_as_in_enforce(self) -> None:
        gated = pod(gates=[names.GATE])
        assert admitted(gated, BOTH, using=self.AUDIT).admission.path is AdmissionPath.INLINE
        assert admitted(gated, using=self.AUDIT).admission.path is AdmissionPath.GATED
        late = controlled(gated, BOTH, using=self.AUDIT)
        assert required(late.pod) == [term(arch("amd64", "arm64"))]
        assert record(late.pod)["mode"] == "enforce"  # type: ignore[index]
