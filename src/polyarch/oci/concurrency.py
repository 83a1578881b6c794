"""Concurrent work with limits: many items a few at a time, equal calls shared, requests in a fair queue."""

import asyncio
from collections import OrderedDict
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Hashable, Iterable, Iterator
from contextlib import AbstractContextManager, asynccontextmanager, contextmanager, nullcontext
from enum import IntEnum
from typing import Any, Generic, TypeVar

from polyarch.oci.settings import Share

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


class Tenants:
    """The tenants on whose behalf something is done: the first, and those who joined it later.

    Work that several tenants wait for is in the queue of each, so it waits no longer than it would for the quickest.
    """

    __slots__ = ("_listeners", "_names", "first")

    def __init__(self, first: str = "") -> None:
        self.first = first
        self._names = {first: None}
        self._listeners: dict[object, Callable[[str], None]] = {}
        """By block: two may have the same listener, as requests of one image that join one call do."""

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def add(self, name: str) -> None:
        if name not in self._names:
            self._names[name] = None
            for listener in tuple(self._listeners.values()):
                listener(name)

    @contextmanager
    def followed(self, listener: Callable[[str], None]) -> Iterator[None]:
        """Call ``listener`` for each tenant, those who join within the block included."""
        for name in tuple(self._names):
            listener(name)
        block = object()
        self._listeners[block] = listener
        try:
            yield
        finally:
            del self._listeners[block]


class _Call(Generic[V]):
    __slots__ = ("task", "tenants", "waiting")

    def __init__(self, task: asyncio.Task[V], tenants: Tenants | None) -> None:
        self.task = task
        self.tenants = tenants
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

    async def join(self, key: K, start: Callable[[], Coroutine[Any, Any, V]], *, tenants: Tenants | None = None) -> V:
        """The result of the call for the key, started if needed; its error is raised to all callers.

        ``tenants``: those of the caller, for whom a call is made that uses the same object; a call that is joined is
        made for them, too.
        """
        while (call := self._under_way(key)) is not None:
            try:
                return await self._result(key, call, tenants)
            except Exception as error:
                if not self._is_callers_own(error):
                    raise
        task = asyncio.create_task(start(), name="call")
        call = self._calls[key] = _Call(task, tenants)
        self._tasks.add(task)
        task.add_done_callback(lambda done: self._landed(key, done))
        return await self._result(key, call, tenants)

    async def _result(self, key: K, call: _Call[V], tenants: Tenants | None) -> V:
        call.waiting += 1
        try:
            with _also_for(tenants, call.tenants):
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


def _also_for(tenants: Tenants | None, of_call: Tenants | None) -> AbstractContextManager[None]:
    if tenants is None or of_call is None or tenants is of_call:
        return nullcontext()
    return tenants.followed(of_call.add)


# -- shares of tenants -------------------------------------------------------------------------------------------------


class SharedCapacity:
    """What tenants hold of a :class:`Share`. Nothing here waits."""

    __slots__ = ("_held", "_maximum", "_share", "used")

    def __init__(self, share: Share) -> None:
        self._share = share
        self._maximum = max(share.shared, share.maximum)
        self.used = 0
        self._held: dict[str, int] = {}
        """By tenant; zeros are removed."""

    def held(self, tenant: str) -> int:
        return self._held.get(tenant, 0)

    @property
    def minimum(self) -> int:
        return self._share.minimum

    def allows(self, tenant: str, amount: int = 1, *, spare: int = 0) -> bool:
        """Whether the tenant may take so much now, and has ``spare`` left of its minimum."""
        share, held, used = self._share, self.held(tenant) + amount, self.used + amount
        if held + spare <= share.minimum:
            return used <= self._maximum
        return used <= share.shared and (share.per_tenant is None or held <= share.per_tenant)

    @property
    def exhausted(self) -> bool:
        """Whether no tenant may take anything."""
        return self.used >= self._maximum

    def take(self, tenant: str, amount: int = 1, *, spare: int = 0) -> bool:
        """Take it if the tenant may; returns whether."""
        if not self.allows(tenant, amount, spare=spare):
            return False
        self.used += amount
        self._held[tenant] = self.held(tenant) + amount
        return True

    def give_back(self, tenant: str, amount: int = 1) -> None:
        self.used -= amount
        if left := self._held[tenant] - amount:
            self._held[tenant] = left
        else:
            del self._held[tenant]


class SharedBytes:
    """Bytes that images hold, of one document after another.

    Of the minimum, a tenant's other images leave half to the one that has held bytes longest, so that it comes to its
    end, and then the next. If each took what there is, none would have room for its last document.
    """

    __slots__ = ("_capacity", "_images")

    def __init__(self, share: Share) -> None:
        self._capacity = SharedCapacity(share)
        self._images: dict[str, dict[object, int]] = {}
        """By tenant and image, the one that has held longest first."""

    @property
    def used(self) -> int:
        return self._capacity.used

    def held(self, tenant: str) -> int:
        return self._capacity.held(tenant)

    def hold(self, tenant: str, image: object, amount: int) -> bool:
        """Take it if the tenant may; returns whether."""
        images = self._images.get(tenant, {})
        is_first = next(iter(images), image) == image
        if not self._capacity.take(tenant, amount, spare=0 if is_first else self._capacity.minimum // 2):
            return False
        self._images.setdefault(tenant, images)[image] = images.get(image, 0) + amount
        return True

    def give_back(self, tenant: str, image: object, amount: int | None = None) -> None:
        """Give back what the image holds, at most ``amount``."""
        images = self._images.get(tenant, {})
        held = images.get(image, 0)
        amount = held if amount is None else min(amount, held)
        if not amount:
            return
        self._capacity.give_back(tenant, amount)
        if amount < held:
            images[image] = held - amount
            return
        del images[image]
        if not images:
            del self._images[tenant]


# -- a queue for a limited number of slots: urgent requests first, tenants in turn -------------------------------------


class RequestPriority(IntEnum):
    """Manifests before blobs: most images need only manifests."""

    MANIFEST = 0
    BLOB = 1


class QueueFull(Exception):  # noqa: N818 - the name says what is the matter
    """The queue is full for this tenant; the text says how many requests wait."""


class _Waiter:
    """A request in the queues of its tenants. ``slot``: the tenant that its slot counts against."""

    __slots__ = ("priority", "slot", "tenants")

    def __init__(self, priority: RequestPriority) -> None:
        self.priority = priority
        self.slot: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self.tenants: list[str] = []


class RequestQueue:
    """Slots that tenants share, and the requests that wait for one; ``waiting`` limits these (``None``: unlimited).

    A plain semaphore serves in order of arrival: a tenant with five hundred images would delay everybody else, and the
    configs of the first images would wait behind all other manifests. Here tenants take turns within each priority, and
    each has the minimum of its share at once: registries that answer nothing hold slots of nobody but their tenant.
    """

    __slots__ = ("__weakref__", "_queues", "_slots", "_waiting", "length")

    def __init__(self, slots: Share, *, waiting: Share | None = None) -> None:
        self.length = 0
        """Number of waiting requests."""
        self._slots = SharedCapacity(slots)
        self._waiting = None if waiting is None else SharedCapacity(waiting)
        self._queues: dict[RequestPriority, OrderedDict[str, dict[_Waiter, None]]] = {
            priority: OrderedDict() for priority in RequestPriority
        }

    @property
    def idle(self) -> bool:
        return not self._slots.used

    async def enter(self, priority: RequestPriority, tenants: Tenants | str = "") -> str:
        """Wait for a slot. Returns the tenant that it counts against, for ``leave``; ``QueueFull`` if the queue is full
        for the first of the tenants.
        """
        tenants = Tenants(tenants) if isinstance(tenants, str) else tenants
        for tenant in tenants:
            if self._slots.take(tenant):
                return tenant
        first = tenants.first
        if self._waiting is not None and not self._waiting.take(first):
            waits = self._waiting.held(first)
            raise QueueFull(f"{self.length} requests are waiting already, {waits} of them of the same namespace")
        self.length += 1
        waiter = _Waiter(priority)
        try:
            with tenants.followed(lambda tenant: self._join(waiter, tenant)):
                return await waiter.slot
        except asyncio.CancelledError:
            if waiter.slot.done() and not waiter.slot.cancelled():
                self.leave(waiter.slot.result())  # the slot was passed on just as the waiter was cancelled
            raise
        finally:
            self._withdraw(waiter)
            self.length -= 1
            if self._waiting is not None:
                self._waiting.give_back(first)

    @asynccontextmanager
    async def slot(self, priority: RequestPriority, tenants: Tenants | str = "") -> AsyncIterator[None]:
        """``enter``, and ``leave`` at the end of the block."""
        tenant = await self.enter(priority, tenants)
        try:
            yield
        finally:
            self.leave(tenant)

    def leave(self, tenant: str = "") -> None:
        """Give the tenant's slot back, to the next request if there is one that may have it."""
        self._slots.give_back(tenant)
        for tenants in self._queues.values():
            while (name := next(filter(self._slots.allows, tenants), None)) is not None:
                self._serve(tenants, name)
                if self._slots.exhausted:
                    return

    def _serve(self, tenants: OrderedDict[str, dict[_Waiter, None]], tenant: str) -> None:
        waiter = next(iter(tenants[tenant]))
        tenants.move_to_end(tenant)
        self._withdraw(waiter)
        if not waiter.slot.done():  # a waiter cancelled just now is still in the queue
            self._slots.take(tenant)
            waiter.slot.set_result(tenant)

    def _join(self, waiter: _Waiter, tenant: str) -> None:
        if waiter.slot.done():
            return
        if self._slots.take(tenant):  # one that joins may have a slot to spare
            self._withdraw(waiter)
            waiter.slot.set_result(tenant)
            return
        self._queues[waiter.priority].setdefault(tenant, {})[waiter] = None
        waiter.tenants.append(tenant)

    def _withdraw(self, waiter: _Waiter) -> None:
        tenants = self._queues[waiter.priority]
        for tenant in waiter.tenants:
            del tenants[tenant][waiter]
            if not tenants[tenant]:
                del tenants[tenant]
        waiter.tenants.clear()
