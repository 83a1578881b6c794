"""Which requests of a pod are aligned to cells, and why the others are not (NS-040 – NS-042, NS-161). Pure."""

from collections.abc import Iterable, Sequence

import msgspec

from polyarch.numa.scheduling.exact.demand import Demands, managed
from polyarch.numa.scheduling.facts.amounts import CPU, is_affine, is_device
from polyarch.numa.scheduling.facts.decision import POD
from polyarch.numa.scheduling.facts.nodes import NodeFacts
from polyarch.numa.scheduling.facts.pods import PodFacts, is_whole


class Alignment(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """One request."""

    container: str
    """:data:`polyarch.numa.scheduling.facts.decision.POD` for ``spec.resources``."""
    kind: str
    resource: str
    amount: int
    aligned_on: int
    """Nodes that align it."""
    reason: str
    """Why it is aligned, or why not, in a sentence."""


def alignments(pod: PodFacts, nodes: Sequence[NodeFacts]) -> tuple[Alignment, ...]:
    """Every request above 0, in the order of the containers."""
    demands = Demands(pod)
    aligned: dict[tuple[str, str], int] = {}
    for node in nodes:
        if node.has_topology:
            found = demands.on(node)
            units = (*found.containers, *(each for each in found.units if each.name == POD))
            for name, resource in {(unit.name, resource) for unit in units for resource in unit.needs}:
                aligned[name, resource] = aligned.get((name, resource), 0) + 1
    lists = [(each.name, str(each.kind), each.requests) for each in pod.containers]
    if pod.pod_requests is not None:
        lists.append((POD, POD, pod.pod_requests))
    return tuple(
        Alignment(
            container=name,
            kind=kind,
            resource=resource,
            amount=amount,
            aligned_on=(count := aligned.get((name, resource), 0)),
            reason=_reason(pod, name, resource, amount, nodes) if not count else _aligned(count, len(nodes)),
        )
        for name, kind, requests in lists
        for resource, amount in sorted(requests.items())
        if amount > 0
    )


def _aligned(count: int, nodes: int) -> str:
    if count == nodes:
        return "aligned"
    return f"aligned on {count} of {nodes} nodes: the others do not hand it out by cells"


def _reason(pod: PodFacts, container: str, resource: str, amount: int, nodes: Sequence[NodeFacts]) -> str:
    """Why no node aligns it."""
    if is_device(resource):
        return "not aligned: no cell of a node lists this device"
    if not is_affine(resource):
        return "never aligned: it belongs to the node as a whole"
    if not pod.is_guaranteed:
        return f"not aligned: the pod is {pod.qos}, and only Guaranteed pods get {_what(resource)} of their own"
    if pod.pod_requests is not None and container != POD:
        return "not aligned: the pod has spec.resources, and its kubelets give containers of such a pod the shared pool"
    if pod.pod_requests is not None:
        return "not aligned: no node has pod-level-managers and scope pod"
    if resource == CPU and not is_whole(amount):
        return "not aligned: a fraction of a CPU comes from the shared pool"
    return _unmanaged(resource, nodes)


def _unmanaged(resource: str, nodes: Iterable[NodeFacts]) -> str:
    known = [each for each in nodes if each.has_topology]
    if not known:
        return "not aligned: no node has a NodeResourceTopology"
    if not any(managed(each, (resource,)) for each in known):
        manager = "CPU manager with policy static" if resource == CPU else "memory manager with policy Static"
        return f"not aligned: no node has a {manager}"
    return "not aligned on these nodes"


def _what(resource: str) -> str:
    return "CPUs" if resource == CPU else "memory"
