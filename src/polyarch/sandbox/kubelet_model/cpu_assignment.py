"""Which CPUs a container gets out of those that are free: the "packed" order of the kubelet's static CPU manager.

Whole cells or sockets first (whichever are larger), then whole cores, then single CPUs; always from where the fewest
are left, so that large pieces stay whole for others.
"""

from collections.abc import Callable, Collection, Iterable, Iterator

from polyarch.sandbox.kubelet_model.machine import Cpu, Machine


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
