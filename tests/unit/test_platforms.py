"""Platforms: one normalisation for every spelling."""

import pytest

from polyarch.platforms import (
    KNOWN_ARCHITECTURES,
    KNOWN_SYSTEMS,
    InvalidPlatform,
    NodePlatform,
    Platform,
    PlatformSet,
    is_architecture,
    node_platforms,
    normal_architecture,
    shared_platforms,
)

SPELLINGS = [
    (("x86_64", ""), ("amd64", "")),
    (("x86-64", ""), ("amd64", "")),
    (("amd64", "v1"), ("amd64", "")),
    (("amd64", "1"), ("amd64", "")),
    (("x86_64", "v1"), ("amd64", "")),
    (("amd64", "v3"), ("amd64", "v3")),
    (("aarch64", ""), ("arm64", "")),
    (("aarch64", "v8"), ("arm64", "")),
    (("arm64", "8"), ("arm64", "")),
    (("arm64", "v8"), ("arm64", "")),
    (("arm64", "v9"), ("arm64", "v9")),
    (("i386", ""), ("386", "")),
    (("i686", ""), ("386", "")),
    (("x86", ""), ("386", "")),
    (("ppc64el", ""), ("ppc64le", "")),
    (("loongarch64", ""), ("loong64", "")),
    (("arm", ""), ("arm", "v7")),
    (("arm", "7"), ("arm", "v7")),
    (("arm", "v7"), ("arm", "v7")),
    (("armhf", ""), ("arm", "v7")),
    (("armv7", ""), ("arm", "v7")),
    (("armv7l", ""), ("arm", "v7")),
    (("armhf", "v6"), ("arm", "v6")),
    (("armel", ""), ("arm", "v6")),
    (("armv6", ""), ("arm", "v6")),
    (("armv6l", ""), ("arm", "v6")),
    (("arm", "6"), ("arm", "v6")),
    (("arm", "v6"), ("arm", "v6")),
    (("arm", "5"), ("arm", "v5")),
    (("arm", "8"), ("arm", "v8")),
    ((" AMD64 ", " V1 "), ("amd64", "")),
    (("s390x", ""), ("s390x", "")),
    (("riscv64", "rva23"), ("riscv64", "rva23")),
    (("quantum", "q"), ("quantum", "q")),
]


@pytest.mark.req("RG-020")
@pytest.mark.parametrize(
    ("given", "expected"), SPELLINGS, ids=[f"RG-020 {'/'.join(given).strip('/')!r}" for given, _ in SPELLINGS]
)
def test_every_spelling_of_an_architecture_becomes_one(given: tuple[str, str], expected: tuple[str, str]) -> None:
    platform = Platform.of("linux", *given)
    assert (platform.architecture, platform.variant) == expected


@pytest.mark.req("RG-020")
@pytest.mark.parametrize(
    ("given", "expected"),
    [
        pytest.param("macos", "darwin", id="macos is darwin"),
        pytest.param(" Linux", "linux", id="trimmed and lower case"),
        pytest.param("templeos", "templeos", id="an unknown system is kept"),
    ],
)
def test_systems_are_normalised(given: str, expected: str) -> None:
    assert Platform.of(given, "amd64").os == expected


@pytest.mark.req("RG-020")
def test_known_names_are_those_of_the_specification() -> None:
    """The lists of known architectures and systems."""
    assert sorted(KNOWN_ARCHITECTURES) == [
        "386",
        "amd64",
        "arm",
        "arm64",
        "loong64",
        "mips",
        "mips64",
        "mips64le",
        "mipsle",
        "ppc64",
        "ppc64le",
        "riscv64",
        "s390x",
        "wasm",
    ]
    assert sorted(KNOWN_SYSTEMS) == [
        "aix",
        "android",
        "darwin",
        "dragonfly",
        "freebsd",
        "illumos",
        "ios",
        "js",
        "linux",
        "netbsd",
        "openbsd",
        "plan9",
        "solaris",
        "wasi",
        "wasip1",
        "wasip2",
        "windows",
    ]
    assert Platform.of("linux", "x86_64").known_architecture
    assert not Platform.of("linux", "quantum").known_architecture
    assert not Platform.of("templeos", "amd64").known_system


@pytest.mark.req("RG-021")
@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        pytest.param(
            Platform.of("linux", "x86_64"), Platform.of("Linux", "amd64", "v1"), True, id="two spellings of one"
        ),
        pytest.param(Platform.of("linux", "arm64"), Platform.of("linux", "arm64", "v9"), False, id="another variant"),
        pytest.param(
            Platform.of("windows", "amd64", os_version="10.0.1"),
            Platform.of("windows", "amd64", os_version="10.0.2"),
            False,
            id="another OS version",
        ),
        pytest.param(
            Platform.of("windows", "amd64", os_features=["win32k", "b", "b"]),
            Platform.of("windows", "amd64", os_features=["b", "Win32k"]),
            True,
            id="features are a set",
        ),
        pytest.param(
            Platform.of("windows", "amd64", os_features=["win32k"]),
            Platform.of("windows", "amd64"),
            False,
            id="another feature",
        ),
    ],
)
def test_platforms_are_the_same_iff_every_part_agrees(one: Platform, other: Platform, same: bool) -> None:
    assert (one == other) is same
    assert (hash(one) == hash(other)) is same


@pytest.mark.req("RG-021")
@pytest.mark.parametrize(
    ("text", "expected", "printed"),
    [
        pytest.param("linux/amd64", Platform("linux", "amd64"), "linux/amd64", id="system and architecture"),
        pytest.param("linux/arm/v6", Platform("linux", "arm", "v6"), "linux/arm/v6", id="with variant"),
        pytest.param("linux/arm", Platform("linux", "arm", "v7"), "linux/arm/v7", id="arm is v7"),
        pytest.param("aarch64", Platform("linux", "arm64"), "linux/arm64", id="one word is an architecture"),
        pytest.param("armhf", Platform("linux", "arm", "v7"), "linux/arm/v7", id="one word is an alias"),
        pytest.param(
            "windows(10.0.20348.1726)/amd64",
            Platform("windows", "amd64", "", "10.0.20348.1726"),
            "windows(10.0.20348.1726)/amd64",
            id="with OS version",
        ),
        pytest.param("linux/quantum", Platform("linux", "quantum"), "linux/quantum", id="unknown is kept"),
    ],
)
def test_texts_parse_to_what_they_print(text: str, expected: Platform, printed: str) -> None:
    assert Platform.parse(text) == expected
    assert str(expected) == printed
    assert Platform.parse(printed) == expected


@pytest.mark.req("RG-021")
@pytest.mark.parametrize(
    ("text", "named"),
    [
        pytest.param("linux", "'linux' is a system without an architecture", id="a system alone"),
        pytest.param("quantum", "'quantum' is not a known architecture", id="an unknown word"),
        pytest.param("", "it is empty", id="nothing"),
        pytest.param("linux/", "the architecture is empty", id="empty architecture"),
        pytest.param("/amd64", "the system is empty", id="empty system"),
        pytest.param("linux/arm/", "the variant is empty", id="empty variant"),
        pytest.param("amd64/linux/x/y", "too many from 'y'", id="four parts"),
        pytest.param("amd64/linux", "'amd64' is an architecture", id="parts the wrong way round"),
        pytest.param("arm64/v8", "'arm64' is an architecture", id="system left out"),
        pytest.param("linux/a b", "the architecture 'a b'", id="white space within"),
        pytest.param("windows()/amd64", "the system 'windows()'", id="empty version"),
    ],
)
def test_other_texts_are_refused_with_the_part_that_is_wrong(text: str, named: str) -> None:
    with pytest.raises(InvalidPlatform) as caught:
        Platform.parse(text)
    assert named in str(caught.value)
    assert "for example linux/arm64" in str(caught.value)


@pytest.mark.req("RG-022")
def test_node_platforms_are_what_node_labels_can_say() -> None:
    """Linux and windows only, variant and version dropped, unique, sorted."""
    platforms = [
        Platform.of("windows", "amd64", os_version="10.0.1"),
        Platform.of("windows", "amd64", os_version="10.0.2"),
        Platform.of("linux", "arm", "v7"),
        Platform.of("linux", "arm", "v6"),
        Platform.of("darwin", "arm64"),
        Platform.of("linux", "amd64"),
        Platform.of("linux", ""),
        Platform.of("linux", "no label/value"),
        Platform.of("linux", "x" * 64),
    ]
    assert node_platforms(platforms) == (("linux", "amd64"), ("linux", "arm"), ("windows", "amd64"))
    assert str(node_platforms(platforms)[0]) == "linux/amd64"
    assert Platform.of("darwin", "arm64").node == NodePlatform("darwin", "arm64")


@pytest.mark.req("RG-020")
def test_names_are_compared_after_normalisation() -> None:
    """Words of node labels and of users."""
    assert normal_architecture("X86_64") == "amd64"
    assert is_architecture(" aarch64 ")
    assert not is_architecture("linux")


AMD, ARM, WINDOWS = NodePlatform("linux", "amd64"), NodePlatform("linux", "arm64"), NodePlatform("windows", "amd64")


@pytest.mark.req("RG-005")
def test_everything_leaves_a_set_as_it_is() -> None:
    """Images without a platform do not constrain."""
    some = PlatformSet.of([AMD, ARM])
    assert PlatformSet.EVERYTHING & some == some & PlatformSet.EVERYTHING == some
    assert PlatformSet.EVERYTHING & PlatformSet.EVERYTHING == PlatformSet.EVERYTHING
    assert PlatformSet.EVERYTHING
    assert NodePlatform("plan9", "mips") in PlatformSet.EVERYTHING


def test_a_set_lists_its_members_in_order() -> None:
    some = PlatformSet.of([WINDOWS, ARM, AMD])
    assert list(some) == [AMD, ARM, WINDOWS]
    assert some.architectures() == ("amd64", "arm64")
    assert some.architectures("linux") == ("amd64", "arm64")
    assert some.architectures("windows") == ("amd64",)
    assert some.systems() == ("linux", "windows")
    assert AMD in some
    assert NodePlatform("linux", "s390x") not in some
    assert str(some) == "linux/amd64, linux/arm64, windows/amd64"


def test_sets_without_a_common_member_are_empty() -> None:
    nothing = PlatformSet.of([AMD]) & PlatformSet.of([ARM])
    assert not nothing
    assert not nothing.is_everything
    assert str(nothing) == "nothing"


def test_everything_is_not_mistaken_for_a_list() -> None:
    assert PlatformSet.EVERYTHING.is_everything
    with pytest.raises(TypeError, match="check is_everything first"):
        list(PlatformSet.EVERYTHING)
    with pytest.raises(TypeError, match="check is_everything first"):
        PlatformSet.EVERYTHING.architectures()


def parsed(*texts: str) -> list[Platform]:
    return [Platform.parse(text) for text in texts]


@pytest.mark.req("RG-022")
@pytest.mark.parametrize(
    ("platforms", "nodes"),
    [
        (["linux/386"], ["linux/386", "linux/amd64"]),
        (["linux/386", "linux/arm64"], ["linux/386", "linux/amd64", "linux/arm64"]),
        (["windows/386"], ["windows/386", "windows/amd64"]),
        (["linux/amd64/v3", "linux/arm64"], ["linux/arm64"]),
        (["linux/amd64/v2", "linux/amd64/v3"], ["linux/amd64"]),
        (["linux/arm64/v9"], ["linux/arm64"]),
        (["linux/arm64/v8", "linux/arm/v6"], ["linux/arm", "linux/arm64"]),
        (["linux/arm/v5"], ["linux/arm"]),
        (["wasi/wasm", "linux/wasm", "linux/s390x"], ["linux/s390x"]),
        (["darwin/arm64"], []),
    ],
)
def test_nodes_that_run_an_image_are_those_whose_runtime_takes_it(platforms: list[str], nodes: list[str]) -> None:
    assert list(map(str, node_platforms(parsed(*platforms)))) == nodes


@pytest.mark.req("PL-219")
@pytest.mark.parametrize(
    ("images", "nodes"),
    [
        ([["linux/arm"]], ["linux/arm", "linux/arm64"]),
        ([["linux/arm"], ["linux/arm64"]], ["linux/arm64"]),
        ([["linux/arm", "linux/amd64"]], ["linux/amd64", "linux/arm"]),
        ([["linux/arm"], ["linux/amd64"]], []),
        ([["linux/amd64"], ["linux/s390x"]], []),
    ],
)
def test_32_bit_arm_counts_for_arm64_where_nothing_else_is_left(images: list[list[str]], nodes: list[str]) -> None:
    sets = [PlatformSet.of(node_platforms(parsed(*each))) for each in images]
    assert list(map(str, shared_platforms(sets))) == nodes


@pytest.mark.parametrize("text", ["linux/arm/v6", "linux/amd64/v3", "windows(10.0.17763.1)/amd64", "armel"])
def test_a_platform_of_nodes_has_no_variant_and_no_version(text: str) -> None:
    with pytest.raises(InvalidPlatform, match="no variant and no version"):
        Platform.parse_node(text)


@pytest.mark.parametrize(
    "text", ["arm64", "linux/arm64/v8", "linux/amd64/v1", "linux/arm/v7", "armhf", "windows/amd64"]
)
def test_the_usual_variant_of_a_platform_of_nodes_may_be_said(text: str) -> None:
    assert Platform.parse_node(text) == Platform.parse(text).node
