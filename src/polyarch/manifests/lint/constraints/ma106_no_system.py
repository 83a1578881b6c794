"""MA106: a pod requires an architecture but no operating system.

Pure.
"""

from collections.abc import Iterator

from polyarch.manifests.finding import Severity
from polyarch.manifests.lint.constraints.wording import architecture_place, platform_sets
from polyarch.manifests.lint.facts import Draft, PodFacts, repair
from polyarch.manifests.lint.rule import Rule
from polyarch.manifests.lint.writing.terms import add_systems, non_empty
from polyarch.manifests.scan import sets

RULE = Rule(
    id="MA106",
    severity=Severity.INFO,
    title="A pod requires an architecture but no operating system",
    meaning="kubernetes.io/arch does not imply an operating system: windows nodes are amd64, too. A warning if nodes "
    "may have another system than linux.",
    fix="Adds an In expression for kubernetes.io/os to each term.",
)


def check(facts: PodFacts) -> Iterator[Draft]:
    unsaid = facts.has_architectures and not facts.selector_systems and not facts.supported.neutral
    if unsaid and not facts.pod_spec.is_patch:
        terms = non_empty(facts)
        if not terms or not all(any(map(sets.is_os_constraint, term.expressions)) for term in terms):
            yield _without_system(facts)


def _without_system(facts: PodFacts) -> Draft:
    platforms = facts.platforms
    systems = "linux" if platforms.is_everything or not platforms else ", ".join(platforms.systems())
    mixed = any(each.os != "linux" for each in facts.universe)
    node, where = architecture_place(facts, ())
    return Draft(
        rule=RULE,
        severity=Severity.WARNING if mixed else None,
        message=f"{facts.subject} requires an architecture but no operating system",
        hint=f"also require kubernetes.io/os in {systems}",
        node=node,
        pointer=where,
        platforms=platform_sets(facts),
        repair=repair(facts, lambda: add_systems(facts)),
    )
