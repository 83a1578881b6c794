"""A small cluster in which everything happens late: an API server, kubelets (the model), their exporters, a scheduler,
and the extender's books, played in random order on a clock of its own.

The kubelets judge. Watches of pods and of topology objects lag independently, exporters publish what they scanned,
kubelets admit when they get to it. What each may be late by is bounded, as the ledger's grace assumes.
"""

import random
from collections import Counter, deque
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from typing import Any

import msgspec
from scheduling_chances import exporter_facts, listed

from polyarch.numa.api.topology import NodeResourceTopology
from polyarch.numa.exporter.topology_document import topology_document
from polyarch.numa.exporter.zones import node_zones
from polyarch.numa.facts import FingerprintMethod, ScanFacts, ScanSettings
from polyarch.numa.fit.evaluate import evaluate
from polyarch.numa.fit.facts import ExactOptions, FitDecision, NodeFacts, PodFacts, PodObject, node_facts, pod_facts
from polyarch.numa.reservations import ReservationCache, ReservationChange, ReservationOptions
from polyarch.sandbox.kubelet_model import admission, cpu_manager, device_manager, requests
from polyarch.sandbox.kubelet_model import machine as capacity
from polyarch.sandbox.kubelet_model.layout import NumaLayout
from polyarch.sandbox.kubelet_model.layout import node as machine_of
from polyarch.sandbox.kubelet_model.machine import Node as ModelNode
from polyarch.sandbox.kubelet_model.requests import Pod as ModelPod
from polyarch.sandbox.kubelet_model.requests import PodRejected
from polyarch.sandbox.nodes.pods import Pod as SandboxPod
from polyarch.sandbox.nodes.pods import pod_request

Json = dict[str, Any]
PERIOD = 10.0
"""Seconds between the scans of an exporter, at most."""
LAG = 4.0
"""Seconds that a watch, a kubelet or a status may be late by."""
IN_FLIGHT = 8.0
"""Seconds from the filter to the binding, at most."""
OPTIONS = ExactOptions()
DEVICE = "example.com/nic"
EPOCH = 1_700_000_000.0


class ApiPod:
    """A pod as the API server has it."""

    def __init__(self, uid: str, name: str, spec: Json) -> None:
        self.uid, self.name, self.spec = uid, name, spec
        self.version = 0
        self.node = ""
        self.phase = "Pending"
        self.started_at = ""
        self.is_leaving = False

    @property
    def is_over(self) -> bool:
        return self.phase in {"Succeeded", "Failed"}

    def document(self) -> Json:
        return {
            "metadata": {
                "uid": self.uid,
                "name": self.name,
                "namespace": "default",
                "resourceVersion": str(self.version),
            },
            "spec": {**self.spec, "nodeName": self.node, "schedulerName": "ours"},
            "status": {"phase": self.phase, "startTime": self.started_at},
        }

    @property
    def facts(self) -> PodFacts:
        return pod_facts(msgspec.convert(self.document(), PodObject))

    @property
    def model(self) -> ModelPod:
        return pod_request(msgspec.convert(self.document(), SandboxPod))


class Kubelet:
    """One node: the model, what it has yet to do, and its exporter."""

    def __init__(self, name: str, text: str, settings: ScanSettings, *, lists_ended: bool) -> None:
        self.name = name
        self.node: ModelNode = machine_of(NumaLayout.parse(text))
        self.held = admission.at_first(self.node)
        self.noticed: dict[str, ModelPod] = {}
        """Known, and not admitted yet."""
        self.active: dict[str, ModelPod] = {}
        self.ended: dict[str, ModelPod] = {}
        self.todo: deque[tuple[float, str]] = deque()
        """Uids of pods that were bound here, by when."""
        self.statuses: deque[tuple[float, str]] = deque()
        """Uids of pods whose ``startTime`` is to be reported."""
        self.scanned_at = 0.0
        self.published: Json = {}
        self.facts = NodeFacts(name=name, has_topology=False)
        self.settings = settings
        self.lists_ended = lists_ended

    def admit(self, pod: ModelPod) -> PodRejected | None:
        self.noticed.pop(pod.uid, None)
        self.held, refused = admission.admit(self.node, self.held, pod, self.active.values())
        if refused is None:
            self.active[pod.uid] = pod
            for container in pod.all:
                self.held = admission.started(self.held, pod, container.name)
        else:
            self.ended[pod.uid] = pod
        return refused

    def would_align(self, pod: ModelPod) -> bool:
        held = admission.forget(self.held, self.active)
        _, refused = admission.align(self.node, held, pod, {pod.uid, *self.active})
        return refused is None

    def over(self, uid: str) -> None:
        """The pod has ended, and leaves its room."""
        self.noticed.pop(uid, None)
        if (pod := self.active.pop(uid, None)) is not None:
            self.ended[uid] = pod

    def scan(self) -> Json:
        """What the exporter of this node would write now."""
        found = node_zones(self._facts(), self.settings, self.name)
        return topology_document(self._facts(), found, self.settings, refresh_period=PERIOD)

    def _facts(self) -> ScanFacts:
        self.held = msgspec.structs.replace(self.held, devices=device_manager.forget(self.held.devices, self.active))
        found = exporter_facts(self.node, self.held, self.active.values())
        nothing = admission.at_first(self.node)
        others = [*self.noticed.values(), *(self.ended.values() if self.lists_ended else ())]
        return msgspec.structs.replace(
            found, pods=(*found.pods, *(listed(self.node, nothing, each) for each in others))
        )


class LateCluster:
    """See the module's docstring."""

    def __init__(
        self,
        chance: random.Random,
        layouts: Mapping[str, str],
        *,
        method: FingerprintMethod = "with-exclusive-resources",
        with_bind: bool = False,
        candidates: int = 1,
        lists_ended: bool = False,
        reports_late: bool = True,
    ) -> None:
        self.chance = chance
        self.candidates = candidates
        self.with_bind = with_bind
        self.reports_late = reports_late
        self.now = 100.0
        self.version = 0
        self.written_at: dict[str, float] = {}
        settings = ScanSettings(pods_fingerprint_method=method)
        self.kubelets = {name: Kubelet(name, text, settings, lists_ended=lists_ended) for name, text in layouts.items()}
        self.pods: dict[str, ApiPod] = {}
        self.in_flight: dict[str, tuple[float, str]] = {}
        self.pod_watch: deque[tuple[float, str, PodFacts | None]] = deque()
        self.node_watch: deque[tuple[float, NodeFacts]] = deque()
        self.names: list[str] = []
        self.made = 0
        self.counts: Counter[str] = Counter()
        self.rejected: list[str] = []
        self.seen_as_of: dict[tuple[str, str], float] = {}
        """By uid of a pod and node: when the object was written that the filter saw."""
        self.left_at: dict[str, float] = {}
        """By node, when a pod has left it last."""
        self.ledger = ReservationCache(OPTIONS)
        self.known: dict[str, NodeFacts] = {}
        self.mirror: dict[str, dict[tuple[int, str], int]] = {}
        for name in self.kubelets:
            self._publish(name)
        self.restart()

    # -- the extender --------------------------------------------------------------------------------------------------

    def restart(self) -> None:
        """The extender begins anew from what the API server has."""
        self.counts["restarts"] += 1
        self.pod_watch.clear()
        self.node_watch.clear()
        self.mirror = {}
        self.ledger = ReservationCache(OPTIONS, ReservationOptions(scheduler="ours"))
        self.known = {name: each.facts for name, each in self.kubelets.items()}
        for pod in self.pods.values():
            self._note(self.ledger.pod_seen(pod.facts, self.now))
        for node in self.known.values():
            self._note(self.ledger.topology_seen(node, self.now))
        self._note(self.ledger.start(self.now, EPOCH + self.now))

    def decide(self, pod: PodFacts, node: str) -> FitDecision:
        known = self.known[node]
        return evaluate(pod, known, self.ledger.free(known), OPTIONS, groups=self.ledger.groups(node))

    def _note(self, changes: Iterable[ReservationChange]) -> None:
        """As a sum beside the ledger follows it."""
        for change in changes:
            self.counts[f"{change.event} {change.reason}"] += 1
            sign = {"reserved": 1, "released": -1, "bound": 0}[change.event]
            sums = self.mirror.setdefault(change.node, {})
            for cell, amounts in change.cells.items():
                for name, amount in amounts.items():
                    sums[cell, name] = sums.get((cell, name), 0) + sign * amount

    # -- what can happen -----------------------------------------------------------------------------------------------

    def create(self, spec: Json, name: str = "") -> None:
        self.made += 1
        pod = ApiPod(f"uid-{self.made}", name or f"pod-{self.made}", spec)
        self.pods[pod.uid] = pod
        self._write(pod)
        self.counts["created"] += 1

    def schedule(self, uid: str) -> None:
        """A filter call, and the scheduler's choice."""
        pod = self.pods[uid].facts
        self._note(self.ledger.drop(uid, "again"))
        decisions = [self.decide(pod, name) for name in self.kubelets if self._has_room(uid, name)]
        likely = sorted((each for each in decisions if each.fits), key=lambda each: (-each.score, each.node))
        fitting = [each for each in likely if self.ledger.is_certain(pod, each, self.now)]
        self.counts["not certain"] += len(likely) - len(fitting)
        self.counts["filtered"] += 1
        if not fitting:
            self.counts["nothing fits"] += 1
            return
        chosen = fitting[: self.candidates]
        self._note(self.ledger.hold(pod, chosen, self.now))
        self.in_flight[uid] = self.now, self.chance.choice(chosen).node
        for name, node in self.known.items():
            self.seen_as_of[uid, name] = self.written_at.get(node.resource_version, 0.0)

    def bind(self, uid: str) -> None:
        _, node = self.in_flight.pop(uid)
        pod = self.pods.get(uid)
        if pod is None or pod.node or pod.is_leaving:
            return
        if self.with_bind and all(each.node != node for each in self.ledger.held(uid)):
            decision = self.decide(pod.facts, node)
            if not (decision.fits and self.ledger.is_certain(pod.facts, decision, self.now)):
                self.counts["bind refused"] += 1
                return
            self._note(self.ledger.hold(pod.facts, [decision], self.now))
        pod.node = node
        self._write(pod)
        self.kubelets[node].todo.append((self.now, uid))
        self.counts["bound"] += 1
        if self.with_bind:
            self._note(self.ledger.bind(uid, node))

    def forget_binding(self, uid: str) -> None:
        """A binding that fails."""
        del self.in_flight[uid]
        self.counts["bind failed"] += 1

    def notice(self, kubelet: Kubelet) -> None:
        for _, uid in kubelet.todo:
            if uid in self.pods and uid not in kubelet.noticed:
                kubelet.noticed[uid] = self.pods[uid].model
                return

    def admit(self, kubelet: Kubelet) -> None:
        _, uid = kubelet.todo.popleft()
        pod = self.pods.get(uid)
        if pod is None or pod.is_leaving:
            kubelet.noticed.pop(uid, None)
            return
        refused = kubelet.admit(pod.model)
        if refused is None:
            self.counts["admitted"] += 1
            kubelet.statuses.append((self.now, uid))
            if not self.reports_late:
                self.report(kubelet)
        else:
            self.counts[f"rejected {refused.reason}"] += 1
            if _is_tied(pod.model) and self.left_at.get(kubelet.name, 0.0) >= self.seen_as_of[uid, kubelet.name]:
                self.counts["trapped"] += 1
            else:
                self.rejected.append(f"{pod.name} on {kubelet.name}: {refused.reason} {refused.message}")
            pod.phase = "Failed"
            self._write(pod)

    def report(self, kubelet: Kubelet) -> None:
        at, uid = kubelet.statuses.popleft()
        pod = self.pods.get(uid)
        if pod is not None and not pod.is_over:
            pod.started_at = datetime.fromtimestamp(EPOCH + at, UTC).isoformat(timespec="seconds")
            pod.phase = "Running"
            self._write(pod)

    def complete(self, uid: str) -> None:
        pod = self.pods[uid]
        self._over(uid)
        pod.phase = "Succeeded"
        self._write(pod)
        self.counts["completed"] += 1

    def delete(self, uid: str) -> None:
        """The kubelet ends a pod before its object goes."""
        pod = self.pods[uid]
        if pod.node:
            self._over(uid)
            self.kubelets[pod.node].ended.pop(uid, None)
        del self.pods[uid]
        self.version += 1
        self.pod_watch.append((self.now, uid, None))
        self.names.append(pod.name)
        self.counts["deleted"] += 1

    def scan(self, kubelet: Kubelet) -> None:
        kubelet.held = msgspec.structs.replace(kubelet.held, cpus=cpu_manager.forget(kubelet.held.cpus, kubelet.active))
        self._publish(kubelet.name)

    def see_pod(self) -> None:
        _, uid, pod = self.pod_watch.popleft()
        changes = self.ledger.pod_seen(pod, self.now) if pod is not None else self.ledger.pod_gone(uid, self.now)
        self._note(changes)
        self.counts["pod events"] += 1

    def see_node(self) -> None:
        _, node = self.node_watch.popleft()
        self.known[node.name] = node
        self._note(self.ledger.topology_seen(node, self.now))
        self.counts["object versions"] += 1

    def pass_time(self, seconds: float) -> None:
        self.now += seconds
        old = self.now - LAG
        for kubelet in self.kubelets.values():
            while kubelet.todo and kubelet.todo[0][0] <= old:
                self.admit(kubelet)
            while kubelet.statuses and kubelet.statuses[0][0] <= old:
                self.report(kubelet)
            if kubelet.scanned_at <= self.now - PERIOD:
                self.scan(kubelet)
        for uid in [uid for uid, (at, _) in self.in_flight.items() if at <= self.now - IN_FLIGHT]:
            self.bind(uid)
        while self.pod_watch and self.pod_watch[0][0] <= old:
            self.see_pod()
        while self.node_watch and self.node_watch[0][0] <= old:
            self.see_node()
        self._note(self.ledger.tick(self.now))

    def _over(self, uid: str) -> None:
        node = self.pods[uid].node
        self.kubelets[node].over(uid)
        self.left_at[node] = self.now

    def _write(self, pod: ApiPod) -> None:
        self.version += 1
        pod.version = self.version
        self.pod_watch.append((self.now, pod.uid, pod.facts))

    def _publish(self, name: str) -> None:
        kubelet = self.kubelets[name]
        kubelet.scanned_at = self.now
        document = kubelet.scan()
        if document == kubelet.published:
            return
        kubelet.published = document
        self.version += 1
        written = {**document, "metadata": {**document["metadata"], "resourceVersion": str(self.version)}}
        topology = msgspec.convert(written, NodeResourceTopology)
        allocatable = {key: _text(amount) for key, amount in capacity.allocatable(kubelet.node).items()}
        kubelet.facts = node_facts(name, topology, allocatable)
        self.written_at[str(self.version)] = self.now
        self.node_watch.append((self.now, kubelet.facts))

    def _has_room(self, uid: str, node: str) -> bool:
        """The scheduler's own sums of the node."""
        kubelet, wanted = self.kubelets[node], requests.scheduled(self.pods[uid].model)
        assumed = {key for key, (_, there) in self.in_flight.items() if there == node}
        there = [
            each.model for each in self.pods.values() if (each.node == node or each.uid in assumed) and not each.is_over
        ]
        for name, room in capacity.allocatable(kubelet.node).items():
            used = sum(requests.scheduled(each).get(name, 0) for each in there)
            if wanted.get(name, 0) > room - used:
                return False
        return True

    # -- what must be true ---------------------------------------------------------------------------------------------

    def check_sums(self) -> None:
        """What is reserved is the sum of what is entered, and what the changes told."""
        for name in self.kubelets:
            expected: Counter[tuple[int, str]] = Counter()
            for entry in self.ledger.reservations(name).values():
                for cell, amounts in entry.cells.items():
                    for resource, amount in amounts.items():
                        expected[cell, resource] += amount
            found = {
                (cell, resource): amount
                for cell, amounts in self.ledger.reserved(name).items()
                for resource, amount in amounts.items()
            }
            told = {place: amount for place, amount in self.mirror.get(name, {}).items() if amount}
            assert found == {place: amount for place, amount in expected.items() if amount}
            assert found == told

    def settle_down(self) -> None:
        """Until nothing is on its way."""
        for uid in list(self.in_flight):
            self.bind(uid)
        for _ in range(20):
            self.pass_time(LAG)


def _is_tied(pod: ModelPod) -> bool:
    """What an init container had ties the other containers to its cell. If room came free on a lower cell since the
    object was written that the filter saw, the kubelet puts the init container there, and may then find no room for
    the others: nobody can know."""
    return len(pod.all) > 1 and any(pod.is_ordinary_init(each) for each in pod.all)


def _text(amount: Any) -> str:
    return str(int(amount)) if amount == int(amount) else f"{int(amount * 1000)}m"
