"""Jobs of builds with the pod that says the most about them."""

from typing import Any

import msgspec
import pytest

from polyarch.builds.facts.build_facts import JobFacts, PodFacts
from polyarch.builds.facts.objects import JobObject, PodObject, job_facts, pod_facts

T1, T2, T3 = "2026-01-31T12:00:00Z", "2026-01-31T12:00:10Z", "2026-01-31T12:00:20Z"
START = 1769860800.0
KEY = "8" * 64
LABELS = {
    "polyarch.dev/run": "web-1",
    "polyarch.dev/architecture": "arm64",
    "polyarch.dev/role": "arch",
    "polyarch.dev/arch-key": KEY[:16],
}


def job(*, labels: Any = LABELS, annotations: Any = None, template: Any = None, **members: Any) -> JobObject:
    metadata = {
        "namespace": "team",
        "name": "web-1-arm64",
        "uid": "uid-job",
        "creationTimestamp": T1,
        "labels": labels,
        "annotations": {"polyarch.dev/arch-key": KEY} if annotations is None else annotations,
    }
    spec = {"template": template or {}}
    return msgspec.convert({"metadata": metadata, "spec": spec, **members}, JobObject)


def pod(name: str = "web-1-arm64-x", *, created: str = T1, uid: str = "uid-job", **status: Any) -> PodObject:
    metadata = {
        "namespace": "team",
        "name": name,
        "creationTimestamp": created,
        "ownerReferences": [{"kind": "Job", "name": "web-1-arm64", "uid": uid, "controller": True}],
    }
    node = {"nodeName": status.pop("node")} if "node" in status else {}
    return msgspec.convert({"metadata": metadata, "spec": node, "status": status}, PodObject)


def ended(name: str, code: int, message: str = "", at: str = T3) -> dict[str, Any]:
    return {"name": name, "state": {"terminated": {"exitCode": code, "message": message, "finishedAt": at}}}


@pytest.mark.req("BD-081")
def test_what_a_job_is_for() -> None:
    template = {
        "spec": {
            "nodeSelector": {"kubernetes.io/arch": "amd64"},
            "containers": [{"name": "push", "args": ["--repository=r/x", "--tag=web-1-arm64"]}],
        }
    }
    notes = {"polyarch.dev/arch-key": KEY, "polyarch.dev/repository": "quay.io/team/web"}
    facts = job_facts(job(annotations=notes, template=template))
    assert (facts.run, facts.architecture, facts.role, facts.key) == ("web-1", "arm64", "arch", KEY)
    assert (facts.host, facts.repository, facts.tag) == ("amd64", "quay.io/team/web", "web-1-arm64")
    assert (facts.namespace, facts.name, facts.uid, facts.created) == ("team", "web-1-arm64", "uid-job", START)


@pytest.mark.req("BD-079")
def test_a_name_that_is_too_long_for_a_label_is_read_from_the_annotation() -> None:
    long = "w" * 200
    facts = job_facts(
        job(labels={**LABELS, "polyarch.dev/run": "short-1234567890"}, annotations={"polyarch.dev/run": long})
    )
    assert facts.run == long


@pytest.mark.req("BD-324")
def test_labels_that_somebody_took_off_are_read_from_the_template() -> None:
    template = {"metadata": {"labels": LABELS, "annotations": {"polyarch.dev/arch-key": KEY}}}
    facts = job_facts(job(labels={}, annotations={}, template=template))
    assert (facts.run, facts.architecture, facts.key) == ("web-1", "arm64", KEY)


def test_a_job_of_somebody_else_is_of_no_run() -> None:
    assert job_facts(job(labels={"app": "web"}, annotations={})).run == ""


STATES: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "made and not started": ({}, {"started": None, "active": 0, "complete": None, "failure": None}),
    "running": ({"startTime": T1, "active": 1, "failed": 2}, {"started": START, "active": 1, "failed": 2}),
    "complete": (
        {"succeeded": 1, "conditions": [{"type": "Complete", "status": "True", "lastTransitionTime": T2}]},
        {"succeeded": 1, "complete": START + 10, "failure": None},
    ),
    "failed": (
        {
            "conditions": [
                {"type": "FailureTarget", "status": "True", "lastTransitionTime": T1},
                {
                    "type": "Failed",
                    "status": "True",
                    "reason": "BackoffLimitExceeded",
                    "message": "too often",
                    "lastTransitionTime": T2,
                },
            ]
        },
        {"failure": START + 10, "failure_reason": "BackoffLimitExceeded", "failure_message": "too often"},
    ),
    "a condition that is not true is none": (
        {"conditions": [{"type": "Failed", "status": "False", "reason": "x"}]},
        {"failure": None, "failure_reason": ""},
    ),
    "pods that are not counted yet": (
        {"uncountedTerminatedPods": {"succeeded": ["a"], "failed": ["b", "c"]}},
        {"uncounted": 3},
    ),
}


@pytest.mark.req("BD-195")
@pytest.mark.parametrize("case", STATES, ids=str)
def test_how_far_a_job_is(case: str) -> None:
    status, expected = STATES[case]
    facts = job_facts(job(status=status))
    assert {name: getattr(facts, name) for name in expected} == expected


def of(*pods: PodObject) -> PodFacts | None:
    found: JobFacts = job_facts(job(), pods)
    return found.pod


@pytest.mark.req("BD-150")
def test_the_pod_that_succeeded_is_asked_whatever_came_later() -> None:
    good = pod("good", phase="Succeeded", containerStatuses=[ended("push", 0, '{"v":1}')])
    later = pod("later", created=T2, phase="Failed")
    found = of(later, good)
    assert found is not None
    assert (found.name, found.message, found.exit_code) == ("good", '{"v":1}', 0)


def test_else_the_newest() -> None:
    found = of(pod("second", created=T2), pod("third", created=T3), pod("first"))
    assert found is not None
    assert found.name == "third"


@pytest.mark.req("BD-150")
def test_a_pod_of_a_former_job_of_that_name_is_not_its_own() -> None:
    assert of(pod(uid="uid-former")) is None


PODS: dict[str, tuple[PodObject, PodFacts]] = {
    "waits for a node": (
        pod(
            phase="Pending",
            conditions=[
                {
                    "type": "PodScheduled",
                    "status": "False",
                    "reason": "Unschedulable",
                    "message": "0/2 nodes are available",
                    "lastTransitionTime": T2,
                }
            ],
        ),
        PodFacts(
            name="web-1-arm64-x",
            phase="Pending",
            unscheduled_since=START + 10,
            unscheduled_message="0/2 nodes are available",
        ),
    ),
    "has an image that its node cannot pull": (
        pod(
            node="n1",
            phase="Pending",
            initContainerStatuses=[
                {"name": "mesh", "state": {"waiting": {"reason": "PodInitializing"}}},
                {"name": "build", "state": {"waiting": {"reason": "ImagePullBackOff", "message": "not found"}}},
            ],
            containerStatuses=[{"name": "push", "state": {"waiting": {"reason": "CreateContainerConfigError"}}}],
        ),
        PodFacts(
            name="web-1-arm64-x", node="n1", phase="Pending", stalled="container build: ImagePullBackOff: not found"
        ),
    ),
    "is being started": (
        pod(
            node="n1",
            phase="Pending",
            initContainerStatuses=[{"name": "build", "state": {"waiting": {"reason": "ContainerCreating"}}}],
            containerStatuses=[{"name": "push", "state": {"waiting": {"reason": "PodInitializing"}}}],
        ),
        PodFacts(name="web-1-arm64-x", node="n1", phase="Pending"),
    ),
    "runs": (
        pod(
            node="n1",
            phase="Running",
            startTime=T2,
            conditions=[{"type": "PodScheduled", "status": "True", "lastTransitionTime": T1}],
            initContainerStatuses=[ended("build", 0, at=T2)],
            containerStatuses=[{"name": "push", "state": {"running": {"startedAt": T2}}}],
        ),
        PodFacts(
            name="web-1-arm64-x",
            node="n1",
            phase="Running",
            started=START + 10,
            scheduled=START,
            ends={"build": START + 10},
        ),
    ),
    "its build failed": (
        pod(node="n1", phase="Failed", initContainerStatuses=[ended("build", 42, '{"v":1,"reason":"X"}')]),
        PodFacts(
            name="web-1-arm64-x",
            node="n1",
            phase="Failed",
            ends={"build": START + 20},
            message='{"v":1,"reason":"X"}',
            exit_code=42,
            container="build",
        ),
    ),
    "its push failed": (
        pod(
            node="n1",
            phase="Failed",
            initContainerStatuses=[ended("build", 0, "fine", T2)],
            containerStatuses=[ended("push", 44, "denied")],
        ),
        PodFacts(
            name="web-1-arm64-x",
            node="n1",
            phase="Failed",
            ends={"build": START + 10, "push": START + 20},
            message="denied",
            exit_code=44,
            container="push",
        ),
    ),
    "it was evicted": (
        pod(
            node="n1",
            phase="Failed",
            reason="Evicted",
            message="The node was low on resource: memory.",
            conditions=[{"type": "DisruptionTarget", "status": "True", "lastTransitionTime": T2}],
        ),
        PodFacts(
            name="web-1-arm64-x",
            node="n1",
            phase="Failed",
            message="The node was low on resource: memory.",
            disrupted=True,
        ),
    ),
}


@pytest.mark.req("BD-149", "BD-215")
@pytest.mark.parametrize("case", PODS, ids=str)
def test_what_a_pod_says(case: str) -> None:
    given, expected = PODS[case]
    assert pod_facts(given) == expected


@pytest.mark.req("BD-149")
@pytest.mark.parametrize("sidecar", [ended("istio-proxy", 0, "bye"), ended("agent", 0)])
def test_containers_that_others_put_into_pods_are_not_taken_for_ours(sidecar: dict[str, Any]) -> None:
    """A mesh appends its own: the last one listed is not the one that pushed."""
    inits = [ended("istio-init", 0, "ready"), ended("build", 0)]
    found = pod_facts(
        pod(phase="Succeeded", initContainerStatuses=inits, containerStatuses=[ended("push", 0, "{}"), sidecar])
    )
    assert (found.message, found.exit_code, found.container) == ("{}", 0, "")


@pytest.mark.req("BD-147")
def test_of_several_that_failed_ours_says_why() -> None:
    """The sidecar is ended by a signal because the pod has failed."""
    both = [ended("istio-proxy", 143, "terminated"), ended("push", 44, "denied")]
    found = pod_facts(pod(phase="Failed", containerStatuses=both))
    assert (found.message, found.exit_code, found.container) == ("denied", 44, "push")
    alone = pod_facts(pod(phase="Failed", containerStatuses=[both[0], ended("push", 0, "{}")]))
    assert (alone.message, alone.exit_code, alone.container) == ("terminated", 143, "istio-proxy")
