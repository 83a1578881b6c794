"""Documents and nodes: places, values, aliases, limits."""

from typing import Any

import pytest

from polyarch.manifests.scan import nodes
from polyarch.manifests.scan.nodes import Document, SyntaxProblem, compose
from polyarch.manifests.scan.text import MAX_BYTES, SourceText


def documents(text: str) -> list[Document]:
    return compose(SourceText.of("web.yaml", text.encode()))


def document(text: str) -> Document:
    (found,) = documents(text)
    return found


def value(text: str) -> Any:
    return document(text).value


@pytest.mark.req("MF-020")
@pytest.mark.parametrize(
    ("text", "values"),
    [
        pytest.param("", [], id="empty file"),
        pytest.param("# a comment\n\n", [], id="comments only"),
        pytest.param("a: 1\n---\nb: 2\n", [{"a": 1}, {"b": 2}], id="two documents"),
        pytest.param("# a comment\n---\na: 1\n", [{"a": 1}], id="a comment before the first marker"),
        pytest.param("---\n---\na: 1\n---\n", [None, {"a": 1}, None], id="empty documents count"),
        pytest.param("--- {a: 1}\n--- text\n", [{"a": 1}, "text"], id="content behind the marker"),
        pytest.param("a: |\n  ---\n  ----\n", [{"a": "---\n----\n"}], id="indented dashes are text"),
        pytest.param("a: 1\n----: 2\n", [{"a": 1, "----": 2}], id="four dashes are a key"),
        pytest.param("%YAML 1.1\n---\na: 1\n...\n---\nb: 2\n", [{"a": 1}, {"b": 2}], id="directives and ends"),
        pytest.param("a: 1\r\n---\r\nb: 2\r\n", [{"a": 1}, {"b": 2}], id="CR LF"),
        pytest.param("a: 1\r---\rb: 2\r", [{"a": 1}, {"b": 2}], id="CR alone"),
        pytest.param('{"a": 1}\n{"b": 2}\n', [{"a": 1}, {"b": 2}], id="JSON values without a separator"),
        pytest.param('\n{"a": "}{"}{"b": [1]}\t[2]', [{"a": "}{"}, {"b": [1]}, [2]], id="on one line"),
        pytest.param('{"a": "}{"}\n', [{"a": "}{"}], id="one JSON value with a border in a text"),
        pytest.param('--- {"a": 1}\n{"b": 2}\n---\nc: 3\n', [{"a": 1}, {"b": 2}, {"c": 3}], id="and YAML"),
    ],
)
def test_a_file_is_cut_into_its_documents(text: str, values: list[Any]) -> None:
    found = documents(text)
    assert [each.value for each in found] == values
    assert [each.index for each in found] == list(range(len(values)))


@pytest.mark.req("MF-020", "MF-093")
@pytest.mark.parametrize(
    "text",
    [
        pytest.param('{"a": 1}\n{"b": }\n', id="a value that is none"),
        pytest.param('{"a": 1}\n{b: 2}\n', id="YAML in braces"),
        pytest.param('{"a": 1} # c\n{"b": 2}\n', id="a comment between"),
        pytest.param("{" * 5000 + "}{", id="depth"),
        pytest.param('["\\ud83d\\ude00", ' + "[" * 100_000, id="depth behind an escape"),
    ],
)
def test_what_is_no_row_of_json_values_does_not_parse(text: str) -> None:
    """It is told and nothing ends the process."""
    with pytest.raises(SyntaxProblem):
        documents(text)


@pytest.mark.req("MF-020")
def test_each_json_value_knows_its_place() -> None:
    """The parts are the text, and positions are those of the file."""
    found = documents('{"a": 1}\n\n{"b": 2}\n')
    assert [(each.chunk_start, each.chunk_end) for each in found] == [(0, 10), (10, 19)]
    assert (found[1].span(found[1].root).line, found[1].start(found[1].root)) == (3, 10)


@pytest.mark.req("MF-015")
def test_documents_that_nobody_wants_keep_their_numbers() -> None:
    """They are not parsed, so what is wrong with them is not seen."""
    source = SourceText.of("web.yaml", b"a: [\n---\nb: 2\n---\nc: 3\n")
    found = compose(source, lambda chunk: "a" not in chunk)
    assert [(each.index, each.value) for each in found] == [(1, {"b": 2}), (2, {"c": 3})]


@pytest.mark.req("MF-061")
@pytest.mark.parametrize("before", ["", "a: 𝒳\n---\n", "a: ü\r\n---\r\n", "\ufeff", "# ü\n\n"])
def test_places_are_right_behind_marks_astral_characters_and_other_documents(before: str) -> None:
    """Offsets are code points, the byte-order mark is none of them."""
    source = SourceText.of("web.yaml", f"{before}k: '𝒳ü' # c\nl: z\n".encode())
    last = compose(source)[-1]
    texts = [source.text[last.start(node) : last.end(node)] for pair in last.root.value for node in pair]
    assert texts == ["k", "'𝒳ü'", "l", "z"]
    span = last.span(last.root.value[1][1])
    assert (span.line, span.column) == (source.text[: span.start].count("\n") + 1, 4)


@pytest.mark.req("MF-042")
@pytest.mark.parametrize(
    ("text", "shown"),
    [
        pytest.param("a:\n  b: 1\n", "a", id="a block mapping by its first key"),
        pytest.param("{a: 1}\n", "{a: 1}", id="a flow mapping by all of it"),
        pytest.param("- a: 1\n- b\n", "- a: 1", id="a block sequence by its first line"),
        pytest.param("|\n  a\n  b\n\n\n", "|\n  a\n  b", id="a block scalar without the blank lines behind it"),
    ],
)
def test_a_span_shows_what_a_reader_would_look_at(text: str, shown: str) -> None:
    """The position of a mapping is its first key."""
    found = document(text)
    span = found.span(found.root)
    assert found.source.text[span.start : span.end] == shown


@pytest.mark.req("MF-093")
@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("386", 386),
        ("0x1F", 31),
        ("010", 8),
        ("-1_000", -1000),
        ("1.5", 1.5),
        ("-.inf", float("-inf")),
        ("5.0", 5.0),
        ("5.", 5.0),
        ("1e1", 10.0),
        ("1E+1", 10.0),
        (".5e1", 5.0),
        ("+.5", 0.5),
        ("1_0.0", 10.0),
        (".1_0", ".1_0"),
        ("+5", 5),
        ("0x10", 16),
        ("-0X_f", -15),
        ("0o20", 16),
        ("0b101", 5),
        ("08", 8.0),
        ("0b12", "0b12"),
        ("0x", "0x"),
        ("_5", "_5"),
        ("1e400", "1e400"),
        ("99999999999999999999", 1e20),
        ("9" * 5000, "9" * 5000),
        ("'1e1'", "1e1"),
        ("!!int 5.0", "5.0"),
        ("!!float 5", 5.0),
        ("0x1p3", "0x1p3"),
        ("e1", "e1"),
        ("yes", True),
        ("Off", False),
        ("~", None),
        ("null", None),
        ("'386'", "386"),
        ("2024-01-01", "2024-01-01"),
        ("1:30", "1:30"),
        ("!!int x", "x"),
        ("!!str 386", "386"),
        ("!local x", "x"),
        ("!!python/object/apply:os.system [x]", ["x"]),
        ("!!binary aGk=", "aGk="),
        ("!!set {a, b}", {"a": None, "b": None}),
        ("{1: a, yes: b, ~: c}", {"1": "a", "yes": "b", "~": "c"}),
        ("{a: 1, a: 2}", {"a": 2}),
    ],
)
def test_values_are_read_as_kubernetes_reads_them(text: str, expected: Any) -> None:
    """No tag constructs anything."""
    found = value(f"v: {text}\n")["v"]
    assert found == expected
    assert type(found) is type(expected)


def test_a_key_that_is_no_text_still_is_a_key() -> None:
    assert list(value("? [a]\n: 1\n? {b: c}\n: 2\n").values()) == [1, 2]


def test_json_may_escape_characters_as_json_does() -> None:
    """Two escapes for one character are no YAML; they are left as they are and the offsets behind them are right."""
    found = document('{"a": "\\ud83d\\ude00", "b": "c"}\n')
    assert found.value["b"] == "c"
    assert found.source.text[found.start(found.root.value[1][1]) :].startswith('"c"')
    with pytest.raises(SyntaxProblem, match="escape"):
        documents('a: "\\ud83d"\n')


def test_an_anchor_may_be_defined_again() -> None:
    """YAML and kubectl allow it, though the C composer does not."""
    text = "a: &x 1\nb: &x [2, {c: *x}]\nc: *x\nd: 'q'\ne: |\n  t\n"
    with pytest.raises(SyntaxProblem):
        value("a: &x 1\nb: &x 2\nc: *y\n")
    assert value(text.replace("{c: *x}", "3")) == {"a": 1, "b": [2, 3], "c": [2, 3], "d": "q", "e": "t\n"}
    found = document(text.replace("{c: *x}", "3"))
    assert found.source.text[found.start(found.root.value[1][1]) :].startswith("&x [2")


@pytest.mark.req("MF-093")
@pytest.mark.parametrize(
    ("text", "line", "column", "problem"),
    [
        ("a: b\nc: d: e\n", 2, 5, "mapping values are not allowed"),
        ("a: 1\n---\n  - b\n c\n", 4, 2, "did not find expected"),
        ("a: *b\n", 1, 4, "found undefined alias"),
        ("𝒳: \x07\n", 1, 4, "unacceptable character U+0007"),
        ("a: 1\n---\n\ta: 1\n", 3, 1, "found character that cannot start any token"),
        ("a:\n- b\n" + "- " * 200 + "\n", 3, 197, "nesting is deeper than 100 levels"),
        ("a: " + "[" * 1_000_000, 1, 102, "nesting is deeper than 100 levels"),
        ("a: &x [b, *x]\n", 1, 4, "an alias points to a node that contains it"),
    ],
)
def test_what_does_not_parse_has_a_place(text: str, line: int, column: int, problem: str) -> None:
    """Beyond the limits a text is as good as no YAML; also a million brackets end in a sentence."""
    with pytest.raises(SyntaxProblem) as found:
        documents(text)
    assert (found.value.line, found.value.column) == (line, column)
    assert problem in found.value.problem


NESTED = {
    "mappings": lambda levels: "\n".join(" " * level + "a:" for level in range(levels)),
    "mappings after \\r": lambda levels: "\r".join(" " * level + "a:" for level in range(levels)),
    "lists": lambda levels: "a: 1\n---\n" + "- " * levels + "a",
    "lists in the first line": lambda levels: "- " * levels + "a",
    "lists at the column of their key": lambda levels: "\n".join(
        " " * (level - level % 2) + ("- b:" if level % 2 else "a:") for level in range(levels)
    ),
    "keys": lambda levels: "x: 1\n---\n" + "? " * levels + "a",
    "brackets": lambda levels: "a:\n " + "[" * (levels - 1) + "]" * (levels - 1),
    "braces over lines": lambda levels: "{a:\n" * levels + "1" + "}" * levels,
}


@pytest.mark.req("MF-093")
@pytest.mark.parametrize("shape", NESTED)
def test_nesting_is_read_up_to_the_limit_and_refused_beyond(shape: str) -> None:
    """Depth 100, however a text nests; of most texts it is known without counting."""
    assert documents(NESTED[shape](45))
    assert documents(NESTED[shape](90))
    with pytest.raises(SyntaxProblem, match="nesting is deeper than 100 levels"):
        documents(NESTED[shape](125))


@pytest.mark.req("MF-093")
def test_nesting_at_the_limit_is_read() -> None:
    """Depth 100."""
    assert documents("[" * 100 + "]" * 100 + "\n")
    with pytest.raises(SyntaxProblem):
        documents("[" * 101 + "]" * 101 + "\n")


@pytest.mark.req("MF-093")
def test_aliases_that_explode_are_refused() -> None:
    """1 000 000 nodes, and the depth that aliases make."""
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]" for n in range(1, 7)]
    with pytest.raises(SyntaxProblem, match="aliases expand to more than 1000000 nodes"):
        documents("\n".join(lines))
    assert documents("\n".join(lines[:4]))
    deep = ["a0: &a0 [x]"] + [f"a{n}: &a{n} [*a{n - 1}]" for n in range(1, 120)]
    with pytest.raises(SyntaxProblem, match="aliases nest deeper than 100 levels"):
        documents("\n".join(deep))


@pytest.mark.req("MF-093")
def test_a_file_beyond_64_mib_is_a_problem_with_the_limit() -> None:
    """The message says how much is too much."""
    with pytest.raises(SyntaxProblem, match=f"{MAX_BYTES + 1} bytes, more than the limit of {MAX_BYTES}"):
        compose(SourceText("big.yaml", "", size=MAX_BYTES + 1))


MERGED = "base: &base {a: 1, b: {c: 2}}\nuse:\n  <<: *base\n  a: 3\nlist:\n- *base\n- {<<: [{d: 4, a: 5}, *base]}\n"


def test_merge_keys_are_merged_the_nearest_first() -> None:
    assert value(MERGED)["use"] == {"a": 3, "b": {"c": 2}}
    assert value(MERGED)["list"][1] == {"d": 4, "a": 5, "b": {"c": 2}}


def test_a_quoted_merge_sign_is_a_key() -> None:
    assert value('{"<<": {a: 1}}') == {"<<": {"a": 1}}


@pytest.mark.req("MF-053")
def test_all_ways_to_shared_text_are_known() -> None:
    """An edit of it changes each of these places."""
    found = document(MERGED)
    root = found.root
    base = nodes.find(root, "base")
    inner = nodes.find(root, "base", "b")
    assert base is not None
    assert inner is not None
    assert found.uses[id(base)] == ("/base", "/list/0")
    assert found.uses[id(inner)] == ("/base/b", "/use/b", "/list/0/b", "/list/1/b")
    assert id(base) in found.merged
    assert found.shared
    assert not document("a: 1 * 2 & 3\n").shared


def test_pointers_lead_to_nodes_and_nowhere() -> None:
    root = document(MERGED).root
    found = nodes.item(root, "/list/1/b/c")
    assert nodes.text_of(found) == "2"
    assert [nodes.item(root, path) for path in ("/list/2", "/list/x", "/use/a/b", "/none")] == [None] * 4
    assert nodes.item(root, "") is root


def test_scalars_and_members_are_asked_without_surprises() -> None:
    root = document("a: 386\nb: ~\nc: 'x'\nd: [1]\na: 387\n").root
    assert nodes.text_of(nodes.get(root, "a")) == "387"
    assert nodes.is_null(nodes.get(root, "b"))
    assert nodes.is_null(nodes.get(root, "z"))
    assert nodes.text_of(nodes.get(root, "b")) is None
    assert nodes.text_of(nodes.get(root, "d")) is None
    assert [key for key, _, _ in nodes.entries(root)] == ["a", "b", "c", "d", "a"]
    assert list(nodes.entries(None)) == []
    assert nodes.elements(nodes.get(root, "c")) == []
    assert nodes.find(root, "c", "x") is None


def test_duplicate_keys_are_told_with_their_repetition() -> None:
    found = document("<<: {b: 0}\na: 1\nb: 2\na: 3\n<<: {a: 4, c: 5}\n")
    told = [(key, found.span(node).line) for key, node in nodes.duplicate_keys(found.root)]
    assert told == [("a", 4), ("a", 5)], "a merged key is one only behind a key of the mapping"
    assert nodes.duplicate_keys(nodes.elements(document("[x]").root)[0]) == []


@pytest.mark.req("MF-033")
def test_a_named_pointer_survives_reordering() -> None:
    """Names of elements instead of their numbers."""
    root = document("spec: {containers: [{name: web, env: [{name: a/b}, x]}]}\n").root
    assert nodes.named_pointer(root, "/spec/containers/0/env/0") == "/spec/containers/web/env/a~1b"
    assert nodes.named_pointer(root, "/spec/containers/0/env/1") == "/spec/containers/web/env/1"
    assert nodes.named_pointer(root, "/spec/affinity/terms/0") == "/spec/affinity/terms/0"
