"""The kubelet's checkpoints of CPUs, memory and devices."""

import json
from pathlib import Path
from typing import Any

import pytest
from machine_trees import MachineTree

from polyarch.numa.facts import (
    Checkpoints,
    Container,
    CpuCheckpoint,
    Devices,
    MemoryBlock,
    MemoryCheckpoint,
    ZoneMemoryState,
)
from polyarch.numa.host.kubelet import CPU_CHECKPOINT, DEVICES_CHECKPOINT, MEMORY_CHECKPOINT, CheckpointFiles
from polyarch.numa.host.machine import HostRoot

KUBELET = "var/lib/kubelet"
CPU = {
    "policyName": "static",
    "defaultCpuSet": "0-4,7",
    "entries": {"5c6e": {"init": "5-6"}},
    "checksum": 1353318690,
}


def room(allocatable: int, free: int) -> dict[str, int]:
    return {"total": 5 << 30, "systemReserved": 0, "allocatable": allocatable, "reserved": 0, "free": free}


MEMORY: dict[str, Any] = {
    "policyName": "Static",
    "machineState": {
        "1": {"numberOfAssignments": 2, "memoryMap": {"memory": room(400, 100)}, "cells": [1, 0]},
        "0": {
            "numberOfAssignments": 1,
            "memoryMap": {"memory": room(300, 300), "hugepages-2Mi": room(20, 10)},
            "cells": [0, 1],
        },
    },
    "entries": {"5c6e": {"init": [{"numaAffinity": [0, 1], "type": "memory", "size": 300}]}},
    "checksum": 2,
}


@pytest.fixture
def tree(tmp_path: Path) -> MachineTree:
    tree = MachineTree(tmp_path)
    tree.write(f"{KUBELET}/{CPU_CHECKPOINT}", json.dumps(CPU))
    tree.write(f"{KUBELET}/{MEMORY_CHECKPOINT}", json.dumps(MEMORY))
    return tree


def read(tree: MachineTree) -> tuple[Checkpoints, list[str]]:
    counted: list[str] = []
    return CheckpointFiles(HostRoot(str(tree.root)), KUBELET, count=counted.append).read(), counted


@pytest.mark.req("NE-069")
def test_both_files_are_read(tree: MachineTree):
    states, counted = read(tree)
    assert states.cpu == CpuCheckpoint("static", frozenset({0, 1, 2, 3, 4, 7}))
    assert states.memory == MemoryCheckpoint(
        "Static",
        (
            ZoneMemoryState(0, "hugepages-2Mi", 20, 10, (0, 1)),
            ZoneMemoryState(0, "memory", 300, 300, (0, 1)),
            ZoneMemoryState(1, "memory", 400, 100, (0, 1)),
        ),
    )
    assert not counted


@pytest.mark.req("NE-069")
def test_absent_files_are_not_known_and_counted(tmp_path: Path):
    assert read(MachineTree(tmp_path)) == (Checkpoints(), [CPU_CHECKPOINT, MEMORY_CHECKPOINT])


@pytest.mark.req("NE-069")
@pytest.mark.parametrize(
    "content",
    [
        "",
        "{",
        "[]",
        "null",
        '{"policyName": "static"}',
        '{"policyName": "static", "defaultCpuSet": 7}',
        '{"policyName": "static", "defaultCpuSet": "0-"}',
        '{"data": "static", "defaultCpuSet": "0"}',
    ],
)
def test_an_unknown_format_of_one_file_leaves_the_other(tree: MachineTree, content: str):
    tree.write(f"{KUBELET}/{CPU_CHECKPOINT}", content)
    states, counted = read(tree)
    assert states.cpu is None
    assert states.memory is not None
    assert counted == [CPU_CHECKPOINT]


@pytest.mark.req("NE-069")
@pytest.mark.parametrize(
    "change",
    [
        {"machineState": {"zero": MEMORY["machineState"]["0"]}},
        {"machineState": {"0": {"memoryMap": {"memory": {"free": 1}}, "cells": [0]}}},
        {"machineState": {"0": {"memoryMap": {"memory": room(1, 1)}}}},
        {"machineState": [1]},
        {"policyName": None},
        {"entries": {"5c6e": {"init": [{"type": "memory", "size": 1}]}}},
    ],
)
def test_an_unknown_format_of_memory_is_not_known(tree: MachineTree, change: dict[str, Any]):
    tree.write(f"{KUBELET}/{MEMORY_CHECKPOINT}", json.dumps({**MEMORY, **change}))
    states, counted = read(tree)
    assert states.memory is None
    assert counted == [MEMORY_CHECKPOINT]


@pytest.mark.req("NE-069")
def test_other_policies_are_told_and_counted(tree: MachineTree):
    tree.write(f"{KUBELET}/{CPU_CHECKPOINT}", '{"policyName":"none","defaultCpuSet":"","checksum":1353318690}')
    tree.write(f"{KUBELET}/{MEMORY_CHECKPOINT}", '{"policyName":"None","machineState":null,"entries":{},"checksum":4}')
    states, counted = read(tree)
    assert states == Checkpoints(cpu=CpuCheckpoint("none", frozenset()), memory=MemoryCheckpoint("None"))
    assert counted == [CPU_CHECKPOINT, MEMORY_CHECKPOINT]


@pytest.mark.req("NE-069")
def test_a_file_without_use_is_counted_once_until_it_changes(tree: MachineTree):
    counted: list[str] = []
    files = CheckpointFiles(HostRoot(str(tree.root)), KUBELET, count=counted.append)
    tree.write(f"{KUBELET}/{CPU_CHECKPOINT}", "{}")
    for _ in range(3):
        assert files.read().cpu is None
    assert counted == [CPU_CHECKPOINT]
    tree.write(f"{KUBELET}/{CPU_CHECKPOINT}", json.dumps(CPU))
    assert files.read().cpu == CpuCheckpoint("static", frozenset({0, 1, 2, 3, 4, 7}))
    tree.remove(f"{KUBELET}/{CPU_CHECKPOINT}")
    assert files.read().cpu is None
    assert counted == [CPU_CHECKPOINT, CPU_CHECKPOINT]


@pytest.mark.req("NE-069")
def test_a_file_that_the_kubelet_renames_over_is_read_at_once(tree: MachineTree):
    files = CheckpointFiles(HostRoot(str(tree.root)), KUBELET)
    files.read()
    tree.write(f"{KUBELET}/next", json.dumps({**CPU, "defaultCpuSet": "0-7"})).rename(
        tree.root / KUBELET / CPU_CHECKPOINT
    )
    assert files.read().cpu == CpuCheckpoint("static", frozenset(range(8)))


@pytest.mark.req("NE-069")
def test_memory_of_a_pod_that_is_over_is_told_although_the_file_still_has_it(tree: MachineTree):
    files = CheckpointFiles(HostRoot(str(tree.root)), KUBELET)
    pod = tree.root / KUBELET / "pods/5c6e"
    pod.mkdir(parents=True)
    assert ended(files) == ()
    pod.rmdir()
    assert ended(files) == (MemoryBlock("memory", 300, (0, 1)),)
    pod.mkdir()
    assert ended(files) == ()


@pytest.mark.req("NE-069")
def test_without_directories_of_pods_nobody_is_taken_for_over(tree: MachineTree):
    assert ended(CheckpointFiles(HostRoot(str(tree.root)), KUBELET)) == ()


def ended(files: CheckpointFiles) -> tuple[MemoryBlock, ...]:
    memory = files.read().memory
    assert memory is not None
    return memory.ended


@pytest.mark.req("NE-069")
def test_pods_that_are_there_come_with_memory_and_devices_of_all_their_containers(tree: MachineTree):
    entry = {"PodUID": "5c6e", "ContainerName": "app", "ResourceName": "example.com/nic", "AllocResp": ""}
    data = {
        "PodDeviceEntries": [
            {**entry, "DeviceIDs": {"1": ["b"], "0": ["a"]}},
            {**entry, "ContainerName": "init", "DeviceIDs": {"-1": ["c"]}},
            {**entry, "PodUID": "gone", "DeviceIDs": {"0": ["d"]}},
        ],
        "RegisteredDevices": {"example.com/nic": ["a", "b", "c", "d"]},
    }
    tree.write(f"{KUBELET}/device-plugins/{DEVICES_CHECKPOINT}", json.dumps({"Data": data, "Checksum": 1}))
    (tree.root / KUBELET / "pods/5c6e").mkdir(parents=True)
    states, counted = read(tree)
    nic = "example.com/nic"
    assert states.pods == (
        (
            Container(name="app", devices=(Devices(nic, ("a",), (0,)), Devices(nic, ("b",), (1,)))),
            Container(
                name="init", memory=(MemoryBlock("memory", 300, (0, 1)),), devices=(Devices(nic, ("c",), (-1,)),)
            ),
        ),
    )
    assert counted == []


@pytest.mark.req("NE-069")
def test_a_pod_without_memory_has_not_ended_while_its_volumes_are_mounted(tree: MachineTree):
    """The folder of the kind of volumes stays until the pod's object is gone. A pod with memory is found in what the
    kubelet lists, and is free as soon as it is not."""
    entry = {"PodUID": "7d21", "ContainerName": "init", "ResourceName": "example.com/nic", "DeviceIDs": {"0": ["a"]}}
    content = json.dumps({"Data": {"PodDeviceEntries": [entry]}})
    tree.write(f"{KUBELET}/device-plugins/{DEVICES_CHECKPOINT}", content)
    (tree.root / KUBELET / "pods/5c6e/volumes/kubernetes.io~projected/kube-api-access-y").mkdir(parents=True)
    volumes = tree.root / KUBELET / "pods/7d21/volumes"
    token = volumes / "kubernetes.io~projected/kube-api-access-x"
    token.mkdir(parents=True)
    files = CheckpointFiles(HostRoot(str(tree.root)), KUBELET)

    def found() -> tuple[int, int]:
        states = files.read()
        return len(states.mounted), len(states.pods)

    assert found() == (1, 1)
    token.rmdir()
    assert found() == (0, 2)
    token.parent.rmdir()
    assert found() == (0, 2)
    volumes.rmdir()
    assert found() == (0, 2)


@pytest.mark.req("NE-069")
@pytest.mark.parametrize("content", ["{}", '{"Data":{"PodDeviceEntries":[{}]}}', "\0"])
def test_devices_in_an_unknown_format_are_not_known(tree: MachineTree, content: str):
    tree.write(f"{KUBELET}/device-plugins/{DEVICES_CHECKPOINT}", content)
    states, counted = read(tree)
    assert [[each.name for each in containers] for containers in states.pods] == [["init"]]
    assert counted == [DEVICES_CHECKPOINT]


@pytest.mark.req("NE-069")
def test_a_kubelet_that_has_handed_out_no_device_yet_says_so(tree: MachineTree):
    tree.write(f"{KUBELET}/device-plugins/{DEVICES_CHECKPOINT}", '{"Data":{"PodDeviceEntries":null},"Checksum":1}')
    assert read(tree)[1] == []
