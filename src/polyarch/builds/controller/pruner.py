"""Deletes old Runs, and the images that only they refer to.

A Run has a finalizer as long as its images are to be deleted. Images are deleted by the builder itself, or by a Job
where registries are left to Jobs.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final

import msgspec
import structlog

from polyarch.builds import names
from polyarch.builds.api.resources import Builder, ImageBuildSpec, NameReference, Output
from polyarch.builds.controller.informers import BY_BUILD, BY_JOB, BuildInformers, BuildRef, RunningImages
from polyarch.builds.controller.reconciler import SETTLING, RepositoryLocks
from polyarch.builds.controller.resolver import SpecInputs
from polyarch.builds.controller.writes import REFUSALS, Registries
from polyarch.builds.facts.build_facts import Execution, JobFacts, PlanSettings, seconds
from polyarch.builds.facts.objects import BuildObject, JobObject, RunReader, StoredRun, execution_of, job_facts
from polyarch.builds.jobs.contract import PruneMessage, configmap_name
from polyarch.builds.jobs.manifests import RegistryJobSpec, prune_manifests
from polyarch.builds.jobs.results import job_failure
from polyarch.builds.jobs.spec import JobMetadata
from polyarch.builds.keys import canonical_digest
from polyarch.builds.metrics import BuildMetrics
from polyarch.builds.names import normalised_repository, object_labels, prune_job_name
from polyarch.builds.plan.document import PlannedEvent
from polyarch.builds.pruning import (
    ImageReferences,
    KeepFinalizer,
    PrunableImage,
    count_references,
    decide_finalizer,
    digests_of,
    expired,
    unreferenced,
)
from polyarch.builds.registry import PruneResult, UndeletableImage
from polyarch.clock import Clock
from polyarch.kube.client import Client
from polyarch.kube.controller import NoRequeue, RequeueAfter, Result
from polyarch.kube.errors import AlreadyExists, Forbidden, NotFound
from polyarch.kube.events import Recorder, Regarding
from polyarch.kube.owners import remove_finalizer
from polyarch.kube.patches import MergePatch
from polyarch.kube.rbac import rule
from polyarch.kube.resources import CONFIGMAPS, JOBS
from polyarch.kube.store import ObjectChange
from polyarch.objects import ObjectKey
from polyarch.oci.auth.credential_stores import CredentialStore
from polyarch.oci.lru_cache import LRUCache

SAID: Final = 1000
"""Repositories that are remembered to keep their images, so that it is told once."""
UNKNOWN: Final = "which images machine OS builds refer to is not known"


class DeletionReporter:
    """Posts events about deleted images of one kind of executions, and says when a finalizer may go."""

    def __init__(self, recorder: Recorder, metrics: BuildMetrics, clock: Clock) -> None:
        self._recorder = recorder
        self._metrics = metrics
        self._clock = clock
        self._said: LRUCache[tuple[str, str], bool] = LRUCache(SAID)

    def tell(self, about: Regarding, found: PruneResult) -> None:
        """What is gone, and of what a registry does not delete a Warning, once for each repository."""
        self._metrics.images_deleted(len(found.done))
        if found.done:
            message = f"Deleted {', '.join(found.done)}: nothing refers to them any more"
            self._post(about, PlannedEvent(type="Normal", reason="ImageDeleted", message=message))
        for kept in found.warnings(place for place, _ in self._said):
            self._said.put((kept.repository, kept.outcome), True)
            message = f"Images in {kept.repository} are left there: {kept.message}"
            self._post(about, PlannedEvent(type="Warning", reason="ImageNotDeleted", message=message))

    def hold(self, about: Regarding, execution: Execution, found: PruneResult, *, since: str | None) -> float | None:
        """Seconds until the next try; None: the execution may go. ``since``: its deletionTimestamp."""
        own = digests_of(execution)
        verdict = decide_finalizer(
            [each for each in found.remaining if each.rpartition("@")[2] in own],
            execution=execution.name,
            deleting_since=seconds(since) or 0.0,
            now=self._clock.now().timestamp(),
            problem=found.problem,
            retry_after=found.retry_after or 0.0,
        )
        if isinstance(verdict, KeepFinalizer):
            return verdict.seconds
        if verdict.event is not None:
            self._metrics.cleanup_abandoned()
            self._post(about, verdict.event)
        return None

    def _post(self, about: Regarding, event: PlannedEvent) -> None:
        self._recorder.event(about, type=event.type, reason=event.reason, note=event.message, action="Prune")


async def deleted(
    registries: Registries, images: Sequence[PrunableImage], *, credentials: CredentialStore, tenant: str
) -> PruneResult:
    """What became of the images; where the credentials may not be read, nothing yet."""
    try:
        return await registries.delete_images(images, credentials=credentials, tenant=tenant)
    except Forbidden as error:
        return PruneResult(remaining=tuple(each.reference for each in images), problem=error.message or str(error))


def uncounted(going: Iterable[Execution]) -> PruneResult:
    """Nobody knows who else refers to the images of these executions, so none was deleted."""
    kept = {f"{each.repository}@{digest}" for each in going for digest in digests_of(each)}
    return PruneResult(remaining=tuple(sorted(kept)), problem=UNKNOWN)


# -- prune Jobs --------------------------------------------------------------------------------------------------------


KEPT_SECONDS: Final = 3600
"""How long a Job stays that nobody needs any more."""

Body = dict[str, Any]


class PrunePodSettings(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """What the pods of such a Job need of the spec, besides the push secret."""

    push_image: str = ""
    service_account: str = "default"


class PruneRequest(msgspec.Struct, frozen=True, kw_only=True):
    """Images of one repository that go together."""

    namespace: str
    image_build: str
    execution: str
    repository: str
    images: Sequence[PrunableImage]
    means: PrunePodSettings
    secret: str = ""
    """The push secret; empty: none."""

    @property
    def job(self) -> str:
        """One Job at a time for each repository."""
        return prune_job_name(self.repository)

    @property
    def document(self) -> Mapping[str, Any]:
        found: Mapping[str, Any] = {"images": msgspec.to_builtins(list(self.images))}
        return found

    @property
    def key(self) -> str:
        return canonical_digest(self.document)


def pod_settings_text(spec: ImageBuildSpec) -> str | None:
    """The annotation of a Run; None where the builder deletes images itself."""
    if spec.registry_access != "Job":
        return None
    means = PrunePodSettings(push_image=spec.builder.push_image, service_account=spec.builder.service_account)
    return msgspec.json.encode(means).decode()


def pod_settings(text: str) -> PrunePodSettings | None:
    """What the annotation says; None without one. What cannot be read stands for what is usual."""
    if not text:
        return None
    try:
        return msgspec.json.decode(text, type=PrunePodSettings)
    except (msgspec.DecodeError, RecursionError):
        return PrunePodSettings()


def prune_request_manifests(pruning: PruneRequest, settings: PlanSettings) -> tuple[Body, Body]:
    """The Job, and its inputs without their owner, which is the Job once it is there."""
    marks = object_labels(
        image_build=pruning.image_build, execution=pruning.execution, role=names.PRUNE_ROLE, arch_key=pruning.key
    )
    metadata = JobMetadata(
        namespace=pruning.namespace,
        job=pruning.job,
        owners=(),
        labels=marks.labels,
        annotations=marks.annotations,
        execution=pruning.execution,
        inputs=f"{configmap_name(pruning.job)}-{pruning.key[:10]}",
    )
    secret = NameReference(name=pruning.secret) if pruning.secret else None
    spec = ImageBuildSpec(
        output=Output(repository=pruning.repository, push_secret=secret),
        builder=Builder(push_image=pruning.means.push_image, service_account=pruning.means.service_account),
    )
    job_spec = RegistryJobSpec(metadata=metadata, spec=spec, settings=settings, document=pruning.document)
    inputs, job = prune_manifests(job_spec)
    job["spec"]["ttlSecondsAfterFinished"] = KEPT_SECONDS
    return job, inputs


def inputs_owned(inputs: Body, *, job: str, uid: str) -> Body:
    """The inputs with their owner."""
    owner = {"apiVersion": "batch/v1", "kind": "Job", "name": job, "uid": uid, "controller": True}
    return {**inputs, "metadata": {**inputs["metadata"], "ownerReferences": [owner]}}


def prune_outcome(pruning: PruneRequest, job: JobFacts | None) -> PruneResult:
    """What is known of the images: all of them remain until the Job for exactly these has said what became of them."""
    every = tuple(image.reference for image in pruning.images)
    told = _told(job) if job is not None and job.key == pruning.key and job.complete is not None else None
    if told is None:
        return PruneResult(remaining=every, problem=_problem(pruning.job, job))
    if not told.kept:
        return PruneResult(done=every)
    message = f"the registry does not delete {told.kept} of {len(every)} images"
    kept = UndeletableImage(repository=pruning.repository, reference=every[0], outcome="unsupported", message=message)
    return PruneResult(kept=(kept,))


def _problem(name: str, job: JobFacts | None) -> str:
    if job is not None and job.failure is not None:
        return job_failure(job).message
    return f"Job {name} has not deleted them yet"


def _told(job: JobFacts) -> PruneMessage | None:
    try:
        return msgspec.json.decode(job.pod.message.strip(), type=PruneMessage) if job.pod is not None else None
    except (msgspec.DecodeError, UnicodeEncodeError, RecursionError):
        return None


# -- old Runs ----------------------------------------------------------------------------------------------------------


log = structlog.get_logger(__name__)

PRUNER_RIGHTS: Final = (rule(names.IMAGE_BUILD_RUNS, "get", "patch", "delete"),)
"""RBAC rules in the whole cluster."""
KEPT_BACK: Final = 3600.0
"""Seconds until it is looked again whether pods still run the images of old Runs."""


class ImagePruner:
    """Reconciles the Runs of ImageBuilds.

    ``others`` are executions of other kinds, ``used`` references in their statuses: both count. ``others`` is None as
    long as they are not known, or a cache does not show what was written of them.
    """

    def __init__(
        self,
        client: Client,
        informers: BuildInformers,
        registries: Registries,
        inputs: SpecInputs,
        *,
        jobs: "PruneJobs",
        locks: RepositoryLocks,
        recorder: Recorder,
        metrics: BuildMetrics,
        clock: Clock,
        is_leading: Callable[[], bool] = lambda: True,
        others: Callable[[], Iterable[Execution] | None] = tuple,
        used: Callable[[], Iterable[str]] = tuple,
    ) -> None:
        self._client = client
        self._informers = informers
        self._registries = registries
        self._inputs = inputs
        self._jobs = jobs
        self._locks = locks
        self._reporter = DeletionReporter(recorder, metrics, clock)
        self._is_leading = is_leading
        self._others = others
        self._used = used
        self._running = RunningImages(client, informers, clock)

    async def reconcile(self, ref: BuildRef) -> Result:
        """Reconciles the Runs of one ImageBuild."""
        build = self._informers.builds.store.get(ref.key)
        runs = [
            run
            for key in self._informers.runs.store.by_index(BY_BUILD, str(ref.key))
            if (run := self._informers.runs.store.get(key)) is not None
        ]
        if build is not None and build.metadata.deletion_timestamp is None:
            await self._mark(build, runs)
        later = [await self._delete_images(group) for group in _by_repository(_leaving(runs))]
        if build is not None and build.metadata.deletion_timestamp is None:
            later.append(await self._delete_runs(build, runs))
        soonest = [each for each in later if each is not None]
        return RequeueAfter(min(soonest)) if soonest else NoRequeue()

    # -- Runs ----------------------------------------------------------------------------------------------------------

    async def _mark(self, build: BuildObject, runs: Sequence[RunReader]) -> None:
        """The finalizer is there exactly where images are to be deleted."""
        deletes = build.spec.history.images == "Delete"
        secret = build.spec.output.push_secret.name if build.spec.output.push_secret is not None else ""
        means = pod_settings_text(build.spec)
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

    async def _delete_runs(self, build: BuildObject, runs: Sequence[RunReader]) -> float | None:
        """Seconds until it is looked again, where something running keeps a Run that is old enough to go."""
        history, status = build.spec.history, build.status or {}
        phases = Counter((run.status or {}).get("phase") == "Succeeded" for run in runs)
        if phases[True] <= history.successful and phases[False] <= history.failed:
            return None  # so that a look at a thousand builds costs nothing
        executions = {run.metadata.uid: execution_of(run) for run in runs}

        def old(running: ImageReferences) -> tuple[Execution, ...]:
            return expired(
                executions.values(),
                owner_uid=build.metadata.uid,
                current=str(status.get("currentRun") or ""),
                active=str(status.get("activeRun") or ""),
                successful=history.successful,
                failed=history.failed,
                running=running,
            )

        candidates = old(ImageReferences())
        if not candidates:
            return None
        going = old(count_references((), published=self._published(), running=await self._running.texts()))
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

    async def _patch(self, run: RunReader, document: Mapping[str, Any]) -> None:
        try:
            await self._client.patch(
                names.IMAGE_BUILD_RUNS, run.metadata.name, MergePatch(document), namespace=run.metadata.namespace
            )
        except NotFound:
            return

    # -- images --------------------------------------------------------------------------------------------------------

    async def _delete_images(self, leaving: Sequence[RunReader]) -> float | None:
        """Delete what only these Runs refer to; seconds until the next try, None if they are all released."""
        first = leaving[0]
        if not self._is_leading():
            return None
        going = [execution_of(run) for run in leaving]
        async with self._locks.for_deletion(first.spec.repository):
            if self.is_behind():
                return SETTLING  # a plan of this repository may have taken an image that the caches do not show yet
            images = await self.unneeded(going)
            found = await self._deleted(leaving, images) if images is not None else uncounted(going)
        self._reporter.tell(_regarding(first), found)
        holds = [
            hold
            for run, execution in zip(leaving, going, strict=True)
            if (hold := await self._release(run, execution, found)) is not None
        ]
        return min(holds, default=None)

    def is_behind(self) -> bool:
        """Whether the caches lack a write of ours."""
        return self._informers.runs.writes.is_behind() or self._informers.builds.writes.is_behind()

    async def unneeded(self, going: Sequence[Execution]) -> tuple[PrunableImage, ...] | None:
        """The images that nobody but these executions refers to; None where nobody knows those of other kinds.

        To be called with the lock of their repository, while no cache is behind.
        """
        others = self._others()
        if others is None:
            return None
        every = [*(execution_of(run) for run in self._informers.runs.store.values()), *others]
        claims = count_references(
            (each for each in every if not each.deleting),
            published=self._published(),
            running=await self._running.texts(),
        )
        return unreferenced(going, claims, known=every)

    async def _deleted(self, leaving: Sequence[RunReader], images: Sequence[PrunableImage]) -> PruneResult:
        """What became of the images, by our hand or a Job's."""
        namespace = leaving[0].metadata.namespace
        noted = (_noted(run, names.PUSH_SECRET_ANNOTATION) for run in leaving)
        secrets = tuple(dict.fromkeys(each for each in noted if each))
        by_job = [
            (run, means) for run in leaving if (means := pod_settings(_noted(run, names.REGISTRY_JOB_ANNOTATION)))
        ]
        if not by_job:
            credentials = self._inputs.credentials(namespace, secrets)
            return await deleted(self._registries, images, credentials=credentials, tenant=namespace)
        run, means = by_job[-1]
        pruning = PruneRequest(
            namespace=namespace,
            image_build=run.spec.image_build.name,
            execution=run.metadata.name,
            repository=normalised_repository(run.spec.repository),
            images=images,
            means=means,
            secret=_noted(run, names.PUSH_SECRET_ANNOTATION),
        )
        return await self._jobs.delete_images(pruning)

    async def _release(self, run: RunReader, execution: Execution, found: PruneResult) -> float | None:
        """Remove the finalizer, or seconds until the next try."""
        hold = self._reporter.hold(_regarding(run), execution, found, since=run.metadata.deletion_timestamp)
        if hold is None and self._is_leading():
            await remove_finalizer(self._client, names.IMAGE_BUILD_RUNS, run.metadata, names.IMAGES_FINALIZER)
        return hold

    # -- who refers to images ------------------------------------------------------------------------------------------

    def _published(self) -> Iterable[str]:
        """References in the statuses of all ImageBuilds that stay, and of what else there is.

        One that is going keeps nothing: deleted in the foreground, or with its namespace, it outlives its Runs.
        """
        for build in self._informers.builds.store.values():
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
        found = self._informers.namespaces.store.get(ObjectKey("", namespace))
        return found is not None and found.metadata.deletion_timestamp is not None


def _regarding(run: RunReader) -> Regarding:
    return Regarding.of(names.IMAGE_BUILD_RUNS, run.metadata)


def _leaving(runs: Iterable[RunReader]) -> list[RunReader]:
    return [
        run
        for run in runs
        if run.metadata.deletion_timestamp is not None and names.IMAGES_FINALIZER in (run.metadata.finalizers or ())
    ]


def _by_repository(runs: Iterable[RunReader]) -> list[list[RunReader]]:
    found: dict[str, list[RunReader]] = {}
    for run in sorted(runs, key=lambda each: each.metadata.name):
        found.setdefault(normalised_repository(run.spec.repository), []).append(run)
    return list(found.values())


def _noted(run: RunReader, annotation: str) -> str:
    return (run.metadata.annotations or {}).get(annotation, "")


def subscribe(informers: BuildInformers, enqueue: Callable[[BuildRef], None]) -> None:
    """Call ``enqueue`` with every build of which Runs may have to go, also one that is gone itself."""

    def run_changed(change: ObjectChange[StoredRun]) -> None:
        run = change.new or change.old
        if run is not None:
            enqueue(BuildRef("ImageBuild", change.key.namespace, run.spec.image_build.name))

    informers.runs.add_handler(run_changed)
    informers.builds.add_handler(lambda change: enqueue(BuildRef("ImageBuild", *change.key)))


# -- prune Jobs in the cluster -----------------------------------------------------------------------------------------


PRUNE_JOB_RIGHTS: Final = (rule(JOBS, "create", "delete"), rule(CONFIGMAPS, "create"))
"""RBAC rules in the namespaces of builds."""


class PruneJobs:
    """The Jobs of all repositories."""

    def __init__(self, client: Client, informers: BuildInformers, settings: PlanSettings) -> None:
        self._client = client
        self._informers = informers
        self._settings = settings

    async def delete_images(self, pruning: PruneRequest) -> PruneResult:
        """What is known of the images now; what remains is being deleted, or could not be."""
        if not pruning.images:
            return PruneResult()
        job = self._job(ObjectKey(pruning.namespace, pruning.job))
        if job is not None and (job.deleting or job.role != names.PRUNE_ROLE):
            return prune_outcome(pruning, None)
        found = prune_outcome(pruning, job)
        try:
            if job is None:
                await self._make(pruning)
            elif job.complete is not None or job.failure is not None:
                await self._delete(job)
            elif job.key == pruning.key:
                await self._make_inputs(pruning, job.uid)
        except REFUSALS as error:  # a failure as any other: it holds nobody for more than ten minutes
            problem = f"Job {pruning.job} or its inputs: {error.message or error}"
            return msgspec.structs.replace(found, problem=problem)
        return found

    async def _make(self, pruning: PruneRequest) -> None:
        job, _ = prune_request_manifests(pruning, self._settings)
        try:
            made = await self._client.create(JOBS, job, namespace=pruning.namespace)
        except AlreadyExists:
            return
        log.info("made a job that deletes images", job=f"{pruning.namespace}/{pruning.job}", images=len(pruning.images))
        await self._make_inputs(pruning, made.metadata.uid)

    async def _make_inputs(self, pruning: PruneRequest, uid: str) -> None:
        """Its pod waits for them. They are not in the cache yet, or were not made before the builder was stopped."""
        _, inputs = prune_request_manifests(pruning, self._settings)
        if ObjectKey(pruning.namespace, inputs["metadata"]["name"]) in self._informers.records.store:
            return
        try:
            owned = inputs_owned(inputs, job=pruning.job, uid=uid)
            await self._client.create(CONFIGMAPS, owned, namespace=pruning.namespace)
        except AlreadyExists:
            return

    async def _delete(self, job: JobFacts) -> None:
        try:
            await self._client.delete(JOBS, job.name, namespace=job.namespace, uid=job.uid, propagation="Background")
        except NotFound:
            return

    def _job(self, key: ObjectKey) -> JobFacts | None:
        job, pods = self._informers.jobs.store.get(key), self._informers.pods.store
        if job is None:
            return None
        its = (pods.get(each) for each in pods.by_index(BY_JOB, job.metadata.uid))
        return job_facts(job, [each for each in its if each is not None])


def subscribe_prune_jobs(informers: BuildInformers, enqueue: Callable[[BuildRef], None]) -> None:
    """Call ``enqueue`` with the build for whose Runs a Job has deleted images."""

    def job_changed(change: ObjectChange[JobObject]) -> None:
        job = change.new or change.old
        if job is not None and (job.metadata.labels or {}).get(names.ROLE_LABEL) == names.PRUNE_ROLE:
            labels, annotations = job.metadata.labels or {}, job.metadata.annotations or {}
            name = annotations.get(names.BUILD_LABEL) or labels.get(names.BUILD_LABEL, "")
            enqueue(BuildRef("ImageBuild", change.key.namespace, name))

    informers.jobs.add_handler(job_changed)
