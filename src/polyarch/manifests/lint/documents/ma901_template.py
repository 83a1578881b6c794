"""MA901: texts that are not plain YAML but have to be rendered first (MF-013).

Pure.
"""

from collections.abc import Iterator

from polyarch.manifests.finding import Finding, Severity
from polyarch.manifests.lint.rule import Rule
from polyarch.manifests.scan.scanning import Scan

RULE = Rule(
    id="MA901",
    severity=Severity.INFO,
    title="A template",
    meaning="The file is no plain YAML but a template; nothing in it is looked at, since guessing would be wrong.",
)


def check(scan: Scan) -> Iterator[Finding]:
    if scan.template is not None:
        yield Finding(
            rule=RULE.id,
            severity=RULE.severity,
            message=f"{scan.source.path} is a template, not plain YAML, and was not looked at",
            hint="render it first, for example: helm template CHART | polyarch lint -",
            file=scan.source.path,
            span=scan.source.span(scan.template, scan.template + 2),
        )
