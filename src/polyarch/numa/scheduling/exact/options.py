"""What an administrator chooses about mode *exact* (NS-045, NS-070, NS-073). Pure."""

from collections.abc import Mapping
from typing import Literal

import msgspec

Strategy = Literal["LeastAllocated", "MostAllocated", "BalancedAllocation", "LeastNUMANodes"]
Action = Literal["filter", "score", "ignore"]
BestEffortAction = Literal["score", "ignore"]
UnknownNodes = Literal["pass", "reject"]


class ExactOptions(msgspec.Struct, frozen=True, kw_only=True):
    """The defaults are those of the flags."""

    strategy: Strategy = "LeastAllocated"
    weights: Mapping[str, int] = {}
    """By resource; 1 where there is none, or less than 1."""
    restricted: Action = "filter"
    """What becomes of a node with policy ``restricted`` that cannot align the pod."""
    best_effort: BestEffortAction = "score"
    unknown_nodes: UnknownNodes = "pass"
    """What becomes of a node without a NodeResourceTopology if the pod asks for something that could be aligned."""
