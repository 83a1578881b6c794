"""Policy ``single-numa-node``: each unit on one cell, the lowest that will do (NS-050 – NS-053). Pure."""

import msgspec

from polyarch.numa.scheduling.exact.demand import Unit
from polyarch.numa.scheduling.exact.room import Cells, Room
from polyarch.numa.scheduling.facts.decision import Kind


class Failure(msgspec.Struct, frozen=True, gc=False):
    """Why nothing will do."""

    kind: Kind
    resources: tuple[str, ...]
    """To blame, sorted."""


def cell(unit: Unit, room: Room) -> Cells | None:
    """The kubelet's choice. None: no cell will do."""
    return room.lowest(unit.needs)


def failure(unit: Unit, room: Room) -> Failure:
    """Of a unit that no cell will do for."""
    fitting = {
        name: [room.suffices((each.id,), name, amount) for each in room.cells] for name, amount in unit.needs.items()
    }
    if short := sorted(name for name, suffices in fitting.items() if not any(suffices)):
        return Failure("short", tuple(short))
    return Failure("no-common-cell", tuple(sorted(name for name, suffices in fitting.items() if not all(suffices))))
