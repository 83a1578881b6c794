"""The work of ``polyarch index``: gathers the sources, assembles and pushes an index, or shows one."""

import asyncio
from collections.abc import Callable, Coroutine, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeVar

import msgspec

from polyarch.cli.errors import CommandError, CouldNotComplete, UsageError
from polyarch.cli.input.objects import load_yaml
from polyarch.cli.options.common import Output, emit
from polyarch.cli.options.images import RegistryOptions
from polyarch.cli.output.documents import document_text
from polyarch.cli.output.messages import Messages
from polyarch.cli.output.tables import Row, table
from polyarch.oci.documents import ContentError
from polyarch.oci.image.contents import IndexNode, IndexTree, RegistryConnection, read_tree
from polyarch.oci.inspector import InspectorOptions, open_inspector
from polyarch.oci.reference import InvalidReference, Reference, parse
from polyarch.oci.settings import InspectorSettings
from polyarch.oci.traffic.failures import Failure
from polyarch.oci.transport.addresses import InvalidSetting
from polyarch.oci.write.assembly import (
    AssembledIndex,
    Attestations,
    Child,
    IndexKind,
    IndexSpec,
    InvalidIndex,
    InvalidIndexSpec,
    RequestedPlatform,
    SourceImage,
    assemble,
    check_required,
    expand,
    parse_annotations,
    parse_destination,
    parse_requested_platform,
    parse_source,
    parse_tags,
    read_spec,
)
from polyarch.oci.write.children import ChildCollector, ChildContent, SourceChildren
from polyarch.oci.write.push import Push, PushFailed, PushResult, open_destination
from polyarch.platforms import InvalidPlatform

T = TypeVar("T")


class RefusedIndex(CommandError):  # noqa: N818 - it says what becomes of the index
    """There will be no such index: exit code 1."""

    exit_code = 1


@dataclass(frozen=True, kw_only=True)
class IndexCreateOptions:
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

    recipe: IndexSpec
    kind: IndexKind
    only: list[RequestedPlatform]
    required: list[RequestedPlatform]
    attestations: Attestations
    keep_order: bool
    ignore_missing: bool
    amend: bool
    dry_run: bool
    messages: Messages


class Made(NamedTuple):
    """What was done. ``changed`` is None if a dry run could not ask the destination."""

    assembled: AssembledIndex
    changed: bool | None
    pushed: PushResult


def run_create(
    asked: IndexCreateOptions, access: RegistryOptions, outputs: Sequence[Output], *, messages: Messages
) -> int:
    """Put an index together and push it; returns the exit code."""
    try:
        recipe = _recipe(asked)
        plan = Plan(
            recipe=recipe,
            kind=asked.kind,
            only=parse_requested_platform(list(asked.platform)),
            required=parse_requested_platform(list(asked.require)),
            attestations=asked.attestations,
            keep_order=asked.keep_order,
            ignore_missing=asked.ignore_missing,
            amend=asked.amend,
            dry_run=asked.dry_run,
            messages=messages,
        )
    except (InvalidIndexSpec, InvalidPlatform) as error:
        raise UsageError(str(error)) from None
    made = _run(access, lambda connection: _create(connection, plan), messages)
    for child in made.assembled.dropped:
        messages.remark(dropped_line(child))
    tags = [_tag(recipe.destination), *recipe.tags]

    def render(form: str, colour: bool) -> str:
        if form == "text":
            rows = created_rows(made.assembled, made.pushed)
            shown = table(CREATED_HEADER, rows, colour=colour)
            return f"{recipe.destination}@{made.assembled.digest} {_outcome(made, dry_run=asked.dry_run)}\n{shown}"
        document = created_document(recipe.destination, made.assembled, tags, changed=made.changed, pushed=made.pushed)
        return document_text(document, form)

    emit(outputs, render)
    return 0


def show_index(image: str, access: RegistryOptions, outputs: Sequence[Output], *, messages: Messages) -> int:
    """Print everything that an index names; returns the exit code."""
    try:
        reference = parse(image)
    except InvalidReference as error:
        raise UsageError(str(error)) from None

    async def look(connection: RegistryConnection) -> IndexTree:
        contents, manifest = await connection.open(reference)
        try:
            return await read_tree(contents, manifest)
        except ContentError as error:
            raise Failure.of(error.code, contents.name, f"{reference}: {error.message}") from None

    tree = _run(access, look, messages)

    def render(form: str, colour: bool) -> str:
        if form != "text":
            return document_text(tree_document(reference, tree), form)
        single = f" {tree.platform}" if tree.platform is not None else ""
        shown = f"{reference}@{tree.digest} {tree.kind}{single}, {tree.size} bytes, {tree.media_type}\n"
        return shown + (table(TREE_HEADER, tree_rows(tree), colour=colour) if tree.nodes else "")

    emit(outputs, render)
    if any(each.format == "text" for each in outputs):
        for warning in tree.flat.warnings:
            messages.remark(warning.message)
    return 0


def _recipe(asked: IndexCreateOptions) -> IndexSpec:
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
        recipe = IndexSpec(parse_destination(asked.destination), tuple(given))
        if not given:
            raise UsageError("give at least one source: an image, PLATFORM=IMAGE or oci:DIR")
    return msgspec.structs.replace(
        recipe,
        tags=parse_tags([*recipe.tags, *asked.tags], recipe.destination),
        annotations={**recipe.annotations, **parse_annotations(asked.annotations)},
    )


async def _create(connection: RegistryConnection, plan: Plan) -> Made:
    recipe = plan.recipe
    gathering = ChildCollector(
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
            return Made(index, not await push.unchanged(tags), PushResult(changed=False))
        except Failure as failure:
            plan.messages.remark(f"could not check the destination: {failure.error.message}")
            return Made(index, None, PushResult(changed=False))
    pushed = await push.go(tags, begun_from=base.digest if base is not None else None)
    return Made(index, pushed.changed, pushed)


async def _base(connection: RegistryConnection, plan: Plan) -> SourceChildren:
    """What the destination has; nothing if it does not exist yet."""
    try:
        return await ChildCollector(connection, attestations=plan.attestations, notice=plan.messages.remark).read(
            SourceImage(plan.recipe.destination)
        )
    except Failure as failure:
        if failure.error.code != "not-found":
            raise
        plan.messages.remark(f"{plan.recipe.destination} does not exist yet; starting with an empty index")
        return SourceChildren((), "")


def _kept(base: SourceChildren | None, sources: Sequence[ChildContent]) -> list[ChildContent]:
    """The destination's entries whose platforms no source has."""
    replaced = {piece.child.platform for piece in sources if not piece.child.is_attestation}
    pieces = base.pieces if base is not None else ()
    return [piece for piece in pieces if piece.child.is_attestation or piece.child.platform not in replaced]


def _run(
    access: RegistryOptions, work: Callable[[RegistryConnection], Coroutine[Any, Any, T]], messages: Messages
) -> T:
    """The result; raises the error that ends the command."""
    access.check()
    wiring = InspectorOptions(
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
    except InvalidIndex as refused:
        raise RefusedIndex(f"refused, nothing was pushed: {refused}") from None
    except PushFailed as failed:
        done = f"; pushed so far: {', '.join(failed.done)}" if failed.done else "; nothing was pushed"
        if failed.error.code == "immutable-tag":  # what nothing but another tag completes
            raise RefusedIndex(f"{failed}{done}") from None
        raise CouldNotComplete(f"{failed}{done}; run the command again to complete it") from None
    except Failure as failure:
        raise CouldNotComplete(failure.error.message) from None


def _outcome(made: Made, *, dry_run: bool) -> str:
    if dry_run:
        return "would be unchanged" if made.changed is False else "would be pushed"
    return "pushed" if made.changed else "unchanged"


def _tag(destination: Reference) -> str:
    return destination.tag or "latest"


# -- output: documents and rows


SCHEMA_VERSION = "polyarch.dev/index/v1"
TREE_SCHEMA_VERSION = "polyarch.dev/index-tree/v1"
CREATED_HEADER = ("PLATFORM", "DIGEST", "SIZE", "SOURCE", "NOTE")
TREE_HEADER = ("PLATFORM", "DIGEST", "SIZE", "TYPE", "NOTE")
ATTESTATION_PLATFORM = "unknown/unknown"


def created_document(
    reference: Reference, index: AssembledIndex, tags: Sequence[str], *, changed: bool | None, pushed: PushResult
) -> dict[str, Any]:
    """``polyarch.dev/index/v1``. ``changed`` is null in a dry run that could not ask the destination."""
    return {
        "schemaVersion": SCHEMA_VERSION,
        "reference": reference.canonical,
        "digest": index.digest,
        "mediaType": index.media_type,
        "size": len(index.body),
        "tags": list(tags),
        "changed": changed,
        "children": [
            {
                "platform": _platform(child),
                "digest": child.digest,
                "size": child.size,
                "source": child.source,
                "copied": child.digest in pushed.copied,
            }
            for child in index.children
        ],
        "dropped": [
            {"digest": child.digest, "subject": child.subject, "source": child.source} for child in index.dropped
        ],
    }


def created_rows(index: AssembledIndex, pushed: PushResult) -> list[Row]:
    """One row per child, in the order of the index."""
    return [
        Row(
            (
                _platform(child),
                child.digest,
                str(child.size),
                child.source,
                "attestation" if child.is_attestation else "copied" if child.digest in pushed.copied else "",
            )
        )
        for child in index.children
    ]


def dropped_line(child: Child) -> str:
    """An attestation that is not in the new index."""
    about = f" for {child.subject}" if child.subject else ""
    return f"dropped: attestation {child.digest}{about} of {child.source}"


def tree_document(reference: Reference, tree: IndexTree) -> dict[str, Any]:
    """``polyarch.dev/index-tree/v1``: every entry as it stands, with what became of it."""
    return {
        "schemaVersion": TREE_SCHEMA_VERSION,
        "reference": reference.canonical,
        "kind": tree.kind,
        "digest": tree.digest,
        "mediaType": tree.media_type,
        "size": tree.size,
        "platform": str(tree.platform) if tree.platform is not None else None,
        "annotations": dict(tree.annotations),
        "entries": [_entry(node) for node in tree.nodes],
    }


def tree_rows(tree: IndexTree) -> list[Row]:
    """One row per entry, those of an inner index below it and further in."""
    return list(_rows(tree.nodes, ""))


def _platform(child: Child) -> str:
    return ATTESTATION_PLATFORM if child.platform is None else str(child.platform)


def _entry(node: IndexNode) -> dict[str, Any]:
    size = node.raw.get("size")
    return {
        "digest": node.entry.digest,
        "mediaType": _text(node, "mediaType"),
        "artifactType": _text(node, "artifactType"),
        "size": size if isinstance(size, int) else None,
        "platform": str(node.platform) if node.platform is not None else None,
        "status": _status(node),
        "reason": node.reason,
        "annotations": node.annotations,
        "entries": [_entry(each) for each in node.inner or ()],
    }


def _rows(nodes: Sequence[IndexNode], indent: str) -> Iterator[Row]:
    for node in nodes:
        shown = str(node.platform) if node.platform is not None else _status(node)
        subject = node.annotations.get("vnd.docker.reference.digest", "")
        note = ", ".join(part for part in (node.reason, f"for {subject}" if subject else "") if part)
        cells = (f"{indent}{shown}", node.entry.digest, str(node.raw.get("size", "")), _text(node, "mediaType"), note)
        yield Row(cells, "dim" if node.reason else "")
        yield from _rows(node.inner or (), f"{indent}  ")


def _status(node: IndexNode) -> str:
    return "index" if node.inner is not None else "skipped" if node.reason else "runnable"


def _text(node: IndexNode, name: str) -> str:
    value = node.raw.get(name)
    return value if isinstance(value, str) else ""
