"""The work of ``polyarch build run``: apply ImageBuilds, then follow them (BD-300, BD-301, BD-305).

Fields are applied server-side by a manager of our own, so that what others set stays theirs, and what an earlier
command line said stays said.
"""

import asyncio
import secrets
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from polyarch.builds.names import IGNORE_FILE_ANNOTATION, IMAGE_BUILDS
from polyarch.cli.build import composition
from polyarch.cli.build.board import open_board
from polyarch.cli.build.composition import Manifest
from polyarch.cli.build.following import follow
from polyarch.cli.build.observation import DETACHED, DONE, UNFINISHED, WRONG, End, Goal, Sight
from polyarch.cli.build.options import WhereFlags, WishFlags
from polyarch.cli.build.packing import contexts
from polyarch.cli.errors import CouldNotComplete, UsageError
from polyarch.cli.installation.cluster import Access, on_cluster
from polyarch.cli.options.outputs import Output, emit
from polyarch.cli.options.registries import RegistryOptions
from polyarch.cli.options.values import check_seconds
from polyarch.cli.output.documents import document_text, manifest_text
from polyarch.cli.output.messages import Messages
from polyarch.cli.output.terminal import printable, styled
from polyarch.kube import config
from polyarch.kube.client import Client
from polyarch.kube.errors import ConfigurationError, Conflict, Invalid, NotFound
from polyarch.kube.managed_fields import applied, conflicts_of
from polyarch.objects import Key, PartialObjectMetadata

SCHEMA: Final = "polyarch.dev/build-run.v1"
MANAGER: Final = "polyarch-build"


@dataclass(frozen=True, kw_only=True)
class Asked:
    """The command line of ``run`` without the options that it shares."""

    name: str | None = None
    rebuild: str | None = None
    """None: no rebuild; empty: of no architecture in particular."""
    wait: bool = True
    timeout: float | None = None
    dry_run: bool = False


def run_build(
    asked: Asked,
    wish: WishFlags,
    where: WhereFlags,
    registries: RegistryOptions,
    chosen: Sequence[Output],
    *,
    messages: Messages,
) -> int:
    """Returns the exit code (BD-305)."""
    _check(asked, wish)
    context = contexts.read(wish.context) if wish.context is not None else None
    namespace = usual_namespace(where)
    files = composition.read_builds(wish.file) if wish.file is not None else []
    if files:
        composition.check(files)
    if asked.name and files:
        files = [each for each in files if each.name == asked.name]
        if not files:
            raise UsageError(f"{wish.file}: no ImageBuild named {asked.name}")
    if len(files) > 1 and (wish.any or asked.rebuild is not None):
        raise UsageError(f"{wish.file}: {len(files)} ImageBuilds; give NAME, so that the options belong to one of them")
    if asked.dry_run and wish.file is not None and not wish.any:
        return _print([composition.placed(each, where.namespace, namespace) for each in files], chosen)

    async def work(client: Client | None) -> list[Manifest]:
        if files:
            bases = [composition.placed(each, where.namespace, namespace) for each in files]
        else:
            assert asked.name is not None  # noqa: S101  checked above
            bases = [await _known(client, asked.name, namespace)]
        return [await _wanted(each, asked, wish, context, registries, messages) for each in bases]

    if asked.dry_run:
        return _print(asyncio.run(_with_cluster(where, work)), chosen)

    async def submit(client: Client) -> dict[Key, tuple[Sight, End]]:
        manifests = await work(client)
        goals = {}
        for each in manifests:
            key = Key(str(each["metadata"]["namespace"]), str(each["metadata"]["name"]))
            goals[key] = await _applied(client, key, each, changes=bool(files) or wish.any or asked.rebuild is not None)
        if not asked.wait:
            return {}
        quiet = messages.quiet or (any(each.format != "text" for each in chosen) and messages.quiet)
        board = open_board(sys.stderr, quiet=quiet)
        return await follow(client, goals, board, timeout=asked.timeout)

    try:
        found = asyncio.run(on_cluster("build run", _access(where), submit))
    except KeyboardInterrupt:
        messages.note(f"detached; the build goes on. To follow it again: {_again(asked, files, namespace)}")
        return DETACHED
    if not asked.wait:
        messages.note(f"applied; to follow it: {_again(asked, files, namespace)}")
        return DONE
    for key, (seen, _) in found.items():
        for note in seen.notes:
            messages.note(f"{key.name}: {note}")
    emit(chosen, lambda form, colour: rendered(found, form, colour=colour))
    return max((end.code for _, end in found.values()), key=_severity, default=DONE)


def rendered(found: Mapping[Key, tuple[Sight, End]], form: str, *, colour: bool) -> str:
    """The answer: a line for each build, or a document."""
    if form == "text":
        return "".join(_line(key, end, colour) for key, (_, end) in found.items())
    return document_text(
        {"schemaVersion": SCHEMA, "builds": [_document(key, *each) for key, each in found.items()]}, form
    )


def _line(key: Key, end: End, colour: bool) -> str:
    name = styled(key.name, "green" if end.code == DONE else "red", colour=colour)
    if end.code == DONE:
        told = f" ({end.message})" if end.outcome != "Published" and end.message else ""
        return f"{name}: {printable(end.image + told)}\n"
    run = f" {end.run}" if end.run else ""
    return f"{name}:{run} {printable(f'{end.outcome}: {end.message}' if end.message else end.outcome)}\n"


def _document(key: Key, seen: Sight, end: End) -> dict[str, Any]:
    return {
        "namespace": key.namespace,
        "name": key.name,
        "run": end.run or seen.run,
        "outcome": end.outcome,
        "message": end.message,
        "image": end.image,
        "architectures": [
            {"architecture": row.architecture, "phase": row.phase, "message": row.words} for row in seen.rows
        ],
        "exitCode": end.code,
    }


_ORDER: Final = {code: place for place, code in enumerate((DONE, 1, UNFINISHED, WRONG))}


def _severity(code: int) -> int:
    return _ORDER.get(code, 0)


def _check(asked: Asked, wish: WishFlags) -> None:
    if asked.name is None and wish.file is None:
        raise UsageError("build run: give NAME, or -f FILE with ImageBuilds")
    if asked.timeout is not None:
        check_seconds("--timeout", asked.timeout)
    if wish.file == "-" and wish.containerfile == "-":
        raise UsageError("-f - and --containerfile - both read standard input; give one of them a file")


def usual_namespace(where: WhereFlags) -> str:
    """The namespace of the command line, else of the kubeconfig; UsageError for a kubeconfig that cannot be read."""
    if where.namespace:
        return where.namespace
    try:
        return config.load(where.kubeconfig, where.kube_context).namespace or "default"
    except ConfigurationError:
        return "default"  # whoever needs the cluster says what is wrong


def _access(where: WhereFlags) -> Access:
    return Access(where.kubeconfig, where.kube_context)


async def _with_cluster(where: WhereFlags, work: Any) -> list[Manifest]:
    """``work`` with the cluster, or, for a dry run, without one that cannot be reached."""
    try:
        return list(await on_cluster("build run", _access(where), work))
    except (UsageError, CouldNotComplete):
        return list(await work(None))


async def _known(client: Client | None, name: str, namespace: str) -> Manifest:
    """What earlier command lines said of this object; nothing if there is none."""
    if client is None:
        return composition.named(name, namespace)
    try:
        live: Manifest = await client.get(IMAGE_BUILDS, name, namespace=namespace)
    except NotFound:
        return composition.named(name, namespace)
    said = applied(live, manager=MANAGER, api_version=IMAGE_BUILDS.api_version)
    base = composition.named(name, namespace)
    metadata = {**base["metadata"], "uid": live["metadata"]["uid"]}
    if own := said.get("metadata", {}).get("annotations", {}).get(IGNORE_FILE_ANNOTATION):
        metadata["annotations"] = {IGNORE_FILE_ANNOTATION: own}
    return {**base, "metadata": metadata, "spec": said.get("spec") or {}}


async def _wanted(
    base: Manifest,
    asked: Asked,
    wish: WishFlags,
    context: contexts.Context | None,
    registries: RegistryOptions,
    messages: Messages,
) -> Manifest:
    """The object to apply."""
    is_new = not base["metadata"].get("uid")
    folder = context.folder if context is not None else None
    if wish.any or asked.rebuild is not None:
        wish = composition.with_usual_containerfile(wish, base, folder, messages.note, is_new=is_new)
    document = context.document if context is not None else None
    manifest = composition.composed(wish, base, document) if wish.any else dict(base)
    if folder is not None:
        manifest = await _with_folder(manifest, folder, asked, wish, registries, messages)
    elif document is not None:
        for path in filter(contexts.has_own_ignore_file, composition.containerfiles(wish, manifest)[0]):
            messages.warn(
                f"the ignore file of {path} does not count for --context {wish.context}: the builder reads "
                ".containerignore or .dockerignore in the context"
            )
    if asked.rebuild is not None:
        chosen = composition.architectures("--rebuild", asked.rebuild) if asked.rebuild else ()
        manifest = composition.with_rebuild(manifest, new_token(), chosen)
    if is_new and wish.any and wish.file is None:
        composition.check_composed(manifest)
    metadata = {name: value for name, value in manifest["metadata"].items() if name != "uid"}
    return {**manifest, "metadata": metadata}


async def _with_folder(
    manifest: Manifest,
    folder: Path,
    asked: Asked,
    wish: WishFlags,
    registries: RegistryOptions,
    messages: Messages,
) -> Manifest:
    """The object with what ``--context DIR`` says, which is pushed unless nothing is to be written."""
    repository = manifest["spec"].get("output", {}).get("repository", "")
    if not repository:
        raise UsageError("--context DIR needs --repository: the files are pushed there")
    had_own = (manifest["metadata"].get("annotations") or {}).get(IGNORE_FILE_ANNOTATION, "")
    named, unnamed = composition.containerfiles(wish, manifest)
    rules = contexts.rules_for(folder, named, unnamed, had_own=had_own)
    if asked.dry_run:
        messages.note(f"--dry-run: the context is not pushed, and not in what is printed ({rules})")
        return manifest
    document = await contexts.pushed(folder, rules, repository, registries, messages.note)
    return composition.with_context(manifest, document, contexts.own_ignore_file(rules))


def new_token() -> str:
    """A token that no one had: the time, and something random for two at the same moment."""
    return f"{datetime.now(UTC):%Y%m%dt%H%M%S}-{secrets.token_hex(3)}"


async def _applied(client: Client, key: Key, manifest: Manifest, *, changes: bool) -> Goal:
    """Apply it, or find it if nothing is to be changed. Raises CommandError."""
    try:
        if changes:
            stored = await client.apply(
                IMAGE_BUILDS,
                manifest,
                namespace=key.namespace,
                field_manager=MANAGER,
                force=False,
                type=PartialObjectMetadata,
            )
        else:
            stored = await client.get(IMAGE_BUILDS, key.name, namespace=key.namespace, type=PartialObjectMetadata)
    except Conflict as error:
        others = "; ".join(map(str, conflicts_of(error))) or str(error)
        raise UsageError(f"build run: {others}: change it there, or leave the option out") from None
    except Invalid as error:
        raise UsageError(f"build run: {_complaints(error)}") from None
    except NotFound:
        if not await client.is_served(IMAGE_BUILDS):
            raise CouldNotComplete(
                "build run: this cluster has no ImageBuilds; install them with `polyarch install --component builds`"
            ) from None
        if not changes:
            raise UsageError(
                f"build run: there is no ImageBuild {key}; give --containerfile and --repository to make one"
            ) from None
        raise UsageError(
            f"build run: there is no namespace {key.namespace}; create it with: kubectl create namespace "
            f"{key.namespace}, or name another one with -n"
        ) from None
    return Goal(stored.metadata.generation, stored.metadata.uid)


def _complaints(error: Invalid) -> str:
    """What the API server has against fields, without the request around it."""
    told = [f"{each.field}: {each.message}" for each in error.causes if each.field and each.message]
    return "; ".join(dict.fromkeys(told)) or str(error)


def _again(asked: Asked, files: Sequence[Any], namespace: str) -> str:
    names = [asked.name] if asked.name else [each.name for each in files]
    return "; ".join(f"polyarch build run {each} -n {namespace}" for each in names)


def _print(manifests: Sequence[Manifest], chosen: Sequence[Output]) -> int:
    """``--dry-run``: the objects, as they would be applied; text is YAML."""

    def render(form: str, colour: bool) -> str:
        if form == "json":
            return document_text(manifests[0] if len(manifests) == 1 else {"items": list(manifests)}, "json")
        return manifest_text(manifests)

    emit(chosen, render)
    return DONE
