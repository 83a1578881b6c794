"""``polyarch index create`` and ``polyarch index inspect``: image indexes, written and shown (RG-150 to RG-157).

What is wrong with the command line or a file is found before the first request, and what is wrong with the sources
before anything is written. The answer goes to stdout, remarks and steps to stderr.
"""

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from typing import Annotated, Any, Literal, NamedTuple, TypeVar

import msgspec
from cyclopts import App, Parameter

from polyarch.cli.errors import CommandError, CouldNotComplete, UsageError
from polyarch.cli.images import index_output
from polyarch.cli.input.yaml_files import load_yaml
from polyarch.cli.options.registries import DEFAULT_OPTIONS, RegistryOptions, flag, several
from polyarch.cli.output.printable import printable
from polyarch.cli.output.render import print_document, print_table, remarks
from polyarch.oci.documents import ContentError
from polyarch.oci.image.contents import Connection
from polyarch.oci.image.index_tree import Tree, read_tree
from polyarch.oci.opening import Wiring, open_inspector
from polyarch.oci.reference import InvalidReference, Reference, parse
from polyarch.oci.settings import InspectorSettings
from polyarch.oci.traffic.failures import Failure
from polyarch.oci.transport.addresses import InvalidSetting
from polyarch.oci.write.assembly import (
    Assembled,
    Attestations,
    IndexKind,
    Refused,
    Wanted,
    assemble,
    check_required,
    parse_wanted,
)
from polyarch.oci.write.gather import Found, Gathering, Piece
from polyarch.oci.write.push import Push, Pushed, PushFailed, open_destination
from polyarch.oci.write.recipe import (
    InvalidRecipe,
    Recipe,
    SourceImage,
    expand,
    parse_annotations,
    parse_destination,
    parse_source,
    parse_tags,
    read_spec,
)
from polyarch.platforms import InvalidPlatform

T = TypeVar("T")
Output = Literal["text", "json"]

CREATE_EPILOGUE = """Examples:

- `polyarch index create quay.io/team/app:1.0 quay.io/team/app:1.0-amd64 quay.io/team/app:1.0-arm64`
- `polyarch index create quay.io/team/app:1.0 linux/arm/v6=quay.io/team/app:pi oci:build/out:1.0`
- `polyarch index create quay.io/team/app:1.0 --template quay.io/team/app:1.0-ARCH --platforms linux/amd64,linux/arm64`
- `polyarch index create --amend quay.io/team/app:1.0 quay.io/team/app:1.0-s390x --require linux/amd64,linux/s390x`
- `polyarch index create --from-spec app.yaml --dry-run -o json`

Exit codes:

- 0: pushed, or there already
- 1: refused, nothing was pushed
- 2: the command line or a file is wrong; nothing was asked
- 3: a registry failed; running the same command again completes the work
"""
INSPECT_EPILOGUE = """Examples:

- `polyarch index inspect nginx:1.27` shows every entry, attestations and others that do not run too
- `polyarch index inspect oci:build/out -o json`

Exit codes:

- 0: all is well
- 2: the command line or a reference is wrong; nothing was asked
- 3: the index could not be read
"""


class RefusedIndex(CommandError):  # noqa: N818 - it says what becomes of the index
    """There will be no such index (RG-152): exit code 1."""

    exit_code = 1


class Plan(NamedTuple):
    """What the command line says should be done."""

    recipe: Recipe
    kind: IndexKind
    only: list[Wanted]
    required: list[Wanted]
    attestations: Attestations
    keep_order: bool
    ignore_missing: bool
    amend: bool
    dry_run: bool


class Made(NamedTuple):
    """What was done. ``changed`` is None if a dry run could not ask the destination."""

    assembled: Assembled
    changed: bool | None
    pushed: Pushed


app = App(name="index", help="Image indexes: put together from images of one platform, and shown.")


@app.command(help_epilogue=CREATE_EPILOGUE)
def create(
    destination: Annotated[str | None, Parameter(help="Where the index goes, such as quay.io/team/app:1.0.")] = None,
    /,
    *sources: Annotated[str, Parameter(help="Images, indexes and layout directories, or PLATFORM=REFERENCE.")],
    type: Annotated[IndexKind, Parameter(help="The kind of index; its images decide it, and must be alike.")] = "auto",
    tag: Annotated[list[str] | None, several("A further tag for it; may be repeated.")] = None,
    platform: Annotated[list[str] | None, several("Take these platforms of the sources only, by commas.")] = None,
    require: Annotated[list[str] | None, several("Platforms that it must have, by commas.")] = None,
    annotation: Annotated[list[str] | None, several("KEY=VALUE for the index; may be repeated.")] = None,
    attestations: Annotated[Attestations, Parameter(help="What becomes of the sources' attestations.")] = "drop",
    keep_order: Annotated[bool, flag("Entries in the order of the sources, not of their platforms.")] = False,
    ignore_missing: Annotated[bool, flag("Go on without sources that do not exist.")] = False,
    amend: Annotated[bool, flag("Start from what the destination has; a source replaces its platform.")] = False,
    from_spec: Annotated[str | None, Parameter(help="A YAML or JSON file that says all of this.")] = None,
    template: Annotated[str | None, Parameter(help="A source for each of --platforms, with OS, ARCH, VARIANT.")] = None,
    platforms: Annotated[list[str] | None, several("Platforms for --template, by commas.")] = None,
    dry_run: Annotated[bool, flag("Say what would be pushed, and write nothing.")] = False,
    output: Annotated[Output, Parameter(name=["--output", "-o"], help="How to print what was done.")] = "text",
    access: RegistryOptions = DEFAULT_OPTIONS,
) -> int:
    """Put an image index together from images that are in registries already, and push it."""
    try:
        recipe = _recipe(
            destination,
            sources,
            tags=tag or [],
            annotations=annotation or [],
            from_spec=from_spec,
            template=template,
            platforms=platforms or [],
        )
        plan = Plan(
            recipe=recipe,
            kind=type,
            only=parse_wanted(platform or []),
            required=parse_wanted(require or []),
            attestations=attestations,
            keep_order=keep_order,
            ignore_missing=ignore_missing,
            amend=amend,
            dry_run=dry_run,
        )
    except (InvalidRecipe, InvalidPlatform) as error:
        raise UsageError(str(error)) from None
    made = _run(access, lambda connection: _create(connection, plan))
    for child in made.assembled.dropped:
        _remark(index_output.dropped_line(child))
    tags = [_tag(recipe.destination), *recipe.tags]
    if output == "json":
        print_document(
            index_output.created_document(
                recipe.destination, made.assembled, tags, changed=made.changed, pushed=made.pushed
            ),
            output,
        )
    else:
        print(f"{recipe.destination}@{made.assembled.digest} {_outcome(made, dry_run=dry_run)}")
        print_table(index_output.CREATED_HEADER, index_output.created_rows(made.assembled, made.pushed))
    return 0


@app.command(help_epilogue=INSPECT_EPILOGUE)
def inspect(
    image: Annotated[str, Parameter(help="A reference, or oci:DIRECTORY[:TAG].")],
    /,
    *,
    output: Annotated[Output, Parameter(name=["--output", "-o"], help="How to print the tree.")] = "text",
    access: RegistryOptions = DEFAULT_OPTIONS,
) -> int:
    """Show everything that an index names, and what of it can run."""
    try:
        reference = parse(image)
    except InvalidReference as error:
        raise UsageError(str(error)) from None

    async def look(connection: Connection) -> Tree:
        contents, manifest = await connection.open(reference)
        try:
            return await read_tree(contents, manifest)
        except ContentError as error:
            raise Failure.of(error.code, contents.name, f"{reference}: {error.message}") from None

    tree = _run(access, look)
    if output == "json":
        print_document(index_output.tree_document(reference, tree), output)
        return 0
    single = f" {tree.platform}" if tree.platform is not None else ""
    print(f"{reference}@{tree.digest} {tree.kind}{single}, {tree.size} bytes, {tree.media_type}")
    if tree.nodes:
        print_table(index_output.TREE_HEADER, index_output.tree_rows(tree))
    for warning in tree.flat.warnings:
        _remark(warning.message)
    return 0


# -- the command line --------------------------------------------------------------------------------------------------


def _recipe(
    destination: str | None,
    sources: Sequence[str],
    *,
    tags: Sequence[str],
    annotations: Sequence[str],
    from_spec: str | None,
    template: str | None,
    platforms: Sequence[str],
) -> Recipe:
    if from_spec is not None:
        if destination is not None or template is not None or platforms:
            raise UsageError("--from-spec names destination and sources: leave them out of the command line")
        recipe = read_spec(load_yaml("--from-spec", from_spec, expected="a YAML or JSON file"), origin=from_spec)
    else:
        if destination is None:
            raise UsageError("name the destination and the sources: polyarch index create DEST SRC…")
        if (template is None) != (not platforms):
            raise UsageError("--template and --platforms belong together: give both")
        given = [parse_source(text) for text in sources]
        if template is not None:
            given += expand(template, platforms)
        recipe = Recipe(parse_destination(destination), tuple(given))
        if not given:
            raise UsageError("name at least one source: an image, PLATFORM=IMAGE or oci:DIRECTORY")
    return msgspec.structs.replace(
        recipe,
        tags=parse_tags([*recipe.tags, *tags], recipe.destination),
        annotations={**recipe.annotations, **parse_annotations(annotations)},
    )


# -- the work ----------------------------------------------------------------------------------------------------------


async def _create(connection: Connection, plan: Plan) -> Made:
    recipe = plan.recipe
    gathering = Gathering(
        connection,
        attestations=plan.attestations,
        only=plan.only,
        ignore_missing=plan.ignore_missing,
        notice=_remark,
    )
    base = await _base(connection, plan) if plan.amend else None
    gathered = await gathering.gather(recipe.sources)
    pieces = [*_kept(base, gathered.pieces), *gathered.pieces]
    index = assemble(
        [piece.child for piece in pieces],
        kind=plan.kind,
        annotations={**(base.annotations if base is not None else {}), **recipe.annotations},
        keep_order=plan.keep_order,
        attestations=plan.attestations,
    )
    check_required(index.children, plan.required)
    writer = await open_destination(connection, recipe.destination)
    push = Push(connection, writer, index, {piece.child.digest: piece for piece in pieces}, notice=_remark)
    tags = [_tag(recipe.destination), *recipe.tags]
    if plan.dry_run:
        try:
            return Made(index, not await push.unchanged(tags), Pushed(changed=False))
        except Failure as failure:
            _remark(f"the destination could not be asked: {failure.error.message}")
            return Made(index, None, Pushed(changed=False))
    pushed = await push.go(tags, begun_from=base.digest if base is not None else None)
    return Made(index, pushed.changed, pushed)


async def _base(connection: Connection, plan: Plan) -> Found:
    """What the destination has; nothing if it does not exist yet (RG-151)."""
    try:
        return await Gathering(connection, attestations=plan.attestations, notice=_remark).read(
            SourceImage(plan.recipe.destination)
        )
    except Failure as failure:
        if failure.error.code != "not-found":
            raise
        _remark(f"{plan.recipe.destination} does not exist yet: the index starts from nothing")
        return Found((), "")


def _kept(base: Found | None, sources: Sequence[Piece]) -> list[Piece]:
    """The destination's entries whose platforms no source has."""
    replaced = {piece.child.platform for piece in sources if not piece.child.is_attestation}
    pieces = base.pieces if base is not None else ()
    return [piece for piece in pieces if piece.child.is_attestation or piece.child.platform not in replaced]


def _run(access: RegistryOptions, work: Callable[[Connection], Coroutine[Any, Any, T]]) -> T:
    """The result; errors as the exit codes of RG-157."""
    access.check()
    wiring = Wiring(
        settings=InspectorSettings(timeout=access.timeout, max_wait=access.max_wait),
        configuration=access.configuration(),
        trust=access.trust(),
    )
    credentials = access.credentials()

    async def connected() -> T:
        async with open_inspector(wiring, credentials=credentials, notice=_remark) as inspector:
            return await work(inspector.connection)

    try:
        return asyncio.run(connected())
    except InvalidSetting as error:
        raise UsageError(str(error)) from None
    except Refused as refused:
        raise RefusedIndex(f"refused, nothing was pushed: {refused}") from None
    except PushFailed as failed:
        done = f"; pushed so far: {', '.join(failed.done)}" if failed.done else "; nothing was pushed"
        raise CouldNotComplete(f"{failed}{done}; running the command again completes it") from None
    except Failure as failure:
        raise CouldNotComplete(failure.error.message) from None


def _outcome(made: Made, *, dry_run: bool) -> str:
    if dry_run:
        return "would be unchanged" if made.changed is False else "would be pushed"
    return "pushed" if made.changed else "unchanged"


def _tag(destination: Reference) -> str:
    return destination.tag or "latest"


def _remark(text: str) -> None:
    remarks().print(printable(text), markup=False)
