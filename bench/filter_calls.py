"""NS-170, NS-171: what a filter call of the NUMA extender costs, from the bytes of the request to those of the answer.

Nodes of 8 cells × 8 resources, half of them in use; a pod of two containers with four resources each; all names in the
body. Each number of nodes runs in a process of its own. A call for a workload that is new is measured apart from the
next one of the same workload.
"""

import gc
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from random import Random
from typing import Any, Final

import msgspec

from bench.measure import Figure, percentile, resident_mib
from bench.runtime import Say

CELLS: Final = 8
NAMES: Final = ("cpu", "memory", "hugepages-2Mi", "hugepages-1Gi", "x.io/gpu", "x.io/nic", "x.io/fpga", "x.io/qat")
MOST: Final = {"cpu": 32, "memory": 64 << 30, "hugepages-2Mi": 4 << 30, "hugepages-1Gi": 8 << 30}
DEVICES: Final = 8
CALLS: Final = 150
EVENTS: Final = 300
ASKED: Final = ("cpu", "memory", "hugepages-1Gi", "x.io/nic")
LIMITS: Final = {5000: 20, 500: 3}


def node_name(number: int) -> str:
    return f"ip-10-{number // 256}-{number % 256}-7.eu-west-1.compute.internal"


def topology(random: Random, number: int, version: int, names: tuple[str, ...]) -> dict[str, Any]:
    """As an exporter publishes it."""
    zones = []
    for cell in range(CELLS):
        resources = []
        for name in names:
            most = MOST.get(name, DEVICES)
            free = most if number % 2 else most * random.randint(0, 4) // 4
            amounts = {"capacity": str(most), "allocatable": str(most), "available": str(free)}
            resources.append({"name": name, **amounts})
        costs = [{"name": f"node-{other}", "value": 10 if other == cell else 20} for other in range(CELLS)]
        zones.append({"name": f"node-{cell}", "type": "Node", "resources": resources, "costs": costs})
    return {
        "metadata": {"name": node_name(number), "resourceVersion": str(version)},
        "topologyPolicies": ["SingleNUMANodeContainerLevel"],
        "zones": zones,
    }


def pod(number: int, cpus: int) -> dict[str, Any]:
    amounts = {"cpu": str(cpus), "memory": "4Gi", "hugepages-1Gi": "2Gi", "x.io/nic": "1"}
    container = {"image": "x", "resources": {"requests": amounts, "limits": amounts}}
    return {
        "metadata": {"name": f"pod-{number}", "namespace": "demo", "uid": f"{number:036}"},
        "spec": {
            "schedulerName": "topo-aware-scheduler",
            "containers": [{"name": "one", **container}, {"name": "two", **container}],
        },
        "status": {"phase": "Pending", "qosClass": "Guaranteed"},
    }


class Extender:
    """What decides, without a listener; every node has been seen."""

    def __init__(self, nodes: int, names: tuple[str, ...]) -> None:
        from polyarch.kube.metrics import Metrics
        from polyarch.numa.extender.engine import Engine, SchedulerCache
        from polyarch.numa.extender.metrics import ExtenderMetrics
        from polyarch.numa.extender.settings import ExtenderSettings

        settings, metrics = ExtenderSettings(), ExtenderMetrics(Metrics())
        self.books = SchedulerCache(settings, metrics)
        self.engine = Engine(settings, self.books, metrics)
        self.random = Random(1)
        self._resources = names
        self._whole = {name: str(CELLS * MOST.get(name, DEVICES)) for name in names}
        for number in range(nodes):
            self.see(number, 1)
        self.books.start(0.0, 0.0)

    def see(self, number: int, version: int) -> float:
        """One event; the seconds of CPU that it cost, without reading its JSON."""
        from polyarch.numa.api.topology import NodeResourceTopology
        from polyarch.numa.fit.facts import node_facts

        document = topology(self.random, number, version, self._resources)
        decoded = msgspec.json.decode(msgspec.json.encode(document), type=NodeResourceTopology)
        begin = time.process_time()
        self.books.node_seen(node_facts(node_name(number), decoded, self._whole), 1.0)
        return time.process_time() - begin

    def filter(self, body: bytes) -> bytes:
        from polyarch.numa.extender import wire

        asked = wire.question(body)
        found = self.engine.filter(asked.pod, asked.names, 1.0)
        return wire.fitting(found.names, found.failed)


def measured(nodes: int) -> dict[str, float]:
    """In this process: milliseconds of CPU, MiB."""
    extender = Extender(nodes, NAMES)
    names = [node_name(number) for number in range(nodes)]
    gc.collect()
    gc.freeze()

    def call(number: int, cpus: int) -> float:
        body = msgspec.json.encode({"Pod": pod(number, cpus), "Nodes": None, "NodeNames": names})
        begin = time.process_time()
        answer = extender.filter(body)
        spent = time.process_time() - begin
        if not json.loads(answer)["NodeNames"]:
            raise RuntimeError("no node has room: the figures would say nothing")
        return spent * 1000

    new = [call(number, 1 + number % 16) for number in range(16)]
    again = [call(100 + number, 4) for number in range(CALLS)]
    events = [extender.see(number % nodes, 2 + number) * 1000 for number in range(EVENTS)]
    control = [_control(names) for _ in range(CALLS)]
    return {
        "new": min(new),
        "new p99": percentile(new, 99),
        "again": min(again),
        "again p99": percentile(again, 99),
        "event": percentile(events, 50),
        "control": min(control),
        "control p99": percentile(control, 99),
        "place": _placing(extender),
    }


def _control(names: list[str]) -> float:
    """The least that any answer costs: the names are read, looked up once, and written."""
    body = msgspec.json.encode(names)
    begin = time.process_time()
    msgspec.json.encode(list(dict.fromkeys(msgspec.json.decode(body, type=list[str]))))
    return (time.process_time() - begin) * 1000


def _placing(extender: Extender) -> float:
    """The question to the table alone, per container."""
    from polyarch.numa.fit.demand import AlignmentUnit
    from polyarch.numa.fit.node_table import NodeTable, TableQuery

    fleet = extender.books.fleet
    table = NodeTable(CELLS, NAMES, by_groups=False)
    for row, name in enumerate(fleet.names()):
        free = fleet.free(name)
        table.write(row, list(free.values()), ())
    least = float("inf")
    for number in range(20):
        needs = dict.fromkeys(ASKED, 1000 + number)
        units = (AlignmentUnit("one", "app", needs), AlignmentUnit("two", "app", needs))
        question = TableQuery(units=units, strategy="LeastAllocated", most_cells=8, nearest=(True,) * CELLS)
        begin = time.process_time()
        table.place(question, None)
        least = min(least, time.process_time() - begin)
    return least * 1000 / len(units)


def grown(nodes: int) -> dict[str, float]:
    """Resident memory that nodes of 16 resources take."""
    names = (*NAMES, *(f"x.io/vf-{number}" for number in range(8)))
    Extender(1, names)
    before = resident_mib(os.getpid())
    extender = Extender(nodes, names)
    gc.collect()
    return {"memory": resident_mib(os.getpid()) - before, "nodes": len(extender.books.fleet)}


def _apart(call: str) -> dict[str, float]:
    code = f"import json; from bench import filter_calls; print(json.dumps(filter_calls.{call}))"
    done = subprocess.run([sys.executable, "-c", code], check=True, stdout=subprocess.PIPE)
    found: dict[str, float] = json.loads(done.stdout)
    return found


def filter_calls(say: Say) -> list[Figure]:
    """NS-170, NS-171."""
    figures: list[Figure] = []
    for nodes, limit in LIMITS.items():
        say(f"{CALLS} calls with {nodes} nodes")
        found = _apart(f"measured({nodes})")
        title = f"filter, {nodes} nodes"
        for word, of in (("new", "a new workload"), ("again", "one seen before")):
            note = f"p99 {found[f'{word} p99']:.3g}; control {found['control']:.2g}, its p99 {found['control p99']:.2g}"
            figures.append(Figure(f"{title}, {of}", found[word], "ms CPU", "NS-170", limit, note=note))
        if nodes == max(LIMITS):
            figures += [
                Figure(f"table, {nodes} nodes", found["place"], "ms per container", "NS-170", 1),
                Figure(f"topology event, {nodes} nodes", found["event"], "ms CPU", "NS-171", 0.5),
            ]
    say("memory of 5000 nodes with 16 resources")
    found = _apart("grown(5000)")
    figures.append(Figure("5000 nodes × 8 cells × 16 resources", found["memory"], "MiB", "NS-171", 250))
    return figures


SCENARIOS: Final[dict[str, Callable[[Say], list[Figure]]]] = {"filter": filter_calls}
