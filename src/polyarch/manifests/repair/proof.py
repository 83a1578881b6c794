"""Verifies that an edit did what it should and nothing else (MF-054).

The editor changes text, a rule's operations change objects, and neither depends on the other. A file is written only
if its new text parses to exactly the changed objects.

Pure.
"""

from collections.abc import Iterable
from typing import Any

from polyarch.kube.patches import pointer
from polyarch.manifests.operations import Misfit, TreeOperation, apply, same
from polyarch.manifests.scan.nodes import Document, SyntaxProblem, chunks, compose
from polyarch.manifests.scan.text import SourceText


def prove(source: SourceText, changes: Iterable[tuple[Document, Iterable[TreeOperation]]], new_text: str) -> str | None:
    """None if the file with ``new_text`` differs from ``source`` in these operations on these documents, each named
    once, and in nothing else; otherwise a sentence that says where it does not.
    """
    changed = {document.index: (document, tuple(operations)) for document, operations in changes}
    starts = {document.chunk_start for document, _ in changed.values()}
    chunks_before = [(start in starts, source.text[start:end]) for start, end in chunks(source.text)]
    chunks_after = [new_text[start:end] for start, end in chunks(new_text)]
    if len(chunks_before) != len(chunks_after):
        return "the number of documents has changed"
    if any(not edited and text != new for (edited, text), new in zip(chunks_before, chunks_after, strict=True)):
        return "a document without an edit has changed"
    before_it, after_it = iter(chunks_before), iter(chunks_before)
    try:  # unchanged documents need no second parse
        old = compose(source, lambda _: next(before_it)[0])
        new = compose(source.replaced(new_text), lambda _: next(after_it)[0])
    except SyntaxProblem as problem:
        return f"the changed text does not parse: {problem}"
    if [document.index for document in old] != [document.index for document in new]:
        return "the number of documents has changed"
    for before, found in zip(old, new, strict=True):
        operations = changed[before.index][1] if before.index in changed else ()
        try:
            expected = apply(before.value, operations)
        except Misfit as misfit:
            return f"the edit does not fit the document: {misfit}"
        if not same(expected, found.value):
            place = difference(expected, found.value) or "(whole document)"
            return f"document {before.index} does not parse to the intended value at {place}"
    return None


def difference(left: Any, right: Any) -> str:
    """The pointer of the first place where two trees differ; empty for the whole."""
    if isinstance(left, dict) and isinstance(right, dict):
        for key in dict.fromkeys((*left, *right)):
            if key not in left or key not in right:
                return pointer(key)
            if not same(left[key], right[key]):
                return pointer(key) + difference(left[key], right[key])
    elif isinstance(left, list) and isinstance(right, list) and len(left) == len(right):
        for number, (one, other) in enumerate(zip(left, right, strict=True)):
            if not same(one, other):
                return pointer(number) + difference(one, other)
    return ""
