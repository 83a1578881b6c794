"""Mode exact against the kubelet itself: for every pod of random histories, what we say of what the node's exporter
would publish, and what the kubelet's own CPU, memory and topology managers (``tools/peers/managers``) then do.

The kubelet model chooses which pods come and go, and nothing else: what is published is made of the state files that
the managers wrote. Devices and options of policies are not in it.
"""

import json
import random
import subprocess
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import kubelet_chances
import msgspec
import pytest
import scheduling_chances as chances

from polyarch.numa.fit.evaluate import evaluate
from polyarch.numa.fit.facts import ExactOptions, FitDecision
from polyarch.sandbox.kubelet_model import admission, cpu_manager
from polyarch.sandbox.kubelet_model.admission import ManagerStates
from polyarch.sandbox.kubelet_model.device_manager import DeviceManagerState
from polyarch.sandbox.kubelet_model.machine import Node, TopologyPolicy
from polyarch.sandbox.kubelet_model.requests import Pod
from polyarch.sandbox.nodes import kubelet_files

HISTORIES = 75
"""For each policy."""
REASONS: Final[Mapping[TopologyPolicy, set[str]]] = {
    "none": {"", "UnexpectedAdmissionError"},
    "best-effort": {"", "UnexpectedAdmissionError"},
    "restricted": {"", "TopologyAffinityError", "UnexpectedAdmissionError"},
    "single-numa-node": {"", "TopologyAffinityError", "UnexpectedAdmissionError"},
}
"""Of admissions and refusals, so that the histories are known to have both."""
Json = dict[str, Any]


class Step(msgspec.Struct, frozen=True):
    """``pod``: the one that comes, beside ``others``; None: something else happens."""

    asked: Json
    others: Sequence[Pod] = ()
    pod: Pod | None = None


class Judged(msgspec.Struct, frozen=True):
    """One pod: what was decided, and what the kubelet did."""

    place: str
    decision: FitDecision
    reason: str
    message: str

    @property
    def differs(self) -> str:
        """Empty: both say the same."""
        if self.decision.fits and self.reason:
            return f"fits, refused with {self.reason}"
        return "" if self.decision.fits or self.reason else f"{self.decision.kind}, admitted"


def node(chance: random.Random, policy: TopologyPolicy) -> Node:
    """One to eight cells without devices, and a kubelet without options."""
    found = chances.node(chance, policy=policy, most_cells=1 if chance.random() < 0.1 else 8)
    return msgspec.structs.replace(
        found,
        machine=msgspec.structs.replace(found.machine, devices=()),
        configuration=msgspec.structs.replace(found.configuration, prefer_closest=False, full_cores_only=False),
    )


def history(chance: random.Random, here: Node) -> list[Step]:
    """Pods that the node has room for come, their containers are made, and they end."""
    held = admission.at_first(here)
    pods: list[Pod] = []
    steps: list[Step] = []
    for number in range(chance.randint(6, 16)):
        choice = chance.random()
        if pods and choice < 0.25:
            gone = pods.pop(chance.randrange(len(pods)))
            steps.append(Step({"do": "over", "uid": gone.uid}))
        elif pods and choice < 0.4:
            some = chance.choice(pods)
            for each in some.all:
                held = admission.started(held, some, each.name)
                steps.append(Step({"do": "created", "uid": some.uid, "container": each.name}))
        elif chances.has_room(here, pod := chances.pod(chance, number, here), pods):
            steps.append(Step({"do": "admit", "pod": chances.pod_document(pod)}, tuple(pods), pod))
            held, refused = admission.align(here, held, pod, {pod.uid, *(each.uid for each in pods)})
            if refused is None:
                pods.append(pod)
    return steps


def judged(here: Node, steps: Sequence[Step], answers: Sequence[Json], place: str) -> list[Judged]:
    held = admission.at_first(here)
    found: list[Judged] = []
    for step, answer in zip(steps, answers, strict=True):
        if step.pod is not None:
            there = {each.uid for each in step.others}
            # A kubelet frees CPUs of pods that are over every few seconds, their memory when the next pod comes.
            seen = msgspec.structs.replace(held, cpus=cpu_manager.forget(held.cpus, there))
            facts = chances.published(here, seen, step.others)
            free = {each.id: dict(each.available) for each in facts.cells}
            decision = evaluate(chances.facts_of(step.pod), facts, free, ExactOptions())
            found.append(Judged(f"{place} {step.pod.name}", decision, answer["reason"], answer["message"]))
        held = remembered(here, answer)
    return found


def remembered(here: Node, answer: Json) -> ManagerStates:
    """What the kubelet wrote."""
    cpu, memory = (json.dumps(answer[each], separators=(",", ":")) for each in ("cpu", "memory"))
    return ManagerStates(
        kubelet_files.read_cpus(here, cpu), kubelet_files.read_memory(here, memory), DeviceManagerState()
    )


@pytest.mark.req("NS-164")
@pytest.mark.parametrize("policy", chances.POLICIES)
def test_a_verdict_is_what_the_kubelets_own_managers_then_do(
    peer: Callable[[str], str], policy: TopologyPolicy
) -> None:
    program = peer("kubelet-managers")
    played = []
    for seed in range(HISTORIES):
        chance = random.Random(f"{policy} {seed}")
        here = node(chance, policy)
        played.append((here, history(chance, here), f"{policy} {here.configuration.topology_scope} seed {seed}"))
    asked = "".join(
        f"{json.dumps(kubelet_chances.case(here, [each.asked for each in steps]))}\n" for here, steps, _ in played
    )
    answered = subprocess.run([program], input=asked, capture_output=True, text=True, timeout=240, check=False)
    assert answered.returncode == 0, answered.stderr
    found = [
        each
        for line, (here, steps, place) in zip(answered.stdout.splitlines(), played, strict=True)
        for each in judged(here, steps, json.loads(line) or [], place)
    ]
    assert [(each.place, each.differs, each.message) for each in found if each.differs] == []
    reasons = Counter(each.reason for each in found)
    assert reasons.keys() >= REASONS[policy]
    assert reasons[""] > len(found) / 3
