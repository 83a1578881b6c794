"""The work of a Job that deletes images, where the builder leaves registries to Jobs (BD-178, BD-233).

Nothing owns it: the ImageBuild may be gone, and its Runs go as soon as the Job has done its work. It goes by a time to
live where nobody deletes it, and its inputs are owned by it. What it needs of the spec stands in an annotation of every
Run, since the Runs are all that is left by then.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final

import msgspec

from polyarch.builds import names
from polyarch.builds.api.resources import Builder, ImageBuildSpec, NameReference, Output
from polyarch.builds.facts.facts import JobFacts, Settings
from polyarch.builds.jobs.contract import Pruned, configmap_name
from polyarch.builds.jobs.harvest import job_failure
from polyarch.builds.jobs.order import Identity
from polyarch.builds.jobs.registry_jobs import RegistryOrder, prune_manifests
from polyarch.builds.keys import canonical, handles
from polyarch.builds.pruning.counting import Image
from polyarch.builds.pruning.deletion import Deleted, Kept

KEPT_SECONDS: Final = 3600
"""How long a Job stays that nobody needs any more."""

Body = dict[str, Any]


class Means(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """What the pods of such a Job need of the spec, besides the push secret."""

    push_image: str = ""
    service_account: str = "default"


class Pruning(msgspec.Struct, frozen=True, kw_only=True):
    """Images of one repository that go together."""

    namespace: str
    image_build: str
    execution: str
    repository: str
    images: Sequence[Image]
    means: Means
    secret: str = ""
    """The push secret; empty: none."""

    @property
    def job(self) -> str:
        """One Job at a time for each repository."""
        return handles.prune_job(self.repository)

    @property
    def document(self) -> Mapping[str, Any]:
        found: Mapping[str, Any] = {"images": msgspec.to_builtins(list(self.images))}
        return found

    @property
    def key(self) -> str:
        return canonical.digest(self.document)


def means_text(spec: ImageBuildSpec) -> str | None:
    """The annotation of a Run; None where the builder deletes images itself."""
    if spec.registry_access != "Job":
        return None
    means = Means(push_image=spec.builder.push_image, service_account=spec.builder.service_account)
    return msgspec.json.encode(means).decode()


def means_of(text: str) -> Means | None:
    """What the annotation says; None without one. What cannot be read stands for what is usual."""
    if not text:
        return None
    try:
        return msgspec.json.decode(text, type=Means)
    except (msgspec.DecodeError, RecursionError):
        return Means()


def manifests(pruning: Pruning, settings: Settings) -> tuple[Body, Body]:
    """The Job, and its inputs without their owner, which is the Job once it is there."""
    marks = handles.marks(
        image_build=pruning.image_build, execution=pruning.execution, role=names.PRUNE_ROLE, arch_key=pruning.key
    )
    identity = Identity(
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
    order = RegistryOrder(identity=identity, spec=spec, settings=settings, document=pruning.document)
    inputs, job = prune_manifests(order)
    job["spec"]["ttlSecondsAfterFinished"] = KEPT_SECONDS
    return job, inputs


def inputs_owned(inputs: Body, *, job: str, uid: str) -> Body:
    """The inputs with their owner."""
    owner = {"apiVersion": "batch/v1", "kind": "Job", "name": job, "uid": uid, "controller": True}
    return {**inputs, "metadata": {**inputs["metadata"], "ownerReferences": [owner]}}


def outcome(pruning: Pruning, job: JobFacts | None) -> Deleted:
    """What is known of the images: all of them remain until the Job for exactly these has said what became of them."""
    every = tuple(image.reference for image in pruning.images)
    told = _told(job) if job is not None and job.key == pruning.key and job.complete is not None else None
    if told is None:
        return Deleted(remaining=every, problem=_problem(pruning.job, job))
    if not told.kept:
        return Deleted(done=every)
    message = f"the registry does not delete {told.kept} of {len(every)} images"
    kept = Kept(repository=pruning.repository, reference=every[0], outcome="unsupported", message=message)
    return Deleted(kept=(kept,))


def _problem(name: str, job: JobFacts | None) -> str:
    if job is not None and job.failure is not None:
        return job_failure(job).message
    return f"Job {name} has not deleted them yet"


def _told(job: JobFacts) -> Pruned | None:
    try:
        return msgspec.json.decode(job.pod.message.strip(), type=Pruned) if job.pod is not None else None
    except (msgspec.DecodeError, UnicodeEncodeError, RecursionError):
        return None
