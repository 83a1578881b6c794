"""The numbers behind a decision: what each cell has of what a container needs, who holds it, what is missing (NS-161).

Pure.
"""

from collections.abc import Iterable, Mapping

import msgspec

from polyarch.numa.scheduling.compat.requests import effective
from polyarch.numa.scheduling.exact.demand import Demands, Unit
from polyarch.numa.scheduling.exact.room import Room
from polyarch.numa.scheduling.facts.amounts import Amounts, is_affine
from polyarch.numa.scheduling.facts.decision import POD, Decision
from polyarch.numa.scheduling.facts.pods import PodFacts
from polyarch.numa.scheduling.simulation.rules import Choice, rules
from polyarch.numa.scheduling.simulation.snapshot import NodeSnapshot


class CellNumbers(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """One resource of one cell, for one container."""

    container: str
    cell: int
    resource: str
    requested: int
    available: int
    """As the node's object has it."""
    reserved: int
    reserved_by: tuple[str, ...]
    """Pods, by namespace and name."""
    free: int
    """Available, without what is reserved, what earlier containers of the pod take, and with what its init containers
    leave behind."""
    shortfall: int
    """How much more this cell alone would need; 0: it has enough."""


def numbers(pod: PodFacts, node: NodeSnapshot, decision: Decision, choice: Choice) -> tuple[CellNumbers, ...]:
    """Of each container that is aligned, or of the first that cannot be."""
    is_compat = choice.mode == "compat"
    units = _units(pod, node, is_compat=is_compat)
    free = {cell.id: node.free(cell) for cell in node.facts.cells}
    room = Room(node.facts, free, node.memory_groups)
    if decision.fits:
        found: list[CellNumbers] = []
        for unit in units:
            found += _of(unit, node, room)
            room.place(unit, decision.cells.get(unit.name, ()))
        return tuple(found)
    failed = next((unit for unit in units if unit.name in (decision.container, POD)), None)
    if failed is None:
        return ()
    # The plugin subtracts nothing for init containers.
    earlier = [each for each in units[: units.index(failed)] if not is_compat or each.kind == failed.kind == "app"]
    placed = _placed(pod, node, earlier, free, choice)
    for unit in earlier:
        room.place(unit, placed.get(unit.name, ()))
    return tuple(_of(failed, node, room))


def _units(pod: PodFacts, node: NodeSnapshot, *, is_compat: bool) -> tuple[Unit, ...]:
    if not node.facts.has_topology:
        return ()
    if not is_compat:
        return Demands(pod).on(node.facts).units
    if node.facts.settings.scope == POD:
        return (Unit(POD, POD, _counted(pod, effective(pod))),)
    return tuple(Unit(each.name, each.kind, _counted(pod, each.requests)) for each in pod.containers)


def _counted(pod: PodFacts, requests: Amounts) -> Amounts:
    """What the plugin compares: of pods that are not Guaranteed devices alone."""
    found = sorted(requests.items())
    return {name: amount for name, amount in found if amount > 0 and (pod.is_guaranteed or not is_affine(name))}


def _placed(
    pod: PodFacts, node: NodeSnapshot, earlier: Iterable[Unit], free: Mapping[int, Amounts], choice: Choice
) -> Mapping[str, tuple[int, ...]]:
    """Where the containers before the one that failed are."""
    names = {unit.name for unit in earlier}
    if not names:
        return {}
    kept = tuple(each for each in pod.containers if each.name in names)
    part = msgspec.structs.replace(pod, containers=kept)
    return rules(choice)(part)(node.facts, free, node.memory_groups).cells


def _of(unit: Unit, node: NodeSnapshot, room: Room) -> Iterable[CellNumbers]:
    for cell in node.facts.cells:
        for resource, requested in unit.needs.items():
            if resource not in cell.available:
                continue
            free = room.available((cell.id,), resource)
            by = tuple(sorted(each.pod for each in node.held if each.cells.get(cell.id, {}).get(resource)))
            yield CellNumbers(
                container=unit.name,
                cell=cell.id,
                resource=resource,
                requested=requested,
                available=cell.available[resource],
                reserved=node.reserved(cell.id, resource),
                reserved_by=by,
                free=free,
                shortfall=max(0, requested - free),
            )
