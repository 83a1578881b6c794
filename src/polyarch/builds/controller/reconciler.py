"""Reconciles one build: facts, plan, its lookups, its writes in the plan's order.

A reconcile may be cut off anywhere and made again: what it found is in the API server or in a registry. A rejected
write ends it; the plan is told, once the caches show what was written, and says what follows. Plans of one
repository are made and carried out one at a time.
"""

import asyncio
import math
from collections import OrderedDict, deque
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from typing import Final, NamedTuple

import msgspec
import structlog

from polyarch.builds.controller.informers import BuildReader, BuildRef
from polyarch.builds.controller.resolver import BuildResolver, SpecInputs
from polyarch.builds.controller.writes import BuildExpectations, ObjectWrites, RegistryWrites, WriteResult, jobs_of
from polyarch.builds.facts.build_facts import BuildFacts, BuildLookup, BuildStep, WriteFailure
from polyarch.builds.facts.objects import named_by
from polyarch.builds.keys import NOT_ENABLED
from polyarch.builds.metrics import BuildMetrics
from polyarch.builds.names import normalised_repository
from polyarch.builds.plan.conditions import STATUS_INTERVAL
from polyarch.builds.plan.document import BuildPlan, EventObject, PlannedEvent, Write
from polyarch.builds.plan.update import PUSH, retry_pause
from polyarch.clock import Clock
from polyarch.kube.controller import NoRequeue, RequeueAfter, Result
from polyarch.kube.events import Recorder, Regarding
from polyarch.oci.auth.credential_stores import CredentialStore

log = structlog.get_logger(__name__)

MOVED_ON: Final = 1.0
"""Seconds until a build is looked at again whose objects have changed meanwhile, if no watch event does it before."""
SETTLING: Final = 0.2
"""Seconds until a build is looked at again whose neighbours' Jobs the cache does not show yet."""
UNANSWERED: Final = 30.0
"""Seconds until a write is tried again that a plan makes although it was told of its refusal, if nothing changes."""
LATEST_WRITE: Final = 60.0
"""Seconds for which a write to a registry may be on its way that a former leader sent, or that had no answer. It has no
precondition, as registries know none: a tag may be moved back by one that arrives late."""
MAX_POSTED_EVENTS: Final = 20_000
"""Events remembered, so that none is posted twice."""


class BuildReconciler:
    """Reconciles the builds of one kind. ``is_leading`` is asked before each write."""

    def __init__(
        self,
        reader: BuildReader,
        *,
        resolver: BuildResolver,
        inputs: SpecInputs,
        objects: ObjectWrites,
        registries: RegistryWrites,
        expectations: BuildExpectations[BuildRef],
        recorder: Recorder,
        metrics: BuildMetrics,
        clock: Clock,
        locks: "RepositoryLocks",
        is_leading: Callable[[], bool] = lambda: True,
        leading_for: Callable[[], float] = lambda: math.inf,
    ) -> None:
        """``leading_for``: the seconds for which this process has led."""
        self._reader = reader
        self._resolver = resolver
        self._inputs = inputs
        self._objects = objects
        self._registries = registries
        self._expectations = expectations
        self._recorder = recorder
        self._metrics = metrics
        self._clock = clock
        self._locks = locks
        self._is_leading = is_leading
        self._leading_for = leading_for
        self._failures: dict[BuildRef, tuple[WriteFailure, ...]] = {}
        self._resting: dict[BuildRef, _Rest] = {}
        self._again: dict[BuildRef, float] = {}
        """Seconds until progress is written that may wait for more."""
        self._unanswered: dict[BuildRef, float] = {}
        """Until when a write to a registry may arrive that had no answer."""
        self._tags_due: dict[BuildRef, float] = {}
        """When tags are looked at again, since one that was late may have moved them back."""
        self._told = PostedEvents()

    async def reconcile(self, ref: BuildRef) -> Result:
        """Reconciles one build."""
        facts = self._reader.facts(ref)
        if facts is None:
            self._forget(ref)
            return NoRequeue()
        async with self._locks.of(facts.request.spec.output.repository, ref.namespace) as waited:
            if self._expectations.is_stale(ref) or self._expectations.is_stale(jobs_of(ref.namespace)):
                return RequeueAfter(SETTLING)  # the pass before wrote what this one has to see
            if waited and (facts := self._reader.facts(ref)) is None:
                return NoRequeue()
            failures = self._failures.get(ref) or self._rest(ref)
            facts = _with(failures, await self._inputs.fill(ref, facts))
            credentials = self._inputs.credentials(ref.namespace, named_by(facts.request.spec).registry_secrets)
            facts, plan = await self._planned(ref, facts, credentials)
            self._resolver.is_about(ref, plan.execution)
            with self._objects.uids_of(ref) as made:
                ended = await self._carry_out(ref, plan, credentials, told=failures)
            tags_again = await self._look_at_tags(ref, facts, plan, credentials) if ended is None else None
        if ended is not None:
            return ended
        self._tell(ref, facts, plan, made)
        return _soonest(plan.requeue_after, self._inputs.again_in(facts), self._again.pop(ref, None), tags_again)

    # -- planning ------------------------------------------------------------------------------------------------------

    async def _planned(
        self, ref: BuildRef, facts: BuildFacts, credentials: CredentialStore
    ) -> tuple[BuildFacts, BuildPlan]:
        """The plan without lookups, and the facts that it was made from.

        Each result may make another lookup necessary, but none is done twice.
        """
        asked: set[BuildLookup] = set()
        while True:
            before = self._clock.monotonic()
            plan = self._reader.plan(facts)
            self._metrics.planned(self._clock.monotonic() - before)
            if not plan.lookups:
                return facts, plan
            if asked.issuperset(plan.lookups):
                again = ", ".join(f"{each.what} {each.reference}" for each in plan.lookups)
                raise RuntimeError(f"{ref}: the plan asks again what was answered: {again}")
            asked.update(plan.lookups)
            facts = await self._resolver.answered(ref, facts, plan.lookups, credentials)

    # -- carrying out --------------------------------------------------------------------------------------------------

    async def _carry_out(
        self, ref: BuildRef, plan: BuildPlan, credentials: CredentialStore, *, told: Sequence[WriteFailure]
    ) -> Result | None:
        """The writes in order; None if all were carried out. ``told``: the failures that the plan knows of.

        A plan that was told of one refused object makes the others, which may be refused as well: it has to know of
        all of them, or it would try each in turn for ever.
        """
        later = False
        for write in plan.writes:
            if not self._is_leading():
                return NoRequeue()
            result = await self._one(ref, write, credentials)
            if result is WriteResult.DONE and write.step is BuildStep.ADOPT_JOB:
                self._count_adoption(plan, write)
            if isinstance(result, WriteFailure):
                if any(_is_same(result, each) for each in told):
                    self._failures.pop(ref, None)
                    return RequeueAfter(UNANSWERED)
                self._failures[ref] = (*told, result)
                return RequeueAfter(0.0)
            if result is WriteResult.MOVED_ON:
                return RequeueAfter(MOVED_ON)
            later = later or result is WriteResult.LATER
        self._settle(ref)
        if later:
            self._again[ref] = STATUS_INTERVAL
        return None

    def _settle(self, ref: BuildRef) -> None:
        """The plan has said what follows from all failures. A registry that is away is left alone for a while: what
        the plan has recorded brings another pass at once."""
        passing = tuple(each for each in self._failures.pop(ref, ()) if each.passing and each.verb == PUSH)
        if passing:
            self._resting[ref] = _Rest(self._clock.monotonic() + max(map(retry_pause, passing)), passing)

    def _rest(self, ref: BuildRef) -> tuple[WriteFailure, ...]:
        """The failures that are not to be tried again yet."""
        rest = self._resting.get(ref)
        if rest is not None and rest.until > self._clock.monotonic():
            return rest.failures
        self._resting.pop(ref, None)
        return ()

    async def _one(self, ref: BuildRef, write: Write, credentials: CredentialStore) -> WriteResult | WriteFailure:
        if write.verb in ("create", "prepare", "patch", "status", "delete"):
            result = await self._objects.carry_out(ref, write)
        else:
            self._resolver.written(ref)
            result = await self._registries.carry_out(ref, write, credentials)
            self._note_registry_write(ref, result)
        if result is WriteResult.DONE:
            log.info(
                "carried out", build=str(ref), step=write.step, verb=write.verb, what=write.name or write.reference
            )
        return result

    def _note_registry_write(self, ref: BuildRef, result: WriteResult | WriteFailure) -> None:
        now = self._clock.monotonic()
        if isinstance(result, WriteFailure):
            if result.passing:
                self._unanswered[ref] = now + LATEST_WRITE
        elif self._leading_for() < LATEST_WRITE or self._unanswered.get(ref, now) > now:
            self._tags_due[ref] = now + LATEST_WRITE

    async def _look_at_tags(
        self, ref: BuildRef, facts: BuildFacts, plan: BuildPlan, credentials: CredentialStore
    ) -> float | None:
        """Puts tags of the result back that a late write has moved. Seconds until it is time for that; None: it was, or
        another result is on its way."""
        due, now = self._tags_due.get(ref), self._clock.monotonic()
        if due is None or plan.decision != "UpToDate" or not self._is_leading():
            return None
        if now < due:
            return due - now
        del self._tags_due[ref]
        self._unanswered.pop(ref, None)
        result = next((each.result for each in facts.executions if each.name == plan.execution), "")
        if not result or not plan.tags:
            return None
        write = Write(
            verb="tag",
            namespace=ref.namespace,
            name=plan.execution,
            reference=result,
            step=BuildStep.MOVE_TAGS,
            body={"tags": list(plan.tags)},
        )
        moved = await self._registries.carry_out(ref, write, credentials)
        if moved is WriteResult.DONE:
            log.warning("tags were moved back by a late write, and are put right", build=str(ref), result=result)
        if not isinstance(moved, WriteFailure) or not moved.passing:
            return None
        self._tags_due[ref] = now + LATEST_WRITE
        return LATEST_WRITE

    def _count_adoption(self, plan: BuildPlan, write: Write) -> None:
        for each in plan.per_architecture:
            if each.job == write.name:
                self._metrics.adopted(each.architecture)

    # -- events --------------------------------------------------------------------------------------------------------

    def _tell(self, ref: BuildRef, facts: BuildFacts, plan: BuildPlan, made: Mapping[str, str]) -> None:
        """Each event once."""
        resource, request = self._reader.resources[ref.kind], facts.request
        namespace = request.namespace if resource.namespaced else ""
        regarded = Regarding(resource.api_version, resource.kind, namespace, request.name, request.uid)
        for event in plan.events:
            if self._told.is_news(ref, facts.request.uid, event):
                regarding = self._regarding(event.about, made) if event.about is not None else regarded
                self._recorder.event(
                    regarding, type=event.type, reason=event.reason, note=event.message, action=event.reason
                )

    def _regarding(self, about: EventObject, made: Mapping[str, str]) -> Regarding:
        resource = self._reader.resources[about.kind]
        return Regarding(resource.api_version, resource.kind, "", about.name, made.get(about.uid, about.uid))

    def _forget(self, ref: BuildRef) -> None:
        self._failures.pop(ref, None)
        self._resting.pop(ref, None)
        self._unanswered.pop(ref, None)
        self._tags_due.pop(ref, None)
        self._told.forget(ref)
        self._resolver.is_about(ref, "")
        self._inputs.forget(ref)


class PostedEvents:
    """The events of each build that were posted: at most :data:`MAX_POSTED_EVENTS`."""

    def __init__(self) -> None:
        self._of: OrderedDict[BuildRef, OrderedDict[tuple[str, ...], None]] = OrderedDict()
        """The build that was told of last comes last, and so do its events."""
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def is_news(self, ref: BuildRef, uid: str, event: PlannedEvent) -> bool:
        """Whether this was not told yet; from now on it was."""
        about = event.about.uid if event.about is not None else ""
        told = (uid, about, event.execution, event.reason, event.architecture, event.message)
        own = self._of.setdefault(ref, OrderedDict())
        self._of.move_to_end(ref)
        is_news = told not in own
        own[told] = None
        own.move_to_end(told)
        self._count += is_news
        if self._count > MAX_POSTED_EVENTS:
            longest_ago, of_it = next(iter(self._of.items()))
            of_it.popitem(last=False)
            self._count -= 1
            if not of_it:
                del self._of[longest_ago]
        return is_news

    def forget(self, ref: BuildRef) -> None:
        """The build is gone."""
        self._count -= len(self._of.pop(ref, ()))


class RepositoryLocks:
    """One lock for each repository and namespace: its builds are planned one at a time. Images of a repository are
    deleted while no build of any namespace is planned for it.

    Whoever names a repository can keep builds of other namespaces waiting for a deletion at the most, which asks that
    repository's own registry, and never for a plan, which asks whatever registries the build names.
    """

    def __init__(self) -> None:
        self._repositories: dict[str, _RepositoryUse] = {}

    @asynccontextmanager
    async def of(self, repository: str, namespace: str) -> AsyncIterator[bool]:
        """Waits for the lock; whether it had to. Names that are written differently and mean the same have one lock."""
        with self._use(repository) as use:
            waits = use.is_deleting or namespace in use.planning
            await use.until(lambda: not use.is_deleting and namespace not in use.planning)
            use.planning.add(namespace)
            try:
                yield waits
            finally:
                use.planning.discard(namespace)
                use.wake()

    @asynccontextmanager
    async def for_deletion(self, repository: str) -> AsyncIterator[None]:
        """Waits until nothing is planned for the repository, and nothing deleted from it."""
        with self._use(repository) as use:
            await use.until(lambda: not use.is_deleting and not use.planning)
            use.is_deleting = True
            try:
                yield
            finally:
                use.is_deleting = False
                use.wake()

    @contextmanager
    def _use(self, repository: str) -> Iterator["_RepositoryUse"]:
        name = normalised_repository(repository)
        use = self._repositories.setdefault(name, _RepositoryUse())
        use.users += 1
        try:
            yield use
        finally:
            use.users -= 1
            if not use.users:
                del self._repositories[name]


class _RepositoryUse:
    """Who plans for one repository or deletes from it."""

    def __init__(self) -> None:
        self.users = 0
        self.planning: set[str] = set()
        """Namespaces."""
        self.is_deleting = False
        self._waiters: deque[tuple[Callable[[], bool], asyncio.Future[None]]] = deque()

    async def until(self, is_free: Callable[[], bool]) -> None:
        """Waits, in order of arrival among those that wait for the same."""
        while not is_free():
            waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._waiters.append((is_free, waiter))
            try:
                await waiter
            finally:
                self._waiters = deque(each for each in self._waiters if each[1] is not waiter)
                if waiter.cancelled():
                    self.wake()

    def wake(self) -> None:
        """Something has ended: wakes whoever may go on."""
        for is_free, waiter in self._waiters:
            if is_free() and not waiter.done():
                waiter.set_result(None)


class _Rest(NamedTuple):
    """Failures that the plan is told of until then."""

    until: float
    failures: tuple[WriteFailure, ...]


def _with(failures: Sequence[WriteFailure], facts: BuildFacts) -> BuildFacts:
    """The facts, knowing of failures. That a registry's Secret may not be read is what the inputs are like, and no
    failure of an execution: it goes on as soon as an administrator allows it."""
    readable = all(each.code != NOT_ENABLED for each in failures)
    kept = tuple(each for each in failures if each.code != NOT_ENABLED)
    inputs = msgspec.structs.replace(facts.inputs, readable=facts.inputs.readable and readable)
    return msgspec.structs.replace(facts, failures=kept, inputs=inputs)


def _is_same(failure: WriteFailure, told: WriteFailure) -> bool:
    """Whether the same write failed, however it was put this time."""
    same = ("verb", "step", "kind", "name", "reference")
    return all(getattr(failure, each) == getattr(told, each) for each in same)


def _soonest(*seconds: float | None) -> Result:
    known = [each for each in seconds if each is not None]
    return RequeueAfter(min(known)) if known else NoRequeue()
