"""What is published of real kubelets is what they keep in their own files, whatever happens to pods, kubelets,
exporters and nodes."""

import contextlib
import os
import random
import signal
from collections.abc import AsyncIterator
from typing import Any

import pytest
from device_plugin import plugged_in
from grpclib.client import Channel
from kubelet_cases import numa_node
from kubelet_real_pods import SEED, decided, random_pod
from numa_fleet import Fleet, conditions_of, eventually, pod

from polyarch.kube.client import Client
from polyarch.kube.resources import NODES, PODS
from polyarch.names import DEFAULT_NAMESPACE
from polyarch.numa.host import podresources_pb2 as api
from polyarch.numa.host.podresources import SocketPath
from polyarch.numa.host.podresources_grpc import PodResourcesListerStub
from polyarch.sandbox.cluster import Sandbox
from polyarch.sandbox.real.nodes import KUBELET, process_name

pytestmark = [pytest.mark.req("NS-164"), pytest.mark.timeout(600)]

MACHINE = "2x8,pages=2Mi:256,devices=example.com/nic:2"
"""That of the shared cluster, with the devices that a plugin adds."""
WAVES = 6


@pytest.fixture
async def fleet(cluster: Sandbox, client: Client) -> AsyncIterator[Fleet]:
    """The nodes with their devices."""
    found = Fleet(cluster, client, numa_node(MACHINE).machine.devices)
    nodes = await nodes_of(found)
    with plugged_in([found.kubelet(node) for node in nodes], found.devices):
        for node in nodes:
            await plugged(found, node)
        yield found


async def nodes_of(fleet: Fleet) -> list[str]:
    return [name for name, _, _ in await fleet.sandbox.nodes()]


async def plugged(fleet: Fleet, node: str) -> None:
    """Wait until the plugin has registered at this kubelet: it refuses what needs devices before."""

    async def devices() -> set[str]:
        async with podresources(fleet, node) as stub:
            answer = await stub.GetAllocatableResources(api.AllocatableResourcesRequest(), timeout=10)
        return {name for each in answer.devices for name in each.device_ids}

    wanted = {each.id for each in fleet.devices}
    await eventually(devices, lambda found: found == wanted)


@contextlib.asynccontextmanager
async def podresources(fleet: Fleet, node: str) -> AsyncIterator[PodResourcesListerStub]:
    path = SocketPath(fleet.kubelet(node) / "pod-resources/kubelet.sock")
    channel = Channel(path=path.path)
    try:
        yield PodResourcesListerStub(channel)
    finally:
        channel.close()
        path.close()


async def listed(fleet: Fleet, node: str) -> dict[tuple[str, str], dict[str, Any]]:
    """What the kubelet's podresources API says that containers hold, by pod."""
    async with podresources(fleet, node) as stub:
        answer = await stub.List(api.ListPodResourcesRequest(), timeout=10)

    def zones(topology: api.TopologyInfo) -> tuple[int, ...]:
        return tuple(each.ID for each in topology.nodes)

    return {
        (pod.namespace, pod.name): {
            each.name: {
                "cpus": set(each.cpu_ids),
                "memory": {(block.memory_type, block.size, zones(block.topology)) for block in each.memory},
                "devices": {
                    (some.resource_name, name, zone)
                    for some in each.devices
                    for name in some.device_ids
                    for zone in zones(some.topology)
                },
            }
            for each in pod.containers
        }
        for pod in answer.pod_resources
    }


async def follow(fleet: Fleet, client: Client, *nodes: str) -> None:
    """Objects say what files say, and so does the API from which the exporter has it."""
    await fleet.follows(*nodes)
    for node in nodes:
        pods = (await client.list(PODS, field_selector=f"spec.nodeName={node}")).items
        uids = {(each["metadata"]["namespace"], each["metadata"]["name"]): each["metadata"]["uid"] for each in pods}
        accounts = await fleet.accounts(node)
        for key, containers in (await listed(fleet, node)).items():
            uid = uids[key]
            for name, held in containers.items():
                kept = {
                    what: by_pod.get(uid, {}).get(name, set())
                    for what, by_pod in (
                        ("cpus", accounts.cpus),
                        ("memory", accounts.memory),
                        ("devices", accounts.devices),
                    )
                }
                assert held == kept, f"{key}, container {name}"


async def test_zones_of_real_nodes_follow_pods_that_come_and_go(fleet: Fleet, client: Client, namespace: str) -> None:
    """With two thirds of the pods of each wave gone before the next; some are refused, and hold nothing."""
    chance, nodes = random.Random(SEED), await nodes_of(fleet)
    model = numa_node(MACHINE)
    there: set[str] = set()
    held: set[str] = set()
    refused = 0
    for wave in range(WAVES):
        for name in sorted(there):
            if chance.random() < 0.6:
                await client.delete(PODS, name, namespace=namespace)
                there.discard(name)
        names = [f"w{wave}-{number}" for number in range(6)]
        for name in names:
            document = random_pod(chance, name, model, nodeName=chance.choice(nodes))
            await client.create(PODS, document, namespace=namespace)
        there |= set(names)
        reasons = await decided(client, namespace, names)
        refused += sum(bool(each) for each in reasons.values())
        await follow(fleet, client, *nodes)
        for node in nodes:
            held |= (await fleet.accounts(node)).holders
    assert refused, f"seed {SEED}: no pod was too large"
    assert len(held) >= 4, f"seed {SEED}: hardly any pod held anything"


@pytest.mark.req("NE-069")
async def test_what_a_pod_held_that_has_ended_is_free_and_what_init_containers_keep_is_not(
    fleet: Fleet, client: Client, namespace: str
) -> None:
    """The kubelet keeps the memory of the first, and its directory, and lists no init container of the others; what is
    listed of the last one holds nothing."""
    node, other = await nodes_of(fleet)
    job = pod("job", node, cpu="2", memory="30Gi", nic="2")
    job["spec"] |= {"restartPolicy": "Never", "activeDeadlineSeconds": 2}
    keeps = pod("keeps", other, init={"cpu": "2", "memory": "2Gi", "nic": "1"}, cpu="1", memory="1Gi")
    alone = pod("alone", other, init={"nic": "1"})
    for each in (job, keeps, alone):
        await client.create(PODS, each, namespace=namespace)

    async def phase() -> str:
        return str((await client.get(PODS, "job", namespace=namespace))["status"].get("phase"))

    await eventually(phase, lambda found: found in {"Failed", "Succeeded"})
    assert set((await decided(client, namespace, ["keeps", "alone"])).values()) == {""}
    await follow(fleet, client, node, other)
    uid = (await client.get(PODS, "job", namespace=namespace))["metadata"]["uid"]
    assert (fleet.kubelet(node) / "pods" / uid).is_dir()
    assert uid in (fleet.kubelet(node) / "memory_manager_state").read_text()
    zones, others = await fleet.zones(node), await fleet.zones(other)
    assert zones["node-0"]["memory"][1] == zones["node-0"]["memory"][2]
    assert zones["node-0"]["example.com/nic"] == (2, 2, 2)
    assert others["node-0"]["example.com/nic"] == (2, 2, 0)


async def test_zones_are_right_again_after_restarts_of_kubelet_and_exporter(
    fleet: Fleet, client: Client, namespace: str
) -> None:
    node = (await nodes_of(fleet))[0]
    whole = pod("whole", node, cpu="3", memory="2Gi", nic="1")
    late = pod("late", node, init={"cpu": "4", "memory": "4Gi"}, cpu="2", memory="1Gi")
    goes = pod("goes", node, cpu="1", memory="1Gi", nic="2")
    for each in (whole, late, goes):
        await client.create(PODS, each, namespace=namespace)
    assert not any((await decided(client, namespace, ["whole", "late", "goes"])).values())
    await follow(fleet, client, node)
    before = await fleet.accounts(node)
    os.kill(fleet.sandbox.records()[process_name(node, KUBELET)].pid, signal.SIGKILL)
    await client.delete(PODS, "goes", namespace=namespace, grace_period_seconds=0)
    await again(fleet)
    await plugged(fleet, node)
    await client.create(PODS, pod("next", node, cpu="1", memory="1Gi", nic="1"), namespace=namespace)
    assert not any((await decided(client, namespace, ["next"])).values())
    await follow(fleet, client, node)
    after = await fleet.accounts(node)
    kept = before.holders & after.holders
    pods = (await client.list(PODS, namespace=namespace)).items
    assert len(kept) == 2, {each["metadata"]["name"]: each["status"] for each in pods}
    assert all(after.cpus[uid] == before.cpus[uid] for uid in kept), "the same CPUs"

    exporter = await fleet.exporter(node)
    await client.delete(PODS, exporter["metadata"]["name"], namespace=DEFAULT_NAMESPACE, grace_period_seconds=0)
    await client.create(PODS, pod("meanwhile", node, cpu="2", memory="1Gi"), namespace=namespace)
    assert not any((await decided(client, namespace, ["meanwhile"])).values())

    async def successor() -> bool:
        found = await fleet.exporter(node)
        is_new = found.get("metadata", {}).get("uid") not in (None, exporter["metadata"]["uid"])
        return is_new and conditions_of(found).get("Ready") == "True"

    await eventually(successor, bool)
    await follow(fleet, client, node)


@pytest.mark.req("SB-017")
async def test_zones_are_right_again_after_a_node_has_lost_its_power(
    fleet: Fleet, client: Client, namespace: str
) -> None:
    """A kubelet that boots refuses what needs devices until their plugin has registered: either way its files count."""
    node, other = await nodes_of(fleet)
    for each in (
        pod("stays", node, cpu="3", memory="2Gi"),
        pod("plugged", node, cpu="2", memory="1Gi", nic="1"),
        pod("elsewhere", other, cpu="2", memory="1Gi"),
    ):
        await client.create(PODS, each, namespace=namespace)
    assert not any((await decided(client, namespace, ["stays", "plugged", "elsewhere"])).values())
    await follow(fleet, client, node, other)
    before, started = await fleet.accounts(node), await start_of(client, namespace, "stays")

    async def boot() -> str:
        return str((await client.get(NODES, node))["status"]["nodeInfo"]["bootID"])

    first = await boot()
    await fleet.sandbox.stop_node(node)
    await client.create(PODS, pod("during", node, cpu="1", memory="1Gi"), namespace=namespace)
    await again(fleet)
    await eventually(boot, lambda found: found != first)

    async def runs_again() -> bool:
        return await start_of(client, namespace, "stays") not in ("", started)

    await eventually(runs_again, bool)
    assert not any((await decided(client, namespace, ["during"])).values())
    await follow(fleet, client, node, other)
    after = await fleet.accounts(node)
    uid = (await client.get(PODS, "stays", namespace=namespace))["metadata"]["uid"]
    assert after.cpus[uid] == before.cpus[uid], "the same CPUs"


async def start_of(client: Client, namespace: str, name: str) -> str:
    """When its container began to run; empty while it does not."""
    statuses = (await client.get(PODS, name, namespace=namespace))["status"].get("containerStatuses") or [{}]
    return str(statuses[0].get("state", {}).get("running", {}).get("startedAt", ""))


async def again(fleet: Fleet) -> None:
    """As ``polyarch up`` does, start what does not run."""
    await Sandbox.start(fleet.sandbox.state.settings, home=fleet.sandbox.folder.root.parent, install=False)
