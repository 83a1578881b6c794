"""``polyarch fix`` as a user runs it."""

import json
import os
import resource
import signal
import stat
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml
from commands import FIXED, WEB, Command

from polyarch.cli.input import files
from polyarch.cli.lint import fix as fixing
from polyarch.cli.output.documents import unified_diff
from polyarch.manifests.rules import constraints
from polyarch.manifests.rules.facts import FindingDraft, PodFacts


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Command:
    return Command("fix", capsys, monkeypatch, tmp_path)


@pytest.mark.req("MF-050")
def test_a_diff_is_shown_and_nothing_is_written(run: Command) -> None:
    """--diff is the default."""
    path = run.write("web.yaml")
    for arguments in ((), ("--diff",)):
        result = run("web.yaml", *arguments)
        assert result.code == 1
        assert result.out == unified_diff("web.yaml", WEB, FIXED)
        assert "apply with --write" in result.err
    assert path.read_text() == WEB


def test_the_diff_can_be_applied(run: Command) -> None:
    path = run.write("web.yaml", WEB.rstrip("\n"))
    (run.folder / "a.diff").write_text(run("web.yaml").out)
    apply("a.diff", run.folder)
    assert path.read_text() == FIXED.rstrip("\n")


def apply(diff: str, folder: Path) -> None:
    """Apply a diff as its users do, with the program that every clone has."""
    command = ["git", "apply", "--whitespace=nowarn", diff]
    subprocess.run(command, cwd=folder, check=True, capture_output=True, timeout=30)


def untouched(path: Path) -> tuple[int, int, int]:
    """What any writing changes, and reading does not."""
    status = path.stat()
    return status.st_ino, status.st_mtime_ns, status.st_ctime_ns


@pytest.mark.req("MF-050")
def test_files_are_written_on_demand(run: Command) -> None:
    """0 when everything was changed; a second run finds nothing."""
    path = run.write("a/web.yaml")
    result = run("a", "--write")
    assert (result.code, result.out) == (0, "")
    assert path.read_text() == FIXED
    assert "fixed 1 finding in 1 file" in result.err
    before = untouched(path)
    assert run("a", "--write").code == 0
    assert untouched(path) == before


@pytest.mark.req("MF-066")
def test_a_file_without_findings_is_not_touched(run: Command) -> None:
    path = run.write("web.yaml", FIXED)
    before = untouched(path)
    assert run("web.yaml", "--write").code == 0
    assert untouched(path) == before


@pytest.mark.req("MF-050")
def test_standard_input_becomes_standard_output(run: Command) -> None:
    """A post-renderer; counts as --write."""
    result = run("-", stdin=WEB)
    assert (result.code, result.out) == (0, FIXED)


@pytest.mark.parametrize("text", ["", "kind: ConfigMap\ndata: {a: b}\n", "\ufeffkind: Secret\r\n", "image: {{ x }}\n"])
def test_what_is_of_no_interest_passes_through(run: Command, text: str) -> None:
    result = run("-", stdin=text)
    assert (result.code, result.out) == (0, text)


@pytest.mark.req("MF-050")
def test_findings_that_remain_fail_the_run(run: Command) -> None:
    """1 if findings as bad as --fail-on remain."""
    path = run.write("web.yaml", WEB.replace("[amd64, s390x]", "[s390x]"))
    result = run("web.yaml", "--write")
    assert result.code == 1
    assert "web.yaml:13:17: MA104 not fixed: --replace" in result.err
    assert run("web.yaml", "--write", "--fail-on", "never").code == 0
    assert run("web.yaml", "--write", "--replace").code == 0
    assert "values: [amd64, arm64]" in path.read_text()


PINNED = """\
apiVersion: v1
kind: Pod
metadata: {name: pinned}
spec:
  nodeSelector: {kubernetes.io/os: linux, kubernetes.io/arch: amd64}
  containers:
  - {name: a, image: "quay.io/acme/web:2"}
"""


@pytest.mark.req("MF-042")
@pytest.mark.parametrize(
    ("way", "line"), [((), 29), (("--emit", "yaml"), 29), (("--emit", "kustomize"), 29), (("--write",), 28)]
)
def test_notes_have_the_places_of_the_text_that_is_looked_at(run: Command, way: tuple[str, ...], line: int) -> None:
    """Of the file as it is, unless it is written."""
    values = "values:\n                - amd64\n                - s390x\n"
    text = WEB.replace("values: [amd64, s390x]\n", values) + "---\n" + PINNED
    run.write("web.yaml", text)
    assert text.splitlines()[28].endswith("kubernetes.io/arch: amd64}")
    assert f"web.yaml:{line}:63: MA109 not fixed: --widen" in run("web.yaml", *way).err


@pytest.mark.parametrize("option", ["--writ", "--dif", "--asume=linux/amd64"])
def test_a_misspelt_option_is_no_path(run: Command, option: str) -> None:
    path = run.write("web.yaml")
    result = run(option, "web.yaml")
    assert (result.code, path.read_text()) == (2, WEB)
    assert f"{option.partition('=')[0]}: unknown option; did you mean" in result.err


@pytest.mark.req("MF-010")
def test_a_pattern_that_matches_no_file_is_a_usage_error(run: Command) -> None:
    assert run("*.yml").code == 2


@pytest.mark.req("MF-015", "MF-040")
def test_what_names_no_image_is_passed_over_as_lint_does(run: Command) -> None:
    (run.folder / "picture.yaml").write_bytes(b"\x89PNG\xff")
    result = run("picture.yaml")
    assert (result.code, result.err) == (0, "polyarch: no fixable objects in the given paths\n")


def test_a_pipe_is_not_written(run: Command) -> None:
    os.mkfifo(run.folder / "pipe")
    result = run("pipe", "--write")
    assert result.code == 2
    assert "pipe: not a regular file, cannot be written" in result.err


@pytest.mark.req("MF-050")
def test_only_some_rules(run: Command) -> None:
    """--only."""
    path = run.write("web.yaml")
    assert run("web.yaml", "--write", "--only", "MA106").code == 1
    assert path.read_text() == WEB
    assert run("web.yaml", "--only", "MA999").code == 2


@pytest.mark.req("MF-020")
def test_a_patch_of_a_kustomization_stays_as_it_is(run: Command) -> None:
    """The affinity of the base is right; one written into the patch would replace it in what is built."""
    run.write("base/web.yaml", FIXED)
    run.write("base/kustomization.yaml", "resources: [web.yaml]\n")
    patch = "kind: Deployment\nmetadata: {name: web}\nspec: {template: {spec: {containers: [{name: web%s}]}}}\n"
    run.write("over/image.yaml", patch % ", image: 'quay.io/acme/web:2'")
    run.write("over/memory.yaml", patch % ", resources: {limits: {memory: 1Gi}}")
    run.write("over/kustomization.yaml", "resources: [../base]\npatches: [{path: image.yaml}, {path: memory.yaml}]\n")
    result = run(".")
    assert (result.code, result.out) == (0, "")
    assert "over/" not in result.err


@pytest.mark.req("MF-050")
def test_preferences_are_added(run: Command) -> None:
    """--prefer ARCH=WEIGHT."""
    path = run.write("web.yaml", FIXED)
    assert run("web.yaml", "--write", "--prefer", "amd64=70").code == 0
    (term,) = yaml.safe_load(path.read_text())["spec"]["template"]["spec"]["affinity"]["nodeAffinity"][
        "preferredDuringSchedulingIgnoredDuringExecution"
    ]
    assert term["weight"] == 70
    assert run("web.yaml", "--prefer", "amd64").code == 2
    assert run("web.yaml", "--prefer", "amd64=0").code == 2


@pytest.mark.req("MF-040", "MF-053")
def test_an_unknown_image_is_not_complete(run: Command) -> None:
    path = run.write("web.yaml", WEB + "      - name: b\n        image: quay.io/acme/away:1\n")
    before = path.read_text()
    result = run("web.yaml", "--write")
    assert (result.code, path.read_text()) == (3, before)
    assert "state them with --assume" in result.err
    assert result.err.count("quay.io/acme/away:1 are unknown: ") == 1
    assert "not completed" not in result.err, "the finding says so"
    assert "quay.io/acme/away:1: not completed: " in run("web.yaml", "-q").err
    assumed = run("web.yaml", "--write", "--assume", "linux/amd64,linux/arm64", "--unresolved", "finding")
    assert "values: [amd64]" in path.read_text(), assumed.err


@pytest.mark.req("MF-033")
def test_a_baseline_is_left_alone(run: Command) -> None:
    path = run.write("web.yaml")
    run.name = "lint"
    run("web.yaml", "--write-baseline", "known.json")
    run.name = "fix"
    assert run("web.yaml", "--write", "--baseline", "known.json").code == 0
    assert path.read_text() == WEB


@pytest.mark.parametrize(
    "arguments",
    [
        ["--write", "--diff"],
        ["--write", "--emit", "yaml"],
        ["-"],
        ["--assume", "linux/"],
        ["--limit-to-universe"],
        ["--emit", "helm"],
    ],
)
def test_mistakes_of_the_command_line(run: Command, arguments: list[str]) -> None:
    path = run.write("web.yaml")
    result = run("web.yaml", *arguments)
    assert result.code == 2
    assert path.read_text() == WEB


# Emission -------------------------------------------------------------------------------------------------------------


@pytest.mark.req("MF-070")
def test_the_whole_stream_is_printed(run: Command) -> None:
    """--emit yaml."""
    path = run.write("a.yaml", WEB.rstrip("\n"))
    run.write("b.yaml", "kind: ConfigMap\n")
    run.write("c.yaml", "---\nkind: Secret\n")
    result = run("a.yaml", "b.yaml", "c.yaml", "--emit", "yaml")
    assert result.code == 0
    assert result.out == FIXED + "---\nkind: ConfigMap\n---\nkind: Secret\n"
    assert path.read_text() != FIXED


@pytest.mark.req("MF-070")
def test_a_component_is_printed(run: Command) -> None:
    """--emit kustomize."""
    run.write("web.yaml")
    result = run("web.yaml", "--emit", "kustomize")
    assert result.code == 0
    assert [patch["target"]["name"] for patch in yaml.safe_load(result.out)["patches"]] == ["web"]
    run.write("list.yaml", "kind: List\nitems:\n- " + WEB.replace("\n", "\n  ").rstrip() + "\n")
    refused = run("list.yaml", "--emit", "kustomize")
    assert refused.code == 1
    assert "not emitted: list.yaml: a patch cannot name item 0" in refused.err
    assert "polyarch: the component patches 1 object," in result.err
    assert "polyarch: the component patches 0 objects," in refused.err


# Writing --------------------------------------------------------------------------------------------------------------


@pytest.mark.req("MF-061", "MF-066")
def test_mode_and_bytes_around_are_kept(run: Command) -> None:
    path = run.folder / "web.yaml"
    path.write_bytes(b"\xef\xbb\xbf" + WEB.replace("\n", "\r\n").encode())
    path.chmod(0o640)
    assert run("web.yaml", "--write").code == 0
    assert path.read_bytes() == b"\xef\xbb\xbf" + FIXED.replace("\n", "\r\n").encode()
    assert stat.S_IMODE(path.stat().st_mode) == 0o640
    assert [each.name for each in run.folder.iterdir() if each.name.endswith(".tmp")] == []


@pytest.mark.req("MF-066")
def test_a_file_that_changed_meanwhile_is_left_alone(run: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    """3, and the others are written."""
    path, other = run.write("a.yaml"), run.write("b.yaml")
    real = fixing.fix

    def meanwhile(source, *arguments, **more):  # type: ignore[no-untyped-def]
        if source.path == "a.yaml":
            path.write_text(WEB + "# somebody was here\n")
        return real(source, *arguments, **more)

    monkeypatch.setattr(fixing, "fix", meanwhile)
    result = run("a.yaml", "b.yaml", "--write")
    assert result.code == 3
    assert "a.yaml: changed since it was read" in result.err
    assert path.read_text() == WEB + "# somebody was here\n"
    assert other.read_text() == FIXED


@pytest.mark.req("MF-066")
def test_an_interrupted_write_leaves_the_file_whole(run: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    """At once or not at all."""
    path = run.write("web.yaml")

    def full(handle: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(files.os, "fsync", full)
    result = run("web.yaml", "--write")
    assert result.code == 3
    assert "No space left on device" in result.err
    assert path.read_text() == WEB
    assert sorted(each.name for each in run.folder.iterdir()) == ["platforms.yaml", "web.yaml"]


@pytest.mark.req("MF-066")
def test_a_link_is_followed_inside_the_given_paths_only(run: Command) -> None:
    outside = run.write("outside/web.yaml")
    inside = run.write("tree/real.yaml")
    (run.folder / "tree" / "link.yaml").symlink_to("real.yaml")
    (run.folder / "tree" / "out.yaml").symlink_to(outside)
    assert run("tree", "--write").code == 0
    assert inside.read_text() == FIXED
    assert (run.folder / "tree" / "link.yaml").is_symlink()
    assert outside.read_text() == WEB
    named = run("tree/out.yaml", "--write")
    assert named.code == 3
    assert "outside the given paths" in named.err
    assert outside.read_text() == WEB


@pytest.mark.req("MF-054")
def test_a_file_for_which_there_is_no_room_stays_as_it_is(run: Command) -> None:
    """The bound of a file's size stands for a full disk, since it binds root, too."""
    path = run.write("a/web.yaml")
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1, before[1]))
    try:
        result = run("a", "--write")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert result.code == 3
    assert "a/web.yaml: File too large; the file was not changed" in result.err
    assert path.read_text() == WEB
    assert [each.name for each in path.parent.iterdir()] == ["web.yaml"]


@pytest.mark.req("MF-054")
def test_an_edit_that_cannot_be_proven_changes_nothing(run: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    """MA904, 3."""
    from polyarch.manifests import fix as pure

    monkeypatch.setattr(pure, "prove", lambda *_, **__: "it reads otherwise")
    path = run.write("web.yaml")
    result = run("web.yaml", "--write")
    assert result.code == 3
    assert "MA904" in result.err
    assert path.read_text() == WEB


@pytest.mark.req("MF-014")
@pytest.mark.parametrize("repository", [True, False])
def test_a_patch_of_a_kustomization_beside_its_folder_stays_as_it_is(run: Command, repository: bool) -> None:
    """Named by itself, as a hook names it, in a repository and where there is none."""
    if repository:
        (run.folder / ".git").mkdir()
    path = run.write("shared/patch.yaml", WEB)
    run.write("one/two/kustomization.yaml", "patches: [{path: ../../shared/patch.yaml, target: {kind: Deployment}}]\n")
    run("shared/patch.yaml", "--write")
    assert path.read_text() == WEB
    (run.folder / "one/two/kustomization.yaml").unlink()
    run("shared/patch.yaml", "--write")
    assert path.read_text() == FIXED


@pytest.mark.req("MF-066")
def test_files_are_written_after_all_were_fixed_and_a_failure_says_which_were(
    run: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    """3; what was not written keeps its findings."""
    paths = [run.write(f"{name}.yaml") for name in "abc"]
    seen: list[list[str]] = []
    plan, replace = fixing.fix, files._replace

    def planned(source, *arguments, **more):  # type: ignore[no-untyped-def]
        seen.append([path.read_text() for path in paths])
        return plan(source, *arguments, **more)

    def full(target: Path, data: bytes) -> None:
        if target.name == "b.yaml":
            raise OSError(28, "No space left on device")
        replace(target, data)

    monkeypatch.setattr(fixing, "fix", planned)
    monkeypatch.setattr(files, "_replace", full)
    result = run("a.yaml", "b.yaml", "c.yaml", "--write", "-o", "text", "-o", "json=report.json")
    assert seen == [[WEB] * 3] * 3, "nothing is written before the work on every file is done"
    assert [path.read_text() for path in paths] == [FIXED, WEB, FIXED]
    assert result.code == 3
    lines = result.err.splitlines()
    assert [line for line in lines if "written: " in line] == [
        "written: a.yaml",
        "written: c.yaml",
        "not written: b.yaml: No space left on device; the file was not changed",
    ]
    assert lines[-1] == "polyarch: fixed 2 findings in 2 files, 4 remaining"
    document = json.loads((run.folder / "report.json").read_text())
    assert [each["file"] for each in document["files"]] == ["a.yaml", "c.yaml"]
    assert document["notWritten"] == [{"file": "b.yaml", "reason": "No space left on device; the file was not changed"}]
    assert [each["rule"] for each in document["remaining"] if each["file"] == "b.yaml"] == ["MA103", "MA102"]
    assert not document["summary"]["complete"]


@pytest.mark.req("MF-066")
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_ends_the_run_between_two_files_and_it_is_said_which_were_written(
    run: Command, monkeypatch: pytest.MonkeyPatch, number: signal.Signals
) -> None:
    paths = [run.write(f"{name}.yaml") for name in "ab"]
    replace = files._replace

    def interrupted(target: Path, data: bytes) -> None:
        signal.raise_signal(number)
        replace(target, data)

    monkeypatch.setattr(files, "_replace", interrupted)
    former = signal.signal(number, signal.default_int_handler)
    try:
        result = run("a.yaml", "b.yaml", "--write")
        assert signal.getsignal(number) is signal.default_int_handler
    finally:
        signal.signal(number, former)
    assert result.code == 128 + number
    assert [path.read_text() for path in paths] == [FIXED, WEB]
    assert f"written: a.yaml\nnot written: b.yaml: interrupted by {number.name}\n" in result.err
    assert "fixed 1 finding in 1 file" in result.err


@pytest.mark.req("MF-070")
@pytest.mark.parametrize("kind", ["yaml", "kustomize"])
def test_a_build_file_is_not_printed_among_manifests(run: Command, kind: str) -> None:
    """And it does not count as fixed."""
    run.write("Dockerfile", "FROM a\nENV GOARCH=amd64\n")
    result = run(".", "--emit", kind, "--include", "MA301")
    assert result.code == 1
    assert "FROM" not in result.out
    assert "not emitted: Dockerfile: a build file is no manifest" in result.err
    assert "fixed 1" not in result.err


@pytest.mark.req("MF-066")
def test_a_read_only_file_is_not_replaced(run: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    """For root every file is writable, so the question is answered for it here."""
    path = run.write("web.yaml")
    monkeypatch.setattr(files.os, "access", lambda *_: False)
    result = run("web.yaml", "--write")
    assert (result.code, path.read_text()) == (3, WEB)
    assert "not written: web.yaml: is read-only" in result.err


@pytest.mark.req("MF-093")
@pytest.mark.parametrize("command", ["fix", "lint"])
def test_a_bug_that_one_file_brings_out_does_not_lose_the_others(
    run: Command, monkeypatch: pytest.MonkeyPatch, command: str
) -> None:
    """3, with file and line."""
    broken = run.write("a.yaml", WEB.replace("name: web", "name: broken"))
    before, other = broken.read_text(), run.write("b.yaml")
    real = constraints.check_constraints

    def check(facts: PodFacts) -> Iterator[FindingDraft]:
        if facts.pod_spec.object.name == "broken":
            raise TypeError("unhashable")
        yield from real(facts)

    monkeypatch.setattr(constraints, "check_constraints", check)
    run.name = command
    result = run("a.yaml", "b.yaml", *(["--write"] if command == "fix" else []))
    assert result.code == 3
    assert (
        "a.yaml: not completed: line 8, Deployment broken: a bug in polyarch: TypeError: unhashable ("
        in result.out + result.err
    )
    assert "Traceback" not in result.err
    assert broken.read_text() == before
    if command == "fix":
        assert other.read_text() == FIXED
    else:
        assert "b.yaml:15:33: error MA102" in result.out


SHARED = WEB.replace("[amd64, s390x]", "&v [amd64, s390x]") + "        args: *v\n"
NOTE = "`values` at line 15 is shared through the anchor &v with /spec/template/spec/containers/0/args at line 22"


@pytest.mark.req("MF-053")
@pytest.mark.parametrize(
    "arguments",
    [
        ("web.yaml", "--write"),
        ("web.yaml",),
        ("web.yaml", "--emit", "yaml"),
        ("web.yaml", "--emit", "kustomize"),
        ("-",),
    ],
)
@pytest.mark.parametrize("flags", [(), ("--widen", "--replace", "--uncomment")])
def test_text_that_something_else_uses_stays_whatever_the_way(
    run: Command, arguments: tuple[str, ...], flags: tuple[str, ...]
) -> None:
    """1, and the summary counts what is left."""
    path = run.write("web.yaml", SHARED)
    result = run(*arguments, *flags, **({"stdin": SHARED} if "-" in arguments else {}))
    assert result.code == 1
    assert f"MA102 not fixed: {NOTE}; write it out for each first" in result.err
    assert "2 remaining" in result.err, "MA103, too"
    assert path.read_text() == SHARED
    assert result.out in ("", SHARED, "apiVersion: kustomize.config.k8s.io/v1alpha1\nkind: Component\npatches: []\n")


@pytest.mark.req("MF-050", "MF-053")
def test_a_dockerfile_is_fixed_or_the_reason_is_said(run: Command) -> None:
    """MA301:"""
    path = run.write("Dockerfile", "FROM a\nENV GOARCH=amd64\n")
    result = run("Dockerfile", "--include", "MA301", "--write")
    assert (result.code, result.err) == (0, "polyarch: fixed 1 finding in 1 file\n")
    assert path.read_text() == "FROM a\nARG TARGETARCH\nENV GOARCH=${TARGETARCH}\n"
    text = "FROM a\nRUN GOARCH=amd64 go build && GOARCH=arm64 go build\n"
    path.write_text(text)
    result = run("Dockerfile", "--include", "MA301", "--write")
    assert (result.code, path.read_text()) == (1, text)
    reason = "MA301 not fixed: the file is written for several architectures: amd64, arm64"
    assert f"Dockerfile:2:5: {reason}\nDockerfile:2:30: {reason}\n" in result.err
    assert result.err.endswith("polyarch: fixed 0 findings in 0 files, 2 remaining\n")


@pytest.mark.req("MF-050")
def test_the_document_lists_every_change(run: Command) -> None:
    """As a JSON Patch names them, renamed keys twice."""
    old = (
        WEB.replace("key: kubernetes.io/os", "key: beta.kubernetes.io/os")
        + "      nodeSelector: {beta.kubernetes.io/arch: amd64}\n"
    )
    run.write("web.yaml", "kind: Secret\n---\n" + old)
    result = run("web.yaml", "--write", "-o", "json")
    where = "/spec/template/spec"
    terms = f"{where}/affinity/nodeAffinity/requiredDuringSchedulingIgnoredDuringExecution/nodeSelectorTerms"
    assert json.loads(result.out)["files"][0]["changes"] == [
        {"document": 1, "operation": "replace", "path": f"{terms}/0/matchExpressions/1/key"},
        {"document": 1, "operation": "remove", "path": f"{where}/nodeSelector/beta.kubernetes.io~1arch"},
        {"document": 1, "operation": "add", "path": f"{where}/nodeSelector/kubernetes.io~1arch"},
    ]


# Diffs ----------------------------------------------------------------------------------------------------------------


def test_a_diff_says_where_and_leaves_out_what_is_far(run: Command) -> None:
    before = "".join(f"line {number}\n" for number in range(40))
    after = before.replace("line 3\n", "").replace("line 30\n", "line thirty\nand more\n")
    headers = [line for line in unified_diff("x", before, after).splitlines() if line.startswith("@@")]
    assert headers == ["@@ -1,7 +1,6 @@", "@@ -28,7 +27,8 @@"]


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("", "a\n"),
        ("a\n", ""),
        ("a", "a\n"),
        ("a\nb", "a\nc"),
        ("a\r\nb\r\n", "a\r\nb\x0cc\r\n"),
        ("".join(f"{each}\n" for each in range(9)), "".join(f"{each}\n" for each in range(9) if each != 8)),
    ],
)
def test_every_diff_makes_the_new_text(before: str, after: str, tmp_path: Path) -> None:
    path = tmp_path / "x"
    path.write_bytes(before.encode())
    (tmp_path / "d").write_bytes(unified_diff("x", before, after).encode())
    apply("d", tmp_path)
    assert (path.read_bytes() if path.exists() else b"") == after.encode()


@pytest.mark.parametrize("program", [("git", "apply", "d"), ("patch", "-s", "-p1", "--binary", "-i", "d")])
@pytest.mark.parametrize("name", ["a b.yaml", 'say "x".yaml', "a\\b.yaml", "ü\u00a0.yaml", "tab\t.yaml", " x .yaml"])
def test_a_printed_diff_makes_what_write_makes_whatever_the_file_is_called(
    name: str, program: tuple[str, ...], run: Command, tmp_path: Path
) -> None:
    """With a byte-order mark and without a last line break."""
    path = run.write(name, "\ufeff" + WEB.rstrip("\n"))
    folder = tmp_path / "elsewhere"
    folder.mkdir()
    (folder / name).write_bytes(path.read_bytes())
    (folder / "d").write_text(run(name).out)
    done = subprocess.run(program, cwd=folder, capture_output=True, text=True, check=False, timeout=30)
    assert done.returncode == 0, done.stdout + done.stderr
    run(name, "--write")
    assert path.read_text() == "\ufeff" + FIXED.rstrip("\n")
    assert (folder / name).read_bytes() == path.read_bytes()


@pytest.mark.req("MF-090")
def test_the_diff_of_many_similar_objects_takes_seconds_and_stays_small() -> None:
    """It took over a minute for a rendered chart of a thousand Deployments."""
    head = "apiVersion: apps/v1\nkind: Deployment\nmetadata:\n  name: web-{}\nspec:\n  template:\n    spec:\n"
    tail = "      containers:\n      - name: a\n        image: quay.io/acme/web:1\n---\n"
    before = "".join(head.format(number) + tail for number in range(1000))
    after = "".join(head.format(number) + "      affinity: {}\n" + tail for number in range(1000))
    begin = time.process_time()
    lines = unified_diff("x", before, after).splitlines()
    assert time.process_time() - begin < 15
    assert [line for line in lines if line.startswith(("+ ", "- "))] == ["+      affinity: {}"] * 1000


# With the bundle that a subscription installs -------------------------------------------------------------------------

BUNDLE = """kind: ClusterServiceVersion
metadata: {name: acme.v1}
spec:
  install:
    spec:
      deployments:
      - name: acme
        spec:
          template:
            spec:
              nodeSelector: {kubernetes.io/os: linux}
              affinity:
                nodeAffinity:
                  requiredDuringSchedulingIgnoredDuringExecution:
                    nodeSelectorTerms:
                    - matchExpressions:
                      - {key: kubernetes.io/arch, operator: In, values: [amd64, arm64]}
              containers: [{name: manager, image: quay.io/acme/manager:1}]
"""
OVERRIDE = """kind: Subscription
metadata: {name: acme}
spec:
  config:
    nodeSelector:   # ours
      zone: a
    affinity: {}
"""
RESTORED = """kind: Subscription
metadata: {name: acme}
spec:
  config:
    nodeSelector:   # ours
      zone: a
      kubernetes.io/os: linux
    affinity:
      nodeAffinity:
        requiredDuringSchedulingIgnoredDuringExecution:
          nodeSelectorTerms:
          - matchExpressions:
            - {key: kubernetes.io/arch, operator: In, values: [amd64, arm64]}
"""


@pytest.mark.req("MF-083")
def test_a_subscription_gets_back_what_it_takes_from_its_bundle(run: Command) -> None:
    """MA209 is repaired in the override; the bundle stays as it is."""
    bundle = run.write("bundle/manifests/acme.yaml", BUNDLE)
    override = run.write("subscription.yaml", OVERRIDE)
    result = run("subscription.yaml", "--bundle", "bundle", "--write")
    assert (result.code, result.out) == (0, "")
    assert "fixed 2 findings in 1 file" in result.err
    assert yaml.safe_load(override.read_text()) == yaml.safe_load(RESTORED)
    assert "    nodeSelector:   # ours\n      zone: a\n" in override.read_text()
    assert bundle.read_text() == BUNDLE
    assert run("subscription.yaml", "--bundle", "bundle", "--write").code == 0


@pytest.mark.req("MF-053", "MF-083")
def test_without_the_bundle_a_subscription_is_not_repaired_and_it_is_said_what_to_name(run: Command) -> None:
    """What would be lost is not guessed."""
    zone = "{nodeSelectorTerms: [{matchExpressions: [{key: zone, operator: Exists}]}]}"
    affinity = f"affinity: {{nodeAffinity: {{requiredDuringSchedulingIgnoredDuringExecution: {zone}}}}}"
    run.write("subscription.yaml", OVERRIDE.replace("affinity: {}", affinity))
    result = run("subscription.yaml")
    assert (result.code, result.out) == (1, "")
    assert "MA209 not fixed: the lost constraint is in the bundle" in result.err
    assert "polyarch fix --bundle" in result.err


@pytest.mark.req("MF-071")
def test_what_is_named_as_a_bundle_and_is_none_is_a_usage_error(run: Command) -> None:
    run.write("subscription.yaml", OVERRIDE)
    run.write("empty/manifests/service.yaml", "kind: Service\n")
    for directory, problem in (("empty", "--bundle empty: "), ("gone", "gone: no such directory")):
        result = run("subscription.yaml", "--bundle", directory)
        assert (result.code, problem in result.err) == (2, True)


def test_a_diff_has_the_colours_of_git_on_a_terminal_only(run: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    run.write("web.yaml")
    plain = run("web.yaml").out
    monkeypatch.setenv("FORCE_COLOR", "1")
    coloured = run("web.yaml", "-o", "text", "-o", "text=changes.patch").out
    assert "\x1b[31m-                values: [amd64, s390x]\x1b[0m\n" in coloured
    assert (run.folder / "changes.patch").read_text() == plain
    assert "\x1b" not in plain
