"""Runs the rules for build files and code (MA3xx) over one file.

Pure.
"""

from polyarch.manifests.finding import NO_OBJECT, Finding, Repair, fingerprint
from polyarch.manifests.lint.catalogue import SOURCE_RULES
from polyarch.manifests.lint.engine import Problem, selected
from polyarch.manifests.lint.options import LintOptions
from polyarch.manifests.lint.sources.source_kinds import Hit
from polyarch.manifests.scan.sets import Answers
from polyarch.manifests.scan.text import SourceText


def lint_source(source: SourceText, answers: Answers, options: LintOptions = LintOptions()) -> tuple[Problem, ...]:  # noqa: B008 - frozen
    """The findings of one build file or Go file, in order; repairs are edits of its text."""
    return tuple(
        _problem(source, hit, options)
        for rule in SOURCE_RULES
        if selected(options, rule.RULE.id)
        for hit in rule.check(source, answers, options)
    )


def _problem(source: SourceText, hit: Hit, options: LintOptions) -> Problem:
    rule = hit.rule
    span = source.span(hit.start, hit.end)
    finding = Finding(
        rule=rule.id,
        severity=options.severity(rule.id, rule.severity),
        message=hit.message,
        hint=hit.hint,
        file=source.path,
        span=span,
        images=hit.images,
        fixable=bool(hit.edits),
        fingerprint=_mark(source, hit),
        upstream=rule.upstream,
    )
    return Problem(finding, Repair((), note=hit.note) if hit.note else None, edits=hit.edits)


def _mark(source: SourceText, hit: Hit) -> str:
    """Fingerprint by the text of the line, which stays the same while other lines move."""
    line = source.text[source.line_start(hit.start) : source.line_end(hit.start)].strip()
    return fingerprint(
        hit.rule.id, "", subject=NO_OBJECT, file=source.path, document=0, named_path=line, images=hit.images
    )
