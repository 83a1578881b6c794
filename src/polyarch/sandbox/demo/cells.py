"""The same pods with the stock scheduler and with the scheduler of cells, on nodes that have NUMA cells.

The stock scheduler sees the sums of a node. So it sends pods to nodes of which no single cell can hold them, and there
the kubelet refuses them: they fail, and nobody tries another node. The scheduler of cells lets them wait.
"""

import random
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from typing import Any, Final

import msgspec

from polyarch.kube.client import Client
from polyarch.kube.resources import NAMESPACES, PODS, SERVICE_ACCOUNTS
from polyarch.numa.api.resources import SchedulerSettings
from polyarch.numa.api.topology import TOPOLOGIES
from polyarch.sandbox.cluster import Sandbox
from polyarch.sandbox.demo.stage import clean
from polyarch.sandbox.document import DemoCells, DemoScheduled
from polyarch.sandbox.errors import ProcessFailed
from polyarch.sandbox.kubelet_model.layout import Numa
from polyarch.sandbox.nodes.pods import Pod
from polyarch.sandbox.tasks import together, until

NAMESPACE: Final = "demo-cells"
STOCK: Final = "default-scheduler"
OURS: Final = SchedulerSettings().name
MOST_PODS: Final = 200
AT_ONCE: Final = 16
SECONDS: Final = 180.0
FREE_SECONDS: Final = 30.0
QUIET_SECONDS: Final = 6.0
"""Nothing has changed for so long: longer than the first attempts of a scheduler, and than an exporter needs."""
LOOK_SECONDS: Final = 0.5
REFUSED: Final = "TopologyAffinityError"
IMAGE: Final = "nginx:1.27"


class _Amounts(msgspec.Struct, frozen=True):
    name: str
    allocatable: str
    available: str


class _Zone(msgspec.Struct, frozen=True):
    resources: tuple[_Amounts, ...] = ()


class _Topology(msgspec.Struct, frozen=True):
    zones: tuple[_Zone, ...] = ()


async def compare(sandbox: Sandbox, client: Client) -> DemoCells | None:
    """Both runs, one after the other on empty nodes; None if the nodes have no cells. Afterwards those of the second
    run are still there."""
    numa = sandbox.state.settings.numa
    if numa is None:
        return None
    await clean(client, NAMESPACE)
    nodes = sum(sandbox.state.settings.nodes.values())
    wanted = documents(numa, nodes)
    await _until_free(client)
    stock = await _run(client, wanted, STOCK)
    await clean(client, NAMESPACE)
    await _until_free(client)
    return DemoCells(pods=len(wanted), nodes=nodes, stock=stock, cells=await _run(client, wanted, OURS))


def documents(numa: Numa, nodes: int) -> list[dict[str, Any]]:
    """Guaranteed pods, always the same: for each cell one that wants more than half of it, and one that wants a little
    less than half; in no order. So the cluster becomes as full as it can."""
    sizes = [numa.cpus // 2 + 1, max(1, numa.cpus // 2 - 1)] * numa.zones * nodes
    random.Random(1).shuffle(sizes)  # noqa: S311  no secret
    return [_pod(number, cpus) for number, cpus in enumerate(sizes[:MOST_PODS])]


def _pod(number: int, cpus: int) -> dict[str, Any]:
    container = {"name": "app", "image": IMAGE, "resources": {"limits": {"cpu": str(cpus), "memory": "64Mi"}}}
    spec = {"terminationGracePeriodSeconds": 0, "restartPolicy": "Always", "containers": [container]}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": f"pod-{number:03}"}, "spec": spec}


async def _run(client: Client, wanted: list[dict[str, Any]], scheduler: str) -> DemoScheduled:
    await client.create(NAMESPACES, {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}})

    async def has_account() -> bool:
        return bool((await client.list(SERVICE_ACCOUNTS, namespace=NAMESPACE)).items)

    await _reached(f"namespace {NAMESPACE} has no ServiceAccount", has_account)
    begun = time.monotonic()
    for start in range(0, len(wanted), AT_ONCE):
        several = wanted[start : start + AT_ONCE]
        named = [{**each, "spec": {**each["spec"], "schedulerName": scheduler}} for each in several]
        await together(client.create(PODS, each, namespace=NAMESPACE) for each in named)
    seen: list[tuple[float, DemoScheduled]] = []

    async def is_quiet() -> bool:
        found = await client.list(PODS, namespace=NAMESPACE, type=Pod)
        now, counted = time.monotonic(), count(scheduler, found.items)
        if not seen or seen[-1][1] != counted:
            seen.append((now, counted))
        return now > seen[-1][0] + QUIET_SECONDS

    await until(is_quiet, seconds=SECONDS, every=LOOK_SECONDS)
    since, last = seen[-1]
    return msgspec.structs.replace(last, seconds=round(since - begun, 1))


def count(scheduler: str, pods: list[Pod]) -> DemoScheduled:
    """What became of the pods. Pure."""
    reasons = Counter(pod.status.reason for pod in pods if pod.status.phase == "Failed")
    phases = Counter(pod.status.phase for pod in pods)
    return DemoScheduled(
        scheduler=scheduler,
        running=phases["Running"],
        refused=reasons[REFUSED],
        waiting=sum(not pod.spec.node_name for pod in pods),
    )


async def _until_free(client: Client) -> None:
    """Until the exporters publish no CPU as held any more, or a while: pods of the user may hold some."""

    async def are_free() -> bool:
        found = await client.list(TOPOLOGIES, type=_Topology)
        amounts = [each for topology in found.items for zone in topology.zones for each in zone.resources]
        return all(each.available == each.allocatable for each in amounts if each.name == "cpu")

    await until(are_free, seconds=FREE_SECONDS, every=LOOK_SECONDS)


async def _reached(problem: str, condition: Callable[[], Awaitable[bool]]) -> None:
    if not await until(condition, seconds=SECONDS):
        raise ProcessFailed(f"{problem} after {SECONDS:.0f} s; see the logs of polyarch's pods")
