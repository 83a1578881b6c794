"""Plans for taints against kube-scheduler itself: its filters for nodes and the API server's RuntimeClass admission,
linked into a Go program (``tools/peers/managers``), judge random clusters before and after every step of the plan."""

import json
import random
import subprocess
from collections import Counter
from collections.abc import Callable

import pytest
from scheduler_chances import Json, Played, play, runs

from polyarch.platforms import NodePlatform
from polyarch.taints.plan import TemplateEvaluation

CASES = 250
SEEDS = range(2)
Nodes = Counter[NodePlatform]


@pytest.mark.req("TN-062", "TN-065", "TN-066")
@pytest.mark.parametrize("seed", SEEDS)
def test_a_plan_counts_the_nodes_that_the_scheduler_would_give_and_that_run_the_images(
    peer: Callable[[str], str], seed: int
) -> None:
    """What the plan calls safe keeps a node through every step, and what it calls blocked has one now and none then."""
    program = peer("scheduler-filters")
    played = [play(random.Random(seed * CASES + number)) for number in range(CASES)]
    asked = "".join(f"{json.dumps(state.case)}\n" for each in played for state in (*each.states, *each.healthy))
    answered = subprocess.run([program], input=asked, capture_output=True, text=True, timeout=240, check=False)
    assert answered.returncode == 0, answered.stderr
    lines = iter(map(json.loads, answered.stdout.splitlines()))
    kinds: Counter[str] = Counter()
    for cluster in played:
        told = [next(lines) for _ in cluster.states]
        healthy = [next(lines) for _ in cluster.healthy]
        for at, template in enumerate(cluster.evaluation.templates):
            found = compared(cluster, at, template, [said[at] for said in told], [said[at] for said in healthy])
            kinds[found] += 1
    assert kinds.keys() == {"safe", "blocked", "refused", "nowhere", "blocked once well"}, kinds


def compared(cluster: Played, at: int, template: TemplateEvaluation, told: list[Json], healthy: list[Json]) -> str:
    """What became of one template; ``told``: the scheduler's answer in every state, ``healthy``: in the first and last
    one without taints that go away."""
    fit, context = template.fit, json.dumps([cluster.states[0].case, cluster.states[-1].case, str(template.template)])
    if told[0]["refused"]:
        assert fit.refused, context
        assert not fit.is_blocked, context
        return "refused"
    assert not fit.refused, context
    counted = [home(cluster, at, said["nodes"]) for said in told]
    well = [home(cluster, at, said["nodes"]) for said in healthy]
    hosts = template.template.hosts
    if template.passing:
        assert not is_blocked(hosts, counted[0], counted[-1]), context
        assert is_blocked(hosts, *well), context
        assert (fit.before, fit.after) == tuple(well), context
        assert fit.unfit == home(cluster, at, healthy[-1]["nodes"], running=False), context
        return "blocked once well"
    assert is_blocked(hosts, counted[0], counted[-1]) or not is_blocked(hosts, *well), context
    assert fit.before == counted[0], context
    assert fit.after == counted[-1], context
    assert fit.unfit == home(cluster, at, told[-1]["nodes"], running=False), context
    if hosts is not None:
        assert set(fit.lost) == {each for each in hosts if counted[0][each] and not counted[-1][each]}, context
    else:
        assert fit.is_blocked == (bool(counted[0]) and not counted[-1]), context
        if counted[0] and not fit.is_blocked:
            assert all(counted), context
    return "blocked" if fit.is_blocked else "safe" if counted[0] else "nowhere"


def is_blocked(hosts: frozenset[NodePlatform] | None, before: Nodes, after: Nodes) -> bool:
    """A DaemonSet on one of the platforms that it has pods on, another template everywhere."""
    if hosts is not None:
        return any(before[each] and not after[each] for each in hosts)
    return bool(before) and not after


def home(cluster: Played, at: int, names: list[str], *, running: bool = True) -> Nodes:
    """The nodes among these that run the pod, or do not, by platform."""
    spec = cluster.states[0].case["pods"][at]["spec"]
    found: Nodes = Counter()
    for node in cluster.nodes:
        if node["metadata"]["name"] in names and runs(spec, node) == running:
            info = node["status"]["nodeInfo"]
            found[NodePlatform(info["operatingSystem"], info["architecture"])] += 1
    return found
