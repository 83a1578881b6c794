"""The pods of the exporters, as a kubelet and an admin meet them."""

import ast
from typing import Any

import pytest
from numa_cluster import PREFIX, Json, exporter, flags, found, names, nodes, operator, planned, pod, pool

from polyarch.operator.components.numa_exporter_objects import SLEEPER
from polyarch.selectors import admits

WORKERS = {"poolName": "worker"}
AMD64 = {"kubernetes.io/arch": "amd64", "kubernetes.io/os": "linux"}


def annotated(**annotations: str) -> Json:
    return {
        **WORKERS,
        "annotations": {f"{PREFIX}{name.replace('_', '-')}": value for name, value in annotations.items()},
    }


def paths(document: Json) -> dict[str, str]:
    """Where the container finds directories of the node."""
    sources = {each["name"]: each["hostPath"]["path"] for each in document["volumes"] if "hostPath" in each}
    mounts = document["containers"][0]["volumeMounts"]
    return {each["mountPath"]: sources[each["name"]] for each in mounts if each["name"] in sources}


class TestNodes:
    @pytest.mark.req("NO-033", "NO-035", "NO-053")
    @pytest.mark.parametrize(
        ("entry", "there", "not_there"),
        [
            (WORKERS, {"node-role.kubernetes.io/worker": ""}, {"node-role.kubernetes.io/master": ""}),
            ({"nodeSelector": {"matchLabels": {"zone": "a"}}}, {"zone": "a"}, {"zone": "b"}),
            (
                {"nodeSelector": {"matchExpressions": [{"key": "zone", "operator": "NotIn", "values": ["a", "b"]}]}},
                {"zone": "c"},
                {"zone": "b"},
            ),
            ({"nodeSelector": {"matchExpressions": [{"key": "a", "operator": "DoesNotExist"}]}}, {}, {"a": "x"}),
        ],
        ids=["role", "label", "not in", "absent"],
    )
    def test_the_pods_run_on_the_nodes_of_the_group(self, entry: Json, there: Json, not_there: Json) -> None:
        """As the scheduler judges."""
        made = planned({**entry, "poolName": "worker"}) if "nodeSelector" in entry else planned(entry)
        required = pod(made)["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
        assert admits(required["nodeSelectorTerms"], AMD64 | there)
        assert not admits(required["nodeSelectorTerms"], AMD64 | not_there)

    @pytest.mark.req("NO-035")
    def test_every_node_that_runs_the_image(self) -> None:
        made = planned({"poolName": "all", "nodeSelector": {}})
        required = pod(made, "all")["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
        assert admits(required["nodeSelectorTerms"], AMD64)

    @pytest.mark.req("NO-031")
    def test_the_nodes_of_a_pool(self) -> None:
        made = planned({"poolName": "cnf"}, platform="openshift", pools=(pool("cnf"),))
        required = pod(made, "cnf")["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
        assert admits(required["nodeSelectorTerms"], AMD64 | {"node-role.kubernetes.io/cnf": ""})

    @pytest.mark.req("NO-053")
    def test_never_two_on_one_node(self) -> None:
        """Not even of two groups."""
        made = planned(WORKERS)
        (apart,) = pod(made)["affinity"]["podAntiAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
        template = found(made, "DaemonSet")["spec"]["template"]["metadata"]["labels"]
        assert apart["labelSelector"]["matchLabels"].items() <= template.items()
        assert apart["topologyKey"] == "kubernetes.io/hostname"

    @pytest.mark.req("NO-056")
    def test_the_pods_run_where_their_image_does(self) -> None:
        (terms,) = pod(planned(WORKERS, image_architectures=("arm64",)))["affinity"]["nodeAffinity"].values()
        worker = {"node-role.kubernetes.io/worker": "", "kubernetes.io/os": "linux"}
        assert admits(terms["nodeSelectorTerms"], worker | {"kubernetes.io/arch": "arm64"})
        assert not admits(terms["nodeSelectorTerms"], worker | {"kubernetes.io/arch": "amd64"})

    @pytest.mark.req("NO-002")
    def test_taints(self) -> None:
        """Every taint is tolerated, unless the group says which; a bare Exists is accepted."""
        assert pod(planned(WORKERS))["tolerations"] == [{"operator": "Exists"}]
        mine = {"key": "dedicated", "operator": "Equal", "value": "numa", "effect": "NoSchedule"}
        assert pod(planned({**WORKERS, "config": {"tolerations": [mine]}}))["tolerations"] == [mine]


class TestPods:
    @pytest.mark.req("NO-051")
    def test_names_and_labels(self) -> None:
        made = planned(WORKERS)
        for kind in ("DaemonSet", "ConfigMap"):
            metadata = found(made, kind)["metadata"]
            assert metadata["name"] == "numaresourcesoperator-worker"
            assert {
                "numaresourcesoperator.nodetopology.openshift.io/name": "numaresourcesoperator",
                "nodegroup.nodetopology.openshift.io/machineconfigpool": "worker",
            }.items() <= metadata["labels"].items()

    @pytest.mark.req("NO-051")
    def test_long_names_are_cut_and_stay_apart(self) -> None:
        """63 characters, with a digest of 8."""
        made = planned(
            {"poolName": "a" * 62 + "b", "nodeSelector": {"matchLabels": {"a": "b"}}},
            {"poolName": "a" * 62 + "c", "nodeSelector": {"matchLabels": {"a": "c"}}},
        )
        one, other = names(made, "DaemonSet")
        assert one != other
        assert one.startswith("numaresourcesoperator-aaa")
        assert len(one) == len(other) == 63

    @pytest.mark.req("NO-053")
    def test_selector_and_labels(self) -> None:
        spec = found(planned(WORKERS), "DaemonSet")["spec"]
        selected = spec["selector"]["matchLabels"]
        assert selected == {
            "name": "resource-topology",
            "nodegroup.nodetopology.openshift.io/machineconfigpool": "worker",
        }
        assert selected.items() <= spec["template"]["metadata"]["labels"].items()

    @pytest.mark.req("NO-053")
    def test_how_pods_run_and_are_replaced(self) -> None:
        made = planned(WORKERS)
        spec = pod(made)
        assert [each["conditionType"] for each in spec["readinessGates"]] == [
            "PodresourcesFetched",
            "NodeTopologyUpdated",
        ]
        assert (spec["priorityClassName"], spec["serviceAccountName"]) == ("system-node-critical", "rte")
        update = found(made, "DaemonSet")["spec"]["updateStrategy"]
        assert update == {"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": "25%"}}
        assert exporter(made)["terminationMessagePolicy"] == "FallbackToLogsOnError"

    @pytest.mark.req("NO-053", "NO-113")
    def test_a_change_of_the_configuration_replaces_the_pods(self) -> None:
        """By the digest of its content; the same content again replaces nothing."""

        def hashed(**spec: Any) -> str:
            template = found(planned(given=operator(WORKERS, **spec)), "DaemonSet")["spec"]["template"]
            return str(template["metadata"]["annotations"][f"{PREFIX}config-hash"])

        excluded = [{"namespace": "kube-system", "name": "*"}]
        assert hashed() != hashed(podExcludes=excluded)
        assert hashed(podExcludes=excluded) == hashed(podExcludes=excluded)

    @pytest.mark.req("NO-056")
    def test_resources(self) -> None:
        assert exporter(planned(WORKERS))["resources"] == {
            "requests": {"cpu": "30m", "memory": "64Mi"},
            "limits": {"memory": "128Mi"},
        }

    @pytest.mark.req("NE-142", "NO-056")
    def test_confined(self) -> None:
        """Root of the node, and nothing that root could do."""
        context = exporter(planned(WORKERS))["securityContext"]
        assert (context["runAsUser"], context["privileged"], context["allowPrivilegeEscalation"]) == (0, False, False)
        assert context["capabilities"] == {"drop": ["ALL"]}
        assert context["readOnlyRootFilesystem"] is True
        assert context["seccompProfile"] == {"type": "RuntimeDefault"}

    @pytest.mark.req("NE-121")
    @pytest.mark.parametrize(("authority", "scheme"), [(True, "HTTPS"), (False, None)])
    def test_the_kubelet_asks_where_the_exporter_serves(self, authority: bool, scheme: str | None) -> None:
        """Health is served beside the metrics."""
        container = exporter(planned(WORKERS, has_own_authority=authority))
        (port,) = container["ports"]
        assert (port["name"], port["containerPort"]) == ("metrics", 2112)
        for probe in ("startupProbe", "livenessProbe", "readinessProbe"):
            asked = container[probe]["httpGet"]
            assert (asked["port"], asked.get("scheme")) == ("metrics", scheme)

    @pytest.mark.req("NO-054")
    def test_the_exporter_knows_its_node_and_its_pod(self) -> None:
        variables = {
            each["name"]: each["valueFrom"]["fieldRef"]["fieldPath"] for each in exporter(planned(WORKERS))["env"]
        }
        assert variables.items() >= {
            ("NODE_NAME", "spec.nodeName"),
            ("HOST_IP", "status.hostIP"),
            ("POD_NAME", "metadata.name"),
            ("POD_NAMESPACE", "metadata.namespace"),
        }


class TestReferenceContainer:
    @pytest.mark.req("NO-054")
    def test_there_is_none_by_default(self) -> None:
        """Kubelets since 1.30 need none."""
        (only,) = pod(planned(WORKERS))["containers"]
        assert not any(each["name"].startswith("REFERENCE") for each in only["env"])

    @pytest.mark.req("NE-065", "NO-054")
    def test_one_by_annotation(self) -> None:
        """It sleeps without a shell, and ends when it is told to."""
        made = planned(annotated(reference_container="enabled"))
        main, reference = pod(made)["containers"]
        assert (reference["name"], reference["image"]) == ("shared-pool-container", main["image"])
        assert reference["command"] == ["python3", "-c", SLEEPER]
        assert (reference["securityContext"]["runAsUser"], reference["securityContext"]["runAsGroup"]) == (65532, 65532)
        assert "sigwait" in {node.attr for node in ast.walk(ast.parse(SLEEPER)) if isinstance(node, ast.Attribute)}
        variables = {each["name"]: each.get("value") for each in main["env"]}
        assert variables["REFERENCE_CONTAINER_NAME"] == "shared-pool-container"
        assert {"REFERENCE_NAMESPACE", "REFERENCE_POD_NAME"} <= variables.keys()

    @pytest.mark.req("NO-101")
    @pytest.mark.parametrize("value", ["true", "disabled", ""])
    def test_any_other_value_is_none(self, value: str) -> None:
        assert len(pod(planned(annotated(reference_container=value)))["containers"]) == 1


class TestMounts:
    @pytest.mark.req("NE-142", "NO-055")
    def test_directories_of_the_node_are_read_only(self) -> None:
        made = planned(WORKERS)
        assert paths(pod(made)) == {
            "/host-sys": "/sys",
            "/host-podresources": "/var/lib/kubelet/pod-resources",
            "/host-kubelet": "/var/lib/kubelet",
        }
        assert all(each["readOnly"] for each in exporter(made)["volumeMounts"])

    @pytest.mark.req("NO-055")
    def test_volumes_that_pods_let_go_are_not_held(self) -> None:
        """They are mounted below the kubelet's directory, so what the host unmounts goes here, too."""
        mounts = exporter(planned(WORKERS))["volumeMounts"]
        propagated = {each["mountPath"]: each.get("mountPropagation") for each in mounts}
        assert propagated["/host-kubelet"] == "HostToContainer"

    @pytest.mark.req("NO-055")
    @pytest.mark.parametrize(
        ("settings", "entry", "root"),
        [
            ({"kubelet_root": "/var/lib/k0s/kubelet"}, WORKERS, "/var/lib/k0s/kubelet"),
            ({}, annotated(kubelet_root="/var/snap/microk8s/common/var/lib/kubelet"), None),
            ({"kubelet_root": "/other"}, annotated(kubelet_root="/var/lib/rancher/kubelet"), None),
        ],
        ids=["flag", "annotation", "annotation wins"],
    )
    def test_other_directories_of_the_kubelet(self, settings: Json, entry: Json, root: str | None) -> None:
        """k3s, MicroK8s, k0s."""
        root = root or entry["annotations"][f"{PREFIX}kubelet-root"]
        found_paths = paths(pod(planned(entry, settings=settings)))
        assert found_paths["/host-podresources"] == f"{root}/pod-resources"
        assert found_paths["/host-kubelet"] == root

    @pytest.mark.req("NO-055")
    def test_without_the_state_of_the_kubelet(self) -> None:
        made = planned(annotated(kubelet_state="disabled"))
        assert "/host-kubelet" not in paths(pod(made))
        assert not any("/host-kubelet" in each for each in flags(made))

    @pytest.mark.req("NO-055", "NO-062")
    def test_the_notify_file_is_where_it_is_mounted(self) -> None:
        """With the hook of OpenShift's legacy policy, and nowhere else."""
        legacy = {
            **WORKERS,
            "config": {"infoRefreshMode": "Events"},
            "annotations": {"config.node.openshift-kni.io/selinux-policy": "custom"},
        }
        one = pool("worker", status={"conditions": [{"type": "Updated", "status": "True"}]})
        one["status"]["configuration"] = {"source": [{"name": "51-numaresourcesoperator-worker"}]}
        made = planned(legacy, platform="openshift", pools=(one,))
        assert paths(pod(made))["/host-run-rte"] == "/run/rte"
        assert "--notify-file=/host-run-rte/notify" in flags(made)
        assert "/host-run-rte" not in paths(pod(planned(legacy)))
        assert not any("notify" in each for each in flags(planned(legacy)))

    @pytest.mark.req("NO-052")
    def test_the_file_of_the_group_is_read_by_the_exporter(self) -> None:
        """The directory is the one of additional configuration below the default root."""
        made = planned(WORKERS)
        volumes = {each["name"]: each for each in pod(made)["volumes"]}
        (mounted,) = (each for each in exporter(made)["volumeMounts"] if each["name"] == "config")
        assert mounted["mountPath"] == "/etc/rte/extra"
        assert volumes["config"]["configMap"]["name"] == found(made, "ConfigMap")["metadata"]["name"]
        assert list(found(made, "ConfigMap")["data"]) == ["config.yaml"]

    @pytest.mark.req("NO-064")
    def test_secrets_are_mounted_just_with_tls(self) -> None:
        def secrets(made: Any) -> list[str]:
            return [each["secret"]["secretName"] for each in pod(made)["volumes"] if "secret" in each]

        assert secrets(planned(WORKERS)) == ["rte-metrics-service-cert"]
        assert secrets(planned(WORKERS, has_own_authority=False)) == []


@pytest.mark.req("NO-051")
def test_groups_have_a_daemon_set_each() -> None:
    """Their nodes do not overlap, nor do their pods."""
    made = planned(
        {"poolName": "left", "nodeSelector": {"matchLabels": {"zone": "a"}}},
        {"poolName": "right", "nodeSelector": {"matchLabels": {"zone": "b"}}},
        nodes=(*nodes("a", zone="a"), *nodes("b", zone="b")),
    )
    assert names(made, "DaemonSet") == names(made, "ConfigMap")
    selectors = [
        each["spec"]["selector"]["matchLabels"] for each in made.documents or () if each["kind"] == "DaemonSet"
    ]
    assert selectors[0] != selectors[1]
