"""MA111: preferred terms that are invalid or have no effect.

Pure.
"""

import re
from collections.abc import Iterator
from typing import Any

from polyarch.manifests.finding import Severity
from polyarch.manifests.lint.facts import Draft, PodFacts, Refused, repair
from polyarch.manifests.lint.rule import Rule
from polyarch.manifests.operations import Add, Remove, Replace, TreeOperation
from polyarch.manifests.scan import sets
from polyarch.manifests.scan.nodes import get, is_null, value
from polyarch.manifests.scan.pod_specs import Expression, PreferredTerm
from polyarch.manifests.scan.sets import meant_architecture
from polyarch.platforms import KNOWN_ARCHITECTURES

RULE = Rule(
    id="MA111",
    severity=Severity.ERROR,
    title="A preferred node affinity term is invalid or has no effect",
    meaning="The weight is missing or not between 1 and 100 (weight); expressions are beside preference instead of in "
    "it (shape); it prefers an architecture that the images lack (unsupported, a warning).",
    fix="Clamps the weight, sets 1 if it is missing; moves the expressions into preference, with weight 50 if "
    "there is none; removes unsupported values.",
    subs=("weight", "shape", "unsupported"),
)

WRAPPED_WEIGHT = 50
"""Weight for expressions without one: the middle of the range."""

_INTEGER = re.compile(r"[+-]?[0-9]{1,9}", re.ASCII)


def check(facts: PodFacts) -> Iterator[Draft]:
    for term in facts.pod_spec.preferred:
        if term.bare is not None:
            yield _shape(facts, term)
        if (term.bare is None or term.weight is not None) and not _is_weight(term):
            yield _weight(facts, term)
        yield from _unsupported(facts, term)


def _is_weight(term: PreferredTerm) -> bool:
    weight = None if term.weight_node is None else value(term.weight_node)
    return type(weight) is int and 1 <= weight <= 100


def _shape(facts: PodFacts, term: PreferredTerm) -> Draft:
    def write() -> Iterator[TreeOperation]:
        facts.check_editable()
        if term.preference is not None:
            raise Refused("it has a preference, too; merge the two by hand")
        keys = [key for key in ("matchExpressions", "matchFields") if get(term.node, key) is not None]
        members: dict[str, Any] = {key: value(node) for key in keys if (node := get(term.node, key)) is not None}
        yield Add(f"{term.pointer}/preference", members)
        yield from (Remove(f"{term.pointer}/{key}") for key in keys)
        if term.weight_node is None:
            yield Add(f"{term.pointer}/weight", WRAPPED_WEIGHT)
        elif is_null(term.weight_node):
            yield Replace(f"{term.pointer}/weight", WRAPPED_WEIGHT)

    return Draft(
        rule=RULE,
        sub="shape",
        message=f"{facts.subject} has a preferred node affinity term with its expressions beside preference, "
        "so the API server refuses it",
        hint="put matchExpressions into preference, and give a weight from 1 to 100",
        node=term.node,
        pointer=term.pointer,
        repair=repair(facts, write),
    )


def _weight(facts: PodFacts, term: PreferredTerm) -> Draft:
    where = f"{term.pointer}/weight"

    def write() -> Iterator[TreeOperation]:
        facts.check_editable()
        if term.weight_node is None:
            yield Add(where, 1)
        elif term.weight is None:
            yield Replace(where, 1)
        elif _INTEGER.fullmatch(term.weight):
            yield Replace(where, min(max(int(term.weight), 1), 100))
        else:
            raise Refused(f"{term.weight!r} is not a number; write one from 1 to 100")

    missing = term.weight is None
    return Draft(
        rule=RULE,
        sub="weight",
        message=f"{facts.subject} has a preferred node affinity term "
        + ("without a weight" if missing else f"with weight {term.weight}, which is not from 1 to 100"),
        hint="give a weight from 1 to 100",
        node=term.weight_node or term.node,
        pointer=term.pointer if term.weight_node is None else where,
        repair=repair(facts, write),
    )


def _unsupported(facts: PodFacts, term: PreferredTerm) -> Iterator[Draft]:
    if term.preference is None or facts.platforms.is_everything or not facts.platforms:
        return
    supported = facts.platforms.architectures()
    found = [
        (clause, place)
        for clause in term.preference.expressions
        if clause.key in sets.ARCHITECTURE_KEYS and clause.operator == "In"
        for place, text in enumerate(clause.values)
        if (meant := meant_architecture(text)) in KNOWN_ARCHITECTURES and meant not in supported
    ]
    if not found:
        return
    architectures = ", ".join(sorted({meant_architecture(clause.values[place]) for clause, place in found}))
    first, place = found[0]
    yield Draft(
        rule=RULE,
        sub="unsupported",
        severity=Severity.WARNING,
        message=f"{facts.subject} prefers {architectures}, which its images do not support",
        hint=f"they support {', '.join(supported)}",
        node=first.value_nodes[place],
        pointer=f"{first.pointer}/values/{place}",
        repair=repair(facts, lambda: _dropped(facts, term, found)),
    )


def _dropped(facts: PodFacts, term: PreferredTerm, found: list[tuple[Expression, int]]) -> list[TreeOperation]:
    """Removes the values; the term if its list would be empty; the list of terms if it would be empty."""
    _ = facts.target  # raises unless P is known
    for clause in {id(clause): clause for clause, _ in found}.values():
        if sum(other is clause for other, _ in found) == len(clause.values):
            only = len(facts.pod_spec.preferred) == 1
            return [Remove(term.pointer.rpartition("/")[0] if only else term.pointer)]
    return [Remove(f"{clause.pointer}/values/{place}") for clause, place in reversed(found)]
