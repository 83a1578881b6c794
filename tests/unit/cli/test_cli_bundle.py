"""``polyarch bundle validate`` and ``polyarch-olm-validator`` on directories."""

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from polyarch.cli import bundle_validation
from polyarch.cli.bundle import app
from polyarch.cli.errors import UsageError

MANAGER = "quay.io/acme/manager:1"
ARCH = "operatorframework.io/arch."
EXACT = {
    "nodeAffinity": {
        "requiredDuringSchedulingIgnoredDuringExecution": {
            "nodeSelectorTerms": [
                {
                    "matchExpressions": [
                        {"key": "kubernetes.io/arch", "operator": "In", "values": ["amd64"]},
                        {"key": "kubernetes.io/os", "operator": "In", "values": ["linux"]},
                    ]
                }
            ]
        }
    }
}


def write(directory: Path, **labels: str) -> Path:
    """A bundle whose one image runs on linux/amd64, and the answers file beside it."""
    csv = {
        "apiVersion": "operators.coreos.com/v1alpha1",
        "kind": "ClusterServiceVersion",
        "metadata": {"name": "acme.v1", "labels": {ARCH + name: value for name, value in labels.items()}},
        "spec": {
            "install": {
                "spec": {
                    "deployments": [
                        {
                            "name": "acme",
                            "spec": {
                                "template": {
                                    "spec": {
                                        "affinity": EXACT,
                                        "containers": [{"name": "manager", "image": MANAGER}],
                                    }
                                }
                            },
                        }
                    ]
                }
            }
        },
    }
    bundle = directory / "bundle"
    (bundle / "manifests").mkdir(parents=True)
    (bundle / "metadata").mkdir()
    (bundle / "manifests" / "acme.yaml").write_text(yaml.safe_dump(csv))
    (bundle / "metadata" / "annotations.yaml").write_text(
        "annotations:\n  operators.operatorframework.io.bundle.manifests.v1: manifests/\n"
    )
    (directory / "platforms.yaml").write_text(f"{MANAGER}: [linux/amd64]\n")
    return bundle


def run(bundle: Path, *options: str, known: bool = True) -> int:
    answers = ("--platforms-file", str(bundle.parent / "platforms.yaml")) if known else ()
    code: int = app(
        ["validate", str(bundle), "--offline", *answers, *options], result_action="return_value", exit_on_error=False
    )
    return code


@pytest.mark.req("MF-031")
def test_the_configuration_counts_for_bundles_too(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rules, severities, platforms and files of .polyarch.yaml; options win."""
    bundle = write(tmp_path, amd64="supported")
    monkeypatch.chdir(tmp_path)
    configuration = tmp_path / ".polyarch.yaml"
    configuration.write_text("platformsFile: platforms.yaml\nexclude: [MA207]\n")
    assert run(bundle, known=False) == 0
    assert "MA207" not in capsys.readouterr().out
    configuration.write_text("platformsFile: platforms.yaml\nrequire: [linux/arm64]\n")
    assert run(bundle, known=False) == 1
    assert "error MA002" in capsys.readouterr().out
    configuration.write_text("platformsFile: platforms.yaml\nfailOn: info\n")
    assert run(bundle, known=False) == 1
    assert run(bundle, "--fail-on", "error", known=False) == 0
    assert run(bundle, "--mode", "compat", known=False) == 0
    assert "unable to inspect" not in capsys.readouterr().out
    configuration.write_text("unknown: 1\n")
    with pytest.raises(UsageError, match="unknown key"):
        run(bundle, known=False)


@pytest.mark.req("MF-071")
def test_a_good_bundle(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Info findings do not fail it."""
    assert run(write(tmp_path, amd64="supported")) == 0
    printed = capsys.readouterr().out
    assert "info MA207" in printed
    assert printed.endswith("1 info in 1 object\n")


@pytest.mark.req("MF-040", "MF-071")
def test_a_bad_bundle_has_places(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """An error ends with 1, in every format."""
    bundle = write(tmp_path, amd64="supported", arm64="supported")
    assert run(bundle) == 1
    assert f"{bundle}/manifests/acme.yaml:6:5: error MA201 " in capsys.readouterr().out
    assert run(bundle, "-o", "json") == 1
    document = json.loads(capsys.readouterr().out)
    assert [(each["rule"], each["upstream"]) for each in document["findings"]] == [("MA201", "V2"), ("MA207", "")]
    assert run(bundle, "-o", "json-alpha1") == 1
    document = json.loads(capsys.readouterr().out)
    assert document["passed"] is False
    assert document["outputs"][0]["type"] == "error"
    assert document["outputs"][0]["message"].startswith("Error: Value acme.v1: MA201: ")
    assert document["outputs"][1]["type"] == "info"


@pytest.mark.req("MF-040")
def test_an_image_that_nobody_could_ask_about(tmp_path: Path) -> None:
    """3, unless told otherwise."""
    bundle = write(tmp_path, amd64="supported")
    assert run(bundle, known=False) == 3
    assert run(bundle, "--unresolved", "finding", known=False) == 0
    assert run(bundle, "--unresolved", "finding", "--fail-on", "warning", known=False) == 1


@pytest.mark.req("MF-083")
def test_the_subscription_is_judged_with_the_bundle(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    bundle, override = write(tmp_path, amd64="supported"), tmp_path / "sub.yaml"
    override.write_text("kind: Subscription\nmetadata: {name: s}\nspec: {config: {affinity: {}}}\n")
    assert run(bundle, "--subscription", str(override)) == 1
    assert f"{override}:3:" in capsys.readouterr().out


@pytest.mark.req("MF-082")
@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("kind: Service\n", "no Subscription or ClusterExtension in it"),
        ("kind: Subscription\nspec: {config: {affinity: x}}\n", "affinity is a string; expected a mapping"),
        ("kind: [\n", "does not parse"),
        (None, "No such file"),
    ],
)
def test_a_subscription_that_is_none(tmp_path: Path, text: str | None, problem: str) -> None:
    """A usage error names the member."""
    override = tmp_path / "sub.yaml"
    if text is not None:
        override.write_text(text)
    with pytest.raises(UsageError, match=problem):
        run(write(tmp_path), "--subscription", str(override))


def test_the_bundle_image(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """MA208."""
    bundle = write(tmp_path, amd64="supported")
    with (tmp_path / "platforms.yaml").open("a") as answers:
        answers.write("quay.io/acme/bundle:1: [linux/amd64, linux/arm64]\n")
    assert run(bundle, "--bundle-image", "quay.io/acme/bundle:1") == 0
    assert "info MA208" in capsys.readouterr().out
    with pytest.raises(UsageError, match="--bundle-image"):
        run(bundle, "--bundle-image", "No Image")


@pytest.mark.req("MF-071")
@pytest.mark.parametrize(
    ("options", "begin"),
    [
        (("-o", "text"), "{}:1:1: error BundleNotValid no ClusterService"),
        (("-o", "json"), "{{"),
        (("-o", "json-alpha1"), "{{"),
    ],
)
def test_a_directory_that_is_no_bundle(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], options: tuple[str, ...], begin: str
) -> None:
    """BundleNotValid, exit 1."""
    bundle = write(tmp_path)
    (bundle / "manifests" / "acme.yaml").unlink()
    assert run(bundle, *options) == 1
    printed = capsys.readouterr().out
    assert printed.startswith(begin.format(bundle))
    assert "BundleNotValid" in printed


@pytest.mark.req("MF-093")
def test_a_link_out_of_the_bundle_is_not_read(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    bundle, secret = write(tmp_path), tmp_path / "secret.yaml"
    secret.write_text("a: b\n")
    (bundle / "manifests" / "b.yaml").symlink_to(secret)
    assert run(bundle) == 1
    assert "link out of the bundle" in capsys.readouterr().out


@pytest.mark.req("MF-071")
def test_hidden_files_and_sub_directories(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    bundle = write(tmp_path)
    (bundle / "manifests" / ".swp").write_text("")
    assert run(bundle) == 1
    assert "hidden file .swp" in capsys.readouterr().out
    (bundle / "manifests" / ".swp").unlink()
    (bundle / "manifests" / "more").mkdir()
    assert run(bundle) == 1
    assert "sub-directory more" in capsys.readouterr().out


@pytest.mark.req("MF-071")
def test_a_missing_directory_is_usage(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no such directory"):
        run(tmp_path / "bundle", known=False)


@pytest.mark.req("MF-078")
def test_compat_mode_prints_lines(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Clean, the sentence is on stderr; exit 1 iff an error."""
    assert run(write(tmp_path), "--mode", "compat") == 0
    captured = capsys.readouterr()
    assert (captured.out, captured.err) == ("", "All validation tests have completed successfully\n")
    bundle = write(tmp_path / "other", arm64="supported")
    assert run(bundle, "--mode", "compat") == 1
    lines = capsys.readouterr().out.splitlines()
    assert [line.partition(":")[0] for line in lines] == ["Warning", "Error"]
    assert lines[1].startswith("Error: Value acme.v1: not all images specified are providing the support")


@pytest.mark.req("MF-078")
def test_compat_mode_prints_json_alpha1(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A warning alone passes, and operator-sdk says so."""
    bundle = write(tmp_path)
    assert run(bundle, "--mode", "compat", "-o", "json-alpha1", known=False) == 0
    captured = capsys.readouterr()
    assert captured.err.endswith("All validation tests have completed successfully\n")
    document = json.loads(captured.out)
    assert document["passed"] is True
    assert document["outputs"][0]["message"].startswith("Warning: Value acme.v1: unable to inspect the image (")
    assert run(bundle, "--mode", "compat", "-o", "json-alpha1", "--container-tools", "buildah") == 1
    assert "invalid value (container-tools) for (buildah)" in capsys.readouterr().out


@pytest.mark.req("MF-077")
def test_compat_mode_without_a_bundle(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    bundle = write(tmp_path)
    (bundle / "manifests" / "more").mkdir()
    assert run(bundle, "--mode", "compat") == 1
    assert "bundle is nil: " in capsys.readouterr().out
    (bundle / "manifests" / "more").rmdir()
    (bundle / "manifests" / "acme.yaml").unlink()
    assert run(bundle, "--mode", "compat") == 1
    assert capsys.readouterr().out == f"Error: Value {bundle}: bundle csv is nil\n"


@pytest.mark.req("MF-078")
def test_compat_mode_does_not_pass_what_operator_sdk_cannot_decode(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """An error, though each part that can be read is fine."""
    bundle = write(tmp_path)
    manifest = bundle / "manifests" / "acme.yaml"
    manifest.write_text(manifest.read_text() + "  relatedImages: {}\n")
    assert run(bundle, "--mode", "compat") == 1
    captured = capsys.readouterr()
    assert captured.out.endswith(": bundle is nil: acme.v1: spec.relatedImages is not a list\n")
    assert captured.err == ""


@pytest.mark.parametrize(
    "options",
    [
        ("--mode", "compat", "-o", "sarif"),
        ("--mode", "compat", "--bundle-image", "a"),
        ("--container-tools", "buildah"),
    ],
)
def test_options_that_do_not_fit(tmp_path: Path, options: tuple[str, ...]) -> None:
    with pytest.raises(UsageError):
        run(write(tmp_path), *options)


# polyarch-olm-validator -----------------------------------------------------------------------------------------------


def hook(bundle: Path, **environment: str) -> int:
    given = {
        "POLYARCH_OFFLINE": "true",
        "POLYARCH_PLATFORMS_FILE": str(bundle.parent / "platforms.yaml"),
        **environment,
    }
    return bundle_validation.main([str(bundle)], given)


def result(capsys: pytest.CaptureFixture[str]) -> Any:
    captured = capsys.readouterr()
    assert captured.out.count("\n") == 1, "one object and nothing else"
    return json.loads(captured.out)


@pytest.mark.req("MF-079")
def test_MF_079_the_hook_ends_with_0_whatever_it_finds(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    bundle = write(tmp_path, amd64="supported", arm64="supported")
    assert hook(bundle) == 0
    document = result(capsys)
    assert document["Name"] == "acme.v1"
    assert [each["Detail"][:6] for each in document["Errors"]] == ["MA201:"]
    assert document["Warnings"] == []


@pytest.mark.req("MF-079")
def test_MF_079_the_hook_in_compat_mode(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    bundle = write(tmp_path, arm64="supported")
    assert hook(bundle, POLYARCH_OLM_MODE="compat") == 0
    document = result(capsys)
    assert document["Errors"][0]["Detail"].startswith("not all images specified")
    assert document["Warnings"][0]["Field"] == ""


@pytest.mark.req("MF-079")
def test_MF_079_no_bundle_is_a_result(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    bundle = write(tmp_path)
    (bundle / "manifests" / "acme.yaml").unlink()
    for mode in ("native", "compat"):
        assert hook(bundle, POLYARCH_OLM_MODE=mode) == 0
        assert result(capsys)["Errors"][0]["Type"] == "BundleNotValid"


@pytest.mark.req("MF-079")
@pytest.mark.parametrize(
    ("environment", "problem"),
    [
        ({"POLYARCH_OLM_MODE": "loud"}, "POLYARCH_OLM_MODE"),
        ({"POLYARCH_OFFLINE": "maybe"}, "POLYARCH_OFFLINE"),
        ({"POLYARCH_PLATFORMS_FILE": "/nowhere.yaml"}, "/nowhere.yaml"),
    ],
)
def test_MF_079_what_keeps_it_from_running(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], environment: dict[str, str], problem: str
) -> None:
    assert hook(write(tmp_path), **environment) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert problem in captured.err


@pytest.mark.req("MF-079")
def test_MF_079_the_hook_says_how_it_is_called(capsys: pytest.CaptureFixture[str]) -> None:
    assert bundle_validation.main(["--help"], {}) == 0
    shown = capsys.readouterr().out
    assert "polyarch-olm-validator DIR" in shown
    for variable in ("POLYARCH_OLM_MODE", "POLYARCH_PLATFORMS_FILE", "POLYARCH_OFFLINE"):
        assert variable in shown


@pytest.mark.req("MF-079")
def test_MF_079_the_hook_needs_a_directory(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert bundle_validation.main([], {}) == 2
    assert hook(tmp_path / "missing") == 2
    assert capsys.readouterr().out == ""
