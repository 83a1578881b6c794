"""Placement vectors say which container sits where, in the format that schedulers know."""

import pytest
from numa_facts import ALLOCATABLE, GIB, MACHINE, facts, pod

from polyarch.numa.exporter.zones import ZoneMap, container_placements, node_zones
from polyarch.numa.facts import Devices, HostZone, Machine, MemoryBlock, ScanSettings
from polyarch.numa.placement_vectors import (
    ALPHABET,
    ContainerKey,
    MalformedNumbers,
    MalformedVectors,
    PlacementVectors,
    VectorsNotExpressible,
    container_id,
    decode_base89,
    decode_vectors,
    encode_base89,
    encode_vectors,
)

WANTED = ScanSettings(usage_source="podresources", placement_vectors=True)


def key(number: int) -> ContainerKey:
    """Names whose hashes ascend, so that the number is the container's number, too."""
    return SORTED[number]


SORTED = sorted((("ns", f"pod-{number}", "app") for number in range(2000)), key=container_id)


def on(cell: int, *numbers: int) -> dict[ContainerKey, frozenset[int]]:
    return {key(number): frozenset({cell}) for number in numbers}


def encoded(placed: dict[ContainerKey, frozenset[int]], cells: int = 2) -> PlacementVectors:
    vectors = encode_vectors(placed, range(cells))
    assert isinstance(vectors, PlacementVectors)
    return vectors


@pytest.mark.req("NE-091")
@pytest.mark.parametrize(
    ("number", "text"),
    [
        (0, "!"),
        (1, "#"),
        (63, "e"),
        (64, "f!"),
        (127, "fe"),
        (128, "g!"),
        (1663, "~e"),
        (1664, "gf!"),
        (40063, "~~e"),
        (40064, "gff!"),
    ],
)
def test_numbers_in_base_89(number: int, text: str) -> None:
    """At the borders of one, two, three and four characters."""
    assert encode_base89([number]) == text
    assert decode_base89(text) == [number]


@pytest.mark.req("NE-091")
def test_the_alphabet() -> None:
    """89 printable characters, none of which a format has to quote."""
    assert len(ALPHABET) == 89
    assert (ALPHABET[0], ALPHABET[63], ALPHABET[64], ALPHABET[-1]) == ("!", "e", "f", "~")
    assert not set(ALPHABET) & set('"&<>\\ ')


@pytest.mark.req("NE-091")
@pytest.mark.parametrize("text", ["~", "!f", "a b", '"', "é"])
def test_what_is_no_number_is_refused(text: str) -> None:
    with pytest.raises(MalformedNumbers):
        decode_base89(text)


@pytest.mark.req("NE-091")
def test_there_is_no_sign() -> None:
    with pytest.raises(ValueError, match="-1 is negative"):
        encode_base89([-1])


@pytest.mark.req("NE-090")
def test_the_id_of_a_container() -> None:
    """What the format's other implementation computes for it."""
    assert container_id(("ns", "pod", "cnt")) == 9468815510407277218


@pytest.mark.req("NE-091", "NE-092")
def test_the_busiest_cell_is_left_out_and_the_others_are_delta_coded() -> None:
    """Containers 1, 3, 4 of five are on cell 1."""
    vectors = encoded(on(0, 0, 2) | on(1, 1, 3, 4))
    assert vectors.metadata == "npv0v001::ve=leb89::cc=5::nn=2::bn=1"
    assert vectors.by_zone == {0: encode_base89([0, 2])} == {0: "!$"}


@pytest.mark.req("NE-092")
def test_the_lowest_of_equally_busy_cells_is_left_out() -> None:
    """And a cell without containers has no vector."""
    vectors = encoded(on(1, 0, 1) | on(2, 2, 3), cells=4)
    assert vectors.metadata == "npv0v001::ve=leb89::cc=4::nn=4::bn=1"
    assert vectors.by_zone == {2: "$#"}


@pytest.mark.req("NE-092")
def test_no_containers() -> None:
    assert encoded({}) == PlacementVectors("npv0v001::ve=leb89::cc=0::nn=2::bn=0", {})


@pytest.mark.req("NE-091")
def test_gaps_of_more_than_63_take_two_characters() -> None:
    vectors = encoded(on(0, *range(1, 1999)) | on(1, 0, 1999))
    assert vectors.by_zone == {1: "!" + encode_base89([1999])}
    assert len(vectors.by_zone[1]) == 4


@pytest.mark.req("NE-093")
def test_the_cells_of_a_container_are_those_of_everything_it_holds() -> None:
    """CPUs, memory and devices, and these by the allocatable answer where the entry names no cell."""
    layout = ZoneMap(MACHINE, ALLOCATABLE)
    listed = [
        pod("cpu", cpus=(4,)),
        pod("memory", memory=[MemoryBlock("memory", GIB, (1,))]),
        pod("device", devices=[Devices("vendor.example/nic", ("a",))]),
        pod("nothing"),
        pod("both", cpus=(1, 4)),
    ]
    assert {name: set(cells) for (_, name, _), cells in container_placements(listed, layout).items()} == {
        "cpu": {1},
        "memory": {1},
        "device": {0},
        "both": {0, 1},
    }


@pytest.mark.req("NE-093")
def test_a_container_that_spans_cells_cannot_be_said() -> None:
    """Both attributes are left out, and the reason is counted."""
    decided = node_zones(facts(pod("both", cpus=(1, 4)), pod("one", cpus=(5,))), WANTED, "worker")
    assert decided.vectors is None
    assert [(each.reason, each.count) for each in decided.warnings] == [("ContainerSpansCells", 1)]


@pytest.mark.req("NE-093")
def test_cells_with_holes_cannot_be_said() -> None:
    machine = Machine(zones=(HostZone(id=0, cpus=frozenset({0})), HostZone(id=2, cpus=frozenset({1}))))
    decided = node_zones(facts(pod("one", cpus=(1,)), machine=machine), WANTED, "worker")
    assert decided.vectors is None
    assert [each.reason for each in decided.warnings] == ["CellIdsHaveHoles"]
    assert isinstance(encode_vectors({}, [1]), VectorsNotExpressible)


@pytest.mark.req("NE-090")
def test_vectors_are_off_unless_wanted() -> None:
    assert node_zones(facts(pod("one", cpus=(5,))), ScanSettings(), "worker").vectors is None
    assert node_zones(facts(pod("one", cpus=(5,))), WANTED, "worker").vectors == PlacementVectors(
        "npv0v001::ve=leb89::cc=1::nn=2::bn=1", {}
    )


@pytest.mark.req("NE-092")
@pytest.mark.parametrize(
    ("metadata", "by_zone", "why"),
    [
        ("", {}, "is not metadata"),
        ("npv0v002::ve=leb89::cc=2::nn=2::bn=0", {}, "is not metadata"),
        ("npv0v001::ve=plain::cc=2::nn=2::bn=0", {}, "is not metadata"),
        ("npv0v001::ve=leb89::cc=2::nn=2", {}, "is not metadata"),
        ("npv0v001::ve=leb89::cc=2::nn=2::bn=0::xx=1", {}, "is not metadata"),
        ("npv0v001::ve=leb89::cc=two::nn=2::bn=0", {}, "not whole numbers"),
        ("npv0v001::ve=leb89::cc=-2::nn=2::bn=0", {}, "not whole numbers"),
        (f"npv0v001::ve=leb89::cc={'9' * 5000}::nn=2::bn=0", {}, "not whole numbers"),
        ("npv0v001::ve=leb89::cc=2::nn=2::bn=2", {}, "leaves out a cell that it does not have"),
        ("npv0v001::ve=leb89::cc=3::nn=2::bn=0", {}, "about 3 containers, not 2"),
        ("npv0v001::ve=leb89::cc=2::nn=2::bn=0", {0: "!"}, "cell 0 has a vector"),
        ("npv0v001::ve=leb89::cc=2::nn=2::bn=0", {2: "!"}, "cell 2 has a vector"),
        ("npv0v001::ve=leb89::cc=2::nn=2::bn=0", {1: "$"}, "has container 2"),
        ("npv0v001::ve=leb89::cc=2::nn=2::bn=0", {1: "!!"}, "has container 0"),
        ("npv0v001::ve=leb89::cc=2::nn=2::bn=0", {1: "f"}, "does not end"),
    ],
)
def test_attributes_that_cannot_be_right_are_refused(metadata: str, by_zone: dict[int, str], why: str) -> None:
    """Whoever reads them knows that they say nothing, rather than something wrong."""
    with pytest.raises(MalformedVectors, match=why):
        decode_vectors(PlacementVectors(metadata, by_zone), [key(0), key(1)])
