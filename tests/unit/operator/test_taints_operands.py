"""The objects of the role: everywhere it can run, reachable, watched, and forgotten by nobody."""

from typing import Any

import msgspec
import pytest

from polyarch import names as shared
from polyarch.operator import certificates
from polyarch.operator.components import placement_objects
from polyarch.operator.components.taints_objects import taints_operands
from polyarch.operator.owned_objects import part_of
from polyarch.operator.settings import ClusterCapabilities, OperatorSettings
from polyarch.taints import names
from polyarch.taints.settings import PRESET_KEYS, TaintSettings

USUAL = TaintSettings()


def made(
    settings: OperatorSettings | None = None,
    cluster: ClusterCapabilities | None = None,
    taints: TaintSettings = USUAL,
    **options: Any,
) -> dict[tuple[str, str], dict[str, Any]]:
    documents = taints_operands(
        settings or OperatorSettings(), cluster or ClusterCapabilities(), taints, ca_bundle=b"CA", **options
    )
    return {(each["kind"], each["metadata"]["name"]): each for each in documents}


def pod(**options: Any) -> dict[str, Any]:
    template: dict[str, Any] = made(**options)["Deployment", names.ROLE]["spec"]["template"]["spec"]
    return template


@pytest.mark.req("TN-003")
def test_two_replicas_serve_and_one_leads():
    deployment = made()["Deployment", names.ROLE]
    assert deployment["spec"]["replicas"] == 2
    (container,) = deployment["spec"]["template"]["spec"]["containers"]
    assert container["args"][:2] == ["run", "taints"]
    assert "--cert-dir=/etc/polyarch/certificates" in container["args"]
    assert made()["Service", names.ROLE]["spec"]["ports"][0]["targetPort"] == 9443


@pytest.mark.req("TN-081", "TN-094")
def test_its_pods_run_on_every_architecture_of_the_image_whatever_the_taint():
    """Also where every node is tainted, and before anybody adds a toleration."""
    wanted = {"key": "kubernetes.io/arch", "operator": "In", "values": ["amd64", "arm64", "ppc64le", "s390x"]}
    required = pod()["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
    assert wanted in required["nodeSelectorTerms"][0]["matchExpressions"]
    assert pod()["tolerations"] == [{"key": "supported-arch", "operator": "Exists"}]


@pytest.mark.req("TN-011", "TN-081")
@pytest.mark.parametrize("preset", PRESET_KEYS)
def test_it_tolerates_the_key_in_force_and_what_its_values_say(preset):
    taints = TaintSettings.of({"taint": {"preset": preset}})
    tolerations = pod(settings=OperatorSettings(tolerations=("dedicated=infra:NoSchedule",)), taints=taints)
    assert [each["key"] for each in tolerations["tolerations"]] == ["dedicated", PRESET_KEYS[preset]]


@pytest.mark.req("TN-081")
def test_a_toleration_that_is_there_is_not_added_again():
    settings = OperatorSettings(tolerations=("supported-arch",))
    assert settings.tolerating("supported-arch") == settings


@pytest.mark.req("TN-081")
def test_evictions_are_granted_only_with_them():
    def rules(change: str) -> str:
        taints = TaintSettings.of({"pods": {"imageChange": change}})
        return str(made(taints=taints)["ClusterRole", names.ROLE]["rules"])

    assert "pods/eviction" in rules("evict")
    assert "pods/eviction" not in rules("event")


@pytest.mark.req("TN-003")
def test_everything_is_of_one_part_that_placement_does_not_touch():
    """Each feature is pruned and removed by itself."""
    cluster = ClusterCapabilities(openshift=True, monitoring=True)
    parts = {each["metadata"]["labels"][shared.OPERAND_LABEL] for each in made(cluster=cluster).values()}
    assert parts == {shared.TAINTS}
    assert part_of(placement_objects.webhook_deployment(OperatorSettings()).name) != shared.TAINTS
    assert all(
        each["metadata"]["labels"]["app.kubernetes.io/part-of"] == "polyarch" for each in made(cluster=cluster).values()
    )


@pytest.mark.req("TN-083")
def test_it_is_scraped_and_alerts_exist_where_their_kinds_do():
    with_monitoring = made(cluster=ClusterCapabilities(monitoring=True))
    assert ("PrometheusRule", names.ROLE) in with_monitoring
    monitor = with_monitoring["ServiceMonitor", names.ROLE]["spec"]["endpoints"][0]
    assert monitor["tlsConfig"]["ca"] == {"configMap": {"name": "polyarch-taints-serving-ca", "key": "ca.crt"}}
    assert with_monitoring["ConfigMap", "polyarch-taints-serving-ca"]["data"] == {"ca.crt": "CA"}
    assert not {kind for kind, _ in made()} & {"PrometheusRule", "ServiceMonitor", "ConfigMap"}


@pytest.mark.req("TN-003")
@pytest.mark.parametrize("mode", ["self-managed", "cert-manager", "service-ca"])
def test_its_service_has_a_certificate_in_every_mode(mode):
    """With the names by which the API server calls it."""
    settings = msgspec.structs.replace(OperatorSettings(), certificates=mode)
    assert certificates.names_of(names.ROLE, settings.namespace)[0] in certificates.dns_names(settings.namespace)
    objects = made(settings=settings)
    (volume,) = (each for each in pod(settings=settings)["volumes"] if each["name"] == "certificates")
    annotations = objects["Service", names.ROLE]["metadata"].get("annotations", {})
    if mode == "service-ca":
        (secret,) = annotations.values()
        assert volume["projected"]["sources"][0]["secret"]["name"] == secret == "polyarch-taints-certificates"
    else:
        assert volume["secret"]["secretName"] == shared.CERTIFICATES_SECRET
    if mode == "cert-manager":
        (certificate,) = (each for each in certificates.issued(settings) if each["kind"] == "Certificate")
        assert set(certificates.names_of(names.ROLE, settings.namespace)) <= set(certificate["spec"]["dnsNames"])


@pytest.mark.req("TN-031")
@pytest.mark.parametrize("openshift", [False, True])
@pytest.mark.parametrize("placed", [False, True])
def test_on_openshift_the_cas_of_registries_are_there_once(openshift, placed):
    """One ConfigMap serves both features; placement makes it where it is on."""
    found = made(cluster=ClusterCapabilities(openshift=openshift), placed=placed)
    assert (("ConfigMap", shared.TRUSTED_CA) in found) == (openshift and not placed)


@pytest.mark.req("TN-003")
def test_network_policies_follow_the_settings():
    """As for the other roles."""
    assert ("NetworkPolicy", names.ROLE) in made()
    assert ("NetworkPolicy", names.ROLE) not in made(settings=OperatorSettings(network_policies=False))
    assert ("PodDisruptionBudget", names.ROLE) in made()
