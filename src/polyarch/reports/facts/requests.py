"""What a pod asks for, as the scheduler counts it: the weight of one replica (RP-010).

Source: ``k8s.io/component-helpers/resource`` (``PodRequests``): the sum of the containers and sidecars, or what an init
container needs beside the sidecars before it if that is more, then the overhead; ``spec.resources`` replaces the sum. A
quantity that makes no sense makes the whole pod weigh nothing, and is named (RP-050). Pure.
"""

from collections.abc import Collection, Mapping
from typing import Final

import msgspec

from polyarch.quantity import InvalidQuantity, thousandths
from polyarch.reports.facts.objects import ContainerObject, PodSpecObject, Quantity, ResourceLists

CPU: Final = "cpu"
MEMORY: Final = "memory"


class Requests(msgspec.Struct, frozen=True, gc=False):
    """Of one pod, in thousandths."""

    cpu: int = 0
    memory: int = 0

    def __add__(self, other: "Requests") -> "Requests":
        return Requests(self.cpu + other.cpu, self.memory + other.memory)

    def at_least(self, other: "Requests") -> "Requests":
        """The larger of the two, of each resource."""
        return Requests(max(self.cpu, other.cpu), max(self.memory, other.memory))


NOTHING: Final = Requests()


def requests_of(spec: PodSpecObject) -> tuple[Requests, tuple[str, ...]]:
    """What a pod asks for, and what makes no sense in it: then it asks for nothing."""
    problems: list[str] = []
    sidecars, peak = NOTHING, NOTHING
    for each in spec.init_containers or ():
        own = _container(each, problems)
        if each.restart_policy == "Always":
            sidecars += own
            peak = peak.at_least(sidecars)
        else:
            peak = peak.at_least(sidecars + own)
    total = sidecars
    for each in spec.containers or ():
        total += _container(each, problems)
    total = total.at_least(peak)
    if spec.resources is not None:
        asked = {
            name
            for each in (*(spec.init_containers or ()), *(spec.containers or ()))
            if each.resources is not None
            for name in (*(each.resources.requests or ()), *(each.resources.limits or ()))
        }
        total = _whole(spec.resources, total, asked, problems)
    total += _listed(spec.overhead, "overhead", problems)
    return (NOTHING if problems else total), tuple(problems)


def cores_of(quantities: Mapping[str, Quantity] | None) -> int:
    """Thousandths of the CPUs of a node; 0 if the text makes no sense."""
    return _listed(quantities, "allocatable", []).cpu


def _container(container: ContainerObject, problems: list[str]) -> Requests:
    lists = container.resources
    if lists is None:
        return NOTHING
    # The API server defaults an absent request to the limit; manifests from files have not been there.
    asked = {**(lists.limits or {}), **(lists.requests or {})}
    return _listed(asked, f"container {container.name}", problems)


def _whole(lists: ResourceLists, total: Requests, asked: Collection[str], problems: list[str]) -> Requests:
    """``total``: what the containers ask for together; ``asked``: of what. That is what the API server takes for an
    absent request of the pod, and the pod's limit where no container asks for anything."""
    limits = {name: amount for name, amount in (lists.limits or {}).items() if name not in asked}
    said = {**limits, **(lists.requests or {})}
    found = _listed(said, "spec.resources", problems)
    return Requests(
        found.cpu if CPU in said else total.cpu,
        found.memory if MEMORY in said else total.memory,
    )


def _listed(quantities: Mapping[str, Quantity] | None, place: str, problems: list[str]) -> Requests:
    amounts = {CPU: 0, MEMORY: 0}
    for name in amounts:
        quantity = (quantities or {}).get(name)
        if quantity is None:
            continue
        try:
            amount = thousandths(quantity, "up")
        except InvalidQuantity as error:
            problems.append(f"{place}: {name}: {error}")
            continue
        if amount < 0:
            problems.append(f"{place}: {name}: {quantity} is less than nothing")
        else:
            amounts[name] = amount
    return Requests(amounts[CPU], amounts[MEMORY])
