"""MA112: a pod lacks a preference that the configuration asks for.

Pure.
"""

from collections.abc import Iterator
from typing import Any

from polyarch.manifests.finding import Repair, Severity
from polyarch.manifests.lint.facts import Draft, PodFacts, needs_flag, repair
from polyarch.manifests.lint.rule import Rule
from polyarch.manifests.lint.writing.terms import expression, in_node_affinity
from polyarch.manifests.operations import TreeOperation
from polyarch.manifests.scan import sets
from polyarch.manifests.scan.pod_specs import PREFERRED
from polyarch.manifests.scan.sets import ARCHITECTURE_KEY, meant_architecture
from polyarch.selectors import Requirement

RULE = Rule(
    id="MA112",
    severity=Severity.INFO,
    title="A configured preference is missing",
    meaning="The configuration prefers an architecture, the images support it, and no preferred term names it.",
    fix="Adds a preferred term with the configured weight.",
    flag="--prefer",
    default=False,
)


def check(facts: PodFacts) -> Iterator[Draft]:
    prefer = facts.options.prefer
    if not prefer or facts.platforms.is_everything or not facts.supported.exact:
        return
    usable = {each.architecture for each in facts.admitted if each in facts.platforms}
    option = f"--prefer {','.join(f'{architecture}={weight}' for architecture, weight in prefer.items())}"
    for architecture, weight in prefer.items():
        if architecture not in usable or architecture in _preferred(facts):
            continue
        term = {
            "weight": weight,
            "preference": {"matchExpressions": [expression(Requirement(ARCHITECTURE_KEY, "In", (architecture,)))]},
        }
        yield Draft(
            rule=RULE,
            message=f"{facts.subject} does not prefer {architecture}, which the configuration prefers "
            f"with weight {weight}",
            hint=f"add a preferred term for kubernetes.io/arch {architecture} (polyarch fix {option})",
            node=facts.pod_spec.node,
            pointer=facts.pod_spec.pointer,
            repair=_added(facts, term)
            if facts.options.fixes.prefer
            else needs_flag(facts, option, "adds the preferred term"),
        )


def _added(facts: PodFacts, term: dict[str, Any]) -> Repair:
    def write() -> list[TreeOperation]:
        facts.check_editable()
        return in_node_affinity(facts, (PREFERRED,), [term])

    return repair(facts, write)


def _preferred(facts: PodFacts) -> set[str]:
    return {
        meant_architecture(text)
        for term in facts.pod_spec.preferred
        for part in (term.preference, term.bare)
        if part is not None
        for clause in part.expressions
        if clause.key in sets.ARCHITECTURE_KEYS and clause.operator == "In"
        for text in clause.values
    }
