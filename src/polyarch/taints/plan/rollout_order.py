"""In which order DaemonSets are rolled out (TN-051): those that others need first. Pure."""

import re
from collections.abc import Iterable
from typing import Final

from polyarch.objects import DaemonSet, Key

FIRST_NAMESPACE: Final = "kube-system"
FIRST_NAMES: Final = re.compile(r"cni|csi|network")
"""What a name contains of a DaemonSet that gives pods their network or their volumes."""


def in_rollout_order(daemon_sets: Iterable[DaemonSet]) -> list[DaemonSet]:
    """Those of ``kube-system``, and those for network and volumes, before all others; each group by name."""
    return sorted(daemon_sets, key=lambda each: rollout_rank(each.metadata.key))


def rollout_rank(key: Key) -> tuple[bool, Key]:
    """What such DaemonSets are sorted by."""
    first = key.namespace == FIRST_NAMESPACE or FIRST_NAMES.search(key.name) is not None
    return not first, key
