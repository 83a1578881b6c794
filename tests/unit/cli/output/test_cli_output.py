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

from polyarch.cli.output import messages as messages_module
from polyarch.cli.output.documents import document_text
from polyarch.cli.output.messages import Bar, LineProgress, Messages, complain
from polyarch.cli.output.tables import Row, table
from polyarch.cli.output.terminal import printable, takes_colour


def test_json_is_indented_by_two_and_keeps_the_order_of_keys():
    assert document_text({"b": 1, "a": {"c": []}}, "json") == '{\n  "b": 1,\n  "a": {\n    "c": []\n  }\n}\n'


def test_yaml_says_the_same():
    document = {"b": "yes", "a": ["ü", None, 1.5]}
    text = document_text(document, "yaml")
    assert text.startswith("b: 'yes'\n")
    assert yaml.safe_load(text) == json.loads(document_text(document, "json")) == document


def test_columns_stand_below_each_other_and_nothing_is_cut():
    long = "x" * 500
    lines = table(("IMAGE", "KIND", "NOTES"), [Row(("a", "index", long)), Row(("longer-name", "", "note"))])
    assert lines.splitlines() == [
        "IMAGE         KIND    NOTES",
        f"a             index   {long}",
        "longer-name   -       note",
    ]


def test_what_most_commands_print_needs_nothing_of_rich():
    """Loading its console is a tenth of the start of ``polyarch inspect``, and so of most of its runs."""
    script = (
        "import sys\nfrom polyarch.cli.output.messages import Messages\nfrom polyarch.cli.output.tables import table\n"
        "with Messages().progress('x', 1) as shown:\n    shown.advance()\n"
        "print(table(('A',), []), end='')\nassert 'rich.console' not in sys.modules"
    )
    environ = {name: value for name, value in os.environ.items() if name != "FORCE_COLOR"}
    done = subprocess.run([sys.executable, "-c", script], env=environ, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "A\n", "")


def test_wide_characters_are_counted_as_wide():
    assert table(("A", "B"), [Row(("図", "x")), Row(("abcd", "y"))]).splitlines() == [
        "A      B",
        "図     x",
        "abcd   y",
    ]


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
def test_foreign_texts_cannot_play_with_the_terminal(text, shown):
    assert printable(text) == shown
    assert table(("A",), [Row((text,))]) == f"A\n{shown}\n"


def terminal():
    return Console(file=io.StringIO(), force_terminal=True, width=100)


def test_rows_have_a_colour_where_it_is_wanted():
    assert "\x1b[31mx\x1b[0m" in table(("A",), [Row(("x",), "red")], colour=True)
    assert "\x1b" not in table(("A",), [Row(("x",), "red")])


@pytest.mark.parametrize(
    ("environment", "terminal", "colour"),
    [
        ({}, True, True),
        ({}, False, False),
        ({"TERM": "dumb"}, True, False),
        ({"NO_COLOR": "1"}, True, False),
        ({"FORCE_COLOR": "1"}, False, True),
        ({"NO_COLOR": "1", "FORCE_COLOR": "1"}, True, False),
    ],
)
def test_who_gets_colours(monkeypatch, environment, terminal, colour):
    for name in ("NO_COLOR", "FORCE_COLOR"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("TERM", "xterm")
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    stream = io.StringIO()
    stream.isatty = lambda: terminal  # type: ignore[method-assign]
    assert takes_colour(stream) is colour


def test_in_a_pipe_progress_is_lines_on_stderr_once_in_a_while(capsys, monkeypatch):
    with Messages().progress("inspecting images", 3) as shown:
        assert isinstance(shown, LineProgress)
        shown.advance()
        assert capsys.readouterr() == ("", "")
        monkeypatch.setattr(messages_module, "LINE_EVERY", 0.0)
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
    monkeypatch.setattr(messages_module, "SHOWN_AFTER", 0.01)
    target = terminal()
    with Bar("inspecting images", 2, target) as shown:
        for _ in range(1000):
            if "inspecting images" in target.file.getvalue():
                break
            time.sleep(0.01)
        shown.advance()
    assert "inspecting images" in target.file.getvalue()


def test_how_much_is_said_on_stderr(capsys):
    """``-q`` leaves warnings alone, ``-v`` adds details."""

    def lines(messages: Messages) -> list[str]:
        messages.note("a note")
        messages.remark("a step")
        messages.detail("a detail")
        messages.warn("a warning")
        with messages.progress("images", 1) as shown:
            shown.remark("a registry says")
        captured = capsys.readouterr()
        assert captured.out == ""
        return captured.err.splitlines()

    warning = "polyarch: warning: a warning"
    assert lines(Messages()) == ["polyarch: a note", "a step", warning, "a registry says"]
    assert lines(Messages(quiet=True)) == [warning]
    assert "polyarch: a detail" in lines(Messages(verbose=True))


def test_no_error_has_what_a_terminal_would_obey(capsys):
    """Manifests, names and answers of registries are anybody's texts; several problems are several lines."""
    assert complain("x.yaml: not \x1b[2J\x07kind\nand\tmore", 2) == 2
    assert capsys.readouterr().err == "polyarch: x.yaml: not �[2J�kind\nand more\n"
