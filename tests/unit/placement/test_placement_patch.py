"""What is written, and nothing else."""

from typing import Any

import msgspec
import pytest
from placement_cases import (
    APP,
    UID,
    Document,
    admitted,
    answers,
    arch,
    controlled,
    failure,
    index,
    pod,
    preference,
    preferences,
    record,
    required,
    source,
    term,
    zone,
)

from polyarch.kube.patches import TestFailed, apply_patch
from polyarch.placement import names
from polyarch.placement.decision import LookupProgress, Reason

BOTH = answers(index(APP, "amd64", "arm64"))
GATED = {names.SCHEDULING_GATE_LABEL: "gated", names.NODE_AFFINITY_LABEL: "not-set"}


@pytest.mark.req("PL-105")
def test_gating_appends_our_gate_and_two_labels_and_nothing_else() -> None:
    before = pod(gates=["first", "second"], labels={"app": "web"}, terms=[term(zone("a"))])
    after = admitted(before).pod
    assert after["spec"].pop("schedulingGates") == [{"name": "first"}, {"name": "second"}, {"name": names.GATE}]
    del before["spec"]["schedulingGates"]
    assert after["spec"] == before["spec"]
    assert after["metadata"] == before["metadata"] | {"labels": {"app": "web"} | GATED}


@pytest.mark.req("PL-105")
@pytest.mark.parametrize("gates", [None, []])
def test_gating_a_pod_without_gates(gates: list[str] | None) -> None:
    assert admitted(pod(gates=gates)).gates == [names.GATE]


@pytest.mark.req("PL-105")
def test_the_gate_is_never_there_twice() -> None:
    assert admitted(pod(gates=[names.GATE, "other"])).gates == [names.GATE, "other"]


REFUSED = {
    "no terms": pod(terms=[]),
    "terms missing": pod(affinity={"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {}}}),
    "terms null": pod(
        affinity={"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": None}}}
    ),
    "no containers": {"metadata": {"name": "app"}, "spec": {"containers": []}},
    "nothing at all": {"metadata": {"name": "app"}, "spec": {}},
    "our gate twice": pod(gates=[names.GATE, "other", names.GATE]),
    "our gate and a node": pod(gates=[names.GATE], nodeName="n1"),
    "no value of a label": pod(labels={names.SCHEDULING_GATE_LABEL: "not a value!"}),
    "too long a value of a label": pod(labels={names.SINGLE_ARCH_LABEL: "x" * 64}),
}
"""Pods that the API server refuses, for something that our patch would change."""


@pytest.mark.req("PL-224")
@pytest.mark.parametrize("document", REFUSED.values(), ids=REFUSED)
@pytest.mark.parametrize("known", [None, BOTH], ids=["unknown image", "known image"])
def test_an_invalid_pod_is_left_as_it_is(document: Document, known: Any) -> None:
    """The API server refuses it, whatever polyarch knows of its images."""
    result = admitted(document, known)
    assert (result.pod, result.decision.rule) == (document, Reason.INVALID_POD)


@pytest.mark.req("PL-224")
def test_annotations_that_fill_what_is_allowed_get_no_record() -> None:
    """256 KiB is all that a pod may have; one more byte of ours, and the API server would refuse the pod."""
    document = pod(annotations={"x": "y" * (256 * 1024 - 100)})
    result = admitted(document, BOTH)
    assert (result.annotations, required(result.pod)) == (
        document["metadata"]["annotations"],
        [term(arch("amd64", "arm64"))],
    )


@pytest.mark.req("PL-105")
def test_stale_expressions_are_taken_back() -> None:
    placed = admitted(
        pod(terms=[term(zone("a"))], preferred=[preference(1, zone("b"))]), BOTH, sources=(source(arm64=1),)
    )
    after = admitted(placed.pod)
    assert required(after.pod) == [term(zone("a"))]
    assert preferences(after.pod) == [preference(1, zone("b"))]


@pytest.mark.req("PL-106")
def test_a_pod_that_arrives_gated_and_is_not_eligible_loses_the_gate() -> None:
    after = admitted(pod(gates=["other", names.GATE], owner="DaemonSet"))
    assert after.gates == ["other"]
    assert after.labels[names.SCHEDULING_GATE_LABEL] == "not-set"


@pytest.mark.req("PL-106")
def test_a_pod_that_arrives_gated_and_is_eligible_is_treated_as_any_other() -> None:
    assert admitted(pod(gates=[names.GATE]), BOTH).gates == []
    assert admitted(pod(gates=[names.GATE])).gates == [names.GATE]


class TestReinvocation:
    """Each call decides from the user's view alone."""

    @pytest.mark.req("PL-114")
    @pytest.mark.parametrize("known", [BOTH, {}, answers(index(APP))], ids=["inline", "gated", "nothing in common"])
    def test_a_second_call_on_our_own_output_is_empty(self, known: dict[str, Any]) -> None:
        sources = (source(arm64=5, amd64=1),)
        first = admitted(pod(terms=[term(zone("a")), {}], labels={"app": "web"}), known, sources=sources)
        assert first.admission.operations != ()
        assert admitted(first.pod, known, sources=sources).admission.operations == ()

    @pytest.mark.req("PL-114")
    def test_other_images_rewrite_the_expression_in_place(self) -> None:
        first = admitted(pod(terms=[term(zone("a"))]), BOTH).pod
        required(first)[0]["matchExpressions"].append(zone("later"))  # type: ignore[index]
        second = admitted(first, answers(index(APP, "arm64")))
        assert required(second.pod) == [term(zone("a"), arch("arm64"), zone("later"))]
        assert names.SINGLE_ARCH_LABEL in second.labels
        assert names.MULTI_ARCH_LABEL not in second.labels

    @pytest.mark.req("PL-114")
    def test_an_architecture_selector_of_another_webhook_removes_all_of_ours(self) -> None:
        plain = pod(terms=[term(zone("a"))], labels={"app": "web"}, annotations={"a": "b"})
        first = admitted(plain, BOTH, sources=(source(arm64=5),)).pod
        first["spec"]["nodeSelector"] = {"kubernetes.io/arch": "arm64"}
        second = admitted(first).pod
        not_set = {names.SCHEDULING_GATE_LABEL: "not-set", names.NODE_AFFINITY_LABEL: "not-set"}
        assert second["metadata"]["labels"] == {"app": "web"} | not_set
        assert second["metadata"]["annotations"] == {"a": "b"}
        assert required(second) == [term(zone("a"))]
        assert preferences(second) is None

    @pytest.mark.req("PL-114")
    def test_an_image_nobody_knows_turns_inline_into_a_gate_and_back(self) -> None:
        first = admitted(pod(), BOTH).pod
        first["spec"]["containers"][0]["image"] = "quay.io/other:1"
        second = admitted(first)
        assert second.gates == [names.GATE]
        assert required(second.pod) is None
        assert second.labels == GATED
        third = admitted(second.pod, answers(index("quay.io/other:1", "s390x")))
        assert third.gates == []
        assert required(third.pod) == [term(arch("s390x"))]

    @pytest.mark.req("PL-114")
    def test_an_expression_that_another_webhook_joined_with_the_users_own_key_is_removed(self) -> None:
        first = admitted(pod(terms=[term(zone("a"))]), BOTH).pod
        required(first)[0]["matchExpressions"].append(arch("amd64"))  # type: ignore[index]
        second = admitted(first, BOTH)
        assert required(second.pod) == [term(zone("a"), arch("amd64"))]
        assert second.labels[names.NODE_AFFINITY_LABEL] == "not-set"


class TestControllersPatch:
    DOCUMENT = pod(
        gates=["first", names.GATE, "last"],
        labels={names.SCHEDULING_GATE_LABEL: "gated", "app": "web"},
        annotations={"note": "kept"},
        terms=[term(zone("a"))],
    )

    @pytest.mark.req("PL-303")
    def test_the_order_of_the_operations(self) -> None:
        operations = controlled(self.DOCUMENT, BOTH, sources=(source(arm64=1),)).operations
        paths = [(each.op, each.path) for each in operations]
        assert paths[:2] == [("test", "/metadata/uid"), ("test", "/metadata/resourceVersion")]
        assert operations[0].value == UID
        assert operations[1].value == "41"
        assert paths[-2:] == [("test", "/spec/schedulingGates/1/name"), ("remove", "/spec/schedulingGates/1")]
        areas = [path.split("/")[2] for _, path in paths[2:-2]]
        order = ["labels", "annotations", "affinity"]
        assert areas == sorted(areas, key=order.index)
        assert set(areas) == set(order)

    @pytest.mark.req("PL-303")
    def test_foreign_gates_stay_in_order(self) -> None:
        after = controlled(self.DOCUMENT, BOTH).pod
        assert after["spec"]["schedulingGates"] == [{"name": "first"}, {"name": "last"}]

    @pytest.mark.req("PL-304")
    @pytest.mark.parametrize(("member", "value"), [("uid", "another"), ("resourceVersion", "42")])
    def test_a_pod_that_moved_on_fails_the_test_and_nothing_is_written(self, member: str, value: str) -> None:
        operations = controlled(self.DOCUMENT, BOTH).operations
        moved = msgspec.json.decode(msgspec.json.encode(self.DOCUMENT))
        moved["metadata"][member] = value
        with pytest.raises(TestFailed):
            apply_patch(moved, operations)

    @pytest.mark.req("PL-303")
    def test_a_pod_that_is_as_it_should_be_gets_no_patch(self) -> None:
        waiting = admitted(pod()).pod
        assert controlled(waiting).operations == ()
        failing = controlled(waiting, answers(failure(APP)), progress=LookupProgress.FAILING).pod
        assert controlled(failing, answers(failure(APP)), progress=LookupProgress.FAILING).operations == ()

    @pytest.mark.req("PL-303")
    def test_the_pod_need_not_have_labels_or_annotations(self) -> None:
        after = controlled(pod(gates=[names.GATE]), BOTH).pod
        assert after["metadata"]["labels"][names.NODE_AFFINITY_LABEL] == "set"
        assert names.DECISION_ANNOTATION in after["metadata"]["annotations"]

    @pytest.mark.req("PL-310")
    def test_a_gated_pod_that_is_not_eligible_any_more_only_loses_the_gate(self) -> None:
        document = pod(gates=[names.GATE], nodeSelector={"kubernetes.io/arch": "arm64"}, labels=GATED)
        result = controlled(document)
        assert result.decision.rule is not None
        assert "ArchitectureAlreadyRequired" in result.decision.message
        assert result.pod["spec"]["schedulingGates"] == []
        assert result.pod["spec"].get("affinity") == document["spec"].get("affinity")
        assert result.pod["metadata"]["labels"][names.SCHEDULING_GATE_LABEL] == "removed"

    @pytest.mark.req("PL-311")
    def test_labels_copied_or_forged_have_no_influence(self) -> None:
        forged = pod(
            gates=[names.GATE],
            labels=dict.fromkeys(names.OWN_LABELS, "x"),
            annotations=dict.fromkeys(names.OWN_ANNOTATIONS, "x"),
        )
        plain = pod(gates=[names.GATE], labels={}, annotations={})
        assert controlled(forged, BOTH).pod == controlled(plain, BOTH).pod

    @pytest.mark.req("PL-101")
    def test_keys_with_slashes_are_escaped(self) -> None:
        paths = [each.path for each in controlled(self.DOCUMENT, BOTH).operations]
        assert "/metadata/labels/multiarch.openshift.io~1node-affinity" in paths


@pytest.mark.req("PL-111")
def test_webhook_and_controller_write_the_same_but_for_by() -> None:
    sources = (source(arm64=5),)
    document = pod(terms=[term(zone("a")), {}], preferred=[preference(2, zone("b"))], labels={"app": "web"})
    inline = admitted(document, BOTH, sources=sources).pod
    late = controlled(admitted(document, sources=sources).pod, BOTH, sources=sources).pod
    assert late["spec"].pop("schedulingGates") == []
    written = [record(inline), record(late)]
    assert [each.pop("by") for each in written if each is not None] == ["admission", "controller"]
    assert written[0] == written[1]
    for each in (inline, late):
        del each["metadata"]["annotations"][names.DECISION_ANNOTATION]
    assert inline == late


@pytest.mark.req("PL-101", "PL-900 row 10")
def test_unknown_fields_survive_webhook_and_controller() -> None:
    document = pod(
        affinity={
            "nodeAffinity": {
                "requiredDuringSchedulingIgnoredDuringExecution": {
                    "nodeSelectorTerms": [{"matchExpressions": [{**zone("a"), "someday": 1}], "future": [1, 2]}],
                    "more": {"x": None},
                },
                "preferredDuringSchedulingIgnoredDuringExecution": [{**preference(1, zone("b")), "new": True}],
                "later": 1,
            },
            "podAffinity": {"x": 1},
        },
        gates=[names.GATE],
    )
    document["metadata"]["managedFields"] = [{"manager": "kubectl", "fieldsV1": {"f:x": {}}}]
    document["status"] = {"phase": "Pending", "unknown": {"y": 1}}
    for after in (admitted(document, BOTH).pod, controlled(document, BOTH).pod):
        affinity = after["spec"]["affinity"]["nodeAffinity"]
        selector = affinity["requiredDuringSchedulingIgnoredDuringExecution"]
        assert selector["more"] == {"x": None}
        assert selector["nodeSelectorTerms"][0]["future"] == [1, 2]
        assert selector["nodeSelectorTerms"][0]["matchExpressions"][0]["someday"] == 1
        assert affinity["preferredDuringSchedulingIgnoredDuringExecution"][0]["new"] is True
        assert affinity["later"] == 1
        assert after["status"] == document["status"]
        assert after["metadata"]["managedFields"] == document["metadata"]["managedFields"]
        assert after["spec"]["containers"] == document["spec"]["containers"]
