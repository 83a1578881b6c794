"""Runs the pods of polyarch's own image, of the stock kube-scheduler and of builds, of all nodes.

The nodes' controller says what is to be started and ended; this says what has become of it
(:meth:`PodRunner.observed`) and adds the pod's key to the controller's queue when something has changed."""

import asyncio
import contextlib
import shutil
import signal
from collections.abc import Callable, Collection, Coroutine, Iterable, Mapping
from pathlib import Path
from typing import Final, Literal, TypeVar

import aiohttp
import msgspec
import structlog

from polyarch.clock import Clock
from polyarch.kube.client import Client
from polyarch.kube.errors import NotFound
from polyarch.kube.events import Recorder, Regarding
from polyarch.kube.informer import InformerFactory
from polyarch.kube.resources import CONFIGMAPS, PODS, SECRETS
from polyarch.objects import ObjectKey, ObjectMeta, Secret
from polyarch.sandbox.errors import ProcessFailed
from polyarch.sandbox.files import write_private
from polyarch.sandbox.pods import containers
from polyarch.sandbox.pods.containers import Containers, RunningContainer, tail_of
from polyarch.sandbox.pods.environment import (
    ContainerFacts,
    MissingReference,
    environment_variables,
    variable_references,
)
from polyarch.sandbox.pods.outcome import CannotStart, Exit, PodFault, ProcessState, Started, fault_of
from polyarch.sandbox.pods.probes import ProbeTarget, ProbeWorker, execute
from polyarch.sandbox.pods.programs import (
    FakeBuildahFiles,
    NotInTheImage,
    SchedulerPodContext,
    configured_by,
    fake_buildah_command,
    is_builder,
    is_scheduler,
    pod_scheduler_configuration,
    polyarch_command,
    rewritten,
    scheduler_command,
)
from polyarch.sandbox.pods.spec import ConfigMap, Exec, PodDocument
from polyarch.sandbox.pods.spec import Container as ContainerSpec
from polyarch.sandbox.pods.volumes import Cluster, PodFolder, PodVolumes
from polyarch.sandbox.processes import Command


class BoundPod(msgspec.Struct, frozen=True):
    """A pod that is bound to a node: its identity, its node, and its addresses."""

    key: ObjectKey
    uid: str
    node: str
    host_address: str
    loopback: str
    """The address on this machine on which its processes listen."""


class RunningPod:
    """What is known of one pod that is run."""

    def __init__(
        self, bound: BoundPod, document: PodDocument, folder: PodFolder, host: Path, volumes: PodVolumes
    ) -> None:
        self.bound = bound
        self.document = document
        self.folder = folder
        self.host = host
        """What it sees as its node's own files (hostPath)."""
        self.volumes = volumes
        self.containers: dict[str, RunningContainer] = {}
        self.probe_workers: dict[str, ProbeWorker] = {}
        self.exits: dict[tuple[str, int], Exit] = {}
        self.tasks: set[asyncio.Task[None]] = set()
        self.ends_at: float | None = None
        """When its containers are killed, on the monotonic clock; None: it is not to end."""

    @property
    def facts(self) -> ContainerFacts:
        return ContainerFacts(self.document, self.bound.loopback, self.bound.host_address)

    @property
    def living(self) -> list[RunningContainer]:
        return [each for each in self.containers.values() if each.exit is None]


# -- how a container is started ----------------------------------------------------------------------------------------


T = TypeVar("T")
JOB_LABEL: Final = "batch.kubernetes.io/controller-uid"
"""The UID of the Job that a pod is of."""


class ContainerCommands:
    """The commands of all containers of a sandbox."""

    def __init__(
        self,
        client: Client,
        root: Path,
        *,
        cluster: Cluster,
        kube_scheduler: str,
        environment: Mapping[str, str],
    ) -> None:
        self._client = client
        self._root = root
        self._cluster = cluster
        self._kube_scheduler = kube_scheduler
        self._environment = environment

    async def of(self, pod: RunningPod, name: str, attempt: int) -> Command:
        """The start number ``attempt`` of this container. Raises ``MissingReference`` and ``NotInTheImage``."""
        container = pod.document.container(name)
        variables = await self._variables(pod, name)
        mounts = pod.folder.mounts(pod.document, container, pod.host)
        moved = {key: rewritten(value, mounts) for key, value in variables.items()}
        return Command(
            name=containers.record_name(pod.bound.uid, name),
            arguments=self._arguments(pod, container, variables, mounts),
            environment=moved,
            log=str(pod.folder.prepare_start(container, attempt)),
            pod=str(pod.bound.key),
            container=name,
            attempt=attempt,
        )

    def _arguments(
        self, pod: RunningPod, container: ContainerSpec, variables: Mapping[str, str], mounts: Mapping[str, str]
    ) -> tuple[str, ...]:
        if is_builder(container.image):
            job = (pod.document.metadata.labels or {}).get(JOB_LABEL, pod.bound.uid)
            attempts = self._root / "builds" / job
            return fake_buildah_command(
                container, mounts, FakeBuildahFiles(fault=str(pod.folder.fault), attempts=str(attempts))
            )
        if not is_scheduler(container.image):
            return polyarch_command(container, variables, mounts, address=pod.bound.loopback)
        target = pod.folder.configuration(container.name)
        context = SchedulerPodContext(
            program=self._kube_scheduler,
            address=pod.bound.loopback,
            kubeconfig=str(pod.folder.kubeconfig),
            configuration=str(target),
        )
        arguments = scheduler_command(container, variables, mounts, context)
        if source := configured_by(container, variables, mounts):
            with contextlib.suppress(OSError):  # the program says what is wrong with its file
                text = Path(source).read_text(encoding="utf-8", errors="replace")
                write_private(target, pod_scheduler_configuration(text, context).encode())
        return arguments

    async def _variables(self, pod: RunningPod, name: str) -> dict[str, str]:
        """Read anew for each start: variables are those of the objects as they are then."""
        container, namespace = pod.document.container(name), pod.bound.key.namespace
        config_maps, secrets = variable_references(container)
        facts = msgspec.structs.replace(
            pod.facts,
            config_maps={
                each: found
                for each in config_maps
                if (found := await self._get(self._client.get(CONFIGMAPS, each, namespace=namespace, type=ConfigMap)))
            },
            secrets={
                each: secret
                for each in secrets
                if (secret := await self._get(self._client.get(SECRETS, each, namespace=namespace, type=Secret)))
            },
        )
        host, _, port = self._cluster.server.rpartition("/")[2].rpartition(":")
        base = {
            **self._environment,
            "HOSTNAME": pod.bound.key.name,
            "KUBERNETES_SERVICE_HOST": host,
            "KUBERNETES_SERVICE_PORT": port,
            "KUBECONFIG": str(pod.folder.kubeconfig),
            # Else a file in the folder from which the sandbox was started could stand in for a module.
            "PYTHONSAFEPATH": "1",
        }
        return environment_variables(container, facts, base)

    @staticmethod
    async def _get(request: Coroutine[object, object, T]) -> T | None:
        try:
            return await request
        except NotFound:
            return None


# -- the runner --------------------------------------------------------------------------------------------------------


log = structlog.get_logger(__name__)

MESSAGE_BYTES: Final = 4096
FALLBACK_BYTES: Final = 2048
FALLBACK_LINES: Final = 80
ORPHAN_SECONDS: Final = 2.0
"""The grace of a pod whose object is gone: it was deleted by force."""


class PodRunner:
    """Runs pods; see the module's docstring. ``changed`` gets the key of a pod of which something has changed."""

    def __init__(
        self,
        client: Client,
        informers: InformerFactory,
        root: Path,
        *,
        cluster: Cluster,
        kube_scheduler: str,
        environment: Mapping[str, str],
        is_lost: Callable[[str], bool] = lambda node: False,
        clock: Clock,
        events: Recorder,
        changed: Callable[[ObjectKey], None],
    ) -> None:
        self._client = client
        self._informers = informers
        self._is_lost = is_lost
        self._root = root
        self._cluster = cluster
        self._commands = ContainerCommands(
            client, root, cluster=cluster, kube_scheduler=kube_scheduler, environment=environment
        )
        self._clock = clock
        self._events = events
        self._changed = changed
        self._containers = Containers(root, clock=clock, changed=self._has_ended)
        self._pods: dict[str, RunningPod] = {}
        self._adopted: dict[str, list[RunningContainer]] = {}
        self._tasks: asyncio.TaskGroup | None = None
        self._session: aiohttp.ClientSession | None = None

    async def run(self, started: asyncio.Event) -> None:
        """Adopt what an earlier process started, set ``started``, then run until cancelled; containers outlive it."""
        timeout = aiohttp.ClientTimeout(total=None)
        connector = aiohttp.TCPConnector(force_close=True)
        async with (
            aiohttp.ClientSession(timeout=timeout, connector=connector) as session,
            asyncio.TaskGroup() as tasks,
        ):
            self._session, self._tasks = session, tasks
            for container in self._containers.adopt():
                self._adopted.setdefault(containers.uid_of(container.record), []).append(container)
            started.set()
            await asyncio.get_running_loop().create_future()

    def folder(self, uid: str) -> PodFolder:
        return PodFolder(self._root / "pods" / uid)

    def node_folder(self, node: str) -> Path:
        """What pods of this node see as the node's own files (hostPath)."""
        return self._root / "nodes" / node / "host"

    # -- what the nodes ask for ----------------------------------------------------------------------------------------

    async def open(self, bound: BoundPod) -> None:
        """Know this pod; its containers that an earlier process started are watched again."""
        if bound.uid in self._pods:
            return
        document = await self._client.get(PODS, bound.key.name, namespace=bound.key.namespace, type=PodDocument)
        if document.metadata.uid != bound.uid or bound.uid in self._pods:
            return
        folder, host = self.folder(bound.uid), self.node_folder(bound.node)
        volumes = PodVolumes(
            document,
            folder,
            host,
            self._client,
            self._informers,
            cluster=self._cluster,
            clock=self._clock,
            changed=lambda: self._changed(bound.key),
        )
        pod = self._pods[bound.uid] = RunningPod(bound, document, folder, host, volumes)
        for container in self._adopted.pop(bound.uid, ()):
            self._take(pod, container)
        self._spawn(pod, volumes.keep(lambda: pod.facts))
        if pod.living:
            volumes.refresh()

    def note(self, uid: str, metadata: ObjectMeta) -> None:
        """The pod's metadata as they are now: labels and annotations are in files of the downward API."""
        pod = self._pods.get(uid)
        if pod is None:
            return
        known = pod.document.metadata
        if (known.labels, known.annotations) != (metadata.labels, metadata.annotations):
            pod.document = msgspec.structs.replace(pod.document, metadata=metadata)
            pod.volumes.refresh()

    async def start(self, bound: BoundPod, name: str, attempt: int) -> Started | CannotStart:
        """Start this container for the time number ``attempt``, from 0; once only, however often it is asked for."""
        await self.open(bound)
        pod = self._pods.get(bound.uid)
        if pod is None:
            return CannotStart("ContainerCreating", "the pod was replaced")
        known = pod.containers.get(name)
        if known is not None and (known.record.attempt == attempt or known.exit is None):
            return Started(known.since)
        try:
            await pod.volumes.fill(pod.facts)
        except MissingReference as problem:
            self._tell(bound, "Warning", "FailedMount", str(problem))
            return CannotStart("ContainerCreating", str(problem))
        try:
            container = self._containers.start(await self._commands.of(pod, name, attempt))
        except MissingReference as problem:
            self._tell(bound, "Warning", "Failed", f"Error: {problem}")
            return CannotStart("CreateContainerConfigError", str(problem))
        except (NotInTheImage, ProcessFailed) as problem:
            self._tell(bound, "Warning", "Failed", f"Error: {problem}")
            return CannotStart("RunContainerError", str(problem))
        self._take(pod, container)
        return Started(container.since)

    def observed(self, uid: str) -> dict[str, ProcessState]:
        """The processes of a pod's containers, by the container's name."""
        pod = self._pods.get(uid)
        if pod is None:
            return {}
        return {name: self._observe(pod, name, each) for name, each in pod.containers.items()}

    def fault(self, uid: str) -> PodFault:
        """What a process of the pod asked its node for."""
        return fault_of(self.folder(uid).fault)

    def end(self, uid: str, seconds: float) -> bool:
        """End a pod's containers, with this grace; True if none runs any more, else its key comes when they ended."""
        pod = self._pods.get(uid)
        if pod is None or not pod.living:
            return uid not in self._adopted
        ends_at = self._clock.monotonic() + max(0.0, seconds)
        if pod.ends_at is None:
            pod.ends_at = ends_at
            for container in pod.living:
                self._spawn(pod, self._end(pod, container))
        pod.ends_at = min(pod.ends_at, ends_at)
        return False

    def settle(self, uid: str) -> None:
        """A pod that is finished: nothing of it is watched any more; its logs stay."""
        if (pod := self._pods.get(uid)) is not None and not pod.living:
            for task in tuple(pod.tasks):
                task.cancel()
            pod.volumes.close()

    def drop(self, uid: str) -> None:
        """A pod whose object is gone: end what still runs of it, then delete its folder."""
        pod = self._pods.pop(uid, None)
        left = [*(pod.containers.values() if pod is not None else ()), *self._adopted.pop(uid, ())]
        if pod is not None:
            for task in tuple(pod.tasks):
                task.cancel()
            pod.volumes.close()
        self._spawn(None, self._remove(uid, left))

    def cut_off(self, node: str, *, is_lost: bool) -> None:
        """Stop the processes on a node that is lost, so that whoever connects waits in vain; or let them go on."""
        for pod in self._pods.values():
            if pod.bound.node == node:
                for container in pod.living:
                    container.signal(signal.SIGSTOP if is_lost else signal.SIGCONT)

    def others(self, key: ObjectKey, uid: str) -> list[str]:
        """The uids of earlier pods of this name."""
        return [each for each, pod in self._pods.items() if pod.bound.key == key and each != uid]

    def sweep(self, present: Collection[str]) -> None:
        """Drop what is left of pods whose objects were deleted while nobody watched."""
        root = self._root / "pods"
        uids = {entry.name for entry in root.iterdir()} if root.is_dir() else set()
        for uid in (uids | self._adopted.keys()) - set(present):
            self.drop(uid)

    # -- processes -----------------------------------------------------------------------------------------------------

    def _take(self, pod: RunningPod, container: RunningContainer) -> None:
        """Watch over a container of this pod that was started or adopted."""
        name = container.record.container
        pod.containers[name] = container
        if container.exit is not None:
            return
        container.signal(signal.SIGCONT)  # its node may have been cut off when an earlier process ended
        spec = pod.document.container(name)
        target = self._target(pod, container)
        assert self._session is not None  # noqa: S101  pods come after `run` has started
        probe_worker = ProbeWorker(
            spec,
            target,
            self._session,
            clock=self._clock,
            is_lost=lambda: self._is_lost(pod.bound.node),
            changed=lambda: self._changed(pod.bound.key),
            tell=lambda reason, note: self._tell(pod.bound, "Warning", reason, note),
        )
        pod.probe_workers[name] = probe_worker
        self._spawn(pod, self._supervise(pod, container, probe_worker))
        if pod.ends_at is not None:
            self._spawn(pod, self._end(pod, container))

    async def _supervise(self, pod: RunningPod, container: RunningContainer, probe_worker: ProbeWorker) -> None:
        """Ask its probes until it ends; end it if it is not alive."""
        asking = asyncio.ensure_future(probe_worker.run())
        ended = asyncio.ensure_future(container.ended.wait())
        try:
            await asyncio.wait({asking, ended}, return_when=asyncio.FIRST_COMPLETED)
            if asking.done() and not ended.done() and (grace := asking.result()) is not None:
                self._tell(pod.bound, "Normal", "Killing", f"Container {container.record.container} will be restarted")
                seconds = grace if grace >= 0 else pod.document.spec.termination_grace_period_seconds or 30
                ends_at = self._clock.monotonic() + seconds
                await self._terminate(pod, container, lambda: ends_at)
        finally:
            for task in (asking, ended):
                task.cancel()
            await asyncio.gather(asking, ended, return_exceptions=True)

    async def _end(self, pod: RunningPod, container: RunningContainer) -> None:
        await self._terminate(pod, container, lambda: pod.ends_at or 0.0)

    async def _terminate(
        self, pod: RunningPod | None, container: RunningContainer, ends_at: Callable[[], float]
    ) -> None:
        """The preStop hook, SIGTERM, SIGKILL when the grace is over; it may become shorter meanwhile."""
        if pod is not None:
            await self._pre_stop(pod, container, ends_at() - self._clock.monotonic())
        container.signal(signal.SIGTERM)
        while container.exit is None:
            left = ends_at() - self._clock.monotonic()
            if left <= 0:
                container.signal(signal.SIGKILL)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(min(max(left, 0.05), 0.5)):
                    await container.ended.wait()

    async def _pre_stop(self, pod: RunningPod, container: RunningContainer, seconds: float) -> None:
        spec = pod.document.container(container.record.container)
        hook = spec.lifecycle.pre_stop if spec.lifecycle is not None else None
        if hook is None or seconds <= 0:
            return
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                if hook.sleep is not None:
                    await asyncio.wait_for(container.ended.wait(), hook.sleep.seconds)
                elif hook.exec is not None:
                    await self._run_hook(pod, spec.name, hook.exec)

    def _target(self, pod: RunningPod, container: RunningContainer) -> ProbeTarget:
        spec = pod.document.container(container.record.container)
        variables = containers.environment_of(container.record.pid)
        mounts = pod.folder.mounts(pod.document, spec, pod.host)
        return ProbeTarget(spec, pod.bound.loopback, variables, mounts)

    async def _run_hook(self, pod: RunningPod, name: str, command: Exec) -> None:
        try:
            problem = await execute(command, self._target(pod, pod.containers[name]))
        except (NotInTheImage, OSError) as error:
            problem = str(error)
        if problem:
            self._tell(pod.bound, "Warning", "FailedPreStopHook", f"PreStopHook of {name} failed: {problem}")

    async def _remove(self, uid: str, left: Iterable[RunningContainer]) -> None:
        ends_at = self._clock.monotonic() + ORPHAN_SECONDS
        for container in left:
            await self._terminate(None, container, lambda: ends_at)
            self._containers.forget(container)
        shutil.rmtree(self.folder(uid).root, ignore_errors=True)

    def _has_ended(self, container: RunningContainer) -> None:
        pod = self._pods.get(containers.uid_of(container.record))
        if pod is not None:
            self._changed(pod.bound.key)

    def _observe(self, pod: RunningPod, name: str, container: RunningContainer) -> ProcessState:
        probe_worker = pod.probe_workers.get(name)
        attempt = container.record.attempt
        if container.exit is None:
            assert probe_worker is not None  # noqa: S101  it runs
            return ProcessState(attempt, container.since, None, probe_worker.started, probe_worker.ready)
        if (name, attempt) not in pod.exits:
            message = container.exit.message or self._last_words(pod, name, container.exit.code, attempt)
            pod.exits[name, attempt] = msgspec.structs.replace(container.exit, message=message)
        return ProcessState(attempt, container.since, pod.exits[name, attempt])

    def _last_words(self, pod: RunningPod, name: str, code: int, attempt: int) -> str:
        """The termination message, or the end of the log if the container's policy says so."""
        with contextlib.suppress(OSError):
            message = pod.folder.termination(name).read_bytes()[:MESSAGE_BYTES].decode("utf-8", "replace")
            if message:
                return message
        if code and pod.document.container(name).termination_message_policy == "FallbackToLogsOnError":
            with contextlib.suppress(OSError):
                return tail_of(pod.folder.log(name, attempt), lines=FALLBACK_LINES, size=FALLBACK_BYTES)
        return ""

    # -- tasks ---------------------------------------------------------------------------------------------------------

    def _spawn(self, pod: RunningPod | None, work: Coroutine[object, object, None]) -> None:
        """Run it beside; a failure of one pod's task is logged and harms no other."""
        assert self._tasks is not None  # noqa: S101  pods come after `run` has started

        async def guarded() -> None:
            try:
                await work
            except Exception:
                log.exception("task of a pod failed", pod=str(pod.bound.key) if pod is not None else "")

        task = self._tasks.create_task(guarded())
        if pod is not None:
            pod.tasks.add(task)
            task.add_done_callback(pod.tasks.discard)

    def _tell(self, bound: BoundPod, type: Literal["Normal", "Warning"], reason: str, note: str) -> None:
        regarding = Regarding("v1", "Pod", bound.key.namespace, bound.key.name, bound.uid)
        self._events.event(regarding, type=type, reason=reason, note=note, action=reason)
