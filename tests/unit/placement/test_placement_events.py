"""Which events tell of an outcome, by level."""

from typing import Any

import pytest
from placement_cases import (
    APP,
    SIDE,
    answers,
    arch,
    failure,
    index,
    look,
    neutral,
    pod,
    preference,
    settings,
    source,
)

from polyarch.oci.inspection import Inspection
from polyarch.placement.decision import LookupProgress, Reason
from polyarch.placement.events import MAX_NOTE, Event, events_for, gate_added_event, gate_removal_failed_event
from polyarch.placement.rules import decide

pytestmark = pytest.mark.req("PL-334")

SET = "ArchAwarePredicateSet"
REMOVED = "ArchAwareSchedGateRemovalSuccess"
ERROR = "ArchAwareInspectionError"
FALLBACK = "ArchAwareFallbackPredicateSet"
CONFLICT = "ArchAwarePredicatesConflict"
ONE = answers(index(APP, "arm64"))
LOST = answers(failure(APP))
LEVELS = ("problems", "lean", "full")


def events(
    document: dict[str, Any],
    known: dict[str, Inspection],
    level: Any,
    progress: LookupProgress = LookupProgress.WAITING,
    sources: Any = (),
    nodes: Any = (),
    **changes: Any,
) -> tuple[Event, ...]:
    case = look(document, stored=True, using=settings(events=level, **changes), sources=sources, nodes=nodes)
    return events_for(case, decide(case, known, progress))


CASES: dict[str, tuple[dict[str, Any], dict[str, Inspection], LookupProgress, dict[str, Any], list[list[str]]]] = {
    "architectures": (pod(), ONE, LookupProgress.WAITING, {}, [[], [SET], [SET, REMOVED]]),
    "neutral": (pod(), answers(neutral(APP)), LookupProgress.WAITING, {}, [[], [], [REMOVED]]),
    "preferences only": (
        pod(nodeSelector={"kubernetes.io/arch": "arm64"}),
        {},
        LookupProgress.WAITING,
        {"sources": (source(arm64=1),)},
        [[], [SET], [SET, SET, CONFLICT, REMOVED]],
    ),
    "no supported architecture": (
        pod(),
        answers(index(APP)),
        LookupProgress.WAITING,
        {},
        [
            ["NoSupportedArchitecturesFound"],
            ["NoSupportedArchitecturesFound"],
            ["NoSupportedArchitecturesFound", REMOVED],
        ],
    ),
    "failing": (pod(), LOST, LookupProgress.FAILING, {}, [[ERROR]] * 3),
    "waiting": (pod(), {}, LookupProgress.WAITING, {}, [[]] * 3),
    "released": (pod(), LOST, LookupProgress.ENDED, {}, [[ERROR], [ERROR], [ERROR, REMOVED]]),
    "fallback": (
        pod(),
        LOST,
        LookupProgress.ENDED,
        {"fallback_architectures": ("amd64",)},
        [[ERROR, FALLBACK], [ERROR, FALLBACK], [ERROR, FALLBACK, REMOVED]],
    ),
    "held": (pod(), LOST, LookupProgress.ENDED, {"action": "hold"}, [["PolyarchPodHeld"]] * 3),
    "not eligible any more": (
        pod(nodeSelector={"kubernetes.io/arch": "arm64"}),
        {},
        LookupProgress.WAITING,
        {},
        [["ArchAwareGatedPodIgnored"], ["ArchAwareGatedPodIgnored"], ["ArchAwareGatedPodIgnored", CONFLICT, REMOVED]],
    ),
    "no node": (
        pod(),
        ONE,
        LookupProgress.WAITING,
        {"node_aware": "report", "nodes": ("amd64",)},
        [["PolyarchNoMatchingNode"], [SET, "PolyarchNoMatchingNode"], [SET, "PolyarchNoMatchingNode", REMOVED]],
    ),
}
WARNINGS = {ERROR, FALLBACK, "ArchAwareGatedPodIgnored", "PolyarchPodHeld", "PolyarchNoMatchingNode"}


@pytest.mark.req("PL-710")
@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("case", CASES)
def test_events_by_outcome_and_level(case: str, level: str) -> None:
    document, known, progress, facts, expected = CASES[case]
    due = events(document, known, level, progress, **facts)
    assert [each.reason.value for each in due] == expected[LEVELS.index(level)]
    assert {each.reason.value for each in due if each.type == "Warning"} == {
        each.reason.value for each in due
    } & WARNINGS


@pytest.mark.req("PL-710")
def test_the_note_lists_values_and_scoring_sources() -> None:
    sources = (source("PodPlacementConfig-a", arm64=5), source("ClusterPodPlacementConfig", amd64=7, arm64=1))
    (lean,) = events(pod(), ONE, "lean", sources=sources)
    assert "arm64" in lean.note
    assert "Preferred by PodPlacementConfig-a: arm64 (weight 5)." in lean.note
    assert "Preferred by ClusterPodPlacementConfig: amd64 (weight 7)." in lean.note
    notes = [each.note for each in events(pod(), ONE, "full", sources=sources) if each.reason.value == SET]
    assert len(notes) == 3


@pytest.mark.req("PL-710")
def test_a_source_that_is_skipped_as_a_whole_is_told_with_full() -> None:
    sources = (source("PodPlacementConfig-a", arm64=5), source("ClusterPodPlacementConfig", arm64=1))
    due = {each.reason.value: each.note for each in events(pod(), ONE, "full", sources=sources)}
    assert "ClusterPodPlacementConfig" in due["ArchAwarePreferredAffinityDuplicates"]
    theirs = pod(preferred=[preference(1, arch("amd64"))])
    due_theirs = [each.reason.value for each in events(theirs, ONE, "full", sources=sources)]
    assert due_theirs.count("ArchAwarePreferredAffinityDuplicates") == 2


@pytest.mark.req("PL-710")
def test_no_supported_architectures_lists_each_image_with_its_platforms() -> None:
    known = answers(index(APP, "linux/amd64", "windows/amd64"), index(SIDE, "arm64"))
    (event,) = events(pod(APP, SIDE), known, "lean")
    assert f"{APP}: linux/amd64, windows/amd64; {SIDE}: linux/arm64" in event.note


@pytest.mark.req("PL-710", "PL-900 row 7")
@pytest.mark.parametrize(
    ("level", "seconds", "known", "changes", "due"),
    [
        ("full", 0.0, {}, {}, True),
        ("full", 2.0, {}, {}, False),
        ("lean", 0.0, {}, {}, False),
        ("lean", 2.0, {}, {}, True),
        ("lean", 2.0, LOST, {}, False),
        ("lean", 2.0, LOST, {"action": "hold"}, False),
        ("lean", 2.0, LOST, {"fallback_architectures": ("amd64",)}, False),
        ("problems", 2.0, {}, {}, False),
    ],
)
def test_the_gate_is_told_of_by_the_controller(
    level: Any, seconds: float, known: dict[str, Inspection], changes: dict[str, Any], due: bool
) -> None:
    case = look(pod(), stored=True, using=settings(events=level, **changes))
    event = gate_added_event(case, decide(case, known), seconds_gated=seconds)
    assert (event is not None) is due
    if event is not None:
        assert (event.reason.value, event.type) == ("ArchAwareSchedGateAdded", "Normal")


@pytest.mark.req("PL-332")
@pytest.mark.parametrize("action", ["release", "fallback", "hold"])
@pytest.mark.parametrize("level", ["problems", "lean"])
def test_a_broken_image_costs_at_most_three_events(level: Any, action: Any) -> None:
    using = settings(events=level, action=action, fallback_architectures=("amd64",))
    case = look(pod(), stored=True, using=using)
    failing = decide(case, LOST, LookupProgress.FAILING)
    told = [gate_added_event(case, failing, seconds_gated=at) for at in (0.0, 2.0)]
    told += [*events_for(case, failing), *events_for(case, decide(case, LOST, LookupProgress.ENDED))]
    assert len([each for each in told if each is not None]) <= 3


@pytest.mark.req("PL-305")
def test_the_api_servers_message_is_told() -> None:
    event = gate_removal_failed_event("admission webhook denied the request")
    assert (event.reason.value, event.type) == ("ArchAwareSchedGateRemovalFailed", "Warning")
    assert "denied the request" in event.note


@pytest.mark.req("PL-710")
def test_notes_fit_into_an_event() -> None:
    images = [f"quay.io/{'é' * 100}/{at}" for at in range(40)]
    (event,) = events(pod(*images), {}, "lean", LookupProgress.ENDED)
    assert event.reason.value == ERROR
    assert len(event.note.encode()) <= MAX_NOTE


@pytest.mark.req("PL-751", "PL-850")
def test_events_never_show_what_a_registry_sent() -> None:
    for progress in (LookupProgress.FAILING, LookupProgress.ENDED):
        for event in events(pod(), LOST, "full", progress, fallback_architectures=("amd64",)):
            assert "SECRET" not in event.note
    error = LOST[APP].error
    assert error is not None
    assert "SECRET" in error.message


@pytest.mark.req("PL-247")
def test_events_print_the_decisions_own_sentence() -> None:
    case = look(pod(), stored=True)
    decision = decide(case, ONE)
    assert decision.reason is Reason.ARCHITECTURES_SET
    assert [each.note for each in events_for(case, decision)] == [decision.message]


@pytest.mark.req("PL-751")
@pytest.mark.parametrize(
    ("code", "status", "said"),
    [
        ("not-found", 404, f"Image {APP} does not exist at quay.io (absent, HTTP 404); "),
        (
            "unauthorized",
            401,
            f"Image {APP} cannot be pulled from quay.io with the available credentials (auth, HTTP 401); ",
        ),
        # Of a port that is closed, one that swallows everything, and one that hangs up: nobody scans ports by pods.
        ("network", None, f"Image {APP} could not be inspected: quay.io does not answer (transient); "),
        ("timeout", None, f"Image {APP} could not be inspected: quay.io does not answer (transient); "),
        (
            "malformed",
            200,
            f"Image {APP} could not be inspected: quay.io sent an invalid response (content, HTTP 200, malformed); ",
        ),
        (
            "not-a-registry",
            200,
            f"Image {APP} could not be inspected: quay.io answered with a web page or the like, not as a registry (",
        ),
        (
            "digest-mismatch",
            None,
            f"Image {APP} could not be inspected: quay.io sent other content than the digest names (transient); ",
        ),
        ("policy-rejected", None, f"Image {APP} could not be inspected at quay.io (configuration, policy-rejected); "),
    ],
)
def test_a_failure_is_told_by_what_happened_first(code: str, status: int | None, said: str) -> None:
    """Class, host and HTTP status are in it."""
    (event,) = events(pod(), answers(failure(APP, code, status)), "lean", LookupProgress.FAILING)
    assert event.note.startswith(said)
