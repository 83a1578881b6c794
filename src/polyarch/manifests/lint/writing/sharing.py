"""Repairs of shared text: anchors with several uses, merge keys, affinity that a whole workflow inherits.

An edit of shared text changes every object that uses it. So the operations are repeated for each use, and the repair
is refused unless every other pod specification that it touches needs exactly the same one (MF-053).

Pure.
"""

from collections.abc import Iterable
from dataclasses import replace

import msgspec

from polyarch.manifests.finding import Repair
from polyarch.manifests.lint.facts import Draft, PodFacts
from polyarch.manifests.operations import TreeOperation, is_below
from polyarch.manifests.scan.nodes import Document, item
from polyarch.manifests.scan.objects import KubeObject
from polyarch.manifests.scan.pod_specs import PodSpec

Entry = tuple[KubeObject, PodFacts | None, Draft]
Operations = tuple[TreeOperation, ...]

_NOTE = "it would change text shared with {other}, which needs a different change; write it out for each first"


def for_all_users(drafts: Iterable[Entry], pods: Iterable[PodFacts]) -> list[Entry]:
    """The drafts, their repairs extended to every use of the text that they change."""
    entries = list(drafts)
    specs = [facts.pod_spec for facts in pods]
    if not any(subject.document.shared for subject, _, _ in entries) and not any(spec.inherited for spec in specs):
        return entries
    expanded = [_expanded(subject.document, draft.repair) for subject, _, draft in entries]
    wanted = {
        (id(facts.pod_spec), draft.rule.id, draft.sub, _text(operations))
        for (_, facts, draft), operations in zip(entries, expanded, strict=True)
        if facts is not None
    }
    result: list[Entry] = []
    for (subject, facts, draft), operations in zip(entries, expanded, strict=True):
        if draft.repair is not None and operations:
            own = facts.pod_spec if facts else None
            others = (spec for spec in specs if spec is not own and _touches(operations, spec, subject.document))
            needs = (draft.rule.id, draft.sub, _text(operations))
            other = next((spec for spec in others if own is None or (id(spec), *needs) not in wanted), None)
            repair = Repair(operations, draft.repair.note, draft.repair.document)
            if other is not None:
                repair = Repair((), _NOTE.format(other=f"{other.object.reference} ({other.pointer})"), repair.document)
            draft = replace(draft, repair=repair)
        result.append((subject, facts, draft))
    return result


def _expanded(document: Document, repair: Repair | None) -> Operations:
    """Each operation once for every pointer that leads to its target."""
    if repair is None or not document.shared:
        return repair.operations if repair else ()
    found: dict[str, TreeOperation] = {}
    for number, operation in enumerate(repair.operations):
        parent, _, last = operation.pointer.rpartition("/")
        node = item(document.root, parent)
        uses = document.uses.get(id(node), ()) if node is not None else ()
        for use in uses if parent in uses else (parent,):
            found[f"{number} {use}"] = msgspec.structs.replace(operation, pointer=f"{use}/{last}")
    return tuple(found.values())


def _touches(operations: Operations, spec: PodSpec, document: Document) -> bool:
    if spec.document is not document:
        return False
    roots = (*spec.uses, spec.affinity[1], *(entry.pointer for entry in spec.node_selector))
    return any(is_below(operation.pointer, root) for operation in operations for root in roots)


def _text(operations: Operations) -> bytes:
    return msgspec.json.encode(operations)
