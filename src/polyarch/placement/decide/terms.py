"""Which required terms of a pod get our expressions (PL-220 to PL-223).

The user's terms are never removed, reordered or merged, and a term is added only to a pod without any. Each term is
handled alone: an empty one (it matches no node) stays empty, one that already has the key is unchanged, any other gets
the expression at its end. Pure.
"""

import msgspec

from polyarch.objects import NodeSelectorRequirement
from polyarch.placement import names
from polyarch.placement.decide.view import NOWHERE, View


class TermPlan(msgspec.Struct, frozen=True, gc=False):
    """Indexes in the resulting list. ``created``: its only term is ours."""

    terms: tuple[int, ...] = ()
    os_terms: tuple[int, ...] = ()
    created: bool = False


def plan(view: View, *, key: str, os: str) -> TermPlan:
    """Which terms get the expression with ``key``, and which of those the OS expression (empty ``os``: none)."""
    if any(each in view.node_selector for each in names.OS_KEYS):
        os = ""
    if not view.terms:
        return TermPlan((0,), (0,) if os else (), created=True)
    terms, os_terms = [], []
    for term in view.terms:
        if term.is_empty or key in term.keys:
            continue
        index = resulting_index(view, term.index)
        terms.append(index)
        if os and not any(each in term.keys for each in names.OS_KEYS):
            os_terms.append(index)
    return TermPlan(tuple(terms), tuple(os_terms))


def resulting_index(view: View, index: int) -> int:
    """Index of a term once a term that we created earlier in the list is removed."""
    return index - 1 if NOWHERE < view.created_term < index else index


def architecture_expression(architectures: tuple[str, ...]) -> NodeSelectorRequirement:
    """The architecture expression (PL-220); without architectures the marker that no node matches."""
    if not architectures:
        return NodeSelectorRequirement(names.NO_SUPPORTED_ARCH_KEY, "Exists")
    return NodeSelectorRequirement(names.ARCH_KEY, "In", list(architectures))


def os_expression(os: str) -> NodeSelectorRequirement:
    """The OS expression (PL-215)."""
    return NodeSelectorRequirement(names.OS_KEY, "In", [os])
