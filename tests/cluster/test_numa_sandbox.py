"""Real exporters on nodes with modelled kubelets: what is published is what the kubelets account for, whatever happens
to pods, kubelets and files."""

import asyncio

import pytest
from numa_fleet import Fleet, attributes_of, conditions_of, deploy, eventually, pod

from polyarch.kube.client import Client
from polyarch.kube.resources import PODS
from polyarch.sandbox.cluster import Sandbox
from polyarch.sandbox.nodes.kubelet_files import MEMORY_FILE
from polyarch.sandbox.nodes.simulated_kubelet import SOCKET, STATE

NODES = ("amd64-1", "amd64-2", "amd64-3")
GI = 1024**3


@pytest.fixture(scope="module")
def sandbox(celled_sandbox: Sandbox) -> Sandbox:
    return celled_sandbox


@pytest.fixture
async def fleet(sandbox: Sandbox, client: Client) -> Fleet:
    """With an exporter on each node that has published it."""
    await deploy(client)
    found = Fleet(sandbox, client)
    await found.follows(*NODES)
    return found


async def ended(client: Client, namespace: str, name: str) -> dict[str, str]:
    """The status of a pod that has failed."""

    async def look() -> dict[str, str]:
        found: dict[str, str] = (await client.get(PODS, name, namespace=namespace)).get("status", {})
        return found

    found: dict[str, str] = await eventually(look, lambda status: status.get("phase") in {"Failed", "Running"})
    return found


@pytest.mark.req("NS-164")
async def test_zones_follow_pods_that_come_and_go(fleet: Fleet, client: Client, namespace: str) -> None:
    whole = pod("whole", NODES[0], cpu="4", memory="2Gi", nic="1")
    late = pod("late", NODES[0], init={"cpu": "4", "memory": "4Gi"}, cpu="2", memory="1Gi")
    loose = pod("loose", NODES[1], cpu="500m", memory="3Gi")
    for each in (whole, late, loose):
        await client.create(PODS, each, namespace=namespace)
        await fleet.follows(*NODES)
    zones = await fleet.zones(NODES[0])
    assert zones["node-0"]["cpu"] == (8, 7, 3)
    assert zones["node-1"]["cpu"] == (8, 8, 4), "two CPUs of the finished init container are not free"
    assert zones["node-0"]["example.com/nic"] == (2, 2, 1)
    # The kubelet may take up the pod a moment after its creation.
    await eventually(lambda: fleet.zones(NODES[1]), lambda zones: zones["node-0"]["memory"][2] == 12 * GI)
    attributes = attributes_of(await fleet.topology(NODES[0]))
    assert attributes["topologyManagerPolicy"] == "single-numa-node"
    assert attributes["topologyManagerScope"] == "container"
    for each in (whole, late, loose):
        await client.delete(PODS, each["metadata"]["name"], namespace=namespace)
    await fleet.follows(*NODES)
    assert (await fleet.zones(NODES[0]))["node-1"]["cpu"] == (8, 8, 8)


@pytest.mark.req("NS-164")
async def test_a_pod_that_no_cell_can_hold_fails_as_on_a_real_node(
    fleet: Fleet, client: Client, namespace: str
) -> None:
    await client.create(PODS, pod("wide", NODES[0], cpu="9", memory="1Gi"), namespace=namespace)
    status = await ended(client, namespace, "wide")
    assert (status["phase"], status["reason"]) == ("Failed", "TopologyAffinityError")
    assert status["message"] == "Pod was rejected: Resources cannot be allocated with Topology locality"
    for number in range(4):
        await client.create(PODS, pod(f"six-{number}", NODES[1], cpu="6", memory="1Gi"), namespace=namespace)
    reasons = [(await ended(client, namespace, f"six-{number}")).get("reason", "") for number in range(4)]
    assert sorted(reasons) == ["", "", "TopologyAffinityError", "TopologyAffinityError"]
    await fleet.follows(*NODES)
    assert {name: zone["cpu"][2] for name, zone in (await fleet.zones(NODES[1])).items()} == {"node-0": 1, "node-1": 2}


@pytest.mark.req("NE-069", "NS-164")
async def test_memory_of_a_pod_that_has_completed_is_free_while_its_object_is_there(
    fleet: Fleet, client: Client, namespace: str
) -> None:
    """The kubelet keeps its directory, and its memory until the next pod comes."""
    job = pod("job", NODES[0], cpu="2", memory="12Gi")
    job["spec"]["restartPolicy"] = "Never"
    await client.create(PODS, job, namespace=namespace)

    async def phase() -> str:
        return str((await client.get(PODS, "job", namespace=namespace)).get("status", {}).get("phase"))

    await eventually(phase, lambda found: found == "Succeeded")
    await fleet.follows(NODES[0])
    assert (await fleet.zones(NODES[0]))["node-0"]["memory"][2] == 15 * GI
    text = (fleet.kubelet(NODES[0]) / MEMORY_FILE).read_text()
    assert str(12 * GI) in text, "the file still has it"


@pytest.mark.req("NS-164")
async def test_a_killed_kubelet_finds_its_pods_again_and_memory_that_was_plugged_in(
    fleet: Fleet, client: Client, namespace: str
) -> None:
    await client.create(PODS, pod("stays", NODES[2], cpu="3", memory="1Gi", nic="2"), namespace=namespace)
    await client.create(PODS, pod("goes", NODES[2], cpu="2", memory="1Gi"), namespace=namespace)
    await fleet.follows(NODES[2])
    before = fleet.held(NODES[2])
    fleet.stop_nodes()
    await client.delete(PODS, "goes", namespace=namespace, grace_period_seconds=0)
    meminfo = fleet.host(NODES[2]) / "sys/devices/system/node/node1/meminfo"
    meminfo.write_text(meminfo.read_text().replace(str(16 * GI // 1024), str(32 * GI // 1024)))
    await fleet.start_nodes()

    async def capacity() -> int:
        return (await fleet.zones(NODES[2]))["node-1"]["memory"][0]

    await eventually(capacity, lambda bytes_: bytes_ == 32 * GI)
    kept = {uid: held for uid, held in fleet.held(NODES[2]).cpus.held.items() if uid in before.cpus.held}
    assert len(kept) == 1
    assert kept.items() <= before.cpus.held.items(), "the same CPUs"
    meminfo.write_text(meminfo.read_text().replace(str(32 * GI // 1024), str(16 * GI // 1024)))
    fleet.stop_nodes()
    await fleet.start_nodes()
    await fleet.follows(*NODES)


@pytest.mark.req("NS-164")
async def test_a_damaged_checkpoint_does_not_stop_the_exporter(fleet: Fleet, client: Client, namespace: str) -> None:
    await client.create(PODS, pod("first", NODES[0], cpu="2", memory="2Gi"), namespace=namespace)
    await fleet.follows(NODES[0])
    before = await fleet.zones(NODES[0])
    (fleet.host(NODES[0]) / STATE / MEMORY_FILE).write_bytes(b"{\xff")
    (fleet.host(NODES[0]) / STATE / "touched").touch()
    await asyncio.sleep(7)
    assert await fleet.zones(NODES[0]) == before, "the listing alone says the same"
    await client.create(PODS, pod("second", NODES[0], cpu="1", memory="1Gi"), namespace=namespace)
    await fleet.follows(NODES[0])


@pytest.mark.req("NS-164")
async def test_while_the_socket_is_gone_the_object_stays_and_the_pod_says_so(
    fleet: Fleet, client: Client, namespace: str
) -> None:
    before = await fleet.topology(NODES[1])
    (fleet.host(NODES[1]) / SOCKET).unlink()

    async def conditions() -> dict[str, str]:
        return conditions_of(await fleet.exporter(NODES[1]))

    await eventually(conditions, lambda found: found.get("PodresourcesFetched") == "False")
    assert await fleet.topology(NODES[1]) == before
    fleet.stop_nodes()
    await fleet.start_nodes()
    await eventually(conditions, lambda found: found.get("PodresourcesFetched") == "True")
    await client.create(PODS, pod("after", NODES[1], cpu="1", memory="1Gi"), namespace=namespace)
    await fleet.follows(NODES[1])
