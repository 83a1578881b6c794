"""Where the kubelet's settings come from, and when they are read again."""

import json
from pathlib import Path
from typing import Any

import pytest
from machine_trees import MachineTree
from manual_clock import ManualClock

from polyarch.numa.facts import HostSettings, KubeletSettings
from polyarch.numa.host.kubelet import (
    ConfigzUnavailable,
    InvalidKubeletConfiguration,
    KubeletSettingsSource,
    NoKubeletSettings,
    settings_from_configz,
    settings_from_files,
)
from polyarch.numa.host.machine import HostRoot

CONFIG = "podresources/config.yaml"
FULL = """\
apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
topologyManagerPolicy: single-numa-node
topologyManagerScope: pod
topologyManagerPolicyOptions:
  prefer-closest-numa-nodes: "true"
  max-allowable-numa-nodes: "12"
cpuManagerPolicy: static
cpuManagerPolicyOptions: {full-pcpus-only: "true"}
memoryManagerPolicy: Static
reservedSystemCPUs: 0-1
featureGates: {PodLevelResourceManagers: true, Other: false}
evictionHard: {memory.available: 100Mi}
clusterDNS: [10.0.0.10]
"""


def parsed(text: str, *drop_ins: str) -> KubeletSettings:
    return settings_from_files(
        ("c.yaml", text.encode()), [(f"{n}.conf", each.encode()) for n, each in enumerate(drop_ins)]
    )


# -- what a configuration says -----------------------------------------------------------------------------------------


@pytest.mark.req("NE-102")
def test_all_keys_of_interest_are_read():
    assert parsed(FULL) == KubeletSettings(
        policy="single-numa-node",
        scope="pod",
        max_numa_nodes=12,
        topology_options=(("max-allowable-numa-nodes", "12"), ("prefer-closest-numa-nodes", "true")),
        cpu_manager_policy="static",
        cpu_manager_options=(("full-pcpus-only", "true"),),
        memory_manager_policy="Static",
        pod_level_managers=True,
        reserves_cpus=True,
    )


@pytest.mark.req("NE-102")
@pytest.mark.parametrize("text", ["{}", "kind: KubeletConfiguration", 'topologyManagerPolicy: ""', "cpuManagerPolicy:"])
def test_missing_keys_mean_the_kubelets_defaults(text: str):
    assert parsed(text) == KubeletSettings(
        policy="none",
        scope="container",
        cpu_manager_policy="none",
        memory_manager_policy="None",
        reserves_cpus=False,
    )


@pytest.mark.req("NE-102")
@pytest.mark.parametrize(
    ("text", "reserves"),
    [
        ("reservedSystemCPUs: 0", True),
        ("reservedSystemCPUs: 0,4", True),
        ("kubeReserved: {cpu: 500m}", True),
        ("systemReserved: {cpu: 1}", True),
        ("kubeReserved: {cpu: 0m, memory: 1Gi}", False),
        ("systemReserved: {memory: 1Gi}", False),
    ],
)
def test_a_reservation_of_cpus_is_seen(text: str, reserves: bool):
    assert parsed(text).reserves_cpus is reserves


@pytest.mark.req("NE-102")
def test_drop_ins_are_merged_key_by_key_in_their_order():
    found = parsed(
        FULL,
        "topologyManagerPolicy: restricted\ncpuManagerPolicyOptions: {distribute-cpus-across-numa: 'true'}",
        "topologyManagerPolicy: best-effort\nreservedSystemCPUs: null\nclusterDNS: []",
    )
    assert (found.policy, found.scope, found.reserves_cpus) == ("best-effort", "pod", False)
    assert found.cpu_manager_options == (("distribute-cpus-across-numa", "true"), ("full-pcpus-only", "true"))


@pytest.mark.req("NE-103")
@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("topologyManagerPolicy: strict", "c.yaml: topologyManagerPolicy: 'strict' is none of none, best-effort"),
        ("topologyManagerScope: node", "c.yaml: topologyManagerScope: 'node' is none of container, pod"),
        ("topologyManagerPolicy: [none]", "c.yaml: topologyManagerPolicy: expected a text, found a list"),
        ("topologyManagerPolicyOptions: all", "c.yaml: topologyManagerPolicyOptions: expected a map, found a text"),
        ("topologyManagerPolicyOptions: {max-allowable-numa-nodes: many}", "'many' is not a number of cells"),
        ("kind: Pod", "c.yaml: kind: expected KubeletConfiguration, found 'Pod'"),
        ("", "c.yaml: expected a KubeletConfiguration, found nothing"),
        ("[]", "c.yaml: expected a KubeletConfiguration, found a list"),
        ("a: }", "c.yaml:1: "),
        ("a: !!python/object:os.system {}", "could not determine a constructor"),
    ],
)
def test_what_no_kubelet_starts_with_is_refused_by_place(text: str, message: str):
    with pytest.raises(InvalidKubeletConfiguration) as refused:
        parsed(text)
    assert message in str(refused.value)


def configz(**keys: Any) -> bytes:
    return json.dumps({"kubeletconfig": keys}).encode()


@pytest.mark.req("NE-101")
def test_configz_has_the_same_keys_and_shows_flags():
    found = settings_from_configz(
        configz(topologyManagerPolicy="restricted", systemReserved={"cpu": "1"}, clusterDNS=["x"])
    )
    assert (found.policy, found.scope, found.reserves_cpus) == ("restricted", "container", True)


@pytest.mark.req("NE-101")
@pytest.mark.parametrize("content", [b"", b"[]", b"{}", b"<html>", b'{"kubeletconfig": 1}'])
def test_another_answer_is_none(content: bytes):
    with pytest.raises(InvalidKubeletConfiguration, match="configz: "):
        settings_from_configz(content)


# -- which source counts, and when -------------------------------------------------------------------------------------


class Kubelet:
    """Answers of ``/configz``, or refusals."""

    def __init__(self, *answers: bytes | Exception) -> None:
        self.answers = list(answers)
        self.asked = 0

    async def get(self) -> bytes:
        self.asked += 1
        answer = self.answers[0] if len(self.answers) == 1 else self.answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer


REFUSED = ConfigzUnavailable("403 Forbidden", refused=True)
FAILED = ConfigzUnavailable("connection refused", refused=False)


class KubeletWorld:
    """A machine with a configuration file, and a kubelet that may be asked."""

    def __init__(self, root: Path, kubelet: Kubelet | None = None, **sources: Any) -> None:
        self.tree = MachineTree(root)
        self.clock = ManualClock()
        self.kubelet = kubelet
        self.source = KubeletSettingsSource(
            HostSettings(**sources), HostRoot(str(root)), clock=self.clock, configz=kubelet
        )

    async def said(self, socket: int = 1) -> tuple[str, str, str]:
        found = await self.source.current(socket)
        return found.origin, found.kubelet.policy, found.stale


@pytest.mark.req("NE-100")
async def test_the_exporters_own_options_come_first_and_ask_nobody(tmp_path: Path):
    kubelet = Kubelet(configz(topologyManagerPolicy="restricted"))
    world = KubeletWorld(tmp_path, kubelet, topology_manager_policy="best-effort", topology_manager_scope="pod")
    found = await world.source.current()
    assert (found.origin, found.kubelet.policy, found.kubelet.scope) == ("options", "best-effort", "pod")
    assert (found.kubelet.cpu_manager_policy, found.kubelet.memory_manager_policy) == ("", "")
    assert found.kubelet.reserves_cpus is None
    assert kubelet.asked == 0


@pytest.mark.req("NE-100")
async def test_one_option_alone_is_no_source(tmp_path: Path):
    world = KubeletWorld(tmp_path, topology_manager_policy="best-effort")
    world.tree.write(CONFIG, "topologyManagerPolicy: restricted")
    assert await world.said() == ("file", "restricted", "")


@pytest.mark.req("NE-103")
async def test_options_that_no_kubelet_knows_are_no_source(tmp_path: Path):
    with pytest.raises(NoKubeletSettings, match="topologyManagerScope: 'node' is none of"):
        await KubeletWorld(tmp_path, topology_manager_policy="none", topology_manager_scope="node").said()


@pytest.mark.req("NE-100")
async def test_auto_prefers_configz(tmp_path: Path):
    world = KubeletWorld(tmp_path, Kubelet(configz(topologyManagerPolicy="restricted")))
    world.tree.write(CONFIG, "topologyManagerPolicy: none")
    assert await world.said() == ("configz", "restricted", "")


@pytest.mark.req("NE-100")
async def test_file_asks_no_kubelet(tmp_path: Path):
    kubelet = Kubelet(configz())
    world = KubeletWorld(tmp_path, kubelet, kubelet_config="file")
    world.tree.write(CONFIG, "topologyManagerPolicy: restricted")
    assert await world.said() == ("file", "restricted", "")
    assert kubelet.asked == 0


@pytest.mark.req("NE-100")
async def test_configz_reads_no_file(tmp_path: Path):
    world = KubeletWorld(tmp_path, Kubelet(REFUSED), kubelet_config="configz")
    world.tree.write(CONFIG, "topologyManagerPolicy: restricted")
    with pytest.raises(NoKubeletSettings, match="403 Forbidden"):
        await world.said()


@pytest.mark.req("NE-101")
async def test_a_refusal_means_the_file_and_is_tried_again_after_ten_minutes(tmp_path: Path):
    kubelet = Kubelet(REFUSED, configz(topologyManagerPolicy="restricted"))
    world = KubeletWorld(tmp_path, kubelet)
    world.tree.write(CONFIG, "topologyManagerPolicy: best-effort")
    assert await world.said() == ("file", "best-effort", "")
    world.clock.advance(599)
    assert await world.said() == ("file", "best-effort", "")
    assert kubelet.asked == 1
    world.clock.advance(1)
    assert await world.said() == ("configz", "restricted", "")


@pytest.mark.req("NE-101")
async def test_a_right_that_is_withdrawn_means_the_file(tmp_path: Path):
    world = KubeletWorld(tmp_path, Kubelet(configz(topologyManagerPolicy="restricted"), REFUSED))
    world.tree.write(CONFIG, "topologyManagerPolicy: best-effort")
    assert await world.said() == ("configz", "restricted", "")
    assert await world.said(socket=2) == ("file", "best-effort", "")


@pytest.mark.req("NE-102")
async def test_a_restarted_kubelet_is_asked_again_at_once(tmp_path: Path):
    kubelet = Kubelet(configz(topologyManagerPolicy="restricted"), configz(topologyManagerPolicy="none"))
    world = KubeletWorld(tmp_path, kubelet)
    assert await world.said(socket=1) == ("configz", "restricted", "")
    assert await world.said(socket=1) == ("configz", "restricted", "")
    assert kubelet.asked == 1
    assert await world.said(socket=2) == ("configz", "none", "")


@pytest.mark.req("NE-102")
async def test_a_changed_file_counts_with_the_next_scan(tmp_path: Path):
    world = KubeletWorld(tmp_path, kubelet_config_dir="/etc/kubelet.d")
    world.tree.write(CONFIG, FULL)
    assert await world.said() == ("file", "single-numa-node", "")
    world.tree.write("etc/kubelet.d/10-policy.conf", "topologyManagerPolicy: restricted")
    world.tree.write("etc/kubelet.d/20-policy.conf", "topologyManagerPolicy: best-effort")
    world.tree.write("etc/kubelet.d/30-policy.yaml", "topologyManagerPolicy: none")
    assert await world.said() == ("file", "best-effort", "")
    world.tree.remove("etc/kubelet.d/20-policy.conf")
    assert await world.said() == ("file", "restricted", "")


@pytest.mark.req("NE-103")
async def test_without_any_source_there_is_nothing_to_start_with(tmp_path: Path):
    with pytest.raises(NoKubeletSettings) as refused:
        await KubeletWorld(tmp_path, Kubelet(REFUSED)).said()
    assert "403 Forbidden; " in str(refused.value)
    assert f"{tmp_path}/{CONFIG}: No such file or directory" in str(refused.value)
    assert "give --kubelet-config-file" in str(refused.value)


@pytest.mark.req("NE-103")
@pytest.mark.parametrize("content", ["topologyManagerPolicy: strict", "", "a: {"])
async def test_a_file_that_becomes_unusable_leaves_the_last_values_stale(tmp_path: Path, content: str):
    world = KubeletWorld(tmp_path)
    world.tree.write(CONFIG, FULL)
    await world.said()
    world.tree.write(CONFIG, content)
    origin, policy, stale = await world.said()
    assert (origin, policy) == ("file", "single-numa-node")
    assert stale.startswith(f"{tmp_path}/{CONFIG}")
    world.tree.write(CONFIG, FULL)
    assert await world.said() == ("file", "single-numa-node", "")


@pytest.mark.req("NE-103")
async def test_a_kubelet_that_does_not_listen_leaves_the_last_values_stale_and_not_the_files(tmp_path: Path):
    kubelet = Kubelet(configz(topologyManagerPolicy="restricted"), FAILED, configz(topologyManagerPolicy="none"))
    world = KubeletWorld(tmp_path, kubelet)
    world.tree.write(CONFIG, "topologyManagerPolicy: best-effort")
    await world.said(socket=1)
    assert await world.said(socket=2) == ("configz", "restricted", "connection refused")
    world.clock.advance(9)
    assert await world.said(socket=2) == ("configz", "restricted", "connection refused")
    world.clock.advance(1)
    assert await world.said(socket=2) == ("configz", "none", "")


@pytest.mark.req("NE-100")
async def test_until_a_kubelet_listens_its_file_counts(tmp_path: Path):
    world = KubeletWorld(tmp_path, Kubelet(FAILED, configz(topologyManagerPolicy="restricted")))
    world.tree.write(CONFIG, "topologyManagerPolicy: best-effort")
    assert await world.said() == ("file", "best-effort", "")
    world.clock.advance(10)
    assert await world.said() == ("configz", "restricted", "")


@pytest.mark.req("NE-101", "NE-153")
async def test_a_port_that_a_firewall_closes_is_asked_less_and_less(tmp_path: Path):
    """The scan that asks waits ten seconds for nothing; a kubelet that restarts is asked at once."""
    kubelet = Kubelet(FAILED)
    world = KubeletWorld(tmp_path, kubelet)
    world.tree.write(CONFIG, "topologyManagerPolicy: best-effort")
    for _ in range(360):
        assert await world.said() == ("file", "best-effort", "")
        world.clock.advance(10)
    asked = kubelet.asked
    assert 6 < asked < 14, "in an hour"
    await world.said(socket=2)
    world.clock.advance(10)
    await world.said(socket=2)
    assert kubelet.asked == asked + 2


@pytest.mark.req("NE-103")
async def test_a_withdrawn_right_without_a_file_keeps_what_was_known(tmp_path: Path):
    world = KubeletWorld(tmp_path, Kubelet(configz(topologyManagerPolicy="restricted"), REFUSED))
    await world.said(socket=1)
    origin, policy, stale = await world.said(socket=2)
    assert (origin, policy) == ("configz", "restricted")
    assert stale == f"403 Forbidden; {tmp_path}/{CONFIG}: No such file or directory"
