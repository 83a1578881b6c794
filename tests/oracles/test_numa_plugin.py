"""Mode compat against the scheduler plugin itself, NodeResourceTopologyMatch of scheduler-plugins v0.33.5.

It is linked into a Go program (``tools/peers/numa-plugin``); both decide about the same random pods and nodes.
"""

import json
import random
import subprocess
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple

import msgspec
import pytest
from plugin_chances import (
    DIFFERENCES,
    STRATEGIES,
    WEIGHTS,
    Json,
    Situation,
    explained,
    facts_of,
    node,
    node_facts_of,
    pod,
    topology,
)

from polyarch.numa.fingerprint import fingerprint
from polyarch.numa.fit.compat import CacheOptions, CompatOptions, OverReserveCache, evaluate, score

pytestmark = pytest.mark.req("NS-003")

CASES = 200
NODES = 8
OURS = "topo-aware-scheduler"


def ask(program: str, cases: Iterable[Json]) -> Iterator[list[Json]]:
    """What the plugin answers to each case, step by step."""
    asked = "".join(f"{json.dumps(case)}\n" for case in cases)
    answered = subprocess.run([program], input=asked, capture_output=True, text=True, timeout=240, check=False)
    assert answered.returncode == 0, answered.stderr
    for line in answered.stdout.splitlines():
        yield json.loads(line)


def snapshot(chance: random.Random, strategy: str, steps: Callable[[], list[Json]]) -> Json:
    names = [f"n{each}" for each in range(NODES)]
    return {
        "strategy": strategy,
        "weights": WEIGHTS,
        "nodes": [node(chance, name) for name in names],
        "topologies": [topology(chance, name) for name in names if chance.random() < 0.95],
        "steps": steps(),
    }


class Compared(NamedTuple):
    """One verdict of each side."""

    situation: Situation
    concern: str
    plugin: Any
    ours: Any


def compared(case: Json, asked: Json, answer: Json, strategy: str) -> Iterator[Compared]:
    found = facts_of(asked)
    options = CompatOptions(strategy=strategy, weights=WEIGHTS)  # type: ignore[arg-type]
    shown = {each["metadata"]["name"]: each for each in case["topologies"]}
    for at, verdict in zip(case["nodes"], answer["verdicts"], strict=True):
        document = shown.get(verdict["node"])
        facts = node_facts_of(at, document)
        free = {cell.id: cell.available for cell in facts.cells}
        zones = [zone for zone in (document or {"zones": []})["zones"] if zone["type"] == "Node"]
        situation = Situation(strategy, found, facts, zones)
        decision = evaluate(found, facts, free, options)
        yield Compared(situation, "filter", said(verdict, "filter"), (decision.fits, decision.message))
        if not verdict.get("panic", "").startswith("filter"):
            yield Compared(situation, "score", said(verdict, "score"), score(found, facts, free, options))


def said(verdict: Json, concern: str) -> Any:
    if verdict.get("panic", "").startswith(concern):
        return verdict["panic"]
    return verdict["score"] if concern == "score" else (verdict["fits"], verdict["message"])


@pytest.mark.req("NS-020", "NS-021", "NS-022", "NS-023", "NS-030", "NS-031", "NS-032", "NS-033", "NS-034")
@pytest.mark.parametrize("strategy", STRATEGIES)
def test_verdicts_and_scores_are_the_plugins(peer: Callable[[str], str], strategy: str) -> None:
    """Where they are not, the difference is one of those that are listed with their reason."""
    program = peer("numa-plugin")
    chance = random.Random(STRATEGIES.index(strategy))
    cases = [snapshot(chance, strategy, lambda: [{"do": "decide", "pod": pod(chance)}]) for _ in range(CASES)]
    counts: Counter[str] = Counter()
    for case, answers in zip(cases, ask(program, cases), strict=True):
        asked = case["steps"][0]["pod"]
        for each in compared(case, asked, answers[0], strategy):
            if each.plugin != each.ours:
                reasons = explained(each.situation, each.concern)
                assert reasons, (each.concern, each.plugin, each.ours, json.dumps(asked), each.situation)
                counts["different"] += 1
            else:
                counts["alike"] += 1
                counts[str(each.ours)] += 1
    assert counts["alike"] > 10 * counts["different"], counts
    for message in ("container", "init container", "sidecar container", "pod"):
        assert counts[str((False, f"cannot align {message}"))] > 10
    assert len(counts) > 12


@pytest.mark.req("NS-005")
def test_each_difference_from_the_plugin_that_is_listed_is_one(peer: Callable[[str], str]) -> None:
    """It is seen where no other one can be behind it: a list that says too much would hide a mistake."""
    program = peer("numa-plugin")
    chance = random.Random(20)
    missing = dict.fromkeys(DIFFERENCES, 0)
    for strategy in (*STRATEGIES, "LeastNUMANodes", "LeastNUMANodes"):
        cases = [snapshot(chance, strategy, lambda: [{"do": "decide", "pod": pod(chance)}]) for _ in range(CASES)]
        for case, answers in zip(cases, ask(program, cases), strict=True):
            for each in compared(case, case["steps"][0]["pod"], answers[0], strategy):
                if each.plugin != each.ours and len(reasons := explained(each.situation, each.concern)) == 1:
                    missing[reasons[0]] += 1
    assert [name for name, seen in missing.items() if not seen] == []


class Played:
    """The same events for both caches: pods that are bound, run and end, and objects that follow them."""

    def __init__(self, chance: random.Random) -> None:
        self._chance = chance
        self._pods: dict[str, Json] = {}
        self.names = ["n0", "n1"]
        self.nodes = [node(chance, name) for name in self.names]
        self.topologies = {name: self._shown(name) for name in self.names}
        self.detection = chance.choice(("Relaxed", "Aggressive"))
        self.informer = chance.choice(("Dedicated", "Shared"))
        self.cache = OverReserveCache(
            CacheOptions(
                scheduler_names=frozenset({OURS}),
                informer=self.informer,  # type: ignore[arg-type]
                detection=self.detection,  # type: ignore[arg-type]
                strict=True,
            )
        )
        self._see_nodes()
        self.case: Json = {
            "strategy": "LeastAllocated",
            "weights": {},
            "informer": self.informer,
            "detection": self.detection,
            "nodes": self.nodes,
            "topologies": [dict(each) for each in self.topologies.values()],
            "steps": [],
        }
        self.expected: list[list[Json]] = []

    def _shown(self, name: str) -> Json:
        chance = self._chance
        zones = [
            {
                "name": f"node-{each}",
                "type": "Node",
                "resources": [
                    {"name": "cpu", "capacity": "8", "allocatable": "8", "available": str(chance.randint(0, 8))},
                    {
                        "name": "memory",
                        "capacity": "8Gi",
                        "allocatable": "8Gi",
                        "available": f"{chance.randint(0, 8)}Gi",
                    },
                ],
            }
            for each in range(2)
        ]
        attributes = [
            {"name": "topologyManagerPolicy", "value": "single-numa-node"},
            {"name": "topologyManagerScope", "value": chance.choice(("container", "container", "container", "pod"))},
        ]
        relevant = [each for each in self._pods.values() if each["spec"]["nodeName"] == name]
        is_exclusive = chance.random() < 0.5
        if chance.random() < 0.9:
            counted = [
                ("team", each["metadata"]["name"])
                for each in relevant
                if each["status"]["phase"] == "Running" and (not is_exclusive or "limits" in _resources(each))
            ]
            attributes.append({"name": "nodeTopologyPodsFingerprint", "value": fingerprint(counted)})
            if is_exclusive:
                attributes.append({"name": "nodeTopologyPodsFingerprintMethod", "value": "with-exclusive-resources"})
        return {"metadata": {"name": name}, "attributes": attributes, "zones": zones}

    def _see_nodes(self) -> None:
        for at in self.nodes:
            name = at["metadata"]["name"]
            self.cache.node_seen(node_facts_of(at, self.topologies[name]))

    def _step(self, step: Json, verdicts: list[Json] | None = None) -> None:
        self.case["steps"].append(step)
        self.expected.append(verdicts or [])

    def go_on(self) -> None:
        kind = self._chance.choice(("bind", "bind", "run", "run", "foreign", "topology", "resync", "decide", "fail"))
        getattr(self, f"_{kind}")()

    def _new(self, **spec: Any) -> Json:
        requests = {"cpu": self._chance.choice(("1", "2", "500m")), "memory": "1Gi"}
        resources: Json = {"requests": requests}
        if self._chance.random() < 0.7:
            resources["limits"] = requests
        name = f"p{len(self.case['steps'])}"
        return {
            "metadata": {"namespace": "team", "name": name, "uid": name},
            "spec": {"schedulerName": OURS, "containers": [{"name": "c", "resources": resources}], **spec},
            "status": {"phase": "Pending"},
        }

    def _bind(self) -> None:
        asked, name = self._new(), self._chance.choice(self.names)
        self._step({"do": "reserve", "node": name, "pod": asked})
        self.cache.answered(facts_of(asked))
        self._is_now({**asked, "spec": {**asked["spec"], "nodeName": name}})

    def _fail(self) -> None:
        """A pod that could not be bound after all."""
        asked, name = self._new(), self._chance.choice(self.names)
        self._step({"do": "reserve", "node": name, "pod": asked})
        self._step({"do": "unreserve", "node": name, "pod": asked})
        self.cache.answered(facts_of(asked))
        self.cache.pod_seen(facts_of({**asked, "spec": {**asked["spec"], "nodeName": name}}))
        self.cache.pod_gone(asked["metadata"]["uid"])

    def _run(self) -> None:
        if waiting := [each for each in self._pods.values() if each["status"]["phase"] == "Pending"]:
            self._is_now({**self._chance.choice(waiting), "status": {"phase": "Running"}})

    def _foreign(self) -> None:
        asked = self._new(schedulerName="default-scheduler", nodeName=self._chance.choice(self.names))
        self._step({"do": "event", "pod": asked})
        self._is_now({**asked, "status": {"phase": "Pending"}})

    def _is_now(self, found: Json) -> None:
        self._pods[found["metadata"]["uid"]] = found
        self._step({"do": "event", "pod": found})
        self._step({"do": "pods", "pods": list(self._pods.values())})
        self.cache.pod_seen(facts_of(found))

    def _topology(self) -> None:
        name = self._chance.choice(self.names)
        self.topologies[name] = self._shown(name)
        self._step({"do": "topology", "topology": self.topologies[name]})
        self._see_nodes()

    def _resync(self) -> None:
        self._step({"do": "resync"})
        self.cache.resync()

    def _decide(self) -> None:
        asked = self._new()
        found = facts_of(asked)
        verdicts = []
        for name in self.names:
            at, free, is_foreign = self.cache.node(name), self.cache.free(name), self.cache.is_foreign(name)
            assert at is not None
            decision = evaluate(found, at, free, CompatOptions(), foreign=is_foreign)
            if decision.kind not in ("", "foreign"):
                self.cache.rejected(name)
            points = score(found, at, free, CompatOptions(), foreign=is_foreign)
            verdicts.append({"node": name, "fits": decision.fits, "message": decision.message, "score": points})
        self._step({"do": "decide", "pod": asked}, verdicts)


def _resources(found: Json) -> Json:
    return found["spec"]["containers"][0]["resources"]  # type: ignore[no-any-return]


@pytest.mark.req("NS-130", "NS-131", "NS-132", "NS-133", "NS-134")
def test_the_cache_is_the_plugins_in_its_strict_form(
    peer: Callable[[str], str],
) -> None:
    """Binds, failures, foreign pods, new objects and resyncs in random order, with questions in between."""
    program = peer("numa-plugin")
    played = []
    for seed in range(150):
        game = Played(random.Random(seed))
        for _ in range(40):
            game.go_on()
        played.append(game)
    seen: Counter[str] = Counter()
    for game, answers in zip(played, ask(program, (game.case for game in played)), strict=True):
        found = [each.get("verdicts", []) for each in answers]
        assert found == game.expected, msgspec.json.encode(game.case)
        seen.update(verdict["message"] for verdicts in found for verdict in verdicts)
        seen["flushed"] += game.cache.generation
    assert min(seen[each] for each in ("", "flushed", "invalid node topology data", "cannot align container")) > 50
