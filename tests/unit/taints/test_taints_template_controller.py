"""Templates of DaemonSets that exist: what they get, in which order, what holds the next back."""

from collections.abc import Callable
from typing import Any

import pytest
from fake_pods import FakeDaemonSets
from placement_world import refused_by_validation
from taint_nodes import document, node
from tainted_pods_world import TaintedPodsWorld

from polyarch.kube.errors import ConnectionFailed
from polyarch.kube.resources import DAEMONSETS, PODS
from polyarch.objects import ObjectKey
from polyarch.taints import names

APP = "quay.io/team/agent:1"
OTHER = "quay.io/team/other:1"
BOTH = ("linux/amd64", "linux/arm64")


@pytest.fixture
def world_of(world_of: Callable[..., TaintedPodsWorld]) -> Callable[..., TaintedPodsWorld]:
    def make(**options: Any) -> TaintedPodsWorld:
        world = world_of(**options)
        world.registry.set(APP, *BOTH)
        return world

    return make


# -- what a template gets ----------------------------------------------------------------------------------------------


@pytest.mark.req("TN-050")
async def test_a_template_gets_what_its_images_justify_and_a_record(world):
    key = world.daemon_sets.create("agent", APP)
    await world.run(1)
    assert world.daemon_sets.tolerated(key) == ["arm64"]
    assert world.daemon_sets.record(key) == (
        '[{"key":"supported-arch","operator":"Equal","value":"arm64","effect":"NoSchedule"}]'
    )
    assert world.events == []


@pytest.mark.req("TN-052")
async def test_a_covered_template_is_not_written(world):
    covered = world.daemon_sets.create("covered", APP, tolerations=[{"operator": "Exists"}])
    world.registry.set(OTHER, "linux/amd64")
    primary = world.daemon_sets.create("primary", OTHER)
    await world.run(60)
    assert world.daemon_sets.patched == []
    assert world.daemon_sets.record(covered) is None
    assert world.daemon_sets.record(primary) is None


@pytest.mark.req("TN-050")
async def test_a_second_pass_writes_nothing(world):
    key = world.daemon_sets.create("agent", APP)
    await world.run(1)
    world.daemon_sets.advance(key)
    world.template_controller.facts_changed(None)
    await world.run(60)
    assert world.daemon_sets.patched == [key]


@pytest.mark.req("TN-053")
async def test_a_template_that_a_tool_resets_each_minute_is_written_ever_more_rarely(world):
    """Where admission is not asked, each write is a rollout: there was one per sync of the tool, for ever."""
    key = world.daemon_sets.create("agent", APP)
    for _ in range(180):
        await world.run(60)
        world.daemon_sets.sync(key)
    assert 4 <= len(world.daemon_sets.patched) <= 9
    (problem,) = world.template_controller.contribution().problems
    assert problem.reason == "TolerationsTakenBack"
    assert "team/agent" in problem.message
    assert world.reasons == ["TolerationsTakenBack"] * (len(world.daemon_sets.patched) - 2)


@pytest.mark.req("TN-053")
async def test_another_architecture_is_added_without_a_pause(world):
    key = world.daemon_sets.create("agent", APP)
    await world.run(1)
    world.daemon_sets.advance(key)
    world.registry.set(APP, "linux/amd64", "linux/arm64", "linux/s390x")
    world.clock.advance(700)  # the tag is looked at again
    world.template_controller.facts_changed(None)
    await world.run(1)
    assert world.daemon_sets.tolerated(key) == ["arm64", "s390x"]
    assert world.template_controller.contribution().problems == ()


@pytest.mark.req("TN-050")
@pytest.mark.parametrize("policy", ["admission", "ignore"])
async def test_templates_are_reconciled_only_if_the_policy_says_so(world_of, policy):
    world = world_of(daemonSets={"templates": policy})
    world.nodes = [node(document("one", "arm64"))]
    world.daemon_sets.create("agent", APP)
    await world.run(1)
    assert world.daemon_sets.patched == []
    assert world.template_controller.uncovered("arm64") == ["team/agent"], "somebody else has to see to it"


@pytest.mark.req("TN-010")
@pytest.mark.parametrize("state", ["paused", "removing"])
async def test_nothing_is_written_while_paused_or_removing(world_of, state):
    world = world_of(state=state)
    world.daemon_sets.create("agent", APP)
    await world.run(60)
    assert world.daemon_sets.patched == []


@pytest.mark.req("TN-041")
async def test_a_daemon_set_that_opted_out_is_left_alone_and_holds_no_node_back(world):
    world.nodes = [node(document("one", "arm64"))]
    world.daemon_sets.create("agent", APP, annotations={names.OPT_OUT: names.DISABLED})
    await world.run(1)
    assert world.daemon_sets.patched == []
    assert world.template_controller.uncovered("arm64") == []


@pytest.mark.req("TN-052")
async def test_unknown_images_add_nothing_block_and_are_asked_for_again(world):
    world.registry.set(APP, error="not-found")
    world.nodes = [node(document("one", "arm64"))]
    key = world.daemon_sets.create("agent", APP)
    await world.run(10)
    assert world.daemon_sets.patched == []
    assert world.reasons == ["ArchitectureUnknown"]
    contribution = world.template_controller.contribution()
    assert contribution.fields["blockedTemplatesTotal"] == 1
    (entry,) = contribution.fields["blockedTemplates"]
    assert (entry["kind"], entry["namespace"], entry["name"], entry["reason"]) == (
        *("DaemonSet", "team", "agent"),
        "ArchitectureUnknown",
    )
    assert "arm64" in entry["architectures"]
    assert [(each.type, each.status, each.reason) for each in contribution.conditions] == [
        ("DaemonSetsCovered", "False", "ArchitectureUnknown")
    ]
    assert world.template_controller.uncovered("arm64") == ["team/agent"]
    world.registry.set(APP, *BOTH)
    await world.run(90)
    assert world.daemon_sets.tolerated(key) == ["arm64"]
    assert world.template_controller.contribution().fields["blockedTemplatesTotal"] == 0
    assert world.reasons == ["ArchitectureUnknown"]


@pytest.mark.req("TN-014")
async def test_at_most_fifty_blocked_templates_are_listed(world):
    world.registry.set(APP, error="not-found")
    for number in range(60):
        world.daemon_sets.create(f"agent-{number:02}", APP)
    await world.run(10)
    fields = world.template_controller.contribution().fields
    assert (len(fields["blockedTemplates"]), fields["blockedTemplatesTotal"]) == (50, 60)
    assert world.template_controller.blocked == 60
    assert world.registry.count(APP) <= 4, "one look-up for all of them"


@pytest.mark.req("TN-047")
async def test_a_template_that_no_node_can_run_is_told_and_blocked_but_holds_nobody_back(world):
    world.registry.set(APP, "linux/arm64")
    world.registry.set(OTHER, "linux/s390x")
    world.nodes = [node(document("one", "arm64"))]
    world.daemon_sets.create("agent", APP, OTHER)
    await world.run(10)
    assert world.reasons == ["NoCommonArchitecture"]
    assert world.template_controller.contribution().fields["blockedTemplates"][0]["reason"] == "NoCommonArchitecture"
    assert world.template_controller.uncovered("arm64") == []


def pod_of(daemon_set: str, *secrets: str, app: str = "agent") -> dict[str, Any]:
    """A pod of a DaemonSet, as the API server admitted it."""
    owner = {"kind": "DaemonSet", "uid": f"uid-{daemon_set}"}
    metadata = {"name": f"{daemon_set}-x", "namespace": "team", "labels": {"app": app}, "ownerReferences": [owner]}
    return {"metadata": metadata, "spec": {"imagePullSecrets": [{"name": each} for each in secrets]}}


@pytest.mark.req("TN-094")
async def test_a_private_image_is_read_with_the_pull_secrets_of_the_service_account(world):
    """Its pods have them, the template does not; nobody lists ServiceAccounts."""
    image = "registry.example/team/private:1"
    world.registry.needs_credentials.add(world.registry.set(image, *BOTH))
    world.reader.put("team", "of-the-account")
    for found in (pod_of("other", "wrong"), pod_of("agent", "of-the-account")):
        world.api.put(PODS, found)
    key = world.daemon_sets.create("agent", image)
    await world.run(5)
    assert world.daemon_sets.tolerated(key) == ["arm64"]
    assert world.api.requests.count(("list", "pods", "")) == 1
    assert world.events == []


@pytest.mark.req("TN-094")
async def test_a_private_image_without_pods_is_told_of_and_looked_at_now_and_then(world):
    image = "registry.example/team/private:1"
    world.registry.needs_credentials.add(world.registry.set(image, *BOTH))
    world.reader.put("team", "of-the-account")
    key = world.daemon_sets.create("agent", image)
    await world.run(130)
    assert world.reasons == ["ArchitectureUnknown"]
    assert world.api.requests.count(("list", "pods", "")) <= 3
    world.api.put(PODS, pod_of("agent", "of-the-account"))
    await world.run(130)
    world.daemon_sets.advance(key)  # its controller made a pod
    await world.run(2)
    assert world.daemon_sets.tolerated(key) == ["arm64"]


# -- rollouts ----------------------------------------------------------------------------------------------------------


@pytest.mark.req("TN-051")
async def test_one_rollout_at_a_time_and_those_that_others_need_first(world):
    last = world.daemon_sets.create("zebra", APP)
    network = world.daemon_sets.create("my-cni", APP)
    system = world.daemon_sets.create("proxy", APP, namespace="kube-system")
    first = world.daemon_sets.create("alpha", APP)
    order = []
    for _ in range(4):
        await world.run(30)
        assert len(world.daemon_sets.patched) == len(order) + 1
        order.append(world.daemon_sets.patched[-1])
        world.daemon_sets.advance(order[-1], updated=1, unavailable=1)
        await world.run(30)
        assert len(world.daemon_sets.patched) == len(order), "not before it is done"
        world.daemon_sets.advance(order[-1])
    assert order == [system, network, first, last]


@pytest.mark.req("TN-051")
async def test_one_that_is_being_deleted_holds_back_neither_templates_nor_nodes(world):
    """A deletion in the foreground lasts as long as a pod on a node that is down."""
    world.nodes = [node(document("one", "arm64"))]
    leaving = world.daemon_sets.create("leaving", OTHER)
    world.daemon_sets.begin_to_delete(leaving)
    key = world.daemon_sets.create("agent", APP)
    await world.run(10)
    assert world.daemon_sets.patched == [key]
    assert world.template_controller.uncovered("arm64") == []


@pytest.mark.req("TN-051")
async def test_several_rollouts_if_the_policy_allows_them(world_of):
    world = world_of(daemonSets={"maxConcurrentRollouts": 3})
    for number in range(5):
        world.daemon_sets.create(f"agent-{number}", APP)
    await world.run(60)
    assert len(world.daemon_sets.patched) == 3
    world.daemon_sets.advance(world.daemon_sets.patched[1])
    await world.run(1)
    assert len(world.daemon_sets.patched) == 4


@pytest.mark.req("TN-051")
async def test_with_on_delete_the_next_one_need_not_wait(world):
    for number in range(3):
        world.daemon_sets.create(f"agent-{number}", APP, strategy="OnDelete")
    await world.run(10)
    assert len(world.daemon_sets.patched) == 3


@pytest.mark.req("TN-051")
async def test_a_rollout_that_takes_too_long_is_told_once_and_holds_the_next_until_it_is_done(world):
    first, second = world.daemon_sets.create("a", APP), world.daemon_sets.create("b", APP)
    await world.run(1)
    world.daemon_sets.advance(first, updated=1, unavailable=1)
    await world.run(700)
    assert world.events[0][:2] == ("a", "DaemonSetRolloutSlow")
    assert len(world.events) == 1
    assert [problem.reason for problem in world.template_controller.contribution().problems] == ["DaemonSetRolloutSlow"]
    world.daemon_sets.advance(first, updated=2, unavailable=1)
    await world.run(700)
    assert world.daemon_sets.patched == [first]
    world.daemon_sets.advance(first)
    await world.run(1)
    assert world.daemon_sets.patched == [first, second]
    assert world.template_controller.contribution().problems == ()
    assert world.reasons.count("DaemonSetRolloutSlow") == 1


@pytest.mark.req("TN-051")
async def test_a_confirmed_rollout_holds_nobody(world):
    first, second = world.daemon_sets.create("a", APP), world.daemon_sets.create("b", APP)
    await world.run(1)
    world.daemon_sets.advance(first, updated=0, unavailable=1)
    await world.run(700)
    world.daemon_sets.annotate(first, **{names.ROLLOUT_CONFIRMED_ANNOTATION: "1"})
    await world.run(1)
    assert world.daemon_sets.patched == [first], "that was another generation"
    world.daemon_sets.annotate(first, **{names.ROLLOUT_CONFIRMED_ANNOTATION: "2"})
    await world.run(1)
    assert world.daemon_sets.patched == [first, second]
    assert world.template_controller.contribution().problems == ()


@pytest.mark.req("TN-051")
async def test_a_new_leader_waits_for_the_rollout_of_the_former_one(world_of):
    cluster = FakeDaemonSets()
    former = world_of(daemon_sets=cluster)
    first = cluster.create("a", APP)
    await former.run(1)
    cluster.advance(first, updated=1)
    former.leading = False
    second = cluster.create("b", APP)
    leader = world_of(daemon_sets=cluster, leading=False)
    await leader.run(1)
    await leader.lead()
    await leader.run(30)
    assert cluster.patched == [first]
    cluster.advance(first)
    await leader.run(1)
    assert cluster.patched == [first, second]


@pytest.mark.req("TN-051")
async def test_a_node_that_is_down_holds_no_template_back(world):
    """Its pods were replaced long ago and are unavailable for another reason."""
    record = '[{"key":"supported-arch","operator":"Equal","value":"arm64","effect":"NoSchedule"}]'
    tolerations = [{"key": "supported-arch", "operator": "Equal", "value": "arm64", "effect": "NoSchedule"}]
    done = world.daemon_sets.create(
        "a", APP, annotations={names.ADDED_TOLERATIONS_ANNOTATION: record}, tolerations=tolerations
    )
    world.daemon_sets.advance(done, unavailable=1)
    second = world.daemon_sets.create("b", APP)
    await world.run(5)
    assert world.daemon_sets.patched == [second]


@pytest.mark.req("TN-051")
async def test_a_template_that_is_blocked_or_gone_holds_nobody(world):
    world.registry.set(OTHER, error="network")
    world.daemon_sets.create("a-blocked", OTHER)
    rolling, second = world.daemon_sets.create("b", APP), world.daemon_sets.create("c", APP)
    await world.run(30)
    assert world.daemon_sets.patched == [rolling]
    world.daemon_sets.delete(rolling)
    await world.run(1)
    assert world.daemon_sets.patched == [rolling, second]


@pytest.mark.req("TN-051")
async def test_a_refused_change_is_tried_again_while_others_go_on(world):
    world.api.refuse(DAEMONSETS, "patch", name="a", error=refused_by_validation())
    first, second = world.daemon_sets.create("a", APP), world.daemon_sets.create("b", APP)
    await world.run(5)
    assert world.daemon_sets.tolerated(second) == ["arm64"]
    world.api.allow()
    world.daemon_sets.advance(second)
    await world.run(60)
    assert world.daemon_sets.tolerated(first) == ["arm64"]
    assert world.daemon_sets.patched.count(first) == 2, "no hot loop"


@pytest.mark.req("TN-092")
async def test_after_an_outage_of_the_api_server_the_template_is_written_once(world):
    world.daemon_sets.refuse(ConnectionFailed("refused", host="api.example"))
    key = world.daemon_sets.create("agent", APP)
    await world.run(30)
    tried = len(world.daemon_sets.patched)
    assert tried <= 8, "no hot loop"
    world.api.allow()
    await world.run(20)
    assert world.daemon_sets.tolerated(key) == ["arm64"]
    assert len(world.daemon_sets.patched) == tried + 1


@pytest.mark.req("TN-003")
async def test_a_standby_writes_nothing(world_of):
    world = world_of(leading=False)
    key = world.daemon_sets.create("agent", APP)
    await world.run(60)
    assert world.daemon_sets.patched == []
    assert world.template_controller.uncovered("arm64") is None
    await world.lead()
    await world.run(1)
    assert world.daemon_sets.tolerated(key) == ["arm64"]


# -- what nodes ask ----------------------------------------------------------------------------------------------------


@pytest.mark.req("TN-025")
async def test_a_daemon_set_with_pods_on_an_architecture_holds_its_taint_until_it_is_covered(world):
    world.nodes = [node(document("one", "amd64")), node(document("two", "arm64"))]
    world.daemon_sets.create("a", APP)
    world.daemon_sets.create("b", APP)
    await world.run(1)
    assert world.template_controller.uncovered("arm64") == ["team/b"]
    assert world.template_controller.uncovered("s390x") == [], "no node there has a pod of it"
    assert world.template_controller.contribution().conditions[0].reason == "TemplatesPending"
    world.daemon_sets.advance(ObjectKey("team", "a"))
    await world.run(1)
    assert world.template_controller.uncovered("arm64") == []
    assert world.template_controller.contribution().conditions[0].status == "True"


@pytest.mark.req("TN-025")
async def test_an_image_that_may_answer_in_a_moment_is_waited_for(world):
    world.nodes = [node(document("one", "arm64"))]
    world.registry.seconds = 5.0
    world.daemon_sets.create("agent", APP)
    await world.run(1)
    assert world.template_controller.uncovered("arm64") is None


@pytest.mark.req("TN-025")
async def test_one_that_has_no_pods_there_holds_nothing(world):
    world.nodes = [node(document("one", "amd64")), node(document("two", "arm64"))]
    world.registry.set(APP, error="network")
    world.daemon_sets.create("agent", APP, nodeSelector={"kubernetes.io/arch": "amd64"})
    await world.run(1)
    assert world.template_controller.uncovered("arm64") == []


@pytest.mark.req("TN-025")
async def test_nothing_is_called_covered_before_every_template_was_looked_at(world):
    world.facts.is_ready = False
    world.daemon_sets.create("agent", APP)
    await world.run(1)
    assert world.template_controller.uncovered("arm64") is None
    world.facts.is_ready = True
    await world.run(6)
    assert world.template_controller.uncovered("arm64") is not None
