"""Which templates a plan looks at."""

from typing import Any

import msgspec
import pytest

from polyarch.objects import CronJob, DaemonSet, Node, ObjectKey, Pod, Workload
from polyarch.platforms import NodePlatform
from polyarch.taints.inventory import ClusterSnapshot, unscheduled


def node(name: str, architecture: str = "", label: str = "") -> Node:
    labels = {"kubernetes.io/arch": label} if label else {}
    said = {"nodeInfo": {"architecture": architecture}}
    return msgspec.convert({"metadata": {"name": name, "labels": labels}, "status": said}, Node)


def metadata(name: str, owner: tuple[str, str] | None = None) -> dict[str, Any]:
    owners = (
        [{"apiVersion": owner[0], "kind": owner[1], "name": "o", "uid": "u-o", "controller": True}] if owner else []
    )
    return {"name": name, "namespace": "shop", "uid": f"u-{name}", "ownerReferences": owners}


def pod(name: str, owner: tuple[str, str] | None = None, *, phase: str = "Running", **spec: Any) -> Pod:
    document = {"metadata": metadata(name, owner), "spec": spec, "status": {"phase": phase}}
    return msgspec.convert(document, Pod)


def workload(name: str, owner: tuple[str, str] | None = None, *, status: Any = None, **spec: Any) -> Workload:
    return msgspec.convert({"metadata": metadata(name, owner), "spec": spec, "status": status or {}}, Workload)


def listed(inventory: ClusterSnapshot) -> list[str]:
    return [str(each) for each in inventory.templates()]


@pytest.mark.req("TN-060")
def test_each_workload_counts_once() -> None:
    inventory = ClusterSnapshot(
        daemon_sets=(msgspec.convert({"metadata": metadata("agent")}, DaemonSet),),
        workloads={
            "Deployment": (workload("web"),),
            "StatefulSet": (workload("db", ("monitoring.example/v1", "Prometheus")),),
            "ReplicaSet": (
                workload("web-1", ("apps/v1", "Deployment")),
                workload("rollout-1", ("argoproj.io/v1alpha1", "Rollout")),
                workload("old", ("argoproj.io/v1alpha1", "Rollout"), replicas=0),
            ),
            "Job": (
                workload("once"),
                workload("nightly-1", ("batch/v1", "CronJob")),
                workload("over", status={"conditions": [{"type": "Complete", "status": "True"}]}),
            ),
        },
        cron_jobs=(msgspec.convert({"metadata": metadata("nightly")}, CronJob),),
        pods=(
            pod("web-1-x", ("apps/v1", "ReplicaSet")),
            pod("bare"),
            pod("volcano", ("batch.volcano.sh/v1", "Job")),
            pod("static", ("v1", "Node")),
            pod("done", phase="Succeeded"),
        ),
    )
    assert listed(inventory) == [
        "DaemonSet shop/agent",
        "Deployment shop/web",
        "StatefulSet shop/db",
        "Job shop/once",
        "CronJob shop/nightly",
        "ReplicaSet shop/rollout-1",
        "Pod shop/bare",
        "Pod shop/volcano",
    ]


@pytest.mark.req("TN-060")
def test_a_bare_pod_is_judged_as_before_it_was_scheduled() -> None:
    [template] = ClusterSnapshot(pods=(pod("bare", nodeName="node-1"),)).templates()
    assert template.pod.spec.node_name == ""


@pytest.mark.req("TN-062")
def test_a_daemonset_knows_the_platforms_on_which_it_has_pods() -> None:
    owner = ("apps/v1", "DaemonSet")
    made = msgspec.convert({"metadata": metadata("o")}, DaemonSet)
    inventory = ClusterSnapshot(
        nodes=(node("a", "amd64"), node("b", label="aarch64"), node("c", "s390x")),
        daemon_sets=(made,),
        pods=(
            pod("o-1", owner, nodeName="a"),
            pod("o-2", owner, nodeName="b"),
            pod("o-3", owner, nodeName="c", phase="Failed"),
            pod("o-4", owner),
        ),
    )
    assert inventory.templates()[0].hosts == {NodePlatform("linux", "amd64"), NodePlatform("linux", "arm64")}


@pytest.mark.req("TN-031")
def test_the_architectures_of_a_cluster_are_those_that_are_known() -> None:
    assert ClusterSnapshot(nodes=(node("a", "amd64"), node("b"), node("c", "quantum"))).architectures == {"amd64"}


@pytest.mark.req("TN-060")
def test_a_template_without_pull_secrets_gets_those_of_its_service_account() -> None:
    accounts = {ObjectKey("shop", "default"): ("team",), ObjectKey("shop", "robot"): ("theirs", "ours")}
    templates = [
        {"spec": {}},
        {"spec": {"serviceAccountName": "robot"}},
        {"spec": {"serviceAccountName": "robot", "imagePullSecrets": [{"name": "own"}]}},
        {"spec": {"serviceAccountName": "nobody"}},
    ]
    made = tuple(workload(f"w-{number}", template=each) for number, each in enumerate(templates))
    found = ClusterSnapshot(workloads={"Deployment": made}, accounts=accounts).templates()
    names = [[each.name for each in template.pod.spec.image_pull_secrets or ()] for template in found]
    assert names == [["team"], ["theirs", "ours"], ["own"], []]


@pytest.mark.req("TN-043")
def test_pods_that_wait_for_a_node_are_those_without_one_that_may_still_run() -> None:
    waiting = pod("waiting", phase="Pending")
    assert unscheduled([waiting, pod("bound", nodeName="a"), pod("failed", phase="Failed")]) == (waiting,)
