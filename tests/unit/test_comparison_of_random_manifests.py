"""The comparison of random manifests sees what is wrong."""

from pathlib import Path
from random import Random
from typing import Any

import pytest
from tools.random_manifests import Outcome, _Batch

BEFORE = "kind: Pod\nmetadata: {name: f0}\nspec: # note\n  a: [x, y]\n  b: 1\n"
CHANGES = [{"document": 0, "operation": "remove", "path": "/spec/a/1"}]


@pytest.fixture
def batch(tmp_path: Path) -> _Batch:
    made = _Batch(tmp_path, Random(1), (), Outcome(), None)
    made.styles["f0.yaml"] = {"comments"}
    for place in (made.before, made.after):
        place.mkdir()
        (place / "f0.yaml").write_text(BEFORE)
    return made


@pytest.mark.parametrize(
    ("after", "changes", "failure"),
    [
        pytest.param(BEFORE.replace(", y", ""), CHANGES, None, id="as listed"),
        pytest.param(BEFORE.replace(", y", ""), None, "has changed and is not listed", id="not in the report"),
        pytest.param(BEFORE.replace("b: 1", "b: '1'"), CHANGES, "/spec/b has changed", id="another type elsewhere"),
        pytest.param(BEFORE.replace("  b: 1\n", ""), CHANGES, "/spec/b has changed", id="something lost"),
        pytest.param(BEFORE + "---\na: 1\n", CHANGES, "another number of documents", id="a document more"),
        pytest.param(
            BEFORE.replace(" # note", ""), [{**CHANGES[0], "operation": "add"}], "lost comments", id="a comment lost"
        ),
    ],
)
def test_what_differs_from_the_report_is_a_failure(
    batch: _Batch, after: str, changes: list[dict[str, Any]] | None, failure: str | None
) -> None:
    (batch.after / "f0.yaml").write_text(after)
    listed = [] if changes is None else [{"file": "f0.yaml", "changes": changes}]
    batch.compare({"files": listed, "fixed": [], "notFixed": []})
    assert len(batch.outcome.failures) == (failure is not None)
    assert failure is None or failure in batch.outcome.failures[0]


def test_a_diff_that_makes_something_else_is_a_failure(batch: _Batch) -> None:
    """For each of the programs that apply it."""
    (batch.after / "f0.yaml").write_text(BEFORE.replace("b: 1", "b: 2"))
    lines = "".join(f" {line}\n" for line in BEFORE.splitlines()[:4])
    diff = f"--- a/f0.yaml\n+++ b/f0.yaml\n@@ -1,5 +1,5 @@\n{lines}-  b: 1\n+  b: 3\n"
    (batch.folder / "d.patch").write_text(diff)
    batch.apply()
    assert batch.outcome.failures != []
