"""Start of the distribution registry and its front."""

import secrets
import sys

import msgspec

from polyarch.sandbox.control_plane import starting as controlplane
from polyarch.sandbox.control_plane.components import Layout
from polyarch.sandbox.control_plane.health import Probe, until_healthy
from polyarch.sandbox.files import write_json
from polyarch.sandbox.processes import Command
from polyarch.sandbox.registry import mirrors, storage
from polyarch.sandbox.registry.access import AccessFile
from polyarch.sandbox.registry.seed import Registry
from polyarch.sandbox.state import LOOPBACK

STORAGE = "registry"
FRONT = "registry-front"
START_SECONDS = 60.0


def address(layout: Layout) -> str:
    return f"{LOOPBACK}:{layout.ports.registry}"


def probes(layout: Layout) -> dict[str, Probe]:
    return {
        STORAGE: Probe(f"http://{LOOPBACK}:{layout.ports.registry_storage}/v2/"),
        FRONT: Probe(f"http://{address(layout)}/healthz"),
    }


def commands(layout: Layout) -> tuple[Command, Command]:
    """The distribution registry, and the front, which is the address that clients use."""
    behind = Command(
        name=STORAGE,
        arguments=(str(layout.binaries[STORAGE]), "serve", layout.configuration("registry.json")),
        environment=storage.environment(layout.environment),
        log=str(layout.folder.log(STORAGE)),
        url=f"http://{LOOPBACK}:{layout.ports.registry_storage}",
    )
    front = Command(
        name=FRONT,
        arguments=(sys.executable, "-m", "polyarch.sandbox.registry.front", str(layout.folder.root)),
        environment=layout.environment,
        log=str(layout.folder.log(FRONT)),
        url=f"http://{address(layout)}",
    )
    return behind, front


def write_files(layout: Layout, own_registries_conf: str) -> None:
    """Write the configuration of this start; the administrator's password is created only once."""
    folder = layout.folder
    access = AccessFile(folder.access)
    known = access.current()
    if not known.administrator_password:
        known = msgspec.structs.replace(known, administrator_password=secrets.token_urlsafe(24))
        access.write(known)
    where = f"{LOOPBACK}:{layout.ports.registry_storage}"
    document = storage.configuration(folder.registry, where, known.administrator_password)
    write_json(folder.configuration / "registry.json", document)
    mirrors.write(folder.registries_conf, address(layout), own_registries_conf)


async def start(layout: Layout) -> Registry:
    """Start both processes; return when they are healthy."""
    ask = probes(layout)
    for command in commands(layout):
        record = await controlplane.ensure(layout, command)
        await until_healthy(record, ask[command.name], seconds=START_SECONDS)
    return Registry(address(layout), layout.folder)
