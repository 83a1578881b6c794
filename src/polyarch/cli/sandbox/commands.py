"""``polyarch up``, ``down``, ``status`` and ``polyarch sandbox …``: a real cluster without machines.

The command lines alone; ``local_cluster`` does the work."""

from typing import Annotated, Literal

from cyclopts import App

from polyarch.cli.errors import UsageError
from polyarch.cli.options.common import AS_USUAL, FORMATS, OUTPUT_OPTION, Format, Verbosity, outputs, refuse_overwriting
from polyarch.cli.options.help_page import epilogue
from polyarch.cli.options.values import REGISTRIES, Directory, File, Name, Number, Placeholder, flag, option, subject

DEFAULT_NAME = "default"
SANDBOX = subject("Sandbox")
SandboxName = Annotated[Name, option("Name of the sandbox; several can run side by side", group=SANDBOX)]
Outputs = Annotated[list[Format | str] | None, OUTPUT_OPTION]
Nodes = Annotated[str, Placeholder("ARCH=N,...")]
Layout = Annotated[str, Placeholder("CELLSxCPUS[,NAME=VALUE...]")]
TaintSpec = Annotated[str, Placeholder("ARCH:TAINT")]
MinorVersion = Annotated[str, Placeholder("MINOR")]
KUBERNETES_OPTION = option("Minor version of Kubernetes, such as 1.30; '' for the usual one", group=SANDBOX)
Part = Annotated[Literal["control-plane"], Placeholder("PART")]

UP_EPILOGUE = epilogue(
    note="""\
Nothing but --real needs root or containers, and nothing can leave this machine. What runs already is left alone.""",
    examples=(
        ("Start a cluster of five nodes", "polyarch up --nodes amd64=3,arm64=2"),
        ("See what polyarch is for, in a minute", "polyarch up --demo"),
        ("Try builds of images for several architectures", "polyarch up --builds"),
        ("Try polyarch on an older Kubernetes", "polyarch up --name old --kubernetes 1.30"),
        ("Run real kubelets and containers", "sudo polyarch up --real"),
        ("The same with an emulated arm64 node", "sudo polyarch up --real --nodes amd64=1,arm64=1"),
        ("Describe the sandbox for scripts", "polyarch up -o json"),
    ),
    exits=(
        (0, "it runs"),
        (1, "--demo: a pod that could run did not"),
        (2, "the command line or a file it names is wrong"),
        (3, "a component did not start"),
    ),
)
DOWN_EPILOGUE = epilogue(
    examples=(
        ("Stop every process; the state is kept for the next up", "polyarch down"),
        ("Delete a sandbox", "polyarch down --name test --delete"),
        ("Cut a real node's power; the next up boots it", "sudo polyarch down --node amd64-1"),
    ),
    exits=(
        (0, "it is stopped"),
        (2, "the command line is wrong"),
        (3, "there is no such sandbox, or it could not be stopped"),
    ),
)
STATUS_EPILOGUE = epilogue(
    examples=(
        ("Show components, their addresses and where the logs are", "polyarch status"),
        ("Describe a sandbox for scripts", "polyarch status --name test -o json"),
    ),
    exits=(
        (0, "everything is healthy"),
        (1, "a component or a node is not, or the sandbox is stopped"),
        (2, "the command line is wrong"),
        (3, "there is no such sandbox, or it could not be asked"),
    ),
)
FETCH_EPILOGUE = epilogue(
    examples=(
        ("Prepare an image for CI, so that polyarch up starts at once", "polyarch sandbox fetch"),
        ("Get those of an older Kubernetes", "polyarch sandbox fetch --kubernetes 1.30"),
        ("Take binaries from a directory", "polyarch sandbox fetch --assets /opt/binaries"),
    ),
    exits=((0, "all binaries are there"), (2, "the command line is wrong"), (3, "a binary is not available")),
)
SEED_EPILOGUE = epilogue(
    note="""\
FILE maps references to a list of platforms, or to a mapping with any of platforms,
kind (index, image, artifact, bundle), format (oci, docker), attestations, nested,
withoutPlatform, missing, labels, unknown, private, users, identityTokens,
scheme (bearer, basic).""",
    examples=(
        ("Push images that exist nowhere else", "polyarch sandbox seed images.yaml"),
        ("Print their digests for scripts", "polyarch sandbox seed - -o json < images.yaml"),
    ),
    exits=(
        (0, "pushed"),
        (2, "the command line or FILE is wrong"),
        (3, "there is no such sandbox, or its registry does not answer"),
    ),
)
LIST_EPILOGUE = epilogue(
    examples=(
        ("List names, processes and kubeconfigs", "polyarch sandbox list"),
        ("The same for scripts", "polyarch sandbox list -o json"),
    ),
    exits=((0, "listed, even if there are none"), (2, "the command line is wrong")),
)

app = App(name="sandbox", help="Manage the sandbox's binaries and images, and list sandboxes.")
up = App(name="up", help_epilogue=UP_EPILOGUE)
down = App(name="down", help_epilogue=DOWN_EPILOGUE)
status = App(name="status", help_epilogue=STATUS_EPILOGUE)


@up.default
def start(
    *,
    name: SandboxName = DEFAULT_NAME,
    nodes: Annotated[
        Nodes | None,
        option("Number of nodes by architecture", group=SANDBOX, show_default="amd64=2,arm64=2,ppc64le=1,s390x=1"),
    ] = None,
    numa: Annotated[
        Layout | None,
        option("NUMA cells of each node, CPUs of each cell, and kubelet settings; '' for none", group=SANDBOX),
    ] = None,
    real: Annotated[
        bool, flag("Run real kubelets and containers, as root; amd64 and arm64, the other one emulated", group=SANDBOX)
    ] = False,
    taint: Annotated[
        list[TaintSpec] | None,
        option("Taint the nodes of an architecture, ARCH:KEY[=VALUE]:EFFECT; repeatable, '' for none", group=SANDBOX),
    ] = None,
    register_with_taints: Annotated[
        list[TaintSpec] | None,
        option("Taint only nodes that join from now on, as kubelets do; repeatable, '' for none", group=SANDBOX),
    ] = None,
    builds: Annotated[
        bool, flag("Also install component builds; the nodes play what builds images", group=SANDBOX)
    ] = False,
    only: Annotated[Part | None, option("Start the control plane without polyarch", group=SANDBOX)] = None,
    replicas: Annotated[
        Number | None, option("Replicas of each role of polyarch", group=SANDBOX, show_default="1")
    ] = None,
    fresh: Annotated[bool, flag("Delete an earlier sandbox of this name first", group=SANDBOX)] = False,
    demo: Annotated[bool, flag("Show what polyarch does, and the same pods without it", group=SANDBOX)] = False,
    merge_kubeconfig: Annotated[
        bool, flag("Add the context to your kubeconfig, and switch to it", group=SANDBOX)
    ] = False,
    kubernetes: Annotated[MinorVersion | None, KUBERNETES_OPTION] = None,
    assets: Annotated[Directory, option("Directory that holds the binaries", group=SANDBOX)] = "",
    output: Outputs = None,
    registries_conf: Annotated[
        File | None, option("Mirror configuration for polyarch and the nodes", group=REGISTRIES)
    ] = None,
    ca: Annotated[File | None, option("CA certificates (PEM) to trust", group=REGISTRIES)] = None,
    verbosity: Verbosity = AS_USUAL,
) -> int:
    """Start a real control plane, a registry and fake nodes on this machine, and polyarch in it."""
    if only and (demo or builds):
        raise UsageError(f"{'--demo' if demo else '--builds'} needs polyarch; remove --only")
    messages = verbosity.messages()
    chosen = outputs(output, FORMATS)
    from polyarch.cli.sandbox.local_cluster import SandboxOptions, bring_up

    wanted = SandboxOptions(
        name=name,
        nodes=nodes,
        real=real,
        numa=numa,
        taints=taint,
        register_taints=register_with_taints,
        polyarch=only is None,
        builds=builds,
        replicas=replicas,
        kubernetes=kubernetes,
        fresh=fresh,
        demo=demo,
        merge_kubeconfig=merge_kubeconfig,
        registries_conf=registries_conf,
        ca=ca,
        assets=assets,
    )
    return bring_up(wanted, chosen, messages=messages)


@down.default
def stop(
    *,
    name: SandboxName = DEFAULT_NAME,
    delete: Annotated[bool, flag("Delete its state, too", group=SANDBOX)] = False,
    node: Annotated[Name, option("Cut the power of this real node, and stop nothing else", group=SANDBOX)] = "",
    output: Outputs = None,
    verbosity: Verbosity = AS_USUAL,
) -> int:
    """Stop the sandbox. Its state is kept for the next `polyarch up`, unless --delete."""
    if node and delete:
        raise UsageError("--node stops a node of a sandbox, and --delete deletes a sandbox; remove one of them")
    messages = verbosity.messages()
    chosen = outputs(output, FORMATS)
    from polyarch.cli.sandbox.local_cluster import take_down

    return take_down(name, chosen, delete=delete, node=node, messages=messages)


@status.default
def show(*, name: SandboxName = DEFAULT_NAME, output: Outputs = None, verbosity: Verbosity = AS_USUAL) -> int:
    """Show every component of the sandbox and whether it is well; exit code 1 if one is not."""
    messages = verbosity.messages()
    chosen = outputs(output, FORMATS)
    from polyarch.cli.sandbox.local_cluster import show_status

    return show_status(name, chosen, messages=messages)


@app.command(help="Download or build the sandbox's binaries", help_epilogue=FETCH_EPILOGUE)
def fetch(
    *,
    kubernetes: Annotated[MinorVersion | None, KUBERNETES_OPTION] = None,
    real: Annotated[bool, flag("Also those of real nodes: kubelet and kube-proxy", group=SANDBOX)] = False,
    nodes: Annotated[Nodes, option("With --real: the nodes; emulated ones need more", group=SANDBOX)] = "",
    assets: Annotated[Directory, option("Directory that holds binaries already", group=SANDBOX)] = "",
    output: Outputs = None,
    verbosity: Verbosity = AS_USUAL,
) -> int:
    """Get the sandbox's binaries, and nothing else: for images and CI."""
    messages = verbosity.messages()
    chosen = outputs(output, FORMATS)
    from polyarch.cli.sandbox.local_cluster import fetch_binaries

    return fetch_binaries(kubernetes or "", assets, chosen, real=real, nodes=nodes, messages=messages)


@app.command(help="Push images of any platforms to the sandbox's registry", help_epilogue=SEED_EPILOGUE)
def seed(
    file: Annotated[File, option("Images to push, YAML or JSON; - is standard input", group=SANDBOX, hyphen=True)],
    /,
    *,
    name: SandboxName = DEFAULT_NAME,
    output: Outputs = None,
    verbosity: Verbosity = AS_USUAL,
) -> int:
    """Push images to the sandbox's registry and print their digests."""
    messages = verbosity.messages()
    chosen = outputs(output, FORMATS)
    refuse_overwriting(chosen, [file])
    from polyarch.cli.sandbox.local_cluster import seed_registry

    return seed_registry(file, name, chosen, messages=messages)


@app.command(name="list", help="List the sandboxes on this machine", help_epilogue=LIST_EPILOGUE)
def list_(*, output: Outputs = None, verbosity: Verbosity = AS_USUAL) -> int:
    """List the sandboxes on this machine."""
    verbosity.messages()  # which refuses -q with -v
    chosen = outputs(output, FORMATS)
    from polyarch.cli.sandbox.local_cluster import list_sandboxes

    return list_sandboxes(chosen)
