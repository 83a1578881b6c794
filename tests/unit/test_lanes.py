"""Files that share a cluster follow each other in one worker, and its sandbox ends with the last of them."""

import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from endings import Endings
from lanes import EXCLUSIVE, FIRST, LAST, durations, lane_of, order, sandbox_of, strays
from long import ALL, LONG, OLDER, faults, left_to_make_long, repeated_on_older_versions

TESTS = Path(__file__).parents[1]


@pytest.mark.parametrize("file", LONG)
def test_what_is_left_to_make_long_is_there(file: str) -> None:
    """Parameters are compared where they are known: when the tests are collected."""
    (path,) = [
        path for folder in ("oracles", "cluster", "faults", "real") for path in TESTS.glob(f"{folder}/{file}.py")
    ]
    text = path.read_text(encoding="utf-8")
    names = [name for names in LONG[file].values() for name in names]
    assert [name for name in names if f"def {name.partition('[')[0]}" not in text] == []
    assert names == [*dict.fromkeys(names)]
    assert left_to_make_long(f"tests/cluster/{file}.py::{names[0]}_or_more")


@pytest.mark.req("SB-020")
@pytest.mark.parametrize("file", OLDER)
def test_what_is_repeated_on_older_versions_is_there_and_runs_in_a_shared_sandbox(file: str) -> None:
    """A sandbox of a test's own would run the usual version and pass."""
    text = (TESTS / "cluster" / f"{file}.py").read_text(encoding="utf-8")
    assert [name for name in OLDER[file] if f"def {name}" not in text] == []
    assert repeated_on_older_versions(f"tests/cluster/{file}.py::{OLDER[file][0]}_or_more")
    assert not repeated_on_older_versions("tests/cluster/test_examples.py::test_another")
    assert "Sandbox.start(" not in text


NAMED = sorted({name for sentences in LONG.values() for each in sentences for name in re.findall(r"test_\w+", each)})


@pytest.mark.parametrize("name", NAMED)
def test_what_a_sentence_says_is_always_run_is(name: str) -> None:
    """A file that keeps a test, or a test that is not in the table."""
    files = {path.stem: path for path in TESTS.rglob("test_*.py")}
    if name in files:
        assert ALL not in LONG.get(name, {}).values()
        return
    defined = [
        f"{file}.py::{function}"
        for file, path in files.items()
        if path.parent.name in ("cluster", "faults")
        for function in re.findall(rf"def ({name}\w*)\(", path.read_text(encoding="utf-8"))
    ]
    assert [each for each in defined if not left_to_make_long(each)]


def test_what_is_always_run() -> None:
    assert not left_to_make_long("tests/faults/test_watch_faults.py::test_another")
    assert not left_to_make_long("tests/cluster/test_examples.py::test_another")


@pytest.mark.parametrize(
    ("file", "tests", "wrong"),
    [
        (
            "test_sandbox_egress",
            ("test_x", "test_the_way_is_there_again_after_a_process_was_killed[etcd]"),
            "no t",
        ),
        (
            "test_sandbox_egress",
            ("test_the_way_is_there_again_after_a_process_was_killed[kube-apiserver]",),
            "run",
        ),
        ("test_numa_crowd", ("test_x",), None),
        ("test_another", ("test_x",), None),
    ],
)
def test_an_entry_without_a_test_and_a_file_without_one_are_named(
    file: str, tests: tuple[str, ...], wrong: str | None
) -> None:
    found = faults(f"tests/cluster/{file}.py::{name}" for name in tests)
    assert len(found) == bool(wrong)
    if wrong:
        assert found[0].startswith(f"{file}.py has ")
        assert wrong in found[0]


def item(path: str, *fixtures: str) -> Any:
    return SimpleNamespace(path=Path(path), nodeid=f"{path}::test_it", fixturenames=fixtures)


def test_a_lane_names_files_that_are_there() -> None:
    there = {path.stem for folder in ("cluster", "faults") for path in (TESTS / folder).glob("test_*.py")}
    files = [file for lanes in (FIRST, LAST) for files in lanes.values() for file in files]
    assert sorted(files) == sorted(there.intersection(files))
    assert not FIRST.keys() & LAST.keys()


def test_files_of_a_lane_have_one_worker_and_others_each_their_own() -> None:
    assert lane_of("tests/cluster/test_taint_clean.py::test_x[a/b]") == "commanded"
    assert lane_of("tests/cluster/test_taint_commands.py::test_y") == "commanded"
    assert lane_of("tests/cluster/test_index_cluster.py::test_z") == "tests/cluster/test_index_cluster.py"


def test_lanes_come_in_their_order_and_those_of_the_fault_suite_last() -> None:
    names = [
        *("test_watch_faults", "test_integrations_helm", "test_taint_clean", "test_sandbox_life"),
        *("test_taint_commands", "test_index_cluster"),
    ]
    items = [item(f"tests/cluster/{name}.py") for name in names]
    order(items)
    assert [each.path.stem for each in items] == [
        *("test_taint_commands", "test_taint_clean", "test_sandbox_life"),
        *("test_integrations_helm", "test_index_cluster", "test_watch_faults"),
    ]


def test_how_long_lanes_take() -> None:
    parts = [("tests/cluster/test_taint_clean.py::test_x", 2.6), ("tests/cluster/test_taint_commands.py::test_y", 4.0)]
    assert durations([*parts, ("tests/cluster/test_examples.py::test_z[a/b]", 90.2), ("tests/a.py::test_z", 0.1)]) == [
        "    90 s  placed",
        "     7 s  commanded",
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
    found = {sandbox_of("operated_sandbox", f"tests/cluster/{FIRST[lane][0]}.py::test_it") for lane in lanes}
    assert found == set(lanes)
    assert sandbox_of("taken_over_sandbox", "tests/cluster/test_x.py::test_it") == "taken-over"
