"""NUMA in the operator's process: its controllers, which are loaded once there is something for them to do.

Most clusters have no use for NUMA, and the memory of the operator is small. So what the controllers are made of is
imported when the first of their custom resources is there, or where ``--numa=on`` says so. Until then NUMA is two
watches, which have nothing to show where the CRDs are missing.
"""

import os
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from polyarch.kube.controller import Controller, NoRequeue, Result
from polyarch.kube.events import Recorder
from polyarch.kube.informer import Informer
from polyarch.kube.manager import Process
from polyarch.kube.queue import WorkQueue
from polyarch.kube.store import ObjectChange
from polyarch.numa import names
from polyarch.numa.api.resources import OPERATORS, SCHEDULERS
from polyarch.objects import ObjectKey, Unstructured
from polyarch.operator.cluster import Discovery, OperatorNamespace
from polyarch.operator.reconciler import STEP_TAKEN
from polyarch.operator.settings import OperatorSettings

if TYPE_CHECKING:
    from polyarch.run.numa_controllers import NumaControllers

EXPORTERS, SCHEDULER, KUBELETS = NAMES = ("numaresourcesoperator", "numaresourcesscheduler", "kubeletconfig")
"""The controllers."""
ROOTS: Final = (
    (EXPORTERS, OPERATORS, names.OPERATOR_SINGLETON),
    (SCHEDULER, SCHEDULERS, names.SCHEDULER_SINGLETON),
)
"""Controllers with the custom resource that each is for: kind and name."""
START: Final = ObjectKey("", "")
"""The key by which the controllers are loaded; no object is called like it."""
BACKOFF: Final = 1.0
"""Seconds; after a failed reconcile the next one comes between one and two seconds later."""
MAX_BACKOFF: Final = 120.0
BATCH_DELAY: Final = 0.2
"""Seconds in which several events make one reconcile."""


class NumaComponent:
    """The three controllers. None of them does anything before :meth:`_load`.

    ``tolerated``: the keys of taints that every Deployment of polyarch tolerates now.
    """

    def __init__(
        self,
        process: Process,
        settings: OperatorSettings,
        *,
        namespace: OperatorNamespace,
        discovery: Discovery,
        recorder: Recorder,
        tolerated: Callable[[], Sequence[str]],
    ) -> None:
        self._tolerated = tolerated
        self._process = process
        self._settings = settings
        self._namespace = namespace
        self._discovery = discovery
        self._recorder = recorder
        self._loaded: NumaControllers | None = None
        clock, metrics = process.clock, process.metrics
        self._queues = {
            name: WorkQueue[ObjectKey](name, clock, backoff=BACKOFF, longest=MAX_BACKOFF, metrics=metrics)
            for name in NAMES
        }
        self.controllers = tuple(
            Controller(name, partial(self._reconcile, name), queue=queue, workers=1, clock=clock, metrics=metrics)
            for name, queue in self._queues.items()
        )
        self._reconciled: set[str] = set()
        """Controllers that have reconciled their custom resource."""
        self._roots: dict[str, tuple[Informer[Unstructured], ObjectKey]] = {}
        """The cache and the key of the custom resource that each controller is for."""
        if settings.numa != "off":
            for name, kind, singleton in ROOTS:
                cache = process.informers.informer(kind, Unstructured, required=False)
                self._roots[name] = cache, ObjectKey("", singleton)
                cache.add_handler(self._appeared)
        if settings.numa == "on":
            self._queues[EXPORTERS].add(START)

    def enqueue(self, name: str, key: ObjectKey) -> None:
        """Enqueue an object soon, together with what else happens until then."""
        self._queues[name].add_after(key, BATCH_DELAY)

    def changed(self, *_: object) -> None:
        """Something has changed that every reconcile may have to answer."""
        if self._loaded is not None:
            self._loaded.enqueue_all()

    @property
    def is_synced(self) -> bool:
        """Whether this process has reconciled each of the two custom resources that is there.

        Until then their conditions are the word of whoever led before, perhaps with another image of the exporters.
        """
        for name, (cache, key) in self._roots.items():
            if cache.is_missing:
                continue
            if not cache.has_synced or (cache.store.get(key) is not None and name not in self._reconciled):
                return False
        return True

    def _appeared(self, change: ObjectChange[Any]) -> None:
        if change.new is not None and self._loaded is None:
            self._queues[EXPORTERS].add(START)

    async def _reconcile(self, name: str, key: ObjectKey) -> Result:
        loaded = self._load()
        if key == START:
            return NoRequeue()
        was_there = self._is_there(name, key)
        result = await loaded.reconcile(name, key)
        if was_there and result != STEP_TAKEN:
            self._reconciled.add(name)
        return result

    def _is_there(self, name: str, key: ObjectKey) -> bool:
        """Whether the key is of the custom resource that the controller is for, and that is there."""
        cache, singleton = self._roots.get(name, (None, None))
        return cache is not None and key == singleton and cache.store.get(key) is not None

    def _load(self, environment: Mapping[str, str] = os.environ) -> "NumaControllers":
        if self._loaded is None:
            from polyarch.run.numa_controllers import NumaControllers

            self._loaded = NumaControllers(
                self._process,
                self._settings,
                namespace=self._namespace,
                discovery=self._discovery,
                recorder=self._recorder,
                enqueue=self.enqueue,
                tolerated=self._tolerated,
                environment=environment,
            )
        return self._loaded
