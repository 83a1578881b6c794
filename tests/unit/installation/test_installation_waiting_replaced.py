"""After changed values "available" is the word of an operator that knows them, and of pods that go by them (IN-002)."""

from collections.abc import Callable
from typing import Any

import pytest

from polyarch.installation import waiting
from polyarch.installation.operator import OPERATOR
from polyarch.kube.client.answers import Listing
from polyarch.kube.errors import NotFound
from polyarch.kube.resources import DEPLOYMENTS, LEASES, Resource
from polyarch.placement import names
from polyarch.placement.api.resources import CPPCS

HOME = "polyarch-system"


def rolled(new: int = 1, *, all: int = 1, generation: int = 1) -> dict[str, Any]:
    status = {"observedGeneration": 1, "replicas": all, "updatedReplicas": new, "availableReplicas": 1}
    metadata = {"generation": generation, "namespace": HOME}
    return {"metadata": metadata, "spec": {"replicas": 1, "template": {"spec": {}}}, "status": status}


class Cluster:
    """Everything is as an earlier installation left it; ``at`` changes it when a time has come, which it is, too."""

    def __init__(self, at: dict[float, Callable[["Cluster"], None]]) -> None:
        self.deployments = {OPERATOR: rolled(), names.CONTROLLER: rolled(), names.WEBHOOK: rolled()}
        self.pods: list[dict[str, Any]] = []
        self.conditions = {"Available": "True", "Degraded": "False"}
        self.leader = "operator-1"
        self.time = 0.0
        self._at = dict(at)

    async def get(self, resource: Resource, name: str, **_: Any) -> Any:
        if resource == CPPCS:
            told = [{"type": kind, "status": status, "message": kind} for kind, status in self.conditions.items()]
            return {"metadata": {"generation": 1}, "status": {"conditions": told}}
        if resource == LEASES and name == names.OPERATOR_LEASE:
            return {"spec": {"holderIdentity": self.leader}}
        if resource != DEPLOYMENTS or name not in self.deployments:
            raise NotFound(404, name=name)
        return self.deployments[name]

    async def list(self, *_: Any, **__: Any) -> Any:
        return Listing(items=list(self.pods), resource_version="1")

    def monotonic(self) -> float:
        return self.time

    async def sleep(self, seconds: float) -> None:
        self.time += seconds
        for time in [each for each in self._at if each <= self.time]:
            self._at.pop(time)(self)


async def waited(at: dict[float, Callable[[Cluster], None]], **first: dict[str, Any]) -> tuple[float, list[str]]:
    cluster, said = Cluster(at), []
    cluster.deployments |= first
    await waiting.available(
        cluster,
        HOME,
        switched_on={CPPCS},
        seconds=100,
        tell=said.append,
        clock=cluster,  # type: ignore[arg-type]
    )
    return cluster.time, said


def put(name: str, deployment: dict[str, Any]) -> Callable[[Cluster], None]:
    return lambda cluster: cluster.deployments.update({name: deployment})


NEW_OPERATOR = {OPERATOR: rolled(generation=2)}


async def test_in_002_without_a_change_nobody_waits() -> None:
    assert await waited({}) == (0.0, [])


async def test_in_002_the_pods_that_the_new_operator_replaces_are_waited_for() -> None:
    """Until then Available is what its predecessor wrote, and webhooks go by the old values."""
    time, said = await waited(
        {
            3: put(OPERATOR, rolled()),
            4: put(names.WEBHOOK, rolled(new=0, generation=2)),
            12: put(names.WEBHOOK, rolled(new=1, all=2)),
            14: put(names.WEBHOOK, rolled()),
        },
        **NEW_OPERATOR,
    )
    assert (time, said[-1]) == (14.0, f"{waiting.REPLACING}Deployment {names.WEBHOOK} (1 of 1 are new)")


async def test_in_002_an_operator_that_has_nothing_to_replace_is_given_a_moment() -> None:
    assert (await waited({3: put(OPERATOR, rolled())}, **NEW_OPERATOR))[0] == 2.0 + waiting.SETTLED_SECONDS


async def test_in_002_the_moment_begins_when_the_new_operator_leads() -> None:
    """A former pod that is about to end, or ends, may do so; then its Lease is nobody's for a while."""

    def ending(cluster: Cluster) -> None:
        cluster.pods = [{"metadata": {"name": "former", "deletionTimestamp": "2026-01-01T00:00:00Z"}}]
        cluster.deployments[OPERATOR] = rolled()

    def ended(cluster: Cluster) -> None:
        cluster.pods, cluster.leader = [], ""

    time, said = await waited(
        {
            3: put(OPERATOR, rolled(all=2)),
            5: ending,
            7: ended,
            9: lambda cluster: setattr(cluster, "leader", "operator-2"),
        },
        **NEW_OPERATOR,
    )
    assert time == 8.0 + waiting.SETTLED_SECONDS
    assert said[1:] == [
        f"{waiting.UNSETTLED}a former pod has not ended",
        f"{waiting.UNSETTLED}none of its pods leads yet",
    ]


async def test_in_002_a_first_installation_waits_no_longer_than_before() -> None:
    def begun(cluster: Cluster) -> None:
        cluster.deployments[OPERATOR] = rolled()
        cluster.conditions["Available"] = "False"

    time, _ = await waited({2: begun, 4: lambda cluster: cluster.conditions.update(Available="True")}, **NEW_OPERATOR)
    assert time == 4.0


@pytest.mark.parametrize("name", [names.CONTROLLER, names.WEBHOOK])
async def test_in_002_pods_that_cannot_be_replaced_are_named_and_no_failure(name: str) -> None:
    """Placement is available all the time: so says the last line."""
    time, said = await waited({}, **{name: rolled(new=1, all=2)})
    assert (time, said[-1]) == (100.0, f"{waiting.REPLACING}Deployment {name} (1 of 1 are new)")
