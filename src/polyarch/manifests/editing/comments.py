"""Finds node affinity that is commented out.

Operator scaffolds have a commented ``affinity:`` in the manager's pod specification. A fix puts its affinity below
that comment (MF-063); with ``--uncomment`` the comment itself becomes the affinity.

Pure.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from yaml.nodes import MappingNode

from polyarch.manifests.editing.layout import CannotEdit, Layout, layout
from polyarch.manifests.editing.splices import Edit
from polyarch.manifests.scan.nodes import Document, SyntaxProblem, compose, get, item
from polyarch.manifests.scan.text import SourceText

_COMMENT = re.compile(r"(?P<indent>[ \t]*)#(?P<text>.*)")
_AFFINITY = re.compile(r"(?P<blank>[ \t]*)affinity[ \t]*:")
_PLATFORM_KEYS = frozenset(f"{prefix}kubernetes.io/{name}" for prefix in ("", "beta.") for name in ("arch", "os"))


@dataclass(frozen=True)
class CommentedAffinity:
    """A commented affinity: its value, and the edit that uncomments it."""

    value: Any
    edit: Edit


@dataclass(frozen=True)
class Run:
    """Consecutive comment lines, one of which has ``affinity:``."""

    lines: tuple[tuple[int, int], ...]
    """Start and end of each line, without its break."""
    first: int
    """The number of that line."""


def affinity_run(document: Document, pod_spec: Layout) -> Run | None:
    """The first run of comment lines between the keys of a pod specification that has a commented ``affinity:``."""
    for start, end in _gaps(document, pod_spec):
        run: list[tuple[int, int]] = []
        for line in [*_lines(document.source, start, end), None]:
            if line is not None and _COMMENT.fullmatch(document.source.text, *line):
                run.append(line)
                continue
            first = next((number for number, each in enumerate(run) if _says(document, each, pod_spec.column)), None)
            if first is not None:
                return Run(tuple(run), first)
            run = []
    return None


def commented_affinity(document: Document, pod_spec_pointer: str) -> CommentedAffinity | None:
    """The commented affinity of a pod specification that has none; None if no comment has one with platform
    expressions.
    """
    node = item(document.root, pod_spec_pointer)
    if not isinstance(node, MappingNode) or node.flow_style or get(node, "affinity") is not None:
        return None
    try:
        pod_spec = layout(document, node)
    except CannotEdit:
        return None
    run = affinity_run(document, pod_spec)
    return _uncommented(document, run, pod_spec.column) if run else None


def _uncommented(document: Document, run: Run, columns: int) -> CommentedAffinity | None:
    source = document.source
    texts = [match["text"] for line in run.lines[run.first :] if (match := _COMMENT.fullmatch(source.text, *line))]
    match = _AFFINITY.match(texts[0])
    blank = match["blank"] if match else ""
    kept = [texts[0].removeprefix(blank)]
    for text in texts[1:]:
        inner = text.removeprefix(blank)
        if not text.startswith(blank) or not (inner.startswith((" ", "-")) or not inner.strip()):
            break
        kept.append(inner)
    while not kept[-1].strip():
        kept.pop()
    try:
        documents = compose(SourceText(source.path, "\n".join(kept) + "\n"))
    except SyntaxProblem:
        return None
    value = documents[0].value if len(documents) == 1 else None
    if not isinstance(value, dict) or set(value) != {"affinity"} or not _has_platforms(value["affinity"]):
        return None
    start, end = run.lines[run.first][0], run.lines[run.first + len(kept) - 1][1]
    lines = [(" " * columns + line).rstrip() for line in kept]
    return CommentedAffinity(value["affinity"], Edit(start, end, source.newline.join(lines)))


def _gaps(document: Document, pod_spec: Layout) -> Iterator[tuple[int, int]]:
    """The regions of white space and comments before the first key, between keys and after the last."""
    source = document.source
    start = source.line_start(pod_spec.entries[0].start)
    above = start
    while above > document.chunk_start:
        line = source.previous_line(above)
        text = source.text[line:above].strip()
        if text and not text.startswith("#"):
            break
        above = line
    yield above, start
    for entry, following in zip(pod_spec.entries, pod_spec.entries[1:], strict=False):
        yield source.next_line(entry.end), source.line_start(following.start)
    end = document.base + int(pod_spec.node.end_mark.index)
    yield source.next_line(pod_spec.entries[-1].end), min(end, document.chunk_end)


def _lines(source: SourceText, start: int, end: int) -> Iterator[tuple[int, int]]:
    while start < end:
        yield start, source.line_end(start)
        start = source.next_line(start)


def _says(document: Document, line: tuple[int, int], columns: int) -> bool:
    """Whether a comment line has ``affinity:``, at the mapping's column or right of it once uncommented."""
    match = _COMMENT.fullmatch(document.source.text, *line)
    found = _AFFINITY.match(match["text"]) if match else None
    if match is None or found is None:
        return False
    blank = len(found["blank"])  # one blank after the #
    return len(match["indent"]) + (blank if blank > 1 else 0) >= columns


def _has_platforms(affinity: Any) -> bool:
    """Whether some expression of the node affinity is on the architecture or the operating system."""
    stack = [affinity.get("nodeAffinity")] if isinstance(affinity, dict) else []
    while stack:
        value = stack.pop()
        if isinstance(value, dict):
            if value.get("key") in _PLATFORM_KEYS:
                return True
            stack += value.values()
        elif isinstance(value, list):
            stack += value
    return False
