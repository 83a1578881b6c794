"""What follows once images were deleted, or could not be: it is told, and in time their makers may go (BD-233, BD-234).

The same for Runs, which have the finalizer themselves, and for MachineOSBuilds, whose records have it.
"""

from collections.abc import Iterable, Sequence
from typing import Final, Protocol

from polyarch.builds.controller.passes import Posts
from polyarch.builds.facts.facts import Execution
from polyarch.builds.facts.times import seconds
from polyarch.builds.metrics import BuildMetrics
from polyarch.builds.plan.document import PlannedEvent
from polyarch.builds.pruning.counting import Image, digests_of
from polyarch.builds.pruning.deletion import Deleted
from polyarch.builds.pruning.finalizer import Hold, decide
from polyarch.clock import Clock
from polyarch.kube.errors import Forbidden
from polyarch.kube.events import Regarding
from polyarch.oci.auth.credentials import CredentialStore
from polyarch.oci.cache.recent import Recent

SAID: Final = 1000
"""Repositories that are remembered to keep their images, so that it is told once."""
UNKNOWN: Final = "which images machine OS builds refer to is not known"


class Deletes(Protocol):
    """The part of the registries that is needed here."""

    async def delete_images(self, images: Sequence[Image], *, credentials: CredentialStore) -> Deleted: ...


class Aftermath:
    """Of the deletions of one kind of executions."""

    def __init__(self, recorder: Posts, metrics: BuildMetrics, clock: Clock) -> None:
        self._recorder = recorder
        self._metrics = metrics
        self._clock = clock
        self._said: Recent[tuple[str, str], bool] = Recent(SAID)

    def tell(self, about: Regarding, found: Deleted) -> None:
        """What is gone, and of what a registry does not delete a Warning, once for each repository."""
        self._metrics.images_deleted(len(found.done))
        if found.done:
            message = f"Deleted {', '.join(found.done)}: nothing refers to them any more"
            self._post(about, PlannedEvent(type="Normal", reason="ImageDeleted", message=message))
        for kept in found.warnings(place for place, _ in self._said):
            self._said.put((kept.repository, kept.outcome), True)
            message = f"Images in {kept.repository} are left there: {kept.message}"
            self._post(about, PlannedEvent(type="Warning", reason="ImageNotDeleted", message=message))

    def hold(self, about: Regarding, execution: Execution, found: Deleted, *, since: str | None) -> float | None:
        """Seconds until the next try; None: the execution may go. ``since``: its deletionTimestamp."""
        own = digests_of(execution)
        verdict = decide(
            [each for each in found.remaining if each.rpartition("@")[2] in own],
            execution=execution.name,
            deleting_since=seconds(since) or 0.0,
            now=self._clock.now().timestamp(),
            problem=found.problem,
            retry_after=found.retry_after or 0.0,
        )
        if isinstance(verdict, Hold):
            return verdict.seconds
        if verdict.event is not None:
            self._metrics.cleanup_abandoned()
            self._post(about, verdict.event)
        return None

    def _post(self, about: Regarding, event: PlannedEvent) -> None:
        self._recorder.event(about, type=event.type, reason=event.reason, note=event.message, action="Prune")


async def deleted(registries: Deletes, images: Sequence[Image], *, credentials: CredentialStore) -> Deleted:
    """What became of the images; where the credentials may not be read, nothing yet."""
    try:
        return await registries.delete_images(images, credentials=credentials)
    except Forbidden as error:
        return Deleted(remaining=tuple(each.reference for each in images), problem=error.message or str(error))


def uncounted(going: Iterable[Execution]) -> Deleted:
    """Nobody knows who else refers to the images of these executions, so none was deleted."""
    kept = {f"{each.repository}@{digest}" for each in going for digest in digests_of(each)}
    return Deleted(remaining=tuple(sorted(kept)), problem=UNKNOWN)
