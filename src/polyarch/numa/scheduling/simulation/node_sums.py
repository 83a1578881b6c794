"""What kube-scheduler's own NodeResourcesFit counts: the requests of all pods of a node against its allocatable. Pure.

Source: ``component-helpers/resource`` (PodRequests) and the plugin of that name.
"""

from collections.abc import Iterable, Mapping
from typing import Final

from polyarch.numa.scheduling.facts.amounts import CPU, MEMORY, PAGES, Amounts
from polyarch.numa.scheduling.facts.pods import PodFacts

PODS: Final = "pods"
_ONE: Final = 1000


def whole_request(pod: PodFacts) -> dict[str, int]:
    """The most that is in use at one time, with the overhead; a pod counts as one of ``pods``."""
    starting: dict[str, int] = {}
    running: dict[str, int] = {}
    for each in pod.containers:
        for name, amount in each.requests.items():
            if each.kind == "init":
                starting[name] = max(starting.get(name, 0), running.get(name, 0) + amount)
            else:
                running[name] = running.get(name, 0) + amount
    # Sidecars run beside every app container, and an init container runs beside the sidecars before it.
    found = {name: max(running.get(name, 0), starting.get(name, 0)) for name in {**running, **starting}}
    if pod.pod_requests is not None:
        found |= {name: amount for name, amount in pod.pod_requests.items() if _is_of_pods(name)}
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
