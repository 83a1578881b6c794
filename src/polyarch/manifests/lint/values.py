"""Keys and values of platform labels as they are spelled: MA108 (deprecated keys) and MA110 (unknown values).

They are looked at wherever a label of a node is named: in the node selector, in required and in preferred terms.

Pure.
"""

from collections.abc import Callable, Iterator, Sequence

from polyarch.kube.client.jsonpatch import pointer
from polyarch.manifests.finding import Repair
from polyarch.manifests.lint.facts import Draft, PodFacts, repair
from polyarch.manifests.operations import Remove, Rename, Replace, TreeOperation
from polyarch.manifests.scan import sets
from polyarch.manifests.scan.pod_specs import Expression, SelectorEntry, Term
from polyarch.manifests.scan.sets import meant_architecture, meant_system
from polyarch.platforms import KNOWN_ARCHITECTURES, KNOWN_SYSTEMS

_BETA = "beta."


def check(facts: PodFacts) -> Iterator[Draft]:
    """MA108 and MA110, in the order of the text within each part."""
    entries = facts.pod_spec.node_selector
    for entry in entries:
        if entry.key in sets.PLATFORM_KEYS:
            yield from _selector_entry(facts, entry, entries)
    for term in terms(facts):
        for clause in term.expressions:
            if clause.key in sets.PLATFORM_KEYS:
                yield from _expression(facts, clause, term)


def terms(facts: PodFacts) -> Iterator[Term]:
    """Every term of node affinity, required and preferred."""
    if facts.pod_spec.required is not None:
        yield from facts.pod_spec.required.terms
    for preferred in facts.pod_spec.preferred:
        yield from (term for term in (preferred.preference, preferred.bare) if term is not None)


def _selector_entry(facts: PodFacts, entry: SelectorEntry, entries: Sequence[SelectorEntry]) -> Iterator[Draft]:
    if entry.key.startswith(_BETA):
        key = entry.key.removeprefix(_BETA)
        both = any(other.key == key for other in entries)
        yield Draft(
            rule="MA108",
            message=_deprecated(facts, entry.key),
            hint=f"use {key}",
            node=entry.key_node,
            pointer=entry.pointer,
            repair=_both(facts) if both else _repair(facts, Rename(entry.pointer, key)),
        )
    meant = _meaning(entry.key, entry.value)
    if meant != entry.value:
        yield Draft(
            rule="MA110",
            message=_unknown(facts, entry.key, entry.value, meant),
            hint=_hint(entry.key, meant),
            node=entry.value_node,
            pointer=entry.pointer,
            repair=_repair(facts, Replace(entry.pointer, meant)) if meant else None,
        )


def _expression(facts: PodFacts, clause: Expression, term: Term) -> Iterator[Draft]:
    if clause.key.startswith(_BETA) and clause.key_node is not None:
        key, where = clause.key.removeprefix(_BETA), clause.pointer + pointer("key")
        both = any(other.key == key for other in term.expressions)
        yield Draft(
            rule="MA108",
            message=_deprecated(facts, clause.key),
            hint=f"use {key}",
            node=clause.key_node,
            pointer=where,
            repair=_both(facts) if both else _repair(facts, Replace(where, key)),
        )
    if clause.operator not in ("In", "NotIn"):
        return
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
        yield Draft(
            rule="MA110",
            message=_unknown(facts, clause.key, text, meant),
            hint=_hint(clause.key, meant),
            node=node,
            pointer=where,
            repair=_repair(facts, Remove(where) if repeated else Replace(where, meant)) if meant else None,
        )


def _meaning(key: str, text: str) -> str:
    """The name meant, which is the text itself where that is a name; empty where nobody can tell."""
    architecture = key in sets.ARCHITECTURE_KEYS
    meant: Callable[[str], str] = meant_architecture if architecture else meant_system
    known = KNOWN_ARCHITECTURES if architecture else KNOWN_SYSTEMS
    name = meant(text)
    return name if name in known else ""


def _deprecated(facts: PodFacts, key: str) -> str:
    return f"{facts.subject} uses the node label {key}, which is deprecated"


def _unknown(facts: PodFacts, key: str, text: str, meant: str) -> str:
    kind = "architecture" if key in sets.ARCHITECTURE_KEYS else "operating system"
    end = f"; {meant} is meant" if meant else ""
    return f"{facts.subject} asks for {key} {text!r}, which is no {kind} that node labels have{end}"


def _hint(key: str, meant: str) -> str:
    if meant:
        return f"write {meant}"
    known = KNOWN_ARCHITECTURES if key in sets.ARCHITECTURE_KEYS else ("linux", "windows")
    return f"write one of {', '.join(sorted(known))}"


def _repair(facts: PodFacts, operation: TreeOperation) -> Repair:
    def write() -> tuple[TreeOperation]:
        facts.check_editable()
        return (operation,)

    return repair(facts, write)


def _both(facts: PodFacts) -> Repair:
    note = "both spellings stand side by side; remove the one that is not meant"
    return Repair((), note=note, document=facts.pod_spec.document.index)
