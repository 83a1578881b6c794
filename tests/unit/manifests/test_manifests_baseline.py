"""A baseline passes over what was there, and only that."""

import json
from dataclasses import replace

import msgspec
import pytest
from reporting import WEB, report

from polyarch.manifests.baseline import Baseline, InvalidBaseline


@pytest.mark.req("MF-033")
def test_what_is_in_the_baseline_does_not_count() -> None:
    findings = report().findings
    baseline = Baseline.of("b.json", findings)
    assert all(finding.suppressed == "in the baseline" for finding in baseline.mark(findings))


@pytest.mark.req("MF-033")
def test_a_baseline_survives_lines_that_move() -> None:
    """No line numbers."""
    baseline = Baseline.of("b.json", report().findings)
    moved = report("# a comment\n\n" + WEB.replace("  template:", "  replicas: 2\n  template:")).findings
    assert all(finding.suppressed for finding in baseline.mark(moved))


@pytest.mark.req("MF-033")
def test_a_baseline_of_one_file_hides_nothing_in_another() -> None:
    """The object of production has the name of that of development."""
    development, production = (report(path=f"{name}/web.yaml").findings for name in ("dev", "prod"))
    baseline = Baseline.of("b.json", development)
    assert [finding.suppressed for finding in baseline.mark(production)] == [None, None]
    assert len(baseline.unmatched(production, judged=lambda entry: True)) == len(development)
    both = Baseline.of("b.json", (*development, *production))
    assert all(finding.suppressed for finding in both.mark(production))


@pytest.mark.req("MF-033")
def test_a_file_may_be_renamed() -> None:
    """The entries of a file that is not there any more count anywhere; one file may be spelled in two ways."""

    def place(path: str) -> str | None:
        return None if path == "old.yaml" else path.removeprefix("./")

    found = report(path="new.yaml").findings
    for known in ("old.yaml", "./new.yaml"):
        baseline = replace(Baseline.of("b.json", report(path=known).findings), place=place)
        assert all(finding.suppressed for finding in baseline.mark(found))
        assert baseline.unmatched(found, judged=lambda entry: True) == []


def test_a_new_finding_counts() -> None:
    baseline = Baseline.of("b.json", [finding for finding in report().findings if finding.rule == "MA106"])
    assert [finding.rule for finding in baseline.mark(report().findings) if finding.suppressed is None] == ["MA102"]


def test_what_is_written_is_read_again_and_sorted_by_line() -> None:
    """One entry per line: a change of a finding is a change of a line."""
    baseline = Baseline.of("b.json", reversed(report().findings))
    data = baseline.encode()
    assert Baseline.read("b.json", data).entries == baseline.entries
    assert Baseline.of("b.json", report().findings).encode() == data
    assert len(data.decode().splitlines()) == len(baseline.entries) + 5
    assert json.loads(data)["findings"][0]["object"] == "Deployment shop/web"
    assert Baseline.read("b.json", Baseline.of("b.json", ()).encode()).entries == ()


def test_a_reason_of_the_file_itself_is_kept() -> None:
    (first, *_) = report().findings
    own = msgspec.structs.replace(first, suppressed="own reason")
    assert Baseline.of("b.json", [first]).mark([own])[0].suppressed == "own reason"


@pytest.mark.req("MF-033")
def test_an_entry_that_matches_nothing_is_reported_with_its_line() -> None:
    """MA903; entries of files that were not looked at are left alone."""
    data = Baseline.of("b.json", report().findings).encode()
    baseline = Baseline.read("b.json", data)
    (unused,) = baseline.unmatched(report().findings[:1], judged=lambda entry: True)
    line = data.decode().splitlines()[unused.span.line - 1]
    assert line[unused.span.column - 1 :].startswith(report().findings[1].fingerprint)
    assert unused.rule == "MA903"
    assert baseline.unmatched((), judged=lambda entry: False) == []


@pytest.mark.parametrize(
    "data", [b"", b"[]", b"\xff", b'{"schemaVersion": "x", "findings": []}', b'{"findings": [{"rule": 1}]}']
)
def test_a_file_that_is_no_baseline_is_refused(data: bytes) -> None:
    with pytest.raises(InvalidBaseline, match=r"b.json: .*--write-baseline"):
        Baseline.read("b.json", data)


def test_findings_about_the_run_are_never_written() -> None:
    """MA903 and MA904 say what to look after; they are not there to stay."""
    found = report(WEB + "# polyarch:ignore MA102 too far away\n").findings
    assert "MA903" in {finding.rule for finding in found}
    assert "MA903" not in {entry.rule for entry in Baseline.of("b.json", found).entries}
