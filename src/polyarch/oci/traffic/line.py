"""Queue for a fixed number of slots: urgent requests first, tenants in turn (RG-052, PL-851).

A plain semaphore serves in order of arrival: a tenant with five hundred images would delay everybody else, and the
configs of the first images would wait behind all other manifests. Here tenants take turns within each urgency, so a
tenant waits for at most one request of each other tenant per request of its own.
"""

import asyncio
from collections import OrderedDict, deque
from enum import IntEnum


class Urgency(IntEnum):
    """Manifests before blobs: most images need only manifests."""

    MANIFEST = 0
    BLOB = 1


class LineFull(Exception):  # noqa: N818 - the name says what is the matter
    """The queue is full for this tenant; the text says how many requests wait."""


class Line:
    """``slots`` concurrent requests; ``per_tenant`` limits a tenant's waiting requests, ``waiting`` all of them
    (``None``: unlimited). A tenant must also leave as much room as it takes, so that a few tenants cannot fill the
    queue (PL-851, PL-854).
    """

    __slots__ = ("_free", "_per_tenant", "_queues", "_waiting", "length", "slots")

    def __init__(self, slots: int, *, per_tenant: int | None = None, waiting: int | None = None) -> None:
        self.slots = slots
        self.length = 0
        """Number of waiting requests."""
        self._free = slots
        self._per_tenant = per_tenant
        self._waiting = waiting
        self._queues: dict[Urgency, OrderedDict[str, deque[asyncio.Future[None]]]] = {
            urgency: OrderedDict() for urgency in Urgency
        }

    @property
    def idle(self) -> bool:
        return self._free == self.slots

    async def enter(self, urgency: Urgency, tenant: str = "") -> None:
        """Wait for a slot, to be returned with ``leave``; ``LineFull`` if the queue is full."""
        if self._free:
            self._free -= 1
            return
        self._check_room(tenant)
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._queues[urgency].setdefault(tenant, deque()).append(turn)
        self.length += 1
        try:
            await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled():
                self.leave()  # the slot was passed on just as the waiter was cancelled
            else:
                self._withdraw(urgency, tenant, turn)
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
            raise LineFull(f"{waits} requests of the same namespace are waiting for it already")
        if self._waiting is not None and waits >= self._waiting - self.length:
            raise LineFull(f"{self.length} requests are waiting already, {waits} of them of the same namespace")

    def _withdraw(self, urgency: Urgency, tenant: str, turn: asyncio.Future[None]) -> None:
        tenants = self._queues[urgency]
        waiting = tenants.get(tenant)
        if waiting is not None and turn in waiting:
            waiting.remove(turn)
            self.length -= 1
            if not waiting:
                del tenants[tenant]
