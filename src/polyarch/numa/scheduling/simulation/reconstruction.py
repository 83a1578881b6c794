"""What an extender would hold reserved if it started now (NS-150): for clusters without one, and for files. Pure."""

import msgspec

from polyarch.numa.scheduling.exact.options import ExactOptions
from polyarch.numa.scheduling.ledger.ledger import Ledger
from polyarch.numa.scheduling.ledger.reservations import Reservation
from polyarch.numa.scheduling.ledger.rules import ExactRules
from polyarch.numa.scheduling.simulation.snapshot import Held, NodeSnapshot, Snapshot


def reconstructed(snapshot: Snapshot, options: ExactOptions, *, unix: float) -> Snapshot:
    """With reservations for pods that the objects do not show yet. ``unix``: the time of the snapshot, in seconds."""
    if not snapshot.knows_pods:
        return snapshot
    ledger = Ledger(ExactRules(options))
    for node in snapshot.nodes:
        ledger.topology_seen(node.facts, 0.0)
    for node in snapshot.nodes:
        for resident in node.residents:
            ledger.pod_seen(resident.facts, 0.0)
    ledger.start(0.0, unix)
    nodes = tuple(_with_reservations(node, ledger) for node in snapshot.nodes)
    return msgspec.structs.replace(snapshot, nodes=nodes)


def _with_reservations(node: NodeSnapshot, ledger: Ledger) -> NodeSnapshot:
    held = sorted(ledger.reservations(node.name).values(), key=lambda each: (each.pod, each.uid))
    is_unexplained = ledger.is_explained(node.name) is False and bool(node.facts.fingerprint)
    if not held and not is_unexplained:
        return node
    return msgspec.structs.replace(node, held=tuple(map(_held, held)), is_unexplained=is_unexplained)


def _held(found: Reservation) -> Held:
    return Held(
        pod=found.pod,
        uid=found.uid,
        cells=found.cells,
        is_spread=found.is_spread,
        memory_groups=found.memory_groups,
    )
