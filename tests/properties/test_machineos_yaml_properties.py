"""YAML that is hashed into names of MachineOSBuilds: what libyaml writes, for every text, and what a parser reads back.

libyaml is the judge, given the styles that its port to Go asks for: it decides which of them a text can have, where
lines are folded, and how characters are escaped.
"""

import io
from collections.abc import Iterator
from typing import Any

import pytest
import yaml
from hypothesis import assume, example, given
from hypothesis import strategies as st

from polyarch.builds.machineos.build_name import block_yaml, needs_quotes

PIECES = (
    *("word", "a:", "a: b", "#c", " ", "  ", "'", '"', "\n", "\n\n", "\t", "- ", "---", "é", "\u2028", "\x85", "\xa0"),
    *("\U0001f600", "\ufeff", "\\", "x" * 40, "12", "yes", "\r"),
)
MARKS = {"\ue00e", "\ue00f"}
texts = st.one_of(
    st.text(st.characters(exclude_categories=["Cs"]), max_size=20),
    st.lists(st.sampled_from(PIECES), max_size=10).map("".join),
    st.lists(st.sampled_from(["word", "longer-word", "x" * 30, ":", "'", "\t", "#"]), max_size=30).map(" ".join),
).filter(lambda text: not MARKS & set(text))
keys = st.from_regex(r"[a-z][A-Za-z]{1,12}", fullmatch=True).filter(lambda key: not needs_quotes(key))
documents = st.recursive(
    st.one_of(texts, st.none(), st.booleans(), st.integers(-(2**31), 2**31)),
    lambda inner: st.one_of(st.lists(inner, max_size=4), st.dictionaries(keys, inner, max_size=4)),
    max_leaves=8,
)


def events(value: Any) -> Iterator[yaml.Event]:
    if isinstance(value, dict):
        yield yaml.MappingStartEvent(None, None, implicit=True, flow_style=not value)
        for name in sorted(value):
            yield from events(name)
            yield from events(value[name])
        yield yaml.MappingEndEvent()
    elif isinstance(value, list):
        yield yaml.SequenceStartEvent(None, None, implicit=True, flow_style=not value)
        for each in value:
            yield from events(each)
        yield yaml.SequenceEndEvent()
    elif isinstance(value, str):
        style = "|" if "\n" in value else '"' if needs_quotes(value) else None
        yield yaml.ScalarEvent(None, None, (True, True), value, style=style)
    else:
        word = "null" if value is None else str(value).lower()
        yield yaml.ScalarEvent(None, None, (True, True), word)


def by_libyaml(value: Any) -> str:
    stream = io.StringIO()
    every = [yaml.StreamStartEvent(), yaml.DocumentStartEvent(explicit=False), *events(value)]
    every += [yaml.DocumentEndEvent(explicit=False), yaml.StreamEndEvent()]
    yaml.emit(every, stream, Dumper=yaml.CDumper, width=80, allow_unicode=True)
    return stream.getvalue()


@pytest.mark.req("BD-265")
@pytest.mark.skipif(not yaml.__with_libyaml__, reason="this PyYAML was built without libyaml")
@given(st.dictionaries(keys, documents, min_size=1, max_size=4))
@example({"a": "x\U0001f600", "b": "\x85", "c": "\n😀"})
@example({"a": "\t" + "w" * 81 + "\ufeff  x \x7f"})
def test_libyaml_agrees(value: dict[str, Any]) -> None:
    """Byte for byte, but for the marker after a text with an open end, and quotes after a line separator."""
    text = block_yaml(value).decode()
    assume("\u2028'" not in text and "\u2029'" not in text)
    assert text == by_libyaml(value).removesuffix("...\n")


@pytest.mark.req("BD-265")
@given(st.dictionaries(keys, documents, min_size=1, max_size=4))
@example({"a": "\n"})
@example({"a": ["x\n\n"]})
@example({"a": "x\n\u2028"})
def test_a_document_has_nothing_of_our_own(value: dict[str, Any]) -> None:
    """It ends where its last text ends, and no mark is left in it."""
    text = block_yaml(value).decode()
    assert not MARKS & set(text)
    assert not text.endswith("\n...\n")
    assert text.endswith(("\n", "\u2028", "\u2029"))


@pytest.mark.req("BD-265")
@given(st.dictionaries(keys, texts, max_size=4))
def test_what_is_written_is_read_back(value: dict[str, str]) -> None:
    """A parser of YAML 1.1 that resolves no types finds the same texts."""
    assert yaml.load(block_yaml(value), Loader=yaml.BaseLoader) == value
