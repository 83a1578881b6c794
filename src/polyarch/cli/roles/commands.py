"""``polyarch run ROLE``: one process of the operator (DESIGN section 4).

The flags are what a process cannot read from the cluster. Once it serves it prints one line of JSON on stdout that says
where; logs go to stderr. SIGTERM ends it in order: unready, drained, Lease given back."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Literal

from cyclopts import App, Parameter, Token

from polyarch.cli.errors import UsageError
from polyarch.cli.options.common import LOGGED_AS_USUAL, LogVerbosity
from polyarch.cli.options.environment import PRINT, AsRead, from_environment, printed
from polyarch.cli.options.help_page import epilogue
from polyarch.cli.options.usage_errors import other_command
from polyarch.cli.options.values import (
    CLUSTER,
    OUTPUT,
    REGISTRIES,
    Address,
    Cidr,
    Context,
    Directory,
    File,
    Name,
    Namespace,
    Placeholder,
    Port,
    flag,
    option,
    subject,
)
from polyarch.cli.output.messages import Messages, NextProgram
from polyarch.cli.roles.flags import KINDS, USUAL, RoleChoice, RoleFlags
from polyarch.cli.roles.options import (
    ANY_NODE,
    AS_USUAL,
    DEFAULT_BUILDER,
    FROM_THE_CLUSTER,
    BuilderFlags,
    MonitorFlags,
    OperatorFlags,
    SecretAccess,
    TaintFlags,
)

if TYPE_CHECKING:
    from polyarch.operator.settings import OperatorSettings


def _role(_: object, tokens: Sequence[Token]) -> RoleChoice:
    """The role of this name. Raises ``UsageError`` with all names, those of commands of their own as well."""
    (word,) = (token.value for token in tokens)
    roles = {each.label: each for each in RoleChoice}
    if word not in roles:
        from difflib import get_close_matches

        known = sorted([*roles, EXPORTER, EXTENDER, BUILD_PUSH, BUILD_INDEX, BUILD_PRUNE])
        close = get_close_matches(word, known, n=1)
        instead = f"did you mean {close[0]}? " if close else ""
        raise UsageError(f"run: there is no role {word!r}; {instead}the roles are {', '.join(known)}")
    return roles[word]


EXPORTER, EXTENDER = "numa-exporter", "numa-extender"
BUILD_PUSH, BUILD_INDEX, BUILD_PRUNE = "build-push", "build-index", "build-prune"
"""The roles whose flags are their own."""
BUILD_PODS = "Containers of build pods"
RoleName = Annotated[RoleChoice, Placeholder("ROLE"), Parameter(converter=_role)]
LogFormat = Annotated[Literal["json", "console"], Placeholder("FORMAT")]

EPILOGUE = epilogue(
    note="""\
Every flag may also come from the environment: --log-format as POLYARCH_LOG_FORMAT. The
command line wins. Values of a repeatable flag are separated by spaces there.""",
    examples=(
        ("Run every role in one process, with your kubeconfig", "polyarch run all --cert-dir ./certificates"),
        ("Run one role as its Deployment does", "polyarch run placement-controller --bind="),
        ("Watch this node for exec format errors", "polyarch run exec-monitor --side node --node-name worker-1"),
        ("See what it would run with", "polyarch run placement-controller --print-settings"),
        ("See what the operator would make of a file", "polyarch run operator --plan numa.yaml nodes.yaml"),
    ),
    exits=(
        (0, "ended by SIGTERM, everything handed over; the plan is clean"),
        (1, "the plan is Degraded"),
        (2, "the command line or a file it names is wrong"),
        (3, "it could not go on: no API server, a port in use, the lead lost"),
    ),
)
PROCESS = subject("Process")

app = App(name="run", help_epilogue=EPILOGUE, config=from_environment)
app.command(
    "polyarch.cli.roles.numa_exporter:app",
    name=EXPORTER,
    group="Processes with flags of their own",
    help="Publish this node's NUMA zones",
)
app.command(
    "polyarch.cli.roles.numa_extender:app",
    name=EXTENDER,
    group="Processes with flags of their own",
    help="Answer a kube-scheduler by NUMA cells",
)
app.command(
    "polyarch.cli.roles.build_pods:push_app",
    name=BUILD_PUSH,
    group=BUILD_PODS,
    help="Push the image that a build left in a layout",
)
app.command(
    "polyarch.cli.roles.build_pods:index_app",
    name=BUILD_INDEX,
    group=BUILD_PODS,
    help="Join children in one index, push it and move its tags",
)
app.command(
    "polyarch.cli.roles.build_pods:prune_app",
    name=BUILD_PRUNE,
    group=BUILD_PODS,
    help="Delete images from a registry",
)


@app.default
def run(
    role: Annotated[RoleName, option("The process to run; all runs placement and taints in one", group=PROCESS)],
    *,
    bind: Annotated[Address, option("Address to listen on; empty for all", group=PROCESS)] = USUAL.bind,
    port: Annotated[Port, option("Port of the webhook; 0 picks a free one", group=PROCESS)] = USUAL.port,
    metrics_port: Annotated[Port, option("Port of /metrics", group=PROCESS)] = USUAL.metrics_port,
    health_port: Annotated[Port, option("Port of /healthz and /readyz", group=PROCESS)] = USUAL.health_port,
    cert_dir: Annotated[
        Directory, option("Directory with tls.crt and tls.key; changes are picked up", group=PROCESS)
    ] = USUAL.cert_dir,
    leader_elect: Annotated[
        bool,
        Parameter(help="Elect a leader among replicas, by a Lease; on by default", group=PROCESS, show_default=False),
    ] = USUAL.leader_elect,
    namespace: Annotated[
        Namespace, option("Namespace that polyarch itself runs in", "-n", "--namespace", group=CLUSTER)
    ] = USUAL.namespace,
    kubeconfig: Annotated[
        File | None, option("Kubeconfig", group=CLUSTER, show_default="as kubectl, or the pod's service account")
    ] = USUAL.kubeconfig,
    context: Annotated[
        Context | None, option("Context of the kubeconfig", group=CLUSTER, show_default="the current one")
    ] = USUAL.context,
    log_format: Annotated[LogFormat, option("Format of the logs on stderr", group=OUTPUT)] = USUAL.log_format,
    global_pull_secret_namespace: Annotated[
        Namespace, option("Namespace of the global pull secret", group=REGISTRIES, show_default="as OpenShift has it")
    ] = USUAL.global_pull_secret_namespace,
    global_pull_secret_name: Annotated[
        Name, option("Name of the global pull secret", group=REGISTRIES, show_default="as OpenShift has it")
    ] = USUAL.global_pull_secret_name,
    registries_conf: Annotated[
        File | None, option("Mirror configuration, see containers-registries.conf(5)", group=REGISTRIES)
    ] = USUAL.registries_conf,
    ca: Annotated[list[File] | None, option("CA certificates (PEM) to trust; repeatable", group=REGISTRIES)] = None,
    registries_dir: Annotated[
        Directory, option("Directory with registries.conf and ca.crt, each optional: a ConfigMap", group=REGISTRIES)
    ] = USUAL.registries_dir,
    allow_address: Annotated[
        list[Cidr] | None,
        option("Allow registries in this address range, which is refused otherwise; repeatable", group=REGISTRIES),
    ] = None,
    deny_address: Annotated[
        list[Cidr] | None,
        option("Ask no registry in this address range, but for narrower ones allowed; repeatable", group=REGISTRIES),
    ] = None,
    secret_access: Annotated[
        SecretAccess,
        option("Pull secrets of pods: byName as pods name them; none reads no Secret of theirs", group=REGISTRIES),
    ] = USUAL.secret_access,
    image_credential_provider_config: Annotated[
        File, option("The kubelet's flag of the same name", group=REGISTRIES)
    ] = USUAL.image_credential_provider_config,
    image_credential_provider_bin_dir: Annotated[
        Directory, option("The kubelet's flag of the same name", group=REGISTRIES)
    ] = USUAL.image_credential_provider_bin_dir,
    deployed: OperatorFlags = AS_USUAL,
    monitor: MonitorFlags = ANY_NODE,
    taints: TaintFlags = FROM_THE_CLUSTER,
    builder: BuilderFlags = DEFAULT_BUILDER,
    print_settings: Annotated[
        bool, flag("Print the settings and where each came from, and do nothing", PRINT, group=OUTPUT)
    ] = False,
    plan: Annotated[
        list[File] | None,
        option(
            "Print what the operator would make of the NUMA resources, nodes and pools in these files, and do nothing",
            group=OUTPUT,
            several=True,
        ),
    ] = None,
    verbosity: LogVerbosity = LOGGED_AS_USUAL,
    as_read: AsRead = "",
) -> int | NextProgram:
    """Run one process of the operator."""
    given = {name: value for name, value in locals().items() if name in KINDS}
    messages = verbosity.messages()
    if print_settings:
        print(printed(as_read), end="")
        return 0
    flags = RoleFlags.of(given | vars(deployed) | vars(monitor) | vars(taints) | vars(builder) | vars(verbosity))
    if plan is not None:
        if role is not RoleChoice.OPERATOR:
            elsewhere = other_command(("run", role.label, "--plan"))
            raise UsageError(f"run {role.label}: --plan is for run operator.{elsewhere}".removesuffix("."))
        if not plan:
            raise UsageError("run operator: --plan needs at least one file")
        return _print_plans(plan, flags.operator_settings(), messages)
    from polyarch.cli.roles.reexec import Reexec

    return Reexec("role_process", flags.settings(role))


def _print_plans(files: list[str], settings: "OperatorSettings", messages: Messages) -> int:
    """1 if something is Degraded."""
    from polyarch.cli.roles.operator_plan import ShownPlan, plans_text, read_observed, remarks

    plans = [ShownPlan.of(observed) for observed in read_observed(files, settings)]
    print(plans_text(plans), end="")
    for each in plans:
        for remark in remarks(each):
            messages.note(remark)
    return int(any(each.is_degraded for each in plans))
