"""Removes taints from the cluster when ArchitectureTaints is deleted: looks live, takes one step, looks again (TN-073).

The order is in ``operator.farewell``, and what a step writes in ``removal``, as ``polyarch taint clean`` does it.
Nothing here believes a cache but for whether the role lives, which only its Lease can tell.
"""

from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import Any, Final

import msgspec
import structlog

from polyarch.clock import Clock
from polyarch.kube.client import Client
from polyarch.kube.errors import KubernetesError, NotFound
from polyarch.kube.informer import OnDemand, Shares
from polyarch.kube.lease import Lease, RecordAge
from polyarch.kube.owners import delete_object, remove_finalizer
from polyarch.kube.resources import DEPLOYMENTS, LEASES, MUTATING_WEBHOOKS, Ref, Resource
from polyarch.kube.store import Change
from polyarch.objects import Key, ObjectMeta, PartialObjectMetadata
from polyarch.operating.keeping.operand_sets import OperandSets
from polyarch.operating.rollouts import Rollout
from polyarch.taints import names
from polyarch.taints.api import ARCHITECTURE_TAINTS
from polyarch.taints.inventory import RECORDED_ONLY
from polyarch.taints.operator.farewell import Left, Step, next_step
from polyarch.taints.removal import ADMISSION_GROUP, POLICY_PLURALS, Removal
from polyarch.taints.settings import TaintSettings
from polyarch.taints.writes import Outcome, Writer

log = structlog.get_logger(__name__)

SILENCE: Final = 30.0
"""Seconds without a change of the role's Lease after which nobody is taken to clean up."""


class Seen(msgspec.Struct, frozen=True, kw_only=True):
    """One live look."""

    left: Left
    operands: Mapping[Ref, PartialObjectMetadata]
    marked: tuple[Ref, ...] = ()
    """Nodes and pods on which something of ours is."""
    lease: bool = False


class Farewell:
    """``home`` is the operator's namespace. What it remembers are times, which no object records."""

    def __init__(self, client: Client, informers: Shares, operands: OperandSets, *, home: str, clock: Clock) -> None:
        self._client = client
        self._operands = operands
        self._home = home
        self._clock = clock
        self._lease = OnDemand(informers, LEASES, Lease, self._lease_changed, namespace=home, name=names.LEASE)
        self._age: RecordAge | None = None
        self._registered_at: float | None = None
        self._progress: tuple[int, float] | None = None
        self._logged: Step | None = None
        self.failures: tuple[str, ...] = ()
        """What the operator itself could not remove, and why."""

    def forget(self) -> None:
        """No removal is under way (any more)."""
        self._lease.want(False)
        self._age = self._registered_at = self._progress = self._logged = None
        self.failures = ()

    async def look(self, settings: TaintSettings | None, leaving: ObjectMeta | None) -> Seen:
        """What is left. ``settings``: of the object, None if it is gone; ``leaving``: its metadata while it goes."""
        self._watch_lease()
        removal = self._removal(settings)
        found = await self._operands.live()
        configuration = Ref(MUTATING_WEBHOOKS, Key("", names.ROLE))
        registered = configuration in found or await self._has_policy()
        now = self._clock.monotonic()
        if registered or self._registered_at is None:
            self._registered_at = now
        marked = await removal.left()
        role = {ref: each for ref, each in found.items() if ref != configuration}
        has_lease = not role and await self._exists(LEASES, names.LEASE, self._home)
        left = Left(
            registered=registered,
            marks=len(marked),
            role=len(role) + has_lease,
            lives=self._lives(),
            idle=self._idle(len(marked), now),
            settling=now - self._registered_at,
            finalizer=leaving is not None and names.FINALIZER in (leaving.finalizers or ()),
        )
        return Seen(left=left, operands=role, marked=marked, lease=has_lease)

    async def take(self, seen: Seen, settings: TaintSettings | None, leaving: ObjectMeta | None) -> Step:
        """Takes the next step, and says which it was. Raises ``KubernetesError``."""
        step = next_step(seen.left)
        if step is not self._logged:
            log.info("removal of taints", step=step.value, marks=len(seen.marked))
        self._logged = step
        match step:
            case Step.UNREGISTER:
                self._note(await self._removal(settings).registration())
            case Step.CLEAN:
                removal = self._removal(settings)
                self._note(Outcome.of((await removal.taints(), await removal.gates())))
            case Step.REMOVE_ROLE:
                self.failures = ()
                await self._operands.remove(seen.operands)
                if seen.lease:
                    await delete_object(self._client, LEASES, Key(self._home, names.LEASE))
            case Step.RELEASE if leaving is not None:
                await remove_finalizer(self._client, ARCHITECTURE_TAINTS, leaving, names.FINALIZER)
            case Step.FINISHED:
                self.forget()
        return step

    async def remove_at_once(self, settings: TaintSettings | None, leaving: ObjectMeta | None) -> None:
        """All that can still be done while the operator's namespace is being deleted, and its own rights with it."""
        removal = self._removal(settings)
        parts: list[Callable[[], Awaitable[Any]]] = [removal.registration, removal.gates, removal.taints]
        in_cluster = [ref for ref in self._operands.cached() if not ref.resource.namespaced]
        parts += [partial(delete_object, self._client, ref.resource, ref.key) for ref in in_cluster]
        if leaving is not None:
            parts.append(partial(remove_finalizer, self._client, ARCHITECTURE_TAINTS, leaving, names.FINALIZER))
        for part in parts:
            try:
                await part()
            except KubernetesError as error:
                log.warning("left behind in a namespace that is being deleted", error=str(error))

    def _removal(self, settings: TaintSettings | None) -> Removal:
        return Removal(Writer(self._client, clock=self._clock), settings or RECORDED_ONLY)

    def _note(self, outcome: Outcome) -> None:
        self.failures = tuple(map(str, outcome.failed))
        for failure in self.failures:
            log.warning("not removed", problem=failure)

    # -- facts --------------------------------------------------------------------------------------------------------

    def _lives(self) -> bool:
        """The role will remove taints and gates by itself."""
        deployment = self._operands.get(DEPLOYMENTS, names.ROLE)
        available = Rollout.of(deployment.document if deployment is not None else None).available
        return available and self._age is not None and self._age.age() < SILENCE

    def _watch_lease(self) -> None:
        if self._age is None:
            self._age = RecordAge(self._clock, blind=lambda: self._lease.blind_seconds)
            self._lease.want(True)

    def _lease_changed(self, change: Change[Lease]) -> None:
        if self._age is not None:
            self._age.observe(change.new)

    def _idle(self, marks: int, now: float) -> float:
        """Seconds since fewer marks were seen than before."""
        if self._progress is None or marks < self._progress[0]:
            self._progress = marks, now
        return now - self._progress[1]

    async def _has_policy(self) -> bool:
        served = await self._client.discover(ADMISSION_GROUP)
        newest = [next((each for each in served if each.plural == plural), None) for plural in POLICY_PLURALS]
        for resource in newest:
            if resource is not None and await self._exists(resource, names.REGISTRATION_POLICY):
                return True
        return False

    async def _exists(self, resource: Resource, name: str, namespace: str = "") -> bool:
        try:
            await self._client.get(resource, name, namespace=namespace, type=PartialObjectMetadata)
        except NotFound:
            return False
        return True
