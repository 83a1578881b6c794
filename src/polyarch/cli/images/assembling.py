"""The work of ``polyarch index``: sources gathered, an index put together and pushed, or one shown (RG-150 to RG-157).

What is wrong with the command line or a file is found before the first request, and what is wrong with the sources
before anything is written. The answer goes to stdout, remarks and steps to stderr.
"""

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeVar

import msgspec

from polyarch.cli.errors import CommandError, CouldNotComplete, UsageError
from polyarch.cli.images import index_output
from polyarch.cli.input.yaml_files import load_yaml
from polyarch.cli.options.outputs import Output, emit
from polyarch.cli.options.registries import RegistryOptions
from polyarch.cli.output.documents import document_text
from polyarch.cli.output.messages import Messages
from polyarch.cli.output.tables import table
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


class RefusedIndex(CommandError):  # noqa: N818 - it says what becomes of the index
    """There will be no such index (RG-152): exit code 1."""

    exit_code = 1


@dataclass(frozen=True, kw_only=True)
class Asked:
    """The command line of ``polyarch index create`` without the options that it shares."""

    destination: str | None
    sources: Sequence[str]
    kind: IndexKind = "auto"
    tags: Sequence[str] = ()
    platform: Sequence[str] = ()
    require: Sequence[str] = ()
    annotations: Sequence[str] = ()
    attestations: Attestations = "drop"
    keep_order: bool = False
    ignore_missing: bool = False
    amend: bool = False
    from_spec: str | None = None
    template: str | None = None
    platforms: Sequence[str] = ()
    dry_run: bool = False


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
    messages: Messages


class Made(NamedTuple):
    """What was done. ``changed`` is None if a dry run could not ask the destination."""

    assembled: Assembled
    changed: bool | None
    pushed: Pushed


def run_create(asked: Asked, access: RegistryOptions, outputs: Sequence[Output], *, messages: Messages) -> int:
    """Put an index together and push it; returns the exit code (RG-157)."""
    try:
        recipe = _recipe(asked)
        plan = Plan(
            recipe=recipe,
            kind=asked.kind,
            only=parse_wanted(list(asked.platform)),
            required=parse_wanted(list(asked.require)),
            attestations=asked.attestations,
            keep_order=asked.keep_order,
            ignore_missing=asked.ignore_missing,
            amend=asked.amend,
            dry_run=asked.dry_run,
            messages=messages,
        )
    except (InvalidRecipe, InvalidPlatform) as error:
        raise UsageError(str(error)) from None
    made = _run(access, lambda connection: _create(connection, plan), messages)
    for child in made.assembled.dropped:
        messages.remark(index_output.dropped_line(child))
    tags = [_tag(recipe.destination), *recipe.tags]

    def render(form: str, colour: bool) -> str:
        if form == "text":
            rows = index_output.created_rows(made.assembled, made.pushed)
            shown = table(index_output.CREATED_HEADER, rows, colour=colour)
            return f"{recipe.destination}@{made.assembled.digest} {_outcome(made, dry_run=asked.dry_run)}\n{shown}"
        document = index_output.created_document(
            recipe.destination, made.assembled, tags, changed=made.changed, pushed=made.pushed
        )
        return document_text(document, form)

    emit(outputs, render)
    return 0


def show_index(image: str, access: RegistryOptions, outputs: Sequence[Output], *, messages: Messages) -> int:
    """Print everything that an index names; returns the exit code."""
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

    tree = _run(access, look, messages)

    def render(form: str, colour: bool) -> str:
        if form != "text":
            return document_text(index_output.tree_document(reference, tree), form)
        single = f" {tree.platform}" if tree.platform is not None else ""
        shown = f"{reference}@{tree.digest} {tree.kind}{single}, {tree.size} bytes, {tree.media_type}\n"
        return shown + (
            table(index_output.TREE_HEADER, index_output.tree_rows(tree), colour=colour) if tree.nodes else ""
        )

    emit(outputs, render)
    if any(each.format == "text" for each in outputs):
        for warning in tree.flat.warnings:
            messages.remark(warning.message)
    return 0


def _recipe(asked: Asked) -> Recipe:
    if asked.from_spec is not None:
        if asked.destination is not None or asked.template is not None or asked.platforms:
            raise UsageError("--from-spec names the destination and sources; remove them from the command line")
        recipe = read_spec(
            load_yaml("--from-spec", asked.from_spec, expected="a YAML or JSON file"), origin=asked.from_spec
        )
    else:
        if asked.destination is None:
            raise UsageError("give a destination and its sources: polyarch index create DEST SRC...")
        if (asked.template is None) != (not asked.platforms):
            raise UsageError("--template and --platforms go together: give both")
        given = [parse_source(text) for text in asked.sources]
        if asked.template is not None:
            given += expand(asked.template, asked.platforms)
        recipe = Recipe(parse_destination(asked.destination), tuple(given))
        if not given:
            raise UsageError("give at least one source: an image, PLATFORM=IMAGE or oci:DIR")
    return msgspec.structs.replace(
        recipe,
        tags=parse_tags([*recipe.tags, *asked.tags], recipe.destination),
        annotations={**recipe.annotations, **parse_annotations(asked.annotations)},
    )


async def _create(connection: Connection, plan: Plan) -> Made:
    recipe = plan.recipe
    gathering = Gathering(
        connection,
        attestations=plan.attestations,
        only=plan.only,
        ignore_missing=plan.ignore_missing,
        notice=plan.messages.remark,
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
    push = Push(connection, writer, index, {piece.child.digest: piece for piece in pieces}, notice=plan.messages.remark)
    tags = [_tag(recipe.destination), *recipe.tags]
    if plan.dry_run:
        try:
            return Made(index, not await push.unchanged(tags), Pushed(changed=False))
        except Failure as failure:
            plan.messages.remark(f"could not check the destination: {failure.error.message}")
            return Made(index, None, Pushed(changed=False))
    pushed = await push.go(tags, begun_from=base.digest if base is not None else None)
    return Made(index, pushed.changed, pushed)


async def _base(connection: Connection, plan: Plan) -> Found:
    """What the destination has; nothing if it does not exist yet (RG-151)."""
    try:
        return await Gathering(connection, attestations=plan.attestations, notice=plan.messages.remark).read(
            SourceImage(plan.recipe.destination)
        )
    except Failure as failure:
        if failure.error.code != "not-found":
            raise
        plan.messages.remark(f"{plan.recipe.destination} does not exist yet; starting with an empty index")
        return Found((), "")


def _kept(base: Found | None, sources: Sequence[Piece]) -> list[Piece]:
    """The destination's entries whose platforms no source has."""
    replaced = {piece.child.platform for piece in sources if not piece.child.is_attestation}
    pieces = base.pieces if base is not None else ()
    return [piece for piece in pieces if piece.child.is_attestation or piece.child.platform not in replaced]


def _run(access: RegistryOptions, work: Callable[[Connection], Coroutine[Any, Any, T]], messages: Messages) -> T:
    """The result; errors as the exit codes of RG-157."""
    access.check()
    wiring = Wiring(
        settings=InspectorSettings(
            timeout=access.timeout, max_wait=access.max_wait, requests_per_host=access.concurrency
        ),
        configuration=access.configuration(),
        trust=access.trust(),
    )
    credentials = access.credentials()

    async def connected() -> T:
        async with open_inspector(wiring, credentials=credentials, notice=messages.remark) as inspector:
            return await work(inspector.connection)

    try:
        return asyncio.run(connected())
    except InvalidSetting as error:
        raise UsageError(str(error)) from None
    except Refused as refused:
        raise RefusedIndex(f"refused, nothing was pushed: {refused}") from None
    except PushFailed as failed:
        done = f"; pushed so far: {', '.join(failed.done)}" if failed.done else "; nothing was pushed"
        raise CouldNotComplete(f"{failed}{done}; run the command again to complete it") from None
    except Failure as failure:
        raise CouldNotComplete(failure.error.message) from None


def _outcome(made: Made, *, dry_run: bool) -> str:
    if dry_run:
        return "would be unchanged" if made.changed is False else "would be pushed"
    return "pushed" if made.changed else "unchanged"


def _tag(destination: Reference) -> str:
    return destination.tag or "latest"
