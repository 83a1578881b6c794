"""``polyarch numa top``: what every cell has and has left (NS-160).

The command line alone; ``watching`` does the work.
"""

from typing import Annotated, Literal

from cyclopts import App

from polyarch.cli.numa.sources.flags import FROM_CLUSTER, NODES, SourceOptions
from polyarch.cli.options.help_page import epilogue
from polyarch.cli.options.outputs import FORMATS, OUTPUT_OPTION, Format, outputs, refuse_overwriting
from polyarch.cli.options.values import OUTPUT, Name, Placeholder, flag, option
from polyarch.cli.options.verbosity import AS_USUAL, Verbosity

Sort = Annotated[Literal["used", "free", "name"], Placeholder("ORDER")]
Resource = Annotated[str, Placeholder("RESOURCE")]

EPILOGUE = epilogue(
    note="""\
Shows a line per cell: what is free of each resource, what is reserved for pods that the node's
object does not show yet, and the largest pod that would still fit. In a pipe every amount has a
column of its own. A running extender tells what it has reserved; without one, reservations are
those that it would make if it started now, which is said.

Marks: stale (the exporter is silent), unexplained (the object counts other pods than are known),
mispredicted (pods were not put where it was expected), no-nrt (nothing is published), cordoned.""",
    examples=(
        ("See all cells of the cluster", "polyarch numa top"),
        ("See where a device is left, fullest nodes first", "polyarch numa top --resource example.com/gpu --sort used"),
        ("Find nodes that do not align as they should", "polyarch numa top --check"),
        ("Look at what was saved of a cluster", "polyarch numa top --nrt topologies.json --nodes nodes.json"),
    ),
    exits=(
        (0, "printed; with --check there is no finding"),
        (1, "with --check: there is a finding"),
        (2, "the command line, or a file it names, is wrong"),
        (3, "the API server could not be asked"),
    ),
)


def show(
    *names: Annotated[Name, option("Nodes to show", group=NODES, show_default="all")],
    resource: Annotated[
        list[Resource] | None, option("Resources to show; repeatable", group=NODES, show_default="cpu and memory")
    ] = None,
    sort: Annotated[Sort, option("Order of the nodes", group=NODES)] = "name",
    watch: Annotated[bool, flag("Show it again and again until Ctrl-C", group=OUTPUT)] = False,
    check: Annotated[bool, flag("Add findings, and exit with 1 if there are any", group=OUTPUT)] = False,
    where: SourceOptions = FROM_CLUSTER,
    output: Annotated[list[Format | str] | None, OUTPUT_OPTION] = None,
    verbosity: Verbosity = AS_USUAL,
) -> int:
    """Show what every NUMA cell has and has left; returns the exit code."""
    messages = verbosity.messages()
    wanted = outputs(output, FORMATS, messages=messages)
    refuse_overwriting(wanted, where.files)
    from polyarch.cli.numa.top.watching import Asked, run_top

    asked = Asked(
        names=names, resources=tuple(dict.fromkeys(resource or ())), sort=sort, watch=watch, check=check, where=where
    )
    return run_top(asked, wanted, messages=messages)


top = App(name="top", help_epilogue=EPILOGUE)
top.default(show)
