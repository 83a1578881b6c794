"""The corpus run finds what is wrong with itself."""

import json
from pathlib import Path

import msgspec
import pytest
from commands import FIXED, WEB
from tools import corpus

from polyarch.cli.errors import CouldNotComplete
from polyarch.manifests.fix import FixResult
from polyarch.manifests.scan.text import SourceText, TextEdit


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "web.yaml").write_text(WEB)
    (tmp_path / "chart.yaml").write_text("image: {{ .Values.image }}\nkind: {{ x }}\n")
    (tmp_path / "data.yaml").write_text("a: 1\n")
    (tmp_path / "bytes.yaml").write_bytes(b"image: \xff\n")
    (tmp_path / "broken.yaml").write_text("image: [\n")
    return tmp_path


@pytest.mark.req("MF-091")
def test_the_table_is_printed_and_nothing_written(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert corpus.main([str(folder)]) == 0
    lines = {line.split("  ")[0]: line.split()[-2:] for line in capsys.readouterr().out.splitlines()}
    assert lines["files"] == ["5", "5"]
    assert lines["files that are no UTF-8 text"] == ["1", "1"]
    assert lines["pod specifications"] == ["1", "1"]
    assert lines["characters changed outside edits"] == ["0", "0"]
    assert lines["crashes"] == ["0", "0"]
    assert (folder / "web.yaml").read_text() == WEB


@pytest.mark.req("MF-091")
def test_kinds_are_counted_by_what_becomes_of_their_images(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """What nobody says anything of is named with its place; a status tells of no pod to come."""
    head = "apiVersion: {}\nkind: {}\nmetadata: {{name: x}}\nspec: {}\n"
    image = "{image: 'quay.io/acme/web:2'}"
    texts = [
        WEB + "status: " + image + "\n",
        head.format("example.org/v1", "Gateway", image),
        head.format("apps/v1", "Deployment", "{template: {containers: [" + image + "]}}"),
        head.format("image.openshift.io/v1", "ImageStream", image),
    ]
    (tmp_path / "all.yaml").write_text("---\n".join(texts))
    assert corpus.main([str(tmp_path)]) == 0
    captured = capsys.readouterr()
    rows = {line[:24].strip(): line.split()[-3:] for line in captured.out.splitlines()}
    assert rows["Gateway (example.org)"] == ["0", "1", "0"]
    assert rows["Deployment (apps)"] == ["1", "0", "1"]
    assert "ImageStream" not in captured.out
    assert "all.yaml: /spec/template/containers/0/image" in captured.err


def test_a_crash_is_counted_and_named(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(corpus, "fix", lambda *_, **__: 1 // 0)
    assert corpus.main([str(folder)]) == 1
    captured = capsys.readouterr()
    assert "web.yaml" in captured.err
    assert "ZeroDivisionError" in captured.err


def test_what_changes_outside_of_edits_is_seen() -> None:
    """The replay is another way than the editor's: a wrong splice does not pass."""
    at = WEB.index(", s390x")
    edits = ((TextEdit(at, at + len(", s390x"), ""),),)
    source = SourceText.of("web.yaml", WEB.encode())
    assert corpus.changed_outside(FixResult(source=source, text=FIXED, rounds=edits)) == 0
    assert corpus.changed_outside(FixResult(source=source, text=FIXED.replace("kind", "kine"), rounds=edits)) == 1
    assert corpus.changed_outside(FixResult(source=source, text=FIXED + "\n", rounds=edits)) == 1


def test_answers_are_the_same_in_every_run(tmp_path: Path) -> None:
    first, second = corpus.Invented(None), corpus.Invented(None)
    assert msgspec.json.encode(first["nginx:1"]) == msgspec.json.encode(second["nginx:1"])
    assert len({first[f"image-{number}:1"].platforms for number in range(40)}) > 2


def test_the_folders_of_the_operators_are_those_of_the_modules_that_are_asked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not of those that these need. The Go here is a script that says what the real one says."""
    required = [{"Path": "x.example/a", "Version": "v1"}, {"Path": "x.example/b", "Version": "v2", "Indirect": True}]
    (tmp_path / "required.json").write_text(json.dumps({"Require": required}))
    download = """shift 3; for module; do printf '{"Dir": "%s"}\\n' "/src/$module"; done"""
    go = tmp_path / "go"
    go.write_text(f'#!/bin/sh\ncase "$2" in edit) cat {tmp_path}/required.json;; download) {download};; esac\n')
    go.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    assert corpus.operators() == ["/src/x.example/a@v1"]
    go.write_text("#!/bin/sh\nexit 1\n")
    with pytest.raises(CouldNotComplete, match="go mod edit ended with 1"):
        corpus.operators()
