"""What the demo shows of each component: installation and uninstall, taints, NUMA, reports, and image builds."""

import random
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping
from typing import Any, Final, Self

import msgspec

from polyarch.builds.api.resources import ImageBuild, ImageBuildRun
from polyarch.builds.names import IMAGE_BUILD_RUNS, IMAGE_BUILDS
from polyarch.installation.apply import AppliedObject
from polyarch.installation.inventory import IN_EVERY_NAMESPACE, ClusterInventory, InventoryObject, survey
from polyarch.kube.client import Client
from polyarch.kube.errors import AlreadyExists, NotFound
from polyarch.kube.patches import MergePatch
from polyarch.kube.resources import (
    CONFIGMAPS,
    DAEMONSETS,
    DEPLOYMENTS,
    ENDPOINT_SLICES,
    NAMESPACES,
    NODES,
    PODS,
    REPLICASETS,
    SERVICE_ACCOUNTS,
    ObjectRef,
)
from polyarch.names import DEFAULT_NAMESPACE
from polyarch.numa.api.resources import SchedulerSettings
from polyarch.numa.api.topology import TOPOLOGIES
from polyarch.objects import Condition
from polyarch.placement.api import POLICIES
from polyarch.placement.names import REPORT_CONFIGMAP, REPORT_KEY, SKIP_ANNOTATION
from polyarch.placement.names import SINGLETON as POLICY
from polyarch.reports.summary import Summary
from polyarch.reports.wording import percent
from polyarch.sandbox.cluster import Sandbox
from polyarch.sandbox.demo.run import clean, create_namespace, is_absent
from polyarch.sandbox.document import DemoBuild, DemoCells, DemoGrowth, DemoOperator, DemoReport, DemoScheduled
from polyarch.sandbox.errors import ProcessFailed, SilentStepProgress
from polyarch.sandbox.kubelet_model.layout import NumaLayout
from polyarch.sandbox.nodes.plans import Node
from polyarch.sandbox.nodes.pods import Pod
from polyarch.sandbox.tasks import together, until
from polyarch.taints import names
from polyarch.taints.api import ARCHITECTURE_TAINTS, ArchitectureTaints
from polyarch.taints.settings import PRESET_KEYS

WAIT_SECONDS: Final = 180.0
OF_KUBERNETES: Final = frozenset({PODS, REPLICASETS, ENDPOINT_SLICES})
"""Kinds whose objects Kubernetes' controllers make from others."""


class RoundTrip:
    """An installation and its uninstall, compared with the objects of before."""

    def __init__(self, sandbox: Sandbox, client: Client, before: ClusterInventory, *, besides: Collection[str]) -> None:
        self._sandbox = sandbox
        self._client = client
        self._before = before
        self._besides = besides
        self._line = DemoOperator(installed=0, made=0, install_seconds=0.0)

    @classmethod
    async def begin(cls, sandbox: Sandbox, client: Client, *, besides: Collection[str]) -> Self:
        """Uninstall polyarch if it is there, then list all objects. Namespaces in ``besides`` do not count."""
        if sandbox.state.installed:
            await sandbox.uninstall(SilentStepProgress())
        return cls(sandbox, client, await survey(client), besides=besides)

    async def install(self) -> DemoOperator:
        """Install polyarch; how many objects came to be, and in how long."""
        begun = time.monotonic()
        applied = await self._sandbox.install(SilentStepProgress())
        seconds = round(time.monotonic() - begun, 1)
        new = self._new(await survey(self._client))
        self._line = DemoOperator(installed=len(applied), made=len(made(new, applied)), install_seconds=seconds)
        return self._line

    async def uninstall(self) -> DemoOperator:
        """Uninstall polyarch; the line of :meth:`install`, with what is left."""
        begun = time.monotonic()
        await self._sandbox.uninstall(SilentStepProgress())
        seconds = round(time.monotonic() - begun, 1)
        left = [str(each) for each in self._new(await survey(self._client))]
        self._line = msgspec.structs.replace(self._line, uninstall_seconds=seconds, left=left)
        return self._line

    def _new(self, now: ClusterInventory) -> list[InventoryObject]:
        return [each for each in now.since(self._before) if not _is_of(each.ref, self._besides)]


def made(new: Iterable[InventoryObject], applied: Iterable[AppliedObject]) -> list[ObjectRef]:
    """The objects among ``new`` that neither the installation applied nor Kubernetes' controllers made. Pure."""
    ours = {each.ref for each in applied}
    return [
        each.ref
        for each in new
        if each.ref not in ours
        and each.ref.resource not in OF_KUBERNETES
        and (each.ref.resource, each.ref.key.name) not in IN_EVERY_NAMESPACE
    ]


def _is_of(ref: ObjectRef, namespaces: Collection[str]) -> bool:
    return ref.key.namespace in namespaces or (ref.resource == NAMESPACES and ref.key.name in namespaces)


# -- taints: two arm64 nodes join, and the cluster becomes again what it was -------------------------------------------
# Nodes carry the taint when they register, DaemonSets whose images run there get their pods on them, and pods that
# nothing else keeps from them (placement leaves them alone at their own request) stay where they can run.


TAINTS_NAMESPACE: Final = "demo-growth"
ARCHITECTURE: Final = "arm64"
JOINING: Final = 2
AGENT, LEGACY = "agent", "billing"
LEGACY_PODS: Final = 4
KEY: Final = PRESET_KEYS["archaware"]


async def grow(sandbox: Sandbox, client: Client) -> DemoGrowth:
    """Switch taints on, let the nodes join, look, and take everything back. polyarch must be installed."""
    before = set(await _nodes(client))
    await create_namespace(client, TAINTS_NAMESPACE)
    await client.create(DAEMONSETS, _daemon_set(), namespace=TAINTS_NAMESPACE)
    await client.create(ARCHITECTURE_TAINTS, _configuration())
    await _until_reached("taints are not ready", lambda: _is_ready(client))
    settings = sandbox.state.settings
    more = settings.nodes | {ARCHITECTURE: settings.nodes.get(ARCHITECTURE, 0) + JOINING}
    await _resize(sandbox, more)
    now = await _nodes(client)
    joined = sorted(now.keys() - before)
    tainted = [name for name in joined if _is_tainted(now[name])]
    await client.create(DEPLOYMENTS, _deployment(), namespace=TAINTS_NAMESPACE)
    await _until_reached("pods of the growing cluster do not run", lambda: _have_started(client, joined))
    pods = await _running(client)
    growth = DemoGrowth(
        joined=len(joined),
        tainted=len(tainted),
        daemon_set_pods=sum(name == AGENT and node in joined for name, node in pods),
        kept_away=sum(name == LEGACY and node not in joined for name, node in pods),
    )
    await client.delete(ARCHITECTURE_TAINTS, names.SINGLETON)
    await _until_reached("taints are not removed", lambda: is_absent(client, ARCHITECTURE_TAINTS, names.SINGLETON))
    left = sorted(name for name, node in (await _nodes(client)).items() if _is_tainted(node))
    await client.delete(NAMESPACES, TAINTS_NAMESPACE)
    await _resize(sandbox, settings.nodes)
    await _until_reached("polyarch's own containers are not ready", lambda: _are_well(sandbox))
    await _until_reached(
        f"namespace {TAINTS_NAMESPACE} is not gone", lambda: is_absent(client, NAMESPACES, TAINTS_NAMESPACE)
    )
    return msgspec.structs.replace(growth, left=left)


async def _resize(sandbox: Sandbox, nodes: dict[str, int]) -> None:
    wanted = msgspec.structs.replace(sandbox.state.settings, nodes=nodes)
    await Sandbox.start(wanted, install=False, home=sandbox.folder.root.parent)


async def _are_well(sandbox: Sandbox) -> bool:
    return not any((await sandbox.container_problems()).values())


async def _nodes(client: Client) -> dict[str, Node]:
    return {node.metadata.name: node for node in (await client.list(NODES, type=Node)).items}


def _is_tainted(node: Node) -> bool:
    return any(taint.get("key") == KEY for taint in node.spec.taints or ())


async def _is_ready(client: Client) -> bool:
    found = await client.get(ARCHITECTURE_TAINTS, names.SINGLETON, type=ArchitectureTaints)
    true = {each.type for each in found.status.conditions or () if each.status == "True"}
    return true >= {"Ready", "NodesTainted"}


async def _running(client: Client) -> list[tuple[str, str]]:
    """The app and the node of each pod that runs."""
    found = await client.list(PODS, type=Pod, namespace=TAINTS_NAMESPACE)
    return [
        ((pod.metadata.labels or {}).get("app", ""), pod.spec.node_name)
        for pod in found.items
        if pod.status.phase == "Running"
    ]


async def _have_started(client: Client, joined: Collection[str]) -> bool:
    pods = await _running(client)
    agents = {node for name, node in pods if name == AGENT}
    return agents.issuperset(joined) and sum(name == LEGACY for name, _ in pods) == LEGACY_PODS


def _configuration() -> dict[str, Any]:
    return {
        "apiVersion": ARCHITECTURE_TAINTS.api_version,
        "kind": ARCHITECTURE_TAINTS.kind,
        "metadata": {"name": names.SINGLETON},
        "spec": {},
    }


def _daemon_set() -> dict[str, Any]:
    return _workload(DAEMONSETS.kind, AGENT, "nginx:1.27", {})


def _deployment() -> dict[str, Any]:
    """Its only image runs on amd64, and at its request placement does not say so to the scheduler."""
    document = _workload(DEPLOYMENTS.kind, LEGACY, "quay.io/acme/billing:2.3", {SKIP_ANNOTATION: "true"})
    document["spec"]["replicas"] = LEGACY_PODS
    return document


def _workload(kind: str, name: str, image: str, annotations: dict[str, str]) -> dict[str, Any]:
    labels = {"app": name}
    spec = {
        "containers": [{"name": name, "image": image, "imagePullPolicy": "IfNotPresent"}],
        "terminationGracePeriodSeconds": 0,
    }
    return {
        "apiVersion": "apps/v1",
        "kind": kind,
        "metadata": {"name": name},
        "spec": {
            "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels, "annotations": annotations}, "spec": spec},
        },
    }


# -- NUMA: the same pods with the stock scheduler and with polyarch's, on nodes with NUMA zones ------------------------
# The stock scheduler sees the sums of a node. So it sends pods to nodes of which no single zone can hold them, and
# there the kubelet rejects them: they fail, and nobody tries another node. polyarch's scheduler lets them wait.


NUMA_NAMESPACE: Final = "demo-cells"
STOCK: Final = "default-scheduler"
OURS: Final = SchedulerSettings().name
MAX_PODS: Final = 200
MAX_CONCURRENT_REQUESTS: Final = 16
FREE_SECONDS: Final = 30.0
QUIET_SECONDS: Final = 6.0
"""Nothing has changed for so long: longer than the first attempts of a scheduler, and than an exporter needs."""
NUMA_LOOK_SECONDS: Final = 0.5
REFUSED: Final = "TopologyAffinityError"
IMAGE: Final = "nginx:1.27"


class _Amounts(msgspec.Struct, frozen=True):
    name: str
    allocatable: str
    available: str


class _Zone(msgspec.Struct, frozen=True):
    resources: tuple[_Amounts, ...] = ()


class _Topology(msgspec.Struct, frozen=True):
    zones: tuple[_Zone, ...] = ()


async def compare(sandbox: Sandbox, client: Client) -> DemoCells | None:
    """Both runs, one after the other on empty nodes; None if the nodes have no cells. Afterwards those of the second
    run are still there."""
    numa = sandbox.state.settings.numa
    if numa is None:
        return None
    await clean(client, NUMA_NAMESPACE)
    nodes = sum(sandbox.state.settings.nodes.values())
    wanted = documents(numa, nodes)
    await _until_free(client)
    stock = await _run(client, wanted, STOCK)
    await clean(client, NUMA_NAMESPACE)
    await _until_free(client)
    return DemoCells(pods=len(wanted), nodes=nodes, stock=stock, cells=await _run(client, wanted, OURS))


def documents(numa: NumaLayout, nodes: int) -> list[dict[str, Any]]:
    """Guaranteed pods, always the same: for each cell one that wants more than half of it, and one that wants a little
    less than half; in no order. So the cluster becomes as full as it can."""
    sizes = [numa.cpus // 2 + 1, max(1, numa.cpus // 2 - 1)] * numa.zones * nodes
    random.Random(1).shuffle(sizes)  # noqa: S311  no secret
    return [_numa_pod(number, cpus) for number, cpus in enumerate(sizes[:MAX_PODS])]


def _numa_pod(number: int, cpus: int) -> dict[str, Any]:
    container = {"name": "app", "image": IMAGE, "resources": {"limits": {"cpu": str(cpus), "memory": "64Mi"}}}
    spec = {"terminationGracePeriodSeconds": 0, "restartPolicy": "Always", "containers": [container]}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": f"pod-{number:03}"}, "spec": spec}


async def _run(client: Client, wanted: list[dict[str, Any]], scheduler: str) -> DemoScheduled:
    await create_namespace(client, NUMA_NAMESPACE)

    async def has_account() -> bool:
        return bool((await client.list(SERVICE_ACCOUNTS, namespace=NUMA_NAMESPACE)).items)

    await _until_reached(f"namespace {NUMA_NAMESPACE} has no ServiceAccount", has_account)
    begun = time.monotonic()
    for start in range(0, len(wanted), MAX_CONCURRENT_REQUESTS):
        several = wanted[start : start + MAX_CONCURRENT_REQUESTS]
        named = [{**each, "spec": {**each["spec"], "schedulerName": scheduler}} for each in several]
        await together(client.create(PODS, each, namespace=NUMA_NAMESPACE) for each in named)
    seen: list[tuple[float, DemoScheduled]] = []

    async def is_quiet() -> bool:
        found = await client.list(PODS, namespace=NUMA_NAMESPACE, type=Pod)
        now, counted = time.monotonic(), count(scheduler, found.items)
        if not seen or seen[-1][1] != counted:
            seen.append((now, counted))
        return now > seen[-1][0] + QUIET_SECONDS

    await until(is_quiet, seconds=WAIT_SECONDS, every=NUMA_LOOK_SECONDS)
    since, last = seen[-1]
    return msgspec.structs.replace(last, seconds=round(since - begun, 1))


def count(scheduler: str, pods: list[Pod]) -> DemoScheduled:
    """What became of the pods. Pure."""
    reasons = Counter(pod.status.reason for pod in pods if pod.status.phase == "Failed")
    phases = Counter(pod.status.phase for pod in pods)
    return DemoScheduled(
        scheduler=scheduler,
        running=phases["Running"],
        refused=reasons[REFUSED],
        waiting=sum(not pod.spec.node_name for pod in pods),
    )


async def _until_free(client: Client) -> None:
    """Until the exporters publish no CPU as held any more, or a while: pods of the user may hold some."""

    async def are_free() -> bool:
        found = await client.list(TOPOLOGIES, type=_Topology)
        amounts = [each for topology in found.items for zone in topology.zones for each in zone.resources]
        return all(each.available == each.allocatable for each in amounts if each.name == "cpu")

    await until(are_free, seconds=FREE_SECONDS, every=NUMA_LOOK_SECONDS)


# -- the report that the placement controller keeps: what could run on arm64, and what is in the way -------------------


TARGET: Final = "arm64"
REPORT_SECONDS: Final = 120.0
WANTED: Final = {"spec": {"report": {"enabled": True}}}


async def keep_report(client: Client) -> DemoReport:
    """Switch the report on, read it, and switch it off again. polyarch must be installed."""
    metadata = {"name": POLICY}
    policy = {"apiVersion": POLICIES.api_version, "kind": POLICIES.kind, "metadata": metadata, **WANTED}
    begun = time.monotonic()
    try:
        await client.create(POLICIES, policy)
    except AlreadyExists:  # somebody's own, of this sandbox
        await client.patch(POLICIES, POLICY, MergePatch(WANTED))
        is_ours = False
    else:
        is_ours = True
    if not await until(lambda: _is_report_there(client), seconds=REPORT_SECONDS):
        raise ProcessFailed(
            f"no report was made within {REPORT_SECONDS:.0f} s; see the logs of the placement controller"
        )
    found = await _read_report(client)
    seconds = round(time.monotonic() - begun, 1)
    if is_ours:
        await client.delete(POLICIES, POLICY)
    return described_report(found, seconds)


def described_report(summary: Summary | None, seconds: float) -> DemoReport:
    """What the demo tells of the report. Pure."""
    sums = {each.target: each for each in summary.sums} if summary is not None else {}
    blockers = [each.image for each in summary.blockers if each.target == TARGET] if summary is not None else []
    share = sums[TARGET].ready_share if TARGET in sums else None
    return DemoReport(target=TARGET, could_run=percent(share), in_the_way=blockers[:1], seconds=seconds)


async def _is_report_there(client: Client) -> bool:
    return await _read_report(client) is not None


async def _read_report(client: Client) -> Summary | None:
    try:
        found = await client.get(CONFIGMAPS, REPORT_CONFIGMAP, namespace=DEFAULT_NAMESPACE)
    except NotFound:
        return None
    text = (found.get("data") or {}).get(REPORT_KEY)
    return msgspec.json.decode(text, type=Summary) if text else None


# -- builds: for every architecture; then, after a change for one, for that one alone ----------------------------------
# The fake buildah builds; the Jobs, the scheduler, the pushes and the registry are real. Component builds is installed
# for it, and stays: the build can be tried further.


BUILD_NAMESPACE: Final = "demo-builds"
BUILD_NAME: Final = "shop"
BUILD_LOOK_SECONDS: Final = 0.2
BASE: Final = "docker.io/library/nginx:1.27"
CHANGED: Final = "arm64"
"""The architecture that gets a build argument of its own, where there are nodes of it."""


async def build(sandbox: Sandbox, client: Client) -> DemoBuild:
    """Both builds. polyarch must be installed; when this returns, component builds is, too."""
    wanted = msgspec.structs.replace(sandbox.state.settings, builds=True)
    await Sandbox.start(wanted, home=sandbox.folder.root.parent, progress=SilentStepProgress())
    architectures = sorted({architecture for _, architecture, _ in await sandbox.nodes()})
    changed = CHANGED if CHANGED in architectures else architectures[0]
    await create_namespace(client, BUILD_NAMESPACE)
    begun = time.monotonic()
    made = await client.create(
        IMAGE_BUILDS,
        document(f"{sandbox.registry.address}/{BUILD_NAMESPACE}/{BUILD_NAME}"),
        namespace=BUILD_NAMESPACE,
        type=ImageBuild,
    )
    first = await _published(client, made.metadata.generation)
    built = time.monotonic()
    override = {"architecture": changed, "buildArgs": {"TUNED": "yes"}}
    patch = MergePatch({"spec": {"source": {"overrides": [override]}}})
    patched = await client.patch(IMAGE_BUILDS, BUILD_NAME, patch, namespace=BUILD_NAMESPACE, type=ImageBuild)
    second = await _published(client, patched.metadata.generation)
    return DemoBuild(
        image=second.status.image,
        built=_in_phase(await _run_of(client, first), "Built"),
        seconds=round(built - begun, 1),
        built_again=_in_phase(again := await _run_of(client, second), "Built"),
        reused=_in_phase(again, "Reused"),
        seconds_again=round(time.monotonic() - built, 1),
    )


def document(repository: str) -> dict[str, Any]:
    """The ImageBuild."""
    containerfile = f'FROM {BASE}\nARG TARGETARCH\nARG TUNED=no\nRUN echo "$TARGETARCH, tuned: $TUNED" > /about\n'
    return {
        "apiVersion": IMAGE_BUILDS.api_version,
        "kind": IMAGE_BUILDS.kind,
        "metadata": {"name": BUILD_NAME},
        "spec": {"source": {"containerfile": containerfile}, "output": {"repository": repository, "tags": ["latest"]}},
    }


async def _published(client: Client, generation: int) -> ImageBuild:
    """The build when this generation of it is published. Raises ProcessFailed if it is not."""
    found: list[ImageBuild] = []

    async def is_over() -> bool:
        found[:] = [await client.get(IMAGE_BUILDS, BUILD_NAME, namespace=BUILD_NAMESPACE, type=ImageBuild)]
        return is_published(found[0], generation) or bool(problem_of(found[0]))

    await until(is_over, seconds=WAIT_SECONDS, every=BUILD_LOOK_SECONDS)
    if not is_published(found[0], generation):
        problem = problem_of(found[0]) or f"not published after {WAIT_SECONDS:.0f} s"
        raise ProcessFailed(f"image build {BUILD_NAMESPACE}/{BUILD_NAME}: {problem}; see the logs of polyarch's pods")
    return found[0]


def is_published(build: ImageBuild, generation: int) -> bool:
    """Whether the image of this generation is the one that is published. Pure."""
    conditions = _conditions(build)
    ready, progressing = conditions.get("Ready"), conditions.get("Progressing")
    is_seen = build.status.observed_generation >= generation
    return is_seen and (ready is not None and ready.reason == "Published") and _is(progressing, "False")


def problem_of(build: ImageBuild) -> str:
    """Why it will not be published by itself; empty if it may be. Pure."""
    conditions = _conditions(build)
    wrong, degraded = conditions.get("InputsValid"), conditions.get("Degraded")
    if wrong is not None and _is(wrong, "False"):
        return wrong.message
    return degraded.message if degraded is not None and _is(degraded, "True") else ""


def _conditions(build: ImageBuild) -> Mapping[str, Condition]:
    return {each.type: each for each in build.status.conditions or ()}


def _is(condition: Condition | None, status: str) -> bool:
    return condition is not None and condition.status == status


async def _run_of(client: Client, build: ImageBuild) -> ImageBuildRun:
    return await client.get(IMAGE_BUILD_RUNS, build.status.current_run, namespace=BUILD_NAMESPACE, type=ImageBuildRun)


def _in_phase(run: ImageBuildRun, phase: str) -> list[str]:
    return [each.architecture for each in run.status.architectures or () if each.phase == phase]


async def _until_reached(problem: str, condition: Callable[[], Awaitable[bool]]) -> None:
    if not await until(condition, seconds=WAIT_SECONDS):
        raise ProcessFailed(f"{problem} after {WAIT_SECONDS:.0f} s; see the logs of polyarch's pods")
