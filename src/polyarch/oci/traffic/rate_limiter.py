"""Pauses, circuit breakers, rate limits and request slots per registry host.

Pauses and failures are kept per *host*: a 429 for one image pauses all requests to its host, and five failed
connections in a row open its circuit. Rate limits are kept per *account* of a host, a credential or anonymous:
a low one keeps a reserve for the nodes, which have to pull, and does not affect the others.

The limits of Docker Hub and others are sliding windows (``100;w=21600``: 100 requests in any six hours), of which a
client sees only the total. The time until a refill is therefore computed as if requests were spread evenly over the
window; the next answer corrects it."""

import email.utils
import math
import re
from collections import Counter, OrderedDict
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from typing import NamedTuple
from weakref import WeakValueDictionary

from polyarch.clock import Clock
from polyarch.oci.concurrency import RequestPriority, RequestQueue, SharedBytes, Tenants
from polyarch.oci.inspection import TENANT_LIMIT
from polyarch.oci.lru_cache import LRUCache
from polyarch.oci.metrics import Metrics, NoMetrics
from polyarch.oci.settings import InspectorSettings
from polyarch.oci.transport.interface import Headers

FAILURES_TO_OPEN = 5
LONGEST_STEP = 60.0
LONGEST_PAUSE = 24 * 3600.0
HOSTS_KEPT = 1000
ACCOUNTS_KEPT = 32
TENANTS_KEPT = 256
NO_HEAD_SECONDS = 3600.0
RATE_SHARE = 3
"""How many requests of a rate limit's window a tenant may have used for each that is left to all."""
_RATE = re.compile(r"\s*(\d{1,9})\s*(?:;\s*w\s*=\s*(\d{1,9}))?", re.ASCII)
_SECONDS = re.compile(r"\d{1,9}(?:\.\d{1,6})?", re.ASCII)


class RateLimit(NamedTuple):
    """A registry's rate limit; ``window`` in seconds, 0 if not stated."""

    limit: int
    remaining: int
    window: int
    read_at: float
    """Monotonic time of the answer."""


class HostUnavailable(NamedTuple):
    """Why a host may not be asked now, and for how many seconds."""

    code: str
    seconds: float
    text: str


def parse_retry_after(value: str | None, now: datetime) -> float | None:
    """Seconds from ``Retry-After``, as a number or an HTTP date (RFC 9110 §10.2.3); None if it has neither.

    At least one second: "0" sent to many replicas at once would cause a storm. At most a day.
    """
    if value is None:
        return None
    value = value.strip()
    if _SECONDS.fullmatch(value):
        seconds = float(value)
    else:
        try:
            moment = email.utils.parsedate_to_datetime(value)
            seconds = (moment.replace(tzinfo=moment.tzinfo or UTC) - now).total_seconds()
        except (ValueError, OverflowError):
            return None
    return min(max(seconds, 1.0), LONGEST_PAUSE)


def parse_rate_limit(headers: Headers, read_at: float) -> RateLimit | None:
    """``ratelimit-limit`` and ``ratelimit-remaining`` (``100;w=21600``); None unless both are present and valid."""
    limit, remaining = (_RATE.match(headers.get(name)) for name in ("ratelimit-limit", "ratelimit-remaining"))
    if limit is None or remaining is None:
        return None
    return RateLimit(int(limit[1]), int(remaining[1]), int(remaining[2] or limit[2] or 0), read_at)


class Pause:
    """End of a requested pause, and the steps of the backoff."""

    __slots__ = ("steps", "until")

    def __init__(self) -> None:
        self.until = 0.0
        self.steps = 0

    def extend(self, retry_after: float | None, now: float) -> float:
        """Extend the pause and return its seconds from now; without a header 2, 4, 8 … 60 s.

        Replies to requests sent before the pause began do not advance the backoff.
        """
        if retry_after is None:
            if self.until > now:
                return self.until - now
            self.steps += 1
            retry_after = min(2.0**self.steps, LONGEST_STEP)
        self.until = max(self.until, now + retry_after)
        return self.until - now


class CredentialState:
    """Rate limit and pause of one credential, or of anonymous access, and what tenants have used of the limit."""

    __slots__ = ("pause", "rate", "spent")

    def __init__(self) -> None:
        self.pause = Pause()
        self.rate: RateLimit | None = None
        self.spent: LRUCache[str, tuple[float, float]] = LRUCache(TENANTS_KEPT)
        """By tenant: requests, and the time of the last one. They are forgotten evenly over the window."""

    def spent_by(self, tenant: str, now: float) -> float:
        """The requests of the window that the tenant has used."""
        known, rate = self.spent.get(tenant), self.rate
        if known is None or rate is None or not rate.window:
            return 0.0
        return max(0.0, known[0] - (now - known[1]) * rate.limit / rate.window)


class TenantCircuit:
    """A tenant's requests in a row for which a host that can be reached had no answer in time."""

    __slots__ = ("failures", "open_until")

    def __init__(self) -> None:
        self.failures = 0
        self.open_until = 0.0


class HostState:
    """State of one host (``host[:port]``), as far as one registry led there. ``tenant``: the first that asked it."""

    __slots__ = (
        "accounts",
        "answers",
        "circuits",
        "failures",
        "name",
        "no_head_until",
        "open_until",
        "pause",
        "queue",
        "tenant",
        "told",
    )

    def __init__(self, name: str, queue: RequestQueue, tenant: str = "") -> None:
        self.name = name
        self.queue = queue
        self.tenant = tenant
        self.circuits: LRUCache[str, TenantCircuit] = LRUCache(TENANTS_KEPT)
        """By tenant. A host that cannot be reached is down for all; which repositories hang is the tenant's choice."""
        self.pause = Pause()
        self.answers = 0
        self.failures = 0
        self.open_until = 0.0
        self.accounts: LRUCache[str, CredentialState] = LRUCache(ACCOUNTS_KEPT)
        """By fingerprint of the credential, ``""`` for anonymous."""
        self.no_head_until = 0.0
        self.told: set[str] = set()
        """Texts of ``Warning`` headers already shown."""

    @property
    def rate(self) -> RateLimit | None:
        """The most recent rate limit of any account."""
        return max((each.rate for _, each in self.accounts if each.rate), key=lambda rate: rate.read_at, default=None)

    def account(self, name: str) -> CredentialState:
        found = self.accounts.get(name)
        if found is None:
            found = CredentialState()
            self.accounts.put(name, found)
        return found


class RegistryRateLimiter:
    """The state of all hosts, and the queue of all requests."""

    def __init__(self, clock: Clock, settings: InspectorSettings, metrics: Metrics | None = None) -> None:
        self._clock = clock
        self._settings = settings
        self._metrics = metrics or NoMetrics()
        self._hosts: OrderedDict[tuple[str, str], HostState] = OrderedDict()
        """By name, and who led there."""
        self._queues: WeakValueDictionary[str, RequestQueue] = WeakValueDictionary()
        self._all = RequestQueue(settings.slots, waiting=settings.waiting_for_slot)
        self._copies = RequestQueue(settings.copies)
        self.bytes_in_flight = SharedBytes(settings.bytes_in_flight)

    def __iter__(self) -> Iterator[HostState]:
        return iter(list(self._hosts.values()))

    def host(self, name: str, via: str = "", tenant: str = "") -> HostState:
        """The state of a host, created if needed.

        ``via``: the registry that named the host, as the realm of its tokens or the target of a redirect, or that is
        behind it, for a mirror of several (``ns=``). Each has pauses and a circuit of its own there, since it chooses
        what is asked and how that ends; slots and queue are the host's.

        Beyond a thousand hosts, one that is idle is dropped, of the tenant that has brought most of them: the one with
        the fewest answers, not paused, idle longest, in this order.
        """
        host = self._hosts.get((name, via))
        if host is not None:
            self._hosts.move_to_end((name, via))
            return host
        queue = self._queue(name)
        if len(self._hosts) >= HOSTS_KEPT:
            self._forget_one()
        host = self._hosts[name, via] = HostState(name, queue, tenant)
        if not via:
            self._metrics.host_seen(name, self._paused(host))
        return host

    def _queue(self, name: str) -> RequestQueue:
        """The queue of a host, which lives as long as some state of the host."""
        queue = self._queues.get(name)
        if queue is None:
            settings = self._settings
            queue = self._queues[name] = RequestQueue(settings.slots_per_host, waiting=settings.waiting_for_host)
        return queue

    def busy(self, name: str, via: str = "", tenant: str = "") -> bool:
        """Whether the host is paused or its circuit open for the tenant; does not create state for unknown hosts."""
        host = self._hosts.get((name, via))
        return host is not None and self.unavailable(host, tenant=tenant) is not None

    def low(self, name: str, via: str = "") -> bool:
        """Whether less than half of the host's rate limit is left, by its last answer to any account."""
        host = self._hosts.get((name, via))
        rate = host.rate if host is not None else None
        if rate is None or not rate.limit or rate.remaining * 2 >= rate.limit:
            return False
        refilled = rate.read_at + rate.window * (rate.limit - 2 * rate.remaining) / (2 * rate.limit)
        return not rate.window or self._clock.monotonic() < refilled

    def unavailable(
        self, host: HostState, *, charged: bool = False, account: str = "", tenant: str = ""
    ) -> HostUnavailable | None:
        """What prevents a request now; ``charged``: it counts against the rate limit, like a GET."""
        now = self._clock.monotonic()
        known = host.accounts.get(account)
        until = max(host.pause.until, known.pause.until if known is not None else 0.0)
        if until > now:
            seconds = until - now
            return HostUnavailable(
                "rate-limited", seconds, f"requests to {host.name} are paused for {seconds:.0f} s more"
            )
        if host.open_until > now:
            seconds = host.open_until - now
            text = (
                f"circuit open: {host.name} could not be reached {host.failures} times in a row; "
                f"it is not asked for {seconds:.0f} s more"
            )
            return HostUnavailable("network", seconds, text)
        circuit = host.circuits.get(tenant)
        if circuit is not None and circuit.open_until > now:
            seconds = circuit.open_until - now
            text = (
                f"circuit open: {host.name} did not answer {circuit.failures} times in a row; "
                f"it is not asked for {seconds:.0f} s more"
            )
            return HostUnavailable(TENANT_LIMIT if tenant else "network", seconds, text)
        if charged and known is not None and (seconds := self._until_refilled(known.rate, now)) > 0:
            text = f"the rate limit of {host.name} is down to its reserve of {self._settings.reserve} requests"
            return HostUnavailable("rate-limited", seconds, text)
        if charged and known is not None and (seconds := self._until_share(known, tenant, now)) > 0:
            text = f"the namespace has used its share of the rate limit of {host.name}"
            return HostUnavailable(TENANT_LIMIT, seconds, text)
        return None

    @asynccontextmanager
    async def slot(self, host: HostState, priority: RequestPriority, tenants: Tenants) -> AsyncIterator[None]:
        """A slot of the host and one of all slots; ``QueueFull`` if too many wait."""
        async with host.queue.slot(priority, tenants), self._all.slot(priority, tenants):
            self._metrics.in_flight(host.name, 1)
            try:
                yield
            finally:
                self._metrics.in_flight(host.name, -1)

    @asynccontextmanager
    async def copying(self, tenant: str = "") -> AsyncIterator[None]:
        """The right to copy a blob: to read with one request while another one writes.

        Half as many as a host has slots, over all hosts, and half of the minimum for each tenant: a slot for writing is
        always free or becomes free, so that copies cannot deadlock.
        """
        async with self._copies.slot(RequestPriority.BLOB, tenant):
            yield

    def answered(
        self,
        host: HostState,
        headers: Headers,
        *,
        account: str = "",
        metered: bool = False,
        charged: bool = False,
        tenant: str = "",
    ) -> None:
        """Record a complete answer: the host is reachable, and its rate limit headers, if any.

        ``metered``: such answers always have the headers if there is a limit, so missing headers clear it.
        """
        host.answers += 1
        host.failures = 0
        host.circuits.pop(tenant)
        now = self._clock.monotonic()
        rate = parse_rate_limit(headers, now)
        if rate is not None:
            state = host.account(account)
            state.rate = rate
            if charged:
                state.spent.put(tenant, (state.spent_by(tenant, now) + 1, now))
            self._metrics.rate_limit(host.name, rate.remaining)
        elif metered and (known := host.accounts.get(account)) is not None and known.rate is not None:
            known.rate = None
            self._metrics.rate_limit(host.name, math.nan)

    def served(self, host: HostState, *, account: str = "") -> None:
        """Record an answer without rate limiting: the next backoff starts at 2 s again."""
        host.pause.steps = 0
        if (known := host.accounts.get(account)) is not None:
            known.pause.steps = 0

    def limited(self, host: HostState, retry_after: float | None, *, account: str | None = None) -> float:
        """Record a 429: pause the host, or only this ``account``, and return the seconds."""
        pause = host.pause if account is None else host.account(account).pause
        return pause.extend(retry_after, self._clock.monotonic())

    def unreachable(self, host: HostState) -> None:
        """Record a failed connection; the fifth in a row opens the circuit, and each further one opens it again."""
        host.failures += 1
        if host.failures >= FAILURES_TO_OPEN:
            host.open_until = self._clock.monotonic() + self._settings.circuit_rest

    def silent(self, host: HostState, tenant: str) -> None:
        """Record that the host had no complete answer in time: the same, for this tenant alone."""
        circuit = host.circuits.get(tenant)
        if circuit is None:
            circuit = TenantCircuit()
            host.circuits.put(tenant, circuit)
        circuit.failures += 1
        if circuit.failures >= FAILURES_TO_OPEN:
            circuit.open_until = self._clock.monotonic() + self._settings.circuit_rest

    def knows_no_head(self, host: HostState) -> bool:
        return host.no_head_until > self._clock.monotonic()

    def has_no_head(self, host: HostState) -> None:
        """Send this host no HEAD for an hour: it does not answer it usefully."""
        if not self.knows_no_head(host):
            host.no_head_until = self._clock.monotonic() + NO_HEAD_SECONDS

    def _until_refilled(self, rate: RateLimit | None, now: float) -> float:
        if rate is None or not rate.limit or not rate.window:
            return 0.0
        reserve = min(self._settings.reserve, rate.limit // 2)  # a limit of eight has no reserve of ten
        if reserve <= 0 or rate.remaining > reserve:
            return 0.0
        missing = reserve + 1 - rate.remaining
        return rate.read_at + missing * rate.window / rate.limit - now

    def _until_share(self, known: CredentialState, tenant: str, now: float) -> float:
        """Seconds until the tenant has used at most three times as many requests as are left for all; 0 without a
        reserve. One that asks for little never waits here.
        """
        rate, reserve = known.rate, self._settings.reserve
        if rate is None or not rate.limit or not rate.window or reserve <= 0:
            return 0.0
        left = max(0, rate.remaining - min(reserve, rate.limit // 2))
        excess = known.spent_by(tenant, now) - RATE_SHARE * left
        return excess * rate.window / rate.limit / (1 + RATE_SHARE)

    def _paused(self, host: HostState) -> Callable[[], bool]:
        return lambda: self.unavailable(host) is not None

    def _forget_one(self) -> None:
        now = self._clock.monotonic()
        brought = Counter(host.tenant for host in self._hosts.values())
        idle = ((key, host) for key, host in self._hosts.items() if host.queue.idle)
        forgotten = min(
            idle,
            key=lambda each: (
                -brought[each[1].tenant],
                each[1].answers,
                max(each[1].pause.until, each[1].open_until) > now,
            ),
            default=None,
        )
        if forgotten is not None:
            del self._hosts[forgotten[0]]
