"""Readings shared by all replicas through a Secret of a real API server."""

from collections.abc import AsyncIterator

import own_roles
import pytest
from audited import Audited
from own_roles import CONTROLLER, USERS
from placement_cluster import PlacementCluster, architectures, decision, is_gated, pod, until
from placement_process import gated_pod, placed, run
from scripted_registry import OCI_INDEX, Answer, ScriptedRegistry, encode

from polyarch.kube.client import Client
from polyarch.kube.patches import MergePatch
from polyarch.kube.resources import SECRETS
from polyarch.placement import names
from polyarch.sandbox.cluster import Sandbox
from polyarch.sandbox.state import NAMESPACE


@pytest.fixture
async def cluster(placed_sandbox: Sandbox) -> AsyncIterator[PlacementCluster]:
    async with placed_sandbox.client() as client:
        cluster = PlacementCluster(placed_sandbox, client)
        await cluster.configure()
        yield cluster


async def stored(cluster: PlacementCluster) -> bytes:
    secret = await cluster.client.get(SECRETS, names.READINGS_SECRET, namespace=NAMESPACE)
    return (secret.get("data") or {}).get(names.READINGS_KEY, "").encode()


@pytest.mark.req("PL-113", "PL-410")
async def test_a_webhook_that_asks_nothing_places_inline_what_the_controller_has_read(cluster):
    """With ``inline.budget: 0s`` the webhook itself never asks a registry."""
    image = "quay.io/sharing/web:1"
    await cluster.seed({image: ["linux/arm64", "linux/s390x"]})
    async with cluster.namespace("cold") as namespace:
        first = await cluster.create(pod(image, name="first"), namespace)
        assert is_gated(first)
        assert architectures(await cluster.released(namespace, "first")) == ["arm64", "s390x"]

        async def inline() -> bool:
            return not is_gated(await cluster.create(pod(image, name="next"), namespace, dry_run=True))

        await until(inline, seconds=25)
        second = await cluster.create(pod(image, name="second"), namespace)
        assert architectures(second) == ["arm64", "s390x"]
        assert decision(second)["by"] == "admission"


@pytest.mark.req("PL-852", "RG-111")
async def test_what_a_tenants_secret_opened_is_not_shared(cluster):
    """The webhook gates the pods of others, and of the same tenant, as before."""
    public, image = "quay.io/sharing/open:1", "registry.example.com/sharing/private:1"
    await cluster.seed(
        {public: ["linux/amd64"], image: {"platforms": ["linux/arm64"], "private": True, "users": {"a": "b"}}}
    )
    async with cluster.namespace("cold") as namespace:
        host = f"{cluster.sandbox.registry.address}/registry.example.com/sharing"
        await cluster.pull_secret(namespace, "pull", host, username="a", password="b")
        await cluster.create(pod(image, secrets=["pull"]), namespace)
        assert architectures(await cluster.released(namespace, "app")) == ["arm64"]
        await cluster.create(pod(public, name="open"), namespace)
        await cluster.released(namespace, "open")

        async def shared() -> bool:
            return not is_gated(await cluster.create(pod(public, name="next"), namespace, dry_run=True))

        await until(shared, seconds=25)
        assert is_gated(await cluster.create(pod(image, name="same", secrets=["pull"]), namespace, dry_run=True))
        assert is_gated(await cluster.create(pod(image, name="other"), namespace, dry_run=True))


@pytest.mark.req("PL-410", "PL-550")
async def test_the_controller_writes_the_secret_by_its_name_and_nothing_is_refused(cluster):
    """With PATCHes alone; it cannot create Secrets."""
    image = "quay.io/sharing/quiet:1"
    await cluster.seed({image: ["linux/amd64"]})
    (user,) = (user for user, role in USERS.items() if role == CONTROLLER)
    audited = Audited(cluster.sandbox, user)
    before = await stored(cluster)
    async with cluster.namespace("gated") as namespace:
        await cluster.create(pod(image), namespace)
        await cluster.released(namespace, "app")

        async def changed() -> bool:
            return await stored(cluster) != before

        await until(changed, seconds=25)
    writes = [each for each in await audited.requests() if names.READINGS_SECRET in each]
    assert writes
    assert set(writes) == {f"patch secrets {names.READINGS_SECRET}"}
    assert await audited.refused() == []


@pytest.mark.req("PL-410", "PL-750")
async def test_damaged_content_harms_nobody_and_is_replaced(cluster):
    """Pods are placed as ever."""
    image = "quay.io/sharing/damaged:1"
    await cluster.seed({image: ["linux/ppc64le"]})
    damaged = MergePatch({"data": {names.READINGS_KEY: "bm8gZ3ppcA=="}})
    await cluster.client.patch(SECRETS, names.READINGS_SECRET, damaged, namespace=NAMESPACE)
    async with cluster.namespace("cold") as namespace:
        await cluster.create(pod(image), namespace)
        assert architectures(await cluster.released(namespace, "app")) == ["ppc64le"]

    async def replaced() -> bool:
        return await stored(cluster) != b"bm8gZ3ppcA=="

    await until(replaced, seconds=25)


SCHEMA1 = "application/vnd.docker.distribution.manifest.v1+json"


@pytest.mark.req("PL-410", "RG-117", "RG-118")
async def test_a_hostile_registry_changes_nothing_for_other_namespaces(
    sandbox: Sandbox, client: Client, namespace: str, sole_controller: None, sole_taints: None, tmp_path
):
    """Its pods come first: the victim's bytes as another type, and the victim's host as the place of its tokens, where
    something is busy. The next leader has the victim's image from the Secret alone."""
    await own_roles.install(client)
    secret = {"metadata": {"name": names.READINGS_SECRET}, "type": names.READINGS_TYPE}
    await client.create(SECRETS, {"apiVersion": "v1", "kind": "Secret", **secret}, namespace=namespace)

    async def place(image: str) -> list[str] | None:
        found = await placed(client, *await gated_pod(client, image), seconds=60)
        return architectures(found)

    async with ScriptedRegistry() as good, ScriptedRegistry() as evil:
        entries = [good.entry(f"linux/{each}") for each in ("arm64", "s390x")]
        body = encode({"schemaVersion": 2, "manifests": entries})
        digest = good.push("team/app", "1", body, OCI_INDEX)
        evil.push("team/app", "1", body, SCHEMA1)
        good.script("*", "busy", Answer(429, headers={"Retry-After": "86400"}), forever=True)
        realm = {"WWW-Authenticate": f'Bearer realm="{good.url}/busy"'}
        evil.script("*", "team/closed", Answer(401, headers=realm), forever=True)
        conf = tmp_path / "registries.conf"
        hosts = (good.host, evil.host)
        conf.write_text("".join(f'[[registry]]\nlocation = "{each}"\ninsecure = true\n' for each in hosts))
        flag = f"--registries-conf={conf}"
        async with run("placement-controller", sandbox, namespace, tmp_path / "first.log", flag) as first:
            await gated_pod(client, f"{evil.host}/team/closed:1")
            await place(f"{evil.host}/team/app:1")
            await until(lambda: _asked(good, "busy"), seconds=30)
            assert await place(f"{good.host}/team/app:1") == ["arm64", "s390x"]
            assert await place(f"{good.host}/team/app@{digest}") == ["arm64", "s390x"]

            async def shared() -> bool:
                found = await client.get(SECRETS, names.READINGS_SECRET, namespace=namespace)
                return bool(found.get("data"))

            await until(shared, seconds=30)
            first.process.kill()
            await first.process.wait()
        good.seen.clear()
        good.script("*", "", Answer(500), forever=True)
        async with run("placement-controller", sandbox, namespace, tmp_path / "second.log", flag):
            assert await place(f"{good.host}/team/app@{digest}") == ["arm64", "s390x"]
        assert not good.manifest_requests()


async def _asked(registry: ScriptedRegistry, path: str) -> bool:
    return bool(registry.requests("", path))
