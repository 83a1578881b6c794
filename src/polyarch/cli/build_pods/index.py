"""``polyarch run build-index``: the container of an index Job (BD-178)."""

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
        ("Do what a document says", "polyarch run build-index --document index.json --termination-log /dev/stdout"),
    ),
    exits=(
        *EXITS[:-1],
        (43, "a child is of another architecture"),
        EXITS[-1],
        (45, "these children cannot be in one index"),
    ),
)

app = App(name="build-index", help_epilogue=EPILOGUE, version_flags=(), config=())


@app.default
def index(
    *,
    document: Annotated[File, option("What to do, as JSON", group=SUBJECT)],
    termination_log: TerminationLog = DEFAULT_LOG,
    access: RegistryOptions = DEFAULT_OPTIONS,
    verbosity: Verbosity = AS_USUAL,
) -> int:
    """Join children that are in a registry in one index, push it and move its tags."""
    messages = verbosity.messages()
    from polyarch.builds.agent import push_index
    from polyarch.builds.registry import Publication
    from polyarch.cli.build_pods.work import read_document, run_work

    order = read_document(document, Publication)

    async def work(connection: "Connection") -> "Ending":
        return await push_index(connection, order)

    return run_work(work, access, termination_log, messages=messages)
