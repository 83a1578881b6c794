"""What somebody who follows a build sees of it, and when it is over: pure, from objects and logs.

A build is over when the builder has looked at the generation that was applied and nothing of it is being made any more.
"""

import re
from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Final

import msgspec

from polyarch.builds import names
from polyarch.builds.api.resources import ArchitectureStatus, ImageBuild, ImageBuildRun
from polyarch.builds.jobs.contract import BUILD_CONTAINER, PUSH_CONTAINER
from polyarch.objects import Condition, ObjectMeta

DONE, FAILED, WRONG, UNFINISHED, DETACHED = 0, 1, 2, 3, 130
"""Exit codes."""
ENDED: Final = frozenset({"Built", "Reused", "Failed", "Cancelled", "Interrupted"})
GOOD: Final = frozenset({"Built", "Reused"})
USER_ERRORS: Final = frozenset(
    {
        "ContainerfileInvalid",
        "ContainerfileMissing",
        "BaseImageArchitectureMissing",
        "BuilderImageArchitectureMissing",
        "IndexForbidden",
        "ProfileForbidden",
        "NameTooLong",
        "InvalidSpec",
    }
)
"""What the author of the build has to mend in it."""
PASSING: Final = frozenset({"RegistryUnreachable"})
"""What the builder tries again by itself."""
_STEP: Final = re.compile(r"STEP (?P<number>[0-9]+)/(?P<total>[0-9]+): (?P<text>.*)")


class _Running(msgspec.Struct, frozen=True, gc=False):
    pass


class _Terminated(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    exit_code: int = 0
    message: str = ""


class _State(msgspec.Struct, frozen=True, gc=False):
    running: _Running | None = None
    terminated: _Terminated | None = None


class _ContainerStatus(msgspec.Struct, frozen=True, gc=False):
    name: str = ""
    state: _State = _State()


class _PodStatus(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    phase: str = ""
    init_container_statuses: list[_ContainerStatus] | None = None
    container_statuses: list[_ContainerStatus] | None = None


class BuildPod(msgspec.Struct, frozen=True, gc=False):
    """A pod of a build, as far as following it needs."""

    metadata: ObjectMeta = ObjectMeta()
    status: _PodStatus = _PodStatus()

    @property
    def architecture(self) -> str:
        return (self.metadata.labels or {}).get(names.ARCHITECTURE_LABEL, "")

    @property
    def run(self) -> str:
        """The label, which is short where the name is long."""
        return (self.metadata.labels or {}).get(names.RUN_LABEL, "")

    def has_started(self, container: str) -> bool:
        """Whether the container has something to say."""
        return any(
            each.name == container and (each.state.running or each.state.terminated)
            for each in (*(self.status.init_container_statuses or ()), *(self.status.container_statuses or ()))
        )

    @property
    def pushes(self) -> bool:
        """Its build is done; it is being pushed, or was."""
        return self.has_started(PUSH_CONTAINER)

    @property
    def builds(self) -> bool:
        """Its build has something to say."""
        return self.has_started(BUILD_CONTAINER)


class Step(msgspec.Struct, frozen=True):
    """``STEP 2/4: RUN make`` of a log."""

    number: int
    total: int
    text: str

    @classmethod
    def of(cls, line: str) -> "Step | None":
        match = _STEP.match(line)
        return cls(int(match["number"]), int(match["total"]), match["text"]) if match is not None else None


class BuildRow(msgspec.Struct, frozen=True, kw_only=True):
    """One architecture."""

    architecture: str
    phase: str = "Pending"
    words: str = ""
    step: Step | None = None
    pushes: bool = False
    node: str = ""
    attempts: int = 0
    started: str | None = None
    ended: str | None = None

    @property
    def share(self) -> float:
        """How far it is, from 0 to 1: the steps, and a little for the push."""
        if self.phase in ENDED:
            return 1.0
        if self.pushes:
            return 0.95
        return 0.9 * (self.step.number - 1) / self.step.total if self.step is not None else 0.0


class BuildResult(msgspec.Struct, frozen=True, kw_only=True):
    """How it ended: the exit code, and a sentence."""

    code: int
    outcome: str
    message: str
    image: str = ""
    run: str = ""


class AwaitedGeneration(msgspec.Struct, frozen=True):
    """What is waited for: the generation that was applied, of this object."""

    generation: int
    uid: str = ""


class BuildProgress(msgspec.Struct, frozen=True, kw_only=True):
    """A build at one moment."""

    headline: str = ""
    run: str = ""
    rows: tuple[BuildRow, ...] = ()
    end: BuildResult | None = None
    notes: tuple[str, ...] = ()
    """What somebody should know of it, however it ends."""


def sight(
    build: ImageBuild | None,
    runs: Iterable[ImageBuildRun],
    goal: AwaitedGeneration,
    *,
    followed: str = "",
    pods: Iterable[BuildPod] = (),
    steps: Mapping[str, Step] = {},
) -> BuildProgress:
    """``followed`` is the Run that was seen at work before; ``steps`` are the last ones of logs, by pod."""
    if build is None or (goal.uid and build.metadata.uid != goal.uid):
        return BuildProgress(end=BuildResult(code=UNFINISHED, outcome="Deleted", message="the ImageBuild was deleted"))
    status = build.status
    known = {each.metadata.name: each for each in runs}
    seen = status.observed_generation >= goal.generation
    name = (status.active_run if seen else "") or followed or (status.current_run if seen else "")
    run = known.get(name)
    rows = _rows(run, list(pods), steps)
    if not seen:
        return BuildProgress(headline="waiting for the builder to look at it", run=name, rows=rows)
    end = _end(build, run, goal, followed)
    return BuildProgress(headline=_headline(build, run), run=name, rows=rows, end=end, notes=_notes(build))


def _notes(build: ImageBuild) -> tuple[str, ...]:
    """Nobody else tells who misspelt an architecture that nothing is built from the override for it."""
    wanted = build.status.architectures or ()
    unused = [each.architecture for each in build.spec.source.overrides or () if each.architecture not in wanted]
    if not wanted or not unused:
        return ()
    which = ", ".join(unused)
    return (f"the override for {which} is not used: no image for {which} is built, unless --arch names it",)


def _end(build: ImageBuild, run: ImageBuildRun | None, goal: AwaitedGeneration, followed: str) -> BuildResult | None:
    status = build.status
    conditions = {each.type: each for each in status.conditions or ()}
    if (
        run is not None
        and run.status.phase == "Superseded"
        and followed
        and build.metadata.generation > goal.generation
    ):
        message = f"somebody changed the ImageBuild while {followed} ran; the same command follows what replaced it"
        return BuildResult(code=FAILED, outcome="Superseded", message=message, run=followed)
    if status.active_run:
        return None
    progressing, inputs = _of(conditions, "Progressing"), _of(conditions, "InputsValid")
    degraded, ready = _of(conditions, "Degraded"), _of(conditions, "Ready")
    if inputs.status == "False":
        code = WRONG if inputs.reason in USER_ERRORS else UNFINISHED if inputs.reason in PASSING else FAILED
        return BuildResult(code=code, outcome=inputs.reason, message=inputs.message)
    if progressing.reason == "Suspended":
        return BuildResult(code=UNFINISHED, outcome="Suspended", message=progressing.message or "spec.suspend is true")
    if progressing.status == "True":
        return None
    if ready.status == "True" and ready.reason in ("Published", "PartialIndex"):
        words = degraded.message if degraded.status == "True" else ready.message
        return BuildResult(code=DONE, outcome=ready.reason, message=words, image=status.image, run=status.current_run)
    if degraded.status == "True":
        failure = status.last_failure
        return BuildResult(
            code=FAILED,
            outcome=degraded.reason,
            message=degraded.message or (failure.message if failure is not None else ""),
            image=status.image,
            run=failure.run if failure is not None else followed,
        )
    return None


def _of(conditions: Mapping[str, Condition], type: str) -> Condition:
    return conditions.get(type) or Condition(type=type, status="Unknown", reason="")


def _headline(build: ImageBuild, run: ImageBuildRun | None) -> str:
    """What is being made, or what keeps it from being made."""
    if run is not None and build.status.active_run == run.metadata.name:
        reused = {each.architecture for each in run.status.architectures or () if each.phase == "Reused"}
        parts = (f"{each.architecture} {'reused' if each.architecture in reused else 'build'}" for each in _keys(run))
        return ", ".join(parts)
    conditions = {each.type: each for each in build.status.conditions or ()}
    for name in ("ArchitecturesResolved", "InputsValid", "Progressing"):
        condition = conditions.get(name)
        if condition is not None and condition.status != "True" and condition.reason not in ("Done", "None"):
            return f"{condition.reason}: {condition.message}" if condition.message else condition.reason
    return build.status.summary


def _keys(run: ImageBuildRun) -> Iterable[ArchitectureStatus]:
    """Every architecture of the Run, those without a status as pending."""
    known = {each.architecture: each for each in run.status.architectures or ()}
    wanted = [each.architecture for each in run.spec.architectures or ()] or list(known)
    return [known.get(each) or ArchitectureStatus(architecture=each, phase="Pending") for each in wanted]


def _rows(run: ImageBuildRun | None, pods: list[BuildPod], steps: Mapping[str, Step]) -> tuple[BuildRow, ...]:
    if run is None:
        return ()
    # The newest pod of an architecture is the attempt that counts.
    latest = {each.architecture: each for each in sorted(pods, key=lambda pod: pod.metadata.creation_timestamp or "")}
    return tuple(_row(each, latest.get(each.architecture), steps) for each in _keys(run))


def _row(each: ArchitectureStatus, pod: BuildPod | None, steps: Mapping[str, Step]) -> BuildRow:
    busy = each.phase in ("Building", "WaitingForNode", "Pending", "")
    step = steps.get(pod.metadata.name) if pod is not None and busy else None
    pushes = pod is not None and busy and pod.pushes
    return BuildRow(
        architecture=each.architecture,
        phase=each.phase or "Pending",
        words=words(each, step=step, pushes=pushes),
        step=step,
        pushes=pushes,
        node=each.node,
        attempts=each.attempts,
        started=each.start_time,
        ended=each.completion_time,
    )


def words(each: ArchitectureStatus, *, step: Step | None = None, pushes: bool = False) -> str:
    """A phase for people."""
    where = f" on {each.node}" if each.node else ""
    again = f", attempt {each.attempts}" if each.attempts > 1 and each.phase == "Building" else ""
    match each.phase:
        case "Reused":
            return f"reused from {each.reused_from}" if each.reused_from else "reused"
        case "WaitingForNode":
            return f"waiting for a node{f': {each.message}' if each.message else ''}"
        case "Building" if pushes:
            return f"pushing{where}{again}"
        case "Building" if step is not None:
            return f"STEP {step.number}/{step.total}: {step.text}{where}{again}"
        case "Building":
            return f"building{where}{again}{f': {each.message}' if each.message else ''}"
        case "Built":
            return f"built{where}"
        case "Failed" | "Interrupted" | "Cancelled":
            told = ": ".join(part for part in (each.reason, each.message) if part)
            return f"{each.phase.lower()}{f': {told}' if told else ''}"
        case _:
            return f"pending{f': {each.reason}' if each.reason else ''}"


def elapsed(row: BuildRow, now: datetime) -> float | None:
    """Seconds since it began, or that it took."""
    if row.started is None:
        return None
    until = datetime.fromisoformat(row.ended) if row.ended else now
    return max(0.0, (until - datetime.fromisoformat(row.started)).total_seconds())
