"""What other controllers make of pods behind a gate: each row of docs/guide/gates.md, on Kubernetes' own controllers.

The gate is placement's. Nobody in this sandbox lifts it but the test, so a moment lasts as long as the test needs.
"""

import asyncio
import json
import subprocess
from collections.abc import Callable
from typing import Any

import pytest
from placement_cluster import until

from polyarch.kube.client import Client
from polyarch.kube.errors import Forbidden, NotFound, TooManyRequests
from polyarch.kube.patches import JsonPatch, MergePatch, remove, test
from polyarch.kube.resources import (
    CRDS,
    CRONJOBS,
    DAEMONSETS,
    DEPLOYMENTS,
    JOBS,
    POD_DISRUPTION_BUDGETS,
    PODS,
    REPLICASETS,
    STATEFULSETS,
    Resource,
)
from polyarch.placement.names import GATE
from polyarch.sandbox.cluster import Sandbox

pytestmark = pytest.mark.req("PL-120")

Json = dict[str, Any]
QUOTAS = Resource("", "v1", "resourcequotas", "ResourceQuota")
AUTOSCALERS = Resource("autoscaling", "v2", "horizontalpodautoscalers", "HorizontalPodAutoscaler")
METRICS = "pods.metrics.k8s.io"
POD_METRICS = Resource("metrics.k8s.io", "v1beta1", "pods", "PodMetrics")
GATED = {"schedulingGates": [{"name": GATE}]}
IMAGE = "quay.io/gates/app:1"


@pytest.fixture
async def gates(sandbox: Sandbox, client: Client, namespace: str) -> "Gates":
    await sandbox.registry.seed({IMAGE: ["linux/amd64", "linux/arm64", "linux/ppc64le", "linux/s390x"]})
    return Gates(sandbox, client, namespace)


class Gates:
    """A namespace, and what a user does in it."""

    def __init__(self, sandbox: Sandbox, client: Client, namespace: str) -> None:
        self.sandbox = sandbox
        self.client = client
        self.namespace = namespace

    async def create(self, resource: Resource, name: str, spec: Json, **more: Any) -> None:
        document = {
            "apiVersion": resource.api_version,
            "kind": resource.kind,
            "metadata": {"name": name, **more.pop("metadata", {})},
            **({"spec": spec} if spec else {}),
            **more,
        }
        await self.client.create(resource, document, namespace=self.namespace)

    async def workload(self, resource: Resource, name: str, *, gated: bool = True, **spec: Any) -> None:
        """A Deployment, StatefulSet or DaemonSet."""
        labels = {"app": name}
        await self.create(
            resource, name, {"selector": {"matchLabels": labels}, "template": template(labels, gated=gated), **spec}
        )

    async def get(self, resource: Resource, name: str) -> Json:
        found: Json = await self.client.get(resource, name, namespace=self.namespace)
        return found

    async def pods(self, app: str = "") -> list[Json]:
        found = (await self.client.list(PODS, namespace=self.namespace)).items
        return [each for each in found if not app or each["metadata"]["labels"].get("app") == app]

    async def gated(self, number: int) -> list[Json]:
        """Waits for so many pods that the scheduler has seen behind their gate."""
        found: list[Json] = []

        async def are_there() -> bool:
            behind = [each for each in await self.pods() if each["spec"].get("schedulingGates")]
            found[:] = [each for each in behind if scheduled(each).get("reason") == "SchedulingGated"]
            return len(found) == number

        await until(are_there, seconds=60)
        return found

    async def release(self, pod: Json) -> None:
        """As polyarch does."""
        place = "/spec/schedulingGates"
        patch = JsonPatch((test(f"{place}/0/name", GATE), remove(f"{place}/0")))
        await self.client.patch(PODS, pod["metadata"]["name"], patch, namespace=self.namespace)

    async def condition(self, resource: Resource, name: str, kind: str) -> Json:
        conditions = (await self.get(resource, name)).get("status", {}).get("conditions") or ()
        return next((each for each in conditions if each["type"] == kind), {})

    async def becomes(self, resource: Resource, name: str, kind: str, status: str, reason: str = "") -> None:
        async def is_so() -> bool:
            found = await self.condition(resource, name, kind)
            return found.get("status") == status and reason in ("", found.get("reason"))

        await until(is_so, seconds=60)

    def kubectl(self, program: str, *arguments: str) -> subprocess.CompletedProcess[str]:
        command = [program, f"--kubeconfig={self.sandbox.kubeconfig}", "-n", self.namespace, *arguments]
        return subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)


def template(labels: Json, *, gated: bool = True, **spec: Any) -> Json:
    container = {"name": "app", "image": IMAGE, "resources": {"requests": {"cpu": "10m", "memory": "16Mi"}}}
    held = GATED if gated else {}
    return {
        "metadata": {"labels": labels},
        "spec": {"containers": [container], "terminationGracePeriodSeconds": 0, **held, **spec},
    }


def job(*, gated: bool = True, pod: Json | None = None, **spec: Any) -> Json:
    made = template({"app": "job"}, gated=gated, restartPolicy="Never", **(pod or {}))
    made["metadata"]["annotations"] = {"polyarch.test/ends-after": "1s"}
    return {"backoffLimit": 0, "template": made, **spec}


def scheduled(pod: Json) -> Json:
    conditions = pod.get("status", {}).get("conditions") or ()
    return next((each for each in conditions if each["type"] == "PodScheduled"), {})


# -- time --------------------------------------------------------------------------------------------------------------


async def test_a_job_is_ended_by_its_deadline_while_its_pod_is_held(gates: Gates) -> None:
    """The Job counts from its own start, so what the gate takes is missing to the pod."""
    await gates.create(JOBS, "limited", job(activeDeadlineSeconds=6))
    await gates.gated(1)
    await gates.becomes(JOBS, "limited", "Failed", "True", "DeadlineExceeded")

    async def deleted() -> bool:
        return not await gates.pods("job")

    await until(deleted)


async def test_the_deadline_of_a_pod_itself_begins_on_its_node(gates: Gates) -> None:
    await gates.create(JOBS, "unlimited", job(pod={"activeDeadlineSeconds": 3}))
    [pod] = await gates.gated(1)
    await asyncio.sleep(6)
    assert not (await gates.get(JOBS, "unlimited"))["status"].get("failed")
    found = await gates.get(PODS, pod["metadata"]["name"])
    assert found["status"]["phase"] == "Pending"
    assert "startTime" not in found["status"]


async def test_a_rollout_is_called_stuck_while_its_pods_are_held_and_is_well_when_they_run(
    gates: Gates, peer: Callable[[str], str]
) -> None:
    """Nothing is undone: the condition is for people and tools, and goes with the gate."""
    await gates.workload(DEPLOYMENTS, "web", progressDeadlineSeconds=5, replicas=1)
    [pod] = await gates.gated(1)
    await gates.becomes(DEPLOYMENTS, "web", "Progressing", "False", "ProgressDeadlineExceeded")
    said = await asyncio.to_thread(gates.kubectl, peer("kubectl"), "rollout", "status", "deployment/web")
    assert said.returncode == 1
    assert "exceeded its progress deadline" in said.stderr
    await gates.release(pod)
    await gates.becomes(DEPLOYMENTS, "web", "Progressing", "True", "NewReplicaSetAvailable")
    said = await asyncio.to_thread(gates.kubectl, peer("kubectl"), "rollout", "status", "deployment/web")
    assert said.returncode == 0


async def test_the_pods_of_the_former_template_serve_until_the_new_ones_are_released(gates: Gates) -> None:
    await gates.workload(DEPLOYMENTS, "web", gated=False, replicas=2)
    await gates.becomes(DEPLOYMENTS, "web", "Available", "True")
    held = MergePatch({"spec": {"template": {"spec": GATED}}})
    await gates.client.patch(DEPLOYMENTS, "web", held, namespace=gates.namespace)
    await gates.gated(1)
    await asyncio.sleep(2)
    status = (await gates.get(DEPLOYMENTS, "web"))["status"]
    assert status["availableReplicas"] == 2
    assert status["updatedReplicas"] == 1


async def test_waiting_for_a_pod_takes_the_gates_time_too(gates: Gates, peer: Callable[[str], str]) -> None:
    await gates.create(PODS, "held", template({})["spec"])
    [pod] = await gates.gated(1)
    wait = ("wait", "pod/held", "--for=condition=Ready")
    said = await asyncio.to_thread(gates.kubectl, peer("kubectl"), *wait, "--timeout=2s")
    assert said.returncode == 1
    assert "timed out" in said.stderr
    await gates.release(pod)
    said = await asyncio.to_thread(gates.kubectl, peer("kubectl"), *wait, "--timeout=60s")
    assert said.returncode == 0


# -- order -------------------------------------------------------------------------------------------------------------


async def test_the_second_pod_of_a_stateful_set_waits_for_the_first_gate(gates: Gates) -> None:
    await gates.workload(STATEFULSETS, "ordered", replicas=2, serviceName="ordered")
    [first] = await gates.gated(1)
    assert first["metadata"]["name"] == "ordered-0"
    await asyncio.sleep(2)
    assert len(await gates.pods("ordered")) == 1
    await gates.release(first)
    [second] = await gates.gated(1)
    assert second["metadata"]["name"] == "ordered-1"


async def test_a_daemon_set_replaces_no_second_pod_while_the_new_one_is_held(gates: Gates) -> None:
    await gates.workload(DAEMONSETS, "agent", gated=False)

    async def is_everywhere() -> bool:
        status = (await gates.get(DAEMONSETS, "agent")).get("status", {})
        return status.get("numberAvailable", 0) == status.get("desiredNumberScheduled", -1) > 1

    await until(is_everywhere, seconds=60)
    former = {each["metadata"]["name"] for each in await gates.pods("agent")}
    held = MergePatch({"spec": {"template": {"spec": GATED}}})
    await gates.client.patch(DAEMONSETS, "agent", held, namespace=gates.namespace)
    await gates.gated(1)
    await asyncio.sleep(2)
    left = {each["metadata"]["name"] for each in await gates.pods("agent")} & former
    assert len(left) == len(former) - 1
    assert (await gates.get(DAEMONSETS, "agent"))["status"]["updatedNumberScheduled"] <= 1


async def test_a_cron_job_that_forbids_overlap_skips_its_runs_while_one_is_held(gates: Gates) -> None:
    spec = {"schedule": "* * * * *", "concurrencyPolicy": "Forbid", "jobTemplate": {"spec": job()}}
    await gates.create(CRONJOBS, "every-minute", spec)
    await gates.gated(1)
    active = (await gates.get(CRONJOBS, "every-minute"))["status"]["active"]
    assert len(active) == 1
    await asyncio.sleep(65)
    assert (await gates.get(CRONJOBS, "every-minute"))["status"]["active"] == active


# -- counts ------------------------------------------------------------------------------------------------------------


async def test_a_held_pod_uses_up_its_quota(gates: Gates) -> None:
    await gates.create(QUOTAS, "quota", {"hard": {"pods": "1", "requests.cpu": "1"}})
    await gates.create(PODS, "held", template({})["spec"])
    await gates.gated(1)

    async def is_counted() -> bool:
        return (await gates.get(QUOTAS, "quota")).get("status", {}).get("used", {}).get("pods") == "1"

    await until(is_counted)
    assert (await gates.get(QUOTAS, "quota"))["status"]["used"]["requests.cpu"] == "10m"
    with pytest.raises(Forbidden, match="exceeded quota"):
        await gates.create(PODS, "second", template({})["spec"])


async def test_a_held_pod_counts_as_missing_in_a_budget_and_may_itself_be_evicted(gates: Gates) -> None:
    await gates.workload(DEPLOYMENTS, "web", gated=False, replicas=1)
    await gates.becomes(DEPLOYMENTS, "web", "Available", "True")
    [running] = await gates.pods("web")
    await gates.create(PODS, "held", template({})["spec"], metadata={"labels": {"app": "web"}})
    await gates.gated(1)
    selector = {"matchLabels": {"app": "web"}}
    await gates.create(POD_DISRUPTION_BUDGETS, "web", {"minAvailable": 1, "selector": selector})

    async def is_counted() -> bool:
        status = (await gates.get(POD_DISRUPTION_BUDGETS, "web")).get("status", {})
        return status.get("currentHealthy") == 1 and status.get("disruptionsAllowed") == 0

    await until(is_counted)
    with pytest.raises(TooManyRequests):
        await gates.client.evict(gates.namespace, running["metadata"]["name"])
    await gates.client.evict(gates.namespace, "held")

    async def gone() -> bool:
        try:
            await gates.get(PODS, "held")
        except NotFound:
            return True
        return False

    await until(gone)


async def test_an_autoscaler_counts_held_pods_as_idle_ones(gates: Gates) -> None:
    """One pod that uses four times its target and one that is held become four: eight without the gate."""
    await metrics_are_served(gates.client)
    try:
        await scales_up_to_four(gates)
    finally:  # others share the cluster
        await gates.client.delete(CRDS, METRICS)


async def scales_up_to_four(gates: Gates) -> None:
    await gates.workload(REPLICASETS, "web", gated=False, replicas=1)

    async def is_ready() -> bool:
        return (await gates.get(REPLICASETS, "web")).get("status", {}).get("readyReplicas") == 1

    await until(is_ready, seconds=60)
    [running] = await gates.pods("web")
    held = MergePatch({"spec": {"replicas": 2, "template": {"spec": GATED}}})
    await gates.client.patch(REPLICASETS, "web", held, namespace=gates.namespace)
    await gates.gated(1)
    usage = [{"name": "app", "usage": {"cpu": "20m", "memory": "1Mi"}}]
    timed = {"timestamp": "2036-01-01T00:00:00Z", "window": "30s", "containers": usage}
    await gates.create(POD_METRICS, running["metadata"]["name"], {}, metadata={"labels": {"app": "web"}}, **timed)
    target = {
        "type": "Resource",
        "resource": {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 50}},
    }
    scaled = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web"}
    await gates.create(
        AUTOSCALERS, "web", {"scaleTargetRef": scaled, "minReplicas": 1, "maxReplicas": 20, "metrics": [target]}
    )
    await gates.becomes(AUTOSCALERS, "web", "ScalingActive", "True")

    async def has_decided() -> bool:
        return bool((await gates.get(AUTOSCALERS, "web"))["status"].get("desiredReplicas"))

    await until(has_decided, seconds=60)
    status = (await gates.get(AUTOSCALERS, "web"))["status"]
    assert status["desiredReplicas"] == 4, status


async def metrics_are_served(client: Client) -> None:
    """The kind that a metrics server would serve, as objects that the test writes."""
    schema = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    version = {"name": "v1beta1", "served": True, "storage": True, "schema": {"openAPIV3Schema": schema}}
    names = {"plural": "pods", "singular": "pod", "kind": "PodMetrics", "listKind": "PodMetricsList"}
    approved = {"api-approved.kubernetes.io": "unapproved, of a test"}
    definition = {
        "apiVersion": CRDS.api_version,
        "kind": CRDS.kind,
        "metadata": {"name": METRICS, "annotations": approved},
        "spec": {"group": "metrics.k8s.io", "scope": "Namespaced", "names": names, "versions": [version]},
    }
    await client.apply(CRDS, definition)

    async def is_served() -> bool:
        try:
            await client.list(POD_METRICS, namespace="default")
        except NotFound:
            return False
        return True

    await until(is_served)


# -- autoscalers of nodes, and Argo CD ---------------------------------------------------------------------------------


async def test_no_node_is_made_for_a_held_pod_and_one_is_as_soon_as_it_fits_nowhere(
    gates: Gates, peer: Callable[[str], str]
) -> None:
    """Karpenter says so itself; the cluster autoscaler looks for the same reason, ``Unschedulable``."""
    held = template({}, nodeSelector={"polyarch.test/nowhere": "true"})
    await gates.create(PODS, "held", held["spec"])
    [pod] = await gates.gated(1)
    assert scheduled(pod) | {"status": "False", "reason": "SchedulingGated"} == scheduled(pod)
    assert not makes_a_node(peer("karpenter-pools"), pod)
    await gates.release(pod)

    async def is_unschedulable() -> bool:
        return scheduled(await gates.get(PODS, "held")).get("reason") == "Unschedulable"

    await until(is_unschedulable, seconds=60)
    assert makes_a_node(peer("karpenter-pools"), await gates.get(PODS, "held"))


def makes_a_node(program: str, pod: Json) -> bool:
    question = json.dumps({"pod": pod})
    answered = subprocess.run([program], input=question, capture_output=True, text=True, timeout=60, check=False)
    assert answered.returncode == 0, answered.stderr
    return bool(json.loads(answered.stdout)["provisionable"])
