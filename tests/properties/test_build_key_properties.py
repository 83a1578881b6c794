"""Keys depend on what is meant, not on how it is written; names never meet."""

import json
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from polyarch.builds.api.resources import BuildSecret, ImageBuildSpec, KeyReference, Output, Override, Source
from polyarch.builds.facts.build_facts import BuildRequest, InputData
from polyarch.builds.keys import (
    arch_key_document,
    build_key_document,
    canonical_json,
    difference_sentence,
    effective_inputs,
    key_differences,
    key_outline,
)
from polyarch.builds.names import shortened

pytestmark = pytest.mark.req("BD-071", "BD-073", "BD-074")

scalars = st.one_of(st.none(), st.booleans(), st.integers(), st.text())
values = st.recursive(
    scalars, lambda inner: st.one_of(st.lists(inner, max_size=4), st.dictionaries(st.text(), inner, max_size=4))
)
maps = st.dictionaries(st.text(min_size=1, max_size=5), st.text(max_size=5), max_size=4)
architectures = st.lists(st.sampled_from(["amd64", "arm64", "s390x", "riscv64"]), min_size=1, max_size=4, unique=True)


@pytest.mark.req("BD-070")
@given(values)
def test_canonical_text_is_read_back(value: Any) -> None:
    """It is JSON, it says the same, and it does not depend on the order of members."""
    text = canonical_json(value)
    assert json.loads(text) == value
    assert canonical_json(json.loads(text)) == text
    assert canonical_json(_reversed(value)) == text


def _reversed(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _reversed(member) for name, member in reversed(value.items())}
    return [_reversed(member) for member in value] if isinstance(value, list) else value


@st.composite
def specs(draw: st.DrawFn) -> ImageBuildSpec:
    overrides = [
        Override(architecture=each, containerfile=draw(st.none() | st.just(f"FROM {each}\n")), build_args=draw(maps))
        for each in draw(architectures)
    ]
    secrets = [BuildSecret(id=each, secret=KeyReference("s", "k")) for each in draw(maps)]
    return ImageBuildSpec(
        source=Source(containerfile="FROM a\n", overrides=overrides, build_args=draw(maps), secrets=secrets),
        output=Output(repository="r.example.com/a", labels=draw(maps), annotations=draw(maps)),
    )


def shuffled(spec: ImageBuildSpec) -> ImageBuildSpec:
    """The same wish, every list that is a set and every map in another order."""
    document = _reversed(msgspec.to_builtins(spec))
    for path in ("overrides", "secrets"):
        document["source"][path] = list(reversed(document["source"].get(path) or []))
    return msgspec.convert(document, ImageBuildSpec)


def keys(spec: ImageBuildSpec, wanted: list[str]) -> tuple[dict[str, str], str]:
    wish = BuildRequest(kind="ImageBuild", namespace="n", name="x", uid="u", generation=1, spec=spec)
    found = effective_inputs(wish, InputData(), wanted)
    by = {each: arch_key_document(found, each, {}).hex for each in sorted(wanted)}
    return by, build_key_document(spec.output, by).hex


@pytest.mark.req("BD-006", "BD-075", "BD-100")
@given(specs(), architectures)
def test_order_changes_no_key(spec: ImageBuildSpec, wanted: list[str]) -> None:
    """The order of whatever is a set is no input."""
    assert keys(spec, wanted) == keys(shuffled(spec), wanted[::-1])


@pytest.mark.req("BD-075")
@given(specs(), architectures)
def test_other_architectures_are_no_input(spec: ImageBuildSpec, wanted: list[str]) -> None:
    """A child's key is the same whichever other architectures are built."""
    together, _ = keys(spec, wanted)
    assert together == {each: keys(spec, [each])[0][each] for each in wanted}


@pytest.mark.req("BD-302")
@given(specs(), specs())
def test_a_difference_is_told_exactly_where_there_is_one(before: ImageBuildSpec, after: ImageBuildSpec) -> None:
    """Equal keys have no difference, other keys have a sentence."""
    found = []
    for spec in (before, after):
        wish = BuildRequest(kind="ImageBuild", namespace="n", name="x", uid="u", generation=1, spec=spec)
        found.append(arch_key_document(effective_inputs(wish, InputData(), ["arm64"]), "arm64", {}))
    differences = key_differences(*(key_outline(each.document) for each in found))
    assert (found[0].hex == found[1].hex) is (not differences)
    assert bool(difference_sentence(differences)) is bool(differences)


@pytest.mark.req("BD-078")
@given(st.text(min_size=1, max_size=300), st.text(min_size=1, max_size=300), st.sampled_from([63, 128, 253]))
def test_short_names_never_meet(first: str, second: str, length: int) -> None:
    """At most the length, the same for the same, and another for another."""
    assert len(shortened(first, length)) <= length
    assert (shortened(first, length) == shortened(second, length)) is (first == second)
