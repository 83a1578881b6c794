"""YAML as it is hashed into names of MachineOSBuilds."""

from typing import Any

import pytest
import yaml

from polyarch.builds.machineos.build_name import block_yaml, needs_quotes

LONG = " ".join(["word"] * 40)
FOLDED = " ".join(["word"] * 16)

DOCUMENTS: dict[str, tuple[Any, str]] = {
    "empty mapping": ({}, "{}\n"),
    "null": ({"a": None}, "a: null\n"),
    "empty values": ({"c": [], "b": {}, "a": ""}, 'a: ""\nb: {}\nc: []\n'),
    "numbers and truth": ({"a": 1, "b": True, "c": False, "d": -7}, "a: 1\nb: true\nc: false\nd: -7\n"),
    "nested": ({"a": {"b": {"c": "d"}}}, "a:\n  b:\n    c: d\n"),
    "dashes at the key's column": ({"a": [{"x": "1a", "y": "2b"}, "z"]}, 'a:\n- x: 1a\n  "y": 2b\n- z\n'),
    "list in a list": ({"a": [["b", "c"], []]}, "a:\n- - b\n  - c\n- []\n"),
    "literal": ({"a": "x\ny\n"}, "a: |\n  x\n  y\n"),
    "literal without end": ({"a": "x\ny", "b": 1}, "a: |-\n  x\n  y\nb: 1\n"),
    "literal with more ends": ({"a": "x\n\n"}, "a: |+\n  x\n\n"),
    "literal that is a line feed": ({"a": "\n", "b": "c"}, "a: |2+\n\nb: c\n"),
    "literal that begins with a space": ({"a": " x\ny\n"}, "a: |2\n   x\n  y\n"),
    "literal with empty lines": ({"a": ["x\n\ny\n"]}, "a:\n- |\n  x\n\n  y\n"),
    "a line ending in a space": ({"a": "x \ny\n"}, 'a: "x \\ny\\n"\n'),
    "carriage return": ({"a": "x\r\ny\n"}, 'a: "x\\r\\ny\\n"\n'),
    "tab": ({"a": "x\ty"}, 'a: "x\\ty"\n'),
    "tab in lines": ({"a": "x\n\ty\n"}, 'a: "x\\n\\ty\\n"\n'),
    "control characters": ({"a": "\x00\x07\x1b\x7f\x9f"}, 'a: "\\0\\a\\e\\x7F\\x9F"\n'),
    "beyond U+FFFF": ({"a": "x\U0001f600"}, 'a: "x\\U0001F600"\n'),
    "in any script": ({"a": "größe ☃ 名"}, "a: größe ☃ 名\n"),
    "byte-order mark": ({"a": "\ufeffx"}, 'a: "\\uFEFFx"\n'),
    "line separator at the end": ({"a": {"b": "x\u2028"}, "c": "'\u2029"}, "a:\n  b: 'x\u2028'\nc: '''\u2029'\n"),
    "line separator at the end of lines": ({"a": "x\n\u2028"}, "a: |+\n  x\n\u2028"),
    "line separator at the end, escaped": ({"a": " x \u2028"}, 'a: " x \\L"\n'),
    "line separator": ({"a": "x\u2028y"}, "a: 'x\u2028  y'\n"),
    "single quotes": ({"a": "'x': it's"}, "a: '''x'': it''s'\n"),
    "structure": (
        {"a": ["- x", "a: b", "x #y", "#x", "?", "*x", " x", "x "]},
        "a:\n- '- x'\n- 'a: b'\n- 'x #y'\n- '#x'\n- '?'\n- '*x'\n- ' x'\n- 'x '\n",
    ),
    "another type": ({"a": ["true", "12", "~", "=", "<<"]}, 'a:\n- "true"\n- "12"\n- "~"\n- =\n- <<\n'),
    "folded": ({"a": LONG}, f"a: {FOLDED}\n  {FOLDED}\n  {' '.join(['word'] * 8)}\n"),
    "not folded at two spaces": ({"a": "w" * 81 + "  x"}, f"a: {'w' * 81}  x\n"),
    "folded in quotes": ({"a": f"{'w' * 81} : x"}, f"a: '{'w' * 81}\n  : x'\n"),
    "folded in double quotes": ({"a": f"\t{'w' * 81}  x"}, f'a: "\\t{"w" * 81}\n  \\ x"\n'),
}


@pytest.mark.req("BD-265")
@pytest.mark.parametrize(("value", "expected"), DOCUMENTS.values(), ids=DOCUMENTS)
def test_documents(value: Any, expected: str) -> None:
    """Byte for byte, and what a YAML 1.1 parser reads is what was written."""
    assert block_yaml(value).decode() == expected
    if "<<" not in expected:
        assert yaml.safe_load(block_yaml(value)) == value


@pytest.mark.req("BD-265")
def test_without_libyaml(monkeypatch: pytest.MonkeyPatch) -> None:
    """PyYAML has no wheel for ppc64le, and is built without libyaml where its headers are missing."""
    monkeypatch.delattr(yaml, "CSafeDumper", raising=False)
    assert block_yaml({"a": "x\U0001f600 \x85\n"}).decode() == 'a: "x\\U0001F600 \\N\\n"\n'


ANOTHER_TYPE = (
    *(
        "y",
        "Y",
        "yes",
        "No",
        "ON",
        "off",
        "n",
        "null",
        "~",
        "true",
        "False",
        "",
        "1",
        "-1",
        "+1",
        "0x1F",
        "0X1f",
        "0b1",
    ),
    *(
        "0b1",
        "-0b1",
        "0o17",
        "017",
        "08",
        "1_000",
        "0x_1",
        "1.5",
        ".5",
        "1.",
        "1e3",
        "-1.5E-3",
        ".inf",
        "-.INF",
        ".nan",
    ),
    *("190:20:30", "190:20:30.15", "-1:2", "2001-12-14", "2001-1-2", "2001-12-14T21:59:43.10Z", "2000-02-29"),
    *("2001-12-14t21:59:43-05:00", "2001-12-14 21:59:43.10", "18446744073709551615", "99999999999999999999"),
)


@pytest.mark.req("BD-265")
@pytest.mark.parametrize("text", ANOTHER_TYPE)
def test_texts_of_another_type(text: str) -> None:
    """Quoted, since YAML 1.1 would read them as something else."""
    assert needs_quotes(text)
    assert block_yaml({"a": text}).decode() == f'a: "{text}"\n'


LOOKS_LIKE_IT = (
    *("yEs", "nUll", "tRue", "=", "<<", "-", "+", ".", "..", "1a", "0xg", "0b2", "0o8", "1e", "e1", "1.2.3", "v1.2"),
    *("1:60", "2001-13-01", "2001-02-30", "2001-12-14T21:59:43", "2001-12-14 21:59:43 Z", "2001-12", "1e999"),
    *("0x" + "f" * 17, ".x", "._5", "12:34:56:78:99", "1-2"),
)


@pytest.mark.req("BD-265")
@pytest.mark.parametrize("text", LOOKS_LIKE_IT)
def test_texts_that_only_look_like_it(text: str) -> None:
    assert not needs_quotes(text)
