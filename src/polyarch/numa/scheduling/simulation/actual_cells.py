"""Where a bound pod is: as predicted, and as the placement vectors of its node tell (NS-161). Pure."""

from collections.abc import Mapping

import msgspec

from polyarch.numa import names
from polyarch.numa.api.attributes import cell_id, value
from polyarch.numa.api.topology import NodeResourceTopology
from polyarch.numa.decide.placement_vectors import ContainerKey, MalformedVectors, Vectors, decode
from polyarch.numa.scheduling.exact.demand import Demands
from polyarch.numa.scheduling.facts.decision import POD
from polyarch.numa.scheduling.facts.pods import PodFacts
from polyarch.numa.scheduling.simulation.rules import Rules
from polyarch.numa.scheduling.simulation.snapshot import Held, NodeSnapshot

Placed = Mapping[str, tuple[int, ...]]
"""Cells by container, or by :data:`polyarch.numa.scheduling.facts.decision.POD`."""


class Whereabouts(msgspec.Struct, frozen=True, kw_only=True):
    """Of one bound pod. ``None``: nobody knows, and the note says why."""

    predicted: Placed | None = None
    actual: Placed | None = None
    note: str = ""


def whereabouts(pod: PodFacts, node: NodeSnapshot, topology: NodeResourceTopology | None, rules: Rules) -> Whereabouts:
    """``node``: the pod's; ``topology``: its object, for the vectors."""
    demand = Demands(pod).on(node.facts) if node.facts.has_topology else None
    if not demand:
        return Whereabouts(predicted={}, note="nothing of it is aligned")
    actual, note = _actual(pod, node, topology)
    own = next((each for each in node.held if each.uid == pod.uid), None)
    if own is None and actual is not None:
        given_back: dict[int, dict[str, int]] = {}
        for unit in demand.containers:
            if not unit.ends:
                for cell in actual.get(unit.name, ()):
                    there = given_back.setdefault(cell, {})
                    for resource, amount in unit.needs.items():
                        there[resource] = there.get(resource, 0) + amount
        predicted = _predicted(pod, node, rules, Held(pod=pod.full_name, cells=given_back))
    elif own is not None:
        predicted = _predicted(pod, without(node, pod), rules, None)
    else:
        predicted = None
        note = f"{note}; the object counts the pod already, so that nothing tells what was predicted"
    return Whereabouts(predicted=predicted, actual=actual, note=note)


def without(node: NodeSnapshot, pod: PodFacts) -> NodeSnapshot:
    """As if nothing were reserved for this pod: a filter drops what it holds before it looks."""
    held = tuple(each for each in node.held if not (each.uid == pod.uid and each.pod == pod.full_name))
    return node if len(held) == len(node.held) else msgspec.structs.replace(node, held=held)


def _predicted(pod: PodFacts, node: NodeSnapshot, rules: Rules, given_back: Held | None) -> Placed | None:
    free = {cell.id: node.free(cell) for cell in node.facts.cells}
    if given_back is not None:
        for cell, amounts in given_back.cells.items():
            for resource, amount in amounts.items():
                if resource in free.get(cell, {}):
                    free[cell][resource] += amount
    decision = rules(pod)(node.facts, free, node.memory_groups)
    return decision.cells if decision.fits else None


def _actual(pod: PodFacts, node: NodeSnapshot, topology: NodeResourceTopology | None) -> tuple[Placed | None, str]:
    attributes = (topology.attributes or ()) if topology is not None else ()
    metadata = value(attributes, names.PLACEMENT_METADATA)
    if topology is None or metadata is None:
        return None, "the node's object has no placement vectors"
    by_cell = {
        identity: text
        for zone in topology.zones or ()
        if (identity := cell_id(zone.name)) is not None
        and (text := value(zone.attributes or (), names.PLACEMENT_VECTOR)) is not None
    }
    try:
        found = decode(Vectors(metadata, by_cell), _exclusive(node))
    except MalformedVectors as error:
        return None, f"the placement vectors do not fit the pods that are known: {error}"
    own = {container: cell for (space, name, container), cell in found.items() if (space, name) == _key(pod)}
    return {container: (cell,) for container, cell in own.items()}, ""


def _exclusive(node: NodeSnapshot) -> list[ContainerKey]:
    """The containers of the node that hold something of a cell."""
    return [
        (*_key(each.facts), unit.name)
        for each in node.residents
        for unit in Demands(each.facts).on(node.facts).containers
        if not unit.ends and unit.name != POD
    ]


def _key(pod: PodFacts) -> tuple[str, str]:
    return pod.namespace, pod.name
