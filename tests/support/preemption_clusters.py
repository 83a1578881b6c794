"""Random small clusters with important pods that find them full, played with the real kube-scheduler and the extender.

All clusters share one control plane: each has nodes of its own, which its pods select. Nodes are played by the kubelet
model and publish what an exporter would. The judge knows nothing of the extender's rules: it tries subsets of pods in
the kubelet model of a node as it was when the first of the victims was evicted.
"""

import asyncio
import contextlib
import json
import os
import random
import signal
import sys
import time
from collections.abc import AsyncIterator, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from itertools import combinations
from pathlib import Path
from typing import Any, Final, NamedTuple

import msgspec
from bench.cell_scheduling import prepare
from bench.celled_nodes import CelledNodes, Kubelet, in_groups
from scheduling_chances import exporter_facts
from stock_scheduler import own_addresses

from polyarch.kube.client import Client
from polyarch.kube.errors import NotFound
from polyarch.kube.patches import MergePatch
from polyarch.kube.resources import EVENTS, NODES, POD_DISRUPTION_BUDGETS, PODS, PRIORITY_CLASSES
from polyarch.numa.api.resources import SchedulerSettings
from polyarch.numa.api.topology import TOPOLOGIES
from polyarch.numa.exporter.topology_document import topology_document
from polyarch.numa.exporter.zones import node_zones
from polyarch.numa.extender.preemption import BETWEEN
from polyarch.numa.facts import ScanSettings
from polyarch.numa.names import EXTENDER_PORT, STATUS_PORT
from polyarch.operator.components.numa_scheduler_objects import extender_configuration, scheduler_configuration, text
from polyarch.sandbox import processes
from polyarch.sandbox.cluster import Sandbox
from polyarch.sandbox.kubelet_model import admission
from polyarch.sandbox.kubelet_model.admission import ManagerStates
from polyarch.sandbox.kubelet_model.layout import NumaLayout, node
from polyarch.sandbox.kubelet_model.machine import Node
from polyarch.sandbox.kubelet_model.requests import Pod as Asked
from polyarch.sandbox.nodes.pods import Pod, pod_request
from polyarch.sandbox.pods.programs import (
    NAME,
    PROGRAM,
    SchedulerPodContext,
    pod_scheduler_configuration,
    scheduler_command,
)
from polyarch.sandbox.pods.spec import Container
from polyarch.sandbox.state import Settings
from polyarch.sandbox.tasks import together

NAMESPACE: Final = "cells"
OURS: Final = "topo-aware-scheduler"
CLUSTER: Final = "tests/cluster"
PRIORITIES: Final = (0, 1, 2, 3, 100, 1000)
NEVER: Final = "never"
"""A class of high priority whose pods must not preempt."""
QUIET_SECONDS: Final = 20.0
"""kube-scheduler tries a pod again after ten seconds at most, and the extender passes over a node for five."""
MOST_SECONDS: Final = 900.0
MOST_TRIED: Final = 12
"""Pods of a node of which the judge tries all subsets."""
ENDS_AFTER: Final = "tests/ends-after"
OWNED: Final = "tests/owned"
Json = dict[str, Any]


class PlayedKubelet(Kubelet):
    """Publishes what the exporter would, with placement vectors."""

    def topology(self) -> Json:
        facts, settings = (
            exporter_facts(self.model, self.held, list(self.pods.values())),
            ScanSettings(placement_vectors=True),
        )
        found = topology_document(facts, node_zones(facts, settings, self.name), settings, refresh_period=10.0)
        return {key: found[key] for key in ("topologyPolicies", "attributes", "zones") if key in found}


class Cluster(NamedTuple):
    """What a cluster is made of: nodes with their models, pods with the node that each begins on, budgets with what
    they allow, and pods that come later."""

    name: str
    nodes: Mapping[str, Node]
    residents: Sequence[tuple[str, Json]]
    budgets: Mapping[str, int]
    comers: Sequence[Json]


def pod(
    name: str,
    cluster: str,
    cpu: str,
    memory: str = "512Mi",
    *,
    priority: str = "p-0",
    scheduler: str = OURS,
    is_guaranteed: bool = True,
    labels: Mapping[str, str] | None = None,
    ends_after: float = 0,
    is_owned: bool = False,
    port: int = 0,
    **spec: Any,
) -> Json:
    """A pod of one container; ``is_owned``: one that is gone comes again."""
    amounts = {"cpu": cpu, "memory": memory}
    container: Json = {
        "name": "app",
        "image": "registry.example/app:1",
        "resources": {"limits": amounts} if is_guaranteed else {"requests": amounts},
    }
    if port:
        container["ports"] = [{"containerPort": port, "hostPort": port}]
    annotations = {ENDS_AFTER: str(ends_after)} | ({OWNED: "yes"} if is_owned else {})
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "labels": {CLUSTER: cluster, **(labels or {})}, "annotations": annotations},
        "spec": {
            "schedulerName": scheduler,
            "priorityClassName": priority,
            "nodeSelector": {CLUSTER: cluster},
            "terminationGracePeriodSeconds": 60 if ends_after else 0,
            "automountServiceAccountToken": False,
            "containers": [container],
            **spec,
        },
    }


def random_cluster(seed: int) -> Cluster:
    """One to three nodes, mostly full of pods of low priority; one to three important pods, some of them impossible."""
    chance = random.Random(seed)
    name = f"c{seed:04}"
    policy = chance.choice(("single-numa-node", "single-numa-node", "single-numa-node", "restricted", "best-effort"))
    layout = f"{chance.choice((1, 2, 2, 2, 3))}x{chance.choice((4, 6, 8))},policy={policy}"
    layout += f",scope={chance.choice(('container', 'pod'))}"
    model = node(NumaLayout.parse(layout))
    nodes = {f"{name}-{number}": model for number in range(chance.choice((1, 1, 2, 2, 3)))}
    of_zone = len(model.machine.cpus) // len(model.machine.cells)
    guards = {f"{name}-guard-{number}": chance.choice((0, 0, 1, 2)) for number in range(chance.choice((0, 0, 1, 2)))}
    residents = []
    for number in range(chance.randint(3, 7) * len(nodes) * len(model.machine.cells)):
        guard = chance.choice([*guards, "", ""]) if guards else ""
        residents.append(
            (
                chance.choice(list(nodes)),
                _random_pod(
                    chance,
                    f"{name}-low-{number}",
                    name,
                    of_zone,
                    priority=f"p-{chance.choice((0, 0, 1, 2, 3))}",
                    scheduler=chance.choice((OURS, OURS, OURS, OURS, "others")),
                    labels={"guard": guard} if guard else {},
                    ends_after=chance.choice((0, 0, 0, 1, 3)),
                    is_owned=chance.random() < 0.5,
                ),
            )
        )
    comers = [
        _random_pod(
            chance,
            f"{name}-high-{number}",
            name,
            2 * of_zone if chance.random() < 0.15 else of_zone,
            priority=chance.choice(("p-100", "p-100", "p-1000", "p-3", NEVER)),
            is_large=True,
        )
        for number in range(chance.choice((1, 1, 2, 3)))
    ]
    return Cluster(name, nodes, residents, guards, comers)


def _random_pod(
    chance: random.Random, name: str, cluster: str, most: int, *, is_large: bool = False, **more: Any
) -> Json:
    is_guaranteed = chance.random() < 0.8
    if is_large:
        whole = chance.randint(max(1, most // 2), most)
    else:
        whole = chance.randint(1, max(1, most // 2 if chance.random() < 0.8 else most - 1))
    memory = f"{chance.choice((1, 1, 2, 4, 8 if is_large else 2))}Gi"
    port = 7070 if chance.random() < 0.08 else 0
    cpu = str(whole) if is_guaranteed or chance.random() < 0.5 else f"{whole * 1000 - 500}m"
    return pod(name, cluster, cpu, memory, is_guaranteed=is_guaranteed, port=port, **more)


class Seen(NamedTuple):
    """A node just before the first sign of an eviction."""

    node: str
    at: float
    pods: Mapping[str, Asked]
    held: ManagerStates


class Played(CelledNodes):
    """All nodes of all clusters, and what was evicted from them."""

    def __init__(self, client: Client, clusters: Iterable[Cluster]) -> None:
        self.moved = time.monotonic()
        self.clusters = {each.name: each for each in clusters}
        kubelets = [
            PlayedKubelet(name, model, {CLUSTER: each.name})
            for each in self.clusters.values()
            for name, model in each.nodes.items()
        ]
        super().__init__(client, kubelets, changed=self._note)
        self.client = client
        self.documents: dict[str, Json] = {}
        """By uid, each pod that was ever created."""
        self.places: dict[str, str] = {}
        """By uid, the node that admitted the pod."""
        self.evicted: dict[str, Seen] = {}
        self.is_judged = False
        self._ending: dict[str, asyncio.Task[None]] = {}
        self._again: set[asyncio.Task[None]] = set()

    def _note(self) -> None:
        self.moved = time.monotonic()

    async def create(self, document: Json, **spec: Any) -> str:
        """The uid."""
        wanted = {**document, "spec": {**document["spec"], **spec}}
        uid = (await self.client.create(PODS, wanted, namespace=NAMESPACE)).metadata.uid
        self.documents[uid] = document
        self._note()
        return uid

    async def _admit(self, kubelet: Kubelet, pod: Pod) -> None:
        await super()._admit(kubelet, pod)
        if pod.metadata.uid in kubelet.pods:
            self.places[pod.metadata.uid] = kubelet.name

    def _sign(self, name: str, uid: str) -> None:
        kubelet = self.kubelets[name]
        self._note()
        if self.is_judged and uid in kubelet.pods and uid not in self.evicted:
            self.evicted[uid] = Seen(name, time.monotonic(), dict(kubelet.pods), kubelet.held)

    async def ends(self, pod: Pod) -> None:
        uid = pod.metadata.uid
        if uid in self._ending:
            return
        self._sign(pod.spec.node_name, uid)
        self._ending[uid] = asyncio.ensure_future(self._end(pod))

    async def _end(self, pod: Pod) -> None:
        await asyncio.sleep(float((pod.metadata.annotations or {}).get(ENDS_AFTER, "0")))
        with contextlib.suppress(NotFound):
            await self.client.delete(PODS, pod.metadata.name, namespace=NAMESPACE, grace_period_seconds=0)

    def _over(self, node: str, uid: str) -> None:
        self._sign(node, uid)
        super()._over(node, uid)
        document = self.documents.get(uid, {})
        if self.is_judged and OWNED in document.get("metadata", {}).get("annotations", {}):
            task = asyncio.ensure_future(self._replace(document))
            self._again.add(task)
            task.add_done_callback(self._again.discard)

    async def _replace(self, document: Json) -> None:
        """As the owner of the pod would."""
        name = f"{document['metadata']['name'].partition('-again-')[0]}-again-{len(self.documents)}"
        await self.create({**document, "metadata": {**document["metadata"], "name": name}})

    async def settle(self, *, fragments: bool = True) -> None:
        """Make the pods that are there from the beginning; some of them go again, so that zones are in pieces."""
        everything = [each for cluster in self.clusters.values() for each in cluster.residents]
        for group in in_groups(everything, 32 if fragments else 1):
            await together(self.create(document, nodeName=name) for name, document in group)
            while not fragments and len(self.places) < len(self.documents):
                await asyncio.sleep(0.05)
        await self.rest(1.0)
        refused = [uid for uid in self.documents if uid not in self.places]
        chance = random.Random(len(self.documents))
        gone = chance.sample(sorted(self.places), len(self.places) // 5) if fragments else []
        for uids in in_groups([*refused, *gone], 32):
            await together(self._delete(uid) for uid in uids)
        self.refused.clear()
        for cluster in self.clusters.values():
            for name, allowed in cluster.budgets.items():
                await self._guard(name, allowed)
        await self.rest(3.0)
        self.is_judged = True

    async def _delete(self, uid: str) -> None:
        name = self.documents[uid]["metadata"]["name"]
        await self.client.delete(PODS, name, namespace=NAMESPACE, grace_period_seconds=0)
        self.places.pop(uid, None)
        del self.documents[uid]

    async def _guard(self, name: str, allowed: int) -> None:
        """A disruption budget whose controller is played, too."""
        document = {
            "metadata": {"name": name},
            "spec": {"selector": {"matchLabels": {"guard": name}}, "minAvailable": 1},
        }
        await self.client.create(POD_DISRUPTION_BUDGETS, document, namespace=NAMESPACE)
        await self.allow(name, allowed)

    async def allow(self, name: str, allowed: int) -> None:
        counts = {"disruptionsAllowed": allowed, "currentHealthy": 1, "desiredHealthy": 9, "expectedPods": 9}
        status = MergePatch({"status": {**counts, "observedGeneration": 1}})
        await self.client.patch(POD_DISRUPTION_BUDGETS, name, status, namespace=NAMESPACE, subresource="status")

    async def come(self) -> None:
        """The important pods."""
        comers = [each for cluster in self.clusters.values() for each in cluster.comers]
        random.Random(len(comers)).shuffle(comers)
        for group in in_groups(comers, 8):
            await together(self.create(each) for each in group)

    async def rest(self, seconds: float = QUIET_SECONDS) -> None:
        """Until nothing has moved for so long."""
        self._note()
        begun = time.monotonic()
        while time.monotonic() < begun + MOST_SECONDS:
            await asyncio.sleep(0.2)
            if not self.is_published or not all(each.done() for each in self._ending.values()):
                self._note()
            if time.monotonic() > self.moved + seconds:
                return
        raise TimeoutError(f"something still moves after {MOST_SECONDS:.0f} s")


# -- the judge ---------------------------------------------------------------------------------------------------------


class Preemption(NamedTuple):
    """What was evicted for one pod from one node."""

    pod: str
    node: str
    victims: tuple[str, ...]
    before: Seen
    """With all victims."""


class Findings(NamedTuple):
    preemptions: Sequence[Preemption]
    faults: Sequence[str]
    """Sentences: evictions for nothing, pods that wait for nothing, budgets that were broken."""
    stalled: Sequence[str]
    """Those of them about pods that wait for nothing."""
    better: int
    """Preemptions for which the judge found victims that come before in kube-scheduler's order."""
    waiting: int


async def judge(played: Played) -> Findings:
    """What became of everybody. A pod may wait for its next attempt: whoever seems to wait for nothing is looked at
    again after it."""
    found = await _judged(played)
    if found.stalled:
        await played.rest(BETWEEN + QUIET_SECONDS)
        found = await _judged(played)
    return found


async def _judged(played: Played) -> Findings:
    judging = _Judge(played, await _present(played.client), await _allowed(played.client))
    found = list(judging.preemptions(await _preemptors(played.client)))
    stalled = list(judging.waits_for_nothing())
    faults = [*judging.unexplained(found), *judging.for_nothing(found), *stalled, *judging.refused()]
    return Findings(found, faults, stalled, sum(judging.is_beaten(each) for each in found), len(judging.pending))


async def _present(client: Client) -> Mapping[str, Json]:
    return {each["metadata"]["uid"]: each for each in (await client.list(PODS, namespace=NAMESPACE)).items}


async def _allowed(client: Client) -> Mapping[str, int]:
    """By budget, the evictions that are still allowed."""
    found = (await client.list(POD_DISRUPTION_BUDGETS, namespace=NAMESPACE)).items
    return {each["metadata"]["name"]: each.get("status", {}).get("disruptionsAllowed", 0) for each in found}


async def _preemptors(client: Client) -> Mapping[str, str]:
    """By uid of the victim, the uid of the pod that it went for."""
    events = (await client.list(EVENTS, namespace=NAMESPACE)).items
    return {each["regarding"]["uid"]: each["related"]["uid"] for each in events if each["reason"] == "Preempted"}


def asked(document: Json, uid: str) -> Asked:
    """The pod as a kubelet reads it."""
    made = msgspec.convert({**document, "metadata": {**document["metadata"], "uid": uid}}, Pod)
    limits = made.containers[0].resources.limits if made.containers[0].resources else None
    if limits:  # the API server adds the requests
        container = document["spec"]["containers"][0]
        whole = {**container, "resources": {"limits": limits, "requests": limits}}
        spec = {**document["spec"], "containers": [whole]}
        made = msgspec.convert({"metadata": {**document["metadata"], "uid": uid}, "spec": spec}, Pod)
    return pod_request(made)


class _Judge:
    def __init__(self, played: Played, present: Mapping[str, Json], allowed: Mapping[str, int]) -> None:
        self._played = played
        self._allowed = allowed
        self._priority = {f"p-{each}": each for each in PRIORITIES} | {NEVER: 1000}
        self.pending = [uid for uid, each in present.items() if not each["spec"].get("nodeName")]

    def priority(self, uid: str) -> int:
        return self._priority[self._played.documents[uid]["spec"]["priorityClassName"]]

    def name(self, uid: str) -> str:
        return str(self._played.documents[uid]["metadata"]["name"])

    def preemptions(self, preemptors: Mapping[str, str]) -> Iterator[Preemption]:
        together_: dict[tuple[str, str], list[str]] = {}
        for victim, seen in self._played.evicted.items():
            if victim in preemptors:
                together_.setdefault((preemptors[victim], seen.node), []).append(victim)
        for (preemptor, name), victims in together_.items():
            first = min((self._played.evicted[each] for each in victims), key=lambda each: each.at)
            yield Preemption(preemptor, name, tuple(sorted(victims)), first)

    def unexplained(self, found: Sequence[Preemption]) -> Iterator[str]:
        told = {victim for each in found for victim in each.victims}
        for uid in self._played.evicted.keys() - told:
            yield f"{self.name(uid)} is gone, and no event says for whom"

    def for_nothing(self, found: Sequence[Preemption]) -> Iterator[str]:
        for each in found:
            names = ", ".join(map(self.name, each.victims))
            if self._played.places.get(each.pod) != each.node:
                yield f"{self.name(each.pod)} is not on {each.node}, from where {names} went for it"
            for uid in each.victims:
                if self.priority(uid) >= self.priority(each.pod):
                    yield f"{self.name(uid)} went for {self.name(each.pod)}, which is no more important"
                if self._played.documents[uid]["spec"]["schedulerName"] != OURS:
                    yield f"{self.name(uid)} went for {self.name(each.pod)}, and is another scheduler's"
            for fewer in _subsets(each.victims, len(each.victims) - 1):
                if self._would_do(each, fewer, found):
                    enough = ", ".join(map(self.name, fewer)) or "nobody"
                    yield f"{names} went for {self.name(each.pod)}, and {enough} would have done on {each.node}"
                    break

    def _would_do(self, preemption: Preemption, gone: Collection[str], found: Sequence[Preemption]) -> bool:
        """Whether the kubelet would have admitted the pod without these, and beside those who preempted before it."""
        seen, leaving, before = preemption.before, set(gone), []
        for other in found:
            if other.node == preemption.node and other.pod != preemption.pod and other.before.at <= seen.at:
                leaving |= set(other.victims)
                if other.pod not in seen.pods:
                    before.append(other.pod)
        kubelet = self._played.kubelets[preemption.node]
        return self._admits(kubelet, seen, leaving, [*before, preemption.pod])

    def _admits(self, kubelet: Kubelet, seen: Seen, leaving: Collection[str], comers: Sequence[str]) -> bool:
        pods = {uid: each for uid, each in seen.pods.items() if uid not in leaving}
        held = admission.forget(seen.held, pods)
        ports = [self._port(uid) for uid in pods]
        for uid in comers:
            if self._port(uid) and self._port(uid) in ports:
                return False
            wanted = asked(self._played.documents[uid], uid)
            held, refused = admission.admit(kubelet.model, held, wanted, pods.values(), kubelet.object)
            if refused is not None:
                return False
            pods[uid] = wanted
        return True

    def _port(self, uid: str) -> int:
        ports = self._played.documents[uid]["spec"]["containers"][0].get("ports") or [{}]
        return int(ports[0].get("hostPort", 0))

    def _movable(self, uid: str, pods: Iterable[str], allowed: Mapping[str, int]) -> list[str]:
        documents = self._played.documents
        return [
            each
            for each in pods
            if self.priority(each) < self.priority(uid)
            and documents[each]["spec"]["schedulerName"] == OURS
            and allowed.get(documents[each]["metadata"]["labels"].get("guard", ""), 1) > 0
        ]

    def waits_for_nothing(self) -> Iterator[str]:
        """Pods that would be somewhere if the right ones went, or nobody."""
        for uid in self.pending:
            document = self._played.documents[uid]
            cluster = self._played.clusters[document["metadata"]["labels"][CLUSTER]]
            for name in cluster.nodes:
                kubelet = self._played.kubelets[name]
                if not _is_published(kubelet):
                    continue
                now = Seen(name, 0.0, kubelet.pods, kubelet.held)
                movable = self._movable(uid, kubelet.pods, self._allowed)
                most = len(movable) if document["spec"]["priorityClassName"] != NEVER else 0
                subsets = _subsets(movable, most) if len(movable) <= MOST_TRIED else iter(((), tuple(movable)))
                enough = next((each for each in subsets if self._admits(kubelet, now, each, [uid])), None)
                if enough is not None and self._is_allowed(enough, self._allowed):
                    who = ", ".join(map(self.name, enough)) or "anybody"
                    yield f"{self.name(uid)} waits, and would be on {name} without {who}"
                    break

    def _is_allowed(self, victims: Iterable[str], budgets: Mapping[str, int]) -> bool:
        left = dict(budgets)
        for each in victims:
            guard = self._played.documents[each]["metadata"]["labels"].get("guard", "")
            if guard:
                left[guard] -= 1
        return all(each >= 0 for each in left.values())

    def refused(self) -> Iterator[str]:
        for reason, count in self._played.refused.items():
            yield f"kubelets refused {count} pods: {reason}"

    def rank(self, victims: Collection[str]) -> tuple[int, int, int]:
        """kube-scheduler's order, without budgets and times."""
        priorities = [self.priority(each) for each in victims]
        return max(priorities), sum(each + (1 << 31) for each in priorities), len(priorities)

    def is_beaten(self, found: Preemption) -> bool:
        """On the same node. Others may have changed, and no budget is looked at that was used up."""
        documents = self._played.documents
        budgets = self._played.clusters[documents[found.pod]["metadata"]["labels"][CLUSTER]].budgets
        movable = self._movable(found.pod, found.before.pods, budgets)
        if len(movable) > MOST_TRIED:
            return False
        kubelet = self._played.kubelets[found.node]
        return any(
            self.rank(each) < self.rank(found.victims)
            and self._is_allowed(each, budgets)
            and self._admits(kubelet, found.before, each, [found.pod])
            for each in _subsets(movable, len(movable))
            if each
        )


def _is_published(kubelet: Kubelet) -> bool:
    """Whether placement vectors can say where pods are: not of a node on which a container is on several zones."""
    zone_of = {cpu.id: cpu.cell for cpu in kubelet.model.machine.cpus}
    held = kubelet.held
    cpus = [{zone_of[cpu] for cpu in own} for several in held.cpus.held.values() for own in several.values()]
    memory = [set(block.cells) for several in held.memory.held.values() for own in several.values() for block in own]
    return all(len(zones) <= 1 for zones in (*cpus, *memory))


def _subsets(several: Collection[str], most: int) -> Iterator[tuple[str, ...]]:
    """Of at most so many, the smallest first."""
    for size in range(most + 1):
        yield from combinations(sorted(several), size)


# -- the programs ------------------------------------------------------------------------------------------------------


class Programs:
    """kube-scheduler and extender, as the operator configures them; each may be killed and started again."""

    def __init__(self, sandbox: Sandbox, program: str, folder: Path, *, preempts: bool = True) -> None:
        (address,) = own_addresses(sandbox)
        self._folder = folder
        self._program = program
        settings = SchedulerSettings(preempts=preempts)
        context = SchedulerPodContext(
            program=program,
            address=address,
            kubeconfig=str(sandbox.kubeconfig),
            configuration=str(folder / "scheduler"),
        )
        (folder / "extender").write_text(text(extender_configuration(settings)))
        generated = text(scheduler_configuration(settings, namespace="kube-system"))
        (folder / "scheduler").write_text(pod_scheduler_configuration(generated, context))
        self._extends = [
            *(sys.executable, "-c", PROGRAM, "run", "numa-extender", f"--config={folder / 'extender'}"),
            *(f"--listen={address}:{EXTENDER_PORT}", f"--status-listen={address}:{STATUS_PORT}"),
            *(f"--kubeconfig={sandbox.kubeconfig}", f"--namespace={NAMESPACE}"),
        ]
        container = Container(NAME, command=[NAME], args=["--config=/x", "-v=2"])
        self._schedules = [*scheduler_command(container, {}, {}, context), "--secure-port=0"]
        self._running: dict[str, asyncio.subprocess.Process] = {}

    async def start(self, *names: str) -> None:
        for name in names or ("extender", "scheduler"):
            words = self._extends if name == "extender" else self._schedules
            with (self._folder / f"{name}.log").open("ab") as log:
                out = asyncio.subprocess.PIPE if name == "extender" else log
                process = await asyncio.create_subprocess_exec(*words, stdout=out, stderr=log)
            self._running[name] = process
            if name == "extender":
                assert process.stdout is not None
                async with asyncio.timeout(60):
                    said = json.loads(await process.stdout.readline() or b"{}")
                assert said, (self._folder / "extender.log").read_text()

    async def kill(self, name: str) -> None:
        process = self._running.pop(name)
        process.send_signal(signal.SIGKILL)
        await process.wait()

    async def end(self) -> None:
        """The scheduler gives its lease back."""
        if (scheduler := self._running.pop("scheduler", None)) is not None:
            scheduler.terminate()
            await scheduler.wait()
        for name in list(self._running):
            await self.kill(name)

    def log(self, name: str) -> str:
        return (self._folder / f"{name}.log").read_text()


async def started_plane() -> tuple[Sandbox, str]:
    """A control plane without a scheduler, and without a controller manager, which would call nodes dead that send no
    heartbeats; and the program of the scheduler."""
    wanted = Settings(name=f"tests-preemption-{os.getpid()}", nodes={}, polyarch=False, seed_images=False)
    sandbox = await Sandbox.start(wanted, owner=os.getpid())
    records = sandbox.records()
    idle = [records[name] for name in ("kube-controller-manager", "kube-scheduler")]
    await processes.stop(idle, records=sandbox.folder.records)
    async with sandbox.client() as client:
        await prepare(client)
        for each in PRIORITIES:
            await client.create(PRIORITY_CLASSES, {"metadata": {"name": f"p-{each}"}, "value": each})
        never = {"metadata": {"name": NEVER}, "value": 1000, "preemptionPolicy": "Never"}
        await client.create(PRIORITY_CLASSES, never)
    return sandbox, records["kube-scheduler"].arguments[0]


@asynccontextmanager
async def playing(
    plane: tuple[Sandbox, str], folder: Path, clusters: Iterable[Cluster], *, fragments: bool = True
) -> AsyncIterator[tuple[Played, Programs]]:
    """The clusters, settled, with scheduler and extender beside them; nothing of them is left."""
    sandbox, program = plane
    async with sandbox.client() as client:
        played = Played(client, clusters)
        await played.register()
        running = asyncio.ensure_future(played.run())
        programs = Programs(sandbox, program, folder)
        try:
            await played.settle(fragments=fragments)
            await programs.start()
            yield played, programs
            if running.done():
                running.result()
        finally:
            await programs.end()
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)
            await _remove(client, played)


async def _remove(client: Client, played: Played) -> None:
    await client.delete_collection(PODS, namespace=NAMESPACE, label_selector=CLUSTER, grace_period_seconds=0)
    for group in in_groups(sorted(played.kubelets), 32):
        await together(client.delete(TOPOLOGIES, name) for name in group)
        await together(client.delete(NODES, name) for name in group)
    for cluster in played.clusters.values():
        await together(client.delete(POD_DISRUPTION_BUDGETS, each, namespace=NAMESPACE) for each in cluster.budgets)
