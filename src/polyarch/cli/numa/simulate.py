"""The work of ``polyarch numa simulate``: from files or a cluster to where pods would go."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

from polyarch.cli.errors import UsageError
from polyarch.cli.numa.options import ModeOptions, SourceOptions
from polyarch.cli.numa.snapshot import DecisionInputs, only, see
from polyarch.cli.numa.workloads import read_pods
from polyarch.cli.options.common import Output, emit
from polyarch.cli.output.documents import document_text
from polyarch.cli.output.messages import Messages
from polyarch.cli.output.tables import Row, table
from polyarch.cli.output.terminal import printable
from polyarch.names import ARCH_KEY
from polyarch.numa.fit.facts import FitDecision
from polyarch.numa.simulation import (
    INSUFFICIENT,
    RemainingCapacity,
    SimulatedPlacement,
    SimulatedRejection,
    SimulationResult,
    simulate,
)
from polyarch.numa.snapshot import Snapshot, Source, rules_of

COMMAND: Final = "numa simulate"


class SimulateOptions(NamedTuple):
    """What the command line asks for."""

    files: Sequence[str]
    fill: bool
    repeat: int
    drain: str | None
    explain: bool
    where: SourceOptions
    how: ModeOptions


def run_simulate(asked: SimulateOptions, wanted: Sequence[Output], *, messages: Messages) -> int:
    """Plays it; the exit code. Raises CommandError."""
    pods = read_pods(asked.files) if asked.files else []
    seen = see(COMMAND, asked.where, asked.how, messages=messages)
    if asked.drain is not None:
        _require_drainable(seen.snapshot, asked.drain)
    elif not seen.snapshot.knows_pods:
        messages.detail("pods on the nodes are not known: sums over nodes count the placed ones alone")
    if mixture := _mixture(seen):
        messages.note(f"nodes of {mixture}: whether a pod may go to each of them is not judged, only whether it fits")
    answer = simulate(
        seen.snapshot,
        pods,
        rules_of(seen.choice),
        repeat=asked.repeat,
        drain=asked.drain,
        fills=asked.fill,
        explains=asked.explain,
    )
    nodes = sum(each.name != asked.drain and not each.is_cordoned for each in seen.snapshot.nodes)

    def render(form: str, colour: bool) -> str:
        if form != "text":
            return document_text(document(answer, source=seen.snapshot.source), form)
        return text(answer, nodes=nodes, colour=colour)

    emit(wanted, render)
    return 1 if answer.unplaced else 0


def _mixture(seen: DecisionInputs) -> str:
    """The architectures of the nodes, where there are several: an answer may then name a node that a pod cannot use."""
    found = {(each.metadata.labels or {}).get(ARCH_KEY, "") for each in seen.objects.nodes} - {""}
    return " and ".join(sorted(found)) if len(found) > 1 else ""


def _require_drainable(snapshot: Snapshot, name: str) -> None:
    only(snapshot, (name,), f"{COMMAND}: --drain {name}")
    if not snapshot.knows_pods:
        raise UsageError(
            f"{COMMAND}: --drain {name}: its pods are not known; save them with: kubectl get nodes,pods -A -o json, "
            "and give the file with --nodes"
        )


# -- output: text, and the schema ``polyarch.dev/numa-simulation.v1``


VERSION: Final = "polyarch.dev/numa-simulation.v1"
HEADER: Final = ("POD", "NODE", "CELLS", "SCORE", "NOTE")
WORDS: Final = {
    "short": "no cell that may be used has enough",
    "no-common-cell": "no cell has enough of everything",
    INSUFFICIENT: "the node as a whole has too little",
}
MOST_REASONS: Final = 4
MOST_NODES_IN_A_LINE: Final = 20


def text(answer: SimulationResult, *, nodes: int, colour: bool) -> str:
    """A line per pod, then what was counted."""
    parts = [table(HEADER, (_row(each, nodes) for each in answer.outcomes), colour=colour)] if answer.outcomes else []
    parts += [_explained(each, colour=colour) for each in answer.outcomes if each.asked]
    parts.append(f"{_counted(answer)}\n")
    if answer.filled is not None:
        parts.append("".join(f"{line}\n" for line in _fill(answer.filled, nodes)))
    return "\n".join(parts)


def cells_text(cells: Mapping[str, Sequence[int]]) -> str:
    """``0``, ``0,1``, and of several containers ``app=0 sidecar=1``."""
    texts = {name: ",".join(map(str, found)) for name, found in cells.items()}
    if len(texts) == 1:
        return next(iter(texts.values()))
    return " ".join(f"{name}={each}" for name, each in texts.items())


def document(answer: SimulationResult, *, source: Source) -> dict[str, Any]:
    """With ``nodes`` where every node is to say what it says."""
    found: dict[str, Any] = {
        "schemaVersion": VERSION,
        "source": source,
        "pods": [_pod(each) for each in answer.outcomes],
        "unplaced": len(answer.unplaced),
    }
    if answer.filled is not None:
        filled = answer.filled
        found["fill"] = {
            "copies": filled.copies,
            "limited": filled.is_limited,
            "nodes": dict(filled.by_node),
            "runsOut": _refusals(filled.stopped_by.refusals) if filled.stopped_by is not None else [],
        }
    return found


def _verdict(name: str, found: FitDecision | SimulatedRejection) -> dict[str, Any]:
    """What one node says of one pod."""
    if isinstance(found, SimulatedRejection):
        return {"node": name, "fits": False, "kind": found.kind, "message": found.message} | _resources(found)
    return {"node": name, "fits": True, "cells": _cells(found), "score": found.score}


def _row(outcome: SimulatedPlacement, nodes: int) -> Row:
    decision = outcome.decision
    if decision is None:
        return Row((outcome.pod.full_name, "-", "-", "-", _reasons(outcome.refusals, nodes)), "red")
    note = "" if decision.cells else "nothing to align"
    return Row((outcome.pod.full_name, decision.node, cells_text(decision.cells), str(decision.score), note))


def _explained(outcome: SimulatedPlacement, *, colour: bool) -> str:
    lines = (
        Row((name, "-", "-", f"{each.message} ({each.kind})"))
        if isinstance(each, SimulatedRejection)
        else Row((name, cells_text(each.cells), str(each.score), ""))
        for name, each in outcome.asked.items()
    )
    return f"{printable(outcome.pod.full_name)}:\n" + table(("NODE", "CELLS", "SCORE", "REASON"), lines, colour=colour)


def _reasons(refusals: Mapping[SimulatedRejection, int], nodes: int) -> str:
    if not nodes:
        return "there is no node"
    told = [f"{count} of {nodes} {_nodes(nodes)}: {each.message} ({each.kind})" for each, count in refusals.items()]
    more = [f"and {len(told) - MOST_REASONS} other reasons"] if len(told) > MOST_REASONS else []
    return "; ".join([*told[:MOST_REASONS], *more])


def _counted(answer: SimulationResult) -> str:
    unplaced = len(answer.unplaced)
    placed = len(answer.outcomes) - unplaced
    return f"{placed} {'pod' if placed == 1 else 'pods'} placed, {unplaced} not"


def _fill(filled: RemainingCapacity, nodes: int) -> Iterator[str]:
    if not filled.is_limited:
        yield f"More than {filled.copies} more copies fit: nothing runs out"
        return
    by_node = ", ".join(f"{printable(name)} {count}" for name, count in filled.by_node.items())
    yield f"{filled.copies} more {'copy fits' if filled.copies == 1 else 'copies fit'}" + (
        f": {by_node}" if 0 < len(filled.by_node) <= nodes <= MOST_NODES_IN_A_LINE else ""
    )
    if filled.stopped_by is not None and nodes:
        yield "What runs out first:"
        for each, count in filled.stopped_by.refusals.items():
            what = ", ".join(each.resources) or each.message
            why = WORDS.get(each.kind, each.message)
            yield printable(f"  {what}: {count} of {nodes} {_nodes(nodes)}, {why}")


def _pod(outcome: SimulatedPlacement) -> dict[str, Any]:
    decision = outcome.decision
    found: dict[str, Any] = {"pod": outcome.pod.full_name}
    if decision is not None:
        found |= {"node": decision.node, "cells": _cells(decision), "score": decision.score}
    else:
        found |= {"node": None, "refusals": _refusals(outcome.refusals)}
    if outcome.asked:
        found["nodes"] = [_verdict(name, each) for name, each in outcome.asked.items()]
    return found


def _refusals(refusals: Mapping[SimulatedRejection, int]) -> list[dict[str, Any]]:
    return [
        {"kind": each.kind, "message": each.message} | _resources(each) | {"nodes": n} for each, n in refusals.items()
    ]


def _resources(refusal: SimulatedRejection) -> dict[str, Any]:
    return {"resources": list(refusal.resources)}


def _cells(decision: FitDecision) -> dict[str, list[int]]:
    return {name: list(cells) for name, cells in decision.cells.items()}


def _nodes(count: int) -> str:
    return "node" if count == 1 else "nodes"
