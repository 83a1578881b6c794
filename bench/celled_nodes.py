"""A thousand nodes with cells, as the API server sees them: nobody but one process plays them.

Each has a kubelet of the sandbox's model, which admits pods or fails them with ``TopologyAffinityError``, and a
NodeResourceTopology that follows what the kubelet accounts for, a moment later, as an exporter's does. There are no
files, sockets and exporters, so that a bench is about the scheduler.
"""

import asyncio
import contextlib
import datetime as dt
from collections import Counter, deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from fractions import Fraction
from typing import Any, Final, TypeVar

from polyarch.kube.client import Client
from polyarch.kube.errors import Conflict, ConnectionFailed, NotFound, ServerTimeout, TooManyRequests, Unavailable
from polyarch.kube.informer import InformerFactory
from polyarch.kube.patches import MergePatch, StrategicPatch
from polyarch.kube.resources import NODES, PODS, Resource
from polyarch.numa import names
from polyarch.numa.api.topology import TOPOLOGIES
from polyarch.numa.fingerprint import fingerprint
from polyarch.objects import ObjectKey
from polyarch.sandbox.kubelet_model import admission, cpu_manager
from polyarch.sandbox.kubelet_model import machine as capacity
from polyarch.sandbox.kubelet_model.admission import ManagerStates
from polyarch.sandbox.kubelet_model.machine import Node
from polyarch.sandbox.kubelet_model.requests import NodeObject
from polyarch.sandbox.kubelet_model.requests import Pod as Asked
from polyarch.sandbox.nodes.pods import Pod, pod_request
from polyarch.sandbox.tasks import together
from polyarch.sandbox.versions import KUBERNETES

WORKERS: Final = 16
PUBLISHED_EVERY: Final = 1.0
"""Seconds between two looks of an exporter at its node."""
REFRESH: Final = "10s"
AT_ONCE: Final = 64
"""Requests while the nodes are made."""
PAUSES: Final = (1.0, 2.0, 4.0)
Document = dict[str, Any]
T = TypeVar("T")


class Kubelet:
    """One node: the pods that it admitted and what they hold."""

    def __init__(self, name: str, model: Node, labels: Mapping[str, str] | None = None) -> None:
        self.name = name
        self.model = model
        own = {"kubernetes.io/hostname": name, "kubernetes.io/arch": "amd64", "kubernetes.io/os": "linux"}
        self.labels: Final = {**own, **(labels or {})}
        self.object: Final = NodeObject(name=name, labels=self.labels)
        self.held = admission.at_first(model)
        self.pods: dict[str, Asked] = {}

    def admit(self, pod: Asked) -> str:
        """Why the pod is refused; empty: it runs."""
        self.held, refused = admission.admit(self.model, self.held, pod, self.pods.values(), self.object)
        if refused is None:
            self.pods[pod.uid] = pod
            return ""
        self.held = admission.forget(self.held, self.pods)
        return refused.reason

    def would_admit(self, pod: Asked) -> bool:
        """Nothing is changed by asking."""
        return admission.admit(self.model, self.held, pod, self.pods.values(), self.object)[1] is None

    def over(self, uid: str) -> bool:
        """Whether the pod was here."""
        if self.pods.pop(uid, None) is None:
            return False
        self.held = admission.forget(self.held, self.pods)
        return True

    def topology(self) -> Document:
        """What an exporter would publish now."""
        holding = {*self.held.cpus.held, *self.held.memory.held, *self.held.devices.held}
        listed = [(pod.namespace, pod.name) for uid, pod in self.pods.items() if uid in holding]
        configuration = self.model.configuration
        values = {
            names.POLICY: configuration.topology_policy,
            names.SCOPE: configuration.topology_scope,
            names.CPU_MANAGER_POLICY: configuration.cpu_policy,
            names.MEMORY_MANAGER_POLICY: configuration.memory_policy,
            names.THREADS_PER_CORE: "1",
            names.REFRESH_PERIOD: REFRESH,
            names.FINGERPRINT: fingerprint(listed),
            names.FINGERPRINT_METHOD: "with-exclusive-resources",
        }
        return {
            "attributes": [{"name": name, "value": value} for name, value in sorted(values.items())],
            "zones": [_zone(self.model, self.held, cell.id) for cell in self.model.machine.cells],
        }


def _zone(model: Node, held: ManagerStates, cell: int) -> Document:
    machine = model.machine
    own = {cpu.id for cpu in machine.cpus if cpu.cell == cell}
    free = cpu_manager.allocatable(model)
    taken = {cpu for containers in held.cpus.held.values() for several in containers.values() for cpu in several}
    amounts = {"cpu": (len(own), len(own & free), len(own & free - taken))}
    for name, table in held.memory.cells[cell].tables.items():
        amounts[name] = (table.total, table.allocatable, table.free)
    for resource in machine.resources:
        ids = {device.id for device in machine.devices_of(resource) if cell in device.cells}
        amounts[resource] = (len(ids), len(ids), len(ids - held.devices.taken(resource)))
    titles = ("capacity", "allocatable", "available")
    return {
        "name": f"node-{cell}",
        "type": "Node",
        "costs": [
            {"name": f"node-{other.id}", "value": distance}
            for other, distance in zip(machine.cells, machine.cells[cell].distances, strict=True)
        ],
        "resources": [
            {"name": name} | {title: str(amount) for title, amount in zip(titles, several, strict=True)}
            for name, several in sorted(amounts.items())
        ],
    }


class CelledNodes:
    """All of them; see the module's docstring. ``changed`` is called with each pod that was decided about."""

    def __init__(self, client: Client, kubelets: Iterable[Kubelet], *, changed: Callable[[], None]) -> None:
        self._client = client
        self._changed = changed
        self.kubelets = {each.name: each for each in kubelets}
        self.running: set[str] = set()
        """The uids of pods that were admitted and are not over."""
        self.refused: Counter[str] = Counter()
        self.bound: set[str] = set()
        """The uids of pods that were ever seen on a node."""
        self._waiting: deque[ObjectKey] = deque()
        self._awake = asyncio.Event()
        self._unpublished: set[str] = set()

    async def register(self) -> None:
        """Make the nodes and their topologies."""
        for group in in_groups(list(self.kubelets.values()), AT_ONCE):
            await together(self._register(each) for each in group)

    async def _register(self, kubelet: Kubelet) -> None:
        await self._client.create(NODES, _node(kubelet))
        # Every Node is made as not ready; else the controller manager would take that back.
        await self._client.patch(NODES, kubelet.name, MergePatch({"spec": {"taints": None}}))
        document = {
            "apiVersion": TOPOLOGIES.api_version,
            "kind": TOPOLOGIES.kind,
            "metadata": {"name": kubelet.name},
            **kubelet.topology(),
        }
        await self._client.create(TOPOLOGIES, document)

    async def run(self) -> None:
        """Play all kubelets and exporters until cancelled."""
        informers = InformerFactory(self._client)
        pods = informers.informer(PODS, Pod, field_selector="spec.nodeName!=")

        def note(change: Any) -> None:
            self._waiting.append(change.key)
            self._awake.set()

        pods.add_handler(note)
        known: dict[ObjectKey, tuple[str, str]] = {}
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(informers.run())
            tasks.create_task(self._publish())
            for _ in range(WORKERS):
                tasks.create_task(self._work(pods.store, known))

    async def _work(self, store: Any, known: dict[ObjectKey, tuple[str, str]]) -> None:
        while True:
            while not self._waiting:
                self._awake.clear()
                await self._awake.wait()
            key = self._waiting.popleft()
            pod: Pod | None = store.get(key)
            before = known.get(key)
            if before is not None and (pod is None or pod.metadata.uid != before[1]):
                del known[key]
                self._over(*before)
            if pod is not None and pod.metadata.deletion_timestamp is not None:
                await self.ends(pod)
            if pod is None or pod.metadata.uid in self.bound or pod.finished:
                continue
            known[key] = (pod.spec.node_name, pod.metadata.uid)
            self.bound.add(pod.metadata.uid)
            await self._admit(self.kubelets[pod.spec.node_name], pod)

    async def ends(self, pod: Pod) -> None:
        """The pod is to end; pods of a bench are deleted without grace."""

    def _over(self, node: str, uid: str) -> None:
        self.running.discard(uid)
        if self.kubelets[node].over(uid):
            self._unpublished.add(node)

    async def _admit(self, kubelet: Kubelet, pod: Pod) -> None:
        reason = kubelet.admit(pod_request(pod))
        if reason:
            self.refused[reason] += 1
        else:
            self.running.add(pod.metadata.uid)
        self._unpublished.add(kubelet.name)
        self._changed()
        now = dt.datetime.now(dt.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        status: Document = {"phase": "Failed" if reason else "Running", "startTime": now}
        if reason:
            status["reason"] = reason
        patch = StrategicPatch({"metadata": {"uid": pod.metadata.uid}, "status": status})
        with contextlib.suppress(NotFound, Conflict):
            await self._patch(PODS, pod.metadata.name, patch, namespace=pod.metadata.namespace, status=True)

    async def _publish(self) -> None:
        while True:
            await asyncio.sleep(PUBLISHED_EVERY)
            due, self._unpublished = self._unpublished, set()
            for group in in_groups(sorted(due), WORKERS):
                patches = [(name, MergePatch(self.kubelets[name].topology())) for name in group]
                await together(self._patch(TOPOLOGIES, name, patch) for name, patch in patches)

    async def _patch(
        self,
        resource: Resource,
        name: str,
        patch: MergePatch | StrategicPatch,
        *,
        namespace: str = "",
        status: bool = False,
    ) -> None:
        """Sent again while the API server is too busy to answer: kubelets and exporters do the same."""
        for pause in (*PAUSES, None):
            try:
                await self._client.patch(
                    resource, name, patch, namespace=namespace, subresource="status" if status else ""
                )
            except (ConnectionFailed, ServerTimeout, TooManyRequests, Unavailable):
                if pause is None:
                    raise
                await asyncio.sleep(pause)
            else:
                return

    @property
    def is_published(self) -> bool:
        return not self._unpublished and not self._waiting


def _node(kubelet: Kubelet) -> Document:
    now = dt.datetime.now(dt.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    ready = {"type": "Ready", "status": "True", "lastHeartbeatTime": now, "lastTransitionTime": now}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": kubelet.name, "labels": kubelet.labels},
        "status": {
            "capacity": _texts(capacity.capacity(kubelet.model)),
            "allocatable": _texts(capacity.allocatable(kubelet.model)),
            "conditions": [{**ready, "reason": "KubeletReady", "message": "played by a bench"}],
            "nodeInfo": {"architecture": "amd64", "operatingSystem": "linux", "kubeletVersion": f"v{KUBERNETES}"},
        },
    }


def _texts(amounts: dict[str, Fraction]) -> dict[str, str]:
    return {name: str(int(amount)) for name, amount in amounts.items()}


def in_groups(several: Sequence[T], size: int) -> Iterable[Sequence[T]]:
    """For requests of which only so many are made at once."""
    return (several[start : start + size] for start in range(0, len(several), size))
