"""What a command prints besides its answer, on stderr: notes, progress, the question before a write, the last error."""

import os
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stdout, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, Self, TextIO, runtime_checkable

from polyarch.cli.errors import CommandError, UsageError
from polyarch.cli.output.terminal import is_terminal, printable, styled, takes_colour

if TYPE_CHECKING:
    from rich.console import Console


class Progress(Protocol):
    """How far a long work is, while its block lasts."""

    def __enter__(self) -> Self: ...

    def __exit__(self, *_: object) -> None: ...

    def advance(self) -> None:
        """One more is done."""

    def remark(self, text: str) -> None:
        """A line that stays."""


@dataclass(frozen=True)
class Messages:
    """Notes unless quiet, details if verbose."""

    quiet: bool = False
    verbose: bool = False

    def note(self, text: str) -> None:
        """What somebody should know; nothing with ``-q``."""
        if not self.quiet:
            _print(text)

    def remark(self, text: str) -> None:
        """A step, or what a registry said, as it is; nothing with ``-q``."""
        if not self.quiet:
            print(printable(text), file=sys.stderr, flush=True)

    def detail(self, text: str) -> None:
        """How the answer came about; only with ``-v``."""
        if self.verbose:
            _print(text)

    def warn(self, text: str) -> None:
        """What has to be changed; always."""
        warning = styled("warning:", "yellow", colour=takes_colour(sys.stderr))
        print(f"polyarch: {warning} {printable(text)}", file=sys.stderr, flush=True)

    def progress(self, text: str, total: int) -> Progress:
        """How far a work of ``total`` steps is: a bar on a terminal, lines in a pipe, nothing with ``-q``."""
        if self.quiet:
            return SilentProgress()
        if not is_terminal(sys.stderr):
            return LineProgress(text, total, sys.stderr)
        return Bar(text, total)


USUAL = Messages()


def _print(text: str) -> None:
    print(f"polyarch: {printable(text)}", file=sys.stderr, flush=True)


# -- progress


LINE_EVERY = 10.0
"""Seconds between the lines of progress in a pipe."""
SHOWN_AFTER = 1.0
"""Seconds before a bar appears: what is quicker needs none."""


class LineProgress:
    """Progress in a pipe: a line once in a while."""

    def __init__(self, text: str, total: int, stream: TextIO) -> None:
        self._text = printable(text)
        self._total = total
        self._done = 0
        self._stream = stream
        self._told = time.monotonic()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._stream.flush()

    def advance(self) -> None:
        """One more is done."""
        self._done += 1
        if time.monotonic() - self._told >= LINE_EVERY and self._done < self._total:
            self._told = time.monotonic()
            self.remark(f"{self._text}: {self._done} of {self._total}")

    def remark(self, text: str) -> None:
        """A line of its own."""
        print(printable(text), file=self._stream, flush=True)


class SilentProgress:
    """No progress, and no remarks."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def advance(self) -> None:
        """Nothing is said."""

    def remark(self, text: str) -> None:
        """Nothing is said."""


class Bar:
    """A bar on a terminal that appears after a second and leaves nothing behind."""

    def __init__(self, text: str, total: int, target: "Console | None" = None) -> None:
        # rich takes longer to import than most commands run
        from rich.console import Console
        from rich.progress import (
            BarColumn,
            MofNCompleteColumn,
            Progress,
            SpinnerColumn,
            TextColumn,
            TimeElapsedColumn,
        )

        target = target or Console(stderr=True, highlight=False, soft_wrap=True)
        columns = (SpinnerColumn(), TextColumn("{task.description}"), BarColumn(bar_width=30), MofNCompleteColumn())
        self._progress = Progress(*columns, TimeElapsedColumn(), console=target, transient=True)
        self._task = self._progress.add_task(printable(text), total=total)
        self._timer = threading.Timer(SHOWN_AFTER, self._progress.start)
        self._timer.daemon = True

    def __enter__(self) -> Self:
        self._timer.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._timer.cancel()
        self._timer.join()
        self._progress.stop()

    def advance(self) -> None:
        """One more is done."""
        self._progress.advance(self._task)

    def remark(self, text: str) -> None:
        """A line that stays, above the bar."""
        from rich.text import Text

        self._progress.console.print(Text(printable(text)), soft_wrap=True)


# -- logs of libraries


def errors_only(*, verbose: bool = False) -> None:
    """From now on what libraries log goes to the stderr of this moment, if it is an error; ``verbose``: all of it.

    Tracebacks have no local variables. Processes of the operator log by ``polyarch.run.logs``.
    """
    import logging

    import structlog  # half of the start of a command that logs nothing

    structlog.configure(
        processors=[
            structlog.processors.add_log_level,
            structlog.dev.ConsoleRenderer(
                colors=sys.stderr.isatty(), exception_formatter=structlog.dev.plain_traceback
            ),
        ],
        wrapper_class=structlog.make_filtering_bound_logger(logging.DEBUG if verbose else logging.ERROR),
        logger_factory=lambda *_: structlog.PrintLogger(sys.stderr),
    )


# -- confirmation


def confirm(command: str, *, yes: bool, question: str = "This writes to the cluster. Go on?") -> None:
    """Asks who sits at a terminal. ``UsageError`` without one: nobody can answer, and silence is no consent."""
    if yes:
        return
    if not is_terminal(sys.stdin):
        raise UsageError(f"{command}: give --yes: without a terminal nobody can be asked; --dry-run writes nothing")
    print(f"polyarch: {question} [y/N] ", end="", file=sys.stderr, flush=True)
    if sys.stdin.readline().strip().lower() not in ("y", "yes"):
        raise UsageError(f"{command}: not confirmed; nothing was written")


# -- exit


@runtime_checkable
class NextProgram(Protocol):
    """What a command returns in place of an exit code if another program does its work."""

    def run(self, *, own: bool) -> int:
        """Does the work and returns the exit code; if the process is the command line's ``own``, in its place."""
        ...


def exit_code_of(work: Callable[[], object]) -> int:
    """Does the work; its exit code is what it returns, or that of the error which ends it."""
    try:
        with _standard_output():
            code = work()
    except CommandError as error:
        return complain(str(error), error.exit_code)
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:
        return 0
    except OSError as error:  # the environment's fault, such as a full disk behind a redirection
        return complain(": ".join(str(part) for part in (error.filename, error.strerror or error) if part), 3)
    return code if isinstance(code, int) else 0


def complain(problem: str, code: int) -> int:
    """One line on stderr for each problem, however long: logs are searched by lines. Errors cite what is not ours, such
    as manifests and answers of registries, so no character is left that a terminal would obey."""
    said = "\n".join(map(printable, problem.split("\n")))
    print(styled(f"polyarch: {said}", "red", colour=takes_colour(sys.stderr)), file=sys.stderr)
    return code


@contextmanager
def _standard_output() -> Iterator[None]:
    """Where a process was started without one, nothing is printed. What cannot be written is known before the end, and
    not tried again when the process ends: that would print a traceback, and change the exit code.
    """
    if sys.stdout is None:
        with open(os.devnull, "w", encoding="utf-8") as nowhere, redirect_stdout(nowhere):  # noqa: PTH123 - a device
            yield
        return
    try:
        yield
        sys.stdout.flush()
    except OSError:
        with suppress(OSError), open(os.devnull, "wb") as instead:  # noqa: PTH123 - a device
            os.dup2(instead.fileno(), sys.stdout.fileno())
        raise
