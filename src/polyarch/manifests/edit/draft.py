"""Merges operations into one draft of the new document, on top of the nodes of the old one.

Operations apply in order and their indexes count what earlier ones left, but the text is spliced once. So they are
merged first: a :class:`NodeDraft` is an unchanged node, a new value in its place, or a collection with kept, removed
and new members. What an alias or merge key shares is changed once, and only if every use asks for the same: an
operation is never repeated for another use.

Pure.
"""

import re
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import msgspec
from yaml.nodes import MappingNode, Node, SequenceNode

from polyarch.kube.patches import pointer
from polyarch.manifests.edit.layout import CannotEdit, layout
from polyarch.manifests.operations import (
    Add,
    OperationError,
    Remove,
    Rename,
    Replace,
    TreeOperation,
    apply,
    index,
    segments,
)
from polyarch.manifests.scan.composer import children
from polyarch.manifests.scan.nodes import Document, along, effective, entries, is_merge, item, key_of, merged_mappings

_NOTHING: Any = object()
_ANCHOR = re.compile(r"(?:!\S*[ \t]+)?(&[^\s,\[\]{}]+)")


@dataclass
class NodeDraft:
    """The new state of a node, or a new value if ``node`` is None."""

    node: Node | None
    value: Any = _NOTHING
    """The new value; only :attr:`is_replaced` says whether there is one."""
    members: list["Member"] | None = None
    """The members of a changed collection; None if all are unchanged."""

    @property
    def is_replaced(self) -> bool:
        return self.value is not _NOTHING

    @property
    def is_changed(self) -> bool:
        return self.is_replaced or (self.members is not None and any(member.is_changed for member in self.members))

    @property
    def kept(self) -> list[tuple[int, "Member"]]:
        """The members that stay, with their numbers in the text."""
        return [(each.place, each) for each in self.members or () if each.place is not None and not each.removed]

    @property
    def fresh(self) -> list["Member"]:
        """The members that are new."""
        return [member for member in self.members or () if member.place is None]

    @property
    def insertions(self) -> list[tuple[list["Member"], int | None, int | None]]:
        """New members that follow each other, with the numbers of the kept members before and after them."""
        found: list[tuple[list[Member], int | None, int | None]] = []
        last: int | None = None
        pending: list[Member] = []
        for member in [*(self.members or ()), None]:
            if member is not None and member.place is None:
                pending.append(member)
            elif member is None or not member.removed:
                place = member.place if member is not None else None
                if pending:
                    found.append((pending, last, place))
                last, pending = place, []
        return found


def new_value(members: list["Member"], collection: Node | None) -> Any:
    """New members as the value that they make up in a collection."""
    if isinstance(collection, MappingNode):
        return {member.key: member.draft.value for member in members}
    return [member.draft.value for member in members]


@dataclass
class Member:
    """One entry or element: ``place`` is its number in the text, None for a new one."""

    key: str | None
    draft: NodeDraft
    place: int | None
    renamed: bool = False
    removed: bool = False

    @property
    def is_changed(self) -> bool:
        return self.place is None or self.renamed or self.removed or self.draft.is_changed


def drafted(document: Document, operations: Iterable[TreeOperation]) -> NodeDraft:
    """The wanted document. Raises :class:`OperationError` where an operation does not fit, :class:`CannotEdit` where it
    would change a shared node for some of its uses only.
    """
    drafting = _Drafting(document)
    for operation in operations:
        drafting.take(drafting.root, operation, segments(operation.pointer), "")
    for asked in drafting.asked.values():
        drafting.take_shared(asked)
    return drafting.root


@dataclass
class SharedEdit:
    """Operations that each use asks of a shared node: pointer of the use → operations relative to the node."""

    node: Node
    by_use: dict[str, list[TreeOperation]] = field(default_factory=dict)


def shared_edits(document: Document, operations: Iterable[TreeOperation]) -> tuple[SharedEdit, ...]:
    """What operations ask of nodes that aliases or merge keys share; raises like :func:`drafted`."""
    drafting = _Drafting(document)
    for operation in operations:
        drafting.take(drafting.root, operation, segments(operation.pointer), "")
    return tuple(drafting.asked.values())


def sharing(document: Document, node: Node, asked: Iterable[str] = ()) -> str:
    """Why a shared node is not edited: its anchor, and a use that is not among the ``asked`` pointers."""
    uses = document.uses.get(id(node), ())
    known = [use for use in asked if use in uses] or list(uses[:1])
    here = known[0] if known else ""
    others = (
        [use for use in uses if use not in known] or _merging(document, node) or [use for use in uses if use != here]
    )
    other = others[0] if others else here
    anchors = (_anchored(document, each) for use in uses for each in reversed(list(along(document.root, use))))
    anchor = next((match[1] for match in anchors if match), "")
    through = f"the anchor {anchor}" if anchor else "an anchor"
    return (
        f"`{_label(here)}` at line {_line(document, here)} is shared through {through} "
        f"with {other or 'the document'} at line {_line(document, other)}; write it out for each first"
    )


def _merging(document: Document, node: Node) -> list[str]:
    """The pointer of a mapping that merges a node, if any."""
    stack: list[tuple[Node, str]] = [(document.root, "")] if id(node) in document.merged else []
    while stack:
        found, path = stack.pop()
        if isinstance(found, MappingNode) and any(each is node for each in merged_mappings(found)):
            return [path]
        stack += reversed([(child, path + pointer(key)) for key, child in effective(found)])
    return []


def _line(document: Document, path: str) -> int:
    """The line of a member where it is used: that of its key, or of its alias in a list."""
    *parts, last = segments(path) or ("",)
    parent = item(document.root, pointer(*parts)) if path else None
    start = document.start(document.root if parent is None else parent)
    if isinstance(parent, MappingNode):
        own = [key for key, value in parent.value if is_merge(key) or key_of(key) == last]
        start = document.start(next((key for key in own if not is_merge(key)), own[0])) if own else start
    elif isinstance(parent, SequenceNode):
        with suppress(CannotEdit):
            start = layout(document, parent).entries[int(last)].start
    return document.source.place(start)[0]


def _anchored(document: Document, node: Node) -> re.Match[str] | None:
    """The name of the anchor of a node that aliases share."""
    shared = id(node) in document.shared
    return _ANCHOR.match(document.source.text, document.start(node)) if shared else None


def _label(path: str) -> str:
    """The last part of a pointer that says something to people."""
    parts = segments(path)
    return "/".join(parts[-2:] if parts and parts[-1].isdigit() else parts[-1:]) or "the document"


class _Drafting:
    def __init__(self, document: Document) -> None:
        self.document = document
        self.root = NodeDraft(document.root)
        self.asked: dict[int, SharedEdit] = {}

    def take(self, draft: NodeDraft, operation: TreeOperation, path: tuple[str, ...], here: str | None) -> None:
        """Apply an operation below a draft. ``here`` is its pointer, None inside a shared node whose uses agree."""
        if not path:
            if not isinstance(operation, Replace):
                raise OperationError(operation, "the whole document can only be replaced")
            self._check_anchors(children(draft.node) if draft.node is not None else [])
            draft.value, draft.members = operation.value, None
            return
        if draft.is_replaced or draft.node is None:
            draft.value = apply(draft.value, (_moved(operation, path),))
            return
        members = _expanded(draft)
        if members is None:
            raise OperationError(operation, f"{path[0]!r} cannot be looked up in a scalar")
        if len(path) == 1 and not isinstance(operation, Replace):
            self._change(draft, members, operation, path[0])
            return
        member = _member(draft, path[0])
        node = member.draft.node if member else _merged_member(draft.node, path[0])
        if member is None and node is None:
            raise OperationError(operation, f"there is no member or element {path[0]!r}")
        if node is not None and (member is None or self._is_shared(node, within=here is None)):
            # What an alias or a merge key brings in belongs to its anchor: changing it changes every use.
            if here is None:
                raise CannotEdit(sharing(self.document, node))
            asked = self.asked.setdefault(id(node), SharedEdit(node))
            asked.by_use.setdefault(here + pointer(path[0]), []).append(_moved(operation, path[1:]))
        elif member is not None:
            if (
                node is not None
                and id(node) in self.document.merged
                and len(path) == 1 + (not isinstance(operation, Replace))
            ):
                raise CannotEdit(sharing(self.document, node))
            self.take(member.draft, operation, path[1:], None if here is None else here + pointer(path[0]))

    def _is_shared(self, node: Node, *, within: bool) -> bool:
        """The members of a mapping that is merged are shared one by one, the mapping is not at their places."""
        if within:
            return id(node) in self.document.shared
        return id(node) in self.document.uses and id(node) not in self.document.merged

    def take_shared(self, asked: SharedEdit) -> None:
        """Changes a shared node once, at its anchor, if all of its uses ask for the same."""
        uses = self.document.uses.get(id(asked.node), ())
        wanted = list(asked.by_use.values())
        disputed = id(asked.node) in self.document.disputed
        if disputed or set(asked.by_use) != set(uses) or any(each != wanted[0] for each in wanted):
            raise CannotEdit(sharing(self.document, asked.node, asked.by_use))
        draft = next(filter(None, map(self._anchor, uses)), None)
        if draft is None:
            raise CannotEdit("no edit can reach the anchor of an alias")
        for operation in wanted[0]:
            self.take(draft, operation, segments(operation.pointer), None)

    def _anchor(self, path: str) -> NodeDraft | None:
        """The draft at a pointer if the node is written there, None for an alias or a merge key."""
        draft = self.root
        for segment in segments(path):
            member = None if draft.is_replaced else _member(draft, segment)
            if member is None or self._is_alias(draft, member):
                return None
            draft = member.draft
        return draft

    def _change(self, draft: NodeDraft, members: list[Member], operation: TreeOperation, segment: str) -> None:
        if isinstance(operation, Add):
            self._add(draft, members, operation, segment)
            return
        member = _member(draft, segment)
        if member is None:
            if _merged_member(draft.node, segment) is not None:
                raise CannotEdit(f"the key {segment} comes from a merge key")
            raise OperationError(operation, f"there is no member or element {segment!r}")
        if _merged_member(draft.node, segment) is not None:
            raise CannotEdit(f"without it a merge key would bring in another {segment}")
        if isinstance(operation, Remove):
            if member.draft.node is not None and not self._is_alias(draft, member):
                self._check_anchors([member.draft.node])
            if member.place is None:
                members.remove(member)
            else:
                member.removed = True
        elif isinstance(operation, Rename):
            if member.key is None:
                raise OperationError(operation, "an element of a list has no key")
            self._check_absent(draft, operation, operation.key)
            member.key, member.renamed = operation.key, member.place is not None

    def _add(self, draft: NodeDraft, members: list[Member], operation: Add, segment: str) -> None:
        if isinstance(draft.node, MappingNode):
            self._check_absent(draft, operation, segment)
            members.append(Member(segment, NodeDraft(None, operation.value), None))
            return
        present = [place for place, member in enumerate(members) if not member.removed]
        number = len(present) if segment == "-" else index(segment)
        if number is None or number > len(present):
            raise OperationError(operation, f"cannot insert at {segment} in a list of {len(present)}")
        members.insert(present[number - 1] + 1 if number else 0, Member(None, NodeDraft(None, operation.value), None))

    def _is_alias(self, parent: NodeDraft, member: Member) -> bool:
        anchor = self.document.shared.get(id(member.draft.node))
        if anchor is None or member.place is None:
            return False
        number = 2 * member.place + 1 if isinstance(parent.node, MappingNode) else member.place
        return anchor != (id(parent.node), number)

    def _check_absent(self, draft: NodeDraft, operation: TreeOperation, key: str) -> None:
        if _member(draft, key) is not None or _merged_member(draft.node, key) is not None:
            raise OperationError(operation, f"there is a member {key!r} already")

    def _check_anchors(self, nodes: list[Node]) -> None:
        """Raises for a text that an alias elsewhere may point to."""
        stack, visited = list(nodes), set()
        while stack and self.document.shared:
            node = stack.pop()
            if id(node) in self.document.shared:
                raise CannotEdit(sharing(self.document, node))
            if id(node) not in visited:
                visited.add(id(node))
                stack += children(node)


def _expanded(draft: NodeDraft) -> list[Member] | None:
    """The members of a draft, created on first use; a merge key has no name."""
    node = draft.node
    if draft.members is None and isinstance(node, MappingNode):
        draft.members = [
            Member(None if is_merge(key) else key_of(key), NodeDraft(value), place)
            for place, (key, value) in enumerate(node.value)
        ]
    elif draft.members is None and isinstance(node, SequenceNode):
        draft.members = [Member(None, NodeDraft(value), place) for place, value in enumerate(node.value)]
    return draft.members


def _member(draft: NodeDraft, segment: str) -> Member | None:
    """By key, or by index among the remaining members."""
    present = [member for member in _expanded(draft) or () if not member.removed]
    if isinstance(draft.node, MappingNode):
        named = [member for member in present if member.key == segment]
        if len(named) > 1:
            raise CannotEdit(f"the key {segment} is duplicated in one mapping")
        return named[0] if named else None
    place = index(segment)
    return present[place] if place is not None and place < len(present) else None


def _merged_member(node: Node | None, key: str) -> Node | None:
    """The value that merge keys give a mapping for a key that it does not have itself."""
    if isinstance(node, MappingNode):
        for mapping in merged_mappings(node):
            own = [value for name, _, value in entries(mapping) if name == key]
            found = own[-1] if own else _merged_member(mapping, key)
            if found is not None:
                return found
    return None


def _moved(operation: TreeOperation, path: tuple[str, ...]) -> TreeOperation:
    return msgspec.structs.replace(operation, pointer=pointer(*path))
