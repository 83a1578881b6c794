"""The static CPU manager: CPUs for one container alone, hints for the topology manager, reuse after init containers.

``packed`` is the kubelet's order of choice: whole zones or sockets first (whichever are larger), then whole cores, then
single CPUs; always from where the fewest are left, so that large pieces stay whole for others.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping

import msgspec

from polyarch.sandbox.kubelet_model import requests
from polyarch.sandbox.kubelet_model.machine import CPU, Cpu, Machine, Node, mask, masks
from polyarch.sandbox.kubelet_model.requests import Container, Pod, PodRejected
from polyarch.sandbox.kubelet_model.topology_manager import Hints, TopologyHint


class NotEnoughCpus(Exception):  # noqa: N818 - what is wrong
    """Fewer CPUs are free than are asked for; the text is the kubelet's."""


def packed(machine: Machine, free: Collection[int], count: int) -> frozenset[int]:
    """``count`` of the free CPUs."""
    if count < 1:
        return frozenset()
    if count > len(free):
        raise NotEnoughCpus(f"not enough cpus available to satisfy request: requested={count}, available={len(free)}")
    return _Assignment(machine, free, count).result()


class _Group:
    """Cells, sockets or cores: which CPUs belong to one of them."""

    def __init__(self, machine: Machine, of: Callable[[Cpu], int]) -> None:
        self.of = of
        self.all: dict[int, set[int]] = {}
        for cpu in machine.cpus:
            self.all.setdefault(of(cpu), set()).add(cpu.id)


class _Assignment:
    """One choice, as it grows."""

    def __init__(self, machine: Machine, free: Collection[int], count: int) -> None:
        self._machine = machine
        self._free = set(free)
        self._left = count
        self._taken: set[int] = set()
        self._cells = _Group(machine, lambda cpu: cpu.cell)
        self._sockets = _Group(machine, lambda cpu: cpu.socket)
        self._cores = _Group(machine, lambda cpu: cpu.core)
        self._outer, self._inner = self._cells, self._sockets
        if len(self._sockets.all) < len(self._cells.all):
            self._outer, self._inner = self._sockets, self._cells

    def result(self) -> frozenset[int]:
        self._take_whole(self._sorted(self._outer), self._outer)
        self._take_whole(self._nested(self._inner), self._inner)
        self._take_whole(self._sorted_cores(), self._cores)
        for core in self._sorted_cores():
            for cpu in sorted(self._cores.all[core] & self._free):
                if self._left:
                    self._take({cpu})
        return frozenset(self._taken)

    def _take(self, cpus: set[int]) -> None:
        self._taken |= cpus
        self._free -= cpus
        self._left -= len(cpus)

    def _take_whole(self, ids: Iterable[int], group: _Group) -> None:
        """Take each of these of which all CPUs are free, as long as that many are wanted."""
        whole = [each for each in ids if self._is_free(each, group)]
        for each in whole:
            if self._left and self._left >= len(group.all[each]):
                self._take(group.all[each])

    def _is_free(self, one: int, group: _Group) -> bool:
        free = len(group.all[one] & self._free)
        if group is self._cells:
            return free == len(group.all[one])
        # Of sockets and cores the kubelet takes all to be as large as the average.
        return free == len(self._machine.cpus) // len(group.all)

    def _sorted(self, group: _Group, within: Collection[int] | None = None) -> list[int]:
        """Those with free CPUs, the ones with the fewest first; only of CPUs ``within``, if given."""
        free = self._free if within is None else self._free & set(within)
        ids = {group.of(self._machine.by_id[cpu]) for cpu in free}
        return sorted(ids, key=lambda each: (len(group.all[each] & self._free), each))

    def _nested(self, group: _Group) -> Iterator[int]:
        for outer in self._sorted(self._outer):
            yield from self._sorted(group, self._outer.all[outer])

    def _sorted_cores(self) -> list[int]:
        return [
            core for inner in self._nested(self._inner) for core in self._sorted(self._cores, self._inner.all[inner])
        ]


# -- the manager -------------------------------------------------------------------------------------------------------


class CpuManagerState(msgspec.Struct, frozen=True):
    """What the CPU manager remembers."""

    shared: frozenset[int]
    """The CPUs that all other containers run on; the reserved ones are among them."""
    held: Mapping[str, Mapping[str, frozenset[int]]] = {}
    """CPUs by pod uid and container."""
    reusable: tuple[str, frozenset[int]] = ("", frozenset())
    """The pod that was admitted last, and what its init containers leave to its other ones."""

    def reusable_by(self, pod: Pod) -> frozenset[int]:
        return self.reusable[1] if self.reusable[0] == pod.uid else frozenset()


def at_first(node: Node) -> CpuManagerState:
    """Nothing is held."""
    return CpuManagerState(frozenset(node.machine.by_id))


def allocatable(node: Node) -> frozenset[int]:
    """The CPUs that containers may hold."""
    return frozenset(node.machine.by_id) - node.configuration.reserved_cpus


def free(node: Node, state: CpuManagerState) -> frozenset[int]:
    """The CPUs that a container could be given now."""
    return state.shared - node.configuration.reserved_cpus


def hints(node: Node, state: CpuManagerState, pod: Pod, container: Container) -> Hints:
    """For a container."""
    wanted = requests.exclusive_cpus(pod, container)
    if not wanted or node.configuration.cpu_policy == "none":
        return {}
    held = state.held.get(pod.uid, {}).get(container.name)
    if held is not None:
        return {CPU: _hints(node, held, frozenset(), wanted) if len(held) == wanted else []}
    return {CPU: _hints(node, free(node, state), state.reusable_by(pod), wanted)}


def pod_hints(node: Node, state: CpuManagerState, pod: Pod) -> Hints:
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


def _hints(node: Node, available: Collection[int], reusable: Collection[int], wanted: int) -> list[TopologyHint]:
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
    return [TopologyHint(cells, cells.bit_count() == fewest) for cells in found]


def allocate(node: Node, state: CpuManagerState, pod: Pod, container: Container, cells: int | None) -> CpuManagerState:
    """Give the container its CPUs, from these cells first. Raises PodRejected."""
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
        raise PodRejected.unexpected(str(problem)) from None
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


def _with_reuse(state: CpuManagerState, pod: Pod, container: Container, cpus: frozenset[int]) -> CpuManagerState:
    before = state.reusable_by(pod)
    left = before | cpus if pod.is_ordinary_init(container) else before - cpus
    return msgspec.structs.replace(state, reusable=(pod.uid, left))


def _check_whole_cores(node: Node, state: CpuManagerState, wanted: int) -> None:
    if not node.configuration.full_cores_only:
        return
    machine = node.machine
    if wanted % machine.threads:
        raise PodRejected(
            "SMTAlignmentError",
            f"SMT Alignment Error: requested {wanted} cpus not multiple cpus per core = {machine.threads}",
        )
    reserved = {machine.by_id[cpu].core for cpu in node.configuration.reserved_cpus}
    whole = sum(machine.by_id[cpu].core not in reserved for cpu in state.shared)
    if wanted > whole:
        raise PodRejected(
            "SMTAlignmentError",
            f"SMT Alignment Error: not enough free physical CPUs: available physical CPUs = {whole}, "
            f"requested CPUs = {wanted}, CPUs per core = {machine.threads}",
        )


def forget(state: CpuManagerState, active: Collection[str]) -> CpuManagerState:
    """Without the pods that are over."""
    gone = {uid for uid in state.held if uid not in active}
    if not gone:
        return state
    back = frozenset(cpu for uid in gone for cpus in state.held[uid].values() for cpu in cpus)
    kept = {uid: held for uid, held in state.held.items() if uid not in gone}
    return msgspec.structs.replace(state, shared=state.shared | back, held=kept)
