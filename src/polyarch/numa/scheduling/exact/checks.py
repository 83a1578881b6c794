"""What decides about a node before its cells are looked at (NS-044, NS-045). Pure."""

from typing import Final

from polyarch.numa import names
from polyarch.numa.scheduling.exact.demand import Demand, Unit
from polyarch.numa.scheduling.exact.options import Action, ExactOptions
from polyarch.numa.scheduling.exact.single import Failure
from polyarch.numa.scheduling.facts.amounts import CPU, Amounts, is_affine, is_device
from polyarch.numa.scheduling.facts.decision import (
    CANNOT_ALIGN,
    NO_TOPOLOGY_DATA,
    NOT_GUARANTEED,
    POD,
    Decision,
    Kind,
)
from polyarch.numa.scheduling.facts.nodes import NodeFacts
from polyarch.numa.scheduling.facts.pods import PodFacts
from polyarch.quantity import UNIT

ALIGNED: Final = "aligned"
"""Value of the annotation ``require``."""
WHOLE_CORES: Final = "full-pcpus-only"
_GUARANTEEING: Final = frozenset({"single-numa-node", "restricted"})


def action(node: NodeFacts, options: ExactOptions) -> Action:
    """What this node's policy is good for (NS-045)."""
    match node.settings.policy:
        case "single-numa-node":
            return "filter"
        case "restricted":
            return options.restricted
        case "best-effort":
            return options.best_effort
        case _:
            return "ignore"


def may_align(pod: PodFacts) -> bool:
    """Whether the pod requests anything that some node may align."""
    lists = [each.requests for each in pod.containers] + ([pod.pod_requests] if pod.pod_requests else [])
    return any(
        amount > 0 and (is_device(name) or (pod.is_guaranteed and is_affine(name)))
        for each in lists
        for name, amount in each.items()
    )


def without_topology(pod: PodFacts, node: NodeFacts, options: ExactOptions) -> Decision:
    """There is no NodeResourceTopology (NS-073)."""
    if not may_align(pod):
        return Decision(node=node.name, fits=True, score=100)
    if options.unknown_nodes == "reject":
        return Decision(node=node.name, fits=False, kind="no-topology", message=NO_TOPOLOGY_DATA)
    return Decision(node=node.name, fits=True)


def first_hit(pod: PodFacts, node: NodeFacts, demand: Demand, options: ExactOptions) -> Decision | None:
    """None: the cells decide."""
    policy = node.settings.policy
    if policy not in _GUARANTEEING and demand and pod.annotations.get(names.REQUIRE) == ALIGNED:
        return Decision(node=node.name, fits=False, kind="policy", message=NOT_GUARANTEED)
    if not node.cells and action(node, options) == "filter" and may_align(pod):
        return Decision(node=node.name, fits=False, kind="no-zones", message=NO_TOPOLOGY_DATA)
    if node.allocatable is not None and (hit := _not_on_node(pod, node, node.allocatable)) is not None:
        return hit
    if not demand:
        return Decision(node=node.name, fits=True, score=100)
    if node.settings.cpu_options.get(WHOLE_CORES) == "true" and (hit := _split_core(node, demand)) is not None:
        return hit
    return None


def _not_on_node(pod: PodFacts, node: NodeFacts, allocatable: Amounts) -> Decision | None:
    for each in pod.containers:
        for name in each.requests:
            if name not in allocatable and each.requests[name] > 0:
                lacking = min(one for one, amount in each.requests.items() if amount > 0 and one not in allocatable)
                return rejected(node, each.name, each.kind, "not-on-node", (lacking,))
    for name, amount in sorted((pod.pod_requests or {}).items()):
        if amount > 0 and name not in allocatable:
            return rejected(node, POD, POD, "not-on-node", (name,))
    return None


def _split_core(node: NodeFacts, demand: Demand) -> Decision | None:
    threads = node.settings.threads_per_core
    if not threads:
        return None
    for each in (*demand.containers, *demand.units):
        if (each.needs.get(CPU, 0) // UNIT) % threads:
            return rejected(node, each.name, each.kind, "smt", (CPU,))
    return None


def rejected_unit(node: NodeFacts, unit: Unit, failure: Failure) -> Decision:
    return rejected(node, unit.name, unit.kind, failure.kind, failure.resources)


def rejected(node: NodeFacts, container: str, phrase: str, kind: Kind, resources: tuple[str, ...]) -> Decision:
    """With the words of NS-022, NS-023 and NS-053."""
    if node.settings.scope == POD:
        container = phrase = POD
    return Decision(
        node=node.name,
        fits=False,
        kind=kind,
        message=f"{CANNOT_ALIGN[phrase]}: {', '.join(resources)}",
        container=container,
        resources=resources,
    )
