"""Pods belong to the topmost controller that exists, and weigh what they request."""

from typing import Any

import msgspec
import pytest

from polyarch.placement.names import GATE
from polyarch.reports.facts import (
    CronJobObject,
    PodObject,
    PodSpecObject,
    Requests,
    WorkloadFact,
    WorkloadObject,
    requests_of,
)
from polyarch.reports.workloads import of_cron_job, of_workload, workloads_of

APPS, BATCH = "apps/v1", "batch/v1"
Json = dict[str, Any]


def owner(kind: str, name: str, *, group: str = APPS) -> Json:
    return {"apiVersion": group, "kind": kind, "name": name, "uid": f"uid-{kind}-{name}", "controller": True}


def metadata(kind: str, name: str, *owners: Json) -> Json:
    return {"name": name, "namespace": "shop", "uid": f"uid-{kind}-{name}", "ownerReferences": list(owners)}


def made(kind: str, name: str, *owners: Json, image: str = "app:1", **spec: Any) -> tuple[str, WorkloadObject]:
    template = {"spec": {"containers": [{"name": "main", "image": image}]}}
    content = {"metadata": metadata(kind, name, *owners), "spec": {"template": template, **spec}}
    return kind, msgspec.convert(content, WorkloadObject)


def pod(name: str, *owners: Json, **members: Any) -> PodObject:
    content = {
        "metadata": metadata("Pod", name, *owners),
        "spec": {"containers": [{"name": "main", "image": "app:1"}]},
        "status": {"phase": "Running"},
        **members,
    }
    return msgspec.convert(content, PodObject)


def found(*objects: tuple[str, WorkloadObject], pods: tuple[PodObject, ...] = ()) -> dict[str, WorkloadFact]:
    facts = workloads_of([of_workload(kind, each) for kind, each in objects], pods)
    return {f"{each.kind}/{each.name}": each for each in facts}


@pytest.mark.req("RP-001")
def test_a_deployment_counts_and_not_its_replica_sets() -> None:
    facts = found(
        made("Deployment", "web", replicas=3),
        made("ReplicaSet", "web-2", owner("Deployment", "web"), replicas=3),
        made("ReplicaSet", "web-1", owner("Deployment", "web"), replicas=0),
        pods=(pod("web-2-a", owner("ReplicaSet", "web-2")), pod("web-1-b", owner("ReplicaSet", "web-1"))),
    )
    assert list(facts) == ["Deployment/web"]
    assert facts["Deployment/web"].replicas == 3
    assert [each.name for each in facts["Deployment/web"].pods] == ["web-1-b", "web-2-a"]


@pytest.mark.req("RP-001")
def test_a_cron_job_counts_and_not_its_jobs() -> None:
    job = msgspec.convert(
        {
            "metadata": metadata("CronJob", "night"),
            "spec": {"jobTemplate": {"spec": {"parallelism": 4, "template": {"spec": {"containers": []}}}}},
        },
        CronJobObject,
    )
    _, run = made("Job", "night-1", owner("CronJob", "night", group=BATCH))
    facts = workloads_of([of_cron_job(job), of_workload("Job", run)], [pod("n", owner("Job", "night-1", group=BATCH))])
    ((kind, name, replicas, pods),) = [(each.kind, each.name, each.replicas, len(each.pods)) for each in facts]
    assert (kind, name, replicas, pods) == ("CronJob", "night", 4, 1)


@pytest.mark.req("RP-001")
def test_an_owner_of_another_kind_counts_by_its_name_with_the_newest_template() -> None:
    rollout = owner("Rollout", "canary", group="argoproj.io/v1alpha1")
    facts = found(
        made("ReplicaSet", "canary-1", rollout, image="app:1", replicas=4),
        made("ReplicaSet", "canary-2", rollout, image="app:2", replicas=1),
        pods=(pod("canary-1-a", owner("ReplicaSet", "canary-1")),),
    )
    assert list(facts) == ["Rollout/canary"]
    assert facts["Rollout/canary"].replicas == 5
    assert facts["Rollout/canary"].path == "spec.template.spec of its ReplicaSet canary-2"
    alone = found(pods=(pod("x-1", owner("Game", "chess", group="example.com/v1")),))
    assert alone["Game/chess"].replicas == 1


@pytest.mark.req("RP-050")
def test_an_owner_that_is_gone_leaves_the_last_one_that_exists() -> None:
    facts = found(
        made("ReplicaSet", "lost-1", owner("Deployment", "lost"), replicas=2),
        pods=(pod("lost-1-a", owner("ReplicaSet", "lost-1")), pod("orphan", owner("ReplicaSet", "gone"))),
    )
    assert sorted(facts) == ["Pod/orphan", "ReplicaSet/lost-1"]


@pytest.mark.req("RP-050")
def test_owners_that_own_each_other_end_somewhere_and_count_once() -> None:
    facts = found(
        made("Deployment", "a", owner("StatefulSet", "b")),
        made("StatefulSet", "b", owner("Deployment", "a")),
        pods=(pod("p", owner("Deployment", "a")),),
    )
    assert sum(len(each.pods) for each in facts.values()) == 1
    assert len(facts) == 1


@pytest.mark.req("RP-001")
def test_what_will_make_no_pod_again_is_no_workload() -> None:
    _, done = made("Job", "done")
    done = msgspec.structs.replace(
        done, status=msgspec.convert({"conditions": [{"type": "Complete", "status": "True"}]}, type(done.status))
    )
    over = pod("over", status={"phase": "Succeeded"})
    assert workloads_of([of_workload("Job", done)], [over]) == ()


@pytest.mark.req("RP-010")
@pytest.mark.parametrize(
    ("kind", "spec", "replicas"),
    [
        ("Deployment", {}, 1),
        ("Deployment", {"replicas": 0}, 0),
        ("Job", {"parallelism": 3}, 3),
        ("Job", {"parallelism": 3, "suspend": True}, 0),
        ("StatefulSet", {"replicas": -4}, 0),
    ],
)
def test_the_desired_replicas_count(kind: str, spec: Json, replicas: int) -> None:
    assert found(made(kind, "w", **spec))[f"{kind}/w"].replicas == replicas


def spec_of(content: Json) -> PodSpecObject:
    return msgspec.convert(content, PodSpecObject)


def asks(cpu: str, **more: Any) -> Json:
    return {"name": "c", "resources": {"requests": {"cpu": cpu}}, **more}


@pytest.mark.req("RP-010")
@pytest.mark.parametrize(
    ("spec", "cpu"),
    [
        ({"containers": [asks("500m"), asks("1")]}, 1500),
        ({"containers": [asks("500m")], "initContainers": [asks("2")]}, 2000),
        ({"containers": [asks("500m")], "initContainers": [asks("1", restartPolicy="Always")]}, 1500),
        ({"containers": [asks("1")], "initContainers": [asks("1", restartPolicy="Always"), asks("3")]}, 4000),
        ({"containers": [asks("1")], "overhead": {"cpu": "250m"}}, 1250),
        ({"containers": [{"name": "c", "resources": {"limits": {"cpu": "2"}}}]}, 2000),
        ({"containers": [asks("1"), asks("1")], "resources": {"requests": {"cpu": "3"}}}, 3000),
        ({"containers": [asks("1"), asks("1")], "resources": {}}, 2000),
        ({"containers": [asks("1")], "resources": {"limits": {"cpu": "4"}}}, 1000),
        ({"containers": [asks("0")], "resources": {"limits": {"cpu": "4"}}}, 0),
        ({"containers": [{"name": "c"}], "resources": {"limits": {"cpu": "4"}}}, 4000),
        ({"containers": [asks("1"), asks("0")]}, 1000),
    ],
)
def test_requests_are_those_that_the_scheduler_counts(spec: Json, cpu: int) -> None:
    assert requests_of(spec_of(spec)) == (Requests(cpu, 0), ())


@pytest.mark.req("RP-050")
@pytest.mark.parametrize("quantity", ["many", "1x", "-1", ""])
def test_a_quantity_that_makes_no_sense_weighs_nothing_and_is_named(quantity: str) -> None:
    requests, problems = requests_of(spec_of({"containers": [asks("1"), asks(quantity)]}))
    assert requests == Requests()
    assert "container c: cpu" in problems[0]


@pytest.mark.req("RP-010")
@pytest.mark.parametrize(
    ("phase", "state", "waits_for"),
    [
        ("Running", {"running": {}}, ""),
        ("Pending", {"waiting": {"reason": "ImagePullBackOff", "message": "of anything"}}, "ImagePullBackOff"),
        ("Running", {"waiting": {"reason": "CrashLoopBackOff"}}, "CrashLoopBackOff"),
        ("Pending", {"waiting": {}}, "ContainerWaiting"),
        ("Pending", None, "Pending"),
        ("Running", None, ""),
    ],
)
def test_a_pod_on_a_node_runs_or_says_why_it_does_not(phase: str, state: Json | None, waits_for: str) -> None:
    status = {"phase": phase, "containerStatuses": [{"name": "main", "state": state}]}
    (fact,) = found(
        pods=(pod("p", spec={"containers": [{"image": "app:1"}], "nodeName": "n1"}, status=status),)
    ).values()
    assert fact.pods[0].waits_for == waits_for


@pytest.mark.req("RP-010")
def test_a_pod_without_a_node_waits_for_nothing_but_that() -> None:
    (fact,) = found(pods=(pod("p", status={"phase": "Pending"}),)).values()
    assert (fact.pods[0].node, fact.pods[0].waits_for) == ("", "")


@pytest.mark.req("RP-015")
@pytest.mark.parametrize(("gate", "is_gated"), [(GATE, True), ("example.com/later", False)])
def test_a_pod_that_another_gate_holds_is_not_held_by_placement(gate: str, *, is_gated: bool) -> None:
    (fact,) = found(
        pods=(pod("p", spec={"containers": [{"image": "app:1"}], "schedulingGates": [{"name": gate}]}),)
    ).values()
    assert fact.pods[0].is_gated is is_gated


@pytest.mark.req("RP-010")
def test_an_image_volume_is_an_image_of_the_pod() -> None:
    volume = {"name": "data", "image": {"reference": "data:1"}}
    spec = {"containers": [{"image": "app:1"}], "volumes": [volume, {"name": "scratch", "emptyDir": {}}]}
    (fact,) = found(pods=(pod("p", spec=spec),)).values()
    assert [each.image.reference for each in fact.template.spec.volumes or () if each.image] == ["data:1"]
