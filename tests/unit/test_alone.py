"""``python -m tools.alone``: what failed beside others runs once more by itself, and a defect fails there too."""

import subprocess
import sys
from pathlib import Path

from tools.alone import MOST, serial

PROJECT = Path(__file__).parents[2]
LATE = """
from pathlib import Path

def test_late():
    seen = Path(__file__).with_name("seen")
    first = not seen.exists()
    seen.touch()
    assert not first

def test_well():
    pass
"""
BROKEN = "def test_broken():\n    assert False\n"


def run(folder: Path, *options: str) -> "subprocess.CompletedProcess[str]":
    command = (sys.executable, "-m", "tools.alone", str(folder), "-v", "-p", "no:randomly", *options)
    return subprocess.run(command, cwd=PROJECT, capture_output=True, text=True, check=False, timeout=120)


def test_what_fails_only_once_passes_and_is_named(tmp_path: Path) -> None:
    Path(tmp_path, "test_late_once.py").write_text(LATE)
    ran = run(tmp_path, "-n", "1", "--dist", "loadfile")
    assert ran.returncode == 0, ran.stdout
    assert "== once more, one at a time: 1 that failed beside others" in ran.stdout
    last = ran.stdout.splitlines()[-1]
    assert last.startswith("failed beside others, passed alone: ")
    assert last.endswith("test_late_once.py::test_late")


def test_a_defect_fails_twice(tmp_path: Path) -> None:
    Path(tmp_path, "test_broken_always.py").write_text(BROKEN)
    Path(tmp_path, "test_late_once.py").write_text(LATE)
    ran = run(tmp_path)
    assert ran.returncode == 1
    assert "== once more, one at a time: 2 that failed beside others" in ran.stdout
    assert "passed alone: " in ran.stdout
    assert "test_broken_always.py::test_broken" not in ran.stdout.splitlines()[-1]


def test_many_failures_are_no_matter_of_load(tmp_path: Path) -> None:
    each = "\n".join(f"def test_{at}():\n    assert False\n" for at in range(MOST + 1))
    Path(tmp_path, "test_many.py").write_text(each)
    ran = run(tmp_path)
    assert ran.returncode == 1
    assert "once more" not in ran.stdout


def test_nothing_found_is_no_success(tmp_path: Path) -> None:
    assert run(tmp_path).returncode == 5


def test_one_at_a_time_has_no_workers() -> None:
    assert serial(["-v", "-n", "3", "--dist", "loadfile", "--no-loadscope-reorder", "-q"]) == ["-v", "-q"]
    assert serial(["-n3", "--dist=loadfile"]) == []
