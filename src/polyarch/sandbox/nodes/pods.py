"""Pods as the sandbox's kubelets and its demo read them: what to run, and what was reported last.

Wire types with fields that ``polyarch.objects`` omits because no rule of polyarch reads them. Pure.
"""

from collections.abc import Mapping
from fractions import Fraction

import msgspec

from polyarch.objects import Affinity, LocalObjectReference, ObjectMeta, PodSchedulingGate
from polyarch.sandbox.kubelet_model.admission import OS_LABEL
from polyarch.sandbox.kubelet_model.machine import CPU, is_memory
from polyarch.sandbox.kubelet_model.requests import Container as ContainerRequest
from polyarch.sandbox.kubelet_model.requests import HostPort, Placement
from polyarch.sandbox.kubelet_model.requests import Pod as PodRequest
from polyarch.sandbox.pods.environment import quantity
from polyarch.sandbox.pods.spec import Resources
from polyarch.selectors import NodeTerm
from polyarch.tolerations import Toleration


class Port(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    host_port: int = 0
    protocol: str = "TCP"
    host_ip: str = msgspec.field(default="", name="hostIP")


class Container(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    name: str = ""
    image: str = ""
    image_pull_policy: str = "IfNotPresent"
    restart_policy: str = ""
    """``Always`` on an init container makes it a sidecar."""
    resources: Resources | None = None
    ports: list[Port] | None = None


class PodOS(msgspec.Struct, frozen=True, gc=False):
    name: str = ""


class ReadinessGate(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    condition_type: str = ""


class Spec(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    node_name: str = ""
    containers: list[Container] | None = None
    init_containers: list[Container] | None = None
    image_pull_secrets: list[LocalObjectReference] | None = None
    restart_policy: str = "Always"
    host_network: bool | None = None
    scheduling_gates: list[PodSchedulingGate] | None = None
    resources: Resources | None = None
    overhead: dict[str, str | int] | None = None
    node_selector: dict[str, str] | None = None
    affinity: Affinity | None = None
    tolerations: list[Toleration] | None = None
    os: PodOS | None = None
    readiness_gates: list[ReadinessGate] | None = None


class Running(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    started_at: str | None = None


class Terminated(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    exit_code: int = 0
    reason: str = ""
    message: str = ""
    started_at: str | None = None
    finished_at: str | None = None


class Waiting(msgspec.Struct, frozen=True, gc=False):
    reason: str = ""
    message: str = ""


class State(msgspec.Struct, frozen=True, gc=False):
    waiting: Waiting | None = None
    running: Running | None = None
    terminated: Terminated | None = None


class ContainerStatus(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    name: str = ""
    ready: bool = False
    restart_count: int = 0
    image_id: str = msgspec.field(default="", name="imageID")
    state: State = State()
    last_state: State = State()


class Condition(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    type: str = ""
    status: str = ""
    reason: str = ""
    message: str = ""
    last_transition_time: str | None = None


class Status(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    phase: str = ""
    reason: str = ""
    """Why it failed: a kubelet that did not admit it."""
    conditions: list[Condition] | None = None
    start_time: str | None = None
    pod_ip: str = msgspec.field(default="", name="podIP")
    container_statuses: list[ContainerStatus] | None = None
    init_container_statuses: list[ContainerStatus] | None = None


class Pod(msgspec.Struct, frozen=True, gc=False):
    metadata: ObjectMeta = ObjectMeta()
    spec: Spec = Spec()
    status: Status = Status()

    @property
    def containers(self) -> list[Container]:
        return self.spec.containers or []

    @property
    def init_containers(self) -> list[Container]:
        return self.spec.init_containers or []

    def problem(self, container: str) -> str:
        """Why a container is not ready; empty if it is."""
        for status in self.status.container_statuses or ():
            if status.name == container and status.ready:
                return ""
            if status.name == container and (state := status.state.waiting or status.state.terminated) is not None:
                return f"{state.reason}: {state.message}" if state.message else state.reason
        if self.spec.node_name:
            return "not ready"
        placed = [each for each in self.status.conditions or () if each.type == "PodScheduled"]
        return f"{placed[0].reason}: {placed[0].message}" if placed else "not scheduled"

    @property
    def finished(self) -> bool:
        return self.status.phase in {"Succeeded", "Failed"}


# -- the request of a pod, as a modelled kubelet judges it -------------------------------------------------------------


def pod_request(pod: Pod) -> PodRequest:
    """Names, containers with requests and limits, overhead, the pod's own resources if it has any, and where it may
    run."""
    of_pod = pod.spec.resources or Resources()
    names = {*(of_pod.requests or ()), *(of_pod.limits or ())}
    has_own = any(name == CPU or is_memory(name) for name in names)
    return PodRequest(
        uid=pod.metadata.uid,
        namespace=pod.metadata.namespace,
        name=pod.metadata.name,
        init=tuple(_container(each) for each in pod.init_containers),
        containers=tuple(_container(each) for each in pod.containers),
        overhead=_amounts(pod.spec.overhead),
        pod_requests=_amounts(of_pod.requests) if has_own else None,
        pod_limits=_amounts(of_pod.limits) if has_own else {},
        placement=_placement(pod),
    )


def _placement(pod: Pod) -> Placement:
    spec = pod.spec
    affinity = spec.affinity.node_affinity if spec.affinity is not None else None
    required = affinity.required_during_scheduling_ignored_during_execution if affinity is not None else None
    running = [*pod.containers, *(each for each in pod.init_containers if each.restart_policy == "Always")]
    return Placement(
        selector=spec.node_selector or {},
        terms=tuple(map(NodeTerm.parse, required.node_selector_terms or ())) if required is not None else None,
        tolerations=tuple(spec.tolerations or ()),
        host_ports=tuple(
            HostPort(port.host_port, port.protocol, port.host_ip)
            for each in running
            for port in each.ports or ()
            if port.host_port
        ),
        os=spec.os.name if spec.os is not None else "",
        os_label=(pod.metadata.labels or {}).get(OS_LABEL, ""),
    )


def _container(container: Container) -> ContainerRequest:
    resources = container.resources or Resources()
    is_sidecar = container.restart_policy == "Always"
    return ContainerRequest(container.name, _amounts(resources.requests), _amounts(resources.limits), is_sidecar)


def _amounts(given: Mapping[str, str | int] | None) -> dict[str, Fraction]:
    return {name: quantity(text) for name, text in (given or {}).items()}
