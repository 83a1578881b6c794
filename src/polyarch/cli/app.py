"""The command tree, and what happens to an error that reaches the top.

Sub-commands are registered by import path and loaded only when called, so ``polyarch --help`` and pure commands start
without aiohttp. ``UsageError`` and ``CouldNotComplete`` are the two errors a command raises to end with 2 and 3.
"""

import os
import shutil
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, redirect_stdout, suppress

from cyclopts import App, CycloptsError

from polyarch import __version__
from polyarch.cli.errors import CommandError
from polyarch.cli.options.help_page import FLAGS, asks_for_help, help_page
from polyarch.cli.options.misplaced import other_command
from polyarch.cli.options.renamed import with_new_names
from polyarch.cli.output.messages import Messages
from polyarch.cli.output.terminal import styled, takes_colour

AUTHORS, CLUSTERS, SANDBOX, OTHER = "Manifests and images", "Clusters", "Sandbox", "Other"
COMMANDS = (
    ("lint", AUTHORS, "lint.lint:lint", "Find pods that can be scheduled to nodes their images do not run on"),
    ("fix", AUTHORS, "lint.fix:fix", "Fix what lint finds, and change nothing else"),
    ("inspect", AUTHORS, "images.inspect:inspect", "Print the platforms of images"),
    ("index", AUTHORS, "images.index:app", "Create and inspect image indexes"),
    ("bundle", AUTHORS, "bundle.validate:app", "Validate operator bundles"),
    ("explain", CLUSTERS, "explain.explain:explain", "Explain where a pod may run, and why"),
    ("taint", CLUSTERS, "taint.taint:app", "Taint nodes by architecture in the safe order, or undo it"),
    ("install", CLUSTERS, "installation.install:install", "Install polyarch in a cluster"),
    ("upgrade", CLUSTERS, "installation.upgrade:upgrade", "Upgrade polyarch, or print what that would change"),
    ("uninstall", CLUSTERS, "installation.uninstall:uninstall", "Remove polyarch from a cluster"),
    ("run", CLUSTERS, "cluster.run:app", "Run a process of the operator"),
    ("up", SANDBOX, "cluster.sandbox:up", "Start a local control plane, a registry and fake nodes"),
    ("down", SANDBOX, "cluster.sandbox:down", "Stop the sandbox"),
    ("status", SANDBOX, "cluster.sandbox:status", "Show the state of the sandbox"),
    ("sandbox", SANDBOX, "cluster.sandbox:app", "Manage binaries, images and sandboxes"),
    ("completion", OTHER, "completion:completion", "Print a shell completion script"),
)
"""Name, group, place and meaning of each command, in the order of the help."""

app = App(
    name="polyarch",
    version=__version__,
    help="Run mixed-architecture Kubernetes clusters: place pods by the platforms of their images.",
)
for name, group, place, meaning in COMMANDS:
    app.command(f"polyarch.cli.{place}", name=name, group=group, help=meaning)
app.command("polyarch.cli.shell_setup:install", name="--install-completion", show=False)


def run_command(arguments: Sequence[str] | None = None) -> int:
    """Run one command line; returns the exit code (0 clean, 1 findings, 2 usage, 3 could not complete)."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    try:
        with _standard_output():
            code = _run(words)
    except CycloptsError as error:
        return _complain(f"{error}{other_command(words)}", 2)
    except CommandError as error:
        return _complain(str(error), error.exit_code)
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:
        return 0
    except OSError as error:  # the environment's fault, such as a full disk behind a redirection
        return _complain(": ".join(str(part) for part in (error.filename, error.strerror or error) if part), 3)
    return code if isinstance(code, int) else 0


def _run(words: list[str]) -> object:
    if words[:1] == ["__complete"]:
        from polyarch.cli.completion import print_candidates

        return print_candidates(app, words[1:])
    if not words or asks_for_help(words):
        page = help_page(app, words, width=shutil.get_terminal_size().columns, colour=takes_colour())
        if page is not None:
            sys.stdout.write(page)
            return 0
        words = [word for word in words if word not in FLAGS]
    words = with_new_names(words, Messages().warn)
    return app(words, exit_on_error=False, print_error=False, result_action="return_value")


def _complain(problem: str, code: int) -> int:
    """One line on stderr, however long: logs are searched by lines."""
    print(styled(f"polyarch: {problem}", "red", colour=takes_colour(sys.stderr)), file=sys.stderr)
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
