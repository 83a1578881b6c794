"""``polyarch install``, ``upgrade`` and ``uninstall``: the command lines. The modules of these names do the work."""

from typing import Annotated, Literal

from cyclopts import App

from polyarch.cli.errors import UsageError
from polyarch.cli.options.common import (
    AS_USUAL,
    FORMATS,
    OUTPUT_OPTION,
    USUAL_CLUSTER,
    ClusterFlags,
    Format,
    Verbosity,
    outputs,
    refuse_overwriting,
)
from polyarch.cli.options.help_page import epilogue
from polyarch.cli.options.values import (
    CLUSTER,
    File,
    Image,
    Name,
    Namespace,
    Number,
    Placeholder,
    Seconds,
    check_seconds,
    flag,
    option,
    subject,
)

DryRun = Annotated[Literal["client", "server"], Placeholder("WHERE")]
Outputs = Annotated[list[Format | str] | None, OUTPUT_OPTION]
INSTALLED = subject("What to install")
WHERE = "polyarch-system"
WAIT_SECONDS = 300.0
INSTALL_EPILOGUE = epilogue(
    note="""\
Checks the cluster, then applies definitions, namespace, rights, the operator and the
configuration in this order. Nothing is written if a check fails. What is there already
and as it should be is left alone, so the command can be run again at any time.""",
    examples=(
        ("Install polyarch, and wait until it works", "polyarch install --wait"),
        ("See what would be done, as the API server sees it", "polyarch install --dry-run server"),
        ("Install with the values of the chart, from a registry of yours", "polyarch install --values values.yaml"),
        ("Write manifests for GitOps", "polyarch install --print > polyarch.yaml"),
        ("List the images to mirror", "polyarch install --images"),
    ),
    exits=(
        (0, "it is installed, or nothing had to be changed"),
        (2, "the command line or the values are wrong"),
        (3, "a check failed, the API server refused an object, or it was not available in time"),
    ),
)
install = App(name="install", help_epilogue=INSTALL_EPILOGUE)


@install.default
def install_polyarch(
    *,
    component: Annotated[
        list[Name] | None, option("Component to install; repeatable", group=INSTALLED, show_default="placement")
    ] = None,
    image: Annotated[
        Image, option("Image of polyarch, by tag or digest", group=INSTALLED, show_default="of this version")
    ] = "",
    replicas: Annotated[
        Number | None, option("Replicas of every role", group=INSTALLED, show_default="2 or 3, by role")
    ] = None,
    values: Annotated[
        File | None, option("Values as of the Helm chart (YAML); - is standard input", group=INSTALLED, hyphen=True)
    ] = None,
    print_: Annotated[bool, flag("Print the manifests, and do nothing", "--print", group=INSTALLED)] = False,
    images: Annotated[bool, flag("Print the images that are pulled, and do nothing", group=INSTALLED)] = False,
    dry_run: Annotated[
        DryRun | None,
        option("Write nothing: list the objects (client), or ask the API server as well (server)", group=INSTALLED),
    ] = None,
    wait: Annotated[bool, flag("Wait until it is available", group=INSTALLED)] = False,
    timeout: Annotated[Seconds, option("How long to wait with --wait", group=INSTALLED)] = WAIT_SECONDS,
    output: Outputs = None,
    namespace: Annotated[Namespace, option("Namespace of polyarch", "-n", "--namespace", group=CLUSTER)] = WHERE,
    cluster: ClusterFlags = USUAL_CLUSTER,
    verbosity: Verbosity = AS_USUAL,
) -> int:
    """Install polyarch in a cluster, or bring an installation up to date."""
    messages = verbosity.messages()
    chosen = outputs(output, FORMATS)
    refuse_overwriting(chosen, [values])
    check_seconds("--timeout", timeout)
    if sum((print_, images, dry_run is not None)) > 1:
        raise UsageError("install: --print, --images and --dry-run exclude each other; give one of them")
    if wait and (print_ or images or dry_run):
        raise UsageError("install: --wait waits for what was written, and nothing would be; leave it out")
    from polyarch.cli.installation import install as rollout
    from polyarch.cli.installation.install import settings

    given = settings(values, components=component or (), image=image, replicas=replicas)
    if images:
        return rollout.print_images(given, cluster, chosen)
    if print_:
        return rollout.print_manifests(given, namespace, chosen)
    return rollout.install(
        given,
        namespace,
        rollout.InstallRunOptions(dry_run=dry_run or "", wait=timeout if wait else None),
        cluster,
        chosen,
        messages=messages,
    )


# -- polyarch upgrade


UPGRADED = subject("What to upgrade to")
UPGRADE_EPILOGUE = epilogue(
    note="""\
Applies this version with the values of the installation that is there; its own image
replaces a tag or digest that was given then. --check prints what would change as a diff,
and what stands in the way: objects that are stored in a version, or use a field, that
this version does not have, and an operator that is newer than this command.""",
    examples=(
        ("See what an upgrade would change", "polyarch upgrade --check"),
        ("Upgrade, and wait until it works", "polyarch upgrade --wait"),
        ("Upgrade to an image of your registry", "polyarch upgrade --image registry.example.com/polyarch:0.1.0"),
    ),
    exits=(
        (0, "it is upgraded; with --check: nothing would change"),
        (1, "--check: something would change"),
        (2, "the command line or the values are wrong"),
        (3, "something stands in the way, the API server refused, or it was not available in time"),
    ),
)
upgrade = App(name="upgrade", help_epilogue=UPGRADE_EPILOGUE)


@upgrade.default
def upgrade_polyarch(
    *,
    check: Annotated[
        bool, flag("Print what would change and what stands in the way; write nothing", group=UPGRADED)
    ] = False,
    image: Annotated[
        Image, option("Image of polyarch, by tag or digest", group=UPGRADED, show_default="of this version")
    ] = "",
    values: Annotated[
        File | None,
        option(
            "Values as of the Helm chart (YAML) instead of those of the installation; - is standard input",
            group=UPGRADED,
            hyphen=True,
        ),
    ] = None,
    wait: Annotated[bool, flag("Wait until it is available", group=UPGRADED)] = False,
    timeout: Annotated[Seconds, option("How long to wait with --wait", group=UPGRADED)] = WAIT_SECONDS,
    output: Outputs = None,
    namespace: Annotated[
        Namespace | None,
        option("Namespace of polyarch", "-n", "--namespace", group=CLUSTER, show_default="where its operator is"),
    ] = None,
    cluster: ClusterFlags = USUAL_CLUSTER,
    verbosity: Verbosity = AS_USUAL,
) -> int:
    """Upgrade polyarch in a cluster to the version of this command."""
    messages = verbosity.messages()
    chosen = outputs(output, FORMATS)
    refuse_overwriting(chosen, [values])
    check_seconds("--timeout", timeout)
    if check and wait:
        raise UsageError("upgrade: --check writes nothing that --wait could wait for; give one of them")
    from polyarch.cli.installation import upgrade as comparison

    wanted = comparison.UpgradeOptions(namespace=namespace, values=values, image=image)
    if check:
        return comparison.check(wanted, cluster, chosen, messages=messages)
    return comparison.upgrade(wanted, cluster, chosen, wait=timeout if wait else None, messages=messages)


# -- polyarch uninstall


REMOVED = subject("What to remove")
UNINSTALL_EPILOGUE = epilogue(
    note="""\
Deletes the custom resources, waits until the operator has removed every gate and its
other objects, then deletes everything that was installed, and looks through the whole
API server for what is left. It ends within 4 minutes: if no operator runs, or it does
not finish, this command removes gates, taints and finalizers. Pods that were placed keep
their constraints. At a terminal you are asked first.""",
    examples=(
        ("Remove polyarch", "polyarch uninstall"),
        ("Remove it without a question", "polyarch uninstall --yes"),
        ("Keep the definitions of the custom resources", "polyarch uninstall --keep-crds"),
        ("Remove what is left of an installation whose operator is gone", "polyarch uninstall --force"),
    ),
    exits=(
        (0, "nothing of polyarch is left"),
        (2, "the command line is wrong"),
        (3, "something is left, or the API server refused"),
    ),
)
uninstall = App(name="uninstall", help_epilogue=UNINSTALL_EPILOGUE)


@uninstall.default
def uninstall_polyarch(
    *,
    keep_crds: Annotated[
        bool, flag("Keep the CustomResourceDefinitions; custom resources are deleted", group=REMOVED)
    ] = False,
    force: Annotated[
        bool,
        flag("Remove gates without waiting for images; do without the operator, Helm or OLM", group=REMOVED),
    ] = False,
    yes: Annotated[bool, flag("Do not ask", group=REMOVED)] = False,
    output: Outputs = None,
    namespace: Annotated[
        Namespace | None,
        option("Namespace of polyarch", "-n", "--namespace", group=CLUSTER, show_default="where its operator is"),
    ] = None,
    cluster: ClusterFlags = USUAL_CLUSTER,
    verbosity: Verbosity = AS_USUAL,
) -> int:
    """Remove polyarch from a cluster: its objects, its gates on pods, its finalizers."""
    messages = verbosity.messages()
    chosen = outputs(output, FORMATS)
    from polyarch.cli.installation import uninstall as teardown

    return teardown.uninstall(namespace, cluster, chosen, keep_crds=keep_crds, force=force, yes=yes, messages=messages)
