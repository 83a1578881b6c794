"""The configuration that the operator generates, read by the stock kube-scheduler itself."""

import os
from pathlib import Path

import pytest
from numa_fleet import eventually
from stock_scheduler import Asked, Json, node_of, own_addresses, running

from polyarch.kube.client import Client
from polyarch.kube.resources import LEASES, PODS
from polyarch.numa.api.resources import SchedulerSettings, SchedulingMode
from polyarch.operator.components.numa_scheduler_objects import LEASE
from polyarch.sandbox.cluster import Sandbox

CHOSEN, OTHER = "amd64-2", "amd64-1"


OTHERS = tuple(filter(None, os.environ.get("POLYARCH_TEST_KUBE_SCHEDULERS", "").split(os.pathsep)))
"""Programs of other versions, to be tried as well."""


@pytest.fixture(params=["", *OTHERS], ids=["the sandbox's", *map(str, range(len(OTHERS)))])
def program(request: pytest.FixtureRequest, sandbox: Sandbox) -> str:
    """The kube-scheduler of the sandbox's control plane, or another one."""
    return request.param or sandbox.records()["kube-scheduler"].arguments[0]


def pod(name: str, scheduler: str) -> Json:
    container = {"name": "app", "image": "docker.io/library/nginx:1.27", "resources": {"limits": {"cpu": "1"}}}
    spec = {
        "schedulerName": scheduler,
        "nodeSelector": {"kubernetes.io/arch": "amd64"},
        "terminationGracePeriodSeconds": 0,
        "containers": [container],
    }
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec}


@pytest.mark.req("NS-092")
@pytest.mark.parametrize(
    ("mode", "candidates", "verbs"),
    [
        ("exact", 1, {"filter"}),
        ("exact", 3, {"filter", "prioritize"}),
        ("advise", 1, {"filter", "prioritize"}),
    ],
)
async def test_the_stock_scheduler_takes_the_generated_configuration_and_asks_every_verb(
    sandbox: Sandbox,
    client: Client,
    namespace: str,
    tmp_path: Path,
    program: str,
    mode: SchedulingMode,
    candidates: int,
    verbs: set[str],
) -> None:
    settings = SchedulerSettings(mode=mode, candidates=candidates, name=f"topo-{namespace}")
    (address,) = own_addresses(sandbox)
    asked = Asked(address)
    if len(verbs) == 1:
        asked.filter = lambda request: {"NodeNames": [CHOSEN], "FailedNodes": {}, "FailedAndUnresolvableNodes": {}}
    asked.prioritize = lambda request: [
        {"Host": each, "Score": 10 if each == CHOSEN else 0} for each in request["NodeNames"]
    ]
    async with asked.serving(), running(program, sandbox, settings, tmp_path, address=address) as process:
        await client.create(PODS, pod("placed", settings.name), namespace=namespace)
        bound = await node_of(lambda: client.get(PODS, "placed", namespace=namespace))
        assert process.returncode is None
    assert asked.verbs == verbs
    assert bound == CHOSEN
    for _, request in asked.requests:
        assert request["Nodes"] is None, "nodes are named, not sent"
        assert sorted(request["NodeNames"]) == [OTHER, CHOSEN], "every node that passed the scheduler's own filters"
        assert request["Pod"]["metadata"]["name"] == "placed"


@pytest.mark.req("NS-083")
@pytest.mark.parametrize("key", ["FailedNodes", "FailedAndUnresolvableNodes"])
async def test_the_scheduler_groups_the_reasons_of_rejected_nodes(
    sandbox: Sandbox, client: Client, namespace: str, tmp_path: Path, program: str, key: str
) -> None:
    settings = SchedulerSettings(name=f"topo-{namespace}")
    (address,) = own_addresses(sandbox)
    asked = Asked(address)
    asked.filter = lambda request: {
        "NodeNames": [],
        key: dict.fromkeys(request["NodeNames"], "cannot align pod: cpu"),
        "Error": "",
    }
    async with asked.serving(), running(program, sandbox, settings, tmp_path, address=address):
        await client.create(PODS, pod("rejected", settings.name), namespace=namespace)

        async def said() -> str:
            status = (await client.get(PODS, "rejected", namespace=namespace)).get("status", {})
            return " ".join(each.get("message", "") for each in status.get("conditions") or ())

        message = await eventually(said, bool)
    assert "2 cannot align pod: cpu" in message


@pytest.mark.req("NS-090")
async def test_of_two_replicas_one_holds_the_lease_and_the_other_takes_it_over(
    sandbox: Sandbox, client: Client, namespace: str, tmp_path: Path, program: str
) -> None:
    settings = SchedulerSettings(name=f"topo-{namespace}")
    first, second = own_addresses(sandbox, 2)
    (tmp_path / "first").mkdir()
    (tmp_path / "second").mkdir()
    a, b = Asked(first), Asked(second)

    async def holder() -> str:
        found = await client.list(LEASES, namespace="kube-system")
        return next(
            (each["spec"].get("holderIdentity", "") for each in found.items if each["metadata"]["name"] == LEASE), ""
        )

    async with a.serving(), b.serving():
        async with running(program, sandbox, settings, tmp_path / "first", address=first):
            leader = await eventually(holder, bool)
            await client.create(PODS, pod("early", settings.name), namespace=namespace)
            await node_of(lambda: client.get(PODS, "early", namespace=namespace))
        async with running(program, sandbox, settings, tmp_path / "second", address=second):
            assert await eventually(holder, lambda found: found not in ("", leader)) != leader
            await client.create(PODS, pod("late", settings.name), namespace=namespace)
            await node_of(lambda: client.get(PODS, "late", namespace=namespace))
    assert [request["Pod"]["metadata"]["name"] for _, request in a.requests] == ["early"]
    assert [request["Pod"]["metadata"]["name"] for _, request in b.requests] == ["late"]
