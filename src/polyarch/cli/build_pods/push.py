"""``polyarch run build-push``: the container of a build pod that uploads what buildah made (BD-148)."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import App

from polyarch.cli.build_pods.flags import DEFAULT_LOG, EXITS, SUBJECT, TerminationLog
from polyarch.cli.options.help_page import epilogue
from polyarch.cli.options.registries import DEFAULT_OPTIONS, RegistryOptions
from polyarch.cli.options.values import Directory, Placeholder, Tag, option
from polyarch.cli.options.verbosity import AS_USUAL, Verbosity

if TYPE_CHECKING:
    from polyarch.builds.agent import Ending
    from polyarch.oci.image.contents import Connection

Repository = Annotated[str, Placeholder("REPOSITORY")]
Architecture = Annotated[str, Placeholder("ARCH")]

EPILOGUE = epilogue(
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

app = App(name="build-push", help_epilogue=EPILOGUE, version_flags=(), config=())


@app.default
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
    from polyarch.cli.build_pods.work import run_work
    from polyarch.cli.errors import UsageError
    from polyarch.oci.reference import InvalidReference, parse_located

    try:
        named = parse_located(repository)
    except InvalidReference as error:
        raise UsageError(f"--repository: {error}") from None
    if named.tag is not None or named.digest is not None:
        raise UsageError(f"--repository {repository}: name the repository alone, without tag and digest")
    upload = Upload(layout=Path(layout), architecture=architecture, repository=repository, tag=tag)

    async def work(connection: "Connection") -> "Ending":
        return await push_child(connection, upload, notice=messages.remark)

    return run_work(work, access, termination_log, messages=messages)
