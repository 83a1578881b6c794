"""``install --wait`` says within a second which pod of polyarch does not run, and why."""

from typing import Any

import pytest
from fake_api import FakeApi
from manual_clock import ManualClock

from polyarch import names as shared
from polyarch.installation.operator import OPERATOR
from polyarch.installation.wait import WaitTimeout, available
from polyarch.kube.resources import DEPLOYMENTS, EVENTS, LEASES, PODS
from polyarch.numa.api.resources import SCHEDULERS
from polyarch.placement import names
from polyarch.placement.api import CPPCS

pytestmark = pytest.mark.req("IN-002")

HOME = "polyarch-system"
PULLING = 'Back-off pulling image "registry.k8s.io/kube-scheduler:v1.33.2"'
NO_NODE = "0/3 nodes are available: 3 node(s) had untolerated taint(s)."


def container(name: str = "main", **state: Any) -> dict[str, Any]:
    return {"name": name, "ready": False, "state": state}


def waiting(reason: str, message: str = "") -> dict[str, Any]:
    return container(waiting={"reason": reason, "message": message})


def pod(status: dict[str, Any], *, name: str = "pod-1", role: str = shared.NUMA_SCHEDULER, **spec: Any) -> Any:
    metadata = {"name": name, "namespace": HOME, "uid": f"uid-{name}", "labels": {names.CONTROLLER_LABEL: role}}
    return {"metadata": metadata, "spec": spec, "status": status}


def unscheduled(reason: str, message: str) -> dict[str, Any]:
    condition = {"type": "PodScheduled", "status": "False", "reason": reason, "message": message}
    return {"phase": "Pending", "conditions": [condition]}


def gated(*gates: str) -> Any:
    status = unscheduled("SchedulingGated", "Scheduling is blocked due to non-empty scheduling gates")
    return pod(status, schedulingGates=[{"name": gate} for gate in gates])


def api_with(*pods: Any, home: str = "") -> FakeApi:
    """An operator that runs and says that the NUMA scheduler is not available."""
    api = FakeApi()
    variables = [{"name": "POLYARCH_NUMA_NAMESPACE", "value": home}] if home else []
    api.put(DEPLOYMENTS, deployment(OPERATOR, {"updatedReplicas": 1, "availableReplicas": 1}, env=variables))
    lease = {"name": names.OPERATOR_LEASE, "namespace": HOME, "annotations": {names.OPERATOR_SETTLED: "operator-1"}}
    api.put(LEASES, {"metadata": lease, "spec": {"holderIdentity": "operator-1"}})
    told = {"type": "Progressing", "status": "True", "message": "secondary-scheduler is updating (0/1)"}
    metadata = {"name": "numaresourcesscheduler", "generation": 1}
    api.put(SCHEDULERS, {"metadata": metadata, "spec": {}, "status": {"conditions": [told]}})
    for each in pods:
        api.put(PODS, each)
    return api


def deployment(name: str, status: dict[str, Any], env: Any = (), **spec: Any) -> dict[str, Any]:
    template = {"spec": {"containers": [{"name": "operator", "env": list(env)}]}}
    return {
        "metadata": {"name": name, "generation": 1, "namespace": HOME},
        "spec": {"replicas": 1, "template": template, **spec},
        "status": {"observedGeneration": 1, "replicas": 1, **status},
    }


async def said_by(api: FakeApi, switched_on: Any = (SCHEDULERS,), seconds: float = 0.0) -> str:
    with pytest.raises(WaitTimeout) as error:
        await available(api, HOME, switched_on=switched_on, seconds=seconds, tell=lambda _: None, clock=ManualClock())
    return str(error.value).partition("(0/1)")[2].strip()


REASONS: dict[str, tuple[Any, str]] = {
    "an image that cannot be pulled": (
        pod({"containerStatuses": [waiting("ImagePullBackOff", PULLING)]}),
        f"(pod-1: ImagePullBackOff: {PULLING})",
    ),
    "a name that is no image": (
        pod({"containerStatuses": [waiting("InvalidImageName", 'couldn\'t parse image "A"')]}),
        '(pod-1: InvalidImageName: couldn\'t parse image "A")',
    ),
    "one container of two": (
        pod({"containerStatuses": [{"name": "a", "ready": True}, waiting("ErrImagePull", "not found")]}),
        "(pod-1: ErrImagePull: not found)",
    ),
    "an init container": (
        pod(
            {
                "initContainerStatuses": [waiting("ErrImageNeverPull", "not on the node")],
                "containerStatuses": [waiting("PodInitializing")],
            }
        ),
        "(pod-1: ErrImageNeverPull: not on the node)",
    ),
    "no node for it": (pod(unscheduled("Unschedulable", NO_NODE)), f"(pod-1: Unschedulable: {NO_NODE})"),
    "a gate of placement": (
        gated(names.GATE),
        f"(pod-1: SchedulingGated: it waits for {names.GATE}, which polyarch itself has set)",
    ),
    "a gate of taints": (
        gated(shared.TOLERATIONS_GATE),
        f"(pod-1: SchedulingGated: it waits for {shared.TOLERATIONS_GATE}, which polyarch itself has set)",
    ),
    "gates of others": (gated("a.io/x", "b.io/y"), "(pod-1: SchedulingGated: it waits for a.io/x, b.io/y)"),
    "a container that ends": (
        pod(
            {
                "containerStatuses": [
                    waiting("CrashLoopBackOff", "back-off 20s restarting failed container")
                    | {"lastState": {"terminated": {"reason": "Error", "exitCode": 3}}}
                ]
            }
        ),
        "(pod-1: CrashLoopBackOff: exit code 3; kubectl logs --previous says more)",
    ),
    "a node that refuses it": (
        pod({"phase": "Failed", "reason": "OutOfcpu", "message": "Node didn't have enough resource: cpu"}),
        "(pod-1: OutOfcpu: Node didn't have enough resource: cpu)",
    ),
    "a pod that is being deleted": (
        {**(gone := gated("a")), "metadata": {**gone["metadata"], "deletionTimestamp": "2026-01-01T00:00:00Z"}},
        "",
    ),
    "a pod that starts": (pod({"containerStatuses": [container(running={})]}), ""),
    "a pod of another role": (pod(unscheduled("Unschedulable", NO_NODE), role="another"), ""),
}


@pytest.mark.parametrize(("pod", "expected"), REASONS.values(), ids=REASONS)
async def test_the_pod_and_its_reason_are_named(pod: Any, expected: str) -> None:
    assert await said_by(api_with(pod)) == expected


async def test_each_reason_is_told_once_with_the_first_of_its_pods() -> None:
    pulls = {"containerStatuses": [waiting("ImagePullBackOff", "a")]}
    waits = unscheduled("Unschedulable", "b")
    pods = [pod(status, name=f"pod-{number}") for number, status in enumerate((pulls, pulls, waits, pulls, waits))]
    assert await said_by(api_with(*pods)) == "(pod-0: ImagePullBackOff: a; pod-2: Unschedulable: b)"


async def test_pods_in_the_namespace_of_numa_are_looked_at() -> None:
    found = pod({"containerStatuses": [waiting("ErrImagePull", "a")]})
    found["metadata"]["namespace"] = "numa"
    assert await said_by(api_with(found, home="numa")) == "(pod-1: ErrImagePull: a)"


async def test_what_a_node_says_in_events_is_told_of_a_pod_that_does_not_get_further() -> None:
    """A kubelet has one reason for all that comes before the containers."""
    preparing = pod({"containerStatuses": [waiting("ContainerCreating")]}, nodeName="worker-1")
    api = api_with(preparing)
    assert await said_by(api) == ""
    for number, (kind, reason, note, name) in enumerate(
        (
            ("Warning", "FailedScheduling", "0/3 nodes are available", "pod-1"),
            ("Warning", "FailedMount", 'configmap "registries" not found', "pod-1"),
            ("Normal", "Pulled", "the image is there", "pod-1"),
            ("Warning", "FailedMount", "of another pod", "pod-2"),
        )
    ):
        event = {
            "metadata": {"name": f"e-{number}", "namespace": HOME},
            "regarding": {"name": name, "uid": f"uid-{name}"},
            "deprecatedLastTimestamp": f"2026-01-01T00:00:0{9 - number}Z",
        }
        api.put(EVENTS, event | {"type": kind, "reason": reason, "note": note})
    assert await said_by(api) == '(pod-1: FailedMount: configmap "registries" not found)'


async def test_pods_that_are_not_even_made_are_told_of() -> None:
    failed = {"type": "ReplicaFailure", "status": "True", "message": "pods are forbidden: exceeded quota"}
    api = api_with()
    told = [{"type": "Available", "status": "True"}, {"type": "Degraded", "status": "False"}]
    api.put(CPPCS, {"metadata": {"name": "cluster"}, "status": {"conditions": told}})
    status = {"updatedReplicas": 0, "availableReplicas": 1, "conditions": [failed]}
    api.put(DEPLOYMENTS, deployment(names.WEBHOOK, status))
    said: list[str] = []
    await available(api, HOME, switched_on=(CPPCS,), seconds=0, tell=said.append, clock=ManualClock())
    assert said[0].endswith(f"{names.WEBHOOK} (0 of 1 are new: pods are forbidden: exceeded quota)")


async def test_what_the_kubelet_says_by_turns_is_told_once() -> None:
    """Between two tries it says that it waits, and after each why it failed."""
    states = [waiting("ErrImagePull", "not found"), waiting("ImagePullBackOff", PULLING)]
    api, said, clock = api_with(), list[str](), ManualClock()

    class Turns:
        def monotonic(self) -> float:
            return clock.monotonic()

        async def sleep(self, seconds: float) -> None:
            clock.advance(seconds)
            api.put(PODS, pod({"containerStatuses": [states[int(clock.monotonic()) % 2]]}))

    with pytest.raises(WaitTimeout):
        await available(
            api,
            HOME,
            switched_on=(SCHEDULERS,),
            seconds=20,
            tell=said.append,
            clock=Turns(),  # type: ignore[arg-type]
        )
    assert len(said) == 3, "nothing yet, and each of the two"
