"""A machine of two cells, what its kubelet may hand out, and pods that hold some of it: for tests of the pure rules."""

from collections.abc import Iterable

from polyarch.numa.facts import (
    Allocatable,
    Container,
    Devices,
    HostZone,
    ListedPod,
    Machine,
    MemoryBlock,
    ScanFacts,
    ScanSettings,
)

GIB = 1 << 30
MACHINE = Machine(
    zones=(
        HostZone(id=0, cpus=frozenset(range(4)), memory=4 * GIB, pages={}, costs=((0, 10), (1, 21))),
        HostZone(id=1, cpus=frozenset(range(4, 8)), memory=4 * GIB, pages={}, costs=((0, 21), (1, 10))),
    )
)
ALLOCATABLE = Allocatable(
    cpus=(1, 2, 3, 4, 5, 6, 7),
    memory=(MemoryBlock("memory", 3 * GIB, (0,)), MemoryBlock("memory", 4 * GIB, (1,))),
    devices=(Devices("vendor.example/nic", ("a",), (0,)), Devices("vendor.example/nic", ("b",), (0, 1))),
)
LISTING_ONLY = ScanSettings(usage_source="podresources")


def pod(
    name: str,
    *,
    cpus: Iterable[int] = (),
    memory: Iterable[MemoryBlock] = (),
    devices: Iterable[Devices] = (),
    namespace: str = "default",
    container: str = "app",
) -> ListedPod:
    held = Container(name=container, cpus=tuple(cpus), memory=tuple(memory), devices=tuple(devices))
    return ListedPod(namespace, name, (held,))


def facts(*pods: ListedPod, allocatable: Allocatable = ALLOCATABLE, machine: Machine = MACHINE) -> ScanFacts:
    return ScanFacts(machine=machine, allocatable=allocatable, pods=pods)
