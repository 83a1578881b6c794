"""The machine that a real node believes in."""

import os
from pathlib import Path

import pytest

from polyarch.sandbox.errors import SandboxError
from polyarch.sandbox.kubelet_model.layout import NumaLayout
from polyarch.sandbox.real import configuration, machine
from polyarch.sandbox.state import Settings
from polyarch.sandbox.versions import host_architecture

GI = 1 << 30


@pytest.mark.req("SB-017")
def test_a_node_that_becomes_another_machine_forgets_what_its_kubelets_managers_gave(tmp_path: Path) -> None:
    before, after = (NumaLayout.parse(each) for each in ("2x8", "2x8,policy=restricted"))
    assert not machine.is_known(tmp_path, before)
    shown = machine.write_files(tmp_path, before)
    assert machine.is_known(tmp_path, before)
    assert not machine.is_known(tmp_path, after)
    assert not machine.is_known(tmp_path, None)
    assert all((tmp_path / source).exists() for source in shown.values())
    kubelet = tmp_path / "lib/kubelet"
    kubelet.mkdir(parents=True)
    for name in ("cpu_manager_state", "memory_manager_state", "config.yaml"):
        (kubelet / name).touch()
    machine.forget_managers(tmp_path)
    assert [each.name for each in kubelet.iterdir()] == ["config.yaml"]


@pytest.mark.req("SB-017")
@pytest.mark.parametrize(("memory", "available"), [(4 * GI, "100Mi"), (16 * GI, "100Mi"), (17 * GI, "0%")])
def test_a_node_with_less_memory_than_its_machine_evicts_nobody_for_memory(memory: int, available: str) -> None:
    """What is reserved stays the same: a kubelet does not start where it differs from ``reservedMemory``."""
    layout = NumaLayout.parse("2x2")
    settings = configuration.kubelet(address="10.0.0.1", cgroup="/c", numa=layout, unified=True, memory=memory)
    assert settings["evictionHard"]["memory.available"] == available
    assert settings["systemReserved"] == {"memory": "1Gi" if available == "0%" else "924Mi"}


@pytest.mark.req("SB-017")
@pytest.mark.parametrize(("text", "pods"), [("2x8,pods=5", 5), ("2x8", 100), ("2x8,pods=200", 100)])
def test_a_node_takes_as_many_pods_as_asked_for_and_never_more_than_it_has_addresses_for(text: str, pods: int) -> None:
    settings = configuration.kubelet(address="10.0.0.1", cgroup="/c", numa=NumaLayout.parse(text), unified=True)
    assert settings["maxPods"] == pods


@pytest.mark.req("SB-017")
def test_a_node_sees_its_own_boots_and_the_machine_of_its_layout(tmp_path: Path) -> None:
    shown = machine.write_files(tmp_path, NumaLayout.parse("2x4,cpuless=1Gi"))
    first = (tmp_path / shown["/proc/sys/kernel/random/boot_id"]).read_text()
    machine.write_files(tmp_path, None)
    assert (tmp_path / shown["/proc/sys/kernel/random/boot_id"]).read_text() != first
    nodes = tmp_path / shown["/sys/devices/system/node"]
    assert [(nodes / name).read_text() for name in ("online", "has_cpu")] == ["0-2\n", "0-1\n"]
    assert (nodes / "node2/cpulist").read_text() == "\n"


@pytest.mark.req("SB-017")
def test_devices_that_only_plugins_bring_to_a_real_kubelet_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    layout = NumaLayout.parse("2x8,devices=example.com/nic:2")
    with pytest.raises(SandboxError, match="real kubelets know devices from plugins alone"):
        machine.check(Settings(nodes={host_architecture(): 1}, real=True, numa=layout))
