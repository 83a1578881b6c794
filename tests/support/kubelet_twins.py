"""A sandbox with a real node beside one with a simulated node: both play the same histories, and are compared.

What users see of pods is compared after every step, and what the node's kubelet has given to containers: by its
podresources API and in the state files of its managers. Of what differs by itself (times, ids, addresses) only the
presence is compared.
"""

import asyncio
import contextlib
import json
import os
import signal
from collections.abc import AsyncIterator, Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from kubelet_histories import (
    GATE,
    IMAGES,
    LABEL,
    RUNTIME_CLASS,
    TAINT,
    Create,
    Delete,
    History,
    Label,
    OpenGate,
    Restart,
    Step,
    Taint,
)

from polyarch.clock import SystemClock
from polyarch.kube.client import Client
from polyarch.kube.errors import Conflict, Invalid, NotFound
from polyarch.kube.patches import MergePatch, StrategicPatch
from polyarch.kube.resources import EVENTS, NAMESPACES, NODES, PODS, RUNTIME_CLASSES
from polyarch.numa.host.kubelet_socket import KubeletSocket
from polyarch.numa.host.podresources import NoCallMetrics, PodResourcesAddress, PodResourcesError
from polyarch.sandbox.cluster import Sandbox
from polyarch.sandbox.kubelet_model.layout import NumaLayout
from polyarch.sandbox.nodes.kubelet_files import CPU_FILE, MEMORY_FILE
from polyarch.sandbox.processes import is_running
from polyarch.sandbox.real.cgroups import Cgroups, hierarchies
from polyarch.sandbox.state import Settings
from polyarch.sandbox.tasks import together, until
from polyarch.sandbox.versions import host_architecture

Json = dict[str, Any]
NODE: Final = f"{host_architecture()}-1"
SETTLED_SECONDS: Final = 90.0
"""The longest time in which both must agree."""
AGREED: Final = 2
"""Looks in a row that show both alike."""
LOOK_SECONDS: Final = 0.3
RUN_SECONDS: Final = 1.0
"""How long a container runs that is meant to end, as the simulated kubelet has it."""
AMOUNTS: Final = ("cpu", "memory", "pods", "hugepages-2Mi")
"""Of a node; its disk is the machine's."""


class Twin:
    """One of the two."""

    def __init__(self, sandbox: Sandbox, client: Client) -> None:
        self.sandbox = sandbox
        self.client = client
        self.is_real = sandbox.state.settings.real
        self.namespace = ""
        self.uids: dict[str, str] = {}
        """Name by uid, of all pods of the history."""
        self._running_since: dict[str, float] = {}

    @property
    def _kubelet_folder(self) -> Path:
        inside = "lib/kubelet" if self.is_real else "host/var/lib/kubelet"
        return self.sandbox.folder.root / "nodes" / NODE / inside

    async def believe(self, layout: NumaLayout) -> None:
        """The node becomes another machine."""
        settings = _settings(self.sandbox.name, layout, is_real=self.is_real)
        self.sandbox = await Sandbox.start(settings)

    async def do(self, step: Step) -> None:
        match step:
            case Create(pod):
                await self._create(pod)
            case Delete(name, grace):
                with contextlib.suppress(NotFound):
                    await self.client.delete(PODS, name, namespace=self.namespace, grace_period_seconds=grace)
            case Label(value):
                await self.client.patch(NODES, NODE, MergePatch({"metadata": {"labels": {LABEL: value}}}))
            case Taint(present):
                await self.client.patch(NODES, NODE, MergePatch({"spec": {"taints": [TAINT] if present else None}}))
            case OpenGate(name, status):
                condition = {"type": GATE, "status": status, "reason": "Said"}
                patch = StrategicPatch({"status": {"conditions": [condition]}})
                with contextlib.suppress(NotFound):
                    await self.client.patch(PODS, name, patch, namespace=self.namespace, subresource="status")
            case Restart():
                await self._restart()

    @contextlib.contextmanager
    def evicting_nobody(self) -> Iterator[None]:
        """Without the controller that deletes pods from tainted nodes, perhaps before a kubelet has seen them."""
        record = self.sandbox.records()["kube-controller-manager"]
        os.kill(record.pid, signal.SIGSTOP)
        try:
            yield
        finally:
            os.kill(record.pid, signal.SIGCONT)

    async def _create(self, pod: Json) -> None:
        document = {**pod, "spec": {**pod["spec"], "nodeName": NODE}}
        try:
            await self.client.create(PODS, document, namespace=self.namespace)
        except Invalid:  # of a pod with resources of its own that are less than those of its containers
            return
        made = await self.client.get(PODS, pod["metadata"]["name"], namespace=self.namespace)
        self.uids[made["metadata"]["uid"]] = pod["metadata"]["name"]

    async def _restart(self) -> None:
        record = self.sandbox.records()[f"{NODE}-kubelet" if self.is_real else "nodes"]
        os.kill(record.pid, signal.SIGKILL)
        while is_running(record):
            await asyncio.sleep(0.01)
        self.sandbox = await Sandbox.start(self.sandbox.state.settings)

    async def pods(self) -> dict[str, Json]:
        found = await self.client.list(PODS, namespace=self.namespace)
        pods = {each["metadata"]["name"]: each for each in found.items}
        if self.is_real:
            self._end_programs(pods.values())
        return pods

    def _end_programs(self, pods: Any) -> None:
        """The programs of seeded images wait for a signal: those of containers that are meant to end get it."""
        now = asyncio.get_running_loop().time()
        for pod in pods:
            for container, status in _statuses(pod):
                identity = status.get("containerID", "").rpartition("/")[2]
                if "running" not in status["state"] or not _comes_to_an_end(pod, container):
                    continue
                if now - self._running_since.setdefault(identity, now) > RUN_SECONDS:
                    for pid in _processes(self.sandbox.name, identity):
                        with contextlib.suppress(ProcessLookupError):
                            os.kill(pid, signal.SIGTERM)

    async def rejections(self) -> dict[str, set[tuple[str, str]]]:
        """Warnings by pod that a kubelet posted when it refused the pod."""
        found: dict[str, set[tuple[str, str]]] = {}
        for event in (await self.client.list(EVENTS, namespace=self.namespace)).items:
            name = event.get("regarding", {}).get("name", "")
            if event.get("type") == "Warning" and event.get("reason") not in _NOT_REJECTIONS:
                found.setdefault(name, set()).add((event["reason"], event.get("note", "")))
        return found

    async def node(self) -> Json:
        status = (await self.client.get(NODES, NODE))["status"]
        return {kind: {name: status[kind].get(name) for name in AMOUNTS} for kind in ("capacity", "allocatable")}

    async def held(self) -> Json:
        """By the podresources API and the state files."""
        address = PodResourcesAddress(False, self._kubelet_folder / "pod-resources/kubelet.sock")
        kubelet = KubeletSocket(address, metrics=NoCallMetrics(), clock=SystemClock())
        try:
            listed = await kubelet.list()
        except PodResourcesError as error:
            return {"podresources": str(error)}
        finally:
            await kubelet.close()
        resources = {
            pod.name: {
                each.name: [sorted(each.cpus), sorted(map(repr, each.memory))]
                for each in pod.containers
                if each.cpus or each.memory
            }
            for pod in listed
            if pod.namespace == self.namespace
        }
        cpus = self._state(CPU_FILE)
        memory = self._state(MEMORY_FILE)
        blocks = {
            name: {container: sorted(map(json.dumps, held)) for container, held in each.items()}
            for name, each in self._named(memory.get("entries", {})).items()
        }
        return {
            "podresources": {name: each for name, each in resources.items() if each},
            "cpus": {**cpus, "entries": self._named(cpus.get("entries", {})), "checksum": 0},
            "memory": {**memory, "entries": blocks, "checksum": 0},
        }

    def _state(self, name: str) -> Json:
        """Empty while a kubelet that has become another machine's has not written it."""
        try:
            found: Json = json.loads((self._kubelet_folder / name).read_text())
        except FileNotFoundError:
            return {}
        return found

    def _named(self, entries: Mapping[str, Any]) -> Json:
        return {self.uids.get(uid, uid): each for uid, each in entries.items()}

    def forgotten(self, text: str) -> str:
        """A text without the uids of pods."""
        for uid, name in self.uids.items():
            text = text.replace(uid, f"uid-of-{name}")
        return text.replace(self.sandbox.name, "SANDBOX")


_NOT_REJECTIONS: Final = {"Failed", "BackOff", "FailedMount", "FailedKillPod", "FailedCreatePodSandBox", "Unhealthy"}


def _settings(name: str, layout: NumaLayout, *, is_real: bool) -> Settings:
    return Settings(name=name, nodes={host_architecture(): 1}, real=is_real, numa=layout, polyarch=False)


def _processes(sandbox: str, container: str) -> set[int]:
    found: set[int] = set()
    top = hierarchies()
    for root in [each for each in top if each.name == "pids"] or top[:1]:
        for group in (root / Cgroups(sandbox).name / NODE).glob(f"**/{container}/cgroup.procs"):
            with contextlib.suppress(OSError):
                found |= {int(line) for line in group.read_text().split()}
    return found


# -- what users see of a pod -------------------------------------------------------------------------------------------


def _statuses(pod: Json) -> Iterator[tuple[Json, Json]]:
    """Containers with their statuses."""
    for kind in ("initContainer", "container"):
        by_name = {each["name"]: each for each in pod["status"].get(f"{kind}Statuses", ())}
        for container in pod["spec"].get(f"{kind}s", ()):
            if container["name"] in by_name:
                yield container, by_name[container["name"]]


def _comes_to_an_end(pod: Json, container: Json) -> bool:
    is_init = any(container is each for each in pod["spec"].get("initContainers", ()))
    return bool((container if is_init else pod["spec"]).get("restartPolicy") != "Always")


_RESIZING: Final = {"allocatedResources", "resources"}
"""What a kubelet says for resizing in place, which is not simulated."""
_PULLS: Final = {"ErrImagePull", "ImagePullBackOff"}
_UNSETTLED: Final = {"ContainerCreating", "PodInitializing"}


def is_over(pod: Json) -> bool:
    return pod["status"].get("phase") in {"Succeeded", "Failed"}


def is_settled(pod: Json) -> bool:
    """Whether nothing changes by itself any more, but for a container that fails again and again."""
    status = pod["status"]
    if "deletionTimestamp" in pod["metadata"]:
        return False
    if is_over(pod):
        return all("running" not in each["state"] for _, each in _statuses(pod))
    if not status.get("containerStatuses") or "activeDeadlineSeconds" in pod["spec"]:
        return False
    if any("running" in each["state"] and _comes_to_an_end(pod, container) for container, each in _statuses(pod)):
        return False
    waiting = [each["state"].get("waiting", {}).get("reason", "") for _, each in _statuses(pod)]
    if any(each in {*_PULLS, "CrashLoopBackOff"} for each in waiting):
        return True
    if any(_is_crashing(pod, container, each) for container, each in _statuses(pod)):
        return True
    return not _UNSETTLED & set(waiting)


def _tolerates(pod: Json) -> bool:
    return any(each.get("key") == TAINT["key"] for each in pod["spec"].get("tolerations", ()))


def _is_crashing(pod: Json, container: Json, status: Json) -> bool:
    state = status["state"]
    if state.get("waiting", {}).get("reason") == "CrashLoopBackOff":
        return True
    again = container.get("restartPolicy") == "Always" or pod["spec"]["restartPolicy"] != "Never"
    return bool(again and state.get("terminated", {}).get("exitCode"))


def view(pod: Json, *, has_lost_address: bool) -> Json:
    """What is compared."""
    status = pod["status"]
    if status.get("message", "").startswith("Pod was rejected: "):
        # A real kubelet that starts again completes what it has said of pods that it refused before.
        return {name: status.get(name) for name in ("phase", "reason", "message", "qosClass")}
    left_out = {*_RESIZING, *(("podIP", "podIPs") if has_lost_address else ())}
    return {
        "phase": status.get("phase"),
        "reason": status.get("reason", ""),
        "message": status.get("message", ""),
        "qosClass": status.get("qosClass"),
        "observedGeneration": status.get("observedGeneration"),
        "generation": pod["metadata"].get("generation"),
        "has": {name: bool(each) for name, each in status.items() if name not in left_out},
        "conditions": {
            each["type"]: {name: each.get(name) for name in ("status", "reason", "message", "observedGeneration")}
            for each in status.get("conditions", ())
        },
        "containers": {container["name"]: _view(pod, container, each) for container, each in _statuses(pod)},
    }


def _view(pod: Json, container: Json, status: Json) -> Json:
    crashing = _is_crashing(pod, container, status)
    return {
        "state": {"crashing": True} if crashing else _state(status["state"]),
        "last": {} if crashing else _state(status.get("lastState", {})),
        "ready": status.get("ready"),
        "started": status.get("started"),
        "restarts": None if crashing else status.get("restartCount"),
        "image": status.get("image"),
        "has": {name: bool(status.get(name)) for name in ("imageID", "containerID")},
        "keys": sorted({*status} - _RESIZING),
    }


def _state(state: Json) -> Json:
    found: Json = {}
    for kind, each in state.items():
        reason = each.get("reason", "")
        found[kind] = {
            "reason": "image pull" if reason in _PULLS else reason,
            "exitCode": each.get("exitCode"),
            "startedAt": bool(each.get("startedAt")),
            "finishedAt": bool(each.get("finishedAt")),
        }
    return found


# -- both --------------------------------------------------------------------------------------------------------------


class Twins:
    """The real one and the simulated one."""

    def __init__(self, real: Twin, simulated: Twin) -> None:
        self.real = real
        self.simulated = simulated
        self._is_tainted = False
        self._without_address: set[str] = set()
        """Pods that were over when the kubelets started again: a real one forgets their addresses."""

    @property
    def both(self) -> tuple[Twin, Twin]:
        return self.real, self.simulated

    async def begin(self, namespace: str, layout: NumaLayout) -> list[str]:
        """On another machine, in another namespace; what differs."""
        await together(each.believe(layout) for each in self.both)
        for each in self.both:
            each.namespace, each.uids = namespace, {}
            document = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}}
            await each.client.create(NAMESPACES, document)
        self._is_tainted = False
        self._without_address.clear()
        await together(each.do(Label(None)) for each in self.both)
        await together(each.do(Taint(present=False)) for each in self.both)
        await asyncio.sleep(0.5)  # service accounts
        return await self.difference()

    async def end(self) -> None:
        """Nothing of the history is left on the nodes."""
        await together(each.do(Taint(present=False)) for each in self.both)
        for each in self.both:
            for name in await each.pods():
                with contextlib.suppress(NotFound, Conflict):
                    await each.client.delete(PODS, name, namespace=each.namespace, grace_period_seconds=1)
            await each.client.delete(NAMESPACES, each.namespace)

        async def are_gone() -> bool:
            return not any(await together(each.pods() for each in self.both))

        assert await until(are_gone, seconds=SETTLED_SECONDS, every=LOOK_SECONDS)

    async def play(self, step: Step) -> list[str]:
        """What differs when both have settled."""
        if isinstance(step, Taint):
            self._is_tainted = step.present
        if isinstance(step, Restart):
            self._without_address |= {name for name, pod in (await self.real.pods()).items() if is_over(pod)}
        if not isinstance(step, Create) or not self._is_tainted:
            await together(each.do(step) for each in self.both)
            return await self.difference()
        with contextlib.ExitStack() as stack:
            for each in self.both:
                stack.enter_context(each.evicting_nobody())
            await together(each.do(step) for each in self.both)
            found = await self.difference(evicted=False)
        return found or await self.difference()

    async def phases(self) -> set[str]:
        """Of all pods."""
        return {each["status"].get("phase", "") for pods in [await self.real.pods()] for each in pods.values()}

    async def difference(self, *, evicted: bool = True) -> list[str]:
        """Lines, each a path with what is real and what is simulated; none if both agree before long. ``evicted``: and
        if no pod is left that does not tolerate the taint."""
        found: list[str] = ["not looked at"]
        agreed = 0

        async def agree() -> bool:
            nonlocal agreed
            found[:] = await self._difference(evicted=evicted)
            agreed = 0 if found else agreed + 1
            return agreed >= AGREED

        await until(agree, seconds=SETTLED_SECONDS, every=LOOK_SECONDS)
        return found

    async def _difference(self, *, evicted: bool) -> list[str]:
        seen = await together(each.pods() for each in self.both)
        unsettled = [
            f"{where}: {name} does not settle: {json.dumps(pod['status'].get('containerStatuses', pod['status']))}"
            for where, pods in zip(("real", "simulated"), seen, strict=True)
            for name, pod in pods.items()
            if not is_settled(pod) or (evicted and self._is_tainted and not _tolerates(pod))
        ]
        rejections = await together(each.rejections() for each in self.both)
        views = [
            {name: view(pod, has_lost_address=name in self._without_address) for name, pod in pods.items()}
            for pods in seen
        ]
        held = await together(each.held() for each in self.both)
        nodes = await together(each.node() for each in self.both)
        documents = [
            {"pods": pods, "rejections": {k: sorted(v) for k, v in events.items()}, "held": given, "node": node}
            for pods, events, given, node in zip(views, rejections, held, nodes, strict=True)
        ]
        real, simulated = (
            json.loads(twin.forgotten(json.dumps(each))) for twin, each in zip(self.both, documents, strict=True)
        )
        return [*unsettled, *differences(real, simulated)]


def differences(real: Any, simulated: Any, path: str = "") -> list[str]:
    """Paths at which two documents differ."""
    if isinstance(real, dict) and isinstance(simulated, dict):
        found = []
        for name in sorted({*real, *simulated}):
            found += differences(real.get(name), simulated.get(name), f"{path}.{name}" if path else name)
        return found
    return [] if real == simulated else [f"{path}: real {json.dumps(real)}, simulated {json.dumps(simulated)}"]


@contextlib.asynccontextmanager
async def twins(name: str, *, owner: int | None = None) -> AsyncIterator[Twins]:
    """Two sandboxes without polyarch; deleted afterwards."""
    layout = NumaLayout.parse("2x4")
    async with contextlib.AsyncExitStack() as stack:
        made = []
        for kind, is_real in (("real", True), ("played", False)):
            settings = _settings(f"{name}-{kind}", layout, is_real=is_real)
            sandbox = await Sandbox.start(settings, owner=owner)
            stack.push_async_callback(sandbox.delete)
            await sandbox.registry.seed(IMAGES)
            client = await stack.enter_async_context(sandbox.client())
            await client.create(RUNTIME_CLASSES, RUNTIME_CLASS)
            made.append(Twin(sandbox, client))
        yield Twins(*made)


def told(history: History, played: int) -> str:
    """The history as far as it was played."""
    steps = (f"{number}: {each!r}" for number, each in enumerate(history.steps[:played]))
    return "\n".join([repr(history.layout), *steps])
