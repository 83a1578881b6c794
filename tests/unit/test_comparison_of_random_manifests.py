"""The comparison of random manifests sees what is wrong."""

import sys
from pathlib import Path
from random import Random
from typing import Any

import pytest
from tools.random_manifests import Outcome, _Batch

BEFORE = "kind: Pod\nmetadata: {name: f0}\nspec: # note\n  a: [x, y]\n  b: 1\n"
AFTER = BEFORE.replace(", y", "")
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
        pytest.param(AFTER, CHANGES, None, id="as listed"),
        pytest.param(AFTER, None, "has changed and is not listed", id="not in the report"),
        pytest.param(AFTER.replace("b: 1", "b: '1'"), CHANGES, "/spec/b has changed", id="another type elsewhere"),
        pytest.param(AFTER.replace("  b: 1\n", ""), CHANGES, "/spec/b has changed", id="something lost"),
        pytest.param(BEFORE, CHANGES, "is listed and has not changed", id="not written"),
        pytest.param(
            BEFORE.replace("b: 1", "b: 2"),
            [{**CHANGES[0], "path": "/metadata/labels/x"}, {**CHANGES[0], "path": "/spec/b"}],
            "/metadata/labels/x is listed and has not changed",
            id="one of two",
        ),
        pytest.param(BEFORE + "---\na: 1\n", CHANGES, "another number of documents", id="a document more"),
        pytest.param(
            AFTER.replace(" # note", ""), [{**CHANGES[0], "operation": "add"}], "lost comments", id="a comment lost"
        ),
    ],
)
def test_what_differs_from_the_report_is_a_failure(
    batch: _Batch, after: str, changes: list[dict[str, Any]] | None, failure: str | None
) -> None:
    (batch.after / "f0.yaml").write_text(after)
    listed = [] if changes is None else [{"file": "f0.yaml", "changes": changes}]
    fixed = [] if changes is None else [{"file": "f0.yaml", "rule": "MA102", "sub": ""}]
    batch.compare({"files": listed, "fixed": fixed, "notFixed": []})
    assert len(batch.outcome.failures) == (failure is not None)
    assert failure is None or failure in batch.outcome.failures[0]
    right = failure is None
    assert batch.outcome.applied == ({("MA102", "comments"): 1} if right else {})
    assert (batch.outcome.places, batch.outcome.changed) == (right, changes is not None)


def test_a_repair_that_no_file_shows_is_a_failure(batch: _Batch) -> None:
    batch.compare({"files": [], "fixed": [{"file": "f0.yaml", "rule": "MA102", "sub": ""}], "notFixed": []})
    assert ["no change is listed" in each for each in batch.outcome.failures] == [True]


PARSER = """\
#!{python}
import json, sys
for line in sys.stdin:
    texts = json.loads(line).splitlines()
    print(json.dumps({{"instructions": [{{"text": text, "documents": []}} for text in texts]}}))
"""


@pytest.mark.parametrize(
    ("after", "changes", "failure"),
    [
        ("FROM a\nARG X\nRUN c\n", [("replace", "/1"), ("add", "/1")], None),
        ("FROM a\nARG X\nRUN d\n", [("replace", "/1")], "other instructions"),
        ("FROM z\nARG X\nRUN d\n", [("replace", "/1"), ("add", "/1")], "other instructions"),
        ("FROM a\nARG X \\\nRUN d\n", [("replace", "/1"), ("add", "/1")], "read otherwise"),
    ],
)
def test_what_buildkit_reads_in_a_dockerfile_differs_at_the_listed_places(
    batch: _Batch, tmp_path: Path, after: str, changes: list[tuple[str, str]], failure: str | None
) -> None:
    parser = tmp_path / "parser"
    parser.write_text(PARSER.format(python=sys.executable))
    parser.chmod(0o755)
    batch.styles = {"Dockerfile.f0": {"Dockerfile"}}
    (batch.before / "Dockerfile.f0").write_text("FROM a\nRUN b\n")
    (batch.after / "Dockerfile.f0").write_text(after)
    listed = [{"operation": operation, "path": path} for operation, path in changes]
    batch.judge_dockerfiles({"files": [{"file": "Dockerfile.f0", "changes": listed}]}, str(parser))
    assert len(batch.outcome.failures) == (failure is not None)
    assert failure is None or failure in batch.outcome.failures[0]
    assert batch.outcome.instructions == 2


def test_a_diff_that_makes_something_else_is_a_failure(batch: _Batch) -> None:
    """For each of the programs that apply it."""
    (batch.after / "f0.yaml").write_text(BEFORE.replace("b: 1", "b: 2"))
    lines = "".join(f" {line}\n" for line in BEFORE.splitlines()[:4])
    diff = f"--- a/f0.yaml\n+++ b/f0.yaml\n@@ -1,5 +1,5 @@\n{lines}-  b: 1\n+  b: 3\n"
    (batch.folder / "d.patch").write_text(diff)
    batch.apply()
    assert batch.outcome.failures != []
