"""The command tree, and what happens to an error that reaches the top.

Sub-commands are registered by import path and loaded only when called, so ``polyarch --help`` and pure commands start
without aiohttp. ``UsageError`` and ``CouldNotComplete`` are the two errors a command raises to end with 2 and 3.
"""

import sys
from collections.abc import Sequence

from cyclopts import App, CycloptsError

from polyarch import __version__
from polyarch.cli.errors import CommandError
from polyarch.cli.help_page import HelpPage

app = App(
    name="polyarch",
    version=__version__,
    help="Kubernetes clusters whose nodes are not all alike: place pods by what their images can run on.",
    help_format="plaintext",
    help_formatter=HelpPage(),
)
app.command("polyarch.cli.inspect:inspect", name="inspect", help="Print the platforms that images can run on.")
app.command("polyarch.cli.explain:explain", name="explain", help="Say why a pod is where it is, or would be.")
app.command("polyarch.cli.lint:lint", name="lint", help="Find manifests that admit nodes their images cannot run on.")
app.command("polyarch.cli.fix:fix", name="fix", help="Repair what lint finds, and touch nothing else.")
app.command("polyarch.cli.bundle:app", name="bundle", help="Judge an operator bundle as the cluster would.")
app.command("polyarch.cli.index:app", name="index", help="Join images into one index; print what an index names.")
app.command("polyarch.cli.sandbox:up", name="up", help="Bring up a real control plane, a registry and fake nodes here.")
app.command("polyarch.cli.sandbox:down", name="down", help="Stop the sandbox; its state is kept.")
app.command("polyarch.cli.sandbox:status", name="status", help="Show what runs in the sandbox.")
app.command("polyarch.cli.sandbox:app", name="sandbox", help="The sandbox's parts: binaries, images.")
app.command("polyarch.cli.run:app", name="run", help="Run one process of the operator.")
app.command(
    "polyarch.cli.completion:install", name="--install-completion", help="Install completion of commands in your shell."
)


def run_command(arguments: Sequence[str] | None = None) -> int:
    """Run one command line; returns the exit code (0 clean, 1 findings, 2 usage, 3 could not complete)."""
    try:
        code = app(
            list(sys.argv[1:] if arguments is None else arguments),
            exit_on_error=False,
            print_error=True,
            result_action="return_value",
        )
    except CycloptsError:
        return 2
    except CommandError as error:
        from rich.console import Console  # a tenth of the start of a command that says nothing on it

        console = Console(stderr=True, highlight=False)
        console.print(f"polyarch: {error}", style="red", markup=False, soft_wrap=True)
        return error.exit_code
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:
        return 0
    return code if isinstance(code, int) else 0
