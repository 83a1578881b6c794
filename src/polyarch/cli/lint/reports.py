"""Printing a report: which forms, and where to (MF-030, MF-040)."""

import importlib
import sys
from collections.abc import Sequence

from polyarch.cli.errors import UsageError
from polyarch.cli.input.files import write_file
from polyarch.cli.options.manifests import Format
from polyarch.cli.output.render import takes_colour
from polyarch.manifests.report import Report


def pairs(formats: Sequence[Format], outputs: Sequence[str]) -> list[tuple[Format, str]]:
    """Each form with its place; text on stdout if none is given. ``UsageError`` unless they pair (MF-030)."""
    given = list(formats) or ["text"]
    places = list(outputs) or ["-"]
    if len(given) != len(places):
        raise UsageError(
            f"{len(formats)} --format and {len(outputs)} --output: give one --output for each --format, - is stdout"
        )
    files = [place for place in places if place != "-"]
    for place in files:
        if files.count(place) > 1:
            raise UsageError(f"--output {place} is given twice; the second would replace the first")
    return list(zip(given, places, strict=True))


def write_reports(report: Report, outputs: Sequence[tuple[Format, str]]) -> None:
    """All forms; a file appears whole or not at all."""
    for form, place in outputs:
        if place == "-":
            sys.stdout.write(rendered(report, form, colour=form == "text" and takes_colour()))
            sys.stdout.flush()
        else:
            write_file(place, rendered(report, form).encode())


def rendered(report: Report, form: Format, *, colour: bool = False) -> str:
    """The text of one form."""
    if form == "text":
        from polyarch.manifests.output import text

        return text.render(report, colour=colour)
    rendering = importlib.import_module(f"polyarch.manifests.output.{form}")
    result: str = rendering.render(report)
    return result
