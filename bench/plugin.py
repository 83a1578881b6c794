"""NS-170: the scheduler plugin NodeResourceTopologyMatch and our rules on the same 5 000 nodes of 8 cells.

Both decide in this one run about the same pods: the plugin in the Go program of ``tools/peers/numa-plugin``, from its
own cache and without the scheduler around it, ours in this process. What counts is CPU per node and pod, and on how
many nodes the verdicts are the same: where the plugin is right about the kubelet.
"""

import json
import random
import subprocess
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple

import msgspec
from tools.peers.catalogue import Absent, found

from bench.measure import Figure
from bench.runtime import Say
from polyarch.numa.api.topology import NodeResourceTopology
from polyarch.numa.fit.evaluate import evaluate
from polyarch.numa.fit.facts import Amounts, ExactOptions, NodeFacts, PodFacts, PodObject, node_facts, pod_facts
from polyarch.numa.fit.node_index import NumaNodeIndex

PROGRAM: Final = "numa-plugin"
NODES: Final = 5000
CELLS: Final = 8
NIC: Final = "vendor.example/nic"
ROUNDS: Final = 3
REPEATED: Final = 20
"""Of calls that take a few milliseconds."""
Document = dict[str, Any]


def nodes(chance: random.Random) -> tuple[list[Document], list[Document]]:
    """Of a cluster that is rather full: Nodes and their NodeResourceTopologies."""
    made, shown = [], []
    for number in range(NODES):
        name = f"worker-{number:04}"
        made.append(
            {
                "metadata": {"name": name},
                "status": {"allocatable": {"cpu": "128", "memory": "512Gi", "pods": "250", NIC: "16"}},
            }
        )
        zones = [
            {
                "name": f"node-{cell}",
                "type": "Node",
                "costs": [{"name": f"node-{other}", "value": 10 if other == cell else 21} for other in range(CELLS)],
                "resources": [
                    _resource("cpu", "16", str(chance.choice((0, 0, 1, 1, 2, 3, 6)))),
                    _resource("memory", "64Gi", f"{chance.choice((0, 1, 2, 4, 8))}Gi"),
                    _resource(NIC, "2", str(chance.choice((0, 0, 1, 2)))),
                ],
            }
            for cell in range(CELLS)
        ]
        attributes = {
            "topologyManagerPolicy": "single-numa-node",
            "topologyManagerScope": "container" if number % 2 else "pod",
            "numa.polyarch.dev/cpu-manager-policy": "static",
            "numa.polyarch.dev/memory-manager-policy": "Static",
        }
        shown.append(
            {
                "metadata": {"name": name},
                "attributes": [{"name": key, "value": value} for key, value in attributes.items()],
                "zones": zones,
            }
        )
    return made, shown


def _resource(name: str, all_of_it: str, available: str) -> Document:
    return {"name": name, "capacity": all_of_it, "allocatable": all_of_it, "available": available}


def pod(name: str, *containers: Mapping[str, str]) -> Document:
    """Guaranteed."""
    return {
        "metadata": {"namespace": "team", "name": name, "uid": name},
        "spec": {
            "schedulerName": "topo-aware-scheduler",
            "containers": [
                {"name": f"c{number}", "resources": {"requests": amounts, "limits": amounts}}
                for number, amounts in enumerate(containers)
            ],
        },
    }


ASKED: Final = (
    pod("one container", {"cpu": "2", "memory": "4Gi", NIC: "1"}),
    pod("two containers", {"cpu": "2", "memory": "2Gi", NIC: "1"}, {"cpu": "1", "memory": "1Gi"}),
    pod("fractions of CPUs", {"cpu": "1500m", "memory": "2Gi"}),
)


class Verdicts(NamedTuple):
    """Names of nodes that fit, and microseconds of CPU per node and pod."""

    fitting: frozenset[str]
    cost: float


def measured(decide: Callable[[], Iterable[str]], *, rounds: int) -> Verdicts:
    """Of a function that decides about all nodes, in this process."""
    fitting = frozenset(decide())
    begin = time.process_time()
    for _ in range(rounds):
        for _name in decide():
            pass
    return Verdicts(fitting, (time.process_time() - begin) / (rounds * NODES) * 1e6)


class Ours:
    """The same nodes, one by one and all at once."""

    def __init__(self, made: Sequence[Document], shown: Sequence[Document]) -> None:
        self._names = [each["metadata"]["name"] for each in made]
        self._pairs: list[tuple[NodeFacts, Mapping[int, Amounts]]] = []
        self._fleet = NumaNodeIndex(ExactOptions())
        for node, each in zip(made, shown, strict=True):
            topology = msgspec.convert(each, NodeResourceTopology)
            facts = node_facts(node["metadata"]["name"], topology, node["status"]["allocatable"])
            self._pairs.append((facts, {cell.id: cell.available for cell in facts.cells}))
            self._fleet.put(facts)

    def exact(self, asked: PodFacts) -> Verdicts:
        options = ExactOptions()
        return measured(
            lambda: [at.name for at, free in self._pairs if evaluate(asked, at, free, options).fits], rounds=1
        )

    def fleet(self, asked: PodFacts) -> Verdicts:
        return measured(lambda: self._fleet.fit(asked, self._names).fitting, rounds=REPEATED)


def plugins(program: str, made: Sequence[Document], shown: Sequence[Document]) -> tuple[list[Verdicts], list[float]]:
    """Filter of each pod, and what Score costs beside it."""
    steps = [{"do": do, "pod": each, "rounds": ROUNDS} for each in ASKED for do in ("decide", "measure")]
    case = {"strategy": "LeastAllocated", "nodes": made, "topologies": shown, "steps": steps}
    answered = subprocess.run(
        [program], input=json.dumps(case), capture_output=True, text=True, check=True, timeout=600
    )
    said = json.loads(answered.stdout)
    filters, scores = [], []
    for verdicts, costs in zip(said[::2], said[1::2], strict=True):
        fitting = frozenset(each["node"] for each in verdicts["verdicts"] if each["fits"])
        filters.append(Verdicts(fitting, costs["filterCPU"] / 1000))
        scores.append(costs["scoreCPU"] / 1000)
    return filters, scores


def plugin(say: Say) -> list[Figure]:
    """Everything, as the module says."""
    peer = found(PROGRAM)
    if isinstance(peer, Absent):
        say(f"{PROGRAM} takes no part: {peer.why}")
    made, shown = nodes(random.Random(170))
    ours = Ours(made, shown)
    say(f"{NODES} nodes of {CELLS} cells and 3 resources, {len(ASKED)} pods")
    filters: list[Verdicts] = []
    scores: list[float] = []
    if not isinstance(peer, Absent):
        filters, scores = plugins(peer.program, made, shown)
        say(f"{PROGRAM} {peer.version} has answered")
    figures = []
    for number, each in enumerate(ASKED):
        asked = pod_facts(msgspec.convert(each, PodObject))
        name = asked.name
        rows = {"exact": ours.exact(asked), "exact, all at once": ours.fleet(asked)}
        if filters:
            theirs = filters[number]
            figures.append(_figure(f"{name}: plugin's Filter", theirs.cost, f"{len(theirs.fitting)} fit"))
            figures.append(_figure(f"{name}: plugin's Score", scores[number], ""))
        for mode, verdicts in rows.items():
            other = len(verdicts.fitting ^ filters[number].fitting) if filters else 0
            note = f"{len(verdicts.fitting)} fit" + (f", on {other} the plugin says otherwise" if other else "")
            figures.append(_figure(f"{name}: {mode}", verdicts.cost, note))
        say(f"{name} has been decided")
    return figures


def _figure(name: str, value: float, note: str) -> Figure:
    return Figure(name, value, "µs of CPU per node and pod", note=note)


SCENARIOS: Final = {"plugin": plugin}
