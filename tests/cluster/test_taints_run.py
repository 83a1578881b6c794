"""``polyarch run taints``: a process that becomes ready, leads, and ends in order."""

import asyncio
import signal

import pytest
from placement_cluster import until
from placement_process import run

from polyarch.kube.client import Client
from polyarch.kube.errors import NotFound
from polyarch.kube.resources import LEASES
from polyarch.taints import names

pytestmark = pytest.mark.req("TN-003")


async def holder(client: Client, namespace: str) -> str:
    try:
        lease = await client.get(LEASES, names.LEASE, namespace=namespace)
    except NotFound:
        return ""
    return lease["spec"].get("holderIdentity") or ""


@pytest.mark.req("TN-080")
async def test_the_role_becomes_ready_leads_and_gives_the_lease_back(sandbox, client, namespace, tmp_path):
    flag = f"--registries-conf={sandbox.registries_conf}"
    async with run("taints", sandbox, namespace, tmp_path / "taints.log", flag) as role:
        await until(role.ready)

        async def leads() -> bool:
            return bool(await holder(client, namespace))

        await until(leads)
        role.process.send_signal(signal.SIGTERM)
        async with asyncio.timeout(60):
            assert await role.process.wait() == 0
        assert await holder(client, namespace) == ""
