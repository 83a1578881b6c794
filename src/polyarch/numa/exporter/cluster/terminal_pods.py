"""The pods of this node that have ended, which a kubelet may still list (NE-068)."""

from collections.abc import Callable
from typing import Final

import msgspec

from polyarch.kube.informer import Informer
from polyarch.kube.rbac import rule
from polyarch.kube.resources import PODS
from polyarch.kube.store import Change
from polyarch.objects import ObjectMeta

RIGHTS: Final = (rule(PODS, "list", "watch"),)
"""In all namespaces, but always with ``spec.nodeName``."""
ENDED: Final = ("Succeeded", "Failed")


class _Status(msgspec.Struct, frozen=True, gc=False):
    phase: str = ""


class PodPhase(msgspec.Struct, frozen=True, gc=False):
    """core/v1 Pod, reduced to its phase."""

    metadata: ObjectMeta = ObjectMeta()
    status: _Status = _Status()

    @property
    def has_ended(self) -> bool:
        return self.status.phase in ENDED


def selector(node: str) -> str:
    """The field selector of the watch."""
    return f"spec.nodeName={node}"


class TerminalPods:
    """What an informer of the node's pods knows; ``changed`` is called when a pod has ended."""

    def __init__(self, pods: Informer[PodPhase], *, changed: Callable[[], None] = lambda: None) -> None:
        self._pods = pods
        self._changed = changed
        pods.add_handler(self._see)

    async def known(self) -> None:
        """Returns when all pods of the node are known."""
        await self._pods.synced()

    def names(self) -> frozenset[tuple[str, str]]:
        """Namespace and name of each."""
        return frozenset((key.namespace, key.name) for key, pod in self._pods.store.items() if pod.has_ended)

    def _see(self, change: Change[PodPhase]) -> None:
        before = change.old is not None and change.old.has_ended
        now = change.new is not None and change.new.has_ended
        if now and not before and not change.initial:
            self._changed()
