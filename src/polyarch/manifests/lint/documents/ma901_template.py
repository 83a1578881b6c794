"""MA901: a template that must be rendered to become YAML (MF-013).

Pure.
"""

from collections.abc import Iterator

from polyarch.manifests.finding import Finding, Severity
from polyarch.manifests.lint.rule import Rule
from polyarch.manifests.scan.scanning import Scan

RULE = Rule(
    id="MA901",
    severity=Severity.INFO,
    title="A file is a template",
    meaning="The file is a template, not plain YAML, and is not checked. Render it first.",
)


def check(scan: Scan) -> Iterator[Finding]:
    if scan.template is not None:
        yield Finding(
            rule=RULE.id,
            severity=RULE.severity,
            message=f"{scan.source.path} is a template, not plain YAML, and was not checked",
            hint="render it first, for example: helm template CHART | polyarch lint -",
            file=scan.source.path,
            span=scan.source.span(scan.template, scan.template + 2),
        )
