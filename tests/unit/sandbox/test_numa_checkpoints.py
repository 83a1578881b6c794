"""The kubelet's checkpoint files as the sandbox writes them. The expected texts were written by the kubelet's own Go
code (k8s.io/kubernetes v1.36.2: the checkpoints of cpumanager, memorymanager and devicemanager), checksums included."""

import pytest
from kubelet_cases import Kubelet, guaranteed, numa_node

from polyarch.sandbox.nodes import kubelet_files
from polyarch.sandbox.nodes.kubelet_files import CorruptCheckpoint, cpulist_text, parse_cpulist

NODE = numa_node("2x4,memory=16Gi,devices=example.com/nic:1")
CPUS_IN_USE = '{"policyName":"static","defaultCpuSet":"0,3-7","entries":{"uid-a":{"app":"1-2"}},"checksum":1585196174}'
CPUS_FREE = '{"policyName":"static","defaultCpuSet":"0-7","checksum":14413152}'
MEMORY_IN_USE = (
    '{"policyName":"Static","machineState":{"0":{"numberOfAssignments":1,"memoryMap":{"memory":{"total":17179869184,'
    '"systemReserved":1073741824,"allocatable":16106127360,"reserved":1073741824,"free":15032385536}},"cells":[0]},'
    '"1":{"numberOfAssignments":0,"memoryMap":{"memory":{"total":17179869184,"systemReserved":0,"allocatable":'
    '17179869184,"reserved":0,"free":17179869184}},"cells":[1]}},"entries":{"uid-a":{"app":[{"numaAffinity":[0],'
    '"type":"memory","size":1073741824}]}},"checksum":872214161}'
)
MEMORY_FREE = (
    '{"policyName":"Static","machineState":{"0":{"numberOfAssignments":0,"memoryMap":{"memory":{"total":17179869184,'
    '"systemReserved":1073741824,"allocatable":16106127360,"reserved":0,"free":16106127360}},"cells":[0]},'
    '"1":{"numberOfAssignments":0,"memoryMap":{"memory":{"total":17179869184,"systemReserved":0,"allocatable":'
    '17179869184,"reserved":0,"free":17179869184}},"cells":[1]}},"checksum":3575576890}'
)
DEVICES_IN_USE = (
    '{"Data":{"PodDeviceEntries":[{"PodUID":"uid-a","ContainerName":"app","ResourceName":"example.com/nic",'
    '"DeviceIDs":{"0":["nic-0-0"]},"AllocResp":""}],"RegisteredDevices":{"example.com/nic":["nic-0-0","nic-1-0"]}},'
    '"Checksum":2775475374}'
)
DEVICES_FREE = (
    '{"Data":{"PodDeviceEntries":null,"RegisteredDevices":{"example.com/nic":["nic-0-0","nic-1-0"]}},'
    '"Checksum":2210241170}'
)


def in_use() -> Kubelet:
    kubelet = Kubelet(NODE)
    assert kubelet.admit(guaranteed("uid-a", cpu=2, memory=1, nic=1)) is None
    return kubelet


@pytest.mark.req("NS-164")
@pytest.mark.parametrize(
    ("kubelet", "expected"),
    [
        pytest.param(Kubelet(NODE), (CPUS_FREE, MEMORY_FREE, DEVICES_FREE), id="nothing is held"),
        pytest.param(in_use(), (CPUS_IN_USE, MEMORY_IN_USE, DEVICES_IN_USE), id="a pod holds of everything"),
    ],
)
def test_checkpoints_are_written_as_the_kubelet_writes_them(kubelet: Kubelet, expected: tuple[str, ...]) -> None:
    assert tuple(kubelet_files.texts(NODE, kubelet.held).values()) == expected


@pytest.mark.req("NS-164")
def test_what_was_held_is_read_back() -> None:
    held = in_use().held
    assert kubelet_files.read_cpus(NODE, CPUS_IN_USE).held == held.cpus.held
    assert kubelet_files.read_memory(NODE, MEMORY_IN_USE).cells == held.memory.cells
    assert kubelet_files.read_memory(NODE, MEMORY_IN_USE).held == held.memory.held
    assert kubelet_files.read_devices(NODE, DEVICES_IN_USE).held == held.devices.held


@pytest.mark.req("NS-164")
@pytest.mark.parametrize("read", [kubelet_files.read_cpus, kubelet_files.read_memory, kubelet_files.read_devices])
@pytest.mark.parametrize("text", ["", "{", "[]", "{}", '{"policyName":"static"}', "\x00"])
def test_what_is_no_checkpoint_is_damaged(read: object, text: str) -> None:
    with pytest.raises(CorruptCheckpoint):
        read(NODE, text)  # type: ignore[operator]


@pytest.mark.req("NS-164")
@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (CPUS_IN_USE.replace("1585196174", "1"), "corrupted"),
        (CPUS_IN_USE.replace("static", "none"), "configured policy 'static' differs"),
        (CPUS_IN_USE.replace("0,3-7", "0,4-7"), "does not match"),
        (CPUS_IN_USE.replace("0,3-7", "0-7"), "does not match"),
        ('{"policyName":"static","defaultCpuSet":"2-7","entries":{"a":{"b":"0-1"}},"checksum":0}', "reserved"),
        (CPUS_FREE.replace("0-7", "a"), "invalid literal"),
    ],
)
def test_a_cpu_checkpoint_of_another_machine_is_damaged(text: str, problem: str) -> None:
    with pytest.raises(CorruptCheckpoint, match=problem):
        kubelet_files.read_cpus(NODE, text)


@pytest.mark.req("NS-164")
def test_a_memory_checkpoint_of_another_machine_is_damaged() -> None:
    with pytest.raises(CorruptCheckpoint, match="different from the real one"):
        kubelet_files.read_memory(numa_node("2x4,memory=32Gi"), MEMORY_IN_USE)


@pytest.mark.req("NS-164")
@pytest.mark.parametrize(
    ("cpus", "text"), [([], ""), ([3], "3"), ([0, 1], "0-1"), ([7, 0, 1, 2, 9], "0-2,7,9"), (range(128), "0-127")]
)
def test_cpus_are_listed_as_the_kernel_lists_them(cpus: list[int], text: str) -> None:
    assert cpulist_text(cpus) == text
    assert parse_cpulist(text) == frozenset(cpus)
