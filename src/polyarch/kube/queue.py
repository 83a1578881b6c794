"""The work queue: keys to reconcile, deduplicated, with delays, backoff and priorities.

A key says "look at this object again", never what happened to it. It is in the queue at most once and with at most one
worker; if it is added while a worker has it, it comes back exactly once when that worker is done. So a burst of events
costs one reconcile, and no two reconciles of one object run at the same time.

::

    add ──────────────► ready ──get──► processing ──done──► (gone)
    add_after ─► delayed ─┘                 │ added meanwhile
                  ▲                         └──────► again ──done──► ready
                  └── retry (backoff per key, until ``forget``)

With ``tenants`` those of keys are served in turn, and a tenant may have as many keys with workers as it leaves
workers free: neither many keys nor reconciles that hang keep the workers from everybody else.

Of several delays of one key the earliest wins. ``add`` does not cancel a delay: a requeue in five minutes still
happens, at the cost of one more reconcile. ``LOW`` is for the initial list, ``NORMAL`` for live events; one low key is
served after ``LOW_SHARE - 1`` normal ones, so neither starves. The number of keys is bounded by the number of objects
where somebody works: a pass over an object that is gone ends its key, at the latest when its delay is over. A standby
has no passes; keys of objects that come and go under ever new names are to be taken out there (``discard``). Nothing
else is dropped before ``shut_down``."""

import asyncio
import heapq
import itertools
import math
import random as _random
from collections import Counter, OrderedDict, deque
from collections.abc import Callable, Hashable, Iterator
from enum import IntEnum
from typing import Generic, TypeVar

from polyarch.clock import Clock, Timer
from polyarch.kube.metrics import Metrics, QueueMetrics

K = TypeVar("K", bound=Hashable)

BACKOFF_FIRST = 0.005
BACKOFF_LAST = 300.0
LOW_SHARE = 5


class Priority(IntEnum):
    LOW = 0
    NORMAL = 1


class ShutDown(Exception):  # noqa: N818 - a state that a worker loop ends on, not an error
    """The queue is shut down and empty: ``get`` returns no more keys."""


class Tenants(Generic[K]):
    """How many of the ``workers`` each tenant has; ``of`` says whose a key is.

    Without ``workers`` tenants take turns only: for reconciles that wait for nothing that a tenant chooses.
    """

    def __init__(self, of: Callable[[K], Hashable], *, workers: float = math.inf) -> None:
        self.of = of
        self._free = workers
        self._busy: Counter[Hashable] = Counter()

    def allows(self, tenant: Hashable) -> bool:
        """Whether the tenant may have one more: it may have as many as it leaves free."""
        return self._busy[tenant] < self._free

    def acquire(self, key: K) -> None:
        """A worker has got the key."""
        self._free -= 1
        self._busy[self.of(key)] += 1

    def release(self, key: K) -> None:
        """The worker is done with it."""
        self._free += 1
        tenant = self.of(key)
        self._busy[tenant] -= 1
        if not self._busy[tenant]:
            del self._busy[tenant]


class _ReadyKeys(Generic[K]):
    """Ready keys with the time since when; in order of arrival, or of each tenant in turn."""

    def __init__(self, tenants: Tenants[K] | None) -> None:
        self._tenants = tenants
        self._keys: OrderedDict[Hashable, OrderedDict[K, float]] = OrderedDict()
        """By tenant, the one that was served longest ago first."""
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def __contains__(self, key: K) -> bool:
        return key in self._keys.get(self._tenant(key), ())

    def __setitem__(self, key: K, since: float) -> None:
        keys = self._keys.setdefault(self._tenant(key), OrderedDict())
        self._count += key not in keys
        keys[key] = since

    def pop(self, key: K) -> float | None:
        """Takes a key out; None: it was not there."""
        tenant = self._tenant(key)
        keys = self._keys.get(tenant, OrderedDict())
        since = keys.pop(key, None)
        self._count -= since is not None
        if not keys:
            self._keys.pop(tenant, None)
        return since

    def take(self) -> tuple[K, float] | None:
        """Takes the next key out; None if there is none that may be served now."""
        for tenant, keys in self._keys.items():
            if self._tenants is None or self._tenants.allows(tenant):
                key, since = keys.popitem(last=False)
                self._count -= 1
                if keys:
                    self._keys.move_to_end(tenant)
                else:
                    del self._keys[tenant]
                return key, since
        return None

    def clear(self) -> None:
        self._keys.clear()
        self._count = 0

    def since(self) -> Iterator[float]:
        """Since when each key is ready."""
        return (since for keys in self._keys.values() for since in keys.values())

    def _tenant(self, key: K) -> Hashable:
        return self._tenants.of(key) if self._tenants is not None else None


class WorkQueue(Generic[K]):
    """Only ``get`` and ``drained`` wait. Not thread-safe: one event loop uses it."""

    def __init__(
        self,
        name: str,
        clock: Clock,
        *,
        random: Callable[[], float] = _random.random,
        backoff: float = BACKOFF_FIRST,
        longest: float = BACKOFF_LAST,
        metrics: Metrics | None = None,
        tenants: "Tenants[K] | None" = None,
    ) -> None:
        """``backoff``: the base of the exponential backoff per key, in seconds; ``longest``: its last step."""
        self.name = name
        self._tenants = tenants
        self._clock = clock
        self._random = random
        self._backoff = backoff
        self._longest = longest
        self._ready: dict[Priority, _ReadyKeys[K]] = {priority: _ReadyKeys(tenants) for priority in Priority}
        self._processing: dict[K, float] = {}
        self._again: dict[K, tuple[Priority, float]] = {}
        self._delayed: dict[K, tuple[float, Priority]] = {}
        self._delays: list[tuple[float, int, K]] = []
        self._order = itertools.count()
        self._failures: dict[K, int] = {}
        self._getters: deque[asyncio.Future[None]] = deque()
        self._idle: list[asyncio.Future[None]] = []
        self._normal_in_a_row = 0
        self._shut_down = False
        self._alarm = Timer(clock, self._promote)
        self._metrics = (
            QueueMetrics(metrics, name, depth=self.__len__, oldest_age=self._reported_age) if metrics else None
        )

    def add(self, key: K, priority: Priority = Priority.NORMAL) -> None:
        """Queues the key; its next reconcile starts after this call. A higher priority than before moves it up."""
        if self._shut_down:
            return
        if self._metrics:
            self._metrics.adds.inc()
        self._admit(key, priority, self._clock.monotonic())

    def add_after(self, key: K, seconds: float, priority: Priority = Priority.NORMAL) -> None:
        """As ``add``, in ``seconds``; if the key is already delayed, the earlier time wins."""
        if seconds <= 0:
            self.add(key, priority)
            return
        if self._shut_down:
            return
        due = self._clock.monotonic() + seconds
        if (known := self._delayed.get(key)) is not None:
            priority = max(priority, known[1])
            if known[0] <= due:
                self._delayed[key] = (known[0], priority)
                return
        self._delayed[key] = (due, priority)
        heapq.heappush(self._delays, (due, next(self._order), key))
        self._set_alarm()

    async def get(self) -> K:
        """The next key; no other worker gets it until ``done``. Raises ``ShutDown`` at the end."""
        while True:
            self._promote()
            if (key := self._take()) is not None:
                return key
            if self._shut_down and not len(self):
                raise ShutDown(self.name)
            getter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._getters.append(getter)
            self._set_alarm()
            try:
                await getter
            except asyncio.CancelledError:
                if not getter.cancelled():
                    self._wake(1)  # woken and cancelled at once: the key is another getter's
                elif getter in self._getters:
                    self._getters.remove(getter)
                self._set_alarm()
                raise

    def done(self, key: K) -> None:
        """The worker has finished; if the key was added meanwhile, it is ready again."""
        started = self._processing.pop(key)
        if self._tenants is not None:
            self._tenants.release(key)
            self._wake(len(self._getters) if self._shut_down else len(self))
        if self._metrics:
            self._metrics.work.observe(self._clock.monotonic() - started)
        if (again := self._again.pop(key, None)) is not None:
            self._admit(key, *again)
        self._settle()

    def retry(self, key: K, *, at_least: float = 0.0) -> float:
        """Requeues the key with backoff (usually 5 ms doubling to 5 min; the upper half of each step is jitter).

        Returns the delay in seconds. ``at_least`` is a server's ``Retry-After``, capped at 5 min.
        """
        failures = self._failures[key] = self._failures.get(key, 0) + 1
        step = min(self._longest, self._backoff * 2.0 ** min(failures, 32))
        delay = max(step / 2 * (1 + self._random()), min(at_least, BACKOFF_LAST))
        if self._metrics:
            self._metrics.retries.inc()
        self.add_after(key, delay)
        return delay

    def forget(self, key: K) -> None:
        """Resets the key's backoff, after a success."""
        self._failures.pop(key, None)

    def failures(self, key: K) -> int:
        """How often the key has failed in a row."""
        return self._failures.get(key, 0)

    def discard(self, key: K) -> None:
        """Takes out a key whose object is gone, where nobody clears up after it: a standby would keep it for ever."""
        for keys in self._ready.values():
            keys.pop(key)
        self._delayed.pop(key, None)
        self._failures.pop(key, None)
        self._set_alarm()
        self._settle()

    def shut_down(self, *, drain: bool) -> None:
        """Accepts no more keys. With ``drain`` ready keys are still handed out; delayed keys are dropped in any case.

        What is dropped is not lost: the next leader lists every object and enqueues it.
        """
        self._shut_down = True
        self._delayed.clear()
        self._delays.clear()
        self._alarm.stop()
        if not drain:
            self._again.clear()
            for keys in self._ready.values():
                keys.clear()
        self._wake(len(self._getters))
        self._settle()

    async def drained(self) -> None:
        """Returns when no key is ready or being processed; delayed keys do not count. The caller sets a deadline."""
        while self._processing or len(self):
            waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._idle.append(waiter)
            await waiter

    def __len__(self) -> int:
        """Number of ready keys."""
        self._promote()
        return sum(len(keys) for keys in self._ready.values())

    @property
    def oldest_age(self) -> float:
        """Seconds since the oldest ready key became ready; 0.0 if there is none."""
        self._promote()
        ready_since = [since for keys in self._ready.values() for since in keys.since()]
        return self._clock.monotonic() - min(ready_since) if ready_since else 0.0

    def _reported_age(self) -> float:
        """0 without workers: a standby collects keys and must not raise an alert."""
        return self.oldest_age if self._getters or self._processing else 0.0

    def _admit(self, key: K, priority: Priority, since: float) -> None:
        if key in self._processing:
            known = self._again.get(key, (priority, since))
            self._again[key] = (max(known[0], priority), known[1])
            return
        if key in self._ready[Priority.NORMAL]:
            return
        if key in self._ready[Priority.LOW]:
            if priority == Priority.LOW:
                return
            since = self._ready[Priority.LOW].pop(key) or since
        self._ready[priority][key] = since
        self._wake(1)

    def _take(self) -> K | None:
        """The next key that may be served now."""
        low, normal = self._ready[Priority.LOW], self._ready[Priority.NORMAL]
        turns = (low, normal) if self._normal_in_a_row >= LOW_SHARE - 1 else (normal, low)
        for keys in turns:
            if (found := keys.take()) is None:
                continue
            key, since = found
            self._normal_in_a_row = self._normal_in_a_row + 1 if keys is normal and low else 0
            now = self._processing[key] = self._clock.monotonic()
            if self._tenants is not None:
                self._tenants.acquire(key)
            if self._metrics:
                self._metrics.latency.observe(now - since)
            return key
        return None

    def _promote(self) -> None:
        """Makes the delayed keys that are due ready."""
        now = self._clock.monotonic()
        while self._delays and self._delays[0][0] <= now:
            due, _, key = heapq.heappop(self._delays)
            if (known := self._delayed.get(key)) is not None and known[0] == due:
                del self._delayed[key]
                self._admit(key, known[1], due)
        self._set_alarm()

    def _set_alarm(self) -> None:
        """The alarm is only needed while a worker waits; busy workers check the delays in their next ``get``."""
        while self._delays and self._is_void(self._delays[0]):
            heapq.heappop(self._delays)
        if self._delays and self._getters:
            self._alarm.set(self._delays[0][0])
        else:
            self._alarm.stop()

    def _is_void(self, delay: tuple[float, int, K]) -> bool:
        known = self._delayed.get(delay[2])
        return known is None or known[0] != delay[0]

    def _wake(self, count: int) -> None:
        while count and self._getters:
            getter = self._getters.popleft()
            if not getter.done():
                getter.set_result(None)
                count -= 1

    def _settle(self) -> None:
        if self._idle and not self._processing and not len(self):
            waiters, self._idle = self._idle, []
            for waiter in waiters:
                if not waiter.done():
                    waiter.set_result(None)
