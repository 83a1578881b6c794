"""``status`` of a pod as the kubelet of its node reports it, and the events that the kubelet posts.

Pure. The status is a strategic merge patch: conditions merge by type, so that the scheduler's own condition stays."""

import datetime as dt
import hashlib
from collections.abc import Mapping, Sequence
from typing import Any, Final, Literal

import msgspec

from polyarch.sandbox.nodes import lifecycle
from polyarch.sandbox.nodes.lifecycle import ContainerReason, Pulled, SimulatedContainer
from polyarch.sandbox.nodes.plans import timestamp
from polyarch.sandbox.nodes.pods import Condition, Container, Pod


def status(
    pod: Pod,
    runs: Mapping[str, SimulatedContainer],
    images: Mapping[str, Pulled],
    *,
    host_address: str,
    pod_address: str,
    now: dt.datetime,
    ends: bool = False,
    since: Mapping[str, Mapping[str, str]] = {},
) -> dict[str, Any]:
    """The patch of the status subresource. ``ends``: the pod is being deleted. ``since`` holds the conditions as they
    were, by type: what is still so keeps the time at which it began."""
    phase = lifecycle.phase(pod, runs)
    conditions = _conditions(pod, runs, phase, now, ends=ends)
    for condition in conditions:
        before = since.get(condition["type"], {})
        if before.get("status") == condition["status"]:
            condition["lastTransitionTime"] = before["lastTransitionTime"]
    document: dict[str, Any] = {
        **_observed(pod),
        "phase": phase,
        "conditions": conditions,
        "hostIP": host_address,
        "hostIPs": [{"ip": host_address}],
        "podIP": pod_address,
        "podIPs": [{"ip": pod_address}],
        "startTime": pod.status.start_time or timestamp(now),
        "containerStatuses": _statuses(pod, pod.containers, runs, images),
    }
    if pod.init_containers:
        document["initContainerStatuses"] = _statuses(pod, pod.init_containers, runs, images)
    return document


def rejected(pod: Pod, reason: str, message: str, now: dt.datetime) -> dict[str, Any]:
    """The status of a pod that its kubelet does not admit."""
    return {
        **_observed(pod),
        "phase": "Failed",
        "reason": reason,
        "message": f"Pod was rejected: {message}",
        "startTime": pod.status.start_time or timestamp(now),
    }


def evicted(pod: Pod, status: Mapping[str, Any], now: dt.datetime) -> dict[str, Any]:
    """The status of a pod that its kubelet evicted when the node was short of something."""
    message = "The node was low on resource: ephemeral-storage."
    disrupted = _condition(pod, "DisruptionTarget", _Verdict(True, "TerminationByKubelet", message), None, now)
    conditions = [*status["conditions"], disrupted]
    return {**status, "reason": "Evicted", "message": message, "conditions": conditions}


class _Verdict(msgspec.Struct, frozen=True):
    """Whether a condition holds, and why it does not."""

    holds: bool
    reason: str = ""
    message: str = ""


_HOLDS: Final = _Verdict(holds=True)


def _conditions(
    pod: Pod, runs: Mapping[str, SimulatedContainer], phase: str, now: dt.datetime, *, ends: bool
) -> list[dict[str, Any]]:
    """Those that a kubelet owns; PodScheduled only where nobody has set it, because no scheduler bound the pod."""
    known = {each.type: each for each in pod.status.conditions or ()}
    done = phase in {"Succeeded", "Failed"}
    initialized = _all("ContainersNotInitialized", "incomplete", lifecycle.incomplete(pod, runs))
    running = [*(each for each in pod.init_containers if each.restart_policy == "Always"), *pod.containers]
    unready = [each.name for each in running if not _ready(runs.get(each.name, SimulatedContainer()))]
    containers = _all("ContainersNotReady", "unready", unready)
    if done:
        containers = _Verdict(False, "PodCompleted" if phase == "Succeeded" else "PodFailed")
    elif ends and containers.holds:
        containers = _Verdict(False, "ContainersNotReady")
    if phase == "Succeeded":
        initialized = _Verdict(True, "PodCompleted")
    verdicts = {
        "PodReadyToStartContainers": _Verdict(not done),
        "Initialized": initialized,
        "Ready": _gated(pod) if containers.holds else containers,
        "ContainersReady": containers,
    }
    if "PodScheduled" not in known:
        verdicts["PodScheduled"] = _HOLDS
    return [_condition(pod, name, verdict, known.get(name), now) for name, verdict in verdicts.items()]


def _all(reason: str, what: str, others: Sequence[str]) -> _Verdict:
    if not others:
        return _HOLDS
    return _Verdict(False, reason, f"containers with {what} status: [{' '.join(others)}]")


def gates(pod: Pod) -> tuple[str, ...]:
    """The statuses of the conditions that are the pod's readiness gates: others set them. Empty: there is none."""
    known = {each.type: each.status for each in pod.status.conditions or ()}
    return tuple(known.get(gate.condition_type, "") for gate in pod.spec.readiness_gates or ())


def _gated(pod: Pod) -> _Verdict:
    closed = []
    for gate, status in zip(pod.spec.readiness_gates or (), gates(pod), strict=True):
        if not status:
            closed.append(f'corresponding condition of pod readiness gate "{gate.condition_type}" does not exist.')
        elif status != "True":
            closed.append(f'the status of pod readiness gate "{gate.condition_type}" is not "True", but {status}')
    return _Verdict(False, "ReadinessGatesNotReady", ", ".join(closed)) if closed else _HOLDS


def _condition(pod: Pod, type: str, verdict: _Verdict, before: Condition | None, now: dt.datetime) -> dict[str, Any]:
    status = "True" if verdict.holds else "False"
    since = before.last_transition_time if before is not None and before.status == status else None
    return {
        "type": type,
        "status": status,
        "lastTransitionTime": since or timestamp(now),
        "reason": verdict.reason or None,  # null takes away what was said before
        "message": verdict.message or None,
        **_observed(pod),
    }


def _observed(pod: Pod) -> dict[str, int]:
    """Which spec is reported about; API servers before 1.33 count no generations of pods."""
    return {"observedGeneration": pod.metadata.generation} if pod.metadata.generation else {}


def _is_done_once(pod: Pod, container: Container) -> bool:
    """Whether it is an init container that ends before others start: to have done so is to be ready."""
    return container.restart_policy != "Always" and any(container is each for each in pod.init_containers)


def _ready(run: SimulatedContainer) -> bool:
    return run.activity is ContainerReason.RUNNING and run.ready


def _statuses(
    pod: Pod, containers: Sequence[Container], runs: Mapping[str, SimulatedContainer], images: Mapping[str, Pulled]
) -> list[dict[str, Any]]:
    return [_status(pod, container, runs.get(container.name, SimulatedContainer()), images) for container in containers]


def _status(pod: Pod, container: Container, run: SimulatedContainer, images: Mapping[str, Pulled]) -> dict[str, Any]:
    state, last = _states(pod, container, run)
    started = "waiting" not in state
    known = images.get(container.image)
    reported = [*(pod.status.init_container_statuses or ()), *(pod.status.container_statuses or ())]
    before = next((each.image_id for each in reported if each.name == container.name), "")
    return {
        "name": container.name,
        "image": container.image,
        "imageID": (known.image_id if known is not None else before) if started or last else "",
        "containerID": container_id(pod, container, run.restarts) if started or last else "",
        "ready": run.activity is ContainerReason.COMPLETED if _is_done_once(pod, container) else _ready(run),
        "started": run.activity is ContainerReason.RUNNING and run.started,
        "restartCount": run.restarts,
        "state": state,
        "lastState": last,
    }


def _states(pod: Pod, container: Container, run: SimulatedContainer) -> tuple[dict[str, Any], dict[str, Any]]:
    """``state`` and ``lastState``."""
    at = timestamp(run.since) if run.since else None
    match run.activity:
        case ContainerReason.RUNNING:
            return {"running": {"startedAt": at}}, _last(pod, container, run)
        case ContainerReason.COMPLETED | ContainerReason.FAILED:
            return {"terminated": _terminated(pod, container, run, run.restarts)}, {}
        case ContainerReason.CRASH_BACKOFF:
            delay = lifecycle.backoff(run.failures)
            message = (
                f"back-off {delay:.0f}s restarting failed container={container.name} "
                f"pod={pod.metadata.name}_{pod.metadata.namespace}({pod.metadata.uid})"
            )
            waiting = {"reason": run.activity.value, "message": message}
            return {"waiting": waiting}, {"terminated": _terminated(pod, container, run, run.restarts)}
        case ContainerReason.PULL_BACKOFF:
            message = f'Back-off pulling image "{container.image}": ErrImagePull: {run.message}'
            return {"waiting": {"reason": run.activity.value, "message": message}}, {}
        case _:
            waiting = {"reason": run.activity.value}
            text = {"message": run.message} if run.message else {}
            return {"waiting": {**waiting, **text}}, _last(pod, container, run)


def _last(pod: Pod, container: Container, run: SimulatedContainer) -> dict[str, Any]:
    return {"terminated": _terminated(pod, container, run, run.restarts)} if run.last is not None else {}


def _terminated(pod: Pod, container: Container, run: SimulatedContainer, restarts: int) -> dict[str, Any]:
    if (last := run.last) is not None:
        return {
            "exitCode": last.exit.code,
            "reason": last.exit.reason or ("Error" if last.exit.code else "Completed"),
            "startedAt": timestamp(last.started_at),
            "finishedAt": timestamp(last.exit.at),
            "containerID": container_id(pod, container, last.restarts),
            **({"message": last.exit.message} if last.exit.message else {}),
        }
    at = timestamp(run.since) if run.since else None
    ended: dict[str, Any] = {
        "exitCode": run.exit_code,
        "reason": "Error" if run.exit_code else "Completed",
        "startedAt": at,
        "finishedAt": at,
        "containerID": container_id(pod, container, restarts),
    }
    # On a real node this line is in the container's log; the sandbox serves no container logs.
    return {**ended, "message": run.message} if run.message else ended


class KubeletEvent(msgspec.Struct, frozen=True):
    """An event that a kubelet posts about a failing container."""

    type: Literal["Normal", "Warning"]
    reason: str
    note: str


def kubelet_events(
    pod: Pod, before: Mapping[str, SimulatedContainer], after: Mapping[str, SimulatedContainer]
) -> list[KubeletEvent]:
    """The events of this step: failures only, because the status shows everything else."""
    found: list[KubeletEvent] = []
    for container in [*pod.init_containers, *pod.containers]:
        run = after.get(container.name, SimulatedContainer())
        if run == before.get(container.name):
            continue
        match run.activity:
            case ContainerReason.PULL_FAILED | ContainerReason.NEVER_PULL | ContainerReason.INVALID_NAME:
                found.append(
                    KubeletEvent("Warning", "Failed", f'Failed to pull image "{container.image}": {run.message}')
                )
            case ContainerReason.PULL_BACKOFF:
                found.append(KubeletEvent("Normal", "BackOff", f'Back-off pulling image "{container.image}"'))
            case ContainerReason.FAILED:
                found.append(KubeletEvent("Warning", "Failed", f"Error: container {container.name}: {run.message}"))
            case ContainerReason.CRASH_BACKOFF:
                note = f"Back-off restarting failed container {container.name}: {run.message}"
                found.append(KubeletEvent("Warning", "BackOff", note))
            case _:
                pass
    return found


def container_id(pod: Pod, container: Container, restarts: int) -> str:
    """A container id that differs for every start, as that of a container runtime."""
    text = f"{pod.metadata.uid}/{container.name}/{restarts}"
    return f"containerd://{hashlib.sha256(text.encode()).hexdigest()}"
