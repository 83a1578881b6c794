"""What a pod asks for, as a kubelet reads it, what the kubelet sees of its Node, and its rejection of a pod.

Amounts are per container, or sums of the whole pod.
"""

import math
from collections.abc import Callable, Iterable, Mapping
from fractions import Fraction
from typing import Final, Literal

import msgspec

from polyarch.sandbox.kubelet_model.machine import CPU, MEMORY, is_memory
from polyarch.selectors import NodeTerm, admits
from polyarch.tolerations import NO_EXECUTE, Taint, Toleration, is_tolerated

Qos = Literal["Guaranteed", "Burstable", "BestEffort"]
Amounts = Mapping[str, Fraction]


class Container(msgspec.Struct, frozen=True):
    """A container with its requests and limits; the API server has completed requests from limits."""

    name: str
    requests: Amounts = {}
    limits: Amounts = {}
    is_sidecar: bool = False
    """An init container that is restarted and runs as long as the pod."""


EVERY_ADDRESS: Final = ("", "0.0.0.0")


class HostPort(msgspec.Struct, frozen=True):
    """A port of the node that a container asks for."""

    port: int
    protocol: str = "TCP"
    address: str = ""

    def meets(self, other: "HostPort") -> bool:
        """Whether only one of both can have it."""
        if (self.port, self.protocol) != (other.port, other.protocol):
            return False
        return self.address == other.address or self.address in EVERY_ADDRESS or other.address in EVERY_ADDRESS


class Placement(msgspec.Struct, frozen=True, kw_only=True):
    """Which nodes a pod may be on."""

    selector: Mapping[str, str] = {}
    terms: tuple[NodeTerm, ...] | None = None
    """Required node affinity; None: there is none."""
    tolerations: tuple[Toleration, ...] = ()
    host_ports: tuple[HostPort, ...] = ()
    os: str = ""
    """``spec.os.name``."""
    os_label: str = ""
    """The pod's own label ``kubernetes.io/os``."""


class NodeObject(msgspec.Struct, frozen=True, kw_only=True):
    """What a kubelet sees of its Node."""

    name: str = ""
    labels: Mapping[str, str] = {}
    taints: tuple[Taint, ...] = ()

    def suits(self, pod: "Pod") -> bool:
        """Whether nodeSelector and node affinity of the pod allow this node."""
        placement = pod.placement
        return admits(placement.terms, self.labels, node_selector=placement.selector, node_name=self.name)

    def repels(self, pod: "Pod") -> bool:
        """Whether a taint keeps the pod off: a kubelet minds those that evict, and no matter for how long they are
        tolerated."""
        held = [msgspec.structs.replace(each, toleration_seconds=None) for each in pod.placement.tolerations]
        return any(each.effect == NO_EXECUTE and not is_tolerated(each, held) for each in self.taints)


BARE_NODE: Final = NodeObject()
"""Without labels and taints."""


class Pod(msgspec.Struct, frozen=True, kw_only=True, dict=True):
    """A pod that is bound to the node."""

    uid: str
    namespace: str
    name: str
    init: tuple[Container, ...] = ()
    containers: tuple[Container, ...] = ()
    overhead: Amounts = {}
    pod_requests: Amounts | None = None
    """``spec.resources.requests``; None: the pod has no resources of its own."""
    pod_limits: Amounts = {}
    placement: Placement = Placement()

    @property
    def all(self) -> tuple[Container, ...]:
        return (*self.init, *self.containers)

    def is_ordinary_init(self, container: Container) -> bool:
        """An init container that ends before the next container starts."""
        return not container.is_sidecar and any(container.name == each.name for each in self.init)

    @property
    def qos(self) -> Qos:
        if self.pod_requests is not None:
            return _qos([(self.pod_requests, self.pod_limits)])
        return _qos([(each.requests, each.limits) for each in self.all])

    @property
    def is_guaranteed(self) -> bool:
        return self.qos == "Guaranteed"


def _qos(resources: list[tuple[Amounts, Amounts]]) -> Qos:
    requests: dict[str, Fraction] = {}
    limits: dict[str, Fraction] = {}
    is_limited = True
    for asked, limit in resources:
        for name in (CPU, MEMORY):
            if asked.get(name):
                requests[name] = requests.get(name, Fraction(0)) + asked[name]
            if limit.get(name):
                limits[name] = limits.get(name, Fraction(0)) + limit[name]
            else:
                is_limited = False
    if not requests and not limits:
        return "BestEffort"
    if is_limited and requests == limits and len(limits) == len((CPU, MEMORY)):
        return "Guaranteed"
    return "Burstable"


def exclusive_cpus(pod: Pod, container: Container) -> int:
    """How many CPUs a container has for itself; 0 if it runs on those that all share."""
    asked = container.requests.get(CPU, Fraction(0))
    is_whole = asked.denominator == 1
    return int(asked) if pod.is_guaranteed and pod.pod_requests is None and is_whole else 0


def pod_exclusive_cpus(pod: Pod) -> int:
    """The same for the pod: what must be free for it to run from start to end."""
    return _most(pod, lambda container: {CPU: exclusive_cpus(pod, container)}).get(CPU, 0)


def container_memory(container: Container) -> dict[str, int]:
    """Bytes of memory and huge pages that a container requests."""
    return {name: int(amount) for name, amount in container.requests.items() if is_memory(name)}


def pod_memory(pod: Pod) -> dict[str, int]:
    """The same for the pod. What only init containers request does not count, as in the kubelet."""
    named = {name for container in pod.containers for name in container_memory(container)}
    return {name: amount for name, amount in _most(pod, container_memory).items() if name in named}


def container_devices(container: Container, resources: Iterable[str]) -> dict[str, int]:
    """Devices that a container asks for, of these resources."""
    return {name: math.ceil(container.limits[name]) for name in sorted(resources) if name in container.limits}


def pod_devices(pod: Pod, resources: Iterable[str]) -> dict[str, int]:
    """The same for the pod."""
    known = frozenset(resources)
    return _most(pod, lambda container: container_devices(container, known))


def _most(pod: Pod, of: Callable[[Container], Mapping[str, int]]) -> dict[str, int]:
    """Per resource the most that is in use at one time: sidecars stay, other init containers come one by one."""
    sidecars: dict[str, int] = {}
    starting: dict[str, int] = {}
    for container in pod.init:
        for name, amount in of(container).items():
            together = sidecars.get(name, 0) + amount
            if container.is_sidecar:
                sidecars[name] = together
            starting[name] = max(starting.get(name, 0), together)
    running = dict(sidecars)
    for container in pod.containers:
        for name, amount in of(container).items():
            running[name] = running.get(name, 0) + amount
    return {name: max(running.get(name, 0), starting.get(name, 0)) for name in {**running, **starting}}


def scheduled(pod: Pod) -> dict[str, Fraction]:
    """What the pod counts for on its node (the sum that the scheduler uses too)."""
    sidecars: dict[str, Fraction] = {}
    starting: dict[str, Fraction] = {}
    for container in pod.init:
        for name, amount in container.requests.items():
            together = sidecars.get(name, Fraction(0)) + amount
            if container.is_sidecar:
                sidecars[name] = together
            starting[name] = max(starting.get(name, Fraction(0)), together)
    total = dict(sidecars)
    for container in pod.containers:
        for name, amount in container.requests.items():
            total[name] = total.get(name, Fraction(0)) + amount
    for name, amount in starting.items():
        total[name] = max(total.get(name, Fraction(0)), amount)
    total |= pod.pod_requests or {}
    for name, amount in pod.overhead.items():
        total[name] = total.get(name, Fraction(0)) + amount
    return total


class PodRejected(Exception):  # noqa: N818 - what is wrong
    """The pod fails with this reason; the text is the kubelet's."""

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(message)
        self.reason = reason
        self.message = message

    @classmethod
    def unexpected(cls, problem: str) -> "PodRejected":
        """What the scheduler should have prevented."""
        return cls("UnexpectedAdmissionError", f"Allocate failed due to {problem}, which is unexpected")

    @classmethod
    def predicate(cls, name: str, problem: str) -> "PodRejected":
        """A rule of the scheduler that the kubelet applies, too."""
        return cls(name, f"Predicate {name} failed: {problem}")

    @classmethod
    def unaligned(cls) -> "PodRejected":
        """The topology manager found no cells that the policy allows."""
        return cls("TopologyAffinityError", "Resources cannot be allocated with Topology locality")
