"""The static CPU manager: CPUs for one container alone, hints for the topology manager, reuse after init containers."""

from collections.abc import Collection, Mapping

import msgspec

from polyarch.sandbox.kubelet_model import requests
from polyarch.sandbox.kubelet_model.cpu_assignment import NotEnoughCpus, packed
from polyarch.sandbox.kubelet_model.hints import Hint, Hints
from polyarch.sandbox.kubelet_model.machine import CPU, Node, mask, masks
from polyarch.sandbox.kubelet_model.refusal import Refused
from polyarch.sandbox.kubelet_model.requests import Container, Pod


class Cpus(msgspec.Struct, frozen=True):
    """What the CPU manager remembers."""

    shared: frozenset[int]
    """The CPUs that all other containers run on; the reserved ones are among them."""
    held: Mapping[str, Mapping[str, frozenset[int]]] = {}
    """CPUs by pod uid and container."""
    reusable: tuple[str, frozenset[int]] = ("", frozenset())
    """The pod that was admitted last, and what its init containers leave to its other ones."""

    def reusable_by(self, pod: Pod) -> frozenset[int]:
        return self.reusable[1] if self.reusable[0] == pod.uid else frozenset()


def at_first(node: Node) -> Cpus:
    """Nothing is held."""
    return Cpus(frozenset(node.machine.by_id))


def allocatable(node: Node) -> frozenset[int]:
    """The CPUs that containers may hold."""
    return frozenset(node.machine.by_id) - node.configuration.reserved_cpus


def free(node: Node, state: Cpus) -> frozenset[int]:
    """The CPUs that a container could be given now."""
    return state.shared - node.configuration.reserved_cpus


def hints(node: Node, state: Cpus, pod: Pod, container: Container) -> Hints:
    """For a container."""
    wanted = requests.exclusive_cpus(pod, container)
    if not wanted or node.configuration.cpu_policy == "none":
        return {}
    held = state.held.get(pod.uid, {}).get(container.name)
    if held is not None:
        return {CPU: _hints(node, held, frozenset(), wanted) if len(held) == wanted else []}
    return {CPU: _hints(node, free(node, state), state.reusable_by(pod), wanted)}


def pod_hints(node: Node, state: Cpus, pod: Pod) -> Hints:
    """For a pod as a whole."""
    wanted = requests.pod_exclusive_cpus(pod)
    if not wanted or node.configuration.cpu_policy == "none":
        return {}
    held: frozenset[int] = frozenset()
    for container in pod.all:
        cpus = state.held.get(pod.uid, {}).get(container.name)
        if cpus is not None and len(cpus) != requests.exclusive_cpus(pod, container):
            return {CPU: []}
        held |= cpus or frozenset()
    if len(held) == wanted:
        return {CPU: _hints(node, held, frozenset(), wanted)}
    return {CPU: _hints(node, free(node, state), state.reusable_by(pod) | held, wanted)}


def _hints(node: Node, available: Collection[int], reusable: Collection[int], wanted: int) -> list[Hint]:
    """All sets of cells with enough CPUs; what is reusable must lie in them."""
    cell_of = {cpu.id: cpu.cell for cpu in node.machine.cpus}
    used = mask([cell_of[cpu] for cpu in reusable])
    fewest = len(node.machine.cells_with_cpus)
    found: list[int] = []
    for cells in masks(node.machine.cells_with_cpus):
        if sum(cells >> cpu.cell & 1 for cpu in node.machine.cpus) >= wanted:
            fewest = min(fewest, cells.bit_count())
        enough = len(reusable) + sum(cells >> cell_of[cpu] & 1 for cpu in available) >= wanted
        if enough and used & ~cells == 0:
            found.append(cells)
    return [Hint(cells, cells.bit_count() == fewest) for cells in found]


def allocate(node: Node, state: Cpus, pod: Pod, container: Container, cells: int | None) -> Cpus:
    """Give the container its CPUs, from these cells first. Raises Refused."""
    wanted = requests.exclusive_cpus(pod, container)
    if not wanted or node.configuration.cpu_policy == "none":
        return state
    _check_whole_cores(node, state, wanted)
    held = state.held.get(pod.uid, {}).get(container.name)
    if held is not None:
        return _with_reuse(state, pod, container, held)
    available = free(node, state) | state.reusable_by(pod)
    try:
        chosen = _chosen(node, available, wanted, cells)
    except NotEnoughCpus as problem:
        raise Refused.unexpected(str(problem)) from None
    by_container = {**state.held.get(pod.uid, {}), container.name: chosen}
    shared = state.shared - chosen
    state = msgspec.structs.replace(state, shared=shared, held={**state.held, pod.uid: by_container})
    return _with_reuse(state, pod, container, chosen)


def _chosen(node: Node, available: frozenset[int], wanted: int, cells: int | None) -> frozenset[int]:
    chosen: frozenset[int] = frozenset()
    if cells is not None:
        aligned = frozenset(cpu for cpu in available if cells >> node.machine.by_id[cpu].cell & 1)
        chosen = packed(node.machine, aligned, min(wanted, len(aligned)))
    return chosen | packed(node.machine, available - chosen, wanted - len(chosen))


def _with_reuse(state: Cpus, pod: Pod, container: Container, cpus: frozenset[int]) -> Cpus:
    before = state.reusable_by(pod)
    left = before | cpus if pod.is_ordinary_init(container) else before - cpus
    return msgspec.structs.replace(state, reusable=(pod.uid, left))


def _check_whole_cores(node: Node, state: Cpus, wanted: int) -> None:
    if not node.configuration.full_cores_only:
        return
    machine = node.machine
    if wanted % machine.threads:
        raise Refused(
            "SMTAlignmentError",
            f"SMT Alignment Error: requested {wanted} cpus not multiple cpus per core = {machine.threads}",
        )
    reserved = {machine.by_id[cpu].core for cpu in node.configuration.reserved_cpus}
    whole = sum(machine.by_id[cpu].core not in reserved for cpu in state.shared)
    if wanted > whole:
        raise Refused(
            "SMTAlignmentError",
            f"SMT Alignment Error: not enough free physical CPUs: available physical CPUs = {whole}, "
            f"requested CPUs = {wanted}, CPUs per core = {machine.threads}",
        )


def forget(state: Cpus, active: Collection[str]) -> Cpus:
    """Without the pods that are over."""
    gone = {uid for uid in state.held if uid not in active}
    if not gone:
        return state
    back = frozenset(cpu for uid in gone for cpus in state.held[uid].values() for cpu in cpus)
    kept = {uid: held for uid, held in state.held.items() if uid not in gone}
    return msgspec.structs.replace(state, shared=state.shared | back, held=kept)
