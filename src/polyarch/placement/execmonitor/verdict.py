"""What the handler does with an ENoExecEvent (PL-610). Pure.

:func:`triage` needs the event alone; :func:`judge` also the pod and the node that it names, as they are now.
"""

from typing import Any, Final

import msgspec

from polyarch.objects import ObjectMeta
from polyarch.placement import names
from polyarch.placement.api.resources import ENoExecEvent

STATUS_SECONDS: Final = 60.0
"""How long an event may be without status: the node side writes it after the object."""
GIVE_UP_SECONDS: Final = 600.0
"""How long a failing event is retried."""
WRONG_NAMESPACE: Final = "wrong-namespace"
POD_NOT_FOUND: Final = "pod-not-found"
RECONCILIATION_ERROR: Final = "reconciliation-error"


class ContainerStatus(msgspec.Struct, frozen=True, gc=False, rename={"container_id": "containerID"}):
    """core/v1 ContainerStatus."""

    name: str = ""
    container_id: str = ""


class Status(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    """core/v1 PodStatus: only the containers."""

    container_statuses: list[ContainerStatus] | None = None
    init_container_statuses: list[ContainerStatus] | None = None
    ephemeral_container_statuses: list[ContainerStatus] | None = None


class Spec(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    """core/v1 PodSpec: only the node."""

    node_name: str = ""


class FailedPod(msgspec.Struct, frozen=True, gc=False):
    """core/v1 Pod."""

    metadata: ObjectMeta = ObjectMeta()
    spec: Spec = Spec()
    status: Status = Status()


class Ignore(msgspec.Struct, frozen=True):
    """Nothing is done."""


class Wait(msgspec.Struct, frozen=True):
    """The event is looked at again after these seconds."""

    seconds: float


class Label(msgspec.Struct, frozen=True):
    """The event stays, with this error label."""

    error: str


class LookUp(msgspec.Struct, frozen=True):
    """Read the pod and the node."""


class Discard(msgspec.Struct, frozen=True):
    """The event is deleted, as it is about nothing that is there now."""

    because: str


class Tell(msgspec.Struct, frozen=True):
    """The pod gets an event with this note and, if it has none, the label; then the ENoExecEvent is deleted."""

    note: str
    is_labelled: bool


def triage(event: ENoExecEvent, *, home: str, waited: float) -> Ignore | Wait | Label | LookUp:
    """``home``: the operator's namespace. ``waited``: seconds since the handler first saw the event."""
    labels = event.metadata.labels or {}
    error = labels.get(names.ENOEXEC_EVENT_ERROR_LABEL)
    if event.metadata.deletion_timestamp is not None or error in (WRONG_NAMESPACE, RECONCILIATION_ERROR):
        return Ignore()
    if event.metadata.namespace != home:
        return Label(WRONG_NAMESPACE)
    status = event.status
    if status is not None and status.pod_name and status.pod_namespace and status.node_name:
        return LookUp()
    if error is not None:
        return Ignore()
    return Label(POD_NOT_FOUND) if waited >= STATUS_SECONDS else Wait(STATUS_SECONDS - waited)


def judge(event: ENoExecEvent, pod: FailedPod | None, node: ObjectMeta | None) -> Discard | Tell:
    """For an event with status; ``pod`` and ``node`` are None if they do not exist."""
    status = event.status
    assert status is not None  # noqa: S101 - triage has seen it
    if pod is None:
        return Discard("the pod is gone")
    if pod.spec.node_name != status.node_name:
        return Discard("the pod is on another node")
    if node is None:
        return Discard("the node is gone")
    name = container_name(pod.status, status.container_id)
    architecture = (node.labels or {}).get(names.ARCH_KEY, "unknown architecture")
    note = (
        f"{f'Container {name}' if name else 'A container'} ran a program that node {status.node_name} ({architecture})"
        " cannot execute (exec format error): a binary for another architecture, or a script without a #! line."
    )
    labels = pod.metadata.labels or {}
    return Tell(note, is_labelled=labels.get(names.EXEC_FORMAT_ERROR_LABEL) == "true")


def label_patch(uid: str) -> dict[str, Any]:
    """A merge patch; with the uid the API server refuses it (409) if another pod of this name is there by now."""
    return {"metadata": {"uid": uid, "labels": {names.EXEC_FORMAT_ERROR_LABEL: "true"}}}


def container_name(statuses: Status, container_id: str) -> str:
    """The container with this id; "" if none has it. The runtime is not compared: the node side may not know it."""
    digits = container_id.rpartition("/")[2]
    kinds = (statuses.container_statuses, statuses.init_container_statuses, statuses.ephemeral_container_statuses)
    known = (each for kind in kinds for each in kind or ())
    return next((each.name for each in known if digits and each.container_id.rpartition("/")[2] == digits), "")
