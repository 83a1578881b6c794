"""The device manager: devices of plugins for containers, and hints where the plugin tells their cells."""

from collections.abc import Collection, Iterable, Mapping, Sequence

import msgspec

from polyarch.sandbox.kubelet_model import requests
from polyarch.sandbox.kubelet_model.machine import Device, Node, mask, masks, members
from polyarch.sandbox.kubelet_model.requests import Container, Pod, PodRejected
from polyarch.sandbox.kubelet_model.topology_manager import Hints, TopologyHint

HeldDevices = Mapping[str, Mapping[str, Mapping[str, frozenset[str]]]]
"""Device ids by pod uid, container and resource."""


class DeviceManagerState(msgspec.Struct, frozen=True):
    """What the device manager remembers."""

    held: HeldDevices = {}
    reusable: tuple[str, Mapping[str, frozenset[str]]] = ("", {})
    """The pod that was admitted last, and what its init containers leave to its other ones, by resource."""

    def of(self, pod: Pod, container: Container, resource: str) -> frozenset[str] | None:
        return self.held.get(pod.uid, {}).get(container.name, {}).get(resource)

    def reusable_by(self, pod: Pod) -> Mapping[str, frozenset[str]]:
        return self.reusable[1] if self.reusable[0] == pod.uid else {}

    def taken(self, resource: str) -> frozenset[str]:
        of_resource = (
            by_resource.get(resource, frozenset())
            for by_container in self.held.values()
            for by_resource in by_container.values()
        )
        return frozenset().union(*of_resource)


def hints(node: Node, state: DeviceManagerState, pod: Pod, container: Container) -> Hints:
    """For a container."""
    found: dict[str, Sequence[TopologyHint] | None] = {}
    for resource, wanted in requests.container_devices(container, node.machine.resources).items():
        held = state.of(pod, container, resource) or frozenset()
        reusable = state.reusable_by(pod).get(resource, frozenset())
        found[resource] = _hints(node, state, resource, wanted, held, reusable)
    return found


def pod_hints(node: Node, state: DeviceManagerState, pod: Pod) -> Hints:
    """For a pod as a whole."""
    found: dict[str, Sequence[TopologyHint] | None] = {}
    for resource, wanted in requests.pod_devices(pod, node.machine.resources).items():
        every = (state.of(pod, container, resource) or frozenset() for container in pod.all)
        found[resource] = _hints(node, state, resource, wanted, frozenset().union(*every), frozenset())
    return found


def _hints(
    node: Node, state: DeviceManagerState, resource: str, wanted: int, held: frozenset[str], reusable: frozenset[str]
) -> Sequence[TopologyHint] | None:
    devices = {device.id: device for device in node.machine.devices_of(resource)}
    if not any(device.cells for device in devices.values()):
        return None
    if held:
        same = [devices[each] for each in held if each in devices]
        return _hints_from(devices.values(), same, [], wanted) if len(held) == wanted else []
    available = devices.keys() - state.taken(resource)
    if len(available | reusable) < wanted:
        return []
    return _hints_from(
        devices.values(), [devices[each] for each in available], [devices[each] for each in reusable], wanted
    )


def _hints_from(
    every: Collection[Device], available: Iterable[Device], reusable: Iterable[Device], wanted: int
) -> list[TopologyHint]:
    """All sets of cells with enough devices; what is reusable must lie in them."""
    cells_of = {device.id: mask(device.cells) for device in every}
    possible = members(mask([cell for device in every for cell in device.cells]))
    bound = [cells_of[device.id] for device in reusable if device.cells]
    at_hand = bound + [cells_of[device.id] for device in available]
    fewest = len(possible)
    found: list[int] = []
    for cells in masks(possible):
        if sum(bool(cells & of) for of in cells_of.values()) >= wanted:
            fewest = min(fewest, cells.bit_count())
        if all(cells & of for of in bound) and sum(bool(cells & of) for of in at_hand) >= wanted:
            found.append(cells)
    return [TopologyHint(cells, cells.bit_count() == fewest) for cells in found]


def allocate(
    node: Node, state: DeviceManagerState, pod: Pod, container: Container, cells: int | None
) -> DeviceManagerState:
    """Give the container its devices, from these cells first. Raises PodRejected."""
    chosen: dict[str, frozenset[str]] = {}
    for resource, wanted in requests.container_devices(container, node.machine.resources).items():
        held = state.of(pod, container, resource)
        if held is not None and len(held) != wanted:
            raise PodRejected.unexpected(
                f'pod "{pod.uid}" container "{container.name}" changed request for resource "{resource}" '
                f"from {len(held)} to {wanted}"
            )
        if held is None and wanted:
            chosen[resource] = _chosen(node, state, pod, resource, wanted, cells)
    by_container = dict(state.held.get(pod.uid, {}))
    if chosen:
        by_container[container.name] = {**by_container.get(container.name, {}), **chosen}
        state = msgspec.structs.replace(state, held={**state.held, pod.uid: by_container})
    return _with_reuse(state, pod, container, by_container.get(container.name, {}))


def _chosen(
    node: Node, state: DeviceManagerState, pod: Pod, resource: str, wanted: int, cells: int | None
) -> frozenset[str]:
    again = sorted(state.reusable_by(pod).get(resource, frozenset()))[:wanted]
    left = wanted - len(again)
    devices = {device.id: device for device in node.machine.devices_of(resource)}
    available = devices.keys() - state.taken(resource)
    if len(available) < left:
        raise PodRejected.unexpected(
            f"requested number of devices unavailable for {resource}. Requested: {left}, Available: {len(available)}"
        )

    def distance(name: str) -> tuple[int, str]:
        device = devices[name]
        if cells is None:
            return 0, name
        if not device.cells:
            return 2, name
        return (0 if mask(device.cells) & cells else 1), name

    return frozenset(again) | frozenset(sorted(available, key=distance)[:left])


def _with_reuse(
    state: DeviceManagerState, pod: Pod, container: Container, devices: Mapping[str, frozenset[str]]
) -> DeviceManagerState:
    left = dict(state.reusable_by(pod))
    is_init = pod.is_ordinary_init(container)
    for resource, ids in devices.items():
        before = left.get(resource, frozenset())
        left[resource] = before | ids if is_init else before - ids
    return msgspec.structs.replace(state, reusable=(pod.uid, left))


def forget(state: DeviceManagerState, active: Collection[str]) -> DeviceManagerState:
    """Without the pods that are over."""
    kept = {uid: held for uid, held in state.held.items() if uid in active}
    return state if len(kept) == len(state.held) else msgspec.structs.replace(state, held=kept)
