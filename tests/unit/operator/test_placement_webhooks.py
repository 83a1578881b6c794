"""The webhook configurations: what the API server asks us about, and for which namespaces."""

import msgspec
import pytest

from polyarch.kube.owners import Owner
from polyarch.objects import ObjectKey
from polyarch.operator.components import placement_objects
from polyarch.operator.settings import OperatorSettings
from polyarch.placement import names
from polyarch.placement.api import CPPCS, ClusterPodPlacementConfig, PlacementPolicy
from polyarch.placement.settings import SettingsTable


@pytest.mark.req("PL-100")
def test_the_registration_of_the_webhook():
    (webhook,) = placement_objects.webhook_configuration()["webhooks"]
    assert webhook["name"] == "pod-placement-scheduling-gate.multiarch.openshift.io"
    assert webhook["clientConfig"]["service"]["path"] == "/add-pod-scheduling-gate"
    assert webhook["failurePolicy"] == "Ignore"
    assert webhook["reinvocationPolicy"] == "IfNeeded"
    assert webhook["timeoutSeconds"] == 5
    assert webhook["sideEffects"] == "None"
    assert "matchConditions" not in webhook


@pytest.mark.req("PL-010", "PL-100")
def test_the_namespace_selector_is_copied_and_a_url_takes_the_place_of_the_service():
    selector = {"matchExpressions": [{"key": "a", "operator": "Exists"}]}
    document = placement_objects.webhook_configuration(
        url="https://127.0.0.1:9443/", ca_bundle=b"PEM", namespace_selector=selector
    )
    (webhook,) = document["webhooks"]
    assert webhook["namespaceSelector"] == selector
    assert webhook["clientConfig"] == {"url": "https://127.0.0.1:9443/add-pod-scheduling-gate", "caBundle": "UEVN"}


@pytest.mark.req("PL-100")
def test_excluded_namespaces_cost_no_call():
    """The same names and prefixes as in the rule; the ones in the selector, the others as CEL."""
    own = {"key": "placed", "operator": "Exists"}
    (webhook,) = placement_objects.webhook_configuration(
        namespace_selector={"matchLabels": {"a": "b"}, "matchExpressions": [own]},
        excluded_namespaces=["build-cache", "vendor-*", "a"],
    )["webhooks"]
    named = {"key": "kubernetes.io/metadata.name", "operator": "NotIn", "values": ["a", "build-cache"]}
    assert webhook["namespaceSelector"] == {"matchLabels": {"a": "b"}, "matchExpressions": [own, named]}
    (condition,) = webhook["matchConditions"]
    assert condition["expression"] == '!(request.namespace.startsWith("vendor-"))'


@pytest.mark.req("PL-100")
def test_without_prefixes_no_cel_is_evaluated_for_each_pod():
    """It costs the API server more than the whole of an admission costs us."""
    (webhook,) = placement_objects.webhook_configuration(excluded_namespaces=["build-cache"])["webhooks"]
    assert "matchConditions" not in webhook


def table(**spec):
    return SettingsTable.of(
        msgspec.convert({"spec": spec}, PlacementPolicy), None, operator_namespace="polyarch-system"
    )


CONFIGURATION = msgspec.convert(
    {
        "metadata": {"name": "cluster"},
        "spec": {"namespaceSelector": {"matchExpressions": [{"key": "a", "operator": "In", "values": ["b", "c"]}]}},
    },
    ClusterPodPlacementConfig,
)
OWNER = Owner(CPPCS, ObjectKey("", "cluster"), "u-1")


@pytest.mark.req("PL-100", "PL-500")
def test_the_pod_webhook_follows_configuration_and_policy():
    """Selector of the one, exclusions of the other, our CA, and it belongs to the configuration."""
    document = placement_objects.pod_webhook(
        OperatorSettings(namespace="ours"), CONFIGURATION, table(excludedNamespaces=["x", "y-*"]), b"PEM", owner=OWNER
    )
    webhook, probe = document["webhooks"]
    assert probe["clientConfig"] == webhook["clientConfig"]
    assert probe["namespaceSelector"] == {"matchLabels": {"kubernetes.io/metadata.name": "ours"}}
    assert webhook["namespaceSelector"]["matchExpressions"] == [
        {"key": "a", "operator": "In", "values": ["b", "c"]},
        {"key": "kubernetes.io/metadata.name", "operator": "NotIn", "values": ["x"]},
    ]
    assert webhook["matchConditions"][0]["expression"] == '!(request.namespace.startsWith("y-"))'
    assert webhook["clientConfig"]["service"]["namespace"] == "ours"
    assert webhook["clientConfig"]["caBundle"] == "UEVN"
    assert [each["uid"] for each in document["metadata"]["ownerReferences"]] == ["u-1"]


def resource_webhooks():
    found = {}
    for document in placement_objects.resource_webhooks(OperatorSettings(), b"PEM", owner=None):
        found |= {webhook["name"]: (document["kind"], webhook) for webhook in document["webhooks"]}
    return found


@pytest.mark.req("PL-002", "PL-011", "PL-012", "PL-013", "PL-031")
@pytest.mark.parametrize(
    ("name", "kind", "path", "policies", "versions", "operations", "resource"),
    [
        (
            names.CPPC_WEBHOOK,
            "ValidatingWebhookConfiguration",
            "/validate-multiarch-openshift-io-v1beta1-clusterpodplacementconfig",
            ("Fail", "Equivalent"),
            ["v1beta1"],
            ["CREATE", "UPDATE", "DELETE"],
            "clusterpodplacementconfigs",
        ),
        (
            names.PPC_WEBHOOK,
            "ValidatingWebhookConfiguration",
            "/validate-multiarch-openshift-io-v1beta1-podplacementconfig",
            ("Fail", "Equivalent"),
            ["v1beta1"],
            ["CREATE", "UPDATE"],
            "podplacementconfigs",
        ),
        (
            names.CPPC_DEFAULTS,
            "MutatingWebhookConfiguration",
            names.CPPC_DEFAULTS_PATH,
            ("Ignore", "Exact"),
            ["v1alpha1", "v1beta1"],
            ["CREATE"],
            "clusterpodplacementconfigs",
        ),
        (
            names.CPPC_KEPT,
            "MutatingWebhookConfiguration",
            names.CPPC_KEPT_PATH,
            ("Fail", "Exact"),
            ["v1alpha1"],
            ["UPDATE"],
            "clusterpodplacementconfigs",
        ),
    ],
    ids=["PL-011", "PL-031", "PL-013", "PL-012"],
)
def test_the_webhooks_of_our_resources(name, kind, path, policies, versions, operations, resource):
    found_kind, webhook = resource_webhooks()[name]
    assert found_kind == kind
    assert (webhook["failurePolicy"], webhook["matchPolicy"]) == policies
    (rule,) = webhook["rules"]
    assert (rule["apiVersions"], rule["operations"], rule["resources"]) == (versions, operations, [resource])
    service = webhook["clientConfig"]["service"]
    assert (service["name"], service["path"]) == ("polyarch-operator", path)


@pytest.mark.req("PL-520")
def test_the_operator_never_waits_for_its_own_webhooks():
    """Finalizers must come off even while no replica serves."""
    for _, webhook in resource_webhooks().values():
        (condition,) = webhook["matchConditions"]
        assert condition["expression"] == (
            'request.userInfo.username != "system:serviceaccount:polyarch-system:polyarch-operator"'
        )
