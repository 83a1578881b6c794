"""Concurrent work with limits: many items a few at a time, equal calls shared, requests in a fair queue."""

import asyncio
from collections import OrderedDict, deque
from collections.abc import Awaitable, Callable, Coroutine, Hashable, Iterable
from enum import IntEnum
from typing import Any, Generic, TypeVar

A = TypeVar("A")
T = TypeVar("T")


async def map_concurrently(work: Callable[[A], Awaitable[T]], things: Iterable[A], *, at_once: int) -> list[T]:
    """The results in the order of ``things``, at most ``at_once`` at a time. Raises what ``work`` raised.

    A task group cancels its other tasks at the first error and raises an exception group. Here running work is
    finished, because half a copied blob is useless, and no more is started. The error raised is that of the first
    failed item in input order, so that repeated runs report the same error.
    """
    slots = asyncio.Semaphore(at_once)
    errors: dict[int, Exception] = {}

    async def one(position: int, thing: A) -> T | None:
        async with slots:
            if errors:
                return None
            try:
                return await work(thing)
            except Exception as error:  # noqa: BLE001 - raised below, when the others have ended
                errors[position] = error
                return None

    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(one(*each), name="one of several") for each in enumerate(things)]
    if errors:
        raise errors[min(errors)]
    return [task.result() for task in tasks]  # type: ignore[misc]  # without an error none is missing


# -- singleflight: equal calls shared, like Go's -----------------------------------------------------------------------


K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


class _Call(Generic[V]):
    __slots__ = ("task", "waiting")

    def __init__(self, task: asyncio.Task[V]) -> None:
        self.task = task
        self.waiting = 0


class SingleFlight(Generic[K, V]):
    """Work in progress, by key.

    Each call is a task of its own, so a cancelled caller does not affect the others. It is cancelled when nobody waits
    for it any more: there are never more calls than callers, so a limit on callers limits calls.

    ``is_callers_own``: whether an error says something of the caller that started the call alone. The others then start
    a call of their own, since what one tenant may not do now another may.
    """

    __slots__ = ("_calls", "_is_callers_own", "_tasks")

    def __init__(self, is_callers_own: Callable[[BaseException], bool] = lambda error: False) -> None:
        self._is_callers_own = is_callers_own
        self._calls: dict[K, _Call[V]] = {}
        self._tasks: set[asyncio.Task[V]] = set()
        """Including cancelled calls that have not ended yet."""

    def __len__(self) -> int:
        return len(self._tasks)

    def __contains__(self, key: K) -> bool:
        return self._under_way(key) is not None

    async def join(self, key: K, start: Callable[[], Coroutine[Any, Any, V]]) -> V:
        """The result of the call for the key, started if needed; its error is raised to all callers."""
        while (call := self._under_way(key)) is not None:
            try:
                return await self._result(key, call)
            except Exception as error:
                if not self._is_callers_own(error):
                    raise
        task = asyncio.create_task(start(), name="call")
        call = self._calls[key] = _Call(task)
        self._tasks.add(task)
        task.add_done_callback(lambda done: self._landed(key, done))
        return await self._result(key, call)

    async def _result(self, key: K, call: _Call[V]) -> V:
        call.waiting += 1
        try:
            return await asyncio.shield(call.task)
        finally:
            call.waiting -= 1
            if not call.waiting and not call.task.done():
                self._forget(key, call.task)
                call.task.cancel()

    async def close(self) -> None:
        """Cancel all calls and wait until they have ended."""
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)

    def _under_way(self, key: K) -> _Call[V] | None:
        """The call in progress. One that is done but not yet removed does not count: a caller that needs a later
        result would join it over and over, and the event loop would never run its callback.
        """
        call = self._calls.get(key)
        return None if call is None or call.task.done() else call

    def _landed(self, key: K, task: asyncio.Task[V]) -> None:
        self._tasks.discard(task)
        self._forget(key, task)
        if not task.cancelled():
            task.exception()  # mark it as retrieved: callers got it, or have all left

    def _forget(self, key: K, task: asyncio.Task[V]) -> None:
        call = self._calls.get(key)
        if call is not None and call.task is task:
            del self._calls[key]


# -- a queue for a fixed number of slots: urgent requests first, tenants in turn ---------------------------------------


class RequestPriority(IntEnum):
    """Manifests before blobs: most images need only manifests."""

    MANIFEST = 0
    BLOB = 1


class QueueFull(Exception):  # noqa: N818 - the name says what is the matter
    """The queue is full for this tenant; the text says how many requests wait."""


class RequestQueue:
    """``slots`` concurrent requests; ``per_tenant`` limits a tenant's waiting requests, ``waiting`` all of them
    (``None``: unlimited). A tenant must also leave as much room as it takes, so that a few tenants cannot fill the
    queue.

    A plain semaphore serves in order of arrival: a tenant with five hundred images would delay everybody else, and the
    configs of the first images would wait behind all other manifests. Here tenants take turns within each priority, so
    a tenant waits for at most one request of each other tenant per request of its own.
    """

    __slots__ = ("__weakref__", "_free", "_per_tenant", "_queues", "_waiting", "length", "slots")

    def __init__(self, slots: int, *, per_tenant: int | None = None, waiting: int | None = None) -> None:
        self.slots = slots
        self.length = 0
        """Number of waiting requests."""
        self._free = slots
        self._per_tenant = per_tenant
        self._waiting = waiting
        self._queues: dict[RequestPriority, OrderedDict[str, deque[asyncio.Future[None]]]] = {
            priority: OrderedDict() for priority in RequestPriority
        }

    @property
    def idle(self) -> bool:
        return self._free == self.slots

    async def enter(self, priority: RequestPriority, tenant: str = "") -> None:
        """Wait for a slot, to be returned with ``leave``; ``QueueFull`` if the queue is full."""
        if self._free:
            self._free -= 1
            return
        self._check_room(tenant)
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._queues[priority].setdefault(tenant, deque()).append(turn)
        self.length += 1
        try:
            await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled():
                self.leave()  # the slot was passed on just as the waiter was cancelled
            else:
                self._withdraw(priority, tenant, turn)
            raise

    def leave(self) -> None:
        """Pass the slot to the next request, or free it."""
        for tenants in self._queues.values():
            while tenants:
                tenant, waiting = tenants.popitem(last=False)
                turn = waiting.popleft()
                self.length -= 1
                if waiting:
                    tenants[tenant] = waiting
                if not turn.done():  # a waiter cancelled just now is still in the queue
                    turn.set_result(None)
                    return
        self._free += 1

    def _check_room(self, tenant: str) -> None:
        if self._per_tenant is None and self._waiting is None:
            return
        waits = sum(len(tenants.get(tenant, ())) for tenants in self._queues.values())
        if self._per_tenant is not None and waits >= self._per_tenant:
            raise QueueFull(f"{waits} requests of the same namespace are waiting for it already")
        if self._waiting is not None and waits >= self._waiting - self.length:
            raise QueueFull(f"{self.length} requests are waiting already, {waits} of them of the same namespace")

    def _withdraw(self, priority: RequestPriority, tenant: str, turn: asyncio.Future[None]) -> None:
        tenants = self._queues[priority]
        waiting = tenants.get(tenant)
        if waiting is not None and turn in waiting:
            waiting.remove(turn)
            self.length -= 1
            if not waiting:
                del tenants[tenant]
