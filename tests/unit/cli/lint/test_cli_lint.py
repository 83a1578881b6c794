"""``polyarch lint`` as a user runs it."""

import json
import os
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest
import yaml
from commands import DIGEST, FIXED, PLATFORMS, WEB, Command

from polyarch.cli.options.images import REPORT_FORMATS


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Command:
    return Command("lint", capsys, monkeypatch, tmp_path)


def document(run: Command, *arguments: str, **more: Any) -> dict[str, Any]:
    result: dict[str, Any] = json.loads(run(*arguments, "-o", "json", **more).out)
    return result


def files(found: dict[str, Any]) -> list[str]:
    return sorted({finding["file"] for finding in found["findings"]})


# Arguments ------------------------------------------------------------------------------------------------------------


@pytest.mark.req("MF-010", "MF-042")
def test_a_file_is_checked(run: Command) -> None:
    run.write("web.yaml")
    result = run("web.yaml")
    assert result.code == 1
    assert "web.yaml:15:33: error MA102 Deployment web admits linux/s390x" in result.out
    assert result.out.splitlines()[-1] == "1 error, 1 info in 1 object"


@pytest.mark.req("MF-010")
def test_a_directory_is_walked_and_other_peoples_files_are_not(run: Command) -> None:
    """.git, node_modules, vendor and hidden directories are skipped."""
    for name in ("a.yaml", "b/c.yml", "b/d.json", ".git/x.yaml", "node_modules/x.yaml", "b/vendor/x.yaml", "e.txt"):
        run.write(name)
    assert files(document(run, ".")) == ["a.yaml", "b/c.yml", "b/d.json"]
    assert files(document(run, "./b", "a.yaml")) == ["a.yaml", "b/c.yml", "b/d.json"]


@pytest.mark.req("MF-010")
def test_patterns_and_ignored_paths(run: Command) -> None:
    """Globs; --ignore-path."""
    for name in ("a/x.yaml", "a/b/y.yaml", "c/z.yaml"):
        run.write(name)
    assert files(document(run, "**/*.yaml", "--ignore-path", "platforms.yaml")) == [
        "a/b/y.yaml",
        "a/x.yaml",
        "c/z.yaml",
    ]
    assert files(document(run, ".", "--ignore-path", "a/b")) == ["a/x.yaml", "c/z.yaml"]
    assert files(document(run, ".", "--ignore-path", "y.yaml", "--ignore-path", "c/*")) == ["a/x.yaml"]


@pytest.mark.req("MF-010")
def test_standard_input_is_checked(run: Command) -> None:
    """-."""
    result = run("-", stdin=WEB)
    assert result.code == 1
    assert result.out.startswith("<stdin>:")


@pytest.mark.req("MF-010")
def test_a_path_that_does_not_exist_is_a_usage_error(run: Command) -> None:
    result = run("gone.yaml")
    assert result.code == 2
    assert "gone.yaml: no such file" in result.err


@pytest.mark.req("MF-010")
def test_nothing_to_check(run: Command) -> None:
    """0 with a notice, 1 on demand."""
    run.write("empty/readme.yaml", "a: 1\n")
    result = run("empty")
    assert (result.code, "no checkable objects" in result.err) == (0, True)
    assert run("empty", "--fail-if-no-objects").code == 1


@pytest.mark.req("MF-010")
@pytest.mark.parametrize("pattern", ["*.json", "gone/**/*.yaml", "vendor*/*.yaml"])
def test_a_pattern_that_matches_no_file_is_a_usage_error(run: Command, pattern: str) -> None:
    """A mistyped pattern in CI would pass for ever."""
    run.write("web.yaml")
    run.write("vendor/x.yaml")
    result = run("web.yaml", pattern)
    assert (result.code, result.out) == (2, "")
    assert f"{pattern}: no file matches this glob" in result.err


@pytest.mark.parametrize("pattern", ["a**.yaml", "a" * 300, "b/" + "c" * 300 + "*"])
def test_a_path_that_cannot_be_one_is_a_usage_error(run: Command, pattern: str) -> None:
    assert run(pattern).code == 2


@pytest.mark.req("MF-010")
def test_a_pattern_passes_over_what_a_directory_passes_over(run: Command) -> None:
    """.git, node_modules, vendor and hidden directories, unless the pattern itself names them."""
    for name in ("a/x.yaml", "a/vendor/x.yaml", ".git/x.yaml", "node_modules/m/x.yaml"):
        run.write(name)
    assert files(document(run, "**/x.yaml")) == files(document(run, "*", "--ignore-path", "platforms.yaml"))
    assert files(document(run, "**/x.yaml")) == ["a/x.yaml"]
    assert files(document(run, "node_modules/**/*.yaml")) == ["node_modules/m/x.yaml"]


@pytest.mark.parametrize(
    ("word", "meant"),
    [
        ("--ofline", "--offline"),
        ("--offlin", "--offline"),
        ("--requier=arm64", "--require"),
        ("--format=json", "-o json"),
        ("--format=sarif=found.sarif", "-o sarif=found.sarif"),
        ("--format=xml", "-o"),
        ("--format", "-o"),
        ("--sarif", "-o sarif"),
        ("--arm64", "--require arm64"),
        ("--target=arm64", "--require"),
    ],
)
def test_a_misspelt_option_is_no_path(run: Command, word: str, meant: str) -> None:
    run.write("web.yaml")
    result = run(word, "web.yaml")
    assert (result.code, result.out) == (2, "")
    assert f"{word.partition('=')[0]}: unknown option; did you mean {meant}?" in result.err
    assert "unknown option; polyarch lint --help lists them" in run("-z").err
    assert "--fix: unknown option; run: polyarch fix\n" in run("--fix", "web.yaml").err


def test_behind_two_hyphens_an_option_is_a_path(run: Command) -> None:
    run.write("web.yaml")
    result = run("--offline", "--platforms-file", "platforms.yaml", "--", "--exclude=MA*", "web.yaml", known=False)
    assert (result.code, result.out) == (2, "")
    assert "--exclude=MA*: no such file, and after -- there are no options" in result.err


def test_a_file_may_begin_with_a_hyphen(run: Command) -> None:
    run.write("--x.yaml")
    assert run("--x.yaml").out.startswith("--x.yaml:")


@pytest.mark.req("MF-014")
def test_images_of_a_kustomization_are_resolved(run: Command) -> None:
    """The nearest kustomization upward, within the given paths."""
    run.write("base/deploy/web.yaml", WEB.replace("quay.io/acme/web:2", "placeholder"))
    run.write("base/kustomization.yaml", "images:\n- name: placeholder\n  newName: quay.io/acme/web\n  newTag: '2'\n")
    assert list(document(run, "base")["images"]) == ["quay.io/acme/web:2"]
    assert list(document(run, "base/deploy")["images"]) == ["placeholder"]
    (run.folder / "base/deploy/.git").mkdir()
    assert list(document(run, "base/deploy/web.yaml")["images"]) == ["placeholder"]


@pytest.mark.req("MF-014")
@pytest.mark.parametrize("name", ["base/deploy/web.yaml", "base/deploy/../deploy/web.yaml", "*/*/web.yaml"])
def test_a_file_that_is_named_has_the_kustomization_of_its_folder(run: Command, name: str) -> None:
    """Pre-commit names files; the answer is that for the folder."""
    run.write("base/deploy/web.yaml", WEB.replace("quay.io/acme/web:2", "placeholder"))
    run.write("base/kustomization.yaml", "images:\n- name: placeholder\n  newName: quay.io/acme/web\n  newTag: '2'\n")
    assert list(document(run, name)["images"]) == ["quay.io/acme/web:2"]
    run.monkeypatch.chdir(run.folder / "base/deploy")
    run.write("base/deploy/platforms.yaml", PLATFORMS)
    assert list(document(run, "web.yaml")["images"]) == ["quay.io/acme/web:2"]


@pytest.mark.req("MF-020")
@pytest.mark.parametrize("path", ["over/patches/web.yaml", "over/patches", "over", "."])
def test_a_patch_is_one_however_it_is_named(run: Command, path: str) -> None:
    """The kustomization that names it may stand above what is named."""
    container = "{name: web, imagePullPolicy: Always}"
    run.write(
        "over/patches/web.yaml", f"kind: Deployment\nspec: {{template: {{spec: {{containers: [{container}]}}}}}}\n"
    )
    run.write("over/kustomization.yaml", "patches: [{path: patches/web.yaml}]\n")
    assert document(run, path)["findings"] == []
    run.write("over/kustomization.yaml", "resources: [patches/web.yaml]\n")
    assert [each["rule"] for each in document(run, path)["findings"]] == ["MA001"]


@pytest.mark.req("MF-010")
def test_build_files_are_looked_at_when_their_rules_are_included(run: Command) -> None:
    """Dockerfiles, Makefiles and Go files with MA3xx."""
    run.write("Dockerfile", "FROM golang:1\nRUN GOARCH=amd64 go build .\n")
    run.write("main.go", "package a\nvar p = corev1.PodSpec{}\n")
    assert files(document(run, ".")) == []
    assert files(document(run, ".", "--include", "MA3*")) == ["Dockerfile", "main.go"]


CATALOGUE = """\
schema: olm.package
name: op
defaultChannel: stable
---
schema: olm.channel
package: op
name: stable
entries:
- name: op.v1
- {name: op.v2, replaces: op.v1}
"""
BUNDLE = """\
schema: olm.bundle
package: op
name: op.%s
properties:
- type: olm.csv.metadata
  value:
    labels: {%s}
"""


def test_the_files_of_a_catalogue_are_judged_together(run: Command) -> None:
    """MA210: the head of the default channel has fewer labels than an older bundle."""
    run.write("catalogue/index.yaml", CATALOGUE)
    run.write("catalogue/v1.yaml", BUNDLE % ("v1", "operatorframework.io/arch.arm64: supported"))
    run.write("catalogue/v2.yaml", BUNDLE % ("v2", ""))
    (finding,) = document(run, "catalogue")["findings"]
    assert finding["rule"] == "MA210"
    assert "arm64" in finding["message"]


@pytest.mark.req("MF-020")
def test_a_catalogue_may_be_json_as_its_renderer_prints_it(run: Command) -> None:
    """One value behind the other, without a separator."""
    texts = (CATALOGUE, BUNDLE % ("v1", "operatorframework.io/arch.arm64: supported"), BUNDLE % ("v2", ""))
    values = [value for text in texts for value in yaml.safe_load_all(text)]
    run.write("catalogue/index.json", "".join(json.dumps(value, indent=4) + "\n" for value in values))
    assert [finding["rule"] for finding in document(run, "catalogue")["findings"]] == ["MA210"]


# Selection and configuration ------------------------------------------------------------------------------------------


@pytest.mark.req("MF-030")
def test_rules_are_selected_and_weighed(run: Command) -> None:
    run.write("web.yaml")
    assert [each["rule"] for each in document(run, "web.yaml", "--exclude", "MA103")["findings"]] == ["MA102"]
    only = document(run, "web.yaml", "--exclude", "MA*", "--include", "MA103")
    assert [each["rule"] for each in only["findings"]] == ["MA103"]
    assert run("web.yaml", "--severity", "MA1*=info").code == 0
    assert run("web.yaml", "--severity", "MA102=warning", "--fail-on", "error").code == 0
    assert run("web.yaml", "--fail-on", "never").code == 0


@pytest.mark.req("MF-030")
def test_requirements_and_the_universe(run: Command) -> None:
    """--require, --platforms."""
    run.write("web.yaml", FIXED)
    assert "MA003" in run("web.yaml", "--require", "amd64,linux/s390x").out
    assert "MA103" not in run("web.yaml", "--platforms", "linux/amd64").out


def test_an_image_that_lacks_the_one_required_platform_fails_the_run(run: Command) -> None:
    """MA002: one image for one platform, another one required."""
    run.write("platforms.yaml", "quay.io/acme/web:2: [linux/amd64]\n")
    run.write("web.yaml", FIXED)
    result = run("web.yaml", "--require", "linux/arm64")
    assert (result.code, "error MA002" in result.out) == (1, True)
    assert "also build it for linux/arm64" in result.out


@pytest.mark.req("MF-030", "MF-040")
@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--include", "MA999"], "matches no rule"),
        (["--severity", "MA102"], "RULE=LEVEL"),
        (["--severity", "MA102=fatal"], "RULE=LEVEL"),
        (["--platforms", "linux/"], "--platforms"),
        (["--config", "gone.yaml"], "gone.yaml"),
        (["--baseline", "gone.json"], "gone.json"),
        (["--lock", "gone.lock"], "--update-lock"),
        (["--update-lock"], "--lock FILE"),
        (["--jobs", "0"], "--jobs 0"),
        (["--deep", "config"], "--offline"),
        (["-o", "jsn"], "unknown format 'jsn'; expected text, json, yaml, sarif"),
        (["-o", "json="], "give json=FILE"),
        (["-o", "json=a", "-o", "text=a"], "a is named twice"),
        (["-o", "json", "-o", "text", "--output", "a.json"], "unknown format 'a.json'"),
        (["-q", "-v"], "--quiet and --verbose cannot be combined"),
        (["--fail-on", "sometimes"], ""),
        (["--unresolved", "sometimes"], ""),
        (["--explain", "MA999"], "unknown rule"),
    ],
)
def test_mistakes_of_the_command_line(run: Command, arguments: list[str], words: str) -> None:
    """2, with what to do."""
    run.write("web.yaml")
    result = run("web.yaml", *arguments)
    assert result.code == 2
    assert words in result.err
    assert result.out == "" or not words


@pytest.mark.req("MF-031")
def test_the_nearest_configuration_counts_and_options_win(run: Command) -> None:
    """Upward to the repository's root."""
    run.write(".polyarch.yaml", "platformsFile: platforms.yaml\nseverity: {MA102: info}\nignorePaths: ['x/*']\n")
    run.write("x/web.yaml")
    inside = run.write("repo/web.yaml").parent
    assert run("repo", "--offline", known=False).code == 0
    assert "web.yaml" not in run("x", "--offline", known=False).out
    assert run("repo", "--offline", "--severity", "MA102=error", known=False).code == 1
    run.monkeypatch.chdir(inside)
    assert run("web.yaml", "--offline", known=False).code == 0
    (inside / ".git").mkdir()
    assert run("web.yaml", "--offline", known=False).code == 3, "above the repository's root nothing is looked for"


@pytest.mark.req("MF-031")
@pytest.mark.parametrize(
    ("folder", "paths"),
    [
        (".", ["."]),
        (".", ["deploy/test/web.yaml", "deploy/web.yaml"]),
        ("deploy", ["."]),
        ("deploy", ["test/web.yaml", "web.yaml"]),
        ("deploy/test", ["..", "web.yaml"]),
        ("deploy", ["{root}/deploy/test", "{root}/deploy/web.yaml"]),
    ],
)
def test_ignored_paths_are_relative_to_their_configuration(run: Command, folder: str, paths: list[str]) -> None:
    """A configuration means the same from every folder, however a path is typed."""
    (run.folder / ".git").mkdir()
    run.write(".polyarch.yaml", "ignorePaths: [deploy/test]\nplatformsFile: platforms.yaml\n")
    run.write("deploy/web.yaml")
    run.write("deploy/test/web.yaml")
    run.monkeypatch.chdir(run.folder / folder)
    given = [path.format(root=run.folder) for path in paths]
    found = files(json.loads(run(*given, "-o", "json", "--offline", known=False).out))
    assert [Path(path).resolve() for path in found] == [run.folder / "deploy/web.yaml"]


@pytest.mark.req("MF-031")
def test_a_user_without_a_home_gets_findings(run: Command) -> None:
    """In a container a user may be a number alone, without an entry in /etc/passwd and without HOME."""
    run.write("web.yaml")
    code = (
        "import os, sys; os.environ.pop('HOME'); os.getuid = lambda: 54321\n"
        "from polyarch.cli import main; sys.exit(main(sys.argv[1:]))"
    )
    asked = [sys.executable, "-c", code, "lint", "web.yaml", "--offline", "--platforms-file", "platforms.yaml"]
    done = subprocess.run(asked, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (1, "")
    assert "MA102" in done.stdout


def test_outside_of_home_and_repository_only_the_folder_itself_counts(run: Command) -> None:
    """A configuration in a folder that everybody writes to is not ours."""
    run.monkeypatch.setenv("HOME", str(run.folder / "home"))
    run.write(".polyarch.yaml", "failOn: never\n")
    run.monkeypatch.chdir(run.write("work/web.yaml").parent)
    assert run("web.yaml", "--offline", "--platforms-file", "../platforms.yaml", known=False).code == 1


@pytest.mark.req("MF-031")
def test_a_configuration_with_a_mistake_is_a_usage_error_with_its_line(run: Command) -> None:
    run.write(".polyarch.yaml", "failOn: error\nplatform: [amd64]\n")
    result = run(".")
    assert result.code == 2
    assert ".polyarch.yaml:2:1: unknown key 'platform'" in result.err


@pytest.mark.req("MF-033")
def test_a_baseline_is_written_and_used(run: Command) -> None:
    run.write("web.yaml")
    assert run("web.yaml", "--write-baseline", "known.json").code == 0
    assert run("web.yaml", "--baseline", "known.json").code == 0
    run.write("web.yaml", "# moved\n" + WEB)
    assert run("web.yaml", "--baseline", "known.json").code == 0
    run.write("web.yaml", FIXED)
    assert "known.json:" in run("web.yaml", "--baseline", "known.json").out
    run.write("other.yaml", WEB.replace("name: web", "name: other", 1))
    assert run("other.yaml", "--baseline", "known.json").code == 1
    assert "MA903" not in run("other.yaml", "--baseline", "known.json").out, "web.yaml was not looked at"


@pytest.mark.req("MF-033")
def test_a_baseline_of_development_hides_nothing_in_production(run: Command) -> None:
    """Files of the same objects; however the path is typed, and also when the file is renamed."""
    run.write("dev/web.yaml")
    run.write("prod/web.yaml")
    assert run("dev", "--write-baseline", "known.json").code == 0
    assert run("prod", "--baseline", "known.json").code == 1
    assert run(f"{run.folder}/dev", "--baseline", "known.json").code == 0
    (run.folder / "dev/web.yaml").rename(run.folder / "dev/renamed.yaml")
    assert run("dev", "--baseline", "known.json").code == 0


@pytest.mark.req("MF-034")
def test_a_lock_file_is_written_on_demand_and_notices_what_is_lost(run: Command) -> None:
    run.write("web.yaml", FIXED)
    known = "quay.io/acme/web:2: {platforms: [%s], digest: '%s'}\n"
    run.write("platforms.yaml", known % ("linux/amd64, linux/arm64", DIGEST))
    assert run("web.yaml", "--lock", "polyarch.lock", "--update-lock").code == 0
    locked = (run.folder / "polyarch.lock").read_text()
    assert yaml.safe_load(locked)["images"]["quay.io/acme/web:2"]["platforms"] == ["linux/amd64", "linux/arm64"]
    run.write("platforms.yaml", known % ("linux/amd64", "sha256:" + "2" * 64))
    assert "MA008" in run("web.yaml", "--lock", "polyarch.lock").out
    assert (run.folder / "polyarch.lock").read_text() == locked, "only --update-lock writes it"
    result = run("web.yaml", "--lock", "polyarch.lock", "--update-lock")
    assert "MA008" not in result.out
    assert "quay.io/acme/web:2 no longer has linux/arm64" in result.err


@pytest.mark.req("MF-034")
def test_images_that_cannot_be_locked_are_counted(run: Command) -> None:
    """An answer without a digest would leave an empty lock file, and nothing be noticed later."""
    run.write("web.yaml", FIXED)
    result = run("web.yaml", "--lock", "polyarch.lock", "--update-lock")
    assert "polyarch: 1 image not locked, no digest known: quay.io/acme/web:2" in result.err


def test_a_platforms_file_that_is_no_text_is_said_in_one_line(run: Command) -> None:
    run.write("web.yaml")
    (run.folder / "platforms.yaml").write_bytes(b"\x06\x00\x01")
    result = run("web.yaml")
    assert result.code == 2
    assert result.err.startswith("polyarch: platforms.yaml: not YAML (")
    assert len(result.err.splitlines()) == 1


# Results --------------------------------------------------------------------------------------------------------------


AWAY = FIXED.replace("quay.io/acme/web:2", "quay.io/acme/away:1")


@pytest.mark.req("MF-032")
@pytest.mark.parametrize(
    ("name", "line", "comment"),
    [
        ("Dockerfile", "FROM golang:1\n{}RUN GOARCH=amd64 go build .{}\n", "# polyarch:ignore MA301 cross-compiled"),
        ("Makefile", "{}image:; docker build --platform linux/amd64 .{}\n", "# polyarch:ignore MA302 for tests"),
        ("pods.go", "package pods\n{}var x = PodSpec{{}}{}\n", "// polyarch:ignore MA303 never deployed"),
    ],
)
def test_a_comment_suppresses_in_build_files_too(run: Command, name: str, line: str, comment: str) -> None:
    """Every kind of file that is linted; above the line and behind it; what matches nothing is MA903."""
    labels = "metadata: {labels: {operatorframework.io/arch.arm64: supported}}"
    run.write("csv.yaml", f"kind: ClusterServiceVersion\n{labels}\n")
    options = (".", "--include", "MA3*", "--exclude", "MA2*")

    def found() -> tuple[list[str], int]:
        result = document(run, *options)
        return [each["rule"] for each in result["findings"]], result["summary"]["suppressed"]

    for text, expected in (
        (line.format("", ""), 0),
        (line.format(f"{comment}\n", ""), 1),
        (line.format("", f"  {comment}"), 1),
    ):
        run.write(name, text)
        rules, count = found()
        assert (len(rules), count) == (1 - expected, expected)
    run.write(name, line.format("", "") + f"{comment}\n")
    assert found() == ([comment.split()[2], "MA903"], 0)


@pytest.mark.req("MF-040")
@pytest.mark.parametrize(("unresolved", "code", "rules"), [("auto", 3, ["MA001"]), ("finding", 1, ["MA001"])])
def test_an_image_that_nobody_could_be_asked_about(run: Command, unresolved: str, code: int, rules: list[str]) -> None:
    """The class decides, and --unresolved what it means."""
    run.write("web.yaml", AWAY)
    result = run("web.yaml", "--unresolved", unresolved, "-o", "json")
    assert result.code == code
    assert [each["rule"] for each in json.loads(result.out)["findings"]] == rules


@pytest.mark.req("MF-032", "MF-040")
@pytest.mark.parametrize("way", ["comment", "annotation", "baseline"])
def test_a_suppressed_image_that_nobody_could_be_asked_about_decides_nothing(run: Command, way: str) -> None:
    """Whoever says why it need not be known does not get 3 for it."""
    image = "        image: quay.io/acme/away:1\n"
    texts = {
        "comment": AWAY.replace(image, f"        # polyarch:ignore MA001 only reached from inside\n{image}"),
        "annotation": AWAY.replace(
            "  name: web\nspec", "  name: web\n  annotations: {ignore-check.polyarch.dev/MA001: internal}\nspec"
        ),
        "baseline": AWAY,
    }
    run.write("web.yaml", texts[way])
    baseline = ()
    if way == "baseline":
        run("web.yaml", "--write-baseline", "known.json")
        baseline = ("--baseline", "known.json")
    assert run("web.yaml", *baseline).code == 0
    assert run("web.yaml", "--show-suppressed", *baseline).out.count("MA001") == 1
    run.write("other.yaml", AWAY.replace("name: web\nspec", "name: other\nspec"))
    assert run(".", *baseline).code == 3


def test_an_image_without_an_answer_offline_says_where_to_put_one(run: Command) -> None:
    run.write("web.yaml", WEB.replace("quay.io/acme/web:2", "nginx:1"))
    out = run("web.yaml").out
    assert "give its platforms with --platforms-file, or leave out --offline" in out
    assert "nginx:1 are unknown: --offline asks no registry, and no platforms file names it" in out


def test_an_image_is_named_once_in_what_happened_to_it(run: Command) -> None:
    run.write("web.yaml", WEB.replace("quay.io/acme/web:2", "127.0.0.1:1/acme/web:2"))
    result = run("web.yaml", "--timeout", "2", known=False)
    assert "the platforms of 127.0.0.1:1/acme/web:2 are unknown: 127.0.0.1:1: " in result.out
    assert (result.out.count("127.0.0.1:1/acme/web:2"), result.code) == (1, 3)
    assert "; 1 image unresolved" in result.out


@pytest.mark.req("MF-040")
def test_unknown_images_may_be_passed_over(run: Command) -> None:
    """Ignore silences them."""
    run.write("web.yaml", AWAY)
    result = run("web.yaml", "--unresolved", "ignore")
    assert (result.code, "MA001" in result.out) == (0, False)


@pytest.mark.req("MF-040")
def test_a_file_that_cannot_be_read_is_said_and_the_others_are_checked(run: Command) -> None:
    """3; all formats are written."""
    run.write("web.yaml")
    (run.folder / "bad.yaml").write_bytes(b"image: \xff\n")
    (run.folder / "wide.yaml").write_bytes("\ufeffimage: x\n".encode("utf-16-le"))
    result = run(".", "-o", "json=a.json", "-o", "text")
    assert result.code == 3
    assert "bad.yaml: not completed:" in result.out
    assert "wide.yaml: not completed: is UTF-16 text" in result.out
    assert "MA102" in result.out
    assert json.loads((run.folder / "a.json").read_text())["summary"]["complete"] is False


@pytest.mark.req("MF-030", "MF-040")
@pytest.mark.parametrize("form", REPORT_FORMATS)
def test_every_format_is_written_to_its_file(run: Command, form: str) -> None:
    run.write("web.yaml")
    result = run("web.yaml", "-o", f"{form}=report")
    assert (result.code, result.out, result.err) == (1, "", "")
    assert "MA102" in (run.folder / "report").read_text()
    assert [each.name for each in run.folder.iterdir() if each.name.endswith(".tmp")] == []


@pytest.mark.req("MF-041", "MF-090")
def test_the_same_input_gives_the_same_bytes_whatever_the_jobs(run: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    from polyarch.cli.lint import lint

    monkeypatch.setattr(lint, "FILES_PER_PROCESS", 2)
    for number in range(9):
        run.write(f"{number}.yaml", WEB if number % 2 else AWAY)
    assert run(".", "--jobs", "3").out == run(".", "--jobs", "1").out
    assert run(".", "--jobs", "3", "-o", "json").out == run(".", "--jobs", "1", "-o", "json").out


def test_a_process_that_dies_ends_the_run(run: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    """Half of a tree is not a result."""
    from polyarch.cli.lint import lint

    monkeypatch.setattr(lint, "FILES_PER_PROCESS", 1)
    monkeypatch.setattr(lint, "scan", lambda *_, **__: os._exit(9))
    for number in range(4):
        run.write(f"{number}.yaml")
    result = run(".", "--jobs", "2")
    assert result.code == 3
    assert "--jobs 1" in result.err


@pytest.mark.req("MF-021")
def test_rules_are_explained(run: Command) -> None:
    """Meaning, example, fix."""
    listed = run("--rules", known=False)
    assert (listed.code, "MA102" in listed.out, "MA904" in listed.out) == (0, True, True)
    told = run("--explain", "ma102", known=False)
    assert told.code == 0
    for words in ("MA102 (error)", "Fix:", "values: [amd64, arm64, s390x]", "values: [amd64, arm64]"):
        assert words in told.out


@pytest.mark.req("MF-030")
def test_help_names_every_option_of_the_specification(run: Command) -> None:
    told = run("--help", known=False).out
    for option in (
        *(
            "-o",
            "--output",
            "-q",
            "-v",
            "--only",
            "--platforms",
            "--require",
            "--platforms-file",
            "--offline",
            "--deep",
        ),
        *("--include", "--exclude", "--severity", "--fail-on", "--strict", "--unresolved", "--baseline"),
        *("--write-baseline", "--lock", "--update-lock", "--config", "--jobs", "--authfile", "--registries-conf"),
        *("--show-suppressed", "--fail-if-no-objects", "--ignore-path", "--explain", "--rules"),
    ):
        assert option in told
    assert "helm template CHART" in told


# Safety ---------------------------------------------------------------------------------------------------------------


@pytest.mark.req("MF-093")
def test_links_lead_nowhere_outside(run: Command) -> None:
    outside = run.write("outside/web.yaml")
    inside = run.write("tree/web.yaml").parent
    (inside / "out.yaml").symlink_to(outside)
    (inside / "again.yaml").symlink_to(inside / "web.yaml")
    (inside / "loop").symlink_to(inside)
    (inside / "away").symlink_to(outside.parent)
    assert document(run, "tree")["summary"]["files"] == 1


@pytest.mark.req("MF-040", "MF-091")
def test_links_that_lead_in_a_circle_or_nowhere_are_files_that_cannot_be_read(run: Command) -> None:
    """No file crashes a run."""
    run.write("a/web.yaml")
    (run.folder / "a/circle.yaml").symlink_to("circle.yaml")
    (run.folder / "a/nowhere.yaml").symlink_to("gone.yaml")
    result = run("a")
    assert result.code == 3
    assert "a/circle.yaml: not completed: Too many levels of symbolic links" in result.out
    assert "a/nowhere.yaml: not completed: No such file" in result.out
    assert "a/web.yaml:15:33: error MA102" in result.out


@pytest.mark.req("MF-091")
def test_what_is_no_file_is_passed_over_in_a_directory(run: Command) -> None:
    """To open a named pipe that nobody writes to would last for ever."""
    run.write("a/web.yaml")
    os.mkfifo(run.folder / "a/pipe.yaml")
    (run.folder / "a/link.yaml").symlink_to("pipe.yaml")
    assert run("a").out == run("a/*.yaml").out == run("a/web.yaml").out


def test_a_named_pipe_is_read_once(run: Command) -> None:
    """As a shell's ``<(helm template CHART)``: an image that nobody knew yet had it read again, and found empty."""
    pipe = run.folder / "pipe"
    os.mkfifo(pipe)
    text = WEB.replace("quay.io/acme/web:2", "127.0.0.1:1/acme/web:2")

    def feed() -> None:
        pipe.write_text(text)

    writer = threading.Thread(target=feed, daemon=True)
    writer.start()
    result = run("pipe", "--timeout", "2", known=False)
    writer.join(timeout=10)
    assert result.code == 3
    assert "pipe:21:16: warning MA001" in result.out


def test_standard_input_that_is_closed_is_said(run: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("polyarch.cli.input.files.standard_input", lambda: None)
    result = run("-")
    assert result.code == 3
    assert "<stdin>: not completed: standard input is closed" in result.out


@pytest.mark.req("MF-093")
def test_what_a_file_says_is_never_executed(run: Command) -> None:
    """No tag constructs an object."""
    run.write("evil.yaml", WEB + "x: !!python/object/apply:os.system ['touch owned']\n")
    assert run("evil.yaml").code == 1
    assert not (run.folder / "owned").exists()


@pytest.mark.req("MF-093")
def test_aliases_cannot_blow_up(run: Command) -> None:
    """MA902 with the limit."""
    lines = ["a: &a [x, x, x, x, x, x, x, x, x, x]"]
    lines += [
        f"{name}: &{name} [{', '.join(['*' + before] * 10)}]" for before, name in zip("abcdefg", "bcdefgh", strict=True)
    ]
    run.write("bomb.yaml", "\n".join([*lines, "image: x"]) + "\n")
    assert "MA902" in run("bomb.yaml").out


def python(code: str, folder: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", code], cwd=folder, capture_output=True, text=True, check=False, timeout=120
    )


@pytest.mark.req("MF-090")
def test_without_a_registry_there_is_no_network_stack(run: Command) -> None:
    """Neither aiohttp nor numpy, and offline no byte leaves."""
    run.write("web.yaml")
    code = (
        "import sys\nfrom polyarch.cli.lint.commands import lint\n"
        "code = lint(['web.yaml', '--platforms-file', 'platforms.yaml'], result_action='return_value')\n"
        "print(code, sorted({'aiohttp', 'numpy'} & set(sys.modules)))\n"
    )
    done = python(code, run.folder)
    assert done.stdout.splitlines()[-1] == "1 []", done.stderr


@pytest.mark.req("MF-090")
def test_help_imports_no_rules(run: Command) -> None:
    """--help in no time."""
    code = (
        "import sys\nfrom polyarch.cli import main\nmain(['lint', '--help'])\n"
        "print(sorted({'aiohttp', 'numpy', 'yaml', 'polyarch.manifests.scan'} & set(sys.modules)))\n"
    )
    done = python(code, run.folder)
    assert done.stdout.splitlines()[-1] == "[]", done.stderr


@pytest.mark.req("MF-042")
@pytest.mark.parametrize(
    ("terminal", "environment", "coloured"),
    [
        (True, {}, True),
        (True, {"NO_COLOR": "1"}, False),
        (True, {"TERM": "dumb"}, False),
        (False, {}, False),
        (False, {"FORCE_COLOR": "1"}, True),
    ],
)
def test_findings_are_coloured_where_colour_is_shown_and_wanted(
    run: Command,
    monkeypatch: pytest.MonkeyPatch,
    terminal: bool,
    environment: dict[str, str],
    coloured: bool,
) -> None:
    """https://no-color.org."""
    for name in ("NO_COLOR", "FORCE_COLOR"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("TERM", "xterm")
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr("sys.stdout.isatty", lambda: terminal)
    run.write("web.yaml")
    assert ("\x1b[" in run("web.yaml").out) == coloured


@pytest.mark.req("MF-040")
def test_a_report_goes_through_a_named_pipe_and_leaves_it_there(run: Command) -> None:
    """What is no regular file, such as /dev/null or a shell's >(command), is written to, never replaced."""
    run.write("web.yaml")
    pipe = run.folder / "pipe"
    os.mkfifo(pipe)
    with os.fdopen(os.open(pipe, os.O_RDONLY | os.O_NONBLOCK), "rb") as reader:
        assert run("web.yaml", "-o", "json=pipe").code == 1
        assert json.loads(reader.read())["summary"]["errors"] == 1
    assert pipe.is_fifo()


@pytest.mark.req("MF-040")
def test_a_report_that_cannot_be_written_holds_up_no_other(run: Command) -> None:
    """All formats are written in each case."""
    run.write("web.yaml")
    result = run("web.yaml", "-o", "sarif=gone/f.sarif", "-o", "text", "-o", "json=f.json")
    assert result.code == 3
    assert "gone/f.sarif: No such file or directory" in result.err
    assert "MA102" in result.out
    assert json.loads((run.folder / "f.json").read_text())["summary"]["errors"] == 1


@pytest.mark.req("MF-091")
@pytest.mark.parametrize("form", REPORT_FORMATS)
def test_a_file_whose_name_is_not_utf8_is_named_and_the_others_are_judged(run: Command, form: str) -> None:
    """No file crashes a run, and no report can hold such a name."""
    run.write("web.yaml")
    (run.folder / os.fsdecode(b"bad\xff.yaml")).write_text(WEB)
    result = run(".", "-o", f"{form}=report", "-o", "text")
    assert result.code == 3
    assert "bad\ufffd.yaml: not completed: its name is not UTF-8; rename it" in result.out + result.err
    assert "web.yaml:15:33: error MA102" in result.out
    assert "MA102" in (run.folder / "report").read_text(encoding="utf-8")


@pytest.mark.req("MF-034")
@pytest.mark.parametrize("content", ["<<<<<<< ours\nimages:\n", "images: [a]\n"], ids=["conflict", "shape"])
def test_a_damaged_lock_file_says_what_helps(run: Command, content: str) -> None:
    """--update-lock reads it first, so it alone does not."""
    run.write("web.yaml")
    run.write("polyarch.lock", content)
    result = run("web.yaml", "--lock", "polyarch.lock", "--update-lock")
    assert result.code == 2
    assert result.err.rstrip().endswith("delete it, then write it with --update-lock")


@pytest.mark.parametrize(
    ("arguments", "place"),
    [(["web.yaml"], "./web.yaml"), ([".", "--baseline", "b.json"], "b.json"), ([".", "--lock", "l.json"], "l.json")],
)
def test_a_report_never_replaces_a_file_that_the_command_line_names_as_input(
    run: Command, arguments: list[str], place: str
) -> None:
    """Nothing is lost by a mistake of one word."""
    run.write("web.yaml")
    for name in ("b.json", "l.json"):
        (run.folder / name).write_text("{}")
    before = (run.folder / place).read_text()
    result = run(*arguments, "-o", f"json={place}")
    assert result.code == 2
    assert f"--output json={place}: this file is an input of the command; name another" in result.err
    assert (run.folder / place).read_text() == before
