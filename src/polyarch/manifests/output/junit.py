"""JUnit XML for build servers: one suite per file, one case per object.

A case may have several failures. What could not be completed is an ``error`` in the suite of its file or, for an
image, in the suite ``images``. The counts are those of the elements.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from xml.etree import ElementTree as ET

from polyarch.manifests.finding import Finding, ObjectReference
from polyarch.manifests.output.text import place_of
from polyarch.manifests.report import Incomplete, Report

IMAGES = "images"


@dataclass
class _Case:
    name: str
    class_name: str
    failures: list[Finding] = field(default_factory=list)
    suppressed: list[Finding] = field(default_factory=list)
    errors: list[Incomplete] = field(default_factory=list)


def render(report: Report) -> str:
    suites = list(_suites(report))
    root = ET.Element("testsuites", {"name": "polyarch", **_counts(suites)})
    for file, cases in suites:
        suite = _element(root, "testsuite", name=file, **_counts([(file, cases)]))
        for case in cases:
            _write(case, _element(suite, "testcase", name=case.name, classname=case.class_name))
    ET.indent(root)
    return f'<?xml version="1.0" encoding="UTF-8"?>\n{ET.tostring(root, encoding="unicode")}\n'


def _suites(report: Report) -> Iterable[tuple[str, Sequence[_Case]]]:
    suites: dict[str, dict[str, _Case]] = {}
    for examined in report.files:
        cases = suites.setdefault(examined.file, {})
        for subject in examined.objects:
            _take(cases, examined.file, _name(subject))
    for finding in report.findings:
        if report.fails(finding):
            _take(suites.setdefault(finding.file, {}), finding.file, _case_name(finding)).failures.append(finding)
    for finding in report.suppressed:
        _take(suites.setdefault(finding.file, {}), finding.file, _case_name(finding)).suppressed.append(finding)
    for gap in report.incomplete:
        suite = gap.file or IMAGES
        _take(suites.setdefault(suite, {}), suite, gap.image or gap.file).errors.append(gap)
    for file in sorted(suites):
        if suites[file]:
            yield file, list(suites[file].values())


def _take(cases: dict[str, _Case], file: str, name: str) -> _Case:
    return cases.setdefault(name, _Case(name, file))


def _case_name(finding: Finding) -> str:
    return _name(finding.object) if finding.object.kind else finding.file


def _name(subject: ObjectReference) -> str:
    return "/".join((subject.kind or "object", subject.namespace, subject.name))


def _counts(suites: Iterable[tuple[str, Sequence[_Case]]]) -> dict[str, str]:
    cases = [case for _, each in suites for case in each]
    return {
        "tests": str(len(cases)),
        "failures": str(sum(len(case.failures) for case in cases)),
        "errors": str(sum(len(case.errors) for case in cases)),
        "skipped": str(sum(bool(_skips(case)) for case in cases)),
    }


def _skips(case: _Case) -> list[Finding]:
    """The suppressed findings of a case that has neither failures nor errors."""
    return case.suppressed if not case.failures and not case.errors else []


def _write(case: _Case, into: ET.Element) -> None:
    for finding in case.failures:
        failure = _element(into, "failure", message=finding.message, type=finding.rule)
        text = f"{place_of(finding)}: {finding.severity.value} {finding.rule} {finding.message}\n{finding.hint}"
        failure.text = _legal(text.rstrip())
    for gap in case.errors:
        _element(into, "error", message=gap.message, type="incomplete")
    if _skips(case):
        _element(into, "skipped", message="; ".join(f"{each.rule}: {each.suppressed}" for each in case.suppressed))


def _element(parent: ET.Element, tag: str, **attributes: str) -> ET.Element:
    return ET.SubElement(parent, tag, {name: _legal(text) for name, text in attributes.items()})


def _legal(text: str) -> str:
    """XML 1.0 has no control characters, not even escaped."""
    return "".join(each if (each >= " " and each not in "\ufffe\uffff") or each in "\t\n\r" else "�" for each in text)
