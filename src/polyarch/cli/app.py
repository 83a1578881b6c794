"""The command tree, and what happens to an error that reaches the top.

Sub-commands are registered by import path and loaded only when called, so ``polyarch --help`` and pure commands start
without aiohttp. ``UsageError`` and ``CouldNotComplete`` are the two errors a command raises to end with 2 and 3.
"""

import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, redirect_stdout, suppress

from cyclopts import App, CycloptsError

from polyarch import __version__
from polyarch.cli.errors import CommandError
from polyarch.cli.options.help_page import HelpPage

app = App(
    name="polyarch",
    version=__version__,
    help="Kubernetes clusters whose nodes are not all alike: place pods by what their images can run on.",
    help_format="plaintext",
    help_formatter=HelpPage(),
)
app.command("polyarch.cli.images.inspect:inspect", name="inspect", help="Print the platforms that images can run on.")
app.command("polyarch.cli.explain.explain:explain", name="explain", help="Say why a pod is where it is, or would be.")
app.command("polyarch.cli.lint.lint:lint", name="lint", help="Find pods that may run where their images cannot.")
app.command("polyarch.cli.lint.fix:fix", name="fix", help="Repair what lint finds, and touch nothing else.")
app.command("polyarch.cli.bundle.validate:app", name="bundle", help="Judge an operator bundle as the cluster would.")
app.command("polyarch.cli.images.index:app", name="index", help="Create and inspect image indexes.")
app.command("polyarch.cli.cluster.sandbox:up", name="up", help="Start a real control plane with fake nodes here.")
app.command("polyarch.cli.cluster.sandbox:down", name="down", help="Stop the sandbox; its state is kept.")
app.command("polyarch.cli.cluster.sandbox:status", name="status", help="Show what runs in the sandbox.")
app.command("polyarch.cli.cluster.sandbox:app", name="sandbox", help="The sandbox's parts: binaries, images.")
app.command("polyarch.cli.cluster.run:app", name="run", help="Run one process of the operator.")
app.command(
    "polyarch.cli.completion:install", name="--install-completion", help="Install completion of commands in your shell."
)


def run_command(arguments: Sequence[str] | None = None) -> int:
    """Run one command line; returns the exit code (0 clean, 1 findings, 2 usage, 3 could not complete)."""
    try:
        with _standard_output():
            code = app(
                list(sys.argv[1:] if arguments is None else arguments),
                exit_on_error=False,
                print_error=False,
                result_action="return_value",
            )
    except CycloptsError as error:
        return _complain(str(error), 2)
    except CommandError as error:
        return _complain(str(error), error.exit_code)
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:
        return 0
    except OSError as error:  # the environment's fault, such as a full disk behind a redirection
        return _complain(": ".join(str(part) for part in (error.filename, error.strerror or error) if part), 3)
    return code if isinstance(code, int) else 0


def _complain(problem: str, code: int) -> int:
    """One line on stderr, however long: logs are searched by lines."""
    from rich.console import Console  # a tenth of the start of a command that says nothing on it

    console = Console(stderr=True, highlight=False)
    console.print(f"polyarch: {problem}", style="red", markup=False, soft_wrap=True)
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
