"""What a ledger is told: its settings, and the rules of the mode it keeps the books for. Pure."""

from typing import Literal, Protocol

import msgspec

from polyarch.numa.scheduling.facts.amounts import Amounts
from polyarch.numa.scheduling.facts.decision import Decision
from polyarch.numa.scheduling.facts.nodes import NodeFacts
from polyarch.numa.scheduling.facts.pods import PodFacts
from polyarch.numa.scheduling.ledger.certainty import Claim
from polyarch.numa.scheduling.ledger.reservations import Cells, Groups

Foreign = Literal["exclusive", "all", "none"]


class LedgerOptions(msgspec.Struct, frozen=True, kw_only=True):
    """``--reservations``, ``--ttl``, ``--foreign`` and the name of our scheduler."""

    is_on: bool = True
    """False: nothing is reserved, each filter sees the object alone (NS-112)."""
    ttl: float = 60.0
    """Seconds that a pod is held for."""
    ttl_with_claims: float = 600.0
    """The same for pods with claims of volumes or devices, which are bound late."""
    foreign: Foreign = "exclusive"
    """Which pods of others count: those that align something, all (which is the same here: the others hold nothing of
    a cell), or none (NS-108)."""
    scheduler: str = ""
    """Ours; matters for ``foreign`` none alone."""


class Rules(Protocol):
    """Of the mode, with its options."""

    def decide(self, pod: PodFacts, node: NodeFacts, free: Cells, groups: Groups) -> Decision:
        """Whether and where the pod fits, beside reservations that make these groups of cells."""
        ...

    def demand(self, pod: PodFacts, node: NodeFacts) -> Amounts:
        """What has to be aligned of the pod as a whole (NS-043)."""
        ...

    def claim(self, pod: PodFacts, node: NodeFacts, decision: Decision) -> Claim:
        """What the pod needs to be admitted as decided."""
        ...

    def is_listed(self, pod: PodFacts, node: NodeFacts) -> bool:
        """Whether a container that runs as long as the pod has demand: what a kubelet lists as exclusive."""
        ...
