"""Leader election by a Lease.

No wall clock is trusted: a Lease has expired when *this* process has seen its record unchanged for its duration, on the
monotonic clock. The leader steps down ``renew_deadline`` seconds after it began its last successful renewal, before
anyone else can take over (``duration`` seconds after they saw that renewal at the earliest); the difference is the time
its workers have to stop. On a graceful shutdown the workers stop first and then the Lease is released, so that the next
leader need not wait.

The Lease is written with a PUT under its resourceVersion: of two candidates that try, one gets Conflict. It is the only
object that is read as a whole and written back, so that fields unknown to us survive."""

import asyncio
import copy
import random as _random
from collections.abc import Awaitable, Callable, Mapping
from datetime import datetime
from typing import Any, Final, Protocol

import msgspec
import structlog

from polyarch.clock import Clock, SystemClock, deadline
from polyarch.kube.errors import AlreadyExists, Conflict, KubernetesError, NotFound
from polyarch.kube.metrics import Metrics
from polyarch.kube.rbac import PolicyRule, rule
from polyarch.kube.resources import LEASES, Resource
from polyarch.objects import ObjectMeta

log = structlog.get_logger(__name__)

RELEASE_SECONDS: Final = 5.0

Callback = Callable[[], Awaitable[None]]


def rights(name: str) -> tuple[PolicyRule, ...]:
    """RBAC rules of an election, in the Lease's namespace. RBAC cannot restrict ``create`` by name."""
    return rule(LEASES, "get", "update", names=[name]), rule(LEASES, "create")


class LeaseSpec(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    """coordination.k8s.io/v1 LeaseSpec, as far as leadership goes."""

    holder_identity: str | None = None
    lease_duration_seconds: int | None = None
    acquire_time: str | None = None
    renew_time: str | None = None
    lease_transitions: int | None = None


class Lease(msgspec.Struct, frozen=True, gc=False):
    metadata: ObjectMeta = ObjectMeta()
    spec: LeaseSpec | None = None


class LeaseClient(Protocol):
    """The part of the client that an election uses."""

    async def get(
        self, resource: Resource, name: str, *, namespace: str = "", retry: bool = True
    ) -> dict[str, Any]: ...

    async def create(
        self, resource: Resource, document: Any, *, namespace: str = "", type: type[Any] = ..., retry: bool = True
    ) -> Any: ...

    async def replace(
        self, resource: Resource, document: Any, *, namespace: str = "", type: type[Any] = ..., retry: bool = True
    ) -> Any: ...


class LeadershipError(Exception):
    """Workers did not stop after the Lease was lost; the process must exit before another one leads."""


class LeaseAge:
    """How long this process has seen a Lease unchanged, from the first look on.

    ``blind``: seconds in total during which the watch was broken; they do not count.
    """

    def __init__(self, clock: Clock, *, blind: Callable[[], float] = lambda: 0.0) -> None:
        self._clock = clock
        self._blind = blind
        self._spec: LeaseSpec | None = None
        self._changed_at = self._watched()

    def observe(self, lease: Lease | None) -> None:
        """Takes note of the Lease as it is now; None: there is none."""
        spec = lease.spec if lease is not None else None
        if spec != self._spec:
            self._spec = spec
            self._changed_at = self._watched()

    def age(self) -> float:
        """Seconds since the record last changed."""
        return self._watched() - self._changed_at

    def _watched(self) -> float:
        return self._clock.monotonic() - self._blind()


class LeaderElection:
    """A candidate: acquires and renews the Lease; awaits ``on_started`` and ``on_stopped`` at each change.

    ``notes`` are annotations that go with each renewal: what the leader tells others costs no request.

    ``on_started`` starts the workers and must return at once, as renewals begin after it. ``on_stopped`` returns when
    the workers have stopped; if the Lease was lost it has ``duration - renew_deadline`` seconds.
    """

    def __init__(
        self,
        client: LeaseClient,
        *,
        namespace: str,
        name: str,
        identity: str,
        duration: float = 15.0,
        renew_deadline: float = 10.0,
        retry_period: float = 2.0,
        clock: Clock | None = None,
        random: Callable[[], float] = _random.random,
        metrics: Metrics | None = None,
        notes: Callable[[], Mapping[str, str]] | None = None,
        on_started: Callback | None = None,
        on_stopped: Callback | None = None,
    ) -> None:
        if not 0 < retry_period < renew_deadline < duration:
            raise ValueError(
                f"lease {namespace}/{name}: retry period ({retry_period:g} s) < renew deadline ({renew_deadline:g} s) "
                f"< duration ({duration:g} s) is needed, so that a leader stops before another one starts"
            )
        self.identity = identity
        self._client = client
        self._namespace = namespace
        self._name = name
        self._duration = duration
        self._renew_deadline = renew_deadline
        # As in client-go: one request that hangs on a dead connection leaves time for another on a new one.
        self._attempt_deadline = renew_deadline / 2
        self._retry_period = retry_period
        self._clock = clock or SystemClock()
        self._random = random
        self._notes = notes
        self._callbacks: list[tuple[Callback | None, Callback | None]] = []
        self._age = LeaseAge(self._clock)
        self._document: dict[str, Any] | None = None
        self._leading = False
        self._renewed_at = 0.0
        self._acquired_at = 0.0
        self._holder = ""
        self.subscribe(on_started, on_stopped)
        if metrics is not None:
            gauge = metrics.gauge("polyarch_leader", "1 while this process holds the Lease", ("lease",))
            gauge.labels(name).set_function(lambda: float(self.is_leader))

    @property
    def is_leader(self) -> bool:
        """True only while nobody else can hold the Lease, even right after the event loop was blocked for long."""
        return self._leading and self._clock.monotonic() < self._renewed_at + self._renew_deadline

    @property
    def leading_for(self) -> float:
        """Seconds since the Lease was acquired; 0 while somebody else may hold it."""
        return self._clock.monotonic() - self._acquired_at if self.is_leader else 0.0

    @property
    def holder(self) -> str:
        """The holder's identity when the Lease was last read; empty if nobody."""
        return self._holder

    def subscribe(self, on_started: Callback | None, on_stopped: Callback | None) -> None:
        """Adds callbacks; those of stopping run in the opposite order of those of starting."""
        self._callbacks.append((on_started, on_stopped))

    async def run(self) -> None:
        """Acquires the Lease, renews it, and acquires it again after a loss, until cancelled. Cancelled as leader, it
        stops the workers and then releases the Lease.

        Raises :class:`LeadershipError` if the workers do not stop in time after a loss.
        """
        while True:
            await self._acquire()
            self._leading, self._acquired_at = True, self._clock.monotonic()
            log.info("leading", lease=self._name, identity=self.identity)
            lost = False
            try:
                for on_started, _ in self._callbacks:
                    if on_started is not None:
                        await on_started()
                await self._hold()
                lost = True
            finally:
                self._leading = False
                await self._stop_workers(lost)
                if not lost:
                    await self._release()

    async def _acquire(self) -> None:
        while True:
            try:
                async with deadline(self._clock, self._attempt_deadline):
                    if await self._try():
                        return
            except (KubernetesError, TimeoutError) as error:
                log.warning("lease not reachable", lease=self._name, error=str(error) or "no answer in time")
            await self._pause(self._retry_period)

    async def _hold(self) -> None:
        """Returns when the Lease is lost."""
        while True:
            await self._pause(min(self._retry_period, self._left()))
            left = self._left()
            if left <= 0:
                log.error("lease lost: it could not be renewed in time", lease=self._name)
                return
            try:
                async with deadline(self._clock, min(left, self._attempt_deadline)):
                    if not await self._try() and self._holder not in ("", self.identity):
                        log.error("lease lost: somebody else has it", lease=self._name, holder=self._holder)
                        return
            except (KubernetesError, TimeoutError) as error:
                log.warning("lease not renewed", lease=self._name, error=str(error) or "no answer in time")

    async def _try(self) -> bool:
        """Acquires or renews a Lease that is free, ours or expired; False if another holds it, or on Conflict."""
        began = self._clock.monotonic()
        try:
            document = self._document or await self._client.get(
                LEASES, self._name, namespace=self._namespace, retry=False
            )
        except NotFound:
            return await self._create(began)
        lease = msgspec.convert(document, Lease)
        spec = lease.spec or LeaseSpec()
        self._age.observe(lease)
        self._holder = spec.holder_identity or ""
        if self._holder not in ("", self.identity) and self._age.age() < (
            spec.lease_duration_seconds or self._duration
        ):
            return False
        taken = self._noted(self._with_spec(document, self._record(spec)))
        self._document = None
        try:
            written = await self._client.replace(LEASES, taken, namespace=self._namespace, type=dict, retry=False)
        except Conflict:
            return False
        return self._written(written, began)

    async def _create(self, began: float) -> bool:
        metadata = {"name": self._name, "namespace": self._namespace}
        document = {"apiVersion": LEASES.api_version, "kind": LEASES.kind, "metadata": metadata}
        document = self._with_spec(document, self._record(LeaseSpec()))
        try:
            written = await self._client.create(LEASES, document, namespace=self._namespace, type=dict, retry=False)
        except AlreadyExists:
            return False
        return self._written(written, began)

    def _written(self, document: dict[str, Any], began: float) -> bool:
        self._document = document
        self._age.observe(msgspec.convert(document, Lease))
        self._holder = self.identity
        self._renewed_at = began
        return True

    def _record(self, known: LeaseSpec) -> dict[str, Any]:
        now = micro_time(self._clock.now())
        record: dict[str, Any] = {
            "holderIdentity": self.identity,
            "leaseDurationSeconds": max(1, round(self._duration)),
            "renewTime": now,
        }
        if known.holder_identity != self.identity:
            record["acquireTime"] = now
            record["leaseTransitions"] = 0 if known.renew_time is None else (known.lease_transitions or 0) + 1
        return record

    async def _stop_workers(self, lost: bool) -> None:
        """Runs to completion even if ``run`` is cancelled meanwhile: workers must not outlive their leadership."""
        seconds = self._duration - self._renew_deadline if lost else None
        stopping = asyncio.create_task(self._call_stopped(seconds), name="stop workers")
        try:
            await asyncio.shield(stopping)
        except asyncio.CancelledError:
            await asyncio.wait([stopping])
            stopping.result()
            raise

    async def _call_stopped(self, seconds: float | None) -> None:
        try:
            async with deadline(self._clock, seconds):
                for _, on_stopped in reversed(self._callbacks):
                    if on_stopped is not None:
                        await on_stopped()
        except TimeoutError:
            raise LeadershipError(
                f"lease {self._namespace}/{self._name} was lost and the workers did not stop within {seconds:g} s; "
                "this process has to end before another one leads"
            ) from None

    async def _release(self) -> None:
        document, self._document = self._document, None
        released = {"holderIdentity": "", "leaseDurationSeconds": 1, "renewTime": micro_time(self._clock.now())}
        try:
            async with deadline(self._clock, RELEASE_SECONDS):
                if document is None:  # a renewal was cancelled; the server may have carried it out
                    document = await self._client.get(LEASES, self._name, namespace=self._namespace, retry=False)
                    if (document.get("spec") or {}).get("holderIdentity") != self.identity:
                        return
                await self._client.replace(
                    LEASES, self._with_spec(document, released), namespace=self._namespace, retry=False
                )
        except (KubernetesError, TimeoutError) as error:
            log.warning("lease not released, the next leader waits until it expires", error=str(error))
        else:
            log.info("lease released", lease=self._name)

    def _noted(self, document: dict[str, Any]) -> dict[str, Any]:
        """With what the leader tells as annotations; an empty value removes one."""
        if self._notes is None:
            return document
        metadata = document.get("metadata") or {}
        annotations = {**(metadata.get("annotations") or {}), **self._notes()}
        return {**document, "metadata": {**metadata, "annotations": {k: v for k, v in annotations.items() if v}}}

    @staticmethod
    def _with_spec(document: dict[str, Any], record: dict[str, Any]) -> dict[str, Any]:
        changed = copy.copy(document)
        changed["spec"] = {**(document.get("spec") or {}), **record}
        return changed

    def _left(self) -> float:
        return self._renewed_at + self._renew_deadline - self._clock.monotonic()

    async def _pause(self, seconds: float) -> None:
        """At most ``seconds``, shortened at random so that standbys do not all ask at once."""
        await self._clock.sleep(seconds * (1 - 0.2 * self._random()))


def micro_time(moment: datetime) -> str:
    """meta/v1 MicroTime: ``2025-01-01T00:00:00.000000Z``."""
    return moment.strftime("%Y-%m-%dT%H:%M:%S.%fZ")
