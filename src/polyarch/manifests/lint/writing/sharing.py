"""Repairs of shared text: anchors with several uses, merge keys, affinity that a whole workflow inherits.

An edit of shared text changes everything that uses it. So a repair is refused unless each use has a finding of the same
rule that needs exactly the same edit (MF-053). What else an alias gives the text to, such as an argument or a volume,
has no such finding.

Pure.
"""

from collections.abc import Iterable
from dataclasses import replace

import msgspec

from polyarch.manifests.editing.draft import SharedEdit, shared_edits, sharing
from polyarch.manifests.editing.layout import CannotEdit
from polyarch.manifests.finding import Repair
from polyarch.manifests.lint.facts import Draft, PodFacts
from polyarch.manifests.operations import Misfit, TreeOperation, is_below, rebase
from polyarch.manifests.scan.nodes import Document
from polyarch.manifests.scan.objects import KubeObject
from polyarch.manifests.scan.pod_specs import PodSpec

Entry = tuple[KubeObject, PodFacts | None, Draft]
Operations = tuple[TreeOperation, ...]
SharedText = tuple[str, str, int, bytes]
"""An edit of a shared node: rule, ``sub``, ``id()`` of the node, and the operations on it."""

_NOTE = "it would change text shared with {other}, which needs a different change; write it out for each first"


def for_all_users(drafts: Iterable[Entry], pods: Iterable[PodFacts]) -> list[Entry]:
    """The drafts, with a refusal in place of each repair that would change more than what the findings of its rule are
    about. A pod specification with several uses has one finding for all of them.
    """
    entries = list(drafts)
    specs = [facts.pod_spec for facts in pods]
    shared = any(subject.document.shared for subject, _, _ in entries)
    if shared:
        entries = [(subject, facts, _at_each_use(facts, draft)) for subject, facts, draft in entries]
    if any(spec.inherited for spec in specs):
        entries = _for_all_heirs(entries, specs)
    return _for_all_uses(entries, specs) if shared else entries


def shared_texts(
    document: Document, operations: Iterable[TreeOperation], rule: str, sub: str
) -> dict[SharedText, SharedEdit]:
    """The edits of shared text among operations. Raises :class:`CannotEdit` where two uses need different ones."""
    found: dict[SharedText, SharedEdit] = {}
    for edit in shared_edits(document, operations):
        wanted = {msgspec.json.encode(each) for each in edit.by_use.values()}
        if len(wanted) > 1:
            raise CannotEdit(sharing(document, edit.node, edit.by_use))
        found[rule, sub, id(edit.node), wanted.pop()] = edit
    return found


def _at_each_use(facts: PodFacts | None, draft: Draft) -> Draft:
    """The draft with the operations below its pod specification for each place that is this pod specification."""
    if facts is None or draft.repair is None or len(facts.pod_spec.uses) == 1:
        return draft
    root, operations = facts.pod_spec.pointer, draft.repair.operations
    within = [each for each in operations if is_below(each.pointer, root)]
    for use in facts.pod_spec.uses:
        if use != root:
            operations += rebase(within, root, use)
    return _with(draft, operations)


def _for_all_heirs(entries: list[Entry], specs: list[PodSpec]) -> list[Entry]:
    """Refuses what other pod specifications inherit, unless each needs exactly the same."""
    wanted = {(id(facts.pod_spec), *_needs(draft)) for _, facts, draft in entries if facts is not None}
    result: list[Entry] = []
    for subject, facts, draft in entries:
        own = facts.pod_spec if facts else None
        others = (spec for spec in specs if spec is not own and _touches(draft.repair, spec, subject.document))
        other = next((spec for spec in others if own is None or (id(spec), *_needs(draft)) not in wanted), None)
        if other is not None:
            draft = _with(draft, (), _NOTE.format(other=f"{other.object.reference} ({other.pointer})"))
        result.append((subject, facts, draft))
    return result


def _for_all_uses(entries: list[Entry], specs: list[PodSpec]) -> list[Entry]:
    """Refuses edits of shared text that some use of it has no finding for. A refusal can take away what another repair
    counts on, so this goes on until all that is left can be written.
    """
    entries = list(entries)
    open_: dict[int, dict[SharedText, SharedEdit]] = {}
    for number, (subject, facts, draft) in enumerate(entries):
        if draft.repair is None or not draft.repair.operations:
            continue
        try:
            found = shared_texts(subject.document, draft.repair.operations, draft.rule.id, draft.sub)
        except CannotEdit as error:
            entries[number] = subject, facts, _with(draft, (), str(error))
        except Misfit:
            continue  # the editor says why
        else:
            open_[number] = found
    while True:
        asked: dict[SharedText, set[str]] = {}
        for found in open_.values():
            for text, edit in found.items():
                asked.setdefault(text, set()).update(edit.by_use)
        refused = {number: note for number in open_ if (note := _unasked(entries[number], open_[number], asked, specs))}
        for number, note in refused.items():
            subject, facts, draft = entries[number]
            entries[number] = subject, facts, _with(draft, (), note)
            del open_[number]
        if not refused:
            return entries


def _unasked(
    entry: Entry, edits: dict[SharedText, SharedEdit], asked: dict[SharedText, set[str]], specs: list[PodSpec]
) -> str:
    """Why a repair is refused: a use of a text that it edits asks for nothing, or for something else; else empty."""
    document = entry[0].document
    for text, edit in edits.items():
        uses = document.uses.get(id(edit.node), ())
        if asked[text] != set(uses):
            unasked = next((use for use in uses if use not in asked[text]), "")
            others = (spec for spec in specs if spec.document is document and spec.object is not entry[0])
            other = next((spec for spec in others if any(is_below(unasked, use) for use in spec.uses)), None)
            said = f"it would change text shared with {other.object.reference}: " if other is not None else ""
            return said + sharing(document, edit.node, [*edit.by_use, *asked[text]])
    return ""


def _touches(repair: Repair | None, spec: PodSpec, document: Document) -> bool:
    if spec.document is not document or repair is None:
        return False
    roots = (*spec.uses, spec.affinity[1], *(entry.pointer for entry in spec.node_selector))
    return any(is_below(operation.pointer, root) for operation in repair.operations for root in roots)


def _needs(draft: Draft) -> tuple[str, str, bytes]:
    return draft.rule.id, draft.sub, msgspec.json.encode(draft.repair.operations if draft.repair else ())


def _with(draft: Draft, operations: Operations, note: str = "") -> Draft:
    repair = draft.repair or Repair(())
    return replace(draft, repair=Repair(operations, note or repair.note, repair.document))
