"""The OLM bundle: valid by both validators, and installed as OLM would, as OLM itself is not there."""

import contextlib
import json
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from bundled import applied, read
from packaged import NAMESPACE, Packaged, packaged
from placement_cluster import architectures
from tools.generate import olm_bundle

from polyarch import __version__
from polyarch.cli import main
from polyarch.installation.settings import REGISTRIES_CONFIGMAP
from polyarch.kube.errors import ApiError, NotFound
from polyarch.kube.rbac import granting, grants
from polyarch.kube.resources import NAMESPACES, VALIDATING_WEBHOOKS, Resource, by_kind
from polyarch.operator.components.operator_rbac import machine_os_permissions
from polyarch.operator.settings import DEFAULT_BUILDER_IMAGE, DEFAULT_IMAGE, ClusterCapabilities, OperatorSettings
from polyarch.placement.api import CPPCS, PPCS
from polyarch.platforms import IMAGE_ARCHITECTURES
from polyarch.sandbox.cluster import Sandbox
from polyarch.taints.api import ARCHITECTURE_TAINTS

DIGEST = "sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"
IMAGE = f"{DEFAULT_IMAGE.rpartition(':')[0]}@{DIGEST}"
Document = dict[str, Any]


@pytest.fixture
def bundle(tmp_path: Path) -> Path:
    """The bundle as a release has it, with the image by digest."""
    assert olm_bundle.main([str(tmp_path / "bundle"), "--image", IMAGE]) == 0
    return tmp_path / "bundle"


@pytest.fixture
def platforms(tmp_path: Path) -> Path:
    path = tmp_path / "platforms.yaml"
    every = [f"linux/{each}" for each in IMAGE_ARCHITECTURES]
    path.write_text(yaml.safe_dump({IMAGE: every, DEFAULT_BUILDER_IMAGE: every}))
    return path


def csv(bundle: Path) -> Document:
    (found,) = read(bundle)["ClusterServiceVersion"]
    return found


@pytest.mark.req("IN-012")
def test_polyarch_finds_nothing_in_its_own_bundle(bundle: Path, platforms: Path, capsys) -> None:
    """But that it builds with buildah of a tag, so that a cluster gets its fixes; who mirrors it pins it."""
    known = ("--offline", "--platforms-file", str(platforms))
    assert main(["bundle", "validate", str(bundle), *known, "--fail-on", "warning", "-o", "json"]) == 0
    found = json.loads(capsys.readouterr().out)["findings"]
    assert {each["rule"] for each in found} <= {"MA207"}
    assert all(DEFAULT_BUILDER_IMAGE in each["message"] for each in found)


@pytest.mark.req("IN-012")
def test_the_real_validator_passes_it(bundle: Path, peer: Callable[[str], str]) -> None:
    """That of operator-sdk's library; it cannot pull here, so it is asked for what it says without a container tool."""
    said = subprocess.run(
        [peer("multiarch-validator"), "validate", str(bundle / "manifests"), "none"],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert said.returncode == 0, said.stdout + said.stderr


@pytest.mark.req("IN-012")
def test_it_promises_the_architectures_of_the_image_by_digest(bundle: Path) -> None:
    document = csv(bundle)
    promised = {key.rpartition(".")[2] for key in document["metadata"]["labels"] if "/arch." in key}
    assert promised == set(IMAGE_ARCHITECTURES)
    related = {each["name"]: each["image"] for each in document["spec"]["relatedImages"]}
    assert related == {"polyarch": IMAGE, "buildah": DEFAULT_BUILDER_IMAGE}
    assert olm_bundle.main([str(bundle), "--image", DEFAULT_IMAGE]) == 2, "an image by tag is refused"


@pytest.mark.req("BD-331")
def test_rights_for_machine_os_images_are_beside_the_bundle(bundle: Path) -> None:
    """OLM would grant `get secrets` in every namespace; a Subscription without this file has none of it."""
    beside = [each for each in yaml.safe_load_all((bundle / "machine-os.yaml").read_text()) if "rules" in each]
    settings = OperatorSettings(builds="on", machine_os="on", numa="off")
    needed = machine_os_permissions(settings, ClusterCapabilities(openshift=True))
    by_place = {each["metadata"].get("namespace", ""): set(grants(granting([each]))) for each in beside}
    assert by_place == {place: set(grants(rules)) for place, rules in {"": needed.cluster, **needed.namespaces}.items()}
    assert "machineosconfigs" not in str(csv(bundle))


@pytest.mark.req("IN-012")
def test_it_can_be_upgraded_and_shown(bundle: Path) -> None:
    metadata = csv(bundle)["metadata"]
    assert metadata["annotations"]["olm.skipRange"] == f"<{__version__}"
    examples = json.loads(metadata["annotations"]["alm-examples"])
    assert {each["kind"] for each in examples} == {
        "ArchitectureTaints",
        "ClusterPodPlacementConfig",
        "ImageBuild",
        "NUMAResourcesOperator",
        "NUMAResourcesScheduler",
        "PlacementPolicy",
        "PodPlacementConfig",
    }
    kinds = {each["name"] for each in csv(bundle)["spec"]["customresourcedefinitions"]["owned"]}
    assert kinds == {each["metadata"]["name"] for each in read(bundle)["CustomResourceDefinition"]}


@pytest.mark.req("IN-012")
def test_the_bundle_image_carries_the_annotations(bundle: Path) -> None:
    annotations = yaml.safe_load((bundle / "metadata" / "annotations.yaml").read_text())["annotations"]
    lines = (bundle / "bundle.Dockerfile").read_text().splitlines()
    assert {f"LABEL {key}={value}" for key, value in annotations.items()} <= set(lines)


@pytest.mark.req("IN-012")
@pytest.mark.timeout(900)
async def test_installed_as_olm_would_it_places_pods_and_judges_custom_resources(
    running_sandbox: Sandbox, bundle: Path
) -> None:
    """With OLM's certificate, Service, webhooks and conversion; the operator registers none of its own."""
    async with packaged(running_sandbox) as cluster:
        client = cluster.client
        for name in ("shop", NAMESPACE):
            await client.create(NAMESPACES, {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
        made = [*mirrors(cluster), *applied(bundle, NAMESPACE)]
        subscribed(made)
        for document in made:
            namespace = document["metadata"].get("namespace", "")
            await client.apply(resource(document), document, namespace=namespace, field_manager="olm")
        await cluster.available()
        for kind in (CPPCS, ARCHITECTURE_TAINTS):
            (example,) = [each for each in examples(bundle) if each["kind"] == kind.kind]
            await client.apply(kind, example, field_manager="admin")
        await cluster.available(CPPCS, ARCHITECTURE_TAINTS)
        assert architectures(await cluster.placed("shop", "quay.io/bundle/shop:1")) == ["arm64"]
        former = Resource(CPPCS.group, "v1alpha1", CPPCS.plural, CPPCS.kind, namespaced=False)
        assert (await client.get(former, "cluster"))["apiVersion"] == "multiarch.openshift.io/v1alpha1"
        await client.create(PPCS, preference("first"), namespace="shop")
        with pytest.raises(ApiError, match="already used by PodPlacementConfig first"):
            await client.create(PPCS, preference("second"), namespace="shop")
        await client.delete(PPCS, "first", namespace="shop")
        with pytest.raises(NotFound):
            await client.get(VALIDATING_WEBHOOKS, "polyarch-operator")
        for kind in (CPPCS, ARCHITECTURE_TAINTS):
            await client.delete(kind, "cluster")
            await cluster.gone(kind, "cluster")
        assert await cluster.deployments() == ["polyarch-operator"]
        for document in reversed(made):
            metadata = document["metadata"]
            with contextlib.suppress(NotFound):
                await client.delete(resource(document), metadata["name"], namespace=metadata.get("namespace", ""))
        for name in ("shop", NAMESPACE):
            await client.delete(NAMESPACES, name)
            await cluster.gone(NAMESPACES, name)
        assert await cluster.left() == set()


def resource(document: Document) -> Resource:
    return by_kind(document["apiVersion"], document["kind"])


def examples(bundle: Path) -> list[Document]:
    return list(json.loads(csv(bundle)["metadata"]["annotations"]["alm-examples"]))


def preference(name: str) -> Document:
    spec = {"plugins": {}, "priority": 65}
    return {"apiVersion": PPCS.api_version, "kind": PPCS.kind, "metadata": {"name": name}, "spec": spec}


def mirrors(cluster: Packaged) -> list[Document]:
    data = {"registries.conf": cluster.values()["registries"]["configuration"]}
    metadata = {"name": REGISTRIES_CONFIGMAP, "namespace": NAMESPACE}
    return [{"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": data}]


def subscribed(made: list[Document]) -> None:
    """``spec.config.env`` of a Subscription: OLM adds it to each container."""
    variables = {"POLYARCH_REGISTRIES_CONFIGMAP": REGISTRIES_CONFIGMAP, "POLYARCH_ALLOW_ADDRESS": "127.0.0.0/8"}
    for document in made:
        if document["kind"] == "Deployment":
            for container in document["spec"]["template"]["spec"]["containers"]:
                container["env"] += [{"name": name, "value": value} for name, value in variables.items()]
