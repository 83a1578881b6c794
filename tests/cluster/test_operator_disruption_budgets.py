"""What a drain meets: budgets of polyarch's Deployments, judged by the real API server and disruption controller."""

import asyncio
from typing import Any

import pytest

from polyarch.kube.client import Client
from polyarch.kube.errors import TooManyRequests
from polyarch.kube.patches import MergePatch
from polyarch.kube.resources import POD_DISRUPTION_BUDGETS, PODS
from polyarch.operator.operands import OperandDeployment, disruption_budget

Json = dict[str, Any]
SECONDS = 60.0


def role(replicas: int, spare: Any) -> OperandDeployment:
    return OperandDeployment(
        name="drained",
        container="c",
        role="r",
        replicas=replicas,
        cpu="1m",
        memory="1Mi",
        memory_limit="1Mi",
        spare=spare,
    )


class Drain:
    """Pods on a node that nobody runs, whose kubelet the test plays, behind a budget of ours."""

    def __init__(self, client: Client, namespace: str) -> None:
        self._client, self._namespace = client, namespace

    async def budget(self, replicas: int, spare: Any) -> None:
        document = disruption_budget(role(replicas, spare), self._namespace)
        await self._client.create(POD_DISRUPTION_BUDGETS, document, namespace=self._namespace)
        self._selector = document["spec"]["selector"]["matchLabels"]

    async def run(self, name: str, *, ready: bool) -> None:
        metadata = {"name": name, "labels": self._selector}
        container = {"name": "c", "image": "registry.example.com/x:1"}
        spec = {"nodeName": "drained", "containers": [container], "terminationGracePeriodSeconds": 0}
        document = {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}
        await self._client.create(PODS, document, namespace=self._namespace)
        conditions = [{"type": "Ready", "status": str(ready)}]
        status = MergePatch({"status": {"phase": "Running", "conditions": conditions}})
        await self._client.patch(PODS, name, status, namespace=self._namespace, subresource="status")

    async def healthy(self, expected: int) -> None:
        """Until the disruption controller has counted so many."""
        async with asyncio.timeout(SECONDS):
            while True:
                found: Json = await self._client.get(POD_DISRUPTION_BUDGETS, "drained", namespace=self._namespace)
                status = found.get("status") or {}
                if "currentHealthy" in status and status["currentHealthy"] == expected:
                    return
                await asyncio.sleep(0.1)

    async def evicted(self, *names: str) -> list[bool]:
        """Whether each may go, one after the other, as a drain asks."""
        found = []
        for name in names:
            try:
                await self._client.evict(self._namespace, name, grace_period_seconds=0)
                found.append(True)
            except TooManyRequests:
                found.append(False)
        return found


@pytest.fixture
def drain(client: Client, namespace: str) -> Drain:
    return Drain(client, namespace)


@pytest.mark.req("PL-532")
async def test_of_two_replicas_on_one_node_the_second_waits_until_another_is_ready(drain: Drain) -> None:
    """That is the one retry of a drain; where the replicas are apart there is none."""
    await drain.budget(2, "all but one")
    await drain.run("a", ready=True)
    await drain.run("b", ready=True)
    await drain.healthy(2)
    assert await drain.evicted("a", "b") == [True, False]
    await drain.run("elsewhere", ready=True)
    await drain.healthy(2)
    assert await drain.evicted("b") == [True]


@pytest.mark.req("PL-532")
async def test_replicas_that_do_not_get_ready_hold_no_drain(drain: Drain) -> None:
    await drain.budget(2, "all but one")
    await drain.run("a", ready=False)
    await drain.run("b", ready=False)
    await drain.healthy(0)
    assert await drain.evicted("a", "b") == [True, True]
