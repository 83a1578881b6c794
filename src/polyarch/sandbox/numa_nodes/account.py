"""The kubelet of one node with cells: what it has admitted, and the files in which that can be seen.

All files are below ``folder``, which pods of the node see as the node's own (hostPath). They are renamed over when they
change, as the kubelet does it. A later process takes up what an earlier one left; a file that is damaged is set aside.

Like the kubelet it forgets late: CPUs of pods that are over with :meth:`reconcile`, devices also when they are listed,
memory only when the next pod is admitted.
"""

import contextlib
import hashlib
import shutil
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Final, TypeVar

import msgspec
import structlog
import yaml

from polyarch.sandbox.files import write_private
from polyarch.sandbox.kubelet_model import admission, cpus, devices, memory
from polyarch.sandbox.kubelet_model.admission import Held
from polyarch.sandbox.kubelet_model.devices import Devices
from polyarch.sandbox.kubelet_model.machine import Node
from polyarch.sandbox.kubelet_model.refusal import Refused
from polyarch.sandbox.kubelet_model.requests import Pod
from polyarch.sandbox.numa_nodes import checkpoints, configuration, host_tree
from polyarch.sandbox.numa_nodes.checkpoints import Damaged

log = structlog.get_logger(__name__)

T = TypeVar("T")
STATE: Final = Path("var/lib/kubelet")
SOCKET: Final = STATE / "pod-resources" / "kubelet.sock"
PODS: Final = "pods"
"""Below ``STATE``: a folder for each pod until it is over."""
MACHINE: Final = "machine.sha256"
"""Beside the node's folder: what its sysfs was made from."""


class Kubelet:
    """See the module's docstring."""

    def __init__(self, name: str, node: Node, folder: Path) -> None:
        self.name = name
        self.node = node
        self.folder = folder
        self._held = admission.at_first(node)
        self._pods: dict[str, Pod] = {}
        self._saved: Held | None = None
        self._written: dict[str, str] = {}

    @property
    def socket(self) -> Path:
        return self.folder / SOCKET

    @property
    def active(self) -> list[Pod]:
        """The pods that were admitted and are not over."""
        return list(self._pods.values())

    @property
    def held(self) -> Held:
        return self._held

    def has(self, uid: str) -> bool:
        """Whether the pod was admitted and is not over."""
        return uid in self._pods

    # -- start ---------------------------------------------------------------------------------------------------------

    def start(self, pods: Iterable[Pod]) -> None:
        """Make the node's files, take up what an earlier process remembers, and admit the node's pods again, those
        first that hold something already. A pod that has no room any more is not active then."""
        self._make_machine()
        self.socket.parent.mkdir(parents=True, exist_ok=True)
        text = yaml.safe_dump(configuration.document(self.node.configuration), sort_keys=False)
        self._write(STATE / "config.yaml", text)
        self._held = Held(
            self._recovered(checkpoints.CPU_FILE, checkpoints.read_cpus, cpus.at_first(self.node)),
            self._recovered(checkpoints.MEMORY_FILE, checkpoints.read_memory, memory.at_first(self.node)),
            self._recovered(checkpoints.DEVICES_FILE, checkpoints.read_devices, Devices()),
        )
        pods = list(pods)
        known = {*self._held.cpus.held, *self._held.memory.held, *self._held.devices.held}
        there = {pod.uid for pod in pods}
        self._held = admission.forget(self._held, there)
        for pod in sorted(pods, key=lambda pod: pod.uid not in known):
            self.admit(pod)
        for folder in (self.folder / STATE / PODS).glob("*"):
            if folder.name not in self._pods:
                shutil.rmtree(folder, ignore_errors=True)
        self._save()

    def _make_machine(self) -> None:
        """Written once: what somebody changes in it afterwards (memory that is plugged in) stays."""
        files = host_tree.files(self.node.machine)
        digest = hashlib.sha256(msgspec.json.encode(sorted(files.items()))).hexdigest()
        mark = self.folder.parent / MACHINE
        with contextlib.suppress(FileNotFoundError):
            if mark.read_text() == digest:
                return
        for name in ("sys", "proc"):
            shutil.rmtree(self.folder / name, ignore_errors=True)
        for path, content in files.items():
            target = self.folder / path
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_text(content)
        write_private(mark, digest.encode())

    def _recovered(self, name: str, read: Callable[[Node, str], T], otherwise: T) -> T:
        path = self.folder / STATE / name
        try:
            return read(self.node, path.read_text(errors="replace"))
        except FileNotFoundError:
            return otherwise
        except Damaged as problem:
            aside = path.with_name(f"{path.name}.damaged")
            path.replace(aside)
            log.warning("checkpoint set aside", node=self.name, file=str(aside), problem=str(problem))
            return otherwise

    # -- as pods come and go -------------------------------------------------------------------------------------------

    def admit(self, pod: Pod) -> Refused | None:
        """Admit the pod, or say why not."""
        others = [other for other in self._pods.values() if other.uid != pod.uid]
        self._held, refused = admission.admit(self.node, self._held, pod, others)
        if refused is None:
            self._pods[pod.uid] = pod
            (self.folder / STATE / PODS / pod.uid).mkdir(parents=True, exist_ok=True)
        self._save()
        return refused

    def started(self, uid: str, container: str) -> None:
        """A container of an admitted pod has been created."""
        if (pod := self._pods.get(uid)) is not None:
            self._held = admission.started(self._held, pod, container)
            self._save()

    def over(self, uid: str) -> None:
        """The pod has ended or is gone."""
        if self._pods.pop(uid, None) is not None:
            shutil.rmtree(self.folder / STATE / PODS / uid, ignore_errors=True)

    def reconcile(self) -> None:
        """Free the CPUs of pods that are over."""
        self._held = msgspec.structs.replace(self._held, cpus=cpus.forget(self._held.cpus, self._pods))
        self._save()

    def list_devices(self) -> Devices:
        """The devices in use, after those of pods that are over were freed."""
        self._held = msgspec.structs.replace(self._held, devices=devices.forget(self._held.devices, self._pods))
        return self._held.devices

    # -- files ---------------------------------------------------------------------------------------------------------

    def _save(self) -> None:
        for name, text in checkpoints.texts(self.node, self._held, self._saved).items():
            self._write(STATE / name, text)
        self._saved = self._held

    def _write(self, path: Path, text: str) -> None:
        if self._written.get(str(path)) != text:
            write_private(self.folder / path, text.encode())
            self._written[str(path)] = text
