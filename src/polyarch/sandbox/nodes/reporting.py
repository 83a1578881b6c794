"""``status`` of a pod as the kubelet of its node reports it, and the events that the kubelet posts.

Pure. The status is a strategic merge patch: conditions merge by type, so that the scheduler's own condition stays."""

import datetime as dt
import hashlib
from collections.abc import Mapping, Sequence
from typing import Any, Literal

import msgspec

from polyarch.sandbox.nodes import lifecycle
from polyarch.sandbox.nodes.lifecycle import ContainerReason, Pulled, SimulatedContainer
from polyarch.sandbox.nodes.plans import timestamp
from polyarch.sandbox.nodes.pods import Container, Pod


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
    initialized = lifecycle.initialized(pod, runs)
    done = phase in {"Succeeded", "Failed"}
    ready = (
        not done
        and not ends
        and initialized
        and all(_ready(runs.get(each.name, SimulatedContainer())) for each in pod.containers)
    )
    reason = "PodCompleted" if phase == "Succeeded" else "PodFailed" if phase == "Failed" else "ContainersNotReady"
    conditions = [
        _condition("PodReadyToStartContainers", not done, "", now),
        _condition("Initialized", initialized, "" if initialized else "ContainersNotInitialized", now),
        _condition("Ready", ready, "" if ready else reason, now),
        _condition("ContainersReady", ready, "" if ready else reason, now),
    ]
    for condition in conditions:
        before = since.get(condition["type"], {})
        if before.get("status") == condition["status"]:
            condition["lastTransitionTime"] = before["lastTransitionTime"]
    document: dict[str, Any] = {
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
        "phase": "Failed",
        "reason": reason,
        "message": f"Pod was rejected: {message}",
        "startTime": pod.status.start_time or timestamp(now),
    }


def evicted(status: Mapping[str, Any], now: dt.datetime) -> dict[str, Any]:
    """The status of a pod that its kubelet evicted when the node was short of something."""
    message = "The node was low on resource: ephemeral-storage."
    disrupted = _condition("DisruptionTarget", True, "TerminationByKubelet", now) | {"message": message}
    conditions = [*status["conditions"], disrupted]
    return {**status, "reason": "Evicted", "message": message, "conditions": conditions}


def _condition(type: str, holds: bool, reason: str, now: dt.datetime) -> dict[str, str]:
    condition = {"type": type, "status": "True" if holds else "False", "lastTransitionTime": timestamp(now)}
    return {**condition, "reason": reason} if reason else condition


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
    return {
        "name": container.name,
        "image": container.image,
        "imageID": known.image_id if known is not None and (started or last) else "",
        "containerID": container_id(pod, container, run.restarts) if started or last else "",
        "ready": _ready(run),
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
