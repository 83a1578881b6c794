"""The work of ``polyarch build logs``: what the pods of a Run say, all architectures together.

Pods that are gone are said to be gone, with the last lines that the Run's status kept. With ``--follow`` later attempts
are read, too, until the Run is over."""

import asyncio
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal, NamedTuple

from polyarch.builds import names
from polyarch.builds.api.resources import ArchitectureStatus, ImageBuild, ImageBuildRun
from polyarch.builds.jobs.contract import BUILD_CONTAINER, PUSH_CONTAINER
from polyarch.builds.names import MAX_LABEL, shortened
from polyarch.cli.build import image_builds
from polyarch.cli.build.options import NamespaceFlags
from polyarch.cli.build.progress import BuildPod
from polyarch.cli.build.run import usual_namespace
from polyarch.cli.cluster import on_cluster
from polyarch.cli.errors import UsageError
from polyarch.cli.options.common import Output, emit
from polyarch.cli.output.documents import document_text
from polyarch.cli.output.messages import Messages
from polyarch.cli.output.terminal import printable, styled, takes_colour
from polyarch.clock import SystemClock
from polyarch.kube.client import Client
from polyarch.kube.errors import KubernetesError, NotFound
from polyarch.kube.informer import InformerFactory
from polyarch.kube.resources import PODS
from polyarch.objects import ObjectKey

SCHEMA: Final = "polyarch.dev/build-logs.v1"
COLOURS: Final = ("cyan", "green", "yellow", "bold", "dim", "red")
OVER: Final = frozenset({"Succeeded", "Failed", "Interrupted", "Superseded"})
CONTAINERS: Final = (BUILD_CONTAINER, PUSH_CONTAINER)


@dataclass(frozen=True, kw_only=True)
class BuildLogsOptions:
    """The command line of ``logs`` without the options that it shares."""

    name: str
    run: str | None = None
    arch: str | None = None
    follow: bool = False
    container: Literal["build", "push"] | None = None
    previous: bool = False

    @property
    def architectures(self) -> tuple[str, ...]:
        return image_builds.architectures("--arch", self.arch) if self.arch is not None else ()

    @property
    def containers(self) -> tuple[str, ...]:
        return (self.container,) if self.container is not None else CONTAINERS


class Line(NamedTuple):
    """One line of a container; without pod and container it is what a status says."""

    architecture: str
    pod: str
    container: str
    text: str


class Printer:
    """Prints lines with the architecture before them, in a colour of its own."""

    def __init__(self, write: Callable[[str], object], *, colour: bool) -> None:
        self._write = write
        self._colour = colour
        self._known: list[str] = []
        self._width = 0

    def expect(self, architectures: Sequence[str]) -> None:
        """So that all prefixes are of one width."""
        self._width = max([self._width, *map(len, architectures)])
        self._known += [each for each in sorted(architectures) if each not in self._known]

    def line(self, architecture: str, text: str) -> None:
        if architecture not in self._known:
            self.expect([architecture])
        style = COLOURS[self._known.index(architecture) % len(COLOURS)]
        prefix = styled(f"{architecture:<{self._width}} |", style, colour=self._colour)
        self._write(f"{prefix} {printable(text)}\n")


def run_logs(asked: BuildLogsOptions, where: NamespaceFlags, outputs: Sequence[Output], *, messages: Messages) -> int:
    """Returns the exit code."""
    if asked.previous and asked.follow:
        raise UsageError("build logs: --previous shows pods that have ended; remove --follow")
    if asked.follow and outputs != [Output("text")]:
        raise UsageError("build logs: --follow prints lines as they come; remove --output")
    namespace = usual_namespace(where)

    async def work(client: Client) -> int:
        run = await _run(client, asked, namespace)
        expected = [each.architecture for each in run.status.architectures or ()]
        _require_built(asked, run.metadata.name, expected)
        if asked.follow:
            printer = Printer(_print, colour=takes_colour())
            printer.expect(expected)
            await LogFollower(client, asked, run, printer).until_over()
            return 0
        lines = await _once(client, asked, run, messages)

        def render(form: str, colour: bool) -> str:
            if form != "text":
                return document_text(_document(run, lines), form)
            texts: list[str] = []
            printer = Printer(texts.append, colour=colour)
            printer.expect(expected)
            for line in lines:
                printer.line(line.architecture, line.text)
            return "".join(texts)

        emit(outputs, render)
        return 0

    try:
        return asyncio.run(on_cluster("build logs", where.cluster, work))
    except KeyboardInterrupt:
        return 130


def _print(text: str) -> None:
    sys.stdout.write(text)
    sys.stdout.flush()


async def _run(client: Client, asked: BuildLogsOptions, namespace: str) -> ImageBuildRun:
    """The Run that is named, else the one at work, else the newest one."""
    try:
        build = await client.get(names.IMAGE_BUILDS, asked.name, namespace=namespace, type=ImageBuild)
    except NotFound:
        raise UsageError(f"build logs: there is no ImageBuild {namespace}/{asked.name}") from None
    found = await client.list(names.IMAGE_BUILD_RUNS, namespace=namespace, type=ImageBuildRun)
    own = [each for each in found.items if each.spec.image_build.uid == build.metadata.uid]
    newest = sorted(own, key=lambda each: (each.metadata.creation_timestamp or "", each.spec.serial))
    if asked.run is not None:
        named = [each for each in own if each.metadata.name == asked.run]
        if not named:
            there = ", ".join(each.metadata.name for each in newest) or "none"
            raise UsageError(f"build logs: {asked.name} has no run {asked.run}; it has {there}")
        return named[0]
    active = [each for each in own if each.metadata.name == build.status.active_run]
    if not active and not newest:
        raise UsageError(f"build logs: {asked.name} has not been built yet; see `polyarch build status {asked.name}`")
    return active[0] if active else newest[-1]


def _require_built(asked: BuildLogsOptions, run: str, expected: Sequence[str]) -> None:
    """The architectures that are asked for are among those of the Run, once these are known."""
    lacking = [each for each in asked.architectures if each not in expected]
    if expected and lacking:
        raise UsageError(f"build logs: --arch {lacking[0]}: {run} has {', '.join(expected)} only")


def chosen(pods: Sequence[BuildPod], asked: BuildLogsOptions) -> list[BuildPod]:
    """The pods to read, oldest first: of each architecture the newest one, or with ``--previous`` those before."""
    wanted = [each for each in pods if not asked.architectures or each.architecture in asked.architectures]
    by_age = sorted(wanted, key=lambda each: (each.metadata.creation_timestamp or "", each.metadata.name))
    newest = {each.architecture: each.metadata.name for each in by_age}
    return [each for each in by_age if (newest[each.architecture] == each.metadata.name) != asked.previous]


async def _once(client: Client, asked: BuildLogsOptions, run: ImageBuildRun, messages: Messages) -> list[Line]:
    found: list[Line] = []
    pods = await client.list(PODS, namespace=run.metadata.namespace, label_selector=_selector(run), type=BuildPod)
    reading = chosen(pods.items, asked)
    for pod in reading:
        for container in asked.containers:
            if not pod.has_started(container):
                continue
            text = await client.log(pod.metadata.namespace, pod.metadata.name, container=container)
            found += [Line(pod.architecture, pod.metadata.name, container, line) for line in text.splitlines()]
    if asked.previous:
        if not reading:
            messages.note(f"{run.metadata.name}: no architecture was tried more than once, or those pods are gone")
        return found
    read = {each.architecture for each in reading}
    for each in run.status.architectures or ():
        if each.architecture not in read and (not asked.architectures or each.architecture in asked.architectures):
            found += [Line(each.architecture, "", "", line) for line in gone(each)]
    return found


def _document(run: ImageBuildRun, lines: Sequence[Line]) -> dict[str, Any]:
    """The schema ``polyarch.dev/build-logs.v1``."""
    return {"schemaVersion": SCHEMA, "run": run.metadata.name, "lines": [each._asdict() for each in lines]}


def gone(status: ArchitectureStatus) -> list[str]:
    """What is known of an architecture without a pod."""
    match status.phase:
        case "Reused":
            return [f"reused from {status.reused_from}: nothing was built"]
        case "Pending" | "WaitingForNode" | "":
            return ["no pod yet" + (f": {status.message}" if status.message else "")]
        case "Built":
            return ["it is built; its pod is gone, with what it printed (`--follow` shows a build while it runs)"]
        case _:
            return ["its pod is gone", *status.message.splitlines()]


def _selector(run: ImageBuildRun) -> str:
    return f"{names.RUN_LABEL}={shortened(run.metadata.name, MAX_LABEL)}"


class LogFollower:
    """Reads the pods of one Run as they come."""

    def __init__(self, client: Client, asked: BuildLogsOptions, run: ImageBuildRun, printer: Printer) -> None:
        self._client = client
        self._asked = asked
        self._key = ObjectKey(run.metadata.namespace, run.metadata.name)
        self._printer = printer
        self._changed = asyncio.Event()
        self._informers = InformerFactory(client, clock=SystemClock())
        self._runs = self._informers.informer(
            names.IMAGE_BUILD_RUNS,
            ImageBuildRun,
            namespace=self._key.namespace,
            field_selector=f"metadata.name={self._key.name}",
        )
        self._pods = self._informers.informer(
            PODS, BuildPod, namespace=self._key.namespace, label_selector=_selector(run)
        )
        for informer in (self._runs, self._pods):
            informer.add_handler(lambda _: self._changed.set())

    async def until_over(self) -> None:
        """Until the Run has ended and everything was read."""
        watching = asyncio.create_task(self._informers.run())
        readers: dict[tuple[str, str], asyncio.Task[None]] = {}
        try:
            await self._runs.synced()
            await self._pods.synced()
            while True:
                self._changed.clear()
                for pod in list(self._pods.store.values()):
                    for container in self._asked.containers:
                        place = (pod.metadata.name, container)
                        if place not in readers and pod.has_started(container) and self._wants(pod):
                            readers[place] = asyncio.create_task(self._read(pod, container))
                run = self._runs.store.get(self._key)
                if run is None or run.status.phase in OVER:
                    break
                await self._changed.wait()
            await asyncio.gather(*readers.values())
        finally:
            for task in (watching, *readers.values()):
                task.cancel()
            await asyncio.gather(watching, *readers.values(), return_exceptions=True)

    def _wants(self, pod: BuildPod) -> bool:
        return not self._asked.architectures or pod.architecture in self._asked.architectures

    async def _read(self, pod: BuildPod, container: str) -> None:
        try:
            async with self._client.follow_log(pod.metadata.namespace, pod.metadata.name, container=container) as lines:
                async for line in lines:
                    self._printer.line(pod.architecture, line)
        except KubernetesError as error:
            self._printer.line(pod.architecture, f"({pod.metadata.name}: {error})")
