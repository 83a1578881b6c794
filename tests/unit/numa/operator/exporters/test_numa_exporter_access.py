"""Who reaches the exporters, what they reach, and what they may do."""

import json
from typing import Any

import pytest
from numa_cluster import Json, found, names, operator, planned, pool

from polyarch.operator.components.numa_facts import ExporterPlan

WORKERS = {"poolName": "worker"}
OPENSHIFT: Json = {"platform": "openshift", "pools": (pool("worker"),)}


def rules(made: ExporterPlan, kind: str) -> dict[tuple[str, str], set[str]]:
    """Verbs by group and resource."""
    return {
        (group, resource): set(each["verbs"])
        for each in found(made, kind)["rules"]
        for group in each["apiGroups"]
        for resource in each["resources"]
    }


def ports(policy: Json, direction: str) -> set[tuple[str, int]]:
    return {(port["protocol"], port["port"]) for each in policy["spec"][direction] for port in each["ports"]}


class TestNetwork:
    """NO-050."""

    def test_no_050_service(self) -> None:
        """NO-050."""
        made = planned(WORKERS)
        service = found(made, "Service", "numaresources-rte-metrics-service")["spec"]
        labels = found(made, "DaemonSet")["spec"]["template"]["metadata"]["labels"]
        assert service["selector"].items() <= labels.items()
        assert [each["port"] for each in service["ports"]] == [2112]

    def test_no_050_policies_let_scrapes_in_and_requests_out(self) -> None:
        """NO-050, §15: the port of the API server is that of its endpoints, and not a fixed one."""
        made = planned(WORKERS, api_server_ports=(16443,))
        denied = found(made, "NetworkPolicy", "rte-default-deny-all")["spec"]
        assert denied == {
            "podSelector": {"matchLabels": {"name": "resource-topology"}},
            "policyTypes": ["Ingress", "Egress"],
        }
        egress = ports(found(made, "NetworkPolicy", "rte-egress-to-api-server"), "egress")
        assert {("TCP", 16443), ("TCP", 10250), ("UDP", 53), ("TCP", 53)} <= egress
        assert ("TCP", 6443) not in egress
        assert ports(found(made, "NetworkPolicy", "ingress-to-rte-metrics"), "ingress") == {("TCP", 2112)}

    def test_no_050_the_kubelets_port_only_where_it_is_asked(self) -> None:
        """NO-050: with configz."""
        egress = ports(found(planned(WORKERS, **OPENSHIFT), "NetworkPolicy", "rte-egress-to-api-server"), "egress")
        assert ("TCP", 10250) not in egress

    def test_no_050_without_network_policies(self) -> None:
        """NO-050: as for all roles, the operator can be told to make none."""
        assert names(planned(WORKERS, settings={"network_policies": False}), "NetworkPolicy") == []


class TestRights:
    """NO-058, NE-140."""

    def test_no_050_names(self) -> None:
        """NO-050."""
        made = planned(WORKERS)
        for kind in ("ServiceAccount", "Role", "RoleBinding", "ClusterRole", "ClusterRoleBinding"):
            assert names(made, kind) == ["rte"]

    def test_ne_140_exactly_these(self) -> None:
        """NE-140, NO-058, §15: patch is among them."""
        made = planned(WORKERS)
        assert rules(made, "ClusterRole") == {
            ("topology.node.k8s.io", "noderesourcetopologies"): {"get", "list", "watch", "create", "update", "patch"},
            ("", "nodes"): {"get", "list", "watch"},
            ("", "nodes/configz"): {"get"},
        }
        assert rules(made, "Role") == {("", "pods"): {"get"}, ("", "pods/status"): {"patch"}}

    def test_no_058_only_what_is_in_use(self) -> None:
        """NO-058: on OpenShift the kubelet is not asked."""
        assert ("", "nodes/configz") not in rules(planned(WORKERS, **OPENSHIFT), "ClusterRole")

    def test_no_058_bound_to_the_exporters_account(self) -> None:
        """NO-058."""
        made = planned(WORKERS, settings={"numa_namespace": "numaresources"})
        for kind in ("RoleBinding", "ClusterRoleBinding"):
            assert found(made, kind)["subjects"] == [
                {"kind": "ServiceAccount", "name": "rte", "namespace": "numaresources"}
            ]


class TestPolicy:
    """NE-141: one ServiceAccount, and every exporter bound to its own node."""

    def test_ne_141_policy_and_binding(self) -> None:
        """NE-141, NO-058."""
        made = planned(WORKERS, version=(1, 32))
        policy = found(made, "ValidatingAdmissionPolicy")
        binding = found(made, "ValidatingAdmissionPolicyBinding")["spec"]
        assert binding == {"policyName": policy["metadata"]["name"], "validationActions": ["Deny"]}
        (condition,) = policy["spec"]["matchConditions"]
        assert condition["expression"] == 'request.userInfo.username == "system:serviceaccount:polyarch-system:rte"'
        resources = [each["resources"] for each in policy["spec"]["matchConstraints"]["resourceRules"]]
        assert resources == [["noderesourcetopologies"], ["pods/status"]]

    @pytest.mark.parametrize(
        ("version", "strict"), [((1, 30), False), ((1, 31), False), ((1, 32), True), ((2, 0), True)]
    )
    def test_ne_141_tokens_without_a_node_pass_where_they_may_lack_it(
        self, version: tuple[int, int], strict: bool
    ) -> None:
        """NE-141: clusters that put node and pod names in tokens."""
        made = planned(WORKERS, version=version)
        for each in found(made, "ValidatingAdmissionPolicy")["spec"]["validations"]:
            assert ("(!(has(request.userInfo.extra)" in each["expression"]) != strict


class TestOpenShift:
    """NO-057."""

    def test_no_057_constraints(self) -> None:
        """NO-057."""
        made = planned(WORKERS, **OPENSHIFT)
        assert names(made, "SecurityContextConstraints") == [
            "resource-topology-exporter",
            "resource-topology-exporter-v2",
        ]
        present = found(made, "SecurityContextConstraints", "resource-topology-exporter-v2")
        assert present["users"] == ["system:serviceaccount:polyarch-system:rte"]
        assert present["allowPrivilegedContainer"] is False
        template = found(made, "DaemonSet")["spec"]["template"]
        assert template["metadata"]["annotations"]["openshift.io/required-scc"] == "resource-topology-exporter-v2"
        volumes = {next(name for name in each if name != "name") for each in template["spec"]["volumes"]}
        assert volumes <= {*present["volumes"]} | {"configMap", "secret", "hostPath"}
        assert names(planned(WORKERS), "SecurityContextConstraints") == []

    def test_no_057_no_machine_config_without_the_annotation(self) -> None:
        """NO-057."""
        assert names(planned(WORKERS, **OPENSHIFT), "MachineConfig") == []


class TestConfigMap:
    """NO-052."""

    def content(self, made: ExporterPlan, group: str = "worker") -> Any:
        return json.loads(found(made, "ConfigMap", f"numaresourcesoperator-{group}")["data"]["config.yaml"])

    def test_no_052_never_empty(self) -> None:
        """NO-052: on vanilla the exporter reads the kubelet itself."""
        assert self.content(planned(WORKERS)) == {}

    def test_no_052_excluded_pods(self) -> None:
        """NO-002, NO-052."""
        excluded = [{"namespace": "kube-*", "name": "*"}]
        made = planned(given=operator(WORKERS, podExcludes=excluded))
        assert self.content(made) == {"podExclude": [{"namespacePattern": "kube-*", "namePattern": "*"}]}

    def test_no_052_the_kubelet_of_a_pool(self) -> None:
        """NO-052: missing keys are none and container."""
        assert self.content(planned(WORKERS, **OPENSHIFT)) == {
            "kubelet": {"topologyManagerPolicy": "none", "topologyManagerScope": "container"}
        }
