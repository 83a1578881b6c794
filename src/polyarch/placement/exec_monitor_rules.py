"""The rules of the exec-format-error monitor: pure functions and values.

For the node agent: what a line of the trace says, which container and pod a process belongs to, and how much one node
reports. For the handler: what it does with an ENoExecEvent. For the operator: the next step of the monitor's uninstall.
"""

import re
from collections.abc import Iterable
from enum import Enum
from typing import Any, Final, NamedTuple

import msgspec

from polyarch.objects import ObjectMeta
from polyarch.placement import names
from polyarch.placement.api import ENoExecEvent

# -- lines of trace_pipe -----------------------------------------------------------------------------------------------
# The kernel prints an event as ``comm-pid [cpu] flags time: text``. A process chooses its ``comm`` (up to 15 bytes, any
# characters), so a line is read from its end. Whatever is not understood is ``None``: the caller counts it.
#
# Source: Documentation/trace/ftrace.rst and events.rst of the kernel.

ENOEXEC: Final = -8


class SyscallReturned(NamedTuple):
    """A system call returned. ``pid`` is that of the calling thread, ``syscall`` is ``execve`` or ``execveat``."""

    pid: int
    comm: str
    syscall: str
    ret: int


class ProcessForked(NamedTuple):
    """A container runtime has forked; ``pid`` is the child's."""

    pid: int


class EventsLost(NamedTuple):
    """The kernel's buffer was full. ``events`` is 1 if the kernel does not say how many are lost."""

    events: int


_HEAD: Final = rb"^\s*(.*)-(\d+)\s+(?:\(\s*[-\d]+\)\s+)?\[\d+\]\s+\S+\s+[\d.]+: "
_RETURNED: Final = re.compile(_HEAD + rb"sys_(execve(?:at)?) -> (0x[0-9a-f]{1,16}|-?\d{1,19})\s*$", re.DOTALL)
_FORKED: Final = re.compile(_HEAD + rb"sched_process_fork: .* child_pid=(\d+)\s*$", re.DOTALL)
_LOST: Final = re.compile(rb"^CPU:\d+ \[LOST (?:(\d+) )?EVENTS\]\s*$")


def parse_trace_line(line: bytes) -> SyscallReturned | ProcessForked | EventsLost | None:
    """The event of one line, without its line break; None if it is none of ours or was cut off."""
    if (match := _RETURNED.match(line)) is not None:
        comm, pid, syscall, ret = match.groups()
        return SyscallReturned(int(pid), comm.decode("utf-8", "replace"), syscall.decode(), _signed(ret))
    if (match := _FORKED.match(line)) is not None:
        return ProcessForked(int(match[3]))
    if (match := _LOST.match(line)) is not None:
        return EventsLost(int(match[1] or 1))
    return None


def _signed(text: bytes) -> int:
    """A C ``long`` that the kernel prints as unsigned: ``0xfffffffffffffff8`` is -8, and ``0xfffffff8`` of 32 bits."""
    value = int(text, 0)
    for bits in (32, 64):
        if 1 << (bits - 1) <= value < 1 << bits:
            return value - (1 << bits)
    return value


# -- the container of a process ----------------------------------------------------------------------------------------
# The path of a container's cgroup has the pod's uid and, after it, the container's id; which characters stand around
# them depends on the kubelet's cgroup driver and on the runtime:
#
#     0::/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-podUID.slice/cri-containerd-ID.scope
#     4:memory:/kubepods/besteffort/podUID/ID
#     0::/kubelet.slice/kubelet-kubepods.slice/kubelet-kubepods-podUID.slice/crio-ID.scope/container
#     12:pids:/system.slice/containerd.service/kubepods-burstable-podUID.slice:cri-containerd:ID
#
# A container may run containers of its own, even a node with pods: what stands further right is inside of what stands
# further left. Which of several pods is one of this node, only its kubelet knows.
#
# Sources: proc_pid_cgroup(5); the kubelet's and the runtimes' cgroup naming.


class Container(NamedTuple):
    """A container of a pod. ``pod_uid`` is as in the directory names of the pod's logs."""

    pod_uid: str
    id: str
    """``runtime://`` and 64 hexadecimal digits, as in ``containerStatuses[].containerID``, or ``unknown://``."""


_POD_UID: Final = re.compile(
    r"pod([0-9a-f]{8}[-_][0-9a-f]{4}[-_][0-9a-f]{4}[-_][0-9a-f]{4}[-_][0-9a-f]{12}|[0-9a-f]{32})(?![0-9a-f])"
)
_CONTAINER_ID: Final = re.compile(r"(crio-(?:conmon-)?|cri-containerd[-:])?(?<![0-9a-f])([0-9a-f]{64})(?![0-9a-f])")
_RUNTIMES: Final = {"crio": "cri-o", "cri-containerd": "containerd"}
_HIERARCHIES: Final = ("", "memory", "pids", "name=systemd")
"""Hierarchies in the order in which they are believed: the unified one (v2), then those of v1 that all runtimes use."""


def containers_of_process(text: str) -> tuple[Container, ...]:
    """The container of a process by its ``/proc/PID/cgroup``, and those that this one is in, the innermost first; none
    if no container of a pod is named there."""
    paths: dict[str, str] = {}
    for line in text.splitlines():
        _, _, rest = line.partition(":")
        controllers, _, path = rest.partition(":")
        for controller in controllers.split(","):
            paths.setdefault(controller, path)
    found = (_containers_of_path(paths[controller]) for controller in _HIERARCHIES if controller in paths)
    return next(filter(None, found), ())


def _containers_of_path(path: str) -> tuple[Container, ...]:
    """For each pod of the path the first id after it: ids further right are those of containers inside, ids before it
    that of a node which is a container."""
    found: list[Container] = []
    end = len(path)
    for pod in reversed(list(_POD_UID.finditer(path))):
        identity = _CONTAINER_ID.search(path, pod.end(), end)
        end = pod.start()
        if identity is None:
            continue
        prefix, digits = identity.groups()
        runtime = _RUNTIMES.get(re.sub(r"(-conmon)?[-:]$", "", prefix or ""), "unknown")
        found.append(Container(pod[1].replace("_", "-"), f"{runtime}://{digits}"))
    return tuple(found)


# -- the pod of a uid --------------------------------------------------------------------------------------------------
# The kubelet creates ``/var/log/pods/NAMESPACE_NAME_UID`` before it starts the pod's first container, with every
# runtime. So the node agent needs no right to read pods.

_DNS_LABEL: Final = r"[a-z0-9]([-a-z0-9]*[a-z0-9])?"
_NAMESPACE_NAME: Final = re.compile(_DNS_LABEL)
_POD_NAME: Final = re.compile(rf"{_DNS_LABEL}(\.{_DNS_LABEL})*")


class PodName(NamedTuple):
    namespace: str
    name: str


def find_pod(directories: Iterable[str], uid: str) -> PodName | None:
    """The pod with this uid; None if no directory has it, or the names in it cannot be those of a pod."""
    for directory in directories:
        if not directory.endswith(f"_{uid}"):
            continue
        namespace, _, name = directory[: -len(uid) - 1].partition("_")
        if (
            _NAMESPACE_NAME.fullmatch(namespace)
            and len(namespace) <= 63
            and _POD_NAME.fullmatch(name)
            and len(name) <= 253
        ):
            return PodName(namespace, name)
    return None


# -- how much one node reports -----------------------------------------------------------------------------------------
# Each container once in a while, and all of them a few per second. A container in a crash loop gets a new id with each
# restart, so ``DUPLICATE_PERIOD`` concerns a program that fails over and over within one container, such as a script's.

DUPLICATE_PERIOD: Final = 600.0
"""Seconds in which a container is reported once."""
REPORTS_PER_SECOND: Final = 5.0
"""Reports per second."""
REPORTS_BURST: Final = 10
MAX_CONTAINERS: Final = 4096
"""Containers; beyond them the oldest is forgotten."""


class ReportRateLimiter:
    """``now`` is seconds on any clock that does not go back."""

    def __init__(self) -> None:
        self._reported: dict[str, float] = {}
        self._tokens = float(REPORTS_BURST)
        self._filled = 0.0

    def is_duplicate(self, container: str, now: float) -> bool:
        """Whether the container was reported in the last ten minutes."""
        reported = self._reported.get(container)
        return reported is not None and now - reported < DUPLICATE_PERIOD

    def admit(self, container: str, now: float) -> bool:
        """Whether the container may be reported now; remembers that it is."""
        self._tokens = min(float(REPORTS_BURST), self._tokens + max(0.0, now - self._filled) * REPORTS_PER_SECOND)
        self._filled = now
        if self._tokens < 1.0:
            return False
        self._tokens -= 1.0
        self._reported.pop(container, None)
        self._reported[container] = now
        if len(self._reported) > MAX_CONTAINERS:
            del self._reported[next(iter(self._reported))]
        return True


# -- actions of the handler --------------------------------------------------------------------------------------------
# :func:`first_action` needs the ENoExecEvent alone; :func:`action_for_pod` also the pod and the node that it names.

STATUS_TIMEOUT: Final = 60.0
"""How long an event may be without status: the node side writes it after the object."""
RETRY_TIMEOUT: Final = 600.0
"""How long a failing event is retried."""
WRONG_NAMESPACE: Final = "wrong-namespace"
STATUS_LOOKS: Final = (0.5, 5.0)
"""Shortest and longest pause in seconds between two looks at a pod that does not have the container of a report yet.
A kubelet needs one or two seconds to write its id."""
POD_NOT_FOUND: Final = "pod-not-found"
RECONCILIATION_ERROR: Final = "reconciliation-error"


class TerminatedContainer(msgspec.Struct, frozen=True, gc=False, rename={"container_id": "containerID"}):
    """core/v1 ContainerStateTerminated."""

    container_id: str = ""


class ContainerState(msgspec.Struct, frozen=True, gc=False):
    """core/v1 ContainerState."""

    terminated: TerminatedContainer | None = None


class ContainerStatus(
    msgspec.Struct, frozen=True, gc=False, rename={"container_id": "containerID", "last_state": "lastState"}
):
    """core/v1 ContainerStatus."""

    name: str = ""
    container_id: str = ""
    last_state: ContainerState = ContainerState()

    @property
    def ids(self) -> tuple[str, ...]:
        """Of the container, and of the one that ran before it."""
        before = self.last_state.terminated
        return (self.container_id, before.container_id if before is not None else "")


class FailedPodStatus(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    """core/v1 PodStatus: only the containers."""

    container_statuses: list[ContainerStatus] | None = None
    init_container_statuses: list[ContainerStatus] | None = None
    ephemeral_container_statuses: list[ContainerStatus] | None = None


class FailedPodSpec(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    """core/v1 PodSpec: only the node."""

    node_name: str = ""


class FailedPod(msgspec.Struct, frozen=True, gc=False):
    """core/v1 Pod."""

    metadata: ObjectMeta = ObjectMeta()
    spec: FailedPodSpec = FailedPodSpec()
    status: FailedPodStatus = FailedPodStatus()


class IgnoreEvent(msgspec.Struct, frozen=True):
    """Nothing is done."""


class RetryEvent(msgspec.Struct, frozen=True):
    """The event is looked at again after these seconds."""

    seconds: float


class LabelEvent(msgspec.Struct, frozen=True):
    """The event stays, with this error label."""

    error: str


class ReadPod(msgspec.Struct, frozen=True):
    """Read the pod and the node."""


class DeleteEvent(msgspec.Struct, frozen=True):
    """The event is deleted, as it is about nothing that is there now."""

    because: str


class NotifyPod(msgspec.Struct, frozen=True):
    """The pod gets an event with this note and, if it has none, the label; then the ENoExecEvent is deleted."""

    note: str
    is_labelled: bool


def first_action(event: ENoExecEvent, *, home: str, waited: float) -> IgnoreEvent | RetryEvent | LabelEvent | ReadPod:
    """``home``: the operator's namespace. ``waited``: seconds since the handler first saw the event."""
    labels = event.metadata.labels or {}
    error = labels.get(names.ENOEXEC_EVENT_ERROR_LABEL)
    if event.metadata.deletion_timestamp is not None or error in (WRONG_NAMESPACE, RECONCILIATION_ERROR):
        return IgnoreEvent()
    if event.metadata.namespace != home:
        return LabelEvent(WRONG_NAMESPACE)
    status = event.status
    if status is not None and status.pod_name and status.pod_namespace and status.node_name:
        return ReadPod()
    if error is not None:
        return IgnoreEvent()
    return LabelEvent(POD_NOT_FOUND) if waited >= STATUS_TIMEOUT else RetryEvent(STATUS_TIMEOUT - waited)


def action_for_pod(
    event: ENoExecEvent, pod: FailedPod | None, node: ObjectMeta | None, *, waited: float
) -> DeleteEvent | NotifyPod | RetryEvent:
    """For an event with status; ``pod`` and ``node`` are None if they do not exist.

    A container that the pod does not have yet is waited for: the kubelet writes the status after the container ran.
    """
    status = event.status
    assert status is not None  # noqa: S101 - first_action has seen it
    if pod is None:
        return DeleteEvent("the pod is gone")
    if pod.spec.node_name != status.node_name:
        return DeleteEvent("the pod is on another node")
    name = container_name(pod.status, status.container_id)
    if not name:
        left, (shortest, longest) = STATUS_TIMEOUT - waited, STATUS_LOOKS
        pause = min(left, max(shortest, min(waited / 2, longest)))
        return RetryEvent(pause) if left > 0 else DeleteEvent("the pod has no such container")
    if node is None:
        return DeleteEvent("the node is gone")
    architecture = (node.labels or {}).get(names.ARCH_KEY, "unknown architecture")
    note = (
        f"Container {name} ran a program that node {status.node_name} ({architecture})"
        " cannot execute (exec format error): a binary for another architecture, or a script without a #! line."
    )
    labels = pod.metadata.labels or {}
    return NotifyPod(note, is_labelled=labels.get(names.EXEC_FORMAT_ERROR_LABEL) == "true")


def label_patch(uid: str) -> dict[str, Any]:
    """A merge patch; with the uid the API server refuses it (409) if another pod of this name is there by now."""
    return {"metadata": {"uid": uid, "labels": {names.EXEC_FORMAT_ERROR_LABEL: "true"}}}


def container_name(statuses: FailedPodStatus, container_id: str) -> str:
    """The container with this id; "" if none has it. The runtime is not compared: the node side may not know it."""
    digits = container_id.rpartition("/")[2]
    kinds = (statuses.container_statuses, statuses.init_container_statuses, statuses.ephemeral_container_statuses)
    known = (each for kind in kinds for each in kind or ())
    return next((each.name for each in known if digits in _digits(each)), "") if digits else ""


def _digits(status: ContainerStatus) -> set[str]:
    return {each.rpartition("/")[2] for each in status.ids}


# -- uninstall ---------------------------------------------------------------------------------------------------------
# Level-based: each reconcile of the operator observes what is there and takes the next step; nothing is remembered but
# since when the handler is waited for. A step is done when what it removes is gone by a live read.

HANDLER_TIMEOUT: Final = 60.0
"""For the handler to consume the events that are left."""


class ExecMonitorFacts(msgspec.Struct, frozen=True, kw_only=True):
    """What of the monitor exists now."""

    node_side: int
    """Objects with the label ``controller=enoexec-event-daemon``: DaemonSet, ServiceAccount, roles and bindings."""
    failed_events: int
    """ENoExecEvents with an error label, in the operator's namespace."""
    events: int
    """The other ENoExecEvents there."""
    waited: float
    """Seconds since this operator first saw the node side gone and events left; 0 if it does so now."""
    handler_finalizer: bool
    """The finalizer is on the handler's Deployment."""
    handler: int
    """Objects with the label ``controller=enoexec-event-handler-controller``, and the monitor's PrometheusRules."""
    configuration_finalizer: bool
    """The finalizer is on the ClusterPodPlacementConfig."""


class MonitorUninstallStep(Enum):
    """What to do next; its text is for conditions and the log."""

    DELETE_NODE_SIDE = "deleting the DaemonSet enoexec-event-daemon and its rights"
    DELETE_FAILED_EVENTS = "deleting ENoExecEvents that could not be handled"
    WAIT = "waiting for the handler to consume the last ENoExecEvents"
    DELETE_EVENTS = "deleting the ENoExecEvents that the handler did not consume"
    DROP_HANDLER_FINALIZER = "removing the finalizer of the Deployment enoexec-event-handler-controller"
    DELETE_HANDLER = "deleting the handler, its rights, and the monitor's rules"
    DROP_CONFIGURATION_FINALIZER = "removing the monitor's finalizer of the ClusterPodPlacementConfig"
    DONE = "nothing of the monitor is left"


def next_monitor_step(facts: ExecMonitorFacts) -> MonitorUninstallStep:
    """The first step that is not done yet. Without a handler nobody consumes events: they are deleted at once."""
    step = MonitorUninstallStep
    if facts.node_side:
        return step.DELETE_NODE_SIDE
    if facts.failed_events:
        return step.DELETE_FAILED_EVENTS
    if facts.events:
        return step.WAIT if facts.handler and facts.waited < HANDLER_TIMEOUT else step.DELETE_EVENTS
    if facts.handler_finalizer:
        return step.DROP_HANDLER_FINALIZER
    if facts.handler:
        return step.DELETE_HANDLER
    return step.DROP_CONFIGURATION_FINALIZER if facts.configuration_finalizer else step.DONE
