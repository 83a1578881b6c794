"""What archaware-controller has made in a cluster when somebody wants polyarch instead.

Its Deployment with its rights, a taint on every node, and a pod with the tolerations that it gave. Nothing of it runs:
the sandbox plays its pod.
"""

import json
from typing import Any, Final

import taints_predecessor as predecessor
from left_behind import RBAC, TEAM, Kubectl, make, namespace

from polyarch.taints import names as taint_names

Json = dict[str, Any]

HOME: Final = "kube-system"
NAME: Final = "archaware-controller"
ACCOUNT: Final = "archaware-controller-serviceaccount"
ROLE: Final = "archaware-controller-pod-node-editor"
BINDING: Final = "archaware-controller-edit-pods-nodes"
POD: Final = "billing"
GIVEN: Final = [predecessor.toleration(each) for each in ("amd64", "arm64", "unknown")]
"""To a pod whose image has attestations: it takes these for an architecture."""


def leave_archaware_behind(kubectl: Kubectl) -> None:
    """Makes all of it, its Deployment still running."""
    for node in nodes(kubectl):
        taint = predecessor.taint(node["status"]["nodeInfo"]["architecture"])
        kubectl("taint", "node", node["metadata"]["name"], f"{taint['key']}={taint['value']}:{taint['effect']}")
    make(kubectl, namespace(TEAM), *rights(), controller())
    kubectl("wait", "--for=create", "serviceaccount/default", "-n", TEAM, "--timeout=60s")
    containers = [{"name": "billing", "image": "nginx:1.27"}]
    metadata = {"name": POD, "namespace": TEAM}
    spec = {"containers": containers, "tolerations": GIVEN}
    make(kubectl, {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec})
    kubectl("rollout", "status", "-n", HOME, f"deployment/{NAME}", "--timeout=60s")
    kubectl("wait", "--for=condition=Ready", f"pod/{POD}", "-n", TEAM, "--timeout=60s")


def archaware_taken_over(kubectl: Kubectl) -> None:
    """Nodes and the pod are as they were, and nothing of it is left but what is polyarch's now."""
    for node in nodes(kubectl):
        assert node["spec"]["taints"] == [predecessor.taint(node["status"]["nodeInfo"]["architecture"])]
    pod = json.loads(kubectl("get", "pod", POD, "-n", TEAM, "-o", "json"))
    assert [each for each in pod["spec"]["tolerations"] if each["key"] == predecessor.KEY] == GIVEN
    assert NAME not in kubectl("get", "deployment,serviceaccount,pods", "-n", HOME, "-o", "name")
    assert NAME not in kubectl("get", "clusterrole,clusterrolebinding", "-o", "name")
    kubectl("wait", "--for=condition=Available", f"deployment/{taint_names.ROLE}", "-n", "polyarch-system")


def nodes(kubectl: Kubectl) -> list[Json]:
    found: list[Json] = json.loads(kubectl("get", "nodes", "-o", "json"))["items"]
    return found


def rights() -> list[Json]:
    """It may update every pod and node."""
    rules = [{"apiGroups": [""], "resources": ["pods", "nodes"], "verbs": ["get", "list", "watch", "update"]}]
    role = {"apiGroup": RBAC, "kind": "ClusterRole", "name": ROLE}
    subjects = [{"kind": "ServiceAccount", "name": ACCOUNT, "namespace": HOME}]
    api_version = f"{RBAC}/v1"
    return [
        {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": ACCOUNT, "namespace": HOME}},
        {"apiVersion": api_version, "kind": "ClusterRole", "metadata": {"name": ROLE}, "rules": rules},
        {
            "apiVersion": api_version,
            "kind": "ClusterRoleBinding",
            "metadata": {"name": BINDING},
            "roleRef": role,
            "subjects": subjects,
        },
    ]


def controller() -> Json:
    labels = {"app": NAME}
    spec = {
        "serviceAccountName": ACCOUNT,
        "containers": [{"name": NAME, "image": "nginx:1.27"}],
        "tolerations": [predecessor.toleration("amd64")],
    }
    template = {"metadata": {"labels": labels}, "spec": spec}
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": NAME, "namespace": HOME, "labels": labels},
        "spec": {"selector": {"matchLabels": labels}, "template": template},
    }
