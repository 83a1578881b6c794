"""From the facts of one scan to the zones of the machine and everything else that its object says (NE-060 – NE-073).

One function, :func:`zones`; equal facts give equal results, in whatever order the kubelet listed them. Pure.
"""

from collections.abc import Collection, Mapping
from typing import Final

import msgspec

from polyarch.numa.api.scan_settings import ScanSettings
from polyarch.numa.decide import exclusions, placement_vectors
from polyarch.numa.decide.facts import Cell, Facts, ListedPod
from polyarch.numa.decide.fingerprint import fingerprint, has_exclusive_resources
from polyarch.numa.decide.hidden_usage import NOTHING, handed_out, hidden, taken_from
from polyarch.numa.decide.placement_vectors import NotExpressible, Vectors
from polyarch.numa.decide.usage import (
    CPU,
    MEMORY,
    Amounts,
    Layout,
    Place,
    allocatable_amounts,
    memory_groups,
    used_amounts,
)

_UNITS: Final = (("Gi", 1 << 30), ("Mi", 1 << 20), ("Ki", 1 << 10))


class ResourceAmounts(msgspec.Struct, frozen=True, kw_only=True):
    """One resource of a cell: whole CPUs, bytes of memory and huge pages, pieces of devices."""

    resource: str
    capacity: int
    allocatable: int
    used: int
    """Given exclusively to running containers, or kept for a pod by its kubelet."""
    hidden: int = 0
    """The part of ``used`` that no container in the kubelet's answer holds (NE-069)."""

    @property
    def available(self) -> int:
        return max(self.allocatable - self.used, 0)


class CellZone(msgspec.Struct, frozen=True, kw_only=True):
    """One cell with what is to be said of it."""

    cell: Cell
    resources: tuple[ResourceAmounts, ...]
    """By name."""
    memory_group: tuple[int, ...] = ()
    """The cells that share blocks of memory with this one, itself among them, ascending; empty: none does (NE-016)."""


class PodCounts(msgspec.Struct, frozen=True):
    """Pods that the kubelet listed; of those that count, the ones that hold something exclusively; pods left out."""

    listed: int
    exclusive: int
    excluded: int


class Finding(msgspec.Struct, frozen=True):
    """Something that is odd but does not keep a scan from succeeding. It never names a pod (NE-143)."""

    reason: str
    message: str
    """For the log, once."""
    count: int = 1


class Zones(msgspec.Struct, frozen=True, kw_only=True):
    """What one scan has found."""

    node: str
    zones: tuple[CellZone, ...]
    """Ascending by id."""
    pods: tuple[ListedPod, ...]
    """Those that the fingerprint is made of, by namespace and name."""
    counts: PodCounts
    fingerprint: str = ""
    """Empty: not wanted."""
    vectors: Vectors | None = None
    """None: not wanted, or they cannot say where the containers are."""
    pod_exclude: str = ""
    """``podExclude`` as published; empty: not wanted, or too long."""
    findings: tuple[Finding, ...] = ()


def zones(facts: Facts, settings: ScanSettings, node_name: str) -> Zones:
    """The zones of this node. Raises ``exclusions.MalformedPattern``: whoever reads settings checks the patterns."""
    layout = Layout(facts.machine, facts.allocatable)
    listed = exclusions.without_shared_cpus(facts.pods, settings.reference_container)
    counted = exclusions.counted(listed, settings.pod_exclude, facts.terminal)
    exclusive = [pod for pod in counted if has_exclusive_resources(pod)]

    capacity = _capacity(facts.machine.cells)
    allocatable = allocatable_amounts(facts.allocatable, layout, capacity)
    kept = NOTHING
    if settings.usage_source == "max":
        kept = handed_out(facts.states, frozenset(facts.allocatable.cpus), layout)
    groups = memory_groups((block for pod in counted for each in pod.containers for block in each.memory), layout)
    room = allocatable
    if kept.groups:
        room = taken_from(allocatable, kept, used_amounts(listed, layout, allocatable))
    used = used_amounts(counted, layout, room)
    unlisted = hidden(kept.amounts, used if len(counted) == len(listed) else used_amounts(listed, layout, room))

    findings = _unknown_cpus(listed, layout)
    vectors = None
    if settings.placement_vectors:
        encoded = placement_vectors.encode(placement_vectors.placements(counted, layout), layout.cells)
        if isinstance(encoded, NotExpressible):
            findings.append(Finding(encoded.reason, encoded.message))
        else:
            vectors = encoded

    patterns = exclusions.described(settings.pod_exclude) if settings.extra_attributes else ""
    if patterns is None:
        most = exclusions.MOST_DESCRIBED
        findings.append(
            Finding("PodExcludeTooLong", f"podExclude has more than {most} bytes, so schedulers are not told of it")
        )

    excluded = {*settings.resource_exclude.get("*", ()), *settings.resource_exclude.get(node_name, ())}
    amounts = _amounts(allocatable, capacity, used, unlisted, excluded)
    fingerprinted = counted if settings.pods_fingerprint_method == "all" else exclusive
    pods = tuple(sorted(fingerprinted, key=lambda pod: (pod.namespace, pod.name)))
    return Zones(
        node=node_name,
        zones=tuple(
            CellZone(
                cell=cell,
                resources=tuple(amounts.get(cell.id, ())),
                memory_group=tuple(sorted(groups.get(cell.id, frozenset()) | kept.groups.get(cell.id, frozenset()))),
            )
            for cell in sorted(facts.machine.cells, key=lambda each: each.id)
        ),
        pods=pods,
        counts=PodCounts(len(facts.pods), len(exclusive), len(facts.pods) - len(counted)),
        fingerprint=fingerprint((pod.namespace, pod.name) for pod in pods) if settings.pods_fingerprint else "",
        vectors=vectors,
        pod_exclude=patterns or "",
        findings=tuple(findings),
    )


def page_resource(size: int) -> str:
    """The resource of huge pages of this size in bytes: ``hugepages-2Mi``, ``hugepages-64Ki`` (NE-033)."""
    unit, factor = next((each for each in _UNITS if size % each[1] == 0), ("", 1))
    return f"hugepages-{size // factor}{unit}"


def _capacity(cells: Collection[Cell]) -> Amounts:
    """What the machine has. What could not be read is missing (NE-036)."""
    amounts: Amounts = {}
    for cell in cells:
        amounts[cell.id, CPU] = len(cell.cpus)
        if cell.memory is not None:
            amounts[cell.id, MEMORY] = cell.memory
        amounts |= {(cell.id, page_resource(size)): size * count for size, count in (cell.pages or {}).items()}
    return amounts


def _amounts(
    allocatable: Mapping[Place, int],
    capacity: Mapping[Place, int],
    used: Mapping[Place, int],
    unlisted: Mapping[Place, int],
    excluded: Collection[str],
) -> dict[int, list[ResourceAmounts]]:
    found: dict[int, list[ResourceAmounts]] = {}
    for place in sorted(allocatable):
        cell, resource = place
        if resource not in excluded:
            kept = unlisted.get(place, 0)
            amounts = ResourceAmounts(
                resource=resource,
                capacity=max(capacity.get(place, 0), allocatable[place]),
                allocatable=allocatable[place],
                used=used.get(place, 0) + kept,
                hidden=kept,
            )
            found.setdefault(cell, []).append(amounts)
    return found


def _unknown_cpus(pods: Collection[ListedPod], layout: Layout) -> list[Finding]:
    unknown: set[int] = set()
    for pod in pods:
        for each in pod.containers:
            unknown |= layout.unknown_cpus(each.cpus)
    if not unknown:
        return []
    message = f"the kubelet lists CPUs that are not online, which are ignored: {sorted(unknown)}"
    return [Finding("UnknownCpus", message, len(unknown))]
