"""A modelled kubelet with its files and its socket, seen as an exporter sees it: by the code that exporters run."""

import asyncio
import json
from pathlib import Path

import pytest
import yaml
from kubelet_cases import GI, burstable, container, guaranteed, numa_node, pod
from manual_clock import ManualClock

from polyarch.numa.exporter.scan import open_podresources
from polyarch.numa.facts import Machine
from polyarch.numa.host.machine import MachineReader, host_files
from polyarch.sandbox.kubelet_model.machine import Node
from polyarch.sandbox.nodes import simulated_kubelet
from polyarch.sandbox.nodes.kubelet_files import CPU_FILE, DEVICES_FILE, MEMORY_FILE
from polyarch.sandbox.nodes.simulated_kubelet import STATE, SimulatedKubelet

NODE = numa_node("2x4,memory=16Gi,threads=2,pages=2Mi:512,devices=example.com/nic:1")


def started(folder: Path, node: Node = NODE) -> SimulatedKubelet:
    kubelet = SimulatedKubelet("amd64-1", node, folder / "node" / "host")
    kubelet.start([])
    return kubelet


def state(kubelet: SimulatedKubelet, name: str) -> dict[str, object]:
    found: dict[str, object] = json.loads((kubelet.folder / STATE / name).read_text())
    return found


def machine_of(folder: Path) -> Machine:
    return MachineReader(host_files(str(folder)), clock=ManualClock()).read()


@pytest.mark.req("NS-164")
def test_the_nodes_files_tell_its_machine(tmp_path: Path) -> None:
    machine = machine_of(started(tmp_path).folder)
    assert [(cell.id, sorted(cell.cpus), cell.memory, cell.socket) for cell in machine.zones] == [
        (0, [0, 1, 2, 3], 16 * GI, 0),
        (1, [4, 5, 6, 7], 16 * GI, 1),
    ]
    assert [cell.pages for cell in machine.zones] == [{2 << 20: 512}, {2 << 20: 512}]
    assert [cell.costs for cell in machine.zones] == [((0, 10), (1, 21)), ((0, 21), (1, 10))]
    assert machine.threads_per_core == 2


@pytest.mark.req("NS-164")
def test_the_nodes_configuration_is_a_kubelets(tmp_path: Path) -> None:
    found = yaml.safe_load((started(tmp_path).folder / STATE / "config.yaml").read_text())
    assert found["kind"] == "KubeletConfiguration"
    assert (found["topologyManagerPolicy"], found["topologyManagerScope"]) == ("single-numa-node", "container")
    assert (found["cpuManagerPolicy"], found["memoryManagerPolicy"]) == ("static", "Static")
    assert found["reservedSystemCPUs"] == "0"
    assert found["systemReserved"] == {"memory": "924Mi"}, "with the eviction threshold it is what is reserved in all"
    assert found["reservedMemory"] == [{"numaNode": 0, "limits": {"memory": "1024Mi"}}]


@pytest.mark.req("NS-164")
def test_memory_that_was_plugged_in_stays_when_the_process_starts_again(tmp_path: Path) -> None:
    path = started(tmp_path).folder / "sys/devices/system/node/node1/meminfo"
    path.write_text("Node 1 MemTotal: 33554432 kB\n")
    assert machine_of(started(tmp_path).folder).zones[1].memory == 32 * GI
    another = started(tmp_path, numa_node("2x8,memory=24Gi"))
    assert machine_of(another.folder).zones[1].memory == 24 * GI, "another machine"


@pytest.mark.req("NS-164")
async def test_an_exporter_reads_what_pods_hold(tmp_path: Path) -> None:
    kubelet = started(tmp_path)
    one = pod(
        "a",
        container("app", cpu=2, memory=2, nic=1),
        init=[container("init", cpu=2, memory=1), container("side", is_sidecar=True, cpu=0.5, memory=1)],
    )
    assert [kubelet.admit(each) for each in (one, burstable("b", cpu=1))] == [None, None]
    async with simulated_kubelet.serving(kubelet):
        client = open_podresources(f"unix://{kubelet.socket}")
        try:
            listed, allocatable = await client.list(), await client.allocatable()
            again = await client.get("default", "a")
        finally:
            await client.close()
    assert [(each.namespace, each.name) for each in listed] == [("default", "a"), ("default", "b")]
    side, app = listed[0].containers
    assert (side.name, side.cpus, [(block.size, block.zones) for block in side.memory]) == ("side", (), [(GI, (0,))])
    assert (app.name, app.cpus, [(block.size, block.zones) for block in app.memory]) == (
        "app",
        (2, 3),
        [(2 * GI, (0,))],
    )
    assert [(each.resource, each.ids, each.zones) for each in app.devices] == [("example.com/nic", ("nic-0-0",), (0,))]
    assert [(each.name, each.cpus, each.memory) for each in listed[1].containers] == [("app", (), ())]
    assert again == listed[0]
    assert allocatable.cpus == (1, 2, 3, 4, 5, 6, 7)
    sizes = {(block.resource, block.zones): block.size for block in allocatable.memory}
    assert sizes == {
        ("memory", (0,)): 14 * GI,
        ("memory", (1,)): 15 * GI,
        ("hugepages-2Mi", (0,)): GI,
        ("hugepages-2Mi", (1,)): GI,
    }
    assert [(each.ids, each.zones) for each in allocatable.devices] == [(("nic-0-0",), (0,)), (("nic-1-0",), (1,))]


@pytest.mark.req("NS-164")
async def test_a_socket_deep_in_the_file_system_works(tmp_path: Path) -> None:
    kubelet = started(tmp_path / ("deep" * 30))
    assert len(str(kubelet.socket)) > 107
    async with simulated_kubelet.serving(kubelet):
        before = kubelet.socket.stat()
        client = open_podresources(f"unix://{kubelet.socket}")
        try:
            assert await client.list() == []
        finally:
            await client.close()
    async with simulated_kubelet.serving(kubelet):
        assert kubelet.socket.stat().st_ctime_ns > before.st_ctime_ns, "another one"


@pytest.mark.req("NS-164")
def test_cpus_devices_and_memory_of_a_pod_that_is_over_are_freed_as_late_as_by_the_kubelet(
    tmp_path: Path,
) -> None:
    kubelet = started(tmp_path)
    assert kubelet.admit(guaranteed("a", cpu=2, memory=2, nic=1)) is None
    assert (kubelet.folder / STATE / "pods" / "a").is_dir()
    kubelet.over("a", is_gone=False)
    assert (kubelet.folder / STATE / "pods" / "a").is_dir(), "as long as its object is there"
    kubelet.over("a", is_gone=True)
    assert not (kubelet.folder / STATE / "pods" / "a").exists()
    assert "entries" in state(kubelet, CPU_FILE)
    kubelet.reconcile()
    assert "entries" not in state(kubelet, CPU_FILE)
    assert "entries" in state(kubelet, MEMORY_FILE), "memory is forgotten with the next admission"
    assert kubelet.list_devices().held == {}
    assert kubelet.admit(burstable("b")) is None
    assert "entries" not in state(kubelet, MEMORY_FILE)
    assert state(kubelet, DEVICES_FILE)["Data"]["PodDeviceEntries"] is None  # type: ignore[index]


@pytest.mark.req("NS-164")
def test_a_new_process_knows_what_pods_hold(tmp_path: Path) -> None:
    """Also what a pod held that is gone: a kubelet that starts forgets nobody before it has seen all pods."""
    first = started(tmp_path)
    pods = [guaranteed("a", cpu=2, memory=2, nic=1), guaranteed("b", cpu=3, memory=4), burstable("c", nic=1)]
    assert [first.admit(each) for each in pods] == [None, None, None]
    first.over("b", is_gone=True)
    second = SimulatedKubelet("amd64-1", NODE, first.folder)
    young = guaranteed("d", cpu=1, memory=1)
    second.start([young, pods[2], pods[0]])
    assert second.held.cpus.held["a"] == first.held.cpus.held["a"]
    assert second.held.memory.held["a"] == first.held.memory.held["a"]
    assert second.held.devices.held == first.held.devices.held
    assert second.held.cpus.held.keys() == {"a", "b", "d"}
    second.reconcile()
    assert second.held.cpus.held.keys() == {"a", "d"}
    assert second.held.memory.held.keys() == {"a", "b", "d"}
    assert [each.uid for each in second.active] == ["c", "a", "d"]
    assert second.admit(burstable("e")) is None
    assert second.held.memory.held.keys() == {"a", "d"}


@pytest.mark.req("NS-164")
@pytest.mark.parametrize("name", [CPU_FILE, MEMORY_FILE, DEVICES_FILE])
def test_a_damaged_checkpoint_is_set_aside(tmp_path: Path, name: str) -> None:
    first = started(tmp_path)
    one = guaranteed("a", cpu=2, memory=2, nic=1)
    assert first.admit(one) is None
    path = first.folder / STATE / name
    path.write_bytes(b"{\xff")
    second = SimulatedKubelet("amd64-1", NODE, first.folder)
    second.start([one])
    assert path.with_name(f"{path.name}.damaged").read_bytes() == b"{\xff"
    assert second.has("a")
    assert second.held.cpus.held == first.held.cpus.held


@pytest.mark.req("NS-164")
def test_files_are_renamed_over_and_only_when_they_change(tmp_path: Path) -> None:
    kubelet = started(tmp_path)
    path = kubelet.folder / STATE / CPU_FILE
    before = path.stat().st_ino
    assert kubelet.admit(burstable("a")) is None
    kubelet.reconcile()
    assert path.stat().st_ino == before
    assert kubelet.admit(guaranteed("b", cpu=1, memory=1)) is None
    assert path.stat().st_ino != before


@pytest.mark.req("NS-164")
async def test_twenty_nodes_cost_little(tmp_path: Path) -> None:
    """Twenty machines of 2x8 with their files and sockets in one process; a call to one does not wait for others."""
    kubelets = [
        SimulatedKubelet(f"amd64-{number}", numa_node("2x8"), tmp_path / str(number) / "host") for number in range(20)
    ]
    for kubelet in kubelets:
        kubelet.start([])
    files = sum(1 for each in tmp_path.rglob("*") if each.is_file())
    assert files < 20 * 100

    async def once(kubelet: SimulatedKubelet) -> int:
        async with simulated_kubelet.serving(kubelet):
            client = open_podresources(f"unix://{kubelet.socket}")
            try:
                return len((await client.allocatable()).cpus)
            finally:
                await client.close()

    assert await asyncio.gather(*(once(kubelet) for kubelet in kubelets)) == [15] * 20
