"""XXH64, the hash of fingerprints and placement vectors.

Every platform has the one written here, which needs nothing compiled. Where the package ``xxhash`` is installed
(extra ``fast``), it is used instead; a property test holds the two together. The algorithm and its names are those of
https://github.com/Cyan4973/xxHash/blob/dev/doc/xxhash_spec.md. Pure."""

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from decimal import Decimal, InvalidOperation
from struct import Struct, pack
from typing import Any, Final, Literal

import msgspec

from polyarch.numa import names
from polyarch.numa.api.topology import NodeResourceTopology, attribute_value
from polyarch.numa.facts import ListedPod, MalformedPattern, compile_pattern
from polyarch.objects import ObjectMeta

Digest = Callable[[bytes, int], int]
"""Content and seed to an unsigned number of 64 bits."""

_MASK: Final = (1 << 64) - 1
_PRIME_1: Final = 0x9E3779B185EBCA87
_PRIME_2: Final = 0xC2B2AE3D27D4EB4F
_PRIME_3: Final = 0x165667B19E3779F9
_PRIME_4: Final = 0x85EBCA77C2B2AE63
_PRIME_5: Final = 0x27D4EB2F165667C5

_STRIPES: Final = Struct("<4Q")
_LANES: Final = Struct("<Q")
_STRIPE_BYTES: Final = _STRIPES.size
_LANE_BYTES: Final = _LANES.size
_HALF_LANE_BYTES: Final = 4


def xxh64_in_python(content: bytes, seed: int = 0) -> int:
    """The hash without any compiled part."""
    size = len(content)
    whole = size - size % _STRIPE_BYTES
    # A view: slices of it copy nothing.
    view = memoryview(content)
    state = _stripes(view[:whole], seed) if whole else (seed + _PRIME_5) & _MASK
    return _avalanche(_rest(view[whole:], (state + size) & _MASK))


def _stripes(content: memoryview, seed: int) -> int:
    """The state after all whole stripes of 32 bytes. The rounds are written out, since calls would double the time."""
    first = (seed + _PRIME_1 + _PRIME_2) & _MASK
    second = (seed + _PRIME_2) & _MASK
    third = seed & _MASK
    fourth = (seed - _PRIME_1) & _MASK
    for lane_1, lane_2, lane_3, lane_4 in _STRIPES.iter_unpack(content):
        first = (first + lane_1 * _PRIME_2) & _MASK
        first = ((first << 31 | first >> 33) * _PRIME_1) & _MASK
        second = (second + lane_2 * _PRIME_2) & _MASK
        second = ((second << 31 | second >> 33) * _PRIME_1) & _MASK
        third = (third + lane_3 * _PRIME_2) & _MASK
        third = ((third << 31 | third >> 33) * _PRIME_1) & _MASK
        fourth = (fourth + lane_4 * _PRIME_2) & _MASK
        fourth = ((fourth << 31 | fourth >> 33) * _PRIME_1) & _MASK
    state = _turned(first, 1) + _turned(second, 7) + _turned(third, 12) + _turned(fourth, 18)
    for lane in (first, second, third, fourth):
        state = ((state ^ _round(lane)) * _PRIME_1 + _PRIME_4) & _MASK
    return state


def _rest(content: memoryview, state: int) -> int:
    """The fewer than 32 bytes after the stripes: lanes of 8 bytes, one of 4, single bytes."""
    lanes = len(content) - len(content) % _LANE_BYTES
    for (lane,) in _LANES.iter_unpack(content[:lanes]):
        state = (_turned(state ^ _round(lane), 27) * _PRIME_1 + _PRIME_4) & _MASK
    content = content[lanes:]
    if len(content) >= _HALF_LANE_BYTES:
        half = int.from_bytes(content[:_HALF_LANE_BYTES], "little")
        state = (_turned(state ^ (half * _PRIME_1 & _MASK), 23) * _PRIME_2 + _PRIME_3) & _MASK
        content = content[_HALF_LANE_BYTES:]
    for byte in content:
        state = _turned(state ^ (byte * _PRIME_5 & _MASK), 11) * _PRIME_1 & _MASK
    return state


def _avalanche(state: int) -> int:
    """Every bit of the input reaches every bit of the result."""
    state = (state ^ state >> 33) * _PRIME_2 & _MASK
    state = (state ^ state >> 29) * _PRIME_3 & _MASK
    return state ^ state >> 32


def _round(lane: int) -> int:
    return _turned(lane * _PRIME_2 & _MASK, 31) * _PRIME_1 & _MASK


def _turned(value: int, bits: int) -> int:
    return (value << bits | value >> (64 - bits)) & _MASK


def _fastest() -> Digest:
    try:
        from xxhash import xxh64_intdigest
    except ImportError:
        return xxh64_in_python
    return xxh64_intdigest


xxh64: Final[Digest] = _fastest()
"""The hash, by whatever is fastest here; called with ``(content, seed)``."""


# -- The fingerprint of a set of pods, by which a scheduler knows which pods an object accounts for.


PREFIX: Final = "pfp0"
VERSION: Final = "v001"
MIN_LENGTH: Final = 16
"""Characters of the shortest text that can be a fingerprint of any version."""

PodName = tuple[str, str]
"""Namespace and name."""
FingerprintStatus = Literal["ok", "malformed", "incompatible-version", "mismatch"]


def fingerprint(pods: Iterable[PodName], *, digest: Digest = xxh64) -> str:
    """Of these pods, in any order; a pod listed twice counts twice."""
    seeds: dict[str, int] = {}
    hashes = []
    for namespace, name in pods:
        seed = seeds.get(namespace)
        if seed is None:
            seed = seeds[namespace] = digest(_bytes(namespace), 0)
        hashes.append(digest(_bytes(name), seed))
    return fingerprint_of_hashes(hashes, digest=digest)


def pod_hash(pod: PodName, *, digest: Digest = xxh64) -> int:
    """What a pod adds to a fingerprint: for whoever tries many sets of the same pods."""
    namespace, name = pod
    return digest(_bytes(name), digest(_bytes(namespace), 0))


def fingerprint_of_hashes(hashes: Collection[int], *, digest: Digest = xxh64) -> str:
    """The fingerprint of the pods with these hashes, in any order."""
    return f"{PREFIX}{VERSION}{digest(pack(f'<{len(hashes)}Q', *sorted(hashes)), 0):016x}"


def check_fingerprint(text: str, pods: Iterable[PodName]) -> FingerprintStatus:
    """Whether a published fingerprint is that of these pods."""
    if len(text) < MIN_LENGTH or not text.startswith(PREFIX):
        return "malformed"
    if text[len(PREFIX) : len(PREFIX) + len(VERSION)] != VERSION:
        return "incompatible-version"
    return "ok" if text == fingerprint(pods) else "mismatch"


def has_exclusive_resources(pod: ListedPod) -> bool:
    """A container holds a CPU, or memory or a device of a cell: what ``with-exclusive-resources`` counts.

    The quality of service is not asked for: what the kubelet lists is what counts.
    """
    return any(
        each.cpus
        or any(_in_a_zone(block.cells) for block in each.memory)
        or any(devices.ids and _in_a_zone(devices.cells) for devices in each.devices)
        for each in pod.containers
    )


def _in_a_zone(cells: Iterable[int]) -> bool:
    return any(cell >= 0 for cell in cells)


def _bytes(text: str) -> bytes:
    # Names of an API server are ASCII; a text of a file may be anything, and must not be an error.
    return text.encode("utf-8", "surrogatepass")


# -- The pods of a node as somebody saved them, to be compared with a fingerprint.


Quantities = dict[str, str | int | float]


class SavedPod(msgspec.Struct, frozen=True):
    """What matters of a pod."""

    namespace: str
    name: str
    exclusive: bool = True
    """It holds CPUs or memory exclusively, as far as is known."""
    devices: frozenset[str] = frozenset()
    """Extended resources it asks for; those that a cell has are held exclusively."""
    ended: bool = False
    """Its phase is Succeeded or Failed: a kubelet may list it or not."""


class ContainerResources(msgspec.Struct, frozen=True):
    """core/v1 ResourceRequirements."""

    requests: Quantities | None = None
    limits: Quantities | None = None


class ApiContainer(msgspec.Struct, frozen=True, rename="camel"):
    """core/v1 Container: what it asks for."""

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
    """``--pods-fingerprint-status-file``."""

    pods: list[StatusFilePod] | None
    node_name: str


def saved_pod_of_api(pod: ApiPod) -> SavedPod:
    """What its spec says."""
    asked = list(_requests(pod.spec))
    guaranteed = pod.status.qos_class == "Guaranteed"
    return SavedPod(
        pod.metadata.namespace or "default",
        pod.metadata.name,
        exclusive=guaranteed and any(_is_exclusive(quantities) for quantities in asked),
        devices=frozenset(name for quantities in asked for name in quantities if "/" in name and quantities[name]),
        ended=pod.status.phase in ("Succeeded", "Failed"),
    )


def saved_pods_of_status_file(status: StatusFileContent) -> list[SavedPod]:
    """The pods of a fingerprint, exactly."""
    return [SavedPod(each.namespace, each.name) for each in status.pods or ()]


def saved_pods_of_kubelet(pods: Iterable[ListedPod]) -> list[SavedPod]:
    """The pods that a kubelet lists, exactly."""
    return [SavedPod(each.namespace, each.name, exclusive=has_exclusive_resources(each)) for each in pods]


def _requests(spec: PodSpec) -> Iterator[Quantities]:
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


# -- Whether saved objects account for saved pods: a verdict per node. Pure.


ALL_PODS: Final = "all"


class FingerprintVerification(msgspec.Struct, frozen=True):
    """The verdict on one node's fingerprint."""

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
    """The verdict on one object. Without ``pods`` only the form of the fingerprint is judged."""
    attributes = topology.attributes or ()
    published = attribute_value(attributes, names.FINGERPRINT)
    if published is None:
        published = (topology.metadata.annotations or {}).get(names.LEGACY_FINGERPRINT, "")
    node = topology.metadata.name
    if not published:
        return FingerprintVerification(node, "malformed", "", "the object has no fingerprint")
    if pods is None:
        verdict = check_fingerprint(published, ())
        form = verdict in ("ok", "mismatch")
        return FingerprintVerification(
            node, "ok" if form else verdict, published, "the form alone, as no pods are given"
        )
    method = attribute_value(attributes, names.FINGERPRINT_METHOD) or ALL_PODS
    counted = _counted_pods(pods, attribute_value(attributes, names.POD_EXCLUDE), method, _resources(topology))
    running = [each for each in counted if not each.ended]
    verdict = check_fingerprint(published, _names(running))
    if verdict == "mismatch" and len(running) < len(counted):
        verdict = check_fingerprint(published, _names(counted))
    many = "1 pod" if len(running) == 1 else f"{len(running)} pods"
    note = "" if verdict != "mismatch" else f"{many} by method {method}: {fingerprint(_names(running))}"
    return FingerprintVerification(node, verdict, published, note)


def _counted_pods(
    pods: Iterable[SavedPod], excluded: str | None, method: str, resources: frozenset[str]
) -> list[SavedPod]:
    try:
        items = msgspec.json.decode(excluded, type=list[_ExcludedPods]) if excluded else []
        patterns = [(compile_pattern(each.namespace_pattern), compile_pattern(each.name_pattern)) for each in items]
    except (ValueError, RecursionError, MalformedPattern):
        patterns = []
    return [
        pod
        for pod in pods
        if (method == ALL_PODS or pod.exclusive or pod.devices & resources)
        and not any(space.fullmatch(pod.namespace) and name.fullmatch(pod.name) for space, name in patterns)
    ]


def _resources(topology: NodeResourceTopology) -> frozenset[str]:
    return frozenset(each.name for zone in topology.zones or () for each in zone.resources or ())


def _names(pods: Iterable[SavedPod]) -> list[PodName]:
    return [(each.namespace, each.name) for each in pods]
