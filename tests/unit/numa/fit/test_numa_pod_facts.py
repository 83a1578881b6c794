"""A pod of the API server as scheduling by cells sees it."""

from typing import Any

import msgspec
import pytest

from polyarch.numa.fit.facts import PodFacts, PodObject, pod_facts
from polyarch.quantity import InvalidQuantity

WHOLE = {"cpu": "1", "memory": "1Gi"}


def facts(spec: dict[str, Any], **others: Any) -> PodFacts:
    return pod_facts(msgspec.convert({"metadata": {"name": "p"}, "spec": spec, **others}, PodObject))


def container(name: str = "a", **resources: Any) -> dict[str, Any]:
    return {"name": name, "resources": resources}


@pytest.mark.req("NS-001")
@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        pytest.param({"containers": [container(limits=WHOLE)]}, "Guaranteed", id="limits-alone"),
        pytest.param({"containers": [container(requests=WHOLE, limits=WHOLE)]}, "Guaranteed", id="both"),
        pytest.param({"containers": [container(requests=WHOLE)]}, "Burstable", id="no-limits"),
        pytest.param({"containers": [container(limits={"cpu": "1"})]}, "Burstable", id="no-memory"),
        pytest.param(
            {"containers": [container(requests={"cpu": "500m"}, limits=WHOLE)]}, "Burstable", id="less-than-the-limit"
        ),
        pytest.param({"containers": [container(limits=WHOLE), container("b")]}, "Burstable", id="one-without"),
        pytest.param(
            {"initContainers": [container("i")], "containers": [container(limits=WHOLE)]}, "Burstable", id="init-counts"
        ),
        pytest.param({"containers": [container(limits={"example.com/nic": "1"})]}, "BestEffort", id="devices-alone"),
        pytest.param({"containers": [container(requests={"cpu": "0"})]}, "BestEffort", id="nothing"),
        pytest.param({"containers": None}, "BestEffort", id="no-containers"),
        pytest.param(
            {"resources": {"limits": WHOLE}, "containers": [container(requests={"cpu": "1"})]},
            "Guaranteed",
            id="the-pod-itself-decides",
        ),
        pytest.param(
            {"resources": {"requests": WHOLE}, "containers": [container(limits=WHOLE)]}, "Burstable", id="and-alone"
        ),
    ],
)
def test_quality_of_service_is_computed_as_kubernetes_does(spec: dict[str, Any], expected: str) -> None:
    assert facts(spec).qos == expected


@pytest.mark.req("NS-001")
def test_the_status_says_it_if_it_is_set() -> None:
    """It was decided when the pod was made; a text that is no class decides nothing."""
    spec = {"containers": [container(limits=WHOLE)]}
    assert facts(spec, status={"qosClass": "Burstable"}).qos == "Burstable"
    assert facts(spec, status={"qosClass": "Golden"}).qos == "Guaranteed"


@pytest.mark.req("NS-001")
def test_a_missing_request_is_that_of_the_limit() -> None:
    """Per resource."""
    found = facts({"containers": [container(requests={"cpu": "1"}, limits={"cpu": "2", "example.com/nic": 1})]})
    assert found.containers[0].requests == {"cpu": 1000, "example.com/nic": 1000}


@pytest.mark.req("NS-001", "NS-050")
def test_containers_come_in_the_order_of_their_start() -> None:
    """A sidecar is an init container that stays."""
    found = facts(
        {
            "containers": [container("a"), container("b")],
            "initContainers": [container("i"), {"name": "s", "restartPolicy": "Always"}, container("j")],
        }
    )
    assert [(each.name, each.kind) for each in found.containers] == [
        ("i", "init"), ("s", "sidecar"), ("j", "init"), ("a", "app"), ("b", "app"),
    ]  # fmt: skip


@pytest.mark.req("NS-163")
def test_what_is_no_quantity_is_named_with_its_place() -> None:
    with pytest.raises(InvalidQuantity, match="container a: limits: cpu: 'many' is not a quantity"):
        facts({"containers": [container(limits={"cpu": "many"})]})


@pytest.mark.req("NS-101")
def test_claims_of_volumes_and_devices_are_seen() -> None:
    """Binding such a pod may take long."""
    assert not facts({"volumes": [{"name": "x", "emptyDir": {}}]}).has_claims
    assert facts({"volumes": [{"name": "x", "persistentVolumeClaim": {"claimName": "y"}}]}).has_claims
    assert facts({"volumes": [{"name": "x", "ephemeral": {}}]}).has_claims
    assert facts({"resourceClaims": [{"name": "x"}]}).has_claims
