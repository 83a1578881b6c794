"""``polyarch numa``: the command lines. The modules named like the commands do the work."""

from typing import Annotated, Literal

from cyclopts import App, Group

from polyarch.cli.errors import UsageError
from polyarch.cli.numa.options import AS_USUAL as AS_EXTENDER
from polyarch.cli.numa.options import FROM_CLUSTER, NODES, ModeOptions, SourceOptions
from polyarch.cli.options.common import (
    AS_USUAL,
    FORMATS,
    OUTPUT_OPTION,
    ClusterFlags,
    Format,
    Verbosity,
    outputs,
    refuse_overwriting,
)
from polyarch.cli.options.help_page import epilogue
from polyarch.cli.options.values import (
    CLUSTER,
    OUTPUT,
    Context,
    Directory,
    File,
    Name,
    Namespace,
    Number,
    Placeholder,
    flag,
    option,
    subject,
)

Url = Annotated[str, Placeholder("URL")]
NamespacedPodName = Annotated[str, Placeholder("NAMESPACE/NAME")]
Policy = Annotated[str, Placeholder("POLICY")]
Scope = Annotated[str, Placeholder("SCOPE")]
ExporterFlag = Annotated[str, Placeholder("FLAG")]
WHAT, MACHINE = subject("What to do"), Group("Machine", sort_key=15)
EXPORT_EPILOGUE = epilogue(
    note="""\
--once scans a machine and prints the NodeResourceTopology that the exporter of its node would
publish, by the exporter's configuration and environment; its flags may follow after --. It
works on a node, and elsewhere on a copy of a node's files. Nothing is written without
--publish. --verify tells whether fingerprints of saved objects are those of saved pods.""",
    examples=(
        ("See the zones of this node", "polyarch numa export --once"),
        (
            "See what a copy of a node's files and saved answers of its kubelet come to",
            "polyarch numa export --once --root node-1 --podresources-socket fake:///tmp/answers -o yaml",
        ),
        ("See which zones one pod uses", "polyarch numa export --once --pod demo/web-0"),
        ("Publish the object once", "polyarch numa export --once --publish"),
        ("Use flags of the exporter", "polyarch numa export --once -- --pods-fingerprint-method=all"),
        (
            "Check the fingerprints of a cluster",
            "polyarch numa export --verify topologies.yaml --pods pods.yaml",
        ),
    ),
    exits=(
        (0, "printed; with --publish also published; with --verify every fingerprint is ok"),
        (1, "with --verify: a fingerprint is not ok"),
        (2, "the command line, the configuration or a file is wrong, or the kubelet's settings are not known"),
        (3, "the scan failed, or the object could not be published"),
    ),
)
app = App(name="numa", help="See NUMA cells: what they have left, which pods fit them, and what an exporter publishes.")
app.command(
    "polyarch.cli.numa.commands:top", name="top", help="Show what every cell has and has left, and who keeps the rest"
)
app.command("polyarch.cli.numa.commands:explain", name="explain", help="Explain on which cells a pod fits, and why not")
app.command("polyarch.cli.numa.commands:simulate", name="simulate", help="See where pods would go, and how many fit")


@app.command(
    help="Print the object that a node's exporter would publish, or check saved ones", help_epilogue=EXPORT_EPILOGUE
)
def export(
    *flags: Annotated[ExporterFlag, option("Flags of polyarch run numa-exporter, after --", group=MACHINE)],
    once: Annotated[bool, flag("Scan once and print the object", group=WHAT)] = False,
    verify: Annotated[
        File | None,
        option("Check the fingerprints of the objects in this file; - is standard input", group=WHAT, hyphen=True),
    ] = None,
    pods: Annotated[
        File | None,
        option("With --verify: pods of the API, a fingerprint status file, or a kubelet's saved list", group=WHAT),
    ] = None,
    pod: Annotated[NamespacedPodName | None, option("With --once: count this pod alone as used", group=WHAT)] = None,
    publish: Annotated[bool, flag("With --once: also write the object to the cluster", group=WHAT)] = False,
    root: Annotated[
        Directory | None, option("Directory that all host files are below", group=MACHINE, show_default="/")
    ] = None,
    podresources_socket: Annotated[
        Url | None,
        option(
            "Where the kubelet answers: unix:///PATH, or fake:///DIR with saved answers",
            group=MACHINE,
            show_default="that of a pod, else the kubelet's own",
        ),
    ] = None,
    hostname: Annotated[
        Name | None, option("Name of the node", group=MACHINE, show_default="NODE_NAME, else the host's name")
    ] = None,
    topology_manager_policy: Annotated[
        Policy | None, option("With the scope, in place of the kubelet's configuration", group=MACHINE)
    ] = None,
    topology_manager_scope: Annotated[Scope | None, option("container or pod", group=MACHINE)] = None,
    kubeconfig: Annotated[
        File | None, option("Kubeconfig, for --publish", group=CLUSTER, show_default="as kubectl")
    ] = None,
    context: Annotated[Context | None, option("Its context", group=CLUSTER, show_default="the current one")] = None,
    output: Annotated[list[Format | str] | None, OUTPUT_OPTION] = None,
    verbosity: Verbosity = AS_USUAL,
) -> int:
    """Print the object that the exporter of a node would publish, or check saved ones; returns the exit code."""
    messages = verbosity.messages()
    chosen = outputs(output, FORMATS)
    refuse_overwriting(chosen, [verify, pods])
    _require_one_task(once=once, verify=verify, pods=pods, pod=pod, publish=publish)
    if verify is not None:
        from polyarch.cli.numa.export_verify import run_verify

        return run_verify(verify, pods, chosen)
    from polyarch.cli.numa.export import ExportOptions, run_once

    asked = ExportOptions(
        options=(
            ("--root", root),
            ("--podresources-socket", podresources_socket),
            ("--hostname", hostname),
            ("--topology-manager-policy", topology_manager_policy),
            ("--topology-manager-scope", topology_manager_scope),
        ),
        flags=flags,
        pod=pod,
        publish=publish,
        cluster=ClusterFlags(kubeconfig=kubeconfig, context=context),
    )
    return run_once(asked, chosen, messages=messages)


def _require_one_task(*, once: bool, verify: str | None, pods: str | None, pod: str | None, publish: bool) -> None:
    if once == (verify is not None):
        raise UsageError("numa export: give either --once, to scan a machine, or --verify FILE, to check saved objects")
    if pods is not None and verify is None:
        raise UsageError(
            "numa export: --pods belongs to --verify FILE; for one pod of a scan give --pod NAMESPACE/NAME"
        )
    if verify is not None and (pod is not None or publish):
        raise UsageError("numa export: --pod and --publish belong to --once; --verify only reads files")
    if pod is not None and publish:
        raise UsageError("numa export: --pod shows one pod alone, which is not what a node publishes; remove --publish")


# -- polyarch numa top


Sort = Annotated[Literal["used", "free", "name"], Placeholder("ORDER")]
Resource = Annotated[str, Placeholder("RESOURCE")]
TOP_EPILOGUE = epilogue(
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
    wanted = outputs(output, FORMATS)
    refuse_overwriting(wanted, where.files)
    from polyarch.cli.numa.top import TopOptions, run_top

    asked = TopOptions(
        names=names, resources=tuple(dict.fromkeys(resource or ())), sort=sort, watch=watch, check=check, where=where
    )
    return run_top(asked, wanted, messages=messages)


top = App(name="top", help_epilogue=TOP_EPILOGUE)
top.default(show)

# -- polyarch numa explain


PodName = Annotated[str, Placeholder("POD")]
EXPLAIN_EPILOGUE = epilogue(
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
    wanted = outputs(output, FORMATS)
    refuse_overwriting(wanted, [file, *where.files])
    if (pod is None) == (file is None):
        raise UsageError("numa explain takes either the name of a pod, or -f with a manifest; give one of them")
    if namespace is not None and file is not None:
        raise UsageError("numa explain: -n belongs to the name of a pod; a manifest says its namespace itself")
    from polyarch.cli.numa.explain import NumaExplainOptions, run_explain

    asked = NumaExplainOptions(pod=pod, file=file, namespace=namespace, nodes=tuple(node or ()), where=where, how=how)
    return run_explain(asked, wanted, messages=messages)


explain = App(name="explain", help_epilogue=EXPLAIN_EPILOGUE)
explain.default(explain_pod)

# -- polyarch numa simulate


SIMULATE_EPILOGUE = epilogue(
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
    wanted = outputs(output, FORMATS)
    refuse_overwriting(wanted, [*(file or ()), *where.files])
    if file is None and drain is None:
        raise UsageError("numa simulate: give -f FILE with pods, or --drain NODE whose pods shall go elsewhere")
    if cluster == bool(where.nrt):
        raise UsageError("numa simulate: give either --nrt FILE with saved nodes, or --cluster for those of now")
    if fill and file is None:
        raise UsageError("numa simulate: --fill counts copies of the pods of -f FILE; give one")
    if repeat < 1:
        raise UsageError(f"numa simulate: --repeat {repeat}: expected 1 or more")
    from polyarch.cli.numa.simulate import SimulateOptions, run_simulate

    asked = SimulateOptions(
        files=file or (), fill=fill, repeat=repeat, drain=drain, explain=explain, where=where, how=how
    )
    return run_simulate(asked, wanted, messages=messages)


simulate = App(name="simulate", help_epilogue=SIMULATE_EPILOGUE)
simulate.default(play)
