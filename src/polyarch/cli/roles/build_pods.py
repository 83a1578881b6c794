"""``polyarch run build-push``, ``build-index`` and ``build-prune``: the containers of build pods and registry Jobs."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import App

from polyarch.cli.options.common import AS_USUAL, Verbosity
from polyarch.cli.options.help_page import epilogue
from polyarch.cli.options.images import DEFAULT_OPTIONS, RegistryOptions
from polyarch.cli.options.values import Directory, File, Placeholder, Tag, option, subject

if TYPE_CHECKING:
    from polyarch.builds.agent import ProgramResult
    from polyarch.oci.image.contents import RegistryConnection

SUBJECT = subject("Work")
TerminationLog = Annotated[
    File, option("Where the result is written, in one line of JSON, as the last act", group=SUBJECT)
]
DEFAULT_LOG = "/dev/termination-log"
EXITS = (
    (0, "done; the result is in the termination log"),
    (1, "a registry failed; another attempt may succeed"),
    (2, "the command line or a file that it names is wrong"),
    (44, "the registry refuses it, or the credentials cannot be used"),
)

# -- polyarch run build-push


Repository = Annotated[str, Placeholder("REPOSITORY")]
Architecture = Annotated[str, Placeholder("ARCH")]
PUSH_EPILOGUE = epilogue(
    examples=(
        (
            "Push what a build left, as a Job does",
            "polyarch run build-push --layout out --repository quay.io/team/app --architecture arm64 --tag 1.0-arm64",
        ),
    ),
    exits=(
        *EXITS[:-1],
        (43, "the image is of another architecture"),
        EXITS[-1],
        (45, "the layout is not one that can be pushed"),
    ),
)
push_app = App(name="build-push", help_epilogue=PUSH_EPILOGUE, version_flags=(), config=())


@push_app.default
def push(
    *,
    layout: Annotated[Directory, option("OCI layout with the one image to push", group=SUBJECT)],
    repository: Annotated[Repository, option("Where to push it, such as quay.io/team/app", group=SUBJECT)],
    architecture: Annotated[Architecture, option("What it has to be built for, such as arm64", group=SUBJECT)],
    tag: Annotated[Tag, option("Tag to put on it; by digest only without", group=SUBJECT)] = "",
    termination_log: TerminationLog = DEFAULT_LOG,
    access: RegistryOptions = DEFAULT_OPTIONS,
    verbosity: Verbosity = AS_USUAL,
) -> int:
    """Push the image that a build left in a layout, every byte checked."""
    messages = verbosity.messages()
    from polyarch.builds.agent import Upload, push_child
    from polyarch.cli.errors import UsageError
    from polyarch.cli.roles.build_pod_work import run_work
    from polyarch.oci.reference import InvalidReference, parse_located

    try:
        named = parse_located(repository)
    except InvalidReference as error:
        raise UsageError(f"--repository: {error}") from None
    if named.tag is not None or named.digest is not None:
        raise UsageError(f"--repository {repository}: name the repository alone, without tag and digest")
    upload = Upload(layout=Path(layout), architecture=architecture, repository=repository, tag=tag)

    async def work(connection: "RegistryConnection") -> "ProgramResult":
        return await push_child(connection, upload, notice=messages.remark)

    return run_work(work, access, termination_log, messages=messages)


# -- polyarch run build-index


INDEX_EPILOGUE = epilogue(
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
index_app = App(name="build-index", help_epilogue=INDEX_EPILOGUE, version_flags=(), config=())


@index_app.default
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
    from polyarch.cli.roles.build_pod_work import read_document, run_work

    order = read_document(document, Publication)

    async def work(connection: "RegistryConnection") -> "ProgramResult":
        return await push_index(connection, order)

    return run_work(work, access, termination_log, messages=messages)


# -- polyarch run build-prune


PRUNE_EPILOGUE = epilogue(
    examples=(
        ("Do what a document says", "polyarch run build-prune --document prune.json --termination-log /dev/stdout"),
    ),
    exits=EXITS,
)
prune_app = App(name="build-prune", help_epilogue=PRUNE_EPILOGUE, version_flags=(), config=())


@prune_app.default
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
    from polyarch.cli.roles.build_pod_work import read_document, run_work

    order = read_document(document, PruneDocument)

    async def work(connection: "RegistryConnection") -> "ProgramResult":
        return await prune(connection, order)

    return run_work(work, access, termination_log, messages=messages)
