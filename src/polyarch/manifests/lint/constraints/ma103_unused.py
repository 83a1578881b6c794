"""MA103: an architecture constraint excludes platforms that every image supports.

A linux pod that cannot use the windows entry of an image loses nothing. MA109 reports the pods whose node selector
alone names an architecture.

Pure.
"""

from collections.abc import Callable, Iterable, Iterator

from polyarch.manifests.finding import Repair, Severity
from polyarch.manifests.lint.constraints.wording import architecture_place, platform_sets
from polyarch.manifests.lint.facts import Draft, PodFacts, Refused, needs_flag, repair
from polyarch.manifests.lint.rule import Rule
from polyarch.manifests.lint.writing.terms import non_empty
from polyarch.manifests.operations import Add, TreeOperation
from polyarch.manifests.scan import sets
from polyarch.manifests.scan.sets import listed, meant_architecture
from polyarch.platforms import NodePlatform

RULE = Rule(
    id="MA103",
    severity=Severity.INFO,
    title="A pod excludes platforms that its images support",
    meaning="The architecture constraints exclude a platform that nodes may have and every image supports.",
    fix="Adds the missing architectures to the In lists.",
    flag="--widen",
)


def check(facts: PodFacts) -> Iterator[Draft]:
    """Needs an exact P."""
    unused = unused_platforms(facts)
    if unused and not only_in_selector(facts):
        message = f"{facts.subject} excludes {listed(unused)}, which its images support"
        hint = "add the architectures, unless they are excluded on purpose (polyarch fix --widen)"
        node, where = architecture_place(facts, ())
        yield Draft(
            rule=RULE,
            message=message,
            hint=hint,
            node=node,
            pointer=where,
            platforms=platform_sets(facts, missing=unused),
            repair=widening(facts, _widened),
        )


def only_in_selector(facts: PodFacts) -> bool:
    """Whether the node selector alone names architectures."""
    return bool(facts.selector_architectures) and not facts.architecture_expressions


def widening(facts: PodFacts, write: Callable[[PodFacts], Iterable[TreeOperation]]) -> Repair:
    """A repair that needs ``--widen``."""
    if facts.options.fixes.widen:
        return repair(facts, lambda: write(facts))
    return needs_flag(facts, "--widen", "adds every platform that its images support")


def unused_platforms(facts: PodFacts) -> frozenset[NodePlatform]:
    platforms = facts.platforms
    if not facts.has_architectures or not facts.supported.exact or platforms.is_everything:
        return frozenset()
    useful = frozenset(platforms) & facts.universe
    if not useful & facts.admitted:  # MA104 or MA105 says more
        return frozenset()
    free = facts.constraints.without_architectures()
    return frozenset(each for each in useful - facts.admitted if free.admits(each))


def _widened(facts: PodFacts) -> list[TreeOperation]:
    """Adds the missing architectures to the In lists; what NotIn excludes is taken as intended."""
    if facts.selector_architectures:
        raise Refused("its nodeSelector names an architecture, too; remove that first")
    unused = unused_platforms(facts) & facts.target.platforms
    operations: list[TreeOperation] = []
    for term in non_empty(facts):
        constraints = [clause for clause in term.expressions if sets.is_architecture_constraint(clause)]
        if any(clause.operator != "In" for clause in constraints):
            continue
        others = [clause for clause in term.expressions if clause.key in sets.OS_KEYS]
        wanted = sorted({each.architecture for each in unused if all(sets.holds(clause, each) for clause in others)})
        for clause in constraints:
            known = set(map(meant_architecture, clause.values))
            operations += [Add(f"{clause.pointer}/values/-", each) for each in wanted if each not in known]
    if not operations:
        raise Refused("they are excluded by another operator than In, which is taken as intended")
    return operations
