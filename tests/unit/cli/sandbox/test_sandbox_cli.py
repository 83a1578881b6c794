"""The command line's own part: options, the user's kubeconfig, progress in a pipe."""

import io
import json
from collections.abc import Iterator
from pathlib import Path

import pytest
import structlog
import yaml

from polyarch.cli import main
from polyarch.cli.errors import UsageError
from polyarch.cli.sandbox import local_cluster as sandbox_kubeconfig
from polyarch.cli.sandbox.local_cluster import LineProgress
from polyarch.sandbox import document
from polyarch.sandbox.cluster import Sandbox
from polyarch.sandbox.document import Document, Process, RegistryAddress
from polyarch.sandbox.state import Folder, NodeBatch, Settings, State, choose_ports
from polyarch.sandbox.versions import KUBERNETES_BY_MINOR, PROGRAMS, with_real_nodes

OURS = {
    "clusters": [{"name": "polyarch-default", "cluster": {"server": "https://127.0.0.1:1"}}],
    "users": [{"name": "polyarch-default", "user": {"token": "t"}}],
    "contexts": [{"name": "polyarch-default", "context": {"cluster": "polyarch-default"}}],
    "current-context": "polyarch-default",
}
THEIRS = {
    "apiVersion": "v1",
    "kind": "Config",
    "clusters": [{"name": "work", "cluster": {"server": "https://work"}}],
    "users": [{"name": "me", "user": {"token": "secret"}}],
    "contexts": [{"name": "work", "context": {"cluster": "work", "user": "me"}}],
    "current-context": "work",
    "extensions": [{"name": "unknown"}],
}


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    for name in ("XDG_STATE_HOME", "XDG_CACHE_HOME", "KUBECONFIG"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    yield tmp_path
    structlog.reset_defaults()


@pytest.mark.req("SB-003")
def test_merging_adds_ours_keeps_theirs_and_a_copy(tmp_path: Path) -> None:
    path = tmp_path / "config"
    path.write_text(yaml.safe_dump(THEIRS))
    before = path.read_bytes()
    sandbox_kubeconfig.merge(path, OURS)
    sandbox_kubeconfig.merge(path, OURS)
    merged = yaml.safe_load(path.read_text())
    assert [each["name"] for each in merged["contexts"]] == ["work", "polyarch-default"]
    assert merged["current-context"] == "polyarch-default"
    assert merged["extensions"] == [{"name": "unknown"}]
    assert path.stat().st_mode & 0o077 == 0
    sandbox_kubeconfig.remove(path, "polyarch-default")
    assert yaml.safe_load(path.read_text()) == THEIRS | {"current-context": ""}
    path.write_bytes(before)
    sandbox_kubeconfig.merge(path, OURS)
    assert (tmp_path / "config.before-polyarch").read_bytes() == before


@pytest.mark.req("SB-003")
def test_merging_makes_a_file_that_is_not_there(tmp_path: Path) -> None:
    path = tmp_path / ".kube" / "config"
    sandbox_kubeconfig.merge(path, OURS)
    assert yaml.safe_load(path.read_text())["users"] == OURS["users"]


@pytest.mark.req("SB-003")
def test_merging_replaces_the_target_of_a_link_and_not_the_link(tmp_path: Path) -> None:
    (tmp_path / "real").write_text(yaml.safe_dump(THEIRS))
    (tmp_path / "config").symlink_to(tmp_path / "real")
    sandbox_kubeconfig.merge(tmp_path / "config", OURS)
    assert (tmp_path / "config").is_symlink()
    assert "polyarch-default" in (tmp_path / "real").read_text()


@pytest.mark.req("SB-003")
@pytest.mark.parametrize("content", ["a: [", "- a list", "clusters: x"])
def test_a_kubeconfig_that_is_none_is_left_alone(tmp_path: Path, content: str) -> None:
    path = tmp_path / "config"
    path.write_text(content)
    with pytest.raises(UsageError, match="--merge-kubeconfig"):
        sandbox_kubeconfig.merge(path, OURS)
    assert path.read_text() == content


@pytest.mark.req("SB-003")
def test_the_users_file_is_where_kubectl_looks() -> None:
    assert sandbox_kubeconfig.user_file({"KUBECONFIG": ":/a:/b"}) == Path("/a")
    assert sandbox_kubeconfig.user_file({"HOME": "/home/me"}) == Path("/home/me/.kube/config")


@pytest.mark.req("SB-010")
@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--nodes", "amd64=many"], "ARCHITECTURE=NUMBER"),
        (["--numa", "2"], "CELLSxCPUS"),
        (["--name", "No"], "sandbox name"),
        (["--taint", "x"], "--taint 'x': expected ARCHITECTURE:KEY"),
        (["--register-with-taints", "x"], "--register-with-taints 'x': expected ARCHITECTURE:KEY"),
        (["--ca", "/nowhere.pem"], "no such file"),
        (["--registries-conf", "/nowhere.conf"], "no such file"),
        (["--demo", "--only", "control-plane"], "remove --only"),
        (["--only", "nodes"], ""),
        (["--output", "xml"], ""),
    ],
)
@pytest.mark.usefixtures("home")
def test_options_that_make_no_sense_are_usage_errors(
    arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["up", *arguments]) == 2
    shown = capsys.readouterr()
    assert message in " ".join(shown.err.split())
    assert shown.out == ""


@pytest.mark.req("SB-010")
def test_seeding_a_stopped_sandbox_names_the_command_that_starts_it(
    home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    Folder.of("idle").save(State(settings=Settings(name="idle"), ports=choose_ports()))
    (home / "seed.yaml").write_text("quay.io/mine/app:1: [linux/amd64]\n")
    assert main(["sandbox", "seed", str(home / "seed.yaml"), "--name", "idle"]) == 3
    assert "sandbox idle is stopped; `polyarch up --name idle` starts it" in capsys.readouterr().err


@pytest.mark.req("SB-003")
@pytest.mark.parametrize(
    ("option", "message"), [("--ca", "holds no PEM certificates"), ("--registries-conf", "is not TOML")]
)
@pytest.mark.usefixtures("home")
def test_a_file_that_the_processes_could_not_read_is_refused_before_it_is_recorded(
    option: str, message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "wrong.yaml"
    file.write_text("kind: Pod\n")
    assert main(["up", option, str(file)]) == 2
    shown = capsys.readouterr().err
    assert f"{option} {file}" in shown
    assert message in shown


@pytest.mark.req("SB-010")
@pytest.mark.parametrize("command", [["status"], ["down"], ["status", "-o", "json"]])
@pytest.mark.usefixtures("home")
def test_a_sandbox_that_is_not_there_is_said_to_be(command: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*command, "--name", "nobody"]) == 3
    assert "polyarch up --name nobody" in capsys.readouterr().err


@pytest.mark.req("SB-010")
@pytest.mark.parametrize(("content", "message"), [("a: [", "not YAML"), ("nginx: linux/amd64", "list of platforms")])
def test_a_seed_file_that_makes_no_sense_is_named(
    home: Path, content: str, message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    (home / "seed.yaml").write_text(content)
    assert main(["sandbox", "seed", str(home / "seed.yaml"), "--name", "nobody"]) == 2
    shown = " ".join(capsys.readouterr().err.split())
    assert message in shown
    assert "seed.yaml" in shown


@pytest.mark.req("SB-017")
@pytest.mark.parametrize(
    ("more", "code", "message"),
    [
        ((), 3, "the nodes of sandbox played are simulated: --node is for those of `polyarch up --real`"),
        (("--delete",), 2, "remove one of them"),
    ],
)
@pytest.mark.usefixtures("home")
def test_only_a_real_node_can_be_stopped_alone(
    more: tuple[str, ...], code: int, message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    Folder.of("played").save(State(settings=Settings(name="played"), ports=choose_ports()))
    assert main(["down", "--name", "played", "--node", "amd64-1", *more]) == code
    assert message in " ".join(capsys.readouterr().err.split())


@pytest.mark.req("SB-017")
@pytest.mark.usefixtures("home")
def test_a_node_that_the_sandbox_does_not_have_is_answered_with_those_that_it_has(
    capsys: pytest.CaptureFixture[str],
) -> None:
    settings = Settings(name="two", nodes={"amd64": 2}, real=True)
    fleet = (NodeBatch("amd64", 2),)
    Folder.of("two").save(State(settings=settings, ports=choose_ports(), fleet=fleet))
    assert main(["down", "--name", "two", "--node", "amd64-3"]) == 3
    assert "there is no node 'amd64-3' in sandbox two: it has amd64-1, amd64-2" in capsys.readouterr().err


@pytest.mark.req("SB-003")
@pytest.mark.usefixtures("home")
def test_no_sandboxes_is_an_empty_list(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["sandbox", "list", "-o", "json"]) == 0
    assert json.loads(capsys.readouterr().out)["sandboxes"] == []


@pytest.mark.req("SB-003")
def test_a_list_with_a_damaged_record_names_the_file(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    records = home / ".local/state/polyarch/sandbox/a/processes"
    records.mkdir(parents=True)
    (records.parent / "sandbox.json").write_text("{}")
    (records / "etcd.json").write_text("{")
    assert main(["sandbox", "list"]) == 3
    assert f"{records}/etcd.json: not a process record" in capsys.readouterr().err


@pytest.mark.req("SB-002")
def test_progress_in_a_pipe_is_plain_lines() -> None:
    stream = io.StringIO()
    with LineProgress(stream) as progress:
        progress.step("building etcd")
        progress.advance(1, 100)
        progress.advance(2, 100)
        progress.step("done")
    assert stream.getvalue() == "building etcd\ndone\n"


@pytest.mark.req("SB-002", "SB-017")
@pytest.mark.parametrize(
    ("detail", "line"),
    [
        ("k8s.io/api", "1 of 2 packages"),
        ("nodes", "1 of 2 nodes are ready"),
        ("bytes", "0 of 0 MB"),
    ],
    ids=["a build", "real nodes", "a download"],
)
def test_a_long_step_says_how_far_it_is(detail: str, line: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("polyarch.cli.sandbox.local_cluster.LINE_SECONDS", 0.0)
    stream = io.StringIO()
    with LineProgress(stream) as progress:
        progress.step("starting")
        progress.advance(1, 2, detail)
    assert stream.getvalue() == f"starting\n  {line}\n"


@pytest.mark.req("SB-002")
@pytest.mark.usefixtures("home")
def test_fetch_prints_where_the_binaries_are(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for program in PROGRAMS:
        (tmp_path / program.name).write_text("#!/bin/sh\n")
        (tmp_path / program.name).chmod(0o755)
    assert main(["sandbox", "fetch", "--assets", str(tmp_path), "-o", "json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["binaries"] == {program.name: str(tmp_path / program.name) for program in PROGRAMS}
    assert main(["sandbox", "fetch", "--assets", "/nowhere"]) == 3
    assert "--assets names /nowhere" in capsys.readouterr().err


@pytest.mark.req("SB-002", "SB-021")
@pytest.mark.usefixtures("home")
def test_fetch_takes_what_emulated_nodes_need(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    nodes = ("amd64", "arm64")
    wanted = [program.name for program in with_real_nodes(nodes)]
    for name in wanted:
        (tmp_path / name).write_text("#!/bin/sh\n")
        (tmp_path / name).chmod(0o755)
    fetch = ["sandbox", "fetch", "--assets", str(tmp_path), "-o", "json"]
    assert main([*fetch, "--real", "--nodes", "amd64=1,arm64=1"]) == 0
    assert sorted(json.loads(capsys.readouterr().out)["binaries"]) == sorted(wanted)
    for options, said in (
        (["--nodes", "arm64=1"], "add --real"),
        (["--real", "--nodes", "s390x"], "--nodes s390x: s390x cannot be emulated"),
        (["--real", "--nodes", "arm46"], "arm46"),
    ):
        assert main([*fetch, *options]) == 2
        assert said in capsys.readouterr().err


@pytest.mark.req("SB-020")
@pytest.mark.usefixtures("home")
def test_fetch_of_another_version_names_it_and_those_that_there_are(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for program in PROGRAMS:
        (tmp_path / program.name).write_text("#!/bin/sh\n")
        (tmp_path / program.name).chmod(0o755)
    fetch = ["sandbox", "fetch", "--assets", str(tmp_path), "-o", "json", "--kubernetes"]
    assert main([*fetch, "1.30"]) == 0
    assert json.loads(capsys.readouterr().out)["kubernetes"] == KUBERNETES_BY_MINOR["1.30"]
    for command in ([*fetch, "1.31"], ["up", "--kubernetes", "1.31"]):
        assert main(command) == 2
        assert "--kubernetes '1.31': the sandbox has no such version; expected one of 1.30" in capsys.readouterr().err


@pytest.mark.req("SB-003")
def test_the_log_of_a_dead_component_is_named_in_full(
    home: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """In a pipe, too, where nobody knows how wide a line may be."""
    monkeypatch.setenv("COLUMNS", "80")
    log = home / ("a-long-name-" * 8) / "kube-apiserver.log"
    dead = Process("kube-apiserver", 7, str(log), "https://127.0.0.1:6443", False, f"ended with 1; see {log}")
    result = Document(
        schema_version="",
        name="default",
        kubeconfig="",
        context="",
        api_server="",
        version="",
        registry=RegistryAddress("127.0.0.1:1", True),
        audit_log=str(log),
        registry_log="",
        processes=[dead],
        nodes=[],
    )

    async def describe(*_: object) -> Document:
        return result

    monkeypatch.setattr(document, "describe", describe)
    monkeypatch.setattr(Sandbox, "attach", lambda name: name)
    assert main(["status"]) == 1
    assert f"ended with 1; see {log}\n" in capsys.readouterr().out
