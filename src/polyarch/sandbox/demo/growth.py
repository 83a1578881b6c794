"""The cluster grows by two arm64 nodes while taints are on, and becomes again what it was.

What is shown: nodes carry the taint when they register, DaemonSets whose images run there get their pods on them, and
pods that nothing else keeps from them (placement leaves them alone at their own request) stay where they can run.
"""

from collections.abc import Awaitable, Callable, Collection
from typing import Any, Final

import msgspec

from polyarch.kube.client import Client
from polyarch.kube.errors import NotFound
from polyarch.kube.resources import DAEMONSETS, DEPLOYMENTS, NAMESPACES, NODES, PODS, Resource
from polyarch.placement.names import SKIP_ANNOTATION
from polyarch.sandbox.cluster import Sandbox
from polyarch.sandbox.document import DemoGrowth
from polyarch.sandbox.errors import ProcessFailed
from polyarch.sandbox.nodes.fleet import Node
from polyarch.sandbox.nodes.pods import Pod
from polyarch.sandbox.tasks import until
from polyarch.taints import names
from polyarch.taints.api import ARCHITECTURE_TAINTS, ArchitectureTaints
from polyarch.taints.settings import PRESET_KEYS

NAMESPACE: Final = "demo-growth"
ARCHITECTURE: Final = "arm64"
JOINING: Final = 2
SECONDS: Final = 180.0
AGENT, LEGACY = "agent", "billing"
LEGACY_PODS: Final = 4
KEY: Final = PRESET_KEYS["archaware"]


async def grow(sandbox: Sandbox, client: Client) -> DemoGrowth:
    """Switch taints on, let the nodes join, look, and take everything back. polyarch must be installed."""
    before = set(await _nodes(client))
    await client.create(NAMESPACES, {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}})
    await client.create(DAEMONSETS, _daemon_set(), namespace=NAMESPACE)
    await client.create(ARCHITECTURE_TAINTS, _configuration())
    await _reached("taints are not ready", lambda: _is_ready(client))
    settings = sandbox.state.settings
    more = settings.nodes | {ARCHITECTURE: settings.nodes.get(ARCHITECTURE, 0) + JOINING}
    await _resize(sandbox, more)
    now = await _nodes(client)
    joined = sorted(now.keys() - before)
    tainted = [name for name in joined if _is_tainted(now[name])]
    await client.create(DEPLOYMENTS, _deployment(), namespace=NAMESPACE)
    await _reached("pods of the growing cluster do not run", lambda: _have_started(client, joined))
    pods = await _running(client)
    growth = DemoGrowth(
        joined=len(joined),
        tainted=len(tainted),
        daemon_set_pods=sum(name == AGENT and node in joined for name, node in pods),
        kept_away=sum(name == LEGACY and node not in joined for name, node in pods),
    )
    await client.delete(ARCHITECTURE_TAINTS, names.SINGLETON)
    await _reached("taints are not removed", lambda: _is_gone(client, ARCHITECTURE_TAINTS, names.SINGLETON))
    left = sorted(name for name, node in (await _nodes(client)).items() if _is_tainted(node))
    await client.delete(NAMESPACES, NAMESPACE)
    await _resize(sandbox, settings.nodes)
    await _reached("polyarch's own containers are not ready", lambda: _are_well(sandbox))
    await _reached(f"namespace {NAMESPACE} is not gone", lambda: _is_gone(client, NAMESPACES, NAMESPACE))
    return msgspec.structs.replace(growth, left=left)


async def _resize(sandbox: Sandbox, nodes: dict[str, int]) -> None:
    wanted = msgspec.structs.replace(sandbox.state.settings, nodes=nodes)
    await Sandbox.start(wanted, install=False, home=sandbox.folder.root.parent)


async def _are_well(sandbox: Sandbox) -> bool:
    return not any((await sandbox.container_problems()).values())


async def _reached(problem: str, condition: Callable[[], Awaitable[bool]]) -> None:
    if not await until(condition, seconds=SECONDS):
        raise ProcessFailed(f"{problem} after {SECONDS:.0f} s; see the logs of polyarch's pods")


async def _nodes(client: Client) -> dict[str, Node]:
    return {node.metadata.name: node for node in (await client.list(NODES, type=Node)).items}


def _is_tainted(node: Node) -> bool:
    return any(taint.get("key") == KEY for taint in node.spec.taints or ())


async def _is_ready(client: Client) -> bool:
    found = await client.get(ARCHITECTURE_TAINTS, names.SINGLETON, type=ArchitectureTaints)
    true = {each.type for each in found.status.conditions or () if each.status == "True"}
    return true >= {"Ready", "NodesTainted"}


async def _is_gone(client: Client, resource: Resource, name: str) -> bool:
    try:
        await client.get(resource, name)
    except NotFound:
        return True
    return False


async def _running(client: Client) -> list[tuple[str, str]]:
    """The app and the node of each pod that runs."""
    found = await client.list(PODS, type=Pod, namespace=NAMESPACE)
    return [
        ((pod.metadata.labels or {}).get("app", ""), pod.spec.node_name)
        for pod in found.items
        if pod.status.phase == "Running"
    ]


async def _have_started(client: Client, joined: Collection[str]) -> bool:
    pods = await _running(client)
    agents = {node for name, node in pods if name == AGENT}
    return agents.issuperset(joined) and sum(name == LEGACY for name, _ in pods) == LEGACY_PODS


def _configuration() -> dict[str, Any]:
    return {
        "apiVersion": ARCHITECTURE_TAINTS.api_version,
        "kind": ARCHITECTURE_TAINTS.kind,
        "metadata": {"name": names.SINGLETON},
        "spec": {},
    }


def _daemon_set() -> dict[str, Any]:
    return _workload(DAEMONSETS.kind, AGENT, "nginx:1.27", {})


def _deployment() -> dict[str, Any]:
    """Its only image runs on amd64, and at its request placement does not say so to the scheduler."""
    document = _workload(DEPLOYMENTS.kind, LEGACY, "quay.io/acme/billing:2.3", {SKIP_ANNOTATION: "true"})
    document["spec"]["replicas"] = LEGACY_PODS
    return document


def _workload(kind: str, name: str, image: str, annotations: dict[str, str]) -> dict[str, Any]:
    labels = {"app": name}
    spec = {
        "containers": [{"name": name, "image": image, "imagePullPolicy": "IfNotPresent"}],
        "terminationGracePeriodSeconds": 0,
    }
    return {
        "apiVersion": "apps/v1",
        "kind": kind,
        "metadata": {"name": name},
        "spec": {
            "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels, "annotations": annotations}, "spec": spec},
        },
    }
