"""Taints, gates and recorded tolerations leave a cluster, and nothing else changes."""

import asyncio
import json
from typing import Any

import pytest
from fake_api import FakeApi
from manual_clock import ManualClock
from taint_cluster import BINDINGS, POLICIES, taint_api
from taint_nodes import document, record_of, taints_of

from polyarch.kube.errors import Conflict, Forbidden, TooManyRequests
from polyarch.kube.resources import DAEMONSETS, MUTATING_WEBHOOKS, NODES, PODS
from polyarch.taints.removal import TaintRemover
from polyarch.taints.settings import TaintSettings
from polyarch.taints.writes import Writer

ADOPTING = TaintSettings()
RECORDED = TaintSettings(ownership="recorded")
OURS = "supported-arch=arm64:NoSchedule"
GATE = "polyarch.dev/tolerations"
ADDED = [{"key": "supported-arch", "operator": "Equal", "value": "arm64", "effect": "NoSchedule"}]


def pod(name: str, *, gate: bool = False, owner: str = "", annotated: bool = False, **spec: Any) -> dict[str, Any]:
    owners = [{"apiVersion": "apps/v1", "kind": owner, "name": "o", "uid": "u-o", "controller": True}] if owner else []
    return {
        "metadata": {
            "name": name,
            "namespace": "shop",
            "uid": f"u-{name}",
            "labels": {"app": "web", **({GATE: "gated"} if gate else {})},
            "annotations": {"polyarch.dev/tolerations": "arm64"} if annotated else {},
            "ownerReferences": owners,
        },
        "spec": {"schedulingGates": [{"name": "other"}, {"name": GATE}] if gate else [{"name": "other"}], **spec},
        "status": {"phase": "Pending"},
    }


def daemon_set(name: str, tolerations: list[dict[str, Any]], added: list[dict[str, Any]] | None) -> dict[str, Any]:
    annotations = {} if added is None else {"polyarch.dev/added-tolerations": json.dumps(added)}
    return {
        "metadata": {"name": name, "namespace": "kube-system", "uid": f"u-{name}", "annotations": annotations},
        "spec": {"template": {"spec": {"tolerations": tolerations}}},
    }


@pytest.fixture
def api() -> FakeApi:
    return taint_api()


def removal(api: FakeApi, settings: TaintSettings = ADOPTING, **options: Any) -> TaintRemover:
    return TaintRemover(Writer(api, **options), settings)


async def passing(clock: ManualClock, work: Any) -> Any:
    """The result of the work, while time passes."""
    task = asyncio.create_task(work)
    while not task.done():
        await clock.run(1.0)
    return await task


@pytest.mark.req("TN-070")
async def test_policy_binding_and_webhook_go_and_a_second_run_finds_none(api) -> None:
    for resource, name in ((POLICIES, "polyarch-architecture-taints"), (BINDINGS, "polyarch-architecture-taints")):
        api.put(resource, {"metadata": {"name": name}})
    api.put(MUTATING_WEBHOOKS, {"metadata": {"name": "polyarch-taints"}})
    api.put(MUTATING_WEBHOOKS, {"metadata": {"name": "somebody-elses"}})
    outcome = await removal(api).registration()
    assert [each.ref.resource.kind for each in outcome.changed] == [
        "MutatingAdmissionPolicyBinding",
        "MutatingAdmissionPolicy",
        "MutatingWebhookConfiguration",
    ]
    assert [name for _, _, name in api.objects] == ["somebody-elses"]
    assert not (await removal(api).registration()).changed


@pytest.mark.req("TN-070")
async def test_where_no_policy_is_served_only_the_webhook_goes(api) -> None:
    api.kinds = ()
    api.put(MUTATING_WEBHOOKS, {"metadata": {"name": "polyarch-taints"}})
    assert len((await removal(api).registration()).changed) == 1


@pytest.mark.req("TN-072")
@pytest.mark.parametrize(
    ("settings", "before", "record", "after"),
    [
        pytest.param(
            ADOPTING,
            ("a=b:NoExecute", OURS, "c=:NoSchedule"),
            None,
            ["a=b:NoExecute", "c=:NoSchedule"],
            id="adopted",
        ),
        pytest.param(RECORDED, (OURS,), None, [OURS], id="not ours without a record"),
        pytest.param(RECORDED, (OURS, "x=y:NoSchedule"), OURS, ["x=y:NoSchedule"], id="recorded"),
        pytest.param(ADOPTING, ("old=arm64:NoSchedule",), "old=arm64:NoSchedule", [], id="of a former key"),
        pytest.param(
            ADOPTING,
            ("supported-arch=gpu:NoSchedule",),
            None,
            ["supported-arch=gpu:NoSchedule"],
            id="no architecture",
        ),
    ],
)
async def test_only_our_taints_leave_a_node(api, settings, before, record, after) -> None:
    api.put(NODES, document("n-1", "arm64", *before, record=record))
    outcome = await removal(api, settings).taints()
    left = api.read(NODES, "n-1")
    assert taints_of(left) == after
    assert record_of(left) is None
    assert bool(outcome.changed) == (len(before) != len(after))
    writes = len(api.writes())
    assert not (await removal(api, settings).taints()).changed
    assert len(api.writes()) == writes, "a second run writes nothing"


@pytest.mark.req("TN-073")
async def test_a_node_that_cannot_be_written_holds_up_no_other(api) -> None:
    for name in ("n-1", "n-2", "n-3"):
        api.put(NODES, document(name, "arm64", OURS))

    async def refuse(verb: str, resource: object, name: str) -> None:
        if verb == "patch" and name == "n-2":
            raise Forbidden(403, message="no", name=name)

    api.hook = refuse
    outcome = await removal(api).taints()
    assert [each.ref.key.name for each in outcome.changed] == ["n-1", "n-3"]
    assert [each.ref.key.name for each in outcome.failed] == ["n-2"]
    assert [str(each) for each in await removal(api).left()] == ["nodes n-2"]


@pytest.mark.req("TN-024")
async def test_a_node_that_changed_meanwhile_is_read_and_decided_about_again(api) -> None:
    api.put(NODES, document("n-1", "arm64", OURS))
    refusals = 7

    async def change(verb: str, resource: object, name: str) -> None:
        nonlocal refusals
        if verb == "patch" and refusals:
            refusals -= 1
            api.put(NODES, document("n-1", "arm64", f"new-{refusals}:NoSchedule", OURS))
            raise Conflict(409)

    api.hook = change
    clock = ManualClock()
    outcome = await passing(clock, removal(api, clock=clock).taints())
    assert len(outcome.changed) == 1
    assert taints_of(api.read(NODES, "n-1")) == ["new-0=:NoSchedule"]


@pytest.mark.req("TN-070")
async def test_gates_are_lifted_and_other_gates_stay(api) -> None:
    api.put(PODS, pod("gated", gate=True))
    api.put(PODS, pod("free"))
    changed = pod("changed", nodeName="n-1")
    changed["metadata"]["labels"][GATE] = "changed"
    api.put(PODS, changed)
    outcome = await removal(api).gates()
    assert sorted(each.ref.key.name for each in outcome.changed) == ["changed", "gated"]
    left = api.read(PODS, "gated", "shop")
    assert left["spec"]["schedulingGates"] == [{"name": "other"}]
    assert left["metadata"]["labels"] == api.read(PODS, "changed", "shop")["metadata"]["labels"] == {"app": "web"}
    assert not await removal(api).left()


@pytest.mark.req("TN-070")
@pytest.mark.parametrize(
    ("before", "added", "after"),
    [
        pytest.param([*ADDED, {"operator": "Exists"}], ADDED, [{"operator": "Exists"}], id="what was recorded"),
        pytest.param(
            [{**ADDED[0], "effect": "NoExecute"}],
            ADDED,
            [{**ADDED[0], "effect": "NoExecute"}],
            id="not what was changed since",
        ),
        pytest.param([*ADDED, *ADDED], ADDED, ADDED, id="once, if somebody has the same"),
        pytest.param(ADDED, None, ADDED, id="nothing without a record"),
    ],
)
async def test_exactly_the_recorded_tolerations_leave_a_template(api, before, added, after) -> None:
    api.put(DAEMONSETS, daemon_set("agent", before, added))
    outcome = await removal(api).templates()
    left = api.read(DAEMONSETS, "agent", "kube-system")
    assert left["spec"]["template"]["spec"]["tolerations"] == after
    assert left["metadata"]["annotations"] == {}
    assert bool(outcome.changed) == (added is not None)
    assert not (await removal(api).templates()).changed


@pytest.mark.req("TN-070")
async def test_a_record_that_nobody_can_read_takes_no_toleration_away(api) -> None:
    broken = daemon_set("agent", ADDED, None)
    broken["metadata"]["annotations"]["polyarch.dev/added-tolerations"] = "{"
    api.put(DAEMONSETS, broken)
    await removal(api).templates()
    assert api.read(DAEMONSETS, "agent", "kube-system")["spec"]["template"]["spec"]["tolerations"] == ADDED


@pytest.mark.req("TN-071")
async def test_only_pods_that_somebody_replaces_are_evicted(api) -> None:
    """Neither mirror pods, pods of DaemonSets nor pods without an owner."""
    for each in (
        pod("web-1", owner="ReplicaSet", annotated=True),
        pod("web-2", owner="ReplicaSet"),
        pod("agent", owner="DaemonSet", annotated=True),
        pod("static", owner="Node", annotated=True),
        pod("bare", annotated=True),
    ):
        api.put(PODS, each)
    mirror = pod("mirror", annotated=True)
    mirror["metadata"]["annotations"]["kubernetes.io/config.mirror"] = "x"
    api.put(PODS, mirror)
    run = removal(api)
    await run.evict(await run.evictable())
    assert [pod.name for pod in api.evicted] == ["web-1"]
    assert [each.metadata.name for each in await run.evictable(bare=True)] == ["bare"]


@pytest.mark.req("TN-071")
async def test_a_budget_is_respected_for_five_minutes(api) -> None:
    api.put(PODS, pod("web-1", owner="ReplicaSet", annotated=True))
    refusal = TooManyRequests(429, message="Cannot evict pod", retry_after=10.0)
    api.refuse(PODS, "evict", error=[refusal] * 3)
    clock = ManualClock()
    run = removal(api, clock=clock)
    assert (await passing(clock, run.evict(await run.evictable()))).changed
    assert [pod.name for pod in api.evicted] == ["web-1"]

    api.put(PODS, pod("web-2", owner="ReplicaSet", annotated=True))
    api.refuse(PODS, "evict", error=refusal)
    began = clock.monotonic()
    [failure] = (await passing(clock, run.evict(await run.evictable()))).failed
    assert "Cannot evict pod" in failure.problem
    assert 280 <= clock.monotonic() - began <= 300


@pytest.mark.req("TN-072")
async def test_a_dry_run_says_what_would_be_written_and_writes_nothing(api) -> None:
    api.put(NODES, document("n-1", "arm64", OURS))
    api.put(PODS, pod("gated", gate=True))
    api.put(PODS, pod("web-1", owner="ReplicaSet", annotated=True))
    api.put(DAEMONSETS, daemon_set("agent", ADDED, ADDED))
    api.put(MUTATING_WEBHOOKS, {"metadata": {"name": "polyarch-taints"}})
    before = dict(api.objects)
    run = removal(api, dry_run=True)
    outcomes = [await run.registration(), await run.taints(), await run.gates(), await run.templates()]
    outcomes.append(await run.evict(await run.evictable()))
    assert [len(each.changed) for each in outcomes] == [1, 1, 1, 1, 1]
    assert api.objects == before
