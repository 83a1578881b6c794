"""Reads pull secrets for gated pods in the background, so that no reconcile waits for them (PL-302, PL-421, PL-851).

A waiting reconcile would block a worker for as long as the API server takes, and a namespace whose pods name ten
thousand secrets would block all workers. So the reconcile ends here, and the pod is reconciled again when its secrets
are cached. Namespaces are served in turn, least recently served first, so such a namespace delays another by one read
at most. The queue is bounded by the number of gated pods.
"""

import asyncio
from collections.abc import Callable
from typing import Final, NamedTuple

from polyarch.objects import Key
from polyarch.oci.cache.recent import Recent
from polyarch.pods.lookups.backoff import MAX_DELAY
from polyarch.pods.lookups.secrets import PullSecrets, PullSource
from polyarch.pods.lookups.turns import Places, Turn, Turns

AT_ONCE: Final = 16
"""Pull sources that are read at a time."""
FAULTS: Final = 1024
"""Pods for which an internal error is remembered."""


class _Wanted(NamedTuple):
    """One read as an entry of ``turns``; all have the same host, the API server."""

    source: PullSource

    @property
    def reference(self) -> str:
        return ""


class SecretReads:
    """``wake`` reconciles a pod again after that many seconds."""

    def __init__(self, secrets: PullSecrets, wake: Callable[[Key, float], None]) -> None:
        self._secrets = secrets
        self._wake = wake
        self._turns: Turns[_Wanted] = Turns()
        self._places = Places(AT_ONCE, per_host=AT_ONCE, per_namespace=AT_ONCE)
        self._pods: dict[PullSource, set[Key]] = {}
        """Waiting pods by queued or running read."""
        self._changed = asyncio.Event()
        self._faults: Recent[Key, Exception] = Recent(FAULTS)

    def __len__(self) -> int:
        """Number of queued and running reads."""
        return len(self._pods)

    def want(self, source: PullSource, pod: Key) -> None:
        """Reconciles the pod again when these secrets are cached.

        Raises, once, the internal error of a previous read for this pod, so that it counts against the pod (PL-306).
        """
        if (error := self._faults.pop(pod)) is not None:
            raise error
        if source not in self._pods:
            self._pods[source] = set()
            self._turns.add(_Wanted(source), [source.namespace])
            self._changed.set()
        self._pods[source].add(pod)

    async def run(self) -> None:
        """Reads until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            while True:
                while (turn := self._turns.next(self._places, waits=lambda key, namespace: True)) is not None:
                    self._places.take(turn)
                    tasks.create_task(self._read(turn), name=f"read pull secrets in {turn.namespace}")
                self._changed.clear()
                await self._changed.wait()

    async def _read(self, turn: Turn[_Wanted]) -> None:
        source, delay, met = turn.key.source, 0.0, None
        try:
            await self._secrets.get(source)
            if self._secrets.cached(source) is None:
                delay = MAX_DELAY  # evicted already: without a delay it would be read in a tight loop
        except Exception as error:  # noqa: BLE001 - raised again when these pods are reconciled; others go on
            met = error
        finally:
            self._places.leave(turn)
            self._changed.set()
        for pod in self._pods.pop(source):
            if met is not None:
                self._faults.put(pod, met)
            self._wake(pod, delay)
