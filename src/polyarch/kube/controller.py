"""The controller: a work queue, its workers and one ``reconcile(key)`` function; and the guarded PATCH of a reconcile.

``reconcile`` reads the object as it is now, does what is needed and says when to look again. Its result decides whether
the key is requeued:

=============================  ======================================================================================
returns ``NoRequeue()``        not requeued
returns ``RequeueAfter(n)``    requeued after n seconds, or earlier if an event adds the key
raises ``TerminalError``       logged, not requeued: a retry would fail in the same way
raises anything else           logged, requeued with the key's backoff, at least the server's ``Retry-After``
is cancelled                   requeued for the next ``run`` of this controller (a regained Lease)
=============================  ======================================================================================

A controller that only the leader may run is fenced: a reconcile starts only while the Lease holds by the monotonic
clock, so that a process that was suspended does not go on with work that another leader has taken over.

``run`` may be cancelled and run again; handlers fill the queue all the while, so a standby takes over at once. ``stop``
is for the shutdown of the process. With ``writes`` no reconcile starts while the cache still shows the object as it was
before our own last write: the watch event of that write requeues the key.
"""

import asyncio
import itertools
from collections.abc import Awaitable, Callable, Hashable
from enum import Enum
from typing import Final, Generic, NamedTuple, Protocol, TypeVar

import msgspec
import structlog

from polyarch.clock import Clock, SystemClock, deadline, is_cancelled
from polyarch.kube.errors import (
    ApiError,
    Conflict,
    ConnectionFailed,
    Forbidden,
    Invalid,
    KubernetesError,
    NotFound,
    SeenErrors,
    ServerTimeout,
    TooManyRequests,
    Unauthorized,
    Unavailable,
)
from polyarch.kube.metrics import Metrics
from polyarch.kube.patches import JsonPatch, Operation
from polyarch.kube.queue import ShutDown, WorkQueue
from polyarch.kube.resources import Resource
from polyarch.objects import ObjectKey, PartialObjectMetadata

log = structlog.get_logger(__name__)

YIELD_EVERY: Final = 32
"""Reconciles after which a worker yields to the event loop once."""
FENCED_LOOK: Final = 0.5
"""Seconds between two checks of a lost Lease; usually the worker is cancelled first."""
STALE_LOOK: Final = 5.0
"""Seconds until a key with a stale cache is checked again, in case the watch event does not come."""

K = TypeVar("K", bound=Hashable)
K_contra = TypeVar("K_contra", bound=Hashable, contravariant=True)


class NoRequeue(msgspec.Struct, frozen=True):
    """The object is as desired; nothing is requeued."""


class RequeueAfter(msgspec.Struct, frozen=True):
    """Requeue after ``seconds``; not a failure."""

    seconds: float


Result = NoRequeue | RequeueAfter


class TerminalError(Exception):
    """This reconcile failed, and a retry would fail too until something changes. The text says why."""


class Writes(Protocol[K_contra]):
    """Tells whether the cache is behind our own writes (``store.WriteExpectations`` of an informer)."""

    def is_stale(self, key: K_contra) -> bool: ...


class Controller(Generic[K]):
    """A queue, its workers and ``reconcile``; each reconcile has ``timeout`` seconds."""

    def __init__(
        self,
        name: str,
        reconcile: Callable[[K], Awaitable[Result]],
        *,
        queue: WorkQueue[K] | None = None,
        workers: int = 4,
        timeout: float = 60.0,
        clock: Clock | None = None,
        metrics: Metrics | None = None,
        writes: Writes[K] | None = None,
    ) -> None:
        self.name = name
        self._reconcile = reconcile
        self._workers = workers
        self._timeout = timeout
        self._clock = clock or SystemClock()
        self._writes = writes
        self.queue: WorkQueue[K] = queue if queue is not None else WorkQueue(name, self._clock, metrics=metrics)
        registry = metrics or Metrics()
        passes = registry.counter(
            "polyarch_reconciles_total", "Passes of a controller by how they ended", ("controller", "result")
        )
        self._causes = SeenErrors()
        self._counts = {result: passes.labels(name, result) for result in ("done", "after", "terminal", "error")}

    async def run(self, *, holds: Callable[[], bool] | None = None) -> None:
        """Runs until the queue is shut down or it is cancelled; no reconcile starts while ``holds()`` is false."""
        async with asyncio.TaskGroup() as workers:
            for number in range(self._workers):
                workers.create_task(self._work(holds), name=f"{self.name}-{number}")

    async def stop(self, seconds: float) -> bool:
        """Drains the queue and accepts no new keys; False if ``seconds`` were not enough (then cancel ``run``)."""
        self.queue.shut_down(drain=True)
        try:
            async with deadline(self._clock, seconds):
                await self.queue.drained()
        except TimeoutError:
            self.queue.shut_down(drain=False)
            return False
        return True

    async def _work(self, holds: Callable[[], bool] | None) -> None:
        for number in itertools.count(1):
            if number % YIELD_EVERY == 0:
                await asyncio.sleep(0)  # reconciles that never wait would block the loop until the queue is empty
            try:
                key = await self.queue.get()
            except ShutDown:
                return
            try:
                while holds is not None and not holds():
                    await self._clock.sleep(FENCED_LOOK)
                await self._pass(key)
            except asyncio.CancelledError:
                self.queue.add(key)
                raise
            finally:
                self.queue.done(key)

    async def _pass(self, key: K) -> None:
        if self._writes is not None and self._writes.is_stale(key):
            self.queue.add_after(key, STALE_LOOK)
            return
        try:
            async with deadline(self._clock, self._timeout) as scope:
                result = await self._reconcile(key)
        except TerminalError as reason:
            self._counts["terminal"].inc()
            self.queue.forget(key)
            log.warning("pass ended for good", controller=self.name, key=str(key), reason=str(reason))
        except (Exception, asyncio.CancelledError) as error:
            if isinstance(error, asyncio.CancelledError):
                if is_cancelled():
                    raise
                error = RuntimeError("something that reconcile awaited was cancelled")
            self._counts["error"].inc()
            late = scope.expired()
            self._retry(key, TimeoutError(f"not finished within {self._timeout:g} s") if late else error, late)
        else:
            self.queue.forget(key)
            if isinstance(result, RequeueAfter):
                self._counts["after"].inc()
                self.queue.add_after(key, result.seconds)
            else:
                self._counts["done"].inc()

    def _retry(self, key: K, error: Exception, late: bool) -> None:
        asked = getattr(error, "retry_after", None)
        delay = self.queue.retry(key, at_least=asked if isinstance(asked, int | float) else 0.0)
        is_bug = not (late or isinstance(error, KubernetesError))
        log.warning(
            "pass failed",
            controller=self.name,
            key=str(key),
            error=str(error) or type(error).__name__,
            failures=self.queue.failures(key),
            next_try_in=round(delay, 3),
            exc_info=error if is_bug and self._causes.is_new(error) else None,
        )


# -- one PATCH from one version of an object ---------------------------------------------------------------------------


# Such a patch begins with a ``test`` of the resourceVersion, so that a change by somebody else is never overwritten.
# Both a failed ``test`` and an invalid value are HTTP 422 and must be told apart: the first means that the object
# changed, the second that this PATCH can never succeed.


class Patches(Protocol):
    """The part of the client that is needed here."""

    async def patch(
        self, resource: Resource, name: str, patch: JsonPatch, *, namespace: str = ""
    ) -> PartialObjectMetadata: ...


class PatchStatus(Enum):
    """How a PATCH ended."""

    DONE = "done"
    MOVED_ON = "moved on"
    """The object has changed since it was read, or is gone; its next watch event requeues it."""
    REFUSED = "refused"
    """Rejected by validation, a webhook or RBAC: the same PATCH would be rejected again. Also if a webhook reverts all
    of it: then nothing is stored, and no watch event follows."""
    UNANSWERED = "unanswered"
    """The client's retries ended without an answer; the PATCH itself may be valid."""
    UNREACHED = "unreached"
    """The same, but not for a reason of this object: the API server is down, or starting and without its RBAC rules."""


class WriteReverted(KubernetesError):  # noqa: N818 - the result of a write
    """The API server accepted the write but stored nothing."""


class PatchResult(NamedTuple):
    """How a PATCH ended, with the API server's error if it did not succeed."""

    result: PatchStatus
    error: KubernetesError | None = None
    version: str = ""
    """The object's resourceVersion after a success."""

    @property
    def refusal(self) -> str:
        """The refusal in a few words, for people."""
        if isinstance(self.error, ApiError):
            return f"HTTP {self.error.status}"
        return "undone by a webhook" if isinstance(self.error, WriteReverted) else "no answer"


async def write_guarded(
    client: Patches,
    resource: Resource,
    key: ObjectKey,
    operations: tuple[Operation, ...],
    version: str,
    *,
    is_connected: Callable[[], bool] = lambda: True,
) -> PatchResult:
    """Sends the operations as one PATCH. One of them tests the resourceVersion, which is ``version``.

    ``is_connected``: whether the watch of these objects works. While it does not, a 403 or 5xx says nothing about this
    one: a starting API server rejects every request until it has loaded its RBAC rules.
    """
    written = await _write_guarded(client, resource, key, operations, version)
    if written.result is PatchStatus.UNANSWERED or isinstance(written.error, Forbidden):
        away = isinstance(written.error, ConnectionFailed) or not is_connected()
        return written._replace(result=PatchStatus.UNREACHED) if away else written
    return written


async def _write_guarded(
    client: Patches, resource: Resource, key: ObjectKey, operations: tuple[Operation, ...], version: str
) -> PatchResult:
    try:
        written = await client.patch(resource, key.name, JsonPatch(operations), namespace=key.namespace)
    except (NotFound, Conflict) as error:
        return PatchResult(PatchStatus.MOVED_ON, error)
    except Invalid as error:
        return PatchResult(PatchStatus.MOVED_ON if error.is_failed_test else PatchStatus.REFUSED, error)
    except (TooManyRequests, ServerTimeout, Unavailable, Unauthorized) as error:
        return PatchResult(PatchStatus.UNANSWERED, error)
    except ApiError as error:
        return PatchResult(PatchStatus.REFUSED, error)
    except KubernetesError as error:
        return PatchResult(PatchStatus.UNANSWERED, error)
    if written.metadata.resource_version == version:
        return PatchResult(
            PatchStatus.REFUSED, WriteReverted(f"{resource.kind} {key}: a webhook of the cluster undid the write")
        )
    return PatchResult(PatchStatus.DONE, version=written.metadata.resource_version)


# -- retries of pods whose PATCH did not reach the API server ----------------------------------------------------------


# Ten thousand pods must not overload an API server that is starting, and none may wait long once it is back. So all
# pods together send about ten PATCHes per second, and the first response wakes the others.

SHORTEST_OUTAGE_RETRY: Final = 1.5
MAX_OUTAGE_RETRY: Final = 60.0
OUTAGE_RETRIES_PER_SECOND: Final = 10.0
"""Attempts per second of all pods together."""


class OutageBackoff:
    """The pods whose PATCH did not reach the API server."""

    def __init__(self, wake: Callable[[ObjectKey], None], uniform: Callable[[], float]) -> None:
        self._wake = wake
        self._uniform = uniform
        self._waiting: set[ObjectKey] = set()

    @property
    def has_begun(self) -> bool:
        """Whether some pod is already waiting."""
        return bool(self._waiting)

    def holds(self, key: ObjectKey) -> float:
        """Adds the pod; returns the seconds until its next attempt, if no other pod gets a response before."""
        self._waiting.add(key)
        pause = min(max(SHORTEST_OUTAGE_RETRY, len(self._waiting) / OUTAGE_RETRIES_PER_SECOND), MAX_OUTAGE_RETRY)
        return pause * (0.75 + 0.5 * self._uniform())

    def over(self) -> None:
        """A PATCH got a response: wakes all waiting pods."""
        waiting, self._waiting = self._waiting, set()
        for key in waiting:
            self._wake(key)

    def leaves(self, key: ObjectKey) -> None:
        """Removes a pod that is gone or no longer gated."""
        self._waiting.discard(key)
