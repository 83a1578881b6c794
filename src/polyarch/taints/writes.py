"""Writes to one object after another, each from the state that it was decided about.

A patch tests the resourceVersion that was read, so an interrupted run leaves whole objects, and nobody's change is
lost: where the object has changed it is read and decided about again. What cannot be written is kept as a failure and
holds up nothing else. A dry run sends every write with ``dryRun: All``.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final, NamedTuple, Protocol, TypeVar

import msgspec

from polyarch.clock import Clock, SystemClock
from polyarch.kube.errors import Conflict, Invalid, KubernetesError, NotFound
from polyarch.kube.managed_fields import differences
from polyarch.kube.patches import JsonPatch, Operation
from polyarch.kube.requests import FIELD_MANAGER
from polyarch.kube.resources import ObjectRef, Resource
from polyarch.kube.responses import ListResult
from polyarch.kube.watch import KubernetesObject
from polyarch.objects import ObjectKey
from polyarch.oci.concurrency import map_concurrently

MAX_CONCURRENT_WRITES: Final = 8
"""Objects that are written at the same time."""
AT_MOST: Final = 10
"""Attempts for an object that keeps changing."""
IMMEDIATE: Final = 5
"""Of these, how many follow one another at once."""
WAIT: Final = 0.5
"""Seconds before the first attempt after these; it doubles."""


class KubernetesApi(Protocol):
    """The part of the client that steps need."""

    async def get(self, resource: Resource, name: str, *, namespace: str = "", type: type[Any]) -> Any: ...

    async def list(
        self, resource: Resource, *, type: type[Any], label_selector: str = "", field_selector: str = ""
    ) -> ListResult[Any]: ...

    async def patch(
        self, resource: Resource, name: str, patch: Any, *, namespace: str = "", dry_run: bool = False
    ) -> Any: ...

    async def create(self, resource: Resource, document: Mapping[str, Any], *, dry_run: bool = False) -> Any: ...

    async def apply(self, resource: Resource, document: Mapping[str, Any], *, dry_run: bool = False) -> Any: ...

    async def delete(self, resource: Resource, name: str, *, namespace: str = "", dry_run: bool = False) -> None: ...

    async def evict(self, namespace: str, pod: str, *, uid: str | None = None, dry_run: bool = False) -> None: ...

    async def discover(self, group: str) -> tuple[Resource, ...]: ...


M = TypeVar("M", bound=KubernetesObject)


class AppliedChange(NamedTuple):
    """What was done to one object, or would be."""

    ref: ObjectRef
    what: str
    """As the rest of a sentence: ``loses supported-arch=arm64:NoSchedule``."""


class FailedChange(NamedTuple):
    """What could not be done, and why."""

    ref: ObjectRef
    problem: str

    def __str__(self) -> str:
        return f"{self.ref.resource.kind} {self.ref.key}: {self.problem}"


class StepResult(msgspec.Struct, frozen=True):
    """What came of a step."""

    changed: tuple[AppliedChange, ...] = ()
    failed: tuple[FailedChange, ...] = ()

    @classmethod
    def of(cls, outcomes: Iterable["StepResult"]) -> "StepResult":
        """All of them together."""
        several = tuple(outcomes)
        return cls(
            tuple(change for each in several for change in each.changed),
            tuple(failure for each in several for failure in each.failed),
        )


class ProposedPatch(NamedTuple):
    """A patch and what it does; without operations there is nothing to do."""

    operations: tuple[Operation, ...] = ()
    what: str = ""


NOTHING: Final = ProposedPatch()
Tell = Callable[[AppliedChange], None]
"""Is told of each change when it is made."""


class Writer:
    """Writes; knows whether it is only tried."""

    def __init__(
        self,
        api: KubernetesApi,
        *,
        dry_run: bool = False,
        clock: Clock | None = None,
        tell: Tell = lambda _: None,
    ) -> None:
        self.api = api
        self.dry_run = dry_run
        self.clock: Clock = clock or SystemClock()
        self._tell = tell

    async def patch_all(
        self, resource: Resource, objects: Iterable[M], propose: Callable[[M], ProposedPatch]
    ) -> StepResult:
        """Patches each object as proposed for it, several at a time."""

        async def one(thing: M) -> StepResult:
            return await self.patch(resource, thing, propose)

        return StepResult.of(await map_concurrently(one, objects, at_once=MAX_CONCURRENT_WRITES))

    async def patch(self, resource: Resource, thing: M, propose: Callable[[M], ProposedPatch]) -> StepResult:
        """Patches one object; what was proposed for an old state is proposed anew for the present one."""
        ref = ObjectRef(resource, thing.metadata.key)
        problem = "it keeps changing"
        for attempt in range(AT_MOST):
            proposal = propose(thing)
            if not proposal.operations:
                return StepResult()
            try:
                await self.api.patch(
                    resource,
                    ref.key.name,
                    JsonPatch(proposal.operations),
                    namespace=ref.key.namespace,
                    dry_run=self.dry_run,
                )
                return self.done(AppliedChange(ref, proposal.what))
            except NotFound:
                return StepResult()
            except (Conflict, Invalid) as error:
                problem = str(error)
                if isinstance(error, Invalid) and not error.is_failed_test:
                    break
            except KubernetesError as error:
                problem = str(error)
                break
            if attempt >= IMMEDIATE:
                await self.clock.sleep(WAIT * 2 ** (attempt - IMMEDIATE))
            try:
                thing = await self.api.get(resource, ref.key.name, namespace=ref.key.namespace, type=type(thing))
            except NotFound:
                return StepResult()
            except KubernetesError as error:
                problem = str(error)
                break
        return StepResult(failed=(FailedChange(ref, problem),))

    async def apply(self, resource: Resource, document: Mapping[str, Any]) -> StepResult:
        """Brings an object of the cluster to what the document says, unless it says so already."""
        name = document["metadata"]["name"]
        ref = ObjectRef(resource, ObjectKey("", name))
        try:
            try:
                live = await self.api.get(resource, name, type=dict)
            except NotFound:
                live = None
            if live is not None and not differences(document, live, manager=FIELD_MANAGER):
                return StepResult()
            await self.api.apply(resource, document, dry_run=self.dry_run)
        except KubernetesError as error:
            return StepResult(failed=(FailedChange(ref, str(error)),))
        return self.done(AppliedChange(ref, "is brought up to date" if live is not None else "is created"))

    async def delete(
        self, resource: Resource, name: str, *, namespace: str = "", what: str = "is deleted"
    ) -> StepResult:
        """Deletes an object if it is there."""
        ref = ObjectRef(resource, ObjectKey(namespace, name))
        try:
            await self.api.get(resource, name, namespace=namespace, type=dict)
            await self.api.delete(resource, name, namespace=namespace, dry_run=self.dry_run)
        except NotFound:
            return StepResult()
        except KubernetesError as error:
            return StepResult(failed=(FailedChange(ref, str(error)),))
        return self.done(AppliedChange(ref, what))

    def done(self, change: AppliedChange) -> StepResult:
        """Tells of a change that was made."""
        self._tell(change)
        return StepResult(changed=(change,))
