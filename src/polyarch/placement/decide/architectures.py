"""The set of architectures that all images of a pod support, and the pod's operating system (PL-213 to PL-217).

Unresolved images are left out of the intersection, so the resolved ones already constrain (PL-217, PL-230). Pure.
"""

from collections.abc import Iterable
from functools import reduce
from operator import and_

import msgspec

from polyarch.images.pod_images import Finding, Verdict
from polyarch.objects import NodeSelectorTerm
from polyarch.placement import names
from polyarch.placement.api.settings import OSConstraint
from polyarch.placement.decide.view import View
from polyarch.platforms import PlatformSet


class Supported(msgspec.Struct, frozen=True, gc=False):
    """The set A of PL-214, or everything, and the OS expression that belongs to it."""

    is_everything: bool
    architectures: tuple[str, ...] = ()
    """Sorted by byte value."""
    os: str = ""
    """Value of the OS expression; empty: none is needed (PL-215)."""

    @property
    def is_nothing(self) -> bool:
        """The images have no platform in common; further answers cannot change that (PL-217)."""
        return not self.is_everything and not self.architectures


def supported(findings: Iterable[Finding], view: View, os_constraint: OSConstraint) -> Supported:
    """The architectures that all constraining images support, for the pod's operating system."""
    sets = [frozenset(finding.platforms) for finding in findings if finding.verdict is Verdict.CONSTRAINS]
    if not sets:
        return Supported(is_everything=True)
    if os_constraint == "off":
        each = (frozenset(pair.architecture for pair in pairs) for pairs in sets)
        return Supported(is_everything=False, architectures=tuple(sorted(reduce(and_, each))))
    common = PlatformSet(reduce(and_, sets))
    systems = common.systems()
    stated = stated_os(view)
    if stated:
        return Supported(is_everything=False, architectures=common.architectures(stated))
    if not systems:
        return Supported(is_everything=False)
    system = systems[0] if len(systems) == 1 else "linux"  # the only other one is windows (RG-022)
    due = os_constraint == "always" or system != "linux" or len(systems) > 1
    return Supported(is_everything=False, architectures=common.architectures(system), os=system if due else "")


def stated_os(view: View) -> str:
    """The operating system that the pod specifies, or the empty string (steps 1 to 3 of PL-214)."""
    spec = view.pod.spec
    if spec.os is not None and spec.os.name:
        return spec.os.name
    for key in names.OS_KEYS:
        if key in view.node_selector:
            return view.node_selector[key]
    if not view.terms:
        return ""
    pinned = {_pinned_os(term) for term in _user_terms(view) if not term.is_empty}
    return pinned.pop() if len(pinned) == 1 else ""


def _user_terms(view: View) -> Iterable[NodeSelectorTerm]:
    """The terms with the user's expressions only, without an OS expression of ours."""
    required = view.pod.required
    stored = (required.node_selector_terms if required is not None else None) or []
    for term in view.terms:
        given = stored[term.index]
        if term.os_at < 0:
            yield given
        else:
            kept = [
                each for at, each in enumerate(given.match_expressions or ()) if at not in (term.arch_at, term.os_at)
            ]
            yield NodeSelectorTerm(kept, given.match_fields)


def _pinned_os(term: NodeSelectorTerm) -> str:
    for expression in term.match_expressions or ():
        if expression.key == names.OS_KEY and expression.operator == "In" and len(expression.values or ()) == 1:
            return (expression.values or [""])[0]
    return ""
