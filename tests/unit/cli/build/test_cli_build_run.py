"""``polyarch build run``: ImageBuilds from flags and files, contexts, and what is printed without a cluster."""

import errno
import gzip
import io
import json
import os
import random
import re
import sys
import tarfile
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from polyarch.cli import main
from polyarch.cli.build import context_archive, image_builds
from polyarch.cli.build.options import BuildFlags
from polyarch.cli.build.run import new_token
from polyarch.cli.errors import CouldNotComplete, UsageError
from polyarch.cli.options.usage_errors import with_values

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


@pytest.mark.req("BD-300")
def test_flags_make_an_imagebuild(run: Run) -> None:
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


@pytest.mark.req("BD-300")
def test_the_containerfile_of_the_folder_is_meant_if_none_is_named(run: Run) -> None:
    _, out, _ = run("shop", "--repository", "quay.io/team/shop", "--dry-run")
    assert yaml.safe_load(out)["spec"]["source"]["containerfile"] == TEXT


@pytest.mark.req("BD-321")
def test_a_containerfile_from_standard_input(run: Run) -> None:
    _, out, _ = run("shop", "--repository", "quay.io/a/b", "--containerfile", "-", "--dry-run", stdin="FROM scratch\n")
    assert yaml.safe_load(out)["spec"]["source"]["containerfile"] == "FROM scratch\n"


@pytest.mark.req("BD-320")
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
def test_a_wrong_command_line_is_told_with_its_option(run: Run, words: tuple[str, ...], told: str) -> None:
    code, out, err = run(*words, "--dry-run")
    assert (code, out) == (2, "")
    assert told in err


@pytest.mark.req("BD-320")
def test_several_wrong_options_are_told_at_once(run: Run) -> None:
    _, _, err = run("shop", "--repository", "shop", "--arg", "1A=b", "--dry-run")
    assert "--repository" in err
    assert "--arg" in err


@pytest.mark.req("BD-321")
def test_a_file_is_printed_in_its_namespace(run: Run) -> None:
    code, out, _ = run("-f", "-", "-n", "team", "--dry-run", stdin=FILE)
    assert code == 0
    assert yaml.safe_load(out)["metadata"] == {"name": "shop", "namespace": "team"}


@pytest.mark.req("BD-321")
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
def test_what_is_wrong_in_a_file_is_told_with_its_line(run: Run, text: str, told: str) -> None:
    code, out, err = run("-f", "-", "--dry-run", stdin=text)
    assert (code, out) == (2, "")
    assert told in err


@pytest.mark.req("BD-321")
def test_several_documents_are_all_printed(run: Run) -> None:
    two = FILE + "---\n" + FILE.replace("name: shop", "name: other")
    _, out, _ = run("-f", "-", "--dry-run", stdin=two)
    assert [each["metadata"]["name"] for each in yaml.safe_load_all(out)] == ["shop", "other"]
    code, _, err = run("-f", "-", "--tag", "a", "--dry-run", stdin=two)
    assert code == 2
    assert "give NAME" in err
    _, out, _ = run("other", "-f", "-", "--tag", "a", "--dry-run", stdin=two)
    assert yaml.safe_load(out)["spec"]["output"]["tags"] == ["a"]


@pytest.mark.req("BD-300")
def test_a_plain_rebuild_takes_no_word_for_its_value() -> None:
    assert with_values(["build", "run", "--rebuild", "shop"]) == ["build", "run", "--rebuild=", "shop"]
    assert with_values(["build", "run", "--rebuild=arm64"]) == ["build", "run", "--rebuild=arm64"]
    assert with_values(["build", "plan", "--rebuild"]) == ["build", "plan", "--rebuild"]


@pytest.mark.req("BD-126")
def test_a_rebuild_has_a_token_of_its_own_and_the_listed_architectures(run: Run) -> None:
    _, out, _ = run("shop", "--repository", "quay.io/a/b", "--rebuild=aarch64,amd64", "--dry-run")
    rebuild = yaml.safe_load(out)["spec"]["rebuild"]
    assert rebuild["architectures"] == ["amd64", "arm64"]
    assert len(rebuild["token"]) <= 63
    assert new_token() != new_token()
    _, out, _ = run("shop", "--repository", "quay.io/a/b", "--rebuild", "--dry-run")
    assert set(yaml.safe_load(out)["spec"]["rebuild"]) == {"token"}


@pytest.mark.req("BD-300")
def test_a_flag_comes_on_top_of_what_was_said_before() -> None:
    said = {
        **image_builds.named("shop", "team"),
        "spec": {
            "source": {"containerfileFrom": {"name": "text"}, "buildArgs": {"A": "1"}},
            "output": {"repository": "quay.io/a/b", "tags": ["1"]},
        },
    }
    found = image_builds.composed(BuildFlags(arg=["B=2"], tag=["2"]), said)
    assert found["spec"]["source"] == {"containerfileFrom": {"name": "text"}, "buildArgs": {"A": "1", "B": "2"}}
    assert found["spec"]["output"] == {"repository": "quay.io/a/b", "tags": ["2"]}
    assert said["spec"]["output"]["tags"] == ["1"]


SAID = {**image_builds.named("web", "team"), "spec": {"source": {"containerfile": TEXT}}}


@pytest.mark.req("BD-300")
@pytest.mark.parametrize(
    ("folder", "text", "chosen", "told"),
    [
        pytest.param("here", TEXT, None, "", id="the text that is there"),
        pytest.param("here", "FROM scratch\n", "here/Containerfile", "takes the place", id="a changed context"),
        pytest.param(None, "FROM scratch\n", None, "add --containerfile", id="another text in the current folder"),
    ],
)
def test_a_context_brings_its_containerfile_along(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, folder: str | None, text: str, chosen: str | None, told: str
) -> None:
    """A Containerfile that was edited is not left out without a word."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "here").mkdir()
    for each in ("Containerfile", "here/Containerfile"):
        (tmp_path / each).write_text(text)
    notes: list[str] = []
    found = image_builds.with_usual_containerfile(
        BuildFlags(tag=["2"]), SAID, Path(folder) if folder else None, notes.append, is_new=False
    )
    assert found.containerfile == chosen
    assert told in "".join(notes)
    assert bool(notes) == bool(told)


@pytest.mark.req("BD-300")
def test_a_containerfile_of_a_config_map_is_not_replaced_by_a_file_that_lies_about(tmp_path: Path) -> None:
    (tmp_path / "Containerfile").write_text(TEXT)
    said = {**SAID, "spec": {"source": {"containerfileFrom": {"name": "text"}}}}
    notes: list[str] = []
    found = image_builds.with_usual_containerfile(BuildFlags(), said, tmp_path, notes.append, is_new=False)
    assert (found.containerfile, notes) == (None, [])


def _packed(folder: Path, containerfile: Path | None = None) -> tuple[context_archive.PackedContext, bytes]:
    layer = io.BytesIO()
    rules = context_archive.ignore_rules(folder, str(containerfile) if containerfile else None)
    return context_archive.pack(folder, layer, rules), layer.getvalue()


def _members(folder: Path, containerfile: Path | None = None) -> list[str]:
    """What leaves the machine."""
    _, content = _packed(folder, containerfile)
    with tarfile.open(fileobj=io.BytesIO(gzip.decompress(content))) as found:
        return found.getnames()


def _tree(folder: Path, files: Mapping[str, str | bytes]) -> Path:
    for name, content in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return folder


@pytest.mark.req("BD-300")
def test_a_context_is_the_same_bytes_wherever_and_whenever_it_is_packed(tmp_path: Path) -> None:
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


@pytest.mark.req("BD-300")
def test_another_file_is_another_context(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("a")
    before, _ = _packed(tmp_path)
    (tmp_path / "a").write_text("b")
    assert _packed(tmp_path)[0].digest != before.digest


@pytest.mark.req("BD-300")
@pytest.mark.parametrize("name", [".wh.a", ".wh..wh..opq", "sub/.wh.b", ".wh."])
def test_what_a_layer_would_lose_is_refused_by_name(tmp_path: Path, name: str) -> None:
    """A context travels as a layer, in which such names delete others: the builder never got these files."""
    path = tmp_path / name
    path.parent.mkdir(exist_ok=True)
    path.write_text("a")
    (tmp_path / "a").write_text("a")
    with pytest.raises(UsageError, match=re.escape(str(path))):
        _packed(tmp_path)
    (tmp_path / ".dockerignore").write_text("**/.wh.*")
    assert _packed(tmp_path)[0].files > 0


@pytest.mark.req("BD-300")
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
def test_ignore_files_mean_what_they_mean_to_docker(text: str, path: str, ignored: bool) -> None:
    assert context_archive.is_ignored(path, context_archive.patterns(text)) is ignored


@pytest.mark.req("BD-300")
def test_the_ignore_file_of_containers_comes_first(tmp_path: Path) -> None:
    (tmp_path / ".containerignore").write_text("a\n.*ignore\n")
    (tmp_path / ".dockerignore").write_text("b\n")
    for name in ("a", "b"):
        (tmp_path / name).write_text(name)
    assert _members(tmp_path) == ["b"]


@pytest.mark.parametrize(
    "text",
    [
        pytest.param(b"\xef\xbb\xbfkey\nold", id="a byte order mark"),
        pytest.param(b"\xef\xbb\xbf# what stays here\nkey\nold\n", id="a comment after a byte order mark"),
        pytest.param(b"key\r\nold\r\n", id="lines of Windows"),
        pytest.param(b"\t key \x0b\r\n\xc2\xa0old\xc2\xa0", id="blanks around"),
        pytest.param(b"/key\nold/", id="slashes around"),
        pytest.param(b"//key//\n./old/.", id="more of them"),
        pytest.param(b"x/../key\nx/y/../../old", id="folders that cancel out"),
        pytest.param(b"*\n!src\n!.keep", id="all but a few"),
        pytest.param(b"**\n!src\n!.keep", id="all of all but a few"),
        pytest.param(b"**key\n**/old", id="an end of a path"),
        pytest.param(b"[^.s]*", id="all but some letters"),
        pytest.param(b"ke[!-z]\nol?", id="a range"),
        pytest.param(b"key\n!key\nkey\nold", id="the last line that names it"),
        pytest.param(b"src\n!src/main.c\nkey\nold", id="an exception in a folder that is named"),
        pytest.param(b"!old/b\nold\nkey", id="an exception before its rule"),
        pytest.param(b"key\nold\nIcon\r\r\nIcon[\r]\n", id="the icons of macOS"),
        pytest.param(b"*k*e*y\n**/**/**/old", id="more stars than are needed"),
    ],
)
def test_what_an_ignore_file_names_stays_here(tmp_path: Path, text: bytes) -> None:
    _tree(tmp_path, {"key": "k", "old/a": "", "old/b/c": "", "src/main.c": "", ".keep": ""})
    members = set(_members(_tree(tmp_path, {".dockerignore": text})))
    assert members - {".dockerignore", "src"} == {"src/main.c", ".keep"}


@pytest.mark.parametrize(
    ("files", "containerfile", "there"),
    [
        pytest.param({".dockerignore": "a"}, "Containerfile", "b", id="Docker's"),
        pytest.param({".dockerignore": "a", ".containerignore": "b"}, "Containerfile", "a", id="of containers first"),
        pytest.param({".dockerignore": "a", ".containerignore": ""}, "Containerfile", "a b", id="one that is empty"),
        pytest.param({".containerignore": "a", "Containerfile.containerignore": "b"}, "Containerfile", "a", id="own"),
        pytest.param({".dockerignore": "b", "x.dockerignore": "a"}, "x", "b", id="own, of Docker"),
        pytest.param(
            {"x.containerignore": "a", "x.dockerignore": "b"}, "x", "a", id="own, the one that both tools read"
        ),
        pytest.param({".dockerignore": "a", "y.dockerignore": "b"}, "x", "b", id="of another Containerfile"),
        pytest.param({".dockerignore": "b", "build/x.dockerignore": "a"}, "build/x", "b", id="in a folder"),
        pytest.param({"../x.dockerignore": "a"}, "../x", "b", id="outside of the context"),
        pytest.param({".dockerignore": "a\n.dockerignore"}, "Containerfile", "b", id="one that names itself"),
    ],
)
def test_the_ignore_file_that_counts_is_the_one_that_buildah_reads(
    tmp_path: Path, files: dict[str, str], containerfile: str, there: str
) -> None:
    """And no other is there for buildah to find in the context: it would leave out what this build needs."""
    folder = _tree(tmp_path / "context", {"a": "a", "b": "b", **files})
    rules = context_archive.ignore_rules(folder, str(folder / containerfile))
    assert rules.file is not None
    members = _members(folder, folder / containerfile)
    assert [name for name in members if name in ("a", "b")] == there.split()
    assert {name for name in members if name in context_archive.IGNORE_FILES} <= {rules.file.name}


@pytest.mark.req("BD-320")
@pytest.mark.parametrize(
    ("content", "told"),
    [
        pytest.param("key\n".encode("utf-16"), r"not UTF-8 \(byte 0\)", id="UTF-16"),
        pytest.param("key\n".encode("utf-16-le"), "line 1: a NUL character, as text has that is UTF-16", id="unmarked"),
        pytest.param(b"a\nk\xe9y\n", r"not UTF-8 \(byte 3\)", id="Latin 1"),
        pytest.param(b"a\n\xef\xbb\xbfkey", "line 2: a byte order mark in the middle", id="two files joined"),
        pytest.param(b"# mine\rkey\rold", "line 1: a carriage return that ends no line", id="lines of old Macs"),
        pytest.param(b"a\n[key\n", r"line 2: '\[key': the \[ is not closed", id="a bracket"),
        pytest.param(b"[]key", r"line 1: '\[\]key': the \[ is not closed", id="nothing between brackets"),
        pytest.param(b"[a-]key", "something is missing in it", id="half a range"),
        pytest.param(b"[z-a]", "z-a is no range; write a-z", id="a range backwards"),
        pytest.param(b"[*]", r"write \\\*", id="a star between brackets"),
        pytest.param(b"[[:alpha:]]", "list the characters", id="a class"),
        pytest.param(b"a\n\nkey\\", r"line 3: 'key\\\\' ends with a backslash", id="a backslash at the end"),
        pytest.param(b"old\\secret", "a backslash before s separates no folders; write /", id="a path of Windows"),
        pytest.param(b"*.key|*.pem", r"\| beside \*, \? or \[ is not the character", id="an alternative"),
        pytest.param(b"a\n!\n", "line 2: '!' names nothing after its !", id="an exception of nothing"),
        pytest.param(b"x\n" * 600_000, "more than 1024 KiB", id="too long"),
    ],
)
@pytest.mark.parametrize("name", [".dockerignore", ".containerignore", "Containerfile.dockerignore"])
def test_an_ignore_file_that_cannot_be_understood_is_an_error(
    run: Run, tmp_path: Path, name: str, content: bytes, told: str
) -> None:
    """Never one that ignores nothing. It is found before anything is sent."""
    _tree(tmp_path, {name: content})
    code, out, err = run("shop", "--repository", "quay.io/team/shop", "--context", ".", "--dry-run")
    assert (code, out) == (2, "")
    assert re.search(rf"{re.escape(name)}: {told}|{re.escape(name)}: .*{told}", err), err


@pytest.mark.parametrize("name", [".dockerignore", ".containerignore", "Containerfile.containerignore"])
@pytest.mark.parametrize("kind", ["folder", "link to nowhere", "pipe"])
def test_what_is_called_an_ignore_file_and_is_no_file_is_an_error(
    run: Run, tmp_path: Path, name: str, kind: str
) -> None:
    make = {
        "folder": Path.mkdir,
        "link to nowhere": lambda path: path.symlink_to("../nowhere"),
        "pipe": os.mkfifo,
    }
    make[kind](tmp_path / name)
    code, _, err = run("shop", "--repository", "quay.io/team/shop", "--context", ".", "--dry-run")
    assert code == 2
    assert f"{name}: not a file; make it one, or remove it" in err


def test_an_ignore_file_may_be_a_link_to_one_elsewhere(tmp_path: Path) -> None:
    folder = _tree(tmp_path / "context", {"a": "", "b": "", "../common": "a\n"})
    (folder / ".dockerignore").symlink_to("../common")
    assert _members(folder) == [".dockerignore", "b"]


def test_a_folder_that_is_ignored_need_not_be_readable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _tree(tmp_path, {"a": "", "closed/b": "", ".dockerignore": "closed\n!x"})
    scandir = os.scandir

    def refusing(path: Any) -> Iterator[Any]:
        if Path(path).name == "closed":
            raise PermissionError(errno.EACCES, "Permission denied", str(path))
        return scandir(path)

    monkeypatch.setattr(os, "scandir", refusing)
    assert _members(tmp_path) == [".dockerignore", "a"]
    _tree(tmp_path, {".dockerignore": "x"})
    with pytest.raises(
        UsageError, match=r"closed: Permission denied; make it readable, or name it in .*/\.dockerignore"
    ):
        _members(tmp_path)


@pytest.mark.parametrize(
    ("text", "path"),
    [
        pytest.param("*a*a*a*a*b", "a" * 200, id="a long name"),
        pytest.param("**/*a*a*a*a*b", "x/y/" + "a" * 200, id="a long name in any folder"),
        pytest.param("**/**/**/**/x", "/".join("a" * 120), id="many folders"),
    ],
)
def test_many_stars_in_a_pattern_take_no_time(text: str, path: str) -> None:
    start = time.process_time()
    assert not context_archive.is_ignored(path, context_archive.patterns(text))
    assert time.process_time() - start < 1


@pytest.mark.parametrize(
    "change",
    [
        pytest.param(lambda path: (path.unlink(), path.symlink_to("secret")), id="a link to what is ignored"),
        pytest.param(Path.unlink, id="gone"),
        pytest.param(lambda path: path.write_bytes(b""), id="shorter"),
    ],
)
def test_a_file_that_changes_while_it_is_packed_is_told_by_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, change: Callable[[Path], object]
) -> None:
    _tree(tmp_path, {"a": "public", "secret": "secret", ".dockerignore": "secret"})
    entries = context_archive._entries

    def changing(folder: Path, rules: context_archive.IgnoreRules) -> Iterator[tuple[Path, tarfile.TarInfo]]:
        for path, entry in entries(folder, rules):
            if path.name == "a":
                change(path)
            yield path, entry

    monkeypatch.setattr(context_archive, "_entries", changing)
    with pytest.raises(CouldNotComplete, match=r"/a: changed while it was packed; run the command again"):
        _packed(tmp_path)


def test_links_are_not_followed(tmp_path: Path) -> None:
    folder = _tree(tmp_path / "context", {"a": "", ".dockerignore": "secrets\nlinked", "secrets/key": "", "../x/y": ""})
    (folder / "linked").symlink_to("../x")
    (folder / "other").symlink_to("secrets")
    assert _members(folder) == [".dockerignore", "a", "other"]


@pytest.mark.req("BD-105")
def test_all_architectures_are_built_from_the_same_files(tmp_path: Path) -> None:
    """What one leaves out is in the context of the other."""
    files = {"a": TEXT, "b": TEXT + "RUN b\n", "a.dockerignore": "x", "b.dockerignore": "\nx"}
    folder = _tree(tmp_path, files)
    assert image_builds.rules_for(folder, [str(folder / "a"), str(folder / "b")], []).file == folder / "a.dockerignore"
    _tree(tmp_path, {"b.dockerignore": "y"})
    with pytest.raises(UsageError, match=r"a\.dockerignore with 1 pattern, but .*b\.dockerignore with"):
        image_builds.rules_for(folder, [str(folder / "a"), str(folder / "b")], [])
    with pytest.raises(UsageError, match=r"a\.dockerignore with 1 pattern, but .*b\.dockerignore with"):
        image_builds.rules_for(folder, [str(folder / "a")], [files["b"]])


@pytest.mark.req("BD-300")
def test_the_ignore_file_of_a_containerfile_counts_when_its_path_is_not_said_again(tmp_path: Path) -> None:
    """What was said stays said, but the object has the text of the Containerfile only."""
    folder = _tree(tmp_path, {"deep/x": TEXT, "deep/x.dockerignore": "key", ".dockerignore": ""})
    assert image_builds.rules_for(folder, [], [TEXT]).file == folder / "deep/x.dockerignore"
    with pytest.raises(UsageError, match=r"deep/x has an ignore file of its own.* --containerfile PATH"):
        image_builds.rules_for(folder, [], ["FROM another\n"])
    (folder / "deep/x").unlink()
    assert image_builds.rules_for(folder, [], [TEXT]).file == folder / ".dockerignore"
    with pytest.raises(UsageError, match=r"named before has, y.dockerignore: an ignore file of its own"):
        image_builds.rules_for(folder, [], [TEXT], had_own="y.dockerignore")


@pytest.mark.parametrize(
    ("flags", "named", "unnamed"),
    [
        (BuildFlags(containerfile="x"), ["x"], ["FROM arm"]),
        (BuildFlags(containerfile="-"), [], ["FROM all", "FROM arm"]),
        (BuildFlags(override=["aarch64=y"]), ["y"], ["FROM all"]),
        (BuildFlags(containerfile="x", override=["arm64=y", "arm64=z"]), ["x", "z"], []),
    ],
)
def test_containerfiles_are_those_of_the_command_line_and_the_rest_of_the_object(
    flags: BuildFlags, named: list[str], unnamed: list[str]
) -> None:
    overrides = [{"architecture": "amd64"}, {"architecture": "arm64", "containerfile": "FROM arm"}]
    manifest = {"spec": {"source": {"containerfile": "FROM all", "overrides": overrides}}}
    assert image_builds.containerfiles(flags, manifest) == (named, unnamed)


@pytest.mark.req("BD-300")
@pytest.mark.parametrize(
    ("said", "live", "stored"),
    [
        pytest.param({}, {"output": {"repository": "a"}}, {"output": {"repository": "a"}}, id="a repository of others"),
        pytest.param(
            {"output": {"repository": "b"}},
            {"output": {"repository": "a", "tags": ["1"]}},
            {"output": {"repository": "b", "tags": ["1"]}},
            id="another repository",
        ),
        pytest.param({}, {"source": {"containerfile": "x"}}, {"source": {"containerfile": "x"}}, id="a text of others"),
        pytest.param(
            {"source": {"containerfile": "y"}},
            {"source": {"containerfileFrom": {"name": "x"}}},
            {"source": {"containerfile": "y"}},
            id="a text in place of a ConfigMap",
        ),
        pytest.param(
            {"source": {"overrides": [{"architecture": "arm64", "containerfile": "y"}]}},
            {
                "source": {
                    "overrides": [
                        {"architecture": "arm64", "containerfileFrom": {"name": "x"}, "buildArgs": {"A": "1"}},
                        {"architecture": "s390x", "containerfile": "z"},
                    ]
                }
            },
            {
                "source": {
                    "overrides": [
                        {"architecture": "arm64", "containerfile": "y", "buildArgs": {"A": "1"}},
                        {"architecture": "s390x", "containerfile": "z"},
                    ]
                }
            },
            id="overrides of both",
        ),
        pytest.param(
            {"source": {"context": {"type": "None"}}}, {}, {"source": {"context": {"type": "None"}}}, id="new"
        ),
    ],
)
def test_a_context_is_for_what_others_have_said_as_well(
    said: Mapping[str, Any], live: Mapping[str, Any], stored: Mapping[str, Any]
) -> None:
    found = image_builds.as_stored({**image_builds.named("shop", "team"), "spec": said}, live)["spec"]
    assert {name: part for name, part in found.items() if part} == stored


@pytest.mark.req("BD-300")
@pytest.mark.parametrize(
    ("field", "live", "expected"),
    [
        (".spec.source.context.type", {"source": {"context": {"type": "None"}}}, True),
        (".spec.source.context.type", {"source": {"context": {"type": "Git"}}}, False),
        (".spec.strategy", {"strategy": "Native"}, True),
        (".spec.strategy", {"strategy": "Emulated"}, False),
        (".spec.failFast", {"failFast": False}, True),
        (".spec.failFast", {"failFast": True}, False),
        (".spec.architectures.mode", {"architectures": {"mode": "Auto"}}, True),
        (".spec.output.repository", {"output": {"repository": "a"}}, False),
        (".spec.output.tags", {"output": {"tags": ["1"]}}, False),
        ('.spec.source.overrides[architecture="arm64"].containerfile', {"source": {"overrides": []}}, False),
        (".spec.nowhere.type", {}, False),
        (".metadata.annotations.a", {}, False),
    ],
)
def test_a_default_is_nobodys_wish(field: str, live: Mapping[str, Any], expected: bool) -> None:
    assert image_builds.is_default(live, field) is expected


def test_the_object_remembers_the_ignore_file_of_its_containerfile_alone() -> None:
    """A command that does not name the Containerfile, which lies outside of the context, would miss it."""
    first = image_builds.with_context({"metadata": {"name": "shop"}, "spec": {}}, {"type": "Image"}, "x.dockerignore")
    assert first["metadata"] == {"name": "shop", "annotations": {"polyarch.dev/ignore-file": "x.dockerignore"}}
    assert image_builds.with_context(first, {}, "")["metadata"] == {"name": "shop"}


def test_a_dry_run_says_which_ignore_file_counts(run: Run, tmp_path: Path) -> None:
    wish = ("shop", "--repository", "quay.io/team/shop", "--context", ".", "--dry-run")
    assert "(no ignore file)" in run(*wish)[2]
    _tree(tmp_path, {"Containerfile.dockerignore": "# one\nkey\n\n*.pem"})
    assert "(Containerfile.dockerignore with 2 patterns)" in run(*wish)[2]


def test_an_ignore_file_that_the_builder_will_not_read_is_told(run: Run, tmp_path: Path) -> None:
    git = f"git:https://git.example.com/shop.git@{COMMIT}"
    wish = (
        "shop",
        "--repository",
        "quay.io/team/shop",
        "--containerfile",
        "Containerfile",
        "--context",
        git,
        "--dry-run",
    )
    assert "ignore" not in run(*wish)[2]
    _tree(tmp_path, {"Containerfile.dockerignore": "key"})
    assert "the ignore file of Containerfile does not count for --context git:" in run(*wish)[2]


@pytest.mark.req("BD-300")
def test_contexts_are_told_apart_by_their_beginning(tmp_path: Path) -> None:
    assert image_builds.read("image:quay.io/a/b@sha256:1").document == {
        "type": "Image",
        "image": {"reference": "quay.io/a/b@sha256:1"},
    }
    assert image_builds.read(str(tmp_path)).folder == tmp_path
    with pytest.raises(UsageError, match="git:URL@COMMIT or image:REF@DIGEST"):
        image_builds.read("svn:x")


@pytest.mark.req("BD-305")
def test_json_is_the_object(run: Run) -> None:
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


@pytest.mark.req("BD-305", "BD-320")
def test_a_file_that_cannot_be_read_is_named_with_what_to_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is the user's folder, so exit code 2 and no traceback."""
    last = tmp_path / "z"
    last.write_text("x")

    def refusing(path: Any, *_: Any) -> int:
        raise PermissionError(errno.EACCES, "Permission denied", str(path))

    monkeypatch.setattr(os, "open", refusing)
    with pytest.raises(UsageError) as caught:
        context_archive.pack(tmp_path, io.BytesIO(), context_archive.IgnoreRules())
    told = str(caught.value)
    assert told.startswith(f"--context: {last}: Permission denied")
    assert f"make it readable, or name it in {tmp_path / '.containerignore'}" in told


@pytest.mark.req("BD-305")
def test_a_full_disk_is_not_the_folders_fault(tmp_path: Path) -> None:
    def full() -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    (tmp_path / "a").write_bytes(random.Random(1).randbytes(400_000))
    with pytest.raises(CouldNotComplete, match="packing it: No space left on device"):
        context_archive.pack(tmp_path, _Target(full), context_archive.IgnoreRules())
