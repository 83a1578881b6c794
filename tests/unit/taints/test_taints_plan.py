"""What a plan says: rows, blockers and steps."""

from collections.abc import Mapping

import pytest
from fake_api import FakeApi
from taint_cluster import answers, cluster, pod, shop, taint_api, workload
from taint_nodes import document

from polyarch.kube.resources import DAEMONSETS, DEPLOYMENTS, NODES, PODS, RUNTIME_CLASSES
from polyarch.objects import ObjectKey, Pod
from polyarch.oci.inspection import Inspection
from polyarch.taints.cluster import pending, read_inventory
from polyarch.taints.plan import Admission, ClusterEvaluation, Plan, PlanBuilder, PlanFacts, StepState, counted, plan
from polyarch.taints.settings import TaintSettings

USUAL = TaintSettings()
ALL_TAINTED = TaintSettings(mode="tolerations")
TOLERATION = {"key": "supported-arch", "operator": "Equal", "value": "arm64", "effect": "NoSchedule"}


async def judged(api: FakeApi, settings: TaintSettings = USUAL) -> ClusterEvaluation:
    return PlanBuilder(await read_inventory(api), settings, answers).judgement()


async def planned(api: FakeApi, settings: TaintSettings = USUAL, live: PlanFacts | None = None) -> Plan:
    return plan(await judged(api, settings), live or PlanFacts())


def states(found: Plan) -> dict[str, tuple[str, int]]:
    return {step.id: (step.state.value, step.writes) for step in found.steps}


@pytest.mark.req("TN-060")
async def test_every_list_is_read_once_and_nothing_is_written() -> None:
    api = shop()
    await planned(api)
    lists = [resource for verb, resource, _ in api.requests if verb == "list"]
    assert len(lists) == len(set(lists)) == 11
    assert not api.writes()


@pytest.mark.req("TN-061")
async def test_a_cluster_without_taints_has_everything_to_do_in_this_order() -> None:
    found = await planned(shop(), live=PlanFacts(Admission("no entry", "missing", comes=True)))
    assert list(states(found)) == ["inventory", "daemonsets", "admission", "pods", "simulate", "taint", "verify"]
    assert states(found) == {
        "inventory": ("done", 0),
        "daemonsets": ("todo", 1),
        "admission": ("todo", 0),
        "pods": ("todo", 2),
        "simulate": ("done", 0),
        "taint": ("todo", 2),
        "verify": ("todo", 0),
    }
    assert [(row.name, row.nodes, row.tainted, row.to_write) for row in found.architectures] == [
        ("arm64", 2, 0, 2),
        ("amd64", 2, 0, 0),
    ]


@pytest.mark.req("TN-061")
async def test_a_cluster_in_which_all_is_there_has_nothing_to_do() -> None:
    taint = "supported-arch=arm64:NoSchedule"
    api = cluster(arm64=0, objects={DAEMONSETS: [workload("agent", tolerations=[TOLERATION])]})
    api.put(NODES, document("arm-0", "arm64", taint))
    found = await planned(api)
    assert found.is_done
    assert not found.blockers


@pytest.mark.req("TN-060")
async def test_a_template_says_what_its_images_run_on_and_what_it_gets() -> None:
    api = cluster(objects={DEPLOYMENTS: [workload("both"), workload("intel", "intel"), workload("away", "away")]})
    rows = {each.template.key.name: each for each in (await judged(api)).templates}
    assert (rows["both"].architectures, rows["both"].decision.added) == (("amd64", "arm64"), ("arm64",))
    assert (rows["intel"].architectures, rows["intel"].decision.added) == (("amd64",), ())
    assert rows["away"].architectures is None
    assert counted(rows["both"].fit.after) == "2 amd64, 2 arm64"
    assert counted(rows["intel"].fit.after) == "2 amd64"


@pytest.mark.req("TN-060")
async def test_architectures_are_shown_of_templates_that_need_no_toleration() -> None:
    """A pod that may run on amd64 alone needs none, whatever its images are: they are looked at all the same."""
    bound = workload("bound", nodeSelector={"kubernetes.io/arch": "amd64"})
    opted_out = workload("opted-out")
    opted_out["spec"]["template"]["metadata"] = {"annotations": {"polyarch.dev/taints": "disabled"}}
    rows = {
        each.template.key.name: each
        for each in (await judged(cluster(objects={DEPLOYMENTS: [bound, opted_out]}))).templates
    }
    assert rows["bound"].architectures == ("amd64",)
    assert rows["opted-out"].architectures == ("amd64", "arm64")
    assert (rows["bound"].decision.reason, rows["opted-out"].decision.reason) == ("Covered", "OptedOut")


@pytest.mark.req("TN-062")
@pytest.mark.parametrize(
    ("kind", "objects", "reason"),
    [
        pytest.param(
            "Deployment",
            {DEPLOYMENTS: [workload("web", "away", nodeSelector={"kubernetes.io/arch": "arm64"})]},
            "NoNodeLeft",
            id="images without an answer get no toleration",
        ),
        pytest.param(
            "DaemonSet",
            {
                DAEMONSETS: [workload("agent", "away")],
                PODS: [pod("agent-b", "away", owner=("DaemonSet", "agent"), nodeName="arm-0")],
            },
            "DaemonSetLeavesNodes",
            id="a DaemonSet that runs on arm64 with an image that nobody knows",
        ),
    ],
)
async def test_what_would_have_no_node_is_a_blocker(kind, objects, reason) -> None:
    found = await planned(cluster(objects=objects))
    assert [(each.kind, each.reason) for each in found.blockers] == [(kind, reason)]
    assert "arm64" in found.blockers[0].detail
    assert states(found)["simulate"] == ("blocked", 0)
    assert states(found)["taint"] == ("blocked", 2)


@pytest.mark.req("TN-062")
async def test_a_daemonset_whose_templates_nobody_reconciles_keeps_what_it_has() -> None:
    found = await planned(shop(), TaintSettings(templates="admission"))
    assert [each.reason for each in found.blockers] == ["DaemonSetLeavesNodes"]
    assert states(found)["daemonsets"] == ("done", 0)


@pytest.mark.req("TN-061")
async def test_a_webhook_that_nobody_brings_is_a_blocker() -> None:
    found = await planned(
        shop(), live=PlanFacts(Admission("MutatingWebhookConfiguration polyarch-taints is not there"))
    )
    [blocker] = found.blockers
    assert (blocker.name, blocker.reason) == ("polyarch-taints", "AdmissionNotReady")
    assert states(found)["admission"] == ("blocked", 0)


@pytest.mark.req("TN-061")
@pytest.mark.parametrize(
    ("admission", "state"),
    [
        pytest.param(Admission(policy="missing"), ("todo", 2), id="the policy is written without a controller"),
        pytest.param(Admission(policy="missing", comes=True), ("todo", 0), id="a controller writes it itself"),
        pytest.param(Admission(policy="unserved"), ("done", 0), id="where it is not served it is not missed"),
        pytest.param(Admission(policy="unwanted"), ("done", 0), id="nor where it is not wanted"),
    ],
)
async def test_the_registration_policy_belongs_to_admission(admission, state) -> None:
    assert states(await planned(shop(), live=PlanFacts(admission)))["admission"] == state


@pytest.mark.req("TN-061")
async def test_a_daemonset_that_rolls_out_is_waited_for() -> None:
    found = await planned(shop(), live=PlanFacts(rolling=(ObjectKey("shop", "agent"),)))
    assert found.steps[1].state is StepState.TODO
    assert "shop/agent" in found.steps[1].detail


@pytest.mark.req("TN-043")
async def test_unscheduled_pods_get_what_they_lack_and_bound_ones_if_the_configuration_says_so() -> None:
    waiting = pod("waiting")
    gated = pod("gated", "away", schedulingGates=[{"name": "polyarch.dev/tolerations"}])
    gated["metadata"]["labels"] = {"polyarch.dev/tolerations": "gated"}
    bound = pod("bound", nodeName="amd-0")
    api = cluster(objects={PODS: [waiting, gated, bound]})
    assert states(await planned(api))["pods"] == ("todo", 2)
    assert states(await planned(api, TaintSettings(running="skip")))["pods"] == ("todo", 1)


@pytest.mark.req("TN-025")
async def test_pods_without_an_answer_block_only_where_every_node_gets_a_taint() -> None:
    api = cluster(objects={PODS: [pod("waiting", "away", owner=("ReplicaSet", "web"))]})
    assert not (await planned(api)).blockers
    [blocker] = (await planned(api, ALL_TAINTED)).blockers
    assert (blocker.kind, blocker.name, blocker.reason) == ("Pod", "waiting", "PodsUndecided")


@pytest.mark.req("TN-026")
async def test_pods_that_our_taint_keeps_pending_are_blockers() -> None:
    [blocker] = (await planned(cluster(), live=PlanFacts(pending={"arm64": ("shop/web-1",)}))).blockers
    assert (blocker.namespace, blocker.name, blocker.reason) == ("shop", "web-1", "PodsBecamePending")


def by_archaware(*values: str) -> list[dict[str, str]]:
    return [{"key": "supported-arch", "value": value, "effect": "NoSchedule"} for value in values]


@pytest.mark.req("TN-082")
async def test_a_cluster_that_archaware_left_consistent_needs_no_write() -> None:
    api = taint_api()
    for name, architecture in (("a", "amd64"), ("b", "arm64")):
        api.put(NODES, document(name, architecture, f"supported-arch={architecture}:NoSchedule"))
    tolerations = by_archaware("amd64", "arm64")
    api.put(DAEMONSETS, workload("agent", tolerations=tolerations))
    api.put(PODS, pod("web-1", owner=("ReplicaSet", "web"), tolerations=tolerations))
    api.put(PODS, pod("web-2", "intel", owner=("ReplicaSet", "web"), tolerations=by_archaware("amd64"), nodeName="a"))
    found = await planned(api, ALL_TAINTED)
    assert found.is_done
    assert [step.writes for step in found.steps] == [0] * 7
    assert not found.judgement.surplus


@pytest.mark.req("TN-082")
async def test_pods_with_tolerations_that_their_images_do_not_justify_are_listed() -> None:
    extra = pod("extra", "intel", owner=("ReplicaSet", "web"), tolerations=by_archaware("amd64", "arm64"))
    odd = pod("odd", "away", owner=("ReplicaSet", "web"), tolerations=by_archaware("arm64", "unknown"))
    fine = pod("fine", owner=("ReplicaSet", "web"), tolerations=by_archaware("arm64"))
    every = pod(
        "every", "intel", owner=("ReplicaSet", "web"), tolerations=[{"key": "supported-arch", "operator": "Exists"}]
    )
    api = cluster(objects={PODS: [extra, odd, fine, every]})
    found = {each.pod.metadata.name: each.values for each in (await judged(api)).surplus}
    assert found == {"extra": ("arm64",), "odd": ("unknown",)}
    assert not (await judged(api, TaintSettings(ownership="recorded"))).surplus


@pytest.mark.req("TN-060")
async def test_nothing_is_asked_about_pods_that_nothing_can_change() -> None:
    """Pods of templates share their images; those on nodes are left alone unless the configuration says otherwise."""
    api = cluster(objects={PODS: [pod("web-1", "arm", owner=("ReplicaSet", "web"), nodeName="arm-0")]})
    inventory = await read_inventory(api)
    assert list(PlanBuilder(inventory, TaintSettings(running="skip"), answers).pods()) == []
    assert [each.metadata.name for each in PlanBuilder(inventory, USUAL, answers).pods()] == ["web-1"]


@pytest.mark.req("RG-046")
async def test_pods_that_could_run_nowhere_are_looked_at_again() -> None:
    nowhere = workload("nowhere", "arm", nodeSelector={"kubernetes.io/arch": "s390x"})
    api = cluster(objects={DEPLOYMENTS: [nowhere, workload("fine"), workload("away", "away")]})
    judge = PlanBuilder(await read_inventory(api), USUAL, answers)
    assert [each.metadata.owner_references[0].name for each in judge.nowhere()] == ["nowhere"]


# -- nodes that lose a taint which polyarch did not write --------------------------------------------------------------


@pytest.mark.req("TN-071")
async def test_a_plan_names_the_nodes_that_lose_somebody_elses_taint() -> None:
    api = taint_api()
    taint = "supported-arch=amd64:NoSchedule"
    api.put(NODES, document("a-1", "amd64", taint))
    api.put(NODES, document("a-2", "amd64", taint, record=taint))
    found = await planned(api)
    decisions = {each.node.metadata.name: each.decision for each in found.judgement.nodes}
    assert [str(each) for each in decisions["a-1"].adopted] == [taint]
    assert decisions["a-2"].adopted == ()
    assert next(step.detail for step in found.steps if step.id == "taint") == "loses taints: 2 amd64"


@pytest.mark.req("TN-071")
async def test_a_key_of_ones_own_takes_nobody_elses_taint() -> None:
    api = taint_api()
    api.put(NODES, document("a-1", "amd64", "arch=amd64:NoSchedule"))
    api.put(NODES, document("b-1", "arm64", "arch=arm64:NoSchedule"))
    found = await planned(api, TaintSettings.of({"taint": {"preset": "custom", "key": "arch"}}))
    assert [row.to_write for row in found.architectures] == [0, 0]


# -- RuntimeClasses, and taints that go away ---------------------------------------------------------------------------


@pytest.mark.req("TN-066")
async def test_a_template_is_judged_with_what_its_runtime_class_adds() -> None:
    on_arm = {
        "metadata": {"name": "arm"},
        "scheduling": {"nodeSelector": {"kubernetes.io/arch": "arm64"}, "tolerations": [TOLERATION]},
    }
    web, gone = workload("web", runtimeClassName="arm"), workload("gone", runtimeClassName="nobody")
    api = cluster(objects={RUNTIME_CLASSES: [on_arm], DEPLOYMENTS: [web, gone]})
    rows = {each.template.key.name: each for each in (await judged(api)).templates}
    assert rows["web"].architectures == ("arm64",)
    assert rows["web"].decision.added == ()
    assert counted(rows["web"].fit.after) == "2 arm64"
    assert rows["gone"].fit.refused.startswith("there is no RuntimeClass nobody")
    assert not rows["gone"].fit.is_blocked


@pytest.mark.req("TN-067")
async def test_a_node_that_is_not_ready_now_does_not_hide_a_blocker() -> None:
    web = workload("web", "away", nodeSelector={"kubernetes.io/arch": "arm64"})
    api = cluster(arm64=0, objects={DEPLOYMENTS: [web]})
    api.put(NODES, document("arm-0", "arm64", "node.kubernetes.io/unreachable:NoSchedule"))
    [blocker] = (await planned(api)).blockers
    assert (blocker.name, blocker.reason) == ("web", "NoNodeLeft")
    assert "once taints that pass are gone" in blocker.detail


@pytest.mark.req("TN-065")
async def test_a_windows_node_is_no_home_for_a_linux_image() -> None:
    api = cluster(objects={DEPLOYMENTS: [workload("intel", "intel")]})
    api.put(NODES, document("win-0", "amd64", os="windows"))
    found = await planned(api, TaintSettings.of({"mode": "tolerations", "pods": {"excludeNamespaces": ["shop"]}}))
    assert [(each.name, each.reason) for each in found.blockers] == [("intel", "NoNodeLeft")]


@pytest.mark.req("TN-065")
async def test_an_empty_pool_of_the_only_architecture_is_no_blocker() -> None:
    """Its image runs on no node now, and on none afterwards: the taints change nothing."""
    found = await planned(cluster(amd64=0, objects={DEPLOYMENTS: [workload("intel", "intel")]}))
    assert not found.blockers


@pytest.mark.req("TN-065")
async def test_a_pod_whose_image_does_not_run_there_is_not_kept_pending_by_the_taint() -> None:
    api = cluster(amd64=0, arm64=0, objects={PODS: [pod("stuck", "intel"), pod("other", "both")]})
    api.put(NODES, document("arm-0", "arm64", "supported-arch=arm64:NoSchedule"))
    inventory = await read_inventory(api)
    judge = PlanBuilder(inventory, USUAL, answers)
    assert pending(inventory, USUAL) == {"arm64": ("shop/other", "shop/stuck")}
    assert pending(inventory, USUAL, judge.platforms) == {"arm64": ("shop/other",)}


@pytest.mark.req("TN-068")
async def test_equal_pods_are_judged_once_and_each_is_written() -> None:
    asked: list[str] = []

    def counted_answers(asking: Pod) -> Mapping[str, Inspection]:
        asked.append(asking.metadata.name)
        return answers(asking)

    owned = {"owner": ("ReplicaSet", "web"), "nodeName": "amd-0"}
    pods = [pod(f"web-{number}", **owned) for number in range(50)] + [pod("other", "intel", **owned)]
    inventory = await read_inventory(cluster(objects={PODS: pods}))
    judge = PlanBuilder(inventory, USUAL, counted_answers)
    assert [each.metadata.name for each in judge.pods()] == ["web-0", "other"]
    written = judge.judgement().bound
    assert sorted(each.pod.metadata.name for each in written) == sorted(f"web-{number}" for number in range(50))
    assert {each.operations[0].value for each in written} == {f"uid-web-{number}" for number in range(50)}
    assert len([name for name in asked if name.startswith("web-")]) == 1


@pytest.mark.req("TN-068")
async def test_pods_that_differ_in_what_decides_are_judged_apart() -> None:
    plain = pod("web-0", owner=("ReplicaSet", "web"), nodeName="amd-0")
    opted_out = pod("web-1", owner=("ReplicaSet", "web"), nodeName="amd-0")
    opted_out["metadata"]["annotations"] = {"polyarch.dev/taints": "disabled"}
    elsewhere = pod("web-2", owner=("ReplicaSet", "web"), nodeName="amd-0")
    elsewhere["metadata"]["namespace"] = "excluded"
    settings = TaintSettings.of({"pods": {"excludeNamespaces": ["excluded"]}})
    found = await judged(cluster(objects={PODS: [plain, opted_out, elsewhere]}), settings)
    assert [each.pod.metadata.name for each in found.bound] == ["web-0"]
