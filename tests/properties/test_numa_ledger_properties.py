"""Reservations against kubelets: whatever order things happen in, nothing is promised twice and nothing is kept for
nobody."""

import random
from collections import Counter
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from late_cluster import DEVICE, Json, LateCluster

STEPS = 600
MOST_WAITING = 8


def spec(chance: random.Random) -> Json:
    """Mostly Guaranteed with whole CPUs, sometimes with init containers, sidecars, devices, pages, fractions."""
    kind = chance.random()
    if kind < 0.08:
        return {"containers": [{"name": "app"}]}
    if kind < 0.16:
        amounts = _amounts(chance)
        limits = {name: amount for name, amount in amounts.items() if "/" in name or name.startswith("hugepages-")}
        return {"containers": [{"name": "app", "resources": {"requests": amounts, "limits": limits}}]}
    init = []
    if chance.random() < 0.2:
        init.append(_container(chance, "init"))
    if chance.random() < 0.15:
        init.append({**_container(chance, "sidecar"), "restartPolicy": "Always"})
    apps = [_container(chance, f"app-{index}") for index in range(chance.choice((1, 1, 1, 2)))]
    return {"initContainers": init, "containers": apps}


def _container(chance: random.Random, name: str) -> Json:
    amounts = _amounts(chance)
    return {"name": name, "resources": {"requests": amounts, "limits": amounts}}


def _amounts(chance: random.Random) -> dict[str, Any]:
    amounts = {
        "cpu": chance.choice(("1", "2", "2", "3", "4", "5", "8", "1500m")),
        "memory": chance.choice(("1Gi", "2Gi", "4Gi", "9Gi")),
    }
    if chance.random() < 0.2:
        amounts[DEVICE] = chance.choice(("1", "1", "2"))
    if chance.random() < 0.1:
        amounts["hugepages-2Mi"] = chance.choice(("64Mi", "256Mi"))
    return amounts


def step(world: LateCluster, chance: random.Random) -> None:
    """One thing happens."""
    kubelet = world.kubelets[chance.choice(list(world.kubelets))]
    waiting = [
        uid for uid, pod in world.pods.items() if not pod.node and uid not in world.in_flight and not pod.is_over
    ]
    running = [uid for uid, pod in world.pods.items() if pod.started_at and not pod.is_over]
    what = chance.choices(
        ("create", "schedule", "bind", "fail", "notice", "admit", "report", "scan", "pod", "node", "end", "again",
         "time", "restart"),
        (10, 25, 25, 1, 5, 20, 15, 10, 30, 15, 14, 8, 12, 0.6),
    )[0]  # fmt: skip
    match what:
        case "create" if len(waiting) < MOST_WAITING:
            world.create(spec(chance))
        case "again" if world.names and len(waiting) < MOST_WAITING:
            world.create(spec(chance), world.names.pop(chance.randrange(len(world.names))))
        case "schedule" if waiting:
            world.schedule(chance.choice(waiting))
        case "bind" if world.in_flight:
            world.bind(chance.choice(list(world.in_flight)))
        case "fail" if world.in_flight:
            world.forget_binding(chance.choice(list(world.in_flight)))
        case "notice":
            world.notice(kubelet)
        case "admit" if kubelet.todo:
            world.admit(kubelet)
        case "report" if kubelet.statuses:
            world.report(kubelet)
        case "scan":
            world.scan(kubelet)
        case "pod" if world.pod_watch:
            world.see_pod()
        case "node" if world.node_watch:
            world.see_node()
        case "end" if running and chance.random() < 0.5:
            world.complete(chance.choice(running))
        case "end" if world.pods:
            world.delete(chance.choice(running if running and chance.random() < 0.8 else list(world.pods)))
        case "time":
            world.pass_time(chance.choice((0.1, 0.5, 2.0, 4.0)))
        case "restart" if world.with_bind or not world.in_flight:
            world.restart()


LAYOUTS = {
    "container": {
        "one": f"2x10,reserved=1,devices={DEVICE}:2,pages=2Mi:256,memory=40Gi",
        "two": f"4x6,reserved=2,devices={DEVICE}:1,pages=2Mi:128,memory=24Gi",
    },
    "pod": {
        "one": f"2x10,scope=pod,reserved=1,devices={DEVICE}:2,pages=2Mi:256,memory=40Gi",
        "two": f"4x6,scope=pod,reserved=2,devices={DEVICE}:1,pages=2Mi:128,memory=24Gi",
    },
}


def play(chance: random.Random, world: LateCluster, steps: int) -> None:
    """Nothing is refused on the way; when everything has come to rest, nothing is reserved any more."""
    for _ in range(steps):
        step(world, chance)
        world.check_sums()
        assert not world.rejected
    world.settle_down()
    assert not world.rejected
    world.check_sums()
    # Devices of init containers that have ended are shown by no object.
    left = [each for each in world.ledger.all_reservations() if not world.ledger.is_settled(each.uid)]
    assert not left


@pytest.mark.req("NS-111")
@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("method", ["with-exclusive-resources", "all"])
@pytest.mark.parametrize("scope", LAYOUTS)
def test_nothing_is_promised_twice_and_nothing_is_kept_for_nobody(scope: str, method: Any, seed: int) -> None:
    chance = random.Random(f"{scope} {method} {seed}")
    world = LateCluster(
        chance,
        LAYOUTS[scope],
        method=method,
        with_bind=seed % 2 == 0,
        candidates=1 + seed % 2,
        lists_ended=seed % 3 == 0,
    )
    play(chance, world, STEPS)
    assert world.counts["admitted"] > 5
    verdicts: Counter[tuple[bool, bool]] = Counter()
    for _ in range(40):
        world.create(spec(chance))
        pod = list(world.pods.values())[-1]
        for name, kubelet in world.kubelets.items():
            if world.ledger.reservations(name):
                # What an init container held is where it was predicted, which nobody can check.
                continue
            decision, aligned = world.decide(pod.facts, name), kubelet.would_align(pod.model)
            verdicts[decision.fits, aligned] += 1
            assert decision.fits == aligned, (pod.spec, decision)
            assert world.ledger.is_certain(pod.facts, decision, world.now)
    assert verdicts[True, True] or not verdicts


@pytest.mark.req("NS-111")
@settings(max_examples=25, deadline=None)
@given(
    seed=st.integers(0, 1 << 32),
    scope=st.sampled_from(sorted(LAYOUTS)),
    method=st.sampled_from(["with-exclusive-resources", "all"]),
    with_bind=st.booleans(),
    candidates=st.integers(1, 2),
    lists_ended=st.booleans(),
)
def test_books_are_right_in_any_world(
    seed: int, scope: str, method: Any, with_bind: bool, candidates: int, lists_ended: bool
) -> None:
    chance = random.Random(seed)
    world = LateCluster(
        chance, LAYOUTS[scope], method=method, with_bind=with_bind, candidates=candidates, lists_ended=lists_ended
    )
    play(chance, world, 120)
