"""The machine as of now: a layout that is kept while nothing says that it has changed, and fresh counts of huge pages
(NE-037).

Reading a layout takes two or three files per CPU, so a large machine would spend a scan's whole budget on what changes
once a year. CPUs that come or go change the content of ``cpu/online``, which is read with each scan.
"""

from collections.abc import Hashable
from typing import Final

import msgspec

from polyarch.clock import Clock
from polyarch.numa.decide.facts import Cell, Machine
from polyarch.numa.host.machine.layout import Count, Layout, PageCount, UnreadableMachine, online, read_layout
from polyarch.numa.host.tree import HostFiles, Tree

__all__ = ["MachineReader", "UnreadableMachine", "read_machine"]

LAYOUT_SECONDS: Final = 600.0
"""A layout is read again after this time, whatever happens."""


def read_machine(files: HostFiles, count: Count = lambda _: None) -> Machine:
    """The machine, read once. Raises UnreadableMachine (NE-036); ``count`` gets the files that were left out."""
    return _machine(files.sysfs, read_layout(files, count), count)


class MachineReader:
    """The machine for one scan after the other."""

    def __init__(self, files: HostFiles, *, clock: Clock, count: Count = lambda _: None) -> None:
        self._files = files
        self._clock = clock
        self._count = count
        self._layout: Layout | None = None
        self._kubelet: Hashable = None
        self._due = 0.0

    def read(self, kubelet: Hashable = None) -> Machine:
        """The machine as of now. ``kubelet`` is the identity of the kubelet's socket: a restarted kubelet has another
        one. Raises UnreadableMachine; the next call starts afresh then.
        """
        layout, self._layout = self._layout, None
        now = self._clock.monotonic()
        if layout is None or kubelet != self._kubelet or now >= self._due or online(self._files.sysfs) != layout.online:
            layout = read_layout(self._files, self._count)
            self._kubelet, self._due = kubelet, now + LAYOUT_SECONDS
        machine = _machine(self._files.sysfs, layout, self._count)
        self._layout = layout
        return machine


def _machine(sysfs: Tree, layout: Layout, count: Count) -> Machine:
    cells = zip(layout.cells, layout.pages, strict=True)
    return Machine(
        cells=tuple(_counted(sysfs, cell, pages, count) for cell, pages in cells),
        threads_per_core=layout.threads_per_core,
    )


def _counted(sysfs: Tree, cell: Cell, pages: tuple[PageCount, ...] | None, count: Count) -> Cell:
    """The cell with the number of its pages of each size; a size whose number cannot be read is left out (NE-036)."""
    if pages is None:
        return cell
    found: dict[int, int] = {}
    for each in pages:
        try:
            text = sysfs.text(each.path).strip()
        except OSError:
            text = ""
        if text.isascii() and text.isdigit():
            found[each.size] = int(text)
        else:
            count("nr_hugepages")
    return msgspec.structs.replace(cell, pages=found)
