"""Whether a change of a node can make room for anybody (NS-140): most versions of its object do not. Pure."""

from polyarch.numa.scheduling.facts.nodes import NodeFacts


def has_more_room(before: NodeFacts | None, after: NodeFacts) -> bool:
    """Whether a pod could fit now that did not before: more is available somewhere, or the node aligns otherwise."""
    if before is None or before.has_topology != after.has_topology:
        return True
    if before.settings != after.settings or before.allocatable != after.allocatable:
        return True
    known = {cell.id: cell.available for cell in before.cells}
    return any(
        amount > known.get(cell.id, {}).get(resource, -1)
        for cell in after.cells
        for resource, amount in cell.available.items()
    )
