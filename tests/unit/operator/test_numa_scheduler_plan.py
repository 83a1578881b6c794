"""What a NUMAResourcesScheduler brings, and what its status says."""

from typing import Any

import msgspec
import pytest

from polyarch.numa import names
from polyarch.objects import ObjectMeta
from polyarch.operator.cluster import MONITORING
from polyarch.operator.components import numa_scheduler_plan
from polyarch.operator.components.numa_scheduler_objects import CONTROL_PLANE_KEYS
from polyarch.operator.components.numa_scheduler_plan import (
    ImageRules,
    NodeCounts,
    NodeInfo,
    NodeSpec,
    NodeStatus,
    SchedulableNode,
    SchedulerFacts,
    SchedulerPlan,
    plan_scheduler,
)
from polyarch.operator.operands import tolerated
from polyarch.operator.settings import ClusterCapabilities, OperatorSettings
from polyarch.run.numa_controllers import SCHEDULER_KINDS
from polyarch.tolerations import Taint

Json = dict[str, Any]
DIGEST = "sha256:" + "a" * 64


def observed(spec: Json | None = None, **fields: Any) -> SchedulerFacts:
    annotations = fields.pop("annotations", {})
    name = fields.pop("name", names.SCHEDULER_SINGLETON)
    metadata = {"name": name, "annotations": annotations, "generation": 1}
    usual: Json = {
        "operator": OperatorSettings(namespace="home", image="polyarch:1"),
        "cluster": ClusterCapabilities(version=(1, 33)),
        "platform": "kubernetes",
        "version": "v1.33.2",
        "node_counts": NodeCounts(control_plane=1, workers=5, oldest_kubelet=(1, 33)),
        "owner": None,
    }
    return SchedulerFacts(
        document={"metadata": metadata, "spec": spec or {}, "status": fields.pop("status", {})},
        metadata=msgspec.convert(metadata, ObjectMeta),
        **(usual | fields),
    )


def made(planned: SchedulerPlan) -> dict[tuple[str, str], Json]:
    assert planned.documents is not None
    return {(each["kind"], each["metadata"]["name"]): each for each in planned.documents}


def scheduler_file(planned: SchedulerPlan) -> Json:
    text = made(planned)["ConfigMap", "topo-aware-scheduler-config"]["data"]["config.yaml"]
    found: Json = msgspec.json.decode(text)
    return found


def pod_of(planned: SchedulerPlan) -> Json:
    spec: Json = made(planned)["Deployment", "secondary-scheduler"]["spec"]["template"]["spec"]
    return spec


def container(planned: SchedulerPlan, name: str) -> Json:
    return next(each for each in pod_of(planned)["containers"] if each["name"] == name)


@pytest.mark.req("NO-080")
def test_the_objects_have_the_names_that_tools_know() -> None:
    assert set(made(plan_scheduler(observed()))) == {
        ("ServiceAccount", "secondary-scheduler"),
        ("ClusterRole", "topology-aware-scheduler"),
        ("ClusterRoleBinding", "topology-aware-scheduler"),
        ("ClusterRoleBinding", "topology-aware-scheduler-as-kube-scheduler"),
        ("ClusterRoleBinding", "topology-aware-scheduler-as-volume-scheduler"),
        ("Role", "topology-aware-scheduler-leader-elect"),
        ("RoleBinding", "topology-aware-scheduler-leader-elect"),
        ("Role", "topology-aware-scheduler-kick"),
        ("RoleBinding", "topology-aware-scheduler-kick"),
        ("RoleBinding", "topology-aware-scheduler-authentication-reader"),
        ("ConfigMap", "topo-aware-scheduler-config"),
        ("ConfigMap", "numa-extender-config"),
        ("NetworkPolicy", "scheduler-default-deny-all"),
        ("NetworkPolicy", "scheduler-egress-to-api-server"),
        ("NetworkPolicy", "ingress-to-scheduler-metrics"),
        ("Deployment", "secondary-scheduler"),
    }


@pytest.mark.req("NO-095")
def test_where_prometheus_has_its_operator_both_containers_are_scraped_and_watched() -> None:
    found = made(plan_scheduler(observed(cluster=ClusterCapabilities(version=(1, 33), monitoring=True))))
    service = found["Service", "secondary-scheduler-metrics"]
    monitor = found["ServiceMonitor", "secondary-scheduler-metrics"]
    ports = {each["name"]: each["port"] for each in service["spec"]["ports"]}
    assert [ports[each["port"]] for each in monitor["spec"]["endpoints"]] == [8448, 10259]
    (label,) = monitor["spec"]["selector"]["matchLabels"].items()
    assert label in service["metadata"]["labels"].items()
    assert (
        service["spec"]["selector"].items() <= found["Deployment", "secondary-scheduler"]["metadata"]["labels"].items()
    )
    (rules,) = found["PrometheusRule", "polyarch-numa-scheduler"]["spec"]["groups"]
    assert 'namespace="home", deployment="secondary-scheduler"' in rules["rules"][0]["expr"]


@pytest.mark.req("NO-080")
def test_the_operator_keeps_every_kind_that_it_makes() -> None:
    kept = {each.kind for each in (*SCHEDULER_KINDS, *MONITORING)}
    assert {
        kind
        for kind, _ in made(plan_scheduler(observed(cluster=ClusterCapabilities(version=(1, 33), monitoring=True))))
    } <= kept


@pytest.mark.req("NO-080")
def test_what_the_stock_scheduler_may_do_is_bound_and_not_copied() -> None:
    found = made(plan_scheduler(observed()))
    bound = {
        each["roleRef"]["name"]: each["subjects"]
        for (kind, _), each in found.items()
        if kind.endswith("Binding") and each["roleRef"]["name"].startswith(("system:", "extension-"))
    }
    account = [{"kind": "ServiceAccount", "name": "secondary-scheduler", "namespace": "home"}]
    assert bound == {
        "system:kube-scheduler": account,
        "system:volume-scheduler": account,
        "extension-apiserver-authentication-reader": account,
    }
    lease = found["Role", "topology-aware-scheduler-leader-elect"]["rules"]
    assert any(each.get("resourceNames") == ["numa-scheduler-leader"] for each in lease)


@pytest.mark.req("NO-081")
@pytest.mark.parametrize(
    ("annotations", "requests", "limits"),
    [
        ({}, [("150m", "500Mi"), ("50m", "128Mi")], [None, None]),
        (
            {names.QOS_REQUEST: "guaranteed"},
            [("600m", "1200Mi"), ("200m", "512Mi")],
            [("600m", "1200Mi"), ("200m", "512Mi")],
        ),
        ({names.QOS_REQUEST: "yes"}, [("150m", "500Mi"), ("50m", "128Mi")], [None, None]),
    ],
    ids=["usual", "guaranteed", "any other value is as if it were not there"],
)
def test_what_the_pod_asks_for(annotations: Json, requests: list[Any], limits: list[Any]) -> None:
    """The Deployment."""
    planned = plan_scheduler(observed(annotations=annotations))
    for name, request, limit in zip(("secondary-scheduler", "numa-extender"), requests, limits, strict=True):
        found = container(planned, name)["resources"]
        assert (found["requests"]["cpu"], found["requests"]["memory"]) == request
        assert (tuple(found["limits"].values()) if "limits" in found else None) == limit


@pytest.mark.req("NO-081")
def test_the_pod_is_gated_by_both_containers_and_runs_beside_the_control_plane() -> None:
    planned = plan_scheduler(observed())
    pod = pod_of(planned)
    assert [each["name"] for each in pod["containers"]] == ["secondary-scheduler", "numa-extender"]
    assert all("readinessProbe" in each for each in pod["containers"])
    contexts = [each["securityContext"] for each in pod["containers"]]
    assert all(each.get("runAsGroup") == each.get("runAsUser") for each in contexts), "else its group is root's"
    assert pod["priorityClassName"] == "system-node-critical"
    assert {each["key"] for each in pod["tolerations"]} == set(CONTROL_PLANE_KEYS)
    assert "--config=/etc/kubernetes/config.yaml" in container(planned, "secondary-scheduler")["args"]
    assert container(planned, "numa-extender")["args"][:2] == ["run", "numa-extender"]
    dumps = next(each for each in pod["volumes"] if each["name"] == "dumps")
    assert dumps["emptyDir"] == {"medium": "Memory", "sizeLimit": "64Mi"}
    (apart,) = pod["affinity"]["podAntiAffinity"]["preferredDuringSchedulingIgnoredDuringExecution"]
    assert apart["podAffinityTerm"]["labelSelector"] == {"matchLabels": {"app": "secondary-scheduler"}}


@pytest.mark.req("NO-081")
def test_another_configuration_rolls_the_pods() -> None:
    def annotation(spec: Json) -> str:
        template = made(plan_scheduler(observed(spec)))["Deployment", "secondary-scheduler"]["spec"]["template"]
        return str(template["metadata"]["annotations"][names.CONFIG_HASH])

    assert annotation({}) == annotation({"logLevel": "Debug"})
    assert annotation({}) != annotation({"schedulerName": "other"})


def node(*, name: str = "n", control_plane: bool = False, cordoned: bool = False, version: str = "v1.33.0") -> Any:
    labels = {CONTROL_PLANE_KEYS[0]: ""} if control_plane else {}
    return SchedulableNode(
        ObjectMeta(name=name, labels=labels), NodeSpec(cordoned, None), NodeStatus(NodeInfo(version))
    )


@pytest.mark.req("NO-082")
def test_what_counts_as_a_candidate() -> None:
    tainted = SchedulableNode(ObjectMeta(), NodeSpec(None, [Taint("gpu", effect="NoSchedule")]))
    wished_away = SchedulableNode(ObjectMeta(), NodeSpec(None, [Taint("gpu", effect="PreferNoSchedule")]))
    assert NodeCounts.of([tainted, wished_away]).workers == 1
    operator = OperatorSettings(tolerations=("gpu:NoSchedule",))
    assert NodeCounts.of([tainted], tolerated(operator)).workers == 1, "as every pod of polyarch tolerates it"
    assert NodeCounts.of([tainted], tolerated(OperatorSettings(tolerations=("gpu=a",)))).workers == 0
    found = NodeCounts.of([node(control_plane=True, version="v1.34.1"), node(), node(cordoned=True), tainted])
    assert found == NodeCounts(control_plane=1, workers=1, oldest_kubelet=(1, 33))
    assert found.plus(NodeCounts(workers=2, oldest_kubelet=(1, 31))) == NodeCounts(
        control_plane=1, workers=3, oldest_kubelet=(1, 31)
    )


@pytest.mark.req("NO-082")
@pytest.mark.parametrize(
    ("wanted", "found", "platform", "replicas", "problem"),
    [
        (None, NodeCounts(control_plane=3), "kubernetes", 3, ""),
        (None, NodeCounts(control_plane=2, workers=9), "kubernetes", 1, ""),
        (None, NodeCounts(workers=3), "kubernetes", 3, ""),
        (None, NodeCounts(control_plane=3, workers=1), "hypershift", 1, ""),
        (None, NodeCounts(workers=9), "openshift", 0, "there are no control-plane nodes"),
        (None, NodeCounts(), "kubernetes", 0, "there are no schedulable worker nodes"),
        (2, NodeCounts(control_plane=2), "kubernetes", 2, ""),
        (0, NodeCounts(control_plane=2), "kubernetes", 0, ""),
        (4, NodeCounts(control_plane=3, workers=9), "kubernetes", 0, "spec.replicas is 4, and there are only 3"),
    ],
    ids=[
        "three control-plane nodes",
        "two control-plane nodes",
        "no control plane visible",
        "HyperShift counts workers",
        "OpenShift shows its control plane",
        "no node at all",
        "as many as there are",
        "none is a number",
        "more than there are",
    ],
)
def test_replicas(wanted: int | None, found: NodeCounts, platform: Any, replicas: int, problem: str) -> None:
    seats = numa_scheduler_plan.replicas(wanted, found, platform)
    assert (seats.replicas, seats.problem[: len(problem)]) == (replicas, problem)
    assert bool(seats.problem) == bool(problem)


@pytest.mark.req("NO-082")
def test_too_many_replicas_leave_the_deployment_alone() -> None:
    planned = plan_scheduler(observed({"replicas": 7}, status={"schedulerName": "topo-aware-scheduler"}))
    assert (planned.documents, planned.condition.state) == (None, "Degraded")
    assert planned.status == {"schedulerName": "topo-aware-scheduler"}


@pytest.mark.req("NO-082")
@pytest.mark.parametrize("replicas", [1, 3])
def test_every_replica_elects_and_the_only_one_too(replicas: int) -> None:
    """A Deployment starts the new pod before it ends the old one: of one replica there are two for a while, and each
    extender would promise the same cells. What elects does not change with the number of replicas, either."""
    planned = plan_scheduler(observed({"replicas": replicas}, node_counts=NodeCounts(control_plane=3)))
    assert scheduler_file(planned)["leaderElection"] == {
        "leaderElect": True,
        "resourceName": "numa-scheduler-leader",
        "resourceNamespace": "home",
        "resourceLock": "leases",
    }
    (grants,) = made(planned)["Role", "topology-aware-scheduler-leader-elect"]["rules"][-1:]
    assert grants["resources"] == ["leases"]


@pytest.mark.req("NO-083")
@pytest.mark.parametrize(
    ("spec", "said"),
    [
        ({}, ""),
        ({"cacheResyncPeriod": "0s"}, ""),
        ({"cacheResyncPeriod": "3s"}, "set without effect: cacheResyncPeriod"),
        (
            {"schedulerInformer": "Shared", "cacheResyncPeriod": "3s"},
            "set without effect: cacheResyncPeriod and schedulerInformer",
        ),
    ],
)
def test_fields_without_effect_are_accepted_and_named(spec: Json, said: str) -> None:
    planned = plan_scheduler(observed(spec, deployment=deployed(spec, available="True")))
    assert planned.condition.state == "Available"
    assert planned.condition.message == "; ".join(("scheduler topo-aware-scheduler is deployed", *filter(None, [said])))
    (condition,) = planned.extra
    assert (condition.type, condition.status) == ("DedicatedInformerActive", "True")


@pytest.mark.req("NO-013")
def test_mode_compat_is_read_as_exact_and_an_event_says_so() -> None:
    planned = plan_scheduler(observed(annotations={names.SCHEDULING_MODE: "compat"}))
    text = made(planned)["ConfigMap", "numa-extender-config"]["data"]["config.yaml"]
    assert msgspec.json.decode(text)["mode"] == "exact"
    (event,) = planned.events
    assert (event.type, event.reason) == ("Warning", "SchedulingModeRemoved")
    assert event.message.endswith("compat is removed and read as exact; remove the annotation")
    assert plan_scheduler(observed(annotations={names.SCHEDULING_MODE: "advise"})).events == ()


@pytest.mark.req("NO-013")
def test_the_event_tells_of_evictions_that_mode_compat_did_not_make() -> None:
    annotations = {names.SCHEDULING_MODE: "compat"}
    (event,) = plan_scheduler(observed({"preemptionMode": "Enabled"}, annotations=annotations)).events
    assert "preemptionMode Enabled, which had no effect in that mode, has one now" in event.message
    spec = {"preemptionMode": "Enabled", "cacheResyncPeriod": "0s"}
    (event,) = plan_scheduler(observed(spec, annotations=annotations)).events
    assert "preemptionMode" not in event.message


@pytest.mark.req("NO-084")
@pytest.mark.parametrize(
    ("wanted", "environment", "version", "expected"),
    [
        ("", {}, "v1.33.2+k3s1", "registry.k8s.io/kube-scheduler:v1.33.2"),
        ("", {"KUBE_SCHEDULER_IMAGE": "mirror/kube-scheduler:1"}, "v1.33.2", "mirror/kube-scheduler:1"),
        ("own/scheduler:x", {"KUBE_SCHEDULER_IMAGE": "mirror/s:1"}, "v1.33.2", "own/scheduler:x"),
    ],
)
def test_the_image(wanted: str, environment: Json, version: str, expected: str) -> None:
    assert numa_scheduler_plan.chosen(wanted, ImageRules.of(environment), version=version).image == expected


@pytest.mark.req("NO-084")
@pytest.mark.parametrize(
    ("wanted", "problem"),
    [
        (f"own/scheduler@{DIGEST}", ""),
        ("own/scheduler:1.33", "must be given by its digest"),
        (f"own/scheduler@{DIGEST[:-1]}", "must be given by its digest"),
        ("own/scheduler@sha256:" + "b" * 64, "is not among those of SCHEDULER_IMAGE_DIGESTS"),
    ],
    ids=["listed", "a tag", "a short digest", "another digest"],
)
def test_images_are_checked_where_that_is_asked_for(wanted: str, problem: str) -> None:
    environment = {"SCHEDULER_IMAGE_VALIDATION": "true", "SCHEDULER_IMAGE_DIGESTS": f"sha256:{'c' * 64}, {DIGEST}"}
    planned = plan_scheduler(observed({"imageSpec": wanted}, image_rules=ImageRules.of(environment)))
    if problem:
        assert (planned.condition.reason, planned.documents) == ("InvalidSchedulerImage", None)
        assert problem in planned.condition.message
    else:
        assert container(planned, "secondary-scheduler")["image"] == wanted
    assert plan_scheduler(observed({"imageSpec": wanted})).documents is not None, "off by default"


@pytest.mark.req("NO-084")
@pytest.mark.parametrize(("tag", "warns"), [("v1.32.0", False), ("v1.31.9", True), ("1.35.0-rc.1", True), ("x", False)])
def test_an_image_of_another_age_is_told_of(tag: str, warns: bool) -> None:
    spec = {"imageSpec": f"own/scheduler:{tag}"}
    ready = deployed(spec, available="True")
    message = plan_scheduler(observed(spec, deployment=ready)).condition.message
    assert ("more than one minor version away" in message) is warns


@pytest.mark.req("NO-084")
@pytest.mark.parametrize(
    ("image", "warns"),
    [
        ("registry.example/openshift4/noderesourcetopology-scheduler-rhel9:v4.18", True),
        (f"own/noderesourcetopology-scheduler@{DIGEST}", True),
        ("registry.k8s.io/scheduler-plugins/kube-scheduler:v0.30.6", False),
        ("own/kube-scheduler", False),
    ],
)
def test_the_schedulers_image_of_another_operator_is_told_of_before_and_after_it_runs(image: str, warns: bool) -> None:
    spec = {"imageSpec": image}
    for ready in (None, deployed(spec, available="True")):
        message = plan_scheduler(observed(spec, deployment=ready)).condition.message
        assert ("remove spec.imageSpec for that of the cluster's version" in message) is warns


@pytest.mark.req("NO-085", "NS-090")
@pytest.mark.parametrize(
    ("spec", "annotations", "verb"),
    [
        ({"preemptionMode": "Enabled"}, {}, {"preemptVerb": "preempt"}),
        ({"preemptionMode": "Enabled", "cacheResyncPeriod": "0s"}, {}, {}),
        ({}, {}, {}),
        ({}, {names.SCHEDULING_MODE: "advise"}, {"prioritizeVerb": "prioritize", "weight": 10}),
        ({}, {names.CANDIDATES: "4"}, {"prioritizeVerb": "prioritize", "weight": 10}),
    ],
    ids=["preemption", "preemption without reservations", "exact", "advise", "several candidates"],
)
def test_the_configuration_of_the_stock_scheduler(spec: Json, annotations: Json, verb: Json) -> None:
    """The scheduler's configuration."""
    disabled = {"multiPoint": {"disabled": [{"name": "DefaultPreemption"}]}}
    assert scheduler_file(plan_scheduler(observed(spec, annotations=annotations))) == {
        "apiVersion": "kubescheduler.config.k8s.io/v1",
        "kind": "KubeSchedulerConfiguration",
        "leaderElection": {
            "leaderElect": True,
            "resourceName": "numa-scheduler-leader",
            "resourceNamespace": "home",
            "resourceLock": "leases",
        },
        "clientConnection": {"qps": 300, "burst": 600},
        "percentageOfNodesToScore": 100,
        "profiles": [
            {
                "schedulerName": "topo-aware-scheduler",
                # Without the verb the plugin would evict by sums alone.
                **({} if "preemptVerb" in verb else {"plugins": disabled}),
            }
        ],
        "extenders": [
            {
                "urlPrefix": "http://127.0.0.1:9448/numa",
                "filterVerb": "filter",
                "nodeCacheCapable": True,
                "ignorable": False,
                "httpTimeout": "5s",
                **verb,
            }
        ],
    }


@pytest.mark.req("NS-091")
def test_a_scheduler_that_goes_on_without_its_extender_says_so() -> None:
    planned = plan_scheduler(
        observed(
            annotations={names.IGNORABLE: "true"},
            deployment=deployed(annotations={names.IGNORABLE: "true"}, available="True"),
        )
    )
    assert scheduler_file(planned)["extenders"][0]["ignorable"] is True
    assert "blind to NUMA while the extender is down" in planned.condition.message


@pytest.mark.req("NO-011")
def test_what_the_extender_is_told() -> None:
    spec = {
        "cacheResyncPeriod": "0s",
        "scoringStrategy": {"type": "LeastNUMANodes", "resources": [{"name": "cpu", "weight": 0}]},
    }
    text = made(plan_scheduler(observed(spec)))["ConfigMap", "numa-extender-config"]["data"]["config.yaml"]
    told = msgspec.json.decode(text)
    assert (told["reservations"], told["strategy"], told["weights"]) == ("off", "LeastNUMANodes", {"cpu": 1})


@pytest.mark.req("NS-122")
@pytest.mark.parametrize(
    ("spec", "annotations", "preempts", "said"),
    [
        ({}, {}, True, ""),
        ({"cacheResyncPeriod": "0s"}, {}, False, "no effect without reservations (cacheResyncPeriod 0s)"),
    ],
    ids=["exact", "no reservations"],
)
def test_preemption_that_could_not_keep_what_comes_free_is_off_and_says_so(
    spec: Json, annotations: Json, preempts: bool, said: str
) -> None:
    spec = {"preemptionMode": "Enabled", **spec}
    planned = plan_scheduler(
        observed(spec, annotations=annotations, deployment=deployed(spec, annotations=annotations, available="True"))
    )
    text = made(planned)["ConfigMap", "numa-extender-config"]["data"]["config.yaml"]
    assert msgspec.json.decode(text)["preempt"] is preempts
    assert ("pods/eviction" in extender_rights(planned)) is preempts
    assert ("preemptionMode" in planned.condition.message) is bool(said)
    assert said in planned.condition.message


def extender_rights(planned: SchedulerPlan) -> dict[str, set[str]]:
    """Verbs by resource, in the whole cluster."""
    found: dict[str, set[str]] = {}
    for each in made(planned)["ClusterRole", "topology-aware-scheduler"]["rules"]:
        for resource in each.get("resources") or each["nonResourceURLs"]:
            found.setdefault(resource, set()).update(each["verbs"])
    return found


@pytest.mark.req("NS-165")
def test_the_extender_may_evict_only_where_preemption_is_enabled() -> None:
    without, enabled = (
        extender_rights(plan_scheduler(observed({"preemptionMode": mode}))) for mode in ("Disabled", "Enabled")
    )
    assert without == {
        "noderesourcetopologies": {"get", "list", "watch"},
        "nodes": {"get", "list", "watch"},
        "pods": {"get", "list", "watch"},
        "events": {"create", "patch"},
        "tokenreviews": {"create"},
        "subjectaccessreviews": {"create"},
        "/numa/state": {"get"},
    }
    assert enabled == without | {
        "pods/eviction": {"create"},
        "pods/status": {"patch"},
        "poddisruptionbudgets": {"list", "watch"},
    }


@pytest.mark.req("NO-013")
def test_an_annotation_with_another_value_leaves_everything_as_it_is() -> None:
    planned = plan_scheduler(observed(annotations={names.CANDIDATES: "17"}))
    assert (planned.condition.state, planned.documents) == ("Degraded", None)
    assert names.CANDIDATES in planned.condition.message


def deployed(spec: Json | None = None, *, available: str, generation: int = 2, seen: int = 2, **facts: Any) -> Json:
    """The Deployment that is planned for the same object, as the API server has it."""
    wanted = made(plan_scheduler(observed(spec, **facts)))["Deployment", "secondary-scheduler"]
    conditions = [{"type": "Available", "status": available}]
    status = {"observedGeneration": seen, "availableReplicas": 1, "conditions": conditions}
    return {**wanted, "metadata": {**wanted["metadata"], "generation": generation}, "status": status}


@pytest.mark.req("NO-086")
@pytest.mark.parametrize(
    ("deployment", "ready"),
    [
        (None, False),
        (deployed(available="True"), True),
        (deployed(available="False"), False),
        (deployed(available="True", seen=1), False),
    ],
    ids=["not there", "available", "not available", "available as it was before"],
)
def test_available_only_as_it_is_now(deployment: Json | None, ready: bool) -> None:
    planned = plan_scheduler(observed(deployment=deployment))
    expected = ("Available", "AsExpected", None) if ready else ("Progressing", "DeploymentIsUpdating", 5.0)
    assert (planned.condition.state, planned.condition.reason, planned.requeue_after) == expected


@pytest.mark.req("NO-086")
@pytest.mark.parametrize(
    "changed",
    [
        {"schedulerName": "other"},
        {"imageSpec": "own/scheduler:v1.33.0"},
        {"logLevel": "Debug"},
        {"replicas": 3},
        {"cacheResyncPeriod": "0s"},
    ],
    ids=lambda changed: next(iter(changed)),
)
def test_the_pass_that_changes_the_deployment_does_not_call_the_former_one_available(changed: Json) -> None:
    facts = {"node_counts": NodeCounts(control_plane=3, oldest_kubelet=(1, 33))}
    before = deployed({"replicas": 2}, available="True", **facts)
    given = {"replicas": 2} | changed
    assert plan_scheduler(observed(given, deployment=before, **facts)).condition.state == "Progressing"
    after = deployed(given, available="True", **facts)
    assert plan_scheduler(observed(given, deployment=after, **facts)).condition.state == "Available"


@pytest.mark.req("NO-087")
def test_another_name_brings_nothing() -> None:
    planned = plan_scheduler(observed(name="mine"))
    assert (planned.condition.reason, planned.documents) == ("IncorrectNUMAResourcesSchedulerResourceName", None)


@pytest.mark.req("NO-012", "NO-094")
def test_the_status_names_what_to_look_at() -> None:
    status = plan_scheduler(observed({"schedulerName": "numa"})).status
    assert status["deployment"] == {"namespace": "home", "name": "secondary-scheduler"}
    assert (status["schedulerName"], status["cacheResyncPeriod"]) == ("numa", "5s")
    assert {each["resource"] for each in status["relatedObjects"]} == {"namespaces", "deployments"}


@pytest.mark.req("NO-081")
def test_the_pod_runs_where_both_of_its_images_do() -> None:
    cluster = ClusterCapabilities(version=(1, 33), image_architectures=("amd64", "arm64"))

    def architectures(theirs: tuple[str, ...] | None) -> list[str]:
        planned = plan_scheduler(observed(cluster=cluster, image_architectures=theirs))
        (required,) = pod_of(planned)["affinity"]["nodeAffinity"].values()
        terms = [each["matchExpressions"] for each in required["nodeSelectorTerms"]]
        (found,) = {tuple(one["values"]) for term in terms for one in term if one["key"] == "kubernetes.io/arch"}
        return list(found)

    assert architectures(None) == ["amd64", "arm64"]
    assert architectures(("arm64", "s390x")) == ["arm64"]
    planned = plan_scheduler(observed(cluster=cluster, image_architectures=("s390x",)))
    assert planned.documents is None
    assert planned.condition.reason == "InvalidSchedulerImage"
    assert "kube-scheduler:v1.33.2 is for s390x, and polyarch:1" in planned.condition.message
