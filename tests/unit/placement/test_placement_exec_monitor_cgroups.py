"""From ``/proc/PID/cgroup`` and the directories of pod logs to the pod."""

import pytest

from polyarch.placement.exec_monitor_rules import Container, PodName, containers_of_process, find_pod

UID = "5d2a1b3c-9e8f-4a7b-8c6d-0e1f2a3b4c5d"
SYSTEMD_UID = UID.replace("-", "_")
STATIC = "36b6d6be73b1065af369b3985edafa09"
ID = "3f" * 32
NODE = "ab" * 32
OLD = """12:pids:PATH
11:memory:PATH
10:cpuset:PATH
9:cpu,cpuacct:PATH
1:name=systemd:PATH
"""
"""A host with cgroup v1."""
SLICE = f"/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod{SYSTEMD_UID}.slice"

CONTAINERS = {
    "CRI-O, systemd, v2": (f"0::{SLICE}/crio-{ID}.scope\n", UID, "cri-o"),
    "CRI-O with a cgroup of its own below": (f"0::{SLICE}/crio-{ID}.scope/container\n", UID, "cri-o"),
    "CRI-O, the runtime's monitor": (f"0::{SLICE}/crio-conmon-{ID}.scope\n", UID, "cri-o"),
    "CRI-O, cgroupfs": (f"0::/kubepods/besteffort/pod{UID}/crio-{ID}\n", UID, "cri-o"),
    "CRI-O, cgroupfs, v1": (OLD.replace("PATH", f"/kubepods/burstable/pod{UID}/crio-{ID}"), UID, "cri-o"),
    "CRI-O, cgroupfs, the runtime's monitor": (f"0::/kubepods/pod{UID}/crio-conmon-{ID}\n", UID, "cri-o"),
    "CRI-O, a process that has ended where v1 has all controllers and v2 is mounted, too": (
        f"8:pids:/\n4:memory:/\n0::/kubepods/besteffort/pod{STATIC}/crio-{ID}\n",
        STATIC,
        "cri-o",
    ),
    "CRI-O, systemd, v1": (OLD.replace("PATH", f"{SLICE}/crio-{ID}.scope"), UID, "cri-o"),
    "containers that a container runs itself": (
        f"0::{SLICE}/cri-containerd-{ID}.scope/docker/{NODE}/init.scope\n",
        UID,
        "containerd",
    ),
    "containerd, systemd, v2": (f"0::{SLICE}/cri-containerd-{ID}.scope\n", UID, "containerd"),
    "containerd, a guaranteed pod": (
        f"0::/kubepods.slice/kubepods-pod{SYSTEMD_UID}.slice/cri-containerd-{ID}.scope\n",
        UID,
        "containerd",
    ),
    "containerd, systemd, v1": (OLD.replace("PATH", f"{SLICE}/cri-containerd-{ID}.scope"), UID, "containerd"),
    "containerd, cgroupfs, v1": (OLD.replace("PATH", f"/kubepods/burstable/pod{UID}/{ID}"), UID, "unknown"),
    "containerd, cgroupfs, v2": (f"0::/kubepods/besteffort/pod{UID}/{ID}\n", UID, "unknown"),
    "containerd whose cgroupfs got a systemd name": (
        OLD.replace(
            "PATH", f"/system.slice/containerd.service/kubepods-burstable-pod{STATIC}.slice:cri-containerd:{ID}"
        ),
        STATIC,
        "containerd",
    ),
    "a static pod": (f"0::/kubepods/burstable/pod{STATIC}/{ID}\n", STATIC, "unknown"),
    "a static pod, systemd": (
        f"0::/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod{STATIC}.slice/crio-{ID}.scope\n",
        STATIC,
        "cri-o",
    ),
    "docker behind cri-dockerd": (f"0::{SLICE}/docker-{ID}.scope\n", UID, "unknown"),
    "kind, seen from the host": (f"0::/docker/{NODE}/kubelet/kubepods/besteffort/pod{UID}/{ID}\n", UID, "unknown"),
    "kind, systemd": (
        (
            "0::/kubelet.slice/kubelet-kubepods.slice/kubelet-kubepods-besteffort.slice/"
            f"kubelet-kubepods-besteffort-pod{SYSTEMD_UID}.slice/cri-containerd-{ID}.scope\n"
        ),
        UID,
        "containerd",
    ),
    "seen from inside a cgroup namespace": (
        f"0::/../../kubepods-besteffort-pod{SYSTEMD_UID}.slice/crio-{ID}.scope\n",
        UID,
        "cri-o",
    ),
    "a hybrid host that uses v1": (
        f"4:memory:{SLICE}/crio-{ID}.scope\n1:name=systemd:/init.scope\n0::/init.scope\n",
        UID,
        "cri-o",
    ),
    "a hybrid host that uses pids alone": (f"8:pids:/kubepods/pod{UID}/{ID}\n4:memory:/\n0::/\n", UID, "unknown"),
    "a host with systemd's own hierarchy alone": (f"1:name=systemd:/kubepods/pod{UID}/{ID}\n", UID, "unknown"),
    "a cgroup that was removed": (f"0::{SLICE}/crio-{ID}.scope (deleted)\n", UID, "cri-o"),
}

NOTHING = {
    "no text": "",
    "garbage": "what\n:::\n\n0",
    "a service of the host": "0::/system.slice/sshd.service\n",
    "a container of no pod": f"0::/system.slice/docker-{ID}.scope\n",
    "the runtime itself": "0::/system.slice/crio.service\n",
    "CRI-O's monitor of a container, beside all pods": f"0::/system.slice/crio-conmon-{ID}.scope\n",
    "the slice of all pods": "0::/kubepods.slice/kubepods-burstable.slice\n",
    "a pod's cgroup and no container": f"0::{SLICE}\n",
    "kind: a pod's cgroup after the id of the node": f"0::/docker/{NODE}/kubelet/kubepods/besteffort/pod{UID}\n",
    "an id that is too short": f"0::/kubepods/pod{UID}/{ID[:-1]}\n",
    "an id that is too long": f"0::/kubepods/pod{UID}/{ID}0\n",
    "a uid that is none": f"0::/kubepods/pod1234/{ID}\n",
    "a hierarchy that nobody uses": f"3:cpuset:/kubepods/pod{UID}/{ID}\n",
    "a process that has ended, v1": OLD.replace("PATH", "/"),
}


@pytest.mark.req("PL-603", "PL-900")
@pytest.mark.parametrize(("text", "uid", "runtime"), CONTAINERS.values(), ids=CONTAINERS)
def test_the_container_of_a_process(text: str, uid: str, runtime: str) -> None:
    """CRI-O and containerd, both cgroup versions and drivers, kind and nested prefixes."""
    assert containers_of_process(text) == (Container(uid, f"{runtime}://{ID}"),)


@pytest.mark.req("PL-603")
@pytest.mark.parametrize("text", NOTHING.values(), ids=NOTHING)
def test_what_belongs_to_no_container_of_a_pod(text: str) -> None:
    assert containers_of_process(text) == ()


@pytest.mark.req("PL-603")
def test_the_unified_hierarchy_is_believed_first() -> None:
    other = "ee" * 32
    text = f"8:pids:/kubepods/pod{UID}/{other}\n4:memory:/kubepods/pod{UID}/{other}\n0::/kubepods/pod{UID}/{ID}\n"
    assert containers_of_process(text) == (Container(UID, f"unknown://{ID}"),)


@pytest.mark.req("PL-603")
def test_of_a_pod_in_a_node_in_a_pod_both_are_told_the_inner_one_first() -> None:
    """A pod may run a cluster, whose pods the node's own kubelet does not know."""
    inner = f"kubelet.slice/kubelet-kubepods-pod{SYSTEMD_UID}.slice/cri-containerd-{ID}.scope"
    text = f"0::/kubepods/besteffort/pod{STATIC}/{NODE}/docker/{'cd' * 32}/{inner}\n"
    assert containers_of_process(text) == (
        Container(UID, f"containerd://{ID}"),
        Container(STATIC, f"unknown://{NODE}"),
    )


LOGS = {
    "a pod": (f"shop_cart-7d9f_{UID}", PodName("shop", "cart-7d9f")),
    "a name with dots": (f"shop_db.0.example_{UID}", PodName("shop", "db.0.example")),
    "another pod": ("shop_cart_00000000-0000-0000-0000-000000000000", None),
    "a name that no pod can have": (f"shop_Cart_{UID}", None),
    "a namespace that cannot be": (f"shop.x_cart_{UID}", None),
    "no name": (f"shop_{UID}", None),
    "a uid that only ends alike": (f"shop_cart_x{UID}", None),
}


@pytest.mark.req("PL-605")
@pytest.mark.parametrize(("directory", "pod"), LOGS.values(), ids=LOGS)
def test_a_pods_name_is_in_the_directory_of_its_logs(directory: str, pod: PodName | None) -> None:
    assert find_pod(["kube-system_dns_11111111-2222-3333-4444-555555555555", directory], UID) == pod


@pytest.mark.req("PL-605")
def test_a_static_pods_directory_has_its_other_uid() -> None:
    assert find_pod([f"kube-system_etcd-a_{STATIC}"], STATIC) == PodName("kube-system", "etcd-a")
