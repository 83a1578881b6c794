"""JUnit, GitHub annotations, Markdown and CSV."""

import csv as csv_module
import io
from xml.etree import ElementTree as ET

import pytest
from reporting import WEB, report

from polyarch.manifests.output import csv, github, junit, markdown
from polyarch.manifests.report import Incomplete, Report

QUIET = WEB.replace("  namespace: shop\n", "  annotations: {ignore-check.polyarch.dev/MA102: see OPS-1}\n")
GAP = Incomplete("", "x:1", "the registry is away")


def suites(found: Report) -> ET.Element:
    return ET.fromstring(junit.render(found))


@pytest.mark.req("MF-045")
def test_junit_has_a_suite_per_file_and_a_case_per_object() -> None:
    root = suites(report(WEB + "---\nkind: ConfigMap\nmetadata: {name: settings}\ndata: {image: x}\n"))
    (suite,) = root
    assert suite.get("name") == "deploy/web.yaml"
    assert [case.get("name") for case in suite] == ["Deployment/shop/web", "ConfigMap//settings"]
    (failure,) = root.iter("failure")
    assert failure.get("type") == "MA102"
    assert "deploy/web.yaml:16:40" in (failure.text or "")


@pytest.mark.req("MF-045")
def test_junit_fails_what_the_run_fails() -> None:
    """One failure per finding at or above --fail-on."""
    assert [each.get("type") for each in suites(report(fail_on="info")).iter("failure")] == ["MA106", "MA102"]
    assert list(suites(report(fail_on="never")).iter("failure")) == []


@pytest.mark.req("MF-045")
def test_junit_skips_and_errors() -> None:
    """Skipped for suppressed, error for what could not be completed."""
    (skipped,) = suites(report(QUIET)).iter("skipped")
    assert "MA102: see OPS-1" in (skipped.get("message") or "")
    (error,) = suites(report(incomplete=(GAP,))).iter("error")
    assert error.get("message") == "the registry is away"


@pytest.mark.req("MF-045")
def test_junit_counts_agree() -> None:
    root = suites(report(WEB + "---\n" + QUIET.replace("name: web", "name: b"), fail_on="info", incomplete=(GAP,)))
    for element in (root, *root):
        assert int(element.get("tests", "")) == len(list(element.iter("testcase")))
        assert int(element.get("failures", "")) == len(list(element.iter("failure")))
        assert int(element.get("errors", "")) == len(list(element.iter("error")))
        assert int(element.get("skipped", "")) == len(list(element.iter("skipped")))


def test_junit_survives_texts_that_xml_cannot_say() -> None:
    evil = WEB.replace("name: web\n  name", 'name: "w\\x01<&\\""\n  name')
    assert suites(report(evil))[0][0].get("name") == 'Deployment/shop/w�<&"'


@pytest.mark.req("MF-045")
def test_github_commands() -> None:
    lines = github.render(report()).splitlines()
    assert lines[0].startswith("::notice file=deploy/web.yaml,line=14,col=17,endLine=14,title=MA106::")
    assert lines[1].startswith("::error file=deploy/web.yaml,line=16,col=40,endLine=16,title=MA102::Deployment ")
    assert "%0A" in lines[1]


@pytest.mark.req("MF-045")
def test_github_escapes_what_ends_a_command_or_a_property() -> None:
    """Percent, line breaks, and in properties comma and colon."""
    evil = WEB.replace("name: web\n  name", 'name: "50%\\n::set-output"\n  name')
    lines = github.render(report(evil, path="a,b:c%.yaml", incomplete=(GAP,))).splitlines()
    assert len(lines) == 3
    assert "file=a%2Cb%3Ac%25.yaml," in lines[0]
    assert "50%25 ::set-output" in lines[0]
    assert lines[2] == "::error title=incomplete::the registry is away"


@pytest.mark.req("MF-045")
def test_markdown_has_a_table_per_file_with_pipes_escaped() -> None:
    printed = markdown.render(report(WEB.replace("name: web\n  name", 'name: "a|b"\n  name'), path="a_b|c.yaml"))
    assert "### a\\_b\\|c.yaml" in printed
    (row,) = [line for line in printed.splitlines() if "MA102" in line]
    assert row.startswith("| 16 | error | MA102 | Deployment shop/a\\|b admits linux/s390x")
    assert row.replace("\\|", "").count("|") == 5


def test_markdown_says_what_is_not_complete() -> None:
    assert "| x:1 | the registry is away |" in markdown.render(report(incomplete=(GAP,)))


@pytest.mark.req("MF-045")
def test_csv_is_read_back() -> None:
    """RFC 4180 with a header row."""
    printed = csv.render(report(WEB.replace("name: web\n  name", 'name: "a,\\"b\\n"\n  name')))
    header, *rows = list(csv_module.reader(io.StringIO(printed, newline="")))
    assert tuple(header) == csv.HEADER
    found = dict(zip(header, rows[1], strict=True))
    assert (found["rule"], found["line"], found["name"], found["excess"]) == ("MA102", "16", 'a,"b ', "linux/s390x")
    assert printed.endswith("\r\n")


@pytest.mark.req("MF-042", "MF-045")
def test_no_form_has_what_a_terminal_would_obey() -> None:
    """Logs of CI are read in terminals, too."""
    evil = report(WEB.replace("name: web\n  name", 'name: "w\\e[2J\\x07"\n  name'))
    for form in (csv, github, junit, markdown):
        printed = form.render(evil)
        assert "w�[2J�" in printed.replace("\\", "")
        assert not {"\x1b", "\x07"} & set(printed)


@pytest.mark.req("MF-045")
def test_no_text_of_a_manifest_mentions_somebody_or_becomes_a_link_in_a_comment() -> None:
    """Who opens a pull request chooses the names in it."""
    evil = "@acme/all #1 ![x](https://x.example/y) www.x.example ~~y~~ &lt;"
    (row,) = [
        line
        for line in markdown.render(report(WEB.replace("name: web\n  name", f'name: "{evil}"\n  name'))).splitlines()
        if "MA102" in line
    ]
    assert "\\@acme/all \\#1 \\!\\[x\\](https\\://x.example/y) www\\.x.example \\~\\~y\\~\\~ \\&lt;" in row


@pytest.mark.req("MF-045")
def test_a_spreadsheet_takes_no_name_for_a_formula() -> None:
    printed = csv.render(report(WEB.replace("name: web\n  name", 'name: "=1+1"\n  name')))
    header, *rows = list(csv_module.reader(io.StringIO(printed, newline="")))
    assert {dict(zip(header, row, strict=True))["name"] for row in rows} == {"'=1+1"}


@pytest.mark.req("MF-041")
def test_the_same_report_gives_the_same_text() -> None:
    """In every form."""
    for form in (csv, github, junit, markdown):
        assert form.render(report()) == form.render(report())
