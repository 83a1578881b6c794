"""MA110: values of architecture and operating system labels that no node has.

Pure.
"""

from collections.abc import Callable, Iterator

from yaml.nodes import Node

from polyarch.manifests.finding import Severity
from polyarch.manifests.lint.facts import Draft, PodFacts, one_operation
from polyarch.manifests.lint.rule import Rule
from polyarch.manifests.operations import Remove, Replace
from polyarch.manifests.scan import sets
from polyarch.manifests.scan.pod_specs import Expression
from polyarch.manifests.scan.sets import meant_architecture, meant_system
from polyarch.platforms import KNOWN_ARCHITECTURES, KNOWN_SYSTEMS

RULE = Rule(
    id="MA110",
    severity=Severity.ERROR,
    title="An architecture or operating system is unknown",
    meaning="No node has such a label value. Often it is an alias: x86_64 for amd64, aarch64 for arm64.",
    fix="Replaces an alias or a wrong case with the value that nodes have; removes a duplicate.",
)


def check(facts: PodFacts) -> Iterator[Draft]:
    for entry in facts.pod_spec.node_selector:
        meant = _meaning(entry.key, entry.value) if entry.key in sets.PLATFORM_KEYS else entry.value
        if meant != entry.value:
            operation = Replace(entry.pointer, meant)
            yield _draft(facts, entry.key, entry.value, meant, entry.value_node, operation)
    for term in facts.terms:
        for clause in term.expressions:
            if clause.key in sets.PLATFORM_KEYS and clause.operator in ("In", "NotIn"):
                yield from _values(facts, clause)


def _values(facts: PodFacts, clause: Expression) -> Iterator[Draft]:
    for index, (text, node) in enumerate(zip(clause.values, clause.value_nodes, strict=True)):
        meant = _meaning(clause.key, text)
        if meant == text:
            continue
        where = f"{clause.pointer}/values/{index}"
        repeated = any(
            other == meant or (place < index and _meaning(clause.key, other) == meant)
            for place, other in enumerate(clause.values)
            if place != index
        )
        yield _draft(facts, clause.key, text, meant, node, Remove(where) if repeated else Replace(where, meant))


def _meaning(key: str, text: str) -> str:
    """The known name that the text means, which may be the text itself; empty if there is none."""
    architecture = key in sets.ARCHITECTURE_KEYS
    meant: Callable[[str], str] = meant_architecture if architecture else meant_system
    known = KNOWN_ARCHITECTURES if architecture else KNOWN_SYSTEMS
    name = meant(text)
    return name if name in known else ""


def _draft(facts: PodFacts, key: str, text: str, meant: str, node: Node, operation: Remove | Replace) -> Draft:
    """The finding for one value; ``operation`` is its repair where a name is meant."""
    architecture = key in sets.ARCHITECTURE_KEYS
    kind = "architecture" if architecture else "operating system"
    known = ", ".join(sorted(KNOWN_ARCHITECTURES if architecture else ("linux", "windows")))
    end = f"; use {meant}" if meant else ""
    return Draft(
        rule=RULE,
        message=f"{facts.subject} uses {key} {text!r}, which is no {kind} that node labels have{end}",
        hint=f"write {meant}" if meant else f"write one of {known}",
        node=node,
        pointer=operation.pointer,
        repair=one_operation(facts, operation) if meant else None,
    )
