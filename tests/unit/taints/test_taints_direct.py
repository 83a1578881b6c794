"""Templates, policy, pods and nodes are written where no controller does it."""

import asyncio
import copy
from typing import Any

import pytest
from fake_api import FakeApi
from manual_clock import ManualClock
from taint_cluster import BINDINGS, IMAGES, POLICIES, answers, cluster, pod, shop, workload
from taint_nodes import document, record_of, taints_of

from polyarch.kube.errors import Conflict, Forbidden, Unavailable
from polyarch.kube.resources import DAEMONSETS, NODES, PODS
from polyarch.objects import ObjectKey
from polyarch.taints.bootstrap import DirectBootstrap, NodeTainter
from polyarch.taints.cluster import read_inventory, rolling
from polyarch.taints.documents import released_by
from polyarch.taints.plan import PlanBuilder, PlanFacts, StepState, plan
from polyarch.taints.settings import TaintSettings
from polyarch.taints.writes import AppliedChange, Writer

USUAL = TaintSettings()
ADDED = {"key": "supported-arch", "operator": "Equal", "value": "arm64", "effect": "NoSchedule"}
TAINT = "supported-arch=arm64:NoSchedule"


class Run:
    """The steps against an API server in memory; time passes by itself."""

    def __init__(self, api: FakeApi, settings: TaintSettings = USUAL, *, dry_run: bool = False) -> None:
        self.api = api
        self.settings = settings
        self.clock = ManualClock()
        self.told: list[AppliedChange] = []
        self.writer = Writer(api, dry_run=dry_run, clock=self.clock, tell=self.told.append)

    async def steps(self) -> DirectBootstrap:
        judge = PlanBuilder(await read_inventory(self.api), self.settings, answers)
        return DirectBootstrap(self.writer, judge, judge.judgement())

    async def passing(self, work: Any) -> Any:
        task = asyncio.create_task(work)
        while not task.done():
            await self.clock.run(1.0)
        return await task

    async def everything(self, **options: Any) -> Any:
        """All steps, each from a fresh look."""
        inventory = await read_inventory(self.api)
        await self.passing((await self.steps()).daemon_sets(rolling(inventory)))
        await (await self.steps()).admission()
        await (await self.steps()).pods()
        register = (await self.steps()).admission
        return await self.passing(self.tainting(register=register, **options).taint())

    def tainting(self, **options: Any) -> NodeTainter:
        return NodeTainter(self.writer, self.settings, **options)


def tolerations(api: FakeApi, name: str = "agent") -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = api.read(DAEMONSETS, name, "shop")["spec"]["template"]["spec"].get("tolerations", [])
    return found


# -- DaemonSets --------------------------------------------------------------------------------------------------------


@pytest.mark.req("TN-061")
async def test_the_templates_of_daemonsets_get_what_their_images_justify() -> None:
    api = shop()
    api.put(DAEMONSETS, workload("intel", "intel"))
    api.put(DAEMONSETS, workload("away", "away"))
    run = Run(api)
    outcome = await run.passing((await run.steps()).daemon_sets())
    assert [str(each.ref.key) for each in outcome.changed] == ["shop/agent"]
    assert tolerations(api) == [ADDED]
    assert tolerations(api, "intel") == tolerations(api, "away") == []
    again = await run.passing((await run.steps()).daemon_sets())
    assert not again.changed


@pytest.mark.req("TN-051")
async def test_one_rollout_is_waited_for_before_the_next_begins() -> None:
    api = shop()
    api.put(DAEMONSETS, workload("zzz-cni"))
    run = Run(api)
    begun: list[str] = []

    async def roll(verb: str, resource: object, name: str) -> None:
        if verb == "patch":
            begun.append(name)

    api.hook = roll
    slow = api.read(DAEMONSETS, "zzz-cni", "shop")
    slow["status"] = {"observedGeneration": 0}
    api.put(DAEMONSETS, slow)
    work = asyncio.create_task((await run.steps()).daemon_sets())
    await run.clock.run(60)
    assert begun == ["zzz-cni"], "what others need comes first"
    done = api.read(DAEMONSETS, "zzz-cni", "shop")
    done["status"] = {"observedGeneration": done["metadata"]["generation"]}
    api.put(DAEMONSETS, done)
    await run.passing(asyncio.wait_for(work, None))
    assert begun == ["zzz-cni", "agent"]


@pytest.mark.req("TN-051")
async def test_a_rollout_that_takes_too_long_stops_the_others_until_somebody_says_continue() -> None:
    api = shop()
    slow = workload("a-network")
    slow["status"] = {"observedGeneration": 0}
    api.put(DAEMONSETS, slow)
    run = Run(api)
    outcome = await run.passing((await run.steps()).daemon_sets())
    [failure] = outcome.failed
    assert (failure.ref.key.name, "600 s" in failure.problem, "--continue" in failure.problem) == (
        "a-network",
        True,
        True,
    )
    assert tolerations(api) == [], "the next one was not begun"
    inventory = await read_inventory(api)
    assert rolling(inventory) == (ObjectKey("shop", "a-network"),)
    outcome = await run.passing((await run.steps()).daemon_sets(rolling(inventory), waits=False))
    assert not outcome.failed
    assert tolerations(api) == [ADDED]


@pytest.mark.req("TN-064")
async def test_a_run_that_was_stopped_during_a_rollout_waits_for_it_first() -> None:
    api = shop()
    begun = workload("a-network", tolerations=[ADDED], annotations={"polyarch.dev/added-tolerations": "[]"})
    begun["status"] = {"observedGeneration": 0}
    api.put(DAEMONSETS, begun)
    run = Run(api)
    inventory = await read_inventory(api)
    work = asyncio.create_task((await run.steps()).daemon_sets(rolling(inventory)))
    await run.clock.run(30)
    assert not run.told
    begun["status"] = {"observedGeneration": 1}
    api.put(DAEMONSETS, begun)
    await run.passing(asyncio.wait_for(work, None))
    assert [str(each.ref.key) for each in run.told] == ["shop/agent"]


@pytest.mark.req("TN-051")
async def test_the_controller_is_told_which_rollouts_are_not_waited_for() -> None:
    api = shop()
    slow = workload("slow", annotations={"polyarch.dev/added-tolerations": "[]"})
    slow["metadata"]["generation"] = 4
    slow["status"] = {"observedGeneration": 3}
    api.put(DAEMONSETS, slow)
    run = Run(api)
    outcome = await (await run.steps()).confirm([ObjectKey("shop", "slow")])
    assert len(outcome.changed) == 1
    annotations = api.read(DAEMONSETS, "slow", "shop")["metadata"]["annotations"]
    assert annotations["polyarch.dev/rollout-confirmed"] == "4"
    assert not (await (await run.steps()).confirm([ObjectKey("shop", "slow")])).changed


# -- admission, pods ---------------------------------------------------------------------------------------------------


@pytest.mark.req("TN-027")
async def test_the_policy_is_written_once_and_again_when_its_architectures_change() -> None:
    api = shop()
    run = Run(api)
    assert len((await (await run.steps()).admission(["arm64"])).changed) == 2
    assert not (await (await run.steps()).admission(["arm64"])).changed
    assert len((await (await run.steps()).admission(["arm64", "s390x"])).changed) == 1
    assert not (await (await run.steps()).admission()).changed, "what is released stays released"
    assert released_by(api.read(POLICIES, "polyarch-architecture-taints")) == {"arm64", "s390x"}
    api.kinds = ()
    assert not (await (await run.steps()).admission()).changed
    assert not (await (await Run(shop(), TaintSettings(at_registration="none")).steps()).admission()).changed


@pytest.mark.req("TN-043")
async def test_pods_that_wait_get_their_tolerations_and_a_changed_pod_is_decided_about_again() -> None:
    api = cluster(objects={PODS: [pod("waiting", owner=("ReplicaSet", "web"))]})
    run = Run(api)
    changes = 1

    async def change(verb: str, resource: object, name: str) -> None:
        nonlocal changes
        if verb == "patch" and changes:
            changes -= 1
            other = api.read(PODS, "waiting", "shop")
            other["spec"]["nodeSelector"] = {"kubernetes.io/arch": "amd64"}
            api.put(PODS, other)
            raise Conflict(409)

    api.hook = change
    outcome = await (await run.steps()).pods()
    assert not outcome.changed, "as it is now it needs none"
    assert "tolerations" not in api.read(PODS, "waiting", "shop")["spec"]


# -- nodes -------------------------------------------------------------------------------------------------------------


@pytest.mark.req("TN-026")
async def test_architectures_come_smallest_first_and_the_primary_ones_last() -> None:
    api = cluster(amd64=1, arm64=2)
    api.put(NODES, document("z-1", "s390x"))
    run = Run(api, TaintSettings(mode="tolerations"))
    await run.passing(run.tainting().taint())
    assert [each.ref.key.name for each in run.told] == ["z-1", "arm-0", "arm-1", "amd-0"]
    assert taints_of(api.read(NODES, "amd-0")) == ["supported-arch=amd64:NoSchedule"]
    assert record_of(api.read(NODES, "amd-0")) == "supported-arch=amd64:NoSchedule"


@pytest.mark.req("TN-026")
async def test_nodes_that_only_lose_a_taint_come_first() -> None:
    """The primary architecture was changed: pods without tolerations find their nodes there from now on."""
    taint = "supported-arch=arm64:NoSchedule"
    api = cluster(amd64=1, arm64=0)
    api.put(NODES, document("b-1", "arm64", taint, record=taint))
    run = Run(api, TaintSettings(primary=frozenset({"arm64"})))
    await run.passing(run.tainting().taint())
    assert [each.ref.key.name for each in run.told] == ["b-1", "amd-0"]
    assert run.told[0].what == f"loses {taint}"


@pytest.mark.req("TN-026")
async def test_nodes_are_written_at_most_as_fast_as_the_configuration_says() -> None:
    run = Run(cluster(arm64=11), TaintSettings(per_minute=60))
    began = run.clock.monotonic()
    await run.passing(run.tainting(watch=0).taint())
    assert 10 <= run.clock.monotonic() - began <= 14


@pytest.mark.req("TN-026")
async def test_tainting_stops_when_pods_become_pending_because_of_it() -> None:
    """A pod that only arm64 nodes can run and that tolerates nothing appears after the first batch."""
    api = cluster(arm64=6)
    run = Run(api)

    async def appear(verb: str, resource: object, name: str) -> None:
        if verb == "patch" and name == "arm-1":
            api.put(PODS, pod("stuck", owner=("ReplicaSet", "web"), nodeSelector={"kubernetes.io/arch": "arm64"}))
            for other in range(2, 6):  # it would find a node on those that are not tainted yet
                api.put(NODES, document(f"arm-{other}", "arm64", "full:NoSchedule"))

    api.hook = appear
    done = await run.passing(run.tainting(batch=2).taint())
    assert (done.stopped_at, done.pods) == ("arm64", ("shop/stuck",))
    assert [each.ref.key.name for each in done.outcome.changed] == ["arm-0", "arm-1"]
    assert taints_of(api.read(NODES, "arm-5")) == ["full=:NoSchedule"]


@pytest.mark.req("TN-026")
async def test_pods_that_were_pending_before_stop_nothing() -> None:
    stuck = pod("stuck", owner=("ReplicaSet", "web"), nodeSelector={"kubernetes.io/arch": "arm64"})
    api = cluster(arm64=0, objects={PODS: [stuck]})
    api.put(NODES, document("arm-0", "arm64", TAINT))
    api.put(NODES, document("arm-1", "arm64", "full:NoSchedule"))
    run = Run(api)
    done = await run.passing(run.tainting().taint())
    assert not done.pods
    assert TAINT in taints_of(api.read(NODES, "arm-1"))


@pytest.mark.req("TN-027")
async def test_new_nodes_of_an_architecture_are_tainted_from_the_moment_its_nodes_are() -> None:
    api = cluster(arm64=1)
    api.put(NODES, document("z-1", "s390x", "supported-arch=s390x:NoSchedule"))
    run = Run(api)
    policy = DirectBootstrap.admission
    steps = await run.steps()
    asked: list[frozenset[str]] = []

    async def register(architectures: frozenset[str]) -> Any:
        asked.append(architectures)
        return await policy(steps, architectures)

    await run.passing(run.tainting(register=register).taint())
    assert asked == [{"s390x", "arm64"}]
    assert (POLICIES, "", "polyarch-architecture-taints") in api.objects
    assert (BINDINGS, "", "polyarch-architecture-taints") in api.objects


@pytest.mark.req("TN-024")
async def test_a_node_that_is_refused_holds_up_no_other() -> None:
    api = cluster(arm64=3)

    async def refuse(verb: str, resource: object, name: str) -> None:
        if verb == "patch" and name == "arm-1":
            raise Forbidden(403, message="not this one")

    api.hook = refuse
    run = Run(api)
    done = await run.passing(run.tainting(watch=0).taint())
    assert [each.ref.key.name for each in done.outcome.failed] == ["arm-1"]
    assert len(done.outcome.changed) == 2


# -- all of it ---------------------------------------------------------------------------------------------------------


@pytest.mark.req("TN-063")
async def test_a_dry_run_tries_every_write_and_makes_none() -> None:
    api = shop()
    before = copy.deepcopy(api.objects)
    run = Run(api, dry_run=True)
    await run.everything()
    assert {each.ref.resource.kind for each in run.told} == {
        "DaemonSet",
        "MutatingAdmissionPolicy",
        "MutatingAdmissionPolicyBinding",
        "Pod",
        "Node",
    }
    assert api.objects == before


@pytest.mark.req("TN-064")
@pytest.mark.parametrize("at", range(8), ids=lambda at: f"TN-064 stopped at write {at}")
async def test_a_run_that_is_cut_off_anywhere_is_continued_by_the_next(at: int) -> None:
    untouched = shop()
    await Run(untouched).everything()
    api = shop()
    writes = 0

    async def cut(verb: str, resource: object, name: str) -> None:
        nonlocal writes
        if verb in ("patch", "apply"):
            writes += 1
            if writes == at + 1:
                raise asyncio.CancelledError

    api.hook = cut
    with pytest.raises(asyncio.CancelledError):
        await Run(api).everything()
    api.hook = None
    await Run(api).everything()
    assert plain(api) == plain(untouched)
    found = plan(PlanBuilder(await read_inventory(api), USUAL, answers).judgement(), PlanFacts())
    assert all(step.state is StepState.DONE for step in found.steps)
    writes = len(api.writes())
    await Run(api).everything()
    assert len(api.writes()) == writes, "a third run writes nothing"


def plain(api: FakeApi) -> dict[Any, Any]:
    found = copy.deepcopy(api.objects)
    for each in found.values():
        each["metadata"].pop("resourceVersion", None)
    return found


@pytest.mark.req("TN-064")
async def test_what_the_api_server_does_not_answer_is_a_failure_and_not_the_end() -> None:
    api = cluster(objects={PODS: [pod("a", owner=("ReplicaSet", "web")), pod("b", owner=("ReplicaSet", "web"))]})

    async def away(verb: str, resource: object, name: str) -> None:
        if verb == "patch" and name == "a":
            raise Unavailable(503, message="away")

    api.hook = away
    outcome = await (await Run(api).steps()).pods()
    assert [each.ref.key.name for each in outcome.failed] == ["a"]
    assert [each.ref.key.name for each in outcome.changed] == ["b"]


def test_the_images_of_these_tests_are_what_they_say() -> None:
    assert [str(each) for each in IMAGES["both"].node_platforms] == ["linux/amd64", "linux/arm64"]
