"""What the API server refuses of ImageBuilds and of their runs, and in which words."""

import asyncio
import re
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import msgspec
import pytest
from build_refusals import ACCEPTED, REFUSED, Json, spec

from polyarch.builds.api.crd import IMMUTABLE, crds
from polyarch.builds.api.resources import ImageBuild, ImageBuildSpec
from polyarch.builds.api.validation import object_problems
from polyarch.builds.names import IMAGE_BUILD_RUNS, IMAGE_BUILDS
from polyarch.kube import config
from polyarch.kube.client import Client
from polyarch.kube.errors import Invalid, NotFound
from polyarch.kube.patches import MergePatch
from polyarch.kube.resources import CRDS, Resource
from polyarch.sandbox.cluster import Sandbox

ESTABLISHED_SECONDS = 60
TABLE = "application/json;as=Table;v=v1;g=meta.k8s.io"
"""What kubectl asks for."""
NAMESPACE = "default"
KEY = "0123456789abcdef" * 4
DIGEST = f"sha256:{KEY}"


@pytest.fixture(scope="module")
def definitions(sandbox: Sandbox) -> None:
    """The API server serves both kinds."""
    with ThreadPoolExecutor(1) as thread:
        thread.submit(asyncio.run, _define(str(sandbox.kubeconfig))).result()


async def _define(kubeconfig: str) -> None:
    async with Client(config.load(kubeconfig), role="tests") as client:
        for document in crds():
            await client.apply(CRDS, document)
        async with asyncio.timeout(ESTABLISHED_SECONDS):
            while not (await served(client, IMAGE_BUILDS) and await served(client, IMAGE_BUILD_RUNS)):
                await asyncio.sleep(0.1)


@pytest.fixture
def api(client: Client, definitions: None) -> Client:
    """A client of an API server that serves both kinds."""
    return client


async def served(client: Client, resource: Resource) -> bool:
    try:
        await client.list(resource, namespace=NAMESPACE)
    except NotFound:
        return False
    return True


def of(content: Json, name: str = "web") -> Json:
    return document(IMAGE_BUILDS, content, name)


def document(resource: Resource, content: Json, name: str) -> Json:
    return {
        "apiVersion": resource.api_version,
        "kind": resource.kind,
        "metadata": {"name": name, "namespace": NAMESPACE},
        "spec": content,
    }


def run(**members: Any) -> Json:
    return {
        "imageBuild": {"name": "web", "uid": "1", "generation": 1},
        "serial": 1,
        "buildKey": KEY,
        "architectures": [{"architecture": "amd64", "key": KEY}, {"architecture": "arm64", "key": KEY}],
        "pins": [{"reference": "docker.io/library/busybox:1.36", "architecture": "arm64", "digest": DIGEST}],
        "repository": "registry.example.com/team/web",
        "indexAnnotations": {"org.example/team": "web"},
        "forced": {"token": "1", "architectures": ["arm64"]},
    } | members


@pytest.mark.req("BD-010", "BD-012")
@pytest.mark.parametrize("content", [row[1] for row in ACCEPTED], ids=[row[0] for row in ACCEPTED])
async def test_what_is_accepted_means_the_same_as_in_a_file(api: Client, content: Json) -> None:
    """And what the API server fills in is what the types have."""
    stored = await api.create(IMAGE_BUILDS, of(content), namespace=NAMESPACE, dry_run=True, type=dict)
    assert object_problems(stored) == ()
    read = msgspec.convert(stored, ImageBuild).spec
    plain = msgspec.convert(content, ImageBuildSpec)
    assert msgspec.structs.replace(read, emulation=plain.emulation, source=plain.source) == plain


@pytest.mark.req("BD-011", "BD-012")
@pytest.mark.parametrize(("content", "said"), [row[1:] for row in REFUSED], ids=[row[0] for row in REFUSED])
async def test_what_is_refused_and_in_which_words(api: Client, content: Json, said: list[str]) -> None:
    """The message names the field and what is wanted."""
    with pytest.raises(Invalid) as refusal:
        await api.create(IMAGE_BUILDS, of(content), namespace=NAMESPACE, dry_run=True)
    message = str(refusal.value)
    assert all(re.search(part.replace("[", r"\[").replace("]", r"\]"), message) for part in said), message


@pytest.fixture
async def made(api: Client) -> AsyncIterator[Client]:
    """The same, with an ImageBuild and a run of it."""
    await api.create(IMAGE_BUILDS, of(spec()), namespace=NAMESPACE)
    await api.create(IMAGE_BUILD_RUNS, document(IMAGE_BUILD_RUNS, run(), "web-1"), namespace=NAMESPACE)
    try:
        yield api
    finally:
        await api.delete(IMAGE_BUILD_RUNS, "web-1", namespace=NAMESPACE)
        await api.delete(IMAGE_BUILDS, "web", namespace=NAMESPACE)


@pytest.mark.xdist_group("builds-schema")
class TestObjects:
    """Real objects, one test after another."""

    @pytest.mark.req("BD-020")
    async def test_the_spec_of_a_run_never_changes(self, made: Client) -> None:
        """Labels, owners and status do."""
        for change in ({"serial": 2}, {"pins": []}, {"forced": None}, {"architectures": [{"architecture": "amd64"}]}):
            with pytest.raises(Invalid) as refusal:
                await made.patch(IMAGE_BUILD_RUNS, "web-1", MergePatch({"spec": change}), namespace=NAMESPACE)
            assert IMMUTABLE in str(refusal.value) or "Required value" in str(refusal.value)
        await made.patch(
            IMAGE_BUILD_RUNS, "web-1", MergePatch({"metadata": {"labels": {"a": "b"}}}), namespace=NAMESPACE
        )

    @pytest.mark.req("BD-013", "BD-014")
    async def test_status_and_columns_of_an_image_build(self, made: Client) -> None:
        """Nothing of the status is dropped."""
        now = "2026-01-01T00:00:00Z"
        condition = {"type": "Ready", "status": "True", "reason": "Published", "message": "", "lastTransitionTime": now}
        reference = f"registry.example.com/team/web@{DIGEST}"
        status = {
            "observedGeneration": 1,
            "conditions": [condition],
            "architectures": ["amd64", "arm64"],
            "image": reference,
            "images": [{"architecture": "amd64", "reference": reference}],
            "tags": ["latest"],
            "currentRun": "web-1",
            "activeRun": "web-2",
            "buildKey": KEY,
            "bases": [
                {
                    "reference": "docker.io/library/busybox:1.36",
                    "digest": DIGEST,
                    "children": [{"architecture": "arm64", "digest": DIGEST}],
                    "resolvedTime": now,
                }
            ],
            "rebuildToken": "1",
            "lastFailure": {"run": "web-0", "reason": "BuildFailed", "message": "x", "architectures": ["arm64"]},
            "summary": "2/2",
        }
        assert await told(made, IMAGE_BUILDS, "web", status) == status
        assert await shown(made, IMAGE_BUILDS) == {
            "Name": "web",
            "Ready": "True",
            "Architectures": "2/2",
            "Run": "web-1",
            "Image": reference,
        }

    @pytest.mark.req("BD-022")
    async def test_status_and_columns_of_a_run(self, made: Client) -> None:
        """Nothing of the status is dropped."""
        now = "2026-01-01T00:00:00Z"
        architecture = {
            "architecture": "arm64",
            "phase": "Built",
            "key": KEY,
            "execution": "Native",
            "host": "arm64",
            "job": "web-1-arm64",
            "jobUID": "2",
            "node": "node-1",
            "attempts": 1,
            "digest": DIGEST,
            "size": 500,
            "mediaType": "application/vnd.oci.image.manifest.v1+json",
            "variant": "v8",
            "reusedFrom": "web-0",
            "startTime": now,
            "completionTime": now,
            "reason": "Built",
            "message": "é" * 1024,
        }
        status = {
            "phase": "Succeeded",
            "architectures": [architecture],
            "index": {"mediaType": "x", "digest": DIGEST, "size": 900, "pushedTime": now},
            "result": f"registry.example.com/team/web@{DIGEST}",
            "conditions": [
                {"type": "Succeeded", "status": "True", "reason": "Done", "message": "", "lastTransitionTime": now}
            ],
            "startTime": now,
            "completionTime": now,
            "duration": "4m10s",
            "summary": "2/2",
        }
        assert await told(made, IMAGE_BUILD_RUNS, "web-1", status) == status
        assert await shown(made, IMAGE_BUILD_RUNS) == {
            "Name": "web-1",
            "Phase": "Succeeded",
            "Architectures": "2/2",
            "Result": f"registry.example.com/team/web@{DIGEST}",
            "Duration": "4m10s",
        }
        long = {"architectures": [architecture | {"message": "a" * 1025}]}
        with pytest.raises(Invalid, match="1024"):
            await told(made, IMAGE_BUILD_RUNS, "web-1", long)


async def told(client: Client, resource: Resource, name: str, status: Json) -> Any:
    """The status as it was stored."""
    patch = MergePatch({"status": status})
    answer = await client.patch(resource, name, patch, subresource="status", namespace=NAMESPACE, type=dict)
    return answer["status"]


async def shown(client: Client, resource: Resource) -> Json:
    """A row of `kubectl get -o wide`, without the age."""
    path = f"/apis/{resource.api_version}/namespaces/{NAMESPACE}/{resource.plural}"
    table = msgspec.json.decode(await client.raw("GET", path, accept=TABLE))
    names = [each["name"] for each in table["columnDefinitions"]]
    row = dict(zip(names, table["rows"][0]["cells"], strict=True))
    assert isinstance(row.pop("Age"), str)
    return row
