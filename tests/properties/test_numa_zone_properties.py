"""Laws of zones, fingerprints, vectors and differences that hold for every machine and every kubelet's answer."""

import random
from collections.abc import Sequence
from typing import Any, TypeVar

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from polyarch.kube.patches import merge_patch
from polyarch.numa.api.topology import NodeResourceTopology
from polyarch.numa.exporter.topology_document import (
    Document,
    stamped,
    topology_document,
    topology_patch,
)
from polyarch.numa.exporter.zones import MEMORY, ZoneMap, node_zones, spread
from polyarch.numa.facts import (
    Allocatable,
    Checkpoints,
    Container,
    ContainerName,
    CpuCheckpoint,
    Devices,
    HostZone,
    KubeletSettings,
    ListedPod,
    Machine,
    MemoryBlock,
    MemoryCheckpoint,
    PodPattern,
    ScanFacts,
    ScanSettings,
    ZoneMemoryState,
)
from polyarch.numa.fingerprint import check_fingerprint, fingerprint
from polyarch.numa.placement_vectors import (
    PlacementVectors,
    container_id,
    decode_base89,
    decode_vectors,
    encode_base89,
    encode_vectors,
)

MANY = settings(max_examples=200, deadline=None)
SOME = settings(max_examples=60, deadline=None)
"""Where an example is a whole machine."""
CELLS = (0, 1, 3)
NAMES = ("a", "b", "init")
RESOURCES = (MEMORY, "hugepages-2Mi")
Item = TypeVar("Item")


def few(items: st.SearchStrategy[Item]) -> st.SearchStrategy[tuple[Item, ...]]:
    return st.lists(items, max_size=4).map(tuple)


cell_ids = few(st.sampled_from((*CELLS, -1, 9)))
cpus = few(st.integers(0, 13))
blocks = st.builds(MemoryBlock, st.sampled_from(RESOURCES), st.integers(0, 40), cell_ids)
devices = st.builds(Devices, st.sampled_from(("nic", "gpu")), few(st.sampled_from("xyz")), cell_ids)
containers = st.builds(Container, name=st.sampled_from(NAMES), cpus=cpus, memory=few(blocks), devices=few(devices))
pods = st.builds(ListedPod, st.sampled_from(NAMES), st.sampled_from(NAMES), few(containers))
machines = st.builds(
    lambda costs, sockets: Machine(
        zones=tuple(
            HostZone(
                id=cell,
                cpus=frozenset(range(cell * 4, cell * 4 + 4)) - {13},
                memory=50 if cell else None,
                pages={2 << 20: 3},
                costs=tuple((each, 10 + abs(each - cell)) for each in CELLS) if costs else (),
                socket=cell if sockets else None,
            )
            for cell in CELLS
        )
    ),
    st.booleans(),
    st.booleans(),
)
states = st.builds(
    Checkpoints,
    cpu=st.none() | st.builds(CpuCheckpoint, st.sampled_from(("static", "none")), cpus.map(frozenset)),
    memory=st.none()
    | st.builds(
        MemoryCheckpoint,
        st.sampled_from(("Static", "None")),
        few(
            st.builds(
                ZoneMemoryState,
                st.sampled_from(CELLS),
                st.just(MEMORY),
                st.integers(0, 50),
                st.integers(0, 60),
                cell_ids,
            )
        ).map(lambda found: tuple({each.zone: each for each in found}.values())),
        few(blocks),
    ),
)
gathered = st.builds(
    ScanFacts,
    machine=machines,
    allocatable=st.builds(Allocatable, cpus=cpus, memory=few(blocks), devices=few(devices)),
    pods=few(pods),
    kubelet=st.builds(KubeletSettings, policy=st.sampled_from(("none", "restricted")), scope=st.just("pod")),
    checkpoints=states,
    terminal=st.frozensets(st.tuples(st.sampled_from(NAMES), st.sampled_from(NAMES)), max_size=2),
    node_uid=st.sampled_from(("", "uid-1", "uid-2")),
)
scans = st.builds(
    ScanSettings,
    reference_container=st.none() | st.just(ContainerName("a", "a", "a")),
    pod_exclude=st.just(()) | st.just((PodPattern("a*", "[!a]"),)),
    resource_exclude=st.just({}) | st.just({"*": ("gpu",), "worker": (MEMORY,)}),
    usage_source=st.sampled_from(("max", "podresources")),
    pods_fingerprint=st.booleans(),
    pods_fingerprint_method=st.sampled_from(("all", "with-exclusive-resources")),
    placement_vectors=st.booleans(),
    extra_attributes=st.booleans(),
    legacy_fields=st.booleans(),
    node_group=st.sampled_from(("", "group-1")),
    add_nrt_owner=st.booleans(),
)


def made(facts: ScanFacts, using: ScanSettings) -> Document:
    return topology_document(facts, node_zones(facts, using, "worker"), using, refresh_period=60)


def shuffled(facts: ScanFacts, seed: int) -> ScanFacts:
    """The same facts, every list of the kubelet's answers and of the machine in another order."""
    order = random.Random(seed)

    def mixed(items: Sequence[Item]) -> tuple[Item, ...]:
        return tuple(order.sample(list(items), len(items)))

    def blocks_of(found: Sequence[MemoryBlock]) -> tuple[MemoryBlock, ...]:
        return mixed([replace(each, zones=mixed(each.zones)) for each in found])

    def devices_of(found: Sequence[Devices]) -> tuple[Devices, ...]:
        return mixed([replace(each, ids=mixed(each.ids), zones=mixed(each.zones)) for each in found])

    def container(each: Container) -> Container:
        return replace(each, cpus=mixed(each.cpus), memory=blocks_of(each.memory), devices=devices_of(each.devices))

    listed = [replace(each, containers=mixed([container(one) for one in each.containers])) for each in facts.pods]
    answer = facts.allocatable
    cells = [replace(each, costs=mixed(each.costs)) for each in facts.machine.zones]
    memory = facts.checkpoints.memory
    return replace(
        facts,
        pods=mixed(listed),
        machine=replace(facts.machine, zones=mixed(cells)),
        allocatable=Allocatable(
            cpus=mixed(answer.cpus), memory=blocks_of(answer.memory), devices=devices_of(answer.devices)
        ),
        checkpoints=replace(
            facts.checkpoints,
            memory=memory and replace(memory, zones=mixed(memory.zones), ended=blocks_of(memory.ended)),
        ),
    )


@pytest.mark.req("NE-011", "NE-110")
@given(gathered, scans, st.integers())
@SOME
def test_the_order_of_any_list_changes_no_byte(facts: ScanFacts, using: ScanSettings, seed: int) -> None:
    """So it is never a reason to write."""
    wanted, again = made(facts, using), made(shuffled(facts, seed), using)
    assert msgspec.json.encode(wanted) == msgspec.json.encode(again)
    assert topology_patch(again, msgspec.convert(wanted, NodeResourceTopology)) is None


@pytest.mark.req("NE-063")
@given(few(blocks), few(blocks))
@MANY
def test_memory_is_counted_once_in_total(used: Sequence[MemoryBlock], room: Sequence[MemoryBlock]) -> None:
    """Whatever there is room for, blocks of known cells add up to what the cells have in use."""
    layout = ZoneMap(Machine(zones=tuple(HostZone(id=cell) for cell in CELLS)), Allocatable())
    taken = spread(used, layout, spread(room, layout, {}))
    for resource in RESOURCES:
        sizes = sum(each.size for each in used if each.resource == resource and layout.memory_zones(each))
        assert sum(amount for (_, name), amount in taken.items() if name == resource) == sizes
    assert all(amount >= 0 for amount in taken.values())


@pytest.mark.req("NE-063")
@given(few(blocks), few(blocks))
@MANY
def test_no_cell_is_overdrawn_while_another_of_a_block_has_room(
    used: Sequence[MemoryBlock], room: Sequence[MemoryBlock]
) -> None:
    """A block takes from its last cell more than that has only if the cells before it are full."""
    layout = ZoneMap(Machine(zones=tuple(HostZone(id=cell) for cell in CELLS)), Allocatable())
    wide = [replace(each, zones=CELLS) for each in used]
    have = spread(room, layout, {})
    taken = spread(wide, layout, have)
    for resource in RESOURCES:
        last = taken.get((CELLS[-1], resource), 0)
        if last > have.get((CELLS[-1], resource), 0):
            assert all(taken[cell, resource] == have.get((cell, resource), 0) for cell in CELLS[:-1])


@pytest.mark.req("NE-012", "NE-061", "NE-070")
@given(gathered, scans)
@SOME
def test_amounts_are_in_order(facts: ScanFacts, using: ScanSettings) -> None:
    """0 <= available <= allocatable <= capacity, in every zone that there is a cell for."""
    decided = node_zones(facts, using, "worker")
    assert [each.host_zone.id for each in decided.zones] == list(CELLS)
    for zone in decided.zones:
        names = [each.resource for each in zone.resources]
        assert names == sorted(set(names))
        assert "cpu" in names
        for each in zone.resources:
            assert 0 <= each.available <= each.allocatable <= each.capacity
            assert 0 <= each.hidden <= each.used


@pytest.mark.req("NE-069")
@given(gathered, scans)
@SOME
def test_the_files_never_make_more_available(facts: ScanFacts, using: ScanSettings) -> None:
    """ "max" is the listing or more, resource by resource."""
    listing = node_zones(facts, replace(using, usage_source="podresources"), "worker")
    both = node_zones(facts, replace(using, usage_source="max"), "worker")
    for less, more in zip(listing.zones, both.zones, strict=True):
        assert [each.resource for each in less.resources] == [each.resource for each in more.resources]
        for one, other in zip(less.resources, more.resources, strict=True):
            assert one.used == other.used - other.hidden
            assert other.available <= one.available


foreign_values = st.none() | st.integers(0, 20) | st.sampled_from(["12", "16Gi", "4"])
foreign_zones = st.lists(
    st.fixed_dictionaries(
        {"name": st.sampled_from(["node-0", "node-1", "rack"]), "type": st.just("Node")},
        optional={
            "parent": st.none() | st.just("rack"),
            "costs": st.none() | st.just([{"name": "node-0", "value": 10}]),
            "attributes": st.none() | st.just([{"name": "a", "value": "b"}]),
            "resources": st.none()
            | st.lists(
                st.fixed_dictionaries(
                    {"name": st.just("cpu")},
                    optional={"capacity": st.integers(0, 9) | st.sampled_from(["4", "4k", "4e3"])},
                ),
                max_size=2,
            ),
        },
    ),
    max_size=3,
)
references = st.lists(
    st.fixed_dictionaries(
        {
            "apiVersion": st.sampled_from(["v1", "example.org/v1"]),
            "kind": st.sampled_from(["Node", "Rack"]),
            "name": st.sampled_from(["worker", "other"]),
            "uid": st.sampled_from(["uid-0", "uid-1", "uid-2"]),
        },
        optional={"controller": st.booleans(), "blockOwnerDeletion": st.booleans()},
    ),
    max_size=3,
)
texts = st.dictionaries(
    st.sampled_from(["a", "numa.polyarch.dev/node-group", "topology.node.k8s.io/fingerprint", "x/y"]),
    st.sampled_from(["", "1", "group-1"]),
    max_size=3,
)
found_objects = st.fixed_dictionaries(
    {
        "metadata": st.fixed_dictionaries(
            {"name": st.just("worker")},
            optional={
                "labels": st.none() | texts,
                "annotations": st.none() | texts,
                "ownerReferences": st.none() | references,
            },
        )
    },
    optional={
        "topologyPolicies": st.none() | st.lists(st.sampled_from(["None", "Restricted"]), max_size=2),
        "attributes": st.none() | st.just([{"name": "a", "value": "b"}]),
        "zones": st.none() | foreign_zones,
    },
)


@pytest.mark.req("NE-110", "NE-111", "NE-112")
@given(gathered, scans, found_objects)
@SOME
def test_one_patch_makes_any_object_right_for_good(facts: ScanFacts, using: ScanSettings, found: Any) -> None:
    """Whoever wrote the object, what follows the patch is silence; the trigger is no change."""
    wanted = made(facts, using)
    patch = topology_patch(wanted, msgspec.convert(found, NodeResourceTopology))
    after = (
        found if patch is None else merge_patch(found, stamped(patch, {"k8stopoawareschedwg/rte-update": "periodic"}))
    )
    assert topology_patch(wanted, msgspec.convert(after, NodeResourceTopology)) is None
    for field in (patch or {}).keys() - {"metadata"}:
        assert found.get(field) != after.get(field)


@pytest.mark.req("NE-017", "NE-018")
@given(gathered, scans, found_objects)
@SOME
def test_what_others_wrote_in_the_metadata_stays(facts: ScanFacts, using: ScanSettings, found: Any) -> None:
    """Labels, annotations, references; none to a Node of this name is written with another uid."""
    wanted = made(facts, using)
    patch = topology_patch(wanted, msgspec.convert(found, NodeResourceTopology)) or {}
    after = merge_patch(found, patch)["metadata"]
    for field, own in (("labels", "numa.polyarch.dev/node-group"), ("annotations", "topology.node.k8s.io/fingerprint")):
        before = {key: value for key, value in (found["metadata"].get(field) or {}).items() if key != own}
        assert {key: value for key, value in (after.get(field) or {}).items() if key != own} == before

    def is_ours(reference: Any) -> bool:
        return (reference["kind"], reference["name"]) == ("Node", "worker")

    theirs = [each for each in found["metadata"].get("ownerReferences") or [] if not is_ours(each)]
    assert [each for each in after.get("ownerReferences") or [] if not is_ours(each)] == theirs
    written = patch.get("metadata", {}).get("ownerReferences", [])
    assert [each for each in written if is_ours(each) and each["uid"] != facts.node_uid] == []


@pytest.mark.req("NE-080", "NE-082")
@given(st.lists(st.tuples(st.text(max_size=40), st.text(max_size=90)), max_size=30), st.integers())
@MANY
def test_the_fingerprint_is_of_a_set_with_repetitions(pods: list[tuple[str, str]], seed: int) -> None:
    """Any order, any text."""
    text = fingerprint(pods)
    assert check_fingerprint(text, random.Random(seed).sample(pods, len(pods))) == "ok"
    assert check_fingerprint(text, [*pods, ("one", "more")]) == "mismatch"


@pytest.mark.req("NE-082")
@given(st.text(max_size=40))
@MANY
def test_any_text_gets_a_verdict(text: str) -> None:
    assert check_fingerprint(text, [("a", "b")]) in ("malformed", "incompatible-version", "mismatch")


@pytest.mark.req("NE-091")
@given(st.lists(st.integers(0, 1 << 40)))
@MANY
def test_numbers_come_back_from_base_89(numbers: list[int]) -> None:
    assert decode_base89(encode_base89(numbers)) == numbers


@pytest.mark.req("NE-090", "NE-091", "NE-092")
@given(st.integers(1, 5), st.dictionaries(st.tuples(*[st.text(max_size=5)] * 3), st.integers(0, 4), max_size=150))
@MANY
def test_a_scheduler_reads_back_where_every_container_is(cells: int, placed: dict[tuple[str, str, str], int]) -> None:
    """From metadata, vectors and names alone."""
    # Names of Kubernetes have no NUL; with one, two containers could be the same to the hash.
    on = {key: cell % cells for key, cell in placed.items() if "\0" not in "".join(key)}
    vectors = encode_vectors({key: frozenset({cell}) for key, cell in on.items()}, range(cells))
    assert isinstance(vectors, PlacementVectors)
    assert decode_vectors(vectors, sorted(on, key=container_id, reverse=True)) == on
    assert len(vectors.by_zone) < cells
