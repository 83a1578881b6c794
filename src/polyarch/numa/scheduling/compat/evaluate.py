"""The plugin's Filter and Score of one node as one decision (NS-020, NS-024, NS-030). Pure."""

from polyarch.numa.scheduling.compat.filtering import Alignment, Free, align, align_whole
from polyarch.numa.scheduling.compat.options import CompatOptions
from polyarch.numa.scheduling.compat.requests import effective, listed_by, names_device
from polyarch.numa.scheduling.compat.scoring import score
from polyarch.numa.scheduling.facts.decision import NO_TOPOLOGY_DATA, Decision
from polyarch.numa.scheduling.facts.nodes import NodeFacts
from polyarch.numa.scheduling.facts.pods import PodFacts


def evaluate(pod: PodFacts, node: NodeFacts, free: Free, options: CompatOptions, *, foreign: bool = False) -> Decision:
    """``free``: what :class:`polyarch.numa.scheduling.compat.cache.Cache` says is left; ``foreign``: so it says.

    ``taken`` is what the cache assumes once the pod is bound: all of it on every cell, since the plugin does not keep
    which cell it found. A decision with ``kind`` marks the node dirty (NS-024).
    """
    if pod.qos == "BestEffort" and not names_device(pod):
        return Decision(node=node.name, fits=True, score=score(pod, node, free, options, foreign=foreign))
    if foreign:
        return Decision(node=node.name, fits=False, kind="foreign", message=NO_TOPOLOGY_DATA)
    if not node.has_topology:
        return Decision(node=node.name, fits=True, score=score(pod, node, free, options))
    requests = effective(pod)
    if node.settings.policy != "single-numa-node":
        found = Alignment()
    elif node.settings.scope == "pod":
        found = align_whole(pod, requests, free, node.allocatable)
    else:
        found = align(pod, free, node.allocatable)
    if found.kind:
        return Decision(
            node=node.name,
            fits=False,
            kind=found.kind,
            message=found.message,
            container=found.container,
            resources=found.resources,
        )
    assumed = {cell: listed_by(amounts, requests) for cell, amounts in free.items()}
    return Decision(
        node=node.name,
        fits=True,
        cells=found.cells,
        taken={cell: amounts for cell, amounts in assumed.items() if amounts},
        score=score(pod, node, free, options),
    )
