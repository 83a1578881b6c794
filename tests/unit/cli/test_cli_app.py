"""The command tree: what a wrong word gets, and what a start costs."""

import gc
import os
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
import structlog
from cyclopts import App

from polyarch.cli import main
from polyarch.cli.app import app
from polyarch.cli.options.help_page import WordsApp
from polyarch.cli.output.messages import errors_only


def test_a_misspelt_command_is_a_usage_error_with_a_suggestion(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["inspct", "nginx"]) == 2
    assert 'Did you mean "inspect"?' in " ".join(capsys.readouterr().err.split())


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        (["inspect", "--requir", "amd64", "nginx"], "inspect: there is no option --requir; did you mean --require?"),
        (["install", "--version", "1.0"], "install: --version takes no value, got 1.0; it prints the version of "),
        (["upgrade", "-n", "x", "--version=2"], "upgrade: --version takes no value, got 2; it prints the version of "),
        (["report", "--require", "arm64"], "report: there is no option --require; did you mean --target?"),
        (["install", "--dryrun"], "install: there is no option --dryrun; did you mean --dry-run?"),
        (["status", "--format", "json"], "status: there is no option --format; did you mean -o json?"),
        (["status", "--format", "-v"], "status: there is no option --format; did you mean -o?"),
        (["report", "--yaml"], "report: there is no option --yaml; did you mean -o yaml?"),
        (["report", "--output-format=XML"], "report: there is no option --output-format; did you mean -o?"),
        (["up", "--real", "--arm64"], "up: there is no option --arm64; did you mean --nodes arm64=1?"),
        (["up", "--aarch64=2"], "up: there is no option --aarch64; did you mean --nodes arm64=2?"),
        (["up", "--control-plane"], "up: there is no option --control-plane; did you mean --only control-plane?"),
        (["numa", "top", "--arm64"], "numa top: there is no option --arm64; polyarch numa top --help lists them"),
        (["install", "-f", "values.yaml"], "install: there is no option -f; did you mean --values?"),
        (
            ["run", "operator", "--no-network-policie"],
            "run: there is no option --no-network-policie; did you mean --no-network-policies?",
        ),
        (
            ["lint", "-o", "xml", "."],
            "--output xml: unknown format 'xml'; expected text, json, yaml, sarif, junit, github, ",
        ),
        (["bundle", "validate"], "bundle validate: give DIR; polyarch bundle validate --help shows what it is"),
        (["build", "logs", "-n", "team"], "build logs: give NAME; polyarch build logs --help shows what it is"),
        (
            ["build", "run", "web", "--nosuch"],
            "build run: there is no option --nosuch; polyarch build run --help lists ",
        ),
        (["build", "run", "web", "--timeout"], "build run: --timeout takes a value; give --timeout SECONDS"),
        (["build", "run", "web", "--rebuild", "arm64"], "build run: 'arm64' is one word too many; "),
        (["numa", "explain", "a", "b"], "numa explain: 'b' is one word too many; polyarch numa explain --help shows "),
        (["numa", "simulate", "--repeat", "x"], "numa simulate: --repeat x: expected a number"),
    ],
)
def test_a_usage_error_is_one_line_however_it_was_found(
    words: list[str], problem: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """No frame, no wrapping: logs of CI are searched by lines."""
    assert main(words) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith(f"polyarch: {problem}")


def test_a_value_behind_an_option_that_needs_none_is_shown_as_it_has_to_be_written(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["build", "run", "web", "--rebuild", "arm64"]) == 2
    assert capsys.readouterr().err.endswith("; with a value it is --rebuild=arm64\n")


@pytest.mark.parametrize("group", ["build", "numa", "taint", "index", "bundle", "sandbox"])
def test_a_group_without_a_command_prints_the_page_of_its_help(group: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([group, "--help"]) == 0
    page = capsys.readouterr().out
    assert main([group]) == 0
    assert (capsys.readouterr().out, page.count("Commands:")) == (page, 1)


POLYARCH = [sys.executable, "-c", "import sys; from polyarch.cli import main; sys.exit(main())"]


@pytest.mark.parametrize("words", [["lint", "--rules"], ["lint", "web.yaml", "--offline"], ["--help"]])
def test_output_that_cannot_be_written_is_3_and_no_traceback(words: list[str], tmp_path: Path) -> None:
    """1 would say that something was found."""
    (tmp_path / "web.yaml").write_text("kind: Pod\nspec: {containers: [{name: a, image: b}]}\n")
    with open("/dev/full", "w") as full:  # noqa: PTH123 - a device
        ran = subprocess.run(
            [*POLYARCH, *words], cwd=tmp_path, stdout=full, stderr=subprocess.PIPE, text=True, timeout=60, check=False
        )
    assert (ran.returncode, ran.stderr) == (3, "polyarch: No space left on device\n")


def test_a_command_works_without_standard_output(tmp_path: Path) -> None:
    (tmp_path / "web.yaml").write_text("kind: Pod\nspec: {containers: [{name: a, image: '{}'}]}\n")
    words = [*POLYARCH, "lint", "--offline", "web.yaml"]
    ran = subprocess.run(
        ["sh", "-c", '"$@" >&-', "sh", *words], cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False
    )
    assert (ran.returncode, ran.stderr) == (1, "")


def test_help_groups_the_commands_by_what_they_are_for(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--help"]) == 0
    groups = {
        block.splitlines()[0]: [line.split()[0] for line in block.splitlines()[1:]]
        for block in capsys.readouterr().out.split("\n\n")
    }
    assert groups["Manifests and images:"] == ["lint", "fix", "inspect", "index", "bundle"]
    assert groups["Workloads and nodes:"] == ["report", "explain", "taint", "build", "numa"]
    assert groups["Installation:"] == ["install", "upgrade", "uninstall", "run"]
    assert groups["Sandbox:"] == ["up", "down", "status", "sandbox"]


def every_command(app: App = app, *words: str) -> Iterator[tuple[str, ...]]:
    """The words of each that does something."""
    names = [name for name in app if not name.startswith("-")]
    if not names or app.default_command is not None:
        yield words
    for name in names:
        yield from every_command(app[name], *words, name)


COMMANDS = list(every_command())


def test_every_command_is_found() -> None:
    assert {("lint",), ("index", "create"), ("run",), ("run", "build-push"), ("numa", "top")} <= set(COMMANDS)


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_where_a_command_reads_standard_input_its_option_takes_a_dash(command: tuple[str, ...]) -> None:
    """Or ``-`` would be an unknown option."""
    resolved = app
    for word in command:
        resolved = resolved[word]
    if isinstance(resolved, WordsApp):
        return
    readers = [
        each for each in resolved.assemble_argument_collection() if "standard input" in (each.parameter.help or "")
    ]
    assert [each.name for each in readers if not each.parameter.allow_leading_hyphen] == []


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_no_command_declares_a_flag_twice(command: tuple[str, ...]) -> None:
    """Only the first of the two would be set."""
    resolved = app
    for word in command:
        resolved = resolved[word]
    if isinstance(resolved, WordsApp):
        return
    names = [name for each in resolved.assemble_argument_collection() for name in each.names if name.startswith("-")]
    assert [name for name, count in Counter(names).items() if count > 1] == []


def test_help_starts_without_a_network_stack() -> None:
    """DESIGN: sub-commands are loaded only when they run, so that a pure command starts at once."""
    code = (
        "import sys; from polyarch.cli import main; main(['--help']);"
        "heavy = {'aiohttp', 'asyncio.sslproto', 'cryptography', 'numpy'};"
        "sys.exit(' '.join(heavy & set(sys.modules)) or 0)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.req("MF-090")
@pytest.mark.parametrize(
    ("arguments", "unwanted"),
    [
        (["lint", "--help"], {"aiohttp", "asyncio", "numpy", "yaml", "rich.table", "rich.panel", "subprocess"}),
        (["lint", ".", "--offline"], {"aiohttp", "asyncio", "difflib", "multiprocessing", "rich.console"}),
    ],
    ids=["help", "lint"],
)
def test_a_command_imports_only_what_it_needs(arguments: list[str], unwanted: set[str], tmp_path: Path) -> None:
    """Each of these is between a twentieth and a third of the start."""
    (tmp_path / "map.yaml").write_text("{apiVersion: v1, kind: ConfigMap, metadata: {name: image}}\n")
    code = (
        f"import sys; from polyarch.cli import main; code = main({arguments!r});"
        f"print('imported', *sorted({unwanted!r} & set(sys.modules))); sys.exit(code)"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout.splitlines()[-1]) == (0, "imported")


@pytest.mark.req("MF-090")
def test_help_of_no_command_loads_what_only_its_work_needs() -> None:
    """And so completion, which reads the same declarations at each Tab, answers at once."""
    code = (
        "import sys; from polyarch.cli import main\n"
        f"for command in {COMMANDS!r}: main([*command, '--help'])\n"
        "print('imported', *sorted({'aiohttp', 'asyncio', 'cryptography', 'yaml', 'rich.console'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout.splitlines()[-1]) == (0, "imported"), done.stderr


@pytest.mark.req("RG-161")
@pytest.mark.parametrize(("call", "left"), [("main()", True), ("main(['--version'])", False)])
def test_a_process_that_ends_looks_for_no_garbage(call: str, left: bool) -> None:
    """Only if the command line is the process's own: another program goes on after ``main``."""
    code = (
        "import gc, sys; from polyarch.cli import main; sys.argv = ['polyarch', '--version'];"
        f"{call}; print(gc.get_freeze_count() > 0)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == str(left)


def test_the_collector_is_left_as_it_was() -> None:
    """``main`` may be called by another program, which has its own idea of how often to look for garbage."""
    before = gc.get_threshold()
    assert main(["lint", "--rules"]) == 0
    assert gc.get_threshold() == before


def test_a_process_that_serves_collects_as_often_as_python_does(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    seen = []

    async def serve(*_: object) -> None:
        seen.append(gc.get_threshold())

    monkeypatch.setattr("polyarch.run.process.run", serve)
    assert main(["run", "placement-controller"]) == 0
    assert seen == [gc.get_threshold()]


def _help(command: str, columns: int) -> list[str]:
    """Its lines, in a process of its own: how wide the terminal is is looked at once in a process."""
    environment = os.environ | {"COLUMNS": str(columns)}
    asked = [sys.executable, "-m", "polyarch", command, "--help"]
    return subprocess.run(asked, capture_output=True, text=True, check=True, env=environment).stdout.splitlines()


def test_help_wraps_to_the_terminal_and_names_stand_apart() -> None:
    lines = _help("lint", columns=60)
    start = lines.index("      --require PLATFORMS    Platforms that every image must")
    assert lines[start + 1] == " " * 29 + "support, comma-separated"
    assert "Usage: polyarch lint [OPTIONS] [PATH]..." in lines
    assert max(map(len, lines[: lines.index("Examples:")])) <= 60


def test_a_long_name_has_a_line_of_its_own() -> None:
    lines = _help("run", columns=80)
    start = lines.index("      --image-credential-provider-config FILE")
    assert lines[start + 1] == " " * 32 + "The kubelet's flag of the same name"


@pytest.mark.req("PL-850")
def test_logs_of_a_command_are_errors_on_stderr_without_local_variables(capsys: pytest.CaptureFixture[str]) -> None:
    """What a frame holds may be a token; stdout is for the answer alone."""
    errors_only()
    log = structlog.get_logger("test")
    token = "marker-" + "secret"
    log.info("nobody asked")
    try:
        raise ValueError(len(token))
    except ValueError:
        log.exception("it broke")
    shown = capsys.readouterr()
    assert shown.out == ""
    assert "it broke" in shown.err
    assert "nobody asked" not in shown.err
    assert "marker-secret" not in shown.err


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_help_shows_usage_examples_and_exit_codes_and_no_option_that_a_library_made_up(
    command: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    """``--empty-…`` says nothing that leaving the option out would not; ``--no-…`` is there where the default is on."""
    assert main([*command, "--help"]) == 0
    shown = capsys.readouterr().out
    assert f"Usage: polyarch {' '.join(command)}" in shown
    assert f"polyarch {' '.join(command)} " in shown.split("Examples:")[1]
    assert re.search(r"^  2  .* wrong", shown.split("Exit codes:")[1], re.MULTILINE)
    options = re.findall(r"--[a-z-]+", shown)
    assert not [option for option in options if option.startswith("--empty-")]
    known = {
        "--no-cache",
        "--no-leader-elect",
        "--no-network-policies",
        "--no-admission-policies",
        "--no-publish",
        "--no-wait",
    }
    assert {option for option in options if option.startswith("--no-")} <= known
