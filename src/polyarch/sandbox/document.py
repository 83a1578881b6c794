"""The JSON document of ``polyarch up``, ``status`` and ``up --demo`` with ``-o json`` (SB-010).

``schemaVersion`` is ``polyarch.dev/sandbox/v1``. Members may be added; none is renamed or changes its meaning.
"""

import msgspec

from polyarch.sandbox.cluster import Sandbox
from polyarch.sandbox.control_plane.health import Health
from polyarch.sandbox.processes import Record, memory_of

SCHEMA_VERSION = "polyarch.dev/sandbox/v1"


class RegistryAddress(msgspec.Struct, frozen=True, rename="camel"):
    address: str
    insecure: bool


class Process(msgspec.Struct, frozen=True, rename="camel"):
    """One process of the sandbox; ``detail`` is the problem, empty when it is healthy.

    A container of a pod that is run (SB-011) has ``pod`` (``namespace/name``) and ``container``; it is listed while it
    runs, and whether it is ready is said by its pod's status.
    """

    name: str
    pid: int
    log: str
    url: str
    healthy: bool
    detail: str
    pod: str = ""
    container: str = ""
    memory: int = 0
    """Bytes of resident memory."""


class NodeLine(msgspec.Struct, frozen=True, rename="camel"):
    name: str
    architecture: str
    ready: bool


class DemoImage(msgspec.Struct, frozen=True, rename="camel"):
    image: str
    platforms: list[str]


class Milliseconds(msgspec.Struct, frozen=True, rename="camel"):
    """Milliseconds from the create request to each step; null for a step that did not happen."""

    admission: float | None = None
    """The create request, webhook included."""
    released: float | None = None
    """The pod has no scheduling gate any more."""
    bound: float | None = None
    running: float | None = None


class Without(msgspec.Struct, frozen=True, rename="camel"):
    """The same pod with polyarch switched off."""

    node: str = ""
    node_architecture: str = ""
    phase: str = ""
    reason: str = ""


class DemoPod(msgspec.Struct, frozen=True, rename="camel"):
    name: str
    namespace: str
    images: list[DemoImage]
    path: str
    """``inline``, ``gated`` or ``ignored``."""
    reason: str
    """The decision's."""
    architectures: list[str]
    node: str
    node_architecture: str
    phase: str
    milliseconds: Milliseconds
    requests: int
    """polyarch's API requests for this pod, from the audit log."""
    without: Without | None = None


class Demo(msgspec.Struct, frozen=True, rename="camel"):
    pods: list[DemoPod]
    summary: str


class Document(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    schema_version: str
    name: str
    kubeconfig: str
    context: str
    api_server: str
    version: str
    registry: RegistryAddress
    audit_log: str
    registry_log: str
    processes: list[Process]
    nodes: list[NodeLine]
    demo: Demo | None = None


async def describe(sandbox: Sandbox, *, demo: Demo | None = None) -> Document:
    """The sandbox as it is now; nodes are listed only if the API server is healthy."""
    health = {each.name: each for each in await sandbox.health()}
    records = sandbox.records()
    nodes = await sandbox.nodes() if health.get("kube-apiserver", _ABSENT).healthy else []
    return Document(
        schema_version=SCHEMA_VERSION,
        name=sandbox.name,
        kubeconfig=str(sandbox.kubeconfig),
        context=sandbox.context,
        api_server=sandbox.api_server,
        version=sandbox.version,
        registry=RegistryAddress(sandbox.registry.address, sandbox.registry.insecure),
        audit_log=str(sandbox.audit_log),
        registry_log=str(sandbox.registry_log),
        processes=[
            Process(
                name,
                record.pid,
                record.log,
                record.url,
                health[name].healthy,
                health[name].detail,
                memory=memory_of(record),
            )
            for name, record in records.items()
        ]
        + [_container(record) for record in sandbox.containers()],
        nodes=[NodeLine(*node) for node in nodes],
        demo=demo,
    )


def _container(record: Record) -> Process:
    name = f"{record.pod}/{record.container}"
    return Process(name, record.pid, record.log, "", True, "", record.pod, record.container, memory_of(record))


_ABSENT = Health("", running=False, detail="not started")
