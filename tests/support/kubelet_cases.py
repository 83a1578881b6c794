"""Machines and pods for tests of the kubelet model: built in a line, with the defaults that an API server fills in."""

from collections.abc import Mapping, Sequence
from fractions import Fraction

from polyarch.sandbox.kubelet_model import admission
from polyarch.sandbox.kubelet_model.admission import ManagerStates
from polyarch.sandbox.kubelet_model.layout import NumaLayout, node
from polyarch.sandbox.kubelet_model.machine import Cpu, Machine, Node
from polyarch.sandbox.kubelet_model.requests import Container, Pod, PodRejected

GI = 1024**3
NAMES = {"memory": "memory", "cpu": "cpu", "nic": "example.com/nic", "gpu": "example.com/gpu", "pages": "hugepages-2Mi"}


def numa_node(text: str) -> Node:
    """The node of ``--numa TEXT``."""
    return node(NumaLayout.parse(text))


def amounts(given: Mapping[str, float]) -> dict[str, Fraction]:
    """``{"cpu": 1.5, "memory": 2, "pages": 1}``: CPUs, GiB of memory and of huge pages, pieces of devices."""
    return {NAMES[name]: Fraction(value) * (GI if name in ("memory", "pages") else 1) for name, value in given.items()}


def container(name: str, is_sidecar: bool = False, **given: float) -> Container:
    """Of a Guaranteed pod: limits are requests."""
    return Container(name, amounts(given), amounts(given), is_sidecar)


def pod(name: str, *containers: Container, init: Sequence[Container] = ()) -> Pod:
    """Its uid is its name."""
    return Pod(uid=name, namespace="default", name=name, init=tuple(init), containers=containers)


def guaranteed(name: str, **given: float) -> Pod:
    """One container."""
    return pod(name, container("app", **given))


def burstable(name: str, **given: float) -> Pod:
    """One container without limits, but for devices."""
    limits = {key: value for key, value in given.items() if key in ("nic", "gpu")}
    return pod(name, Container("app", amounts(given), amounts(limits)))


class Kubelet:
    """A node as pods come and go."""

    def __init__(self, node: Node) -> None:
        self.node = node
        self.held: ManagerStates = admission.at_first(node)
        self.pods: list[Pod] = []

    def admit(self, pod: Pod) -> PodRejected | None:
        self.held, refused = admission.admit(self.node, self.held, pod, self.pods)
        if refused is None:
            self.pods.append(pod)
        return refused

    def reason(self, pod: Pod) -> str:
        """Empty: admitted."""
        refused = self.admit(pod)
        return "" if refused is None else refused.reason

    def start(self, pod: Pod) -> None:
        """Every container is created, in order."""
        for each in pod.all:
            self.held = admission.started(self.held, pod, each.name)

    def end(self, pod: Pod) -> None:
        self.pods.remove(pod)
        self.held = admission.forget(self.held, {each.uid for each in self.pods})

    def cpus(self, pod: Pod, container: str = "app") -> list[int]:
        return sorted(self.held.cpus.held.get(pod.uid, {}).get(container, ()))

    def free(self, cell: int, resource: str = "memory") -> float:
        """GiB."""
        return self.held.memory.cells[cell].free(resource) / GI


def machine(cores: Mapping[int, tuple[int, int, Sequence[int]]]) -> Machine:
    """CPUs by core: core → (socket, cell, CPUs)."""
    cpus = (Cpu(cpu, core, socket, cell) for core, (socket, cell, ids) in cores.items() for cpu in ids)
    return Machine(cells=(), cpus=tuple(cpus))
