"""MA108: node labels with the prefix ``beta.``, in node selectors, required and preferred terms.

Pure.
"""

from collections.abc import Iterator

from yaml.nodes import Node

from polyarch.kube.patches import pointer
from polyarch.manifests.finding import Repair, Severity
from polyarch.manifests.lint.facts import Draft, PodFacts, one_operation
from polyarch.manifests.lint.rule import Rule
from polyarch.manifests.operations import Rename, Replace, TreeOperation
from polyarch.manifests.scan import sets

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
        key = _replacement(entry.key)
        if key:
            both = any(other.key == key for other in entries)
            yield _draft(facts, entry.key, entry.key_node, entry.pointer, Rename(entry.pointer, key), both=both)
    for term in facts.terms:
        for clause in term.expressions:
            key, where = _replacement(clause.key), clause.pointer + pointer("key")
            if key and clause.key_node is not None:
                both = any(other.key == key for other in term.expressions)
                yield _draft(facts, clause.key, clause.key_node, where, Replace(where, key), both=both)


def _replacement(key: str) -> str:
    """The label that replaces a deprecated one; empty for other labels."""
    return key.removeprefix(_BETA) if key in sets.PLATFORM_KEYS and key.startswith(_BETA) else ""


def _draft(facts: PodFacts, key: str, node: Node, where: str, operation: TreeOperation, *, both: bool) -> Draft:
    note = "both spellings are present; remove one of them"
    return Draft(
        rule=RULE,
        message=f"{facts.subject} uses the node label {key}, which is deprecated",
        hint=f"use {_replacement(key)}",
        node=node,
        pointer=where,
        repair=Repair((), note=note, document=facts.pod_spec.document.index)
        if both
        else one_operation(facts, operation),
    )
