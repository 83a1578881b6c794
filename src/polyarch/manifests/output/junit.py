"""JUnit XML, which every build server reads (MF-045): a suite for each file, a case for each object.

A case may have several failures. What could not be completed is an ``error``, in the suite of its file or, for an
image, in the suite ``images``. The counts are those of the elements.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from xml.sax.saxutils import escape, quoteattr

from polyarch.manifests.finding import Finding, ObjectReference
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
    lines = ['<?xml version="1.0" encoding="UTF-8"?>', f'<testsuites name="polyarch" {_counts(suites)}>']
    for file, cases in suites:
        lines.append(f"  <testsuite name={_attribute(file)} {_counts([(file, cases)])}>")
        for case in cases:
            lines += _case(case)
        lines.append("  </testsuite>")
    lines.append("</testsuites>")
    return "".join(f"{line}\n" for line in lines)


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


def _counts(suites: Iterable[tuple[str, Sequence[_Case]]]) -> str:
    cases = [case for _, each in suites for case in each]
    return (
        f'tests="{len(cases)}" failures="{sum(len(case.failures) for case in cases)}" '
        f'errors="{sum(len(case.errors) for case in cases)}" skipped="{sum(bool(_skips(case)) for case in cases)}"'
    )


def _skips(case: _Case) -> list[Finding]:
    """A case is skipped only where nothing else is to be said of it."""
    return case.suppressed if not case.failures and not case.errors else []


def _case(case: _Case) -> Iterable[str]:
    head = f"    <testcase name={_attribute(case.name)} classname={_attribute(case.class_name)}"
    inner = [*map(_failure, case.failures), *map(_error, case.errors)]
    if _skips(case):
        reasons = "; ".join(f"{finding.rule}: {finding.suppressed}" for finding in case.suppressed)
        inner.append(f"      <skipped message={_attribute(reasons)}/>")
    if not inner:
        return [f"{head}/>"]
    return [f"{head}>", *inner, "    </testcase>"]


def _failure(finding: Finding) -> str:
    place = f"{finding.file}:{finding.span.line}:{finding.span.column}"
    body = f"{place}: {finding.severity.value} {finding.rule} {finding.message}\n{finding.hint}".rstrip()
    attributes = f"message={_attribute(finding.message)} type={_attribute(finding.rule)}"
    return f"      <failure {attributes}>{escape(_legal(body))}</failure>"


def _error(gap: Incomplete) -> str:
    return f'      <error message={_attribute(gap.message)} type="incomplete"/>'


def _attribute(text: str) -> str:
    return quoteattr(_legal(text), {"\n": "&#10;", "\r": "&#13;", "\t": "&#9;"})


def _legal(text: str) -> str:
    """XML 1.0 has no control characters, not even escaped."""
    return "".join(each if (each >= " " and each not in "\ufffe\uffff") or each in "\t\n\r" else "�" for each in text)
