"""Random nodes with cells, their pods, and what their exporters publish: cases for scheduling by cells, which the
kubelet model judges."""

import random
from collections.abc import Collection, Iterable, Mapping, Sequence
from fractions import Fraction
from typing import Any, Final

import msgspec

from polyarch.numa import facts as exporter
from polyarch.numa.api.topology import NodeResourceTopology
from polyarch.numa.exporter.topology_document import topology_document
from polyarch.numa.exporter.zones import node_zones
from polyarch.numa.facts import ScanFacts, ScanSettings
from polyarch.numa.fit.facts import NodeFacts, PodFacts, PodObject, node_facts, pod_facts
from polyarch.sandbox.kubelet_model import cpu_manager, memory_manager, requests
from polyarch.sandbox.kubelet_model import machine as capacity
from polyarch.sandbox.kubelet_model.admission import ManagerStates
from polyarch.sandbox.kubelet_model.cpu_manager import packed
from polyarch.sandbox.kubelet_model.machine import (
    Configuration,
    Cpu,
    Device,
    Machine,
    Node,
    SimulatedZone,
    TopologyPolicy,
)
from polyarch.sandbox.kubelet_model.requests import Container, Pod

GI = 1 << 30
PAGE = 2 << 20
PAGES = "hugepages-2Mi"
NIC, GPU = "example.com/nic", "example.com/gpu"
POLICIES: Final[Sequence[TopologyPolicy]] = ("none", "best-effort", "restricted", "single-numa-node")
Json = dict[str, Any]


def machine(chance: random.Random, *, most_cells: int = 8) -> Machine:
    """Two to eight cells (one, where there are to be no more), seldom with holes between their ids or without CPUs, and
    devices on some of them."""
    count = min(chance.choice((2, 2, 2, 2, 3, 3, 4, 4, 6, 8)), most_cells)
    ids = sorted(chance.sample(range(count + 2), count)) if chance.random() < 0.2 else list(range(count))
    threads, cores = chance.choice((1, 2)), chance.choice((2, 4, 4, 8))
    in_socket = chance.choice([each for each in (1, 2) if count % each == 0])
    found: list[Cpu] = []
    bare = chance.choice(ids[1:]) if chance.random() < 0.1 and count > 1 else None
    for position, cell in enumerate(ids):
        for number in range(position * cores, (position + 1) * cores):
            own = [number * threads + thread for thread in range(threads)]
            found += [Cpu(cpu, own[0], position // in_socket, cell) for cpu in own if cell != bare]
    pages = chance.random() < 0.5
    cells = tuple(
        SimulatedZone(
            id=cell,
            memory=chance.choice((8, 16, 16)) * GI,
            pages={PAGE: chance.choice((512, 1024))} if pages else {},
            distances=tuple(10 if cell == other else chance.choice((12, 21, 21, 30)) for other in ids),
        )
        for cell in ids
    )
    devices = tuple(
        Device(resource, f"{resource[-3:]}-{cell}-{number}", (cell,))
        for resource in (NIC, GPU)
        if chance.random() < 0.5
        for cell in ids
        for number in range(chance.choice((0, 1, 2, 4)))
    )
    return Machine(cells=cells, cpus=tuple(found), devices=devices)


def node(chance: random.Random, *, policy: TopologyPolicy | None = None, most_cells: int = 8) -> Node:
    """With one kubelet configuration or another."""
    found = machine(chance, most_cells=most_cells)
    reserved = packed(found, found.by_id, found.threads * chance.choice((1, 1, 2)))
    return Node(
        found,
        Configuration(
            topology_policy=chance.choice(POLICIES if policy is None else [policy]),
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
    kind = chance.random()
    init = tuple(
        container(chance, f"init-{index}", node, kind, is_sidecar=chance.random() < 0.35)
        for index in range(chance.choice((0, 0, 0, 1, 2)))
    )
    apps = tuple(container(chance, f"app-{index}", node, kind) for index in range(chance.choice((1, 1, 2))))
    whole = chance.random() < 0.04
    total = {"cpu": Fraction(4), "memory": Fraction(4 * GI)} if whole else None
    return Pod(
        uid=f"uid-{number}",
        namespace="default",
        name=f"pod-{number}",
        init=init,
        containers=apps,
        overhead={"cpu": Fraction(1, 2)} if chance.random() < 0.1 else {},
        pod_requests=total,
        pod_limits=total or {},
    )


def container(chance: random.Random, name: str, node: Node, kind: float, *, is_sidecar: bool = False) -> Container:
    """``kind``: below 0.15 Burstable, below 0.2 with nothing but devices, else Guaranteed."""
    of_cell = len(node.machine.cpus) // len(node.machine.cells_with_cpus)
    amounts: dict[str, Fraction] = {}
    if kind >= 0.2 or kind < 0.15:
        cpu = Fraction(chance.choice((1, 1, 2, 2, 3, 4, of_cell // 2, of_cell, of_cell + 2, 2 * of_cell)))
        amounts["cpu"] = cpu if chance.random() < 0.8 else Fraction(1, 2)
        amounts["memory"] = Fraction(chance.choice((1, 1, 2, 3, 4, 6, 9, 14, 20)) * GI)
        if node.machine.cells[0].pages and chance.random() < 0.2:
            amounts[PAGES] = Fraction(chance.choice((1, 100, 300, 512, 700)) * PAGE)
    devices = {
        resource: Fraction(chance.choice((1, 1, 2, 3)))
        for resource in sorted(node.machine.resources)
        if chance.random() < 0.3
    }
    limits = {**({} if kind < 0.15 else amounts), **{name: amounts[name] for name in amounts if name == PAGES}}
    return Container(name, {**amounts, **devices}, {**limits, **devices}, is_sidecar)


def has_room(node: Node, pod: Pod, others: Iterable[Pod]) -> bool:
    """Whether the sums of the node suffice: the part of the question that the scheduler answers itself."""
    room = dict(capacity.allocatable(node))
    for each in (*others, pod):
        for name, amount in requests.scheduled(each).items():
            room[name] = room.get(name, Fraction(0)) - amount
    return all(left >= 0 for left in room.values())


# -- as the API server and the exporter have them ----------------------------------------------------------------------


def pod_document(pod: Pod) -> Json:
    spec: Json = {
        "initContainers": [_container(each) for each in pod.init],
        "containers": [_container(each) for each in pod.containers],
        "overhead": _quantities(pod.overhead),
    }
    if pod.pod_requests is not None:
        spec["resources"] = {"requests": _quantities(pod.pod_requests), "limits": _quantities(pod.pod_limits)}
    return {"metadata": {"uid": pod.uid, "name": pod.name, "namespace": pod.namespace}, "spec": spec}


def facts_of(pod: Pod) -> PodFacts:
    return pod_facts(msgspec.convert(pod_document(pod), PodObject))


def _container(container: Container) -> Json:
    resources = {"requests": _quantities(container.requests), "limits": _quantities(container.limits)}
    made: Json = {"name": container.name, "resources": resources}
    return made | ({"restartPolicy": "Always"} if container.is_sidecar else {})


def _quantities(given: Mapping[str, Fraction]) -> dict[str, str]:
    return {name: f"{int(value * 1000)}m" if name == "cpu" else str(int(value)) for name, value in given.items()}


def published(node: Node, held: ManagerStates, pods: Collection[Pod], *, name: str = "worker") -> NodeFacts:
    """What a scheduler knows of the node after its exporter's next scan."""
    settings = ScanSettings()
    facts = exporter_facts(node, held, pods)
    document = topology_document(facts, node_zones(facts, settings, name), settings, refresh_period=10.0)
    sums = {each: str(int(amount)) for each, amount in capacity.allocatable(node).items()}
    return node_facts(name, msgspec.convert(document, NodeResourceTopology), sums)


def exporter_facts(node: Node, held: ManagerStates, pods: Collection[Pod]) -> ScanFacts:
    """What the exporter gathers: the machine, the kubelet's answers, its files."""
    machine, configuration = node.machine, node.configuration
    is_static = configuration.cpu_policy == "static"
    options = (("full-pcpus-only", "true"),) if configuration.full_cores_only else ()
    return ScanFacts(
        machine=exporter.Machine(
            zones=tuple(
                exporter.HostZone(
                    id=cell.id,
                    cpus=frozenset(cpu.id for cpu in machine.cpus if cpu.cell == cell.id),
                    memory=cell.memory,
                    pages=cell.pages,
                    socket=next((cpu.socket for cpu in machine.cpus if cpu.cell == cell.id), None),
                    costs=tuple(zip(machine.cell_ids, cell.distances, strict=True)),
                )
                for cell in machine.cells
            ),
            cores=_cores(machine),
        ),
        allocatable=exporter.Allocatable(
            cpus=tuple(sorted(cpu_manager.allocatable(node))) if is_static else (),
            memory=_blocks(memory_manager.allocatable(node)),
            devices=tuple(exporter.Devices(each.resource, (each.id,), each.cells) for each in machine.devices),
        ),
        pods=tuple(listed(node, held, each) for each in pods),
        kubelet=exporter.KubeletSettings(
            policy=configuration.topology_policy,
            scope=configuration.topology_scope,
            topology_options=(("prefer-closest-numa-nodes", "true"),) if configuration.prefer_closest else (),
            cpu_manager_policy=configuration.cpu_policy,
            cpu_manager_options=options,
            memory_manager_policy=configuration.memory_policy,
        ),
        checkpoints=_states(node, held, pods),
    )


def _cores(machine: Machine) -> tuple[frozenset[int], ...]:
    cores: dict[int, set[int]] = {}
    for cpu in machine.cpus:
        cores.setdefault(cpu.core, set()).add(cpu.id)
    return tuple(map(frozenset, cores.values()))


def listed(node: Node, held: ManagerStates, pod: Pod) -> exporter.ListedPod:
    """What the kubelet's list says of it."""

    def devices(name: str) -> tuple[exporter.Devices, ...]:
        ids = held.devices.held.get(pod.uid, {}).get(name, {})
        return tuple(
            exporter.Devices(each.resource, (each.id,), each.cells)
            for each in node.machine.devices
            if each.id in ids.get(each.resource, ())
        )

    containers = [*(each for each in pod.init if each.is_sidecar), *pod.containers]
    return exporter.ListedPod(
        pod.namespace,
        pod.name,
        tuple(
            exporter.Container(
                name=each.name,
                cpus=tuple(sorted(held.cpus.held.get(pod.uid, {}).get(each.name, ()))),
                memory=_blocks(held.memory.held.get(pod.uid, {}).get(each.name, ())),
                devices=devices(each.name),
            )
            for each in containers
        ),
    )


def _states(node: Node, held: ManagerStates, pods: Collection[Pod]) -> exporter.Checkpoints:
    there = {pod.uid for pod in pods}
    over = (blocks for uid, by_name in held.memory.held.items() if uid not in there for blocks in by_name.values())
    cells = tuple(
        exporter.ZoneMemoryState(cell, name, table.allocatable, table.free, tuple(sorted(state.group)))
        for cell, state in sorted(held.memory.cells.items())
        for name, table in sorted(state.tables.items())
    )
    policy = node.configuration.memory_policy
    return exporter.Checkpoints(
        cpu=exporter.CpuCheckpoint(node.configuration.cpu_policy, held.cpus.shared),
        memory=exporter.MemoryCheckpoint(policy, cells, tuple(each for blocks in over for each in _blocks(blocks))),
    )


def _blocks(blocks: Iterable[memory_manager.Block]) -> tuple[exporter.MemoryBlock, ...]:
    return tuple(exporter.MemoryBlock(each.resource, each.size, each.cells) for each in blocks)
