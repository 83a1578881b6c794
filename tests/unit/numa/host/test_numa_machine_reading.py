"""Cells, CPUs, memory, pages and distances as sysfs and procfs show them."""

import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
from machine_trees import CPU, GIB, NODE, CellFiles, MachineTree, two_cells
from manual_clock import ManualClock

from polyarch.numa.facts import Machine
from polyarch.numa.host.machine import MachineReader, UnreadableMachine, host_files

KIB_PER_GIB = 1 << 20


def read(tree: MachineTree) -> tuple[Machine, list[str]]:
    counted: list[str] = []
    return MachineReader(host_files(str(tree.root)), clock=ManualClock(), count=counted.append).read(), counted


@pytest.mark.req("NE-031", "NE-038")
@pytest.mark.parametrize("count", [1, 2, 4, 8])
def test_machines_of_one_two_four_and_eight_cells(tmp_path: Path, count: int):
    memory = [(each + 1) * KIB_PER_GIB for each in range(count)]
    cells = {each: CellFiles(f"{4 * each}-{4 * each + 3}", memory[each]) for each in range(count)}
    machine, counted = read(MachineTree(tmp_path).cells(cells).cpus(f"0-{4 * count - 1}"))
    assert [cell.id for cell in machine.zones] == list(range(count))
    assert [min(cell.cpus) for cell in machine.zones] == [4 * each for each in range(count)]
    assert [cell.memory for cell in machine.zones] == [(each + 1) * GIB for each in range(count)]
    assert all(dict(cell.costs)[cell.id] == 10 and len(cell.costs) == count for cell in machine.zones)
    assert not counted


@pytest.mark.req("NE-031", "NE-034")
def test_ids_with_holes_are_never_places_in_a_list(tmp_path: Path):
    cells = {0: CellFiles("0-1", distance="10 32"), 2: CellFiles("2-3", distance="32 10")}
    machine, _ = read(MachineTree(tmp_path).cells(cells).cpus("0-3"))
    assert [cell.id for cell in machine.zones] == [0, 2]
    assert [cell.costs for cell in machine.zones] == [((0, 10), (2, 32)), ((0, 32), (2, 10))]


@pytest.mark.req("NE-031")
def test_without_a_list_of_cells_their_directories_count(tmp_path: Path):
    cells = {each: CellFiles(f"{each}") for each in (2, 10, 0)}
    tree = MachineTree(tmp_path).cells(cells, online=None).cpus("0-10")
    tree.write(f"{NODE}/power/control", "auto\n")
    assert [cell.id for cell in read(tree)[0].zones] == [0, 2, 10]


@pytest.mark.req("NE-031")
def test_a_cell_that_is_not_online_is_none(tmp_path: Path):
    cells = {0: CellFiles("0-1", distance="10"), 1: CellFiles("2-3")}
    machine, counted = read(MachineTree(tmp_path).cells(cells, online="0").cpus("0-3"))
    assert [cell.id for cell in machine.zones] == [0]
    assert not counted


@pytest.mark.req("NE-032", "NE-038")
def test_offline_cpus_are_in_no_cell(tmp_path: Path):
    machine, _ = read(two_cells(tmp_path).cpus("0-2,5,7"))
    assert [set(cell.cpus) for cell in machine.zones] == [{0, 1, 2}, {5, 7}]


@pytest.mark.req("NE-032")
def test_without_a_list_of_online_cpus_those_of_the_cells_count(tmp_path: Path):
    tree = two_cells(tmp_path)
    tree.remove(f"{CPU}/online")
    assert [len(cell.cpus) for cell in read(tree)[0].zones] == [4, 4]


@pytest.mark.req("NE-032", "NE-038")
def test_a_cell_of_memory_alone_and_one_of_cpus_alone(tmp_path: Path):
    cells = {0: CellFiles("0-3"), 1: CellFiles("", memory_kib=KIB_PER_GIB), 2: CellFiles("4-7", memory_kib=0)}
    machine, counted = read(MachineTree(tmp_path).cells(cells).cpus("0-7"))
    assert [len(cell.cpus) for cell in machine.zones] == [4, 0, 4]
    assert [cell.memory for cell in machine.zones] == [4 * GIB, GIB, 0]
    assert not counted


@pytest.mark.req("NE-033", "NE-038")
@pytest.mark.parametrize(
    ("kernel", "sizes"),
    [
        ("4 KiB pages", {2048: 3, 1048576: 2}),
        ("arm64 with 64 KiB pages", {2048: 1, 524288: 4, 16777216: 1}),
        ("arm64 with 4 KiB pages", {64: 7, 2048: 0, 32768: 1, 1048576: 0}),
        ("ppc64le", {16384: 9, 16777216: 1}),
        ("s390x", {1024: 5, 2097152: 1}),
    ],
)
def test_huge_pages_of_every_size(tmp_path: Path, kernel: str, sizes: dict[int, int]):
    machine, counted = read(MachineTree(tmp_path).cells({0: CellFiles("0", pages=sizes)}).cpus("0"))
    assert machine.zones[0].pages == {kib * 1024: count for kib, count in sizes.items()}
    assert not counted


@pytest.mark.req("NE-033")
def test_a_kernel_without_huge_pages_has_none(tmp_path: Path):
    machine, counted = read(MachineTree(tmp_path).cells({0: CellFiles("0", pages=None)}).cpus("0"))
    assert machine.zones[0].pages == {}
    assert not counted


@pytest.mark.req("NE-034", "NE-038")
def test_distances_need_not_be_symmetric(tmp_path: Path):
    cells = {0: CellFiles("0", distance="10 20"), 1: CellFiles("1", distance="28 10")}
    machine, _ = read(MachineTree(tmp_path).cells(cells).cpus("0-1"))
    assert [cell.costs for cell in machine.zones] == [((0, 10), (1, 20)), ((0, 28), (1, 10))]


@pytest.mark.req("NE-034")
@pytest.mark.parametrize("row", ["10", "10 21 21", "10 far", "", "10 -1"])
def test_a_row_that_does_not_fit_costs_its_own_cell_alone(tmp_path: Path, row: str):
    machine, counted = read(MachineTree(tmp_path).cells({0: CellFiles("0", distance=row), 1: CellFiles("1")}))
    assert [cell.costs for cell in machine.zones] == [(), ((0, 21), (1, 10))]
    assert counted == ["distance"]


@pytest.mark.req("NE-035")
def test_a_kernel_without_cells_has_one(tmp_path: Path):
    tree = MachineTree(tmp_path).cpus("0-5", siblings=["0-1", "2-3", "4-5"])
    tree.write("proc/meminfo", "MemTotal:        8388608 kB\nMemFree:         1 kB\n")
    tree.write("sys/kernel/mm/hugepages/hugepages-1024kB/nr_hugepages", "12\n")
    machine, counted = read(tree)
    (cell,) = machine.zones
    assert (cell.id, cell.cpus, cell.memory) == (0, frozenset(range(6)), 8 * GIB)
    assert (cell.pages, cell.costs) == ({1 << 20: 12}, ((0, 10),))
    assert machine.threads_per_core == 2
    assert not counted


@pytest.mark.req("NE-035")
def test_a_tree_without_cpus_and_cells_is_no_machine(tmp_path: Path):
    with pytest.raises(UnreadableMachine, match="is this the sysfs of a Linux machine"):
        read(MachineTree(tmp_path))


@pytest.mark.req("NE-036")
@pytest.mark.parametrize("content", ["0-", "zero", "3-1", "0-99999999", "0--3", "0,,1"])
def test_without_the_cpus_of_a_cell_there_is_no_scan(tmp_path: Path, content: str):
    tree = two_cells(tmp_path)
    tree.write(f"{NODE}/node1/cpulist", content)
    with pytest.raises(UnreadableMachine, match="node1/cpulist: "):
        read(tree)


@pytest.mark.req("NE-036")
def test_a_cell_without_a_list_of_cpus_is_an_error_that_names_it(tmp_path: Path):
    tree = two_cells(tmp_path)
    tree.remove(f"{NODE}/node1/cpulist")
    with pytest.raises(UnreadableMachine, match=r"node1/cpulist: No such file .* CPUs of cell 1"):
        read(tree)


@pytest.mark.req("NE-036")
def test_memory_and_pages_that_cannot_be_read_are_left_out_and_counted(tmp_path: Path):
    tree = two_cells(tmp_path)
    tree.remove(f"{NODE}/node0/meminfo")
    tree.write(f"{NODE}/node1/meminfo", "Node 1 MemTotal: many kB\n")
    tree.write(f"{NODE}/node1/hugepages/hugepages-2048kB/nr_hugepages", "some\n")
    machine, counted = read(tree)
    assert [cell.memory for cell in machine.zones] == [None, None]
    assert [cell.pages for cell in machine.zones] == [{2 << 20: 0, GIB: 0}, {GIB: 0}]
    assert counted == ["meminfo", "meminfo", "nr_hugepages"]


@pytest.mark.req("NE-036")
@pytest.mark.parametrize("target", ["../../../../../../elsewhere", "/etc/hostname"])
def test_links_that_lead_out_of_the_root_are_not_followed(tmp_path: Path, target: str):
    (tmp_path / "elsewhere").write_text("0-3\n")
    tree = two_cells(tmp_path / "root")
    tree.remove(f"{NODE}/node0/cpulist")
    (tree.root / NODE / "node0/cpulist").symlink_to(target)
    with pytest.raises(UnreadableMachine, match="a symlink leads out of"):
        read(tree)


@pytest.mark.req("NE-036")
def test_links_that_stay_below_the_root_are_followed(tmp_path: Path):
    tree = two_cells(tmp_path)
    (tree.root / "sys/devices").rename(tree.root / "devices")
    (tree.root / "sys/devices").symlink_to("../devices")
    assert len(read(tree)[0].zones) == 2


@pytest.mark.req("NE-036")
def test_all_of_sysfs_may_not_be_a_link_to_another_machine(tmp_path: Path):
    two_cells(tmp_path / "other")
    (tmp_path / "root").mkdir()
    (tmp_path / "root/sys").symlink_to("../other/sys")
    with pytest.raises(UnreadableMachine, match="a symlink leads out of"):
        read(MachineTree(tmp_path / "root"))


@pytest.mark.req("NE-016")
@pytest.mark.parametrize(
    ("packages", "socket"),
    [
        ({0: 1, 1: 1}, 1),
        ({0: 0, 1: 1}, None),
        ({0: -1, 1: -1}, None),
        ({0: 36}, None),
        ({}, None),
    ],
)
def test_a_socket_is_what_all_cpus_of_the_cell_agree_on(tmp_path: Path, packages: dict[int, int], socket: int | None):
    machine, _ = read(MachineTree(tmp_path).cells({0: CellFiles("0-1")}).cpus("0-1", packages=packages))
    assert machine.zones[0].socket == socket


@pytest.mark.req("NE-015")
@pytest.mark.parametrize(
    ("siblings", "threads"),
    [
        pytest.param(["0-1", "2-3", "4-5", "6-7"], 2, id="all cores alike"),
        pytest.param(["0-3", "4-7"], 4, id="four threads"),
        pytest.param(["0-1", "2-3", "4", "5", "6", "7"], 1, id="cores of one thread among cores of two"),
        pytest.param(["0", "1", "2-3", "4-5", "6-7"], 1, id="two cores of one thread"),
        pytest.param(["0", "1", "2", "3", "4", "5", "6", "7"], 1, id="no siblings"),
    ],
)
def test_threads_per_core_are_divided_as_the_kubelet_divides(tmp_path: Path, siblings: list[str], threads: int):
    assert read(two_cells(tmp_path).cpus("0-7", siblings=siblings))[0].threads_per_core == threads


# -- when the layout is read again -------------------------------------------------------------------------------------


class Scans:
    """One scan after the other on a tree, with a clock that is moved by hand."""

    def __init__(self, tree: MachineTree) -> None:
        self.clock = ManualClock()
        self.reader = MachineReader(host_files(str(tree.root)), clock=self.clock)

    def memory(self, kubelet: int = 1) -> int | None:
        """Of the first cell: part of what is read with the layout alone."""
        return self.reader.read(kubelet).zones[0].memory


@pytest.mark.req("NE-037")
def test_pages_are_counted_with_every_scan_and_the_layout_is_kept(tmp_path: Path):
    tree = two_cells(tmp_path)
    scans = Scans(tree)
    assert scans.memory() == 4 * GIB
    tree.write(f"{NODE}/node0/meminfo", "Node 0 MemTotal: 1048576 kB\n")
    tree.write(f"{NODE}/node0/hugepages/hugepages-1048576kB/nr_hugepages", "2\n")
    machine = scans.reader.read(1)
    assert machine.zones[0].memory == 4 * GIB
    assert machine.zones[0].pages == {2 << 20: 0, GIB: 2}


@pytest.mark.req("NE-037")
def test_hot_plugged_cpus_and_cells_are_seen_by_the_next_scan(tmp_path: Path):
    tree = two_cells(tmp_path).cpus("0-6")
    scans = Scans(tree)
    assert len(scans.reader.read(1).zones[1].cpus) == 3
    tree.cpus("0-7")
    assert len(scans.reader.read(1).zones[1].cpus) == 4
    tree.cells({0: CellFiles("0-3"), 1: CellFiles("4-7"), 2: CellFiles("")})
    assert len(scans.reader.read(1).zones) == 3


@pytest.mark.req("NE-037")
def test_a_new_kubelet_socket_and_ten_minutes_each_read_the_layout_again(tmp_path: Path):
    tree = two_cells(tmp_path)
    scans = Scans(tree)
    assert scans.memory(kubelet=1) == 4 * GIB
    tree.write(f"{NODE}/node0/meminfo", "Node 0 MemTotal: 1048576 kB\n")
    assert scans.memory(kubelet=1) == 4 * GIB
    assert scans.memory(kubelet=2) == GIB
    tree.write(f"{NODE}/node0/meminfo", "Node 0 MemTotal: 2097152 kB\n")
    scans.clock.advance(599)
    assert scans.memory(kubelet=2) == GIB
    scans.clock.advance(1)
    assert scans.memory(kubelet=2) == 2 * GIB


@pytest.mark.req("NE-037")
def test_after_a_failure_the_next_scan_starts_afresh(tmp_path: Path):
    tree = two_cells(tmp_path)
    scans = Scans(tree)
    scans.memory()
    tree.write(f"{CPU}/online", "0-\n")
    with pytest.raises(UnreadableMachine):
        scans.memory()
    tree.write(f"{CPU}/online", "0-7\n")
    tree.write(f"{NODE}/node0/meminfo", "Node 0 MemTotal: 1048576 kB\n")
    assert scans.memory() == GIB


# -- one option moves everything ---------------------------------------------------------------------------------------

SPY = """
import os, sys
from polyarch.clock import SystemClock
from polyarch.numa.host.machine import MachineReader, host_files

opened = []
sys.addaudithook(lambda event, args: opened.append(str(args[0])) if event in ("open", "os.listdir") else None)
machine = MachineReader(host_files(*sys.argv[1:]), clock=SystemClock()).read()
print(len(machine.zones), *opened, sep="\\n")
"""


def spied(*arguments: str) -> tuple[int, list[str]]:
    ran = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(SPY), *arguments], capture_output=True, text=True, check=True
    )
    cells, *opened = ran.stdout.splitlines()
    return int(cells), opened


@pytest.mark.req("NE-030")
def test_below_a_root_nothing_else_is_opened(tmp_path: Path):
    """The option for sysfs was ignored for memory and pages."""
    two_cells(tmp_path)
    cells, opened = spied(str(tmp_path))
    assert cells == 2
    assert len(opened) > 10
    assert [path for path in opened if not path.startswith(f"{tmp_path}/")] == []


@pytest.mark.req("NE-030")
def test_sysfs_elsewhere_replaces_all_of_it(tmp_path: Path):
    two_cells(tmp_path / "moved")
    MachineTree(tmp_path / "root").cells({0: CellFiles("0")}).cpus("0")
    cells, opened = spied(str(tmp_path / "root"), str(tmp_path / "moved/sys"))
    assert cells == 2
    assert {path.removeprefix(f"{tmp_path}/").split("/")[0] for path in opened} == {"moved"}


@pytest.mark.req("NE-030")
def test_the_machine_itself_is_the_default():
    machine = MachineReader(host_files(), clock=ManualClock()).read()
    assert sum(len(cell.cpus) for cell in machine.zones) == os.sysconf("SC_NPROCESSORS_ONLN")
    assert all(cell.memory for cell in machine.zones)
