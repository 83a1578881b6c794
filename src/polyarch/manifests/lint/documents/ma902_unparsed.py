"""MA902: a file does not parse, or a key that matters is duplicated.

Pure.
"""

from collections.abc import Iterator

from polyarch.manifests.finding import Finding, Severity
from polyarch.manifests.lint.rule import Rule
from polyarch.manifests.scan.scanning import Duplicate, Scan

RULE = Rule(
    id="MA902",
    severity=Severity.ERROR,
    title="A file does not parse",
    meaning="The text is not valid YAML (syntax), or a key that matters is duplicated (duplicate-key).",
    subs=("syntax", "duplicate-key"),
)


def check(scan: Scan) -> Iterator[Finding]:
    source, problem = scan.source, scan.syntax
    if problem is not None:
        yield Finding(
            rule=RULE.id,
            sub="syntax",
            severity=RULE.severity,
            message=f"{source.path} does not parse as YAML: {problem}",
            hint="correct the text here; nothing else in the file was checked",
            file=source.path,
            span=source.span(problem.offset, problem.offset),
        )
    yield from dict.fromkeys(map(_duplicate, scan.duplicates))


def _duplicate(found: Duplicate) -> Finding:
    subject, document = found.object, found.object.document
    span = document.span(found.node)
    return Finding(
        rule=RULE.id,
        sub="duplicate-key",
        severity=RULE.severity,
        message=f"{subject.reference} has the key {found.key} twice, again at line "
        f"{span.line}, column {span.column}; parsers disagree about which one counts",
        hint="remove one of the two",
        file=document.source.path,
        span=span,
        object=subject.reference,
        path=found.pointer,
        document=document.index,
        origin=subject.origin,
    )
