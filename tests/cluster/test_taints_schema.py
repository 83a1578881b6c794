"""What the API server refuses of ArchitectureTaints, and in which words.

Creates are dry runs, so that tests share one cluster; the object that changes is the real one, under a lock.
"""

import asyncio
import re
from collections.abc import AsyncIterator
from typing import Any

import msgspec
import pytest
from namespaces import is_served
from taint_refusals import ACCEPTED, REFUSED, Json

from polyarch.kube.client import Client
from polyarch.kube.errors import Invalid
from polyarch.kube.patches import MergePatch
from polyarch.kube.resources import CRDS
from polyarch.taints.api import ARCHITECTURE_TAINTS, ArchitectureTaints
from polyarch.taints.crd import STILL_TAINTED, crds
from polyarch.taints.settings import TaintSettings

ESTABLISHED_SECONDS = 20
TABLE = "application/json;as=Table;v=v1;g=meta.k8s.io"
"""What kubectl asks for."""


@pytest.fixture
async def api(client: Client) -> Client:
    """A client of an API server that serves ArchitectureTaints."""
    for document in crds():
        await client.apply(CRDS, document)
    async with asyncio.timeout(ESTABLISHED_SECONDS):
        while not await is_served(client, ARCHITECTURE_TAINTS):
            await asyncio.sleep(0.1)
    return client


@pytest.fixture
async def cluster(api: Client, sole_taints: None) -> AsyncIterator[Client]:
    """The same, with an object of all defaults."""
    await api.create(ARCHITECTURE_TAINTS, of({}))
    try:
        yield api
    finally:
        await api.delete(ARCHITECTURE_TAINTS, "cluster")


def of(spec: Json | None, name: str = "cluster") -> Json:
    resource = ARCHITECTURE_TAINTS
    document: Json = {"apiVersion": resource.api_version, "kind": resource.kind, "metadata": {"name": name}}
    return document if spec is None else document | {"spec": spec}


async def refused(client: Client, document: Json) -> str:
    with pytest.raises(Invalid) as refusal:
        await client.create(ARCHITECTURE_TAINTS, document, dry_run=True)
    return str(refusal.value)


async def stored(client: Client, spec: Json | None) -> Json:
    return await client.create(ARCHITECTURE_TAINTS, of(spec), dry_run=True, type=dict)


async def changed(client: Client, spec: Json) -> Any:
    return await client.patch(ARCHITECTURE_TAINTS, "cluster", MergePatch({"spec": spec}), type=dict)


async def told(client: Client, status: Json) -> None:
    await client.patch(ARCHITECTURE_TAINTS, "cluster", MergePatch({"status": status}), subresource="status")


@pytest.mark.req("TN-010", "TN-012")
async def test_only_the_name_cluster(api: Client) -> None:
    assert "the only ArchitectureTaints is named cluster: set metadata.name to cluster" in await refused(
        api, of({}, "mine")
    )


@pytest.mark.req("TN-010")
@pytest.mark.parametrize("spec", [None, {}, {"taint": None, "nodes": {}}], ids=["absent", "empty", "null"])
async def test_what_is_not_said_is_the_default(api: Client, spec: Json | None) -> None:
    document = await stored(api, spec)
    assert TaintSettings.of(msgspec.convert(document, ArchitectureTaints).spec) == TaintSettings()
    assert document["spec"]["taint"] == {"preset": "archaware", "effect": "NoSchedule", "acknowledgeEviction": False}
    assert document["spec"]["primaryArchitectures"] == ["amd64"]


@pytest.mark.req("TN-010")
@pytest.mark.parametrize("spec", [row[1] for row in ACCEPTED], ids=[row[0] for row in ACCEPTED])
async def test_what_is_accepted_means_something(api: Client, spec: Json) -> None:
    """Nothing of it has to be replaced by a default."""
    document = await stored(api, spec)
    assert TaintSettings.of(msgspec.convert(document, ArchitectureTaints).spec).problems == ()


@pytest.mark.req("TN-012")
@pytest.mark.parametrize(("spec", "said"), [row[1:] for row in REFUSED], ids=[row[0] for row in REFUSED])
async def test_what_is_refused_and_in_which_words(api: Client, spec: Json, said: list[str]) -> None:
    """The message names the field and what is wanted."""
    message = await refused(api, of(spec))
    assert all(re.search(part.replace("[", r"\[").replace("]", r"\]"), message) for part in said), message


class TestChanges:
    """The key and the preset of a taint that nodes carry."""

    @pytest.mark.req("TN-012")
    @pytest.mark.parametrize("taint", [{"preset": "gke"}, {"preset": "custom", "key": "example.org/arch"}])
    async def test_another_key_is_refused_while_nodes_carry_the_old_one(self, cluster: Client, taint: Json) -> None:
        await told(cluster, {"nodes": {"managed": 3, "tainted": 1, "skipped": 0, "unknown": 0, "summary": "1/3"}})
        with pytest.raises(Invalid) as refusal:
            await changed(cluster, {"taint": taint})
        assert STILL_TAINTED in str(refusal.value)
        assert "run `polyarch taint clean` first" in STILL_TAINTED
        assert (await changed(cluster, {"taint": taint, "state": "removing"}))["spec"]["state"] == "removing"

    @pytest.mark.req("TN-012")
    async def test_another_key_of_preset_custom(self, cluster: Client) -> None:
        await changed(cluster, {"taint": {"preset": "custom", "key": "a"}})
        await told(cluster, {"nodes": {"tainted": 2}})
        with pytest.raises(Invalid, match="polyarch taint clean"):
            await changed(cluster, {"taint": {"key": "b"}})
        await told(cluster, {"nodes": {"tainted": 0}})
        assert (await changed(cluster, {"taint": {"key": "b"}}))["spec"]["taint"]["key"] == "b"

    @pytest.mark.req("TN-012")
    async def test_everything_else_can_change_while_nodes_carry_taints(self, cluster: Client) -> None:
        """The status is written with the same rules, and the effect is corrected node by node."""
        await told(cluster, {"nodes": {"tainted": 2}})
        after = await changed(cluster, {"taint": {"effect": "PreferNoSchedule"}, "mode": "both", "state": "paused"})
        assert after["spec"]["taint"]["effect"] == "PreferNoSchedule"
        await told(cluster, {"nodes": {"tainted": 3}})


class TestColumns:
    @pytest.mark.req("TN-014")
    async def test_the_columns_of_kubectl_get(self, cluster: Client) -> None:
        condition = {"type": "Ready", "status": "True", "reason": "AsWanted", "message": ""}
        now = "2026-01-01T00:00:00Z"
        await told(
            cluster,
            {
                "key": "supported-arch",
                "nodes": {"managed": 5, "tainted": 3, "summary": "3/5"},
                "conditions": [condition | {"lastTransitionTime": now}],
            },
        )
        path = f"/apis/{ARCHITECTURE_TAINTS.api_version}/{ARCHITECTURE_TAINTS.plural}"
        table = msgspec.json.decode(await cluster.raw("GET", path, accept=TABLE))
        shown = dict(zip([each["name"] for each in table["columnDefinitions"]], table["rows"][0]["cells"], strict=True))
        assert isinstance(shown.pop("Age"), str)
        assert shown == {
            "Name": "cluster",
            "Mode": "secondary-only",
            "Key": "supported-arch",
            "Ready": "True",
            "Nodes": "3/5",
        }


@pytest.mark.req("TN-010")
async def test_kubectl_explains_every_field(api: Client) -> None:
    """What `kubectl explain` prints is in the OpenAPI document that the API server serves."""
    path = f"/openapi/v3/apis/{ARCHITECTURE_TAINTS.api_version}"
    async with asyncio.timeout(ESTABLISHED_SECONDS):  # it is built some time after the definition is served
        while True:
            schemas = msgspec.json.decode(await api.raw("GET", path))["components"]["schemas"]
            found = [each for name, each in schemas.items() if name.endswith(f".{ARCHITECTURE_TAINTS.kind}")]
            if found:
                break
            await asyncio.sleep(0.2)
    spec = found[0]["properties"]["spec"]
    assert "which pods tolerate it" in spec["description"]
    assert unexplained(spec, "spec") == []


def unexplained(schema: Json, path: str) -> list[str]:
    """Fields without a description; the entries of a list are explained by the list."""
    inner = schema.get("items", schema)
    members = inner.get("properties", {})
    lacking = [] if schema.get("description") else [path]
    return lacking + [found for name, each in members.items() for found in unexplained(each, f"{path}.{name}")]
