"""Options that every command has: ``-o``, ``-q`` and ``-v``, and the cluster's.

They stand apart from ``values``, which ``polyarch --help`` loads for the names of groups.
"""

import os
import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Annotated, Literal, NamedTuple

from cyclopts import Parameter

from polyarch.cli.errors import CommandError, UsageError
from polyarch.cli.options.values import CLUSTER, OUTPUT, Context, File, Placeholder, flag, option
from polyarch.cli.output.messages import Messages
from polyarch.cli.output.terminal import takes_colour

# -- ``-q`` and ``-v``


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class Verbosity:
    """Less or more than usual."""

    quiet: Annotated[bool, flag("Print the result and errors only", "-q", "--quiet", group=OUTPUT)] = False
    verbose: Annotated[bool, flag("Also print how the result came about", "-v", "--verbose", group=OUTPUT)] = False

    def messages(self) -> Messages:
        """What to print with; :class:`UsageError` for both."""
        if self.quiet and self.verbose:
            raise UsageError("--quiet and --verbose cannot be combined; remove one of them")
        return Messages(quiet=self.quiet, verbose=self.verbose)


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class LogVerbosity(Verbosity):
    """The same of a process that logs."""

    quiet: Annotated[bool, flag("Log warnings and errors only", "-q", "--quiet", group=OUTPUT)] = False
    verbose: Annotated[bool, flag("Log details, too", "-v", "--verbose", group=OUTPUT)] = False


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class ClusterFlags:
    """Which cluster."""

    kubeconfig: Annotated[File | None, option("Kubeconfig", group=CLUSTER, show_default="as kubectl")] = None
    context: Annotated[
        Context | None, option("Context of the kubeconfig", group=CLUSTER, show_default="the current one")
    ] = None


AS_USUAL = Verbosity()
USUAL_CLUSTER = ClusterFlags()
LOGGED_AS_USUAL = LogVerbosity()

# -- ``-o/--output FORMAT[=FILE]``, any number of times


STDOUT = "-"
Format = Annotated[Literal["text", "json", "yaml"], Placeholder("FORMAT[=FILE]")]
FORMATS = ("text", "json", "yaml")


def _listed(formats: Sequence[str]) -> str:
    return f"{', '.join(formats[:-1])} or {formats[-1]}" if len(formats) > 1 else formats[0]


class Output(NamedTuple):
    """A format and the file it goes to; ``-`` is stdout."""

    format: str
    place: str = STDOUT


def output_option(*formats: str) -> Parameter:
    """The declaration; the first format is the default."""
    said = f"Output format: {_listed(formats)}; with =FILE to a file; repeatable"
    return option(said, "-o", "--output", group=OUTPUT, show_default=formats[0], hyphen=True)


OUTPUT_OPTION = output_option(*FORMATS)


def outputs(values: Sequence[str] | None, formats: Sequence[str] = FORMATS) -> list[Output]:
    """Where each format goes; the first of ``formats`` to stdout without a value. Raises :class:`UsageError`."""
    found = [_output(text, formats) for text in values or ()] or [Output(formats[0])]
    files = [each.place for each in found if each.place != STDOUT]
    twice = next((place for place in files if files.count(place) > 1), None)
    if twice is not None:
        raise UsageError(f"--output: {twice} is named twice; give each format a file of its own")
    return found


def refuse_overwriting(wanted: Sequence[Output], inputs: Iterable[str | None], *, saved: str | None = None) -> None:
    """:class:`UsageError` if an output would replace a file that the same command line names as input. ``saved``: the
    file that ``--save`` writes, which may be neither an input nor an output."""
    named = {os.path.realpath(path) for path in inputs if path and path != STDOUT}
    if saved is not None:
        place = os.path.realpath(saved)
        if place in named or any(each.place != STDOUT and os.path.realpath(each.place) == place for each in wanted):
            raise UsageError(f"--save {saved}: this file is an input or an output of the command; name another")
    for each in wanted:
        if each.place != STDOUT and os.path.realpath(each.place) in named:
            raise UsageError(f"--output {each.format}={each.place}: this file is an input of the command; name another")


def emit(wanted: Sequence[Output], render: Callable[[str, bool], str]) -> None:
    """Print and write: ``render(format, colour)`` is the text of a format.

    A place that cannot be written to holds up no other; the first such error is raised at the end.
    """
    failed: list[OSError | CommandError] = []
    for each in wanted:
        try:
            if each.place == STDOUT:
                sys.stdout.write(render(each.format, each.format == "text" and takes_colour()))
                sys.stdout.flush()
            else:
                from polyarch.cli.input.files import write_file  # it knows which files are manifests, and so loads YAML

                write_file(each.place, render(each.format, False).encode())
        except (OSError, CommandError) as error:
            failed.append(error)
    if failed:
        raise failed[0]


def _output(text: str, formats: Sequence[str]) -> Output:
    form, equals, place = text.partition("=")
    if form not in formats:
        raise UsageError(f"--output {text}: unknown format {form!r}; expected {_listed(formats)}, or FORMAT=FILE")
    if equals and not place:
        raise UsageError(f"--output {text}: no file after the =; give {form}=FILE, or {form} for stdout")
    return Output(form, place or STDOUT)
