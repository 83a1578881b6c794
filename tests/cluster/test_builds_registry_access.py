"""A build whose registry work pods do: they join, tag and in the end delete; the builder asks nothing."""

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from build_yard import TEXT, Yard

from polyarch.builds import names
from polyarch.kube.client import Client
from polyarch.kube.errors import NotFound
from polyarch.kube.patches import MergePatch
from polyarch.sandbox.cluster import Sandbox

SECONDS = 120.0


@pytest.fixture
def sandbox(building_sandbox: Sandbox) -> Sandbox:
    return building_sandbox


@pytest.fixture
def yard(sandbox: Sandbox, client: Client, namespace: str, tmp_path: Path) -> Yard:
    return Yard(sandbox, client, namespace, tmp_path)


async def until(yard: Yard, fits: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
    """The build once it is so."""
    async with asyncio.timeout(SECONDS):
        while not fits(found := await yard.build()):
            await asyncio.sleep(0.1)
    return found


def has_tags(*tags: str) -> Callable[[dict[str, Any]], bool]:
    return lambda build: (build.get("status") or {}).get("tags") == list(tags)


@pytest.mark.req("BD-102", "BD-178", "BD-231", "BD-233")
async def test_pods_publish_move_tags_and_delete(yard: Yard, client: Client) -> None:
    document = {
        "apiVersion": names.IMAGE_BUILDS.api_version,
        "kind": "ImageBuild",
        "metadata": {"name": yard.name},
        "spec": {
            "source": {"containerfile": TEXT},
            "architectures": {"mode": "Explicit", "list": ["amd64", "arm64"]},
            "output": {"repository": yard.repository, "tags": ["one"]},
            "registryAccess": "Job",
            "history": {"images": "Delete"},
        },
    }
    await client.create(names.IMAGE_BUILDS, document, namespace=yard.namespace)
    built = await until(yard, has_tags("one"))
    image = built["status"]["image"]
    assert sorted(await yard.children()) == ["amd64", "arm64"]
    assert (await yard.inspect(f"{yard.repository}:one")).digest == image.partition("@")[2]
    (run,) = await yard.runs()
    assert run["status"]["phase"] == "Succeeded"
    assert run["spec"]["pins"] == [], "references are not looked up"

    tags = {"spec": {"output": {"tags": ["one", "two"]}}}
    await client.patch(names.IMAGE_BUILDS, yard.name, MergePatch(tags), namespace=yard.namespace)
    await until(yard, has_tags("one", "two"))
    assert (await yard.inspect(f"{yard.repository}:two")).digest == image.partition("@")[2]

    await client.delete(names.IMAGE_BUILDS, yard.name, namespace=yard.namespace)
    async with asyncio.timeout(SECONDS):
        while await yard.runs():
            await asyncio.sleep(0.1)
    with pytest.raises(NotFound):
        await yard.build()
    error = (await yard.inspect(image)).error
    assert error is not None
    assert error.error_class == "absent"
