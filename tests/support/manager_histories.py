"""Random histories of pods on nodes whose kubelet's own managers decide, and what we say of each pod beforehand.

Steps are a pod that comes or ends, containers that are created, and a restart of the kubelet. Machines have up to four
zones with CPUs, one to four of them in a socket, cores with one thread among cores with two, reserved CPUs that leave a
part of their core, and devices of one zone, of none, and of zones that the machine does not have; kubelets have any
policy, any scope, and options of their version. What is published is made of what the managers wrote.
"""

import json
import random
import subprocess
from collections.abc import Collection, Mapping, Sequence
from fractions import Fraction
from typing import Any, Final, Self

import kubelet_chances
import msgspec
import scheduling_chances as chances

from polyarch.numa.api.topology import NodeResourceTopology
from polyarch.numa.exporter.topology_document import topology_document
from polyarch.numa.exporter.zones import node_zones
from polyarch.numa.facts import Container, ScanSettings
from polyarch.numa.fit.demand import PodDemandCache
from polyarch.numa.fit.evaluate import evaluate
from polyarch.numa.fit.facts import POD, ExactOptions, FitDecision, NodeFacts, is_memory, node_facts
from polyarch.numa.fit.zones import FreeResources, smallest_memory_zones
from polyarch.sandbox.kubelet_model import cpu_manager, machine, requests
from polyarch.sandbox.kubelet_model.admission import ManagerStates, at_first
from polyarch.sandbox.kubelet_model.cpu_manager import CpuManagerState
from polyarch.sandbox.kubelet_model.device_manager import DeviceManagerState
from polyarch.sandbox.kubelet_model.machine import Cpu, Device, Machine, Node, SimulatedZone, TopologyPolicy
from polyarch.sandbox.kubelet_model.requests import Pod
from polyarch.sandbox.nodes import kubelet_files

Json = dict[str, Any]
Options = Mapping[str, str]
FULL, NUMA, SOCKET = "full-pcpus-only", "distribute-cpus-across-numa", "align-by-socket"
CORES, STRICT, UNCORE = "distribute-cpus-across-cores", "strict-cpu-reservation", "prefer-align-cpus-by-uncorecache"
CPU_OPTIONS: Final[Mapping[str, Sequence[Sequence[str]]]] = {
    "1.30": [(), (), (FULL,), (FULL,), (NUMA,), (SOCKET,), (FULL, NUMA), (NUMA, SOCKET), (FULL, NUMA, SOCKET)],
    "1.36": [
        *((), (), (FULL,), (FULL,), (NUMA,), (SOCKET,), (CORES,), (STRICT,), (UNCORE,), (FULL, NUMA), (FULL, UNCORE)),
        *((NUMA, SOCKET), (FULL, STRICT), (CORES, SOCKET), (SOCKET, UNCORE), (FULL, NUMA, SOCKET, STRICT)),
    ],
}
"""By version of the kubelet: what it takes together."""


def options_of(version: str, policy: TopologyPolicy) -> set[str]:
    """Those that kubelets are played with."""
    found = {name for together in CPU_OPTIONS[version] for name in together}
    found |= {"prefer-closest-numa-nodes", *(["max-allowable-numa-nodes"] if version != "1.30" else [])}
    return found - {SOCKET} if policy == "single-numa-node" else found


class KubeletManagers:
    """The program with the kubelet's managers, step by step. Use as a context manager."""

    def __init__(self, program: str) -> None:
        self._program = program

    def __enter__(self) -> Self:
        self._process = subprocess.Popen([self._program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        return self

    def __exit__(self, *_: object) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait(30)
        assert self._process.stdout is not None
        self._process.stdout.close()

    def ask(self, line: Json) -> Any:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(f"{json.dumps(line)}\n")
        self._process.stdin.flush()
        return json.loads(self._process.stdout.readline())


class PlayedNode(msgspec.Struct, frozen=True):
    """A machine with its kubelet. The options are beside those that ``node`` has."""

    version: str
    node: Node
    cpu_options: Options = {}
    topology_options: Options = {}
    is_blind: bool = False
    """What is published says that nothing is used."""

    def case(self) -> Json:
        document = kubelet_chances.case(self.node, [])
        document["configuration"] |= {"cpuOptions": self.cpu_options, "topologyOptions": self.topology_options}
        document["machine"]["devices"] = [
            {"resource": each.resource, "id": each.id, "nodes": list(each.cells) if each.cells else None}
            for each in self.node.machine.devices
        ]
        return document

    def published(self, held: ManagerStates, pods: Sequence[Pod]) -> NodeFacts:
        """What a scheduler knows after the exporter's next scan."""
        if self.is_blind:
            held, pods = at_first(self.node), ()
        facts = chances.exporter_facts(self.node, held, pods)
        kubelet = msgspec.structs.replace(
            facts.kubelet,
            cpu_manager_options=tuple(self.cpu_options.items()),
            topology_options=tuple(self.topology_options.items()),
        )
        facts = msgspec.structs.replace(
            facts,
            kubelet=kubelet,
            checkpoints=msgspec.structs.replace(facts.checkpoints, pods=self._checkpoint(held, pods)),
        )
        settings = ScanSettings()
        document = topology_document(facts, node_zones(facts, settings, "worker"), settings, refresh_period=10.0)
        sums = {name: str(int(amount)) for name, amount in machine.allocatable(self.node).items()}
        return node_facts("worker", msgspec.convert(document, NodeResourceTopology), sums, f"v{self.version}.0")

    def _checkpoint(self, held: ManagerStates, pods: Sequence[Pod]) -> tuple[tuple[Container, ...], ...]:
        """Of all containers, also the init containers that have ended."""
        named = [msgspec.structs.replace(pod, init=(), containers=pod.all) for pod in pods]
        listed = (chances.listed(self.node, held, pod) for pod in named)
        return tuple(tuple(msgspec.structs.replace(each, cpus=()) for each in pod.containers) for pod in listed)


def played_node(chance: random.Random, policy: TopologyPolicy, version: str) -> PlayedNode:
    node = chances.node(chance, policy=policy, most_cells=4)
    found = _machine(chance, width=2 if policy in ("none", "best-effort") else chance.choice((1, 2, 2)))
    cpus = len(found.cpus)
    reserved = cpu_manager.packed(found, found.by_id, min(cpus - 1, found.threads * chance.choice((1, 1, 2))))
    if chance.random() < 0.25 and cpus > 2:
        reserved = frozenset(chance.sample(sorted(found.by_id), chance.choice((1, 2))))
    configuration = msgspec.structs.replace(
        node.configuration,
        prefer_closest=False,
        full_cores_only=False,
        reserved_cpus=reserved,
        reserved_memory={chance.choice(found.cell_ids): {"memory": chances.GI}},
    )
    options: Sequence[str] = chance.choice(CPU_OPTIONS[version]) if configuration.cpu_policy == "static" else ()
    if policy in ("none", "best-effort") and configuration.cpu_policy == "static" and chance.random() < 0.7:
        options = (FULL,)
    chosen = dict.fromkeys(options, "true")
    if policy == "single-numa-node":
        chosen.pop(SOCKET, None)
    topology_options = {"prefer-closest-numa-nodes": "true"} if chance.random() < 0.3 else {}
    if chance.random() < 0.2 and version != "1.30":
        topology_options["max-allowable-numa-nodes"] = str(chance.choice((8, 16)))
    return PlayedNode(version, Node(found, configuration), chosen, topology_options)


def _machine(chance: random.Random, *, width: int) -> Machine:
    count = chance.choice((1, 2, 2, 3, 4, 4))
    ids = sorted(chance.sample(range(count + 2), count)) if chance.random() < 0.2 else list(range(count))
    in_socket = chance.choice([each for each in (1, 2, 4) if count % each == 0])
    cores = chance.choice((2, 2, 4, 6))
    is_hybrid = width == 2 and chance.random() < 0.2
    cpus: list[Cpu] = []
    for position, zone in enumerate(ids):
        for number in range(cores):
            threads = 1 if is_hybrid and number >= cores // 2 else width
            first = len(cpus)
            cpus += [Cpu(first + thread, first, position // in_socket, zone) for thread in range(threads)]
    pages = chance.random() < 0.4
    zones = tuple(
        SimulatedZone(
            id=zone,
            memory=chance.choice((8, 16, 16)) * chances.GI,
            pages={chances.PAGE: chance.choice((512, 1024))} if pages else {},
            distances=tuple(10 if zone == other else chance.choice((12, 21, 21, 30)) for other in ids),
        )
        for zone in ids
    )
    return Machine(cells=zones, cpus=tuple(cpus), devices=tuple(_devices(chance, ids)))


def _devices(chance: random.Random, ids: Sequence[int]) -> list[Device]:
    """Of a quarter of the resources some or all devices are of no zone, or of zones that the machine does not have."""
    found = []
    for resource in (chances.NIC, chances.GPU):
        kind = chance.random()
        if kind < 0.5:
            continue
        odd: Sequence[tuple[int, ...]] = ((),) if kind < 0.6 else ((-1,), (max(ids) + 1,), (-1, max(ids) + 7))
        share = 0.0 if kind >= 0.75 else chance.choice((0.5, 1.0))
        for zone in ids:
            for number in range(chance.choice((0, 1, 2, 4))):
                zones = chance.choice(odd) if chance.random() < share else (zone,)
                found.append(Device(resource, f"{resource[-3:]}-{zone}-{number}", zones))
    return found


# -- playing -----------------------------------------------------------------------------------------------------------


class Verdict(msgspec.Struct, frozen=True, kw_only=True):
    """One pod: what we said, and what the kubelet did."""

    place: str
    played: PlayedNode
    pod: Pod
    facts: NodeFacts
    decision: FitDecision
    reason: str
    message: str
    cpus: Mapping[int, int]
    """CPUs that the pod now holds, by zone."""
    is_doubled: bool
    """The kubelet has given a CPU to two pods: where cores have one thread and two, it takes half of a core for one
    that is free."""
    is_mixed: bool
    """Blocks of one zone and of several lie side by side, so that zones disagree about their group."""

    @property
    def differs(self) -> str:
        """Empty: both say the same."""
        if self.decision.fits and self.reason:
            return f"fits, refused with {self.reason}"
        return "" if self.decision.fits or self.reason else f"{self.decision.kind}, admitted"

    @property
    def kind(self) -> str:
        """Policy, scope, options and outcome."""
        configuration = self.played.node.configuration
        options = "+".join((*self.played.cpu_options, *self.played.topology_options))
        return f"{configuration.topology_policy}/{configuration.topology_scope} {options}: {self.reason or 'admitted'}"

    @property
    def is_excused(self) -> bool:
        """What no object tells: where cores have one thread and two, which CPUs are left; of mixed blocks, which before
        1.32 a kubelet allows, in which order they came. And in scope ``pod`` memory that fits no set of zones as a
        whole: the memory manager then has no hint at all, which counts as no preference, and each container gets its
        memory from wherever there is some. We insist on what the policy promises."""
        cores = [cpu.core for cpu in self.played.node.machine.cpus]
        is_hybrid = len({cores.count(core) for core in cores}) > 1
        is_apart = self.decision.container == POD and not self.reason and self._memory_fits_nowhere
        return (
            self.is_doubled
            or is_apart
            or (is_hybrid and bool(self.played.cpu_options))
            or (self.is_mixed and self.facts.may_mix_blocks)
        )

    @property
    def _memory_fits_nowhere(self) -> bool:
        needs = (each.needs for each in PodDemandCache(chances.facts_of(self.pod)).on(self.facts).units)
        memory = [{name: amount for name, amount in each.items() if is_memory(name)} for each in needs]
        room = FreeResources(self.facts, {}, ())
        return any(each and smallest_memory_zones(each, room) is None for each in memory)

    @property
    def is_sure(self) -> bool:
        """The pod is of one container on cells that the kubelet prefers, of which none is known to be split."""
        is_alone = len(self.pod.all) == 1 and len(next(iter(self.decision.cells.values()), ())) == 1
        return is_alone and self.decision.score > 0 and not self.facts.settings.has_cpu_option(SOCKET)

    def described(self, steps: Sequence["Step"]) -> str:
        """The case, for who looks into it."""
        lines = [json.dumps(self.played.case())]
        for each in steps:
            pod = json.dumps(chances.pod_document(each.pod)) if each.pod is not None else each.uid
            lines.append(f"{each.do} {pod}")
        lines += [str(each) for each in self.facts.cells]
        return "\n".join([*lines, f"said: {self.decision.message or self.decision.cells}"])

    @property
    def misplaced(self) -> str:
        """Empty: the CPUs are where we said."""
        if not self.decision.fits or self.reason or not self.decision.taken:
            return ""
        said = {zone: amounts["cpu"] // 1000 for zone, amounts in self.decision.taken.items() if amounts.get("cpu")}
        return "" if said == self.cpus else f"CPUs said {said}, given {dict(self.cpus)}"


class Step(msgspec.Struct, frozen=True):
    """``admit`` with a pod; ``over`` or ``created`` with a uid; ``restart``."""

    do: str
    uid: str = ""
    pod: Pod | None = None


class Player:
    """One kubelet, from its start. Raises ``CannotStart`` with what the kubelet says."""

    def __init__(self, managers: KubeletManagers, played: PlayedNode, place: str) -> None:
        self._managers, self._played, self._place = managers, played, place
        self._held = at_first(played.node)
        self._unseen: dict[str, Mapping[int, Mapping[str, int]]] = {}
        self.pods: list[Pod] = []
        self._is_doubled = False
        self.has_ended = False
        """Its kubelet refuses what it has admitted before: there is nothing to go on with."""
        opened = managers.ask(played.case())
        if isinstance(opened, dict):
            raise CannotStart(opened["error"])

    def do(self, step: Step) -> Verdict | None:
        """A pod that is judged gives a verdict. What the node has no room for is left out."""
        if step.pod is not None:
            return self._admit(step.pod) if chances.has_room(self._played.node, step.pod, self.pods) else None
        some = next((each for each in self.pods if each.uid == step.uid), None)
        if step.do == "restart":
            answer = self._managers.ask({"do": "restart"})
            self.has_ended = bool(answer["reason"])
            if self.has_ended:
                return None
        elif some is None:
            return None
        elif step.do == "over":
            self.pods.remove(some)
            answer = self._managers.ask({"do": "over", "uid": step.uid})
        else:
            for each in some.all:
                answer = self._managers.ask({"do": "created", "uid": step.uid, "container": each.name})
        self._held = remembered(self._played.node, answer)
        return None

    def _admit(self, pod: Pod) -> Verdict:
        played, node = self._played, self._played.node
        there = {each.uid for each in self.pods}
        # A kubelet frees CPUs of pods that are over every few seconds, their memory when the next pod comes.
        seen = msgspec.structs.replace(self._held, cpus=cpu_manager.forget(self._held.cpus, there))
        is_mixed = _is_mixed(self._held, there)
        facts = played.published(seen, self.pods)
        free = {each.id: dict(each.available) for each in facts.cells}
        for other in self.pods:
            _keep(free, self._unseen.get(other.uid, {}) if not _is_listed(node, self._held, other) else {})
        decision = evaluate(chances.facts_of(pod), facts, free, ExactOptions())
        answer = self._managers.ask({"do": "admit", "pod": chances.pod_document(pod)})
        self._held = remembered(node, answer)
        self._is_doubled |= _is_doubled(self._held)
        own = self._held.cpus.held.get(pod.uid, {}).values() if not answer["reason"] else ()
        zones = [node.machine.by_id[cpu].cell for cpu in frozenset().union(*own)]
        if not answer["reason"]:
            self.pods.append(pod)
            self._unseen[pod.uid] = decision.unseen
        return Verdict(
            place=f"{self._place} {pod.name}",
            played=played,
            pod=pod,
            facts=facts,
            decision=decision,
            reason=answer["reason"],
            message=answer["message"],
            cpus={zone: zones.count(zone) for zone in sorted(set(zones))},
            is_mixed=is_mixed,
            is_doubled=self._is_doubled,
        )


class CannotStart(Exception):  # noqa: N818  what happened
    """A kubelet does not take this configuration."""


def play(
    managers: KubeletManagers, chance: random.Random, played: PlayedNode, place: str
) -> tuple[list[Step], list[Verdict]]:
    """Random steps. Raises CannotStart."""
    player = Player(managers, played, place)
    steps: list[Step] = []
    verdicts: list[Verdict] = []
    for number in range(chance.randint(5, 14)):
        choice = chance.random()
        if player.pods and choice < 0.2:
            step = Step("over", chance.choice(player.pods).uid)
        elif player.pods and choice < 0.3:
            step = Step("created", chance.choice(player.pods).uid)
        elif player.pods and choice < 0.34:
            step = Step("restart")
        else:
            step = Step("admit", pod=_pod(chance, number, played))
        steps.append(step)
        verdict = player.do(step)
        if verdict is not None:
            verdicts.append(verdict)
        if player.has_ended:
            break
    return steps, verdicts


def shrunk(
    managers: KubeletManagers, played: PlayedNode, steps: Sequence[Step], pod: str
) -> tuple[list[Step], Verdict]:
    """The fewest of the steps after which this pod is still judged in another way than the kubelet's."""
    last = next(index for index, each in enumerate(steps) if each.pod is not None and each.pod.name == pod)
    left = list(steps[: last + 1])
    found = _replayed(managers, played, left)
    for index in reversed(range(last)):
        fewer = [*left[:index], *left[index + 1 :]]
        again = _replayed(managers, played, fewer)
        if again is not None and again.differs:
            left, found = fewer, again
    assert found is not None
    return left, found


def _replayed(managers: KubeletManagers, played: PlayedNode, steps: Sequence[Step]) -> Verdict | None:
    """What the last one gives."""
    player, found = Player(managers, played, "again"), None
    for each in steps:
        found = player.do(each)
    return found


def _is_doubled(held: ManagerStates) -> bool:
    """A CPU is in the shared pool and of a pod, or of two pods."""
    seen = set(held.cpus.shared)
    for by_container in held.cpus.held.values():
        own = frozenset().union(*by_container.values())
        if not seen.isdisjoint(own):
            return True
        seen |= own
    return False


def _is_mixed(held: ManagerStates, there: Collection[str]) -> bool:
    """A zone has blocks of its own and blocks that it shares, or shares with several."""
    sets: dict[int, set[tuple[int, ...]]] = {}
    for uid, by_container in held.memory.held.items():
        for block in (each for blocks in by_container.values() for each in blocks if uid in there):
            for zone in block.cells:
                sets.setdefault(zone, set()).add(block.cells)
    return any(len(each) > 1 for each in sets.values())


def _pod(chance: random.Random, number: int, played: PlayedNode) -> Pod:
    """Where policies refuse nothing, mostly one that managers may refuse. 1.30 has no ``spec.resources`` of pods."""
    pod = chances.pod(chance, number, played.node)
    if played.version == "1.30":
        pod = msgspec.structs.replace(pod, pod_requests=None, pod_limits={})
    if played.node.configuration.topology_policy not in ("none", "best-effort") or chance.random() < 0.2:
        return pod
    machine = played.node.machine
    cpus = chance.randint(1, max(1, len(machine.cpus) // machine.threads)) * machine.threads
    cpus -= chance.choice((0, 1, 1)) if machine.threads > 1 else 0
    init = tuple(_with_cpus(each, cpus) for each in pod.init)
    return msgspec.structs.replace(pod, init=init, containers=tuple(_with_cpus(each, cpus) for each in pod.containers))


def _with_cpus(container: requests.Container, cpus: int) -> requests.Container:
    if container.requests.get("cpu", 0) < 1 or container.requests != container.limits:
        return container
    amounts = {**container.requests, "cpu": Fraction(cpus)}
    return msgspec.structs.replace(container, requests=amounts, limits=amounts)


def _is_listed(node: Node, held: ManagerStates, pod: Pod) -> bool:
    """Whether the kubelet's list has memory or devices of it, by which its exporter knows its files."""
    return any(each.memory or each.devices for each in chances.listed(node, held, pod).containers)


def _keep(free: dict[int, dict[str, int]], unseen: Mapping[int, Mapping[str, int]]) -> None:
    """What reservations keep, since no exporter shows it."""
    for zone, amounts in unseen.items():
        for name, amount in amounts.items():
            free[zone][name] -= amount


def remembered(node: Node, answer: Json) -> ManagerStates:
    """What the kubelet wrote."""
    cpus, memory = answer["cpu"], json.dumps(answer["memory"], separators=(",", ":"))
    held = {
        uid: {name: kubelet_files.parse_cpulist(each) for name, each in by_container.items()}
        for uid, by_container in (cpus.get("entries") or {}).items()
    }
    is_static = cpus["policyName"] == "static"
    devices = {
        uid: {name: {each: frozenset(ids) for each, ids in held.items()} for name, held in by_name.items()}
        for uid, by_name in (answer["devices"] or {}).items()
    }
    return ManagerStates(
        CpuManagerState(kubelet_files.parse_cpulist(cpus["defaultCpuSet"]), held)
        if is_static
        else cpu_manager.at_first(node),
        kubelet_files.read_memory(node, memory),
        DeviceManagerState(devices),
    )
