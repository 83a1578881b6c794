"""``polyarch run numa-extender``: the extender beside a stock kube-scheduler."""

import os
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal

from cyclopts import App, Parameter

from polyarch.cli.errors import CouldNotComplete, UsageError
from polyarch.cli.options.environment import PRINT, AsRead, from_environment, printed, variable
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
from polyarch.cli.output.messages import NextProgram

if TYPE_CHECKING:
    from polyarch.numa.extender.settings import ExtenderSettings


NAME: Final = "run numa-extender"
DECISIONS, RESERVING, PREEMPTING = (
    subject("Decisions"),
    subject("Reservations"),
    subject("Preemption and waking"),
)
LISTENERS = subject("Listeners")

Listen = Annotated[str, Placeholder("ADDRESS:PORT")]
Duration = Annotated[str, Placeholder("DURATION")]
ResourceWeights = Annotated[str, Placeholder("RESOURCE=WEIGHT")]
Mode = Annotated[Literal["exact", "advise"], Placeholder("MODE")]
Strategy = Annotated[
    Literal["LeastAllocated", "MostAllocated", "BalancedAllocation", "LeastNUMANodes"], Placeholder("STRATEGY")
]
Restricted = Annotated[Literal["filter", "score", "ignore"], Placeholder("ACTION")]
BestEffort = Annotated[Literal["score", "ignore"], Placeholder("ACTION")]
Unknown = Annotated[Literal["pass", "reject"], Placeholder("ACTION")]
OnOff = Annotated[Literal["on", "off"], Placeholder("WHEN")]
Foreign = Annotated[Literal["exclusive", "all", "none"], Placeholder("PODS")]
KickHow = Annotated[Literal["capacity", "node-annotation", "none"], Placeholder("HOW")]
Debug = Annotated[Literal["DumpJSONFile", "Disabled"], Placeholder("HOW")]
LogFormat = Annotated[Literal["json", "console"], Placeholder("FORMAT")]

EPILOGUE = epilogue(
    note="""\
The settings come from --config, which the operator writes for its scheduler, then from the
environment (--max-staleness as POLYARCH_MAX_STALENESS), then from flags. kube-scheduler must
name the extender with nodeCacheCapable: true, ignorable: false and preemptVerb: preempt;
without that verb it evicts pods by the sums of a node, without asking.""",
    examples=(
        ("Answer as beside the operator's scheduler", "polyarch run numa-extender --config config.yaml"),
        ("Try it with your kubeconfig", "polyarch run numa-extender --status-listen 127.0.0.1:8448"),
        ("Give the scheduler three nodes to choose from", "polyarch run numa-extender --candidates 3"),
        ("See what it would run with", "polyarch run numa-extender --config config.yaml --print-settings"),
    ),
    exits=(
        (0, "ended by SIGTERM"),
        (2, "the command line or the file is wrong; the message names the setting"),
        (3, "it could not go on: no API server, a port in use"),
    ),
)

app = App(name="numa-extender", help_epilogue=EPILOGUE, version_flags=(), config=from_environment)


@app.default
def numa_extender(
    *,
    config: Annotated[File, option("File with settings, YAML or JSON", group=OUTPUT, show_default="none")] = "",
    mode: Annotated[
        Mode | None, option("How a node is judged, and what is reserved", group=DECISIONS, show_default="exact")
    ] = None,
    scheduler_name: Annotated[
        Name | None,
        option("Whose pods are reserved for", group=DECISIONS, show_default="topo-aware-scheduler"),
    ] = None,
    strategy: Annotated[
        Strategy | None, option("Which fitting node is best", group=DECISIONS, show_default="LeastAllocated")
    ] = None,
    weights: Annotated[
        ResourceWeights | None, option("Weights of resources in the score", group=DECISIONS, show_default="1 each")
    ] = None,
    candidates: Annotated[
        Number | None, option("Nodes answered and reserved per pod, at most 16", group=DECISIONS, show_default="1")
    ] = None,
    restricted: Annotated[
        Restricted | None, option("Nodes of policy restricted", group=DECISIONS, show_default="filter")
    ] = None,
    best_effort: Annotated[
        BestEffort | None, option("Nodes of policy best-effort", group=DECISIONS, show_default="score")
    ] = None,
    unknown_nodes: Annotated[
        Unknown | None, option("Nodes without a NodeResourceTopology", group=DECISIONS, show_default="pass")
    ] = None,
    reservations: Annotated[
        OnOff | None, option("Reserve cells until the node's object shows the pod", group=RESERVING, show_default="on")
    ] = None,
    ttl: Annotated[
        Duration | None,
        option("How long cells are held for a pod that is not bound", group=RESERVING, show_default="60s"),
    ] = None,
    foreign: Annotated[
        Foreign | None, option("Pods of other schedulers that count", group=RESERVING, show_default="exclusive")
    ] = None,
    max_staleness: Annotated[
        Duration | None,
        option("Answer nothing once a watch has been broken for so long", group=RESERVING, show_default="60s"),
    ] = None,
    cache_resync_debug: Annotated[
        Debug | None,
        option("What is written of a node that is not explained", group=RESERVING, show_default="DumpJSONFile"),
    ] = None,
    bind: Annotated[bool | None, flag("Serve the bind verb, too", group=RESERVING)] = None,
    preempt: Annotated[
        bool | None, flag("Evict pods of lower priority for more important ones", group=PREEMPTING)
    ] = None,
    kick: Annotated[
        KickHow | None, option("How rejected pods are woken", group=PREEMPTING, show_default="capacity")
    ] = None,
    listen: Annotated[
        Listen | None, option("Where kube-scheduler asks", group=LISTENERS, show_default="127.0.0.1:9448")
    ] = None,
    status_listen: Annotated[
        Listen | None, option("Metrics, health and state, over TLS", group=LISTENERS, show_default=":8448")
    ] = None,
    cert_dir: Annotated[
        Directory | None,
        option("Directory with tls.crt and tls.key", group=LISTENERS, show_default="a certificate of its own"),
    ] = None,
    dumps: Annotated[
        Directory | None, option("Directory of dumps", group=OUTPUT, show_default="/run/pfpstatus")
    ] = None,
    log_format: Annotated[LogFormat, option("Format of the logs on stderr", group=OUTPUT)] = "json",
    v: Annotated[Number, Parameter(name=("-v", "--v"), help="Verbosity; from 4 on everything", group=OUTPUT)] = 2,
    namespace: Annotated[
        Namespace,
        option("Namespace of the extender", "-n", "--namespace", group=CLUSTER, show_default="that of its pod"),
    ] = "",
    kubeconfig: Annotated[
        File | None, option("Kubeconfig", group=CLUSTER, show_default="as kubectl, or the pod's service account")
    ] = None,
    context: Annotated[
        Context | None, option("Context of the kubeconfig", group=CLUSTER, show_default="the current one")
    ] = None,
    print_settings: Annotated[
        bool, flag("Print the settings and where each came from, and do nothing", PRINT, group=OUTPUT)
    ] = False,
    as_read: AsRead = "",
) -> int | NextProgram:
    """Answer a kube-scheduler by NUMA cells."""
    given = {
        "--mode": mode,
        "--scheduler-name": scheduler_name,
        "--strategy": strategy,
        "--weights": weights,
        "--candidates": candidates,
        "--restricted": restricted,
        "--best-effort": best_effort,
        "--unknown-nodes": unknown_nodes,
        "--reservations": reservations,
        "--ttl": ttl,
        "--foreign": foreign,
        "--max-staleness": max_staleness,
        "--bind": bind,
        "--preempt": preempt,
        "--kick": kick,
        "--cache-resync-debug": cache_resync_debug,
        "--listen": listen,
        "--status-listen": status_listen,
        "--cert-dir": cert_dir,
        "--dumps": dumps,
    }
    settings = _settings(config, {name: value for name, value in given.items() if value is not None})
    if print_settings:
        print(printed(as_read), end="")
        return 0
    import msgspec

    from polyarch.cli.roles.reexec import Reexec
    from polyarch.numa.extender.settings import missing_library

    if problem := missing_library():
        raise CouldNotComplete(f"{NAME}: {problem}")

    settings = msgspec.structs.replace(
        settings,
        namespace=namespace or os.environ.get("POD_NAMESPACE", settings.namespace),
        kubeconfig=kubeconfig or "",
        context=context or "",
        log_format=log_format,
        verbosity=v,
    )
    return Reexec("numa_process", settings, ("numa_extender",))


def _settings(path: str, given: dict[str, Any]) -> "ExtenderSettings":
    """Raises ``UsageError`` that names the file or flag, and the setting."""
    from polyarch.numa.extender.configuration import REMOVED, InvalidExtenderConfiguration, compiled

    for old, removed in REMOVED.items():
        if old.startswith("--") and (name := variable(old)) in os.environ:
            raise UsageError(f"{NAME}: {name} in the environment {removed}")
    content: dict[str, Any] = {}
    if path:
        from polyarch.cli.input.objects import read_documents

        documents = read_documents(path)
        if len(documents) > 1:
            raise UsageError(f"{NAME}: --config {path}: expected one document; it has {len(documents)}")
        content = documents[0].content if documents else {}
    try:
        return compiled(content, given, origin=f"--config {path}")
    except InvalidExtenderConfiguration as error:
        raise UsageError(f"{NAME}: {error}") from None
