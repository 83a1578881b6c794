"""Images of every shape, read from a real registry, as placement understands them."""

from collections.abc import AsyncIterator

import pytest
from placement_cluster import PlacementCluster, architectures, decision, labels, pod

from polyarch.kube.patches import StrategicPatch
from polyarch.kube.resources import PODS
from polyarch.placement import names
from polyarch.sandbox.cluster import Sandbox

BOTH = ["linux/amd64", "linux/arm64"]


@pytest.fixture
async def cluster(placed_sandbox: Sandbox) -> AsyncIterator[PlacementCluster]:
    async with placed_sandbox.client() as client:
        cluster = PlacementCluster(placed_sandbox, client)
        await cluster.configure()
        yield cluster


@pytest.mark.req("PL-306", "PL-400", "PL-900")
@pytest.mark.parametrize(
    ("name", "description", "expected"),
    [
        ("single", {"platforms": ["linux/s390x"], "kind": "image"}, ["s390x"]),
        ("docker", {"platforms": BOTH, "format": "docker"}, ["amd64", "arm64"]),
        ("attested", {"platforms": BOTH, "attestations": True}, ["amd64", "arm64"]),
        ("nested", {"platforms": BOTH, "nested": True}, ["amd64", "arm64"]),
        ("unstated", {"platforms": BOTH, "withoutPlatform": ["linux/arm64"]}, ["amd64", "arm64"]),
        (
            "dangling",
            {"platforms": BOTH, "withoutPlatform": ["linux/arm64"], "missing": ["linux/arm64"]},
            ["amd64"],
        ),
        ("variants", {"platforms": ["linux/arm/v6", "linux/arm/v7", "linux/arm64/v8"]}, ["arm", "arm64"]),
        ("foreign", {"platforms": ["darwin/arm64", "linux/ppc64le"]}, ["ppc64le"]),
        ("artifact", {"kind": "artifact"}, None),
        ("bundle", {"platforms": ["linux/amd64"], "kind": "bundle"}, None),
    ],
)
async def test_what_an_image_says_is_what_the_pod_is_limited_to(cluster, name, description, expected):
    """No shape crashes or blocks, and nothing is guessed."""
    image = f"quay.io/shapes/{name}:1"
    await cluster.seed({image: description})
    async with cluster.namespace("gated") as namespace:
        await cluster.create(pod(image), namespace)
        placed = await cluster.released(namespace, "app")
        assert architectures(placed) == expected
        assert decision(placed)["reason"] == ("ArchitecturesSet" if expected else "AllImagesNeutral")


@pytest.mark.req("PL-116", "PL-400")
async def test_tag_and_digest_the_digest_decides(cluster):
    """Also when the tag has moved; the digest decided upon is in the annotation."""
    first = (await cluster.sandbox.registry.seed({"quay.io/shapes/moved:1": ["linux/amd64"]}))[0]
    await cluster.seed({"quay.io/shapes/moved:1": ["linux/s390x"]})
    by_digest = f"quay.io/shapes/moved:1@{first.digest}"
    async with cluster.namespace("gated") as namespace:
        await cluster.create(pod(by_digest, name="digest"), namespace)
        placed = await cluster.released(namespace, "digest")
        assert architectures(placed) == ["amd64"]
        assert decision(placed)["images"] == {by_digest: first.digest.partition(":")[2][:12]}
        await cluster.create(pod("quay.io/shapes/moved:1", name="tag"), namespace)
        assert architectures(await cluster.released(namespace, "tag")) == ["s390x"]


@pytest.mark.req("PL-112", "PL-116", "PL-404")
async def test_a_moved_tag_is_seen_where_the_policy_is_always(cluster):
    """Checked during the admission, whatever was known before."""
    await cluster.seed({"quay.io/shapes/always:1": ["linux/amd64"]})
    document = pod("quay.io/shapes/always:1")
    document["spec"]["containers"][0]["imagePullPolicy"] = "Always"
    async with cluster.namespace() as namespace:
        assert architectures(await cluster.create(document, namespace, dry_run=True)) == ["amd64"]
        await cluster.seed({"quay.io/shapes/always:1": ["linux/ppc64le"]})
        created = await cluster.create(document, namespace)
        assert architectures(created) == ["ppc64le"]
        assert decision(created)["by"] == "admission"


@pytest.mark.req("PL-115")
async def test_a_gated_pod_is_decided_from_its_stored_spec(cluster):
    """The image is changed while the pod waits; nothing from admission is trusted."""
    await cluster.seed({"quay.io/shapes/corrected:2": ["linux/arm64"]})
    async with cluster.namespace("hold") as namespace:
        await cluster.create(pod("quay.io/shapes/corrected:1"), namespace)
        await cluster.labelled(namespace, "app", names.IMAGE_INSPECT_ERROR_COUNT_LABEL, "5", seconds=30)
        correction = StrategicPatch({"spec": {"containers": [{"name": "c0", "image": "quay.io/shapes/corrected:2"}]}})
        await cluster.client.patch(PODS, "app", correction, namespace=namespace)
        placed = await cluster.released(namespace, "app")
        assert architectures(placed) == ["arm64"]
        assert list(decision(placed)["images"]) == ["quay.io/shapes/corrected:2"]
        assert names.IMAGE_INSPECT_ERROR_LABEL not in labels(placed)


@pytest.mark.req("PL-210")
async def test_init_containers_and_sidecars_count(cluster):
    await cluster.seed({"quay.io/shapes/main:1": BOTH, "quay.io/shapes/init:1": ["linux/arm64", "linux/s390x"]})
    async with cluster.namespace("gated") as namespace:
        init = {
            "name": "i",
            "image": "quay.io/shapes/init:1",
            "imagePullPolicy": "IfNotPresent",
            "restartPolicy": "Always",
        }
        await cluster.create(pod("quay.io/shapes/main:1", initContainers=[init]), namespace)
        assert architectures(await cluster.released(namespace, "app")) == ["arm64"]


@pytest.mark.req("PL-401")
async def test_an_index_without_anything_to_run_is_no_error_but_impossible(cluster):
    await cluster.seed({"quay.io/shapes/nothing:1": {"platforms": ["darwin/arm64", "windows/amd64"]}})
    await cluster.seed({"quay.io/shapes/linux:1": ["linux/amd64"]})
    async with cluster.namespace("gated") as namespace:
        await cluster.create(pod("quay.io/shapes/nothing:1", "quay.io/shapes/linux:1"), namespace)
        placed = await cluster.released(namespace, "app")
        assert decision(placed)["reason"] == "NoSupportedArchitecture"
        assert names.NO_SUPPORTED_ARCH_LABEL in labels(placed)
