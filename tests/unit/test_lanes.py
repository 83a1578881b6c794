"""Files that share a cluster follow each other in one worker, and its sandbox ends with the last of them."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from endings import Endings
from lanes import EXCLUSIVE, LANES, lane_of, order, sandbox_of, strays
from long import LONG, is_long

TESTS = Path(__file__).parents[1]


@pytest.mark.parametrize("name", LONG)
def test_what_is_left_to_make_long_is_there(name: str) -> None:
    file, _, test = name.partition("::")
    found = [*TESTS.glob(f"cluster/{file}"), *TESTS.glob(f"faults/{file}")]
    assert [f"def {test.partition('[')[0]}(" in path.read_text(encoding="utf-8") for path in found] == [True]
    assert is_long(f"tests/cluster/{name}")
    assert not is_long(f"tests/cluster/{file}::test_another")


def item(path: str, *fixtures: str) -> Any:
    return SimpleNamespace(path=Path(path), nodeid=f"{path}::test_it", fixturenames=fixtures)


def test_a_lane_names_files_that_are_there() -> None:
    there = {path.stem for folder in ("cluster", "faults") for path in (TESTS / folder).glob("test_*.py")}
    assert {file for files in LANES.values() for file in files} <= there


def test_files_of_a_lane_have_one_worker_and_others_each_their_own() -> None:
    assert lane_of("tests/cluster/test_taint_clean.py::test_x[a/b]") == "commanded"
    assert lane_of("tests/cluster/test_taint_commands.py::test_y") == "commanded"
    assert lane_of("tests/cluster/test_examples.py::test_z") == "tests/cluster/test_examples.py"


def test_lanes_come_first_and_in_their_order() -> None:
    names = ["test_examples", "test_taint_commands", "test_sandbox_life", "test_taint_clean", "test_index_cluster"]
    items = [item(f"tests/cluster/{name}.py") for name in names]
    order(items)
    assert [each.path.stem for each in items] == [
        *("test_sandbox_life", "test_taint_clean", "test_taint_commands"),
        *("test_examples", "test_index_cluster"),
    ]


@pytest.mark.parametrize(
    ("file", "fixture", "stray"),
    [
        ("test_taint_clean", "commanded_sandbox", False),
        ("test_examples", "placed_sandbox", False),
        ("test_examples", "commanded_sandbox", True),
        ("test_taint_clean", "operated_sandbox", True),
    ],
)
def test_a_file_that_would_wait_for_a_lane_is_named(file: str, fixture: str, stray: bool) -> None:
    found = strays([item(f"tests/cluster/{file}.py", fixture)])
    assert bool(found) == stray
    if stray:
        assert found[0].startswith(f"{file}.py uses {fixture}: put it into the lane")


def test_a_sandbox_ends_once_when_the_last_test_of_the_last_file_has_ended(tmp_path: Path) -> None:
    items = [
        *(item("t/test_one.py", "first_sandbox"), item("t/test_one.py")),
        *(item("t/test_two.py", "first_sandbox", "other_sandbox"), item("t/test_three.py", "other_sandbox")),
    ]
    deleted: list[str] = []
    fixtures = ("first_sandbox", "other_sandbox", "unused_sandbox")

    def called(fixture: str, _: str) -> str:
        return fixture.replace("_sandbox", "-1")

    workers = [Endings(items, fixtures, called, tmp_path / "shared", deleted.append) for _ in range(2)]
    workers[0].ended("test_one.py")
    workers[1].ended("test_two.py")
    assert deleted == [], "a second test of the first file may need what the first has made"
    workers[0].ended("test_one.py")
    assert deleted == ["first-1"]
    workers[1].ended("test_three.py")
    assert deleted == ["first-1", "other-1"]
    workers[0].ended("test_one.py")
    assert deleted == ["first-1", "other-1"], "once"


def test_each_lane_of_a_fixture_has_a_sandbox_of_its_own() -> None:
    lanes = EXCLUSIVE["operated_sandbox"]
    found = {sandbox_of("operated_sandbox", f"tests/cluster/{LANES[lane][0]}.py::test_it") for lane in lanes}
    assert found == set(lanes)
    assert sandbox_of("taken_over_sandbox", "tests/cluster/test_x.py::test_it") == "taken-over"
