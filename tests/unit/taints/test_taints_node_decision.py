"""The decision about one node and its patch, as the API server would carry it out."""

from typing import Any

import msgspec
import pytest
from taint_nodes import Json, document, node, patched, record_of, taints_of

from polyarch.selectors import Requirement, Selector
from polyarch.taints.node_rules import Kind, NodeDecision, NodeReason, decide_node
from polyarch.taints.patch import node_patch
from polyarch.taints.settings import TaintSettings
from polyarch.tolerations import parse_taints

ARM = "supported-arch=arm64:NoSchedule"
AMD = "supported-arch=amd64:NoSchedule"
GPU = "nvidia.com/gpu=present:NoSchedule"
CORDON = "node.kubernetes.io/unschedulable=:NoSchedule"
USUAL = TaintSettings()
RECORDED = TaintSettings(ownership="recorded")


def after(source: Json, settings: TaintSettings = USUAL, **options: Any) -> tuple[NodeDecision, Json]:
    """The decision, and the node once its patch was carried out."""
    seen = node(source)
    decision = decide_node(seen, settings, **options)
    return decision, patched(source, node_patch(seen, decision))


# -- what becomes of the list ------------------------------------------------------------------------------------------

CASES: dict[str, tuple[list[str], str | None, TaintSettings, Kind, list[str], str | None]] = {
    "a: the taint is there": ([GPU, ARM], ARM, USUAL, Kind.NONE, [GPU, ARM], ARM),
    "a: others of ours go": (
        ["supported-arch=amd64:NoExecute", GPU, ARM],
        ARM,
        USUAL,
        Kind.CORRECT,
        [GPU, ARM],
        ARM,
    ),
    "b: the list does not exist": ([], None, USUAL, Kind.APPLY, [ARM], ARM),
    "b: appended": ([GPU, CORDON], None, USUAL, Kind.APPLY, [GPU, CORDON, ARM], ARM),
    "b: the first of ours is replaced in its place": (
        [GPU, AMD, CORDON, "supported-arch=arm64:NoExecute"],
        AMD,
        USUAL,
        Kind.CORRECT,
        [GPU, ARM, CORDON],
        ARM,
    ),
    "b: a value changed by hand": (
        ["supported-arch=oops:NoSchedule", GPU],
        ARM,
        RECORDED,
        Kind.CORRECT,
        [ARM, GPU],
        ARM,
    ),
    "b: an effect changed by hand": (
        [GPU, "supported-arch=arm64:NoExecute"],
        ARM,
        RECORDED,
        Kind.CORRECT,
        [GPU, ARM],
        ARM,
    ),
    "b: removed by hand": ([GPU], ARM, RECORDED, Kind.APPLY, [GPU, ARM], ARM),
    "d: somebody else's equal taint suffices": ([GPU, ARM], None, RECORDED, Kind.NONE, [GPU, ARM], None),
    "d: ours beside it goes": (
        ["supported-arch=s390x:NoExecute", ARM],
        "supported-arch=s390x:NoExecute",
        RECORDED,
        Kind.CORRECT,
        [ARM],
        None,
    ),
    "e: a foreign value of the same key and effect": ([GPU, AMD], None, RECORDED, Kind.NONE, [GPU, AMD], None),
    "e: a value that is no architecture": (
        ["supported-arch=unknown:NoSchedule"],
        None,
        USUAL,
        Kind.NONE,
        ["supported-arch=unknown:NoSchedule"],
        None,
    ),
    "a foreign taint of the key with another effect stays": (
        ["supported-arch=gold:PreferNoSchedule"],
        None,
        USUAL,
        Kind.APPLY,
        ["supported-arch=gold:PreferNoSchedule", ARM],
        ARM,
    ),
}


@pytest.mark.req("TN-023")
@pytest.mark.parametrize(
    ("taints", "record", "settings", "kind", "expected", "recorded"), CASES.values(), ids=CASES.keys()
)
def test_reconcile(
    taints: list[str],
    record: str | None,
    settings: TaintSettings,
    kind: Kind,
    expected: list[str],
    recorded: str | None,
) -> None:
    decision, result = after(document("n", "arm64", *taints, record=record), settings)
    assert (decision.kind, taints_of(result), record_of(result)) == (kind, expected, recorded)
    again, unchanged = after(result, settings)
    assert (again.kind, unchanged) == (Kind.NONE, result)


@pytest.mark.req("TN-023")
@pytest.mark.parametrize("record", [None, AMD], ids=["adopted", "recorded"])
def test_c_a_node_of_a_primary_architecture_loses_what_is_ours(record: str | None) -> None:
    decision, result = after(document("n", "amd64", GPU, AMD, CORDON, record=record))
    assert (decision.kind, decision.reason) == (Kind.REMOVE, NodeReason.PRIMARY_ARCHITECTURE)
    assert (taints_of(result), record_of(result)) == ([GPU, CORDON], None)


@pytest.mark.req("TN-023")
def test_a_time_added_makes_no_difference() -> None:
    source = document("n", "arm64", ARM, record=ARM)
    source["spec"]["taints"][0]["timeAdded"] = "2025-01-01T00:00:00Z"
    assert after(source)[0].kind is Kind.NONE


@pytest.mark.req("TN-023")
def test_e_says_which_taint_is_in_the_way() -> None:
    decision, _ = after(document("n", "arm64", AMD), RECORDED)
    assert decision.reason is NodeReason.FOREIGN
    assert decision.waiting
    assert AMD in decision.message
    assert "unique" in decision.message


# -- whose taint it is -------------------------------------------------------------------------------------------------


@pytest.mark.req("TN-022")
@pytest.mark.parametrize(
    ("taints", "record", "kept"),
    [
        ([AMD], None, [AMD]),
        ([AMD], AMD, []),
        (["supported-arch=amd64:NoExecute"], AMD, []),
        (["supported-arch=other:NoSchedule"], AMD, []),
        (["supported-arch=other:NoExecute"], AMD, ["supported-arch=other:NoExecute"]),
        (["other=amd64:NoSchedule"], AMD, ["other=amd64:NoSchedule"]),
    ],
)
def test_recorded_owns_what_matches_the_record(taints: list[str], record: str | None, kept: list[str]) -> None:
    """The node stopped being managed: exactly what is ours goes."""
    _, result = after(document("n", "amd64", *taints, record=record), RECORDED)
    assert taints_of(result) == kept
    assert record_of(result) is None


@pytest.mark.req("TN-022")
@pytest.mark.parametrize(
    ("taint", "ours"),
    [
        (ARM, True),
        ("supported-arch=amd64:NoExecute", True),
        ("supported-arch=unknown:NoSchedule", False),
        ("supported-arch=:NoSchedule", False),
        ("kubernetes.io/arch=arm64:NoSchedule", False),
    ],
)
def test_adopt_owns_every_known_architecture_under_the_key(taint: str, ours: bool) -> None:
    _, result = after(document("n", "amd64", taint))
    assert taints_of(result) == ([] if ours else [taint])


@pytest.mark.req("TN-022")
def test_a_taint_of_a_former_key_stays_recorded_until_everything_is_removed() -> None:
    former = "old-key=arm64:NoSchedule"
    source = document("n", "arm64", former, record=former)
    decision, result = after(source)
    assert decision.kind is Kind.APPLY
    assert taints_of(result) == [former, ARM]
    assert record_of(result) == f"{former},{ARM}"
    _, cleaned = after(result, msgspec.structs.replace(USUAL, state="removing"))
    assert (taints_of(cleaned), record_of(cleaned)) == ([], None)


@pytest.mark.req("TN-022")
def test_entries_that_are_none_are_passed_over() -> None:
    assert [str(each) for each in parse_taints(f"nonsense, {ARM},=x:NoSchedule,key:NoExecute,")] == [
        ARM,
        "key:NoExecute",
    ]


@pytest.mark.req("TN-082")
def test_a_node_that_another_tool_left_consistent_is_not_written() -> None:
    decision, _ = after(document("n", "arm64", GPU, ARM))
    assert (decision.kind, decision.reason) == (Kind.NONE, NodeReason.TAINTED)


# -- the architecture --------------------------------------------------------------------------------------------------


@pytest.mark.req("TN-020")
@pytest.mark.parametrize(
    ("reported", "label", "architecture", "mismatch"),
    [
        ("arm64", "arm64", "arm64", ""),
        ("", "arm64", "arm64", ""),
        ("aarch64", "arm64", "arm64", ""),
        ("arm64", "amd64", "arm64", "amd64"),
        ("arm", "armv7l", "arm", ""),
        ("arm64", "", "arm64", ""),
    ],
)
def test_the_kubelet_is_believed_before_the_label(reported: str, label: str, architecture: str, mismatch: str) -> None:
    decision, result = after(document("n", reported, label=label))
    assert (decision.architecture, decision.mismatch) == (architecture, mismatch)
    assert taints_of(result) == [f"supported-arch={architecture}:NoSchedule"]


@pytest.mark.req("TN-020")
@pytest.mark.parametrize(("reported", "label"), [("", ""), ("unknown", "arm64"), ("", "vax"), ("mips128", "")])
def test_an_unknown_architecture_neither_gets_nor_loses_a_taint(reported: str, label: str) -> None:
    decision, result = after(document("n", reported, ARM, label=label, record=ARM))
    assert (decision.kind, decision.reason, decision.managed) == (Kind.NONE, NodeReason.UNKNOWN, False)
    assert taints_of(result) == [ARM]
    assert not decision.waiting


# -- which nodes -------------------------------------------------------------------------------------------------------

UNMANAGED: dict[str, tuple[Json, TaintSettings, NodeReason]] = {
    "opted out": (
        document("n", "arm64", ARM, GPU, labels={"polyarch.dev/taints": "disabled"}),
        USUAL,
        NodeReason.OPTED_OUT,
    ),
    "another system": (document("n", "arm64", ARM, GPU, os="windows"), USUAL, NodeReason.OTHER_SYSTEM),
    "control plane": (
        document("n", "arm64", ARM, GPU, labels={"node-role.kubernetes.io/control-plane": ""}),
        TaintSettings(exclude_control_plane=True),
        NodeReason.CONTROL_PLANE,
    ),
    "master": (
        document("n", "arm64", ARM, GPU, labels={"node-role.kubernetes.io/master": "true"}),
        TaintSettings(exclude_control_plane=True),
        NodeReason.CONTROL_PLANE,
    ),
    "not selected": (
        document("n", "arm64", ARM, GPU),
        TaintSettings(node_selector=Selector((Requirement("pool", "Exists"),))),
        NodeReason.NOT_SELECTED,
    ),
    "architecture not managed": (
        document("n", "arm64", ARM, GPU),
        TaintSettings(given=frozenset({"s390x"})),
        NodeReason.ARCHITECTURE_NOT_MANAGED,
    ),
}


@pytest.mark.req("TN-021")
@pytest.mark.parametrize(("source", "settings", "reason"), UNMANAGED.values(), ids=UNMANAGED.keys())
def test_a_node_that_is_not_managed_loses_ours_and_nothing_else(
    source: Json, settings: TaintSettings, reason: NodeReason
) -> None:
    decision, result = after(source, settings)
    assert (decision.kind, decision.reason, decision.managed) == (Kind.REMOVE, reason, False)
    assert taints_of(result) == [GPU]
    assert not decision.waiting


@pytest.mark.req("TN-021")
def test_control_plane_nodes_are_managed_unless_excluded() -> None:
    source = document("n", "arm64", labels={"node-role.kubernetes.io/control-plane": ""})
    assert after(source)[0].kind is Kind.APPLY


@pytest.mark.req("TN-013")
def test_the_mode_tolerations_taints_primary_nodes_too() -> None:
    decision, result = after(document("n", "amd64"), TaintSettings(mode="tolerations"))
    assert decision.kind is Kind.APPLY
    assert taints_of(result) == [AMD]


# -- rollout and states ------------------------------------------------------------------------------------------------


@pytest.mark.req("TN-025")
def test_a_node_waits_until_its_architecture_is_released() -> None:
    decision, result = after(document("n", "arm64", GPU), released=frozenset({"s390x"}))
    assert (decision.kind, decision.reason, decision.waiting) == (Kind.NONE, NodeReason.NOT_RELEASED, True)
    assert taints_of(result) == [GPU]


@pytest.mark.req("TN-025")
def test_what_is_ours_is_not_changed_either_before_that() -> None:
    """Another effect needs other tolerations: the old taint stays until pods have them."""
    source = document("n", "arm64", ARM, record=ARM)
    settings = TaintSettings(effect="NoExecute")
    assert after(source, settings, released=frozenset())[1] == source
    assert taints_of(after(source, settings)[1]) == ["supported-arch=arm64:NoExecute"]


@pytest.mark.req("TN-010")
def test_paused_writes_nothing() -> None:
    settings = TaintSettings(state="paused")
    for source in (document("n", "arm64"), document("n", "amd64", AMD), document("n", "arm64", AMD)):
        decision, result = after(source, settings)
        assert (decision.kind, decision.reason, result) == (Kind.NONE, NodeReason.PAUSED, source)


@pytest.mark.req("TN-073")
@pytest.mark.parametrize("architecture", ["arm64", "amd64", "", "vax"])
@pytest.mark.parametrize("leaving", [True, False], ids=["deleted", "removing"])
def test_everything_of_ours_goes_when_taints_are_removed(architecture: str, leaving: bool) -> None:
    settings = TaintSettings(state="paused" if leaving else "removing")
    labels = {"polyarch.dev/taints": "disabled"}
    source = document("n", architecture, GPU, ARM, CORDON, record=ARM, labels=labels)
    decision, result = after(source, settings, leaving=leaving)
    assert (decision.kind, decision.reason) == (Kind.REMOVE, NodeReason.REMOVING)
    assert (taints_of(result), record_of(result)) == ([GPU, CORDON], None)
    assert after(result, settings, leaving=leaving)[0].kind is Kind.NONE


# -- the patch ---------------------------------------------------------------------------------------------------------


@pytest.mark.req("TN-024")
def test_the_patch_tests_the_version_and_names_taints_by_index() -> None:
    seen = node(document("n", "arm64", GPU, AMD, CORDON, "supported-arch=arm64:NoExecute", record=AMD))
    operations = node_patch(seen, decide_node(seen, USUAL))
    assert [(each.op, each.path) for each in operations] == [
        ("test", "/metadata/resourceVersion"),
        ("replace", "/spec/taints/1"),
        ("remove", "/spec/taints/3"),
        ("add", "/metadata/annotations/polyarch.dev~1managed-taints"),
    ]
    assert operations[0].value == "7"


@pytest.mark.req("TN-024")
def test_lists_and_maps_that_do_not_exist_are_made() -> None:
    seen = node(document("n", "arm64"))
    operations = node_patch(seen, decide_node(seen, USUAL))
    assert [(each.op, each.path) for each in operations[1:]] == [
        ("add", "/spec/taints"),
        ("add", "/metadata/annotations"),
    ]


@pytest.mark.req("TN-024")
def test_other_annotations_stay() -> None:
    source = document("n", "arm64")
    source["metadata"]["annotations"] = {"team": "a"}
    result = after(source)[1]
    assert result["metadata"]["annotations"] == {"team": "a", "polyarch.dev/managed-taints": ARM}


@pytest.mark.req("TN-024")
def test_nothing_to_do_is_no_patch() -> None:
    seen = node(document("n", "arm64", ARM))
    assert node_patch(seen, decide_node(seen, USUAL)) == ()
