"""MA108: node labels with the prefix ``beta.``, in node selectors, required and preferred terms.

Pure.
"""

from collections.abc import Iterator, Sequence

from polyarch.kube.client.jsonpatch import pointer
from polyarch.manifests.finding import Repair, Severity
from polyarch.manifests.lint.facts import Draft, PodFacts, one_operation
from polyarch.manifests.lint.rule import Rule
from polyarch.manifests.operations import Rename, Replace
from polyarch.manifests.scan import sets
from polyarch.manifests.scan.pod_specs import Expression, LabelEntry, Term

RULE = Rule(
    id="MA108",
    severity=Severity.WARNING,
    title="A node label is deprecated",
    meaning="kubernetes.io/arch and kubernetes.io/os replace beta.kubernetes.io/arch and beta.kubernetes.io/os.",
    fix="Renames the key, unless both spellings are present.",
)


_BETA = "beta."


def check(facts: PodFacts) -> Iterator[Draft]:
    entries = facts.pod_spec.node_selector
    for entry in entries:
        if entry.key in sets.PLATFORM_KEYS and entry.key.startswith(_BETA):
            yield _selector_entry(facts, entry, entries)
    for term in facts.terms:
        for clause in term.expressions:
            if clause.key in sets.PLATFORM_KEYS and clause.key.startswith(_BETA):
                yield from _expression(facts, clause, term)


def _selector_entry(facts: PodFacts, entry: LabelEntry, entries: Sequence[LabelEntry]) -> Draft:
    key = entry.key.removeprefix(_BETA)
    both = any(other.key == key for other in entries)
    return Draft(
        rule=RULE,
        message=_message(facts, entry.key),
        hint=f"use {key}",
        node=entry.key_node,
        pointer=entry.pointer,
        repair=_both(facts) if both else one_operation(facts, Rename(entry.pointer, key)),
    )


def _expression(facts: PodFacts, clause: Expression, term: Term) -> Iterator[Draft]:
    key, where = clause.key.removeprefix(_BETA), clause.pointer + pointer("key")
    both = any(other.key == key for other in term.expressions)
    if clause.key_node is not None:
        yield Draft(
            rule=RULE,
            message=_message(facts, clause.key),
            hint=f"use {key}",
            node=clause.key_node,
            pointer=where,
            repair=_both(facts) if both else one_operation(facts, Replace(where, key)),
        )


def _message(facts: PodFacts, key: str) -> str:
    return f"{facts.subject} uses the node label {key}, which is deprecated"


def _both(facts: PodFacts) -> Repair:
    note = "both spellings are present; remove one of them"
    return Repair((), note=note, document=facts.pod_spec.document.index)
