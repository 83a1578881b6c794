"""The explanation for people. Lines are as long as they are; numbers stand in columns."""

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Final

from polyarch.cli.numa.amounts import short
from polyarch.cli.numa.explain.account import Account, NodeAccount
from polyarch.cli.output.tables import Row, table
from polyarch.cli.output.terminal import printable, styled
from polyarch.numa.explanation import Placed, PodZones
from polyarch.quantity import spelled

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
    "zones": "Pods of lower priority are evicted for it where NUMA zones alone keep it off, "
    "never by the sums of a node.",
}
MOST_NODES_WITH_NUMBERS: Final = 20
DEMAND: Final = ("CONTAINER", "KIND", "RESOURCE", "REQUESTED", "ALIGNED")
NUMBERS: Final = ("CELL", "CONTAINER", "RESOURCE", "REQUESTED", "AVAILABLE", "RESERVED", "FREE", "SHORT", "RESERVED BY")


def text_of(found: Account, *, colour: bool) -> str:
    """Who, what is aligned of it, where it fits."""
    return "\n".join(part for part in _parts(found, colour) if part)


def _parts(found: Account, colour: bool) -> Iterator[str]:
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
            yield _node(each, colour, has_numbers=has_numbers)
        if not has_numbers:
            yield "Numbers of each cell: name nodes with --node, or ask for -o json.\n"
    elif found.whereabouts is None:
        yield "There is no node.\n"
    if found.preemption is not None:
        yield f"{PREEMPTION[found.preemption]}\n"
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


def _summary(nodes: Sequence[NodeAccount]) -> str:
    fitting = sum(each.decision.fits for each in nodes)
    kinds = Counter(each.decision.kind for each in nodes if not each.decision.fits)
    told = "".join(f", {count} {kind}" for kind, count in sorted(kinds.items()))
    return f"Fits {fitting} of {len(nodes)} {'node' if len(nodes) == 1 else 'nodes'}{told}\n"


def _node(found: NodeAccount, colour: bool, *, has_numbers: bool) -> str:
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
