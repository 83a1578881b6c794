"""``polyarch numa explain``: on which cells a pod fits, and why not elsewhere (NS-161).

The command line alone; ``deciding`` does the work.
"""

from typing import Annotated

from cyclopts import App

from polyarch.cli.errors import UsageError
from polyarch.cli.numa.sources.flags import FROM_CLUSTER, NODES, SourceOptions
from polyarch.cli.numa.sources.mode_flags import AS_USUAL as AS_EXTENDER
from polyarch.cli.numa.sources.mode_flags import ModeOptions
from polyarch.cli.options.help_page import epilogue
from polyarch.cli.options.outputs import FORMATS, OUTPUT_OPTION, Format, outputs, refuse_overwriting
from polyarch.cli.options.values import File, Name, Namespace, Placeholder, option, subject
from polyarch.cli.options.verbosity import AS_USUAL, Verbosity

PodName = Annotated[str, Placeholder("POD")]
EPILOGUE = epilogue(
    note="""\
Says for every node whether the pod fits inside its NUMA cells, on which of them, and if not
what each cell lacks and which pods have reserved it. What a running extender knows is taken
from it (source live); else reservations are those that it would make if it started now
(reconstructed), or those of files. Reasons of other plugins are quoted from the pod's events.
Nothing is changed anywhere.

Of a pod that is over, such as one that its kubelet refused with TopologyAffinityError, it says
what became of it, and where one like it would fit now.""",
    examples=(
        ("Explain why a pod is pending, or where it is", "polyarch numa explain web-0 -n shop"),
        ("Explain a manifest on two nodes", "polyarch numa explain -f pod.yaml --node worker-1 --node worker-2"),
        ("Explain it on saved nodes, without a cluster", "polyarch numa explain -f pod.yaml --nrt topologies.json"),
        (
            "See what comes of it if policy restricted only scores",
            "polyarch numa explain web-0 --restricted score",
        ),
    ),
    exits=(
        (0, "a node fits, or the pod is on one"),
        (1, "no node fits"),
        (2, "the command line, or a file it names, is wrong"),
        (3, "the API server could not be asked"),
    ),
)
EXPLAINED = subject("What to explain")


def explain_pod(
    pod: Annotated[PodName | None, option("A pod, NAME or NAMESPACE/NAME", group=EXPLAINED)] = None,
    *,
    file: Annotated[
        File | None,
        option("Manifest with one pod or workload; - is standard input", "-f", "--file", group=EXPLAINED, hyphen=True),
    ] = None,
    namespace: Annotated[
        Namespace | None,
        option("Namespace of the pod", "-n", "--namespace", group=EXPLAINED, show_default="as kubectl"),
    ] = None,
    node: Annotated[list[Name] | None, option("Only these nodes; repeatable", group=NODES, show_default="all")] = None,
    where: SourceOptions = FROM_CLUSTER,
    how: ModeOptions = AS_EXTENDER,
    output: Annotated[list[Format | str] | None, OUTPUT_OPTION] = None,
    verbosity: Verbosity = AS_USUAL,
) -> int:
    """Say on which cells a pod fits, and why not elsewhere; returns the exit code."""
    messages = verbosity.messages()
    wanted = outputs(output, FORMATS, messages=messages)
    refuse_overwriting(wanted, [file, *where.files])
    if (pod is None) == (file is None):
        raise UsageError("numa explain takes either the name of a pod, or -f with a manifest; give one of them")
    if namespace is not None and file is not None:
        raise UsageError("numa explain: -n belongs to the name of a pod; a manifest says its namespace itself")
    from polyarch.cli.numa.explain.deciding import Asked, run_explain

    asked = Asked(pod=pod, file=file, namespace=namespace, nodes=tuple(node or ()), where=where, how=how)
    return run_explain(asked, wanted, messages=messages)


explain = App(name="explain", help_epilogue=EPILOGUE)
explain.default(explain_pod)
