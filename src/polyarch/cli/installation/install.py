"""``polyarch install``: polyarch in a cluster, with one command (IN-002).

The command line alone; ``rollout`` does the work.
"""

from typing import Annotated, Literal

from cyclopts import App

from polyarch.cli.errors import UsageError
from polyarch.cli.options.help_page import epilogue
from polyarch.cli.options.outputs import FORMATS, OUTPUT_OPTION, Format, outputs, refuse_overwriting
from polyarch.cli.options.values import (
    CLUSTER,
    Context,
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
from polyarch.cli.options.verbosity import AS_USUAL, Verbosity

DryRun = Annotated[Literal["client", "server"], Placeholder("WHERE")]
Outputs = Annotated[list[Format | str] | None, OUTPUT_OPTION]
INSTALLED = subject("What to install")
WHERE = "polyarch-system"
WAIT_SECONDS = 300.0

EPILOGUE = epilogue(
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

install = App(name="install", help_epilogue=EPILOGUE)


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
    kubeconfig: Annotated[File | None, option("Kubeconfig", group=CLUSTER, show_default="as kubectl")] = None,
    context: Annotated[
        Context | None, option("Context of the kubeconfig", group=CLUSTER, show_default="the current one")
    ] = None,
    verbosity: Verbosity = AS_USUAL,
) -> int:
    """Install polyarch in a cluster, or bring an installation up to date."""
    messages = verbosity.messages()
    chosen = outputs(output, FORMATS, messages=messages)
    refuse_overwriting(chosen, [values])
    check_seconds("--timeout", timeout)
    if sum((print_, images, dry_run is not None)) > 1:
        raise UsageError("install: --print, --images and --dry-run exclude each other; give one of them")
    if wait and (print_ or images or dry_run):
        raise UsageError("install: --wait waits for what was written, and nothing would be; leave it out")
    from polyarch.cli.installation import rollout
    from polyarch.cli.installation.cluster import Access
    from polyarch.cli.installation.values import settings

    given = settings(values, components=component or (), image=image, replicas=replicas)
    if images:
        return rollout.print_images(given, chosen)
    if print_:
        return rollout.print_manifests(given, namespace, chosen)
    return rollout.install(
        given,
        namespace,
        rollout.Manner(dry_run=dry_run or "", wait=timeout if wait else None),
        Access(kubeconfig, context),
        chosen,
        messages=messages,
    )
