"""``polyarch run numa-exporter`` against a real API server, several of them side by side."""

import asyncio
import signal

import pytest
from exporter_process import define, exporting, published
from placement_cluster import until

from numa_host import POLICY, SCOPE, NumaHost
from polyarch.kube.client.client import Client
from polyarch.kube.resources import NODES
from polyarch.numa import names


@pytest.fixture(autouse=True)
async def defined(client: Client) -> None:
    await define(client)


def attributes(topology):
    return {each["name"]: each["value"] for each in topology["attributes"]}


async def test_ne_010_an_exporter_publishes_its_node_and_follows_its_kubelet(sandbox, client, namespace, tmp_path):
    host = NumaHost(tmp_path / "host")
    async with exporting(sandbox, client, namespace, tmp_path, host, "--sleep-interval=2s") as exporter:
        topology = await published(exporter, [3, 4])
        assert topology["metadata"]["name"] == exporter.node
        node = await client.get(NODES, exporter.node)
        [owner] = topology["metadata"]["ownerReferences"]
        assert (owner["kind"], owner["name"], owner["uid"]) == ("Node", exporter.node, node["metadata"]["uid"])
        assert (attributes(topology)[names.POLICY], attributes(topology)[names.SCOPE]) == (POLICY, SCOPE)
        await until(exporter.running.ready)
        host.pods({"busy": [5, 6]})
        await published(exporter, [3, 2])
        exporter.process.send_signal(signal.SIGTERM)
        async with asyncio.timeout(30):
            assert await exporter.process.wait() == 0
        assert await exporter.shows([3, 2]), "the topology stays when its exporter ends"
