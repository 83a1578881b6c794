"""``polyarch numa``: cells of nodes and what fits them (NS-160 – NS-163), and ``numa export`` (NE-160, NE-161).

The command lines alone; ``single_scan`` and ``saved_objects`` do the work.
"""

from typing import Annotated

from cyclopts import App, Group

from polyarch.cli.errors import UsageError
from polyarch.cli.options.help_page import epilogue
from polyarch.cli.options.outputs import FORMATS, OUTPUT_OPTION, Format, outputs, refuse_overwriting
from polyarch.cli.options.values import CLUSTER, Context, Directory, File, Name, Placeholder, flag, option, subject
from polyarch.cli.options.verbosity import AS_USUAL, Verbosity

Url = Annotated[str, Placeholder("URL")]
PodName = Annotated[str, Placeholder("NAMESPACE/NAME")]
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
    "polyarch.cli.numa.top.top:top", name="top", help="Show what every cell has and has left, and who keeps the rest"
)
app.command(
    "polyarch.cli.numa.explain.explain:explain", name="explain", help="Explain on which cells a pod fits, and why not"
)
app.command(
    "polyarch.cli.numa.simulate.simulate:simulate", name="simulate", help="See where pods would go, and how many fit"
)


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
    pod: Annotated[PodName | None, option("With --once: count this pod alone as used", group=WHAT)] = None,
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
    chosen = outputs(output, FORMATS, messages=messages)
    refuse_overwriting(chosen, [verify, pods])
    _require_one_task(once=once, verify=verify, pods=pods, pod=pod, publish=publish)
    if verify is not None:
        from polyarch.cli.numa.saved_objects import run_verify

        return run_verify(verify, pods, chosen)
    from polyarch.cli.numa.single_scan import Asked, run_once

    asked = Asked(
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
        kubeconfig=kubeconfig,
        context=context,
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
