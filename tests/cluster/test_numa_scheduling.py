"""Pods that name the scheduler of cells, in a sandbox that has it as users get it: the operator's Deployment with the
stock kube-scheduler and the extender, exporters, and kubelets that refuse what they cannot align.

Each node has two cells of 16 CPUs, of which pods get 15 and 16. So two pods of 9 CPUs fill a node, and a third one
would fit its sums."""

import asyncio
import contextlib
import os
import signal
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from numa_fleet import Fleet, conditions_of, eventually, pod

from polyarch.kube.client import Client
from polyarch.kube.errors import NotFound
from polyarch.kube.patches import MergePatch
from polyarch.kube.resources import DEPLOYMENTS, EVENTS, POD_DISRUPTION_BUDGETS, PODS, Resource
from polyarch.names import DEFAULT_NAMESPACE
from polyarch.numa.api.resources import SCHEDULERS
from polyarch.numa.names import EXTENDER_PORT, SCHEDULER, SCHEDULER_SINGLETON, SCHEDULING_MODE
from polyarch.operator.components.numa_scheduler_objects import EXTENDER, SCHEDULER_PORT, SELECTED
from polyarch.sandbox.cluster import Sandbox
from polyarch.sandbox.network import is_listening
from polyarch.sandbox.processes import Record

NODES = ("amd64-1", "amd64-2", "amd64-3")
NAME = "topo-aware-scheduler"
PRIORITY_CLASSES = Resource("scheduling.k8s.io", "v1", "priorityclasses", "PriorityClass", namespaced=False)
HOSTNAME = "kubernetes.io/hostname"
WOKEN_SECONDS = 15.0
STORM_SECONDS = 30.0
ACQUIRED = "Successfully acquired lease"
Json = dict[str, Any]


@pytest.fixture(scope="module")
def sandbox(scheduled_sandbox: Sandbox) -> Sandbox:
    return scheduled_sandbox


@pytest.fixture
async def shop(sandbox: Sandbox, client: Client, namespace: str) -> AsyncIterator["Shop"]:
    """The test's pods go at its end, and are waited for: the next test counts on empty nodes."""
    found = Shop(Fleet(sandbox, client), client, namespace)
    await found.available()
    await found.fleet.follows(*NODES)
    yield found
    await found.cleared()


class Shop:
    """What a user does with the scheduler, and what a mean neighbour does to it."""

    def __init__(self, fleet: Fleet, client: Client, namespace: str) -> None:
        self.fleet = fleet
        self._client = client
        self._namespace = namespace

    async def create(
        self,
        *names: str,
        priority_class: str | None = None,
        labels: Json | None = None,
        on: tuple[str, ...] = (),
        **limits: Any,
    ) -> None:
        """``on``: nodes that they may have; all without one."""
        for name in names:
            document = pod(name, "", **limits)
            document["metadata"]["labels"] = labels
            document["spec"] |= {"schedulerName": NAME, "nodeName": None, "tolerations": None}
            document["spec"]["priorityClassName"] = priority_class
            if on:
                terms = [{"matchExpressions": [{"key": HOSTNAME, "operator": "In", "values": list(on)}]}]
                required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}
                document["spec"]["affinity"] = {"nodeAffinity": required}
            await self._client.create(PODS, document, namespace=self._namespace)

    async def deploy(self, name: str, replicas: int, *, on: str, scheduler: str = NAME, **limits: Any) -> None:
        """Pods of a node that come back when they are evicted."""
        template = pod(name, "", **limits)
        labelled = {"metadata": {"labels": {"app": name}}, "spec": template["spec"]}
        labelled["spec"] |= {"nodeName": None, "tolerations": None, "terminationGracePeriodSeconds": 1}
        labelled["spec"] |= {"schedulerName": scheduler, "nodeSelector": {HOSTNAME: on}}
        spec = {"replicas": replicas, "selector": {"matchLabels": {"app": name}}, "template": labelled}
        document = {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": name}, "spec": spec}
        await self._client.create(DEPLOYMENTS, document, namespace=self._namespace)

        async def running() -> list[str]:
            labels = {uid: each["metadata"].get("labels") or {} for uid, each in (await self.pods()).items()}
            phases = await self.phases()
            return [phases.get(each, "") for each, found in labels.items() if found.get("app") == name]

        await eventually(running, lambda found: found == ["Running"] * replicas)

    async def delete(self, *names: str) -> None:
        for name in names:
            await self._client.delete(PODS, name, namespace=self._namespace)

    async def pods(self) -> dict[str, Json]:
        found = (await self._client.list(PODS, namespace=self._namespace)).items
        return {each["metadata"]["name"]: each for each in found}

    async def phases(self) -> dict[str, str]:
        """A pod that a kubelet did not admit has the phase Failed."""
        return {name: each.get("status", {}).get("phase", "") for name, each in (await self.pods()).items()}

    async def run(self, *names: str) -> None:
        """Wait until these run, and no kubelet has refused any."""

        async def phases() -> list[str]:
            found = await self.phases()
            assert "Failed" not in found.values(), found
            return [found[name] for name in names]

        await eventually(phases, lambda found: set(found) == {"Running"})

    async def nodes(self) -> dict[str, str]:
        return {name: each["spec"].get("nodeName", "") for name, each in (await self.pods()).items()}

    async def told(self, name: str) -> str:
        """What the scheduler says about a pod, once it says something."""

        async def message() -> str:
            conditions = (await self.pods())[name].get("status", {}).get("conditions") or ()
            return " ".join(each.get("message", "") for each in conditions if each["type"] == "PodScheduled")

        found: str = await eventually(message, bool)
        return found

    async def cleared(self) -> None:
        for each in (await self._client.list(DEPLOYMENTS, namespace=self._namespace)).items:
            name = each["metadata"]["name"]
            await self._client.delete(DEPLOYMENTS, name, namespace=self._namespace, propagation="Foreground")
        for name in await self.pods():
            with contextlib.suppress(NotFound):  # those of Deployments go with them
                await self.delete(name)
        await eventually(self.pods, lambda found: not found)

    # -- the scheduler itself ------------------------------------------------------------------------------------------

    async def available(self, replicas: int = 1) -> None:
        async def state() -> tuple[dict[str, str], int]:
            found = await self._client.get(SCHEDULERS, SCHEDULER_SINGLETON)
            return conditions_of(found), len(await self.replicas())

        def is_as_wanted(found: tuple[dict[str, str], int]) -> bool:
            return found[0].get("Available") == "True" and found[1] == replicas

        await eventually(state, is_as_wanted)

    async def replicas(self) -> list[Json]:
        """Its pods that are ready and stay."""
        selector = ",".join(f"{key}={value}" for key, value in SELECTED.items())
        found = await self._client.list(PODS, namespace=DEFAULT_NAMESPACE, label_selector=selector)
        return [
            each
            for each in found.items
            if "deletionTimestamp" not in each["metadata"] and conditions_of(each).get("Ready") == "True"
        ]

    async def containers(self, name: str) -> list[Record]:
        """The processes of its pods."""
        running = {f"{DEFAULT_NAMESPACE}/{each['metadata']['name']}" for each in await self.replicas()}
        return [each for each in self.fleet.sandbox.containers() if each.pod in running and each.container == name]

    async def kill(self, container: str) -> None:
        for each in await self.containers(container):
            os.kill(each.pid, signal.SIGKILL)

    async def scale(self, replicas: int) -> None:
        patch = MergePatch({"spec": {"replicas": replicas}})
        await self._client.patch(SCHEDULERS, SCHEDULER_SINGLETON, patch)
        await self.available(replicas)
        # Whether there is an election is in the configuration, so the former pods go.
        await eventually(self.pod_uids, lambda found: len(found) == replicas)

    async def preempts(self, mode: str, *, scheduling: str | None = None) -> None:
        """Waits until the extender that was told so is the one that is asked."""
        before = await self.pod_uids()
        metadata = {"annotations": {SCHEDULING_MODE: scheduling}}
        patch = MergePatch({"metadata": metadata, "spec": {"preemptionMode": mode}})
        await self._client.patch(SCHEDULERS, SCHEDULER_SINGLETON, patch)
        await eventually(self.pod_uids, lambda found: len(found) == 1 and not found & before)
        await self.available()

    async def pod_uids(self) -> set[str]:
        return {each["metadata"]["uid"] for each in await self.replicas()}

    async def leader(self) -> str:
        """The replica whose scheduler says that it leads. The Lease names the machine, which all have in common."""

        async def leaders() -> list[str]:
            found = await self.containers(SCHEDULER)
            return [each.pod.partition("/")[2] for each in found if ACQUIRED in Path(each.log).read_text()]

        (found,) = await eventually(leaders, lambda several: len(several) == 1)
        name: str = found
        return name


@pytest.mark.req("NS-164")
async def test_scheduler_and_extender_run_on_the_address_of_their_pod(shop: Shop) -> None:
    (replica,) = await shop.replicas()
    address = "127." + replica["status"]["podIP"].partition(".")[2]
    assert is_listening(address, EXTENDER_PORT)
    assert is_listening(address, SCHEDULER_PORT)
    (scheduler,) = await shop.containers(SCHEDULER)
    assert scheduler.arguments[0] == shop.fleet.sandbox.records()["kube-scheduler"].arguments[0]
    (extender,) = await shop.containers(EXTENDER)
    assert f"--listen={address}:{EXTENDER_PORT}" in extender.arguments


@pytest.mark.req("NS-082")
async def test_pods_land_where_a_cell_holds_them_and_the_next_waits_with_one_sentence(shop: Shop) -> None:
    """Three of them would fit the sums of one node; a scheduler that sees sums alone makes a third of them fail."""
    names = [f"nine-{number}" for number in range(6)]
    await shop.create(*names, cpu="9", memory="1Gi")
    await shop.run(*names)
    placed = list((await shop.nodes()).values())
    assert {node: placed.count(node) for node in NODES} == dict.fromkeys(NODES, 2)
    await shop.create("one-too-many", cpu="9", memory="1Gi")
    assert "3 cannot align container: cpu" in await shop.told("one-too-many")
    await shop.create("too-wide", cpu="17", memory="1Gi")
    assert "0/3 nodes are available" in await shop.told("too-wide")
    await shop.create("small", cpu="4", memory="1Gi")
    await shop.run("small")
    assert (await shop.phases())["one-too-many"] == "Pending"


@pytest.mark.req("NS-141")
async def test_a_pod_that_waits_is_placed_soon_after_room_is_published(shop: Shop) -> None:
    names = [f"nine-{number}" for number in range(6)]
    await shop.create(*names, cpu="9", memory="1Gi")
    await shop.run(*names)
    await shop.fleet.follows(*NODES)
    await shop.create("waits", cpu="9", memory="1Gi")
    assert "3 cannot align container: cpu" in await shop.told("waits")
    await asyncio.sleep(5)
    node = (await shop.nodes())["nine-3"]
    zones = await shop.fleet.zones(node)
    await shop.delete("nine-3")

    async def published() -> bool:
        return await shop.fleet.zones(node) != zones

    await eventually(published, bool)
    freed = time.monotonic()
    await shop.run("waits")
    assert time.monotonic() - freed < WOKEN_SECONDS
    assert (await shop.nodes())["waits"] == node


@pytest.mark.req("NS-150")
async def test_an_extender_that_is_killed_forgets_no_pod_that_is_bound(shop: Shop) -> None:
    """While it is away its pods wait, as it is not ignorable; what it had reserved it finds by the pods themselves."""
    early = [f"early-{number}" for number in range(3)]
    late = [f"late-{number}" for number in range(4)]
    await shop.create(*early, cpu="9", memory="1Gi")
    await shop.kill(EXTENDER)
    await shop.create(*late, cpu="9", memory="1Gi")

    async def running() -> int:
        phases = await shop.phases()
        assert "Failed" not in phases.values(), phases
        return list(phases.values()).count("Running")

    await eventually(running, lambda count: count == 6)
    placed = list((await shop.nodes()).values())
    assert {node: placed.count(node) for node in NODES} == dict.fromkeys(NODES, 2)


@pytest.mark.req("NS-085")
async def test_while_the_extender_hangs_pods_wait_and_none_is_placed_blindly(shop: Shop) -> None:
    (extender,) = await shop.containers(EXTENDER)
    os.kill(extender.pid, signal.SIGSTOP)
    try:
        await shop.create("waits", cpu="9", memory="1Gi")
        told = await shop.told("waits")
        assert (await shop.nodes())["waits"] == ""
        assert "deadline exceeded" in told or "Timeout" in told or "timeout" in told, told
    finally:
        os.kill(extender.pid, signal.SIGCONT)
    await shop.run("waits")


@pytest.mark.req("NS-092")
async def test_a_scheduler_that_is_killed_starts_again_and_goes_on(shop: Shop) -> None:
    await shop.create("early", cpu="9", memory="1Gi")
    await shop.run("early")
    (before,) = await shop.containers(SCHEDULER)
    await shop.kill(SCHEDULER)
    names = [f"late-{number}" for number in range(5)]
    await shop.create(*names, cpu="9", memory="1Gi")
    await shop.run(*names)

    async def again() -> list[int]:
        return [each.attempt for each in await shop.containers(SCHEDULER)]

    assert await eventually(again, bool) == [before.attempt + 1]


@pytest.mark.req("NS-152")
async def test_of_two_replicas_one_leads_and_the_other_knows_what_was_placed(shop: Shop, client: Client) -> None:
    await shop.scale(2)
    try:
        early = [f"early-{number}" for number in range(3)]
        await shop.create(*early, cpu="9", memory="1Gi")
        await shop.run(*early)
        leader = await shop.leader()
        replicas = [each["metadata"]["name"] for each in await shop.replicas()]
        assert len(replicas) == 2
        assert leader in replicas
        await client.delete(PODS, leader, namespace=DEFAULT_NAMESPACE, grace_period_seconds=0)
        late = [f"late-{number}" for number in range(3)]
        await shop.create(*late, cpu="9", memory="1Gi")
        await shop.run(*late)
        assert await shop.leader() != leader
        placed = list((await shop.nodes()).values())
        assert {node: placed.count(node) for node in NODES} == dict.fromkeys(NODES, 2)
    finally:
        await shop.scale(1)


@pytest.fixture
async def important(client: Client) -> AsyncIterator[str]:
    """A priority class."""
    name = "numa-important"
    await client.create(PRIORITY_CLASSES, {"metadata": {"name": name}, "value": 1000})
    yield name
    await client.delete(PRIORITY_CLASSES, name)


@pytest.mark.req("NS-124")
@pytest.mark.parametrize(
    ("preemption", "scheduling"),
    [("Disabled", None), ("Enabled", None), ("Enabled", "advise")],
    ids=["usual", "enabled", "enabled, advise"],
)
async def test_nobody_is_evicted_by_the_sums_of_a_node(
    shop: Shop, client: Client, important: str, namespace: str, preemption: str, scheduling: str | None
) -> None:
    """On three nodes: a pod that no zone can ever hold, one that would fit without the right two pods (where pods are
    evicted at all, test_numa_preemption has such), and one beside pods of the default scheduler. A fourth has a full
    node and one with a free zone to choose from."""
    changes = (preemption, scheduling) != ("Disabled", None)
    if changes:
        await shop.preempts(preemption, scheduling=scheduling)
    try:
        first, second, third = NODES
        await asyncio.gather(
            shop.deploy("eights", 3, on=first, cpu="8", memory="1Gi"),
            shop.deploy("more-eights", 3, on=second, cpu="8", memory="1Gi"),
            shop.deploy("others-eights", 3, on=third, cpu="8", memory="1Gi", scheduler="default-scheduler"),
        )
        await shop.create("four", on=(second,), cpu="4", memory="1Gi")
        await shop.run("four")
        await shop.fleet.follows(*NODES)
        before = {name: each["metadata"]["uid"] for name, each in (await shop.pods()).items()}
        waiting = {"never": (first, "20"), "beside-others": (third, "20")}
        if not changes:
            waiting["two-too-many"] = second, "14"
        for name, (node, cpu) in waiting.items():
            await shop.create(name, priority_class=important, on=(node,), cpu=cpu, memory="1Gi")
        await shop.create("finds-room", priority_class=important, on=(second, first), cpu="6", memory="1Gi")
        await shop.run("finds-room")
        assert (await shop.nodes())["finds-room"] == first
        await asyncio.sleep(STORM_SECONDS)
        pods = await shop.pods()
        assert {name: pods.get(name, {"metadata": {"uid": "gone"}})["metadata"]["uid"] for name in before} == before
        assert pods.keys() == before.keys() | waiting.keys() | {"finds-room"}
        events = (await client.list(EVENTS, namespace=namespace)).items
        assert [each["note"] for each in events if "preempt" in each["reason"].lower()] == []
        for name in waiting:
            assert "Insufficient cpu" in await shop.told(name)
            assert not pods[name]["status"].get("nominatedNodeName")
    finally:
        if changes:
            await shop.preempts("Disabled")


@pytest.fixture
async def urgent(shop: Shop, client: Client) -> AsyncIterator[str]:
    """A priority class; while it is there, the extender may evict pods for those that have it."""
    name = "numa-urgent"
    await client.create(PRIORITY_CLASSES, {"metadata": {"name": name}, "value": 1000})
    await shop.preempts("Enabled")
    yield name
    await shop.preempts("Disabled")
    await client.delete(PRIORITY_CLASSES, name)


@pytest.mark.req("NS-122")
async def test_a_pod_of_higher_priority_gets_the_cells_of_one_that_is_evicted(
    shop: Shop, client: Client, urgent: str, namespace: str
) -> None:
    """The sums of each node would do, so that kube-scheduler's own preemption sees nothing to evict."""
    names = [f"nine-{number}" for number in range(6)]
    guarded = [f"nine-{number}" for number in range(4)]
    await client.create(
        POD_DISRUPTION_BUDGETS,
        {
            "metadata": {"name": "guarded"},
            "spec": {"maxUnavailable": 0, "selector": {"matchLabels": {"guarded": "yes"}}},
        },
        namespace=namespace,
    )
    await shop.create(*guarded, labels={"guarded": "yes"}, cpu="9", memory="1Gi")
    await shop.create(*names[4:], cpu="9", memory="1Gi")
    await shop.run(*names)
    await shop.fleet.follows(*NODES)
    nodes = await shop.nodes()
    await shop.create("urgent", priority_class=urgent, cpu="9", memory="1Gi")
    await shop.run("urgent", *guarded)
    (victim,) = set(names) - set(await shop.pods())
    assert victim not in guarded
    assert (await shop.nodes())["urgent"] == nodes[victim]

    async def told() -> dict[str, str]:
        found = (await client.list(EVENTS, namespace=namespace)).items
        return {each["regarding"]["name"]: each["note"] for each in found if each.get("action") == "Preempting"}

    events = await eventually(told, lambda found: {"urgent", victim} <= found.keys())
    assert victim in events["urgent"]
    assert "urgent" in events[victim]
