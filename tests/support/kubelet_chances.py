"""Random machines with pods that come and go, as cases for the kubelet's own managers and for the model of them."""

import json
import random
from collections.abc import Mapping
from fractions import Fraction
from typing import Any

from polyarch.sandbox.kubelet_model import admission
from polyarch.sandbox.kubelet_model.admission import ManagerStates
from polyarch.sandbox.kubelet_model.cpu_manager import packed
from polyarch.sandbox.kubelet_model.machine import Configuration, Cpu, Machine, Node, SimulatedZone
from polyarch.sandbox.kubelet_model.requests import Container, Pod
from polyarch.sandbox.nodes import kubelet_files
from polyarch.sandbox.nodes.kubelet_files import cpulist_text

GI = 1 << 30
PAGE = 2 << 20
Json = dict[str, Any]


def machine(chance: random.Random) -> Machine:
    """Up to four cells, with holes between their ids, one or two of them in a socket, with one or two threads per core
    whose CPUs follow one another or lie far apart."""
    count = chance.choice((1, 2, 2, 3, 4))
    ids = sorted(chance.sample(range(6), count)) if chance.random() < 0.3 else list(range(count))
    threads, cores = chance.choice((1, 1, 2)), chance.choice((1, 2, 4))
    in_socket = chance.choice([each for each in (1, 2) if count % each == 0])
    is_split = chance.random() < 0.5
    cpus: list[Cpu] = []
    for position, cell in enumerate(ids):
        for number in range(position * cores, (position + 1) * cores):
            step, first = (count * cores, number) if is_split else (1, number * threads)
            own = [first + thread * step for thread in range(threads)]
            cpus += [Cpu(cpu, own[0], position // in_socket, cell) for cpu in own]
    cells = tuple(
        SimulatedZone(
            id=cell,
            memory=chance.choice((8, 16, 16)) * GI,
            pages={PAGE: 512},
            distances=tuple(10 if cell == other else chance.choice((12, 21, 21, 30)) for other in ids),
        )
        for cell in ids
    )
    return Machine(cells=cells, cpus=tuple(sorted(cpus, key=lambda cpu: cpu.id)))


def node(chance: random.Random) -> Node:
    found = machine(chance)
    count = chance.choice((1, 1, 2)) if len(found.cpus) > 2 else 1
    reserved = packed(found, found.by_id, count)
    if chance.random() < 0.3:
        reserved = frozenset(chance.sample(sorted(found.by_id), count))
    return Node(
        found,
        Configuration(
            topology_policy=chance.choice(("none", "best-effort", "restricted", "restricted", "single-numa-node")),
            topology_scope=chance.choice(("container", "pod")),
            prefer_closest=chance.random() < 0.3,
            cpu_policy="static" if chance.random() < 0.9 else "none",
            full_cores_only=chance.random() < 0.2,
            reserved_cpus=reserved,
            memory_policy="Static" if chance.random() < 0.85 else "None",
            reserved_memory={chance.choice(found.cell_ids): {"memory": GI}},
        ),
    )


def pod(chance: random.Random, number: int, node: Node) -> Pod:
    """Often Guaranteed, sometimes with init containers and sidecars, sometimes too large."""
    init = tuple(
        container(chance, f"init-{index}", node, is_sidecar=chance.random() < 0.35)
        for index in range(chance.choice((0, 0, 0, 1, 2)))
    )
    apps = tuple(container(chance, f"app-{index}", node) for index in range(chance.choice((1, 1, 2))))
    if chance.random() < 0.15:
        apps = tuple(Container(each.name, each.requests) for each in apps)
    return Pod(uid=f"uid-{number}", namespace="default", name=f"pod-{number}", init=init, containers=apps)


def container(chance: random.Random, name: str, node: Node, *, is_sidecar: bool = False) -> Container:
    most = len(node.machine.cpus)
    whole = Fraction(chance.choice((1, 1, 2, 2, 3, 4, most // 2 or 1, most)))
    amounts = {
        "cpu": whole if chance.random() < 0.8 else Fraction(1, 2),
        "memory": Fraction(chance.choice((1, 1, 2, 3, 6, 9, 14, 20)) * GI),
    }
    if chance.random() < 0.2:
        amounts["hugepages-2Mi"] = Fraction(chance.choice((1, 100, 300, 512, 700)) * PAGE)
    return Container(name, amounts, amounts, is_sidecar)


def play(chance: random.Random) -> tuple[Json, list[Json]]:
    """A case for ``kubelet-managers``, and what the model says after each of its steps."""
    here = node(chance)
    held = admission.at_first(here)
    active: dict[str, Pod] = {}
    steps: list[Json] = []
    answers: list[Json] = []
    for number in range(chance.randint(4, 14)):
        choice, refused = chance.random(), None
        if active and choice < 0.2:
            uid = chance.choice(sorted(active))
            del active[uid]
            steps.append({"do": "over", "uid": uid})
        elif active and choice < 0.35:
            uid = chance.choice(sorted(active))
            name = chance.choice(active[uid].all).name
            steps.append({"do": "created", "uid": uid, "container": name})
            held = admission.started(held, active[uid], name)
        elif choice < 0.42:
            steps.append({"do": "restart"})
            held = _read_back(here, held)
            for each in active.values():
                held, refused = admission.align(here, held, each, active)
                if refused is not None:
                    break
        else:
            made = pod(chance, number, here)
            steps.append({"do": "admit", "pod": _document(made)})
            held, refused = admission.align(here, held, made, {made.uid, *active})
            if refused is None:
                active[made.uid] = made
        answers.append(
            {
                "reason": refused.reason if refused is not None else "",
                "message": refused.message if refused is not None else "",
                "cpu": json.loads(kubelet_files.cpus_text(here, held.cpus)),
                "memory": json.loads(kubelet_files.memory_text(here, held.memory)),
            }
        )
    return case(here, steps), answers


def _read_back(node: Node, held: ManagerStates) -> ManagerStates:
    """What a restarted kubelet knows: its files."""
    return ManagerStates(
        kubelet_files.read_cpus(node, kubelet_files.cpus_text(node, held.cpus)),
        kubelet_files.read_memory(node, kubelet_files.memory_text(node, held.memory)),
        held.devices,
    )


def alike(answer: Json) -> Json:
    """Without the order of a container's blocks, which Go leaves to chance, and the checksum that depends on it."""
    memory = {name: each for name, each in answer["memory"].items() if name != "checksum"}
    memory["entries"] = {
        uid: {name: sorted(blocks, key=lambda block: str(block["type"])) for name, blocks in held.items()}
        for uid, held in memory.get("entries", {}).items()
    }
    return {**answer, "memory": memory}


# -- as Kubernetes writes it -------------------------------------------------------------------------------------------


def _document(pod: Pod) -> Json:
    return {
        "metadata": {"uid": pod.uid, "name": pod.name, "namespace": pod.namespace},
        "spec": {
            "initContainers": [_container(each) for each in pod.init],
            "containers": [_container(each) for each in pod.containers],
        },
    }


def _container(container: Container) -> Json:
    resources = {"requests": _amounts(container.requests), "limits": _amounts(container.limits)}
    return {"name": container.name, "resources": resources} | (
        {"restartPolicy": "Always"} if container.is_sidecar else {}
    )


def _amounts(given: Mapping[str, Fraction]) -> dict[str, str]:
    return {name: f"{int(value * 1000)}m" if name == "cpu" else str(int(value)) for name, value in given.items()}


def case(node: Node, steps: list[Json]) -> Json:
    configuration = node.configuration
    is_static = configuration.cpu_policy == "static"
    return {
        "machine": {
            "sockets": len({cpu.socket for cpu in node.machine.cpus}),
            "nodes": [_cell(node.machine, cell) for cell in node.machine.cells],
        },
        "configuration": {
            "topologyPolicy": configuration.topology_policy,
            "topologyScope": configuration.topology_scope,
            "topologyOptions": {"prefer-closest-numa-nodes": "true"} if configuration.prefer_closest else {},
            "cpuPolicy": configuration.cpu_policy,
            "cpuOptions": {"full-pcpus-only": "true"} if configuration.full_cores_only and is_static else {},
            "reservedCPUs": cpulist_text(configuration.reserved_cpus),
            "memoryPolicy": configuration.memory_policy,
            "reservedMemory": {
                str(cell): {name: str(amount) for name, amount in amounts.items()}
                for cell, amounts in configuration.reserved_memory.items()
            },
        },
        "steps": steps,
    }


def _cell(machine: Machine, cell: SimulatedZone) -> Json:
    """cAdvisor's Node, whose distances are by id here, as the kubelet looks them up."""
    cores: dict[int, Json] = {}
    for cpu in machine.cpus:
        if cpu.cell == cell.id:
            core = cores.setdefault(cpu.core, {"core_id": cpu.core, "thread_ids": [], "socket_id": cpu.socket})
            core["thread_ids"].append(cpu.id)
    distances = [0] * (machine.cell_ids[-1] + 1)
    for other, far in zip(machine.cell_ids, cell.distances, strict=True):
        distances[other] = far
    return {
        "node_id": cell.id,
        "memory": cell.memory,
        "hugepages": [{"page_size": size // 1024, "num_pages": count} for size, count in cell.pages.items()],
        "cores": list(cores.values()),
        "distances": distances,
    }
