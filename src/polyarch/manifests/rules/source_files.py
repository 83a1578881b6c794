"""Which build files the rules MA3xx check, and what a rule reports about a line of one.

These files are not Kubernetes documents, so a fix is an edit of text instead of operations on a tree. Nothing is
executed or expanded; a value that contains a variable is not a fixed value.

Pure. The search for files imports this module; it stays apart from the rules so that other commands do not load them.
"""

import posixpath
from collections.abc import Iterator
from dataclasses import dataclass

from polyarch.manifests.finding import Rule
from polyarch.manifests.operations import TreeOperation
from polyarch.manifests.scan.dockerfiles import is_dockerfile
from polyarch.manifests.scan.text import TextEdit


def is_source(path: str) -> bool:
    """Whether these rules check a file."""
    return is_dockerfile(path) or is_build(path) or is_go(path)


def is_build(path: str) -> bool:
    name = posixpath.basename(path)
    workflow = f"/{path}".find("/.github/workflows/") >= 0 and name.endswith((".yml", ".yaml"))
    return workflow or name in ("Makefile", "GNUmakefile", "makefile", ".gitlab-ci.yml") or name.endswith(".mk")


def is_go(path: str) -> bool:
    return path.endswith(".go")


@dataclass(frozen=True)
class SourceFinding:
    """A finding in a build file, from ``start`` to ``end`` of the text."""

    rule: Rule
    start: int
    end: int
    message: str
    hint: str
    images: tuple[str, ...] = ()
    edits: tuple[TextEdit, ...] = ()
    operations: tuple[TreeOperation, ...] = ()
    """The same on the list of instructions: ``/3`` is the text of the fourth."""
    note: str = ""
    """Why there is no automatic fix, where the rule has one."""


def lines(text: str) -> Iterator[tuple[int, str]]:
    """The offset and text of each line, its break included."""
    start = 0
    for line in text.splitlines(keepends=True):
        yield start, line
        start += len(line)
