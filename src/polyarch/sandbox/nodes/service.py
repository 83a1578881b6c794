"""Starting the nodes' process, with its rights, and waiting for the nodes to be ready."""

import asyncio
import sys
from typing import Any

import msgspec

from polyarch.kube.client.client import Client
from polyarch.kube.resources import NODES, by_kind
from polyarch.sandbox.control_plane import starting as controlplane
from polyarch.sandbox.control_plane.components import Layout
from polyarch.sandbox.errors import ProcessFailed
from polyarch.sandbox.nodes import fleet, registration
from polyarch.sandbox.processes import Command, Record, inherited_environment, inputs_of, is_running, log_tail
from polyarch.sandbox.state import Settings

NAME = "nodes"
START_SECONDS = 120.0
POLL_SECONDS = 0.1
PROXY_VARIABLES = ("HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "http_proxy", "https_proxy", "no_proxy", "SSL_CERT_FILE")
"""For the registries of the user's own; everything of the sandbox itself is reached directly."""


def command(layout: Layout, settings: Settings) -> Command:
    fleet_of = msgspec.json.encode((settings.nodes, settings.numa, settings.taints, settings.ca)).decode()
    return Command(
        name=NAME,
        arguments=(sys.executable, "-m", "polyarch.sandbox.nodes", str(layout.folder.root)),
        environment=layout.environment | inherited_environment(layout.outside, names=PROXY_VARIABLES),
        log=str(layout.folder.log(NAME)),
        inputs=inputs_of(fleet_of, files=[layout.folder.registries_conf, settings.ca]),
    )


async def start(layout: Layout, client: Client, settings: Settings) -> None:
    """Returns when every node of the settings is ready."""
    for document in registration.rights():
        await client.apply(by_kind(str(document["apiVersion"]), str(document["kind"])), document)
    record = await controlplane.ensure(layout, command(layout, settings))
    await _until_ready(record, client, {plan.name for plan in fleet.plan(settings)})


async def _until_ready(record: Record, client: Client, wanted: set[str]) -> None:
    loop = asyncio.get_running_loop()
    deadline = loop.time() + START_SECONDS
    ready: set[str] = set()
    while loop.time() < deadline:
        ready = await ready_nodes(client)
        if wanted == ready:
            return
        if not is_running(record):
            raise ProcessFailed(f"{NAME} ended while starting; the end of {record.log}:\n{log_tail(record.log)}")
        await asyncio.sleep(POLL_SECONDS)
    missing = ", ".join(sorted(wanted ^ ready)[:5])
    raise ProcessFailed(
        f"nodes are not as asked after {START_SECONDS:.0f} s (among them {missing}); "
        f"the end of {record.log}:\n{log_tail(record.log)}"
    )


async def ready_nodes(client: Client) -> set[str]:
    """The names of the sandbox's nodes that are ready and free of the taints of new nodes."""
    found = await client.list(NODES, label_selector=fleet.LABEL)
    return {node["metadata"]["name"] for node in found.items if _is_ready(node)}


def _is_ready(node: dict[str, Any]) -> bool:
    taints = node["spec"].get("taints", ())
    conditions = node.get("status", {}).get("conditions", ())
    is_new = any(taint["key"] == "node.kubernetes.io/not-ready" for taint in taints)
    return not is_new and any(each["type"] == "Ready" and each["status"] == "True" for each in conditions)
