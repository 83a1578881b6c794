"""From facts to zones: what a scheduler will read of each cell."""

import pytest
from msgspec.structs import replace
from numa_facts import ALLOCATABLE, GIB, LISTING_ONLY, MACHINE, facts, pod

from polyarch.numa.exporter.zones import NodeZones, node_zones, page_resource
from polyarch.numa.facts import (
    Allocatable,
    Checkpoints,
    Container,
    ContainerName,
    CpuCheckpoint,
    Devices,
    HostZone,
    ListedPod,
    Machine,
    MemoryBlock,
    MemoryCheckpoint,
    PodPattern,
    ScanSettings,
    ZoneMemoryState,
)
from polyarch.numa.fingerprint import fingerprint

NIC = "example.com/nic"


def of(decided: NodeZones, resource: str) -> list[tuple[int, int, int]]:
    """Capacity, allocatable, available by cell, where the zone lists the resource."""
    return [
        (each.capacity, each.allocatable, each.available)
        for zone in decided.zones
        for each in zone.resources
        if each.resource == resource
    ]


def reasons(decided: NodeZones) -> list[str]:
    return [each.reason for each in decided.warnings]


@pytest.mark.req("NE-019", "NE-063", "NE-073")
def test_the_example_of_two_cells() -> None:
    """NE-073, NE-063, NE-019-row "memory block counted on each of its cells"."""
    holder = pod(
        "holder", cpus=(5, 6), memory=(MemoryBlock("memory", 2 * GIB, (1,)), MemoryBlock("memory", 5 * GIB, (0, 1)))
    )
    decided = node_zones(facts(holder), LISTING_ONLY, "worker")
    assert of(decided, "cpu") == [(4, 3, 3), (4, 4, 2)]
    assert of(decided, "memory") == [(4 * GIB, 3 * GIB, 0), (4 * GIB, 4 * GIB, 0)]
    assert [zone.memory_group for zone in decided.zones] == [(0, 1), (0, 1)]


@pytest.mark.req("NE-063")
def test_single_cells_are_served_first_whatever_the_order_of_the_answer() -> None:
    """The block over both cells finds what the other one leaves."""
    wide, narrow = MemoryBlock("memory", 4 * GIB, (1, 0)), MemoryBlock("memory", 2 * GIB, (0,))
    for order in ((wide, narrow), (narrow, wide)):
        decided = node_zones(facts(pod("holder", memory=order)), LISTING_ONLY, "worker")
        assert of(decided, "memory") == [(4 * GIB, 3 * GIB, 0), (4 * GIB, 4 * GIB, GIB)]


@pytest.mark.req("NE-063")
def test_single_cells_are_served_first_also_those_after_the_first_of_a_group() -> None:
    """What the middle cell has given to its own pod, a block over all three does not find there."""
    machine = Machine(zones=tuple(HostZone(id=cell, memory=4 * GIB) for cell in range(3)))
    allocatable = Allocatable(memory=tuple(MemoryBlock("memory", 4 * GIB, (cell,)) for cell in range(3)))
    wide, narrow = MemoryBlock("memory", 7 * GIB, (0, 1, 2)), MemoryBlock("memory", 2 * GIB, (1,))
    decided = node_zones(
        facts(pod("holder", memory=(wide, narrow)), machine=machine, allocatable=allocatable), LISTING_ONLY, "worker"
    )
    assert of(decided, "memory") == [(4 * GIB, 4 * GIB, 0), (4 * GIB, 4 * GIB, 0), (4 * GIB, 4 * GIB, 3 * GIB)]


@pytest.mark.req("NE-012", "NE-063")
def test_what_fits_nowhere_goes_to_the_last_cell_and_available_is_not_negative() -> None:
    decided = node_zones(facts(pod("holder", memory=[MemoryBlock("memory", 9 * GIB, (0, 1))])), LISTING_ONLY, "worker")
    assert of(decided, "memory") == [(4 * GIB, 3 * GIB, 0), (4 * GIB, 4 * GIB, 0)]
    assert [each.used for zone in decided.zones for each in zone.resources if each.resource == "memory"] == [
        3 * GIB,
        6 * GIB,
    ]


@pytest.mark.req("NE-063")
def test_cells_that_sysfs_does_not_know_are_ignored() -> None:
    """Neither a group nor an amount comes of them."""
    blocks = [MemoryBlock("memory", GIB, (1, 7)), MemoryBlock("memory", GIB, (7,)), MemoryBlock("memory", GIB)]
    decided = node_zones(facts(pod("holder", memory=blocks)), LISTING_ONLY, "worker")
    assert of(decided, "memory") == [(4 * GIB, 3 * GIB, 3 * GIB), (4 * GIB, 4 * GIB, 3 * GIB)]
    assert [zone.memory_group for zone in decided.zones] == [(), ()]


@pytest.mark.req("NE-032", "NE-061")
def test_a_resource_is_listed_exactly_where_allocatable_has_it_and_cpu_everywhere() -> None:
    """A memory-only cell has CPUs 0/0/0."""
    machine = Machine(zones=(*MACHINE.zones, HostZone(id=5, memory=GIB)))
    allocatable = replace(ALLOCATABLE, memory=(*ALLOCATABLE.memory, MemoryBlock("hugepages-2Mi", 0, (5,))))
    decided = node_zones(facts(machine=machine, allocatable=allocatable), LISTING_ONLY, "worker")
    assert [[each.resource for each in zone.resources] for zone in decided.zones] == [
        ["cpu", "memory", "vendor.example/nic"],
        ["cpu", "memory", "vendor.example/nic"],
        ["cpu", "hugepages-2Mi"],
    ]
    assert of(decided, "cpu")[2] == (0, 0, 0)
    assert of(decided, "hugepages-2Mi") == [(0, 0, 0)]


@pytest.mark.req("NE-061", "NE-064")
def test_devices_count_once_per_id_and_cell_however_often_they_are_listed() -> None:
    """A device of two cells counts on both."""
    twice = replace(ALLOCATABLE, devices=(*ALLOCATABLE.devices, Devices("vendor.example/nic", ("a", "a"), (0,))))
    decided = node_zones(facts(allocatable=twice), LISTING_ONLY, "worker")
    assert of(decided, "vendor.example/nic") == [(2, 2, 2), (1, 1, 1)]


@pytest.mark.req("NE-062")
def test_a_reserved_cpu_that_a_container_has_leaves_what_others_may_get() -> None:
    """CPUs 1-3 of zone 0 may be given; who holds 0 and 1 takes one of them."""
    decided = node_zones(facts(pod("one", cpus=(0, 1))), LISTING_ONLY, "worker")
    assert of(decided, "cpu")[0] == (4, 3, 2)


@pytest.mark.req("NE-062")
def test_a_cpu_counts_once_and_an_unknown_one_not_at_all() -> None:
    decided = node_zones(facts(pod("one", cpus=(4, 5, 99)), pod("two", cpus=(5, 6, 99))), LISTING_ONLY, "worker")
    assert of(decided, "cpu") == [(4, 3, 3), (4, 4, 1)]
    (finding,) = decided.warnings
    assert (finding.reason, finding.count) == ("UnknownCpus", 1)
    assert "[99]" in finding.message
    assert "one" not in finding.message.split()


@pytest.mark.req("NE-064")
def test_a_device_without_a_cell_has_those_of_the_allocatable_answer() -> None:
    """Also if its cells are negative; one that nobody knows a cell of is not NUMA bound."""
    entries = [
        Devices("vendor.example/nic", ("a",)),
        Devices("vendor.example/nic", ("b",), (-1,)),
        Devices("vendor.example/nic", ("unheard-of",)),
    ]
    decided = node_zones(facts(pod("holder", devices=entries)), LISTING_ONLY, "worker")
    assert of(decided, "vendor.example/nic") == [(2, 2, 0), (1, 1, 0)]


@pytest.mark.req("NE-064")
@pytest.mark.parametrize(
    ("entries", "published", "warned"),
    [
        pytest.param([("a", (-1,))], [(0, 0, 0), (0, 0, 0)], "[-1]", id="no NUMA node, as the kernel says"),
        pytest.param([("a", (7,)), ("b", (64,))], [(0, 0, 0), (0, 0, 0)], "[7, 64]", id="nodes of another machine"),
        pytest.param([("a", (-1, 7)), ("b", ())], [(0, 0, 0), (0, 0, 0)], "[-1, 7]", id="beside one without topology"),
        pytest.param([("a", (-1,)), ("b", (1,))], [(1, 1, 1)], "[-1]", id="beside one of a zone"),
        pytest.param([("a", (-1, 1))], [(1, 1, 1)], "", id="and of a zone"),
        pytest.param([("a", ()), ("b", ())], [], "", id="without topology"),
    ],
)
def test_devices_on_numa_nodes_that_the_machine_does_not_have_are_nothing_in_every_zone(
    entries: list[tuple[str, tuple[int, ...]]], published: list[tuple[int, int, int]], warned: str
) -> None:
    """Their kubelet looks for a zone and finds none; of devices without topology it looks for none."""
    devices = tuple(Devices("vendor.example/odd", (name,), zones) for name, zones in entries)
    decided = node_zones(facts(allocatable=replace(ALLOCATABLE, devices=devices)), LISTING_ONLY, "worker")
    assert of(decided, "vendor.example/odd") == published
    assert reasons(decided) == (["UnknownDeviceZones"] if warned else [])
    assert all(f"vendor.example/odd on {warned}" in each.message for each in decided.warnings)


@pytest.mark.req("NE-064", "NE-081")
@pytest.mark.parametrize(("zone", "counts"), [(-1, False), (7, False), (1, True)])
def test_a_pod_with_such_a_device_alone_holds_nothing_of_a_zone(zone: int, *, counts: bool) -> None:
    device = Devices("vendor.example/odd", ("a",), (zone,))
    decided = node_zones(
        facts(pod("one", devices=[device]), allocatable=replace(ALLOCATABLE, devices=(device,))), LISTING_ONLY, "worker"
    )
    assert bool(decided.pods) == counts


@pytest.mark.req("NE-065")
def test_cpus_of_the_reference_container_are_the_shared_pool() -> None:
    """They leave every container, the reference itself among them, before anything else."""
    settings = replace(LISTING_ONLY, reference_container=ContainerName("system", "shared", "pause"))
    reference = pod("shared", cpus=(1, 2, 4), namespace="system", container="pause")
    listed = [reference, pod("burstable", cpus=(1, 2, 4)), pod("guaranteed", cpus=(5, 1))]
    decided = node_zones(facts(*listed), settings, "worker")
    assert of(decided, "cpu") == [(4, 3, 3), (4, 4, 3)]
    assert [each.name for each in decided.pods] == ["guaranteed"]

    absent = node_zones(facts(*listed[1:]), settings, "worker")
    assert of(absent, "cpu") == [(4, 3, 1), (4, 4, 2)]


@pytest.mark.req("NE-060")
def test_the_reference_container_comes_before_everything_that_leaves_pods_out() -> None:
    """Its CPUs are the shared pool also where its pod is excluded or has ended; attributes come last."""
    reference = pod("shared", cpus=(4, 5), namespace="system", container="pause")
    gathered = facts(reference, pod("burstable", cpus=(4, 5)), pod("holder", cpus=(6,)))
    settings = replace(LISTING_ONLY, reference_container=ContainerName("system", "shared", "pause"))
    by_pattern = replace(settings, pod_exclude=(PodPattern("system", "*"),))
    ended = replace(gathered, terminal=frozenset({("system", "shared")}))
    for decided in (node_zones(gathered, by_pattern, "worker"), node_zones(ended, settings, "worker")):
        assert of(decided, "cpu")[1] == (4, 4, 3)
        assert [each.name for each in decided.pods] == ["holder"]
        assert decided.counts.excluded == 1
        assert decided.fingerprint == fingerprint([("default", "holder")])


@pytest.mark.req("NE-067")
def test_excluded_pods_leave_usage_and_fingerprint() -> None:
    """Both patterns must match."""
    listed = [pod("noise-1", cpus=(4,)), pod("noise-1", cpus=(5,), namespace="other"), pod("payload", cpus=(6,))]
    settings = replace(LISTING_ONLY, pod_exclude=(PodPattern("def*", "noise-?"),))
    decided = node_zones(facts(*listed), settings, "worker")
    assert of(decided, "cpu")[1] == (4, 4, 2)
    assert [(each.namespace, each.name) for each in decided.pods] == [("default", "payload"), ("other", "noise-1")]
    assert (decided.counts.listed, decided.counts.exclusive, decided.counts.excluded) == (3, 2, 1)


@pytest.mark.req("NE-019", "NE-068")
def test_pods_that_have_ended_leave_usage_and_fingerprint() -> None:
    """NE-068, NE-019-row "terminal-pod option without effect"."""
    gathered = replace(facts(pod("done", cpus=(4,)), pod("runs", cpus=(5,))), terminal=frozenset({("default", "done")}))
    decided = node_zones(gathered, replace(LISTING_ONLY, pods_fingerprint_method="all"), "worker")
    assert of(decided, "cpu")[1] == (4, 4, 3)
    assert [each.name for each in decided.pods] == ["runs"]


@pytest.mark.req("NE-019", "NE-069")
def test_cpus_and_memory_of_finished_init_containers_are_not_shown_as_free() -> None:
    """NE-069, NE-019-row "finished init containers' CPUs shown as free": the files say that they are kept."""
    states = Checkpoints(
        cpu=CpuCheckpoint("static", frozenset({0, 1, 2, 7})),
        memory=MemoryCheckpoint(
            "Static",
            (
                ZoneMemoryState(0, "memory", 3 * GIB, 2 * GIB, (0, 1)),
                ZoneMemoryState(1, "memory", 4 * GIB, 4 * GIB, (0, 1)),
                ZoneMemoryState(9, "memory", 4 * GIB, 0, (9,)),
            ),
        ),
    )
    gathered = replace(facts(pod("holder", cpus=(4, 5))), checkpoints=states)
    decided = node_zones(gathered, ScanSettings(), "worker")
    assert of(decided, "cpu") == [(4, 3, 2), (4, 4, 1)]
    assert of(decided, "memory") == [(4 * GIB, 3 * GIB, 2 * GIB), (4 * GIB, 4 * GIB, 4 * GIB)]
    assert [zone.memory_group for zone in decided.zones] == [(0, 1), (0, 1)]
    hidden = {(zone.host_zone.id, each.resource): each.hidden for zone in decided.zones for each in zone.resources}
    assert {place: amount for place, amount in hidden.items() if amount} == {
        (0, "cpu"): 1,
        (1, "cpu"): 1,
        (0, "memory"): GIB,
    }
    assert of(node_zones(gathered, LISTING_ONLY, "worker"), "cpu") == [(4, 3, 3), (4, 4, 2)]


@pytest.mark.req("NE-069")
def test_the_listing_counts_where_it_says_more_than_the_files() -> None:
    """The files are at least, and a moment older."""
    states = Checkpoints(cpu=CpuCheckpoint("static", frozenset(range(8))))
    decided = node_zones(replace(facts(pod("holder", cpus=(4, 5))), checkpoints=states), ScanSettings(), "worker")
    assert of(decided, "cpu") == [(4, 3, 3), (4, 4, 2)]


@pytest.mark.req("NE-069")
def test_files_of_other_policies_say_nothing() -> None:
    """As if there were none."""
    states = Checkpoints(
        cpu=CpuCheckpoint("none", frozenset()),
        memory=MemoryCheckpoint("None", (ZoneMemoryState(1, "memory", GIB, 0, (0, 1)),)),
    )
    decided = node_zones(replace(facts(), checkpoints=states), ScanSettings(), "worker")
    assert of(decided, "cpu") == [(4, 3, 3), (4, 4, 4)]
    assert of(decided, "memory") == [(4 * GIB, 3 * GIB, 3 * GIB), (4 * GIB, 4 * GIB, 4 * GIB)]
    assert [zone.memory_group for zone in decided.zones] == [(), ()]


@pytest.mark.req("NE-069")
def test_memory_of_pods_that_are_over_is_free_although_the_file_still_has_it() -> None:
    """The kubelet frees it when it admits the next pod, which nobody would send to a node that looks full."""
    state = MemoryCheckpoint(
        "Static",
        (
            ZoneMemoryState(0, "memory", 3 * GIB, 0, (0, 1)),
            ZoneMemoryState(1, "memory", 4 * GIB, 3 * GIB, (0, 1)),
        ),
    )

    def decided(*ended: MemoryBlock) -> NodeZones:
        states = Checkpoints(memory=replace(state, ended=ended))
        return node_zones(replace(facts(), checkpoints=states), ScanSettings(), "worker")

    assert of(decided(), "memory") == [(4 * GIB, 3 * GIB, 0), (4 * GIB, 4 * GIB, 3 * GIB)]
    some = decided(MemoryBlock("memory", 2 * GIB, (0, 1)))
    assert of(some, "memory") == [(4 * GIB, 3 * GIB, 2 * GIB), (4 * GIB, 4 * GIB, 3 * GIB)]
    assert [zone.memory_group for zone in some.zones] == [(0, 1), (0, 1)]
    over = decided(MemoryBlock("memory", 4 * GIB, (0, 1)))
    assert of(over, "memory") == [(4 * GIB, 3 * GIB, 3 * GIB), (4 * GIB, 4 * GIB, 4 * GIB)]
    assert [zone.memory_group for zone in over.zones] == [(), ()]


@pytest.mark.req("NE-063", "NE-069")
def test_a_block_over_several_cells_is_not_counted_on_a_cell_of_its_own_and_on_another_by_the_file() -> None:
    """The pod came when the first cell was full; what was there has ended since."""
    state = MemoryCheckpoint(
        "Static",
        (
            ZoneMemoryState(0, "memory", 3 * GIB, 3 * GIB, (0, 1)),
            ZoneMemoryState(1, "memory", 4 * GIB, 2 * GIB, (0, 1)),
        ),
    )
    gathered = facts(pod("holder", memory=(MemoryBlock("memory", 2 * GIB, (0, 1)),)))
    decided = node_zones(replace(gathered, checkpoints=Checkpoints(memory=state)), ScanSettings(), "worker")
    assert of(decided, "memory") == [(4 * GIB, 3 * GIB, 3 * GIB), (4 * GIB, 4 * GIB, 2 * GIB)]
    assert not any(each.hidden for zone in decided.zones for each in zone.resources)


@pytest.mark.req("NE-063", "NE-069")
def test_files_that_do_not_have_a_block_yet_do_not_say_where_it_is() -> None:
    """A pod whose directory is not made yet looks like one that is over."""
    block = MemoryBlock("memory", 5 * GIB, (0, 1))
    state = MemoryCheckpoint(
        "Static",
        (
            ZoneMemoryState(0, "memory", 3 * GIB, 0, (0, 1)),
            ZoneMemoryState(1, "memory", 4 * GIB, 2 * GIB, (0, 1)),
        ),
        ended=(block,),
    )
    gathered = facts(pod("holder", memory=(block,)))
    decided = node_zones(replace(gathered, checkpoints=Checkpoints(memory=state)), ScanSettings(), "worker")
    assert of(decided, "memory") == [(4 * GIB, 3 * GIB, 0), (4 * GIB, 4 * GIB, 2 * GIB)]


def memory(size: int, *zones: int) -> tuple[MemoryBlock, ...]:
    return (MemoryBlock("memory", size * GIB, zones),)


@pytest.mark.req("NE-069")
def test_memory_of_a_pod_that_the_kubelet_no_longer_lists_is_free_while_its_object_is_there() -> None:
    """A Job's pod that has completed; of two pods alike one has."""
    state = MemoryCheckpoint(
        "Static",
        (ZoneMemoryState(0, "memory", 3 * GIB, GIB, (0,)), ZoneMemoryState(1, "memory", 4 * GIB, 0, (1,))),
    )
    running = (Container(name="app", memory=memory(1, 1)), Container(name="init", memory=memory(1, 1)))
    completed = (Container(name="app", memory=memory(2, 0)),)
    alike = (Container(name="app", memory=memory(1, 1)),)

    def decided(*listed: ListedPod) -> NodeZones:
        states = Checkpoints(memory=state, pods=(alike, completed, alike, running))
        return node_zones(replace(facts(*listed), checkpoints=states), ScanSettings(), "worker")

    one, other = (ListedPod("demo", name, (Container(name="app", memory=memory(1, 1)),)) for name in ("one", "other"))
    idle = ListedPod("demo", "idle", (Container(name="app"),))
    assert of(decided(one, other, idle), "memory") == [(4 * GIB, 3 * GIB, 3 * GIB), (4 * GIB, 4 * GIB, GIB)]
    assert of(decided(one, idle), "memory") == [(4 * GIB, 3 * GIB, 3 * GIB), (4 * GIB, 4 * GIB, 2 * GIB)]
    assert of(decided(idle), "memory") == [(4 * GIB, 3 * GIB, 3 * GIB), (4 * GIB, 4 * GIB, 4 * GIB)]
    assert of(decided(), "memory") == [(4 * GIB, 3 * GIB, GIB), (4 * GIB, 4 * GIB, 0)], "a kubelet that has just begun"


@pytest.mark.req("NE-069")
def test_devices_that_init_containers_leave_to_nobody_are_used_until_the_pod_has_ended() -> None:
    def nic(*ids: str) -> tuple[Devices, ...]:
        return (Devices(NIC, ids, (0,)),)

    allocatable = replace(ALLOCATABLE, devices=(Devices(NIC, ("a", "b", "c"), (0,)),))
    kept = (Container(name="app", devices=nic("a")), Container(name="init", devices=nic("a", "b")))
    other = (Container(name="app", devices=nic("c")),)
    states = Checkpoints(pods=(kept, other))
    there = ListedPod("demo", "there", (Container(name="app", devices=nic("a")),))
    bare = ListedPod("demo", "bare", (Container(name="app"),))
    for listed, available in (((there, bare), 1), ((bare,), 3)):
        gathered = replace(facts(*listed), allocatable=allocatable, checkpoints=states)
        assert of(node_zones(gathered, ScanSettings(), "worker"), NIC) == [(3, 3, available)]
        assert of(node_zones(gathered, LISTING_ONLY, "worker"), NIC) == [(3, 3, 2 if there in listed else 3)]


@pytest.mark.req("NE-069")
def test_devices_of_a_pod_whose_listed_containers_hold_nothing_are_used_while_its_volumes_are_mounted() -> None:
    """An init container alone was given some. The file has no name of the pod, and the response no container of it."""
    allocatable = replace(ALLOCATABLE, devices=(Devices(NIC, ("a", "b", "c"), (0,)),))
    kept = ((Container(name="init", devices=(Devices(NIC, ("a", "b"), (0,)),)),),)
    there = ListedPod("demo", "there", (Container(name="app"),))
    another = ListedPod("demo", "another", (Container(name="init"),))
    for states, listed, available in (
        (Checkpoints(mounted=kept), (there,), 1),
        (Checkpoints(pods=kept), (there,), 3),
        (Checkpoints(mounted=kept), (another,), 3),
        (Checkpoints(mounted=kept), (), 1),
    ):
        gathered = replace(facts(*listed), allocatable=allocatable, checkpoints=states)
        assert of(node_zones(gathered, ScanSettings(), "worker"), NIC) == [(3, 3, available)]


@pytest.mark.req("NE-067", "NE-069")
def test_what_podexclude_leaves_out_does_not_come_back_as_hidden() -> None:
    """An excluded pod's CPUs are missing from the shared pool, too."""
    states = Checkpoints(cpu=CpuCheckpoint("static", frozenset({0, 1, 2, 3, 6, 7})))
    settings = ScanSettings(pod_exclude=(PodPattern("*", "left-out"),))
    decided = node_zones(replace(facts(pod("left-out", cpus=(4, 5))), checkpoints=states), settings, "worker")
    assert of(decided, "cpu") == [(4, 3, 3), (4, 4, 4)]


@pytest.mark.req("NE-033", "NE-036", "NE-070")
def test_capacity_is_allocatable_where_it_is_missing_zero_or_smaller() -> None:
    """NE-070, NE-036, NE-033 "capacity only for 2 MiB and 1 GiB pages"."""
    machine = Machine(
        zones=(
            HostZone(id=0, cpus=frozenset({0, 1}), memory=None, pages={64 << 10: 32, 1 << 30: 0}),
            HostZone(id=1, cpus=frozenset({2}), memory=GIB, pages=None),
        )
    )
    allocatable = Allocatable(
        cpus=(0, 1, 2),
        memory=(
            MemoryBlock("memory", 2 * GIB, (0,)),
            MemoryBlock("memory", 3 * GIB, (1,)),
            MemoryBlock("hugepages-64Ki", 1 << 20, (0,)),
            MemoryBlock("hugepages-1Gi", GIB, (0,)),
            MemoryBlock("hugepages-1Gi", GIB, (1,)),
        ),
    )
    decided = node_zones(facts(machine=machine, allocatable=allocatable), LISTING_ONLY, "worker")
    assert of(decided, "memory") == [(2 * GIB,) * 3, (3 * GIB,) * 3]
    assert of(decided, "hugepages-64Ki") == [(2 << 20, 1 << 20, 1 << 20)]
    assert of(decided, "hugepages-1Gi") == [(GIB,) * 3, (GIB,) * 3]


@pytest.mark.req("NE-033")
def test_pages_are_named_by_the_largest_exact_unit() -> None:
    sizes = [64 << 10, 1 << 20, 2 << 20, 16 << 20, 512 << 20, 1 << 30, 2 << 30, 16 << 30]
    assert [page_resource(each).removeprefix("hugepages-") for each in sizes] == [
        *("64Ki", "1Mi", "2Mi", "16Mi"),
        *("512Mi", "1Gi", "2Gi", "16Gi"),
    ]


@pytest.mark.req("NE-071")
def test_excluded_resources_leave_the_zones_only() -> None:
    """By ``*`` and the node's own name; the pod still counts for the fingerprint."""
    exclude = {"*": ("memory", "no-such-resource"), "worker": ("vendor.example/nic",), "other": ("cpu",)}
    holder = pod("holder", memory=[MemoryBlock("memory", GIB, (0,))])
    decided = node_zones(facts(holder), replace(LISTING_ONLY, resource_exclude=exclude), "worker")
    assert [[each.resource for each in zone.resources] for zone in decided.zones] == [["cpu"], ["cpu"]]
    assert [each.name for each in decided.pods] == ["holder"]


@pytest.mark.req("NE-019", "NE-031")
def test_ids_are_the_kernels_and_ascend() -> None:
    """NE-031, NE-019-row "cell id taken from list position"."""
    machine = Machine(zones=(HostZone(id=2, cpus=frozenset({2})), HostZone(id=0, cpus=frozenset({0}))))
    decided = node_zones(facts(pod("holder", cpus=(2,)), machine=machine), LISTING_ONLY, "worker")
    assert [zone.host_zone.id for zone in decided.zones] == [0, 2]
    assert of(decided, "cpu") == [(1, 0, 0), (1, 1, 0)]


@pytest.mark.req("NE-019", "NE-072")
def test_usage_of_all_namespaces_counts() -> None:
    """NE-072, NE-019-row "namespace option hides usage": no setting narrows it to one."""
    listed = [pod("one", cpus=(4,), namespace="a"), pod("two", cpus=(5,), namespace="b")]
    assert of(node_zones(facts(*listed), LISTING_ONLY, "worker"), "cpu")[1] == (4, 4, 2)


@pytest.mark.req("NE-015")
def test_a_too_long_list_of_patterns_is_said_and_not_published() -> None:
    patterns = tuple(PodPattern("*", f"{number:050d}") for number in range(30))
    decided = node_zones(facts(), replace(LISTING_ONLY, pod_exclude=patterns), "worker")
    assert decided.pod_exclude == ""
    assert reasons(decided) == ["PodExcludeTooLong"]
    short = node_zones(facts(), replace(LISTING_ONLY, pod_exclude=patterns[:1]), "worker")
    assert short.pod_exclude == f'[{{"namespacePattern":"*","namePattern":"{0:050d}"}}]'
