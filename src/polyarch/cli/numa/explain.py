"""The work of ``polyarch numa explain``: from the name or the manifest of a pod to its explanation."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, Literal, NamedTuple

import msgspec

from polyarch.cli.errors import CouldNotComplete, UsageError
from polyarch.cli.numa.amounts import short
from polyarch.cli.numa.objects import Event
from polyarch.cli.numa.options import ModeOptions, SourceOptions
from polyarch.cli.numa.snapshot import DecisionInputs, only, see
from polyarch.cli.numa.workloads import read_pods
from polyarch.cli.options.common import Output, emit
from polyarch.cli.output.documents import document_text
from polyarch.cli.output.messages import Messages
from polyarch.cli.output.tables import Row, table
from polyarch.cli.output.terminal import printable, styled
from polyarch.numa.explanation import (
    Placed,
    PodZones,
    RequestAlignment,
    ZoneNumbers,
    advice,
    alignments,
    has_demand,
    not_known,
    pod_zones,
    preemption,
    without,
    zone_numbers,
)
from polyarch.numa.fit.facts import ENDED, FitDecision, PodFacts, PodObject, pod_facts
from polyarch.numa.preemption import PreemptionDecision, listed
from polyarch.numa.snapshot import NodeSnapshot, Snapshot, Source, rules_of
from polyarch.objects import ObjectKey
from polyarch.quantity import spelled

COMMAND: Final = "numa explain"
MOST_EVENTS: Final = 5


class NumaExplainOptions(NamedTuple):
    """What the command line asks for."""

    pod: str | None
    file: str | None
    namespace: str | None
    nodes: tuple[str, ...]
    where: SourceOptions
    how: ModeOptions


def run_explain(asked: NumaExplainOptions, wanted: Sequence[Output], *, messages: Messages) -> int:
    """Explains it; the exit code. Raises CommandError."""
    where = asked.where
    given = _given(asked.file) if asked.file is not None else None
    seen = see(COMMAND, where, asked.how, messages=messages)
    ending = None
    if given is not None:
        pod = given
    else:
        named = _named(asked, seen)
        pod, ending = _facts(named), _ending(named)
    events = _events(pod, where) if given is None and not where.nrt else ()
    found = account(pod, seen, only(seen.snapshot, asked.nodes, COMMAND), events=events, ending=ending)
    emit(wanted, lambda form, colour: _rendered(found, form, colour=colour))
    return 0 if found.fits else 1


def _given(path: str) -> PodFacts:
    pods = read_pods([path], replicas=False)
    if len(pods) > 1:
        raise UsageError(f"{path}: {len(pods)} pods in it; {COMMAND} takes one at a time")
    return pods[0]


def _named(asked: NumaExplainOptions, seen: DecisionInputs) -> PodObject:
    place, slash, name = (asked.pod or "").rpartition("/")
    namespace = place if slash else asked.namespace or seen.namespace
    found = next((each for each in seen.objects.pods or () if each.metadata.key == (namespace, name)), None)
    if found is None and not asked.where.nrt:
        from polyarch.cli.numa.cluster import read_pod

        found = read_pod(COMMAND, ObjectKey(namespace, name), asked.where)  # lists leave out what is over
    if found is None:
        there = "in the files" if asked.where.nrt else "in the cluster"
        raise (UsageError if asked.where.nrt else CouldNotComplete)(
            f"{COMMAND}: there is no pod {name!r} in namespace {namespace!r} {there}; give another with -n"
        )
    return found


class PodEnd(NamedTuple):
    """What became of a pod that is over."""

    reason: str
    """Such as TopologyAffinityError; else its phase."""
    node: str
    """Where it was; empty: nowhere."""


def _ending(pod: PodObject) -> PodEnd | None:
    if pod.status is None or pod.status.phase not in ENDED:
        return None
    node = pod.spec.node_name if pod.spec is not None else None
    return PodEnd(pod.status.reason or pod.status.phase or "", node or "")


def _facts(pod: PodObject) -> PodFacts:
    facts = pod_facts(pod)
    return facts if facts.uid else msgspec.structs.replace(facts, uid=facts.full_name)


def _events(pod: PodFacts, where: SourceOptions) -> Sequence[Event]:
    from polyarch.cli.numa.cluster import read_events

    return read_events(COMMAND, pod, where)[-MOST_EVENTS:]


class NodeExplanation(NamedTuple):
    """What one node says."""

    decision: FitDecision
    numbers: tuple[ZoneNumbers, ...]
    policy: str
    advice: tuple[str, ...] = ()
    """What would have to change for the pod to fit."""
    unknown: tuple[str, ...] = ()
    """What nobody says of this kubelet, though it decides by it."""


class PreemptionExplanation(NamedTuple):
    """Who is evicted for a pod that waits."""

    mode: Literal["never", "off", "on"]
    """The pod must not preempt, preemption is off, or neither."""
    decision: PreemptionDecision
    """What would be done if it were on."""


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
    preemption: PreemptionExplanation | None = None
    """Of a pod that waits and is more important than the usual; None: nobody knows."""

    @property
    def fits(self) -> bool:
        return self.whereabouts is not None or any(each.decision.fits for each in self.nodes)


def _rendered(found: PodExplanation, form: str, *, colour: bool) -> str:
    made: dict[str, Any] = document(found) if form != "text" else {}
    return document_text(made, form) if made else text_of(found, colour=colour)


# -- the explanation, as a value and as the document ``polyarch.dev/numa-explain.v1``


VERSION: Final = "polyarch.dev/numa-explain.v1"


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
        nodes=() if home is not None else tuple(_node_document(pod, each, seen) for each in told),
        whereabouts=None if home is None else pod_zones(pod, home, seen.objects.topology(home.name), decide),
        events=events,
        ending=ending,
        preemption=_preemption(pod, seen) if home is None and ending is None else None,
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
        made["preemption"] = _preemption_document(found.preemption)
    if found.ending is not None:
        made["ended"] = found.ending._asdict()
    if found.events:
        made["events"] = [each._asdict() for each in found.events]
    return made


def _preemption(pod: PodFacts, seen: DecisionInputs) -> PreemptionExplanation | None:
    choice = seen.choice
    if pod.priority <= 0 or choice.evicts is None or pod.scheduler_name != choice.scheduler:
        return None
    mode: Literal["never", "off", "on"] = "never" if not pod.preempts else "on" if choice.evicts else "off"
    return PreemptionExplanation(mode, preemption(pod, seen.snapshot, choice))


def _preemption_document(found: PreemptionExplanation) -> dict[str, Any]:
    decision = found.decision
    victims = decision.candidate.victims if decision.candidate is not None else ()
    return {
        "mode": found.mode,
        "reason": decision.reason,
        "message": decision.message,
        "node": decision.candidate.node if decision.candidate is not None else "",
        "victims": [each.full_name for each in victims],
        "unclear": list(decision.unclear),
    }


def _preemption_text(found: PreemptionExplanation) -> str:
    helps = found.decision.reason == "Evicts"
    unclear = ""
    if found.decision.unclear:
        unclear = UNCLEAR.format(nodes=printable(listed(found.decision.unclear)))
    if found.mode == "on":
        until = "Disruption budgets may say no." if helps else unclear
        return f"Preemption: {printable(found.decision.message)}. {until}".rstrip()
    otherwise = f" Whether it would help, nobody knows. {unclear}" if unclear else " It would not help."
    would = f" With preemption: {printable(found.decision.message)}." if helps else otherwise
    return PREEMPTION[found.mode] + (would if found.mode == "off" else "")


def _node_document(pod: PodFacts, node: NodeSnapshot, seen: DecisionInputs) -> NodeExplanation:
    free = {cell.id: node.free(cell) for cell in node.facts.cells}
    decision = rules_of(seen.choice)(pod)(node.facts, free, node.memory_groups)
    policy = f"{node.facts.settings.policy}/{node.facts.settings.scope}" if node.facts.has_topology else ""
    return NodeExplanation(
        decision,
        zone_numbers(pod, node, decision, seen.choice),
        policy,
        advice(pod, node, decision, seen.choice),
        not_known(pod, node.facts) if has_demand(pod, node.facts) else (),
    )


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
    made |= {"advice": list(found.advice), "notKnown": list(found.unknown)}
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


# -- text for people; numbers stand in columns


SOURCES: Final = {
    "live": "the extender's own state",
    "reconstructed": "objects of the cluster, reservations as an extender would make them now",
    "files": "nothing else was asked; sums over nodes are not judged",
}
HINTS: Final = {
    "short": "no cell that it may use has enough",
    "no-common-cell": "each would fit somewhere, but not together",
    "not-on-node": "the node has no such resource",
    "smt": "whole cores only: the number of CPUs must be a multiple of the threads of a core",
    "no-zones": "the node's object has no cells",
    "policy": "the pod requires alignment, and the node's policy does not guarantee it",
    "no-topology": "the node has no NodeResourceTopology",
    "foreign": "another scheduler has changed the node since its object was read",
}
PREEMPTION: Final = {
    "never": "Nobody is evicted for it: its preemptionPolicy is Never.",
    "off": "Nobody is evicted for it: preemption is off (preemptionMode of the NUMAResourcesScheduler).",
}
UNCLEAR: Final = (
    "Pods of lower priority are on unknown cells of {nodes}: the node's object has no placement vectors, or not of its "
    "present pods. A container on several cells keeps an exporter from writing them, as does a setting."
)
MOST_NODES_WITH_NUMBERS: Final = 20
DEMAND: Final = ("CONTAINER", "KIND", "RESOURCE", "REQUESTED", "ALIGNED")
NUMBERS: Final = ("CELL", "CONTAINER", "RESOURCE", "REQUESTED", "AVAILABLE", "RESERVED", "FREE", "SHORT", "RESERVED BY")


def text_of(found: PodExplanation, *, colour: bool) -> str:
    """Who, what is aligned of it, where it fits."""
    return "\n".join(part for part in _parts(found, colour) if part)


def _parts(found: PodExplanation, colour: bool) -> Iterator[str]:
    pod = found.pod
    yield (
        f"{styled(printable(pod.full_name), 'bold', colour=colour)}\n"
        f"  qos     {pod.qos}\n"
        f"  source  {found.source}: {SOURCES[found.source]}\n"
        f"  mode    {found.mode}\n"
    )
    demand = (
        Row((each.container, each.kind, each.resource, spelled(each.amount), each.reason)) for each in found.alignments
    )
    yield table(DEMAND, demand, colour=colour) if found.alignments else "It requests nothing, so nothing is aligned.\n"
    if found.whereabouts is not None:
        yield _bound(pod.node_name, found.whereabouts, colour)
    if found.ending is not None:
        place = f" on node {printable(found.ending.node)}" if found.ending.node else ""
        yield f"It is over: {printable(found.ending.reason)}{place}. Where it would fit now:\n"
    if found.nodes:
        yield _summary(found.nodes)
        has_numbers = len(found.nodes) <= MOST_NODES_WITH_NUMBERS
        for each in sorted(found.nodes, key=lambda each: (not each.decision.fits, -each.decision.score)):
            yield _node_text(each, colour, has_numbers=has_numbers)
        if not has_numbers:
            yield "Numbers of each cell: name nodes with --node, or ask for -o json.\n"
    elif found.whereabouts is None:
        yield "There is no node.\n"
    if found.preemption is not None:
        yield f"{_preemption_text(found.preemption)}\n"
    if found.events:
        yield "Events (as they were reported):\n" + "".join(
            f"  {printable(each.reason)}{f' from {printable(each.reporter)}' if each.reporter else ''}: "
            f"{printable(each.note)}\n"
            for each in found.events
        )


def _bound(node: str, found: PodZones, colour: bool) -> str:
    lines = [f"On node {styled(printable(node), 'green', colour=colour)}"]
    lines.append(f"  predicted  {_cells(found.predicted)}")
    lines.append(f"  actual     {_cells(found.actual)}")
    if found.note:
        lines.append(f"  {found.note}")
    return "".join(f"{line}\n" for line in lines)


def _summary(nodes: Sequence[NodeExplanation]) -> str:
    fitting = sum(each.decision.fits for each in nodes)
    kinds = Counter(each.decision.kind for each in nodes if not each.decision.fits)
    told = "".join(f", {count} {kind}" for kind, count in sorted(kinds.items()))
    return f"Fits {fitting} of {len(nodes)} {'node' if len(nodes) == 1 else 'nodes'}{told}\n"


def _node_text(found: NodeExplanation, colour: bool, *, has_numbers: bool) -> str:
    decision = found.decision
    name = printable(decision.node)
    policy = f" ({found.policy})" if found.policy else ""
    if decision.fits:
        where = _cells(decision.cells) if decision.cells else "nothing has to be aligned here"
        head = f"{styled(name, 'green', colour=colour)}{policy}: fits, {where}, score {decision.score}\n"
    else:
        who = f" {printable(decision.container)!r}" if decision.container not in ("", "pod") else ""
        head = f"{styled(name, 'red', colour=colour)}{policy}: {printable(decision.message)} ({decision.kind}){who}\n"
        if decision.kind in HINTS:
            head += f"  {HINTS[decision.kind]}\n"
    head += "".join(f"  {printable(each)}\n" for each in found.advice)
    head += "".join(f"  not known: {printable(each)}\n" for each in found.unknown)
    if not has_numbers or not found.numbers:
        return head
    rows = (
        Row(
            (
                str(each.cell),
                each.container,
                each.resource,
                short(each.resource, each.requested),
                short(each.resource, each.available),
                short(each.resource, each.reserved),
                short(each.resource, each.free),
                short(each.resource, each.shortfall) if each.shortfall else "",
                ", ".join(each.reserved_by),
            ),
            "yellow" if each.shortfall and not decision.fits else "",
        )
        for each in found.numbers
    )
    return head + "".join(f"  {line}\n" for line in table(NUMBERS, rows, colour=colour).splitlines())


def _cells(cells: Placed | None) -> str:
    if cells is None:
        return "not known"
    texts = [
        f"{printable(name)} on {'cell' if len(each) == 1 else 'cells'} {', '.join(map(str, each))}"
        for name, each in cells.items()
    ]
    return "; ".join(texts) or "no cell"
