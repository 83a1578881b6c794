"""Old executions of a build, and the images that only they refer to (S11: BD-230 to BD-236).

One pass looks at one ImageBuild, which may be gone already: its Runs still say what they published. Nothing is listed
and nothing is asked unless something is to be deleted. Who refers to an image is counted anew in each pass, while no
plan of that repository is made (BD-232), so a pass that was cut off is completed by the next one.

With ``images: Delete`` a Run carries a finalizer, and the name of the Secret with which its images can be deleted:
when the ImageBuild is deleted, its Runs are all that is left of it.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final, Protocol

import structlog

from polyarch.builds import names
from polyarch.builds.controller.aftermath import Aftermath, Deletes, deleted, uncounted
from polyarch.builds.controller.passes import SETTLING, Posts, Turns
from polyarch.builds.controller.running_images import ListsPods, RunningImages
from polyarch.builds.controller.watches import BY_BUILD, Watches
from polyarch.builds.facts.executions import BuildObject, Run, StoredRun, execution_of
from polyarch.builds.facts.facts import Execution
from polyarch.builds.frontend import WishKey
from polyarch.builds.keys import handles
from polyarch.builds.metrics import BuildMetrics
from polyarch.builds.pruning.counting import Claims, Image, count, unreferenced
from polyarch.builds.pruning.deletion import Deleted
from polyarch.builds.pruning.history import expired
from polyarch.builds.pruning.prune_work import Pruning, means_of, means_text
from polyarch.clock import Clock
from polyarch.kube.controller import After, Done, Result
from polyarch.kube.errors import NotFound
from polyarch.kube.events import Regarding
from polyarch.kube.owners import remove_finalizer
from polyarch.kube.patches import MergePatch
from polyarch.kube.rbac import rule
from polyarch.kube.resources import Resource
from polyarch.kube.store import Change
from polyarch.objects import Key, PartialObjectMetadata
from polyarch.oci.auth.credentials import CredentialStore

log = structlog.get_logger(__name__)

RIGHTS: Final = (rule(names.IMAGE_BUILD_RUNS, "get", "patch", "delete"),)
"""RBAC rules in the whole cluster."""
KEPT_BACK: Final = 3600.0
"""Seconds until it is looked again whether pods still run the images of old Runs."""


class Api(ListsPods, Protocol):
    """The part of the client that is needed here."""

    async def get(
        self, resource: Resource, name: str, *, namespace: str = "", type: type[PartialObjectMetadata]
    ) -> PartialObjectMetadata: ...

    async def patch(
        self, resource: Resource, name: str, patch: Any, *, namespace: str = ""
    ) -> PartialObjectMetadata: ...

    async def delete(self, resource: Resource, name: str, *, namespace: str = "", uid: str | None = None) -> None: ...


class Inputs(Protocol):
    """The part of ``SpecInputs`` that is needed here."""

    def credentials(self, namespace: str, names: tuple[str, ...]) -> CredentialStore: ...


class ByJobs(Protocol):
    """The part of ``PruneJobs`` that is needed here."""

    async def delete_images(self, pruning: Pruning) -> Deleted: ...


class Cleanup:
    """The passes. ``others`` are executions of other kinds, ``used`` references in their statuses: both count.

    ``others`` is None as long as they are not known, or a cache does not show what was written of them.
    """

    def __init__(
        self,
        client: Api,
        watches: Watches,
        registries: Deletes,
        inputs: Inputs,
        *,
        jobs: ByJobs,
        turns: Turns,
        recorder: Posts,
        metrics: BuildMetrics,
        clock: Clock,
        is_leading: Callable[[], bool] = lambda: True,
        others: Callable[[], Iterable[Execution] | None] = tuple,
        used: Callable[[], Iterable[str]] = tuple,
    ) -> None:
        self._client = client
        self._watches = watches
        self._registries = registries
        self._inputs = inputs
        self._jobs = jobs
        self._turns = turns
        self._aftermath = Aftermath(recorder, metrics, clock)
        self._is_leading = is_leading
        self._others = others
        self._used = used
        self._running = RunningImages(client, watches, clock)

    async def reconcile(self, wish: WishKey) -> Result:
        """One pass over the Runs of one ImageBuild."""
        build = self._watches.builds.store.get(wish.key)
        runs = [
            run
            for key in self._watches.runs.store.by_index(BY_BUILD, str(wish.key))
            if (run := self._watches.runs.store.get(key)) is not None
        ]
        if build is not None and build.metadata.deletion_timestamp is None:
            await self._mark(build, runs)
        later = [await self._delete_images(group) for group in _by_repository(_leaving(runs))]
        if build is not None and build.metadata.deletion_timestamp is None:
            later.append(await self._delete_runs(build, runs))
        soonest = [each for each in later if each is not None]
        return After(min(soonest)) if soonest else Done()

    # -- Runs ----------------------------------------------------------------------------------------------------------

    async def _mark(self, build: BuildObject, runs: Sequence[Run]) -> None:
        """The finalizer is there exactly where images are to be deleted (BD-233, BD-236)."""
        deletes = build.spec.history.images == "Delete"
        secret = build.spec.output.push_secret.name if build.spec.output.push_secret is not None else ""
        means = means_text(build.spec)
        for run in runs:
            metadata = run.metadata
            if metadata.deletion_timestamp is not None or not self._is_leading():
                continue
            known = metadata.finalizers or []
            if not deletes:
                await remove_finalizer(self._client, names.IMAGE_BUILD_RUNS, metadata, names.IMAGES_FINALIZER)
            elif (
                names.IMAGES_FINALIZER not in known
                or _noted(run, names.PUSH_SECRET_ANNOTATION) != secret
                or (_noted(run, names.REGISTRY_JOB_ANNOTATION) != (means or ""))
            ):
                marks = {
                    "resourceVersion": metadata.resource_version,
                    "finalizers": [*known, *({names.IMAGES_FINALIZER} - set(known))],
                    "annotations": {
                        names.PUSH_SECRET_ANNOTATION: secret or None,
                        names.REGISTRY_JOB_ANNOTATION: means,
                    },
                }
                await self._patch(run, {"metadata": marks})

    async def _delete_runs(self, build: BuildObject, runs: Sequence[Run]) -> float | None:
        """Seconds until it is looked again, where something running keeps a Run that is old enough to go."""
        history, status = build.spec.history, build.status or {}
        phases = Counter((run.status or {}).get("phase") == "Succeeded" for run in runs)
        if phases[True] <= history.successful and phases[False] <= history.failed:
            return None  # so that a look at a thousand builds costs nothing
        executions = {run.metadata.uid: execution_of(run) for run in runs}

        def old(running: Claims) -> tuple[Execution, ...]:
            return expired(
                executions.values(),
                owner_uid=build.metadata.uid,
                current=str(status.get("currentRun") or ""),
                active=str(status.get("activeRun") or ""),
                successful=history.successful,
                failed=history.failed,
                running=running,
            )

        candidates = old(Claims())
        if not candidates:
            return None
        going = old(count((), published=self._published(), running=await self._running.texts()))
        for execution in going:
            if not self._is_leading():
                return None
            try:
                await self._client.delete(
                    names.IMAGE_BUILD_RUNS, execution.name, namespace=execution.namespace, uid=execution.uid
                )
            except NotFound:
                continue
            log.info("deleted an old run", run=f"{execution.namespace}/{execution.name}")
        return KEPT_BACK if len(going) < len(candidates) else None

    async def _patch(self, run: Run, document: Mapping[str, Any]) -> None:
        try:
            await self._client.patch(
                names.IMAGE_BUILD_RUNS, run.metadata.name, MergePatch(document), namespace=run.metadata.namespace
            )
        except NotFound:
            return

    # -- images --------------------------------------------------------------------------------------------------------

    async def _delete_images(self, leaving: Sequence[Run]) -> float | None:
        """Delete what only these Runs refer to; seconds until the next try, None if they are all released."""
        first = leaving[0]
        if not self._is_leading():
            return None
        going = [execution_of(run) for run in leaving]
        async with self._turns.of(first.spec.repository):
            if self.is_behind():
                return SETTLING  # a plan of this repository may have taken an image that the caches do not show yet
            images = await self.unneeded(going)
            found = await self._deleted(leaving, images) if images is not None else uncounted(going)
        self._aftermath.tell(_regarding(first), found)
        holds = [
            hold
            for run, execution in zip(leaving, going, strict=True)
            if (hold := await self._release(run, execution, found)) is not None
        ]
        return min(holds, default=None)

    def is_behind(self) -> bool:
        """Whether the caches lack a write of ours."""
        return self._watches.runs.writes.is_behind() or self._watches.builds.writes.is_behind()

    async def unneeded(self, going: Sequence[Execution]) -> tuple[Image, ...] | None:
        """The images that nobody but these executions refers to; None where nobody knows those of other kinds.

        To be called in the turn of their repository, while no cache is behind.
        """
        others = self._others()
        if others is None:
            return None
        every = [*(execution_of(run) for run in self._watches.runs.store.values()), *others]
        claims = count(
            (each for each in every if not each.deleting),
            published=self._published(),
            running=await self._running.texts(),
        )
        return unreferenced(going, claims, known=every)

    async def _deleted(self, leaving: Sequence[Run], images: Sequence[Image]) -> Deleted:
        """What became of the images, by our hand or a Job's."""
        namespace = leaving[0].metadata.namespace
        noted = (_noted(run, names.PUSH_SECRET_ANNOTATION) for run in leaving)
        secrets = tuple(dict.fromkeys(each for each in noted if each))
        by_job = [(run, means) for run in leaving if (means := means_of(_noted(run, names.REGISTRY_JOB_ANNOTATION)))]
        if not by_job:
            credentials = self._inputs.credentials(namespace, secrets)
            return await deleted(self._registries, images, credentials=credentials)
        run, means = by_job[-1]
        pruning = Pruning(
            namespace=namespace,
            image_build=run.spec.image_build.name,
            execution=run.metadata.name,
            repository=handles.repository(run.spec.repository),
            images=images,
            means=means,
            secret=_noted(run, names.PUSH_SECRET_ANNOTATION),
        )
        return await self._jobs.delete_images(pruning)

    async def _release(self, run: Run, execution: Execution, found: Deleted) -> float | None:
        """Remove the finalizer, or seconds until the next try."""
        hold = self._aftermath.hold(_regarding(run), execution, found, since=run.metadata.deletion_timestamp)
        if hold is None and self._is_leading():
            await remove_finalizer(self._client, names.IMAGE_BUILD_RUNS, run.metadata, names.IMAGES_FINALIZER)
        return hold

    # -- who refers to images ------------------------------------------------------------------------------------------

    def _published(self) -> Iterable[str]:
        """References in the statuses of all ImageBuilds that stay, and of what else there is.

        One that is going keeps nothing: deleted in the foreground, or with its namespace, it outlives its Runs.
        """
        for build in self._watches.builds.store.values():
            if build.metadata.deletion_timestamp is not None or self._is_going(build.metadata.namespace):
                continue
            status = build.status or {}
            yield str(status.get("image") or "")
            images = status.get("images")
            for each in images if isinstance(images, list) else ():
                if isinstance(each, Mapping):
                    yield str(each.get("reference") or "")
        yield from self._used()

    def _is_going(self, namespace: str) -> bool:
        found = self._watches.namespaces.store.get(Key("", namespace))
        return found is not None and found.metadata.deletion_timestamp is not None


def _regarding(run: Run) -> Regarding:
    return Regarding.of(names.IMAGE_BUILD_RUNS, run.metadata)


def _leaving(runs: Iterable[Run]) -> list[Run]:
    return [
        run
        for run in runs
        if run.metadata.deletion_timestamp is not None and names.IMAGES_FINALIZER in (run.metadata.finalizers or ())
    ]


def _by_repository(runs: Iterable[Run]) -> list[list[Run]]:
    found: dict[str, list[Run]] = {}
    for run in sorted(runs, key=lambda each: each.metadata.name):
        found.setdefault(handles.repository(run.spec.repository), []).append(run)
    return list(found.values())


def _noted(run: Run, annotation: str) -> str:
    return (run.metadata.annotations or {}).get(annotation, "")


def subscribe(watches: Watches, enqueue: Callable[[WishKey], None]) -> None:
    """Call ``enqueue`` with every build of which Runs may have to go, also one that is gone itself."""

    def run_changed(change: Change[StoredRun]) -> None:
        run = change.new or change.old
        if run is not None:
            enqueue(WishKey("ImageBuild", change.key.namespace, run.spec.image_build.name))

    watches.runs.add_handler(run_changed)
    watches.builds.add_handler(lambda change: enqueue(WishKey("ImageBuild", *change.key)))
