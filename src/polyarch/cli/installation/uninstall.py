"""``polyarch uninstall``: polyarch out of a cluster, and nothing left of it (IN-003).

The command line alone; ``teardown`` does the work.
"""

from typing import Annotated

from cyclopts import App

from polyarch.cli.options.help_page import epilogue
from polyarch.cli.options.outputs import FORMATS, OUTPUT_OPTION, Format, outputs
from polyarch.cli.options.values import CLUSTER, Context, File, Namespace, flag, option, subject
from polyarch.cli.options.verbosity import AS_USUAL, Verbosity

Outputs = Annotated[list[Format | str] | None, OUTPUT_OPTION]
REMOVED = subject("What to remove")

EPILOGUE = epilogue(
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

uninstall = App(name="uninstall", help_epilogue=EPILOGUE)


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
    kubeconfig: Annotated[File | None, option("Kubeconfig", group=CLUSTER, show_default="as kubectl")] = None,
    context: Annotated[
        Context | None, option("Context of the kubeconfig", group=CLUSTER, show_default="the current one")
    ] = None,
    verbosity: Verbosity = AS_USUAL,
) -> int:
    """Remove polyarch from a cluster: its objects, its gates on pods, its finalizers."""
    messages = verbosity.messages()
    chosen = outputs(output, FORMATS, messages=messages)
    from polyarch.cli.installation import teardown
    from polyarch.cli.installation.cluster import Access

    return teardown.uninstall(
        namespace, Access(kubeconfig, context), chosen, keep_crds=keep_crds, force=force, yes=yes, messages=messages
    )
