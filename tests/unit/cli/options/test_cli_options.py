"""What every command of the command line has alike: outputs, groups of the help, placeholders, -q and -v, old names."""

import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml
from commands import WEB, Command

from polyarch.cli import main
from polyarch.cli.app import COMMANDS, app
from polyarch.cli.errors import UsageError
from polyarch.cli.options.common import Output, outputs
from polyarch.cli.options.help_page import OptionDeclaration, declared

pytestmark = pytest.mark.req(
    "BD-300",
    "BD-301",
    "BD-302",
    "BD-303",
    "BD-304",
    "BD-391",
    "IN-002",
    "NE-132",
    "NO-030",
    "NO-040",
    "NO-085",
    "NS-088",
    "NS-160",
    "NS-161",
    "NS-162",
    "SB-002",
    "SB-003",
)

GROUPS = ("Rules", "Images", "Output", "Registries", "Cluster")


def every_command() -> Iterator[tuple[str, list[OptionDeclaration]]]:
    for name, *_ in COMMANDS:
        command = app[name]
        if command.default_command is not None:
            yield name, declared(command)
        for inner in command:
            if not inner.startswith("-"):
                yield f"{name} {inner}", declared(command[inner])


ALL = dict(every_command())


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Command:
    return Command("lint", capsys, monkeypatch, tmp_path)


# Help -----------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("command", ALL)
def test_every_option_stands_in_a_group_and_names_its_value(command: str) -> None:
    """A value that help calls VALUE tells nobody what to write."""
    for each in ALL[command]:
        assert each.group, each.names
        assert each.help, each.names
        assert each.placeholder != "VALUE", each.names


@pytest.mark.parametrize("command", ALL)
def test_groups_come_in_the_same_order(command: str) -> None:
    titles = [title for title in dict.fromkeys(each.group for each in ALL[command]) if title in GROUPS]
    assert titles == [title for title in GROUPS if title in titles]
    own = [each.group for each in ALL[command] if each.group not in GROUPS]
    assert [each.group for each in ALL[command]][: len(own)] == own, "what the command is about stands first"


EXCEPTIONS = (
    ("build run", ("--context",)),
    ("build logs", ("-f", "--follow")),
    ("build plan", ("--jobs",)),
    ("build status", ("-w", "--watch")),
    ("up", ("--builds",)),
    ("up", ("--only",)),
    ("up", ("--numa",)),
    ("install", ("--dry-run",)),
    ("run", ("--platform",)),
    ("run", ("--plan",)),
    ("run numa-exporter", ("-v",)),
    ("run numa-extender", ("-v", "--v")),
    ("run numa-extender", ("--bind",)),
    ("numa top", ("--watch",)),
    ("numa top", ("--nodes",)),
    ("numa explain", ("--nodes",)),
    ("numa simulate", ("--nodes",)),
    ("numa simulate", ("--explain",)),
)
"""SB-002, SB-003, IN-002, NO-030, NO-040, NE-132, NO-085, NS-088, NS-160, NS-161, NS-162, BD-300 to BD-304
and BD-391 have them; ``kubectl`` has the dry run."""
KLOG = ("run numa-exporter", "run numa-extender")
"""They take ``-v N``, as the programs in whose place they stand."""


def test_an_option_means_the_same_in_every_command() -> None:
    """``-o``, ``-f``, ``--jobs``: one placeholder and one short name each."""
    found: dict[str, set[tuple[str, tuple[str, ...]]]] = {}
    for command, options in ALL.items():
        for each in options:
            if not each.is_argument and (command, each.names) not in EXCEPTIONS:
                for name in each.names:
                    found.setdefault(name, set()).add((each.placeholder, each.names))
    assert {name: meanings for name, meanings in found.items() if len(meanings) > 1} == {}


@pytest.mark.parametrize("command", [name for name in ALL if not name.startswith("run") and name != "completion"])
def test_every_command_prints_text_json_and_yaml(command: str) -> None:
    option = next(each for each in ALL[command] if "--output" in each.names)
    assert option.names == ("-o", "--output")
    assert option.placeholder == "FORMAT[=FILE]"
    assert option.default == "text"
    assert {"text", "json", "yaml"} <= set(option.choices)
    assert [choice for choice in option.choices if choice not in option.help] == []


READ = [
    (command, each)
    for command, options in ALL.items()
    if any("--output" in each.names for each in options)
    for each in options
    if each.placeholder == "FILE" and each.group not in ("Cluster", "Registries") and command != "up"
]
"""Files that belong to the work; nobody takes a kubeconfig or a list of mirrors for the place of an answer."""
WRITTEN_ANEW = ("inspect", "--platforms-file")
"""``polyarch inspect -o json`` writes such a file."""


@pytest.mark.parametrize(
    ("command", "option"), [pytest.param(*each, id=f"{each[0]} {each[1].names[-1]}") for each in READ]
)
def test_no_answer_replaces_a_file_that_the_command_line_names_as_input(
    command: str,
    option: OptionDeclaration,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    """Nothing is lost by a mistake of one word, whichever command it is."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.yaml").write_text("mine")
    required = ["x" for each in ALL[command] if each.is_argument and each.is_required and each != option]
    given = ["mine.yaml"] if option.is_argument else [option.names[-1], "mine.yaml"]
    code = main([*command.split(), *required, *given, "-o", "json=mine.yaml"])
    said = capsys.readouterr().err
    if (command, option.names[-1]) == WRITTEN_ANEW:
        assert "is an input" not in said
        return
    assert (code, (tmp_path / "mine.yaml").read_text()) == (2, "mine"), said
    assert "mine.yaml: this file is an input" in said


TIMED = [
    (command, each.names[-1])
    for command, options in ALL.items()
    for each in options
    if each.placeholder == "SECONDS" and not command.startswith("run")
]
WORDS = {
    "build run": ["web"],
    "bundle validate": ["."],
    "explain": ["web"],
    "index create": ["a.example/a:1", "oci:x"],
    "index inspect": ["oci:x"],
}
"""What these commands want to know first."""


@pytest.mark.parametrize("number", ["nan", "inf", "-1"])
@pytest.mark.parametrize(("command", "option"), TIMED)
def test_a_time_that_never_comes_is_refused_before_anything_is_done(
    command: str, option: str, number: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who installs with ``--timeout nan`` would wait for ever, and find out when it is installed."""
    monkeypatch.setenv("KUBECONFIG", "/nonexistent")
    code = main([*command.split(), *WORDS.get(command, ()), option, number])
    assert (code, f"{option} {number}: expected a number of seconds" in capsys.readouterr().err) == (2, True)


@pytest.mark.parametrize("command", [name for name in ALL if name not in ("completion", *KLOG)])
def test_every_command_can_be_quiet_or_verbose(command: str) -> None:
    names = {each.names for each in ALL[command]}
    assert {("-q", "--quiet"), ("-v", "--verbose")} <= names


@pytest.mark.req("RG-140")
@pytest.mark.parametrize("command", ["lint", "fix", "inspect", "explain", "bundle validate", "index create"])
def test_whoever_asks_registries_takes_the_same_options_for_it(command: str) -> None:
    registries = [each for each in ALL[command] if each.group == "Registries"]
    assert registries == [each for each in ALL["index inspect"] if each.group == "Registries"]
    assert {"--authfile", "--ca", "--insecure", "--timeout", "--concurrency"} <= {
        name for each in registries for name in each.names
    }


def test_a_page_shows_how_a_value_is_written(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["lint", "--help"]) == 0
    page = capsys.readouterr().out
    assert "Usage: polyarch lint [OPTIONS] [PATH]...\n" in page
    assert "  -o, --output FORMAT[=FILE]  Output format: text, json, yaml, sarif" in page
    assert "      --write-baseline FILE  Save current findings as a baseline\n" in page
    assert re.findall(r"^(\w[\w ]*):$", page, re.MULTILINE)[:5] == [
        "What to check",
        "Rules",
        "Images",
        "Output",
        "Registries",
    ]


def test_the_first_page_has_every_command_and_loads_none(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == 0
    page = capsys.readouterr().out
    assert main(["--help"]) == 0
    assert capsys.readouterr().out == page
    for name, group, _, meaning in COMMANDS:
        assert re.search(rf"^  {name} +{re.escape(meaning)}$", page, re.MULTILINE)
        assert f"{group}:\n" in page


def test_help_of_a_command_that_is_none_is_a_usage_error(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["lnt", "--help"]) == 2
    assert 'Did you mean "lint"?' in capsys.readouterr().err


# Outputs --------------------------------------------------------------------------------------------------------------


FORMATS = ("text", "json", "sarif")


@pytest.mark.parametrize(
    ("given", "found"),
    [
        ([], [Output("text")]),
        (["json"], [Output("json")]),
        (["json=a.json"], [Output("json", "a.json")]),
        (["json=a=b"], [Output("json", "a=b")]),
        (["text", "json=a", "sarif=b"], [Output("text"), Output("json", "a"), Output("sarif", "b")]),
        (["json=-"], [Output("json")]),
    ],
)
def test_a_format_goes_to_stdout_or_to_a_file(
    given: list[str], found: list[Output], capsys: pytest.CaptureFixture[str]
) -> None:
    assert outputs(given, FORMATS) == found
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize(
    "given", [["jsn"], ["json", "jsn"], ["json="], ["jsn=a.json"], ["json=a", "sarif=a"], ["report.txt"], ["-"]]
)
def test_a_misspelt_format_is_no_file(given: list[str]) -> None:
    with pytest.raises(UsageError, match="--output"):
        outputs(given, FORMATS)


# lint and fix ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("command", ["lint", "fix"])
def test_without_a_path_the_working_directory_is_meant(run: Command, command: str) -> None:
    run.write("deploy/web.yaml")
    run.name = command
    result = run()
    assert result.code == 1
    assert "deploy/web.yaml" in result.out


@pytest.mark.parametrize("rules", ["MA102", "ma102", "Ma102,ma2*"])
def test_only_some_rules_run_in_any_case(run: Command, rules: str) -> None:
    run.write("web.yaml")
    found = json.loads(run("--only", rules, "-o", "json").out)["findings"]
    assert {each["rule"] for each in found} == {"MA102"}


@pytest.mark.req("MF-030")
def test_only_all_rules_is_all_of_them(run: Command) -> None:
    """``*`` is the shortest prefix, and names every rule, those that do not run by themselves included."""
    run.write("web.yaml")
    found = json.loads(run("web.yaml", "--only", "*", "-o", "json").out)["findings"]
    assert {each["rule"] for each in found} >= {"MA102"}
    left = json.loads(run("web.yaml", "--only", "*", "--exclude", "MA102", "-o", "json").out)["findings"]
    assert "MA102" not in {each["rule"] for each in left}


@pytest.mark.req("MF-030")
@pytest.mark.parametrize("empty", ["", ","])
def test_only_no_rule_is_a_usage_error(run: Command, empty: str) -> None:
    """An empty variable of a script would check nothing, and pass."""
    run.write("web.yaml")
    result = run("web.yaml", "--only", empty)
    assert (result.code, result.err) == (2, "polyarch: --only: names no rule; polyarch lint --rules lists them\n")


def test_only_replaces_what_the_configuration_selects(run: Command) -> None:
    run.write(".polyarch.yaml", "exclude: [ma102]\ninclude: [MA3*]\nseverity: {ma103: error}\n")
    run.write("web.yaml")
    run.write("Dockerfile", "FROM golang:1\nRUN GOARCH=amd64 go build .\n")
    found = json.loads(run("--only", "MA1*", "--exclude", "ma103", "-o", "json").out)["findings"]
    assert {each["rule"] for each in found} == {"MA102"}
    found = json.loads(run("-o", "json").out)["findings"]
    assert ("MA103", "error") in {(each["rule"], each["severity"]) for each in found}


def test_what_cannot_be_read_is_found_whatever_is_selected(run: Command) -> None:
    run.write("web.yaml", "image: [\n")
    assert [each["rule"] for each in json.loads(run("--only", "MA102", "-o", "json").out)["findings"]] == ["MA902"]


@pytest.mark.parametrize(
    "arguments", [["--exclude", "ma*"], ["--severity", "ma1*=INFO"], ["--include", "ma112", "--exclude", "mA1*"]]
)
def test_rules_are_named_in_any_case(run: Command, arguments: list[str]) -> None:
    run.write("web.yaml")
    assert run(*arguments).code == 0


def test_quiet_findings_and_nothing_else(run: Command) -> None:
    run.write("web.yaml")
    usual, quiet = run("web.yaml"), run("-q", "web.yaml")
    assert usual.out.splitlines()[:-1] == quiet.out.splitlines()
    assert quiet.err == ""
    assert run("-q", "platforms.yaml").err == ""
    run.name = "fix"
    assert run("-q", "web.yaml").err == ""
    assert run("-q", "web.yaml").code == 1


def test_verbose_says_how_the_answer_came_about(run: Command) -> None:
    run.write(".polyarch.yaml", "failOn: error\n")
    run.write("web.yaml")
    assert run("-v", "web.yaml").err == "polyarch: configuration: .polyarch.yaml\npolyarch: 1 file in web.yaml\n"


@pytest.mark.req("MF-050")
@pytest.mark.parametrize("form", ["json", "yaml"])
def test_what_fix_did_as_a_document(run: Command, form: str) -> None:
    """``polyarch.dev/fix/v1``."""
    run.name = "fix"
    path = run.write("web.yaml")
    result = run("web.yaml", "-o", form)
    document = yaml.safe_load(result.out)
    assert (result.code, result.err) == (1, "")
    assert (document["schemaVersion"], document["mode"]) == ("polyarch.dev/fix/v1", "diff")
    assert document["summary"] == {
        "files": 1,
        "objects": 1,
        "changed": 1,
        "fixed": 1,
        "notFixed": 1,
        "remaining": 1,
        "complete": True,
    }
    (file,) = document["files"]
    assert (file["file"], file["diff"]) == ("web.yaml", run("web.yaml").out)
    assert [change["operation"] for change in file["changes"]] == ["remove"]
    assert document["fixed"][0]["rule"] == "MA102"
    assert document["notFixed"][0]["reason"].startswith("--widen")
    assert path.read_text() == WEB
    written = yaml.safe_load(run("web.yaml", "--write", "-o", form).out)
    assert (written["mode"], written["summary"]["fixed"]) == ("write", 1)
    assert path.read_text() != WEB


def test_a_report_of_fix_beside_its_diff(run: Command) -> None:
    run.name = "fix"
    run.write("web.yaml")
    both = run("web.yaml", "-o", "text", "-o", "json=fix.json")
    assert both.out == run("web.yaml").out != ""
    assert json.loads((run.folder / "fix.json").read_text())["summary"]["fixed"] == 1
    assert run("-", "-o", "json=fix.json", stdin=WEB).out.startswith("apiVersion")


@pytest.mark.parametrize("arguments", [["-"], ["--emit", "yaml", "web.yaml"], ["--emit", "kustomize", "web.yaml"]])
def test_manifests_and_a_report_do_not_share_stdout(run: Command, arguments: list[str]) -> None:
    run.name = "fix"
    run.write("web.yaml")
    result = run(*arguments, "-o", "json", stdin=WEB)
    assert (result.code, result.out) == (2, "")
    assert "give the report a file: -o json=FILE" in result.err


@pytest.mark.req("MF-021")
@pytest.mark.parametrize("form", ["json", "yaml"])
def test_rules_for_programs(run: Command, form: str) -> None:
    listed = yaml.safe_load(run("--rules", "-o", form, known=False).out)
    assert listed["schemaVersion"] == "polyarch.dev/rules/v1"
    (one,) = yaml.safe_load(run("--explain", "ma102", "-o", form, known=False).out)["rules"]
    assert one in listed["rules"]
    assert (one["id"], one["severity"]) == ("MA102", "error")
    assert run("--rules", "-o", "sarif", known=False).code == 2
