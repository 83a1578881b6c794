"""Whether a kubelet admits a pod that is bound to its node, and what the pod's containers then hold.

The topology manager asks the device, CPU and memory managers for hints, merges them, and lets each manager allocate:
per container, or for the pod as a whole first. Then come the scheduler's rules that the kubelet applies, too: the
sums of the node, node affinity, host ports and taints. What was allocated for a pod that is refused stays until the
managers forget it as they forget pods that are over."""

import math
from collections.abc import Collection, Iterable, Sequence
from fractions import Fraction
from typing import Final

import msgspec

from polyarch.sandbox.kubelet_model import cpu_manager, device_manager, machine, memory_manager, requests
from polyarch.sandbox.kubelet_model.cpu_manager import CpuManagerState
from polyarch.sandbox.kubelet_model.device_manager import DeviceManagerState
from polyarch.sandbox.kubelet_model.machine import CPU, MEMORY, Node
from polyarch.sandbox.kubelet_model.memory_manager import MemoryManagerState
from polyarch.sandbox.kubelet_model.requests import BARE_NODE, Container, NodeObject, Pod, PodRejected
from polyarch.sandbox.kubelet_model.topology_manager import NOTHING, Hints, TopologyHint, merge


class ManagerStates(msgspec.Struct, frozen=True):
    """What all managers remember."""

    cpus: CpuManagerState
    memory: MemoryManagerState
    devices: DeviceManagerState


def at_first(node: Node) -> ManagerStates:
    """Nothing is held."""
    return ManagerStates(cpu_manager.at_first(node), memory_manager.at_first(node), DeviceManagerState())


def forget(held: ManagerStates, active: Collection[str]) -> ManagerStates:
    """Without the pods that are over. A kubelet does this before it admits the next pod, for CPUs also every few
    seconds (``cpuManagerReconcilePeriod``), for devices also before it lists them."""
    return ManagerStates(
        cpu_manager.forget(held.cpus, active),
        memory_manager.forget(held.memory, active),
        device_manager.forget(held.devices, active),
    )


def admit(
    node: Node,
    held: ManagerStates,
    pod: Pod,
    others: Iterable[Pod],
    seen: NodeObject = BARE_NODE,
    *,
    kept: Collection[str] = (),
) -> tuple[ManagerStates, PodRejected | None]:
    """Admit the pod beside the ``others``, which are admitted and not over, to the node as it is ``seen``. ``kept``:
    the uids of pods that are not forgotten, whatever has become of them."""
    others = list(others)
    held, refused = align(node, held, pod, {pod.uid, *(other.uid for other in others), *kept})
    return held, refused or misfit(node, pod, others, seen)


def misfit(node: Node, pod: Pod, others: Iterable[Pod], seen: NodeObject = BARE_NODE) -> PodRejected | None:
    """The rules that have nothing to do with zones; None: the pod fits."""
    others = list(others)
    return _foreign(pod) or _beyond(node, pod, others) or _misplaced(pod, others, seen)


def align(
    node: Node, held: ManagerStates, pod: Pod, active: Collection[str]
) -> tuple[ManagerStates, PodRejected | None]:
    """The topology manager's part of an admission. Pods that are not ``active`` are forgotten by every manager that is
    asked: all are asked for hints, unless the policy is none."""
    if node.configuration.topology_policy != "none":
        held = forget(held, active)
    is_by_pod = node.configuration.topology_scope == "pod"
    try:
        for_pod = _hint(node, _pod_hints(node, held, pod)) if is_by_pod else None
        for container in pod.all:
            hint = for_pod or _hint(node, _hints(node, held, pod, container))
            for tidied, allocated in _MANAGERS:
                held = tidied(node, held, container, active)
                held = allocated(node, held, pod, container, hint)
    except PodRejected as refused:
        return held, refused
    return held, None


def started(held: ManagerStates, pod: Pod, container: str) -> ManagerStates:
    """A container of the pod has been created."""
    return msgspec.structs.replace(held, memory=memory_manager.started(held.memory, pod, container))


def _hint(node: Node, hints: Sequence[Hints]) -> TopologyHint:
    if node.configuration.topology_policy == "none":
        return NOTHING
    best, is_admitted = merge(node, hints)
    if not is_admitted:
        raise PodRejected.unaligned()
    return best


def _hints(node: Node, held: ManagerStates, pod: Pod, container: Container) -> list[Hints]:
    return [
        device_manager.hints(node, held.devices, pod, container),
        cpu_manager.hints(node, held.cpus, pod, container),
        memory_manager.hints(node, held.memory, pod, container),
    ]


def _pod_hints(node: Node, held: ManagerStates, pod: Pod) -> list[Hints]:
    return [
        device_manager.pod_hints(node, held.devices, pod),
        cpu_manager.pod_hints(node, held.cpus, pod),
        memory_manager.pod_hints(node, held.memory, pod),
    ]


def _without_devices(node: Node, held: ManagerStates, container: Container, active: Collection[str]) -> ManagerStates:
    """Devices of pods that are over are looked for only when somebody wants devices."""
    if not requests.container_devices(container, node.machine.resources):
        return held
    return msgspec.structs.replace(held, devices=device_manager.forget(held.devices, active))


def _allocate_devices(
    node: Node, held: ManagerStates, pod: Pod, container: Container, hint: TopologyHint
) -> ManagerStates:
    after = device_manager.allocate(node, held.devices, pod, container, hint.cells)
    return msgspec.structs.replace(held, devices=after)


def _without_cpus(_: Node, held: ManagerStates, __: Container, active: Collection[str]) -> ManagerStates:
    return msgspec.structs.replace(held, cpus=cpu_manager.forget(held.cpus, active))


def _allocate_cpus(
    node: Node, held: ManagerStates, pod: Pod, container: Container, hint: TopologyHint
) -> ManagerStates:
    return msgspec.structs.replace(held, cpus=cpu_manager.allocate(node, held.cpus, pod, container, hint.cells))


def _without_memory(_: Node, held: ManagerStates, __: Container, active: Collection[str]) -> ManagerStates:
    return msgspec.structs.replace(held, memory=memory_manager.forget(held.memory, active))


def _allocate_memory(
    node: Node, held: ManagerStates, pod: Pod, container: Container, hint: TopologyHint
) -> ManagerStates:
    return msgspec.structs.replace(held, memory=memory_manager.allocate(node, held.memory, pod, container, hint))


_MANAGERS: Final = (
    (_without_devices, _allocate_devices),
    (_without_cpus, _allocate_cpus),
    (_without_memory, _allocate_memory),
)
"""In the order in which the kubelet asks them: how each tidies up, and allocates."""


OS: Final = "linux"
OS_LABEL: Final = "kubernetes.io/os"


def _foreign(pod: Pod) -> PodRejected | None:
    """The pod must be for this operating system."""
    if pod.placement.os_label not in ("", OS):
        text = f"Failed to admit pod as the `{OS_LABEL}` label doesn't match node label"
        return PodRejected("PodOSSelectorNodeLabelDoesNotMatch", text)
    if pod.placement.os not in ("", OS):
        return PodRejected("PodOSNotSupported", "Failed to admit pod as the OS field doesn't match node OS")
    return None


def _misplaced(pod: Pod, others: Iterable[Pod], seen: NodeObject) -> PodRejected | None:
    """The node must be one that the pod wants, with ports for it and without taints against it."""
    if not seen.suits(pod):
        return PodRejected.predicate("NodeAffinity", "node(s) didn't match Pod's node affinity/selector")
    taken = [port for other in others for port in other.placement.host_ports]
    if any(wanted.meets(port) for wanted in pod.placement.host_ports for port in taken):
        return PodRejected.predicate("NodePorts", "node(s) didn't have free ports for the requested pod ports")
    if seen.repels(pod):
        return PodRejected.predicate("TaintToleration", "node(s) had taints that the pod didn't tolerate")
    return None


def _beyond(node: Node, pod: Pod, others: Sequence[Pod]) -> PodRejected | None:
    """The node's allocatable must be enough for all pods together; devices that the node does not have are not its
    matter."""
    allocatable = machine.allocatable(node)
    if len(others) >= allocatable["pods"]:
        return _short("pods", 1, len(others), int(allocatable["pods"]))
    wanted = requests.scheduled(pod)
    used: dict[str, Fraction] = {}
    for other in others:
        for name, amount in requests.scheduled(other).items():
            used[name] = used.get(name, Fraction(0)) + amount
    for name in sorted(wanted, key=_turn):
        there = allocatable.get(name)
        if there is None and "/" in name:
            continue
        if wanted[name] > 0 and wanted[name] > (there or 0) - used.get(name, 0):
            unit = 1000 if name == CPU else 1
            asked, taken = math.ceil(wanted[name] * unit), math.ceil(used.get(name, 0) * unit)
            return _short(name, asked, taken, int((there or 0) * unit))
    return None


def _turn(name: str) -> tuple[int, str]:
    first = (CPU, MEMORY, machine.EPHEMERAL_STORAGE)
    return (first.index(name) if name in first else len(first)), name


def _short(name: str, asked: int, used: int, there: int) -> PodRejected:
    text = f"Node didn't have enough resource: {name}, requested: {asked}, used: {used}, capacity: {there}"
    return PodRejected(f"OutOf{name}", text)
