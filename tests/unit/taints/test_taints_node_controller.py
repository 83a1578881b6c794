"""The controller that taints nodes, from a watch to what is stored."""

from typing import Any

import pytest
from taint_nodes import Json, document, record_of, taint

from polyarch.kube.errors import Conflict, Forbidden, Unavailable
from polyarch.kube.resources import NODES
from polyarch.kube.store import ObjectChange
from polyarch.taints.api import ArchitectureStatus
from polyarch.taints.node_rules import (
    ClientConfig,
    Endpoint,
    EndpointConditions,
    EndpointSlice,
    RolloutPreconditions,
    ServiceReference,
    Webhook,
    WebhookConfiguration,
    admission_problem,
)
from polyarch.taints.settings import TaintSettings

pytestmark = pytest.mark.req("TN-022")

ARM = "supported-arch=arm64:NoSchedule"
AMD = "supported-arch=amd64:NoSchedule"
S390X = "supported-arch=s390x:NoSchedule"
FAST = {"per_minute": 600}
HOLD = RolloutPreconditions(admission="no webhook")


def numbered(architecture: str, count: int) -> list[Json]:
    return [document(f"{architecture}-{number:04}", architecture) for number in range(count)]


@pytest.mark.req("TN-023")
async def test_secondary_nodes_are_tainted_and_primary_ones_are_not(worlds: Any) -> None:
    world = worlds(document("a", "amd64"), document("b", "arm64"), **FAST)
    await world.run(5)
    assert world.taints() == {"a": [], "b": [ARM]}
    assert record_of(world.api.read(NODES, "b")) == ARM
    assert world.reasons() == [("b", "ArchitectureTaintApplied")]
    assert [request for request in world.api.requests if request[0] != "patch"] == []


@pytest.mark.req("TN-090")
async def test_one_patch_per_node_and_then_nothing(worlds: Any) -> None:
    world = worlds(*numbered("arm64", 30), **FAST)
    await world.run(10)
    assert len(world.api.requests) == 30
    for name in list(world.order):
        world.edit(name, lambda each: each["status"].update(conditions=[{"type": "Ready"}]))
    await world.run(600)
    assert len(world.api.requests) == 30


@pytest.mark.req("TN-023")
async def test_a_taint_changed_by_hand_is_corrected_at_once(worlds: Any) -> None:
    world = worlds(document("b", "arm64"), per_minute=1)
    await world.run(130)
    world.edit("b", lambda each: each["spec"].update(taints=[taint("nvidia.com/gpu=x:NoSchedule"), taint(AMD)]))
    await world.run(1)
    assert world.taints()["b"] == ["nvidia.com/gpu=x:NoSchedule", ARM]
    assert world.reasons()[-1] == ("b", "ArchitectureTaintCorrected")


@pytest.mark.req("TN-021")
async def test_a_node_that_opts_out_loses_its_taint(worlds: Any) -> None:
    world = worlds(document("b", "arm64", "nvidia.com/gpu=x:NoSchedule"), **FAST)
    await world.run(70)
    world.edit("b", lambda each: each["metadata"]["labels"].update({"polyarch.dev/taints": "disabled"}))
    await world.run(1)
    assert world.taints()["b"] == ["nvidia.com/gpu=x:NoSchedule"]
    assert world.reasons()[-1] == ("b", "ArchitectureTaintRemoved")


@pytest.mark.req("TN-024")
async def test_a_failed_test_reads_and_decides_again(worlds: Any) -> None:
    """A vendor's taint came in between: it stays, where it was."""
    world = worlds(document("b", "arm64"), lead=False, **FAST)
    world.edit("b", lambda each: each["spec"].update(taints=[taint("nvidia.com/gpu=x:NoSchedule")]), unseen=True)
    world.lead()
    await world.run(1)
    assert world.taints()["b"] == ["nvidia.com/gpu=x:NoSchedule", ARM]
    assert [verb for verb, _, _ in world.api.requests] == ["patch", "get", "patch"]


@pytest.mark.req("TN-024")
@pytest.mark.parametrize("conflicts", [3, 5])
async def test_conflicts_are_tried_again_at_once(worlds: Any, conflicts: int) -> None:
    world = worlds(document("b", "arm64"), **FAST)
    left = conflicts

    async def hook(verb: str, *_: Any) -> None:
        nonlocal left
        if verb == "patch" and left:
            left -= 1
            raise Conflict(409, reason="Conflict")

    world.api.hook = hook
    await world.run(0.2)
    assert world.taints()["b"] == [ARM]
    assert world.controller.unwritten == {}


@pytest.mark.req("TN-024")
async def test_more_conflicts_are_tried_again_with_backoff(worlds: Any) -> None:
    world = worlds(document("b", "arm64"), **FAST)
    left = 20

    async def hook(verb: str, *_: Any) -> None:
        nonlocal left
        if verb == "patch" and left:
            left -= 1
            raise Conflict(409, reason="Conflict")

    world.api.hook = hook
    await world.run(0.1)
    assert "b" in world.controller.unwritten
    await world.run(60)
    assert world.taints()["b"] == [ARM]
    assert world.controller.unwritten == {}


@pytest.mark.req("TN-024")
async def test_a_node_deleted_meanwhile_is_done(worlds: Any) -> None:
    world = worlds(document("b", "arm64"), lead=False, **FAST)
    world.remove("b", unseen=True)
    world.lead()
    await world.run(5)
    assert world.api.requests == [("patch", "nodes", "b")]
    assert world.controller.unwritten == {}


@pytest.mark.req("TN-094")
async def test_no_retry_is_lost_and_no_node_holds_up_the_others(worlds: Any) -> None:
    world = worlds(*numbered("arm64", 3), **FAST)
    refusing = True

    async def hook(verb: str, _: Any, name: str) -> None:
        if refusing and name == "arm64-0001":
            raise Forbidden(403, reason="Forbidden", message='admission webhook "guard" denied the request')

    world.api.hook = hook
    await world.run(30)
    assert [name for name, taints in world.taints().items() if taints] == ["arm64-0000", "arm64-0002"]
    contribution = world.report.contribution()
    assert [each.reason for each in contribution.problems] == ["NodesNotWritten"]
    assert "arm64-0001" in contribution.problems[0].message
    assert world.reasons().count(("arm64-0001", "ArchitectureTaintRefused")) == 1
    written = {
        result: world.metrics.registry.get_sample_value(
            "polyarch_taints_writes_total", {"kind": "node", "result": result}
        )
        for result in ("refused", "unanswered")
    }
    assert written["refused"]
    assert not written["unanswered"]
    refusing = False
    await world.run(300)
    assert world.taints()["arm64-0001"] == [ARM]
    assert world.report.contribution().problems == ()


@pytest.mark.req("TN-025")
async def test_webhooks_that_do_not_answer_make_taints_unready(worlds: Any) -> None:
    world = worlds(*numbered("arm64", 1), **FAST)
    assert world.report.contribution().unready == ()
    world.admission = "polyarch-taints has no ready endpoint"
    (found,) = world.report.contribution().unready
    assert (found.reason, found.message) == ("AdmissionNotReady", world.admission)


@pytest.mark.req("TN-024")
async def test_an_api_server_that_is_away_loses_nothing(worlds: Any) -> None:
    world = worlds(*numbered("arm64", 5), **FAST)
    away = True

    async def hook(*_: Any) -> None:
        if away:
            raise Unavailable(503, reason="ServiceUnavailable")

    world.api.hook = hook
    await world.run(30)
    away = False
    await world.run(120)
    assert set(map(tuple, world.taints().values())) == {(ARM,)}


async def test_a_late_watch_does_not_cause_a_second_write(worlds: Any) -> None:
    world = worlds(document("b", "arm64"), lead=False, **FAST)
    late: list[str] = []
    world.deliver = late.append
    world.lead()
    await world.run(1)
    assert late == ["b"]
    stale = world.store.get(next(iter(world.store)))
    world.controller.seen(ObjectChange("apply", stale.metadata.key, None, stale))
    await world.run(20)
    world.show("b")
    await world.run(20)
    assert world.order == ["b"]


# -- warnings ----------------------------------------------------------------------------------------------------------


@pytest.mark.req("TN-020")
async def test_warnings_are_posted_once_while_they_last(worlds: Any) -> None:
    world = worlds(
        document("odd", "arm64", label="amd64"),
        document("vax", "vax", ARM),
        document("gold", "arm64", "supported-arch=gold:NoSchedule"),
        **FAST,
    )
    await world.run(5)
    world.edit("odd", lambda each: each["metadata"]["labels"].update(zone="a"))
    await world.run(5)
    warnings = sorted(each for each in world.reasons() if each[1] != "ArchitectureTaintApplied")
    assert warnings == [
        ("gold", "ForeignArchitectureTaint"),
        ("odd", "NodeArchitectureMismatch"),
        ("vax", "NodeArchitectureUnknown"),
    ]
    assert world.taints()["vax"] == [ARM]
    fields = world.report.contribution().fields
    assert fields["nodes"] == {"managed": 2, "tainted": 2, "skipped": 0, "unknown": 1, "summary": "2/2"}


@pytest.mark.req("TN-014")
async def test_the_columns_name_the_key_and_count_what_is_to_be_tainted(worlds: Any) -> None:
    """A cluster that is done reads 1/1, though its three nodes are managed: amd64 is primary and carries none."""
    world = worlds(document("a", "amd64"), document("b", "amd64"), document("c", "arm64"), **FAST)
    await world.run(5)
    fields = world.report.contribution().fields
    assert fields["key"] == "supported-arch"
    assert fields["nodes"] == {"managed": 3, "tainted": 1, "skipped": 0, "unknown": 0, "summary": "1/1"}


# -- safety ------------------------------------------------------------------------------------------------------------


@pytest.mark.req("TN-025")
async def test_nodes_wait_until_it_is_safe(worlds: Any) -> None:
    world = worlds(document("a", "amd64"), document("b", "arm64"), lead=False, **FAST)
    world.safety["arm64"] = RolloutPreconditions(uncovered=["kube-system/cni"])
    world.lead()
    await world.run(60)
    assert world.taints()["b"] == []
    contribution = world.report.contribution()
    row = next(each for each in contribution.fields["architectures"] if each["name"] == "arm64")
    assert row == {"name": "arm64", "nodes": 1, "waiting": 1, "reason": "DaemonSetsNotCovered"}
    safe = next(each for each in contribution.conditions if each.type == "SafeToTaint")
    assert (safe.status, safe.reason) == ("False", "DaemonSetsNotCovered")
    assert "kube-system/cni" in safe.message
    world.safety["arm64"] = RolloutPreconditions()
    await world.run(5)
    assert world.taints()["b"] == [ARM]
    conditions = {each.type: each.status for each in world.report.contribution().conditions}
    assert conditions == {"NodesTainted": "True", "SafeToTaint": "True"}


@pytest.mark.req("TN-025")
async def test_events_of_nodes_do_not_make_it_look_at_the_whole_cluster(worlds: Any) -> None:
    world = worlds(document("b", "arm64"), lead=False, given=frozenset({"amd64", "arm64", "s390x"}), **FAST)
    world.safety["arm64"] = world.safety["s390x"] = HOLD
    world.lead()
    await world.run(1)
    asked = list(world.asked)
    for number in range(20):
        world.edit("b", lambda each, number=number: each["metadata"]["labels"].update(turn=str(number)))
        await world.run(0.01)
    assert world.asked == asked == ["arm64", "s390x"]
    await world.run(10)
    assert world.asked.count("arm64") == 6
    assert world.asked.count("s390x") == 2


@pytest.mark.req("TN-025")
async def test_new_nodes_of_a_tainted_architecture_do_not_wait(worlds: Any) -> None:
    world = worlds(document("b", "arm64", ARM), lead=False, **FAST)
    world.safety["arm64"] = world.safety["s390x"] = HOLD
    world.lead()
    await world.run(1)
    world.add("c", "arm64")
    world.add("z", "s390x")
    await world.run(2)
    assert world.taints() == {"b": [ARM], "c": [ARM], "z": []}


@pytest.mark.req("TN-025")
async def test_another_effect_is_another_taint_and_is_judged_anew(worlds: Any) -> None:
    world = worlds(document("b", "arm64", ARM), **FAST)
    await world.run(1)
    world.safety["arm64"] = RolloutPreconditions(uncovered=["kube-system/cni"])
    world.configure(TaintSettings(effect="NoExecute", per_minute=600))
    await world.run(30)
    assert world.taints()["b"] == [ARM]


@pytest.mark.req("TN-025")
async def test_immediate_skips_the_test(worlds: Any) -> None:
    world = worlds(document("b", "arm64"), lead=False, rollout="immediate", **FAST)
    world.safety["arm64"] = HOLD
    world.lead()
    await world.run(1)
    assert world.taints()["b"] == [ARM]


@pytest.mark.req("TN-027")
async def test_architectures_are_released_before_their_first_node_comes(worlds: Any) -> None:
    world = worlds(document("a", "amd64"), given=frozenset({"amd64", "arm64", "s390x"}), lead=False)
    world.safety["s390x"] = HOLD
    world.lead()
    await world.run(1)
    assert world.released == [frozenset({"arm64"})]
    world.safety["s390x"] = RolloutPreconditions()
    await world.run(11)
    assert world.released[-1] == frozenset({"arm64", "s390x"})


# -- order and pace ----------------------------------------------------------------------------------------------------


@pytest.mark.req("TN-026")
async def test_architectures_and_nodes_have_their_order(worlds: Any) -> None:
    world = worlds(
        *numbered("arm64", 3), *numbered("s390x", 2), *numbered("amd64", 1), mode="tolerations", per_minute=600
    )
    await world.run(5)
    assert world.order == ["s390x-0000", "s390x-0001", "arm64-0000", "arm64-0001", "arm64-0002", "amd64-0000"]


@pytest.mark.req("TN-090")
async def test_a_thousand_nodes_take_the_time_that_the_pace_allows(worlds: Any) -> None:
    """1 000 nodes at 600 a minute: 100 s, at most 5 % more or less, and in no minute more than 600."""
    world = worlds(*numbered("arm64", 1000), **FAST)
    began = world.clock.monotonic()
    await world.run(120)
    assert len(world.order) == 1000
    assert 95 <= world.written_at[-1] - began <= 105
    assert all(
        later - earlier >= 60 - 1e-6
        for earlier, later in zip(world.written_at[:400], world.written_at[600:], strict=True)
    )


@pytest.mark.req("TN-026")
async def test_the_pace_is_kept_over_a_restart(worlds: Any) -> None:
    world = worlds(*numbered("arm64", 10), per_minute=6)
    await world.run(25)
    written = list(world.order)
    assert len(written) == 2
    world.rollout.started_leading()
    world.add("new", "arm64")
    await world.run(9)
    assert world.order == written
    await world.run(1.5)
    assert len(world.order) == 3


@pytest.mark.req("TN-026")
async def test_corrections_and_removals_count(worlds: Any) -> None:
    world = worlds(*(document(f"b{number}", "arm64", ARM) for number in range(8)), per_minute=4)
    await world.run(61)
    for number in range(8):
        world.edit(f"b{number}", lambda each: each["spec"].update(taints=[]))
    await world.run(1)
    assert len(world.order) == 4
    await world.run(59.5)
    assert len(world.order) == 8


@pytest.mark.req("TN-027")
async def test_new_nodes_come_before_the_rollout(worlds: Any) -> None:
    """A node that a rollout has not reached does not delay one that just came."""
    world = worlds(*numbered("arm64", 300), per_minute=60)
    await world.run(70)
    world.add("zz-new", "arm64")
    await world.run(2)
    assert world.taints()["zz-new"] == [ARM]


@pytest.mark.req("TN-027")
async def test_new_nodes_are_tainted_within_two_seconds(worlds: Any) -> None:
    world = worlds(document("b", "arm64", ARM))
    await world.run(61)
    for number in range(50):
        world.add(f"new-{number:02}", "arm64")
        await world.run(0.01)
    await world.run(1)
    assert len(world.order) == 50
    measured = world.metrics.registry.get_sample_value("polyarch_taints_node_reaction_seconds_bucket", {"le": "2.0"})
    assert measured == 50


# -- the stop ----------------------------------------------------------------------------------------------------------

APP = {"arm64": {"u1": "demo/app"}}


@pytest.mark.req("TN-026")
async def test_tainting_stops_when_pods_become_pending(worlds: Any) -> None:
    world = worlds(*numbered("arm64", 100), document("z1", "s390x"), per_minute=30)
    await world.run(10)
    world.pending = APP
    await world.run(12)
    written = len(world.order)
    await world.run(120)
    assert len(world.order) == written
    contribution = world.report.contribution()
    assert [each.reason for each in contribution.problems] == ["PodsBecamePending"]
    assert "demo/app" in contribution.problems[0].message
    assert next(each for each in contribution.fields["architectures"] if each["name"] == "arm64")["reason"] == (
        "PodsBecamePending"
    )
    assert "arm64" not in world.released[-1], "nodes that register are not tainted either"
    world.add("z2", "s390x")
    await world.run(3)
    assert world.taints()["z2"] == [S390X]


@pytest.mark.req("TN-026")
@pytest.mark.parametrize("change", [{"generation": 2}, {"annotations": {"go": "on"}}], ids=["spec", "annotation"])
async def test_a_change_of_the_object_ends_the_stop(worlds: Any, change: dict[str, Any]) -> None:
    world = worlds(*numbered("arm64", 100), per_minute=30)
    await world.run(10)
    world.pending = APP
    await world.run(20)
    written = len(world.order)
    world.facts.changed(**change)
    await world.run(60)
    assert len(world.order) >= written + 20
    assert world.report.contribution().problems == ()


@pytest.mark.req("TN-026")
async def test_ten_quiet_minutes_end_the_stop(worlds: Any) -> None:
    world = worlds(*numbered("arm64", 100), per_minute=30)
    await world.run(10)
    world.pending = APP
    await world.run(20)
    written = len(world.order)
    world.pending = {}
    await world.run(595)
    assert len(world.order) == written
    await world.run(60)
    assert len(world.order) > written


@pytest.mark.req("TN-026")
async def test_a_stop_is_kept_over_a_restart(worlds: Any) -> None:
    world = worlds(document("a", "arm64", ARM), *numbered("arm64", 3), lead=False, **FAST)
    row = ArchitectureStatus(name="arm64", nodes=4, tainted=1, waiting=3, reason="PodsBecamePending")
    world.facts.changed(generation=3, observed_generation=3, architectures=[row])
    world.pending = APP
    world.lead()
    await world.run(60)
    assert world.order == []
    world.facts.changed(generation=4, observed_generation=3, architectures=[row])
    await world.run(60)
    assert len(world.order) == 3


@pytest.mark.req("TN-026")
async def test_pods_that_were_pending_before_stop_nothing(worlds: Any) -> None:
    world = worlds(*numbered("arm64", 10), lead=False, **FAST)
    world.pending = APP
    world.lead()
    await world.run(60)
    assert len(world.order) == 10


@pytest.mark.req("TN-026")
async def test_pods_that_became_pending_long_before_a_node_came_stop_nothing(worlds: Any) -> None:
    """Somebody asks for arm64 and tolerates nothing: that is no consequence of the node that joins an hour later."""
    world = worlds(document("b", "arm64"), **FAST)
    await world.run(600)
    world.pending = APP
    await world.run(3600)
    world.add("new", "arm64")
    await world.run(120)
    assert world.taints()["new"] == [ARM]
    assert world.report.contribution().problems == ()


# -- states ------------------------------------------------------------------------------------------------------------


@pytest.mark.req("TN-010")
async def test_paused_writes_nothing(worlds: Any) -> None:
    world = worlds(document("b", "arm64"), document("c", "arm64", AMD), state="paused")
    await world.run(60)
    assert world.api.requests == []
    conditions = {each.type: each.reason for each in world.report.contribution().conditions}
    assert conditions == {"NodesTainted": "Paused", "SafeToTaint": "Paused"}


@pytest.mark.req("TN-010")
async def test_without_the_object_nothing_is_written(worlds: Any) -> None:
    world = worlds(document("b", "arm64", ARM), document("c", "arm64"), **FAST)
    world.configure(None)
    await world.run(60)
    assert world.api.requests == []


@pytest.mark.req("TN-073")
async def test_removing_takes_every_taint_of_ours_and_says_how_many_are_left(worlds: Any) -> None:
    world = worlds(*numbered("arm64", 20), document("gpu", "arm64", "nvidia.com/gpu=x:NoSchedule", ARM), **FAST)
    await world.run(5)
    refusing = True

    async def hook(verb: str, _: Any, name: str) -> None:
        if refusing and name == "arm64-0007":
            raise Forbidden(403, reason="Forbidden", message="no")

    world.api.hook = hook
    world.configure(TaintSettings(state="removing", per_minute=600))
    await world.run(30)
    assert [name for name, taints in world.taints().items() if ARM in taints] == ["arm64-0007"]
    assert world.taints()["gpu"] == ["nvidia.com/gpu=x:NoSchedule"]
    assert "arm64-0007" in world.report.contribution().problems[0].message
    assert world.report.contribution().fields["nodes"]["tainted"] == 1
    refusing = False
    await world.run(300)
    assert world.controller.census.marked == 0


async def test_a_change_of_the_mode_is_carried_out(worlds: Any) -> None:
    world = worlds(document("a", "amd64"), document("b", "arm64"), mode="tolerations", **FAST)
    await world.run(2)
    assert world.taints() == {"a": [AMD], "b": [ARM]}
    world.configure(TaintSettings(per_minute=600))
    await world.run(2)
    assert world.taints() == {"a": [], "b": [ARM]}


async def test_a_standby_writes_nothing_and_takes_over_at_once(worlds: Any) -> None:
    world = worlds(document("b", "arm64"), lead=False, **FAST)
    world.leading = False
    world.add("c", "arm64")
    await world.run(60)
    assert world.api.requests == []
    world.leading = True
    world.lead()
    await world.run(1)
    assert world.taints() == {"b": [ARM], "c": [ARM]}


# -- the webhook -------------------------------------------------------------------------------------------------------


def webhook(path: str = "/add-pod-tolerations", *, namespace: str = "polyarch") -> WebhookConfiguration:
    service = ServiceReference(namespace=namespace, name="polyarch-taints", path=path)
    return WebhookConfiguration(webhooks=[Webhook(name="w", client_config=ClientConfig(service=service))])


READY = EndpointSlice(endpoints=[Endpoint(EndpointConditions(ready=False)), Endpoint()])
UNREADY = EndpointSlice(endpoints=[Endpoint(EndpointConditions(ready=False))])
BY_URL = WebhookConfiguration(
    webhooks=[Webhook(client_config=ClientConfig(url="https://127.0.0.1:1/add-pod-tolerations"))]
)


@pytest.mark.req("TN-025")
@pytest.mark.parametrize(
    ("configuration", "slices", "problem"),
    [
        (webhook(), [READY], ""),
        (webhook(), [UNREADY], "no ready endpoint"),
        (webhook(), [], "no ready endpoint"),
        (None, [READY], "no entry for pods"),
        (webhook("/add-template-tolerations"), [READY], "no entry for pods"),
        (webhook(namespace="other"), [READY], "points at Service other/polyarch-taints"),
        (BY_URL, [], ""),
    ],
)
def test_whether_the_webhook_is_available(
    configuration: WebhookConfiguration | None, slices: list[EndpointSlice], problem: str
) -> None:
    found = admission_problem(configuration, slices, namespace="polyarch")
    assert problem in found
    assert bool(found) == bool(problem)


@pytest.mark.req("TN-027")
async def test_what_is_released_is_not_said_before_a_leader_has_looked(worlds: Any) -> None:
    world = worlds(document("arm", "arm64"), lead=False)
    world.rollout.started_leading()
    assert world.rollout.released is None
    world.lead()
    await world.run(1)
    assert "arm64" in world.rollout.released
