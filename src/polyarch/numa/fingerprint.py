"""The fingerprint of a set of pods, by which a scheduler knows which pods a topology accounts for.

It is byte-exact, since schedulers of other projects compare it: names in, a short text out, whatever the order. The
second half of the module checks the fingerprints of saved topologies against saved pods, for ``numa export --verify``.
The hash is XXH64. Pure.
"""

from collections.abc import Collection, Iterable, Iterator, Sequence
from decimal import Decimal, InvalidOperation
from struct import pack
from typing import Any, Final, Literal

import msgspec
from xxhash import xxh64_intdigest

from polyarch.numa import names
from polyarch.numa.api.topology import NodeResourceTopology, attribute_value
from polyarch.numa.facts import ListedPod, MalformedPattern, compile_pattern
from polyarch.objects import ObjectMeta

PREFIX: Final = "pfp0"
VERSION: Final = "v001"
MIN_LENGTH: Final = 16
"""Characters of the shortest text that can be a fingerprint of any version."""

PodName = tuple[str, str]
"""Namespace and name."""
FingerprintStatus = Literal["ok", "malformed", "incompatible-version", "mismatch"]


def fingerprint(pods: Iterable[PodName]) -> str:
    """The fingerprint of these pods, in any order; a pod listed twice counts twice."""
    seeds: dict[str, int] = {}
    hashes = []
    for namespace, name in pods:
        seed = seeds.get(namespace)
        if seed is None:
            seed = seeds[namespace] = xxh64_intdigest(_bytes(namespace))
        hashes.append(xxh64_intdigest(_bytes(name), seed))
    return fingerprint_of_hashes(hashes)


def pod_hash(pod: PodName) -> int:
    """What a pod adds to a fingerprint: for whoever tries many sets of the same pods."""
    namespace, name = pod
    return xxh64_intdigest(_bytes(name), xxh64_intdigest(_bytes(namespace)))


def fingerprint_of_hashes(hashes: Collection[int]) -> str:
    """The fingerprint of the pods with these hashes, in any order."""
    return f"{PREFIX}{VERSION}{xxh64_intdigest(pack(f'<{len(hashes)}Q', *sorted(hashes))):016x}"


def check_fingerprint(text: str, pods: Iterable[PodName]) -> FingerprintStatus:
    """Whether a published fingerprint is that of these pods."""
    if len(text) < MIN_LENGTH or not text.startswith(PREFIX):
        return "malformed"
    if text[len(PREFIX) : len(PREFIX) + len(VERSION)] != VERSION:
        return "incompatible-version"
    return "ok" if text == fingerprint(pods) else "mismatch"


def has_exclusive_resources(pod: ListedPod, machine: Collection[int] | None = None) -> bool:
    """True if a container holds a CPU, or memory or a device of a zone: such pods count for the method
    ``with-exclusive-resources``.

    What the kubelet lists decides, not the pod's quality of service. ``machine``: its zones; None: they are not known,
    and any that is not negative is one.
    """

    def in_a_zone(zones: Iterable[int]) -> bool:
        return any(zone >= 0 if machine is None else zone in machine for zone in zones)

    return any(
        container.cpus
        or any(in_a_zone(block.zones) for block in container.memory)
        or any(devices.ids and in_a_zone(devices.zones) for devices in container.devices)
        for container in pod.containers
    )


def _bytes(text: str) -> bytes:
    # Names of an API server are ASCII; a text of a file may be anything, and must not be an error.
    return text.encode("utf-8", "surrogatepass")


# -- saved pods --------------------------------------------------------------------------------------------------------

# Three kinds of files tell the pods of a node: pods of the API (``kubectl get pods``), the exporter's status file, and
# a saved response of the kubelet's ``List``. The last two name exactly the pods that a fingerprint is made of. For pods
# of the API the spec has to tell which ones hold something exclusively, as schedulers decide it.

Quantities = dict[str, str | int | float]


class SavedPod(msgspec.Struct, frozen=True):
    """A pod, reduced to what decides whether it counts."""

    namespace: str
    name: str
    exclusive: bool = True
    """It holds CPUs or memory exclusively, as far as is known."""
    devices: frozenset[str] = frozenset()
    """Extended resources that it requests; those that a zone has are held exclusively."""
    terminal: bool = False
    """Its phase is Succeeded or Failed: a kubelet may list it or not."""


class ContainerResources(msgspec.Struct, frozen=True):
    """core/v1 ResourceRequirements."""

    requests: Quantities | None = None
    limits: Quantities | None = None


class ApiContainer(msgspec.Struct, frozen=True, rename="camel"):
    """core/v1 Container, reduced to its requests."""

    resources: ContainerResources = ContainerResources()
    restart_policy: str = ""


class PodSpec(msgspec.Struct, frozen=True, rename="camel"):
    """core/v1 PodSpec."""

    node_name: str = ""
    containers: list[ApiContainer] | None = None
    init_containers: list[ApiContainer] | None = None


class PodStatus(msgspec.Struct, frozen=True, rename="camel"):
    """core/v1 PodStatus."""

    phase: str = ""
    qos_class: str = ""


class ApiPod(msgspec.Struct, frozen=True):
    """core/v1 Pod."""

    metadata: ObjectMeta
    spec: PodSpec = PodSpec()
    status: PodStatus = PodStatus()


class StatusFilePod(msgspec.Struct, frozen=True):
    """A pod of a status file."""

    namespace: str = msgspec.field(name="Namespace")
    name: str = msgspec.field(name="Name")


class StatusFileContent(msgspec.Struct, frozen=True, rename="camel"):
    """The content of ``--pods-fingerprint-status-file``."""

    pods: list[StatusFilePod] | None
    node_name: str


def saved_pod_of_api(pod: ApiPod) -> SavedPod:
    """A pod of the API, judged by its spec."""
    requests = list(_requests(pod.spec))
    guaranteed = pod.status.qos_class == "Guaranteed"
    return SavedPod(
        pod.metadata.namespace or "default",
        pod.metadata.name,
        exclusive=guaranteed and any(_is_exclusive(quantities) for quantities in requests),
        devices=frozenset(name for quantities in requests for name in quantities if "/" in name and quantities[name]),
        terminal=pod.status.phase in ("Succeeded", "Failed"),
    )


def saved_pods_of_status_file(status: StatusFileContent) -> list[SavedPod]:
    """Exactly the pods of a fingerprint."""
    return [SavedPod(pod.namespace, pod.name) for pod in status.pods or ()]


def saved_pods_of_kubelet(pods: Iterable[ListedPod]) -> list[SavedPod]:
    """The pods that a kubelet lists."""
    return [SavedPod(pod.namespace, pod.name, exclusive=has_exclusive_resources(pod)) for pod in pods]


def _requests(spec: PodSpec) -> Iterator[Quantities]:
    """The requests of each container that runs as long as the pod does."""
    sidecars = [container for container in spec.init_containers or () if container.restart_policy == "Always"]
    for container in [*(spec.containers or ()), *sidecars]:
        yield {**(container.resources.limits or {}), **(container.resources.requests or {})}


def _is_exclusive(quantities: Quantities) -> bool:
    return any(
        _is_whole(quantity) if name == "cpu" else _is_positive(quantity)
        for name, quantity in quantities.items()
        if name in ("cpu", "memory") or name.startswith("hugepages-")
    )


def _is_whole(quantity: Any) -> bool:
    """True for whole CPUs, at least one."""
    text = str(quantity)
    try:
        amount = Decimal(text[:-1]) / 1000 if text.endswith("m") else Decimal(text)
    except InvalidOperation:
        return False
    return amount > 0 and amount == amount.to_integral_value()


def _is_positive(quantity: Any) -> bool:
    return any(digit in "123456789" for digit in str(quantity).lower().partition("e")[0])


# -- verification ------------------------------------------------------------------------------------------------------


class FingerprintVerification(msgspec.Struct, frozen=True):
    """Whether the fingerprint of one node is that of its saved pods."""

    node: str
    verdict: FingerprintStatus
    fingerprint: str
    """As published; empty if there is none."""
    note: str = ""


class _ExcludedPods(msgspec.Struct, frozen=True, rename="camel"):
    """An item of the attribute ``pod-exclude``."""

    namespace_pattern: str = "*"
    name_pattern: str = "*"


def verify_fingerprint(topology: NodeResourceTopology, pods: Sequence[SavedPod] | None) -> FingerprintVerification:
    """The fingerprint of one topology, compared with that of ``pods``; None: its form alone is checked."""
    node, attributes = topology.metadata.name, topology.attributes or ()
    published = attribute_value(attributes, names.FINGERPRINT)
    if published is None:
        published = (topology.metadata.annotations or {}).get(names.LEGACY_FINGERPRINT, "")
    if not published:
        return FingerprintVerification(node, "malformed", "", "the object has no fingerprint")
    if pods is None:
        verdict = check_fingerprint(published, ())
        form = "ok" if verdict == "mismatch" else verdict
        return FingerprintVerification(node, form, published, "the form alone, as no pods are given")
    method = attribute_value(attributes, names.FINGERPRINT_METHOD) or "all"
    listed = (resource for zone in topology.zones or () for resource in zone.resources or ())
    resources = frozenset(resource.name for resource in listed if _is_positive(resource.capacity))
    counted = _without_excluded(
        (pod for pod in pods if method == "all" or pod.exclusive or pod.devices & resources),
        attribute_value(attributes, names.POD_EXCLUDE),
    )
    running = [pod for pod in counted if not pod.terminal]
    verdict = check_fingerprint(published, _names(running))
    if verdict == "mismatch" and len(running) < len(counted):
        verdict = check_fingerprint(published, _names(counted))
    many = "1 pod" if len(running) == 1 else f"{len(running)} pods"
    note = "" if verdict != "mismatch" else f"{many} by method {method}: {fingerprint(_names(running))}"
    return FingerprintVerification(node, verdict, published, note)


def _without_excluded(pods: Iterable[SavedPod], excluded: str | None) -> list[SavedPod]:
    """The pods that no pattern of the attribute ``pod-exclude`` matches; an unreadable attribute excludes nothing."""
    try:
        items = msgspec.json.decode(excluded, type=list[_ExcludedPods]) if excluded else []
        patterns = [(compile_pattern(item.namespace_pattern), compile_pattern(item.name_pattern)) for item in items]
    except (ValueError, RecursionError, MalformedPattern):
        patterns = []
    return [
        pod
        for pod in pods
        if not any(space.fullmatch(pod.namespace) and name.fullmatch(pod.name) for space, name in patterns)
    ]


def _names(pods: Iterable[SavedPod]) -> list[PodName]:
    return [(pod.namespace, pod.name) for pod in pods]
