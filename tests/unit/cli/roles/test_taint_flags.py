"""``polyarch run taints``: its configuration from a file, and words that are another command's."""

import pytest

from polyarch.cli import main
from polyarch.run import process
from polyarch.run.settings import RunSettings

HEAD = "apiVersion: polyarch.dev/v1alpha1\nkind: ArchitectureTaints\nmetadata: {name: cluster}\n"


@pytest.fixture
def started(monkeypatch) -> list[tuple[str, RunSettings]]:
    """What would have been run."""
    runs: list[tuple[str, RunSettings]] = []

    async def run(name: str, _: object, settings: RunSettings) -> None:
        runs.append((name, settings))

    monkeypatch.setattr(process, "run", run)
    return runs


@pytest.mark.req("TN-074")
@pytest.mark.parametrize("word", ["clean", "plan", "apply", "bootstrap"])
@pytest.mark.parametrize("dashes", ["", "--"])
@pytest.mark.parametrize("flags", [(), ("--port", "0")])
def test_who_wants_to_clean_gets_no_controller(started, capsys, word, dashes, flags):
    assert main(["run", *flags, "taints", f"{dashes}{word}"]) == 2
    assert f"polyarch taint {word}" in capsys.readouterr().err
    assert not started


@pytest.mark.req("TN-074")
@pytest.mark.parametrize(
    "words", [["taints", "cleen"], ["taints", "--everything"], ["placement-controller", "clean"]], ids=" ".join
)
def test_other_words_are_usage_errors_that_name_no_other_command(started, capsys, words):
    assert main(["run", *words]) == 2
    assert "polyarch taint" not in capsys.readouterr().err
    assert not started


@pytest.mark.req("TN-080")
def test_without_a_file_the_object_in_the_cluster_is_watched(started):
    assert main(["run", "taints"]) == 0
    assert started[0][1].taints.configuration is None


@pytest.mark.req("TN-012")
def test_the_object_may_be_a_file(started, tmp_path):
    file = tmp_path / "taints.yaml"
    file.write_text(HEAD + "spec: {mode: both, pods: {gateTimeout: 1m}}\n")
    assert main(["run", "taints", "--config", str(file)]) == 0
    given = started[0][1].taints.configuration
    assert given is not None
    assert given.spec == {"mode": "both", "pods": {"gateTimeout": "1m"}}


@pytest.mark.req("TN-012")
@pytest.mark.parametrize(
    ("text", "problem"),
    [
        pytest.param("", "expected one object", id="empty"),
        pytest.param(f"{HEAD}---\n{HEAD}", "expected one object", id="two objects"),
        pytest.param(
            HEAD.replace("ArchitectureTaints", "Pod"), "line 2: kind: must be ArchitectureTaints", id="another kind"
        ),
        pytest.param(
            HEAD.replace("v1alpha1", "v9"), "line 1: apiVersion: must be polyarch.dev/v1alpha1", id="a version"
        ),
        pytest.param(
            HEAD.replace("cluster", "mine"),
            "line 3: metadata.name: the only ArchitectureTaints is named cluster",
            id="another name",
        ),
        pytest.param(HEAD + "spec:\n  mode: 3\n", "line 5: spec.mode: must be a text", id="a value of another type"),
        pytest.param(
            HEAD + "spec:\n  nodes: {perMinute: 60}\n  taint:\n    preset: gke\n    key: a\n",
            "line 7: spec.taint: spec.taint.key is allowed only with",
            id="a rule",
        ),
        pytest.param(
            HEAD + "spec:\n  pods:\n    onUnkown: gate\n", "line 6: spec.pods.onUnkown: does not exist", id="a typo"
        ),
        pytest.param(HEAD + "spec: [", "line", id="not YAML"),
    ],
)
def test_a_process_does_not_start_with_a_wrong_file(started, capsys, tmp_path, text, problem):
    file = tmp_path / "taints.yaml"
    file.write_text(text)
    assert main(["run", "taints", "--config", str(file)]) == 2
    said = capsys.readouterr().err
    assert str(file) in said
    assert problem in said
    assert not started


@pytest.mark.req("TN-012")
def test_a_file_that_is_not_there(started, capsys):
    assert main(["run", "taints", "--config", "/nonexistent/taints.yaml"]) == 2
    assert "/nonexistent/taints.yaml" in capsys.readouterr().err
    assert not started
