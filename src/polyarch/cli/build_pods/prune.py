"""``polyarch run build-prune``: the container of a Job that deletes images (BD-178)."""

from typing import TYPE_CHECKING, Annotated

from cyclopts import App

from polyarch.cli.build_pods.flags import DEFAULT_LOG, EXITS, SUBJECT, TerminationLog
from polyarch.cli.options.help_page import epilogue
from polyarch.cli.options.registries import DEFAULT_OPTIONS, RegistryOptions
from polyarch.cli.options.values import File, option
from polyarch.cli.options.verbosity import AS_USUAL, Verbosity

if TYPE_CHECKING:
    from polyarch.builds.agent import Ending
    from polyarch.oci.image.contents import Connection

EPILOGUE = epilogue(
    examples=(
        ("Do what a document says", "polyarch run build-prune --document prune.json --termination-log /dev/stdout"),
    ),
    exits=EXITS,
)

app = App(name="build-prune", help_epilogue=EPILOGUE, version_flags=(), config=())


@app.default
def prune_images(
    *,
    document: Annotated[File, option("What to do, as JSON", group=SUBJECT)],
    termination_log: TerminationLog = DEFAULT_LOG,
    access: RegistryOptions = DEFAULT_OPTIONS,
    verbosity: Verbosity = AS_USUAL,
) -> int:
    """Delete images from a registry, indexes before what they hold."""
    messages = verbosity.messages()
    from polyarch.builds.agent import PruneDocument, prune
    from polyarch.cli.build_pods.work import read_document, run_work

    order = read_document(document, PruneDocument)

    async def work(connection: "Connection") -> "Ending":
        return await prune(connection, order)

    return run_work(work, access, termination_log, messages=messages)
