"""The form for people, and the exit code that all forms share."""

import pytest
from reporting import WEB, report

from polyarch.manifests.output import text
from polyarch.manifests.report import Incomplete

GAP = Incomplete("", "quay.io/acme/web:2", "the registry is away")


@pytest.mark.req("MF-042")
def test_a_line_for_each_finding_a_hint_and_a_summary() -> None:
    """File:line:column: severity rule message."""
    lines = text.render(report()).splitlines()
    assert lines[0].startswith("deploy/web.yaml:14:17: info MA106 Deployment shop/web ")
    assert lines[1].startswith("  ")
    assert lines[2].startswith("deploy/web.yaml:16:40: error MA102 Deployment shop/web admits linux/s390x, but ")
    assert lines[-1] == "1 error, 1 info in 1 object"


@pytest.mark.req("MF-042")
def test_the_position_is_that_of_the_offending_value() -> None:
    """Counted from 1, in code points."""
    wide = WEB.replace("values: [amd64,", 'values: ["𝕒𝕒", amd64,')
    (finding,) = [each for each in report(wide).findings if each.rule == "MA102"]
    line = wide.splitlines()[finding.span.line - 1]
    assert line[finding.span.column - 1 : finding.span.end_column - 1] == "s390x"


@pytest.mark.req("MF-042")
def test_the_summary_names_what_was_passed_over_and_unknown() -> None:
    one = report(
        WEB.replace("  namespace: shop\n", "  annotations: {ignore-check.polyarch.dev/MA106: later}\n"),
        {"quay.io/acme/web:2": {"error": "network"}},
    )
    assert text.render(one).splitlines()[-1] == "1 warning in 1 object, 1 suppressed; 1 image unresolved"


def test_nothing_found_says_so() -> None:
    assert text.render(report("kind: ConfigMap\n")).splitlines() == ["nothing found in 1 object"]


@pytest.mark.req("MF-042")
def test_colour_is_asked_for() -> None:
    """Colour on a terminal only."""
    assert "\x1b[" not in text.render(report())
    assert "\x1b[31;1merror\x1b[0m" in text.render(report(), colour=True)


@pytest.mark.parametrize("colour", [True, False])
def test_texts_of_manifests_cannot_move_the_cursor(colour: bool) -> None:
    evil = WEB.replace("name: web\n  name", 'name: "we\\e[2Jb\\nx"\n  name')
    printed = text.render(report(evil), colour=colour)
    assert "\x1b[2J" not in printed
    assert "we�[2Jb x" in printed


def test_suppressed_findings_are_shown_on_request() -> None:
    quiet = WEB.replace("  namespace: shop\n", "  annotations: {ignore-check.polyarch.dev/MA102: see OPS-1}\n")
    assert "MA102" not in text.render(report(quiet))
    shown = text.render(report(quiet, show_suppressed=True))
    assert "suppressed MA102" in shown
    assert "reason: see OPS-1" in shown


@pytest.mark.req("MF-040")
@pytest.mark.parametrize(
    ("fail_on", "code"), [("error", 1), ("warning", 1), ("info", 1), ("never", 0)], ids=lambda each: str(each)
)
def test_the_exit_code_follows_the_worst_finding(fail_on: str, code: int) -> None:
    assert report(fail_on=fail_on).exit_code == code
    assert report(fail_on=fail_on, incomplete=(GAP,)).exit_code == 3


@pytest.mark.req("MF-040")
def test_less_than_the_least_fails_nothing() -> None:
    """An info does not reach the default."""
    (info,) = report(WEB.replace(", s390x", "")).findings
    assert info.severity == "info"
    assert report(WEB.replace(", s390x", "")).exit_code == 0
    assert report(WEB.replace(", s390x", ""), fail_on="info").exit_code == 1


def test_what_is_not_complete_is_said() -> None:
    assert "quay.io/acme/web:2: not completed: the registry is away" in text.render(report(incomplete=(GAP,)))


@pytest.mark.req("MF-041")
def test_findings_are_in_the_order_of_the_text() -> None:
    """File, line, column, rule."""
    both = report(WEB + "---\n" + WEB.replace("name: web", "name: a"))
    places = [(each.file, each.span.line, each.span.column, each.rule) for each in both.findings]
    assert places == sorted(places)
    assert len(places) == 4


@pytest.mark.req("MF-042")
def test_an_image_that_a_finding_names_is_not_named_again() -> None:
    """MA001 says why; what no finding says stays."""
    unknown = report(
        WEB, {GAP.image: {"error": "network"}}, incomplete=(GAP, Incomplete("away.yaml", "", "no such file"))
    )
    assert [each.rule for each in unknown.findings if each.rule == "MA001"] == ["MA001"]
    shown = text.render(unknown)
    assert shown.count(GAP.image) == 1
    assert "away.yaml: not completed: no such file" in shown


@pytest.mark.req("MF-042")
def test_images_without_an_answer_for_the_same_reason_share_a_line() -> None:
    """A registry that is away is told once for all images in it, none of them by two names."""
    away = [Incomplete("", f"team/app:{at}", f"docker.io/team/app:{at}: the registry is away") for at in range(5)]
    few = [Incomplete("", name, f"docker.io/library/{name}:latest: no such host") for name in ("nginx", "redis")]
    assert text.incomplete_lines([*away, Incomplete("a.yaml", "", "no such file"), *few]) == [
        "a.yaml: not completed: no such file",
        "team/app:0, team/app:1, team/app:2 and 2 more images: not completed: the registry is away",
        "nginx: not completed: no such host",
        "redis: not completed: no such host",
    ]
