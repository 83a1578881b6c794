"""The user's view: the pod without what placement wrote on it."""

import json
from typing import Any, ClassVar

import msgspec
import pytest
from placement_cases import (
    APP,
    SIDE,
    admitted,
    answers,
    arch,
    controlled,
    index,
    look,
    os_is,
    pod,
    preference,
    record,
    required,
    settings,
    source,
    term,
    zone,
)

from polyarch.placement import names
from polyarch.placement.decision import MAX_RECORD_BYTES, Reason

BOTH = answers(index(APP, "amd64", "arm64"))
ARM = answers(index(APP, "arm64"))
NONE: dict[str, Any] = {}


def claim(**content: Any) -> dict[str, str]:
    """A decision annotation with these members."""
    full = {"v": 1, "by": "admission", "mode": "enforce", "reason": "ArchitecturesSet"} | content
    return {names.DECISION_ANNOTATION: json.dumps(full)}


@pytest.mark.req("PL-200")
def test_a_manifest_copied_from_a_placed_pod_is_decided_afresh() -> None:
    copied = admitted(pod(), BOTH, sources=(source(arm64=5),)).pod
    again = admitted(copied, ARM)
    assert again.decision.reason is Reason.ARCHITECTURES_SET
    assert required(again.pod) == [term(arch("arm64"))]
    assert names.ARCHITECTURE_LABELS["amd64"] not in again.labels
    assert "preferredDuringSchedulingIgnoredDuringExecution" not in again.pod["spec"]["affinity"]["nodeAffinity"]
    assert names.PREFERRED_AFFINITY_SOURCES_ANNOTATION not in again.annotations


@pytest.mark.req("PL-200")
def test_only_what_still_stands_there_unchanged_is_taken_back() -> None:
    copied = admitted(pod(terms=[term(zone("a")), term(zone("b"))]), BOTH).pod
    required(copied)[1]["matchExpressions"][1]["values"] = ["amd64"]  # type: ignore[index]
    view = look(copied).view
    assert [each.arch_at for each in view.terms] == [1, -1]
    assert required(admitted(copied, ARM).pod) == [term(zone("a"), arch("arm64")), term(zone("b"), arch("amd64"))]


@pytest.mark.req("PL-200")
def test_an_expression_that_the_annotation_does_not_name_is_the_users() -> None:
    document = pod(terms=[term(zone("a"), arch("arm64")), term(zone("b"), arch("arm64"))])
    document["metadata"]["annotations"] = claim(arch=["arm64"], terms=[1])
    view = look(document).view
    assert [each.arch_at for each in view.terms] == [-1, 1]


@pytest.mark.req("PL-750")
@pytest.mark.parametrize(
    "annotation",
    [
        "not json",
        "[]",
        "{}",
        '{"v":2,"by":"x","mode":"enforce","reason":"ArchitecturesSet","arch":["arm64"],"terms":[0]}',
        '{"v":1,"by":"x","mode":"enforce","reason":"ArchitecturesSet","arch":"arm64","terms":[0]}',
        '{"v":1,"by":"x","mode":"enforce","reason":"ArchitecturesSet","arch":["amd64"],"terms":[0]}',
        '{"v":1,"by":"x","mode":"enforce","reason":"ArchitecturesSet","arch":["arm64"],"terms":[7]}',
        '{"v":1,"by":"x","mode":"enforce","reason":"NoSupportedArchitecture","arch":[],"terms":[0]}',
        '{"v":1,"by":"x","mode":"audit","reason":"ArchitecturesSet","arch":["arm64"],"terms":[0],"created":true}',
        json.dumps(
            {"v": 1, "by": "x" * 2000, "mode": "enforce", "reason": "ArchitecturesSet", "arch": ["arm64"], "terms": [0]}
        ),
        "\ud83d",
        '{"x":' + "[" * 1000,
    ],
    ids=[
        "broken json",
        "a list",
        "empty",
        "another version",
        "wrong type",
        "other values",
        "a term that is not there",
        "another outcome",
        "an audit's",
        "too long to be ours",
        "half a character",
        "too deep",
    ],
)
def test_a_forged_or_broken_annotation_is_ignored_and_overwritten(annotation: str) -> None:
    document = pod(terms=[term(arch("arm64"))], annotations={names.DECISION_ANNOTATION: annotation})
    assert look(document).rule is Reason.ARCHITECTURE_ALREADY_REQUIRED
    after = admitted(document, BOTH)
    assert required(after.pod) == [term(arch("arm64"))]
    assert names.DECISION_ANNOTATION not in after.annotations


@pytest.mark.req("PL-200")
def test_an_expression_stays_if_its_term_would_match_no_node_without_it() -> None:
    """Somebody copied a placed pod and removed their own part of the term."""
    document = pod(terms=[term(arch("amd64", "arm64"))], annotations=claim(arch=["amd64", "arm64"], terms=[0]))
    after = admitted(document, ARM)
    assert after.decision.reason is Reason.ARCHITECTURE_ALREADY_REQUIRED
    assert required(after.pod) == [term(arch("amd64", "arm64"))]


@pytest.mark.req("PL-200")
def test_a_required_term_of_ours_goes_as_a_whole() -> None:
    placed = admitted(pod(), BOTH).pod
    after = admitted(placed, answers(index(APP, "amd64", "arm64")), using=settings(inline_enabled=False)).pod
    assert required(after) is None


@pytest.mark.req("PL-200")
def test_others_may_join_the_term_or_the_list_that_we_created() -> None:
    placed = admitted(pod(), BOTH).pod
    required(placed)[0]["matchExpressions"].append(zone("a"))  # type: ignore[index]
    assert required(admitted(placed, ARM).pod) == [term(arch("arm64"), zone("a"))]
    placed = admitted(pod(), BOTH).pod
    required(placed).append(term(zone("b")))  # type: ignore[union-attr]
    after = admitted(placed, ARM).pod
    assert required(after) == [term(zone("b"), arch("arm64"))]
    assert record(after)["terms"] == [0]  # type: ignore[index]
    assert admitted(after, ARM).admission.operations == ()


@pytest.mark.req("PL-200")
def test_the_os_expression_is_ours_only_where_it_follows_ours() -> None:
    mixed = answers(index(APP, "linux/amd64", "windows/amd64"))
    placed = admitted(pod(terms=[term(zone("a")), term(os_is("linux"), zone("b"))]), mixed).pod
    assert required(placed) == [
        term(zone("a"), arch("amd64"), os_is("linux")),
        term(os_is("linux"), zone("b"), arch("amd64")),
    ]
    after = admitted(placed, answers(index(APP, "arm64"))).pod
    assert required(after) == [term(zone("a"), arch("arm64")), term(os_is("linux"), zone("b"), arch("arm64"))]


@pytest.mark.req("PL-200")
def test_the_os_expression_of_ours_does_not_name_the_pods_system() -> None:
    placed = admitted(pod(terms=[term(zone("a"))]), answers(index(APP, "windows/amd64"))).pod
    assert required(placed) == [term(zone("a"), arch("amd64"), os_is("windows"))]
    assert required(admitted(placed, ARM).pod) == [term(zone("a"), arch("arm64"))]


@pytest.mark.req("PL-200")
def test_on_a_stored_pod_every_expression_counts_as_given() -> None:
    copied = admitted(pod(), BOTH).pod
    case = look(copied, stored=True)
    assert case.rule is Reason.ARCHITECTURE_ALREADY_REQUIRED
    assert required(controlled(copied, ARM).pod) == [term(arch("amd64", "arm64"))]


@pytest.mark.req("PL-105", "PL-200")
def test_state_and_result_keys_of_a_copy_are_removed() -> None:
    stale = dict.fromkeys(names.RESULT_LABELS, "") | {names.SCHEDULING_GATE_LABEL: "removed", "app": "web"}
    notes = dict.fromkeys(names.OWN_ANNOTATIONS, "x") | {"note": "kept"}
    after = admitted(pod(labels=stale, annotations=notes, gates=["other", names.GATE]))
    assert after.labels == {"app": "web", names.SCHEDULING_GATE_LABEL: "gated", names.NODE_AFFINITY_LABEL: "not-set"}
    assert after.annotations == {"note": "kept"}
    assert after.gates == ["other", names.GATE]


class TestOwnersSelector:
    """A result label in a template may be in the selector of the owner that makes the pods."""

    TEMPLATE: ClassVar = {names.NO_SUPPORTED_ARCH_LABEL: "", names.SINGLE_ARCH_LABEL: "mine", "app": "web"}

    @pytest.mark.req("PL-200")
    def test_stays_on_a_pod_with_a_controller_owner(self) -> None:
        after = admitted(pod(labels=self.TEMPLATE, owner="ReplicaSet"), BOTH)
        assert self.TEMPLATE.items() <= after.labels.items()
        assert admitted(after.pod, BOTH).admission.operations == ()

    @pytest.mark.req("PL-200")
    def test_goes_from_a_pod_without_one(self) -> None:
        after = admitted(pod(labels=self.TEMPLATE), BOTH)
        assert after.labels["app"] == "web"
        assert not {names.NO_SUPPORTED_ARCH_LABEL, names.SINGLE_ARCH_LABEL} & after.labels.keys()

    @pytest.mark.req("PL-200")
    def test_goes_if_our_own_annotation_accounts_for_it(self) -> None:
        placed = admitted(pod(owner="ReplicaSet"), BOTH).pod
        after = admitted(placed, ARM)
        assert names.MULTI_ARCH_LABEL not in after.labels
        assert names.SINGLE_ARCH_LABEL in after.labels

    @pytest.mark.req("PL-200")
    @pytest.mark.parametrize("stored", [False, True])
    def test_the_failure_labels_go_in_any_case(self, stored: bool) -> None:
        document = pod(labels=dict.fromkeys(names.INSPECT_ERROR_LABELS, "5"), owner="ReplicaSet")
        after = controlled(document, BOTH).pod if stored else admitted(document, BOTH).pod
        assert not names.INSPECT_ERROR_LABELS & after["metadata"]["labels"].keys()


@pytest.mark.req("PL-200")
def test_preferred_terms_named_by_the_annotation_do_not_count_as_the_users() -> None:
    sources = (source(arm64=50, amd64=10),)
    placed = admitted(pod(preferred=[preference(3, zone("a"))]), BOTH, sources=sources).pod
    assert not look(placed, sources=sources).view.prefers_architecture
    assert admitted(placed, BOTH, sources=sources).admission.operations == ()
    theirs = pod(preferred=[preference(50, arch("arm64"))])
    assert look(theirs).view.prefers_architecture


@pytest.mark.req("PL-246")
def test_a_decision_of_hundreds_of_terms_or_architectures_is_still_recognised() -> None:
    many = pod(terms=[term(zone(str(at))) for at in range(400)])
    after = admitted(many, BOTH)
    assert len(after.annotations[names.DECISION_ANNOTATION]) <= MAX_RECORD_BYTES
    assert admitted(after.pod, BOTH).admission.operations == ()
    wide = answers(index(APP, *(f"arch{at:04}" for at in range(300))))
    after = admitted(pod(terms=[term(zone("a"))]), wide)
    assert len(after.annotations[names.DECISION_ANNOTATION]) <= MAX_RECORD_BYTES
    assert admitted(after.pod, wide).admission.operations == ()
    assert required(admitted(after.pod, ARM).pod) == [term(zone("a"), arch("arm64"))]


@pytest.mark.req("PL-246")
def test_the_first_eight_images_are_named_then_their_number() -> None:
    images = [f"quay.io/team/app{at}:1" for at in range(11)]
    after = admitted(pod(*images), answers(*(index(image, "amd64") for image in images)))
    named = record(after.pod)["images"]  # type: ignore[index]
    assert list(named) == sorted([*images[:8], "more"])
    assert named["more"] == 3


@pytest.mark.req("PL-246")
def test_long_references_keep_the_annotation_within_its_limit() -> None:
    images = [f"quay.io/{'a' * 230}/app{at}:1" for at in range(8)]
    after = admitted(pod(*images), answers(*(index(image, "amd64") for image in images)))
    text = after.annotations[names.DECISION_ANNOTATION]
    assert len(text.encode()) <= MAX_RECORD_BYTES
    assert msgspec.json.decode(text)["images"]["more"] >= 4
    assert after.decision.architectures == ("amd64",)
    assert admitted(after.pod, answers(*(index(image, "amd64") for image in images))).admission.operations == ()


@pytest.mark.req("PL-200")
def test_images_of_the_record_say_nothing_about_the_view() -> None:
    placed = admitted(pod(APP, SIDE), answers(index(APP, "amd64"), index(SIDE, "amd64"))).pod
    placed["spec"]["containers"][1]["image"] = "quay.io/other:1"
    after = admitted(placed, answers(index(APP, "amd64"), index("quay.io/other:1", "amd64", "arm64")))
    assert set(record(after.pod)["images"]) == {APP, "quay.io/other:1"}  # type: ignore[index]
