"""Texts: what offsets, lines and bytes are."""

import pytest

from polyarch.manifests.scan import paths
from polyarch.manifests.scan.text import MAX_BYTES, SourceText, UnreadableText


def source(text: str) -> SourceText:
    return SourceText.of("web.yaml", text.encode())


@pytest.mark.req("MF-061")
def test_byte_order_mark_is_put_aside_and_comes_back() -> None:
    """Offsets do not count the mark, and writing restores it."""
    read = SourceText.of("web.yaml", b"\xef\xbb\xbfa: b\n")
    assert (read.text, read.bom) == ("a: b\n", True)
    assert read.encode("a: c\n") == b"\xef\xbb\xbfa: c\n"
    assert source("a: b\n").encode("a: c\n") == b"a: c\n"


@pytest.mark.req("MF-061")
@pytest.mark.parametrize(
    ("data", "problem"),
    [
        pytest.param("\ufeffa: b".encode("utf-16-le"), "is UTF-16 text", id="utf-16 little endian"),
        pytest.param("\ufeffa: b".encode("utf-16-be"), "is UTF-16 text", id="utf-16 big endian"),
        pytest.param("\ufeffa: b".encode("utf-32-le"), "is UTF-32 text", id="utf-32"),
        pytest.param(b"a: b\nc: \xe9\n", "byte 8 is not UTF-8", id="latin-1"),
        pytest.param(b"\xef\xbb\xbfa: \xe9", "byte 6 is not UTF-8", id="latin-1 behind a mark"),
    ],
)
def test_other_encodings_are_refused_by_name(data: bytes, problem: str) -> None:
    """Nothing but UTF-8 is edited."""
    with pytest.raises(UnreadableText) as refused:
        SourceText.of("web.yaml", data)
    assert str(refused.value).startswith(f"web.yaml: {problem}")
    assert str(refused.value).endswith("save it as UTF-8")


@pytest.mark.req("MF-061")
@pytest.mark.parametrize(
    ("text", "newline"),
    [("a\r\nb\r\n", "\r\n"), ("a\nb\n", "\n"), ("a\r\nb\nc\n", "\n"), ("a\r\nb\r\nc\n", "\r\n"), ("", "\n")],
)
def test_inserted_lines_end_as_most_lines_do(text: str, newline: str) -> None:
    """CR LF files get CR LF."""
    assert source(text).newline == newline


@pytest.mark.req("MF-042")
@pytest.mark.parametrize(
    ("text", "offset", "place"),
    [
        pytest.param("a: b\nc: d\n", 5, (2, 1), id="line feed"),
        pytest.param("a: b\r\nc: d\r\n", 6, (2, 1), id="carriage return and line feed"),
        pytest.param("a: b\rc: d\r", 8, (2, 4), id="carriage return alone"),
        pytest.param("a: 𝒳ü\nc: 𝒳d\n", 10, (2, 5), id="one column for each code point"),
        pytest.param("a: b\u2028c\n", 6, (1, 7), id="an editor sees no break in a line separator"),
        pytest.param("a: b", 4, (1, 5), id="end of a file without a last line break"),
        pytest.param("", 0, (1, 1), id="empty"),
    ],
)
def test_places_count_lines_and_code_points_from_one(text: str, offset: int, place: tuple[int, int]) -> None:
    """Lines and columns as editors show them."""
    assert source(text).place(offset) == place


@pytest.mark.req("MF-042")
def test_a_span_ends_behind_its_last_character() -> None:
    """The end is exclusive."""
    span = source("a: b\nc:\n- d\n").span(3, 9)
    assert (span.line, span.column, span.end_line, span.end_column) == (1, 4, 3, 2)


def test_lines_are_found_by_offset_and_number() -> None:
    read = source("a: b\r\nc: d\r\n\r\ne")
    assert [read.line(number) for number in (1, 2, 3, 4, 5, 0)] == ["a: b", "c: d", "", "e", "", ""]
    assert (read.line_start(8), read.line_end(8), read.next_line(8)) == (6, 10, 12)
    assert (read.previous_line(12), read.previous_line(6), read.previous_line(0)) == (6, 0, 0)
    assert (read.line_end(14), read.next_line(14)) == (15, 15)


@pytest.mark.req("MF-093")
def test_a_file_beyond_the_limit_is_not_even_decoded() -> None:
    """64 MiB; also bytes that are no text are not looked at."""
    read = SourceText.of("big.yaml", b"\xff" * (MAX_BYTES + 1))
    assert (read.text, read.size) == ("", MAX_BYTES + 1)


@pytest.mark.req("MF-010")
@pytest.mark.parametrize("path", ["a.yaml", "b/c.yml", "d.json", "kustomization.yaml"])
def test_manifests_are_known_by_their_suffix(path: str) -> None:
    """What is looked at in a directory."""
    assert paths.is_manifest(path)


@pytest.mark.req("MF-010")
@pytest.mark.parametrize("path", ["README.md", "yaml", "a.yaml.bak", "values.toml"])
def test_other_files_are_left_alone(path: str) -> None:
    """What is not looked at in a directory."""
    assert not paths.is_manifest(path)


@pytest.mark.req("MF-010")
def test_foreign_and_hidden_directories_are_skipped() -> None:
    """``.git``, ``node_modules``, ``vendor`` and hidden directories; never the directory that was named."""
    assert all(map(paths.is_skipped_directory, (".git", "node_modules", "vendor", ".github")))
    assert not any(map(paths.is_skipped_directory, (".", "..", "vendored", "charts")))


@pytest.mark.req("MF-010")
@pytest.mark.parametrize(
    ("pattern", "path", "ignored"),
    [
        ("*.yaml", "a/b.yaml", True),
        ("test", "a/test/b.yaml", True),
        ("test/", "a/test/b.yaml", True),
        ("a/*.yaml", "a/b.yaml", True),
        ("a/*.yaml", "a/b/c.yaml", False),
        ("a/**/c.yaml", "a/c.yaml", True),
        ("a/**/c.yaml", "a/x/y/c.yaml", True),
        ("./a", "a/x/y/c.yaml", True),
        ("**/testdata/**", "pkg/testdata/x.yaml", True),
        ("a/b", "x/a/b", False),
        ("[ab].yaml", "b.yaml", True),
        ("[!ab].yaml", "b.yaml", False),
        ("web-?.yaml", "web-1.yaml", True),
        ("a.yaml", "axyaml", False),
        ("", "a.yaml", False),
    ],
)
def test_ignored_paths_are_globs(pattern: str, path: str, ignored: bool) -> None:
    """``--ignore-path``."""
    assert paths.is_ignored(path, [pattern]) is ignored
