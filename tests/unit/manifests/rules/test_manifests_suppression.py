"""Findings that somebody does not want, and suppressions that nobody needs."""

import pytest
from linting import answers, names, scanned
from reporting import IMAGES, WEB, report

from polyarch.manifests.report import Report
from polyarch.manifests.rules.engine import lint
from polyarch.manifests.rules.options import LintOptions
from polyarch.manifests.rules.suppression import suppressed, suppressions

VALUES = "                values: [amd64, arm64, s390x]\n"


def with_annotation(rule: str, value: str) -> str:
    return WEB.replace("  namespace: shop\n", f"  annotations:\n    ignore-check.polyarch.dev/{rule}: {value}\n")


def shown(found: Report) -> list[str]:
    return [finding.rule for finding in found.findings]


@pytest.mark.req("MF-032")
@pytest.mark.parametrize(
    "text",
    [
        with_annotation("MA102", "mainframes are not in this cluster yet"),
        WEB.replace(VALUES, VALUES.rstrip("\n") + "  # polyarch:ignore MA102 mainframes come later\n"),
        WEB.replace(VALUES, "                # polyarch:ignore MA102 mainframes come later\n" + VALUES),
        WEB.replace(VALUES, "                #polyarch:ignore MA102, MA101 later\n" + VALUES),
        WEB.replace(
            VALUES, "                # polyarch:ignore MA102 a\n                # polyarch:ignore MA999 b\n" + VALUES
        ),
    ],
)
def test_a_suppressed_finding_is_counted_and_fails_nothing(text: str) -> None:
    """By annotation on the object, by comment on the line or the one before."""
    found = report(text)
    assert "MA102" not in shown(found)
    assert [finding.rule for finding in found.suppressed] == ["MA102"]
    assert found.summary.suppressed == 1
    assert found.exit_code == 0


@pytest.mark.req("MF-032")
def test_an_annotation_of_the_pod_template_counts_for_its_pods() -> None:
    head = "kind: Deployment\nmetadata: {name: d}\nspec:\n  template:\n    metadata:\n      annotations: "
    pods = "    spec: {containers: [{name: a, image: 'quay.io/acme/web:2'}]}\n"
    for rule, expected in (("MA101", []), ("MA102", ["MA101", "MA903"])):
        file = scanned(head + f"{{ignore-check.polyarch.dev/{rule}: a reason}}\n" + pods)
        found = suppressed(file, lint(file, answers({"quay.io/acme/web:2": ["linux/amd64"]}), LintOptions()))
        assert sorted(each.finding.rule for each in found if each.finding.suppressed is None) == expected


def test_the_reason_is_kept() -> None:
    found = report(with_annotation("MA102", "later, see OPS-12"))
    assert found.suppressed[0].suppressed == "later, see OPS-12"


@pytest.mark.req("MF-032")
@pytest.mark.parametrize(
    ("text", "words"),
    [
        (with_annotation("MA102", '""'), "it gives no reason"),
        (with_annotation("MA999", "because"), "there is no rule MA999"),
        (with_annotation("MA104", "because"), "there is no such finding here"),
        (WEB.replace(VALUES, VALUES.rstrip("\n") + " # polyarch:ignore MA102\n"), "it gives no reason"),
        (WEB + "# polyarch:ignore MA102 too far away\n", "there is no such finding here"),
        (WEB.replace("kind: Dep", "# polyarch:ignore\nkind: Dep"), "there is no rule"),
    ],
)
def test_a_suppression_without_effect_is_reported(text: str, words: str) -> None:
    """MA903, at the place of the suppression, and the finding still counts."""
    found = report(text)
    (unused,) = [finding for finding in found.findings if finding.rule == "MA903"]
    assert words in unused.message
    assert unused.span.line == next(
        number
        for number, line in enumerate(text.splitlines(), 1)
        if "polyarch:ignore" in line or "ignore-check" in line
    )
    assert "MA102" in shown(found)


@pytest.mark.req("MF-032")
def test_a_comment_behind_a_value_is_for_its_own_line_only() -> None:
    """The finding of the next line counts, and the suppression matches nothing."""
    text = WEB.replace("operator: In\n" + VALUES, f"operator: In  # polyarch:ignore MA102 sure\n{VALUES}")
    assert text != WEB
    assert [rule for rule in shown(report(text)) if rule in ("MA102", "MA903")] == ["MA903", "MA102"]


def test_an_annotation_is_for_its_own_object_only() -> None:
    second = WEB.replace("name: web", "name: other")
    found = report(with_annotation("MA102", "known") + "---\n" + second)
    assert [str(finding.object) for finding in found.findings if finding.rule == "MA102"] == ["Deployment shop/other"]


def test_in_a_bundle_the_base_rule_may_be_named() -> None:
    """MA205 stands for another rule; either name suppresses it."""
    text = (
        "apiVersion: operators.coreos.com/v1alpha1\nkind: ClusterServiceVersion\nmetadata:\n  name: op\n"
        "  annotations:\n    ignore-check.polyarch.dev/MA101: known\nspec:\n  install:\n    spec:\n      deployments:\n"
        "      - name: a\n        spec:\n          template:\n            spec:\n              containers:\n"
        "              - name: a\n                image: quay.io/acme/web:2\n"
    )
    assert [(finding.rule, finding.sub) for finding in report(text).suppressed] == [("MA205", "MA101")]


def test_a_text_that_looks_like_a_comment_is_none() -> None:
    text = WEB + "        args:\n        - |\n          # polyarch:ignore MA102 inside of a script\n"
    assert suppressions(scanned(text)) == []


def test_nothing_is_said_about_rules_that_did_not_run() -> None:
    """A suppression of an excluded rule may well have an effect in another run."""
    found = scanned(with_annotation("MA104", "because"))
    problems = lint(found, answers(IMAGES), LintOptions())
    assert "MA903" not in names(suppressed(found, problems, selected=lambda rule: rule != "MA104"))


def test_comments_of_unreadable_files_count() -> None:
    """A template has no objects, but it has lines."""
    found = report("# polyarch:ignore MA901 rendered elsewhere\nname: {{ .Values.name }}\nkind: {{ x }}\n")
    assert [finding.rule for finding in found.suppressed] == ["MA901"]
