"""Which nodes count for the architectures of a build, and what a list of nodes is called in a message.

A node counts whether it is ready or not, cordoned or not, tainted or not: an architecture does not go because its nodes
restart (BD-040). Without a selector all nodes but the control plane's count (BD-041).
"""

from collections.abc import Iterable, Sequence
from typing import Final

import msgspec

from polyarch.builds.api.resources import Architectures, ImageBuildSpec
from polyarch.builds.facts.facts import NodeFacts
from polyarch.builds.names import CONTROL_PLANE_KEYS
from polyarch.selectors import LabelSelector, Selector

LINUX: Final = "linux"
_SHOWN: Final = 5


class Selection(msgspec.Struct, frozen=True, kw_only=True):
    """The nodes that a build is for."""

    counted: tuple[NodeFacts, ...] = ()
    """Their architectures are the build's."""
    unplaced: tuple[str, ...] = ()
    """Names of nodes that nothing says the system or architecture of: they are not counted (BD-040)."""
    instead: str = ""
    """What decided because the selection itself has no node, in words; empty: it has."""


def select(nodes: Iterable[NodeFacts], wanted: Architectures) -> Selection:
    """The nodes that count; none if there are none and ``empty`` is ``Wait`` (BD-041).

    Raises ``InvalidSelector`` for a selector that the validation refuses.
    """
    living = [each for each in nodes if not each.deleting]
    candidates = [("workers", _workers(living)), ("linux nodes", living)]
    if wanted.node_selector is not None:
        candidates.insert(0, ("", _matching(living, wanted.node_selector)))
    first = candidates[0][1]
    unplaced = tuple(sorted({each.name for each in first if _is_unplaced(each)}))
    for words, chosen in candidates if wanted.empty == "WorkerNodes" else candidates[:1]:
        counted = tuple(each for each in chosen if each.operating_system == LINUX and each.architecture)
        if counted:
            return Selection(counted=counted, unplaced=unplaced, instead="" if chosen is first else words)
    return Selection(unplaced=unplaced)


def deciding_labels(spec: ImageBuildSpec) -> frozenset[str]:
    """The label keys that tell nodes apart for this build: its selectors', and the default selection's."""
    keys = set(CONTROL_PLANE_KEYS)
    if (selector := spec.architectures.node_selector) is not None:
        keys.update(selector.match_labels or ())
        keys.update(each.key for each in selector.match_expressions or ())
    for scheduling in spec.scheduling.per_architecture or ():
        keys.update(scheduling.node_selector or ())
    return frozenset(keys)


def spelled(names: Sequence[str]) -> str:
    """Names for people: all of them if they are few, else the first and how many more there are."""
    shown = ", ".join(names[:_SHOWN])
    return f"{shown} and {len(names) - _SHOWN} more" if len(names) > _SHOWN else shown


def _workers(nodes: Iterable[NodeFacts]) -> list[NodeFacts]:
    return [each for each in nodes if not any(key in each.labels for key in CONTROL_PLANE_KEYS)]


def _matching(nodes: Iterable[NodeFacts], selector: LabelSelector) -> list[NodeFacts]:
    parsed = Selector.parse(selector)
    return [each for each in nodes if parsed.matches(each.labels)]


def _is_unplaced(node: NodeFacts) -> bool:
    return not node.operating_system or (node.operating_system == LINUX and not node.architecture)
