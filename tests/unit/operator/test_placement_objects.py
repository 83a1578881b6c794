"""What the operator makes."""

import itertools

import msgspec
import pytest

from polyarch.kube.owners import Owner
from polyarch.kube.resources import CLUSTER_ROLES
from polyarch.objects import ObjectKey, ObjectMeta
from polyarch.operator import certificates
from polyarch.operator import operands as workloads
from polyarch.operator.components import placement_objects
from polyarch.operator.settings import DEFAULT_IMAGE, ClusterCapabilities, OperatorSettings
from polyarch.placement import names
from polyarch.placement.api import CPPCS, ClusterPodPlacementConfig, PlacementPolicy
from polyarch.placement.settings import SettingsTable

OWNER = Owner.of(CPPCS, ObjectMeta(name="cluster", uid="u-1"))
CONFIGURATION = msgspec.convert({"metadata": {"name": "cluster"}}, ClusterPodPlacementConfig)
MONITORED = msgspec.convert(
    {"metadata": {"name": "cluster"}, "spec": {"plugins": {"execFormatErrorMonitor": {"enabled": True}}}},
    ClusterPodPlacementConfig,
)
ANYWHERE = ClusterCapabilities(monitoring=True)
OPENSHIFT = ClusterCapabilities(openshift=True, monitoring=True)


def table(**spec):
    policy = msgspec.convert({"spec": spec}, PlacementPolicy) if spec else None
    return SettingsTable.of(policy, None, operator_namespace="polyarch-system")


def made(
    settings=OperatorSettings(),  # noqa: B008 - a frozen value
    cluster=ANYWHERE,
    configuration=CONFIGURATION,
    policy=None,
    **rest,
):
    """Every object by (kind, namespace, name)."""
    found = placement_objects.placement_operands(
        settings, cluster, configuration, policy or table(), **({"owner": OWNER, "ca_bundle": b"CA"} | rest)
    )
    documents = {
        (each["kind"], each["metadata"].get("namespace", ""), each["metadata"]["name"]): each for each in found
    }
    assert len(documents) == len(found), "an object is made twice"
    return documents


def of_kind(documents, kind):
    return {name: each for (found, _, name), each in documents.items() if found == kind}


def pod(documents, name):
    return of_kind(documents, "Deployment")[name]["spec"]["template"]


@pytest.mark.req("PL-002")
def test_the_objects_have_the_names_that_existing_clusters_know():
    """But for those of the monitor."""
    documents = made()
    both = {names.WEBHOOK, names.CONTROLLER}
    for kind in (
        "Deployment",
        "Service",
        "ServiceAccount",
        "ClusterRole",
        "ClusterRoleBinding",
        "Role",
        "RoleBinding",
        "PodDisruptionBudget",
        "NetworkPolicy",
        "ServiceMonitor",
    ):
        assert set(of_kind(documents, kind)) == both, kind
    assert set(of_kind(documents, "PrometheusRule")) == {"multiarch-tuning-operator"}
    assert set(of_kind(documents, "Secret")) == {"polyarch-image-readings"}


@pytest.mark.req("PL-002")
@pytest.mark.parametrize("name", [names.WEBHOOK, names.CONTROLLER])
def test_services_lead_443_to_the_webhook_and_8443_to_the_metrics(name):
    spec = of_kind(made(), "Service")[name]["spec"]
    assert {port["port"]: port["targetPort"] for port in spec["ports"]} == {443: 9443, 8443: 8443}
    assert spec["selector"].items() <= pod(made(), name)["metadata"]["labels"].items()


@pytest.mark.req("PL-002", "PL-500")
@pytest.mark.parametrize("cluster", [ANYWHERE, OPENSHIFT], ids=["anywhere", "OpenShift"])
@pytest.mark.parametrize("configuration", [CONFIGURATION, MONITORED], ids=["placement", "with the monitor"])
def test_every_operand_carries_both_labels(cluster, configuration):
    """By the one the operator finds its objects, by the other the parts of an uninstall."""
    for key, document in made(cluster=cluster, configuration=configuration).items():
        found = document["metadata"]["labels"]
        assert found[names.OPERAND_LABEL] == "pod-placement-controller", key
        assert found[names.CONTROLLER_LABEL] in (
            names.WEBHOOK,
            names.CONTROLLER,
            names.ENOEXEC_HANDLER,
            names.ENOEXEC_DAEMON,
        ), key


@pytest.mark.req("PL-003", "PL-013", "PL-630")
@pytest.mark.parametrize(
    ("configuration", "configs", "finalizers"),
    [
        pytest.param(CONFIGURATION, 0, ["pod-placement"], id="always"),
        pytest.param(CONFIGURATION, 1, ["pod-placement", "no-pod-placement-config"], id="a PodPlacementConfig exists"),
        pytest.param(MONITORED, 0, ["pod-placement", "enoexec-events"], id="with the monitor"),
    ],
)
def test_the_configuration_is_kept_for_what_depends_on_it(configuration, configs, finalizers):
    found = placement_objects.finalizers(configuration, configs=configs)
    assert found == tuple(f"finalizers.multiarch.openshift.io/{name}" for name in finalizers)


@pytest.mark.req("PL-002", "PL-502")
def test_the_deployments_roll_by_a_quarter_and_run_the_roles():
    found = {
        name: (each["spec"]["replicas"], each["spec"]["template"]["spec"]["containers"][0]["args"][:2])
        for name, each in of_kind(made(), "Deployment").items()
    }
    assert found == {
        names.WEBHOOK: (3, ["run", "placement-webhook"]),
        names.CONTROLLER: (2, ["run", "placement-controller"]),
    }
    for each in of_kind(made(), "Deployment").values():
        assert each["spec"]["strategy"] == {
            "type": "RollingUpdate",
            "rollingUpdate": {"maxSurge": "25%", "maxUnavailable": "25%"},
        }


@pytest.mark.req("PL-502")
@pytest.mark.parametrize("name", [names.WEBHOOK, names.CONTROLLER])
def test_pods_are_spread_and_run_where_our_image_does(name):
    """Over hosts and zones, but never pending for it."""
    spec = pod(made(), name)["spec"]
    (zones,) = spec["topologySpreadConstraints"]
    assert (zones["topologyKey"], zones["whenUnsatisfiable"]) == ("topology.kubernetes.io/zone", "ScheduleAnyway")
    (apart,) = spec["affinity"]["podAntiAffinity"]["preferredDuringSchedulingIgnoredDuringExecution"]
    assert (apart["weight"], apart["podAffinityTerm"]["topologyKey"]) == (100, "kubernetes.io/hostname")
    for each in (zones, apart["podAffinityTerm"]):
        assert each["labelSelector"] == {"matchLabels": {"controller": name}}
        assert each["matchLabelKeys"] == ["pod-template-hash"]
    required = spec["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
    (term,) = required["nodeSelectorTerms"]
    assert {"key": "kubernetes.io/arch", "operator": "In", "values": ["amd64", "arm64", "ppc64le", "s390x"]} in term[
        "matchExpressions"
    ]
    assert spec["priorityClassName"] == "system-cluster-critical"


@pytest.mark.req("PL-502", "PL-855")
@pytest.mark.parametrize(
    ("name", "requests", "limit"),
    [
        (names.WEBHOOK, {"cpu": "50m", "memory": "96Mi"}, "256Mi"),
        (names.CONTROLLER, {"cpu": "100m", "memory": "128Mi"}, "512Mi"),
    ],
)
def test_containers_are_limited_and_confined(name, requests, limit):
    """No root, no shell, no write, no capability."""
    spec = pod(made(), name)["spec"]
    (container,) = spec["containers"]
    assert container["resources"] == {"requests": requests, "limits": {"memory": limit}}
    assert spec["securityContext"] == {"runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}}
    assert container["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }
    assert "command" not in container
    assert "lifecycle" not in container
    for probe, path in (("startupProbe", "/healthz"), ("livenessProbe", "/healthz"), ("readinessProbe", "/readyz")):
        assert container[probe]["httpGet"] == {"path": path, "port": "health"}
    assert {port["name"]: port["containerPort"] for port in container["ports"]}["health"] == 8081


@pytest.mark.req("PL-502", "PL-540")
def test_each_pod_listens_on_its_own_address_and_reads_its_certificates():
    (container,) = pod(made(), names.WEBHOOK)["spec"]["containers"]
    assert {
        "--namespace=$(POD_NAMESPACE)",
        "--bind=$(POD_IP)",
        "--cert-dir=/etc/polyarch/certificates",
    } <= set(container["args"])
    found = {each["name"]: each["valueFrom"]["fieldRef"]["fieldPath"] for each in container["env"]}
    assert found == {"POD_NAMESPACE": "metadata.namespace", "POD_NAME": "metadata.name", "POD_IP": "status.podIP"}
    assert container["image"] == DEFAULT_IMAGE


@pytest.mark.req("PL-423", "PL-424")
def test_settings_of_registries_reach_the_roles_that_ask_them_and_no_host_path_is_mounted():
    settings = OperatorSettings(
        global_pull_secret=("infra", "pull"),
        registries_configmap="mirrors",
        allow_addresses=("10.0.0.0/8",),
        deny_addresses=("10.96.0.0/12",),
        proxies=(("HTTPS_PROXY", "http://proxy:3128"),),
    )
    for name in (names.WEBHOOK, names.CONTROLLER):
        template = pod(made(settings, registries="abc"), name)
        (container,) = template["spec"]["containers"]
        assert {
            "--global-pull-secret-namespace=infra",
            "--global-pull-secret-name=pull",
            "--registries-dir=/etc/polyarch/registries",
            "--allow-address=10.0.0.0/8",
            "--deny-address=10.96.0.0/12",
        } <= set(container["args"])
        assert {"name": "HTTPS_PROXY", "value": "http://proxy:3128"} in container["env"]
        assert {"name": "registries", "configMap": {"name": "mirrors"}} in template["spec"]["volumes"]
        assert template["metadata"]["annotations"][workloads.REGISTRIES_DIGEST] == "abc"
    for kind in (ANYWHERE, OPENSHIFT):
        assert "hostPath" not in str(made(settings, kind))


@pytest.mark.req("PL-502")
def test_pods_take_the_settings_of_scheduling():
    """What an administrator may have to change for their nodes."""
    settings = OperatorSettings(
        image="registry.example.com/polyarch@sha256:0",
        image_pull_policy="Always",
        image_pull_secrets=("pull",),
        priority_class="",
        node_selector=("node-role.kubernetes.io/infra=",),
        tolerations=("node-role.kubernetes.io/infra", "team=a:NoSchedule", ""),
        webhook_replicas=5,
    )
    spec = pod(made(settings), names.WEBHOOK)["spec"]
    assert "priorityClassName" not in spec
    assert spec["nodeSelector"] == {"node-role.kubernetes.io/infra": ""}
    assert spec["tolerations"] == [
        {"key": "node-role.kubernetes.io/infra", "operator": "Exists"},
        {"key": "team", "operator": "Equal", "value": "a", "effect": "NoSchedule"},
        {"operator": "Exists"},
    ]
    assert spec["imagePullSecrets"] == [{"name": "pull"}]
    (container,) = spec["containers"]
    assert (container["image"], container["imagePullPolicy"]) == (settings.image, "Always")
    assert of_kind(made(settings), "Deployment")[names.WEBHOOK]["spec"]["replicas"] == 5


@pytest.mark.req("PL-520")
def test_what_removes_the_gates_does_not_belong_to_the_configuration():
    """A foreground deletion must not collect the controller, its rights or its account; the rest may go."""
    for cluster in (ANYWHERE, OPENSHIFT):
        for key, document in made(cluster=cluster, configuration=MONITORED).items():
            controller = document["metadata"]["labels"][names.CONTROLLER_LABEL]
            references = document["metadata"].get("ownerReferences", [])
            assert bool(references) == (controller in (names.WEBHOOK, names.ENOEXEC_DAEMON)), key
            for reference in references:
                assert (reference["kind"], reference["name"], reference["uid"]) == (
                    "ClusterPodPlacementConfig",
                    "cluster",
                    "u-1",
                )
                assert reference["controller"] is True
                assert reference["blockOwnerDeletion"] is False


@pytest.mark.req("PL-520")
def test_while_the_configuration_is_deleted_nothing_belongs_to_it():
    """The operator passes no owner then."""
    assert not any("ownerReferences" in each["metadata"] for each in made(owner=None).values())


@pytest.mark.req("PL-532")
@pytest.mark.parametrize(
    ("settings", "name", "spec"),
    [
        (OperatorSettings(), names.WEBHOOK, {"maxUnavailable": 1}),
        (OperatorSettings(), names.CONTROLLER, {"minAvailable": 1}),
        (OperatorSettings(controller_replicas=1), names.CONTROLLER, {"minAvailable": 0}),
        (OperatorSettings(webhook_replicas=1), names.WEBHOOK, {"maxUnavailable": 1}),
    ],
    ids=["webhook", "controller", "a single controller does not block a drain", "nor does a single webhook"],
)
def test_evictions_leave_enough_pods(settings, name, spec):
    found = of_kind(made(settings), "PodDisruptionBudget")[name]["spec"]
    assert {key: value for key, value in found.items() if key != "selector"} == {
        **spec,
        "unhealthyPodEvictionPolicy": "AlwaysAllow",
    }


@pytest.mark.req("PL-532")
def test_network_policies_let_in_webhooks_scrapes_and_probes():
    for name, ports in ((names.WEBHOOK, [9443, 8443, 8081]), (names.CONTROLLER, [8443, 8081])):
        spec = of_kind(made(), "NetworkPolicy")[name]["spec"]
        assert [port["port"] for rule in spec["ingress"] for port in rule["ports"]] == ports
        assert sorted(spec["policyTypes"]) == ["Egress", "Ingress"]
        dns, beyond = spec["egress"]
        assert {(port["protocol"], port["port"]) for port in dns["ports"]} >= {("UDP", 53), ("TCP", 53)}
        assert beyond["ports"] == [{"protocol": "TCP", "port": 1, "endPort": 65535}]


@pytest.mark.req("PL-532")
def test_the_api_server_is_reached_on_whatever_port_it_listens():
    """Also by the operator and the monitor's handler, which ask no registry; but nothing over UDP but DNS."""
    role = workloads.OperandDeployment(
        name="x", container="x", role="x", replicas=2, cpu="1m", memory="1Mi", memory_limit="2Mi"
    )
    allowed = [
        port for rule in workloads.network_policy(role, OperatorSettings())["spec"]["egress"] for port in rule["ports"]
    ]

    def goes(protocol: str, port: int) -> bool:
        return any(
            (each["protocol"], True) == (protocol, each["port"] <= port <= each.get("endPort", each["port"]))
            for each in allowed
        )

    assert all(goes("TCP", port) for port in (443, 6443, 8443, 16443))
    assert [port for port in (53, 443, 5353) if goes("UDP", port)] == [53, 5353]


@pytest.mark.req("PL-532")
def test_network_policies_can_be_left_out():
    """Setting ``networkPolicies``."""
    assert of_kind(made(OperatorSettings(network_policies=False)), "NetworkPolicy") == {}


MODES = ("self-managed", "cert-manager", "service-ca")


@pytest.mark.req("PL-541")
@pytest.mark.parametrize("mode", MODES)
def test_only_the_objects_and_annotations_of_the_mode_exist(mode):
    settings = OperatorSettings(certificates=mode)
    documents = [
        *made(settings).values(),
        placement_objects.pod_webhook(settings, CONFIGURATION, table(), b"PEM", owner=OWNER),
        *placement_objects.resource_webhooks(settings, b"PEM", owner=OWNER),
        *certificates.issued(settings),
    ]
    text = str(documents)
    assert ("cert-manager.io" in text) == (mode == "cert-manager")
    assert ("service.beta.openshift.io" in text) == (mode == "service-ca")
    assert ("caBundle" in text) == (mode == "self-managed")


@pytest.mark.req("PL-540", "PL-541")
def test_cert_manager_issues_one_certificate_for_every_service():
    issuer, certificate = certificates.issued(OperatorSettings(certificates="cert-manager", namespace="ours"))
    assert issuer["spec"] == {"selfSigned": {}}
    assert certificate["spec"]["secretName"] == "polyarch-certificates"
    assert certificate["spec"]["issuerRef"]["name"] == issuer["metadata"]["name"]
    assert {
        "polyarch-operator.ours.svc",
        "pod-placement-web-hook.ours.svc",
        "pod-placement-web-hook.ours.svc.cluster.local",
        "pod-placement-controller.ours.svc",
        "enoexec-event-handler-controller.ours.svc",
    } <= set(certificate["spec"]["dnsNames"])


@pytest.mark.req("PL-541", "PL-853")
def test_the_service_ca_makes_one_secret_for_each_service_and_the_record_key_stands_beside_it():
    documents = made(OperatorSettings(certificates="service-ca"))
    for name in (names.WEBHOOK, names.CONTROLLER):
        secret = f"{name}-certificates"
        assert of_kind(documents, "Service")[name]["metadata"]["annotations"] == {
            "service.beta.openshift.io/serving-cert-secret-name": secret
        }
        (volume,) = pod(documents, name)["spec"]["volumes"]
        serves, key = (each["secret"] for each in volume["projected"]["sources"])
        assert serves == {"name": secret}
        assert key["name"] == "polyarch-certificates"
        assert key["items"] == [{"key": "record.key", "path": "record.key"}]


@pytest.mark.req("PL-552")
@pytest.mark.parametrize(
    ("settings", "monitored", "level"),
    [({}, False, "restricted"), ({}, True, "privileged"), ({"openshift": True}, True, "privileged")],
    ids=["placement", "monitor", "monitor on OpenShift"],
)
def test_the_namespace_is_restricted_unless_the_monitor_runs_in_it(settings, monitored, level):
    described = placement_objects.namespace_document("ours", privileged=monitored, **settings)["metadata"]
    management = {"workload.openshift.io/allowed": "management"} if settings else {}
    assert described["labels"] == {
        "pod-security.kubernetes.io/enforce": level,
        "pod-security.kubernetes.io/warn": level,
        **management,
    }
    assert described.get("annotations", {}) == management


@pytest.mark.req("PL-551")
def test_on_openshift_pods_run_restricted_though_their_account_may_use_more():
    """The controller may use every constraint, so that it can patch pods bound to one."""
    for name in (names.WEBHOOK, names.CONTROLLER):
        annotations = pod(made(cluster=OPENSHIFT), name)["metadata"]["annotations"]
        assert annotations["openshift.io/required-scc"] == "restricted-v2"
        assert "openshift.io/required-scc" not in pod(made(), name)["metadata"].get("annotations", {})


@pytest.mark.req("PL-424")
def test_openshift_fills_the_config_map_of_trusted_cas():
    assert "multiarch-tuning-operator-trusted-ca" not in of_kind(made(), "ConfigMap")
    found = of_kind(made(cluster=OPENSHIFT), "ConfigMap")["multiarch-tuning-operator-trusted-ca"]
    assert found["metadata"]["labels"]["config.openshift.io/inject-trusted-cabundle"] == "true"


@pytest.mark.req("PL-410", "PL-550")
def test_the_secret_for_readings_exists_only_while_they_are_shared():
    assert of_kind(made(), "Secret")["polyarch-image-readings"]["type"] == "polyarch.dev/image-readings"
    assert of_kind(made(policy=table(images={"shareReadings": False})), "Secret") == {}


@pytest.mark.req("RP-030")
def test_the_config_map_of_the_report_exists_only_while_one_is_kept():
    """The controller fills it; the operator says nothing of its data, and so takes nothing back."""
    report = of_kind(made(policy=table(report={"enabled": True})), "ConfigMap")["polyarch-report"]
    assert "data" not in report
    assert "polyarch-report" not in of_kind(made(), "ConfigMap")


@pytest.mark.req("PL-703", "PL-720")
@pytest.mark.parametrize(
    ("mode", "ca"),
    [
        ("self-managed", {"configMap": {"name": "polyarch-serving-ca", "key": "ca.crt"}}),
        ("cert-manager", {"secret": {"name": "polyarch-certificates", "key": "ca.crt"}}),
        ("service-ca", {"configMap": {"name": "polyarch-serving-ca", "key": "service-ca.crt"}}),
    ],
)
def test_prometheus_scrapes_over_tls_with_its_token(mode, ca):
    documents = made(OperatorSettings(certificates=mode))
    for name, monitor in of_kind(documents, "ServiceMonitor").items():
        (endpoint,) = monitor["spec"]["endpoints"]
        assert (endpoint["scheme"], endpoint["port"], endpoint["path"]) == ("https", "metrics", "/metrics")
        assert endpoint["tlsConfig"] == {"serverName": f"{name}.polyarch-system.svc", "ca": ca}
        assert endpoint["bearerTokenFile"] == "/var/run/secrets/kubernetes.io/serviceaccount/token"
        assert monitor["spec"]["selector"]["matchLabels"].items() <= (
            of_kind(documents, "Service")[name]["metadata"]["labels"].items()
        )
    if "configMap" in ca:
        found = of_kind(documents, "ConfigMap")["polyarch-serving-ca"]
        assert found.get("data", {}) == ({"ca.crt": "CA"} if mode == "self-managed" else {})


@pytest.mark.req("PL-720")
def test_what_prometheus_reads_exists_only_where_its_kinds_do():
    found = made(cluster=ClusterCapabilities())
    assert of_kind(found, "ServiceMonitor") == of_kind(found, "PrometheusRule") == of_kind(found, "ConfigMap") == {}


@pytest.mark.req("PL-500")
def test_the_same_facts_give_the_same_objects():
    """A pass that finds nothing to change writes nothing."""
    for mode, cluster in itertools.product(MODES, (ANYWHERE, OPENSHIFT)):
        settings = OperatorSettings(certificates=mode)
        assert made(settings, cluster) == made(settings, cluster)


@pytest.mark.req("PL-500")
def test_the_operators_own_objects_are_no_operands():
    """Else it would remove itself with what it made."""
    role = workloads.OperandDeployment(
        name=names.OPERATOR, container="x", role="x", replicas=2, cpu="1m", memory="1Mi", memory_limit="2Mi"
    )
    settings = OperatorSettings(certificates="cert-manager")
    own = [
        *workloads.operand_objects(role, settings, ANYWHERE),
        *certificates.issued(settings),
        *placement_objects.resource_webhooks(
            settings, b"", owner=Owner(CLUSTER_ROLES, ObjectKey("", names.OPERATOR), "u-2")
        ),
    ]
    for document in own:
        assert document["metadata"]["labels"] == {names.CONTROLLER_LABEL: "polyarch-operator"}
