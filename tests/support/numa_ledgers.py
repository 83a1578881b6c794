"""A ledger with its world in the hand: pods that come and go, objects that show some of them."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec
from numa_nodes import amounts, cell, container, node, pod

from polyarch.numa.fingerprint import fingerprint
from polyarch.numa.fit.evaluate import evaluate
from polyarch.numa.fit.facts import ExactOptions, FitDecision, NodeFacts, PodFacts, ZoneFacts
from polyarch.numa.reservations import ReservationCache, ReservationChange, ReservationOptions

PERIOD = 10.0
GRACE = 2 * PERIOD + 10.0
STARTED_AT = "2026-01-01T00:00:00Z"
RULES = ExactOptions()


def started_ledger(**options: Any) -> ReservationCache:
    ledger = ReservationCache(RULES, ReservationOptions(**options))
    ledger.start(0.0, 0.0)
    return ledger


def version(
    number: int,
    shown: Iterable[PodFacts] = (),
    *,
    used: Sequence[Mapping[str, float]] = ({}, {}),
    method: str = "with-exclusive-resources",
    name: str = "worker",
    **settings: Any,
) -> NodeFacts:
    """An object of two cells of 8 CPUs and 32 GiB each, with the fingerprint of ``shown``, of which ``used`` is in
    use."""
    return msgspec.structs.replace(
        node(*(_cell(index, each) for index, each in enumerate(used)), name=name, refresh_period=PERIOD, **settings),
        resource_version=str(number),
        fingerprint=fingerprint((each.namespace, each.name) for each in shown),
        fingerprint_method=method,
    )


def _cell(index: int, used: Mapping[str, float]) -> ZoneFacts:
    return cell(index, cpu=8, memory=32, nic=2, used=used)


def exclusive(name: str, cpu: float = 4, memory: float = 4, **others: Any) -> PodFacts:
    return pod(container("app", cpu=cpu, memory=memory), name=name, **others)


def bound(facts: PodFacts, *, node: str = "worker", version: int = 0, **changes: Any) -> PodFacts:
    """The pod as it is seen on its node, not admitted yet."""
    return msgspec.structs.replace(facts, node_name=node, resource_version=str(version), **changes)


def admitted(facts: PodFacts, *, node: str = "worker", version: int = 0, **changes: Any) -> PodFacts:
    return bound(facts, node=node, version=version, phase="Running", started_at=STARTED_AT, **changes)


def choose(
    ledger: ReservationCache, facts: PodFacts, *nodes: NodeFacts, now: float, **others: Any
) -> list[FitDecision]:
    """What a filter does: drop, evaluate, hold the nodes that fit."""
    ledger.drop(facts.uid, "again")
    decisions = [evaluate(facts, each, ledger.free(each), RULES, groups=ledger.groups(each.name)) for each in nodes]
    fitting = [each for each in decisions if each.fits]
    ledger.hold(facts, fitting, now, **others)
    return fitting


def told(changes: Iterable[ReservationChange]) -> list[tuple[str, str, str]]:
    """Event, reason, pod."""
    return [(each.event, each.reason, each.reservation.uid) for each in changes]


def cpus(ledger: ReservationCache, node: str = "worker") -> dict[int, int]:
    """Reserved CPUs by cell."""
    return {cell: each.get("cpu", 0) // 1000 for cell, each in ledger.reserved(node).items()}


CELLS_OF_FOUR = {0: amounts({"cpu": 4, "memory": 4})}
