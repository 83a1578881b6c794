"""The patch of a pod: annotations, tolerations and our gate, and nothing else."""

from typing import Any

import msgspec
import pytest
from placement_cases import APP, UID, answers, failure, index, pod
from taint_cases import admitted, reconciled, settings, tolerating

from polyarch.kube.patches import apply_patch
from polyarch.objects import Pod
from polyarch.platforms import ASSUMED_ARCHITECTURES
from polyarch.taints import names
from polyarch.taints.decision import TolerationLookupProgress
from polyarch.taints.patch import bare_release

BOTH = index(APP, "amd64", "arm64")
GATE = {"gates": ["first", names.GATE, "last"], "labels": {names.GATED_LABEL: names.GATED, "app": "web"}}
RECORDED = {names.TOLERATIONS_ANNOTATION: "amd64,arm64", names.REASON_ANNOTATION: "Images"}


@pytest.mark.req("TN-042")
def test_the_annotations_say_what_was_added_and_why() -> None:
    assert admitted(pod(), answers(BOTH)).document["metadata"]["annotations"] == RECORDED
    kept = admitted(pod(annotations={"team": "a"}), answers(BOTH)).document["metadata"]["annotations"]
    assert kept == {"team": "a"} | RECORDED


@pytest.mark.req("TN-042")
@pytest.mark.parametrize(
    ("policy", "expected"),
    [("primary-only", ("amd64", "PrimaryFallback")), ("all", (",".join(ASSUMED_ARCHITECTURES), "AllFallback"))],
)
def test_the_reason_of_a_fallback(policy: str, expected: tuple[str, str]) -> None:
    annotations = admitted(pod(), {}, settings(on_unknown=policy)).document["metadata"]["annotations"]
    assert (annotations[names.TOLERATIONS_ANNOTATION], annotations[names.REASON_ANNOTATION]) == expected


@pytest.mark.req("TN-042")
def test_a_later_addition_keeps_what_was_recorded_and_the_rightmost_reason() -> None:
    first = admitted(pod(), answers(failure(APP)), settings(on_unknown="primary-only")).document
    second = reconciled(first, answers(BOTH))
    assert second.decision.added == ("arm64",)
    annotations = second.document["metadata"]["annotations"]
    assert annotations == RECORDED | {names.REASON_ANNOTATION: "PrimaryFallback"}
    odd = pod(annotations={names.REASON_ANNOTATION: "Because", names.TOLERATIONS_ANNOTATION: ",,s390x"})
    assert reconciled(odd, answers(BOTH)).document["metadata"]["annotations"] == {
        names.TOLERATIONS_ANNOTATION: "amd64,arm64,s390x",
        names.REASON_ANNOTATION: "Images",
    }


@pytest.mark.req("TN-032")
def test_the_patch_has_our_parts_alone() -> None:
    """Minimal operations: unknown fields and the tolerations of others are not even mentioned."""
    held = [{"key": "team", "operator": "Exists"}]
    found = admitted(pod(annotations={}, tolerations=held), answers(BOTH))
    assert [(each.op, each.path) for each in found.operations] == [
        ("add", "/metadata/annotations/polyarch.dev~1tolerations"),
        ("add", "/metadata/annotations/polyarch.dev~1tolerations-reason"),
        ("add", "/spec/tolerations/-"),
        ("add", "/spec/tolerations/-"),
    ]


@pytest.mark.req("TN-032")
def test_nothing_to_add_is_no_operation() -> None:
    for document in (pod(tolerations=tolerating("amd64", "arm64")), pod(annotations={names.OPT_OUT: names.DISABLED})):
        assert admitted(document, answers(BOTH)).operations == ()
        assert reconciled(document, answers(BOTH)).operations == ()


@pytest.mark.req("TN-053")
def test_a_second_admission_of_our_own_output_finds_nothing_to_do() -> None:
    for using, given in ((None, answers(BOTH)), (None, {}), (settings(on_unknown="all"), {})):
        once = admitted(pod(), given, using)
        assert once.operations
        assert admitted(once.document, given, using).operations == ()


@pytest.mark.req("TN-046")
@pytest.mark.parametrize(
    "parts", [{}, {"labels": {"app": "web"}, "gates": ["first"]}, {"labels": {names.GATED_LABEL: "no"}, "gates": []}]
)
def test_the_gate_comes_with_its_label(parts: dict[str, Any]) -> None:
    document = admitted(pod(**parts), {}).document
    assert document["metadata"]["labels"] == (parts.get("labels") or {}) | {names.GATED_LABEL: names.GATED}
    assert document["spec"]["schedulingGates"] == [
        *({"name": each} for each in parts.get("gates") or ()),
        {"name": names.GATE},
    ]


@pytest.mark.req("TN-046")
def test_placements_gate_serves() -> None:
    found = admitted(pod(gates=["multiarch.openshift.io/scheduling-gate"]), {}, gated_elsewhere=True)
    assert found.decision.keeps_gate
    assert found.operations == ()


@pytest.mark.req("TN-046")
def test_one_patch_lifts_the_gate_and_adds_the_tolerations_of_the_pod_as_it_was_read() -> None:
    found = reconciled(pod(**GATE), answers(BOTH))
    assert [(each.op, each.path, each.value) for each in found.operations[:2]] == [
        ("test", "/metadata/uid", UID),
        ("test", "/metadata/resourceVersion", "41"),
    ]
    assert [(each.op, each.path) for each in found.operations[-2:]] == [
        ("test", "/spec/schedulingGates/1/name"),
        ("remove", "/spec/schedulingGates/1"),
    ]
    assert found.document["spec"]["schedulingGates"] == [{"name": "first"}, {"name": "last"}]
    assert found.document["metadata"]["labels"] == {"app": "web"}
    assert found.tolerations == tolerating("amd64", "arm64")


@pytest.mark.req("TN-046")
def test_a_gate_that_stays_is_not_written_again_and_none_is_added_to_a_stored_pod() -> None:
    assert reconciled(pod(**GATE), {}).operations == ()
    assert reconciled(pod(), {}).operations == ()
    twice = pod(gates=[names.GATE, names.GATE], labels={names.GATED_LABEL: names.GATED})
    assert reconciled(twice, {}).document["spec"]["schedulingGates"] == [{"name": names.GATE}]


@pytest.mark.req("TN-043")
def test_a_missed_pod_gets_its_tolerations_in_one_guarded_patch() -> None:
    found = reconciled(pod(), answers(BOTH), progress=TolerationLookupProgress.WAITING)
    assert found.tolerations == tolerating("amd64", "arm64")
    assert [each.op for each in found.operations] == ["test", "test", "add", "add"]


@pytest.mark.req("TN-048")
def test_a_gate_is_lifted_without_a_decision() -> None:
    document = pod(**GATE)
    after = apply_patch(document, bare_release(msgspec.convert(document, Pod)))
    assert after["spec"] == document["spec"] | {"schedulingGates": [{"name": "first"}, {"name": "last"}]}
    assert after["metadata"]["labels"] == {"app": "web"}
    assert bare_release(msgspec.convert(pod(), Pod)) == ()
