"""Reads the pull secrets that gated pods need, while no pass waits for them (PL-302, PL-421, PL-851).

A pass that waited would hold one of the controller's workers for as long as the API server takes, and a namespace whose
pods name ten thousand secrets would hold them all. So a pod is written down here and its pass ends; when its secrets
are in memory it is looked at again. Namespaces take turns, the one served longest ago first, so that such a namespace
delays another by one reading at most. As much is in line as there are gated pods.
"""

import asyncio
from collections.abc import Callable
from typing import Final, NamedTuple

from polyarch.model.meta import Key
from polyarch.placement.bounded import Bounded
from polyarch.placement.lookups.secrets import PullSecrets, PullSource
from polyarch.placement.lookups.turns import Places, Turn, Turns
from polyarch.placement.result.retry import MAX_DELAY

AT_ONCE: Final = 16
"""Pods' secrets that are read at a time."""
FAULTS: Final = 1024
"""Pods for which it is remembered that reading met a bug."""


class _Wanted(NamedTuple):
    """One reading, as the lines of ``turns`` know it: all are at the same host, the API server."""

    source: PullSource

    @property
    def reference(self) -> str:
        return ""


class SecretReads:
    """``wake`` looks at a pod again after so many seconds."""

    def __init__(self, secrets: PullSecrets, wake: Callable[[Key, float], None]) -> None:
        self._secrets = secrets
        self._wake = wake
        self._turns: Turns[_Wanted] = Turns()
        self._places = Places(AT_ONCE, per_host=AT_ONCE, per_namespace=AT_ONCE)
        self._pods: dict[PullSource, set[Key]] = {}
        """Who waits for what is in line or being read."""
        self._changed = asyncio.Event()
        self._faults: Bounded[Key, Exception] = Bounded(entries=FAULTS, weight=FAULTS)

    def __len__(self) -> int:
        """How many are in line or being read."""
        return len(self._pods)

    def want(self, source: PullSource, pod: Key) -> None:
        """The pod is looked at again when these secrets are in memory.

        Raises the bug that was met when they were read for it, once: so it counts as one of that pod (PL-306).
        """
        if (error := self._faults.get(pod)) is not None:
            self._faults.discard(pod)
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
                delay = MAX_DELAY  # forgotten already, for want of memory: it must not be asked for without a pause
        except Exception as error:  # noqa: BLE001 - raised in the passes of these pods, and must not end the others
            met = error
        finally:
            self._places.leave(turn)
            self._changed.set()
        for pod in self._pods.pop(source):
            if met is not None:
                self._faults.put(pod, met, 1)
            self._wake(pod, delay)
