"""Old runs and their images in a real cluster and registry: what goes, and what somebody else still needs."""

import asyncio
import json
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from build_yard import TEXT, Yard

from polyarch.builds import names
from polyarch.kube.client import Client
from polyarch.sandbox.cluster import Sandbox
from polyarch.sandbox.fake_buildah import ARGUMENT


@pytest.fixture
def sandbox(building_sandbox: Sandbox) -> Sandbox:
    return building_sandbox


@pytest.fixture
def yard(sandbox: Sandbox, client: Client, namespace: str, tmp_path: Path) -> Yard:
    return Yard(sandbox, client, namespace, tmp_path)


@pytest.mark.req("BD-230", "BD-231", "BD-233")
async def test_what_only_an_old_run_refers_to_goes_with_it(yard: Yard) -> None:
    """A child that is shared stays; with the ImageBuild everything goes."""
    first = await build(yard, "arm", images="Delete")
    old = await yard.children()
    second = await build(yard, "other arm", images="Delete")
    new = await yard.children()
    assert new["amd64"] == old["amd64"]
    await until(lambda: _runs(yard), [second["currentRun"]])
    repository = yard.repository
    gone = [
        first["image"],
        f"{repository}@{old['arm64']}",
        *(f"{repository}:{first['currentRun']}{each}" for each in ("", "-arm64")),
    ]
    for reference in gone:
        assert not await exists(yard, reference), reference
    for reference in (second["image"], *(f"{repository}@{each}" for each in new.values())):
        assert await exists(yard, reference), reference

    await yard.client.delete(names.IMAGE_BUILDS, yard.name, namespace=yard.namespace, propagation="Foreground")
    await until(lambda: _runs(yard), [])
    for reference in (second["image"], *(f"{repository}@{each}" for each in new.values())):
        assert not await exists(yard, reference), reference


@pytest.mark.req("BD-236")
async def test_images_outlive_their_image_build_unless_it_says_otherwise(yard: Yard) -> None:
    found = await build(yard, "arm")
    children = await yard.children()
    await yard.client.delete(names.IMAGE_BUILDS, yard.name, namespace=yard.namespace)
    await until(lambda: _runs(yard), [])
    for reference in (found["image"], *(f"{yard.repository}@{each}" for each in children.values())):
        assert await exists(yard, reference), reference


async def build(yard: Yard, arm: str, **history: Any) -> dict[str, Any]:
    """Build for two architectures, arm64 with a step of its own, until it is published; the status."""
    document = {
        "apiVersion": names.IMAGE_BUILDS.api_version,
        "kind": names.IMAGE_BUILDS.kind,
        "metadata": {"name": yard.name},
        "spec": {
            "source": {
                "containerfile": TEXT,
                "buildArgs": {ARGUMENT: "seconds=0.2"},
                "overrides": [{"architecture": "arm64", "containerfile": f"{TEXT}RUN {arm}\n"}],
            },
            "output": {"repository": yard.repository},
            "architectures": {"mode": "Explicit", "list": ["amd64", "arm64"]},
            "history": {"successful": 1, **history},
        },
    }
    yard.write("shop.json", json.dumps(document))
    ran = await yard.command("run", "-f", "shop.json", "--timeout", "240")
    assert ran.code == 0, ran.err
    return await yard.status()


async def exists(yard: Yard, reference: str) -> bool:
    return (await yard.inspect(reference)).error is None


async def _runs(yard: Yard) -> list[str]:
    return [each["metadata"]["name"] for each in await yard.runs()]


async def until(ask: Callable[[], Awaitable[Any]], wanted: Any) -> None:
    async with asyncio.timeout(120):
        while await ask() != wanted:
            await asyncio.sleep(0.2)
