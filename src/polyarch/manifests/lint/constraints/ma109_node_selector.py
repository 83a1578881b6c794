"""MA109: as MA103, for a node selector, which can name one architecture only.

Pure.
"""

from collections.abc import Iterator

from polyarch.manifests.finding import Severity
from polyarch.manifests.lint.constraints.ma103_unused import only_in_selector, unused_platforms, widening
from polyarch.manifests.lint.constraints.wording import architecture_place, platform_sets
from polyarch.manifests.lint.facts import Draft, PodFacts
from polyarch.manifests.lint.rule import Rule
from polyarch.manifests.lint.writing.replacing import without_entries
from polyarch.manifests.lint.writing.terms import restrict
from polyarch.manifests.operations import TreeOperation
from polyarch.manifests.scan import sets
from polyarch.manifests.scan.sets import listed

RULE = Rule(
    id="MA109",
    severity=Severity.INFO,
    title="A node selector excludes platforms that the images support",
    meaning="As MA103, for a pod whose nodeSelector alone names the architecture. nodeSelector can name one "
    "architecture; node affinity can name several.",
    fix="Replaces the nodeSelector entry with required node affinity for every supported architecture.",
    flag="--widen",
)


def check(facts: PodFacts) -> Iterator[Draft]:
    """Needs an exact P."""
    unused = unused_platforms(facts)
    if unused and only_in_selector(facts):
        entry = facts.selector_architectures[0]
        node, where = architecture_place(facts, ())
        yield Draft(
            rule=RULE,
            message=f"{facts.subject} requires {entry.key} {entry.value} in nodeSelector, "
            f"but its images also support {listed(unused)}",
            hint="nodeSelector can name one architecture; node affinity can name all (polyarch fix --widen)",
            node=node,
            pointer=where,
            platforms=platform_sets(facts, missing=unused),
            repair=widening(facts, _moved),
        )


def _moved(facts: PodFacts) -> list[TreeOperation]:
    """The node selector's architecture as node affinity with every architecture."""
    entries = facts.selector_architectures
    others = [clause for clause in facts.constraints.selector if clause.key not in sets.ARCHITECTURE_KEYS]
    return [*restrict(facts, selector=others), *without_entries(facts, entries)]
