"""Reads the pull secrets that gated pods need, while no pass waits for them (PL-302, PL-421, PL-851).

A pass that waited would hold one of the controller's workers for as long as the API server takes, and a namespace whose
pods name ten thousand secrets would hold them all. So a pod is written down here and its pass ends; when its secrets
are in memory it is looked at again. Namespaces take turns, the one served longest ago first, so that such a namespace
delays another by one reading at most. As much is in line as there are gated pods.
"""

import asyncio
from collections import OrderedDict
from collections.abc import Callable
from typing import Final

import structlog

from polyarch.kube.causes import Causes
from polyarch.model.meta import Key
from polyarch.placement.decide.retry import MAX_DELAY
from polyarch.placement.lookups.secrets import PullSecrets, PullSource
from polyarch.placement.metrics import PlacementMetrics

log = structlog.get_logger(__name__)

AT_ONCE: Final = 16
"""Pods' secrets that are read at a time."""


class SecretReads:
    """``wake`` looks at a pod again after so many seconds."""

    def __init__(self, secrets: PullSecrets, wake: Callable[[Key, float], None], metrics: PlacementMetrics) -> None:
        self._secrets = secrets
        self._wake = wake
        self._metrics = metrics
        self._lines: OrderedDict[str, OrderedDict[PullSource, set[Key]]] = OrderedDict()
        """By namespace, those served longest ago first: what to read, and for which pods."""
        self._some = asyncio.Event()
        self._causes = Causes()

    def __len__(self) -> int:
        """How many are in line."""
        return sum(map(len, self._lines.values()))

    def want(self, source: PullSource, pod: Key) -> None:
        """The pod is looked at again when these secrets are in memory."""
        self._lines.setdefault(source.namespace, OrderedDict()).setdefault(source, set()).add(pod)
        self._some.set()

    async def run(self) -> None:
        """Reads until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            for number in range(AT_ONCE):
                tasks.create_task(self._work(), name=f"read pull secrets {number}")

    async def _work(self) -> None:
        while True:
            while not self._lines:
                self._some.clear()
                await self._some.wait()
            namespace, line = self._lines.popitem(last=False)
            source, pods = line.popitem(last=False)
            if line:
                self._lines[namespace] = line
            await self._read(source, pods)

    async def _read(self, source: PullSource, pods: set[Key]) -> None:
        delay = 0.0
        try:
            await self._secrets.get(source)
        except Exception as error:
            delay = MAX_DELAY
            self._metrics.internal_errors.inc()
            traceback = error if self._causes.is_new(error) else None
            log.error("pull secrets met a bug", namespace=source.namespace, exc_info=traceback)
        for pod in pods:
            self._wake(pod, delay)
