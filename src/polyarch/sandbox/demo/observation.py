"""What a pod of the demo looks like over time, from what the API server tells of it.

Pure: objects and times in, one frozen row out.
"""

import msgspec

from polyarch.model.meta import ObjectMeta
from polyarch.model.pod import PodSchedulingGate
from polyarch.placement import names
from polyarch.placement.decide import record
from polyarch.sandbox.document import Milliseconds
from polyarch.sandbox.nodes.pods import ContainerStatus

FAILURES = frozenset({"CrashLoopBackOff", "ErrImagePull", "ImagePullBackOff", "InvalidImageName", "ErrImageNeverPull"})


ENDED = "Error"
"""A container's first end with an error; it is started again at once."""


class Condition(msgspec.Struct, frozen=True, gc=False):
    type: str = ""
    status: str = ""
    reason: str = ""
    message: str = ""


class SeenSpec(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    node_name: str = ""
    scheduling_gates: list[PodSchedulingGate] | None = None


class SeenStatus(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    phase: str = ""
    conditions: list[Condition] | None = None
    container_statuses: list[ContainerStatus] | None = None


class SeenPod(msgspec.Struct, frozen=True, gc=False):
    """A pod, as far as the demo shows it."""

    metadata: ObjectMeta = ObjectMeta()
    spec: SeenSpec = SeenSpec()
    status: SeenStatus = SeenStatus()


class Row(msgspec.Struct, frozen=True, kw_only=True):
    """One pod as it is known now; times are milliseconds since it was asked for."""

    name: str
    path: str = ""
    reason: str = ""
    architectures: tuple[str, ...] = ()
    node: str = ""
    phase: str = ""
    problem: str = ""
    """Why it does not run, in a kubelet's or scheduler's word; empty while it may still come to run."""
    times: Milliseconds = Milliseconds()
    requests: int = 0

    @property
    def settled(self) -> bool:
        """Nothing that matters will change: it runs, or it was tried again and failed again."""
        if self.problem:
            return not self.problem.startswith(ENDED)
        return self.phase in {"Running", "Succeeded", "Failed"}


def created(row: Row, pod: SeenPod, milliseconds: float) -> Row:
    """The answer to the request that made the pod: which way it went through admission."""
    gates = {gate.name for gate in pod.spec.scheduling_gates or ()}
    label = (pod.metadata.labels or {}).get(names.SCHEDULING_GATE_LABEL, "")
    path = "gated" if names.GATE in gates else "inline" if label == names.REMOVED else "ignored" if label else ""
    times = msgspec.structs.replace(row.times, admission=milliseconds)
    return seen(msgspec.structs.replace(row, path=path, times=times), pod, milliseconds)


def seen(row: Row, pod: SeenPod, milliseconds: float) -> Row:
    """The row after one more look at the pod. Times are of the first look at which a step had happened."""
    decision = record.read(pod.metadata.annotations)
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


def problem_of(pod: SeenPod) -> str:
    """What keeps the pod from running, if it is more than a matter of time."""
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
