"""The facts and settings from which a scan computes what it publishes.

:class:`ScanFacts` holds everything that one scan has read of its machine and its kubelet, before any rule decides.
:class:`HostSettings` and :class:`ScanSettings` are the parts of an exporter's settings that readers of the host and
rules take. A NUMA zone is a NUMA node of the machine; its id is the kernel's number, and ids may have holes. Pure.
"""

import json
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from itertools import pairwise
from typing import Final, Literal

import msgspec
from msgspec.structs import replace

TopologyPolicy = Literal["none", "best-effort", "restricted", "single-numa-node"]
TopologyScope = Literal["container", "pod"]
FingerprintMethod = Literal["all", "with-exclusive-resources"]
UsageSource = Literal["max", "podresources"]
KubeletSource = Literal["auto", "configz", "file"]

MAX_DESCRIPTION_BYTES: Final = 2048
"""Bytes of the attribute that tells other programs which pods ``podExclude`` leaves out."""
HIGHEST_CPU: Final = 1 << 20
"""No machine has more CPUs; a damaged list must not take all memory."""

_CPU_RANGE: Final = re.compile(r"([0-9]{1,7})(?:-([0-9]{1,7}))?")


# -- the machine -------------------------------------------------------------------------------------------------------


class HostZone(msgspec.Struct, frozen=True, kw_only=True):
    """One online NUMA zone as sysfs shows it."""

    id: int
    cpus: frozenset[int] = frozenset()
    """Online CPUs; none for a zone of memory alone."""
    memory: int | None = None
    """Bytes; None: could not be read."""
    pages: Mapping[int, int] | None = None
    """Count of huge pages by their size in bytes; None: could not be read."""
    costs: tuple[tuple[int, int], ...] = ()
    """Distance by id of the target, ascending; empty: could not be read."""
    socket: int | None = None
    """The package id that all CPUs of the zone agree on."""


class Machine(msgspec.Struct, frozen=True, kw_only=True):
    """All online zones, ascending by id."""

    zones: tuple[HostZone, ...]
    cores: tuple[frozenset[int], ...] = ()
    """The online CPUs of each core."""

    @property
    def threads_per_core(self) -> int:
        """As the kubelet divides: cores of one CPU among cores of two make one, and so does a sibling that is
        offline."""
        return sum(map(len, self.cores)) // len(self.cores) if self.cores else 1


# -- responses of the podresources API ---------------------------------------------------------------------------------


class MemoryBlock(msgspec.Struct, frozen=True):
    """``ContainerMemory``: memory, or huge pages of one size, of one zone or of several zones together."""

    resource: str
    """``memory`` or ``hugepages-<size>``."""
    size: int
    """Bytes."""
    zones: tuple[int, ...] = ()


class Devices(msgspec.Struct, frozen=True):
    """``ContainerDevices``: devices of one resource with the same zones."""

    resource: str
    ids: tuple[str, ...]
    zones: tuple[int, ...] = ()
    """As the plugin names them, also such that the machine does not have; empty: not bound to a zone."""


class Container(msgspec.Struct, frozen=True, kw_only=True):
    """What one container holds exclusively."""

    name: str
    cpus: tuple[int, ...] = ()
    memory: tuple[MemoryBlock, ...] = ()
    devices: tuple[Devices, ...] = ()


class ListedPod(msgspec.Struct, frozen=True):
    """One pod of the kubelet's ``List``."""

    namespace: str
    name: str
    containers: tuple[Container, ...] = ()


class Allocatable(msgspec.Struct, frozen=True, kw_only=True):
    """The kubelet's ``GetAllocatableResources``: what all pods together may get."""

    cpus: tuple[int, ...] = ()
    memory: tuple[MemoryBlock, ...] = ()
    devices: tuple[Devices, ...] = ()


# -- files and settings of the kubelet ---------------------------------------------------------------------------------


class CpuCheckpoint(msgspec.Struct, frozen=True):
    """The kubelet's ``cpu_manager_state``."""

    policy: str
    shared: frozenset[int]
    """``defaultCpuSet``."""


class ZoneMemoryState(msgspec.Struct, frozen=True):
    """One zone and resource in ``memory_manager_state``; bytes."""

    zone: int
    resource: str
    allocatable: int
    free: int
    group: tuple[int, ...] = ()
    """``cells``: the zones that a block of memory here spans, ascending; this zone alone if none does."""


class MemoryCheckpoint(msgspec.Struct, frozen=True):
    """The kubelet's ``memory_manager_state``."""

    policy: str
    zones: tuple[ZoneMemoryState, ...] = ()
    ended: tuple[MemoryBlock, ...] = ()
    """Blocks of pods that are gone. The kubelet frees them when it next admits a pod; ``zones`` counts them still."""


class Checkpoints(msgspec.Struct, frozen=True, kw_only=True):
    """The kubelet's checkpoint files; None: absent, unreadable or of an unknown format."""

    cpu: CpuCheckpoint | None = None
    memory: MemoryCheckpoint | None = None
    pods: tuple[tuple[Container, ...], ...] = ()
    """Memory and devices of each pod that is not gone: of all its containers, also when it has ended."""
    mounted: tuple[tuple[Container, ...], ...] = ()
    """The same of pods that hold no memory and whose volumes are mounted: these have not ended. They are not among
    ``pods``."""


class KubeletSettings(msgspec.Struct, frozen=True, kw_only=True):
    """The settings of the kubelet that decide how it places containers."""

    policy: TopologyPolicy = "none"
    scope: TopologyScope = "container"
    max_numa_nodes: int | None = None
    """``max-allowable-numa-nodes``; None: not set."""
    topology_options: tuple[tuple[str, str], ...] = ()
    """``topologyManagerPolicyOptions``, sorted."""
    cpu_manager_policy: str = "none"
    cpu_manager_options: tuple[tuple[str, str], ...] = ()
    memory_manager_policy: str = "None"
    pod_level_managers: bool = False
    """The feature gate ``PodLevelResourceManagers``."""
    reserves_cpus: bool | None = None
    """``reservedSystemCPUs`` or a CPU reservation is set; None: unknown, as the settings came from flags."""


# -- one scan ----------------------------------------------------------------------------------------------------------


class PodPattern(msgspec.Struct, frozen=True):
    """An item of ``podExclude``: shell globs, both must match."""

    namespace: str
    name: str


class ContainerName(msgspec.Struct, frozen=True):
    """The reference container, whose CPUs are the shared pool."""

    namespace: str
    pod: str
    container: str


class ScanSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Which usage counts, and what the topology says."""

    reference_container: ContainerName | None = None
    pod_exclude: tuple[PodPattern, ...] = ()
    exclude_terminal_pods: bool = False
    resource_exclude: Mapping[str, tuple[str, ...]] = {}
    """By node name, or ``*``."""
    usage_source: UsageSource = "max"
    pods_fingerprint: bool = True
    pods_fingerprint_method: FingerprintMethod = "with-exclusive-resources"
    pods_fingerprint_status_file: str = ""
    placement_vectors: bool = False
    extra_attributes: bool = True
    legacy_fields: bool = True
    node_group: str = ""
    add_nrt_owner: bool = True
    expose_timing: bool = False


class HostSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Where a machine's files and sockets are."""

    root: str = "/"
    """Prefix of every host file that is read."""
    sysfs: str = ""
    """Instead of ``<root>/sys``; empty: that."""
    podresources_socket: str = "unix:///podresources/kubelet.sock"
    """``unix:///path`` or ``fake:///directory``."""
    kubelet_state_dir: str = ""
    """Empty: ``<root>/var/lib/kubelet``."""
    kubelet_config: KubeletSource = "auto"
    kubelet_config_file: str = "/podresources/config.yaml"
    kubelet_config_dir: str = ""
    """Directory of drop-ins, ``*.conf``; empty: none."""
    kubelet_address: str = ""
    """Where the kubelet answers; empty: the InternalIP of the own Node."""
    kubelet_ca: str = ""
    kubelet_insecure_tls: bool = False
    topology_manager_policy: TopologyPolicy | None = None
    """With ``topology_manager_scope`` instead of the kubelet's own."""
    topology_manager_scope: TopologyScope | None = None


class ScanFacts(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that one scan has read."""

    machine: Machine
    allocatable: Allocatable
    pods: tuple[ListedPod, ...] = ()
    """As the kubelet listed them, nothing left out yet."""
    kubelet: KubeletSettings = KubeletSettings()
    checkpoints: Checkpoints = Checkpoints()
    terminal: frozenset[tuple[str, str]] = frozenset()
    """Namespace and name of the pods of this node in phase Succeeded or Failed."""
    node_uid: str = ""
    """Of the live Node; empty: not known, or there is none."""


# -- pods that count ---------------------------------------------------------------------------------------------------


class MalformedPattern(ValueError):  # noqa: N818 - what is the case
    """A glob that no shell would take for one; the message says where it is wrong."""


def without_shared_cpus(pods: Sequence[ListedPod], reference: ContainerName | None) -> Sequence[ListedPod]:
    """The pods without the CPUs that the reference container lists: those CPUs are the shared pool."""
    shared = _cpus_of(reference, pods) if reference else frozenset()
    if not shared:
        return pods
    return [
        replace(
            pod,
            containers=tuple(
                replace(container, cpus=tuple(cpu for cpu in container.cpus if cpu not in shared))
                for container in pod.containers
            ),
        )
        for pod in pods
    ]


def _cpus_of(wanted: ContainerName, pods: Iterable[ListedPod]) -> frozenset[int]:
    return frozenset(
        cpu
        for pod in pods
        if (pod.namespace, pod.name) == (wanted.namespace, wanted.pod)
        for container in pod.containers
        if container.name == wanted.container
        for cpu in container.cpus
    )


def counted_pods(
    pods: Iterable[ListedPod], excluded: Sequence[PodPattern], terminal: Collection[tuple[str, str]]
) -> list[ListedPod]:
    """The pods whose usage counts and of which the fingerprint is made.

    Raises :class:`MalformedPattern`; whoever reads settings has checked the patterns.
    """
    patterns = [(compile_pattern(pattern.namespace), compile_pattern(pattern.name)) for pattern in excluded]
    return [
        pod
        for pod in pods
        if (pod.namespace, pod.name) not in terminal
        and not any(space.fullmatch(pod.namespace) and name.fullmatch(pod.name) for space, name in patterns)
    ]


def describe_exclusions(excluded: Iterable[PodPattern]) -> str | None:
    """``podExclude`` as compact JSON, for schedulers; None: too long to be published."""
    items = [{"namespacePattern": pattern.namespace, "namePattern": pattern.name} for pattern in excluded]
    text = json.dumps(items, separators=(",", ":"), ensure_ascii=False)
    return text if len(text.encode("utf-8", "surrogatepass")) <= MAX_DESCRIPTION_BYTES else None


def compile_pattern(glob: str) -> re.Pattern[str]:
    """A shell glob: ``*``, ``?``, ``[a-z]``, ``[!a-z]`` (also ``[^a-z]``); a backslash makes the next character plain.

    Raises :class:`MalformedPattern` for a bracket without its end, an empty or backward range, a last backslash.
    """
    parts = []
    at = 0
    while at < len(glob):
        match glob[at]:
            case "*":
                parts.append(".*")
            case "?":
                parts.append(".")
            case "[":
                members, at = _bracket(glob, at)
                parts.append(members)
            case _:
                character, at = _literal(glob, at)
                parts.append(re.escape(character))
        at += 1
    return re.compile("".join(parts), re.DOTALL)


def _bracket(glob: str, start: int) -> tuple[str, int]:
    """The regular expression of the bracket that begins at ``start``, and the index of its end."""
    at = start + 1
    negated = glob[at : at + 1] in ("!", "^")
    at += negated
    members: list[str] = []
    while at < len(glob) and (glob[at] != "]" or not members):
        low, at = _literal(glob, at)
        high = low
        if glob[at + 1 : at + 2] == "-" and glob[at + 2 : at + 3] not in ("", "]"):
            high, at = _literal(glob, at + 2)
        if high < low:
            raise MalformedPattern(f"pattern {glob!r}: the range {low}-{high} is empty; write the lower end first")
        members.append(f"{re.escape(low)}-{re.escape(high)}")
        at += 1
    if at >= len(glob):
        raise MalformedPattern(f"pattern {glob!r}: [ has no ]; close it, or write \\[ for the character")
    return f"[{'^' if negated else ''}{''.join(members)}]", at


def _literal(glob: str, at: int) -> tuple[str, int]:
    """The character that is meant at ``at``, and the index of its last character."""
    if glob[at] != "\\":
        return glob[at], at
    if at + 1 == len(glob):
        raise MalformedPattern(f"pattern {glob!r} ends with a backslash; write the character that it is to protect")
    return glob[at + 1], at + 1


# -- lists of CPUs -----------------------------------------------------------------------------------------------------

# The kernel and the kubelet write CPUs and NUMA zones like this: ``0-3,8``, see cpuset(7).


def parse_cpu_list(text: str) -> frozenset[int]:
    """The numbers of a list, none of an empty text; raises ValueError for anything else."""
    text = text.strip()
    if not text:
        return frozenset()
    numbers: set[int] = set()
    for part in text.split(","):
        match = _CPU_RANGE.fullmatch(part)
        if match is None:
            raise ValueError(f"{_shortened(text)} is not a list such as 0-3,8")
        first, last = int(match[1]), int(match[2] or match[1])
        if first > last or last > HIGHEST_CPU:
            raise ValueError(f"{_shortened(text)} has the range {part}, which is none")
        numbers.update(range(first, last + 1))
    return frozenset(numbers)


def cpu_list_text(numbers: Iterable[int]) -> str:
    """The shortest list of these numbers, ascending."""
    ordered = sorted(set(numbers))
    if not ordered:
        return ""
    gaps = [(before, after) for before, after in pairwise(ordered) if after != before + 1]
    starts = [ordered[0], *(after for _, after in gaps)]
    ends = [*(before for before, _ in gaps), ordered[-1]]
    return ",".join(f"{a}" if a == b else f"{a}-{b}" for a, b in zip(starts, ends, strict=True))


def _shortened(text: str) -> str:
    return repr(text if len(text) <= 40 else f"{text[:40]}…")
