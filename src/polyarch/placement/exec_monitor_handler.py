"""The handler of the exec-format-error monitor: turns each ENoExecEvent into an event and a label on its pod.

A reconciler of the leader; what it decides is in ``exec_monitor_rules``. It keeps nothing but the times since when an
ENoExecEvent has been without status or failing, which a new leader counts anew.
"""

from collections.abc import Awaitable, Callable
from typing import Final, TypeVar

import structlog

from polyarch.clock import Clock, deadline
from polyarch.kube.client import Client
from polyarch.kube.controller import NoRequeue, RequeueAfter, Result
from polyarch.kube.errors import Conflict, KubernetesError, NotFound
from polyarch.kube.events import Regarding
from polyarch.kube.metrics import Metrics, NamespaceCounter
from polyarch.kube.patches import MergePatch
from polyarch.kube.rbac import rule
from polyarch.kube.resources import NODES, PODS
from polyarch.kube.store import Store
from polyarch.objects import ObjectKey, ObjectMeta, PartialObjectMetadata
from polyarch.placement import names
from polyarch.placement.api import ENOEXECEVENTS, ENoExecEvent
from polyarch.placement.exec_monitor_rules import (
    RECONCILIATION_ERROR,
    RETRY_TIMEOUT,
    DeleteEvent,
    FailedPod,
    LabelEvent,
    NotifyPod,
    ReadPod,
    RetryEvent,
    action_for_pod,
    container_name,
    first_action,
    label_patch,
)

log = structlog.get_logger(__name__)

HANDLER_RULES: Final = (
    rule(PODS, "get", "patch"),
    rule(NODES, "get"),
    rule(ENOEXECEVENTS, "list", "watch", "patch"),  # of all namespaces, to label those in a wrong one
)
"""RBAC rules of the handler, besides those of its recorder, its Lease and its metrics."""
HANDLER_NAMESPACE_RULES: Final = (rule(ENOEXECEVENTS, "delete"),)
"""RBAC rules of the handler in the operator's namespace."""
NODE_AGENT_RULES: Final = (rule(ENOEXECEVENTS, "create"), rule(ENOEXECEVENTS, "patch", subresource="status"))
"""RBAC rules of the node agent in the operator's namespace; here, because the operator need not load the agent."""

ATTEMPT_TIMEOUT: Final = 30.0
"""For one attempt."""

T = TypeVar("T")


class Handler:
    """``post``: queues a Warning about a pod; it takes the note."""

    def __init__(
        self,
        client: Client,
        events: Store[ENoExecEvent],
        *,
        home: str,
        post: Callable[[Regarding, str], None],
        clock: Clock,
        metrics: Metrics,
    ) -> None:
        self._client = client
        self._events = events
        self._home = home
        self._post = post
        self._clock = clock
        self._seen: dict[ObjectKey, float] = {}
        self._failing: dict[ObjectKey, float] = {}
        self._handled = metrics.counter("mto_enoexecevents_total", "Reports of executables in a foreign format")
        self._namespaces = NamespaceCounter(
            metrics.counter(
                "polyarch_exec_format_error_pods_total",
                "Reports of executables in a foreign format, by namespace of the pod",
                ("namespace",),
            )
        )
        self._invalid = metrics.counter(
            "mto_enoexecevents_invalid_total", "Reports of executables in a foreign format that named no known pod"
        )

    async def reconcile(self, key: ObjectKey) -> Result:
        """One pass over one ENoExecEvent."""
        event = self._events.get(key)
        if event is None:
            self._seen.pop(key, None)
            self._failing.pop(key, None)
            return NoRequeue()
        now = self._clock.monotonic()
        match first_action(event, home=self._home, waited=now - self._seen.setdefault(key, now)):
            case RetryEvent(seconds):
                return RequeueAfter(seconds)
            case LabelEvent(error):
                await self._label(key, error)
            case ReadPod():
                return await self._look_up(key, event, now)
            case _:
                pass
        return NoRequeue()

    async def _look_up(self, key: ObjectKey, event: ENoExecEvent, now: float) -> Result:
        result: Result = NoRequeue()
        try:
            async with deadline(self._clock, ATTEMPT_TIMEOUT):
                result = await self._consume(key, event, now - self._seen.get(key, now))
        except (KubernetesError, TimeoutError) as error:
            if now - self._failing.setdefault(key, now) < RETRY_TIMEOUT:
                raise
            log.warning("an ENoExecEvent is given up", name=key.name, problem=str(error) or "no answer in time")
            await self._label(key, RECONCILIATION_ERROR)
        self._failing.pop(key, None)
        return result

    async def _consume(self, key: ObjectKey, event: ENoExecEvent, waited: float) -> Result:
        status = event.status
        assert status is not None  # noqa: S101 - first_action has seen it
        pod = await _found(self._client.get(PODS, status.pod_name, namespace=status.pod_namespace, type=FailedPod))
        node = None
        if pod is not None and container_name(pod.status, status.container_id):
            node = await _found(self._client.get(NODES, status.node_name, type=PartialObjectMetadata))
        match action_for_pod(event, pod, node.metadata if node else None, waited=waited):
            case RetryEvent(seconds):
                return RequeueAfter(seconds)
            case NotifyPod(note, is_labelled) if pod is not None and (
                is_labelled or await self._label_pod(pod.metadata)
            ):
                self._post(Regarding.of(PODS, pod.metadata), note)
                self._handled.inc()
                self._namespaces.inc(pod.metadata.namespace)
            case DeleteEvent(because):
                log.info("an ENoExecEvent is discarded", name=key.name, because=because)
            case _:
                log.info("an ENoExecEvent is discarded", name=key.name, because="the pod has been replaced")
        try:
            await self._client.delete(ENOEXECEVENTS, key.name, namespace=key.namespace, uid=event.metadata.uid)
        except (NotFound, Conflict):
            log.debug("the ENoExecEvent is gone already", name=key.name)
        return NoRequeue()

    async def _label_pod(self, pod: ObjectMeta) -> bool:
        """False if the pod is gone, or another one of its name is there."""
        try:
            patch = MergePatch(label_patch(pod.uid))
            await self._client.patch(PODS, pod.name, patch, namespace=pod.namespace)
        except (NotFound, Conflict):
            return False
        return True

    async def _label(self, key: ObjectKey, error: str) -> None:
        """An event with this label is left to the administrator, and to the clean-up."""
        patch = MergePatch({"metadata": {"labels": {names.ENOEXEC_EVENT_ERROR_LABEL: error}}})
        try:
            await self._client.patch(ENOEXECEVENTS, key.name, patch, namespace=key.namespace)
        except NotFound:
            return
        self._invalid.inc()
        log.warning("an ENoExecEvent cannot be handled", namespace=key.namespace, name=key.name, error=error)


async def _found(request: Awaitable[T]) -> T | None:
    try:
        return await request
    except NotFound:
        return None
