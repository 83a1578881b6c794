"""MA903: suppressions and baseline entries that match nothing.

``lint.suppression`` and ``baseline`` find them; both report them with this rule.

Pure.
"""

from polyarch.manifests.finding import NO_OBJECT, Finding, ObjectReference, Severity, Span, fingerprint
from polyarch.manifests.lint.rule import Rule

RULE = Rule(
    id="MA903",
    severity=Severity.INFO,
    title="A suppression matches nothing",
    meaning="A comment, an annotation or a baseline entry suppresses a finding that does not exist.",
)


def unmatched(
    message: str,
    hint: str,
    *,
    file: str,
    span: Span,
    mark: str,
    object: ObjectReference = NO_OBJECT,
    path: str = "",
    document: int = 0,
) -> Finding:
    """The finding; ``mark`` distinguishes its fingerprint from others of the file (MF-033)."""
    return Finding(
        rule=RULE.id,
        severity=RULE.severity,
        message=message,
        hint=hint,
        file=file,
        span=span,
        object=object,
        path=path,
        document=document,
        fingerprint=fingerprint(RULE.id, mark, subject=object, file=file, document=document, named_path=path),
    )
