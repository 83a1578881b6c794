"""What the controllers' leader tells the operator beside its Lease."""

import pytest

from polyarch.placement.api import HELD_PODS_ANNOTATION, LEFT_OUT_ANNOTATION, UNPLACED_PODS_ANNOTATION, LeaderNotes

pytestmark = pytest.mark.req("PL-301")


@pytest.mark.req("PL-041")
def test_what_is_told_is_read() -> None:
    notes = LeaderNotes(3, 14, {"nodes": "nodes cannot be listed"})
    assert LeaderNotes.of(notes.annotations()) == notes


@pytest.mark.req("PL-041")
def test_what_is_no_longer_the_case_takes_its_annotation_away() -> None:
    assert LeaderNotes().annotations() == {
        HELD_PODS_ANNOTATION: "0",
        UNPLACED_PODS_ANNOTATION: "0",
        LEFT_OUT_ANNOTATION: "",
    }


@pytest.mark.req("PL-041")
@pytest.mark.parametrize(
    "annotations",
    [
        None,
        {},
        {HELD_PODS_ANNOTATION: "-1", UNPLACED_PODS_ANNOTATION: "many", LEFT_OUT_ANNOTATION: "["},
        {LEFT_OUT_ANNOTATION: "[1]"},
    ],
)
def test_unreadable_notes_tell_nothing(annotations: dict[str, str] | None) -> None:
    assert LeaderNotes.of(annotations) == LeaderNotes()
