"""An explanation as a value, and as the document ``polyarch.dev/numa-explain.v1``. No input, no output."""

from collections.abc import Mapping, Sequence
from typing import Any, Final, Literal, NamedTuple

import msgspec

from polyarch.cli.numa.snapshot import DecisionInputs
from polyarch.numa.explanation import (
    Placed,
    PodZones,
    RequestAlignment,
    ZoneNumbers,
    alignments,
    pod_zones,
    without,
    zone_numbers,
)
from polyarch.numa.fit.facts import FitDecision, PodFacts
from polyarch.numa.snapshot import Choice, NodeSnapshot, Snapshot, Source, rules_of
from polyarch.quantity import spelled

VERSION: Final = "polyarch.dev/numa-explain.v1"


class NodeExplanation(NamedTuple):
    """What one node says."""

    decision: FitDecision
    numbers: tuple[ZoneNumbers, ...]
    policy: str


class Event(NamedTuple):
    """One of the pod's, quoted."""

    reason: str
    note: str
    reporter: str = ""


class PodEnd(NamedTuple):
    """What became of a pod that is over."""

    reason: str
    """Such as TopologyAffinityError; else its phase."""
    node: str
    """Where it was; empty: nowhere."""


Preemption = Literal["never", "off", "zones"]
"""Who is evicted for the pod: nobody as it must not preempt, nobody as preemption is off, or pods in NUMA zones."""


class PodExplanation(NamedTuple):
    """Everything about one pod."""

    source: Source
    mode: str
    pod: PodFacts
    alignments: tuple[RequestAlignment, ...]
    nodes: tuple[NodeExplanation, ...]
    whereabouts: PodZones | None = None
    events: Sequence[Event] = ()
    ending: PodEnd | None = None
    """Of a pod that is over: the nodes say where one like it would fit now."""
    preemption: Preemption | None = None
    """Of a pod that waits and is more important than the usual; None: nobody knows."""

    @property
    def fits(self) -> bool:
        return self.whereabouts is not None or any(each.decision.fits for each in self.nodes)


def account(
    pod: PodFacts, seen: DecisionInputs, shown: Snapshot, *, events: Sequence[Event] = (), ending: PodEnd | None = None
) -> PodExplanation:
    """``shown``: the nodes to tell about. A bound pod is judged on its own node alone, as if it were not there yet; one
    that is over as if it were to come."""
    if ending is not None:
        pod = msgspec.structs.replace(pod, node_name="")
    decide = rules_of(seen.choice)
    home = seen.snapshot.node(pod.node_name) if pod.node_name else None
    told = [without(each, pod) for each in shown.nodes if home is None or each.name == home.name]
    return PodExplanation(
        source=seen.snapshot.source,
        mode=seen.choice.mode,
        pod=pod,
        alignments=alignments(pod, [each.facts for each in told]),
        nodes=() if home is not None else tuple(_node(pod, each, seen) for each in told),
        whereabouts=None if home is None else pod_zones(pod, home, seen.objects.topology(home.name), decide),
        events=events,
        ending=ending,
        preemption=_preemption(pod, seen.choice) if home is None and ending is None else None,
    )


def document(found: PodExplanation) -> dict[str, Any]:
    """Amounts are quantities, exact."""
    pod = found.pod
    made: dict[str, Any] = {
        "schemaVersion": VERSION,
        "source": found.source,
        "mode": found.mode,
        "pod": pod.full_name,
        "qos": pod.qos,
        "demand": [
            {
                "container": each.container,
                "kind": each.kind,
                "resource": each.resource,
                "requested": spelled(each.amount),
                "alignedOn": each.aligned_on,
                "reason": each.reason,
            }
            for each in found.alignments
        ],
        "nodes": [_verdict(each) for each in found.nodes],
    }
    if found.whereabouts is not None:
        place = found.whereabouts
        made["bound"] = {
            "node": pod.node_name,
            "predicted": _placed(place.predicted),
            "actual": _placed(place.actual),
            "note": place.note,
        }
    if found.preemption is not None:
        made["preemption"] = found.preemption
    if found.ending is not None:
        made["ended"] = found.ending._asdict()
    if found.events:
        made["events"] = [each._asdict() for each in found.events]
    return made


def _preemption(pod: PodFacts, choice: Choice) -> Preemption | None:
    if pod.priority <= 0 or choice.evicts is None or pod.scheduler_name != choice.scheduler:
        return None
    if not pod.preempts:
        return "never"
    return "zones" if choice.evicts else "off"


def _node(pod: PodFacts, node: NodeSnapshot, seen: DecisionInputs) -> NodeExplanation:
    free = {cell.id: node.free(cell) for cell in node.facts.cells}
    decision = rules_of(seen.choice)(pod)(node.facts, free, node.memory_groups)
    policy = f"{node.facts.settings.policy}/{node.facts.settings.scope}" if node.facts.has_topology else ""
    return NodeExplanation(decision, zone_numbers(pod, node, decision, seen.choice), policy)


def _verdict(found: NodeExplanation) -> dict[str, Any]:
    decision = found.decision
    made: dict[str, Any] = {"node": decision.node, "fits": decision.fits}
    if decision.fits:
        made |= {"cells": _placed(decision.cells), "score": decision.score}
    else:
        made |= {
            "kind": decision.kind,
            "message": decision.message,
            "container": decision.container,
            "resources": list(decision.resources),
        }
    return made | {"amounts": [_numbers(each) for each in found.numbers]}


def _numbers(found: ZoneNumbers) -> dict[str, Any]:
    return {
        "container": found.container,
        "cell": found.cell,
        "resource": found.resource,
        "requested": spelled(found.requested),
        "available": spelled(found.available),
        "reserved": spelled(found.reserved),
        "reservedBy": list(found.reserved_by),
        "free": spelled(found.free),
        "shortfall": spelled(found.shortfall),
    }


def _placed(cells: Placed | Mapping[str, Sequence[int]] | None) -> dict[str, list[int]] | None:
    return None if cells is None else {name: list(each) for name, each in cells.items()}
