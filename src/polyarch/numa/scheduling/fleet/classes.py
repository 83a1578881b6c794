"""Nodes that are alike in everything but amounts: what holds for one before its cells are looked at holds for all.

So the demand of a pod and the checks of NS-044 cost as much as there are classes, and each class is a table of its own,
without gaps for cells and resources that its nodes do not have. Pure.
"""

from collections.abc import Hashable
from typing import Final

import msgspec

from polyarch.numa.scheduling.exact import checks, several
from polyarch.numa.scheduling.exact.allocation import is_static
from polyarch.numa.scheduling.exact.demand import NOTHING, Demand, Demands, Unit
from polyarch.numa.scheduling.exact.options import ExactOptions
from polyarch.numa.scheduling.facts.amounts import CPU, is_memory
from polyarch.numa.scheduling.facts.decision import Decision
from polyarch.numa.scheduling.facts.nodes import CellFacts, NodeFacts
from polyarch.numa.scheduling.facts.pods import PodFacts
from polyarch.numa.scheduling.fleet.question import MOST_AMOUNT, MOST_RESOURCES, REFUSED, UNDECIDED, Question
from polyarch.quantity import UNIT


class Verdict(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """What a class says about a pod. Neither ``decision`` nor ``question``: its nodes are decided one by one."""

    demand: Demand
    decision: Decision | None = None
    """The same for each of its nodes, but for the name."""
    question: Question | None = None
    """For its table."""
    refused: int = REFUSED
    """What becomes of those that the table refuses: a score, or undecided."""


class NodeClass(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """What the nodes of a class have in common."""

    sample: NodeFacts
    """One of them, or one that was."""
    by_itself: bool
    """No table can hold them."""
    nearest: tuple[bool, ...]
    """By cell: none is nearer to itself."""
    resources: tuple[str, ...]
    splits_cores: bool
    """CPUs are reserved that leave a part of their core."""

    def verdict(self, pod: PodFacts, demands: Demands, options: ExactOptions) -> Verdict:
        sample = self.sample
        if not sample.has_topology:
            return Verdict(demand=NOTHING, decision=checks.without_topology(pod, sample, options))
        demand = demands.on(sample)
        hit = checks.first_hit(pod, sample, demand, options)
        if hit is not None:
            return Verdict(demand=demand, decision=hit)
        does = checks.action(sample, options)
        may_refuse = _may_refuse(sample, demand)
        if does == "ignore" and not may_refuse:
            return Verdict(demand=demand, decision=Decision(node=sample.name, fits=True))
        if does == "ignore" or self.by_itself or not self._has_rule(demand) or not _is_askable(demand.units, options):
            return Verdict(demand=demand)
        settings = sample.settings
        refused = 0 if does == "score" else REFUSED
        if settings.policy == "best-effort" and may_refuse:
            refused = UNDECIDED
        question = Question(
            units=tuple(_held(each) for each in demand.units),
            strategy=options.strategy,
            weights=options.weights,
            most_cells=settings.most_cells,
            nearest=self.nearest,
            by_groups=settings.policy == "restricted",
        )
        return Verdict(demand=demand, question=question, refused=refused)

    def _has_rule(self, demand: Demand) -> bool:
        """Whether the lowest cell with room is what this pod gets, and nothing else can refuse it."""
        settings = self.sample.settings
        closest = settings.topology_options.get(several.CLOSEST) == "true"
        if settings.policy == "restricted" and closest and not all(self.nearest):
            return False
        if _wants_cores(self.sample, demand) and (self.splits_cores or any(each.ends for each in demand.containers)):
            return False
        counted = {name for each in demand.units for name in each.needs}
        return all(name in counted for each in demand.containers for name in each.needs)


UNKNOWN: Final = NodeClass(
    sample=NodeFacts(name="", has_topology=False), by_itself=True, nearest=(), resources=(), splits_cores=False
)
"""A node that nobody has told of."""


def class_of(node: NodeFacts, *, has_groups: bool) -> tuple[Hashable, NodeClass]:
    """With the key that nodes of one class share. ``has_groups``: memory of several of its cells belongs together."""
    settings, cells = node.settings, node.cells
    own = [_own_cost(each) for each in cells]
    alone = settings.policy == "best-effort" and len(cells) == 1
    found = NodeClass(
        sample=node,
        by_itself=has_groups or not cells or alone or any(_is_odd(each) for each in cells),
        nearest=tuple(cost == min(own) for cost in own),
        resources=tuple(sorted({name for cell in cells for name in cell.available})),
        splits_cores=any(_splits_core(each, settings.threads_per_core or 1) for each in cells),
    )
    key = (
        node.has_topology,
        settings.policy,
        settings.scope,
        settings.most_cells,
        settings.cpu_manager,
        frozenset(settings.cpu_options.items()),
        settings.threads_per_core,
        settings.memory_manager,
        frozenset(settings.topology_options.items()),
        settings.pod_level_managers,
        frozenset(node.allocatable) if node.allocatable is not None else None,
        found.resources,
        frozenset(name for cell in node.cells for name, amount in cell.allocatable.items() if amount > 0),
        found.by_itself,
        found.nearest,
        found.splits_cores,
    )
    return key, found


def _own_cost(cell: CellFacts) -> int:
    return cell.costs.get(cell.id, several.UNKNOWN_COST)


def _is_odd(cell: CellFacts) -> bool:
    """With more than a table holds, or more available than allocatable."""
    if cell.available is not cell.allocatable:
        allocatable = cell.allocatable
        for name, amount in cell.available.items():
            if amount > allocatable.get(name, 0):
                return True
    return (
        max(cell.capacity.values(), default=0) > MOST_AMOUNT or max(cell.allocatable.values(), default=0) > MOST_AMOUNT
    )


def _splits_core(cell: CellFacts, threads: int) -> bool:
    return bool((cell.capacity.get(CPU, 0) - cell.allocatable.get(CPU, 0)) % (threads * UNIT))


def _wants_cores(node: NodeFacts, demand: Demand) -> bool:
    """The CPU manager looks for whole cores, whatever the topology manager has said."""
    settings = node.settings
    whole = settings.cpu_options.get(checks.WHOLE_CORES) == "true" and settings.threads_per_core is not None
    return whole and any(CPU in each.needs for each in demand.containers)


def _may_refuse(node: NodeFacts, demand: Demand) -> bool:
    """A manager refuses what it cannot hand out, even where the topology manager lets everything pass."""
    settings = node.settings
    wanted = {name for each in demand.containers for name in each.needs}
    return (
        _wants_cores(node, demand)
        or (is_static(settings.cpu_manager) and CPU in wanted)
        or (is_static(settings.memory_manager) and any(is_memory(name) for name in wanted))
    )


def _is_askable(units: tuple[Unit, ...], options: ExactOptions) -> bool:
    return (
        bool(units)
        and all(len(each.needs) <= MOST_RESOURCES for each in units)
        and sum(max(1, each) for each in options.weights.values()) <= MOST_AMOUNT >> 8
    )


def _held(unit: Unit) -> Unit:
    """With amounts that a table may be asked for: no node of a table has more than that."""
    if max(unit.needs.values()) <= MOST_AMOUNT:
        return unit
    return Unit(unit.name, unit.kind, {name: min(amount, MOST_AMOUNT + 1) for name, amount in unit.needs.items()})
