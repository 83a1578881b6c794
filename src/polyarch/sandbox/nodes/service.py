"""Start of the nodes' process and its RBAC, and the wait until the nodes are ready."""

import sys

import msgspec

from polyarch.kube.client import Client
from polyarch.kube.resources import NODES, by_kind
from polyarch.sandbox.control_plane import starting as controlplane
from polyarch.sandbox.control_plane.components import Layout
from polyarch.sandbox.nodes import fleet, registration
from polyarch.sandbox.nodes.fleet import Node
from polyarch.sandbox.processes import Command, Record, failure, inputs_of, is_running
from polyarch.sandbox.state import Settings
from polyarch.sandbox.tasks import until

NAME = "nodes"
START_SECONDS = 120.0


def command(layout: Layout, settings: Settings) -> Command:
    of_nodes = (settings.nodes, settings.numa, settings.taints, settings.register_taints, settings.ca)
    fleet_of = msgspec.json.encode((*of_nodes, settings.api_server_of_pods)).decode()
    return Command(
        name=NAME,
        arguments=(
            *(sys.executable, "-m", "polyarch.sandbox.nodes"),
            *(str(layout.folder.root), str(layout.binaries["kube-scheduler"])),
        ),
        environment=layout.environment_with_proxies,
        log=str(layout.folder.log(NAME)),
        inputs=inputs_of(fleet_of, files=[layout.folder.registries_conf, settings.ca]),
    )


async def start(layout: Layout, client: Client, settings: Settings) -> None:
    """Start the process; return when every node of the settings is ready."""
    for document in registration.rights():
        await client.apply(by_kind(str(document["apiVersion"]), str(document["kind"])), document)
    record = await controlplane.ensure(layout, command(layout, settings))
    await _until_ready(record, client, {plan.name for plan in fleet.plan(settings)})


async def _until_ready(record: Record, client: Client, wanted: set[str]) -> None:
    ready: set[str] = set()

    async def are_ready() -> bool:
        nonlocal ready
        if not is_running(record):
            raise failure(record, "ended while starting")
        ready = {node.metadata.name for node in await registered(client) if node.takes_pods}
        return wanted == ready

    if not await until(are_ready, seconds=START_SECONDS):
        wrong = ", ".join(sorted(wanted ^ ready)[:5])
        raise failure(record, f"are not as configured after {START_SECONDS:.0f} s (among them {wrong})")


async def registered(client: Client) -> list[Node]:
    """The sandbox's nodes, from the API server."""
    return (await client.list(NODES, type=Node, label_selector=fleet.LABEL)).items
