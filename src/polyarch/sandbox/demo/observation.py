"""A pod of the demo over time: each state from the API server updates its row.

Pure: from objects and times to a frozen row.
"""

import msgspec

from polyarch.placement import names
from polyarch.placement.record import read_record
from polyarch.sandbox.document import Milliseconds
from polyarch.sandbox.nodes.pods import Pod

FAILURES = frozenset({"CrashLoopBackOff", "ErrImagePull", "ImagePullBackOff", "InvalidImageName", "ErrImageNeverPull"})


ENDED = "Error"
"""Reason of a container's first failure; it is restarted at once, so the pod has not settled."""


class Row(msgspec.Struct, frozen=True, kw_only=True):
    """The present state of one pod; times are milliseconds since its create request."""

    name: str
    path: str = ""
    reason: str = ""
    architectures: tuple[str, ...] = ()
    node: str = ""
    phase: str = ""
    problem: str = ""
    """Why it does not run: a reason of the kubelet or the scheduler; empty while it may still start."""
    times: Milliseconds = Milliseconds()
    requests: int = 0

    @property
    def settled(self) -> bool:
        """Whether the outcome is final: it runs, has ended, or has failed more than once."""
        if self.problem:
            return not self.problem.startswith(ENDED)
        return self.phase in {"Running", "Succeeded", "Failed"}


def created(row: Row, pod: Pod, milliseconds: float) -> Row:
    """The row after the create request was answered: the pod's path through admission."""
    gates = {gate.name for gate in pod.spec.scheduling_gates or ()}
    label = (pod.metadata.labels or {}).get(names.SCHEDULING_GATE_LABEL, "")
    path = "gated" if names.GATE in gates else "inline" if label == names.REMOVED else "ignored" if label else ""
    times = msgspec.structs.replace(row.times, admission=milliseconds)
    return seen(msgspec.structs.replace(row, path=path, times=times), pod, milliseconds)


def seen(row: Row, pod: Pod, milliseconds: float) -> Row:
    """The row after one more look at the pod. Times are of the first look at which a step had happened."""
    decision = read_record(pod.metadata.annotations)
    times = row.times
    if row.path == "gated" and times.released is None and not pod.spec.scheduling_gates:
        times = msgspec.structs.replace(times, released=milliseconds)
    if times.bound is None and pod.spec.node_name:
        times = msgspec.structs.replace(times, bound=milliseconds)
    problem = problem_of(pod)
    if times.running is None and pod.status.phase == "Running" and not problem:
        times = msgspec.structs.replace(times, running=milliseconds)
    return msgspec.structs.replace(
        row,
        reason=decision.reason if decision is not None else row.reason,
        architectures=decision.arch if decision is not None else row.architectures,
        node=pod.spec.node_name,
        phase=pod.status.phase,
        problem=problem,
        times=times,
    )


def problem_of(pod: Pod) -> str:
    """Why the pod does not run; empty if it runs or may still start."""
    for status in pod.status.container_statuses or ():
        waiting, ended = status.state.waiting, status.state.terminated
        last = ended or status.last_state.terminated
        if ended is not None and ended.exit_code:
            return f"{ENDED}: exec format error" if "exec format error" in ended.message else ENDED
        if waiting is not None and waiting.reason in FAILURES:
            if last is not None and "exec format error" in last.message:
                return f"{waiting.reason}: exec format error"
            if "no match for platform" in waiting.message:
                return f"{waiting.reason}: no match for platform"
            return waiting.reason
    for condition in pod.status.conditions or ():
        if condition.type == "PodScheduled" and condition.reason == "Unschedulable":
            return "Unschedulable"
    return ""
