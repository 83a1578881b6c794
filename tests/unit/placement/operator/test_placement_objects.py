"""The objects of the roles: the smallest rights that work, and manifests that say the same (PL-002, PL-100, PL-550)."""

from pathlib import Path

import pytest
import yaml

from polyarch.placement import names
from polyarch.placement.operator import objects

DEPLOY = Path(__file__).parents[4] / "deploy" / "kustomize"
EVERYTHING = objects.Parts(node_aware=True, openshift=True, global_pull_secret=("openshift-config", "pull-secret"))


def key(document):
    metadata = document["metadata"]
    return document["kind"], metadata.get("namespace", ""), metadata["name"]


def manifests(*paths: str):
    """Every document of the manifests, by what it is."""
    documents = [
        document
        for path in paths
        for file in sorted(DEPLOY.glob(path))
        for document in yaml.safe_load_all(file.read_text())
        if document["kind"] not in ("Kustomization", "Component")
    ]
    return {key(document): document for document in documents}


def rules(documents):
    """(role, group, resource, verb, name) of every right that is granted."""
    return {
        (document["metadata"]["name"], document["kind"], group, resource, verb, name)
        for document in documents
        if document["kind"] in ("Role", "ClusterRole")
        for rule in document["rules"]
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
        for name in rule.get("resourceNames", [""])
    }


def test_the_manifests_say_what_the_functions_say():
    """PL-002, PL-550: deploy/kustomize is the same list, so neither can go its own way."""
    wanted = [
        objects.namespace(),
        *objects.service_accounts(),
        *objects.rbac(EVERYTHING),
        objects.webhook_configuration(),
    ]
    found = manifests("*.yaml", "openshift/rbac.yaml", "node-aware/rbac.yaml")
    workloads = {each for each in found if each[0] in ("Deployment", "Service")}
    assert {key(document): document for document in wanted} == {
        each: document for each, document in found.items() if each not in workloads
    }


@pytest.mark.parametrize(("role", "replicas"), [(names.CONTROLLER, 2), (names.WEBHOOK, 3)])
def test_deployments_and_services_have_the_names_and_ports_that_existing_clusters_know(role, replicas):
    """PL-002, PL-502."""
    found = manifests("*.yaml")
    deployment = found["Deployment", "polyarch-system", role]
    assert deployment["spec"]["replicas"] == replicas
    template = deployment["spec"]["template"]
    assert template["spec"]["serviceAccountName"] == role
    for labels in (deployment["metadata"]["labels"], template["metadata"]["labels"]):
        assert labels == {names.OPERAND_LABEL: names.OPERAND, names.CONTROLLER_LABEL: role}
    container = template["spec"]["containers"][0]
    assert container["securityContext"]["readOnlyRootFilesystem"] is True
    assert container["securityContext"]["capabilities"] == {"drop": ["ALL"]}
    ports = {port["port"]: port["targetPort"] for port in found["Service", "polyarch-system", role]["spec"]["ports"]}
    assert ports == ({443: 9443, 8443: 8443} if role == names.WEBHOOK else {8443: 8443})


def test_no_host_path_is_mounted():
    """PL-424."""
    for each, document in manifests("*.yaml", "openshift/*.yaml").items():
        if each[0] == "Deployment":
            volumes = document["spec"]["template"]["spec"]["volumes"]
            assert not any("hostPath" in volume for volume in volumes)


def test_secrets_are_read_by_name_and_never_enumerated():
    """PL-421, PL-550: list and watch only where a name stands beside them."""
    granted = rules(objects.rbac(EVERYTHING))
    assert {verb for _, _, _, resource, verb, name in granted if resource == "secrets" and not name} == {"get"}
    assert {name for *_, resource, verb, name in granted if resource == "secrets" and verb == "list"} == {"pull-secret"}


def test_nobody_may_update_or_delete_pods_and_the_webhook_may_not_even_read_them():
    """PL-550, PL-102."""
    granted = rules(objects.rbac(EVERYTHING))
    of_pods = {(role, verb) for role, _, _, resource, verb, _ in granted if resource == "pods"}
    assert of_pods == {(names.CONTROLLER, verb) for verb in ("get", "list", "watch", "patch")}
    assert not any("*" in right for right in granted)


@pytest.mark.parametrize(
    ("parts", "resource"),
    [
        (objects.Parts(node_aware=True), "nodes"),
        (objects.Parts(openshift=True), "imagedigestmirrorsets"),
        (objects.Parts(openshift=True), "securitycontextconstraints"),
    ],
    ids=["nodes only if node-aware", "mirrors only on OpenShift", "constraints only on OpenShift"],
)
def test_rights_for_optional_parts_are_granted_only_with_them(parts, resource):
    """PL-550, PL-551."""
    assert any(resource == right[3] for right in rules(objects.rbac(parts)))
    assert not any(resource == right[3] for right in rules(objects.rbac()))


def test_every_role_is_bound_to_its_own_account():
    """PL-550."""
    documents = {key(document): document for document in objects.rbac(EVERYTHING)}
    for kind, place, name in list(documents):
        if kind.endswith("Binding"):
            binding = documents[kind, place, name]
            assert (binding["roleRef"]["kind"], place, name) in documents
            for subject in binding["subjects"]:
                assert subject["namespace"] == "polyarch-system"
                assert name in (subject["name"], *EXTRA)


EXTRA = {
    "pod-placement-nodes",
    "pod-placement-registries",
    "pod-placement-constraints",
    "pod-placement-pull-secret",
}


def test_the_registration_of_the_webhook():
    """PL-100."""
    (webhook,) = objects.webhook_configuration()["webhooks"]
    assert webhook["name"] == "pod-placement-scheduling-gate.multiarch.openshift.io"
    assert webhook["clientConfig"]["service"]["path"] == "/add-pod-scheduling-gate"
    assert webhook["failurePolicy"] == "Ignore"
    assert webhook["reinvocationPolicy"] == "IfNeeded"
    assert webhook["timeoutSeconds"] == 5
    assert webhook["sideEffects"] == "None"
    assert "matchConditions" not in webhook


def test_the_namespace_selector_is_copied_and_a_url_takes_the_place_of_the_service():
    """PL-100, PL-010."""
    selector = {"matchExpressions": [{"key": "a", "operator": "Exists"}]}
    document = objects.webhook_configuration(
        url="https://127.0.0.1:9443/", ca_bundle=b"PEM", namespace_selector=selector
    )
    (webhook,) = document["webhooks"]
    assert webhook["namespaceSelector"] == selector
    assert webhook["clientConfig"] == {"url": "https://127.0.0.1:9443/add-pod-scheduling-gate", "caBundle": "UEVN"}


def test_excluded_namespaces_cost_no_call():
    """PL-100: the same names and prefixes as in the rule; the ones in the selector, the others as CEL."""
    own = {"key": "placed", "operator": "Exists"}
    (webhook,) = objects.webhook_configuration(
        namespace_selector={"matchLabels": {"a": "b"}, "matchExpressions": [own]},
        excluded_namespaces=["build-cache", "vendor-*", "a"],
    )["webhooks"]
    named = {"key": "kubernetes.io/metadata.name", "operator": "NotIn", "values": ["a", "build-cache"]}
    assert webhook["namespaceSelector"] == {"matchLabels": {"a": "b"}, "matchExpressions": [own, named]}
    (condition,) = webhook["matchConditions"]
    assert condition["expression"] == '!(request.namespace.startsWith("vendor-"))'


def test_pl_100_without_prefixes_no_cel_is_evaluated_for_each_pod():
    """PL-100: it costs the API server more than the whole of an admission costs us."""
    (webhook,) = objects.webhook_configuration(excluded_namespaces=["build-cache"])["webhooks"]
    assert "matchConditions" not in webhook
