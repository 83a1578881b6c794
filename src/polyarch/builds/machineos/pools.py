"""Which pool a node belongs to (BD-262): its architectures are those of the images that the pool's nodes run."""

from collections.abc import Iterable, Mapping

import msgspec

from polyarch.builds.facts.facts import NodeFacts
from polyarch.builds.facts.problem import Problem
from polyarch.selectors import LabelSelector, Selector

MASTER = "master"
WORKER = "worker"


class Pool(msgspec.Struct, frozen=True):
    """A MachineConfigPool, as far as membership goes. One without a selector, or with an empty one, has no nodes."""

    name: str
    node_selector: LabelSelector | None = None


class Members(msgspec.Struct, frozen=True, kw_only=True):
    """The nodes of a pool."""

    nodes: tuple[NodeFacts, ...] = ()
    warnings: tuple[Problem, ...] = ()


def members(pool: str, pools: Iterable[Pool], nodes: Iterable[NodeFacts]) -> Members:
    """The nodes whose primary pool it is. A node in two custom pools belongs to none, and is named."""
    selectors = {
        each.name: Selector.parse(each.node_selector)
        for each in sorted(pools, key=lambda each: each.name)
        if each.node_selector is not None and not each.node_selector.is_empty
    }
    found: list[NodeFacts] = []
    warnings: list[Problem] = []
    for node in sorted(nodes, key=lambda each: each.name):
        matching = _matching(node.labels, selectors)
        custom = [name for name in matching if name not in (MASTER, WORKER)]
        if len(custom) > 1:
            if pool in matching:
                warnings.append(_ambiguous(node.name, custom))
        elif primary(matching) == pool:
            found.append(node)
    return Members(nodes=tuple(found), warnings=tuple(warnings))


def primary(matching: Iterable[str]) -> str:
    """Of pools that match a node, at most one of them custom: ``master``, else the custom one, else ``worker``."""
    names = set(matching)
    if MASTER in names:
        return MASTER
    return next(iter(names - {WORKER}), WORKER if WORKER in names else "")


def _matching(labels: Mapping[str, str], selectors: Mapping[str, Selector]) -> list[str]:
    return [name for name, selector in selectors.items() if selector.matches(labels)]


def _ambiguous(node: str, custom: list[str]) -> Problem:
    message = (
        f"Node {node} matches {len(custom)} custom pools ({', '.join(custom)}) and belongs to none of them; "
        "change its labels so that one is left."
    )
    return Problem(reason="NodeInSeveralPools", message=message, severity="Warning")
