"""``polyarch upgrade``: an installation at the version of this command (IN-004).

The command line alone; ``comparison`` does the work.
"""

from typing import Annotated

from cyclopts import App

from polyarch.cli.errors import UsageError
from polyarch.cli.options.help_page import epilogue
from polyarch.cli.options.outputs import FORMATS, OUTPUT_OPTION, Format, outputs, refuse_overwriting
from polyarch.cli.options.values import (
    CLUSTER,
    Context,
    File,
    Image,
    Namespace,
    Seconds,
    check_seconds,
    flag,
    option,
    subject,
)
from polyarch.cli.options.verbosity import AS_USUAL, Verbosity

Outputs = Annotated[list[Format | str] | None, OUTPUT_OPTION]
UPGRADED = subject("What to upgrade to")
WAIT_SECONDS = 300.0

EPILOGUE = epilogue(
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

upgrade = App(name="upgrade", help_epilogue=EPILOGUE)


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
    kubeconfig: Annotated[File | None, option("Kubeconfig", group=CLUSTER, show_default="as kubectl")] = None,
    context: Annotated[
        Context | None, option("Context of the kubeconfig", group=CLUSTER, show_default="the current one")
    ] = None,
    verbosity: Verbosity = AS_USUAL,
) -> int:
    """Upgrade polyarch in a cluster to the version of this command."""
    messages = verbosity.messages()
    chosen = outputs(output, FORMATS, messages=messages)
    refuse_overwriting(chosen, [values])
    check_seconds("--timeout", timeout)
    if check and wait:
        raise UsageError("upgrade: --check writes nothing that --wait could wait for; give one of them")
    from polyarch.cli.installation import comparison
    from polyarch.cli.installation.cluster import Access

    wanted = comparison.Wanted(namespace=namespace, values=values, image=image)
    access = Access(kubeconfig, context)
    if check:
        return comparison.check(wanted, access, chosen, messages=messages)
    return comparison.upgrade(wanted, access, chosen, wait=timeout if wait else None, messages=messages)
