"""The document ``polyarch.dev/explain/v1``."""

import json
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
    required,
    settings,
    source,
    term,
    zone,
)

from polyarch.oci.inspection import Inspection
from polyarch.placement import explain, names
from polyarch.placement.decision import LookupProgress
from polyarch.placement.rules import decide

BOTH = answers(index(APP, "amd64", "arm64"))


def admission(document: dict[str, Any], known: dict[str, Inspection], **facts: Any) -> dict[str, Any]:
    result = admitted(document, known, **facts)
    return explain.explain_admission(document, result.case, result.admission)


def controller(
    document: dict[str, Any],
    known: dict[str, Inspection],
    progress: LookupProgress = LookupProgress.WAITING,
    **facts: Any,
) -> dict[str, Any]:
    case = look(document, stored=True, **facts)
    return explain.explain_controller(document, case, decide(case, known, progress))


@pytest.mark.req("PL-732")
def test_every_member_is_there() -> None:
    entry = admission(pod(), BOTH)
    assert {
        "namespace",
        "name",
        "path",
        "decision",
        "required",
        "preferred",
        "labels",
        "annotations",
        "gates",
        "patch",
        "warnings",
        "events",
        "next",
    } <= entry.keys()
    assert {
        "reason",
        "message",
        "architectures",
        "os",
        "terms",
        "created",
        "preferred",
        "stale",
        "images",
    } <= entry["decision"].keys()
    assert explain.document([entry])["schemaVersion"] == "polyarch.dev/explain/v1"
    assert json.loads(json.dumps(explain.document([entry])))["pods"][0]["name"] == "web"


@pytest.mark.req("PL-731")
def test_an_inline_pod_is_printed_as_the_webhook_would_write_it() -> None:
    document = pod(terms=[term(zone("a"))])
    entry = admission(document, BOTH, sources=(source(arm64=3),))
    assert entry["path"] == "inline"
    assert entry["required"]["before"] == {"nodeSelectorTerms": [term(zone("a"))]}
    assert entry["required"]["after"] == {"nodeSelectorTerms": [term(zone("a"), arch("amd64", "arm64"))]}
    assert entry["preferred"]["before"] is None
    assert entry["decision"]["preferred"] == [{"architecture": "arm64", "weight": 3}]
    assert entry["decision"]["images"][0]["platforms"] == ["linux/amd64", "linux/arm64"]
    assert entry["labels"][names.SCHEDULING_GATE_LABEL] == "removed"
    assert required(entry["pod"]) == required(admitted(document, BOTH).pod)
    assert (entry["gates"], entry["events"], entry["next"]) == ([], [], None)


@pytest.mark.req("PL-732")
def test_a_gated_pod_says_what_it_waits_for_and_until_when() -> None:
    entry = admission(pod(APP, SIDE), BOTH, using=settings(retry_window=90.0))
    assert entry["path"] == "gated"
    assert entry["gates"] == [names.GATE]
    assert entry["next"] == {"waitsFor": "its images", "images": [SIDE], "until": "1m30s", "then": "release"}


@pytest.mark.req("PL-732")
def test_a_pod_whose_outcome_is_known_waits_for_the_controller_only() -> None:
    entry = admission(pod(), BOTH, using=settings(inline_enabled=False))
    assert entry["next"]["waitsFor"] == "the placement controller"
    assert entry["next"]["then"] == "ArchitecturesSet"


@pytest.mark.req("PL-732")
def test_a_held_pod() -> None:
    entry = controller(
        pod(gates=[names.GATE]),
        answers(failure(APP)),
        LookupProgress.ENDED,
        using=settings(action="hold", hold_limit=3600.0),
    )
    assert entry["next"] == {"waitsFor": "its images", "images": [APP], "until": "1h", "then": "release"}
    assert [each["reason"] for each in entry["events"]] == ["PolyarchPodHeld"]


@pytest.mark.req("PL-731")
def test_the_controllers_patch_and_events() -> None:
    entry = controller(pod(gates=["other", names.GATE]), BOTH)
    assert entry["patch"][0] == {"op": "test", "path": "/metadata/uid", "value": pod()["metadata"]["uid"]}
    assert entry["patch"][-1] == {"op": "remove", "path": "/spec/schedulingGates/1"}
    assert [each["reason"] for each in entry["events"]] == ["ArchAwarePredicateSet"]
    assert entry["gates"] == ["other"]


@pytest.mark.req("PL-731")
def test_a_pod_of_a_file_has_no_uid_to_test() -> None:
    document = {"metadata": {"name": "web"}, "spec": {"containers": [{"name": "c", "image": APP}]}}
    entry = controller(document, BOTH)
    assert all(each["op"] != "test" for each in entry["patch"])
    assert required(entry["pod"]) == [term(arch("amd64", "arm64"))]


@pytest.mark.req("PL-732")
@pytest.mark.parametrize(("owner", "path"), [("DaemonSet", "ignored"), (None, "audit")])
def test_paths(owner: str | None, path: str) -> None:
    entry = admission(pod(owner=owner), BOTH, using=settings(mode="audit"))
    assert entry["path"] == path


@pytest.mark.req("PL-730")
def test_the_rule_that_applied_is_named() -> None:
    assert admission(pod(owner="DaemonSet"), {})["decision"]["rule"] == "DaemonSetPod"


@pytest.mark.req("PL-730")
def test_a_placed_pod_agrees_until_its_images_say_something_else() -> None:
    placed = admitted(pod(), BOTH).pod
    case = look(placed)
    assert explain.agrees(case, decide(case, BOTH))
    assert not explain.agrees(case, decide(case, answers(index(APP, "arm64"))))
    assert admission(placed, BOTH)["recorded"]["reason"] == "ArchitecturesSet"


@pytest.mark.req("PL-730")
def test_a_pod_that_no_node_can_take() -> None:
    case = look(pod())
    assert explain.can_run(decide(case, BOTH))
    assert not explain.can_run(decide(case, answers(index(APP))))


@pytest.mark.req("PL-732")
def test_problems_of_images_show_no_text_of_a_registry() -> None:
    entry = controller(pod(APP, "Bad:"), answers(failure(APP)), LookupProgress.ENDED)
    problems = [each["problem"] for each in entry["decision"]["images"]]
    assert problems[0] == "transient quay.io HTTP 503 (server-error)"
    assert "tag" in problems[1]
    assert "SECRET" not in json.dumps(entry)


@pytest.mark.req("PL-730")
def test_a_finished_impossible_pod_keeps_its_marker() -> None:
    """The recorded decision and the one of now, and no patch that nobody will send."""
    placed = controlled(pod(terms=[term(zone("a"))], gates=[names.GATE]), answers(index(APP))).pod
    case = look(placed)
    entry = explain.explain_finished(placed, case, decide(case, answers(index(APP)), LookupProgress.ENDED))
    assert entry["recorded"]["reason"] == entry["decision"]["reason"] == "NoSupportedArchitecture"
    assert (entry["agrees"], entry["path"]) == (True, "gated")
    assert (entry["patch"], entry["events"], entry["next"]) == ([], [], None)
    assert entry["pod"] == placed
    assert entry["required"] == {
        "before": {"nodeSelectorTerms": [term(zone("a"))]},
        "after": {"nodeSelectorTerms": required(placed)},
    }


@pytest.mark.req("PL-730")
def test_a_pod_that_the_webhook_missed_does_not_agree() -> None:
    """It has no annotation, and would be constrained now."""
    case = look(pod())
    assert not explain.agrees(case, decide(case, BOTH))
    assert not explain.agrees(case, decide(case, answers(index(APP))))
    assert explain.agrees(case, decide(case, answers(neutral(APP))))
    ignored = look(pod(owner="DaemonSet"))
    assert explain.agrees(ignored, decide(ignored, {}))
    audited = look(pod(), using=settings(mode="audit"))
    assert explain.agrees(audited, decide(audited, BOTH))


@pytest.mark.req("PL-730")
def test_a_pod_released_for_a_broken_image_agrees_while_the_image_is_broken() -> None:
    placed = controlled(pod(gates=[names.GATE]), answers(failure(APP)), progress=LookupProgress.ENDED).pod
    case = look(placed)
    assert explain.agrees(case, decide(case, answers(failure(APP)), LookupProgress.ENDED))
    assert not explain.agrees(case, decide(case, BOTH, LookupProgress.ENDED))
