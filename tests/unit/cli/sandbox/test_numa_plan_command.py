"""``polyarch run operator --plan FILE…``: what the NUMA operator would do, for review, without a cluster."""

from pathlib import Path
from typing import Any

import pytest
import yaml

from polyarch.cli import main

Json = dict[str, Any]

OPERATOR = """\
apiVersion: nodetopology.openshift.io/v1
kind: NUMAResourcesOperator
metadata:
  name: numaresourcesoperator
spec:
  nodeGroups:
  - poolName: worker
"""
NODES = """\
apiVersion: v1
kind: List
items:
- {apiVersion: v1, kind: Node, metadata: {name: one, labels: {node-role.kubernetes.io/worker: ""}}}
- {apiVersion: v1, kind: Node, metadata: {name: two, labels: {node-role.kubernetes.io/worker: ""}}}
- {apiVersion: v1, kind: Node, metadata: {name: lead, labels: {node-role.kubernetes.io/control-plane: ""}}}
"""


class Shop:
    """Files, and the command on them."""

    def __init__(self, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
        self.folder = folder
        self.capsys = capsys

    def run(self, *texts: str, flags: tuple[str, ...] = (), role: str = "operator") -> tuple[int, list[Json], str]:
        """Exit code, documents, what was said besides."""
        files = []
        for number, text in enumerate(texts):
            path = self.folder / f"{number}.yaml"
            path.write_text(text)
            files.append(str(path))
        code = main(["run", role, *flags, "--plan", *files])
        out, err = self.capsys.readouterr()
        return code, [each for each in yaml.safe_load_all(out) if each], err


@pytest.fixture
def shop(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Shop:
    return Shop(tmp_path, capsys)


def of_kind(documents: list[Json], kind: str) -> Json:
    (found,) = (each for each in documents if each["kind"] == kind)
    return found


@pytest.mark.req("NO-040")
def test_plan_prints_objects_and_status(shop: Shop) -> None:
    """CRs and nodes as YAML in, YAML out."""
    code, documents, said = shop.run(OPERATOR, NODES)
    assert code == 0
    assert of_kind(documents, "DaemonSet")["metadata"]["name"] == "numaresourcesoperator-worker"
    status = documents[-1]["status"]
    assert (documents[-1]["kind"], documents[-1]["metadata"]) == (
        "NUMAResourcesOperator",
        {"name": "numaresourcesoperator"},
    )
    assert {each["type"]: each["status"] for each in status["conditions"]}["Progressing"] == "True"
    assert "node group worker: 2 nodes (one, two)" in said
    assert "the operator signs Secret polyarch-system/rte-metrics-service-cert" in said


@pytest.mark.req("NO-040", "NO-050", "NO-055")
def test_plan_takes_the_operators_flags(shop: Shop) -> None:
    """The same flags as in the cluster."""
    flags = ("--numa-namespace", "numaresources", "--kubelet-root", "/var/lib/k0s/kubelet", "--image", "example/a:1")
    _, documents, _ = shop.run(OPERATOR, flags=flags)
    daemon_set = of_kind(documents, "DaemonSet")
    assert daemon_set["metadata"]["namespace"] == "numaresources"
    pod = daemon_set["spec"]["template"]["spec"]
    assert pod["containers"][0]["image"] == "example/a:1"
    assert {"path": "/var/lib/k0s/kubelet", "type": "Directory"} in [each.get("hostPath") for each in pod["volumes"]]


@pytest.mark.req("NO-036", "NO-038")
def test_plan_of_an_object_that_is_degraded(shop: Shop) -> None:
    """Exit code 1, and nothing but the status."""
    code, documents, said = shop.run(OPERATOR.replace("poolName: worker", "poolName: Worker"), NODES)
    assert code == 1
    (only,) = documents
    (told,) = (each["message"] for each in only["status"]["conditions"] if each["type"] == "Degraded")
    assert "nodeGroups[0] (Worker)" in told
    assert "nothing is created, changed or deleted" in said


@pytest.mark.req("NO-040", "NO-100")
def test_plan_of_a_paused_object(shop: Shop) -> None:
    annotations = "  annotations: {config.numa-operator.openshift.io/pause-reconciliation: enabled}\nspec:"
    code, documents, said = shop.run(OPERATOR.replace("spec:", annotations))
    assert (code, documents) == (0, [])
    assert "reconciliation is paused" in said


@pytest.mark.req("NO-030", "NO-031", "NO-110")
def test_plan_knows_the_platform_from_its_objects(shop: Shop) -> None:
    """What `oc get -o yaml` prints is enough."""
    cluster = """\
apiVersion: config.openshift.io/v1
kind: ClusterVersion
metadata: {name: version}
---
apiVersion: machineconfiguration.openshift.io/v1
kind: MachineConfigPool
metadata: {name: worker, labels: {a: b}}
spec: {nodeSelector: {matchLabels: {node-role.kubernetes.io/worker: ""}}}
---
apiVersion: machineconfiguration.openshift.io/v1
kind: KubeletConfig
metadata: {name: numa}
spec:
  machineConfigPoolSelector: {matchLabels: {a: b}}
  kubeletConfig: {topologyManagerPolicy: single-numa-node}
"""
    _, documents, _ = shop.run(OPERATOR, NODES, cluster)
    assert "single-numa-node" in of_kind(documents, "ConfigMap")["data"]["config.yaml"]
    assert [each["metadata"]["name"] for each in documents if each["kind"] == "SecurityContextConstraints"]


@pytest.mark.req("NO-110")
def test_plan_reads_the_configuration_of_node_pools(shop: Shop) -> None:
    """HyperShift keeps it as text in a ConfigMap."""
    cluster = """\
apiVersion: v1
kind: ConfigMap
metadata:
  name: numa-blue
  namespace: openshift-config-managed
  labels: {hypershift.openshift.io/kubeletconfig-config: "true", hypershift.openshift.io/nodePool: worker}
data:
  config: |
    apiVersion: machineconfiguration.openshift.io/v1
    kind: KubeletConfig
    spec: {kubeletConfig: {topologyManagerPolicy: restricted}}
"""
    _, documents, _ = shop.run(OPERATOR, cluster, flags=("--platform", "hypershift"))
    made = [each for each in documents if each["kind"] == "ConfigMap"]
    assert "restricted" in made[0]["data"]["config.yaml"]


SCHEDULER = """\
apiVersion: nodetopology.openshift.io/v1
kind: NUMAResourcesScheduler
metadata:
  name: numaresourcesscheduler
spec:
  schedulerName: mine
"""
MASTER = """\
apiVersion: v1
kind: Node
metadata: {name: lead, labels: {node-role.kubernetes.io/control-plane: ""}}
status: {nodeInfo: {kubeletVersion: v1.34.1}}
"""


@pytest.mark.req("NO-080", "NO-082", "NO-084")
def test_plan_of_the_scheduler(shop: Shop) -> None:
    """Where it runs and with which image follows from the nodes."""
    code, documents, _ = shop.run(SCHEDULER, MASTER)
    assert code == 0
    deployment = of_kind(documents, "Deployment")
    assert deployment["metadata"]["name"] == "secondary-scheduler"
    assert deployment["spec"]["replicas"] == 1
    images = {each["name"]: each["image"] for each in deployment["spec"]["template"]["spec"]["containers"]}
    assert images["secondary-scheduler"].startswith("registry.k8s.io/kube-scheduler:v1.34.")
    assert documents[-1]["status"]["schedulerName"] == "mine"


@pytest.mark.req("NO-013")
def test_plan_says_that_mode_compat_is_removed(shop: Shop) -> None:
    annotated = "metadata:\n  annotations: {numa.polyarch.dev/scheduling-mode: compat}"
    code, _, said = shop.run(SCHEDULER.replace("metadata:", annotated), MASTER)
    assert code == 0
    assert "mode compat is removed and read as exact" in said


@pytest.mark.req("NO-082")
def test_plan_of_a_scheduler_that_cannot_run(shop: Shop) -> None:
    """Exit code 1; the other plan is printed all the same."""
    code, documents, said = shop.run(SCHEDULER, OPERATOR)
    assert code == 1
    assert of_kind(documents, "DaemonSet")
    assert "nothing is created, changed or deleted for NUMAResourcesScheduler" in said


class TestMistakes:
    """Exit code 2, with file and line."""

    @pytest.mark.req("NO-040")
    def test_plan_without_an_object(self, shop: Shop) -> None:
        code, _, said = shop.run(NODES)
        assert code == 2
        assert "there is no NUMAResourcesOperator or NUMAResourcesScheduler in the files" in said

    @pytest.mark.req("NO-040")
    def test_plan_of_a_misspelt_member(self, shop: Shop) -> None:
        """The API server would drop it in silence."""
        code, _, said = shop.run(OPERATOR.replace("poolName", "poolname"))
        assert code == 2
        assert "line 7: spec.nodeGroups[0].poolname: does not exist" in said

    @pytest.mark.req("NO-040")
    def test_plan_of_something_else(self, shop: Shop) -> None:
        code, _, said = shop.run(OPERATOR, "apiVersion: v1\nkind: Pod\nmetadata: {name: a}\n")
        assert code == 2
        assert "a plan does not depend on Pod" in said

    @pytest.mark.req("NO-040")
    def test_plan_of_nothing(self, shop: Shop) -> None:
        """It does not start an operator."""
        code, _, said = shop.run()
        assert code == 2
        assert "--plan needs at least one file" in said

    @pytest.mark.req("NO-040")
    def test_plan_of_another_role(self, shop: Shop) -> None:
        code, _, said = shop.run(OPERATOR, role="taints")
        assert code == 2
        assert "--plan is for run operator" in said
