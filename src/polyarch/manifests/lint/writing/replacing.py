"""Operations for ``--replace``: other architectures for a pod that can run nowhere (MF-052, MA104).

Pure.
"""

from polyarch.manifests.lint.facts import PodFacts, Refused
from polyarch.manifests.lint.writing.terms import extend, non_empty, restrict
from polyarch.manifests.operations import Add, Remove, Replace, TreeOperation, apply, read
from polyarch.manifests.scan import sets
from polyarch.manifests.scan.pod_specs import Expression, LabelEntry, Term


def replace(facts: PodFacts) -> tuple[TreeOperation, ...]:
    """Replaces the required architectures with those of the target; raises :class:`Refused` if another constraint (an
    operating system, an exclusion) still keeps the images from running.
    """
    others = [
        clause
        for clause in facts.constraints.selector
        if clause.key not in sets.ARCHITECTURE_KEYS and clause.key in sets.PLATFORM_KEYS
    ]
    usable = frozenset(each for each in facts.target.platforms if all(sets.holds(clause, each) for clause in others))
    if not usable:
        raise Refused("its node selector requires an operating system for which the images have no common platform")
    cluster = frozenset(facts.options.platforms)
    if cluster and not usable & cluster:
        raise Refused("the cluster has no platform that all images support")
    operations: list[TreeOperation] = []
    for term in non_empty(facts):
        systems = [clause for clause in term.expressions if clause.key in sets.OS_KEYS]
        possible = [each for each in usable if all(sets.holds(clause, each) for clause in systems)]
        wanted = sorted({each.architecture for each in possible or usable})
        for clause in term.expressions:
            if clause.key in sets.ARCHITECTURE_KEYS and clause.operator == "In":
                operations += _values(clause, wanted)
    entries = facts.selector_architectures
    architectures = sorted({each.architecture for each in usable})
    if entries and len(architectures) == 1:
        operations += [Replace(entry.pointer, architectures[0]) for entry in entries]
    elif entries:
        operations += restrict(facts, only=_says_nothing_of_architectures, selector=others)
        operations += without_entries(facts, entries)
    after = apply(facts.pod_spec.document.value, operations)
    then = sets.constraints_of(read(after, facts.pod_spec.pointer))
    admitted = sets.admitted(then, facts.target.considered)
    if not operations or not admitted & usable & (cluster or usable):
        raise Refused("what it excludes or requires besides architectures leaves no platform that all images support")
    return tuple(operations)


def _says_nothing_of_architectures(term: Term) -> bool:
    return not any(map(sets.is_architecture_constraint, term.expressions))


def without_entries(facts: PodFacts, entries: tuple[LabelEntry, ...]) -> list[TreeOperation]:
    """Removes entries of the node selector, or the whole node selector if it would be empty."""
    if len(entries) == len(facts.pod_spec.node_selector):
        return [Remove(entries[0].pointer.rpartition("/")[0])]
    return [Remove(entry.pointer) for entry in entries]


def _values(clause: Expression, wanted: list[str]) -> list[TreeOperation]:
    """Value by value, so that comments beside the values stay."""
    where, count = f"{clause.pointer}/values", len(clause.values)
    if not count:  # nothing, or something else than a list
        return extend(clause.values_node, where, list(wanted))
    operations: list[TreeOperation] = [
        Replace(f"{where}/{index}", each) for index, each in enumerate(wanted[:count]) if each != clause.values[index]
    ]
    operations += [Add(f"{where}/-", each) for each in wanted[count:]]
    operations += [Remove(f"{where}/{index}") for index in range(count - 1, len(wanted) - 1, -1)]
    return operations
