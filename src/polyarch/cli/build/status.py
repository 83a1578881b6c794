"""The work of ``polyarch build status``: what is built, what is being built, and what keeps it. Reads only.

MachineOSBuilds are shown beside ImageBuilds where their kind is served: one engine makes both."""

import asyncio
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final, NamedTuple

import msgspec

from polyarch.builds.api.resources import ArchitectureStatus, ImageBuild, ImageBuildRun
from polyarch.builds.names import ARCHITECTURES_ANNOTATION, IMAGE_BUILD_RUNS, IMAGE_BUILDS
from polyarch.cli.build.options import NamespaceFlags
from polyarch.cli.build.progress import words
from polyarch.cli.build.run import usual_namespace
from polyarch.cli.cluster import on_cluster
from polyarch.cli.errors import CouldNotComplete, UsageError
from polyarch.cli.options.common import STDOUT, Output, emit
from polyarch.cli.output.documents import document_text
from polyarch.cli.output.messages import Messages
from polyarch.cli.output.tables import Row, table
from polyarch.cli.output.terminal import is_terminal, printable, styled
from polyarch.kube.client import Client
from polyarch.kube.errors import NotFound
from polyarch.kube.resources import Resource
from polyarch.objects import Condition, Unstructured

SCHEMA: Final = "polyarch.dev/build-status.v1"
MACHINE_OS_BUILDS: Final = Resource(
    "machineconfiguration.openshift.io", "v1", "machineosbuilds", "MachineOSBuild", namespaced=False
)
POOL_LABEL: Final = "machineconfiguration.openshift.io/target-machine-config-pool"
PAUSE: Final = 2.0
CLEAR: Final = "\x1b[H\x1b[2J"
WELL: Final = frozenset({"None", "Done", "Resolved", "Valid", "Published"})
"""Reasons of conditions that need no words."""
GOOD, BAD, BUSY = "green", "red", "yellow"


@dataclass(frozen=True, kw_only=True)
class BuildStatusOptions:
    """The command line of ``status`` without the options that it shares."""

    name: str | None = None
    everywhere: bool = False
    watch: bool = False


class StatusRow(NamedTuple):
    """One line of the table."""

    kind: str
    namespace: str
    name: str
    state: str
    architectures: str
    run: str
    image: str
    created: str
    style: str = ""


class StatusFacts(NamedTuple):
    """What was read: of one build also its Runs."""

    builds: Sequence[ImageBuild]
    runs: Sequence[ImageBuildRun] = ()
    machine: Sequence[Unstructured] = ()


def run_status(
    asked: BuildStatusOptions, where: NamespaceFlags, chosen: Sequence[Output], *, messages: Messages
) -> int:
    """Shows it once, or until somebody has seen enough; returns the exit code."""
    if asked.everywhere and (asked.name or where.namespace):
        raise UsageError("build status: -A is for all builds of all namespaces; remove it, or NAME and -n")
    if asked.watch and [each.format for each in chosen] != ["text"]:
        raise UsageError("build status: --watch shows text; remove --output")
    namespace = "" if asked.everywhere else usual_namespace(where)
    while True:
        began = time.monotonic()
        seen = asyncio.run(on_cluster("build status", where.cluster, lambda client: read(client, asked, namespace)))
        if not asked.name and not seen.builds and not seen.machine:
            messages.note(f"no builds in {f'namespace {namespace}' if namespace else 'any namespace'}")

        def render(form: str, colour: bool, seen: StatusFacts = seen) -> str:
            if form != "text":
                return document_text(document(seen, one=asked.name is not None), form)
            again = CLEAR if asked.watch and is_terminal(sys.stdout) and chosen[0].place == STDOUT else ""
            now = datetime.now(UTC)
            return again + (one_text(seen, now, colour=colour) if asked.name else list_text(seen, now, colour=colour))

        emit(chosen, render)
        if not asked.watch:
            return 0
        try:
            time.sleep(max(PAUSE, 3 * (time.monotonic() - began)))
        except KeyboardInterrupt:
            return 0


async def read(client: Client, asked: BuildStatusOptions, namespace: str) -> StatusFacts:
    """One build with its Runs, or all builds."""
    if not await client.is_served(IMAGE_BUILDS):
        raise CouldNotComplete(
            "build status: this cluster has no ImageBuilds; install them with `polyarch install --component builds`"
        )
    if asked.name is None:
        found = await client.list(IMAGE_BUILDS, namespace=namespace, type=ImageBuild)
        return StatusFacts(found.items, machine=await _machine(client) if not namespace or asked.everywhere else ())
    try:
        build = await client.get(IMAGE_BUILDS, asked.name, namespace=namespace, type=ImageBuild)
    except NotFound:
        raise UsageError(f"build status: there is no ImageBuild {namespace}/{asked.name}") from None
    runs = await client.list(IMAGE_BUILD_RUNS, namespace=namespace, type=ImageBuildRun)
    own = [each for each in runs.items if each.spec.image_build.uid == build.metadata.uid]
    return StatusFacts([build], sorted(own, key=lambda each: each.metadata.creation_timestamp or "", reverse=True))


async def _machine(client: Client) -> Sequence[Unstructured]:
    if not await client.is_served(MACHINE_OS_BUILDS):
        return ()
    return (await client.list(MACHINE_OS_BUILDS, type=Unstructured)).items


def state_of(build: ImageBuild) -> tuple[str, str]:
    """One word for a build, and its colour."""
    conditions = {each.type: each for each in build.status.conditions or ()}
    progressing, ready = _of(conditions, "Progressing"), _of(conditions, "Ready")
    if _of(conditions, "InputsValid").status == "False":
        return _of(conditions, "InputsValid").reason, BAD
    if progressing.status == "True":
        return progressing.reason or "Building", BUSY
    if _of(conditions, "Degraded").status == "True":
        return _of(conditions, "Degraded").reason, BAD
    if ready.status == "True":
        return ready.reason or "Published", GOOD
    return ready.reason or progressing.reason or "Pending", BUSY


def _of(conditions: dict[str, Condition], type: str) -> Condition:
    return conditions.get(type) or Condition(type=type, status="Unknown", reason="")


def list_text(seen: StatusFacts, now: datetime, *, colour: bool) -> str:
    """All builds as a table."""
    lines = [_listed(each) for each in seen.builds] + [_listed_machine(each) for each in seen.machine]
    header = ("NAMESPACE", "NAME", "STATE", "ARCHITECTURES", "RUN", "AGE", "IMAGE")
    rows = [
        Row(
            (each.namespace, each.name, each.state, each.architectures, each.run, _age(each.created, now), each.image),
            each.style,
        )
        for each in sorted(lines)
    ]
    return table(header, rows, colour=colour) if rows else ""


def _listed(build: ImageBuild) -> StatusRow:
    state, style = state_of(build)
    status, metadata = build.status, build.metadata
    summary = status.summary or ",".join(status.architectures or ())
    run = status.active_run or status.current_run
    created = metadata.creation_timestamp or ""
    return StatusRow("ImageBuild", metadata.namespace, metadata.name, state, summary, run, status.image, created, style)


def _listed_machine(build: Unstructured) -> StatusRow:
    conditions = build.status.get("conditions") or ()
    state = next((each["type"] for each in conditions if each.get("status") == "True"), "Pending")
    labels, annotations = build.metadata.labels or {}, build.metadata.annotations or {}
    image = str(build.status.get("digestedImagePushSpec") or "")
    pool = labels.get(POOL_LABEL, "")
    return StatusRow(
        "MachineOSBuild", pool, build.metadata.name, state, annotations.get(ARCHITECTURES_ANNOTATION, ""), "", image,
        build.metadata.creation_timestamp or "",
    )  # fmt: skip


def one_text(seen: StatusFacts, now: datetime, *, colour: bool) -> str:
    """One build: its state, the architectures of the Run that matters, and what would release it."""
    build = seen.builds[0]
    state, style = state_of(build)
    run = run_of(seen)
    lines = [f"{build.metadata.namespace}/{build.metadata.name}: {styled(state, style, colour=colour)}"]
    lines += [f"  {each.type}: {each.reason}: {printable(each.message)}" for each in _telling(build)]
    if build.status.image:
        lines.append(f"  image {build.status.image}")
    if build.status.tags:
        lines.append(f"  tags {', '.join(build.status.tags)}")
    if run is None:
        return "".join(f"{line}\n" for line in lines)
    lines.append(f"  run {run.metadata.name}: {run.status.phase or 'Pending'}")
    rows = [_architecture(each, now) for each in run.status.architectures or ()]
    header = ("ARCHITECTURE", "PHASE", "NODE", "ATTEMPTS", "DURATION", "TOLD")
    printed = f"\n{table(header, rows, colour=colour)}" if rows else ""
    for each in run.status.architectures or ():
        printed += f"profile of {each.architecture}: {printable(each.profile)}\n" if each.profile else ""
    return "".join(f"{line}\n" for line in lines) + printed


def run_of(seen: StatusFacts) -> ImageBuildRun | None:
    """The Run at work, else the newest one."""
    active = seen.builds[0].status.active_run
    return next((each for each in seen.runs if each.metadata.name == active), seen.runs[0] if seen.runs else None)


def _telling(build: ImageBuild) -> list[Condition]:
    """The conditions that say what is the matter; a held build's says what would release it."""
    return [each for each in build.status.conditions or () if each.message and each.reason not in WELL]


def _architecture(each: ArchitectureStatus, now: datetime) -> Row:
    style = GOOD if each.phase in ("Built", "Reused") else BAD if each.phase in ("Failed", "Interrupted") else BUSY
    told = f"{each.digest}" if each.phase == "Built" and each.digest else words(each)
    return Row(
        (each.architecture, each.phase or "Pending", each.node, str(each.attempts), _spent(each, now), told), style
    )


def _spent(each: ArchitectureStatus, now: datetime) -> str:
    if each.start_time is None:
        return ""
    until = datetime.fromisoformat(each.completion_time) if each.completion_time else now
    return _duration((until - datetime.fromisoformat(each.start_time)).total_seconds())


def _age(created: str, now: datetime) -> str:
    return _duration((now - datetime.fromisoformat(created)).total_seconds()) if created else ""


def _duration(seconds: float) -> str:
    """As kubectl prints ages: the two largest units."""
    left = max(0, round(seconds))
    for unit, size in (("d", 86_400), ("h", 3_600), ("m", 60)):
        if left >= size:
            whole, rest = divmod(left, size)
            smaller = {"d": ("h", 3_600), "h": ("m", 60), "m": ("s", 1)}[unit]
            return f"{whole}{unit}{rest // smaller[1]}{smaller[0]}" if rest // smaller[1] else f"{whole}{unit}"
    return f"{left}s"


def document(seen: StatusFacts, *, one: bool) -> dict[str, Any]:
    """The schema ``polyarch.dev/build-status.v1``: statuses as they are stored."""
    builds = [
        {
            "kind": "ImageBuild",
            "namespace": each.metadata.namespace,
            "name": each.metadata.name,
            "state": state_of(each)[0],
            "status": msgspec.to_builtins(each.status),
        }
        for each in seen.builds
    ]
    machine = [
        {
            "kind": "MachineOSBuild",
            "name": each.metadata.name,
            "state": _listed_machine(each).state,
            "status": each.status,
        }
        for each in seen.machine
    ]
    runs = [
        {"name": each.metadata.name, "spec": msgspec.to_builtins(each.spec), "status": msgspec.to_builtins(each.status)}
        for each in seen.runs
    ]
    return {"schemaVersion": SCHEMA, "builds": [*builds, *machine], **({"runs": runs} if one else {})}
