"""The fake API server that other tests use does as a real one does."""

from typing import Any

import pytest
from fake_api import FakeApi

from polyarch.kube.client import Client
from polyarch.kube.errors import ApiError
from polyarch.kube.patches import JsonPatch, MergePatch, add
from polyarch.kube.patches import test as expect
from polyarch.kube.resources import CONFIGMAPS, DAEMONSETS

pytestmark = pytest.mark.req("KR-014")

POD = {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "c", "image": "i.example/i"}]}}


def configmap(**data: str) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": "c", "labels": {"role": "x"}},
        "data": data,
    }


def held(*finalizers: str) -> dict[str, Any]:
    document = configmap(a="1")
    document["metadata"]["finalizers"] = list(finalizers)
    return document


SELECTORS = ({"label_selector": "role=x"}, {"field_selector": "metadata.name=c"}, {"label_selector": "!role"})
CREATE, REMOVE = ("create", configmap(a="1")), ("delete", {})
SCRIPTS = {
    "made twice": [CREATE, CREATE],
    "gone": [REMOVE, ("patch", MergePatch({"data": {"a": "2"}}))],
    "a patch that changes nothing": [CREATE, ("patch", MergePatch({"data": {"a": "1"}}))],
    "a member is removed": [CREATE, ("patch", MergePatch({"data": {"a": None, "b": "2"}}))],
    "a patch of another uid": [CREATE, ("patch", MergePatch({"metadata": {"uid": "other"}}))],
    "a patch of another version": [CREATE, ("patch", MergePatch({"metadata": {"resourceVersion": "1"}}))],
    "a test that fails": [CREATE, ("patch", JsonPatch((expect("/data/a", "2"), add("/data/b", "3"))))],
    "a JSON patch": [CREATE, ("patch", JsonPatch((expect("/data/a", "1"), add("/data/b", "3"))))],
    "deleted with another uid": [CREATE, ("delete", {"uid": "other"})],
    "deleted with another version": [CREATE, ("delete", {"resource_version": "1"})],
    "a dry run": [CREATE, ("delete", {"dry_run": True})],
    "held by a finalizer": [("create", held("example.com/f")), REMOVE],
    "let go": [
        ("create", held("example.com/f")),
        REMOVE,
        ("patch", MergePatch({"metadata": {"finalizers": None}})),
    ],
    "applied and applied again": [("apply", configmap(a="1", b="2")), ("apply", configmap(a="1", b="2"))],
    "a field that is applied no longer": [("apply", configmap(a="1", b="2")), ("apply", configmap(a="1"))],
    "a field of another manager": [CREATE, ("apply", configmap(b="2"))],
}


async def run(api: Any, namespace: str, script: list[tuple[str, Any]]) -> list[Any]:
    """After each step: the error, or the object and whether it was written, and whether selectors find it."""
    seen: list[Any] = []
    version = ""
    for verb, what in script:
        outcome: Any = "done"
        try:
            if verb == "delete":
                await api.delete(CONFIGMAPS, "c", namespace=namespace, **what)
            elif verb == "patch":
                await api.patch(CONFIGMAPS, "c", what, namespace=namespace)
            else:
                await getattr(api, verb)(CONFIGMAPS, what, namespace=namespace)
        except ApiError as error:
            outcome = type(error).__name__
        found = []
        for selectors in SELECTORS:
            listed = (await api.list(CONFIGMAPS, namespace=namespace, type=dict, **selectors)).items
            found.append([document for document in listed if document["metadata"]["name"] == "c"])
        for document in found[0]:
            metadata = document["metadata"]
            is_written, version = metadata["resourceVersion"] != version, metadata["resourceVersion"]
            going = "deletionTimestamp" in metadata
            outcome = (outcome, document.get("data"), metadata.get("finalizers"), going, is_written)
        seen.append((outcome, [len(documents) for documents in found]))
    return seen


@pytest.mark.parametrize("script", SCRIPTS.values(), ids=SCRIPTS)
async def test_the_fake_answers_like_a_real_api_server(
    client: Client, namespace: str, script: list[tuple[str, Any]]
) -> None:
    assert await run(FakeApi(), namespace, script) == await run(client, namespace, script)


async def test_the_fake_counts_generations_and_keeps_statuses_apart_like_a_real_api_server(
    client: Client, namespace: str
) -> None:
    spec = {"minReadySeconds": 0, "selector": {"matchLabels": {"a": "b"}}, "template": POD}
    fake = FakeApi()
    fake.put(DAEMONSETS, {"metadata": {"name": "d", "namespace": namespace, "generation": 1}, "spec": spec})
    document = {"apiVersion": "apps/v1", "kind": "DaemonSet", "metadata": {"name": "d"}, "spec": spec}
    await client.create(DAEMONSETS, document, namespace=namespace)
    for patch, subresource in (
        ({"spec": {"minReadySeconds": 1}}, ""),
        ({"metadata": {"annotations": {"a": "b"}}}, ""),
        ({"status": {"collisionCount": 7}}, ""),
        ({"spec": {"minReadySeconds": 2}, "status": {"collisionCount": 7}}, "status"),
    ):
        found = []
        for api in (fake, client):
            await api.patch(DAEMONSETS, "d", MergePatch(patch), namespace=namespace, subresource=subresource)
            after = await api.get(DAEMONSETS, "d", namespace=namespace, type=dict)
            count = (after.get("status") or {}).get("collisionCount")
            found.append((after["metadata"]["generation"], after["spec"]["minReadySeconds"], count))
        assert found[0] == found[1], patch
