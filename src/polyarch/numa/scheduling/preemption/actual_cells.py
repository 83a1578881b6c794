"""Where the containers of a node really are, by its placement vectors (NE-090 – NE-093, NS-120). Pure.

A container is counted with what it asks for; what ended init containers have left is not in the vectors, and not
counted: a pod frees at least this much.
"""

from collections.abc import Iterable, Mapping

from polyarch.numa.decide.placement_vectors import ContainerKey, MalformedVectors, decode
from polyarch.numa.scheduling.exact.demand import Demands
from polyarch.numa.scheduling.facts.amounts import Amounts
from polyarch.numa.scheduling.facts.nodes import NodeFacts
from polyarch.numa.scheduling.facts.pods import PodFacts


def actual_cells(node: NodeFacts, shown: Iterable[PodFacts]) -> dict[str, Mapping[int, Amounts]]:
    """What each pod holds of each cell, by uid; empty where there are no vectors, or they are about other pods.

    ``shown``: the pods that this version of the object is about.
    """
    if node.vectors is None:
        return {}
    needs: dict[ContainerKey, tuple[str, Mapping[str, int]]] = {}
    for pod in shown:
        for unit in Demands(pod).on(node).containers:
            if not unit.ends:
                needs[pod.namespace, pod.name, unit.name] = pod.uid, unit.needs
    try:
        cell_of = decode(node.vectors, needs)
    except MalformedVectors:
        return {}
    found: dict[str, dict[int, dict[str, int]]] = {}
    for key, cell in cell_of.items():
        uid, wanted = needs[key]
        amounts = found.setdefault(uid, {}).setdefault(cell, {})
        for name, amount in wanted.items():
            amounts[name] = amounts.get(name, 0) + amount
    return dict(found)
