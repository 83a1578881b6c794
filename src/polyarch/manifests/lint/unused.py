"""Platforms that every image supports and the pod excludes: MA103, and MA109 where a node selector does it.

Only what an *architecture* constraint excludes is unused: that a pod for linux does not run an image's windows entry is
no loss.

Pure.
"""

from collections.abc import Iterator

from polyarch.manifests.lint.architectures import architecture_place, platform_sets
from polyarch.manifests.lint.facts import Draft, PodFacts, Refused, needs_flag, repair
from polyarch.manifests.lint.replacing import without_entries
from polyarch.manifests.lint.terms import non_empty, restrict
from polyarch.manifests.operations import Add, TreeOperation
from polyarch.manifests.scan import sets
from polyarch.manifests.scan.sets import listed, meant_architecture
from polyarch.platforms import NodePlatform


def check(facts: PodFacts) -> Iterator[Draft]:
    """MA109 where the node selector alone names architectures, else MA103; both need an exact P."""
    unused = _unused(facts)
    if not unused:
        return
    selector_only = bool(facts.selector_architectures) and not facts.architecture_expressions
    node, where = architecture_place(facts, ())
    if selector_only:
        entry = facts.selector_architectures[0]
        message = (
            f"{facts.subject} asks for {entry.key} {entry.value} in nodeSelector, "
            f"but its images also support {listed(unused)}"
        )
        hint = "nodeSelector can name one architecture; node affinity can name all (polyarch fix --widen)"
    else:
        message = f"{facts.subject} leaves out {listed(unused)}, which its images support"
        hint = "add the architectures unless they are left out on purpose (polyarch fix --widen)"
    write = _moved if selector_only else _widened
    yield Draft(
        rule="MA109" if selector_only else "MA103",
        message=message,
        hint=hint,
        node=node,
        pointer=where,
        platforms=platform_sets(facts, missing=unused),
        repair=repair(facts, lambda: write(facts))
        if facts.options.fixes.widen
        else needs_flag(facts, "--widen", "lets it run on every platform that its images support"),
    )


def _unused(facts: PodFacts) -> frozenset[NodePlatform]:
    platforms = facts.platforms
    if not facts.has_architectures or not facts.supported.exact or platforms.is_everything:
        return frozenset()
    useful = frozenset(platforms) & facts.universe
    if not useful & facts.admitted:  # MA104 or MA105 says more
        return frozenset()
    free = facts.constraints.without_architectures()
    return frozenset(each for each in useful - facts.admitted if free.admits(each))


def _widened(facts: PodFacts) -> list[TreeOperation]:
    """The missing architectures at the end of the In lists; what NotIn excludes is excluded on purpose."""
    if facts.selector_architectures:
        raise Refused("its nodeSelector names an architecture, too; take that out first")
    unused = _unused(facts) & facts.target.platforms
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
        raise Refused("they are excluded by another operator than In, which is taken as meant")
    return operations


def _moved(facts: PodFacts) -> list[TreeOperation]:
    """The node selector's architecture as node affinity with every architecture."""
    entries = facts.selector_architectures
    others = [clause for clause in facts.constraints.selector if clause.key not in sets.ARCHITECTURE_KEYS]
    return [*restrict(facts, selector=others), *without_entries(facts, entries)]
