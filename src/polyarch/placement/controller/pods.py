"""The pods with our gate that this process knows (PL-300).

The watch selects pods with the label ``gated``, so other pods are not cached. A pod can have our gate without that
label, a stray: the label was removed, the namespace is outside the selector, or the gate is in a template. So once a
minute the leader lists Pending pods without a node and without the label, and adds those with our gate.
"""

from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Final, Protocol

import structlog

from polyarch.clock import Clock
from polyarch.kube.errors import Causes, KubernetesError
from polyarch.objects import Key, Pod
from polyarch.placement import names
from polyarch.placement.metrics import PlacementMetrics
from polyarch.placement.result.scheduling_gate import carries_gate

log = structlog.get_logger(__name__)

GATED_SELECTOR: Final = f"{names.SCHEDULING_GATE_LABEL}={names.GATED}"
STRAY_SELECTOR: Final = f"{names.SCHEDULING_GATE_LABEL}!={names.GATED}"
UNSCHEDULED: Final = "status.phase=Pending,spec.nodeName="
EVERY: Final = 60.0


class PodStore(Protocol):
    """The cache of the watch."""

    def get(self, key: Key) -> Pod | None: ...

    def keys(self) -> Iterable[Key]: ...

    def values(self) -> Iterable[Pod]: ...


class GatedPods:
    """Labelled pods and strays together: the pods that the controller reconciles."""

    def __init__(self, store: PodStore) -> None:
        self._store = store
        self._strays: dict[Key, Pod] = {}

    def get(self, key: Key) -> Pod | None:
        return self._store.get(key) or self._strays.get(key)

    def keys(self) -> list[Key]:
        return list({**dict.fromkeys(self._store.keys()), **dict.fromkeys(self._strays)})

    def take_strays(self, strays: Mapping[Key, Pod]) -> list[Key]:
        """Replaces the strays; returns the keys that are new, changed or gone."""
        before, self._strays = self._strays, dict(strays)
        return [
            key
            for key in {**before, **strays}
            if key not in strays
            or key not in before
            or before[key].metadata.resource_version != strays[key].metadata.resource_version
        ]

    def outdated(self, key: Key) -> None:
        """The watch has delivered this pod, so the version from the last list is outdated."""
        self._strays.pop(key, None)

    def count(self) -> int:
        """How many pods have our gate now."""
        labelled = sum(map(carries_gate, self._store.values()))
        return labelled + sum(self._store.get(key) is None for key in self._strays)


class StrayGates:
    """Finds gates without our label; ``list_unlabelled`` lists candidates from the API server."""

    def __init__(
        self,
        pods: GatedPods,
        list_unlabelled: Callable[[], Awaitable[Iterable[Pod]]],
        *,
        enqueue: Callable[[Key], None],
        is_leading: Callable[[], bool],
        clock: Clock,
        metrics: PlacementMetrics,
    ) -> None:
        self._pods = pods
        self._list = list_unlabelled
        self._enqueue = enqueue
        self._is_leading = is_leading
        self._clock = clock
        self._metrics = metrics
        self._known: frozenset[str] = frozenset()
        """Uids of the strays of the last list: each is counted and logged once, however often it changes."""
        self._causes = Causes()
        self._listed_at = float("-inf")

    async def run(self) -> None:
        """Lists every minute until cancelled. A standby keeps no strays: those it found as the leader get outdated."""
        while True:
            rest = self._listed_at + EVERY - self._clock.monotonic()
            if rest <= 0:
                if self._is_leading():
                    await self.look()
                else:
                    for key in self._pods.take_strays({}):
                        self._enqueue(key)
                rest = EVERY
            await self._clock.sleep(rest)

    async def look(self) -> list[Pod] | None:
        """Lists once, and returns what was listed, for the sweep. An API or internal error leaves everything unchanged
        until the next time (PL-306); then None."""
        self._listed_at = self._clock.monotonic()
        try:
            listed = list(await self._list())
            strays = {pod.metadata.key: pod for pod in listed if carries_gate(pod)}
        except KubernetesError as error:
            log.warning("pods without our label could not be listed", error=str(error))
            return None
        except Exception as error:  # an internal error must not end the loop or the process (PL-306)
            self._metrics.internal_errors.inc()
            log.error(
                "looking for pods without our label met a bug",
                exc_info=error if self._causes.is_new(error) else None,
            )
            return None
        self._tell_of(strays)
        for key in self._pods.take_strays(strays):
            self._enqueue(key)
        return listed

    def _tell_of(self, strays: Mapping[Key, Pod]) -> None:
        for key, pod in strays.items():
            if pod.metadata.uid not in self._known:
                self._metrics.stray_gates.inc()
                log.info("a pod carries our gate without our label", pod=str(key))
        self._known = frozenset(pod.metadata.uid for pod in strays.values())
