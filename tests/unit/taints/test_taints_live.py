"""What a plan has to know besides nodes, templates and images."""

from typing import Any

import pytest
from fake_api import FakeApi
from taint_cluster import BINDINGS, POLICIES, cluster, pod, taint_api
from taint_nodes import document

from polyarch.kube.errors import Forbidden
from polyarch.kube.resources import ENDPOINT_SLICES, MUTATING_WEBHOOKS, NODES, PODS, Resource
from polyarch.taints.cluster import read_inventory, read_live, webhook_problem
from polyarch.taints.settings import TaintSettings

USUAL = TaintSettings()
POOLS = Resource("karpenter.sh", "v1", "nodepools", "NodePool", namespaced=False)
NAME = "polyarch-architecture-taints"


def webhook(namespace: str = "tools") -> dict[str, Any]:
    service = {"namespace": namespace, "name": "polyarch-taints", "path": "/add-pod-tolerations"}
    return {"metadata": {"name": "polyarch-taints"}, "webhooks": [{"name": "w", "clientConfig": {"service": service}}]}


def endpoints(namespace: str = "tools", *, ready: bool = True) -> dict[str, Any]:
    labels = {"kubernetes.io/service-name": "polyarch-taints"}
    metadata = {"name": f"e-{namespace}", "namespace": namespace, "labels": labels}
    return {"metadata": metadata, "endpoints": [{"conditions": {"ready": ready}}]}


@pytest.mark.req("TN-025")
async def test_the_webhook_has_to_be_registered_and_to_answer_wherever_polyarch_is_installed() -> None:
    api = taint_api()
    assert "has no entry for pods" in await webhook_problem(api)
    api.put(MUTATING_WEBHOOKS, webhook())
    assert "no ready endpoint" in await webhook_problem(api)
    api.put(ENDPOINT_SLICES, endpoints("elsewhere"))
    assert "no ready endpoint" in await webhook_problem(api)
    api.put(ENDPOINT_SLICES, endpoints(ready=False))
    assert "no ready endpoint" in await webhook_problem(api)
    api.put(ENDPOINT_SLICES, endpoints())
    assert not await webhook_problem(api)


async def policy_of(api: FakeApi, settings: TaintSettings = USUAL) -> str:
    live = await read_live(api, await read_inventory(api), settings, comes=False)
    return live.admission.policy


@pytest.mark.req("TN-061")
async def test_the_policy_is_there_with_its_binding_only() -> None:
    api = cluster()
    assert await policy_of(api) == "missing"
    api.put(POLICIES, {"metadata": {"name": NAME}})
    assert await policy_of(api) == "missing"
    api.put(BINDINGS, {"metadata": {"name": NAME}})
    assert await policy_of(api) == "present"
    assert await policy_of(api, TaintSettings(at_registration="none")) == "unwanted"
    api.kinds = ()
    assert await policy_of(api) == "unserved"


@pytest.mark.req("TN-068")
async def test_long_annotations_of_others_are_not_kept() -> None:
    """A pod that somebody applied carries itself once more as text."""
    record = "[" + " " * 5000 + "]"
    applied = {
        "kubectl.kubernetes.io/last-applied-configuration": "x" * 5000,
        "team": "a",
        "polyarch.dev/record": record,
    }
    told = pod("told")
    told["metadata"]["annotations"] = applied
    [found] = (await read_inventory(cluster(objects={PODS: [told]}))).pods
    assert found.metadata.annotations == {**applied, "kubectl.kubernetes.io/last-applied-configuration": ""}


@pytest.mark.req("TN-028")
async def test_templates_of_nodes_are_listed_and_what_may_not_be_read_is_said() -> None:
    api = cluster()
    api.kinds += (POOLS, Resource("karpenter.sh", "v1beta1", "nodepools", "NodePool", namespaced=False))
    requirements = [{"key": "kubernetes.io/arch", "operator": "In", "values": ["arm64"]}]
    api.put(POOLS, {"metadata": {"name": "arm"}, "spec": {"template": {"spec": {"requirements": requirements}}}})
    live = await read_live(api, await read_inventory(api), USUAL, comes=False)
    assert [each.name for each in live.node_templates] == ["arm"]

    async def refuse(verb: str, resource: Resource, name: str) -> None:
        if resource.kind == "NodePool":
            raise Forbidden(403, message="no", resource="nodepools")

    api.hook = refuse
    live = await read_live(api, await read_inventory(api), USUAL, comes=False)
    assert not live.node_templates
    assert "nodepools.karpenter.sh not read" in live.notes[0]


@pytest.mark.req("TN-028")
async def test_templates_that_do_not_say_their_architecture_are_named() -> None:
    machines = Resource("cluster.x-k8s.io", "v1beta1", "machinedeployments", "MachineDeployment")
    api = cluster()
    api.kinds += (machines,)
    api.put(machines, {"metadata": {"name": "workers", "namespace": "infra"}, "spec": {"template": {"spec": {}}}})
    live = await read_live(api, await read_inventory(api), USUAL, comes=False)
    assert not live.node_templates
    [note] = live.notes
    assert note == (
        "machinedeployments.cluster.x-k8s.io not judged: workers: nothing says which architecture its nodes have"
    )


@pytest.mark.req("TN-028")
async def test_templates_that_are_not_understood_and_kinds_that_are_not_read_are_named() -> None:
    pools = Resource("karpenter.sh", "v1", "nodepools", "NodePool", namespaced=False)
    unread = Resource("infrastructure.cluster.x-k8s.io", "v1beta2", "awsmanagedmachinepools", "AWSManagedMachinePool")
    api = cluster()
    api.kinds += (pools, unread)
    for name in ("a", "b"):
        requirements = [{"key": "kubernetes.io/arch", "operator": "Near", "values": ["arm64"]}]
        api.put(pools, {"metadata": {"name": name}, "spec": {"template": {"spec": {"requirements": requirements}}}})
    live = await read_live(api, await read_inventory(api), USUAL, comes=False)
    assert not live.node_templates
    judged, looked_at = live.notes
    assert judged.startswith('nodepools.karpenter.sh not judged: a, b: not understood: requirements[0] has operator "N')
    assert looked_at.startswith("awsmanagedmachinepools.infrastructure.cluster.x-k8s.io not looked at: ")


@pytest.mark.req("TN-026")
async def test_pods_that_our_taint_keeps_pending_are_named_with_its_architecture() -> None:
    stuck = pod("stuck", owner=("ReplicaSet", "web"), nodeSelector={"kubernetes.io/arch": "arm64"})
    api = cluster(arm64=0, objects={PODS: [stuck]})
    api.put(NODES, document("arm-0", "arm64", "supported-arch=arm64:NoSchedule"))
    live = await read_live(api, await read_inventory(api), USUAL, comes=False)
    assert live.pending == {"arm64": ("shop/stuck",)}
