"""Adds documents to a file, such as the second object that the fix of MA117 writes.

Only whole documents are added, with the line breaks of the file, after the document that they belong to. The result
is verified like an edit: parsed again, the file must have exactly its old documents and the new ones at their places.

Pure.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from polyarch.manifests.editing.splices import Edit, splice
from polyarch.manifests.editing.style import BlockStyle, block_lines, is_json
from polyarch.manifests.operations import same
from polyarch.manifests.scan.nodes import SyntaxProblem, compose
from polyarch.manifests.scan.text import SourceText


class CannotAdd(msgspec.Struct, frozen=True):
    """Why the documents cannot be added."""

    problem: str


def add_documents(source: SourceText, added: Mapping[int, Sequence[object]]) -> tuple[Edit, ...] | CannotAdd:
    """Edits that write ``added`` objects (JSON values, not empty) after the documents with these numbers."""
    documents = compose(source)
    edits: list[Edit] = []
    for number in sorted(added):
        document = next(each for each in documents if each.index == number)
        if is_json(document):
            return CannotAdd("a JSON file holds one document only")
        end = document.chunk_end
        between = "" if source.text.endswith("\n", 0, end) else source.newline
        lines = [line for value in added[number] for line in ("---", *block_lines(value, BlockStyle()))]
        edits.append(Edit(end, end, between + "".join(line + source.newline for line in lines)))
    expected: list[Any] = []
    for document in documents:
        expected += [document.value, *added.get(document.index, ())]
    try:
        found = [document.value for document in compose(source.replaced(splice(source.text, edits)))]
    except SyntaxProblem as problem:
        return CannotAdd(f"the changed text does not parse: {problem}")
    if len(found) != len(expected) or not all(same(one, other) for one, other in zip(found, expected, strict=True)):
        return CannotAdd("the new documents do not parse to the intended objects")
    return tuple(edits)
