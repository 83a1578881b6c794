"""From several documents to one answer."""

import msgspec
import pytest

from polyarch.oci.documents import OCI_INDEX, ContentError
from polyarch.oci.image.parsing import (
    Artifact,
    ConfigReading,
    Finding,
    FlatIndex,
    IndexEntry,
    IndexReading,
    flatten,
    read_config,
    wanted,
)
from polyarch.oci.inspection import InspectionError
from polyarch.platforms import Platform


def runs(digest: str, platform: str) -> IndexEntry:
    return IndexEntry("runnable", digest, size=1, platform=Platform.parse(platform))


def inner(digest: str) -> IndexEntry:
    return IndexEntry("index", digest)


def unstated(digest: str) -> IndexEntry:
    return IndexEntry("unstated", digest)


def skipped(digest: str, reason: str) -> IndexEntry:
    return IndexEntry("skipped", digest, reason=reason)


def index(*entries: IndexEntry) -> IndexReading:
    return IndexReading(OCI_INDEX, entries)


def image(platform: str) -> ConfigReading:
    return ConfigReading(Platform.parse(platform))


NOT_FOUND = InspectionError.of("not-found", "404")
TIMEOUT = InspectionError.of("timeout", "no answer")


def listed(found: FlatIndex) -> list[str]:
    return [f"{entry.digest} {entry.platform}" for entry in found.entries]


def codes(found: FlatIndex) -> list[str]:
    return [warning.code for warning in found.warnings]


@pytest.mark.req("RG-040")
def test_an_index_that_states_everything_wants_nothing() -> None:
    """One document is enough."""
    top = index(runs("a", "linux/amd64"), skipped("s", "attestation"), runs("b", "linux/arm64"))
    assert wanted(top, {}) == ()
    found = flatten(top, {})
    assert listed(found) == ["a linux/amd64", "b linux/arm64"]
    assert [(each.digest, each.reason) for each in found.skipped] == [("s", "attestation")]
    assert found.warnings == ()
    assert found.error is None


@pytest.mark.req("RG-042")
def test_what_is_missing_is_wanted_once_and_in_order() -> None:
    """A digest already read is not read again."""
    top = index(unstated("c"), inner("i"), unstated("c"), inner("i"))
    assert [each.digest for each in wanted(top, {})] == ["c", "i"]
    found: dict[str, Finding] = {"i": index(unstated("c"), unstated("d"), inner("i"))}
    assert [each.digest for each in wanted(top, found)] == ["c", "d"]
    found |= {"c": image("linux/amd64"), "d": image("linux/arm64")}
    assert wanted(top, found) == ()
    assert listed(flatten(top, found)) == ["c linux/amd64", "d linux/arm64"]


@pytest.mark.req("RG-042")
def test_entries_of_an_inner_index_stand_in_place_of_the_outer_entry() -> None:
    """What the outer descriptor states of an inner index is ignored."""
    outer = IndexEntry("index", "i", platform=Platform("linux", "s390x"))
    top = index(runs("a", "linux/amd64"), outer, runs("z", "linux/ppc64le"))
    found = {"i": index(runs("b", "linux/arm64"), inner("j")), "j": index(runs("c", "linux/riscv64"))}
    assert listed(flatten(top, found)) == ["a linux/amd64", "b linux/arm64", "c linux/riscv64", "z linux/ppc64le"]


@pytest.mark.req("RG-042")
def test_three_levels_are_read_and_a_fourth_is_too_complex() -> None:
    top = index(inner("2"))
    found: dict[str, Finding] = {"2": index(inner("3"))}
    assert [each.digest for each in wanted(top, found)] == ["3"]
    found["3"] = index(runs("a", "linux/amd64"))
    assert wanted(top, found) == ()
    found["3"] = index(inner("4"))
    with pytest.raises(ContentError, match="4 deep where at most 3") as caught:
        wanted(top, found)
    assert caught.value.code == "too-complex"


@pytest.mark.req("RG-042")
def test_a_child_that_turns_out_to_be_an_index_counts_as_a_level() -> None:
    """The body decides, not the descriptor."""
    top = index(unstated("2"))
    found: dict[str, Finding] = {"2": index(unstated("3")), "3": index(unstated("4")), "4": index()}
    with pytest.raises(ContentError, match="nested 4 deep"):
        wanted(top, found)


@pytest.mark.req("RG-050")
@pytest.mark.parametrize(
    ("entries", "message"),
    [
        pytest.param([inner(str(n)) for n in range(15)], "", id="16 indexes with the top"),
        pytest.param([inner(str(n)) for n in range(16)], "17 indexes where at most 16", id="17 indexes"),
        pytest.param([unstated(str(n)) for n in range(64)], "", id="64 look-ups"),
        pytest.param([unstated(str(n)) for n in range(65)], "65 entries state no platform", id="65 look-ups"),
    ],
)
def test_there_are_limits_to_what_is_read(entries: list[IndexEntry], message: str) -> None:
    top = index(*entries)
    if not message:
        assert len(wanted(top, {})) == len(entries)
        return
    with pytest.raises(ContentError, match=message) as caught:
        wanted(top, {})
    assert caught.value.code == "too-complex"


CHILDREN = [
    pytest.param(image("linux/arm64"), ["c linux/arm64"], [], [], id="an image"),
    pytest.param(Artifact("x/y"), [], ["artifact"], ["no-platforms"], id="a config of another type"),
    pytest.param(read_config(b'{"os": "linux"}'), [], ["empty-config"], ["no-platforms"], id="no architecture"),
    pytest.param(
        read_config(b'{"architecture": "arm64"}'), ["c linux/arm64"], [], ["empty-os"], id="no os is linux, told"
    ),
]


@pytest.mark.parametrize(("finding", "entries", "reasons", "warnings"), CHILDREN)
def test_a_child_is_what_its_config_says(
    finding: Finding, entries: list[str], reasons: list[str], warnings: list[str]
) -> None:
    found = flatten(index(unstated("c")), {"c": finding})
    assert listed(found) == entries
    assert [each.reason for each in found.skipped] == reasons
    assert codes(found) == warnings
    assert found.error is None


@pytest.mark.req("RG-043")
@pytest.mark.parametrize("failure", [NOT_FOUND, TIMEOUT], ids=["absent", "unreachable"])
@pytest.mark.parametrize("entry", [unstated("c"), inner("c")], ids=["child", "inner index"])
def test_one_bad_entry_never_fails_the_image(entry: IndexEntry, failure: InspectionError) -> None:
    found = flatten(index(entry, runs("a", "linux/amd64")), {"c": failure})
    assert listed(found) == ["a linux/amd64"]
    assert [(each.digest, each.reason) for each in found.skipped] == [("c", "no-platform")]
    assert codes(found) == ["child-unresolved"]
    assert failure.message in found.warnings[0].message
    assert found.error is None


@pytest.mark.req("RG-043")
@pytest.mark.parametrize(
    ("findings", "error"),
    [
        pytest.param([NOT_FOUND], NOT_FOUND, id="the only one"),
        pytest.param([NOT_FOUND, TIMEOUT], TIMEOUT, id="the one that may pass"),
        pytest.param([Artifact(), NOT_FOUND], NOT_FOUND, id="what is no image is no candidate"),
    ],
)
def test_if_every_candidate_failed_the_image_is_that_error(findings: list[Finding], error: InspectionError) -> None:
    names = [str(number) for number in range(len(findings))]
    found = flatten(index(*map(unstated, names)), dict(zip(names, findings, strict=True)))
    assert found.error == error
    assert found.entries == ()


@pytest.mark.req("RG-044")
def test_the_first_of_two_entries_for_one_platform_counts() -> None:
    """With a warning that names both; spellings do not make a difference."""
    found = flatten(index(runs("a", "linux/arm/v7"), runs("b", "linux/arm"), runs("c", "linux/arm/v6")), {})
    assert listed(found) == ["a linux/arm/v7", "c linux/arm/v6"]
    assert codes(found) == ["duplicate-platform"]
    assert "a counts, b does not" in found.warnings[0].message


@pytest.mark.req("RG-044")
@pytest.mark.parametrize("first", ["zstd", ""])
def test_a_second_compression_of_an_image_is_no_duplicate(first: str) -> None:
    """The usual compression counts, wherever it stands."""
    entries = [runs(f"{arch}{form}", f"linux/{arch}") for arch in ("amd64", "arm64") for form in ("", "zstd")]
    entries.sort(key=lambda entry: ("zstd" in entry.digest) != (first == "zstd"))
    marked = [msgspec.structs.replace(each, compression="zstd" if "zstd" in each.digest else "") for each in entries]
    found = flatten(index(*marked), {})
    assert (listed(found), found.warnings) == (["amd64 linux/amd64", "arm64 linux/arm64"], ())
    assert len(flatten(index(*marked), {}, every=True).entries) == 4


@pytest.mark.req("RG-044")
def test_two_entries_of_one_compression_are_told() -> None:
    marked = [msgspec.structs.replace(runs(name, "linux/amd64"), compression="zstd") for name in "ab"]
    assert codes(flatten(index(*marked), {})) == ["duplicate-platform"]


@pytest.mark.req("RG-044")
def test_the_identical_descriptor_twice_is_silent() -> None:
    found = flatten(index(runs("a", "linux/amd64"), runs("a", "linux/amd64")), {})
    assert listed(found) == ["a linux/amd64"]
    assert found.warnings == ()


@pytest.mark.req("RG-044")
@pytest.mark.parametrize(
    ("entries", "detail"),
    [
        pytest.param([], "the index is empty", id="an empty index"),
        pytest.param(
            [skipped("a", "attestation"), skipped("b", "attestation"), skipped("c", "artifact")],
            "skipped: 1 artifact, 2 attestation",
            id="nothing but attestations and artifacts",
        ),
    ],
)
def test_no_runnable_entry_is_no_error_but_told(entries: list[IndexEntry], detail: str) -> None:
    found = flatten(index(*entries), {})
    assert found.error is None
    assert found.entries == ()
    assert codes(found) == ["no-platforms"]
    assert detail in found.warnings[0].message


@pytest.mark.req("RG-020")
def test_unknown_names_are_told_once() -> None:
    top = index(runs("a", "templeos/amd64"), runs("b", "templeos/quantum"), runs("c", "linux/quantum"))
    found = flatten(top, {})
    assert len(found.entries) == 3
    assert sorted(codes(found)) == ["unknown-architecture", "unknown-os"]


def test_flattening_too_early_is_a_mistake_of_the_caller() -> None:
    with pytest.raises(ValueError, match="c has not been read yet"):
        flatten(index(unstated("c")), {})


@pytest.mark.req("MF-076", "RG-042")
def test_an_index_of_indexes_says_so() -> None:
    """It is read like any other; who reproduces a tool that cannot read it has to know."""
    top = index(runs("a", "linux/amd64"), inner("i"))
    found = flatten(top, {"i": index(runs("b", "linux/arm64"))})
    assert listed(found) == ["a linux/amd64", "b linux/arm64"]
    assert [warning.code for warning in found.warnings] == ["nested-index"]
    assert "i in the index is an index itself" in found.warnings[0].message
