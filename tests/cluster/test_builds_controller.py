"""The builder against a real API server, scheduler and registry: from an ImageBuild to a published index."""

import pytest
from builder_process import builder, condition, define, image_build, runs, seed, settled, story

from polyarch.builds import names
from polyarch.kube.resources import JOBS

pytestmark = pytest.mark.timeout(300)


@pytest.mark.req("BD-390")
async def test_an_image_build_goes_through_to_a_published_index(sandbox, client, namespace, tmp_path):
    await define(client)
    base = f"quay.io/{namespace}/base:1"
    await seed(sandbox, base)
    async with builder(sandbox, client, namespace, tmp_path):
        document = image_build("web", f"{sandbox.registry.address}/{namespace}/web", f"FROM {base}\nRUN true\n")
        document["spec"]["architectures"] = {"mode": "Explicit", "list": ["amd64", "arm64"]}
        await client.create(names.IMAGE_BUILDS, document, namespace=namespace)
        found = await settled(client, namespace, "web")
    assert condition(found, "Ready") == ("True", "Published"), await story(client, namespace)
    assert found["status"]["architectures"] == ["amd64", "arm64"]
    (run,) = await runs(client, namespace)
    assert run["status"]["phase"] == "Succeeded"
    assert (await client.list(JOBS, namespace=namespace)).items == []
