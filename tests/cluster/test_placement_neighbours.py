"""Pods that others change as well: Kueue, Volcano, Istio, Knative, the Vertical Pod Autoscaler, Argo, KubeVirt.

Their webhooks are scripted to do what theirs do, before ours and after it, on a real API server."""

import base64
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest
from placement_cluster import PlacementCluster, architectures, decision, is_gated, pod, until

from polyarch.kube.admission import AdmissionRequest, AdmissionResponse, Route, Webhooks
from polyarch.kube.certificates import FileCertificates
from polyarch.kube.patches import JsonPatch, Operation, add, remove, replace
from polyarch.kube.resources import MUTATING_WEBHOOKS, PODS
from polyarch.kube.server import HttpServer
from polyarch.objects import Pod
from polyarch.placement import names
from polyarch.sandbox.cluster import Sandbox

pytestmark = pytest.mark.req("PL-114")

APP, SIDECAR = "quay.io/neighbours/app:1", "quay.io/neighbours/proxy:1"
IMAGES = {APP: ["linux/amd64", "linux/arm64"], SIDECAR: ["linux/amd64", "linux/s390x"]}
KUEUE, VOLCANO = "kueue.x-k8s.io/admission", "scheduling.volcano.sh/queue-allocation-gate"
Json = dict[str, Any]
Change = Callable[[Pod], tuple[Operation, ...]]


def gate(name: str) -> Change:
    def change(seen: Pod) -> tuple[Operation, ...]:
        gates = [each.name for each in seen.spec.scheduling_gates or ()]
        if name in gates:
            return ()
        return (
            add("/spec/schedulingGates/-", {"name": name}) if gates else add("/spec/schedulingGates", [{"name": name}]),
        )

    return change


def sidecar(seen: Pod) -> tuple[Operation, ...]:
    """Istio's and Knative's: a container, once."""
    held = seen.spec.containers or []
    if any(each.name == "proxy" for each in held):
        return ()
    return (add("/spec/containers/-", {"name": "proxy", "image": SIDECAR, "imagePullPolicy": "IfNotPresent"}),)


def resources(seen: Pod) -> tuple[Operation, ...]:
    """The Vertical Pod Autoscaler's: other requests, and an annotation that says so."""
    requests = {"requests": {"cpu": "7m", "memory": "9Mi"}}
    found: list[Operation] = [
        replace(f"/spec/containers/{at}/resources", requests) for at, _ in enumerate(seen.spec.containers or ())
    ]
    if "vpaUpdates" not in (seen.metadata.annotations or {}):
        told = {"vpaUpdates": "Pod resources updated"}
        has = seen.metadata.annotations
        found.append(
            add("/metadata/annotations/vpaUpdates", told["vpaUpdates"]) if has else add("/metadata/annotations", told)
        )
    return tuple(found)


def scheduler(seen: Pod) -> tuple[Operation, ...]:
    """Volcano's: its own scheduler."""
    return (add("/spec/schedulerName", "volcano"), *gate(VOLCANO)(seen))


@pytest.fixture
async def cluster(placed_sandbox: Sandbox) -> AsyncIterator[PlacementCluster]:
    async with placed_sandbox.client() as client:
        cluster = PlacementCluster(placed_sandbox, client)
        await cluster.configure()
        await cluster.seed(IMAGES)
        yield cluster


@asynccontextmanager
async def neighbour(cluster: PlacementCluster, name: str, namespace: str, change: Change) -> AsyncIterator[None]:
    """A mutating webhook for the pods of one namespace, called in the order of the names of configurations, and again
    after others have changed the pod."""
    certificates = FileCertificates(cluster.sandbox.layout.pki.webhook_folder)
    await certificates.load()
    called: list[str] = []

    async def handle(request: AdmissionRequest[Pod]) -> AdmissionResponse:
        called.append(request.name)
        return AdmissionResponse(patch=change(request.object))

    route: Route[Pod] = Route(path="/change", name=name, type=Pod, handler=handle, on_error="deny")
    server = HttpServer(Webhooks([route]).serve, tls=certificates.context)
    await server.start()
    authority = base64.b64encode(cluster.sandbox.ca.read_bytes()).decode()
    webhook = {
        "name": "neighbour.example.com",
        "admissionReviewVersions": ["v1"],
        "sideEffects": "None",
        "reinvocationPolicy": "IfNeeded",
        "clientConfig": {"url": f"https://127.0.0.1:{server.port}/change", "caBundle": authority},
        "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": namespace}},
        "rules": [{"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["pods"]}],
    }
    configuration = {
        "apiVersion": MUTATING_WEBHOOKS.api_version,
        "kind": MUTATING_WEBHOOKS.kind,
        "metadata": {"name": f"{name}-{namespace}"},
        "webhooks": [webhook],
    }
    await cluster.client.create(MUTATING_WEBHOOKS, configuration)

    async def asked() -> bool:
        await cluster.create(pod(APP, name="probe"), namespace, dry_run=True)
        return bool(called)

    try:
        await until(asked)
        yield
    finally:
        await cluster.client.delete(MUTATING_WEBHOOKS, f"{name}-{namespace}")
        await server.stop()


def expressions(document: Json) -> list[str]:
    required = document["spec"]["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
    return [each["key"] for term in required["nodeSelectorTerms"] for each in term.get("matchExpressions") or ()]


def gates(document: Json) -> list[str]:
    return [each["name"] for each in document["spec"].get("schedulingGates") or ()]


async def known(cluster: PlacementCluster, namespace: str) -> None:
    """The webhook knows both images afterwards."""

    async def inline() -> bool:
        return not is_gated(await cluster.create(pod(APP, SIDECAR, name="warm"), namespace, dry_run=True))

    await until(inline)


@pytest.mark.parametrize("order", ["aa", "zz"], ids=["before ours", "after ours"])
@pytest.mark.parametrize(
    ("change", "wanted", "kept"),
    [
        pytest.param(gate(KUEUE), ["amd64", "arm64"], [KUEUE], id="Kueue"),
        pytest.param(scheduler, ["amd64", "arm64"], [VOLCANO], id="Volcano"),
        pytest.param(sidecar, ["amd64"], [], id="a sidecar of Istio or Knative"),
        pytest.param(resources, ["amd64", "arm64"], [], id="the Vertical Pod Autoscaler"),
        pytest.param(lambda seen: (*sidecar(seen), *gate(KUEUE)(seen)), ["amd64"], [KUEUE], id="two of them"),
    ],
)
async def test_a_known_pod_is_placed_once_beside_another_webhook(cluster, order, change, wanted, kept) -> None:
    async with cluster.namespace() as namespace:
        await known(cluster, namespace)
        async with neighbour(cluster, order, namespace, change):
            created = await cluster.create(pod(APP), namespace)
    assert architectures(created) == wanted
    assert expressions(created).count(names.ARCH_KEY) == 1
    assert gates(created) == kept
    assert decision(created)["reason"] == "ArchitecturesSet"


@pytest.mark.parametrize("order", ["aa", "zz"], ids=["before ours", "after ours"])
@pytest.mark.parametrize("first", ["Kueue", "polyarch"])
async def test_two_gates_are_taken_away_in_either_order(cluster, order, first) -> None:
    """Kueue writes the node selector of its flavor as it lifts its gate; the pod then has both, and no gate."""
    image = f"quay.io/neighbours/late-{order}-{first.lower()}:1"
    if first == "polyarch":
        await cluster.seed({image: IMAGES[APP]})

    async def admit(namespace: str) -> None:
        seen = await cluster.get(namespace, "app")
        at = gates(seen).index(KUEUE)
        selector = add("/spec/nodeSelector", {"flavor": "spot"})
        patch = JsonPatch((selector, remove(f"/spec/schedulingGates/{at}")))
        await cluster.client.patch(PODS, "app", patch, namespace=namespace)

    async with cluster.namespace("gated") as namespace, neighbour(cluster, order, namespace, gate(KUEUE)):
        created = await cluster.create(pod(image), namespace)
        assert sorted(gates(created)) == sorted([KUEUE, names.GATE])
        if first == "Kueue":
            await admit(namespace)
            await cluster.seed({image: IMAGES[APP]})
            placed = await cluster.released(namespace, "app")
        else:
            placed = await cluster.released(namespace, "app")
            assert gates(placed) == [KUEUE]
            await admit(namespace)
            placed = await cluster.get(namespace, "app")
    assert gates(placed) == []
    assert placed["spec"]["nodeSelector"] == {"flavor": "spot"}
    assert architectures(placed) == ["amd64", "arm64"]


async def test_a_virtual_machine_that_names_its_architecture_is_left_alone(cluster) -> None:
    """KubeVirt's launcher selects nodes of the machine's architecture."""
    selector = {"kubernetes.io/arch": "amd64", "kubevirt.io/schedulable": "true"}
    async with cluster.namespace() as namespace:
        created = await cluster.create(pod(APP, nodeSelector=selector), namespace)
    assert (architectures(created), gates(created)) == (None, [])


async def test_the_helpers_of_a_workflow_count_as_the_work_does(cluster) -> None:
    """Argo's executor is an init container and a container beside the work; it annotates the pod while that runs."""
    helpers = [{"name": "init", "image": SIDECAR, "imagePullPolicy": "IfNotPresent"}]
    async with cluster.namespace() as namespace:
        await known(cluster, namespace)
        created = await cluster.create(pod(APP, SIDECAR, initContainers=helpers), namespace)
        assert architectures(created) == ["amd64"]
        note = JsonPatch((add("/metadata/annotations/workflows.argoproj.io~1outputs", "{}"),))
        await cluster.client.patch(PODS, "app", note, namespace=namespace)
        assert architectures(await cluster.get(namespace, "app")) == ["amd64"]
