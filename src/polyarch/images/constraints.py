"""What a pod requires of its node, as far as platforms go, and which architectures it can run on. Pure.

``nodeSelector`` and required node affinity are judged by the scheduler's own rules on the labels for architecture and
operating system. Every other label may have any value, and a node any name: which nodes will exist, nobody knows.

Unlike the rules for manifests, which take ``x86_64`` for a misspelt ``amd64``, this takes values literally: no node has
such a label, so a pod that asks for it runs nowhere.
"""

from collections.abc import Callable, Iterable, Mapping
from functools import lru_cache
from typing import Final

import msgspec

from polyarch.objects import Pod
from polyarch.platforms import KNOWN_ARCHITECTURES, NODE_SYSTEMS, NodePlatform, PlatformSet
from polyarch.selectors import OPERATORS, NodeTerm, Requirement, admits

ARCH_KEYS: Final = ("kubernetes.io/arch", "beta.kubernetes.io/arch")
OS_KEYS: Final = ("kubernetes.io/os", "beta.kubernetes.io/os")
PLATFORM_KEYS: Final = frozenset((*ARCH_KEYS, *OS_KEYS))
_NO_LABELS: Final[Mapping[str, str]] = {}


class NodeConstraints(msgspec.Struct, frozen=True):
    """The parts of a pod's constraints that speak of platforms."""

    selector: Mapping[str, str] = _NO_LABELS
    terms: tuple[NodeTerm, ...] | None = None
    """None: no node affinity is required, or none that restricts platforms."""

    @property
    def is_open(self) -> bool:
        """Every platform is admitted."""
        return not self.selector and self.terms is None

    def admits(self, platform: NodePlatform) -> bool:
        """Whether a node of this platform could satisfy the constraints."""
        if self.is_open:
            return True
        return admits(self.terms, _labels(platform), node_selector=self.selector)


OPEN: Final = NodeConstraints()


@lru_cache(maxsize=256)
def _labels(platform: NodePlatform) -> Mapping[str, str]:
    """What a kubelet labels its node with."""
    return dict.fromkeys(ARCH_KEYS, platform.architecture) | dict.fromkeys(OS_KEYS, platform.os)


def constraints_of(pod: Pod) -> NodeConstraints:
    """The constraints of a pod or of a template's pods; never fails, also for a pod that the API server will refuse."""
    selector = {key: value for key, value in (pod.spec.node_selector or {}).items() if key in PLATFORM_KEYS}
    terms = _platform_terms(pod)
    return NodeConstraints(selector, terms) if selector or terms is not None else OPEN


def _platform_terms(pod: Pod) -> tuple[NodeTerm, ...] | None:
    """The terms without what they say of other labels and of names; None if one of them admits every platform then."""
    required = pod.required
    if required is None:
        return None
    terms = []
    for term in required.node_selector_terms or ():
        if term.is_empty:
            continue
        kept = tuple(
            Requirement(each.key, each.operator, tuple(each.values or ()))
            for each in term.match_expressions or ()
            if each.key in PLATFORM_KEYS and each.operator in OPERATORS
        )
        if not kept:
            return None
        terms.append(NodeTerm(kept))
    return tuple(terms)


# -- which architectures a pod can run on: by its images, its operating system and its constraints ---------------------
# Taints, and the rule of lint that asks DaemonSets for tolerations, share this set.

Admits = Callable[[NodePlatform], bool]
"""Whether a node of this platform could satisfy the constraints of the pod."""
Compatibility = Iterable[tuple[str, frozenset[str]]]
"""Architectures of nodes, and the foreign ones that such nodes run."""


def reach(
    platforms: PlatformSet,
    *,
    system: str,
    admits: Admits,
    neutral: Iterable[str],
    compatibility: Compatibility = (),
) -> frozenset[str]:
    """The architectures of the nodes that can run a pod whose images have these platforms in common.

    ``neutral``: the architectures that are assumed for images that fit any platform.
    """
    found = set(neutral if platforms.is_everything else platforms.architectures(system))
    found |= {node for node, runs in compatibility if not found.isdisjoint(runs)}
    return frozenset(each for each in found if admits(NodePlatform(system, each)))


def system_of(stated: str, admits: Admits, *, written: str = "") -> str:
    """The operating system of a pod: the stated one (``spec.os.name``), else the only one that its constraints admit,
    else the one that is ``written`` to it now, else linux. A taint cannot say it, so no other is assumed."""
    if stated:
        return stated
    admitted = [
        system
        for system in NODE_SYSTEMS
        if any(admits(NodePlatform(system, architecture)) for architecture in KNOWN_ARCHITECTURES)
    ]
    return admitted[0] if len(admitted) == 1 else written or "linux"
