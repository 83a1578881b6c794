"""What programs of real nodes are told, for the versions of them that there are."""

import tomllib
from typing import Any

import pytest

from polyarch.sandbox.real import configuration
from polyarch.sandbox.real.configuration import version_of_containerd

pytestmark = pytest.mark.req("SB-017")

SAID = {
    "containerd github.com/containerd/containerd 1.6.20~ds1 1.6.20~ds1-1+deb12u1\n": (1, 6),
    "containerd github.com/containerd/containerd 1.7.24~ds1 1.7.24~ds1-6+deb13u1\n": (1, 7),
    "containerd containerd.io 1.6.33 d2d58213f83a351ca8f528a95fbd145f5654e957\n": (1, 6),
    "containerd github.com/containerd/containerd/v2 2.1.9+unknown \n": (2, 1),
    "containerd github.com/containerd/containerd/v2 v2.0.5 fb4c30d4ede3531652d86197bf3fc9515e5276d9\n": (2, 0),
    "containerd github.com/containerd/containerd/v2 v2.10.0 \n": (2, 10),
}
"""What ``containerd --version`` says: Debian, Docker's packages, the project's own."""


@pytest.mark.parametrize(("said", "version"), SAID.items())
def test_the_version_of_containerd_is_read(said: str, version: tuple[int, int]) -> None:
    assert version_of_containerd(said) == version


@pytest.mark.parametrize("said", ["", "containerd github.com/containerd/containerd/v2 main-4f6bd4e \n"])
def test_a_version_that_says_nothing_is_taken_for_a_new_one(said: str) -> None:
    assert "bin_dirs" in configuration.containerd(version_of_containerd(said), runc="/usr/sbin/runc", cni_plugins="/x")


def plugins(version: tuple[int, int]) -> tuple[int, dict[str, Any]]:
    read = tomllib.loads(configuration.containerd(version, runc="/usr/sbin/runc", cni_plugins="/usr/lib/cni"))
    return read["version"], read["plugins"]


@pytest.mark.parametrize("version", [(1, 6), (1, 7), (2, 0)])
def test_older_versions_of_containerd_read_version_2(version: tuple[int, int]) -> None:
    number, found = plugins(version)
    cri = found["io.containerd.grpc.v1.cri"]
    assert number == 2
    assert cri["sandbox_image"] == configuration.PAUSE
    assert cri["cni"] == {"bin_dir": "/usr/lib/cni", "conf_dir": "/var/lib/cni/net.d"}
    assert cri["registry"] == {"config_path": "/var/lib/containerd/certs.d"}
    assert cri["containerd"]["runtimes"]["runc"]["options"] == {"SystemdCgroup": False, "BinaryName": "/usr/sbin/runc"}


@pytest.mark.parametrize("version", [(1, 6), (2, 2)])
def test_where_no_program_loads_profiles_containers_have_none(version: tuple[int, int]) -> None:
    for apparmor in (True, False):
        text = configuration.containerd(version, runc="/runc", cni_plugins="/x", apparmor=apparmor)
        found = tomllib.loads(text)["plugins"]
        cri = found.get("io.containerd.cri.v1.runtime") or found["io.containerd.grpc.v1.cri"]
        assert cri.get("disable_apparmor", False) == (not apparmor)


@pytest.mark.parametrize("version", [(2, 1), (2, 3), (3, 0)])
def test_newer_versions_of_containerd_read_version_3_with_folders_of_plugins(version: tuple[int, int]) -> None:
    number, found = plugins(version)
    images, runtime = found["io.containerd.cri.v1.images"], found["io.containerd.cri.v1.runtime"]
    assert number == 3
    assert images["pinned_images"] == {"sandbox": configuration.PAUSE}
    assert images["registry"] == {"config_path": "/var/lib/containerd/certs.d"}
    assert runtime["cni"] == {"bin_dirs": ["/usr/lib/cni"], "conf_dir": "/var/lib/cni/net.d"}
    runc = runtime["containerd"]["runtimes"]["runc"]["options"]
    assert runc == {"SystemdCgroup": False, "BinaryName": "/usr/sbin/runc"}


@pytest.mark.parametrize("version", [(1, 6), (2, 1)])
def test_containerd_and_kubelet_make_no_folder_of_the_machine(version: tuple[int, int]) -> None:
    _, found = plugins(version)
    assert found["io.containerd.internal.v1.opt"] == {"path": "/var/lib/containerd/opt"}
    kubelet = configuration.kubelet(address="10.250.0.1", cgroup="/polyarch-one/amd64-1", numa=None, unified=True)
    assert kubelet["volumePluginDir"].startswith("/var/lib/kubelet/")
    assert "failCgroupV1" not in kubelet


def test_user_namespaces_of_pods_find_a_proc_and_a_sysfs_that_nothing_covers() -> None:
    lines = configuration.mounts(has_trace=True, machine={"/proc/meminfo": "machine/proc/meminfo"}).splitlines()
    made = [line for line in lines if line.startswith(("mount -t proc", "mount -t sysfs"))]
    places = [line.split()[-1] for line in made]
    assert len(places) == 2
    assert lines.index("mount -t tmpfs tmpfs /run") < min(map(lines.index, made)), "else /run covers them"
    others = "\n".join(line for line in lines if line not in made and not line.startswith("mkdir"))
    assert not any(place in others for place in places)
