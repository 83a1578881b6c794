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
    @pytest.mark.req("NO-050")
    def test_service(self) -> None:
        made = planned(WORKERS)
        service = found(made, "Service", "numaresources-rte-metrics-service")["spec"]
        labels = found(made, "DaemonSet")["spec"]["template"]["metadata"]["labels"]
        assert service["selector"].items() <= labels.items()
        assert [each["port"] for each in service["ports"]] == [2112]

    @pytest.mark.req("NO-050")
    def test_policies_let_scrapes_in_and_requests_out(self) -> None:
        """The port of the API server is that of its endpoints, and not a fixed one."""
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

    @pytest.mark.req("NO-050")
    def test_the_kubelets_port_only_where_it_is_asked(self) -> None:
        """With configz."""
        egress = ports(found(planned(WORKERS, **OPENSHIFT), "NetworkPolicy", "rte-egress-to-api-server"), "egress")
        assert ("TCP", 10250) not in egress

    @pytest.mark.req("NO-050")
    def test_without_network_policies(self) -> None:
        """As for all roles, the operator can be told to make none."""
        assert names(planned(WORKERS, settings={"network_policies": False}), "NetworkPolicy") == []


class TestRights:
    @pytest.mark.req("NO-050")
    def test_names(self) -> None:
        made = planned(WORKERS)
        for kind in ("ServiceAccount", "Role", "RoleBinding", "ClusterRole", "ClusterRoleBinding"):
            assert names(made, kind) == ["rte"]

    @pytest.mark.req("NE-140", "NO-058")
    def test_exactly_these(self) -> None:
        """Patch is among them."""
        made = planned(WORKERS)
        assert rules(made, "ClusterRole") == {
            ("topology.node.k8s.io", "noderesourcetopologies"): {"get", "list", "watch", "create", "update", "patch"},
            ("", "nodes"): {"get", "list", "watch"},
            ("", "nodes/configz"): {"get"},
        }
        assert rules(made, "Role") == {("", "pods"): {"get"}, ("", "pods/status"): {"patch"}}

    @pytest.mark.req("NO-058")
    def test_only_what_is_in_use(self) -> None:
        """On OpenShift the kubelet is not asked."""
        assert ("", "nodes/configz") not in rules(planned(WORKERS, **OPENSHIFT), "ClusterRole")

    @pytest.mark.req("NO-058")
    def test_bound_to_the_exporters_account(self) -> None:
        made = planned(WORKERS, settings={"numa_namespace": "numaresources"})
        for kind in ("RoleBinding", "ClusterRoleBinding"):
            assert found(made, kind)["subjects"] == [
                {"kind": "ServiceAccount", "name": "rte", "namespace": "numaresources"}
            ]


class TestPolicy:
    """One ServiceAccount, and every exporter bound to its own node."""

    @pytest.mark.req("NE-141", "NO-058")
    def test_policy_and_binding(self) -> None:
        made = planned(WORKERS, version=(1, 32))
        policy = found(made, "ValidatingAdmissionPolicy")
        binding = found(made, "ValidatingAdmissionPolicyBinding")["spec"]
        assert binding == {"policyName": policy["metadata"]["name"], "validationActions": ["Deny"]}
        (condition,) = policy["spec"]["matchConditions"]
        assert condition["expression"] == 'request.userInfo.username == "system:serviceaccount:polyarch-system:rte"'
        resources = [each["resources"] for each in policy["spec"]["matchConstraints"]["resourceRules"]]
        assert resources == [["noderesourcetopologies"], ["pods/status"]]

    @pytest.mark.req("NE-141")
    @pytest.mark.parametrize(
        ("version", "strict"), [((1, 30), False), ((1, 31), False), ((1, 32), True), ((2, 0), True)]
    )
    def test_tokens_without_a_node_pass_where_they_may_lack_it(self, version: tuple[int, int], strict: bool) -> None:
        """Clusters that put node and pod names in tokens."""
        made = planned(WORKERS, version=version)
        for each in found(made, "ValidatingAdmissionPolicy")["spec"]["validations"]:
            assert ("(!(has(request.userInfo.extra)" in each["expression"]) != strict


class TestOpenShift:
    @pytest.mark.req("NO-057")
    def test_constraints(self) -> None:
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

    @pytest.mark.req("NO-057")
    def test_no_machine_config_without_the_annotation(self) -> None:
        assert names(planned(WORKERS, **OPENSHIFT), "MachineConfig") == []


class TestConfigMap:
    def content(self, made: ExporterPlan, group: str = "worker") -> Any:
        return json.loads(found(made, "ConfigMap", f"numaresourcesoperator-{group}")["data"]["config.yaml"])

    @pytest.mark.req("NO-052")
    def test_never_empty(self) -> None:
        """On vanilla the exporter reads the kubelet itself."""
        assert self.content(planned(WORKERS)) == {}

    @pytest.mark.req("NO-002", "NO-052")
    def test_excluded_pods(self) -> None:
        excluded = [{"namespace": "kube-*", "name": "*"}]
        made = planned(given=operator(WORKERS, podExcludes=excluded))
        assert self.content(made) == {"podExclude": [{"namespacePattern": "kube-*", "namePattern": "*"}]}

    @pytest.mark.req("NO-052")
    def test_the_kubelet_of_a_pool(self) -> None:
        """Missing keys are none and container."""
        assert self.content(planned(WORKERS, **OPENSHIFT)) == {
            "kubelet": {"topologyManagerPolicy": "none", "topologyManagerScope": "container"}
        }
