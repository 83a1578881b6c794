"""The events about pods and templates."""

import msgspec
import pytest
from placement_cases import APP, SIDE, answers, failure, index, pod, unknown
from taint_cases import admitted, daemon_set, facts, reconciled, settings, templated, tolerating

from polyarch.objects import Pod
from polyarch.taints import names
from polyarch.taints.decision import PodDecision, TolerationLookupProgress
from polyarch.taints.events import HOURLY, events_for, shrunk
from polyarch.taints.pod_rules import ImageChange, decide_change, examine_change

BOTH = index(APP, "amd64", "arm64")
GATED = {"gates": [names.GATE], "labels": {names.GATED_LABEL: names.GATED}}


def reasons(decision: PodDecision) -> list[str]:
    return [event.reason.value for event in events_for(decision)]


@pytest.mark.req("TN-042")
def test_ordinary_success_has_no_event() -> None:
    assert reasons(admitted(pod(), answers(BOTH)).decision) == []
    assert reasons(admitted(pod(tolerations=tolerating("amd64", "arm64")), answers(BOTH)).decision) == []
    assert reasons(admitted(pod(), {}).decision) == []


@pytest.mark.req("TN-046", "TN-094")
def test_one_event_per_image_and_cause_that_names_both() -> None:
    decision = reconciled(pod(APP, SIDE, **GATED), answers(failure(APP), failure(SIDE, "not-found", 404))).decision
    first, second = events_for(decision)
    assert (first.reason, second.reason) == ("ArchitectureUnknown", "ArchitectureUnknown")
    assert APP in first.note
    assert "HTTP 503" in first.note
    assert SIDE in second.note
    assert "does not exist" in second.note
    later = reconciled(pod(APP, **GATED), answers(failure(APP, "timeout", None))).decision
    again = reconciled(pod(APP, **GATED), answers(failure(APP))).decision
    assert events_for(again)[0].cause == first.cause
    assert events_for(later)[0].cause != first.cause


@pytest.mark.req("TN-046")
def test_an_image_that_says_no_platform_is_named_too() -> None:
    (event,) = events_for(reconciled(pod(**GATED), answers(unknown(APP))).decision)
    assert event.note == f"Image {APP} does not declare its platforms (content)."


@pytest.mark.req("TN-046")
def test_a_template_that_waits_has_the_same_event() -> None:
    assert reasons(templated(daemon_set(pod()), answers(failure(APP))).decision) == ["ArchitectureUnknown"]


@pytest.mark.req("TN-047")
def test_no_common_architecture_is_told_unless_the_pod_was_refused() -> None:
    given = answers(BOTH, index(SIDE, "s390x"))
    decision = admitted(pod(APP, SIDE), given).decision
    (event,) = events_for(decision)
    assert (event.reason, event.note) == ("NoCommonArchitecture", decision.message)
    assert reasons(admitted(pod(APP, SIDE), given, settings(on_no_common="deny")).decision) == []


@pytest.mark.req("TN-048")
def test_the_end_of_the_gate_is_told_and_hourly_while_it_stays() -> None:
    ended = reconciled(pod(**GATED), answers(failure(APP)), progress=TolerationLookupProgress.ENDED).decision
    assert reasons(ended) == ["ArchitectureUnknown", "ArchitectureGateTimeout"]
    assert events_for(ended)[1].note == ended.message
    kept = reconciled(pod(**GATED), {}, settings(on_timeout="keep"), progress=TolerationLookupProgress.ENDED).decision
    (event,) = events_for(kept)
    assert event.reason in HOURLY
    assert event.action == "Gate"


def change(policy: str) -> ImageChange:
    before = pod(APP, annotations={names.TOLERATIONS_ANNOTATION: "amd64,arm64"}, tolerations=tolerating("arm64"))
    old = msgspec.convert(before, Pod)
    case = examine_change(facts(before, settings(image_change=policy), stored=True), old)
    return decide_change(case, answers(index(APP, "amd64")), old)


@pytest.mark.req("TN-049")
def test_a_set_that_shrank_is_told_unless_the_change_was_refused() -> None:
    told = shrunk(change("event"))
    assert told is not None
    assert (told.reason, told.cause) == ("ArchitectureSetShrunk", "arm64")
    assert told.note.startswith("Pod tolerates the taint of arm64, which")
    evicted = shrunk(change("evict"))
    assert evicted is not None
    assert "evicted" in evicted.note
    assert shrunk(change("deny")) is None
    assert shrunk(ImageChange(change("event").decision)) is None
