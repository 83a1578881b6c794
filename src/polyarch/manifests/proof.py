"""Proves that a changed file differs from the old one in the listed operations and in nothing else.

The editor changes text, and a rule's operations change objects. This module depends on neither: it reads the text
before and after, and holds every difference against the list. A file whose difference is not proven is not written.

A YAML document is compared as a tree in which aliases and merge keys are followed: what no operation names has the same
values, tags and styles, its keys in the same order, the same repeated keys, the same anchors behind its aliases, and
the same comments. A Dockerfile is compared as the list of its instructions, as BuildKit's parser joins their lines: an
operation on one has a pointer such as ``/3``.

Pure.
"""

import re
from bisect import bisect_right
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from itertools import zip_longest
from typing import Any, cast

from yaml.nodes import CollectionNode, MappingNode, Node, ScalarNode, SequenceNode

from polyarch.kube.patches import pointer
from polyarch.manifests.operations import (
    Add,
    OperationError,
    Remove,
    Rename,
    TreeOperation,
    apply,
    read,
    same,
    segments,
)
from polyarch.manifests.scan.composer import children
from polyarch.manifests.scan.dockerfiles import is_dockerfile, read_dockerfile
from polyarch.manifests.scan.nodes import (
    Document,
    SyntaxProblem,
    chunks,
    compose,
    entries,
    is_merge,
    key_of,
    members,
    merged_mappings,
    value,
)
from polyarch.manifests.scan.text import SourceText

Operations = Mapping[int, Sequence[TreeOperation]]
Added = Mapping[int, Sequence[object]]
Documents = Sequence[Document]

_PROPERTIES = re.compile(r"(?:[&!][^\s,\[\]{}]*[ \t]*)+")
_COMMENT = re.compile(r"(?:^|(?<=[ \t\r\n\x85\u2028\u2029]))#[^\r\n\x85\u2028\u2029]*")


def prove(
    source: SourceText,
    text: str,
    operations: Operations,
    added: Added | None = None,
    *,
    documents: tuple[Documents, Documents] | None = None,
    uncommented: bool = False,
) -> str | None:
    """None if ``text`` differs from ``source`` in these operations on the documents with these numbers, in order, and
    in the objects ``added`` behind them; otherwise a sentence that says where it does not.

    ``documents`` are those of both texts if they have been read already; some without an operation may be missing.
    ``uncommented``: a comment may have become a value of an operation.
    """
    try:
        if is_dockerfile(source.path):
            _prove_instructions(source, text, operations.get(0, ()))
            return None
        if not added:
            _prove_untouched_chunks(source.text, text, operations, documents[0] if documents else compose(source))
        after = source.replaced(text)
        old, new = documents if documents and not added else (compose(source), compose(after))
        _prove_breaks(source, text)
        by_chunk: dict[int, list[_Comparison]] = {}
        for before, found, own in _pairs(old, new, operations, added or {}):
            comparison = _Comparison(before, found, own)
            comparison.run()
            by_chunk.setdefault(before.chunk_start, []).append(comparison)
        for compared in by_chunk.values():
            _prove_comments(compared, uncommented=uncommented)
    except _Difference as difference:
        return str(difference)
    except SyntaxProblem as problem:
        return f"the changed text does not parse: {problem}"
    except OperationError as misfit:
        return f"the edit does not fit the document: {misfit}"
    except RecursionError:
        return "it is nested too deeply to be compared"
    return None


class _Difference(Exception):  # noqa: N818 - reads as a noun
    """Where the texts differ otherwise than listed."""


def _prove_untouched_chunks(before: str, after: str, operations: Operations, documents: Documents) -> None:
    """Every document without an operation has the same text, character by character."""
    starts = {document.chunk_start for document in documents if operations.get(document.index)}
    old, new = list(chunks(before)), list(chunks(after))
    if before[: old[0][0]] != after[: new[0][0]]:
        raise _Difference("the text before the first document has changed")
    for one, other in zip_longest(old, new):
        if one is None or other is None:
            raise _Difference("the number of documents has changed")
        if one[0] not in starts and before[slice(*one)] != after[slice(*other)]:
            raise _Difference("a document without an edit has changed")


def _prove_breaks(source: SourceText, text: str) -> None:
    """Lines end as they ended, the last one included."""
    for mark in ("\r\n", "\n", "\r"):
        bare = text.replace("\r\n", "") if mark != "\r\n" else text
        had = source.text.replace("\r\n", "") if mark != "\r\n" else source.text
        if mark in bare and mark not in had and mark != source.newline:
            raise _Difference("a line ends otherwise than the lines of the file")


def _pairs(
    old: Documents, new: Documents, operations: Operations, added: Added
) -> Iterator[tuple[Document, Document, Sequence[TreeOperation]]]:
    """The documents to compare, before and after; raises for any other difference between the lists of documents."""
    expected: list[Document | object] = []
    for document in old:
        expected += [document, *added.get(document.index, ())]
    if len(expected) != len(new) or (not added and [each.index for each in old] != [each.index for each in new]):
        raise _Difference("the number of documents has changed")
    for wanted, found in zip(expected, new, strict=True):
        if not isinstance(wanted, Document):
            if not same(wanted, found.value):
                raise _Difference("the new documents do not parse to the intended objects")
            continue
        own = operations.get(wanted.index, ())
        if own or wanted.chunk.rstrip() != found.chunk.rstrip():
            yield wanted, found, own


# A tree of values that remembers the nodes which it comes from. Operations copy what they change, so that a value which
# still is what was read belongs to a node that must be found again as it was.


class _Scalar:
    __slots__ = ("node",)

    def __init__(self, node: ScalarNode) -> None:
        self.node = node


class _Mapping(dict[str, Any]):
    __slots__ = ("changed", "gone", "node")

    def __init__(self, node: MappingNode, *, changed: bool = False) -> None:
        super().__init__()
        self.node, self.changed = node, changed
        self.gone: frozenset[str] = frozenset()
        """Keys that were removed; they may have come back elsewhere."""

    def __delitem__(self, key: str) -> None:
        super().__delitem__(key)
        self.gone |= {key}

    def copy(self) -> "_Mapping":
        fresh = _Mapping(self.node, changed=True)
        fresh.update(self)
        fresh.gone = self.gone
        return fresh


class _Sequence(list[Any]):
    __slots__ = ("changed", "node")

    def __init__(self, node: SequenceNode, *, changed: bool = False) -> None:
        super().__init__()
        self.node, self.changed = node, changed

    def copy(self) -> "_Sequence":
        fresh = _Sequence(self.node, changed=True)
        fresh.extend(self)
        return fresh


def _remembering(node: Node, known: dict[int, Any]) -> Any:
    if isinstance(node, ScalarNode):
        return _Scalar(node)
    if id(node) in known:
        return known[id(node)]
    if isinstance(node, SequenceNode):
        found: Any = _Sequence(node)
        found.extend(_remembering(child, known) for child in node.value)
    else:
        found = _Mapping(cast("MappingNode", node))
        for key, (_, member) in members(node).items():
            found[key] = _remembering(member, known)
    known[id(node)] = found
    return found


class _Comparison:
    """One document before and after."""

    def __init__(self, before: Document, after: Document, operations: Sequence[TreeOperation]) -> None:
        self.before, self.after, self.operations = before, after, operations
        self.gone: list[tuple[int, int]] = []
        """The lines whose comments may go with what the operations replace or remove."""
        self.tagged = any(mark in each.chunk for mark in "!&" for each in (before, after))
        self.shares = bool(before.shared or after.shared)
        self.partners: dict[int, int] = {}
        self.compared: set[tuple[int, int]] = set()
        self.path: list[str | int] = []

    def run(self) -> None:
        tree = _remembering(self.before.root, {})
        for operation in self.operations:
            self.gone += self.named_text(tree, operation)
            tree = apply(tree, (operation,))
        self.wanted(tree, self.after.root)

    def fail(self, what: str) -> _Difference:
        place = pointer(*self.path) or "(whole document)"
        return _Difference(f"document {self.before.index} {what} at {place}")

    def wanted(self, expected: Any, found: Node) -> None:
        """The node says what the operations ask for."""
        if isinstance(expected, _Scalar) or (isinstance(expected, _Mapping | _Sequence) and not expected.changed):
            self.unchanged(expected.node, found)
        elif isinstance(expected, _Mapping) and isinstance(found, MappingNode):
            self.mapping(expected, found)
        elif isinstance(expected, _Sequence) and isinstance(found, SequenceNode):
            self.collection(expected.node, found, emptied=not expected)
            if len(expected) != len(found.value):
                raise self.fail("has another number of elements")
            for number, (member, child) in enumerate(zip(expected, found.value, strict=True)):
                self.below(number, member, child)
        elif isinstance(expected, dict) and not isinstance(expected, _Mapping) and isinstance(found, MappingNode):
            self.fresh(expected, found)
        elif isinstance(expected, list) and not isinstance(expected, _Sequence) and isinstance(found, SequenceNode):
            if len(expected) != len(found.value):
                raise self.fail("does not parse to the intended value")
            for number, (member, child) in enumerate(zip(expected, found.value, strict=True)):
                self.below(number, member, child)
        elif isinstance(expected, dict | list) or not same(expected, value(found)):
            raise self.fail("does not parse to the intended value")

    def below(self, segment: str | int, expected: Any, found: Node) -> None:
        self.path.append(segment)
        self.wanted(expected, found)
        self.path.pop()

    def fresh(self, expected: dict[str, Any], found: MappingNode) -> None:
        """A mapping that an operation has written; its members may have been there."""
        now = list(entries(found))
        if len(now) != len(found.value) or len(now) != len(expected):
            raise self.fail("does not parse to the intended value")
        for key, _, child in now:
            if key not in expected:
                raise self.fail("does not parse to the intended value")
            self.below(key, expected[key], child)

    def mapping(self, expected: _Mapping, found: MappingNode) -> None:
        """A mapping some of whose members have changed."""
        old = expected.node
        self.collection(old, found, emptied=not expected)
        had, have = members(old), members(found)
        if have.keys() != expected.keys():
            raise self.fail("does not have the intended keys")
        same_keys = (had.keys() & expected.keys()) - expected.gone
        kept = [_key(key) for key, _ in old.value if is_merge(key) or key_of(key) in same_keys]
        still = [_key(key) for key, _ in found.value if is_merge(key) or key_of(key) in same_keys]
        if kept != still:
            raise self.fail("has other keys, or in another order,")
        for key, member in expected.items():
            self.below(key, member, have[key][1])
        self.merges(old, found)

    def merges(self, old: MappingNode, found: MappingNode) -> None:
        """What merge keys bring in and the mapping's own keys hide; the rest is compared as members of the mapping."""
        own = {key_of(key) for key, _ in old.value if not is_merge(key)}
        for one, other in zip_longest(merged_mappings(old), merged_mappings(found)):
            if one is None or other is None:
                raise self.fail("merges another mapping")
            self.partner(one, other)
            if id(one) in self.before.shared:  # it is compared where its anchor stands
                continue
            before = {key: member for key, _, member in entries(one) if key in own}
            after = {key: member for key, _, member in entries(other) if key in own}
            if one.flow_style != other.flow_style or before.keys() != after.keys():
                raise self.fail("merges another mapping")
            for key, member in before.items():
                self.unchanged(member, after[key])

    def collection(self, old: CollectionNode, found: CollectionNode, *, emptied: bool = False) -> None:
        """A collection keeps its tag and style, unless it has got its first or lost its last member."""
        filled = not old.value or emptied
        if old.tag != found.tag or (old.flow_style != found.flow_style and not filled):
            raise self.fail("has another tag or style")
        self.properties(old, found)
        self.partner(old, found)

    def properties(self, old: Node, found: Node) -> None:
        """Tag and anchor as they are written."""
        if self.tagged and _properties(self.before, old) != _properties(self.after, found):
            raise self.fail("has another tag or anchor")

    def unchanged(self, old: Node, found: Node) -> None:
        """Nothing of a node has changed, nor of anything below it."""
        self.properties(old, found)
        if isinstance(old, ScalarNode):
            if (
                not isinstance(found, ScalarNode)
                or old.value != found.value
                or old.tag != found.tag
                or old.style != found.style
            ):
                raise self.fail("has another value, tag or style")
            if self.shares:
                self.partner(old, found)
            return
        if self.shares:
            self.partner(old, found)
            if (id(old), id(found)) in self.compared:
                return
            self.compared.add((id(old), id(found)))
        if type(old) is not type(found) or not isinstance(old, CollectionNode) or not isinstance(found, CollectionNode):
            raise self.fail("has another kind of value")
        if old.tag != found.tag or old.flow_style != found.flow_style:
            raise self.fail("has another tag or style")
        if len(old.value) != len(found.value):
            raise self.fail("has another number of members")
        if isinstance(old, SequenceNode):
            for number, (one, other) in enumerate(zip(old.value, found.value, strict=True)):
                self.path.append(number)
                self.unchanged(one, other)
                self.path.pop()
            return
        mapping, other_mapping = cast("MappingNode", old), cast("MappingNode", found)
        merging = False
        for (key, one), (new_key, other) in zip(old.value, found.value, strict=True):
            self.path.append(key_of(key))
            self.unchanged(key, new_key)
            if is_merge(key):
                merging = True
            else:
                self.unchanged(one, other)
            self.path.pop()
        if merging:
            had, have = members(mapping), members(other_mapping)
            if had.keys() != have.keys():
                raise self.fail("merges another mapping")
            for name, (_, member) in had.items():
                self.path.append(name)
                self.unchanged(member, have[name][1])
                self.path.pop()
            self.merges(mapping, other_mapping)

    def partner(self, old: Node, found: Node) -> None:
        """What was one node is one node, and what were two are two."""
        if not self.shares:
            return
        if self.partners.setdefault(id(old), id(found)) != id(found):
            raise self.fail("no longer shares text that an alias shared")
        if self.partners.setdefault(-id(found), id(old)) != id(old):
            raise self.fail("shares text that was not shared")

    def named_text(self, tree: Any, operation: TreeOperation) -> Iterator[tuple[int, int]]:
        """The lines that an operation replaces or removes: their comments may go with them."""
        if isinstance(operation, Add | Rename):
            return
        *parts, last = segments(operation.pointer) or ("",)
        try:
            parent, old = read(tree, pointer(*parts)), read(tree, operation.pointer)
        except KeyError:
            return
        if not isinstance(parent, _Mapping | _Sequence) or not isinstance(old, _Mapping | _Sequence | _Scalar):
            return
        document, node, within = self.before, old.node, parent.node
        members_left = parent.values() if isinstance(parent, _Mapping) else parent
        kept = sum(isinstance(each, _Mapping | _Sequence | _Scalar) for each in members_left)
        if isinstance(operation, Remove) and kept == 1:
            node = within  # the last of what was there: nothing of the collection stays
        start, end = document.start(node), document.end(node)
        if node is within:
            pass
        elif isinstance(within, MappingNode):
            key = next((key for key, _ in within.value if key_of(key) == last), None)
            start = document.start(key) if key is not None else start
        elif start < document.start(within):  # an alias, whose place the parser does not tell
            start, end = document.start(within), document.end(within)
        yield document.source.line_start(start), document.source.next_line(max(end - 1, start))


def _key(node: Node) -> tuple[str, object, object]:
    return (node.tag, node.value, node.style) if isinstance(node, ScalarNode) else (node.tag, None, None)


def _properties(document: Document, node: Node) -> list[str]:
    match = _PROPERTIES.match(document.source.text, document.start(node))
    return match[0].split() if match else []


# -- comments, of all documents of a chunk together: some texts cannot be split into documents -------------------------


def _prove_comments(compared: Sequence[_Comparison], *, uncommented: bool) -> None:
    before, after = _comments([each.before for each in compared]), _comments([each.after for each in compared])
    texts = Counter(text for _, text in before)
    found = Counter(text for _, text in after)
    where = f"document {compared[0].before.index}"
    if found - texts:
        raise _Difference(f"{where} has a new comment: {next(iter(found - texts))}")
    lost = texts - found
    if not lost or uncommented:
        return
    gone = [span for each in compared for span in each.gone]
    within = Counter(text for at, text in before if any(start <= at < end for start, end in gone))
    if lost - within:
        raise _Difference(f"{where} has lost a comment: {next(iter(lost - within))}")


def _comments(documents: Documents) -> list[tuple[int, str]]:
    """The comments of the documents of a chunk in order, each with its offset."""
    document = documents[0]
    if "#" not in document.chunk:
        return []
    spans: dict[int, int] = {}
    stack, visited = [each.root for each in documents], set()
    while stack:
        node = stack.pop()
        if isinstance(node, ScalarNode):
            spans[document.start(node)] = document.end(node)
        elif id(node) not in visited:
            visited.add(id(node))
            stack += children(node)
    starts = sorted(spans)
    found = []
    text, at, end = document.source.text, document.chunk_start, document.chunk_end
    while match := _COMMENT.search(text, at, end):
        place = bisect_right(starts, match.start()) - 1
        within = starts[place] if place >= 0 else -1
        if within >= 0 and match.start() < spans[within]:
            at = match.start() + 1  # the scalar may end on this line, before a comment
            continue
        found.append((match.start(), match[0].rstrip()))
        at = match.end()
    return found


# -- Dockerfiles -------------------------------------------------------------------------------------------------------


def _prove_instructions(source: SourceText, text: str, operations: Sequence[TreeOperation]) -> None:
    before, after = read_dockerfile(source.text), read_dockerfile(text)
    if before.doubt or after.doubt:
        raise _Difference(f"it is not read with certainty: {before.doubt or after.doubt}")
    expected = apply([each.text for each in before.instructions], operations)
    if expected != [each.text for each in after.instructions]:
        raise _Difference("the instructions are not the intended ones")
    _prove_breaks(source, text)
    if _comment_lines(source.text) != _comment_lines(text):
        raise _Difference("a comment has changed")
    grown = sum(isinstance(operation, Add) for operation in operations)
    if len(text.splitlines()) != len(source.text.splitlines()) + grown:
        raise _Difference("it has another number of lines than intended")


def _comment_lines(text: str) -> list[str]:
    return [line for line in text.splitlines() if line.lstrip().startswith("#")]
