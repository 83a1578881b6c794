"""The webhook configurations: what the API server asks us about, and for which namespaces (PL-100)."""

from polyarch.placement.operator import webhooks


def test_the_registration_of_the_webhook():
    """PL-100."""
    (webhook,) = webhooks.webhook_configuration()["webhooks"]
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
    document = webhooks.webhook_configuration(
        url="https://127.0.0.1:9443/", ca_bundle=b"PEM", namespace_selector=selector
    )
    (webhook,) = document["webhooks"]
    assert webhook["namespaceSelector"] == selector
    assert webhook["clientConfig"] == {"url": "https://127.0.0.1:9443/add-pod-scheduling-gate", "caBundle": "UEVN"}


def test_excluded_namespaces_cost_no_call():
    """PL-100: the same names and prefixes as in the rule; the ones in the selector, the others as CEL."""
    own = {"key": "placed", "operator": "Exists"}
    (webhook,) = webhooks.webhook_configuration(
        namespace_selector={"matchLabels": {"a": "b"}, "matchExpressions": [own]},
        excluded_namespaces=["build-cache", "vendor-*", "a"],
    )["webhooks"]
    named = {"key": "kubernetes.io/metadata.name", "operator": "NotIn", "values": ["a", "build-cache"]}
    assert webhook["namespaceSelector"] == {"matchLabels": {"a": "b"}, "matchExpressions": [own, named]}
    (condition,) = webhook["matchConditions"]
    assert condition["expression"] == '!(request.namespace.startsWith("vendor-"))'


def test_pl_100_without_prefixes_no_cel_is_evaluated_for_each_pod():
    """PL-100: it costs the API server more than the whole of an admission costs us."""
    (webhook,) = webhooks.webhook_configuration(excluded_namespaces=["build-cache"])["webhooks"]
    assert "matchConditions" not in webhook
