"""What OLM makes of a bundle: the objects that it applies for a ClusterServiceVersion, and a certificate of its own.

From the documentation of ClusterServiceVersions: each deployment is created as it stands, with the certificate mounted;
permissions become Roles and ClusterRoles of the ServiceAccount; a webhook becomes a configuration whose Service is
``<deployment>-service``, a conversion webhook the conversion of its CustomResourceDefinitions.
"""

import base64
import copy
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import trustme
import yaml

Document = dict[str, Any]
SERVING = "/tmp/k8s-webhook-server/serving-certs"
OWNER = {"olm.owner": "polyarch", "olm.managed": "true"}


def read(bundle: Path) -> dict[str, list[Document]]:
    """The manifests of a bundle, by kind."""
    found: dict[str, list[Document]] = {}
    for path in sorted((bundle / "manifests").glob("*.yaml")):
        document = yaml.safe_load(path.read_text())
        found.setdefault(document["kind"], []).append(document)
    return found


def applied(bundle: Path, namespace: str) -> Iterator[Document]:
    """In the order of OLM: definitions, accounts and rights, the certificate, Services, deployments, webhooks."""
    manifests = read(bundle)
    (csv,) = manifests["ClusterServiceVersion"]
    spec = csv["spec"]
    authority = trustme.CA(key_type=trustme.KeyType.ECDSA)
    webhooks = spec["webhookdefinitions"]
    for definition in manifests["CustomResourceDefinition"]:
        yield _converting(definition, webhooks, namespace, authority)
    yield from _rights(spec["install"]["spec"], namespace)
    for kind in ("Service", "PodDisruptionBudget"):
        for document in manifests.get(kind, ()):
            yield {**document, "metadata": {**document["metadata"], "namespace": namespace}}
    for deployment in spec["install"]["spec"]["deployments"]:
        yield from _deployed(deployment, webhooks, namespace, authority)
    for webhook in webhooks:
        if webhook["type"] != "ConversionWebhook":
            yield _registered(webhook, namespace, authority)


def _meta(name: str, namespace: str = "") -> Document:
    return {"name": name, "labels": dict(OWNER)} | ({"namespace": namespace} if namespace else {})


def _rights(install: Document, namespace: str) -> Iterator[Document]:
    group = "rbac.authorization.k8s.io"
    for kind, field, where in (("ClusterRole", "clusterPermissions", ""), ("Role", "permissions", namespace)):
        for permission in install[field]:
            account = permission["serviceAccountName"]
            subject = {"kind": "ServiceAccount", "name": account, "namespace": namespace}
            name = f"polyarch-{account}"
            yield {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": _meta(account, namespace)}
            yield {
                "apiVersion": f"{group}/v1",
                "kind": kind,
                "metadata": _meta(name, where),
                "rules": permission["rules"],
            }
            yield {
                "apiVersion": f"{group}/v1",
                "kind": f"{kind}Binding",
                "metadata": _meta(name, where),
                "roleRef": {"apiGroup": group, "kind": kind, "name": name},
                "subjects": [subject],
            }


def _deployed(given: Document, webhooks: list[Document], namespace: str, authority: trustme.CA) -> Iterator[Document]:
    name = given["name"]
    certificate = authority.issue_cert(
        f"{name}-service.{namespace}.svc", f"{name}-service.{namespace}.svc.cluster.local"
    )
    pem = b"".join(each.bytes() for each in certificate.cert_chain_pems)
    data = {"tls.crt": pem, "tls.key": certificate.private_key_pem.bytes()}
    secret = f"{name}-service-cert"
    yield {
        "apiVersion": "v1",
        "kind": "Secret",
        "type": "kubernetes.io/tls",
        "metadata": _meta(secret, namespace),
        "data": {key: base64.b64encode(value).decode() for key, value in data.items()},
    }
    ports = {(each["containerPort"], each["targetPort"]) for each in webhooks}
    spec = copy.deepcopy(given["spec"])
    yield {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": _meta(f"{name}-service", namespace),
        "spec": {
            "selector": spec["selector"]["matchLabels"],
            "ports": [{"name": str(port), "port": port, "targetPort": target} for port, target in sorted(ports)],
        },
    }
    pod = spec["template"]["spec"]
    pod.setdefault("volumes", []).append({"name": "webhook-cert", "secret": {"secretName": secret}})
    for container in pod["containers"]:
        container.setdefault("volumeMounts", []).append({"name": "webhook-cert", "mountPath": SERVING})
    yield {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": _meta(name, namespace) | {"labels": {**given.get("label", {}), **OWNER}},
        "spec": spec,
    }


def _client(webhook: Document, namespace: str, authority: trustme.CA) -> Document:
    service = {"name": f"{webhook['deploymentName']}-service", "namespace": namespace}
    return {
        "service": {**service, "path": webhook["webhookPath"], "port": webhook["containerPort"]},
        "caBundle": base64.b64encode(authority.cert_pem.bytes()).decode(),
    }


def _registered(webhook: Document, namespace: str, authority: trustme.CA) -> Document:
    ours = {"type", "generateName", "webhookPath", "deploymentName", "containerPort", "targetPort"}
    made = {key: value for key, value in webhook.items() if key not in ours}
    return {
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": f"{webhook['type'].removesuffix('AdmissionWebhook')}WebhookConfiguration",
        "metadata": _meta(f"{webhook['generateName']}-olm"),
        "webhooks": [{"name": webhook["generateName"], "clientConfig": _client(webhook, namespace, authority), **made}],
    }


def _converting(definition: Document, webhooks: list[Document], namespace: str, authority: trustme.CA) -> Document:
    for webhook in webhooks:
        if definition["metadata"]["name"] in webhook.get("conversionCRDs", ()):
            client = _client(webhook, namespace, authority)
            versions = webhook["admissionReviewVersions"]
            conversion = {
                "strategy": "Webhook",
                "webhook": {"clientConfig": client, "conversionReviewVersions": versions},
            }
            return {**definition, "spec": {**definition["spec"], "conversion": conversion}}
    return definition
