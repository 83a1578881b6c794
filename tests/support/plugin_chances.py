"""Random pods and nodes as objects of the API, for the scheduler plugin and for mode compat, and where these differ.

Most snapshots are such as exporters publish. Some are odd: that is where the plugin's defects show.
"""

import random
from collections.abc import Callable, Mapping, Sequence
from fractions import Fraction
from typing import Any, Final, NamedTuple

import msgspec

from polyarch.numa.api.topology import NodeResourceTopology
from polyarch.numa.fit.compat import effective, rounded_up
from polyarch.numa.fit.facts import NodeFacts, PodFacts, PodObject, node_facts, pod_facts

NIC, GPU = "vendor.example/nic", "vendor.example/gpu"
PAGES: Final = "hugepages-2Mi"
STRATEGIES: Final = ("LeastAllocated", "MostAllocated", "BalancedAllocation", "LeastNUMANodes")
WEIGHTS: Final = {"cpu": 3, "memory": 1, NIC: 0}
Json = dict[str, Any]


def pod(chance: random.Random, name: str = "asked") -> Json:
    """With requests in full, as the API server stores it."""
    quality = chance.choices(("Guaranteed", "Burstable", "BestEffort"), (6, 3, 1))[0]
    first = [_container(chance, f"i{each}", quality, is_init=True) for each in range(chance.choice((0, 0, 1, 2)))]
    apps = [_container(chance, f"c{each}", quality, is_init=False) for each in range(chance.choice((1, 1, 2, 3)))]
    found: Json = {
        "metadata": {"namespace": "team", "name": name, "uid": f"uid-{name}"},
        "spec": {"schedulerName": "topo-aware-scheduler", "initContainers": first, "containers": apps},
        "status": {"phase": "Pending"},
    }
    if chance.random() < 0.1:
        found["spec"]["overhead"] = {"cpu": "250m", "memory": "64Mi"}
    if chance.random() < 0.5:
        found["status"]["qosClass"] = facts_of(found).qos
    if chance.random() < 0.04:
        # No API server says so of such a pod, but nothing in its object keeps anybody from it.
        apps[0]["resources"] = {"requests": chance.choice(({}, {"cpu": "1"}))}
        found["status"]["qosClass"] = "Guaranteed"
    return found


def _container(chance: random.Random, name: str, quality: str, *, is_init: bool) -> Json:
    requests: Json = {}
    limits: Json = {}
    if quality == "Guaranteed":
        requests = {
            "cpu": chance.choice(("1", "2", "3", "500m", "1500m", "7", "11", "11")),
            "memory": chance.choice(("1Gi", "1500M")),
        }
        limits = dict(requests)
    elif quality == "Burstable":
        requests = {"cpu": chance.choice(("1", "0", "12", "250m"))}
        if chance.random() < 0.5:
            requests["memory"] = chance.choice(("64Mi", "40Gi"))
    if quality != "BestEffort" and chance.random() < 0.2:
        requests["ephemeral-storage"] = "1Gi"
    for resource, amount, often in ((NIC, chance.choice(("1", "2", "0")), 0.25), (GPU, "1", 0.1), (PAGES, "4Mi", 0.15)):
        if chance.random() < often and (resource != PAGES or quality != "BestEffort"):
            requests[resource] = limits[resource] = amount
    sidecar = {"restartPolicy": "Always"} if is_init and chance.random() < 0.4 else {}
    return {"name": name, "resources": {"requests": requests, "limits": limits}, **sidecar}


def topology(chance: random.Random, name: str) -> Json:
    """The zones of a node, one time in three odd ones."""
    count = chance.choice((1, 2, 2, 3, 4, 4))
    names = [f"node-{each}" for each in range(count)]
    match chance.choices(("usual", "holes", "descending", "twice", "64", "padded"), (66, 8, 14, 5, 3, 4))[0]:
        case "holes":
            names = [f"node-{each}" for each in sorted(chance.sample(range(9), count))]
        case "descending":
            names.reverse()
        case "twice":
            names.append(names[0])
        case "64":
            names.append("node-64")
        case "padded":
            names[0] = "node-00"
    listed = [each for each in (NIC, PAGES) if chance.random() < 0.6]
    zones = [_zone(chance, each, listed, names) for each in names]
    if chance.random() < 0.2:
        zones.insert(0, {"name": "socket-0", "type": "Socket", "resources": []})
    found: Json = {"metadata": {"name": name}, "zones": zones}
    _configure(chance, found)
    return found


def _zone(chance: random.Random, name: str, listed: Sequence[str], names: Sequence[str]) -> Json:
    available = {
        "cpu": chance.choice(("0", "1", "2", "3", "4", "8", "2500m")),
        "memory": chance.choice(("0", "1Gi", "2Gi", "1800M", "8Gi", "16Gi")),
    }
    for each in listed:
        if chance.random() < 0.8:
            available[each] = chance.choice(("0", "1", "2") if each == NIC else ("0", "4Mi", "64Mi"))
    if chance.random() < 0.02:
        available["cpu"] = "-2"
    chance.shuffle(order := list(available))
    return {
        "name": name,
        "type": "Node",
        "costs": [
            {"name": other, "value": 10 if other == name else chance.choice((12, 20, 21))}
            for other in dict.fromkeys(names)
            if chance.random() < 0.95
        ],
        "resources": [
            {"name": each, "capacity": "64Gi", "allocatable": "64Gi", "available": available[each]} for each in order
        ],
    }


def _configure(chance: random.Random, found: Json) -> None:
    if chance.random() < 0.3:
        found["topologyPolicies"] = [
            chance.choice(
                ("SingleNUMANodePodLevel", "SingleNUMANodeContainerLevel", "RestrictedPodLevel", "Restricted")
            )
        ]
    attributes = found["attributes"] = []
    if chance.random() < 0.85:
        policy = chance.choices(("single-numa-node", "restricted", "none", "wrong"), (16, 1, 1, 1))[0]
        attributes.append({"name": "topologyManagerPolicy", "value": policy})
        attributes.append({"name": "topologyManagerScope", "value": chance.choice(("container", "pod", "pod", ""))})
    if chance.random() < 0.5:
        most = chance.choice(("2", "2", "2", "2", "2", "2", "16", "2000", "1", "x"))
        attributes.append({"name": "topologyManagerMaxNUMANodes", "value": most})


def node(chance: random.Random, name: str) -> Json:
    allocatable = {"cpu": "32", "memory": "64Gi", "pods": "110", "ephemeral-storage": "100Gi", PAGES: "1Gi"}
    if chance.random() < 0.05:
        del allocatable["ephemeral-storage"]
    for each, often in ((NIC, 0.9), (GPU, 0.5)):
        if chance.random() < often:
            allocatable[each] = "8"
    return {"metadata": {"name": name}, "status": {"allocatable": allocatable}}


def facts_of(asked: Json) -> PodFacts:
    return pod_facts(msgspec.convert(asked, PodObject))


def node_facts_of(at: Json, shown: Json | None) -> NodeFacts:
    decoded = msgspec.convert(shown, NodeResourceTopology) if shown is not None else None
    return node_facts(at["metadata"]["name"], decoded, at["status"]["allocatable"], exact=False)


class Situation(NamedTuple):
    """One pod before one node."""

    strategy: str
    pod: PodFacts
    node: NodeFacts
    zones: Sequence[Json]
    """Of the object as it is published, cells only."""

    @property
    def units(self) -> list[Mapping[str, int]]:
        if self.node.settings.scope == "pod":
            return [effective(self.pod)]
        return [each.requests for each in self.pod.containers]

    @property
    def ids(self) -> list[int]:
        return [int(each["name"].removeprefix("node-")) for each in self.zones]


class Difference(NamedTuple):
    """Where the plugin answers otherwise than mode compat, and why that is right."""

    concerns: frozenset[str]
    """``filter``, ``score``, or both."""
    reason: str
    applies: Callable[[Situation], bool]


def _is_on_an_edge(found: Situation) -> bool:
    """The exact share is a whole percentage, which floats may miss by one."""
    return found.strategy == "BalancedAllocation" and any(
        abs(exact - round(exact)) < 1e-9 for unit in found.units for exact in _balances(unit, found.node)
    )


def _balances(unit: Mapping[str, int], at: NodeFacts) -> list[float]:
    result = []
    for cell in at.cells:
        have = [(rounded_up(amount), rounded_up(cell.available.get(name, 0))) for name, amount in unit.items()]
        shares = [Fraction(one, other) if other else Fraction(1) for one, other in have]
        if len(shares) > 1 and max(shares) <= 1:
            mean = sum(shares) / len(shares)
            result.append(float(100 - 100 * sum((each - mean) ** 2 for each in shares) / (len(shares) - 1)))
    return result


BOTH: Final = frozenset({"filter", "score"})
SCORE: Final = frozenset({"score"})
DIFFERENCES: Final[Mapping[str, Difference]] = {
    "id 64": Difference(BOTH, "the plugin writes past its table of 64 cells", lambda it: 64 in it.ids),
    "a name that is no plain number": Difference(
        BOTH,
        "the plugin takes node-00 for cell 0",
        lambda it: any(each["name"] == "node-00" for each in it.zones),
    ),
    "a cell twice": Difference(
        BOTH, "the plugin counts both; here the first", lambda it: len(set(it.ids)) < len(it.ids)
    ),
    "holes between ids": Difference(
        SCORE,
        "the plugin takes ids for positions and writes past its scores",
        lambda it: max(it.ids, default=0) >= len(it.ids),
    ),
    "zones in another order": Difference(
        SCORE, "the plugin subtracts from the zone at the place of the id", lambda it: it.ids != sorted(it.ids)
    ),
    "less than nothing": Difference(
        SCORE,
        "the plugin divides by negative availability, or adds it to that of other cells; here it is 0",
        lambda it: any(res["available"] == "-2" for zone in it.zones for res in zone["resources"]),
    ),
    "balance of one resource": Difference(
        SCORE,
        "the variance of one value is no number, which the plugin turns into one",
        lambda it: it.strategy == "BalancedAllocation" and any(len(unit) == 1 for unit in it.units),
    ),
    "no request at all": Difference(
        SCORE,
        "the plugin divides by zero",
        lambda it: not all(it.units) and it.strategy != "LeastNUMANodes",
    ),
    "less than 0 points": Difference(
        SCORE,
        "more cells than the kubelet's limit: the plugin's score is negative, which the scheduler refuses",
        lambda it: it.strategy == "LeastNUMANodes" and len(it.ids) > it.node.settings.most_cells,
    ),
    "ephemeral storage that the node does not have": Difference(
        frozenset({"filter"}),
        "the scheduler's record of a node has it always, with 0; its NodeResourcesFit rejects that node",
        lambda it: (
            "ephemeral-storage" not in (it.node.allocatable or {})
            and any("ephemeral-storage" in unit for unit in it.units)
        ),
    ),
}


EDGE: Final = Difference(SCORE, "floats may miss a whole percentage by one", _is_on_an_edge)
"""Not in every run: the order in which the plugin adds up is another one each time."""


def explained(situation: Situation, concern: str) -> list[str]:
    """The differences that may be behind one, by name."""
    every = {**DIFFERENCES, "balance on an edge": EDGE}
    return [name for name, each in every.items() if concern in each.concerns and each.applies(situation)]
