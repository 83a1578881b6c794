"""Each exporter is bound to its own node, by the API server itself: with tokens of two real pods."""

import asyncio
import secrets
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from numa_cluster import PRIVILEGED, nodes, operator
from test_numa_schema import sole_numa  # noqa: F401 - a fixture

from polyarch.kube import config
from polyarch.kube.client import Client
from polyarch.kube.errors import Forbidden, KubernetesError, NotFound
from polyarch.kube.patches import MergePatch
from polyarch.kube.resources import CRDS, NODES, PODS, by_kind
from polyarch.numa.api.topology import TOPOLOGIES
from polyarch.numa.api.topology_crd import topology_crd
from polyarch.numa.names import EXPORTER
from polyarch.operator.components.numa_exporter_plan import plan_exporters
from polyarch.operator.components.numa_facts import ExporterFacts
from polyarch.operator.settings import OperatorSettings
from polyarch.sandbox.certificates import kubeconfig_with_token
from polyarch.sandbox.cluster import Sandbox
from polyarch.sandbox.files import write_json

Json = dict[str, Any]
SECONDS = 30


class Exporter(NamedTuple):
    """A pod of the exporters' ServiceAccount, and a client with its token."""

    node: str
    pod: str
    client: Client

    def topology(self, node: str) -> Json:
        return {
            "apiVersion": TOPOLOGIES.api_version,
            "kind": TOPOLOGIES.kind,
            "metadata": {"name": node},
            "zones": [{"name": "node-0", "type": "Node"}],
        }


@pytest.fixture
async def exporters(
    sandbox: Sandbox,
    client: Client,
    namespace: str,
    sole_numa: None,  # noqa: F811
    tmp_path: Path,
) -> AsyncIterator[tuple[Exporter, Exporter]]:
    """Two, on two nodes, with rights and policy as the operator makes them."""
    await client.apply(CRDS, topology_crd())
    given = operator({"poolName": "worker"})
    del given["metadata"]["uid"]
    planned = plan_exporters(
        ExporterFacts(
            object=given,
            settings=OperatorSettings(numa_namespace=namespace),
            namespace_labels=PRIVILEGED,
            nodes=nodes("n1"),
            version=(1, 32),
        )
    )
    made = []
    async with AsyncExitStack() as stack:
        for document in planned.documents or ():
            if document["kind"] in ("DaemonSet", "ConfigMap", "Service", "NetworkPolicy"):
                continue
            resource = by_kind(document["apiVersion"], document["kind"])
            await client.apply(resource, document, namespace=document["metadata"].get("namespace", ""))
            if not resource.namespaced:
                made.append((resource, document["metadata"]["name"]))
        chosen = sorted(each["metadata"]["name"] for each in (await client.list(NODES)).items)[:2]
        try:
            one, other = [await _exporter(sandbox, client, namespace, node, tmp_path, stack) for node in chosen]
            await _in_force(one, other)
            yield one, other
        finally:
            for resource, name in reversed(made):
                await client.delete(resource, name)
            for node in chosen:
                await _gone(client, node)


async def _gone(client: Client, node: str) -> None:
    try:
        await client.delete(TOPOLOGIES, node)
    except NotFound:
        return


async def _exporter(
    sandbox: Sandbox, client: Client, namespace: str, node: str, folder: Path, stack: AsyncExitStack
) -> Exporter:
    name = f"rte-{node}"
    spec = {
        "serviceAccountName": EXPORTER,
        "nodeName": node,
        "containers": [{"name": "a", "image": "registry.example/a:1"}],
    }
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec}
    created = await client.create(PODS, pod, namespace=namespace, type=dict)
    token = await client.token(namespace, EXPORTER, bound_pod=(name, created["metadata"]["uid"]))
    file = folder / f"kubeconfig-{secrets.token_hex(4)}"
    write_json(file, kubeconfig_with_token(name, sandbox.layout.api_server, sandbox.layout.pki.ca, token.token))
    return Exporter(node, name, await stack.enter_async_context(Client(config.load(str(file)), role="tests")))


async def _in_force(one: Exporter, other: Exporter) -> None:
    """API servers learn of rights and policies by watches."""
    async with asyncio.timeout(SECONDS):
        while True:
            try:
                await one.client.create(TOPOLOGIES, one.topology(other.node), dry_run=True)
            except KubernetesError as error:
                if "of its own node alone" in str(error):
                    return
            await asyncio.sleep(0.2)


@pytest.mark.req("NE-141")
async def test_another_nodes_object_is_refused(exporters: tuple[Exporter, Exporter]) -> None:
    """Create, update and patch; the own one is written."""
    one, other = exporters
    await one.client.create(TOPOLOGIES, one.topology(one.node))
    await other.client.create(TOPOLOGIES, other.topology(other.node))
    change = MergePatch({"zones": [{"name": "node-1", "type": "Node"}]})
    for writer in exporters:
        await writer.client.patch(TOPOLOGIES, writer.node, change)
    for writer, node in ((one, other.node), (other, one.node)):
        with pytest.raises(KubernetesError, match="of its own node alone"):
            await writer.client.patch(TOPOLOGIES, node, change)
        with pytest.raises(KubernetesError, match="of its own node alone"):
            await writer.client.create(TOPOLOGIES, writer.topology("no-such-node"))


@pytest.mark.req("NE-141")
async def test_another_pods_status_is_refused(exporters: tuple[Exporter, Exporter], namespace: str) -> None:
    """Conditions of another exporter would keep its DaemonSet from being ready, or make it so."""
    one, other = exporters
    condition = {"type": "NodeTopologyUpdated", "status": "True"}
    change = MergePatch({"status": {"conditions": [condition]}})
    await one.client.patch(PODS, one.pod, change, namespace=namespace, subresource="status")
    with pytest.raises(KubernetesError, match="of its own Pod alone"):
        await one.client.patch(PODS, other.pod, change, namespace=namespace, subresource="status")


@pytest.mark.req("NE-140")
async def test_nothing_else_is_allowed(exporters: tuple[Exporter, Exporter], namespace: str) -> None:
    """No deletion, no secrets, no other pods' specifications."""
    one, _ = exporters
    with pytest.raises(Forbidden):
        await one.client.delete(TOPOLOGIES, one.node)
    with pytest.raises(Forbidden):
        await one.client.list(PODS, namespace=namespace)
    with pytest.raises(Forbidden):
        await one.client.list(by_kind("v1", "Secret"), namespace=namespace)
    with pytest.raises(Forbidden):
        await one.client.patch(NODES, one.node, MergePatch({"metadata": {"labels": {"a": "b"}}}))
    assert (await one.client.get(NODES, one.node))["metadata"]["name"] == one.node


@pytest.mark.req("NE-141")
async def test_others_are_not_bound(client: Client, exporters: tuple[Exporter, Exporter]) -> None:
    """The policy is for the exporters' ServiceAccount alone."""
    one, other = exporters
    await client.create(TOPOLOGIES, one.topology(other.node), dry_run=True)
