"""Events about nodes."""

import pytest
from taint_nodes import document, node

from polyarch.taints import events as node_events
from polyarch.taints.node_rules import decide_node
from polyarch.taints.settings import TaintSettings

ARM = "supported-arch=arm64:NoSchedule"
AMD = "supported-arch=amd64:NoSchedule"


@pytest.mark.req("TN-024")
@pytest.mark.parametrize(
    ("architecture", "taints", "record", "reason", "note"),
    [
        ("arm64", (), None, "ArchitectureTaintApplied", f"Taint {ARM} added."),
        ("arm64", (AMD,), AMD, "ArchitectureTaintCorrected", f"Taint {AMD} replaced by {ARM}."),
        (
            "arm64",
            ("supported-arch=arm64:NoExecute", ARM),
            ARM,
            "ArchitectureTaintCorrected",
            f"Taint supported-arch=arm64:NoExecute removed: the node keeps {ARM}.",
        ),
        (
            "amd64",
            (AMD,),
            AMD,
            "ArchitectureTaintRemoved",
            f"Taint {AMD} removed: amd64 is a primary architecture, whose nodes are not tainted in this mode.",
        ),
    ],
)
def test_events_say_from_what_to_what(
    architecture: str, taints: tuple[str, ...], record: str | None, reason: str, note: str
) -> None:
    seen = node(document("n", architecture, *taints, record=record))
    event = node_events.written(seen, decide_node(seen, TaintSettings()))
    assert event is not None
    assert (event.type, event.reason, event.note) == ("Normal", reason, note)


@pytest.mark.req("TN-024")
def test_the_record_of_a_taint_that_is_gone_is_cleared_without_an_event() -> None:
    seen = node(document("n", "amd64", record=AMD))
    assert node_events.written(seen, decide_node(seen, TaintSettings())) is None


@pytest.mark.req("TN-020", "TN-023")
@pytest.mark.parametrize(
    ("reported", "label", "taints", "reasons"),
    [
        ("arm64", "amd64", (), ["NodeArchitectureMismatch"]),
        ("", "", (), ["NodeArchitectureUnknown"]),
        ("vax", "arm64", (), ["NodeArchitectureMismatch", "NodeArchitectureUnknown"]),
        ("arm64", "arm64", ("supported-arch=gold:NoSchedule",), ["ForeignArchitectureTaint"]),
        ("arm64", "arm64", (), []),
    ],
)
def test_warnings(reported: str, label: str, taints: tuple[str, ...], reasons: list[str]) -> None:
    decision = decide_node(node(document("n", reported, *taints, label=label)), TaintSettings())
    found = node_events.warnings(decision)
    assert [each.reason for each in found] == reasons
    assert all(each.type == "Warning" for each in found)
