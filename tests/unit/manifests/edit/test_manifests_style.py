"""How new text is written."""

import json
from typing import Any

import pytest
import yaml

from polyarch.manifests.edit.style import (
    BlockStyle,
    FlowStyle,
    block_lines,
    flow,
    is_json,
    quoted,
    requoted,
    scalar,
    sequence_indent,
)
from polyarch.manifests.scan.nodes import compose
from polyarch.manifests.scan.text import SourceText


@pytest.mark.req("MF-062")
@pytest.mark.parametrize(
    "text",
    ["amd64", "linux/arm64", "kubernetes.io/arch", "In", "quay.io/acme/web:2", "a b", "x-y_z", "--flag", "v1", "$(A)"],
)
def test_plain_texts_have_no_quotes(text: str) -> None:
    """Plain unless it would be read as something else."""
    if text == "$(A)":
        assert scalar(text) == '"$(A)"'
    else:
        assert scalar(text) == text


NUMBERS = [
    "386",
    "0x1F",
    "0o17",
    "017",
    "0b1",
    "1_000",
    "1.5",
    "1e3",
    "-1",
    ".5",
    "1:30",
    "1:30:15",
    "2024-01-01",
    ".inf",
]
WORDS = ["yes", "No", "ON", "off", "y", "N", "true", "False", "null", "Null", "~", ".nan", "-", ".", "...", "---", "="]
SIGNS = ["", " a", "a ", "a: b", "a #b", "a:", "#a", "&a", "*a", "!a", "[a", "{a", "<<"]


@pytest.mark.req("MF-062")
@pytest.mark.parametrize("text", [*NUMBERS, *WORDS, *SIGNS])
def test_texts_that_a_reader_could_take_for_something_else_are_quoted(text: str) -> None:
    """By YAML 1.1 or 1.2, of which readers of Kubernetes mix both."""
    written = scalar(text)
    assert written.startswith('"')
    assert yaml.safe_load(written) == text


@pytest.mark.req("MF-062")
@pytest.mark.parametrize("text", ["a\nb", 'a"b\\c', "tab\there", "bell\x07", "ü𝒳", "\u2028", "\x85", "\ufeff", "\x7f"])
def test_quoted_texts_are_read_alike_as_yaml_and_as_json(text: str) -> None:
    """Double quotes with JSON's escapes."""
    written = quoted(text)
    assert yaml.safe_load(written) == text
    assert json.loads(written) == text
    assert written.isprintable()


@pytest.mark.parametrize(("value", "text"), [(True, "true"), (None, "null"), (5, "5"), (1.5, "1.5")])
def test_other_scalars_are_what_they_are(value: Any, text: str) -> None:
    assert scalar(value) == text


@pytest.mark.parametrize(
    ("old", "new", "text"),
    [
        ("'a'", "it's", "'it''s'"),
        ("'a'", "a\nb", '"a\\nb"'),
        ('"a"', "b", '"b"'),
        ("a", "b", "b"),
        ("a", "5", '"5"'),
        ("|\n  a\n", "b", "b"),
        ("[a]", "b", "b"),
    ],
)
def test_quotes_of_what_was_there_stay_where_they_can(old: str, new: str, text: str) -> None:
    (document,) = compose(SourceText.of("a.yaml", old.encode()))
    assert requoted(new, document.root) == text


VALUE = {"a": {"b": [1, {"c": "d", "e": [["f"]]}], "g": {}, "h": []}, "no": "386"}


@pytest.mark.parametrize("style", [BlockStyle(), BlockStyle(4), BlockStyle(2, 2), BlockStyle(4, 2), BlockStyle(3, 1)])
def test_block_lines_read_as_the_value(style: BlockStyle) -> None:
    assert yaml.safe_load("\n".join(block_lines(VALUE, style))) == VALUE
    assert yaml.safe_load("\n".join(block_lines([VALUE, 1], style))) == [VALUE, 1]


@pytest.mark.parametrize("step", [None, 2, 4])
@pytest.mark.parametrize("compact", [False, True])
def test_flow_text_reads_as_the_value(step: int | None, compact: bool) -> None:
    text = flow(VALUE, FlowStyle(json=True, compact=compact, step=step), "  ")
    assert json.loads(text) == VALUE
    assert ("\n" in text) is (step is not None)
    assert yaml.safe_load(flow(VALUE, FlowStyle())) == VALUE


@pytest.mark.req("MF-064")
@pytest.mark.parametrize(
    ("text", "json_text"),
    [('{"a": 1}\n', True), ("[1]", True), ("{a: 1}", False), ('{"a": 1,}', False), ("a: {}", False), ("5", False)],
)
def test_json_is_what_a_reader_of_json_takes(text: str, json_text: bool) -> None:
    """JSON quoting iff the document is JSON."""
    (document,) = compose(SourceText.of("a.json", text.encode()))
    assert is_json(document) is json_text


@pytest.mark.req("MF-062")
@pytest.mark.parametrize(
    ("text", "at", "indent"),
    [
        ("a:\n- b\n", 0, 0),
        ("a:\n  - b\n", 0, 2),
        ("a:\n- b\nc:\n    - d\n", 0, 0),
        ("a:\n- b\nc:\n    - d\n", 15, 4),
        ("a: [b]\nc: 1\n", 0, 0),
        ("- - a\n", 0, 0),
        ("x: &x\n- a\nb:\n    - *x\n", 0, 4),
    ],
)
def test_sequences_are_indented_like_the_nearest(text: str, at: int, indent: int) -> None:
    """Nearest in the text; those that are not below a key do not count."""
    (document,) = compose(SourceText.of("a.yaml", text.encode()))
    assert sequence_indent(document, None, at) == indent
