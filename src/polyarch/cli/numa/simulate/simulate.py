"""``polyarch numa simulate``: where pods would go, before anybody makes them (NS-162).

The command line alone; ``playing`` does the work.
"""

from typing import Annotated

from cyclopts import App

from polyarch.cli.errors import UsageError
from polyarch.cli.numa.sources.flags import FROM_CLUSTER, SourceOptions
from polyarch.cli.numa.sources.mode_flags import AS_USUAL as AS_EXTENDER
from polyarch.cli.numa.sources.mode_flags import ModeOptions
from polyarch.cli.options.help_page import epilogue
from polyarch.cli.options.outputs import FORMATS, OUTPUT_OPTION, Format, outputs, refuse_overwriting
from polyarch.cli.options.values import File, Name, Number, flag, option, subject
from polyarch.cli.options.verbosity import AS_USUAL, Verbosity

EPILOGUE = epilogue(
    note="""\
Places pods one after the other, as a scheduler with our extender would: each goes to the best
node that can hold it inside its cells, and takes what it needs there. Sums over nodes are
checked, too, where Nodes are known; taints, selectors and affinity are not. Nothing is ever
written. The same question about the same nodes has the same answer.

Pods are placed wherever they are bound now. A Deployment, ReplicaSet, StatefulSet or Job counts
with its replicas.""",
    examples=(
        (
            "See where the pods of a manifest would go in this cluster",
            "polyarch numa simulate -f deploy.yaml --cluster",
        ),
        (
            "See how many more copies fit, and what runs out first",
            "polyarch numa simulate -f pod.yaml --cluster --fill",
        ),
        ("See whether a node's pods find room elsewhere", "polyarch numa simulate --drain worker-1 --cluster"),
        (
            "Ask the same of saved nodes",
            "polyarch numa simulate -f pod.yaml --nrt topologies.json --nodes nodes-and-pods.json --repeat 40",
        ),
    ),
    exits=(
        (0, "every pod is placed"),
        (1, "a pod is not placed"),
        (2, "the command line, or a file it names, is wrong"),
        (3, "the API server could not be asked"),
    ),
)
PLACED = subject("What to place")


def play(
    *,
    file: Annotated[
        list[File] | None,
        option(
            "Manifests with pods or workloads; - is standard input; repeatable",
            "-f",
            "--file",
            group=PLACED,
            hyphen=True,
        ),
    ] = None,
    cluster: Annotated[bool, flag("On the nodes of the cluster as they are now", group=PLACED)] = False,
    fill: Annotated[bool, flag("Also count how many more copies of all of it fit", group=PLACED)] = False,
    repeat: Annotated[Number, option("Place everything so many times", group=PLACED)] = 1,
    drain: Annotated[Name | None, option("Place the pods of this node elsewhere first", group=PLACED)] = None,
    explain: Annotated[bool, flag("Say what every node says of each pod", group=PLACED)] = False,
    where: SourceOptions = FROM_CLUSTER,
    how: ModeOptions = AS_EXTENDER,
    output: Annotated[list[Format | str] | None, OUTPUT_OPTION] = None,
    verbosity: Verbosity = AS_USUAL,
) -> int:
    """Say where pods would go; returns the exit code."""
    messages = verbosity.messages()
    wanted = outputs(output, FORMATS, messages=messages)
    refuse_overwriting(wanted, [*(file or ()), *where.files])
    if file is None and drain is None:
        raise UsageError("numa simulate: give -f FILE with pods, or --drain NODE whose pods shall go elsewhere")
    if cluster == bool(where.nrt):
        raise UsageError("numa simulate: give either --nrt FILE with saved nodes, or --cluster for those of now")
    if fill and file is None:
        raise UsageError("numa simulate: --fill counts copies of the pods of -f FILE; give one")
    if repeat < 1:
        raise UsageError(f"numa simulate: --repeat {repeat}: expected 1 or more")
    from polyarch.cli.numa.simulate.playing import Asked, run_simulate

    asked = Asked(files=file or (), fill=fill, repeat=repeat, drain=drain, explain=explain, where=where, how=how)
    return run_simulate(asked, wanted, messages=messages)


simulate = App(name="simulate", help_epilogue=EPILOGUE)
simulate.default(play)
