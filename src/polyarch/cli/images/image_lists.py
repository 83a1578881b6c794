"""The images a command is asked about: from the command line and from lists, all checked before anything is sent.

A list has one reference per line; empty lines and what follows a ``#`` at the beginning of a line or after white space
do not count. Every reference that is none is named at once with its place, not only the first.
"""

import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from polyarch.cli.errors import UsageError
from polyarch.oci.mirrors.short_names import candidates
from polyarch.oci.mirrors.sources import Configuration
from polyarch.oci.reference import InvalidReference, Reference, parse

MAX_SHOWN = 20


class Given(NamedTuple):
    """One image as it was written, and what it names; ``others`` are the places to search for a short name next."""

    text: str
    reference: Reference
    others: tuple[Reference, ...] = ()


def given_images(images: Sequence[str], file: str | None = None, *, search: Configuration | None = None) -> list[Given]:
    """The images in order, those of the file (``-``: standard input) last. ``UsageError`` unless all are references.

    With ``search`` short names are looked for where that configuration says (RG-096), else they are Docker Hub's.
    """
    found: list[Given] = []
    problems: list[str] = []
    for place, text in _texts(images, file):
        try:
            first, *others = (parse(text),) if search is None else candidates(text, search)
            found.append(Given(text, first, tuple(others)))
        except InvalidReference as error:
            problems.append(f"{place}{error}")
    if problems:
        more = [f"and {len(problems) - MAX_SHOWN} more"] if len(problems) > MAX_SHOWN else []
        raise UsageError("\n".join([*problems[:MAX_SHOWN], *more]))
    if not found:
        raise UsageError("no image given; pass references such as quay.io/team/app:1.0, or --from-file FILE")
    return found


def _texts(images: Sequence[str], file: str | None) -> Iterator[tuple[str, str]]:
    for image in images:
        yield "", image
    if file is None:
        return
    name = "standard input" if file == "-" else file
    for number, line in enumerate(_read(file, name).splitlines(), start=1):
        text = _without_comment(line).strip()
        if text:
            yield f"{name}:{number}: ", text


def _read(file: str, name: str) -> str:
    try:
        body = sys.stdin.buffer.read() if file == "-" else Path(file).read_bytes()
        return body.decode("utf-8-sig")
    except OSError as error:
        raise UsageError(f"{name}: {error.strerror}; expected a file with one image reference per line") from None
    except UnicodeDecodeError as error:
        raise UsageError(
            f"{name}: not UTF-8 at byte {error.start}; expected a text file with image references"
        ) from None


def _without_comment(line: str) -> str:
    position = line.find("#")
    while position > 0 and not line[position - 1].isspace():
        position = line.find("#", position + 1)
    return line if position < 0 else line[:position]
