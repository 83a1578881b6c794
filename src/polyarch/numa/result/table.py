"""The zones of a node as rows, for ``numa export`` (NE-160). Drawing the table is the command line's. Pure."""

from typing import Final

from polyarch.numa.api.attributes import zone_name
from polyarch.numa.decide.usage import CPU
from polyarch.numa.decide.zones import CellZone, ResourceAmounts, Zones

HEADER: Final = ("ZONE", "RESOURCE", "CAPACITY", "ALLOCATABLE", "USED", "AVAILABLE", "NOTE")
_BYTES: Final = ("Ki", "Mi", "Gi", "Ti")
_IN_BYTES: Final = ("memory", "hugepages-")


def rows(decided: Zones) -> list[tuple[str, ...]]:
    """One row per zone and resource, in the order of the object; amounts of memory in the largest exact unit."""
    return [_row(zone, each) for zone in decided.zones for each in zone.resources]


def _row(zone: CellZone, amounts: ResourceAmounts) -> tuple[str, ...]:
    values = (amounts.capacity, amounts.allocatable, amounts.used, amounts.available)
    is_bytes = amounts.resource.startswith(_IN_BYTES)
    written = (in_bytes(each) if is_bytes else str(each) for each in values)
    return (zone_name(zone.cell.id), amounts.resource, *written, _note(zone, amounts))


def in_bytes(amount: int) -> str:
    """``17179869184`` as ``16Gi``, nothing rounded."""
    unit = ""
    for larger in _BYTES:
        if amount == 0 or amount % 1024:
            break
        amount, unit = amount // 1024, larger
    return f"{amount}{unit}"


def _note(zone: CellZone, amounts: ResourceAmounts) -> str:
    notes = []
    if amounts.hidden:
        hidden = in_bytes(amounts.hidden) if amounts.resource.startswith(_IN_BYTES) else str(amounts.hidden)
        notes.append(f"{hidden} kept for init containers that have ended")
    if zone.memory_group and amounts.resource.startswith(_IN_BYTES):
        notes.append(f"shared by {', '.join(zone_name(each) for each in zone.memory_group)}")
    if amounts.resource == CPU and not zone.cell.cpus:
        notes.append("memory alone")
    return "; ".join(notes)
