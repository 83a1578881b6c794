"""What of a pod's requests a node aligns, and what the pod takes of the sums of a node.

The demand depends on a node only by its scope, by what its managers manage of the resources that the pod requests, and
by ``pod-level-managers``. :class:`PodDemandCache` keeps it for each kind of node, so that many nodes are asked for the
price of a few. Pure.
"""

from collections.abc import Iterable, Mapping
from typing import Final

import msgspec

from polyarch.numa.facts import TopologyScope
from polyarch.numa.fit import facts
from polyarch.numa.fit.facts import (
    CPU,
    MEMORY,
    PAGES,
    POD,
    Amounts,
    ContainerFacts,
    NodeFacts,
    PodFacts,
    is_affine,
    is_device,
    is_memory,
)

STATIC: Final = "static"
"""Policy of a manager that hands out what it manages, in lower case (the memory manager's is ``Static``)."""


class AlignmentUnit(msgspec.Struct, frozen=True, gc=False):
    """What is aligned at one time: a container, or the pod as a whole."""

    name: str
    """Of the container, or :data:`POD`."""
    kind: str
    """``init``, ``sidecar``, ``app`` or :data:`POD`."""
    needs: Mapping[str, int]
    """More than 0 each, by name of the resource in order."""

    @property
    def ends(self) -> bool:
        """Before the next one starts."""
        return self.kind == "init"


class PodDemand(msgspec.Struct, frozen=True, gc=False):
    """Of one pod on nodes of one kind."""

    units: tuple[AlignmentUnit, ...] = ()
    """In the order in which they are aligned; those without needs are left out."""
    containers: tuple[AlignmentUnit, ...] = ()
    """The same container by container, also where the pod is aligned as a whole."""

    def __bool__(self) -> bool:
        return bool(self.containers) or bool(self.units)


NOTHING: Final = PodDemand()


class PodDemandCache:
    """Of one pod, as nodes are asked for. Equal to :func:`demand` with what :func:`managed` finds."""

    def __init__(self, pod: PodFacts) -> None:
        self._pod = pod
        self._requested = requested(pod)
        self._known: dict[tuple[frozenset[str], TopologyScope, bool], PodDemand] = {}

    def on(self, node: NodeFacts) -> PodDemand:
        settings = node.settings
        key = managed(node, self._requested), settings.scope, settings.pod_level_managers
        found = self._known.get(key)
        if found is None:
            found = demand(self._pod, key[0], scope=key[1], pod_level_managers=key[2])
            self._known[key] = found
        return found


def requested(pod: PodFacts) -> tuple[str, ...]:
    """The resources that a pod asks for and that may be aligned somewhere."""
    lists = [each.requests for each in pod.containers] + ([pod.pod_requests] if pod.pod_requests else [])
    return tuple(sorted({name for each in lists for name, amount in each.items() if amount > 0 and _may_align(name)}))


def managed(node: NodeFacts, resources: Iterable[str]) -> frozenset[str]:
    """Those of the resources that this node hands out by cells."""
    return frozenset(name for name in resources if _is_managed(node, name))


def _may_align(resource: str) -> bool:
    return is_affine(resource) or is_device(resource)


def _is_managed(node: NodeFacts, resource: str) -> bool:
    if not is_affine(resource):
        return is_device(resource) and any(resource in cell.available for cell in node.cells)
    manager = node.settings.cpu_manager if resource == CPU else node.settings.memory_manager
    if manager is not None:
        return manager.lower() == STATIC
    return any(cell.allocatable.get(resource, 0) > 0 for cell in node.cells)


def demand(
    pod: PodFacts, managed: frozenset[str], *, scope: TopologyScope, pod_level_managers: bool = False
) -> PodDemand:
    """On a node that manages these resources."""
    if not managed:
        return NOTHING
    containers = tuple(
        AlignmentUnit(each.name, each.kind, needs)
        for each in pod.containers
        if (needs := _needs(pod, each, managed, pod_level_managers=pod_level_managers))
    )
    if scope != POD:
        return PodDemand(containers, containers)
    whole = together(containers)
    if pod.pod_requests is not None and pod_level_managers and pod.is_guaranteed:
        # The managers hand out what the pod asks for, and its containers share it.
        devices = {name: amount for name, amount in whole.items() if is_device(name)}
        units = _whole({**devices, **_of_pod(pod.pod_requests, managed)})
        return PodDemand(units, units)
    return PodDemand(_whole(_without_unlisted(whole, containers)), containers)


def _whole(needs: Mapping[str, int]) -> tuple[AlignmentUnit, ...]:
    return (AlignmentUnit(POD, POD, dict(sorted(needs.items()))),) if needs else ()


def _without_unlisted(whole: Mapping[str, int], containers: Iterable[AlignmentUnit]) -> dict[str, int]:
    """The memory manager's sums leave out what no app container requests (``getPodRequestedResources``)."""
    listed = {name for each in containers if each.kind == "app" for name in each.needs}
    return {name: amount for name, amount in whole.items() if name in listed or not is_memory(name)}


def _needs(pod: PodFacts, container: ContainerFacts, managed: frozenset[str], *, pod_level_managers: bool) -> Amounts:
    exclusive = pod.is_guaranteed
    if pod.pod_requests is not None:
        exclusive = exclusive and pod_level_managers and _is_guaranteed(container)
    found = {
        name: amount
        for name, amount in sorted(container.requests.items())
        if amount > 0 and name in managed and (exclusive or is_device(name))
    }
    if not facts.is_whole(found.get(CPU, 0)):
        del found[CPU]
    return found


def _is_guaranteed(container: ContainerFacts) -> bool:
    limits = container.limits
    return all(limits.get(name, 0) > 0 and limits[name] == container.requests.get(name) for name in (CPU, MEMORY))


def _of_pod(requests: Amounts, managed: frozenset[str]) -> dict[str, int]:
    return {
        name: amount
        for name, amount in requests.items()
        if amount > 0 and name in managed and (is_memory(name) or (name == CPU and facts.is_whole(amount)))
    }


def together(containers: Iterable[AlignmentUnit]) -> dict[str, int]:
    """What is in use at one time at most: sidecars stay, other init containers come one by one."""
    starting: dict[str, int] = {}
    running: dict[str, int] = {}
    for each in containers:
        for name, amount in each.needs.items():
            if each.ends:
                starting[name] = max(starting.get(name, 0), running.get(name, 0) + amount)
            else:
                running[name] = running.get(name, 0) + amount
    return {name: max(running.get(name, 0), starting.get(name, 0)) for name in {**running, **starting}}


# -- sums over a node, as kube-scheduler's NodeResourcesFit counts them (component-helpers/resource, PodRequests) ------


PODS: Final = "pods"
_ONE: Final = 1000


def whole_request(pod: PodFacts) -> dict[str, int]:
    """The most that is in use at one time, with the overhead; a pod counts as one of ``pods``."""
    starting: dict[str, int] = {}
    running: dict[str, int] = {}
    for each in pod.containers:
        for name, amount in (each.requests if each.counted is None else each.counted).items():
            if each.kind == "init":
                starting[name] = max(starting.get(name, 0), running.get(name, 0) + amount)
            else:
                running[name] = running.get(name, 0) + amount
    # Sidecars run beside every app container, and an init container runs beside the sidecars before it.
    found = {name: max(running.get(name, 0), starting.get(name, 0)) for name in {**running, **starting}}
    if pod.pod_requests is not None:
        whole = pod.pod_requests if pod.counted is None else pod.counted
        found |= {name: whole.get(name, 0) for name in pod.pod_requests if _is_of_pods(name)}
    for name, amount in pod.overhead.items():
        found[name] = found.get(name, 0) + amount
    return {name: amount for name, amount in found.items() if amount > 0} | {PODS: _ONE}


def total(requests: Iterable[Amounts]) -> dict[str, int]:
    """By resource."""
    found: dict[str, int] = {}
    for each in requests:
        add(found, each)
    return found


def add(sums: dict[str, int], request: Amounts) -> None:
    """In place."""
    for name, amount in request.items():
        sums[name] = sums.get(name, 0) + amount


def exceeded(allocatable: Amounts, used: Mapping[str, int], request: Amounts) -> tuple[str, ...]:
    """Resources that the node has too little of, sorted; empty: the pod fits. A node that tells no ``pods`` takes any
    number of them."""
    return tuple(
        name
        for name in sorted(request)
        if used.get(name, 0) + request[name] > allocatable.get(name, 0) and (name != PODS or PODS in allocatable)
    )


def _is_of_pods(name: str) -> bool:
    """``spec.resources`` knows only these."""
    return name in (CPU, MEMORY) or name.startswith(PAGES)
