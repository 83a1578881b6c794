"""What follows from the nodes: where the scheduler may run, how often, what kubelets list (NO-082, NO-083). Pure."""

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

import msgspec

from polyarch.numa.api.settings import Informer
from polyarch.numa.operator.observed import Platform
from polyarch.numa.operator.scheduler.objects import CONTROL_PLANE_KEYS
from polyarch.objects import ObjectMeta
from polyarch.tolerations import REPELS, Taint, Toleration, uncovered

USUAL_REPLICAS: Final = 3
ACTIVE_ONLY: Final = (1, 34)
"""The first version whose kubelets list active pods alone. OpenShift backported it to 4.20, which is 1.33."""
ACTIVE_ONLY_OPENSHIFT: Final = (1, 33)
_VERSION: Final = re.compile(r"v?([0-9]+)\.([0-9]+)")


class NodeInfo(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    """``status.nodeInfo``."""

    kubelet_version: str = ""


class NodeStatus(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    """The part of a Node's status that is read."""

    node_info: NodeInfo | None = None


class NodeSpec(msgspec.Struct, frozen=True, gc=False):
    """The part of a Node's spec that is read."""

    unschedulable: bool | None = None
    taints: list[Taint] | None = None


class SchedulableNode(msgspec.Struct, frozen=True, gc=False):
    """A Node, as far as it matters to where a scheduler runs."""

    metadata: ObjectMeta = ObjectMeta()
    spec: NodeSpec | None = None
    status: NodeStatus | None = None


class Candidates(msgspec.Struct, frozen=True, kw_only=True):
    """What all nodes amount to. Small, so that nobody has to keep the nodes."""

    control_plane: int = 0
    workers: int = 0
    """Nodes without a taint that keeps polyarch's pods off, and not cordoned."""
    oldest_kubelet: tuple[int, int] | None = None

    @classmethod
    def of(cls, nodes: Iterable[SchedulableNode], tolerations: Sequence[Toleration] = ()) -> "Candidates":
        """``tolerations`` are those that the operator gives to all pods of polyarch."""
        control_plane = workers = 0
        oldest: tuple[int, int] | None = None
        for node in nodes:
            if _is_control_plane(node.metadata.labels or {}):
                control_plane += 1
            elif not _keeps_off(node.spec or NodeSpec(), tolerations):
                workers += 1
            info = (node.status or NodeStatus()).node_info or NodeInfo()
            if (version := _version(info.kubelet_version)) is not None:
                oldest = version if oldest is None else min(oldest, version)
        return cls(control_plane=control_plane, workers=workers, oldest_kubelet=oldest)

    def plus(self, other: "Candidates") -> "Candidates":
        """Of both pages of a list."""
        known = [each.oldest_kubelet for each in (self, other) if each.oldest_kubelet is not None]
        return Candidates(
            control_plane=self.control_plane + other.control_plane,
            workers=self.workers + other.workers,
            oldest_kubelet=min(known, default=None),
        )


class Seats(msgspec.Struct, frozen=True, kw_only=True):
    """Where it runs, and how often."""

    replicas: int = 0
    on_control_plane: bool = False
    problem: str = ""


def seats(wanted: int | None, found: Candidates, platform: Platform) -> Seats:
    """NO-082: with a problem the Deployment stays as it is."""
    on_control_plane = platform != "hypershift" and found.control_plane > 0
    number = found.control_plane if on_control_plane else found.workers
    what = "control-plane nodes" if on_control_plane else "schedulable worker nodes"
    if platform == "openshift" and not on_control_plane:
        number, what = 0, "control-plane nodes"
    if wanted is None:
        if number == 0:
            return Seats(problem=f"there are no {what} on which the scheduler could run")
        return Seats(replicas=USUAL_REPLICAS if number >= USUAL_REPLICAS else 1, on_control_plane=on_control_plane)
    if wanted > number:
        return Seats(problem=f"spec.replicas is {wanted}, and there are only {number} {what}: lower it, or unset it")
    return Seats(replicas=wanted, on_control_plane=on_control_plane)


def informer(wanted: Informer | None, found: Candidates, platform: Platform) -> Informer:
    """NO-083: unset, it follows the oldest kubelet, since every node's list has to be read in the same way."""
    if wanted is not None:
        return wanted
    needed = ACTIVE_ONLY if platform == "kubernetes" else ACTIVE_ONLY_OPENSHIFT
    return "Shared" if found.oldest_kubelet is not None and found.oldest_kubelet >= needed else "Dedicated"


def _is_control_plane(labels: Mapping[str, str]) -> bool:
    return any(key in labels for key in CONTROL_PLANE_KEYS)


def _keeps_off(spec: NodeSpec, tolerations: Sequence[Toleration]) -> bool:
    repelling = [taint for taint in spec.taints or () if taint.effect in REPELS]
    return bool(spec.unschedulable) or bool(uncovered(repelling, tolerations))


def _version(text: str) -> tuple[int, int] | None:
    found = _VERSION.match(text)
    return (int(found[1]), int(found[2])) if found is not None else None
