"""Random manifests and Dockerfiles that ``polyarch fix`` edits, judged by kubectl, git and patch."""

import datetime as dt
from collections.abc import Callable
from pathlib import Path

import pytest
from tools.random_manifests import run

STYLES = {"CRLF", "JSON", "aliases", "block style", "byte-order mark", "comments", "flow style", "tabs", "tags"}
STYLES |= {"block scalars", "long lines", "merge keys", "no last line break", "several documents", "Dockerfile"}


RULES = {"MA101", "MA102", "MA103", "MA104", "MA106", "MA107/mixed", "MA108", "MA109", "MA110"}
COMMON = {"aliases", "block style", "comments", "flow style", "several documents"}
NIGHTLY = 20_000


@pytest.mark.req("MF-054", "MF-092")
@pytest.mark.parametrize("number", [500, pytest.param(NIGHTLY, marks=pytest.mark.timeout(3600 * 4))])
def test_what_fix_writes_is_what_it_says_on_random_files(
    number: int, tmp_path: Path, peer: Callable[[str], str], record_property: Callable[[str, object], None]
) -> None:
    seed = 1 if number == 500 else dt.datetime.now(tz=dt.UTC).date().toordinal()
    outcome = run(number, seed, tmp_path, kubectl=peer("kubectl"), parser=peer("dockerfile-parser"))
    record_property("repairs", outcome.table())
    assert outcome.failures == [], f"seed {seed}"
    assert outcome.changed > outcome.files / 2
    assert outcome.judged > outcome.files
    assert outcome.places > 2 * outcome.changed
    assert outcome.instructions > outcome.files / 50
    written = outcome.applied
    assert {style for _, style in written} == STYLES
    assert {rule for rule, style in written if style == "Dockerfile"} == {"MA301"}
    assert {rule for rule, _ in written} >= RULES
    assert min(written[rule, style] for rule in ("MA101", "MA102", "MA106") for style in COMMON) >= number / 100
    if number == NIGHTLY:
        assert min(written[rule, style] for rule in RULES for style in COMMON) >= 20, outcome.table()
