"""References and platforms hold for every text, not only for those we thought of."""

import string
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from polyarch.oci.reference import InvalidReference, Reference, parse, parse_located
from polyarch.platforms import InvalidPlatform, Platform, PlatformSet, node_platforms

LOWER = string.ascii_lowercase + string.digits

components = st.from_regex(r"[a-z0-9]{1,6}((\.|_|__|-{1,3})[a-z0-9]{1,4}){0,2}", fullmatch=True)
hosts = st.one_of(
    st.from_regex(r"[a-z][a-z0-9]{0,5}(\.[a-z][a-z0-9]{0,5}){1,2}(:[1-9][0-9]{0,3})?", fullmatch=True),
    st.sampled_from(["docker.io", "localhost", "localhost:5000", "[::1]:5000", "[2001:db8::1]", "index.docker.io"]),
)
tags = st.from_regex(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,10}", fullmatch=True)
digests = st.sampled_from([("sha256", 64), ("sha384", 96), ("sha512", 128)]).flatmap(
    lambda kind: st.text("0123456789abcdef", min_size=kind[1], max_size=kind[1]).map(lambda text: f"{kind[0]}:{text}")
)


@st.composite
def reference_texts(draw: st.DrawFn) -> str:
    path = "/".join(draw(st.lists(components, min_size=1, max_size=4)))
    name = f"{draw(hosts)}/{path}" if draw(st.booleans()) else path
    tag = f":{draw(tags)}" if draw(st.booleans()) else ""
    digest = f"@{draw(digests)}" if draw(st.booleans()) else ""
    return f"{name}{tag}{digest}"


def attempt(read: Callable[[str], Any], text: str) -> Any:
    """The result, or the error that it is; any other error fails the test."""
    try:
        return read(text)
    except (InvalidReference, InvalidPlatform) as error:
        return error


@pytest.mark.req("RG-014")
@given(reference_texts())
@example("docker.io/localhost/x")
@example("docker.io/library/" + "a" * 64)
def test_the_canonical_text_names_the_same_image(text: str) -> None:
    """And so does the familiar one."""
    reference = attempt(parse, text)
    if isinstance(reference, InvalidReference):
        # The parts are each valid; together only an image id or a component that looks like a host is not.
        first, slash, _ = text.partition("/")
        assert "image id" in reference.problem or (slash and "." in first), reference
        return
    assert parse(reference.canonical) == reference
    assert parse(reference.familiar) == reference
    assert parse(f"docker://{text}") == reference
    assert parse_located(reference.canonical) == reference


near_references = st.text(alphabet=LOWER + "AZ:@/.-_[] \n\x00é" + "sha256:", max_size=60)


@pytest.mark.req("RG-015", "RG-163")
@given(st.one_of(st.text(), near_references))
@example("a/:b")
@example("a/@sha256:")
@example("oci:/")
@example("oci::")
@example("[")
@example("a:b/")
def test_any_text_is_a_reference_or_refused_with_reason_and_advice(text: str) -> None:
    found = attempt(parse, text)
    if isinstance(found, Reference):
        assert parse(found.canonical) == found
        return
    assert found.text == text
    assert found.problem
    assert found.hint
    assert found.position is None or 1 <= found.position <= len(text) + 1


@pytest.mark.req("RG-163")
@given(st.one_of(st.text(max_size=40), near_references))
def test_any_located_text_is_a_reference_or_refused(text: str) -> None:
    """Names that configuration makes."""
    found = attempt(parse_located, text)
    assert found.registry if isinstance(found, Reference) else found.problem


words = st.one_of(
    st.sampled_from(
        ["linux", "Windows", "macos", "x86_64", "arm", "armhf", "arm64", "v8", "8", "v7", "1", "", " 386 "]
    ),
    st.text(string.ascii_letters + string.digits + "._-", max_size=8),
)


@pytest.mark.req("RG-020")
@given(words, words, words, words, st.lists(words, max_size=3))
def test_normalising_twice_is_normalising_once(
    os: str, architecture: str, variant: str, version: str, features: list[str]
) -> None:
    once = Platform.of(os, architecture, variant, version, features)
    assert Platform.of(once.os, once.architecture, once.variant, once.os_version, once.os_features) == once
    assert Platform.of(os.upper(), architecture.upper(), f" {variant}", version, features[::-1]) == once


@pytest.mark.req("RG-021", "RG-163")
@given(st.one_of(st.text(max_size=40), st.lists(words, max_size=5).map("/".join)))
def test_any_text_is_a_platform_or_refused(text: str) -> None:
    """What is a platform prints as a text that parses to it again."""
    found = attempt(Platform.parse, text)
    if isinstance(found, Platform):
        assert Platform.parse(str(found)) == found
    else:
        assert found.problem


platforms = st.builds(Platform.of, words, words, words)
node_sets = st.one_of(
    st.just(PlatformSet.EVERYTHING),
    st.lists(platforms, max_size=4).map(lambda found: PlatformSet.of(node_platforms(found))),
)


@pytest.mark.req("RG-022")
@given(st.lists(platforms, max_size=6))
def test_node_platforms_are_unique_and_sorted(found: list[Platform]) -> None:
    pairs = node_platforms(found)
    assert list(pairs) == sorted(set(pairs))
    assert {pair.os for pair in pairs} <= {"linux", "windows"}


@pytest.mark.req("RG-005")
@given(node_sets, node_sets, node_sets)
def test_intersection_is_an_algebra(one: PlatformSet, two: PlatformSet, three: PlatformSet) -> None:
    """The order in which images are looked at does not matter."""
    assert one & two == two & one
    assert (one & two) & three == one & (two & three)
    assert one & one == one
    assert one & PlatformSet.EVERYTHING == one
