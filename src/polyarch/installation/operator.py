"""The operator's own objects, which whoever installs polyarch applies; it makes all others itself (IN-001, PL-502).

Its settings are environment variables, so that an OLM Subscription or a kustomize patch can override them by name. The
image is in the pod alone: the operator gives the image of its own pod to the other roles. Pure.
"""

from collections.abc import Mapping
from typing import Any, Final

from polyarch import __version__
from polyarch.installation.settings import InstallationSettings
from polyarch.kube.resources import DEPLOYMENTS, NETWORK_POLICIES, POD_DISRUPTION_BUDGETS
from polyarch.placement import names
from polyarch.placement.operator.settings import OperatorSettings

Document = dict[str, Any]

OPERATOR: Final = "polyarch-operator"
CONTAINER: Final = "operator"
PART_OF: Final = "app.kubernetes.io/part-of"
PRODUCT: Final = "polyarch"
COMPONENT: Final = "app.kubernetes.io/component"
VERSION: Final = "app.kubernetes.io/version"
SELECTOR: Final = {"app.kubernetes.io/name": OPERATOR}
"""The labels by which Service, PodDisruptionBudget and NetworkPolicy find the operator's pods; they never change."""
SERVICE_CA_SECRET: Final = f"{OPERATOR}-certificates"
"""The Secret in which OpenShift's service CA puts the certificate of the operator's Service."""
WEBHOOK_PORT, METRICS_PORT, HEALTH_PORT = 9443, 8443, 8081
CERTIFICATES: Final = "/etc/polyarch/certificates"
BY_FIELD: Final = {"POD_NAME": "metadata.name", "POD_NAMESPACE": "metadata.namespace", "POD_IP": "status.podIP"}


def labels() -> dict[str, str]:
    """On each of the operator's objects and pods."""
    return {**SELECTOR, PART_OF: PRODUCT, COMPONENT: CONTAINER}


def metadata(name: str, namespace: str = "") -> Document:
    """Without a namespace it is cluster-scoped."""
    return {"name": name} | ({"namespace": namespace} if namespace else {}) | {"labels": labels()}


def service_account(namespace: str) -> Document:
    """As whom the operator asks the API server."""
    return {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": metadata(OPERATOR, namespace)}


def service(settings: InstallationSettings, namespace: str) -> Document:
    """For the webhooks and the conversion of its custom resources, and for metrics (PL-541)."""
    ports = [("webhook", 443, WEBHOOK_PORT), ("metrics", METRICS_PORT, METRICS_PORT)]
    made = metadata(OPERATOR, namespace)
    if settings.certificates == "service-ca":
        made["annotations"] = {"service.beta.openshift.io/serving-cert-secret-name": SERVICE_CA_SECRET}
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": made,
        "spec": {
            "selector": dict(SELECTOR),
            "ports": [{"name": name, "port": port, "targetPort": target} for name, port, target in ports],
        },
    }


def disruption_budget(namespace: str) -> Document:
    """PL-532."""
    return {
        "apiVersion": POD_DISRUPTION_BUDGETS.api_version,
        "kind": POD_DISRUPTION_BUDGETS.kind,
        "metadata": metadata(OPERATOR, namespace),
        "spec": {"minAvailable": 1, "selector": {"matchLabels": dict(SELECTOR)}},
    }


def network_policy(namespace: str) -> Document:
    """PL-532. The API server's port is not known to the policy, which sees the address behind its Service: any TCP."""
    ingress = [{"port": port, "protocol": "TCP"} for port in (WEBHOOK_PORT, METRICS_PORT, HEALTH_PORT)]
    return {
        "apiVersion": NETWORK_POLICIES.api_version,
        "kind": NETWORK_POLICIES.kind,
        "metadata": metadata(OPERATOR, namespace),
        "spec": {
            "podSelector": {"matchLabels": dict(SELECTOR)},
            "policyTypes": ["Ingress", "Egress"],
            "ingress": [{"ports": ingress}],
            "egress": [{"ports": [{"port": 53, "protocol": "UDP"}, {"protocol": "TCP"}]}],
        },
    }


def environment(settings: OperatorSettings) -> dict[str, str]:
    """The flags of ``polyarch run operator`` that differ from their defaults, as environment variables (IN-030)."""
    secret = settings.global_pull_secret or ("", "")
    default = OperatorSettings()
    chosen = {
        "CERTIFICATES": (settings.certificates, default.certificates),
        "NETWORK_POLICIES": (_word(settings.network_policies), _word(default.network_policies)),
        "WEBHOOK_REPLICAS": (str(settings.webhook_replicas), str(default.webhook_replicas)),
        "CONTROLLER_REPLICAS": (str(settings.controller_replicas), str(default.controller_replicas)),
        "HANDLER_REPLICAS": (str(settings.handler_replicas), str(default.handler_replicas)),
        "GLOBAL_PULL_SECRET_NAMESPACE": (secret[0], ""),
        "GLOBAL_PULL_SECRET_NAME": (secret[1], ""),
        "REGISTRIES_CONFIGMAP": (settings.registries_configmap, default.registries_configmap),
        "ALLOW_ADDRESS": (" ".join(settings.allow_addresses), ""),
    }
    return {f"POLYARCH_{name}": value for name, (value, usual) in chosen.items() if value != usual}


def deployment(settings: InstallationSettings, namespace: str) -> Document:
    """PL-502 for the operator: as restricted and as spread as the roles that it deploys."""
    pods = settings.operator
    spec: Document = {
        "serviceAccountName": OPERATOR,
        # A Service called polyarch would set POLYARCH_PORT, which is a setting.
        "enableServiceLinks": False,
        "terminationGracePeriodSeconds": 30,
        "affinity": _with_architectures(pods.affinity),
        "topologySpreadConstraints": [
            _spread(key) for key in ("kubernetes.io/hostname", "topology.kubernetes.io/zone")
        ],
        "securityContext": {"runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}},
        "containers": [_container(settings, namespace)],
        "volumes": [_certificates(settings)],
    }
    optional = {
        "priorityClassName": pods.priority_class_name,
        "nodeSelector": dict(pods.node_selector),
        "tolerations": list(pods.tolerations),
        "imagePullSecrets": [{"name": name} for name in settings.image.pull_secrets],
    }
    template: Document = {"labels": {**pods.labels, **labels()}}
    if pods.annotations:
        template["annotations"] = dict(pods.annotations)
    made = metadata(OPERATOR, namespace)
    made["labels"] |= {VERSION: __version__}
    return {
        "apiVersion": DEPLOYMENTS.api_version,
        "kind": DEPLOYMENTS.kind,
        "metadata": made,
        "spec": {
            "replicas": pods.replicas,
            "strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": "25%", "maxUnavailable": "25%"}},
            "selector": {"matchLabels": dict(SELECTOR)},
            "template": {
                "metadata": template,
                "spec": spec | {name: value for name, value in optional.items() if value},
            },
        },
    }


def _container(settings: InstallationSettings, namespace: str) -> Document:
    own = {"POLYARCH_NAMESPACE": "$(POD_NAMESPACE)", "POLYARCH_BIND": "$(POD_IP)", "POLYARCH_CERT_DIR": CERTIFICATES}
    values = own | environment(settings.operator_settings(namespace)) | settings.operator.environment
    ports = {"webhook": WEBHOOK_PORT, "metrics": METRICS_PORT, "health": HEALTH_PORT}
    return {
        "name": CONTAINER,
        "image": settings.image.reference,
        "imagePullPolicy": settings.image.pull_policy,
        "args": ["run", "operator"],
        "env": [
            *({"name": name, "valueFrom": {"fieldRef": {"fieldPath": path}}} for name, path in BY_FIELD.items()),
            *({"name": name, "value": value} for name, value in values.items()),
        ],
        "ports": [{"name": name, "containerPort": port} for name, port in ports.items()],
        "startupProbe": _probe("/healthz", periodSeconds=1, failureThreshold=60),
        "livenessProbe": _probe("/healthz", periodSeconds=10),
        "readinessProbe": _probe("/readyz", periodSeconds=2),
        "resources": dict(settings.operator.resources),
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        },
        "volumeMounts": [{"name": "certificates", "mountPath": CERTIFICATES, "readOnly": True}],
    }


def _certificates(settings: InstallationSettings) -> Document:
    """All optional: the pod starts before somebody has issued a certificate, and with its own the operator needs none
    of these files."""
    secrets = [names.CERTIFICATES_SECRET, *([SERVICE_CA_SECRET] if settings.certificates == "service-ca" else [])]
    sources = [{"secret": {"name": name, "optional": True}} for name in secrets]
    return {"name": "certificates", "projected": {"sources": sources}}


def _with_architectures(affinity: Mapping[str, Any]) -> Document:
    """The affinity, with the architectures that the image is built for in every required term."""
    architectures = {"key": names.ARCH_KEY, "operator": "In", "values": sorted(names.ARCHITECTURE_LABELS)}
    node = affinity.get("nodeAffinity") or {}
    required = node.get("requiredDuringSchedulingIgnoredDuringExecution") or {}
    given: list[Document] = required.get("nodeSelectorTerms") or [{}]
    terms = [{**term, "matchExpressions": [*(term.get("matchExpressions") or ()), architectures]} for term in given]
    return {
        **affinity,
        "nodeAffinity": {**node, "requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}},
    }


def _spread(topology: str) -> Document:
    return {
        "maxSkew": 1,
        "topologyKey": topology,
        "whenUnsatisfiable": "ScheduleAnyway",
        "labelSelector": {"matchLabels": dict(SELECTOR)},
    }


def _probe(path: str, **timing: int) -> Document:
    return {"httpGet": {"path": path, "port": "health"}, **timing}


def _word(value: bool) -> str:
    return str(value).lower()
