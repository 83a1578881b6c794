"""What the controllers' leader tells the operator beside its Lease (PL-041, PL-301)."""

import pytest

from polyarch.placement.result.leader_notes import HELD, LEFT_OUT, UNPLACED, LeaderNotes


def test_pl_041_what_is_told_is_read() -> None:
    notes = LeaderNotes(3, 14, {"nodes": "nodes cannot be listed"})
    assert LeaderNotes.of(notes.annotations()) == notes


def test_pl_041_what_is_no_longer_the_case_takes_its_annotation_away() -> None:
    assert LeaderNotes().annotations() == {HELD: "0", UNPLACED: "0", LEFT_OUT: ""}


@pytest.mark.parametrize("annotations", [None, {}, {HELD: "-1", UNPLACED: "many", LEFT_OUT: "["}, {LEFT_OUT: "[1]"}])
def test_pl_041_unreadable_notes_tell_nothing(annotations: dict[str, str] | None) -> None:
    assert LeaderNotes.of(annotations) == LeaderNotes()
