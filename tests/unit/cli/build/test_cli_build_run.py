"""``polyarch build run``: ImageBuilds from flags and files, contexts, and what is printed without a cluster."""

import errno
import gzip
import io
import json
import random
import sys
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from polyarch.cli import main
from polyarch.cli.build import composition
from polyarch.cli.build.options import WishFlags
from polyarch.cli.build.packing import archive, contexts
from polyarch.cli.build.submission import new_token
from polyarch.cli.errors import CouldNotComplete, UsageError
from polyarch.cli.options.valueless import with_values

TEXT = "FROM docker.io/library/busybox:1.36\nRUN true\n"
FILE = """\
apiVersion: polyarch.dev/v1alpha1
kind: ImageBuild
metadata:
  name: shop
spec:
  source:
    containerfile: |
      FROM docker.io/library/busybox:1.36
  output:
    repository: quay.io/team/shop
"""
COMMIT = "0123456789abcdef0123456789abcdef01234567"
Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    """A command line in a folder without a cluster: exit code, stdout, stderr."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "none"))

    def run(*words: str, stdin: str = "") -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(stdin.encode())))
        code = main(["build", "run", *words])
        captured = capsys.readouterr()
        return code, captured.out, captured.err

    (tmp_path / "Containerfile").write_text(TEXT)
    (tmp_path / "Containerfile.arm64").write_text(TEXT + "RUN arm\n")
    return run


def test_bd_300_flags_make_an_imagebuild(run: Run) -> None:
    code, out, _ = run(
        *("shop", "--repository", "quay.io/team/shop", "--tag", "1.4", "--tag", "latest", "--arg", "MODE=a=b"),
        *("--override", "aarch64=Containerfile.arm64", "--push-secret", "quay", "--arch", "x86_64,arm64"),
        *(
            "--strategy",
            "PreferNative",
            "--fail-fast",
            "--context",
            f"git:https://git.example.com/shop.git@{COMMIT}#web",
        ),
        *("-n", "team", "--dry-run", "-o", "yaml"),
    )
    assert code == 0
    found = yaml.safe_load(out)
    assert found["metadata"] == {"name": "shop", "namespace": "team"}
    spec = found["spec"]
    assert spec["source"]["containerfile"] == TEXT
    assert spec["source"]["overrides"] == [{"architecture": "arm64", "containerfile": TEXT + "RUN arm\n"}]
    assert spec["source"]["buildArgs"] == {"MODE": "a=b"}
    git = {"url": "https://git.example.com/shop.git", "commit": COMMIT, "directory": "web"}
    assert spec["source"]["context"] == {"type": "Git", "git": git}
    assert spec["output"] == {
        "repository": "quay.io/team/shop",
        "tags": ["1.4", "latest"],
        "pushSecret": {"name": "quay"},
    }
    assert spec["architectures"] == {"mode": "Explicit", "list": ["amd64", "arm64"]}
    assert (spec["strategy"], spec["failFast"]) == ("PreferNative", True)


def test_bd_300_the_containerfile_of_the_folder_is_meant_if_none_is_named(run: Run) -> None:
    _, out, _ = run("shop", "--repository", "quay.io/team/shop", "--dry-run")
    assert yaml.safe_load(out)["spec"]["source"]["containerfile"] == TEXT


def test_bd_321_a_containerfile_from_standard_input(run: Run) -> None:
    _, out, _ = run("shop", "--repository", "quay.io/a/b", "--containerfile", "-", "--dry-run", stdin="FROM scratch\n")
    assert yaml.safe_load(out)["spec"]["source"]["containerfile"] == "FROM scratch\n"


@pytest.mark.parametrize(
    ("words", "told"),
    [
        pytest.param((), "give NAME, or -f FILE", id="nothing"),
        pytest.param(("shop", "--repository", "shop"), "--repository (spec.output.repository)", id="no host"),
        pytest.param(("shop", "--arg", "MODE"), "expected NAME=VALUE", id="no value"),
        pytest.param(("shop", "--override", "arm64"), "expected ARCHITECTURE=PATH", id="no path"),
        pytest.param(("shop", "--override", "arm64=none"), "No such file", id="no file"),
        pytest.param(("shop", "--context", "git:https://x.example/y@main"), "full commit id", id="a branch"),
        pytest.param(("shop", "--context", "nowhere"), "no such folder", id="no folder"),
        pytest.param(("shop", "--context", "."), "--context DIR needs --repository", id="no place for the context"),
        pytest.param(("shop", "--timeout", "0"), "greater than 0", id="no time"),
        pytest.param(
            ("shop", "--arch", "arm64,amd46"),
            "--arch amd46: no architecture has this name; did you mean amd64?",
            id="a misspelt architecture",
        ),
        pytest.param(("shop", "--tag", "a b", "--repository", "quay.io/a/b"), "--tag (spec.output.tags", id="no tag"),
    ],
)
def test_bd_320_a_wrong_command_line_is_told_with_its_option(run: Run, words: tuple[str, ...], told: str) -> None:
    code, out, err = run(*words, "--dry-run")
    assert (code, out) == (2, "")
    assert told in err


def test_bd_320_several_wrong_options_are_told_at_once(run: Run) -> None:
    _, _, err = run("shop", "--repository", "shop", "--arg", "1A=b", "--dry-run")
    assert "--repository" in err
    assert "--arg" in err


def test_bd_321_a_file_is_printed_in_its_namespace(run: Run) -> None:
    code, out, _ = run("-f", "-", "-n", "team", "--dry-run", stdin=FILE)
    assert code == 0
    assert yaml.safe_load(out)["metadata"] == {"name": "shop", "namespace": "team"}


@pytest.mark.parametrize(
    ("text", "told"),
    [
        pytest.param("a: [", "standard input, document 1, line", id="no YAML"),
        pytest.param(FILE.replace("repository:", "repositry:"), "repository", id="a misspelt field"),
        pytest.param(FILE.replace("ImageBuild", "Deployment"), "Deployment: expected ImageBuild", id="another kind"),
        pytest.param("", "empty", id="nothing"),
        pytest.param(FILE + "---\n" + FILE.replace("quay.io/", ""), "standard input:", id="the second of two"),
    ],
)
def test_bd_321_what_is_wrong_in_a_file_is_told_with_its_line(run: Run, text: str, told: str) -> None:
    code, out, err = run("-f", "-", "--dry-run", stdin=text)
    assert (code, out) == (2, "")
    assert told in err


def test_bd_321_several_documents_are_all_printed(run: Run) -> None:
    two = FILE + "---\n" + FILE.replace("name: shop", "name: other")
    _, out, _ = run("-f", "-", "--dry-run", stdin=two)
    assert [each["metadata"]["name"] for each in yaml.safe_load_all(out)] == ["shop", "other"]
    code, _, err = run("-f", "-", "--tag", "a", "--dry-run", stdin=two)
    assert code == 2
    assert "give NAME" in err
    _, out, _ = run("other", "-f", "-", "--tag", "a", "--dry-run", stdin=two)
    assert yaml.safe_load(out)["spec"]["output"]["tags"] == ["a"]


def test_bd_300_a_plain_rebuild_takes_no_word_for_its_value() -> None:
    assert with_values(["build", "run", "--rebuild", "shop"]) == ["build", "run", "--rebuild=", "shop"]
    assert with_values(["build", "run", "--rebuild=arm64"]) == ["build", "run", "--rebuild=arm64"]
    assert with_values(["build", "plan", "--rebuild"]) == ["build", "plan", "--rebuild"]


def test_bd_126_a_rebuild_has_a_token_of_its_own_and_the_listed_architectures(run: Run) -> None:
    _, out, _ = run("shop", "--repository", "quay.io/a/b", "--rebuild=aarch64,amd64", "--dry-run")
    rebuild = yaml.safe_load(out)["spec"]["rebuild"]
    assert rebuild["architectures"] == ["amd64", "arm64"]
    assert len(rebuild["token"]) <= 63
    assert new_token() != new_token()
    _, out, _ = run("shop", "--repository", "quay.io/a/b", "--rebuild", "--dry-run")
    assert set(yaml.safe_load(out)["spec"]["rebuild"]) == {"token"}


def test_bd_300_a_flag_comes_on_top_of_what_was_said_before() -> None:
    said = {
        **composition.named("shop", "team"),
        "spec": {
            "source": {"containerfileFrom": {"name": "text"}, "buildArgs": {"A": "1"}},
            "output": {"repository": "quay.io/a/b", "tags": ["1"]},
        },
    }
    found = composition.composed(WishFlags(arg=["B=2"], tag=["2"]), said)
    assert found["spec"]["source"] == {"containerfileFrom": {"name": "text"}, "buildArgs": {"A": "1", "B": "2"}}
    assert found["spec"]["output"] == {"repository": "quay.io/a/b", "tags": ["2"]}
    assert said["spec"]["output"]["tags"] == ["1"]


SAID = {**composition.named("web", "team"), "spec": {"source": {"containerfile": TEXT}}}


@pytest.mark.parametrize(
    ("folder", "text", "chosen", "told"),
    [
        pytest.param("here", TEXT, None, "", id="the text that is there"),
        pytest.param("here", "FROM scratch\n", "here/Containerfile", "takes the place", id="a changed context"),
        pytest.param(None, "FROM scratch\n", None, "add --containerfile", id="another text in the current folder"),
    ],
)
def test_bd_300_a_context_brings_its_containerfile_along(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, folder: str | None, text: str, chosen: str | None, told: str
) -> None:
    """A Containerfile that was edited is not left out without a word."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "here").mkdir()
    for each in ("Containerfile", "here/Containerfile"):
        (tmp_path / each).write_text(text)
    notes: list[str] = []
    found = composition.with_usual_containerfile(
        WishFlags(tag=["2"]), SAID, Path(folder) if folder else None, notes.append, is_new=False
    )
    assert found.containerfile == chosen
    assert told in "".join(notes)
    assert bool(notes) == bool(told)


def test_bd_300_a_containerfile_of_a_config_map_is_not_replaced_by_a_file_that_lies_about(tmp_path: Path) -> None:
    (tmp_path / "Containerfile").write_text(TEXT)
    said = {**SAID, "spec": {"source": {"containerfileFrom": {"name": "text"}}}}
    notes: list[str] = []
    found = composition.with_usual_containerfile(WishFlags(), said, tmp_path, notes.append, is_new=False)
    assert (found.containerfile, notes) == (None, [])


def _packed(folder: Path) -> tuple[archive.Packed, bytes]:
    layer = io.BytesIO()
    return archive.pack(folder, layer), layer.getvalue()


def test_bd_300_a_context_is_the_same_bytes_wherever_and_whenever_it_is_packed(tmp_path: Path) -> None:
    for name in ("one", "two"):
        folder = tmp_path / name
        (folder / "src").mkdir(parents=True)
        names = ["b.txt", "a.txt", "src/main.c"]
        for each in names if name == "one" else reversed(names):
            (folder / each).write_text(each)
        (folder / "run.sh").write_text("#!/bin/sh\n")
        (folder / "run.sh").chmod(0o755 if name == "one" else 0o700)
        (folder / "link").symlink_to("a.txt")
    (one, content), (two, other) = _packed(tmp_path / "one"), _packed(tmp_path / "two")
    assert one == two
    assert content == other
    with tarfile.open(fileobj=io.BytesIO(gzip.decompress(content))) as found:
        members = found.getmembers()
    assert [each.name for each in members] == ["a.txt", "b.txt", "link", "run.sh", "src", "src/main.c"]
    assert {(each.uid, each.gid, each.mtime, each.uname) for each in members} == {(0, 0, 0, "")}
    assert (one.files, one.size) == (6, len(content))


def test_bd_300_another_file_is_another_context(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("a")
    before, _ = _packed(tmp_path)
    (tmp_path / "a").write_text("b")
    assert _packed(tmp_path)[0].digest != before.digest


@pytest.mark.parametrize(
    ("text", "path", "ignored"),
    [
        ("*.log", "a.log", True),
        ("*.log", "sub/a.log", False),
        ("**/*.log", "sub/a.log", True),
        ("**/*.log", "a.log", True),
        ("node_modules", "node_modules/x/y.js", True),
        ("/build/", "build/out", True),
        ("docs\n!docs/README.md", "docs/README.md", False),
        ("docs\n!docs/README.md", "docs/other.md", True),
        ("# a comment\n\n  a.txt  ", "a.txt", True),
        ("temp?", "temp1", True),
        ("temp?", "temp", False),
        ("[ab].txt", "a.txt", True),
        ("[ab].txt", "c.txt", False),
        ("a/**/z", "a/b/c/z", True),
        ("a/**", "a/b", True),
        ("*", "anything/below", True),
        ("*\n!keep", "keep/this", False),
        ("./x", "x", True),
        ("a+b", "a+b", True),
    ],
)
def test_bd_300_ignore_files_mean_what_they_mean_to_docker(text: str, path: str, ignored: bool) -> None:
    assert archive.is_ignored(path, archive.patterns(text)) is ignored


def test_bd_300_the_ignore_file_of_containers_comes_first(tmp_path: Path) -> None:
    (tmp_path / ".containerignore").write_text("a\n.*ignore\n")
    (tmp_path / ".dockerignore").write_text("b\n")
    for name in ("a", "b"):
        (tmp_path / name).write_text(name)
    _, content = _packed(tmp_path)
    with tarfile.open(fileobj=io.BytesIO(gzip.decompress(content))) as found:
        assert found.getnames() == ["b"]


def test_bd_300_contexts_are_told_apart_by_their_beginning(tmp_path: Path) -> None:
    assert contexts.read("image:quay.io/a/b@sha256:1").document == {
        "type": "Image",
        "image": {"reference": "quay.io/a/b@sha256:1"},
    }
    assert contexts.read(str(tmp_path)).folder == tmp_path
    with pytest.raises(UsageError, match="git:URL@COMMIT or image:REF@DIGEST"):
        contexts.read("svn:x")


def test_bd_305_json_is_the_object(run: Run) -> None:
    _, out, _ = run("-f", "-", "--dry-run", "-o", "json", stdin=FILE)
    assert json.loads(out)["kind"] == "ImageBuild"


class _Target(io.BytesIO):
    """Takes what is packed; ``meanwhile`` happens as soon as the first file comes, after the header."""

    def __init__(self, meanwhile: Callable[[], object]) -> None:
        super().__init__()
        self._meanwhile = meanwhile

    def write(self, data: Any) -> int:
        if self.tell() > len("the header"):
            self._meanwhile()
        return super().write(data)


def test_bd_320_a_file_that_cannot_be_read_is_named_with_what_to_do(tmp_path: Path) -> None:
    """BD-305: it is the user's folder, so exit code 2 and no traceback."""
    (tmp_path / "a").write_bytes(random.Random(1).randbytes(400_000))
    last = tmp_path / "z"
    last.write_text("x")
    with pytest.raises(UsageError) as caught:
        archive.pack(tmp_path, _Target(lambda: last.unlink(missing_ok=True)))
    told = str(caught.value)
    assert told.startswith(f"--context: {last}: No such file or directory")
    assert "make it readable, or name it in .containerignore" in told


def test_bd_305_a_full_disk_is_not_the_folders_fault(tmp_path: Path) -> None:
    def full() -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    (tmp_path / "a").write_bytes(random.Random(1).randbytes(400_000))
    with pytest.raises(CouldNotComplete, match="packing it: No space left on device"):
        archive.pack(tmp_path, _Target(full))
