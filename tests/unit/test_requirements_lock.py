"""What is installed with polyarch: few packages, all of them locked, and the image's lock is part of the other."""

import re
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
ENTRY = re.compile(r"^([a-z0-9.-]+)==(\S+)(?: ; (.*?))? \\\n((?:    --hash=\S+(?: \\)?\n)+)", re.MULTILINE)
DIRECT = 12
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


def locked(path: Path) -> dict[str, tuple[str, frozenset[str]]]:
    """Version and hashes by name."""
    return {
        f"{name}=={version}": (marker, frozenset(re.findall(r"sha256:[0-9a-f]{64}", hashes)))
        for name, version, marker, hashes in ENTRY.findall(path.read_text())
    }


@pytest.mark.req("IN-014")
def test_the_command_line_asks_for_few_packages() -> None:
    """Each of them has a line in docs/decisions/0002-dependencies.md."""
    names = [re.split(r"[^a-z0-9-]", each, maxsplit=1)[0] for each in PROJECT["dependencies"]]
    assert len(names) <= DIRECT
    page = (ROOT / "docs" / "decisions" / "0002-dependencies.md").read_text().lower()
    assert [name for name in names if name not in page] == []


@pytest.mark.req("IN-014")
def test_what_is_optional_is_asked_for_by_name() -> None:
    assert set(PROJECT["optional-dependencies"]) == {"fast", "numa"}


@pytest.mark.req("IN-020")
def test_the_lock_of_the_image_is_the_part_that_runs_of_the_lock_that_is_tested() -> None:
    """`make lock` writes both; another version or another hash in one of them is a mistake."""
    everything = locked(ROOT / "requirements.lock")
    image = locked(ROOT / "deploy" / "image" / "requirements.lock")
    assert {pin: everything.get(pin, ("", None))[1] for pin in image} == {pin: each[1] for pin, each in image.items()}
    names = {pin.partition("==")[0] for pin in image}
    asked = [
        *PROJECT["dependencies"],
        *PROJECT["optional-dependencies"]["fast"],
        *PROJECT["optional-dependencies"]["numa"],
    ]
    assert {re.split(r"[^a-z0-9-]", each, maxsplit=1)[0] for each in asked} <= names
    assert not names & {"pytest", "mypy", "ruff", "hatchling"}
