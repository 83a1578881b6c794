"""What becomes of a pod's containers on a node over time, one step at a time (SB-004).

A step is pure: pod, what its containers did so far, what the node made of their images, the time → what they do now and
when to look again. Delays are a kubelet's: the first restart at once, then 10 s, doubling up to five minutes.
"""

import datetime as dt
import enum
from collections.abc import Iterable, Iterator, Mapping

import msgspec

from polyarch.sandbox.nodes.pods import Container, ContainerStatus, Pod
from polyarch.sandbox.nodes.pulling import EXEC_FORMAT_ERROR_CODE, CannotPull, Runs, Verdict, WrongFormat

RUN_SECONDS = 1.0
"""How long a container works that is meant to come to an end: of a Job, or an init container."""
NOTICE_SECONDS = 1.0
"""How long a failure shows its own reason before the back-off's."""
BACKOFF_SECONDS = 10.0
MAXIMUM_BACKOFF_SECONDS = 300.0


class Activity(enum.Enum):
    """What a container does. The values are the reasons a kubelet reports, where it reports one."""

    CREATING = "ContainerCreating"
    INITIALIZING = "PodInitializing"
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
        """Nothing of it has run in this try."""
        return self in _UNSTARTED

    @property
    def ended(self) -> bool:
        return self in {Activity.COMPLETED, Activity.FAILED}


_UNPULLED = (Activity.PULL_BACKOFF, Activity.NEVER_PULL, Activity.INVALID_NAME)
_UNSTARTED = (Activity.CREATING, Activity.INITIALIZING, Activity.PULL_FAILED, *_UNPULLED)


class Run(msgspec.Struct, frozen=True):
    """One container's history, as far as the next step needs it."""

    activity: Activity = Activity.CREATING
    since: dt.datetime | None = None
    message: str = ""
    restarts: int = 0
    pulls: int = 0
    """Failed pulls one after the other."""
    exit_code: int = 0
    crashed_at: dt.datetime | None = None
    """When it last ended with an error, while it is restarted."""


class Pulled(msgspec.Struct, frozen=True):
    """What the node made of an image, and the id under which it has it."""

    verdict: Verdict
    image_id: str = ""


class Step(msgspec.Struct, frozen=True):
    """The containers after a step, and in how many seconds to look again (None: nothing will change by itself)."""

    runs: dict[str, Run]
    wait: float | None


def backoff(failures: int) -> float:
    """Seconds before try number ``failures`` + 1."""
    return float(min(BACKOFF_SECONDS * 2 ** (failures - 1), MAXIMUM_BACKOFF_SECONDS))


def recover(pod: Pod, now: dt.datetime) -> dict[str, Run]:
    """What the containers do according to what was reported: a restarted node process goes on from there."""
    statuses = [*(pod.status.init_container_statuses or ()), *(pod.status.container_statuses or ())]
    return {status.name: run for status in statuses if (run := _recover_one(status, now)) is not None}


def _recover_one(status: ContainerStatus, now: dt.datetime) -> Run | None:
    if status.state.running is not None:
        return Run(Activity.RUNNING, now, restarts=status.restart_count)
    if (ended := status.state.terminated) is not None:
        activity = Activity.FAILED if ended.exit_code else Activity.COMPLETED
        return Run(activity, now, ended.message, status.restart_count, exit_code=ended.exit_code)
    if status.state.waiting is not None and status.state.waiting.reason == Activity.CRASH_BACKOFF.value:
        message = status.state.waiting.message
        return Run(Activity.CRASH_BACKOFF, now, message, status.restart_count, exit_code=1, crashed_at=now)
    return None


def due_images(pod: Pod, runs: Mapping[str, Run], now: dt.datetime) -> list[str]:
    """The images the node has to look at in the step that comes now: of each container that starts or starts again."""
    return list(dict.fromkeys(container.image for container in _due(pod, runs, now)))


def _due(pod: Pod, runs: Mapping[str, Run], now: dt.datetime) -> Iterator[Container]:
    for container in _allowed(pod, runs):
        if _tries_now(runs.get(container.name, Run()), now):
            yield container


def _allowed(pod: Pod, runs: Mapping[str, Run]) -> list[Container]:
    """The containers whose turn has come: init containers one after the other, then all others together."""
    sidecars: list[Container] = []
    for container in pod.init_containers:
        run = runs.get(container.name, Run())
        if container.restart_policy == "Always":
            sidecars.append(container)
            if run.activity is not Activity.RUNNING:
                return sidecars
        elif run.activity is not Activity.COMPLETED:
            return [*sidecars, container]
    return [*sidecars, *pod.containers]


def _tries_now(run: Run, now: dt.datetime) -> bool:
    """Whether the container is started, or its image pulled, in this step."""
    match run.activity:
        case Activity.CREATING | Activity.INITIALIZING:
            return True
        case Activity.PULL_BACKOFF | Activity.NEVER_PULL | Activity.INVALID_NAME:
            return _passed(run, backoff(max(run.pulls, 1)), now) <= 0
        case Activity.CRASH_BACKOFF:
            return _passed(run, backoff(run.restarts), now) <= 0
        case Activity.FAILED:
            return run.crashed_at is not None and _passed(run, NOTICE_SECONDS, now) <= 0
        case _:
            return False


def _passed(run: Run, seconds: float, now: dt.datetime) -> float:
    """How many seconds are left of ``seconds`` since the run's activity began."""
    return seconds - (now - (run.since or now)).total_seconds()


def step(pod: Pod, runs: Mapping[str, Run], pulled: Mapping[str, Pulled], now: dt.datetime) -> Step:
    """Let the time be ``now``. ``pulled`` holds an answer for each of ``due_images``."""
    allowed = _allowed(pod, runs)
    turn = {container.name for container in allowed}
    waits_for_init = turn.isdisjoint(container.name for container in pod.containers)
    after: dict[str, Run] = {}
    for container in [*pod.init_containers, *pod.containers]:
        run = runs.get(container.name, Run())
        if container.name not in turn:
            waiting = run.activity in {Activity.CREATING, Activity.INITIALIZING}
            after[container.name] = Run(Activity.INITIALIZING) if waiting and waits_for_init else run
        elif _tries_now(run, now):
            after[container.name] = _try(run, pulled[container.image].verdict, _restarts(pod, container), now)
        else:
            after[container.name] = _let_time_pass(run, _comes_to_an_end(pod, container), now)
    waits = [wait for container in allowed if (wait := _wait(pod, container, after[container.name], now)) is not None]
    if [container.name for container in _allowed(pod, after)] != [container.name for container in allowed]:
        waits.append(0.0)  # somebody's turn came by this very step
    return Step(after, min(waits, default=None))


def _try(run: Run, verdict: Verdict, restarts: bool, now: dt.datetime) -> Run:
    again = run.crashed_at is not None
    match verdict:
        case CannotPull(message, reason):
            return msgspec.structs.replace(
                run, activity=Activity(reason), since=now, message=message, pulls=run.pulls + 1
            )
        case Runs():
            return Run(Activity.RUNNING, now, restarts=run.restarts + again)
        case WrongFormat(message):
            crashed = Run(
                Activity.FAILED, now, message, run.restarts + again, exit_code=EXEC_FORMAT_ERROR_CODE, crashed_at=now
            )
            if not restarts:
                return msgspec.structs.replace(crashed, crashed_at=None)
            return msgspec.structs.replace(crashed, activity=Activity.CRASH_BACKOFF) if again else crashed


def _let_time_pass(run: Run, comes_to_an_end: bool, now: dt.datetime) -> Run:
    if run.activity is Activity.PULL_FAILED and _passed(run, NOTICE_SECONDS, now) <= 0:
        return msgspec.structs.replace(run, activity=Activity.PULL_BACKOFF)
    if run.activity is Activity.RUNNING and comes_to_an_end and _passed(run, RUN_SECONDS, now) <= 0:
        return msgspec.structs.replace(run, activity=Activity.COMPLETED, since=now)
    return run


def _wait(pod: Pod, container: Container, run: Run, now: dt.datetime) -> float | None:
    """Seconds until this container's next change."""
    match run.activity:
        case Activity.PULL_FAILED:
            left = _passed(run, NOTICE_SECONDS, now)
        case Activity.PULL_BACKOFF | Activity.NEVER_PULL | Activity.INVALID_NAME:
            left = _passed(run, backoff(max(run.pulls, 1)), now)
        case Activity.CRASH_BACKOFF:
            left = _passed(run, backoff(run.restarts), now)
        case Activity.FAILED if run.crashed_at is not None:
            left = _passed(run, NOTICE_SECONDS, now)
        case Activity.RUNNING if _comes_to_an_end(pod, container):
            left = _passed(run, RUN_SECONDS, now)
        case _:
            return None
    return max(left, 0.0)


def _is_init(pod: Pod, container: Container) -> bool:
    return any(container is other for other in pod.init_containers)


def _comes_to_an_end(pod: Pod, container: Container) -> bool:
    if _is_init(pod, container):
        return container.restart_policy != "Always"
    return pod.spec.restart_policy != "Always"


def _restarts(pod: Pod, container: Container) -> bool:
    """Whether it is started again after an error."""
    return container.restart_policy == "Always" or pod.spec.restart_policy != "Never"


def phase(pod: Pod, runs: Mapping[str, Run]) -> str:
    """``status.phase``, by the kubelet's rules."""
    if any(_gave_up(runs.get(container.name, Run())) for container in pod.init_containers):
        return "Failed"
    main = [runs.get(container.name, Run()) for container in pod.containers]
    if main and all(run.activity.ended and run.crashed_at is None for run in main):
        return "Failed" if any(run.exit_code for run in main) else "Succeeded"
    return "Running" if _all_started(main) else "Pending"


def _gave_up(run: Run) -> bool:
    return run.activity is Activity.FAILED and run.crashed_at is None


def _all_started(runs: Iterable[Run]) -> bool:
    """A container that waits for its image for the first time keeps the pod Pending."""
    return all(not run.activity.unstarted or run.restarts > 0 for run in runs)


def initialized(pod: Pod, runs: Mapping[str, Run]) -> bool:
    """Condition ``Initialized``: every init container is done, every sidecar runs."""
    turn = {container.name for container in _allowed(pod, runs)}
    return all(container.name in turn for container in pod.containers)
