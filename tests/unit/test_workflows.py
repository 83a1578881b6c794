"""What the workflows of continuous integration and of releases run that is not ours."""

import re
from pathlib import Path

import pytest

WORKFLOWS = sorted((Path(__file__).parents[2] / ".github" / "workflows").glob("*.y*ml"))
USED = [
    (path.name, action)
    for path in WORKFLOWS
    for action in re.findall(r"^\s*(?:-\s+)?uses:\s*(.+)$", path.read_text(), re.MULTILINE)
]


@pytest.mark.parametrize(("workflow", "action"), sorted(set(USED)))
def test_an_action_of_others_is_named_by_its_commit_and_its_version(workflow: str, action: str) -> None:
    """A tag or branch may be moved to other code, which then has our tokens."""
    assert action.startswith("./") or re.fullmatch(r"[\w./-]+@[0-9a-f]{40} # v\d+\.\d+\.\d+", action)


def test_actions_are_found() -> None:
    assert {name for name, _ in USED} == {path.name for path in WORKFLOWS}
