"""MA303: Go code creates pods without node affinity.

Pure.
"""

from collections.abc import Iterator

from polyarch.manifests.finding import Severity
from polyarch.manifests.lint.options import LintOptions
from polyarch.manifests.lint.rule import Rule
from polyarch.manifests.lint.sources.source_kinds import Hit, is_go
from polyarch.manifests.scan.sets import Answers
from polyarch.manifests.scan.text import SourceText

RULE = Rule(
    id="MA303",
    severity=Severity.INFO,
    title="Go code creates pods without node affinity",
    meaning="A Go file constructs a PodSpec but no NodeAffinity, so the pods that it creates can land anywhere.",
    default=False,
)


def check(source: SourceText, answers: Answers, options: LintOptions) -> Iterator[Hit]:
    if not is_go(source.path) or source.path.endswith("_test.go") or "NodeAffinity" in source.text:
        return
    at = source.text.find("PodSpec{")
    if at >= 0:
        yield Hit(
            RULE,
            at,
            at + len("PodSpec{"),
            f"{source.path} constructs a PodSpec without node affinity, so its pods can land "
            "where their images do not run",
            "require the architectures that the images support, as in the operator's own deployment",
        )
