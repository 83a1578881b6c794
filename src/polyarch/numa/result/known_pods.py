"""The pods of a node as somebody saved them, to be compared with a fingerprint (NE-161).

Three kinds of files know them: pods of the API (``kubectl get pods``), the exporter's status file (NE-085), and an
answer of the kubelet's ``List``. The last two say exactly which pods a fingerprint is made of. Pods of the API do not:
which ones hold something exclusively is then told from their spec, as schedulers do. Pure.
"""

from collections.abc import Iterable, Iterator
from decimal import Decimal, InvalidOperation
from typing import Any

import msgspec

from polyarch.numa.decide.facts import ListedPod
from polyarch.numa.decide.fingerprint import has_exclusive_resources
from polyarch.objects import ObjectMeta

Quantities = dict[str, str | int | float]


class KnownPod(msgspec.Struct, frozen=True):
    """What matters of a pod."""

    namespace: str
    name: str
    exclusive: bool = True
    """It holds CPUs or memory exclusively, as far as is known."""
    devices: frozenset[str] = frozenset()
    """Extended resources it asks for; those that a cell has are held exclusively."""
    ended: bool = False
    """Its phase is Succeeded or Failed: a kubelet may list it or not."""


class Resources(msgspec.Struct, frozen=True):
    """core/v1 ResourceRequirements."""

    requests: Quantities | None = None
    limits: Quantities | None = None


class Container(msgspec.Struct, frozen=True, rename="camel"):
    """core/v1 Container: what it asks for."""

    resources: Resources = Resources()
    restart_policy: str = ""


class PodSpec(msgspec.Struct, frozen=True, rename="camel"):
    """core/v1 PodSpec."""

    node_name: str = ""
    containers: list[Container] | None = None
    init_containers: list[Container] | None = None


class PodStatus(msgspec.Struct, frozen=True, rename="camel"):
    """core/v1 PodStatus."""

    phase: str = ""
    qos_class: str = ""


class ApiPod(msgspec.Struct, frozen=True):
    """core/v1 Pod."""

    metadata: ObjectMeta
    spec: PodSpec = PodSpec()
    status: PodStatus = PodStatus()


class StatusPod(msgspec.Struct, frozen=True):
    """A pod of a status file."""

    namespace: str = msgspec.field(name="Namespace")
    name: str = msgspec.field(name="Name")


class StatusFile(msgspec.Struct, frozen=True, rename="camel"):
    """``--pods-fingerprint-status-file`` (NE-085)."""

    pods: list[StatusPod] | None
    node_name: str


def of_api(pod: ApiPod) -> KnownPod:
    """What its spec says."""
    asked = list(_asked(pod.spec))
    guaranteed = pod.status.qos_class == "Guaranteed"
    return KnownPod(
        pod.metadata.namespace or "default",
        pod.metadata.name,
        exclusive=guaranteed and any(_is_exclusive(quantities) for quantities in asked),
        devices=frozenset(name for quantities in asked for name in quantities if "/" in name and quantities[name]),
        ended=pod.status.phase in ("Succeeded", "Failed"),
    )


def of_status(status: StatusFile) -> list[KnownPod]:
    """The pods of a fingerprint, exactly."""
    return [KnownPod(each.namespace, each.name) for each in status.pods or ()]


def of_listing(pods: Iterable[ListedPod]) -> list[KnownPod]:
    """The pods that a kubelet lists, exactly."""
    return [KnownPod(each.namespace, each.name, exclusive=has_exclusive_resources(each)) for each in pods]


def _asked(spec: PodSpec) -> Iterator[Quantities]:
    """Of each container that runs as long as the pod does."""
    sidecars = [each for each in spec.init_containers or () if each.restart_policy == "Always"]
    for container in [*(spec.containers or ()), *sidecars]:
        yield {**(container.resources.limits or {}), **(container.resources.requests or {})}


def _is_exclusive(quantities: Quantities) -> bool:
    return any(
        _is_whole(quantity) if name == "cpu" else _is_positive(quantity)
        for name, quantity in quantities.items()
        if name in ("cpu", "memory") or name.startswith("hugepages-")
    )


def _is_whole(quantity: Any) -> bool:
    """Whole CPUs, at least one."""
    text = str(quantity)
    try:
        amount = Decimal(text[:-1]) / 1000 if text.endswith("m") else Decimal(text)
    except InvalidOperation:
        return False
    return amount > 0 and amount == amount.to_integral_value()


def _is_positive(quantity: Any) -> bool:
    return any(digit in "123456789" for digit in str(quantity).lower().partition("e")[0])
