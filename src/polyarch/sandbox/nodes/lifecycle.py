"""The state machine of a pod's containers on a node: a pure function of pod, states, pull results and time.

A step returns the containers' new states and the delay until the next step. Delays are those of a kubelet: the first
restart at once, then after 10 s, doubling up to five minutes, and from the start again for a container that has run for
ten minutes.

Most containers are only simulated. Of a container that is run the step is told what has become of its process.
"""

import datetime as dt
import enum
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Literal

import msgspec

from polyarch.oci.inspection import Inspection, Status
from polyarch.platforms import Platform
from polyarch.sandbox.nodes.pods import Container, ContainerStatus, Pod
from polyarch.sandbox.pods import outcome
from polyarch.sandbox.pods.outcome import CannotStart, Exit, ProcessState, Started

EXEC_FORMAT_ERROR_CODE = 1
ENTRY_POINT = "/bin/app"


class Runs(msgspec.Struct, frozen=True):
    """The container starts and keeps running."""


class WrongFormat(msgspec.Struct, frozen=True):
    """The image is pulled, but the kernel refuses to execute its program."""

    message: str = f"exec {ENTRY_POINT}: exec format error"


class CannotPull(msgspec.Struct, frozen=True):
    """The image cannot be pulled; ``reason`` is the container's waiting reason."""

    message: str
    reason: Literal["ErrImagePull", "ErrImageNeverPull", "InvalidImageName"] = "ErrImagePull"


Verdict = Runs | WrongFormat | CannotPull


def verdict(image: str, answer: Inspection, architecture: str) -> Verdict:
    """What happens to a container with this image on a linux node of this architecture.

    Messages are those of containerd and the kernel, so that a search for the error finds the usual explanations.
    """
    if answer.error is not None:
        return CannotPull(_failure(image, answer))
    if answer.kind == "artifact":
        return CannotPull(
            f'failed to pull and unpack image "{image}": unsupported config type: it is an artifact, not an image'
        )
    if answer.status is not Status.RESOLVED:
        # A bundle, or an image without a platform: a real node would try to run it.
        return Runs()
    if any(runs_on(platform, architecture) for platform in answer.platforms):
        return Runs()
    if answer.kind == "index":
        return CannotPull(
            f'failed to pull and unpack image "{image}": failed to resolve reference: '
            "no match for platform in manifest: not found"
        )
    return WrongFormat()


def runs_on(platform: Platform, architecture: str) -> bool:
    return platform.os == "linux" and platform.architecture == architecture


_FAILURES: Mapping[str, str] = {
    "not-found": "not found",
    "unauthorized": (
        "pull access denied, repository does not exist or may require authorization: "
        "server message: insufficient_scope: authorization failed"
    ),
    "denied": "unexpected status from HEAD request: 403 Forbidden",
    "rate-limited": "unexpected status: 429 Too Many Requests",
}


def _failure(image: str, answer: Inspection) -> str:
    error = answer.error
    assert error is not None  # noqa: S101  checked by the caller
    text = _FAILURES.get(error.code, error.message)
    return f'failed to pull and unpack image "{image}": failed to resolve reference "{image}": {image}: {text}'


# -- the state machine -------------------------------------------------------------------------------------------------


RUN_SECONDS = 1.0
"""How long a container runs that is meant to complete: one of a Job, or an init container."""
NOTICE_SECONDS = 1.0
"""How long a failure shows its own reason before that of the back-off."""
BACKOFF_SECONDS = 10.0
MAXIMUM_BACKOFF_SECONDS = 300.0
STABLE_SECONDS = 600.0
"""A container that has run for so long is restarted without the delays of earlier failures."""
START_ERROR_CODE = 128
"""What a container runtime reports of a program that it cannot execute."""
MAXIMUM_START_SECONDS = 8.0
"""The longest delay until a container is tried again whose volumes or variables are not there."""


class ContainerReason(enum.Enum):
    """What a container does. The values are the reasons that a kubelet reports, empty where it reports none."""

    CREATING = "ContainerCreating"
    INITIALIZING = "PodInitializing"
    CONFIG_ERROR = "CreateContainerConfigError"
    RUN_ERROR = "RunContainerError"
    PULL_FAILED = "ErrImagePull"
    PULL_BACKOFF = "ImagePullBackOff"
    NEVER_PULL = "ErrImageNeverPull"
    INVALID_NAME = "InvalidImageName"
    RUNNING = ""
    CRASH_BACKOFF = "CrashLoopBackOff"
    COMPLETED = "Completed"
    FAILED = "Error"

    @property
    def unstarted(self) -> bool:
        """The container has not started in this attempt."""
        return self in _UNSTARTED

    @property
    def ended(self) -> bool:
        return self in {ContainerReason.COMPLETED, ContainerReason.FAILED}


_UNPULLED = (ContainerReason.PULL_BACKOFF, ContainerReason.NEVER_PULL, ContainerReason.INVALID_NAME)
_UNREADY = (ContainerReason.CONFIG_ERROR, ContainerReason.RUN_ERROR)
_UNSTARTED = (
    ContainerReason.CREATING,
    ContainerReason.INITIALIZING,
    ContainerReason.PULL_FAILED,
    *_UNPULLED,
    *_UNREADY,
)


class ContainerTermination(msgspec.Struct, frozen=True):
    """The last end of a container that is run: ``terminated`` of its status."""

    started_at: dt.datetime
    exit: Exit
    restarts: int
    """Of that start."""


class SimulatedContainer(msgspec.Struct, frozen=True):
    """The state of one container."""

    activity: ContainerReason = ContainerReason.CREATING
    since: dt.datetime | None = None
    message: str = ""
    restarts: int = 0
    pulls: int = 0
    """Consecutive failed pulls, or failed attempts to start."""
    exit_code: int = 0
    crashed_at: dt.datetime | None = None
    """When it last failed; None if it will not be restarted, or runs."""
    streak: int | None = None
    """The restarts since it last ran for long; None: all."""
    is_process: bool = False
    """It is run, not simulated; the rest is only said of such ones."""
    started: bool = True
    ready: bool = True
    last: ContainerTermination | None = None

    @property
    def failures(self) -> int:
        return self.restarts if self.streak is None else self.streak


class Pulled(msgspec.Struct, frozen=True):
    """The result of pulling an image, and its id on the node."""

    verdict: Verdict
    image_id: str = ""


class Step(msgspec.Struct, frozen=True):
    """The containers after a step, and the seconds until the next one (None: nothing changes by itself)."""

    runs: dict[str, SimulatedContainer]
    wait: float | None


def backoff(failures: int) -> float:
    """Seconds before attempt number ``failures`` + 1."""
    return float(min(BACKOFF_SECONDS * 2 ** (failures - 1), MAXIMUM_BACKOFF_SECONDS))


def recover(pod: Pod, now: dt.datetime) -> dict[str, SimulatedContainer]:
    """The containers' states as last reported, from which a restarted node process continues."""
    statuses = [*(pod.status.init_container_statuses or ()), *(pod.status.container_statuses or ())]
    return {status.name: run for status in statuses if (run := _recover_one(status, now)) is not None}


def recover_processes(
    pod: Pod, runs: Mapping[str, SimulatedContainer], names: Iterable[str], now: dt.datetime
) -> dict[str, SimulatedContainer]:
    """The same for the containers that are run: nothing is assumed of what happened meanwhile, and as in a kubelet the
    delays of earlier failures are forgotten."""
    containers = {each.name: each for each in [*pod.init_containers, *pod.containers]}
    statuses = [*(pod.status.init_container_statuses or ()), *(pod.status.container_statuses or ())]
    after = dict(runs)
    for status in statuses:
        run = runs.get(status.name)
        if run is None or status.name not in names or status.name not in containers:
            continue
        since, state = now, status.state
        if state.running is not None and state.running.started_at:
            since = dt.datetime.fromisoformat(state.running.started_at)
        again = run.activity.ended and _restarts_after(pod, containers[status.name], run.exit_code)
        last = status.last_state.terminated if state.terminated is None else state.terminated
        ended = None
        if last is not None and last.started_at and last.finished_at:
            how = Exit(last.exit_code, dt.datetime.fromisoformat(last.finished_at), last.message, last.reason)
            earlier = 0 if state.terminated is not None or run.activity is ContainerReason.CRASH_BACKOFF else 1
            ended = ContainerTermination(
                dt.datetime.fromisoformat(last.started_at), how, status.restart_count - earlier
            )
        after[status.name] = msgspec.structs.replace(
            run,
            since=since,
            is_process=True,
            started=False,
            ready=False,
            crashed_at=now if again else run.crashed_at,
            streak=0,
            last=ended,
        )
    return after


def _recover_one(status: ContainerStatus, now: dt.datetime) -> SimulatedContainer | None:
    if status.state.running is not None:
        return SimulatedContainer(ContainerReason.RUNNING, now, restarts=status.restart_count)
    if (ended := status.state.terminated) is not None:
        activity = ContainerReason.FAILED if ended.exit_code else ContainerReason.COMPLETED
        return SimulatedContainer(activity, now, ended.message, status.restart_count, exit_code=ended.exit_code)
    if status.state.waiting is not None and status.state.waiting.reason == ContainerReason.CRASH_BACKOFF.value:
        message = status.state.waiting.message
        return SimulatedContainer(
            ContainerReason.CRASH_BACKOFF, now, message, status.restart_count, exit_code=1, crashed_at=now
        )
    return None


def due_images(pod: Pod, runs: Mapping[str, SimulatedContainer], now: dt.datetime) -> list[str]:
    """The images to pull in this step: those of the containers that start or restart now."""
    return list(dict.fromkeys(container.image for container in due(pod, runs, now)))


def due(pod: Pod, runs: Mapping[str, SimulatedContainer], now: dt.datetime) -> Iterator[Container]:
    """The containers that start or restart now."""
    for container in _allowed(pod, runs):
        if _tries_now(runs.get(container.name, SimulatedContainer()), now):
            yield container


def _allowed(pod: Pod, runs: Mapping[str, SimulatedContainer]) -> list[Container]:
    """The containers that may run now: init containers one after the other, then all others together."""
    if pod.init_containers and phase(pod, runs) in {"Succeeded", "Failed"}:
        return []  # sidecars end with the others
    sidecars: list[Container] = []
    for container in pod.init_containers:
        if not _lets_go_on(container, runs.get(container.name)):
            return [*sidecars, container]
        if container.restart_policy == "Always":
            sidecars.append(container)
    return [*sidecars, *pod.containers]


def _tries_now(run: SimulatedContainer, now: dt.datetime) -> bool:
    """Whether the container is started, or its image pulled, in this step."""
    if run.activity in {ContainerReason.CREATING, ContainerReason.INITIALIZING}:
        return True
    return run.activity is not ContainerReason.PULL_FAILED and _delay_left(run, now) == 0.0


def _delay_left(run: SimulatedContainer, now: dt.datetime) -> float | None:
    """Seconds until a failed container is tried again, or a failed pull becomes a back-off; None if it did not fail."""
    match run.activity:
        case ContainerReason.PULL_BACKOFF | ContainerReason.NEVER_PULL | ContainerReason.INVALID_NAME:
            delay = backoff(max(run.pulls, 1))
        case ContainerReason.CRASH_BACKOFF:
            delay = backoff(run.failures)
        case ContainerReason.PULL_FAILED:
            delay = NOTICE_SECONDS
        case ContainerReason.FAILED | ContainerReason.COMPLETED if run.crashed_at is not None:
            delay = NOTICE_SECONDS
        case ContainerReason.CONFIG_ERROR | ContainerReason.RUN_ERROR:
            delay = _until_next_start(run)
        case ContainerReason.CREATING if run.pulls:
            delay = _until_next_start(run)
        case _:
            return None
    return _left(delay, run, now)


def _until_next_start(run: SimulatedContainer) -> float:
    return float(min(2 ** (run.pulls - 1), MAXIMUM_START_SECONDS))


def _left(seconds: float, run: SimulatedContainer, now: dt.datetime) -> float:
    """Seconds left of ``seconds`` since the run's activity began, at least 0."""
    return max(0.0, seconds - (now - (run.since or now)).total_seconds())


def step(
    pod: Pod,
    runs: Mapping[str, SimulatedContainer],
    pulled: Mapping[str, Pulled],
    now: dt.datetime,
    *,
    starts: Mapping[str, Started | CannotStart] = {},
    observed: Mapping[str, ProcessState] = {},
) -> Step:
    """The step at the time ``now``. ``pulled`` holds a result for each of ``due_images``.

    Of containers that are run, ``starts`` holds what has become of each that is due, and ``observed`` their processes.
    """
    allowed = _allowed(pod, runs)
    turn = {container.name for container in allowed}
    waits_for_init = turn.isdisjoint(container.name for container in pod.containers)
    after: dict[str, SimulatedContainer] = {}
    for container in [*pod.init_containers, *pod.containers]:
        run = runs.get(container.name, SimulatedContainer())
        if container.name not in turn:
            waiting = run.activity in {ContainerReason.CREATING, ContainerReason.INITIALIZING}
            if run.is_process:
                run = _watch(pod, container, run, observed.get(container.name), now)
            after[container.name] = (
                SimulatedContainer(ContainerReason.INITIALIZING) if waiting and waits_for_init else run
            )
        elif container.name in starts:
            restarts = _restarts_after(pod, container, START_ERROR_CODE)
            seen = observed.get(container.name)
            after[container.name] = _start(run, starts[container.name], seen, now, restarts=restarts)
        elif _tries_now(run, now):
            after[container.name] = _try(run, pulled[container.image].verdict, _restarts(pod, container), now)
        elif run.is_process:
            after[container.name] = _watch(pod, container, run, observed.get(container.name), now)
        else:
            after[container.name] = _let_time_pass(run, _comes_to_an_end(pod, container), now)
    if phase(pod, after) in {"Succeeded", "Failed"}:
        after |= {each.name: _stopped(after[each.name], now) for each in pod.init_containers}
    waits = [wait for container in allowed if (wait := _wait(pod, container, after[container.name], now)) is not None]
    if [container.name for container in _allowed(pod, after)] != [container.name for container in allowed]:
        waits.append(0.0)  # this step let another container start
    return Step(after, min(waits, default=None))


def _stopped(run: SimulatedContainer, now: dt.datetime) -> SimulatedContainer:
    """An init container of a pod that is over: a sidecar that is simulated ends with the pod."""
    if run.is_process or run.activity is not ContainerReason.RUNNING:
        return run
    return SimulatedContainer(ContainerReason.COMPLETED, now, restarts=run.restarts)


def _try(run: SimulatedContainer, verdict: Verdict, restarts: bool, now: dt.datetime) -> SimulatedContainer:
    again = run.crashed_at is not None
    match verdict:
        case CannotPull(message, reason):
            return msgspec.structs.replace(
                run, activity=ContainerReason(reason), since=now, message=message, pulls=run.pulls + 1
            )
        case Runs():
            return SimulatedContainer(ContainerReason.RUNNING, now, restarts=run.restarts + again)
        case WrongFormat(message):
            crashed = SimulatedContainer(
                ContainerReason.FAILED,
                now,
                message,
                run.restarts + again,
                exit_code=EXEC_FORMAT_ERROR_CODE,
                crashed_at=now,
            )
            if not restarts:
                return msgspec.structs.replace(crashed, crashed_at=None)
            return msgspec.structs.replace(crashed, activity=ContainerReason.CRASH_BACKOFF) if again else crashed


def _start(
    run: SimulatedContainer,
    tried: Started | CannotStart,
    seen: ProcessState | None,
    now: dt.datetime,
    *,
    restarts: bool,
) -> SimulatedContainer:
    again = run.crashed_at is not None
    match tried:
        case Started(at):
            return SimulatedContainer(
                ContainerReason.RUNNING,
                at,
                restarts=run.restarts + again,
                streak=run.failures + again,
                is_process=True,
                started=seen is not None and seen.exit is None and seen.started,
                ready=seen is not None and seen.exit is None and seen.ready,
                last=run.last,
            )
        case CannotStart("RunContainerError", message) if not restarts:
            how = Exit(START_ERROR_CODE, now, message, "StartError")
            return ended(msgspec.structs.replace(run, since=now), how, restarts=lambda _: False)
        case CannotStart(reason, message):
            return msgspec.structs.replace(
                run, activity=ContainerReason(reason), since=now, message=message, pulls=run.pulls + 1, is_process=True
            )


def _watch(
    pod: Pod, container: Container, run: SimulatedContainer, seen: ProcessState | None, now: dt.datetime
) -> SimulatedContainer:
    """A container that is run, after what was seen of its process."""
    if run.activity is not ContainerReason.RUNNING:
        return run
    if seen is not None and seen.attempt == run.restarts and seen.exit is None:
        return msgspec.structs.replace(run, started=seen.started, ready=seen.ready)
    how = seen.exit if seen is not None and seen.attempt == run.restarts else None
    return ended(run, how or outcome.lost(now), restarts=lambda code: _restarts_after(pod, container, code))


def ended(run: SimulatedContainer, how: Exit, *, restarts: Callable[[int], bool]) -> SimulatedContainer:
    """A running container whose process has ended; ``restarts`` says for an exit code whether it is restarted."""
    since = run.since or how.at
    again = restarts(how.code)
    streak = 0 if (how.at - since).total_seconds() >= STABLE_SECONDS else run.failures
    over = ContainerReason.FAILED if how.code else ContainerReason.COMPLETED
    return SimulatedContainer(
        ContainerReason.CRASH_BACKOFF if again and streak else over,
        how.at,
        how.message,
        run.restarts,
        exit_code=how.code,
        crashed_at=how.at if again else None,
        streak=streak,
        is_process=True,
        started=False,
        ready=False,
        last=ContainerTermination(since, how, run.restarts),
    )


def _let_time_pass(run: SimulatedContainer, comes_to_an_end: bool, now: dt.datetime) -> SimulatedContainer:
    if run.activity is ContainerReason.PULL_FAILED and _delay_left(run, now) == 0.0:
        return msgspec.structs.replace(run, activity=ContainerReason.PULL_BACKOFF)
    if run.activity is ContainerReason.RUNNING and comes_to_an_end and _left(RUN_SECONDS, run, now) == 0.0:
        return msgspec.structs.replace(run, activity=ContainerReason.COMPLETED, since=now)
    return run


def _wait(pod: Pod, container: Container, run: SimulatedContainer, now: dt.datetime) -> float | None:
    """Seconds until this container's next change by itself."""
    if run.is_process and run.activity is ContainerReason.RUNNING:
        return None
    if run.activity is ContainerReason.RUNNING and _comes_to_an_end(pod, container):
        return _left(RUN_SECONDS, run, now)
    return _delay_left(run, now)


def _comes_to_an_end(pod: Pod, container: Container) -> bool:
    is_init = any(container is other for other in pod.init_containers)
    return (container if is_init else pod.spec).restart_policy != "Always"


def _restarts(pod: Pod, container: Container) -> bool:
    """Whether it is restarted after an error."""
    return container.restart_policy == "Always" or pod.spec.restart_policy != "Never"


def _restarts_after(pod: Pod, container: Container, code: int) -> bool:
    """Whether it is restarted after it ended with this code."""
    is_init = any(container is other for other in pod.init_containers)
    if container.restart_policy == "Always" or (pod.spec.restart_policy == "Always" and not is_init):
        return True
    return code != 0 and pod.spec.restart_policy != "Never"


def attempt(run: SimulatedContainer) -> int:
    """The number of the start that comes next, from 0."""
    return run.restarts + (run.crashed_at is not None)


def ending(
    runs: Mapping[str, SimulatedContainer], observed: Mapping[str, ProcessState]
) -> dict[str, SimulatedContainer]:
    """The containers of a pod that is being deleted: what has ended is not restarted."""
    return {name: _ending(run, observed.get(name)) for name, run in runs.items()}


def _ending(run: SimulatedContainer, seen: ProcessState | None) -> SimulatedContainer:
    if run.activity is ContainerReason.RUNNING and seen is not None and seen.exit is not None:
        return ended(run, seen.exit, restarts=lambda _: False)
    if run.activity is ContainerReason.RUNNING and not run.is_process and seen is None:
        return msgspec.structs.replace(run, ready=False)
    return run


def last_phase(pod: Pod, runs: Mapping[str, SimulatedContainer]) -> str:
    """``status.phase`` of a pod that was deleted, when nothing of it runs any more."""
    main = [runs.get(container.name, SimulatedContainer()) for container in pod.containers]
    return "Succeeded" if all(run.activity is ContainerReason.COMPLETED for run in main) else "Failed"


def phase(pod: Pod, runs: Mapping[str, SimulatedContainer]) -> str:
    """``status.phase``, by the kubelet's rules."""
    if any(_gave_up(runs.get(container.name, SimulatedContainer())) for container in pod.init_containers):
        return "Failed"
    main = [runs.get(container.name, SimulatedContainer()) for container in pod.containers]
    if main and all(run.activity.ended and run.crashed_at is None for run in main):
        return "Failed" if any(run.exit_code for run in main) else "Succeeded"
    return "Running" if _all_started(main) else "Pending"


def _gave_up(run: SimulatedContainer) -> bool:
    return run.activity is ContainerReason.FAILED and run.crashed_at is None


def _all_started(runs: Iterable[SimulatedContainer]) -> bool:
    """Whether all have started at least once; a container that still waits for its first pull keeps the pod Pending."""
    return all(not run.activity.unstarted or run.restarts > 0 for run in runs)


def incomplete(pod: Pod, runs: Mapping[str, SimulatedContainer]) -> list[str]:
    """The init containers that are not done, and sidecars that have not started; none once another container has
    started."""
    if any(not runs.get(each.name, SimulatedContainer()).activity.unstarted for each in pod.containers):
        return []
    return [each.name for each in pod.init_containers if not _lets_go_on(each, runs.get(each.name))]


def _lets_go_on(container: Container, run: SimulatedContainer | None) -> bool:
    """Whether the containers after this init container may start."""
    if run is None:
        return False
    if container.restart_policy != "Always":
        return run.activity is ContainerReason.COMPLETED
    return (run.activity is ContainerReason.RUNNING and run.started) or run.last is not None
