"""Saved nodes and pods for tests of the commands about cells."""

from typing import Any

Json = dict[str, Any]


def zone(number: int, **available: str) -> Json:
    """8 CPUs and 32 GiB, all free unless said otherwise."""
    totals = {"cpu": "8", "memory": "32Gi", **dict.fromkeys(available.keys() - {"cpu", "memory"}, "2")}
    return {
        "name": f"node-{number}",
        "type": "Node",
        "resources": [
            {"name": name, "capacity": total, "allocatable": total, "available": available.get(name, total)}
            for name, total in totals.items()
        ],
    }


def topology(name: str, *zones: Json, policy: str = "single-numa-node", **attributes: str) -> Json:
    said = {"topologyManagerPolicy": policy, "topologyManagerScope": "container"}
    said |= {each if each.startswith("node") else f"numa.polyarch.dev/{each}": attributes[each] for each in attributes}
    return {
        "apiVersion": "topology.node.k8s.io/v1alpha2",
        "kind": "NodeResourceTopology",
        "metadata": {"name": name},
        "attributes": [{"name": key, "value": value} for key, value in said.items()],
        "zones": list(zones),
    }


def pod(name: str, *, namespace: str = "shop", node: str = "", uid: str = "", **limits: str) -> Json:
    """Guaranteed with CPUs and memory; 1Gi if no memory is given."""
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": namespace, "uid": uid or f"uid-{name}"},
        "spec": {
            **({"nodeName": node} if node else {}),
            "containers": [{"name": "app", "image": "x", "resources": {"limits": {"memory": "1Gi", **limits}}}],
        },
    }


def machine(name: str, *, cordoned: bool = False, **allocatable: str) -> Json:
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name},
        "spec": {"unschedulable": cordoned},
        "status": {"allocatable": {"cpu": "16", "memory": "64Gi", "pods": "110", **allocatable}},
    }


def listed(*items: Json) -> Json:
    return {"apiVersion": "v1", "kind": "List", "items": list(items)}
