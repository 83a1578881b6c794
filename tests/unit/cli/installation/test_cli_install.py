"""``polyarch install`` without a cluster: what it prints, and what wrong values get."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from polyarch.cli import main
from polyarch.installation.objects import documents
from polyarch.installation.settings import InstallationSettings


@pytest.mark.req("IN-001")
def test_what_is_printed_are_the_documents(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["install", "--print"]) == 0
    assert list(yaml.safe_load_all(capsys.readouterr().out)) == list(documents(InstallationSettings()))
    assert main(["install", "--print", "-o", "json", "-n", "tools"]) == 0
    assert json.loads(capsys.readouterr().out)["items"] == list(documents(InstallationSettings(), namespace="tools"))


@pytest.mark.req("IN-040")
def test_the_images_to_mirror(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["install", "--images", "--image", "r.example:5000/p"]) == 0
    assert capsys.readouterr().out == "r.example:5000/p:0.1.0\n"


@pytest.mark.req("IN-037")
def test_a_scheduler_of_the_clusters_version_is_listed_or_it_is_said_that_it_is_missing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A list without it would be mirrored, and its pod could not be pulled."""
    values = tmp_path / "values.yaml"
    values.write_text("components: [numa]\nnuma: {scheduler: {}}\n")
    asked = ["install", "--images", "--values", str(values)]
    assert main([*asked, "--kubeconfig", str(tmp_path / "none")]) == 3
    captured = capsys.readouterr()
    assert captured.out == ""
    assert "the kube-scheduler has the version of the cluster: name a cluster" in captured.err
    assert "numa.scheduler.imageSpec" in captured.err
    values.write_text("components: [numa]\nnuma: {scheduler: {imageSpec: 'r.example/s:1'}}\n")
    assert main([*asked, "--image", "r.example/p:2"]) == 0
    assert capsys.readouterr().out == "r.example/p:2\nr.example/s:1\n"


@pytest.mark.req("IN-002")
@pytest.mark.parametrize(
    ("image", "expected"),
    [
        ("r.example/p:2", "r.example/p:2"),
        (f"r.example/p@sha256:{'a' * 64}", f"r.example/p@sha256:{'a' * 64}"),
        (f"r.example/p:2@sha256:{'a' * 64}", f"r.example/p@sha256:{'a' * 64}"),
    ],
)
def test_an_image_by_tag_or_digest(image: str, expected: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["install", "--images", "--image", image]) == 0
    assert capsys.readouterr().out == f"{expected}\n"


@pytest.mark.req("IN-002")
def test_a_dry_run_of_the_client_asks_nobody(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["install", "--dry-run", "client", "--kubeconfig", "/nonexistent", "-o", "json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["schemaVersion"] == "polyarch.dev/install/v1"
    assert document["dryRun"] == "client"
    assert {each["result"] for each in document["objects"]} == {"untried"}


@pytest.mark.req("IN-010")
def test_values_that_say_something_to_helm_alone_are_taken(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    given = "global: {imageRegistry: m.example}\nenabled: true\ncrds: {enabled: true}\ndashboards: {enabled: true}\n"
    (tmp_path / "values.yaml").write_text(f"{given}components: [placement]\n")
    (tmp_path / "plain.yaml").write_text("components: [placement]\n")
    printed = []
    for name in ("values.yaml", "plain.yaml"):
        assert main(["install", "--print", "--values", str(tmp_path / name)]) == 0
        printed.append(capsys.readouterr().out)
    assert printed[0] == printed[1]


@pytest.mark.req("IN-010")
@pytest.mark.parametrize(
    ("values", "problem"),
    [
        pytest.param("imagee: {}", "unknown value 'imagee'; did you mean 'image'?", id="misspelt"),
        pytest.param(
            "operator: {replica: 1}", "operator: unknown value 'replica'; did you mean 'replicas'?", id="inside"
        ),
        pytest.param("operator: {replicas: x}", "operator.replicas: expected `int`", id="another type"),
        pytest.param(
            "image: {digest: 'sha256:12'}",
            "image.digest: 'sha256:12' is not sha256: and 64 hexadecimal digits",
            id="not as it is written",
        ),
        pytest.param(
            "registries: {allowAddresses: [10.0.0.0/8, 10.0.0/8]}",
            "registries.allowAddresses[1]: '10.0.0/8' is not an address range such as 10.0.0.0/8",
            id="no range",
        ),
        pytest.param(
            "registries: {allowAddresses: ['fd00::/129']}",
            "registries.allowAddresses[0]: 'fd00::/129' is not an address range",
            id="no range, which only who reads it can tell",
        ),
        pytest.param(
            "registries: {denyAddresses: ['fd00::/129']}",
            "registries.denyAddresses[0]: 'fd00::/129' is not an address range",
            id="no range to deny",
        ),
        pytest.param(
            "registries: {configuration: '[[registry]'}",
            "registries.configuration: is not TOML",
            id="no registries.conf",
        ),
        pytest.param(
            "image: {repository: 'https://r.example/p', tag: '2'}",
            "image: invalid image reference 'https://r.example/p:2'",
            id="no image",
        ),
        pytest.param(
            "builds: {builderImage: 'r.example/b uild:1'}", "builds.builderImage: invalid image", id="no builder"
        ),
        pytest.param(
            "numa: {scheduler: {imageSpec: 'r.example/s cheduler:1'}}",
            "numa.scheduler.imageSpec: invalid image",
            id="no scheduler",
        ),
        pytest.param(
            "operator: {environment: {POLYARCH_PUSH_IMAGE: 'A:b'}}",
            "operator.environment.POLYARCH_PUSH_IMAGE: invalid image",
            id="no image for pushes",
        ),
        pytest.param("registries: {authorities: none}", "registries.authorities: holds no PEM", id="no certificates"),
        pytest.param("components: [monitor]", "'monitor' is not part of this version", id="a component of later"),
        pytest.param(
            "components: [nix]", "'nix' does not exist; components of this version: placement", id="no component"
        ),
        pytest.param("a: [", "values.yaml:2:1", id="not YAML"),
        pytest.param("- a", "values.yaml", id="a list"),
    ],
)
def test_wrong_values_are_refused_with_their_place(
    values: str, problem: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "values.yaml").write_text(f"{values}\n")
    assert main(["install", "--print", "--values", str(tmp_path / "values.yaml")]) == 2
    assert problem in capsys.readouterr().err


@pytest.mark.req("IN-002")
@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (
            ["--component", "monitor"],
            "'monitor' is not part of this version; components of this version: placement, taints, builds, numa",
        ),
        (["--print", "--images"], "exclude each other"),
        (["--print", "--wait"], "leave it out"),
        (["--replicas", "0"], "--replicas 0: expected a number from 1 to 20"),
        (["--replicas", "21"], "--replicas 21: expected a number from 1 to 20"),
        (["--image", "A:b"], "--image: invalid image reference"),
        (["--kubeconfig", "/nonexistent"], "/nonexistent"),
    ],
)
def test_wrong_command_lines(arguments: list[str], problem: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["install", *arguments]) == 2
    assert problem in capsys.readouterr().err


@pytest.mark.req("IN-002")
def test_a_flag_wins_over_the_values(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "values.yaml").write_text("image: {repository: r.example/a}\noperator: {replicas: 5}\n")
    values = ["--values", str(tmp_path / "values.yaml")]
    assert main(["install", "--print", *values, "--image", "r.example/b:1", "--replicas", "2"]) == 0
    made: list[Any] = list(yaml.safe_load_all(capsys.readouterr().out))
    (deployment,) = [each for each in made if each["kind"] == "Deployment"]
    assert deployment["spec"]["replicas"] == 2
    assert deployment["spec"]["template"]["spec"]["containers"][0]["image"] == "r.example/b:1"


GUIDE = Path(__file__).parents[4] / "docs" / "guide"


@pytest.mark.req("IN-042")
@pytest.mark.parametrize("page", ["eks.md", "gke.md", "aks.md"])
def test_the_values_of_the_cloud_pages_are_those_of_an_installation(
    page: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Each block by itself, and the providers' own files are where the page says."""
    blocks = re.findall(r"```yaml[^\n]*\n(.*?)```", (GUIDE / page).read_text(), re.DOTALL)
    assert len(blocks) >= 2
    file = tmp_path / "values.yaml"
    for block in blocks:
        file.write_text(block)
        assert main(["install", "--print", "--values", str(file)]) == 0, capsys.readouterr().err
        documents = list(yaml.safe_load_all(capsys.readouterr().out))
        given = yaml.safe_load(block)["registries"].get("credentialProviders", {}).get("configuration")
        made = [each["data"] for each in documents if each["kind"] == "ConfigMap"]
        assert made == ([{"credential-providers.yaml": given}] if given else [])
        for argument in re.findall(r"args: \[(/[^\]]*)\]", given or ""):
            assert argument.startswith("/etc/polyarch/credential-providers/credential-providers/")


WRONG_PROVIDERS = {
    "nowhere": ({"configuration": "x"}, "registries.credentialProviders: say where the plugins are"),
    "no YAML": ({"configuration": "a: [", "image": "p:1"}, "configuration: is neither YAML nor JSON at line"),
    "another kind": ({"configuration": "kind: Pod", "image": "p:1"}, "registries.credentialProviders.configuration"),
    "null": ({"configuration": "null", "image": "p:1"}, "registries.credentialProviders.configuration"),
    "a relative folder": ({"directory": "plugins"}, "is not an absolute path"),
    "a folder above": ({"directory": "/a/../b"}, "expected a path without '..'"),
    "all of the image": ({"directory": "/", "image": "p:1"}, "expected an absolute path below /"),
    "a quote": ({"directory": '/a"b', "image": "p:1"}, "is not an absolute path"),
    "nodes and an image": ({"directory": "/a", "image": "p:1", "mount": "hostPath"}, "mount hostPath: expected"),
    "nodes without a folder": ({"mount": "hostPath"}, "mount hostPath: expected"),
    "a copy of nothing": ({"mount": "copy", "directory": "/a"}, "mount copy: expected an image"),
    "another mount": ({"mount": "csi"}, "registries.credentialProviders.mount"),
    "no image": ({"image": "UPPER/case", "configuration": ""}, "registries.credentialProviders.image"),
    "no mapping": ([], "registries.credentialProviders"),
}


@pytest.mark.req("IN-042", "IN-030")
@pytest.mark.parametrize(("providers", "said"), WRONG_PROVIDERS.values(), ids=WRONG_PROVIDERS)
def test_plugins_that_no_pod_could_have_are_refused_before_anything_is_written(
    providers: Any, said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "values.yaml"
    file.write_text(yaml.safe_dump({"registries": {"credentialProviders": providers}}))
    assert main(["install", "--print", "--values", str(file)]) == 2
    assert said in capsys.readouterr().err


@pytest.mark.req("IN-043")
@pytest.mark.parametrize(
    ("identity", "said"),
    [
        ({"annotations": {"a/b": "two words"}}, "is not a value without spaces"),
        ({"roles": {"operator": {"a": "b"}}}, "registries.identity.roles"),
        ({"podLabels": {"a": None}}, "registries.identity.podLabels"),
        ({"annotation": {}}, "unknown value 'annotation'; did you mean 'annotations'?"),
    ],
    ids=str,
)
def test_an_identity_that_no_role_could_have_is_refused(
    identity: Any, said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "values.yaml"
    file.write_text(yaml.safe_dump({"registries": {"identity": identity}}))
    assert main(["install", "--print", "--values", str(file)]) == 2
    assert said in capsys.readouterr().err
