"""Random pods for real kubelets, and what these decide about them."""

import os
import random
from collections.abc import Collection, Mapping
from typing import Any, Final

import scheduling_chances

from polyarch.kube.client import Client
from polyarch.kube.resources import PODS
from polyarch.sandbox.kubelet_model.machine import Node
from polyarch.sandbox.tasks import until

SEED: Final = os.environ.get("POLYARCH_TEST_SEED", "") or f"{random.SystemRandom().randrange(1 << 32):08x}"
"""Of everything random in a session; given, it repeats one."""
IMAGE: Final = "docker.io/library/nginx:1.27"
SECONDS: Final = 180.0


def random_pod(chance: random.Random, name: str, node: Node, **spec: Any) -> dict[str, Any]:
    """A pod that asks for what a machine like this has, sometimes for too much. Requests of pods as a whole are left
    out: not all that are made by chance are valid."""
    document = scheduling_chances.pod_document(scheduling_chances.pod(chance, 0, node))["spec"]
    containers = {
        kind: [{**each, "image": IMAGE} for each in document[kind]] for kind in ("initContainers", "containers")
    }
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name},
        "spec": {"terminationGracePeriodSeconds": 0, **containers, **spec},
    }


def decision(pod: Mapping[str, Any]) -> str | None:
    """Why its kubelet refused it; empty: it did not; None: no kubelet has decided."""
    status = pod.get("status", {})
    if "startTime" not in status:
        return None
    return str(status.get("reason") or "it failed") if status["phase"] == "Failed" else ""


async def decided(client: Client, namespace: str, names: Collection[str]) -> dict[str, str]:
    """The decision about each of these pods, once there is one about all."""
    found: dict[str, str | None] = {}

    async def are_decided() -> bool:
        pods = (await client.list(PODS, namespace=namespace)).items
        found.update(dict.fromkeys(names))
        found.update({pod["metadata"]["name"]: decision(pod) for pod in pods if pod["metadata"]["name"] in names})
        return None not in found.values()

    assert await until(are_decided, seconds=SECONDS), f"no kubelet has decided about these: {found}"
    return {name: reason for name, reason in found.items() if reason is not None}
