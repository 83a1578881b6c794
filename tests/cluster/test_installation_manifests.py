"""``deploy/kustomize`` and the manifests of ``polyarch install --print``, by the real kubectl."""

import secrets
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest
import yaml
from installing import NAMESPACE, PROJECT, Cluster, Json
from placement_cluster import until

from polyarch.installation import objects
from polyarch.installation.settings import Builds, InstallationSettings
from polyarch.kube.client import Client
from polyarch.kube.errors import Forbidden
from polyarch.kube.rbac import granting, grants
from polyarch.kube.resources import DEPLOYMENTS, NAMESPACES, POD_DISRUPTION_BUDGETS, PODS, SERVICE_ACCOUNTS
from polyarch.operator import operands as workloads
from polyarch.operator.components import placement_objects
from polyarch.operator.settings import ClusterCapabilities as Served
from polyarch.operator.settings import OperatorSettings
from polyarch.placement import names
from polyarch.placement.api import CPPCS, ENOEXECEVENTS, POLICIES, PPCS
from polyarch.sandbox.cluster import Sandbox
from polyarch.sandbox.files import file_lock

KUSTOMIZE = "deploy/kustomize"


@pytest.fixture
async def cluster(
    empty_sandbox: Sandbox, capsys: pytest.CaptureFixture[str], peer: Callable[[str], str]
) -> AsyncIterator[Cluster]:
    """A cluster without polyarch, for this test alone."""
    async with file_lock(empty_sandbox.folder.root / ".installation.lock"), empty_sandbox.client() as client:
        cluster = Cluster(empty_sandbox, client, capsys, peer)
        before = await cluster.everything()
        yield cluster
        await cluster.polyarch("uninstall", "--force", "-q")
        assert (await cluster.everything()).keys() == before.keys()


def key(document: Json) -> tuple[str, str, str]:
    return document["kind"], document["metadata"].get("namespace", ""), document["metadata"]["name"]


def by_key(text: str) -> dict[tuple[str, str, str], Json]:
    return {key(each): each for each in yaml.safe_load_all(text) if each}


def in_order(document: Json) -> Json:
    """kustomize puts variables that a patch adds before the others."""
    if document["kind"] == "Deployment":
        (container,) = document["spec"]["template"]["spec"]["containers"]
        container["env"] = sorted(container["env"], key=lambda each: each["name"])
    return document


async def built(cluster: Cluster, tmp_path: Any, *components: str) -> dict[tuple[str, str, str], Json]:
    """What kustomize makes of the base with these components."""
    folder = PROJECT / KUSTOMIZE
    overlay = tmp_path / "overlay"
    overlay.mkdir()
    # kustomize takes relative paths only.
    up = "../" * len(overlay.resolve().parts[1:])
    content = {
        "apiVersion": "kustomize.config.k8s.io/v1beta1",
        "kind": "Kustomization",
        "resources": [up + str(folder)[1:]],
        "components": [f"{up}{str(folder)[1:]}/{each}" for each in components],
    }
    (overlay / "kustomization.yaml").write_text(yaml.safe_dump(content))
    return by_key((await cluster.kubectl("kustomize", str(overlay))).out)


@pytest.mark.req("IN-001", "IN-011")
async def test_the_base_is_what_install_applies(cluster: Cluster, tmp_path: Any) -> None:
    """One source."""
    printed = by_key((await cluster.polyarch("install", "--print")).out)
    base = await built(cluster, tmp_path, "placement")
    assert base == printed


@pytest.mark.req("BD-002", "BD-331", "IN-011", "NO-120")
@pytest.mark.parametrize(
    ("components", "settings"),
    [
        pytest.param(["cert-manager"], InstallationSettings(certificates="cert-manager"), id="cert-manager"),
        pytest.param(["service-ca"], InstallationSettings(certificates="service-ca"), id="service-ca"),
        pytest.param(["openshift"], InstallationSettings(openshift=True), id="openshift"),
        pytest.param(
            ["openshift", "service-ca"], InstallationSettings(openshift=True, certificates="service-ca"), id="two"
        ),
        pytest.param(["builds"], InstallationSettings(components=("builds",)), id="builds, BD-002"),
        pytest.param(
            ["builds", "openshift"],
            InstallationSettings(components=("builds",), openshift=True),
            id="builds on OpenShift, BD-002",
        ),
        pytest.param(
            ["builds", "machine-os"],
            InstallationSettings(components=("builds",), builds=Builds(machine_os="on")),
            id="machine OS, BD-331",
        ),
        pytest.param(["numa"], InstallationSettings(components=("numa",)), id="numa, NO-120"),
        pytest.param(
            ["numa", "openshift", "numa-openshift"],
            InstallationSettings(components=("numa",), openshift=True),
            id="numa on OpenShift, NO-120",
        ),
    ],
)
async def test_a_component_does_what_its_setting_does(
    cluster: Cluster, tmp_path: Any, components: list[str], settings: InstallationSettings
) -> None:
    found = await built(cluster, tmp_path, *components)
    wanted = {key(each): each for each in objects.documents(settings) if each["kind"] != CPPCS.kind}
    assert found.keys() == wanted.keys()
    for name, document in wanted.items():
        if "rules" in document:
            assert set(grants(granting([found[name]]))) == set(grants(granting([document]))), name
        else:
            assert in_order(found[name]) == in_order(document), name


@pytest.mark.req("IN-011")
async def test_monitor_and_node_aware_are_settings_of_the_custom_resources(cluster: Cluster, tmp_path: Any) -> None:
    found = await built(cluster, tmp_path, "placement", "monitor", "node-aware")
    assert found["ClusterPodPlacementConfig", "", "cluster"]["spec"]["plugins"] == {
        "execFormatErrorMonitor": {"enabled": True}
    }
    assert found["PlacementPolicy", "", "cluster"]["spec"] == {"nodeAware": {"mode": "narrow"}}


@pytest.mark.req("IN-011")
async def test_kubectl_apply_works_without_helm(cluster: Cluster) -> None:
    """As the guide says; then ``polyarch install`` has nothing to do but to take it over, and uninstall removes it."""
    before = await cluster.everything()
    await cluster.kubectl("apply", "--server-side", "-k", KUSTOMIZE)
    await cluster.kubectl("wait", "--for=condition=Established", "-f", "deploy/crds/" + f"{CPPCS}.yaml")
    await cluster.kubectl("apply", "-f", f"{KUSTOMIZE}/placement/cluster.yaml")
    assert await cluster.client.get(DEPLOYMENTS, names.OPERATOR, namespace=NAMESPACE)
    over = await cluster.polyarch("install")
    assert over.code == 0, over.err
    assert "created" not in over.out
    again = await cluster.polyarch("install")
    assert "nothing to change" in again.out
    assert (await cluster.polyarch("uninstall", "--force")).code == 0
    assert (await cluster.everything()).keys() == before.keys()


@pytest.mark.req("PL-532")
async def test_tools_with_different_numbers_of_replicas_follow_each_other(cluster: Cluster) -> None:
    """Each has fields of its own in the budget of the operator's pods; those of two tools have to fit together."""
    assert (await cluster.polyarch("install", "--replicas", "1", "-q")).code == 0
    await cluster.kubectl("apply", "--server-side", "--force-conflicts", "-k", KUSTOMIZE)
    budget = await cluster.client.get(POD_DISRUPTION_BUDGETS, names.OPERATOR, namespace=NAMESPACE)
    assert budget["spec"]["minAvailable"] == 1
    back = await cluster.polyarch("install", "--replicas", "1", "-q")
    assert back.code == 0, back.err
    budget = await cluster.client.get(POD_DISRUPTION_BUDGETS, names.OPERATOR, namespace=NAMESPACE)
    assert budget["spec"]["minAvailable"] == 0


@pytest.mark.req("IN-002")
async def test_what_is_printed_can_be_applied_by_others(cluster: Cluster) -> None:
    """GitOps: kinds are served a moment after their definitions, so kubectl may need a second run."""
    printed = (await cluster.polyarch("install", "--print", "--replicas", "1")).out
    first = await cluster.kubectl("apply", "--server-side", "-f", "-", stdin=printed, code=None)
    assert first.code == 0 or "no matches for kind" in first.err
    await cluster.kubectl("wait", "--for=condition=Established", "-f", "deploy/crds/" + f"{CPPCS}.yaml")
    second = await cluster.kubectl("apply", "--server-side", "-f", "-", stdin=printed)
    assert "clusterpodplacementconfig.multiarch.openshift.io/cluster serverside-applied" in second.out


@pytest.mark.req("IN-004")
async def test_manifests_of_an_earlier_version_are_taken_over(cluster: Cluster) -> None:
    """Webhook and controller without an operator, applied by kubectl: their fields and objects do not stay behind."""
    before = await cluster.everything()
    for name in (CPPCS, PPCS, POLICIES, ENOEXECEVENTS):
        await cluster.kubectl("apply", "-f", f"deploy/crds/{name}.yaml")
    await cluster.kubectl("apply", "-k", "tests/cluster/earlier")
    await cluster.kubectl("apply", "-f", f"{KUSTOMIZE}/placement/cluster.yaml")
    elsewhere = await cluster.polyarch("install", "-n", "other")
    assert elsewhere.code == 3
    assert f"--namespace {NAMESPACE}" in elsewhere.err
    done = await cluster.polyarch("install")
    assert done.code == 0, done.err
    assert f"an earlier polyarch without operator is in namespace {NAMESPACE}; it is taken over" in done.err
    for found in (await cluster.everything()).values():
        if found.metadata.name in (str(CPPCS), NAMESPACE):
            assert "kubectl.kubernetes.io/last-applied-configuration" not in (found.metadata.annotations or {})
    removed = await cluster.polyarch("uninstall", "--force")
    assert removed.code == 0, removed.err
    assert (await cluster.everything()).keys() == before.keys()


OWN = OperatorSettings()
WORKLOADS = {
    names.OPERATOR: next(
        each for each in objects.operator_objects(InstallationSettings()) if each["kind"] == "Deployment"
    ),
    names.WEBHOOK: workloads.deployment_document(placement_objects.webhook_deployment(OWN), OWN, Served()),
    names.CONTROLLER: workloads.deployment_document(placement_objects.controller_deployment(OWN), OWN, Served()),
}


@pytest.mark.req("PL-502", "PL-552")
@pytest.mark.parametrize("name", WORKLOADS)
async def test_pods_of_the_deployments_pass_the_restricted_policy(client: Client, name: str) -> None:
    """In a namespace labelled like ours."""
    document = placement_objects.namespace_document(f"restricted-{secrets.token_hex(4)}")
    namespace = document["metadata"]["name"]
    await client.create(NAMESPACES, document)
    template = WORKLOADS[name]["spec"]["template"]
    account = template["spec"]["serviceAccountName"]
    made = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": account}}
    await client.create(SERVICE_ACCOUNTS, made, namespace=namespace)
    spec = {key: value for key, value in template["spec"].items() if key != "priorityClassName"}
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {**template["metadata"], "name": "probe"}, "spec": spec}

    async def admitted() -> bool:
        try:
            await client.create(PODS, pod, namespace=namespace, dry_run=True)
        except Forbidden as error:
            if "violates PodSecurity" in error.message:
                pytest.fail(error.message)
            return False
        return True

    await until(admitted)
    pod["spec"] = {**spec, "containers": [{"name": "x", "image": "x"}]}
    with pytest.raises(Forbidden, match="violates PodSecurity"):
        await client.create(PODS, pod, namespace=namespace, dry_run=True)
    await client.delete(NAMESPACES, namespace)
