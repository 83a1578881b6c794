"""Has images deleted by Jobs, where the builder leaves registries to them (BD-178).

A pass finds the Job of its repository, makes it, or takes its outcome; a Job whose outcome was taken is deleted before
the Runs are released, so that the next deletion of the same images is new work. Cut off anywhere, the next pass goes
on: deleting an image that is gone is done at once.
"""

from collections.abc import Callable, Mapping
from typing import Any, Final, Protocol

import msgspec
import structlog

from polyarch.builds import names
from polyarch.builds.controller.watches import BY_JOB, Watches
from polyarch.builds.effects.object_writes import REFUSALS
from polyarch.builds.facts.facts import JobFacts, Settings
from polyarch.builds.facts.jobs import JobObject, job_facts
from polyarch.builds.frontend import WishKey
from polyarch.builds.pruning import prune_work
from polyarch.builds.pruning.deletion import Deleted
from polyarch.builds.pruning.prune_work import Pruning
from polyarch.kube.errors import AlreadyExists, NotFound
from polyarch.kube.rbac import rule
from polyarch.kube.requests import Propagation
from polyarch.kube.resources import CONFIGMAPS, JOBS, Resource
from polyarch.kube.store import Change
from polyarch.objects import Key, PartialObjectMetadata

log = structlog.get_logger(__name__)

RIGHTS: Final = (rule(JOBS, "create", "delete"), rule(CONFIGMAPS, "create"))
"""RBAC rules in the namespaces of builds."""


class Api(Protocol):
    """The part of the client that is needed here."""

    async def create(
        self, resource: Resource, document: Mapping[str, Any], *, namespace: str = ""
    ) -> PartialObjectMetadata: ...

    async def delete(
        self,
        resource: Resource,
        name: str,
        *,
        namespace: str = "",
        uid: str | None = None,
        propagation: Propagation | None = None,
    ) -> None: ...


class PruneJobs:
    """The Jobs of all repositories."""

    def __init__(self, client: Api, watches: Watches, settings: Settings) -> None:
        self._client = client
        self._watches = watches
        self._settings = settings

    async def delete_images(self, pruning: Pruning) -> Deleted:
        """What is known of the images now; what remains is being deleted, or could not be."""
        if not pruning.images:
            return Deleted()
        job = self._job(Key(pruning.namespace, pruning.job))
        if job is not None and (job.deleting or job.role != names.PRUNE_ROLE):
            return prune_work.outcome(pruning, None)
        found = prune_work.outcome(pruning, job)
        try:
            if job is None:
                await self._make(pruning)
            elif job.complete is not None or job.failure is not None:
                await self._delete(job)
            elif job.key == pruning.key:
                await self._make_inputs(pruning, job.uid)
        except REFUSALS as error:  # a failure as any other: it holds nobody for more than ten minutes (BD-233)
            problem = f"Job {pruning.job} or its inputs: {error.message or error}"
            return msgspec.structs.replace(found, problem=problem)
        return found

    async def _make(self, pruning: Pruning) -> None:
        job, _ = prune_work.manifests(pruning, self._settings)
        try:
            made = await self._client.create(JOBS, job, namespace=pruning.namespace)
        except AlreadyExists:
            return
        log.info("made a job that deletes images", job=f"{pruning.namespace}/{pruning.job}", images=len(pruning.images))
        await self._make_inputs(pruning, made.metadata.uid)

    async def _make_inputs(self, pruning: Pruning, uid: str) -> None:
        """Its pod waits for them. They are not in the cache yet, or were not made before the builder was stopped."""
        _, inputs = prune_work.manifests(pruning, self._settings)
        if Key(pruning.namespace, inputs["metadata"]["name"]) in self._watches.records.store:
            return
        try:
            owned = prune_work.inputs_owned(inputs, job=pruning.job, uid=uid)
            await self._client.create(CONFIGMAPS, owned, namespace=pruning.namespace)
        except AlreadyExists:
            return

    async def _delete(self, job: JobFacts) -> None:
        try:
            await self._client.delete(JOBS, job.name, namespace=job.namespace, uid=job.uid, propagation="Background")
        except NotFound:
            return

    def _job(self, key: Key) -> JobFacts | None:
        job, pods = self._watches.jobs.store.get(key), self._watches.pods.store
        if job is None:
            return None
        its = (pods.get(each) for each in pods.by_index(BY_JOB, job.metadata.uid))
        return job_facts(job, [each for each in its if each is not None])


def subscribe(watches: Watches, enqueue: Callable[[WishKey], None]) -> None:
    """Call ``enqueue`` with the build for whose Runs a Job has deleted images."""

    def job_changed(change: Change[JobObject]) -> None:
        job = change.new or change.old
        if job is not None and (job.metadata.labels or {}).get(names.ROLE_LABEL) == names.PRUNE_ROLE:
            labels, annotations = job.metadata.labels or {}, job.metadata.annotations or {}
            name = annotations.get(names.BUILD_LABEL) or labels.get(names.BUILD_LABEL, "")
            enqueue(WishKey("ImageBuild", change.key.namespace, name))

    watches.jobs.add_handler(job_changed)
