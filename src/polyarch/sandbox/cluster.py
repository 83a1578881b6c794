"""Start, inspect and stop a sandbox.

    async with polyarch.sandbox.cluster.opened("trial") as sandbox:
        sandbox.kubeconfig, sandbox.registry.address, sandbox.audit_log

``up`` on a running sandbox starts only what is missing. A lock per sandbox serialises ``up`` and ``down`` of one name;
a lock shared by all sandboxes serialises the choice of ports.
"""

import datetime as dt
import os
import sys
from collections.abc import AsyncIterator, Collection, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import msgspec

from polyarch.installation.apply import AppliedObject
from polyarch.kube import config
from polyarch.kube.client import Client
from polyarch.kube.resources import PODS
from polyarch.names import DEFAULT_NAMESPACE
from polyarch.operator.settings import DEFAULT_BUILDER_IMAGE
from polyarch.sandbox import binaries, control_plane, operator, processes
from polyarch.sandbox.certificates import Pki, context_name
from polyarch.sandbox.control_plane import Health, Layout, ask
from polyarch.sandbox.errors import ProcessFailed, SandboxError, SilentStepProgress, StepProgress
from polyarch.sandbox.files import file_lock
from polyarch.sandbox.namespaces import GATEWAY_PROCESS
from polyarch.sandbox.network import free_pod_network, prepare_sockets
from polyarch.sandbox.nodes.pods import Pod
from polyarch.sandbox.pods import containers
from polyarch.sandbox.processes import Command, Record, is_running
from polyarch.sandbox.real import machine
from polyarch.sandbox.real.images import push_images
from polyarch.sandbox.real.nodes import RealNodes, is_of_real_nodes
from polyarch.sandbox.registry.images import FAMILIAR
from polyarch.sandbox.registry.seed import Registry
from polyarch.sandbox.services import (
    EGRESS_PROCESS,
    NODES_PROCESS,
    egress_probes,
    registered_nodes,
    registry_address,
    registry_probes,
    start_egress,
    start_nodes,
    start_registry,
    write_registry_files,
)
from polyarch.sandbox.state import Folder, Ports, Settings, State, choose_ports, is_free, joined, recorded, state_home
from polyarch.sandbox.tasks import together, until
from polyarch.sandbox.versions import PROGRAMS, Program, as_numbers, of_version, with_real_nodes

OWNER_WATCH = "owner-watch"
STOP_ORDER = (
    (OWNER_WATCH,),
    (NODES_PROCESS,),
    ("kube-controller-manager", "kube-scheduler", "registry-front", EGRESS_PROCESS),
    ("kube-apiserver", "registry"),
    ("etcd",),
)
"""Clients stop before servers, so that no server waits for connections to drain."""


class Sandbox:
    """A sandbox that was started, now or earlier: its paths, its addresses, and questions to its processes."""

    def __init__(self, folder: Folder, state: State, *, programs: Mapping[str, Path]) -> None:
        self.folder = folder
        self.state = state
        self._programs = programs

    @property
    def name(self) -> str:
        return self.folder.name

    @property
    def kubeconfig(self) -> Path:
        """The administrator's kubeconfig."""
        return self.folder.kubeconfig

    @property
    def context(self) -> str:
        return context_name(self.name)

    @property
    def audit_log(self) -> Path:
        """One JSON audit event per line (level Metadata), written at most a second late."""
        return self.folder.audit_log

    @property
    def registry_log(self) -> Path:
        """One JSON line per request to the registry."""
        return self.folder.registry_log

    @property
    def registry(self) -> Registry:
        """The registry: its address, and how to push to it."""
        return Registry(registry_address(self.layout), self.folder)

    @property
    def registries_conf(self) -> Path:
        """Maps public names to the sandbox's registry; polyarch and the nodes use it."""
        return self.folder.registries_conf

    @property
    def pki(self) -> Pki:
        return Pki(self.folder.pki)

    @property
    def ca(self) -> Path:
        """The CA that signed the API server's certificate."""
        return Path(self.pki.ca)

    @property
    def api_server(self) -> str:
        return self.layout.api_server

    @property
    def version(self) -> str:
        return f"v{self.state.settings.kubernetes_version}"

    @property
    def layout(self) -> Layout:
        settings = self.state.settings
        version = settings.kubernetes_version
        return Layout(self.folder, self.state.ports, self._programs, os.environ, version, real=settings.real)

    def client(self) -> Client:
        """A client with administrator rights; use it as an async context manager."""
        return Client(config.load(str(self.kubeconfig)), role="sandbox")

    def records(self) -> dict[str, Record]:
        """The recorded processes, running or not, by name."""
        return processes.load(self.folder.records)

    def containers(self) -> list[Record]:
        """The running containers of pods of polyarch's own image."""
        recorded = processes.load(containers.records_of(self.folder.root)).values()
        return sorted(filter(is_running, recorded), key=lambda each: (each.pod, each.container))

    async def container_problems(self) -> dict[tuple[str, str], str]:
        """Why a container is not ready, empty if it is, by pod (``namespace/name``) and container: of polyarch's own
        pods, running or not, and of those that :meth:`containers` lists."""
        running = {(record.pod, record.container) for record in self.containers()}
        namespaces = {DEFAULT_NAMESPACE} | {pod.partition("/")[0] for pod, _ in running}
        async with self.client() as client:
            found = await together(client.list(PODS, type=Pod, namespace=each) for each in sorted(namespaces))
        pods = {str(pod.metadata.key): pod for page in found for pod in page.items if not pod.finished}
        own = {
            (name, each.name)
            for name, pod in pods.items()
            if pod.metadata.namespace == DEFAULT_NAMESPACE
            for each in pod.containers
        }
        return {
            (pod, container): pods[pod].problem(container) if pod in pods else "its pod is gone"
            for pod, container in sorted(running | own)
        }

    @classmethod
    def attach(cls, name: str, *, home: Path | None = None) -> "Sandbox":
        """An existing sandbox, without starting anything; raises SandboxError if there is none of this name."""
        folder = Folder.of(name, home)
        state = folder.load()
        if state is None:
            raise SandboxError(f"there is no sandbox {name!r}; bring one up with `polyarch up --name {name}`")
        return cls(folder, state, programs={})

    @classmethod
    async def start(
        cls,
        settings: Settings | None = None,
        *,
        assets: str = "",
        fresh: bool = False,
        owner: int | None = None,
        repair: bool = True,
        install: bool = True,
        home: Path | None = None,
        progress: StepProgress | None = None,
    ) -> "Sandbox":
        """Start what does not run of a sandbox, and wait until all of it is healthy.

        Without ``settings``, those of the last start apply. ``fresh`` deletes an earlier sandbox of this name first.
        ``owner`` is the pid of a process: when it ends, the sandbox is deleted. With ``repair=False`` a sandbox whose
        processes all run is returned unchanged, so that its other users are not disturbed. With ``install=False``
        polyarch is left as it is, installed or not.
        """
        progress = progress or SilentStepProgress()
        if settings is not None and settings.polyarch:
            operator.check(settings)
        home = home or state_home()
        folder = Folder.of(settings.name if settings else Settings().name, home)
        needed = _programs(settings, None if fresh else folder.load())
        programs = await binaries.find(programs=needed, assets=assets, progress=progress)
        async with file_lock(
            folder.lock, waiting=lambda: progress.step(f"waiting for another process at {folder.name}")
        ):
            if fresh:
                await cls._stop(folder)
                folder.delete()
            known = folder.load()
            running = processes.load(folder.records).values()
            if not repair and known is not None and running and all(map(is_running, running)):
                return cls(folder, known, programs=programs)
            state = await _prepare(folder, settings, owner)
            sandbox = cls(folder, state, programs=programs)
            before = set(sandbox.records())
            try:
                await sandbox._bring_up(progress)
                if install:
                    await sandbox._as_wanted(progress)
            except BaseException:
                # Leave no half-started processes behind. Logs and state stay, to find the reason.
                await cls._stop(folder, besides=before)
                raise
        return sandbox

    async def _bring_up(self, progress: StepProgress) -> None:
        layout = self.layout
        if self.state.owner is not None:
            arguments = (sys.executable, "-m", "polyarch.sandbox.reaper", str(self.folder.root))
            log = str(self.folder.log(OWNER_WATCH))
            watch = Command(name=OWNER_WATCH, arguments=arguments, environment=layout.environment, log=log)
            await control_plane.ensure(layout, watch)
        await self._stop_older(self.folder)
        prepare_sockets(self.folder.root)
        real = RealNodes(layout, self.state) if layout.real else None
        if real is not None:
            await real.open_gateway()
        control_plane.write_files(layout, dt.datetime.now(dt.UTC))
        write_registry_files(layout, self.state.settings.registries_conf)
        await together([control_plane.start_api_server(layout, progress), start_registry(layout)])
        async with self.client() as client:
            wanted = sum(self.state.settings.nodes.values())
            progress.step(f"starting the controllers and {wanted} node{'s' if wanted != 1 else ''}")
            nodes = start_nodes(layout, client, self.state.settings) if real is None else real.start(client, progress)
            controllers = control_plane.start_controllers(layout)
            await together([controllers, nodes, start_egress(layout, client), self._push_images()])
        operator.write_values(layout, self.state.settings)

    async def _as_wanted(self, progress: StepProgress) -> None:
        if self.state.settings.polyarch:
            await self.install(progress)
        elif self.state.installed:
            await self.uninstall(progress)

    async def install(self, progress: StepProgress) -> tuple[AppliedObject, ...]:
        """Install polyarch, or what has changed of its installation; returns what was done with each object."""
        progress.step("installing polyarch")
        self._remember(installed=True)
        async with self.client() as client:
            applied = await operator.start(self.layout, client, self.state.settings, progress)
        await self._until_ready()
        return applied

    async def _until_ready(self) -> None:
        """Wait for every container of polyarch's: after a restart, the status of a Deployment is that from before."""
        problems: dict[tuple[str, str], str] = {}

        async def are_ready() -> bool:
            nonlocal problems
            problems = await self.container_problems()
            return not any(problems.values())

        if not await until(are_ready, seconds=operator.START_SECONDS):
            first = next(f"{pod}, container {name}: {each}" for (pod, name), each in problems.items() if each)
            raise ProcessFailed(f"polyarch in the sandbox: not ready after {operator.START_SECONDS:.0f} s: {first}")

    async def uninstall(self, progress: StepProgress) -> None:
        """Uninstall polyarch with its custom resources."""
        progress.step("uninstalling polyarch")
        async with self.client() as client:
            await operator.remove(client, progress)
        self._remember(installed=False)

    async def _push_images(self) -> None:
        if self.state.settings.seed_images:
            # The image of build pods, which are played on simulated nodes, is a real one on real nodes.
            played = {name for name in FAMILIAR if self.layout.real and name == DEFAULT_BUILDER_IMAGE}
            await self.registry.seed({name: FAMILIAR[name] for name in FAMILIAR.keys() - played})
        if self.layout.real:
            await push_images(self.layout, self.registry, builds=self.state.settings.builds)

    def remember_merge(self, kubeconfig: str) -> None:
        """Record that our context was merged into this kubeconfig, so that deleting the sandbox removes it there."""
        self._remember(merged_kubeconfig=kubeconfig)

    def _remember(self, **changes: object) -> None:
        self.state = msgspec.structs.replace(self.state, **changes)
        self.folder.save(self.state)

    async def stop(self) -> None:
        """Stop its processes; keep its state."""
        async with file_lock(self.folder.lock):
            await self._stop(self.folder)

    async def stop_node(self, node: str) -> None:
        """End all that runs on a real node at once, as a loss of power does; :meth:`start` boots it again."""
        if not self.state.settings.real:
            raise SandboxError(
                f"the nodes of sandbox {self.name} are simulated: --node is for those of `polyarch up --real`"
            )
        async with file_lock(self.folder.lock):
            await RealNodes(self.layout, self.state).cut_power(node)

    async def delete(self) -> None:
        """Stop its processes and delete its folder."""
        async with file_lock(self.folder.lock, remove=True):
            await self._stop(self.folder)
            self.folder.delete()

    @staticmethod
    async def _stop(folder: Folder, *, besides: Collection[str] = ()) -> None:
        running = {name: record for name, record in processes.load(folder.records).items() if name not in besides}
        await Sandbox._stop_older(folder)
        state = folder.load()
        if state is not None and state.settings.real and GATEWAY_PROCESS not in besides:
            await RealNodes(Layout(folder, state.ports, {}, os.environ), state).stop()
        for stage in STOP_ORDER:
            await processes.stop([running[name] for name in stage if name in running], records=folder.records)
            if NODES_PROCESS in stage and NODES_PROCESS not in besides:
                await containers.end_all(folder.root)

    @staticmethod
    async def _stop_older(folder: Folder) -> None:
        """Stop processes that only an older version of polyarch started."""
        known = {name for stage in STOP_ORDER for name in stage}
        found = processes.load(folder.records).items()
        older = [record for name, record in found if name not in known and not is_of_real_nodes(name)]
        await processes.stop(older, records=folder.records)

    async def health(self) -> list[Health]:
        """The health of each component, probed now."""
        layout = self.layout
        probes = control_plane.probes(layout) | registry_probes(layout) | egress_probes(layout)
        found = []
        for name, record in self.records().items():
            if not is_running(record):
                found.append(Health(name, running=False, detail=f"ended; see {record.log}"))
                continue
            found.append(Health(name, running=True, detail=await ask(probes[name]) if name in probes else ""))
        return found

    async def nodes(self) -> list[tuple[str, str, bool]]:
        """(name, architecture, ready) of every node."""
        async with self.client() as client:
            found = await registered_nodes(client)
        return [
            (node.metadata.name, (node.metadata.labels or {}).get("kubernetes.io/arch", ""), node.takes_pods)
            for node in found
        ]


async def _prepare(folder: Folder, settings: Settings | None, owner: int | None) -> State:
    """Update the recorded state with the new settings; choose new ports if another program has taken ours."""
    async with file_lock(folder.root.parent / ".ports.lock"):
        known = folder.load()
        wanted = settings or (known.settings if known else Settings(name=folder.name))
        fleet = joined(joined(known.fleet, known.settings.nodes) if known else (), wanted.nodes)
        running = any(is_running(record) for record in processes.load(folder.records).values())
        owned_by = processes.identify("owner", owner) if owner is not None else None
        if known is not None and (running or _all_free(known.ports)):
            state = msgspec.structs.replace(known, settings=wanted, fleet=fleet, owner=owned_by or known.owner)
        else:
            others = recorded(folder.root.parent, besides=folder.name)
            network = known.pod_network if known else free_pod_network({other.pod_network for other in others})
            ports = choose_ports([other.ports for other in others])
            state = State(settings=wanted, ports=ports, fleet=fleet, pod_network=network, owner=owned_by)
        folder.save(state)
    return state


def _programs(settings: Settings | None, known: State | None) -> Sequence[Program]:
    """The programs that this sandbox runs. SandboxError if this machine cannot run them, or if they are older than
    those that stored what the sandbox holds."""
    wanted = settings or (known.settings if known is not None else Settings())
    version = wanted.kubernetes_version
    if known is not None and as_numbers(version) < as_numbers(before := known.settings.kubernetes_version):
        raise SandboxError(
            f"--kubernetes {wanted.kubernetes}: sandbox {known.settings.name} holds what Kubernetes {before} stored, "
            f"which {version} may not be able to read; delete it with --fresh, or choose another --name"
        )
    if known is not None and known.settings.real != wanted.real:
        kind = "real" if known.settings.real else "simulated"
        raise SandboxError(
            f"the nodes of sandbox {known.settings.name} are {kind}: take another --name, or begin anew with --fresh"
        )
    if not wanted.real:
        return of_version(PROGRAMS, version)
    machine.check(wanted)
    return of_version(with_real_nodes(name for name, count in wanted.nodes.items() if count), version)


def _all_free(ports: Ports) -> bool:
    return all(is_free(port) for port in msgspec.structs.astuple(ports))


@asynccontextmanager
async def opened(
    settings: Settings | str, *, keep: bool = False, assets: str = "", home: Path | None = None
) -> AsyncIterator[Sandbox]:
    """A sandbox for the block (a name alone means default settings); deleted afterwards, or with ``keep`` stopped."""
    wanted = Settings(name=settings) if isinstance(settings, str) else settings
    sandbox = await Sandbox.start(wanted, assets=assets, home=home)
    try:
        yield sandbox
    finally:
        await (sandbox.stop() if keep else sandbox.delete())
