"""The KubeletConfiguration of a modelled kubelet: its ``config.yaml``, and what it answers at ``/configz``. Pure."""

from typing import Any

from polyarch.sandbox.kubelet_model.capacity import EVICTION
from polyarch.sandbox.kubelet_model.machine import MEMORY, Configuration
from polyarch.sandbox.numa_nodes import cpulists

MEBIBYTE = 1024**2
RECONCILE_SECONDS = 1
"""``cpuManagerReconcilePeriod``: how soon CPUs of pods that are over are free. A kubelet's default is 10 s."""


def document(configuration: Configuration) -> dict[str, Any]:
    """What the administrator of such a node would have written."""
    reserved = sum(amounts.get(MEMORY, 0) for amounts in configuration.reserved_memory.values())
    found: dict[str, Any] = {
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "kind": "KubeletConfiguration",
        "cpuManagerPolicy": configuration.cpu_policy,
        "cpuManagerReconcilePeriod": f"{RECONCILE_SECONDS}s",
        "memoryManagerPolicy": configuration.memory_policy,
        "topologyManagerPolicy": configuration.topology_policy,
        "topologyManagerScope": configuration.topology_scope,
        "evictionHard": {"memory.available": f"{EVICTION // MEBIBYTE}Mi"},
        "systemReserved": {MEMORY: f"{(reserved - EVICTION) // MEBIBYTE}Mi"},
        "reservedMemory": [
            {"numaNode": cell, "limits": {name: f"{amount // MEBIBYTE}Mi" for name, amount in amounts.items()}}
            for cell, amounts in configuration.reserved_memory.items()
        ],
        "maxPods": configuration.most_pods,
    }
    if configuration.full_cores_only:
        found["cpuManagerPolicyOptions"] = {"full-pcpus-only": "true"}
    if configuration.prefer_closest:
        found["topologyManagerPolicyOptions"] = {"prefer-closest-numa-nodes": "true"}
    if configuration.reserved_cpus:
        found["reservedSystemCPUs"] = cpulists.text(configuration.reserved_cpus)
    return found


def configz(configuration: Configuration) -> dict[str, Any]:
    """The answer at ``/configz``: the configuration as the kubelet runs with it."""
    members = {name: value for name, value in document(configuration).items() if name not in {"apiVersion", "kind"}}
    return {"kubeletconfig": members}
