"""Pods as scheduling by cells sees them: quality of service, containers in the order of their start, requests (NS-001).

Decoding is lenient: unknown fields are ignored, lists may be null. Pure.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, Literal

import msgspec

from polyarch.numa.api.topology import Quantity
from polyarch.numa.scheduling.facts.amounts import CPU, MEMORY, Amounts
from polyarch.objects import ObjectMeta
from polyarch.quantity import UNIT, InvalidQuantity, thousandths

Qos = Literal["Guaranteed", "Burstable", "BestEffort"]
Kind = Literal["init", "sidecar", "app"]
_QOS: Final[Mapping[str, Qos]] = {"Guaranteed": "Guaranteed", "Burstable": "Burstable", "BestEffort": "BestEffort"}
ENDED: Final = frozenset({"Succeeded", "Failed"})


class ResourceLists(msgspec.Struct, frozen=True, gc=False):
    """core/v1 ResourceRequirements."""

    requests: dict[str, Quantity] | None = None
    limits: dict[str, Quantity] | None = None


class ContainerObject(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    """core/v1 Container: what it asks for."""

    name: str = ""
    resources: ResourceLists | None = None
    restart_policy: str | None = None


class VolumeObject(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    """core/v1 Volume: whether it is a claim."""

    persistent_volume_claim: dict[str, Any] | None = None
    ephemeral: dict[str, Any] | None = None


class SpecObject(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    """core/v1 PodSpec, as far as it is read here."""

    node_name: str | None = None
    scheduler_name: str | None = None
    init_containers: list[ContainerObject] | None = None
    containers: list[ContainerObject] | None = None
    overhead: dict[str, Quantity] | None = None
    resources: ResourceLists | None = None
    priority: int | None = None
    preemption_policy: str | None = None
    volumes: list[VolumeObject] | None = None
    resource_claims: list[dict[str, Any]] | None = None


class StatusObject(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    """core/v1 PodStatus, as far as it is read here."""

    phase: str | None = None
    qos_class: str | None = None
    start_time: str | None = None
    reason: str | None = None
    nominated_node_name: str | None = None


class PodObject(msgspec.Struct, frozen=True, gc=False):
    """core/v1 Pod."""

    metadata: ObjectMeta = ObjectMeta()
    spec: SpecObject | None = None
    status: StatusObject | None = None


class ContainerFacts(msgspec.Struct, frozen=True, gc=False):
    """One container with what it requests; a request that is missing is that of the limit."""

    name: str
    kind: Kind
    requests: Amounts = {}
    limits: Amounts = {}


class PodFacts(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """What a pod asks for, and what else decisions read of it."""

    namespace: str = ""
    name: str = ""
    uid: str = ""
    qos: Qos = "BestEffort"
    containers: tuple[ContainerFacts, ...] = ()
    """Init containers and sidecars in their order, then app containers: the order in which the kubelet aligns them."""
    overhead: Amounts = {}
    pod_requests: Amounts | None = None
    """``spec.resources``; None: there are none."""
    annotations: Mapping[str, str] = {}
    scheduler_name: str = ""
    node_name: str = ""
    resource_version: str = ""
    priority: int = 0
    preempts: bool = True
    """``preemptionPolicy`` is not ``Never``."""
    has_claims: bool = False
    """Of volumes or of devices: binding may take long."""
    phase: str = ""
    started_at: str = ""
    """``status.startTime``: its kubelet has seen it."""
    labels: Mapping[str, str] = {}
    terminating: bool = False

    @property
    def is_guaranteed(self) -> bool:
        return self.qos == "Guaranteed"

    @property
    def started(self) -> bool:
        return bool(self.started_at)

    @property
    def has_ended(self) -> bool:
        return self.phase in ENDED

    @property
    def full_name(self) -> str:
        return f"{self.namespace}/{self.name}"


def pod_facts(pod: PodObject) -> PodFacts:
    """Of a pod as the API server has it. Raises :class:`polyarch.quantity.InvalidQuantity` with the place."""
    spec, status = pod.spec or SpecObject(), pod.status or StatusObject()
    init = [_container(each, _init_kind(each)) for each in spec.init_containers or ()]
    containers = (*init, *(_container(each, "app") for each in spec.containers or ()))
    whole = _pair(spec.resources, "spec.resources") if spec.resources is not None else None
    return PodFacts(
        namespace=pod.metadata.namespace,
        name=pod.metadata.name,
        uid=pod.metadata.uid,
        qos=_QOS.get(status.qos_class or "") or quality(containers, whole),
        containers=containers,
        overhead=_amounts(spec.overhead, "spec.overhead"),
        pod_requests=whole[0] if whole is not None else None,
        annotations=pod.metadata.annotations or {},
        scheduler_name=spec.scheduler_name or "",
        node_name=spec.node_name or "",
        resource_version=pod.metadata.resource_version,
        priority=spec.priority or 0,
        preempts=spec.preemption_policy != "Never",
        has_claims=bool(spec.resource_claims) or any(_is_claim(each) for each in spec.volumes or ()),
        phase=status.phase or "",
        started_at=status.start_time or "",
        labels=pod.metadata.labels or {},
        terminating=pod.metadata.deletion_timestamp is not None,
    )


def quality(containers: Sequence[ContainerFacts], whole: tuple[Amounts, Amounts] | None) -> Qos:
    """As Kubernetes computes it; ``whole`` are the requests and limits of the pod, which then decide alone."""
    pairs = [whole] if whole is not None else [(each.requests, each.limits) for each in containers]
    requests, limits = _sum(asked for asked, _ in pairs), _sum(limit for _, limit in pairs)
    if not requests and not limits:
        return "BestEffort"
    limited = all(limit.get(name, 0) > 0 for _, limit in pairs for name in (CPU, MEMORY))
    return "Guaranteed" if limited and requests == limits else "Burstable"


def is_whole(amount: int) -> bool:
    """A whole number of CPUs: others come from the shared pool."""
    return amount % UNIT == 0


def _sum(lists: Iterable[Amounts]) -> dict[str, int]:
    total: dict[str, int] = {}
    for each in lists:
        for name in (CPU, MEMORY):
            if amount := each.get(name, 0):
                total[name] = total.get(name, 0) + amount
    return total


def _container(container: ContainerObject, kind: Kind) -> ContainerFacts:
    requests, limits = _pair(container.resources, f"container {container.name}")
    return ContainerFacts(container.name, kind, requests, limits)


def _init_kind(container: ContainerObject) -> Kind:
    return "sidecar" if container.restart_policy == "Always" else "init"


def _pair(lists: ResourceLists | None, place: str) -> tuple[Amounts, Amounts]:
    found = lists or ResourceLists()
    limits = _amounts(found.limits, f"{place}: limits")
    return {**limits, **_amounts(found.requests, f"{place}: requests")}, limits


def _amounts(quantities: Mapping[str, Quantity] | None, place: str) -> dict[str, int]:
    amounts = {}
    for name, quantity in (quantities or {}).items():
        try:
            amounts[name] = thousandths(quantity, "up")
        except InvalidQuantity as error:
            raise InvalidQuantity(f"{place}: {name}: {error}") from None
    return amounts


def _is_claim(volume: VolumeObject) -> bool:
    return volume.persistent_volume_claim is not None or volume.ephemeral is not None
