"""One machine OS image against a real API server, scheduler and registry: every status passes the rules of its API."""

import json
from typing import Any

import aiohttp
import pytest
from builder_process import BUILDER_IMAGE, builder, condition, define, seed
from machine_shop import Shop, kinds, stage
from placement_cluster import until
from registry_reader import Reader

from polyarch.builds.machineos import api
from polyarch.kube.errors import Invalid
from polyarch.kube.patches import MergePatch
from polyarch.kube.resources import CONFIGMAPS, DEPLOYMENTS, EVENTS, JOBS

pytestmark = [pytest.mark.timeout(300), pytest.mark.req("BD-074", "BD-275")]
Json = dict[str, Any]


@pytest.mark.req("BD-260", "BD-261", "BD-271", "BD-276", "BD-282", "BD-283", "BD-284", "BD-290", "BD-393")
async def test_a_machine_os_image_is_built_rolled_and_left_to_a_stock_builder(sandbox, client, namespace, tmp_path):
    """In this order, with its own rights."""
    await define(client)
    shop = Shop(sandbox, client, namespace)
    await seed(sandbox, f"{shop.release}/os:1", f"{shop.release}/extensions:1")
    async with kinds(client), builder(sandbox, client, namespace, tmp_path, machine_os=True) as running:
        await shop.furnish()
        await shop.config()
        found = await shop.published()
        (first,) = await shop.builds()
        name = first["metadata"]["name"]
        assert stage(first) == "Succeeded"
        assert first["status"]["digestedImagePushSpec"] == found["status"]["currentImagePullSpec"]
        assert [each["name"] for each in first["status"]["relatedObjects"]] == [
            f"build-{name}-{each}" for each in ("amd64", "arm64")
        ]
        async with aiohttp.ClientSession() as session:
            digest, platforms = await Reader(session, shop.address).whole(f"{namespace}/os", name)
        assert found["status"]["currentImagePullSpec"] == f"{shop.address}/{namespace}/os@{digest}"
        assert platforms == ["linux/amd64", "linux/arm64"]
        pool: Json = await client.get(api.POOLS, shop.name)
        assert condition(pool, "ImageBuildDegraded") == ("False", "BuildSuccess")
        await _copies(shop, name)

        await shop.rendered("2")
        change = {"spec": {"configuration": {"name": shop.rendered_name("2")}}}
        await client.patch(api.POOLS, shop.name, MergePatch(change))
        rolled = await shop.published(after=name)
        assert rolled["status"]["currentImagePullSpec"] == found["status"]["currentImagePullSpec"]
        second = next(each for each in await shop.builds() if each["metadata"]["name"] != name)
        assert stage(second) == "Succeeded"
        assert "builder" not in second["status"]

        await _given(shop, name)
        await _told(shop, first)
        await _images_go_with_their_builds(shop, digest)
        await _left_to_the_stock_builder(shop)
        assert await running.ready()


async def _copies(shop: Shop, name: str) -> None:
    """What Jobs mounted is in one form; it goes with the Jobs, which go once their images are published."""
    record: Json = await shop.client.get(CONFIGMAPS, api.record_name(name), namespace=shop.namespace)
    known = json.loads(record["data"]["architectures.json"])
    assert {each["architecture"]: each["phase"] for each in known["architectures"]} == {
        "amd64": "Built",
        "arm64": "Built",
    }

    async def gone() -> bool:
        return not (await shop.client.list(JOBS, namespace=shop.namespace)).items

    await until(gone, seconds=20)


async def _given(shop: Shop, name: str) -> None:
    """What the Jobs mounted; what is the build's and not a Job's is there as long as the build."""
    record: Json = await shop.client.get(CONFIGMAPS, api.record_name(name), namespace=shop.namespace)
    assert json.loads(record["data"]["execution.json"])["status"]["phase"] == "Succeeded"
    names = api.ephemeral_name(name)
    policy: Json = await shop.client.get(CONFIGMAPS, names["etc-policy"], namespace=shop.namespace)
    assert policy["data"] == {"policy.json": "{}"}
    assert f"{api.ENTITLED}etc-pki-entitlement" in policy["metadata"]["annotations"]
    found = {each["metadata"]["name"] for each in (await shop.client.list(CONFIGMAPS, namespace=shop.namespace)).items}
    assert names["etc-registries"] not in found


async def _told(shop: Shop, build: Json) -> None:
    """Events of things that are in no namespace are in ``default``."""
    name, uid = build["metadata"]["name"], build["metadata"]["uid"]

    async def told() -> bool:
        found = (await shop.client.list(EVENTS, namespace="default")).items
        reasons = {each["reason"] for each in found if each["regarding"].get("uid") == uid}
        return {"BuildStarted", "JobCreated", "JobCompleted", "BuildCompleted"} <= reasons

    try:
        await until(told, seconds=10)
    except AssertionError as error:
        error.add_note(f"about {name}")
        raise


async def _images_go_with_their_builds(shop: Shop, digest: str) -> None:
    """Both builds of one image are deleted; it stays as long as the config names it."""
    old = [each["metadata"]["name"] for each in await shop.builds()]
    async with aiohttp.ClientSession() as session:
        reader = Reader(session, shop.address)
        text = {"spec": {"containerFile": [{"containerfileArch": "NoArch", "content": "FROM configs\nRUN other\n"}]}}
        await shop.client.patch(api.CONFIGS, shop.name, MergePatch(text))
        found = await shop.published(after=(await shop.stored())["status"]["machineOSBuild"]["name"])
        assert await reader.has(f"{shop.namespace}/os", digest)
        for each in old:
            await shop.client.delete(api.BUILDS, each)

        async def gone() -> bool:
            return not await reader.has(f"{shop.namespace}/os", digest)

        await until(gone, seconds=20)
        assert await reader.has(f"{shop.namespace}/os", found["status"]["currentImagePullSpec"].rpartition("@")[2])

    async def released() -> bool:
        names = {
            each["metadata"]["name"] for each in (await shop.client.list(CONFIGMAPS, namespace=shop.namespace)).items
        }
        return not names & {api.record_name(each) for each in old}

    await until(released, seconds=20)
    assert [each["metadata"]["name"] for each in await shop.builds() if each["metadata"]["name"] in old] == []


async def _left_to_the_stock_builder(shop: Shop) -> None:
    pod = {"containers": [{"name": "builder", "image": BUILDER_IMAGE}], "nodeSelector": {"nowhere": ""}}
    marks = {"app": "stock"}
    deployment = {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": api.STOCK_DEPLOYMENT},
        "spec": {
            "replicas": 1,
            "selector": {"matchLabels": marks},
            "template": {"metadata": {"labels": marks}, "spec": pod},
        },
    }
    await shop.client.create(DEPLOYMENTS, deployment, namespace=shop.namespace)

    async def told() -> bool:
        return condition(await shop.stored(), "Progressing") == ("False", "StockBuilderRuns")

    await until(told, seconds=10)
    await shop.client.patch(api.CONFIGS, shop.name, MergePatch({"metadata": {"annotations": {api.REBUILD: ""}}}))
    await shop.client.patch(
        DEPLOYMENTS, api.STOCK_DEPLOYMENT, MergePatch({"spec": {"replicas": 0}}), namespace=shop.namespace
    )

    async def rebuilt() -> bool:
        stored = await shop.stored()
        asked = api.REBUILD in (stored["metadata"].get("annotations") or {})
        return not asked and condition(stored, "Progressing") == ("False", "Done")

    await until(rebuilt, seconds=60)


@pytest.mark.req("BD-393")
async def test_the_definitions_refuse_what_the_api_refuses(sandbox, client, namespace):
    """A test of the tests: the rules that the first one relies on bite."""
    ended = {
        "type": "Failed",
        "status": "True",
        "reason": "Failed",
        "message": "",
        "lastTransitionTime": "2026-01-01T00:00:00Z",
    }
    async with kinds(client):
        document = {
            "apiVersion": api.BUILDS.api_version,
            "kind": api.BUILDS.kind,
            "metadata": {"name": namespace},
            "spec": {
                "machineConfig": {"name": "rendered"},
                "machineOSConfig": {"name": namespace},
                "renderedImagePushSpec": "registry.example.com/os:latest",
            },
        }
        await client.create(api.BUILDS, document)
        for status in (
            {"conditions": [ended]},
            {"relatedObjects": [{"group": "", "resource": "secrets", "name": "push"}]},
            {"builder": {"imageBuilderType": "Job"}},
            {"buildStart": "2026-01-01T00:00:00Z", "buildEnd": "2026-01-01T00:00:00Z"},
            {"digestedImagePushSpec": "registry.example.com/a/b/c@sha256:" + "0" * 64},
        ):
            with pytest.raises(Invalid):
                await client.patch(api.BUILDS, namespace, MergePatch({"status": status}), subresource="status")
        with pytest.raises(Invalid):
            await client.patch(api.BUILDS, namespace, MergePatch({"spec": {"machineConfig": {"name": "x"}}}))
