"""The work of ``polyarch build run``: apply ImageBuilds, follow them, and show how far they are."""

import asyncio
import contextlib
import secrets
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol, TextIO

from polyarch.builds import names
from polyarch.builds.api.resources import ImageBuild, ImageBuildRun
from polyarch.builds.jobs.contract import BUILD_CONTAINER
from polyarch.builds.names import IGNORE_FILE_ANNOTATION, IMAGE_BUILDS, MAX_LABEL, shortened
from polyarch.cli.build import image_builds
from polyarch.cli.build.image_builds import Manifest
from polyarch.cli.build.options import BuildFlags, NamespaceFlags
from polyarch.cli.build.progress import (
    DETACHED,
    DONE,
    GOOD,
    UNFINISHED,
    WRONG,
    AwaitedGeneration,
    BuildPod,
    BuildProgress,
    BuildResult,
    BuildRow,
    Step,
    elapsed,
    sight,
)
from polyarch.cli.cluster import on_cluster
from polyarch.cli.errors import CouldNotComplete, UsageError
from polyarch.cli.options.common import Output, emit
from polyarch.cli.options.images import RegistryOptions
from polyarch.cli.options.values import check_seconds
from polyarch.cli.output.documents import document_text, manifest_text
from polyarch.cli.output.messages import Messages
from polyarch.cli.output.terminal import is_terminal, printable, styled
from polyarch.clock import Clock, SystemClock
from polyarch.kube import config
from polyarch.kube.client import Client
from polyarch.kube.errors import ConfigurationError, Conflict, Invalid, KubernetesError, NotFound
from polyarch.kube.informer import InformerFactory
from polyarch.kube.managed_fields import applied, conflicts_of
from polyarch.kube.resources import PODS
from polyarch.objects import ObjectKey, PartialObjectMetadata

if TYPE_CHECKING:
    from rich.table import Table

SCHEMA: Final = "polyarch.dev/build-run.v1"
MANAGER: Final = "polyarch-build"


@dataclass(frozen=True, kw_only=True)
class BuildRunOptions:
    """The command line of ``run`` without the options that it shares."""

    name: str | None = None
    rebuild: str | None = None
    """None: no rebuild; empty: of no architecture in particular."""
    wait: bool = True
    timeout: float | None = None
    dry_run: bool = False


def run_build(
    asked: BuildRunOptions,
    wish: BuildFlags,
    where: NamespaceFlags,
    registries: RegistryOptions,
    chosen: Sequence[Output],
    *,
    messages: Messages,
) -> int:
    """Returns the exit code."""
    _check(asked, wish)
    context = image_builds.read(wish.context) if wish.context is not None else None
    namespace = usual_namespace(where)
    files = image_builds.read_builds(wish.file) if wish.file is not None else []
    if files:
        image_builds.check(files)
    if asked.name and files:
        files = [each for each in files if each.name == asked.name]
        if not files:
            raise UsageError(f"{wish.file}: no ImageBuild named {asked.name}")
    if len(files) > 1 and (wish.any or asked.rebuild is not None):
        raise UsageError(f"{wish.file}: {len(files)} ImageBuilds; give NAME, so that the options belong to one of them")
    if asked.dry_run and wish.file is not None and not wish.any:
        return _print([image_builds.placed(each, where.namespace, namespace) for each in files], chosen)

    async def work(client: Client | None) -> list[Manifest]:
        if files:
            known = [KnownBuild(image_builds.placed(each, where.namespace, namespace)) for each in files]
        else:
            assert asked.name is not None  # noqa: S101  checked above
            known = [await _known(client, asked.name, namespace)]
        return [await _wanted(each, asked, wish, context, registries, messages) for each in known]

    if asked.dry_run:
        return _print(asyncio.run(_with_cluster(where, work)), chosen)

    async def submit(client: Client) -> dict[ObjectKey, tuple[BuildProgress, BuildResult]]:
        manifests = await work(client)
        goals = {}
        for each in manifests:
            key = ObjectKey(str(each["metadata"]["namespace"]), str(each["metadata"]["name"]))
            goals[key] = await _applied(client, key, each, changes=bool(files) or wish.any or asked.rebuild is not None)
        if not asked.wait:
            return {}
        quiet = messages.quiet or (any(each.format != "text" for each in chosen) and messages.quiet)
        board = open_board(sys.stderr, quiet=quiet)
        return await follow(client, goals, board, timeout=asked.timeout)

    try:
        found = asyncio.run(on_cluster("build run", where.cluster, submit))
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


def rendered(found: Mapping[ObjectKey, tuple[BuildProgress, BuildResult]], form: str, *, colour: bool) -> str:
    """The answer: a line for each build, or a document."""
    if form == "text":
        return "".join(_line(key, end, colour) for key, (_, end) in found.items())
    return document_text(
        {"schemaVersion": SCHEMA, "builds": [_document(key, *each) for key, each in found.items()]}, form
    )


def _line(key: ObjectKey, end: BuildResult, colour: bool) -> str:
    name = styled(key.name, "green" if end.code == DONE else "red", colour=colour)
    if end.code == DONE:
        told = f" ({end.message})" if end.outcome != "Published" and end.message else ""
        return f"{name}: {printable(end.image + told)}\n"
    run = f" {end.run}" if end.run else ""
    return f"{name}:{run} {printable(f'{end.outcome}: {end.message}' if end.message else end.outcome)}\n"


def _document(key: ObjectKey, seen: BuildProgress, end: BuildResult) -> dict[str, Any]:
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


def _check(asked: BuildRunOptions, wish: BuildFlags) -> None:
    if asked.name is None and wish.file is None:
        raise UsageError("build run: give NAME, or -f FILE with ImageBuilds")
    if asked.timeout is not None:
        check_seconds("--timeout", asked.timeout)
    if wish.file == "-" and wish.containerfile == "-":
        raise UsageError("-f - and --containerfile - both read standard input; give one of them a file")


def usual_namespace(where: NamespaceFlags) -> str:
    """The namespace of the command line, else of the kubeconfig; UsageError for a kubeconfig that cannot be read."""
    if where.namespace:
        return where.namespace
    try:
        return config.load(where.kubeconfig, where.kube_context).namespace or "default"
    except ConfigurationError:
        return "default"  # whoever needs the cluster says what is wrong


async def _with_cluster(where: NamespaceFlags, work: Any) -> list[Manifest]:
    """``work`` with the cluster, or, for a dry run, without one that cannot be reached."""
    try:
        return list(await on_cluster("build run", where.cluster, work))
    except (UsageError, CouldNotComplete):
        return list(await work(None))


class KnownBuild(NamedTuple):
    """An ImageBuild before the options of a command line."""

    said: Manifest
    """What a file or earlier command lines said of it; nothing if there is none."""
    live: Mapping[str, Any] = {}
    """Its whole spec as it is stored, with what others have said."""


async def _known(client: Client | None, name: str, namespace: str) -> KnownBuild:
    if client is None:
        return KnownBuild(image_builds.named(name, namespace))
    try:
        live: Manifest = await client.get(IMAGE_BUILDS, name, namespace=namespace)
    except NotFound:
        return KnownBuild(image_builds.named(name, namespace))
    said = applied(live, manager=MANAGER, api_version=IMAGE_BUILDS.api_version)
    base = image_builds.named(name, namespace)
    metadata = {**base["metadata"], "uid": live["metadata"]["uid"]}
    if own := said.get("metadata", {}).get("annotations", {}).get(IGNORE_FILE_ANNOTATION):
        metadata["annotations"] = {IGNORE_FILE_ANNOTATION: own}
    return KnownBuild({**base, "metadata": metadata, "spec": said.get("spec") or {}}, live.get("spec") or {})


async def _wanted(
    known: KnownBuild,
    asked: BuildRunOptions,
    wish: BuildFlags,
    context: image_builds.Context | None,
    registries: RegistryOptions,
    messages: Messages,
) -> Manifest:
    """The object to apply."""
    base = known.said
    is_new = not base["metadata"].get("uid")
    folder = context.folder if context is not None else None
    if wish.any or asked.rebuild is not None:
        wish = image_builds.with_usual_containerfile(wish, base, folder, messages.note, is_new=is_new)
    document = context.document if context is not None else None
    manifest = image_builds.composed(wish, base, document) if wish.any else dict(base)
    if folder is not None:
        manifest = await _with_folder(manifest, known.live, folder, asked, wish, registries, messages)
    elif document is not None:
        for path in filter(image_builds.has_own_ignore_file, image_builds.containerfiles(wish, manifest)[0]):
            messages.warn(
                f"the ignore file of {path} does not count for --context {wish.context}: the builder reads "
                ".containerignore or .dockerignore in the context"
            )
    if asked.rebuild is not None:
        chosen = image_builds.architectures("--rebuild", asked.rebuild) if asked.rebuild else ()
        manifest = image_builds.with_rebuild(manifest, new_token(), chosen)
    if is_new and wish.any and wish.file is None:
        image_builds.check_composed(manifest)
    metadata = {name: value for name, value in manifest["metadata"].items() if name != "uid"}
    return {**manifest, "metadata": metadata}


async def _with_folder(
    manifest: Manifest,
    live: Mapping[str, Any],
    folder: Path,
    asked: BuildRunOptions,
    wish: BuildFlags,
    registries: RegistryOptions,
    messages: Messages,
) -> Manifest:
    """The object with what ``--context DIR`` says, which is pushed unless nothing is to be written."""
    stored = image_builds.as_stored(manifest, live)
    repository = stored["spec"]["output"].get("repository", "")
    if not repository:
        raise UsageError("--context DIR needs --repository: the files are pushed there")
    had_own = (manifest["metadata"].get("annotations") or {}).get(IGNORE_FILE_ANNOTATION, "")
    named, unnamed = image_builds.containerfiles(wish, stored)
    rules = image_builds.rules_for(folder, named, unnamed, had_own=had_own)
    if asked.dry_run:
        messages.note(f"--dry-run: the context is not pushed, and not in what is printed ({rules})")
        return manifest
    document = await image_builds.pushed(folder, rules, repository, registries, messages.note)
    return image_builds.with_context(manifest, document, image_builds.own_ignore_file(rules))


def new_token() -> str:
    """A token that no one had: the time, and something random for two at the same moment."""
    return f"{datetime.now(UTC):%Y%m%dt%H%M%S}-{secrets.token_hex(3)}"


async def _applied(client: Client, key: ObjectKey, manifest: Manifest, *, changes: bool) -> AwaitedGeneration:
    """Apply it, or find it if nothing is to be changed. Raises CommandError."""
    try:
        if changes:
            stored = await _apply(client, key, manifest)
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
    return AwaitedGeneration(stored.metadata.generation, stored.metadata.uid)


async def _apply(client: Client, key: ObjectKey, manifest: Manifest) -> PartialObjectMetadata:
    """Applies it without force, but over defaults: whoever made the object owns them, and never asked for them."""
    how: Any = {"namespace": key.namespace, "field_manager": MANAGER, "type": PartialObjectMetadata}
    try:
        stored: PartialObjectMetadata = await client.apply(IMAGE_BUILDS, manifest, force=False, **how)
    except Conflict as error:
        live: Manifest = await client.get(IMAGE_BUILDS, key.name, namespace=key.namespace)
        conflicts = conflicts_of(error)
        if not conflicts or not all(image_builds.is_default(live["spec"], each.field) for each in conflicts):
            raise
        metadata = {**manifest["metadata"], "resourceVersion": live["metadata"]["resourceVersion"]}
        stored = await client.apply(IMAGE_BUILDS, {**manifest, "metadata": metadata}, force=True, **how)
    return stored


def _complaints(error: Invalid) -> str:
    """What the API server has against fields, without the request around it."""
    told = [f"{each.field}: {each.message}" for each in error.causes if each.field and each.message]
    return "; ".join(dict.fromkeys(told)) or str(error)


def _again(asked: BuildRunOptions, files: Sequence[Any], namespace: str) -> str:
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


# -- following: objects are watched, and the steps are read from the logs of pods


class Board(Protocol):
    """Shows builds by name."""

    def show(self, name: str, seen: BuildProgress) -> None: ...

    def close(self) -> None: ...


class BuildFollower:
    """One build, and what was seen of it last."""

    def __init__(
        self, client: Client, informers: InformerFactory, key: ObjectKey, goal: AwaitedGeneration, board: Board
    ) -> None:
        self._client = client
        self._key = key
        self._goal = goal
        self._board = board
        self._changed = asyncio.Event()
        self._steps: dict[str, Step] = {}
        self._readers: dict[str, asyncio.Task[None]] = {}
        self._followed = ""
        self.seen = BuildProgress()
        label = f"{names.BUILD_LABEL}={shortened(key.name, MAX_LABEL)}"
        self._builds = informers.informer(
            names.IMAGE_BUILDS, ImageBuild, namespace=key.namespace, field_selector=f"metadata.name={key.name}"
        )
        self._runs = informers.informer(
            names.IMAGE_BUILD_RUNS, ImageBuildRun, namespace=key.namespace, label_selector=label
        )
        self._pods = informers.informer(PODS, BuildPod, namespace=key.namespace, label_selector=label, required=False)
        for informer in (self._builds, self._runs, self._pods):
            informer.add_handler(lambda _: self._changed.set())

    async def until_over(self) -> BuildResult:
        """Show every change until the build is over."""
        await self._builds.synced()
        await self._runs.synced()
        try:
            while True:
                self._changed.clear()
                self._look()
                if self.seen.end is not None:
                    return self.seen.end
                await self._changed.wait()
        finally:
            for task in self._readers.values():
                task.cancel()
            await asyncio.gather(*self._readers.values(), return_exceptions=True)

    def _look(self) -> None:
        build = self._builds.store.get(self._key)
        label = shortened(self._followed, MAX_LABEL)
        pods = [each for each in self._pods.store.values() if each.run == label]
        self.seen = sight(
            build, self._runs.store.values(), self._goal, followed=self._followed, pods=pods, steps=self._steps
        )
        active = build.status.active_run if build is not None else ""
        if active and self.seen.run == active != self._followed:
            self._followed = active
            self._changed.set()  # now its pods are known, too
        for pod in pods:
            if pod.builds and pod.metadata.name not in self._readers:
                self._readers[pod.metadata.name] = asyncio.create_task(self._read(pod.metadata.name))
        self._board.show(self._key.name, self.seen)

    async def _read(self, pod: str) -> None:
        """The steps that the pod's build tells; a log that cannot be read is no news."""
        with contextlib.suppress(KubernetesError):
            async with self._client.follow_log(self._key.namespace, pod, container=BUILD_CONTAINER) as lines:
                async for line in lines:
                    if (step := Step.of(line)) is not None:
                        self._steps[pod] = step
                        self._changed.set()


async def follow(
    client: Client,
    goals: Mapping[ObjectKey, AwaitedGeneration],
    board: Board,
    *,
    timeout: float | None,
    clock: Clock | None = None,
) -> dict[ObjectKey, tuple[BuildProgress, BuildResult]]:
    """Follow all of them at once; after ``timeout`` seconds those that are not over end as unfinished."""
    informers = InformerFactory(client, clock=clock or SystemClock())
    watched = {key: BuildFollower(client, informers, key, goal, board) for key, goal in goals.items()}
    watching = asyncio.create_task(informers.run())
    ends: dict[ObjectKey, BuildResult] = {}

    async def one(key: ObjectKey) -> None:
        ends[key] = await watched[key].until_over()

    try:
        async with asyncio.timeout(timeout):
            async with asyncio.TaskGroup() as tasks:
                for key in watched:
                    tasks.create_task(one(key))
    except TimeoutError:
        late = BuildResult(
            code=UNFINISHED, outcome="Timeout", message=f"not over after {timeout:g} s; it goes on by itself"
        )
        ends |= {key: late for key in watched if key not in ends}
    finally:
        watching.cancel()
        await asyncio.gather(watching, return_exceptions=True)
        board.close()
    return {key: (watched[key].seen, ends[key]) for key in watched}


# -- display: a bar for each architecture on a terminal, a line for each change in a pipe


BAR = 24
STYLES = {"Failed": "red", "Interrupted": "yellow", "Cancelled": "yellow", "WaitingForNode": "yellow"}


class SilentBuildView:
    """Nothing: the answer alone."""

    def show(self, name: str, seen: BuildProgress) -> None: ...

    def close(self) -> None: ...


class LineBuildView:
    """One line for each change."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._told: dict[tuple[str, str], str] = {}

    def show(self, name: str, seen: BuildProgress) -> None:
        if seen.headline and seen.end is None:
            self._tell(name, "", seen.headline)
        for row in seen.rows:
            self._tell(name, row.architecture, row.words)

    def _tell(self, name: str, architecture: str, words: str) -> None:
        if self._told.get((name, architecture)) != words:
            self._told[name, architecture] = words
            who = f"{name} {architecture}" if architecture else name
            print(printable(f"{who}: {words}"), file=self._stream, flush=True)

    def close(self) -> None: ...


class Bars:
    """A table that stays in its place until it is closed."""

    def __init__(self, stream: TextIO, now: Callable[[], datetime] = lambda: datetime.now(UTC)) -> None:
        from rich.console import Console
        from rich.live import Live

        self._now = now
        self._sights: dict[str, BuildProgress] = {}
        console = Console(file=stream, highlight=False)
        self._live: Live = Live(console=console, refresh_per_second=4, get_renderable=self._table)
        self._live.start()

    def show(self, name: str, seen: BuildProgress) -> None:
        self._sights[name] = seen
        self._live.refresh()

    def close(self) -> None:
        self._live.stop()

    def _table(self) -> "Table":
        return table(self._sights, self._now())


def table(sights: dict[str, BuildProgress], now: datetime) -> "Table":
    """What the terminal shows."""
    from rich.table import Table
    from rich.text import Text

    shown = Table(box=None, pad_edge=False, show_header=False)
    for _ in range(3):
        shown.add_column(no_wrap=True)
    shown.add_column(overflow="ellipsis", no_wrap=True)
    for name, seen in sights.items():
        if seen.headline:
            shown.add_row(Text(printable(name), style="bold"), "", "", Text(printable(seen.headline)))
        for row in seen.rows:
            seconds = elapsed(row, now)
            style = STYLES.get(row.phase, "green" if row.phase in GOOD else "")
            shown.add_row(
                Text(f"  {row.architecture}"),
                Text(bar(row), style=style),
                Text("" if seconds is None else spent(seconds), style="dim"),
                Text(printable(row.words), style=style),
            )
    return shown


def bar(row: BuildRow) -> str:
    """How far one architecture is."""
    filled = round(BAR * row.share)
    return "█" * filled + "░" * (BAR - filled)


def spent(seconds: float) -> str:
    """``1:05``, or ``1:02:05``."""
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{rest:02d}" if hours else f"{minutes}:{rest:02d}"


def open_board(stream: TextIO, *, quiet: bool) -> Board:
    """What suits the stream."""
    if quiet:
        return SilentBuildView()
    return Bars(stream) if is_terminal(stream) else LineBuildView(stream)
