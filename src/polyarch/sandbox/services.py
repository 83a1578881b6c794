"""Starts the processes beside the control plane: the registry and its proxy, the nodes, and the egress proxy.

The egress proxy is a process of its own: a settings change restarts the nodes' process, and the connections of webhooks
must survive that; and the simulation of many nodes must not delay admission.
"""

import secrets
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path

import msgspec

from polyarch.kube.client import Client
from polyarch.kube.rbac import rule
from polyarch.kube.resources import ENDPOINT_SLICES, NODES, SERVICES, by_kind
from polyarch.sandbox.control_plane import PROXY_VARIABLES, Layout, Probe, ensure, until_healthy
from polyarch.sandbox.files import write_json
from polyarch.sandbox.network import egress_socket
from polyarch.sandbox.nodes import registration
from polyarch.sandbox.nodes.plans import NODE_LABEL, Node, node_plans
from polyarch.sandbox.nodes.registration import process_role
from polyarch.sandbox.processes import Command, Record, failure, inputs_of, is_running
from polyarch.sandbox.registry.access import AccessFile
from polyarch.sandbox.registry.seed import Registry, write_registries_conf
from polyarch.sandbox.state import LOOPBACK, Settings
from polyarch.sandbox.tasks import until


def storage_configuration(root: Path, address: str, secret: str) -> dict[str, object]:
    """``config.yml``, as JSON. ``address`` is a loopback ``host:port``."""
    return {
        "version": "0.1",
        "log": {"level": "warn", "formatter": "json", "accesslog": {"disabled": True}},
        "storage": {
            "filesystem": {"rootdirectory": str(root)},
            "delete": {"enabled": True},
            "cache": {"blobdescriptor": "inmemory"},
            "maintenance": {"uploadpurging": {"enabled": False}},
        },
        # Relative redirects, so that clients keep using the proxy.
        "http": {"addr": address, "secret": secret, "relativeurls": True},
        # Accept indexes with missing children, without platforms, nested or empty.
        "validation": {"manifests": {"indexes": {"platforms": "none"}}},
    }


def storage_environment(inherited: dict[str, str]) -> dict[str, str]:
    """Disables traces, which the registry would otherwise send to a collector on localhost."""
    return {**inherited, "OTEL_TRACES_EXPORTER": "none"}


# -- the registry ------------------------------------------------------------------------------------------------------


STORAGE = "registry"
PROXY = "registry-front"
REGISTRY_START_SECONDS = 60.0


def registry_address(layout: Layout) -> str:
    return f"{LOOPBACK}:{layout.ports.registry}"


def registry_probes(layout: Layout) -> dict[str, Probe]:
    return {
        STORAGE: Probe(f"http://{LOOPBACK}:{layout.ports.registry_storage}/v2/"),
        PROXY: Probe(f"http://{registry_address(layout)}/healthz"),
    }


def registry_commands(layout: Layout) -> tuple[Command, Command]:
    """The distribution registry, and the proxy, which is the address that clients use."""
    behind = Command(
        name=STORAGE,
        arguments=(str(layout.binaries[STORAGE]), "serve", layout.configuration("registry.json")),
        environment=storage_environment(layout.environment),
        log=str(layout.folder.log(STORAGE)),
        url=f"http://{LOOPBACK}:{layout.ports.registry_storage}",
    )
    proxy = Command(
        name=PROXY,
        arguments=(sys.executable, "-m", "polyarch.sandbox.registry.proxy", str(layout.folder.root)),
        environment=layout.environment,
        log=str(layout.folder.log(PROXY)),
        url=f"http://{registry_address(layout)}",
    )
    return behind, proxy


def write_registry_files(layout: Layout, own_registries_conf: str) -> None:
    """Write the configuration of this start; the administrator's password is created only once."""
    folder = layout.folder
    access = AccessFile(folder.access)
    known = access.current()
    if not known.administrator_password:
        known = msgspec.structs.replace(known, administrator_password=secrets.token_urlsafe(24))
        access.write(known)
    where = f"{LOOPBACK}:{layout.ports.registry_storage}"
    document = storage_configuration(folder.registry, where, known.administrator_password)
    write_json(folder.configuration / "registry.json", document)
    write_registries_conf(folder.registries_conf, registry_address(layout), own_registries_conf)


async def start_registry(layout: Layout) -> Registry:
    """Start both processes; return when they are healthy."""
    ask = registry_probes(layout)
    for command in registry_commands(layout):
        record = await ensure(layout, command)
        await until_healthy(record, ask[command.name], seconds=REGISTRY_START_SECONDS)
    return Registry(registry_address(layout), layout.folder)


# -- the nodes, with their RBAC ----------------------------------------------------------------------------------------


NODES_PROCESS = "nodes"
NODES_START_SECONDS = 120.0


def nodes_command(layout: Layout, settings: Settings) -> Command:
    of_nodes = (settings.nodes, settings.numa, settings.taints, settings.register_taints, settings.ca)
    proxies = {name: layout.environ[name] for name in PROXY_VARIABLES if name in layout.environ}
    started_from = (*of_nodes, settings.api_server_of_pods, layout.kubernetes, proxies)
    fleet_of = msgspec.json.encode(started_from, order="sorted").decode()
    return Command(
        name=NODES_PROCESS,
        arguments=(
            *(sys.executable, "-m", "polyarch.sandbox.nodes"),
            *(str(layout.folder.root), str(layout.binaries["kube-scheduler"])),
        ),
        environment=layout.environment_with_proxies,
        log=str(layout.folder.log(NODES_PROCESS)),
        inputs=inputs_of(fleet_of, files=[layout.folder.registries_conf, settings.ca]),
    )


async def start_nodes(layout: Layout, client: Client, settings: Settings) -> None:
    """Start the process; return when every node of the settings is ready."""
    await _apply(client, registration.permissions())
    record = await ensure(layout, nodes_command(layout, settings))
    await _until_nodes_are_ready(record, client, {plan.name for plan in node_plans(settings)})


async def _until_nodes_are_ready(record: Record, client: Client, wanted: set[str]) -> None:
    ready: set[str] = set()

    async def are_ready() -> bool:
        nonlocal ready
        if not is_running(record):
            raise failure(record, "ended while starting")
        ready = {node.metadata.name for node in await registered_nodes(client) if node.takes_pods}
        return wanted == ready

    if not await until(are_ready, seconds=NODES_START_SECONDS):
        wrong = ", ".join(sorted(wanted ^ ready)[:5])
        raise failure(record, f"are not as configured after {NODES_START_SECONDS:.0f} s (among them {wrong})")


async def registered_nodes(client: Client) -> list[Node]:
    """The sandbox's nodes, from the API server."""
    return (await client.list(NODES, type=Node, label_selector=NODE_LABEL)).items


# -- the egress proxy, with its RBAC -----------------------------------------------------------------------------------


EGRESS_PROCESS = "egress"
EGRESS_START_SECONDS = 60.0


def egress_command(layout: Layout) -> Command:
    return Command(
        name=EGRESS_PROCESS,
        arguments=(sys.executable, "-m", "polyarch.sandbox.egress", str(layout.folder.root)),
        environment=layout.environment,
        log=str(layout.folder.log(EGRESS_PROCESS)),
        inputs=egress_socket(layout.folder.root),
    )


def egress_probes(layout: Layout) -> dict[str, Probe]:
    return {EGRESS_PROCESS: Probe("http://egress/readyz", socket=egress_socket(layout.folder.root))}


async def start_egress(layout: Layout, client: Client) -> None:
    """Start the process; return when it knows all Services and answers."""
    await _apply(client, egress_permissions())
    record = await ensure(layout, egress_command(layout))
    await until_healthy(record, egress_probes(layout)[EGRESS_PROCESS], seconds=EGRESS_START_SECONDS)


def egress_permissions() -> list[Mapping[str, object]]:
    """The ClusterRole of the proxy, and its binding to the group in the process's certificate."""
    return process_role("egress", [rule(each, "list", "watch") for each in (SERVICES, ENDPOINT_SLICES)])


async def _apply(client: Client, documents: Iterable[Mapping[str, object]]) -> None:
    for document in documents:
        await client.apply(by_kind(str(document["apiVersion"]), str(document["kind"])), document)
