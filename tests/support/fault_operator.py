"""The operator as a process that is killed at every step (``fault_mortal``), with exactly its rights."""

import json
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from fault_mortal import Mortal
from fault_proxy import FaultProxy, server_tls
from operator_world import OperatorWorld

from polyarch.kube.resources import CONFIGMAPS
from polyarch.objects import ObjectKey
from polyarch.placement import names
from polyarch.sandbox.files import write_json

REGISTRIES = "registries"


@asynccontextmanager
async def mortal_operator(world: OperatorWorld) -> AsyncIterator[Mortal]:
    """Operators of this world, behind a proxy of their own."""
    sandbox = world.sandbox
    data = {"registries.conf": sandbox.registries_conf.read_text()}
    document = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": REGISTRIES}, "data": data}
    await world.client.apply(CONFIGMAPS, document, namespace=world.namespace)
    kubeconfig = await world.kubeconfig()
    trusted = ssl.create_default_context(cafile=str(sandbox.ca))
    async with FaultProxy(
        sandbox.api_server, upstream_ssl=trusted, server_ssl=server_tls(sandbox, world.folder)
    ) as proxy:
        whole = json.loads(kubeconfig.read_text())
        for each in whole["clusters"]:
            each["cluster"]["server"] = proxy.url
        write_json(kubeconfig, whole)
        arguments = [
            *("run", "operator", f"--namespace={world.namespace}", f"--kubeconfig={kubeconfig}"),
            *("--port=0", "--metrics-port=0", "--health-port=0", "--webhook-replicas=1", "--controller-replicas=1"),
            *(f"--registries-configmap={REGISTRIES}", "--allow-address=127.0.0.0/8"),
        ]
        lease = ObjectKey(world.namespace, names.OPERATOR_LEASE)
        log = world.folder / "operator.log"
        async with Mortal.of("operator", proxy, arguments, client=world.client, lease=lease, log=log) as mortal:
            yield mortal
