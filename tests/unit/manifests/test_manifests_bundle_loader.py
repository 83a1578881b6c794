"""Finding the ClusterServiceVersion of a bundle."""

import pytest
from bundling import csv, dumped

from polyarch.manifests.bundle import ANNOTATIONS, BundleNotValid, BundleTree, candidates, load

CSV = dumped(csv()).encode()
SERVICE = b"apiVersion: v1\nkind: Service\nmetadata: {name: a}\n"


def annotations(**values: str) -> bytes:
    lines = [f"  operators.operatorframework.io.bundle.{key}.v1: {value}" for key, value in values.items()]
    return ("annotations:\n" + "\n".join(lines) + "\n").encode()


@pytest.mark.req("MF-071")
@pytest.mark.parametrize(
    "files",
    [
        pytest.param({"manifests/a.yaml": CSV}, id="manifests"),
        pytest.param({"a.yaml": CSV}, id="the directory itself"),
        pytest.param({"olm/a.yaml": CSV, ANNOTATIONS: annotations(manifests="olm/")}, id="named"),
        pytest.param({"deploy/olm/a.yaml": CSV, ANNOTATIONS: annotations(manifests="deploy/olm")}, id="named deeper"),
        pytest.param({"a.yaml": CSV, ANNOTATIONS: annotations(manifests="./")}, id="named as the root"),
        pytest.param({"manifests/a.yaml": CSV, ANNOTATIONS: annotations(mediatype="registry+v1")}, id="media type"),
        pytest.param({"manifests/a.yaml": CSV, "manifests/b.yaml": SERVICE, "other/c.txt": b"{{"}, id="others beside"),
    ],
)
def test_MF_071_finds_the_manifests(files: dict[str, bytes]) -> None:
    found = load(BundleTree("acme", files))
    assert found.name == "acme.v1"
    assert len(found.service_version.pod_specs) == 1
    assert all(scan.source.path.startswith("acme/") for scan in found.scans)


@pytest.mark.req("MF-071")
@pytest.mark.parametrize(
    ("files", "directories", "problem"),
    [
        pytest.param({"manifests/b.yaml": SERVICE}, (), "no ClusterServiceVersion in acme/manifests", id="none"),
        pytest.param({}, (), "no ClusterServiceVersion", id="empty"),
        pytest.param({"manifests/a.yaml": CSV, "manifests/b.yaml": CSV}, (), "2 ClusterServiceVersions", id="two"),
        pytest.param({"manifests/a.yaml": CSV + b"---\n" + CSV}, (), "2 ClusterServiceVersions", id="two in a file"),
        pytest.param({"manifests/a.yaml": CSV}, ("manifests/x",), "sub-directory x", id="sub-directory"),
        pytest.param({"manifests/a.yaml": CSV, "manifests/x/b.yaml": SERVICE}, (), "sub-directory x", id="file in it"),
        pytest.param({"manifests/a.yaml": CSV, "manifests/.b": b""}, (), "hidden file .b", id="hidden"),
        pytest.param({"manifests/a.yaml": CSV, "manifests/b.yaml": b"a: [\n"}, (), "b.yaml:2:1", id="no YAML"),
        pytest.param({"manifests/a.yaml": CSV, "manifests/README.md": b"# Hello\n"}, (), "README.md", id="a text"),
        pytest.param({"manifests/a.yaml": CSV, "manifests/b.yaml": b"a: {{ x }}\n"}, (), "template", id="a template"),
        pytest.param({"manifests/a.yaml": CSV, "manifests/b": b"\xff\xfea\0"}, (), "UTF-8", id="not UTF-8"),
        pytest.param(
            {"manifests/a.yaml": CSV, ANNOTATIONS: annotations(mediatype="plain+v0")}, (), "registry", id="media type"
        ),
        pytest.param(
            {"manifests/a.yaml": CSV, ANNOTATIONS: annotations(manifests="olm/")}, (), "no such directory", id="missing"
        ),
        pytest.param(
            {"manifests/a.yaml": CSV, ANNOTATIONS: annotations(manifests="../x")},
            (),
            "outside the bundle",
            id="outside",
        ),
        pytest.param({"manifests/a.yaml": CSV, ANNOTATIONS: b"a: ["}, (), "annotations.yaml is not YAML", id="broken"),
    ],
)
def test_MF_071_what_is_no_bundle(files: dict[str, bytes], directories: tuple[str, ...], problem: str) -> None:
    with pytest.raises(BundleNotValid, match=problem) as raised:
        load(BundleTree("acme", files, frozenset(directories)))
    assert raised.value.missing == ("no ClusterServiceVersion" in str(raised.value))


@pytest.mark.req("MF-071")
def test_MF_071_a_broken_resource_definition_is_not_YAML_either() -> None:
    broken = b"apiVersion: apiextensions.k8s.io/v1\nkind: CustomResourceDefinition\nspec: [\n"
    with pytest.raises(BundleNotValid, match=r"crd\.yaml:4:1"):
        load(BundleTree("acme", {"manifests/a.yaml": CSV, "manifests/crd.yaml": broken}))


def test_the_directories_to_look_at() -> None:
    assert candidates(BundleTree("acme", {ANNOTATIONS: annotations(manifests="olm/")})) == ("manifests", "olm")
    assert candidates(BundleTree("acme", {})) == ("manifests",)
