"""Which files besides manifests are looked at, and what a rule says about a line of one.

These are no documents of Kubernetes, so what a repair changes is text: an edit, not an operation on a tree. Nothing is
executed or expanded; a value with a variable in it is nobody's fixed value.

Pure.
"""

import posixpath
from collections.abc import Iterator
from dataclasses import dataclass

from polyarch.manifests.editing.splices import Edit
from polyarch.manifests.lint.rule import Rule


def is_source(path: str) -> bool:
    """Whether a file is one that these rules read."""
    return is_dockerfile(path) or is_build(path) or is_go(path)


def is_dockerfile(path: str) -> bool:
    name = posixpath.basename(path).lower()
    return (
        name in ("dockerfile", "containerfile")
        or name.startswith(("dockerfile.", "containerfile."))
        or (name.endswith((".dockerfile", ".containerfile")))
    )


def is_build(path: str) -> bool:
    name = posixpath.basename(path)
    workflow = f"/{path}".find("/.github/workflows/") >= 0 and name.endswith((".yml", ".yaml"))
    return workflow or name in ("Makefile", "GNUmakefile", "makefile", ".gitlab-ci.yml") or name.endswith(".mk")


def is_go(path: str) -> bool:
    return path.endswith(".go")


@dataclass(frozen=True)
class Hit:
    """What a rule found, from ``start`` to ``end`` of the text."""

    rule: Rule
    start: int
    end: int
    message: str
    hint: str
    images: tuple[str, ...] = ()
    edits: tuple[Edit, ...] = ()


def lines(text: str) -> Iterator[tuple[int, str]]:
    """Each line with its break, and where it starts."""
    start = 0
    for line in text.splitlines(keepends=True):
        yield start, line
        start += len(line)
