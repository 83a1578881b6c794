"""YAML that is hashed into names of MachineOSBuilds: libyaml writes it, so a parser reads it back."""

from typing import Any

import pytest
import yaml
from hypothesis import example, given
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
