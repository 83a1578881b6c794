"""Nodes are held back while a cluster is prepared: the selector of nodes asks for a label that no node has (TN-063).

So ``bootstrap`` can have admission and controller add every toleration, with no node tainted yet; ``apply`` takes the
one requirement away again. What else the selector says stays as the user wrote it. Pure.
"""

from typing import Final

import msgspec

from polyarch.selectors import LabelSelector, LabelSelectorRequirement
from polyarch.taints.api.resources import ArchitectureTaintsSpec
from polyarch.taints.names import OPT_OUT

HELD_BACK: Final = LabelSelectorRequirement(key=OPT_OUT, operator="In", values=["bootstrap"])
"""The requirement. Somebody who labels a node so lets it go first."""


def is_held(spec: ArchitectureTaintsSpec) -> bool:
    """Whether nodes are held back."""
    selector = spec.nodes.selector
    return selector is not None and HELD_BACK in (selector.match_expressions or ())


def held(spec: ArchitectureTaintsSpec) -> ArchitectureTaintsSpec:
    """The same configuration with nodes held back."""
    if is_held(spec):
        return spec
    selector = spec.nodes.selector or LabelSelector()
    return _with(spec, [*(selector.match_expressions or ()), HELD_BACK])


def released(spec: ArchitectureTaintsSpec) -> ArchitectureTaintsSpec:
    """The same configuration without that."""
    selector = spec.nodes.selector
    if selector is None or not is_held(spec):
        return spec
    return _with(spec, [each for each in selector.match_expressions or () if each != HELD_BACK])


def _with(spec: ArchitectureTaintsSpec, expressions: list[LabelSelectorRequirement]) -> ArchitectureTaintsSpec:
    labels = spec.nodes.selector.match_labels if spec.nodes.selector is not None else None
    selector = LabelSelector(labels, expressions or None)
    nodes = msgspec.structs.replace(spec.nodes, selector=None if selector.is_empty else selector)
    return msgspec.structs.replace(spec, nodes=nodes)
