"""MA904: an edit whose result could not be verified (MF-054).

Pure.
"""

from polyarch.manifests.finding import NO_OBJECT, Finding, Severity, fingerprint
from polyarch.manifests.lint.rule import Rule
from polyarch.manifests.scan.text import SourceText

RULE = Rule(
    id="MA904",
    severity=Severity.ERROR,
    title="An edit could not be verified",
    meaning="The edited text does not parse to the intended objects. The file was left unchanged; please report it.",
)


def unproven(source: SourceText, problem: str) -> Finding:
    """The finding for a file left unchanged; ``problem`` says why verification failed."""
    return Finding(
        rule=RULE.id,
        severity=RULE.severity,
        message=f"{source.path} was left unchanged, because its edit could not be verified: {problem}",
        hint="edit it by hand, and please report this with the file",
        file=source.path,
        span=source.span(0, 0),
        fingerprint=fingerprint(RULE.id, "", subject=NO_OBJECT, file=source.path, document=0, named_path=""),
    )
