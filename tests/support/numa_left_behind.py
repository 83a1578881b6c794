"""What the NUMA Resources Operator has made in a cluster when somebody wants polyarch instead.

Its own Deployment, the custom resources, its exporters and its scheduler, with the names, selectors and owners
that it gives them. Nothing of it runs: the sandbox plays its pods.
"""

import json
from typing import Any, Final

from left_behind import Kubectl, make, namespace

from polyarch.numa import names
from polyarch.numa.api.crds import crds
from polyarch.numa.api.resources import OPERATORS, SCHEDULERS

Json = dict[str, Any]

HOME: Final = "numaresources"
OPERATOR: Final = "numaresources-controller-manager"
EXPORTERS: Final = "numaresourcesoperator-worker"


def leave_numa_behind(kubectl: Kubectl) -> None:
    """Makes all of it, its operator still running."""
    definitions = [each | {"metadata": {"name": each["metadata"]["name"]}} for each in crds()]
    make(kubectl, *definitions)
    kubectl("wait", "--for=condition=Established", "crd", "--all", "--timeout=60s")
    pools = {"matchLabels": {f"{names.POOL_LABEL_PREFIX}worker": ""}}
    groups = {"nodeGroups": [{"machineConfigPoolSelector": pools, "config": {"infoRefreshMode": "Events"}}]}
    make(kubectl, namespace(HOME), singleton(OPERATORS, groups), singleton(SCHEDULERS, {"imageSpec": "nginx:1.27"}))
    kubectl("wait", "--for=create", "serviceaccount/default", "-n", HOME, "--timeout=60s")
    exporters, scheduler = owner(kubectl, OPERATORS), owner(kubectl, SCHEDULERS)
    make(
        kubectl,
        {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": described(names.EXPORTER, exporters)},
        workload("DaemonSet", EXPORTERS, names.EXPORTER_POD_LABELS, exporters),
        workload("Deployment", names.SCHEDULER, {"app": names.SCHEDULER}, scheduler),
        workload("Deployment", OPERATOR, {"control-plane": "controller-manager"}),
    )
    kubectl("rollout", "status", "-n", HOME, f"deployment/{names.SCHEDULER}", "--timeout=60s")


def numa_taken_over(kubectl: Kubectl) -> None:
    """The exporters are polyarch's, by the custom resource that was there; the scheduler runs on, and is nobody's."""
    found = json.loads(kubectl("get", "daemonset", EXPORTERS, "-n", HOME, "-o", "json"))
    (container,) = found["spec"]["template"]["spec"]["containers"]
    assert container["args"][:2] == ["run", "numa-exporter"]
    given = json.loads(kubectl("get", OPERATORS.plural, names.OPERATOR_SINGLETON, "-o", "json"))
    assert given["spec"]["nodeGroups"][0]["config"] == {"infoRefreshMode": "Events"}
    scheduler = json.loads(kubectl("get", "deployment", names.SCHEDULER, "-n", HOME, "-o", "json"))
    assert scheduler["status"]["readyReplicas"] == 1
    assert "ownerReferences" not in scheduler["metadata"]
    (played,) = scheduler["spec"]["template"]["spec"]["containers"]
    assert played["image"] == "nginx:1.27"


def singleton(resource: Any, spec: Json) -> Json:
    name = names.OPERATOR_SINGLETON if resource == OPERATORS else names.SCHEDULER_SINGLETON
    return {"apiVersion": resource.api_version, "kind": resource.kind, "metadata": {"name": name}, "spec": spec}


def owner(kubectl: Kubectl, resource: Any) -> Json:
    (live,) = json.loads(kubectl("get", resource.plural, "-o", "json"))["items"]
    known = {"apiVersion": resource.api_version, "kind": resource.kind, "name": live["metadata"]["name"]}
    return known | {"uid": live["metadata"]["uid"], "controller": True, "blockOwnerDeletion": True}


def described(name: str, *owners: Json) -> Json:
    return {"name": name, "namespace": HOME, "ownerReferences": list(owners)}


def workload(kind: str, name: str, labels: Json, *owners: Json) -> Json:
    template = {"metadata": {"labels": labels}, "spec": {"containers": [{"name": "played", "image": "nginx:1.27"}]}}
    spec = {"selector": {"matchLabels": labels}, "template": template}
    return {"apiVersion": "apps/v1", "kind": kind, "metadata": described(name, *owners), "spec": spec}
