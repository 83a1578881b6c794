"""Where polyarch differs from the Multiarch Tuning Operator, as `docs/guide/migration.md` states it.

Each row of the page's table is shown here on a cluster with polyarch; a row without a case fails, and so does a case
without a row.
"""

import re
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import pytest
from placement_cluster import PlacementCluster, architectures, is_gated, labels, pod, until

from polyarch.kube.patches import MergePatch
from polyarch.kube.resources import CLUSTER_ROLES, DEPLOYMENTS, NETWORK_POLICIES, POD_DISRUPTION_BUDGETS, PODS, SECRETS
from polyarch.names import DEFAULT_NAMESPACE
from polyarch.placement import names
from polyarch.placement.api import CPPCS
from polyarch.sandbox.cluster import Sandbox

PAGE = Path(__file__).parents[2] / "docs" / "guide" / "migration.md"
KNOWN = "quay.io/differences/known:1"
MISSING = "quay.io/differences/missing:1"
Case = Callable[[PlacementCluster], Awaitable[None]]


@pytest.fixture
async def cluster(placed_sandbox: Sandbox) -> AsyncIterator[PlacementCluster]:
    async with placed_sandbox.client() as client:
        cluster = PlacementCluster(placed_sandbox, client)
        await cluster.configure()
        await cluster.seed({KNOWN: ["linux/arm64", "linux/s390x"]})
        yield cluster


async def never_gated(cluster: PlacementCluster) -> None:
    async with cluster.namespace() as namespace:

        async def known() -> bool:
            return not is_gated(await cluster.create(pod(KNOWN, name="warm"), namespace, dry_run=True))

        await until(known)
        created = await cluster.create(pod(KNOWN), namespace)
        assert not is_gated(created)
        assert labels(created)[names.SCHEDULING_GATE_LABEL] == "removed"
        assert architectures(created) == ["arm64", "s390x"]


async def fewer_events(cluster: PlacementCluster) -> None:
    """An override of the policy has `events: full`."""
    async with cluster.namespace("gated") as lean, cluster.namespace("full") as full:
        for namespace in (lean, full):
            await cluster.create(pod(KNOWN), namespace)
            await cluster.released(namespace, "app")

        async def told() -> bool:
            return len(await cluster.events(full, "app")) >= 3

        await until(told)
        usual = {each["reason"] for each in await cluster.events(lean, "app")}
        assert usual < {each["reason"] for each in await cluster.events(full, "app")}


async def one_then_five(cluster: PlacementCluster) -> None:
    async with cluster.namespace("release") as namespace:
        await cluster.create(pod(MISSING), namespace)
        seen = set()

        async def given_up() -> bool:
            seen.add(labels(await cluster.get(namespace, "app")).get(names.IMAGE_INSPECT_ERROR_COUNT_LABEL))
            return "5" in seen

        await until(given_up, pause=0.02)
        assert seen - {None} == {"1", "5"}


async def known_images_constrain(cluster: PlacementCluster) -> None:
    async with cluster.namespace("release") as namespace:
        await cluster.create(pod(KNOWN, MISSING), namespace)
        assert architectures(await cluster.released(namespace, "app")) == ["arm64", "s390x"]


async def neutral_images(cluster: PlacementCluster) -> None:
    await cluster.seed({"quay.io/differences/bundle:1": {"kind": "bundle"}})
    async with cluster.namespace() as namespace:
        await cluster.create(pod("quay.io/differences/bundle:1"), namespace)
        released = await cluster.released(namespace, "app")
        assert "affinity" not in released["spec"]


async def a_bundle_that_is_an_index(cluster: PlacementCluster) -> None:
    platforms = ["linux/amd64", "linux/ppc64le"]
    await cluster.seed({"quay.io/differences/bundles:1": {"platforms": platforms, "neutral": True}})
    async with cluster.namespace() as namespace:
        await cluster.create(pod("quay.io/differences/bundles:1"), namespace)
        assert architectures(await cluster.released(namespace, "app")) == ["amd64", "ppc64le"]


async def no_roll_out(cluster: PlacementCluster) -> None:
    async def templates() -> list[object]:
        found = await cluster.client.list(DEPLOYMENTS, namespace=DEFAULT_NAMESPACE)
        return [each["spec"]["template"] for each in found.items]

    async def pods() -> set[str]:
        found = await cluster.client.list(PODS, namespace=DEFAULT_NAMESPACE)
        return {each["metadata"]["uid"] for each in found.items}

    before = await templates(), await pods()
    for level in ("Debug", "Normal"):
        changed = await cluster.client.patch(
            CPPCS, names.SINGLETON, MergePatch({"spec": {"logVerbosity": level}}), type=dict
        )
        generation = changed["metadata"]["generation"]

        async def seen(generation: int = generation) -> bool:
            configuration = await cluster.client.get(CPPCS, names.SINGLETON)
            return all(each["observedGeneration"] >= generation for each in configuration["status"]["conditions"])

        await until(seen)
        assert (await templates(), await pods()) == before


CASES: dict[str, Case] = {
    "a pod whose images are known": never_gated,
    "a pod with an image that cannot be inspected": known_images_constrain,
    "a pod of neutral images only": neutral_images,
    "an operator bundle that is an index": a_bundle_that_is_an_index,
    "label `…/image-inspect-error-count`": one_then_five,
    "Normal events": fewer_events,
    "a change of `logVerbosity`": no_roll_out,
}
"""By the first column of the table."""


def rows() -> list[str]:
    """The first column of the table of differences."""
    table = PAGE.read_text(encoding="utf-8").split("## What is different", 1)[1].split("\n## ", 1)[0]
    return re.findall(r"^\| (?!\|)(.+?) \|", table, re.MULTILINE)


@pytest.mark.req("PL-902")
@pytest.mark.parametrize("difference", rows())
async def test_the_page_states_what_polyarch_does(difference: str, cluster: PlacementCluster) -> None:
    await CASES[difference](cluster)


@pytest.mark.req("PL-902")
def test_every_known_difference_is_stated() -> None:
    assert sorted(rows()) == sorted(CASES)


@pytest.mark.req("PL-901")
async def test_nothing_else_has_to_be_installed_and_little_is_granted(cluster: PlacementCluster) -> None:
    """What an admin sees of it in the cluster: certificates of its own, budgets, network policies and limits; no files
    of the node, and no role of a pod that may list secrets."""
    client, home = cluster.client, DEFAULT_NAMESPACE
    for resource in (DEPLOYMENTS, POD_DISRUPTION_BUDGETS, NETWORK_POLICIES):
        found = {each["metadata"]["name"] for each in (await client.list(resource, namespace=home)).items}
        assert found >= {names.OPERATOR, names.WEBHOOK, names.CONTROLLER}, resource
    for each in (await client.list(DEPLOYMENTS, namespace=home)).items:
        template = each["spec"]["template"]["spec"]
        assert all("memory" in container["resources"]["limits"] for container in template["containers"])
        assert not [volume for volume in template.get("volumes", ()) if "hostPath" in volume]
    secrets = {each["metadata"]["name"] for each in (await client.list(SECRETS, namespace=home)).items}
    assert {names.CERTIFICATES_SECRET, names.AUTHORITY_SECRET} <= secrets
    for role in (names.WEBHOOK, names.CONTROLLER):
        rules = (await client.get(CLUSTER_ROLES, role))["rules"]
        assert not [each for each in rules if "secrets" in each.get("resources", ()) and each["verbs"] != ["get"]]
