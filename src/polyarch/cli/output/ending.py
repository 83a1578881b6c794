"""How a program of ours ends: what its errors print, and its exit code.

Shared by the command line and by what goes on in its place (``polyarch run``), so that nobody sees a difference.
"""

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stdout, suppress
from typing import Protocol, runtime_checkable

from polyarch.cli.errors import CommandError
from polyarch.cli.output.terminal import printable, styled, takes_colour


@runtime_checkable
class GoesOn(Protocol):
    """What a command returns in place of an exit code if another program does its work."""

    def go_on(self, *, own: bool) -> int:
        """Does it and returns the exit code; if the process is the command line's ``own``, in its place."""
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
