"""After changed values "available" is the word of an operator that knows them, and of pods that go by them."""

from collections.abc import Callable
from typing import Any

import pytest

from polyarch.installation import wait
from polyarch.installation.operator import OPERATOR
from polyarch.kube.errors import NotFound
from polyarch.kube.resources import DEPLOYMENTS, LEASES, Resource
from polyarch.kube.watch import Page
from polyarch.numa.api.resources import OPERATORS
from polyarch.objects import Unstructured
from polyarch.placement import names
from polyarch.placement.api import CPPCS

HOME = "polyarch-system"


def rolled(new: int = 1, *, all: int = 1, generation: int = 1) -> dict[str, Any]:
    status = {"observedGeneration": 1, "replicas": all, "updatedReplicas": new, "availableReplicas": 1}
    metadata = {"generation": generation, "namespace": HOME}
    return {"metadata": metadata, "spec": {"replicas": 1, "template": {"spec": {}}}, "status": status}


class Cluster:
    """Everything is as an earlier installation left it; ``at`` changes it when a time has come, which it is, too."""

    def __init__(self, at: dict[float, Callable[["Cluster"], object]]) -> None:
        self.deployments = {OPERATOR: rolled(), names.CONTROLLER: rolled(), names.WEBHOOK: rolled()}
        self.pods: list[dict[str, Any]] = []
        self.conditions = {"Available": "True", "Degraded": "False"}
        self.leader = self.settled = "operator-1"
        self.time = 0.0
        self._at = dict(at)

    async def get(self, resource: Resource, name: str, **_: Any) -> Any:
        if resource == CPPCS:
            told = [{"type": kind, "status": status, "message": kind} for kind, status in self.conditions.items()]
            return {"metadata": {"generation": 1}, "status": {"conditions": told}}
        if resource == LEASES and name == names.OPERATOR_LEASE:
            told = {names.OPERATOR_SETTLED: self.settled} if self.settled else {}
            return {"metadata": {"annotations": told}, "spec": {"holderIdentity": self.leader}}
        if resource != DEPLOYMENTS or name not in self.deployments:
            raise NotFound(404, name=name)
        return self.deployments[name]

    async def list_page(self, *_: Any, **__: Any) -> Any:
        return Page([Unstructured(each) for each in self.pods], "1", "")

    def monotonic(self) -> float:
        return self.time

    async def sleep(self, seconds: float) -> None:
        self.time += seconds
        for time in [each for each in self._at if each <= self.time]:
            self._at.pop(time)(self)


async def waited(at: dict[float, Callable[[Cluster], object]], **first: dict[str, Any]) -> tuple[float, list[str]]:
    cluster, said = Cluster(at), []
    cluster.deployments |= first
    await wait.available(
        cluster,
        HOME,
        switched_on={CPPCS},
        seconds=100,
        tell=said.append,
        clock=cluster,  # type: ignore[arg-type]
    )
    return cluster.time, said


def put(name: str, deployment: dict[str, Any]) -> Callable[[Cluster], object]:
    return lambda cluster: cluster.deployments.update({name: deployment})


NEW_OPERATOR = {OPERATOR: rolled(generation=2)}


def new_leader(cluster: Cluster) -> None:
    cluster.deployments[OPERATOR] = rolled()
    cluster.leader, cluster.settled = "operator-2", "operator-1"


def says_so(cluster: Cluster) -> None:
    cluster.settled = cluster.leader


@pytest.mark.req("IN-002")
async def test_without_a_change_nobody_waits() -> None:
    assert await waited({}) == (0.0, [])


@pytest.mark.req("IN-002")
async def test_the_pods_that_the_new_operator_replaces_are_waited_for() -> None:
    """Until then Available is what its predecessor wrote, and webhooks go by the old values."""
    time, said = await waited(
        {
            3: new_leader,
            4: lambda cluster: (put(names.WEBHOOK, rolled(new=0, generation=2))(cluster), says_so(cluster)),
            12: put(names.WEBHOOK, rolled(new=1, all=2)),
            14: put(names.WEBHOOK, rolled()),
        },
        **NEW_OPERATOR,
    )
    assert (time, said[-1]) == (14.0, f"{wait.REPLACING}Deployment {names.WEBHOOK} (1 of 1 are new)")


@pytest.mark.req("IN-002")
async def test_an_operator_that_has_nothing_to_replace_is_waited_for_until_it_says_so() -> None:
    """Nothing else shows that it has looked: a former leader's word does not count."""
    time, said = await waited({3: new_leader, 7: says_so}, **NEW_OPERATOR)
    assert (time, said[-1]) == (7.0, wait.SILENT)


@pytest.mark.req("IN-002")
async def test_an_operator_that_never_says_anything_is_believed_after_a_while() -> None:
    """Of an image that is older than the command."""
    assert (await waited({3: new_leader}, **NEW_OPERATOR))[0] == 3.0 + wait.SILENT_SECONDS


@pytest.mark.req("IN-002")
async def test_what_it_replaces_is_waited_for_also_of_a_silent_one() -> None:
    at = {3: new_leader, 12: put(names.WEBHOOK, rolled(new=0, generation=2)), 20: put(names.WEBHOOK, rolled())}
    assert (await waited(at, **NEW_OPERATOR))[0] == 20.0


@pytest.mark.req("IN-002")
async def test_a_former_pod_ends_and_the_new_one_leads_before_it_is_asked() -> None:
    """Between them the Lease is nobody's for a while."""

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
            9: new_leader,
            10: says_so,
        },
        **NEW_OPERATOR,
    )
    assert time == 10.0
    assert said[1:] == [
        f"{wait.UNSETTLED}a former pod has not ended",
        f"{wait.UNSETTLED}none of its pods leads yet",
        wait.SILENT,
    ]


@pytest.mark.req("IN-002")
async def test_a_first_installation_waits_no_longer_than_before() -> None:
    def begun(cluster: Cluster) -> None:
        cluster.deployments[OPERATOR] = rolled()
        cluster.conditions["Available"] = "False"

    time, _ = await waited({2: begun, 4: lambda cluster: cluster.conditions.update(Available="True")}, **NEW_OPERATOR)
    assert time == 4.0


@pytest.mark.req("IN-002")
@pytest.mark.parametrize(
    "name",
    [
        "pod-placement-controller",
        "pod-placement-web-hook",
        "enoexec-event-handler-controller",
        "polyarch-taints",
        "polyarch-builder",
    ],
)
async def test_the_pods_of_every_role_are_waited_for(name: str) -> None:
    """After an upgrade, too, where a role that is off in this installation has no Deployment."""
    at = {9: put(name, rolled(new=1, all=2)), 12: put(name, rolled())}
    time, said = await waited(at, **{name: rolled(new=0, generation=2)})
    assert (time, said[-1]) == (12.0, f"{wait.REPLACING}Deployment {name} (1 of 1 are new)")


@pytest.mark.req("IN-002")
@pytest.mark.parametrize("name", [names.CONTROLLER, names.WEBHOOK])
async def test_pods_that_cannot_be_replaced_are_named_and_no_failure(name: str) -> None:
    """The role is available all the time: so says the last line."""
    time, said = await waited({}, **{name: rolled(new=1, all=2)})
    assert (time, said[-1]) == (100.0, f"{wait.REPLACING}Deployment {name} (1 of 1 are new)")


class WithNuma(Cluster):
    """The new operator looks at everything between the question about NUMA and that about its Lease."""

    def __init__(self) -> None:
        super().__init__({})
        self.leader, self.settled = "operator-2", "operator-1"

    async def get(self, resource: Resource, name: str, **others: Any) -> Any:
        if resource == OPERATORS:
            rolls_out = self.settled == self.leader and self.time < 12
            status = "False" if rolls_out else "True"
            told = {"type": "Available", "status": status, "message": "exporters are updated", "observedGeneration": 1}
            return {"metadata": {"generation": 1}, "status": {"conditions": [told]}}
        if resource == LEASES and self.time >= 5:
            self.settled = self.leader
        return await super().get(resource, name, **others)


@pytest.mark.req("IN-002")
async def test_what_numa_was_by_the_word_of_the_predecessor_is_asked_again() -> None:
    """Exporters have the operator's image: a new one rolls them out."""
    cluster, said = WithNuma(), []
    await wait.available(
        cluster,  # type: ignore[arg-type]
        HOME,
        switched_on={OPERATORS},
        seconds=100,
        tell=said.append,
        clock=cluster,  # type: ignore[arg-type]
    )
    assert (cluster.time, said) == (12.0, [wait.SILENT, f"numa: {OPERATORS.kind}: exporters are updated"])
