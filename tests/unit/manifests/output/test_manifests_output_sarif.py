"""SARIF 2.1.0 against its published schema, and what code hosts need of it."""

import json
from typing import Any

import pytest
from reporting import WEB, report
from schema_check import faults, load_sarif

from polyarch.manifests.output import sarif
from polyarch.manifests.report import Incomplete, Report

QUIET = WEB.replace("  namespace: shop\n", "  annotations: {ignore-check.polyarch.dev/MA102: see OPS-1}\n")


def log(found: Report) -> dict[str, Any]:
    result: dict[str, Any] = json.loads(sarif.render(found))
    return result


def run(found: Report) -> dict[str, Any]:
    (only,) = log(found)["runs"]
    return dict(only)


@pytest.mark.req("MF-044")
@pytest.mark.parametrize(
    "found",
    [
        report(),
        report(QUIET, show_suppressed=True),
        report("kind: ConfigMap\n"),
        report("a: [\nimage: x\n"),
        report(path="/abs/with space/ä.yaml"),
        report(path="../up:1,2.yaml", incomplete=(Incomplete("b c.yaml", "", "gone"), Incomplete("", "x:1", "away"))),
    ],
)
def test_it_is_valid(found: Report) -> None:
    """Against the schema of OASIS."""
    assert faults(log(found), load_sarif()) == []


def test_the_check_itself_sees_mistakes() -> None:
    """A check that finds nothing anywhere would prove nothing."""
    broken = log(report())
    broken["runs"][0]["columnKind"] = "bytes"
    broken["runs"][0]["results"][0]["locations"][0]["physicalLocation"]["region"]["startLine"] = 0
    broken["runs"][0]["results"][0]["extra"] = 1
    del broken["version"]
    assert len(faults(broken, load_sarif())) == 4


@pytest.mark.req("MF-044")
def test_regions_are_those_of_the_offending_nodes() -> None:
    """Real regions, in code points."""
    found = run(report())
    assert found["columnKind"] == "unicodeCodePoints"
    region = found["results"][1]["locations"][0]["physicalLocation"]["region"]
    assert region == {"startLine": 16, "startColumn": 40, "endLine": 16, "endColumn": 45}


@pytest.mark.req("MF-044")
def test_levels_rules_and_fingerprints() -> None:
    found = run(report())
    assert found["automationDetails"]["id"] == "polyarch/lint"
    assert [result["level"] for result in found["results"]] == ["note", "error"]
    rules = found["tool"]["driver"]["rules"]
    assert [rule["id"] for rule in rules] == ["MA102", "MA106"]
    assert all(rule["help"]["text"] for rule in rules)
    for result, finding in zip(found["results"], report().findings, strict=True):
        assert rules[result["ruleIndex"]]["id"] == result["ruleId"]
        assert result["partialFingerprints"] == {"polyarch/v1": finding.fingerprint}


@pytest.mark.req("MF-044")
@pytest.mark.parametrize(
    ("path", "uri", "base"),
    [
        ("deploy/web.yaml", "deploy/web.yaml", "SRCROOT"),
        ("a b/ü#.yaml", "a%20b/%C3%BC%23.yaml", "SRCROOT"),
        ("/srv/web.yaml", "file:///srv/web.yaml", None),
    ],
)
def test_files_are_relative_to_the_source(path: str, uri: str, base: str | None) -> None:
    location = run(report(path=path))["results"][0]["locations"][0]["physicalLocation"]["artifactLocation"]
    assert location == {"uri": uri, **({"uriBaseId": base} if base else {})}


@pytest.mark.req("MF-044")
def test_suppressed_results_are_left_out_unless_asked_for() -> None:
    """Code scanning shows what is suppressed as open, since it does not read ``suppressions``."""
    assert [each["ruleId"] for each in run(report(QUIET))["results"]] == ["MA106"]
    results = run(report(QUIET, show_suppressed=True))["results"]
    (result,) = [each for each in results if "suppressions" in each]
    assert len(results) == 2
    assert result["suppressions"] == [{"kind": "inSource", "justification": "see OPS-1"}]


@pytest.mark.req("MF-044")
def test_no_more_results_than_hosts_take(monkeypatch: pytest.MonkeyPatch) -> None:
    """Cut, with a notification."""
    monkeypatch.setattr(sarif, "MAX_RESULTS", 1)
    found = run(report())
    assert len(found["results"]) == 1
    (notification,) = found["invocations"][0]["toolExecutionNotifications"]
    assert "1 of 2 results are left out" in notification["message"]["text"]


def test_what_is_not_complete_fails_the_invocation() -> None:
    found = run(report(incomplete=(Incomplete("", "x:1", "away"),)))
    assert found["invocations"][0]["executionSuccessful"] is False
