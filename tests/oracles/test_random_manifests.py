"""Random manifests and Dockerfiles that ``polyarch fix`` edits, judged by kubectl, git and patch."""

import datetime as dt
from collections.abc import Callable
from pathlib import Path

import pytest
from tools.random_manifests import run

STYLES = {"CRLF", "JSON", "aliases", "block style", "byte-order mark", "comments", "flow style", "tabs", "tags"}
STYLES |= {"block scalars", "long lines", "merge keys", "no last line break", "several documents", "Dockerfile"}


@pytest.mark.req("MF-054", "MF-092")
@pytest.mark.parametrize("number", [500, pytest.param(20_000, marks=pytest.mark.timeout(3600 * 2))])
def test_what_fix_writes_is_what_it_says_on_random_files(
    number: int, tmp_path: Path, peer: Callable[[str], str], record_property: Callable[[str, object], None]
) -> None:
    seed = 1 if number == 500 else dt.datetime.now(tz=dt.UTC).date().toordinal()
    outcome = run(number, seed, tmp_path, kubectl=peer("kubectl"))
    record_property("repairs", outcome.table())
    assert outcome.failures == [], f"seed {seed}"
    assert {style for _, style in outcome.applied} == STYLES
    assert {"MA101", "MA102", "MA103", "MA104", "MA106", "MA301"} <= {rule for rule, _ in outcome.applied}
    assert outcome.changed > outcome.files / 2
    assert outcome.judged > outcome.files
