"""A small cluster for the tests of plans: documents as the API server has them, and what their images say."""

from collections.abc import Mapping
from typing import Any

from fake_api import FakeApi
from placement_cases import failure, index
from taint_nodes import document

from polyarch.images.pod_images import images_of
from polyarch.kube.resources import DAEMONSETS, DEPLOYMENTS, NAMESPACES, NODES, PODS, Resource
from polyarch.objects import Pod
from polyarch.oci.inspection import Inspection

Json = dict[str, Any]
POLICIES = Resource(
    "admissionregistration.k8s.io",
    "v1",
    "mutatingadmissionpolicies",
    "MutatingAdmissionPolicy",
    namespaced=False,
)
BINDINGS = Resource(
    "admissionregistration.k8s.io",
    "v1",
    "mutatingadmissionpolicybindings",
    "MutatingAdmissionPolicyBinding",
    namespaced=False,
)
IMAGES = {
    "both": index("both", "amd64", "arm64"),
    "intel": index("intel", "amd64"),
    "arm": index("arm", "arm64"),
    "away": failure("away"),
}


def answers(pod: Pod) -> Mapping[str, Inspection]:
    """What the images of a pod say, by the last word of their names."""
    return {use.text: IMAGES[use.text] for use in images_of(pod)}


def pod_spec(image: str = "both", **spec: Any) -> Json:
    return {"containers": [{"name": "main", "image": image}], **spec}


def pod(name: str, image: str = "both", *, owner: tuple[str, str] | None = None, **spec: Any) -> Json:
    """``owner``: kind and name."""
    owners = []
    if owner is not None:
        kind, of = owner
        version = "apps/v1" if kind != "Job" else "batch/v1"
        owners = [{"apiVersion": version, "kind": kind, "name": of, "uid": f"uid-{of}", "controller": True}]
    metadata = {"name": name, "namespace": "shop", "uid": f"uid-{name}", "ownerReferences": owners}
    return {"metadata": metadata, "spec": pod_spec(image, **spec), "status": {"phase": "Pending"}}


def workload(name: str, image: str = "both", *, annotations: Mapping[str, str] | None = None, **spec: Any) -> Json:
    metadata = {
        "name": name,
        "namespace": "shop",
        "uid": f"uid-{name}",
        "generation": 1,
        "annotations": dict(annotations or {}),
    }
    return {
        "metadata": metadata,
        "spec": {"template": {"spec": pod_spec(image, **spec)}},
        "status": {"observedGeneration": 1},
    }


def taint_api() -> FakeApi:
    """An API server without objects that serves mutating admission policies."""
    api = FakeApi(kinds=(POLICIES, BINDINGS))
    api.admit = _roll_out
    return api


def _roll_out(before: Json, after: Json) -> None:
    """The controller of a workload has seen each change at once, unless it was behind before."""
    status = before.get("status") or {}
    if "observedGeneration" in status and status["observedGeneration"] == before["metadata"].get("generation"):
        after["status"] = {**status, "observedGeneration": after["metadata"]["generation"]}


def cluster(*, amd64: int = 2, arm64: int = 2, objects: Mapping[Resource, list[Json]] | None = None) -> FakeApi:
    """An API server with nodes and these objects."""
    api = taint_api()
    for number in range(amd64):
        api.put(NODES, document(f"amd-{number}", "amd64"))
    for number in range(arm64):
        api.put(NODES, document(f"arm-{number}", "arm64"))
    api.put(NAMESPACES, {"metadata": {"name": "shop", "labels": {}}})
    for resource, documents in (objects or {}).items():
        for each in documents:
            api.put(resource, each)
    return api


def shop(**more: Any) -> FakeApi:
    """One Deployment for both architectures, one DaemonSet with a pod on every node."""
    agents = [
        pod("agent-a", owner=("DaemonSet", "agent"), nodeName="amd-0"),
        pod("agent-b", owner=("DaemonSet", "agent"), nodeName="arm-0"),
    ]
    objects = {DEPLOYMENTS: [workload("web")], DAEMONSETS: [workload("agent")], PODS: agents}
    return cluster(objects={**objects, **more})
