"""Which architectures a pod can run on: by its images, its operating system and its constraints (TN-031).

Taints, and the rule of lint that asks DaemonSets for tolerations, share this set. Pure.
"""

from collections.abc import Callable, Iterable

from polyarch.platforms import KNOWN_ARCHITECTURES, NODE_SYSTEMS, NodePlatform, PlatformSet

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
