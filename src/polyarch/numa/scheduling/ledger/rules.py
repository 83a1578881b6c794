"""The rules of mode *exact* as the ledger asks for them. Pure."""

from typing import Final

from polyarch.numa.scheduling.exact.demand import Demands, together
from polyarch.numa.scheduling.exact.evaluate import evaluate
from polyarch.numa.scheduling.exact.options import ExactOptions
from polyarch.numa.scheduling.facts.amounts import Amounts
from polyarch.numa.scheduling.facts.decision import Decision
from polyarch.numa.scheduling.facts.nodes import NodeFacts
from polyarch.numa.scheduling.facts.pods import PodFacts
from polyarch.numa.scheduling.ledger.certainty import Claim
from polyarch.numa.scheduling.ledger.reservations import Cells, Groups

USUAL: Final = ExactOptions()


class ExactRules:
    """:class:`polyarch.numa.scheduling.ledger.options.Rules` with these options."""

    def __init__(self, options: ExactOptions = USUAL) -> None:
        self._options: Final = options

    def decide(self, pod: PodFacts, node: NodeFacts, free: Cells, groups: Groups) -> Decision:
        return evaluate(pod, node, free, self._options, groups=groups)

    def demand(self, pod: PodFacts, node: NodeFacts) -> Amounts:
        demand = Demands(pod).on(node)
        return together(demand.containers or demand.units)

    def claim(self, pod: PodFacts, node: NodeFacts, decision: Decision) -> Claim:
        units = Demands(pod).on(node).units
        is_tied = len(units) > 1 and any(each.ends for each in units)
        is_wide = any(len(cells) > 1 for cells in decision.cells.values())
        return Claim(tuple(each.needs for each in units), is_tied or is_wide)

    def is_listed(self, pod: PodFacts, node: NodeFacts) -> bool:
        demand = Demands(pod).on(node)
        return any(not each.ends for each in demand.containers or demand.units)
