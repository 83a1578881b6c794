"""MA107: node affinity terms do not mean what they seem to.

Pure.
"""

from polyarch.manifests.finding import Severity
from polyarch.manifests.lint.constraints.wording import platform_sets, shortfalls, supported_architectures
from polyarch.manifests.lint.facts import Draft, PodFacts, repair
from polyarch.manifests.lint.rule import Rule
from polyarch.manifests.lint.writing.terms import restrict
from polyarch.manifests.scan import sets
from polyarch.manifests.scan.pod_specs import Required, Term
from polyarch.manifests.scan.sets import listed

RULE = Rule(
    id="MA107",
    severity=Severity.ERROR,
    title="Node affinity terms do not mean what they seem to",
    meaning="Terms are alternatives. A term without an architecture expression, beside terms with one, admits every "
    "architecture (mixed); an empty term matches no node (empty-term, a warning unless all are empty); without "
    "any term the API server refuses the pod (no-terms).",
    fix="mixed: adds the expressions to the terms without. no-terms: adds a term.",
    subs=("mixed", "empty-term", "no-terms"),
)


def mixed(facts: PodFacts, without: tuple[Term, ...]) -> Draft:
    indexes = [term.pointer.rpartition("/")[2] for term in without]
    which = f"term {indexes[0]} has" if len(indexes) == 1 else f"terms {', '.join(indexes)} have"
    reason, images = shortfalls(facts, facts.excess)
    chosen = {term.pointer for term in without}
    return Draft(
        rule=RULE,
        sub="mixed",
        message=f"{facts.subject} requires architectures in some node affinity terms, but {which} none "
        f"and so {listed(facts.excess)} is admitted, while {reason}",
        hint="terms are alternatives: each needs the architecture expression",
        node=without[0].node,
        pointer=without[0].pointer,
        images=images,
        platforms=platform_sets(facts),
        repair=repair(facts, lambda: restrict(facts, only=lambda term: term.pointer in chosen)),
    )


def empty_term(facts: PodFacts, term: Term, *, every: bool) -> Draft:
    index = term.pointer.rpartition("/")[2]
    effect = "so no node at all matches" if every else "so it has no effect"
    return Draft(
        rule=RULE,
        sub="empty-term",
        severity=Severity.ERROR if every else Severity.WARNING,
        message=f"{facts.subject} has an empty node affinity term (term {index}), which matches nothing, {effect}",
        hint="remove the term, or write its expressions",
        node=term.node,
        pointer=term.pointer,
        platforms=platform_sets(facts),
    )


def no_terms(facts: PodFacts, required: Required) -> Draft:
    return Draft(
        rule=RULE,
        sub="no-terms",
        severity=Severity.ERROR,
        message=f"{facts.subject} requires node affinity without any nodeSelectorTerms; the API server refuses it",
        hint=f"add a term, for example kubernetes.io/arch in {supported_architectures(facts)}",
        node=required.terms_node or required.node,
        pointer=required.terms_pointer if required.terms_node is not None else required.pointer,
        platforms=platform_sets(facts),
        repair=repair(facts, lambda: restrict(facts)),
    )


def terms_without_architecture(facts: PodFacts) -> tuple[Term, ...]:
    """The terms without an architecture, if others have one and the node selector has none."""
    required = facts.pod_spec.required
    if required is None or facts.selector_architectures:
        return ()
    terms = [term for term in required.terms if not term.is_empty]
    without = [term for term in terms if not any(map(sets.is_architecture_constraint, term.expressions))]
    return tuple(without) if len(without) < len(terms) else ()
