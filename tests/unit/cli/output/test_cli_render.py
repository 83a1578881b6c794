"""What commands print, and where (the conventions of the command line)."""

import io
import json
import os
import subprocess
import sys
import time

import pytest
import yaml
from rich.console import Console

from polyarch.cli.output import progress as progress_module
from polyarch.cli.output import progress_bar, render
from polyarch.cli.output.printable import printable
from polyarch.cli.output.progress import Lines, progress
from polyarch.cli.output.progress_bar import Bar
from polyarch.cli.output.render import Row, print_document, print_table


def test_json_is_indented_by_two_and_keeps_the_order_of_keys(capsys):
    print_document({"b": 1, "a": {"c": []}}, "json")
    assert capsys.readouterr().out == '{\n  "b": 1,\n  "a": {\n    "c": []\n  }\n}\n'


def test_yaml_says_the_same(capsys):
    document = {"b": "yes", "a": ["ü", None, 1.5]}
    print_document(document, "yaml")
    out = capsys.readouterr().out
    assert out.startswith("b: 'yes'\n")
    assert yaml.safe_load(out) == document
    print_document(document, "json")
    assert json.loads(capsys.readouterr().out) == document


def test_columns_stand_below_each_other_and_nothing_is_cut(capsys):
    long = "x" * 500
    print_table(("IMAGE", "KIND", "NOTES"), [Row(("a", "index", long)), Row(("longer-name", "", "note"))])
    lines = capsys.readouterr().out.splitlines()
    assert lines == [
        "IMAGE         KIND    NOTES",
        f"a             index   {long}",
        "longer-name   -       note",
    ]


def test_a_table_in_a_pipe_is_the_one_on_a_terminal_without_its_colours(capsys):
    rows = [Row(("図", "x   ", "[b]")), Row(("abcd", "", "y" * 300), "red"), Row(("\x1b[1m", "y", ""))]
    print_table(("A", "B", "C"), rows)
    in_a_pipe = capsys.readouterr().out
    print_table(("A", "B", "C"), rows, to=render.console())
    assert capsys.readouterr().out == in_a_pipe


def test_a_table_in_a_pipe_needs_no_console():
    """Loading rich's is a tenth of the start of ``polyarch inspect``, and so of most of its runs."""
    script = (
        "import sys\nfrom polyarch.cli.output.progress import progress\n"
        "from polyarch.cli.output.render import print_table\n"
        "with progress('x', 1) as shown:\n    shown.advance()\n"
        "print_table(('A',), [])\nassert 'rich.console' not in sys.modules"
    )
    environ = {name: value for name, value in os.environ.items() if name != "FORCE_COLOR"}
    done = subprocess.run([sys.executable, "-c", script], env=environ, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "A\n", "")


def test_wide_characters_are_counted_as_wide(capsys):
    print_table(("A", "B"), [Row(("図", "x")), Row(("abcd", "y"))])
    assert capsys.readouterr().out.splitlines() == ["A      B", "図     x", "abcd   y"]


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        pytest.param("linux/amd64", "linux/amd64", id="plain"),
        pytest.param("\x1b[31mred", "�[31mred", id="an escape sequence"),
        pytest.param("a\nb\tc", "a b c", id="more than one line"),
        pytest.param("a‮b", "a�b", id="reversed writing"),
        pytest.param("[bold]x[/bold]", "[bold]x[/bold]", id="rich's markup"),
    ],
)
def test_foreign_texts_cannot_play_with_the_terminal(text, shown, capsys):
    assert printable(text) == shown
    print_table(("A",), [Row((text,))])
    assert capsys.readouterr().out == f"A\n{shown}\n"


def terminal():
    return Console(file=io.StringIO(), force_terminal=True, width=100)


def test_rows_are_coloured_on_a_terminal_only(capsys):
    target = terminal()
    print_table(("A",), [Row(("x",), "red")], to=target)
    assert "\x1b[31m" in target.file.getvalue()
    print_table(("A",), [Row(("x",), "red")])
    assert "\x1b" not in capsys.readouterr().out


def test_no_color_takes_colours_away(monkeypatch):
    monkeypatch.setenv("NO_COLOR", "1")
    target = terminal()
    print_table(("A",), [Row(("x",), "red")], to=target)
    assert "\x1b[31m" not in target.file.getvalue()


def test_in_a_pipe_progress_is_lines_on_stderr_once_in_a_while(capsys, monkeypatch):
    with progress("inspecting images", 3) as shown:
        assert isinstance(shown, Lines)
        shown.advance()
        assert capsys.readouterr() == ("", "")
        monkeypatch.setattr(progress_module, "LINE_EVERY", 0.0)
        shown.advance()
        shown.advance()  # the last one needs no line: the rows follow
        shown.remark("r.example says: \x1b[2Jgone")
    assert capsys.readouterr() == ("", "inspecting images: 2 of 3\nr.example says: �[2Jgone\n")


def test_on_a_terminal_what_is_quick_shows_no_bar():
    target = terminal()
    with Bar("inspecting images", 2, target) as shown:
        shown.advance()
        shown.remark("a remark")
    text = target.file.getvalue()
    assert "a remark" in text
    assert "inspecting" not in text


def test_and_what_takes_longer_shows_one(monkeypatch):
    monkeypatch.setattr(progress_bar, "SHOWN_AFTER", 0.01)
    target = terminal()
    with Bar("inspecting images", 2, target) as shown:
        for _ in range(1000):
            if "inspecting images" in target.file.getvalue():
                break
            time.sleep(0.01)
        shown.advance()
    assert "inspecting images" in target.file.getvalue()
