"""Pods that were rejected lately, and nodes that may have more room since: whether one now fits the other (NS-140).

kube-scheduler asks again about a rejected pod when something changes that it watches, and it does not watch
NodeResourceTopologies. So whoever sees one change tries the rejected pods on that node, and has the scheduler woken if
any fits; which one does not matter, since it asks about all of them then. Pods that ask for the same are tried once.
Pure; mutable.
"""

from collections.abc import Callable
from typing import Final

import msgspec

from polyarch.numa.names import REQUIRE
from polyarch.numa.scheduling.facts.pods import PodFacts

REMEMBERED: Final = 600.0
"""Seconds since the last rejection."""
MOST_PODS: Final = 10_000
"""Of more, those whose last rejection is longest ago are forgotten."""
INTERVAL: Final = 1.0
"""Seconds between two calls that wake somebody."""
MOST_TRIALS: Final = 1000
"""Decisions of one call; what is left is tried with the next one."""

Fits = Callable[[PodFacts, str], bool]
"""Whether the pod fits this node now."""


class _Question(msgspec.Struct):
    """Pods that ask for the same."""

    pod: PodFacts
    uids: set[str]


class Waking:
    """See the module's docstring."""

    def __init__(self) -> None:
        self._rejections: Final[dict[str, tuple[float, bytes]]] = {}
        """By uid, the last rejection and the question; the oldest first."""
        self._questions: Final[dict[bytes, _Question]] = {}
        self._freed: Final[dict[str, list[bytes] | None]] = {}
        """Nodes with the questions that are still to be tried there; None: all."""
        self._woken_at: float | None = None

    def __len__(self) -> int:
        """Pods that wait."""
        return len(self._rejections)

    def rejected(self, pod: PodFacts, now: float) -> None:
        """A filter found no node."""
        self.forget(pod.uid)
        asked = pod.containers, pod.pod_requests, pod.qos, pod.annotations.get(REQUIRE)
        key = msgspec.msgpack.encode(asked, order="deterministic")
        self._rejections[pod.uid] = now, key
        question = self._questions.get(key)
        if question is None:
            self._questions[key] = _Question(pod, {pod.uid})
        else:
            question.uids.add(pod.uid)
        while len(self._rejections) > MOST_PODS:
            self.forget(next(iter(self._rejections)))

    def forget(self, uid: str) -> None:
        """The pod has a node, or is gone."""
        found = self._rejections.pop(uid, None)
        if found is None:
            return
        question = self._questions[found[1]]
        question.uids.discard(uid)
        if not question.uids:
            del self._questions[found[1]]

    def freed(self, node: str) -> None:
        """There may be more room on the node than before, or its policy asks for less: a version of its object, a
        reservation that was released or settled, a node that is new."""
        if self._rejections:
            self._freed[node] = None

    def woken(self, now: float, fits: Fits) -> str:
        """A node that some rejected pod now fits, so that its scheduler is to be woken; empty: none. Called every
        :data:`INTERVAL` or more often, names one no more often than that."""
        while self._rejections and now - next(iter(self._rejections.values()))[0] > REMEMBERED:
            self.forget(next(iter(self._rejections)))
        if self._woken_at is not None and now - self._woken_at < INTERVAL:
            return ""
        left = MOST_TRIALS
        for node in list(self._freed):
            kept = self._freed[node]
            keys = list(self._questions) if kept is None else kept
            for key in keys[:left]:
                question = self._questions.get(key)
                if question is not None and fits(question.pod, node):
                    # The scheduler asks about all pods now, on all nodes.
                    self._freed.clear()
                    self._woken_at = now
                    return node
            if len(keys) > left:
                self._freed[node] = keys[left:]
                return ""
            left -= len(keys)
            del self._freed[node]
        return ""
