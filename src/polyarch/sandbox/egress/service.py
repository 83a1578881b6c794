"""Start of the egress proxy and its RBAC.

The proxy is a process of its own: a settings change restarts the nodes' process, and the connections of webhooks must
survive that; and the simulation of many nodes must not delay admission.
"""

import sys
from collections.abc import Mapping

from polyarch.kube import rbac
from polyarch.kube.client import Client
from polyarch.kube.rbac import rule
from polyarch.kube.resources import ENDPOINT_SLICES, SERVICES, by_kind
from polyarch.sandbox.control_plane import starting as controlplane
from polyarch.sandbox.control_plane.components import Layout
from polyarch.sandbox.control_plane.health import Probe, until_healthy
from polyarch.sandbox.network import sockets
from polyarch.sandbox.processes import Command

NAME = "egress"
START_SECONDS = 60.0


def command(layout: Layout) -> Command:
    return Command(
        name=NAME,
        arguments=(sys.executable, "-m", "polyarch.sandbox.egress", str(layout.folder.root)),
        environment=layout.environment,
        log=str(layout.folder.log(NAME)),
        inputs=sockets.egress(layout.folder.root),
    )


def probes(layout: Layout) -> dict[str, Probe]:
    return {NAME: Probe("http://egress/readyz", socket=sockets.egress(layout.folder.root))}


async def start(layout: Layout, client: Client) -> None:
    """Start the process; return when it knows all Services and answers."""
    for document in rights():
        await client.apply(by_kind(str(document["apiVersion"]), str(document["kind"])), document)
    record = await controlplane.ensure(layout, command(layout))
    await until_healthy(record, probes(layout)[NAME], seconds=START_SECONDS)


def rights() -> list[Mapping[str, object]]:
    """The ClusterRole of the proxy, and its binding to the group in the process's certificate."""
    name = "polyarch-sandbox:egress"
    binding = rbac.binding(name, []) | {"subjects": [{"apiGroup": rbac.GROUP, "kind": "Group", "name": name}]}
    return [rbac.role(name, [rule(each, "list", "watch") for each in (SERVICES, ENDPOINT_SLICES)]), binding]
