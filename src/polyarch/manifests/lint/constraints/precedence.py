"""Chooses which of MA105, MA104, MA107, MA102 and MA101 a pod specification gets: at most one (MF-020).

The chain in :func:`check` is the order; the later rules follow from the earlier ones. If the node affinity can match
no node of any platform, MA107 explains why, instead of MA104.

Pure.
"""

from collections.abc import Iterator

from polyarch.manifests.lint.constraints import (
    ma101_unconstrained,
    ma102_excess,
    ma104_nowhere,
    ma105_conflict,
    ma107_terms,
)
from polyarch.manifests.lint.facts import Draft, PodFacts
from polyarch.platforms import NodePlatform


def check(facts: PodFacts) -> Iterator[Draft]:
    """The first of the five that applies, and empty terms besides (MF-020)."""
    if facts.supported.neutral:
        return
    required = facts.pod_spec.required
    blank = [term for term in required.terms if term.is_empty] if required else []
    hopeless = required is not None and len(blank) == len(required.terms)
    if not hopeless:
        yield from (ma107_terms.empty_term(facts, term, every=False) for term in blank)
    if emptied_by_os_name(facts):
        return
    if not facts.supported.unrestricted:
        yield ma105_conflict.draft(facts)
    elif required is not None and not required.terms:
        yield ma107_terms.no_terms(facts, required)
    elif hopeless:
        yield from (ma107_terms.empty_term(facts, term, every=True) for term in blank)
    elif not facts.admitted & _within(facts):
        yield ma104_nowhere.draft(facts)
    elif facts.excess:
        without = ma107_terms.terms_without_architecture(facts)
        if without:
            yield ma107_terms.mixed(facts, without)
        elif facts.has_architectures:
            yield ma102_excess.draft(facts)
        elif (
            not facts.pod_spec.is_patch and not facts.pod_spec.node_name
        ):  # the patched resource may have the constraint
            yield ma101_unconstrained.draft(facts)


def emptied_by_os_name(facts: PodFacts) -> bool:
    """Whether ``spec.os.name`` alone excludes every platform; MA115 reports that."""
    supported = facts.supported
    if not supported.os_name or not supported.unrestricted or supported.unrestricted.is_everything:
        return False
    if facts.admitted & frozenset(supported.platforms):
        return False
    return bool(facts.admitted & frozenset(supported.unrestricted))


def _within(facts: PodFacts) -> frozenset[NodePlatform]:
    return facts.admitted if facts.platforms.is_everything else frozenset(facts.platforms)
