"""The command tree, and what happens to an error that reaches the top.

Sub-commands are registered by import path and loaded only when called, so ``polyarch --help`` and pure commands start
without aiohttp. ``UsageError`` and ``CouldNotComplete`` are the two errors a command raises to end with 2 and 3.
"""

import shutil
import sys
from collections.abc import Sequence

from cyclopts import App, CycloptsError

from polyarch import __version__
from polyarch.cli.options.help_page import FLAGS, asks_for_help, help_page, names_no_command
from polyarch.cli.options.usage_errors import other_command, refuse_versions, sentence, with_values
from polyarch.cli.output.messages import NextProgram, complain, exit_code_of
from polyarch.cli.output.terminal import takes_colour

AUTHORS, CLUSTERS, INSTALLATION = "Manifests and images", "Workloads and nodes", "Installation"
SANDBOX, OTHER = "Sandbox", "Other"
COMMANDS = (
    ("lint", AUTHORS, "lint.commands:lint", "Find pods that can be scheduled to nodes their images do not run on"),
    ("fix", AUTHORS, "lint.commands:fix", "Fix what lint finds, and change nothing else"),
    ("inspect", AUTHORS, "images.commands:inspect", "Print the platforms of images"),
    ("index", AUTHORS, "images.commands:app", "Create and inspect image indexes"),
    ("bundle", AUTHORS, "bundle:app", "Validate operator bundles"),
    ("report", CLUSTERS, "report.commands:report", "Report which workloads could run where, and what is in the way"),
    ("explain", CLUSTERS, "explain.commands:explain", "Explain where a pod may run, and why"),
    ("taint", CLUSTERS, "taint.commands:app", "Taint nodes by architecture in the safe order, or undo it"),
    ("build", CLUSTERS, "build.commands:app", "Build one image for every architecture in the cluster"),
    ("numa", CLUSTERS, "numa.commands:app", "See what NUMA cells have, and where pods fit"),
    ("install", INSTALLATION, "installation.commands:install", "Install polyarch in a cluster"),
    ("upgrade", INSTALLATION, "installation.commands:upgrade", "Upgrade polyarch, or print what that would change"),
    ("uninstall", INSTALLATION, "installation.commands:uninstall", "Remove polyarch from a cluster"),
    ("run", INSTALLATION, "roles.commands:app", "Run a process of the operator"),
    ("up", SANDBOX, "sandbox.commands:up", "Start a local control plane, a registry and nodes"),
    ("down", SANDBOX, "sandbox.commands:down", "Stop the sandbox"),
    ("status", SANDBOX, "sandbox.commands:status", "Show the state of the sandbox"),
    ("sandbox", SANDBOX, "sandbox.commands:app", "Manage binaries, images and sandboxes"),
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


def run_command(arguments: Sequence[str] | None = None) -> int:
    """Run one command line; returns the exit code (0 clean, 1 findings, 2 usage, 3 could not complete)."""
    words = list(sys.argv[1:] if arguments is None else arguments)

    def work() -> object:
        result = _run(words)
        return result.run(own=arguments is None) if isinstance(result, NextProgram) else result

    try:
        return exit_code_of(work)
    except CycloptsError as error:
        return complain(f"{sentence(error)}{other_command(words)}", 2)


def _run(words: list[str]) -> object:
    if words[:1] == ["__complete"]:
        from polyarch.cli.completion import print_completions

        return print_completions(app, words[1:])
    if words[:1] == ["__complete-kubectl"]:
        from polyarch.cli.completion import print_to_kubectl

        return print_to_kubectl(app, words[1:])
    if asks_for_help(words) or names_no_command(app, words):
        page = help_page(app, words, width=shutil.get_terminal_size().columns, colour=takes_colour())
        if page is not None:
            sys.stdout.write(page)
            return 0
        words = [word for word in words if word not in FLAGS]
    refuse_versions(words)
    return app(with_values(words), exit_on_error=False, print_error=False, result_action="return_value")
