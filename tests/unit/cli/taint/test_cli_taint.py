"""``polyarch taint`` without a cluster: what is wrong with a command line is said before anything is asked."""

import io
import json
import sys
from pathlib import Path
from typing import Any

import msgspec
import pytest

from polyarch.cli import main
from polyarch.cli.errors import UsageError
from polyarch.cli.output import messages
from polyarch.cli.taint.configuration import given
from polyarch.cli.taint.options import ConfigurationFlags
from polyarch.cli.taint.plan import emission_text
from polyarch.kube.patches import add
from polyarch.taints.documents import KubeletFlag
from polyarch.taints.node_templates import NodeTemplate, NodeTemplates

pytestmark = pytest.mark.req("TN-064")

NOWHERE = ["--kubeconfig", "/nonexistent"]
COMMANDS = ("plan", "bootstrap", "apply", "clean")


@pytest.mark.req("TN-074")
@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        pytest.param(["plan", "--primary", "nix"], "--primary nix: no such architecture", id="unknown architecture"),
        pytest.param(["plan", "--key", "a b"], "--key: ", id="a key that is none"),
        pytest.param(["plan", "--preset", "custom"], "spec.taint.key is required", id="custom without a key"),
        pytest.param(["plan", "--preset", "gke", "--key", "a"], "spec.taint.key", id="a key with a preset"),
        pytest.param(["plan", "--architectures", "amd64"], "--architectures", id="nothing would be tainted"),
        pytest.param(["plan", "--config", "none.yaml"], "none.yaml", id="no such file"),
        pytest.param(["plan", "--config", "x.yaml", "--mode", "both"], "--config has the whole", id="two of them"),
        pytest.param(["plan", "--emit", "runtimeclasses"], "needs --handler", id="RuntimeClasses without a handler"),
        pytest.param(["plan", "--handler", "runc"], "belongs to --emit runtimeclasses", id="a handler for nothing"),
        pytest.param(["plan", "--emit", "flags"], "Choose from", id="unknown emission"),
        pytest.param(["plan", "extra"], "extra", id="a word too many"),
        pytest.param(["apply", "--batch", "0", "--yes"], "--batch 0: expected 1 or more", id="empty batches"),
        pytest.param(["apply", "--offline", "--deep", "elf"], "--deep", id="options of images"),
        pytest.param(["clean", "--preset", "custom"], "--preset custom needs --key", id="clean custom without a key"),
        pytest.param(["clean", "--preset", "gke", "--key", "a"], "give --preset or --key", id="clean with both"),
        pytest.param(["clean", "--include-bare"], "belongs to --evict", id="bare pods without --evict"),
        pytest.param(["scrub"], "Unknown command", id="no such command"),
    ],
)
def test_what_is_wrong_with_a_command_line_is_said_first(
    arguments: list[str], problem: str, capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: Any
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["taint", *arguments, *(NOWHERE if arguments != ["scrub"] else [])]) == 2
    said = capsys.readouterr()
    assert problem in said.err
    assert said.out == ""
    assert "/nonexistent" not in said.err


@pytest.mark.req("TN-063")
@pytest.mark.parametrize("command", ["bootstrap", "apply", "clean"])
def test_without_a_terminal_somebody_has_to_have_said_yes(
    command: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "stdin", io.StringIO("y\n"))
    assert main(["taint", command, *NOWHERE]) == 2
    assert "give --yes" in capsys.readouterr().err
    for consenting in ("--yes", "--dry-run"):
        assert main(["taint", command, consenting, *NOWHERE]) == 2
        assert "/nonexistent" in capsys.readouterr().err


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.req("TN-063")
@pytest.mark.parametrize(("answer", "goes_on"), [("y", True), ("YES", True), ("", False), ("n", False), ("yep", False)])
def test_at_a_terminal_only_a_yes_is_one(
    answer: str, goes_on: bool, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "stdin", Terminal(f"{answer}\n"))
    monkeypatch.setenv("TERM", "xterm")
    if goes_on:
        messages.confirm("taint clean", yes=False)
    else:
        with pytest.raises(UsageError, match="nothing was written"):
            messages.confirm("taint clean", yes=False)
    assert "Go on? [y/N]" in capsys.readouterr().err


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_explains_itself_with_examples_and_exit_codes(
    command: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["taint", command, "--help"]) == 0
    page = capsys.readouterr().out
    assert f"polyarch taint {command}" in page.split("Examples:")[1]
    assert all(f"\n  {code}  " in page.split("Exit codes:")[1] for code in (0, 1, 2, 3))


@pytest.mark.req("TN-060")
def test_flags_describe_an_object() -> None:
    found = given(ConfigurationFlags(mode="both", primary=["x86_64, arm64"], key="example.com/arch"))
    assert found.source == "flags"
    assert found.taken is not None
    spec = found.taken.spec
    assert (spec["mode"], spec["primaryArchitectures"]) == ("both", ["amd64", "arm64"])
    assert spec["taint"] == {"preset": "custom", "key": "example.com/arch"}
    assert given(ConfigurationFlags()).taken is None


@pytest.mark.req("TN-012")
def test_a_file_is_refused_with_its_line(tmp_path: Path) -> None:
    file = tmp_path / "taints.yaml"
    file.write_text(
        "apiVersion: polyarch.dev/v1alpha1\nkind: ArchitectureTaints\nmetadata: {name: cluster}\n"
        "spec:\n  mode: sometimes\n"
    )
    with pytest.raises(UsageError, match=r"taints\.yaml.*line 5.*spec\.mode"):
        given(ConfigurationFlags(config=str(file)))


@pytest.mark.req("TN-027")
def test_flags_of_kubelets_are_a_table_or_a_document() -> None:
    flags = [KubeletFlag("arm64", "--register-with-taints=k=arm64:NoSchedule")]
    assert emission_text("kubelet-flags", flags, "text").splitlines()[1].split() == ["arm64", flags[0].flag]
    document = json.loads(emission_text("kubelet-flags", flags, "json"))
    assert document == {
        "schemaVersion": "polyarch.dev/kubelet-flags/v1",
        "flags": [{"architecture": "arm64", "flag": flags[0].flag}],
    }


@pytest.mark.req("TN-028")
def test_patches_of_autoscalers_are_commands_or_a_document() -> None:
    patch = (add("/spec/template/spec/taints", []),)
    single = NodeTemplate(
        kind="NodePool", name="arm", patch=patch, detail="it lacks the taint", command="kubectl patch"
    )
    several = NodeTemplate(kind="NodePool", name="any", detail="one for each")
    found = NodeTemplates((single, several), ("machinesets not read",))
    assert emission_text("nodepools", found, "text").splitlines() == [
        "# NodePool arm: it lacks the taint",
        single.command,
        "# NodePool any: one for each",
    ]
    document = json.loads(emission_text("nodepools", found, "json"))
    assert document["schemaVersion"] == "polyarch.dev/node-templates/v1"
    assert document["templates"][0]["patch"] == list(msgspec.to_builtins(single.patch))
    assert document["notes"] == ["machinesets not read"]


@pytest.mark.req("TN-054")
def test_objects_are_manifests_or_a_list() -> None:
    documents = [{"kind": "RuntimeClass", "metadata": {"name": "a"}}, {"kind": "RuntimeClass"}]
    assert emission_text("runtimeclasses", documents, "text").count("---") == 1
    assert json.loads(emission_text("runtimeclasses", documents, "json"))["items"] == documents
