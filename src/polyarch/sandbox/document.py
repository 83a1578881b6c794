"""The JSON document of ``polyarch up``, ``status`` and ``up --demo`` with ``-o json``.

``schemaVersion`` is ``polyarch.dev/sandbox/v1``. Members may be added; none is renamed or changes its meaning."""

from collections.abc import Mapping, Sequence

import msgspec

from polyarch.sandbox.cluster import Sandbox
from polyarch.sandbox.control_plane import Health
from polyarch.sandbox.processes import Record, memory_of

SCHEMA_VERSION = "polyarch.dev/sandbox/v1"


class RegistryAddress(msgspec.Struct, frozen=True, rename="camel"):
    address: str
    insecure: bool


class Process(msgspec.Struct, frozen=True, rename="camel"):
    """One process of the sandbox; ``detail`` is the problem, empty when it is healthy.

    A container of a pod that is run has ``pod`` (``namespace/name``) and ``container``. It is healthy while it
    is ready. A container of polyarch's own that does not run is listed with pid 0.
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


class PodWithoutPolyarch(msgspec.Struct, frozen=True, rename="camel"):
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
    without: PodWithoutPolyarch | None = None


class DemoOperator(msgspec.Struct, frozen=True, rename="camel", kw_only=True):
    """What the installation of polyarch and its operator did, by lists of all objects of the API server."""

    installed: int
    """Objects that the installation applied."""
    made: int
    """Objects that the operator made from them, without those of Kubernetes' own controllers."""
    install_seconds: float
    """From the first object to placement being Available."""
    uninstall_seconds: float | None = None
    left: list[str] = []
    """What exists after the uninstall and did not before the installation."""


class DemoGrowth(msgspec.Struct, frozen=True, rename="camel", kw_only=True):
    """Nodes that joined while component taints was on."""

    joined: int
    tainted: int
    """Those of them that carried the taint as soon as they were ready."""
    daemon_set_pods: int
    """Pods of a DaemonSet that run on them, because its images do."""
    kept_away: int
    """Pods of another image that run elsewhere, though only the taint keeps them off."""
    left: list[str] = []
    """Nodes that carry a taint after the configuration was deleted."""


class DemoReport(msgspec.Struct, frozen=True, rename="camel", kw_only=True):
    """What the report says that the placement controller keeps in the cluster."""

    target: str
    could_run: str
    """Share of what workloads request, or of their replicas, as people read it."""
    in_the_way: list[str]
    """The image that holds back the most, if one does."""
    seconds: float
    """From switching it on until it was there."""


class DemoBuild(msgspec.Struct, frozen=True, rename="camel", kw_only=True):
    """An image that was built in the cluster, and again after a change for one architecture."""

    image: str
    """By digest: the second one."""
    built: list[str]
    """The architectures that were built first, each on its own nodes."""
    seconds: float
    """Until the image was published."""
    built_again: list[str]
    reused: list[str]
    seconds_again: float


class DemoScheduled(msgspec.Struct, frozen=True, rename="camel", kw_only=True):
    """What became of the pods that named this scheduler."""

    scheduler: str
    running: int
    refused: int
    """By the kubelets of their nodes: ``TopologyAffinityError``."""
    waiting: int
    """For a node that can hold them."""
    seconds: float = 0.0
    """Until nothing changed any more."""


class DemoCells(msgspec.Struct, frozen=True, rename="camel", kw_only=True):
    """The same pods with two schedulers, on nodes with NUMA cells."""

    pods: int
    nodes: int
    stock: DemoScheduled
    cells: DemoScheduled


class Demo(msgspec.Struct, frozen=True, rename="camel"):
    pods: list[DemoPod]
    summary: str
    operator: DemoOperator | None = None
    growth: DemoGrowth | None = None
    build: DemoBuild | None = None
    report: DemoReport | None = None
    cells: DemoCells | None = None
    """Only of a sandbox whose nodes have NUMA cells."""


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
    numa: str = ""
    """The layout of every node, and the policy and scope of its topology manager: ``2x8,policy=…,scope=…``."""
    demo: Demo | None = None


async def describe(sandbox: Sandbox, *, demo: Demo | None = None) -> Document:
    """The sandbox as it is now; nodes are listed only if the API server is healthy."""
    health = {each.name: each for each in await sandbox.health()}
    records = sandbox.records()
    answers = health.get("kube-apiserver", _ABSENT).healthy
    nodes = await sandbox.nodes() if answers else []
    problems = await sandbox.container_problems() if answers else {}
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
        + _containers(sandbox.containers(), problems),
        nodes=[NodeLine(*node) for node in nodes],
        numa=sandbox.state.settings.numa.text if sandbox.state.settings.numa else "",
        demo=demo,
    )


def _containers(records: Sequence[Record], problems: Mapping[tuple[str, str], str]) -> list[Process]:
    by_name = {(record.pod, record.container): record for record in records}
    return [_container(by_name.get(name), *name, problem) for name, problem in problems.items()]


def _container(record: Record | None, pod: str, container: str, problem: str) -> Process:
    return Process(
        f"{pod}/{container}",
        record.pid if record else 0,
        record.log if record else "",
        "",
        not problem,
        problem,
        pod,
        container,
        memory_of(record) if record else 0,
    )


_ABSENT = Health("", running=False, detail="not started")
