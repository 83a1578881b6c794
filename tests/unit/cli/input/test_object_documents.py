"""Kubernetes objects from files are read as Kubernetes reads them, and within limits."""

from pathlib import Path

import pytest

from polyarch.cli.errors import UsageError
from polyarch.cli.input.objects import StrictLoader, load_yaml, read_documents

pytestmark = pytest.mark.req("MF-093", "RP-050")

DEEP = "a: " + "[" * 100_000


def written(folder: Path, text: str) -> str:
    path = folder / "given.yaml"
    path.write_text(text)
    return str(path)


def test_times_and_what_only_yaml_1_1_knows_are_texts(tmp_path: Path) -> None:
    text = "kind: Pod\nmetadata: {name: 1:30, creationTimestamp: 2018-11-05T12:34:56Z, day: 2023-99-99, sign: =, on: x}"
    [document] = read_documents(written(tmp_path, text))
    assert document.content["metadata"] == {
        "name": "1:30",
        "creationTimestamp": "2018-11-05T12:34:56Z",
        "day": "2023-99-99",
        "sign": "=",
        "on": "x",
    }


def test_empty_documents_count_and_errors_name_the_document(tmp_path: Path) -> None:
    found = read_documents(written(tmp_path, "kind: A\n---\n---\nkind: B\n"))
    assert [(each.kind, each.number, each.line) for each in found] == [("A", 1, 1), ("B", 3, 4)]
    with pytest.raises(UsageError, match="document 3, line 4: mapping values"):
        read_documents(written(tmp_path, "kind: A\n---\n---\nkind: B: C\n"))


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (DEEP, "document 1, line 1: nesting is deeper than 100 levels"),
        ("a: &a [x]\nb: &b [*a, *a]\nc: &c {kind: *b}\n---\nd: &d [*d]", "document 2, line 5: an alias points to"),
    ],
)
def test_what_would_take_the_process_with_it_is_refused(tmp_path: Path, text: str, problem: str) -> None:
    with pytest.raises(UsageError, match=problem):
        read_documents(written(tmp_path, text))


@pytest.mark.parametrize("text", [DEEP, "{a: " * 100_000])
def test_a_file_that_an_option_names_may_not_nest_without_end(tmp_path: Path, text: str) -> None:
    with pytest.raises(UsageError, match="nesting is deeper than 100 levels"):
        load_yaml("--substitutes", written(tmp_path, text), expected="a file", loader=StrictLoader)


def test_what_is_as_deep_as_it_may_be_is_read(tmp_path: Path) -> None:
    nested = "[" * 98 + "]" * 98
    assert load_yaml("--substitutes", written(tmp_path, f"a: {nested}\nb: {nested}\n"), expected="a file")
