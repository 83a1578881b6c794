"""Windows and delays of retrying, as arithmetic."""

from itertools import accumulate
from typing import Any

import pytest
from placement_cases import APP, SIDE, answers, failure, index, look, pod, settings, unknown

from polyarch.images import backoff
from polyarch.oci.inspection import Inspection
from polyarch.placement.decision import PlacementOutcome, Reason
from polyarch.placement.rules import WaitingTime, decide_after, next_change, retry_window
from polyarch.placement.settings import Settings

pytestmark = pytest.mark.req("PL-333")

CODES = {
    "transient": "server-error",
    "limit": "rate-limited",
    "absent": "not-found",
    "auth": "denied",
    "configuration": "tls",
    "content": "malformed",
}


@pytest.mark.req("PL-330")
@pytest.mark.parametrize(
    ("error_class", "configured", "window"),
    [
        ("transient", 120.0, 120.0),
        ("limit", 120.0, 120.0),
        ("", 120.0, 120.0),
        ("absent", 120.0, 30.0),
        ("auth", 120.0, 30.0),
        ("configuration", 120.0, 30.0),
        ("absent", 10.0, 10.0),
        ("content", 120.0, 0.0),
    ],
)
def test_the_window_by_class(error_class: str, configured: float, window: float) -> None:
    assert retry_window(error_class, configured) == window


def outcome(
    known: dict[str, Inspection], elapsed: float, *images: str, using: Settings | None = None
) -> PlacementOutcome:
    case = look(pod(*images), stored=True, using=using)
    return decide_after(case, known, WaitingTime(elapsed)).outcome


@pytest.mark.req("PL-330", "PL-332")
@pytest.mark.parametrize(
    ("error_class", "ends"),
    [("transient", 120.0), ("limit", 120.0), ("absent", 30.0), ("auth", 30.0), ("configuration", 30.0)],
)
def test_waiting_failing_then_released(error_class: str, ends: float) -> None:
    known = answers(failure(APP, CODES[error_class]))
    assert outcome(known, 1.9) is PlacementOutcome.WAITING
    assert outcome(known, 2.0) is PlacementOutcome.FAILING
    assert outcome(known, ends - 0.1) is PlacementOutcome.FAILING
    assert outcome(known, ends) is PlacementOutcome.PLACED


@pytest.mark.req("PL-330")
@pytest.mark.parametrize(
    "known", [answers(failure(APP, "malformed")), answers(unknown(APP))], ids=["content", "unknown"]
)
def test_what_no_retry_can_change_is_final_at_once(known: dict[str, Inspection]) -> None:
    assert outcome(known, 0.0) is PlacementOutcome.PLACED


@pytest.mark.req("PL-330")
def test_an_invalid_reference_is_final_at_once() -> None:
    assert outcome({}, 0.0, "Not/Valid:") is PlacementOutcome.PLACED


@pytest.mark.req("PL-330")
def test_a_pod_gives_up_at_the_earliest_end_among_its_images() -> None:
    known = answers(failure(APP), failure(SIDE, "not-found", 404))
    assert outcome(known, 29.0, APP, SIDE) is PlacementOutcome.FAILING
    assert outcome(known, 30.0, APP, SIDE) is PlacementOutcome.PLACED


@pytest.mark.req("PL-330")
def test_a_change_of_class_takes_the_new_window_from_the_first_attempt() -> None:
    assert outcome(answers(failure(APP)), 40.0) is PlacementOutcome.FAILING
    assert outcome(answers(failure(APP, "not-found", 404)), 40.0) is PlacementOutcome.PLACED


@pytest.mark.req("PL-330")
def test_an_image_that_never_answers_does_not_keep_a_pod_for_ever() -> None:
    assert outcome({}, 119.0) is PlacementOutcome.WAITING
    assert outcome({}, 120.0) is PlacementOutcome.PLACED


@pytest.mark.req("PL-330")
def test_a_success_ends_the_waiting() -> None:
    case = look(pod(), stored=True)
    decision = decide_after(case, answers(index(APP, "amd64")), WaitingTime(500.0))
    assert decision.reason is Reason.ARCHITECTURES_SET


@pytest.mark.req("PL-330")
@pytest.mark.parametrize(
    ("code", "action", "held", "expected"),
    [
        ("malformed", "release", False, PlacementOutcome.FAILING),
        ("not-found", "release", False, PlacementOutcome.FAILING),
        ("malformed", "hold", False, PlacementOutcome.FAILING),
        ("malformed", "hold", True, PlacementOutcome.HELD),
    ],
    ids=["released", "released after its window", "not yet held", "held before"],
)
def test_nothing_ends_while_an_image_is_pending(code: str, action: Any, held: bool, expected: PlacementOutcome) -> None:
    """A pod that was held before stays so while its image is asked for anew."""
    case = look(pod(APP, SIDE), stored=True, using=settings(action=action))
    known = answers(failure(APP, code))
    assert decide_after(case, known, WaitingTime(500.0, pending=True, held=held)).outcome is expected
    assert decide_after(case, known, WaitingTime(500.0)).outcome is not PlacementOutcome.FAILING


@pytest.mark.req("PL-230")
def test_holding_until_its_limit() -> None:
    using = settings(action="hold", hold_limit=600.0)
    known = answers(failure(APP))
    assert outcome(known, 120.0, using=using) is PlacementOutcome.HELD
    assert outcome(known, 599.0, using=using) is PlacementOutcome.HELD
    assert outcome(known, 600.0, using=using) is PlacementOutcome.PLACED
    assert outcome(known, 1e9, using=settings(action="hold")) is PlacementOutcome.HELD


@pytest.mark.req("PL-302")
@pytest.mark.parametrize(
    ("known", "elapsed", "changes", "using"),
    [
        (answers(failure(APP)), 0.5, 1.5, settings()),
        (answers(failure(APP)), 2.0, 118.0, settings()),
        (answers(failure(APP)), 120.0, None, settings()),
        (answers(failure(APP)), 150.0, 450.0, settings(action="hold", hold_limit=600.0)),
        (answers(failure(APP)), 150.0, None, settings(action="hold")),
        (answers(index(APP, "amd64")), 0.5, None, settings()),
    ],
    ids=["failing is next", "the end is next", "over", "the limit is next", "held for ever", "resolved"],
)
def test_when_time_alone_changes_the_outcome(
    known: dict[str, Inspection], elapsed: float, changes: Any, using: Settings
) -> None:
    case = look(pod(), stored=True, using=using)
    decision = decide_after(case, known, WaitingTime(elapsed))
    assert next_change(decision, using, elapsed) == (pytest.approx(changes) if changes is not None else None)


@pytest.mark.req("PL-331")
def test_delays_double_up_to_fifteen_seconds() -> None:
    middle = [backoff.delay(n, uniform=0.5) for n in range(1, 8)]
    assert middle == [1.0, 2.0, 4.0, 8.0, 15.0, 15.0, 15.0]
    assert backoff.delay(3, uniform=0.0) == 3.0
    assert backoff.delay(3, uniform=1.0) == 5.0
    assert backoff.delay(100_000, uniform=0.5) == 15.0


@pytest.mark.req("PL-331")
def test_at_least_what_the_registry_asks_for() -> None:
    assert backoff.delay(1, uniform=0.5, retry_after=40.0) == 40.0
    assert backoff.delay(6, uniform=0.5, retry_after=2.0) == 15.0


@pytest.mark.req("PL-334")
@pytest.mark.parametrize("uniform", [0.0, 0.5, 0.999])
def test_held_images_are_asked_for_every_five_minutes_or_so(uniform: float) -> None:
    assert 240.0 <= backoff.held_delay(uniform=uniform) <= 360.0


@pytest.mark.req("PL-335", "PL-900 row 3")
@pytest.mark.parametrize("uniform", [0.0, 0.5, 0.999])
def test_an_outage_of_thirty_seconds_costs_at_most_twelve_attempts(uniform: float) -> None:
    attempts = [0.0, *accumulate(backoff.delay(n, uniform=uniform) for n in range(1, 20))]
    first_success = next(at for at in attempts if at >= 30.0)
    assert sum(at <= first_success for at in attempts) <= 12
    assert first_success < 120.0  # within the window, so nothing is released unconstrained


@pytest.mark.req("PL-335")
def test_a_repository_that_does_not_exist_is_released_after_thirty_to_forty_seconds() -> None:
    known = answers(failure(APP, "not-found", 404))
    assert outcome(known, 29.9) is PlacementOutcome.FAILING
    assert outcome(known, 30.0) is PlacementOutcome.PLACED
