"""What the Multiarch Tuning Operator has made in a cluster when somebody wants polyarch instead.

Its own Deployment and webhook, the custom resources with their finalizers, and its operands, with the names, labels,
selectors, owner references and field manager that it gives them. Nothing of it runs: the sandbox plays its pods.
"""

import json
from collections.abc import Callable
from typing import Any, Final

from polyarch.placement import names
from polyarch.placement.api import CPPCS, PPCS
from polyarch.placement.crd import crds

Json = dict[str, Any]
Kubectl = Callable[..., str]
"""Runs kubectl with these arguments, and the text of ``stdin``; what it prints. Raises if it fails."""

HOME: Final = "openshift-multiarch-tuning-operator"
OPERATOR: Final = "multiarch-tuning-operator-controller-manager"
OWN_WEBHOOK: Final = "multiarch-tuning-operator-validating-webhook-configuration"
TEAM: Final = "team"
MANAGER: Final = "manager"
"""The field manager: the name of its program."""
RBAC: Final = "rbac.authorization.k8s.io"


def leave_behind(kubectl: Kubectl) -> None:
    """Makes all of it, its operator still running. The team's namespace has a pod that it gated."""
    make(kubectl, *definitions())
    kubectl("wait", "--for=condition=Established", "crd", "--all", "--timeout=60s")
    make(kubectl, namespace(HOME), namespace(TEAM), configuration())
    kubectl("wait", "--for=create", "serviceaccount/default", "-n", TEAM, "--timeout=60s")
    uid = kubectl("get", CPPCS.plural, names.SINGLETON, "-o", "jsonpath={.metadata.uid}")
    owner = {
        "apiVersion": CPPCS.api_version,
        "kind": CPPCS.kind,
        "name": names.SINGLETON,
        "uid": uid,
        "controller": True,
        "blockOwnerDeletion": True,
    }
    make(kubectl, scoring(), *operator(), *operands(owner), registration(owner), gated_pod())
    for each in (OPERATOR, names.CONTROLLER, names.WEBHOOK):
        kubectl("rollout", "status", "-n", HOME, f"deployment/{each}", "--timeout=60s")


def taken_over(kubectl: Kubectl) -> None:
    """The pod that was gated is placed; the Deployments are polyarch's, with nothing of what they were; the custom
    resources are as they were."""
    pod = json.loads(kubectl("get", "pod", "billing", "-n", TEAM, "-o", "json"))
    (term,) = pod["spec"]["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"][
        "nodeSelectorTerms"
    ]
    assert {"key": "kubernetes.io/arch", "operator": "In", "values": ["amd64"]} in term["matchExpressions"]
    assert not pod["spec"].get("schedulingGates")
    for name in (names.CONTROLLER, names.WEBHOOK):
        found = json.loads(kubectl("get", "deployment", name, "-n", HOME, "-o", "json"))
        template = found["spec"]["template"]["spec"]
        (container,) = template["containers"]
        assert "polyarch" in container["image"]
        assert "command" not in container
        assert not [each for each in template.get("volumes", ()) if "hostPath" in each]
    role = json.loads(kubectl("get", "clusterrole", names.CONTROLLER, "-o", "json"))
    assert not [each for each in role["rules"] if "secrets" in each.get("resources", ()) and "list" in each["verbs"]]
    live = json.loads(kubectl("get", CPPCS.plural, names.SINGLETON, "-o", "json"))
    assert live["spec"].items() >= configuration()["spec"].items()
    live = json.loads(kubectl("get", PPCS.plural, "prefer-arm64", "-n", TEAM, "-o", "json"))
    assert live["spec"]["plugins"] == scoring()["spec"]["plugins"]


def make(kubectl: Kubectl, *documents: Json) -> None:
    made = {"apiVersion": "v1", "kind": "List", "items": list(documents)}
    kubectl("create", f"--field-manager={MANAGER}", "-f", "-", stdin=json.dumps(made))


def definitions() -> list[Json]:
    found = list(crds())
    service = {"namespace": HOME, "name": f"{OPERATOR}-service", "path": "/convert"}
    webhook = {"clientConfig": {"service": service}, "conversionReviewVersions": ["v1"]}
    for each in found:
        each["metadata"].pop("labels", None)
        if each["spec"]["names"]["kind"] == CPPCS.kind:
            each["spec"]["conversion"] = {"strategy": "Webhook", "webhook": webhook}
    return found


def namespace(name: str) -> Json:
    return {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}


def configuration() -> Json:
    excluded = {"key": "multiarch.openshift.io/exclude-pod-placement", "operator": "DoesNotExist"}
    finalizers = [names.POD_PLACEMENT_FINALIZER, names.NO_POD_PLACEMENT_CONFIG_FINALIZER]
    return {
        "apiVersion": CPPCS.api_version,
        "kind": CPPCS.kind,
        "metadata": {"name": names.SINGLETON, "finalizers": finalizers},
        "spec": {"logVerbosity": "Normal", "namespaceSelector": {"matchExpressions": [excluded]}},
    }


def scoring() -> Json:
    platforms = [{"architecture": "arm64", "weight": 50}]
    return {
        "apiVersion": PPCS.api_version,
        "kind": PPCS.kind,
        "metadata": {"name": "prefer-arm64", "namespace": TEAM},
        "spec": {"labelSelector": {}, "plugins": {"nodeAffinityScoring": {"enabled": True, "platforms": platforms}}},
    }


def operator() -> list[Json]:
    """Installed without OLM: its webhook for custom resources fails closed."""
    labels = {"control-plane": "controller-manager"}
    webhook = {
        "name": "validate-clusterpodplacementconfig.multiarch.openshift.io",
        "admissionReviewVersions": ["v1"],
        "sideEffects": "None",
        "failurePolicy": "Fail",
        "clientConfig": {"service": {"namespace": HOME, "name": f"{OPERATOR}-service", "path": "/validate"}},
        "rules": [
            {
                "apiGroups": [names.GROUP],
                "apiVersions": ["v1beta1"],
                "operations": ["CREATE", "UPDATE"],
                "resources": [CPPCS.plural],
            }
        ],
    }
    return [
        document("apps/v1", "Deployment", OPERATOR, spec=deployment(OPERATOR, labels, 1)),
        document("v1", "Service", f"{OPERATOR}-service", spec={"selector": labels, "ports": [{"port": 443}]}),
        document("admissionregistration.k8s.io/v1", "ValidatingWebhookConfiguration", OWN_WEBHOOK, webhooks=[webhook]),
    ]


def operands(owner: Json) -> list[Json]:
    made = []
    for name, replicas in ((names.CONTROLLER, 2), (names.WEBHOOK, 3)):
        labels = {names.OPERAND_LABEL: names.OPERAND, names.CONTROLLER_LABEL: name}
        subjects = [{"kind": "ServiceAccount", "name": name, "namespace": HOME}]
        ports = [{"name": "https", "port": 443, "targetPort": 9443}]
        reads = {"apiGroups": [""], "resources": ["secrets", "configmaps"], "verbs": ["get", "list", "watch"]}
        bound = {"roleRef": {"apiGroup": RBAC, "kind": "ClusterRole", "name": name}, "subjects": subjects}
        own = [
            document("v1", "ServiceAccount", name, automountServiceAccountToken=False),
            document(f"{RBAC}/v1", "ClusterRole", name, rules=[reads]),
            document(f"{RBAC}/v1", "ClusterRoleBinding", name, **bound),
            document("v1", "Service", name, spec={"selector": labels, "ports": ports}),
            document("apps/v1", "Deployment", name, spec=deployment(name, labels, replicas)),
        ]
        if name == names.CONTROLLER:
            of_the_node(own[-1])
            leases = {"apiGroups": ["coordination.k8s.io"], "resources": ["leases"], "verbs": ["get", "update"]}
            within = {"roleRef": {"apiGroup": RBAC, "kind": "Role", "name": name}, "subjects": subjects}
            own.append(document(f"{RBAC}/v1", "Role", name, rules=[leases]))
            own.append(document(f"{RBAC}/v1", "RoleBinding", name, **within))
        for each in own:
            each["metadata"] |= {"ownerReferences": [owner]} | ({"labels": labels} if each["kind"] != "Role" else {})
        made += [*own, document("v1", "Secret", name, stringData={"tls.crt": "", "tls.key": ""})]
    return made


def of_the_node(controller: Json) -> None:
    """Its controller reads files of the node, and has a finalizer."""
    controller["metadata"]["finalizers"] = [names.POD_PLACEMENT_FINALIZER]
    pod = controller["spec"]["template"]["spec"]
    pod["volumes"] = [{"name": "docker-conf", "hostPath": {"path": "/etc/docker/", "type": "DirectoryOrCreate"}}]
    pod["containers"][0]["volumeMounts"] = [{"name": "docker-conf", "mountPath": "/etc/docker/"}]


def registration(owner: Json) -> Json:
    webhook = {
        "name": names.POD_WEBHOOK,
        "admissionReviewVersions": ["v1"],
        "sideEffects": "None",
        "failurePolicy": "Ignore",
        "clientConfig": {"service": {"namespace": HOME, "name": names.WEBHOOK, "path": names.POD_WEBHOOK_PATH}},
        "rules": [{"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["pods"]}],
    }
    made = document(
        "admissionregistration.k8s.io/v1",
        "MutatingWebhookConfiguration",
        names.WEBHOOK_CONFIGURATION,
        webhooks=[webhook],
    )
    made["metadata"] |= {
        "labels": {names.OPERAND_LABEL: names.OPERAND, names.CONTROLLER_LABEL: names.WEBHOOK},
        "ownerReferences": [owner],
    }
    return made


def gated_pod() -> Json:
    """Of an image for one architecture."""
    labels = {names.SCHEDULING_GATE_LABEL: names.GATED, "multiarch.openshift.io/node-affinity": "not-set"}
    spec = {
        "schedulingGates": [{"name": names.GATE}],
        "containers": [{"name": "app", "image": "quay.io/acme/billing:2.3"}],
    }
    metadata = {"name": "billing", "namespace": TEAM, "labels": labels}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}


def document(api_version: str, kind: str, name: str, **rest: Any) -> Json:
    where = {} if kind.startswith(("Cluster", "Mutating", "Validating")) else {"namespace": HOME}
    return {"apiVersion": api_version, "kind": kind, "metadata": {"name": name, **where}, **rest}


def deployment(name: str, labels: Json, replicas: int) -> Json:
    environment = [{"name": "NAMESPACE", "value": HOME}]
    container = {"name": name, "image": "nginx:1.27", "command": ["/manager"], "env": environment}
    return {
        "replicas": replicas,
        "selector": {"matchLabels": labels},
        "template": {"metadata": {"labels": labels}, "spec": {"containers": [container]}},
    }
