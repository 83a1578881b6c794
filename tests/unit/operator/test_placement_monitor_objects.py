"""The objects of the exec-format-error monitor."""

import msgspec
import pytest
from test_placement_objects import ANYWHERE, MONITORED, OPENSHIFT, OWNER, made, of_kind

from polyarch.kube.rbac import Permission, grants
from polyarch.operator.components import placement_objects
from polyarch.operator.settings import ClusterCapabilities, OperatorSettings
from polyarch.placement import names
from polyarch.placement.api import ClusterPodPlacementConfig

BOTH = {names.ENOEXEC_HANDLER, names.ENOEXEC_DAEMON}
SETTINGS = OperatorSettings()


def added(**rest):
    """What the monitor adds, by (kind, namespace, name)."""
    without = made(**rest)
    return {key: each for key, each in made(configuration=MONITORED, **rest).items() if key not in without}


def daemon_pod(settings=SETTINGS, cluster=ANYWHERE):
    return placement_objects.daemon_set(settings, cluster)["spec"]["template"]


@pytest.mark.req("PL-002")
def test_the_objects_have_the_predecessors_names():
    """Of the DaemonSet there is all but a Service."""
    documents = added(cluster=OPENSHIFT)
    for kind in ("ServiceAccount", "ClusterRole", "ClusterRoleBinding", "Role", "RoleBinding"):
        assert set(of_kind(documents, kind)) == BOTH, kind
    for kind in ("Deployment", "Service", "ServiceMonitor", "PodDisruptionBudget", "NetworkPolicy"):
        assert set(of_kind(documents, kind)) == {names.ENOEXEC_HANDLER}, kind
    assert set(of_kind(documents, "DaemonSet")) == {names.ENOEXEC_DAEMON}
    assert set(of_kind(documents, "PrometheusRule")) == {"execformaterrormonitor", "execformaterrorsdetected"}


@pytest.mark.req("PL-630", "PL-900")
def test_all_that_the_monitor_adds_is_found_by_its_labels():
    """What is deleted by these labels includes both PrometheusRules."""
    for key, document in added(cluster=OPENSHIFT).items():
        labels = document["metadata"]["labels"]
        assert labels[names.OPERAND_LABEL] == names.OPERAND, key
        assert labels[names.CONTROLLER_LABEL] in BOTH, key


@pytest.mark.req("PL-600")
def test_a_disabled_monitor_has_no_objects():
    assert not {name for _, _, name in made(cluster=OPENSHIFT)} & BOTH


@pytest.mark.req("PL-520", "PL-630")
def test_only_the_node_side_may_be_collected_with_the_configuration():
    """The handler has to consume the last events first."""
    for document in added().values():
        owners = document["metadata"].get("ownerReferences", [])
        of_nodes = document["metadata"]["labels"][names.CONTROLLER_LABEL] == names.ENOEXEC_DAEMON
        assert [each["uid"] for each in owners] == ([OWNER.uid] if of_nodes else [])


@pytest.mark.req("PL-003")
def test_the_handler_is_kept_by_the_finalizer():
    (deployment,) = of_kind(added(), "Deployment").values()
    assert deployment["metadata"]["finalizers"] == ["finalizers.multiarch.openshift.io/enoexec-events"]
    assert deployment["spec"]["replicas"] == 2


@pytest.mark.req("PL-600")
def test_the_node_side_runs_on_every_linux_node():
    """Whatever its taints; a node selector of the other roles leaves no node unwatched."""
    pod = daemon_pod(OperatorSettings(node_selector=("pool=infra",), tolerations=("infra",)))["spec"]
    assert pod["tolerations"] == [{"operator": "Exists"}]
    assert "nodeSelector" not in pod
    (term,) = pod["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"]
    assert {each["key"]: each["values"] for each in term["matchExpressions"]} == {
        "kubernetes.io/arch": ["amd64", "arm64", "ppc64le", "s390x"],
        "kubernetes.io/os": ["linux"],
    }


@pytest.mark.req("PL-631")
def test_the_node_side_is_root_without_any_capability():
    """Not privileged, and it sees tracefs and the pods' logs alone."""
    pod = daemon_pod()["spec"]
    (container,) = pod["containers"]
    assert pod["hostPID"] is True
    assert not {"hostNetwork", "hostIPC", "hostUsers"} & pod.keys()
    assert container["securityContext"] == {
        "runAsUser": 0,
        "runAsGroup": 0,
        "runAsNonRoot": False,
        "privileged": False,
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
        "seccompProfile": {"type": "RuntimeDefault"},
        "appArmorProfile": {"type": "Unconfined"},
        "seLinuxOptions": {"type": "spc_t"},
    }
    paths = {each["name"]: each["hostPath"]["path"] for each in pod["volumes"]}
    assert paths == {"tracefs": "/sys/kernel/tracing", "pod-logs": "/var/log/pods"}
    assert {each["name"]: each.get("readOnly", False) for each in container["volumeMounts"]} == {
        "tracefs": False,
        "pod-logs": True,
    }


@pytest.mark.req("PL-600")
def test_each_side_is_told_which_it_is():
    (container,) = daemon_pod()["spec"]["containers"]
    assert container["args"][:4] == ["run", "exec-monitor", "--side=node", "--node-name=$(NODE_NAME)"]
    assert {each["name"] for each in container["env"]} >= {"NODE_NAME", "POD_NAMESPACE", "POD_IP"}
    (deployment,) = of_kind(added(), "Deployment").values()
    (handler,) = deployment["spec"]["template"]["spec"]["containers"]
    assert {"run", "exec-monitor", "--side=handler"} <= set(handler["args"])


@pytest.mark.req("PL-010")
def test_both_sides_log_as_the_configuration_says():
    """They may not read it, so they get a flag."""
    spec = {"logVerbosity": "Debug", "plugins": {"execFormatErrorMonitor": {"enabled": True}}}
    loud = msgspec.convert({"metadata": {"name": "cluster"}, "spec": spec}, ClusterPodPlacementConfig)
    for configuration, says in ((MONITORED, False), (loud, True)):
        documents = made(configuration=configuration)
        for kind, name in (("Deployment", names.ENOEXEC_HANDLER), ("DaemonSet", names.ENOEXEC_DAEMON)):
            (container,) = of_kind(documents, kind)[name]["spec"]["template"]["spec"]["containers"]
            assert ("--verbose" in container["args"]) is says


@pytest.mark.req("PL-550", "PL-605")
def test_the_node_side_may_write_reports_and_read_nothing():
    rights = placement_objects.monitor_permissions(SETTINGS, ClusterCapabilities())[names.ENOEXEC_DAEMON]
    assert rights.cluster == ()
    group = names.GROUP
    assert grants(rights.namespaces[SETTINGS.namespace]) == [
        Permission("create", group, "enoexecevents"),
        Permission("patch", group, "enoexecevents/status"),
    ]
    on_openshift = placement_objects.monitor_permissions(SETTINGS, ClusterCapabilities(openshift=True))[
        names.ENOEXEC_DAEMON
    ]
    assert grants(on_openshift.cluster) == [
        Permission("use", "security.openshift.io", "securitycontextconstraints", "privileged")
    ]
    assert daemon_pod(cluster=OPENSHIFT)["metadata"]["annotations"] == {"openshift.io/required-scc": "privileged"}


@pytest.mark.req("PL-850")
def test_no_key_lies_on_the_nodes():
    """The Secret of certificates has the webhook's key."""
    volumes = daemon_pod()["spec"]["volumes"]
    assert all(set(each) == {"name", "hostPath"} for each in volumes)
