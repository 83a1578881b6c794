"""The decision about one pod on one node (NS-004): what the wire, Events, ``explain`` and ``simulate`` render. Pure."""

from collections.abc import Mapping
from typing import Literal

import msgspec

from polyarch.numa.scheduling.facts.amounts import Amounts

Kind = Literal["", "short", "no-common-cell", "not-on-node", "smt", "no-zones", "policy", "foreign", "no-topology"]
"""Why a node does not fit; empty where it fits."""

POD: str = "pod"
"""In place of a container's name: the pod as a whole."""

CANNOT_ALIGN: Mapping[str, str] = {
    "init": "cannot align init container",
    "sidecar": "cannot align sidecar container",
    "app": "cannot align container",
    POD: "cannot align pod",
}
NO_TOPOLOGY_DATA = "invalid node topology data"
NOT_GUARANTEED = "node does not guarantee alignment"


class Decision(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """``fits`` with cells and score, or ``kind`` and ``message``."""

    node: str
    fits: bool
    kind: Kind = ""
    message: str = ""
    """Without numbers of the node, so that events of many nodes group."""
    container: str = ""
    """The first one that cannot be placed; :data:`POD` for the pod as a whole."""
    resources: tuple[str, ...] = ()
    """Those that rule the node out, sorted."""
    cells: Mapping[str, tuple[int, ...]] = {}
    """By container with demand, or :data:`POD`; ascending. Empty where nothing has to be aligned."""
    taken: Mapping[int, Amounts] = {}
    """What is taken from the free amounts of each cell: what a reservation holds (NS-054)."""
    memory_groups: tuple[tuple[int, ...], ...] = ()
    """Sets of several cells that memory is taken from together: nobody else's memory may lie across their bounds."""
    unseen: Mapping[int, Amounts] = {}
    """The part of ``taken`` that no NodeResourceTopology will show, as long as the pod is there: devices that only its
    ended init containers held."""
    score: int = 0
    """0 – 100."""
