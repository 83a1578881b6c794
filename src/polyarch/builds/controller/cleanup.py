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

import msgspec
import structlog

from polyarch.builds import names
from polyarch.builds.controller.passes import Posts, Turns
from polyarch.builds.controller.watches import BY_BUILD, Watches
from polyarch.builds.facts.executions import BuildObject, RunObject, execution_of
from polyarch.builds.facts.facts import Execution
from polyarch.builds.facts.times import seconds
from polyarch.builds.frontend import WishKey
from polyarch.builds.keys import handles
from polyarch.builds.metrics import BuildMetrics
from polyarch.builds.plan.document import PlannedEvent
from polyarch.builds.pruning.counting import Claims, Image, count, digests_of, unreferenced
from polyarch.builds.pruning.deletion import Deleted
from polyarch.builds.pruning.finalizer import Hold, decide
from polyarch.builds.pruning.history import expired
from polyarch.kube.client.patches import MergePatch
from polyarch.kube.clock import Clock
from polyarch.kube.errors import NotFound
from polyarch.kube.objects import finalizers
from polyarch.kube.resources import PODS, Resource
from polyarch.kube.rights import rule
from polyarch.kube.runtime.controller import After, Done, Result
from polyarch.kube.runtime.events import Regarding
from polyarch.kube.runtime.store import Change
from polyarch.model.meta import PartialObjectMetadata
from polyarch.oci.auth.credentials import CredentialStore

log = structlog.get_logger(__name__)

RIGHTS: Final = (rule(PODS, "list"), rule(names.IMAGE_BUILD_RUNS, "get", "patch", "delete"))
"""RBAC rules in the whole cluster."""
NODE_IMAGES: Final = (
    "machineconfiguration.openshift.io/currentImage",
    "machineconfiguration.openshift.io/desiredImage",
)
"""Annotations of nodes that name the image that a node runs or will run."""
SHARED: Final = 10.0
"""Seconds for which one list of all pods serves several builds."""
KEPT_BACK: Final = 3600.0
"""Seconds until it is looked again whether pods still run the images of old Runs."""


class Api(Protocol):
    """The part of the client that is needed here."""

    async def get(
        self, resource: Resource, name: str, *, namespace: str = "", type: type[PartialObjectMetadata]
    ) -> PartialObjectMetadata: ...

    async def list(self, resource: Resource, *, type: type[Any]) -> Any: ...

    async def patch(
        self, resource: Resource, name: str, patch: Any, *, namespace: str = ""
    ) -> PartialObjectMetadata: ...

    async def delete(self, resource: Resource, name: str, *, namespace: str = "", uid: str | None = None) -> None: ...


class Inputs(Protocol):
    """The part of ``SpecInputs`` that is needed here."""

    def credentials(self, namespace: str, names: tuple[str, ...]) -> CredentialStore: ...


class Deletes(Protocol):
    """The part of the registries that is needed here."""

    async def delete_images(self, images: Sequence[Image], *, credentials: CredentialStore) -> Deleted: ...


class Container(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """The image that a container asks for."""

    image: str = ""


class ContainerStatus(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """The image that a container runs."""

    image: str = ""
    image_id: str = msgspec.field(default="", name="imageID")


class PodSpec(msgspec.Struct, frozen=True, gc=False, rename="camel", omit_defaults=True):
    """Containers of a pod, of every sort."""

    containers: list[Container] | None = None
    init_containers: list[Container] | None = None
    ephemeral_containers: list[Container] | None = None


class PodStatus(msgspec.Struct, frozen=True, gc=False, rename="camel", omit_defaults=True):
    """What a kubelet says of them."""

    container_statuses: list[ContainerStatus] | None = None
    init_container_statuses: list[ContainerStatus] | None = None
    ephemeral_container_statuses: list[ContainerStatus] | None = None


class PodImages(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """What a pod says of images."""

    spec: PodSpec = PodSpec()
    status: PodStatus = PodStatus()

    def texts(self) -> Iterable[str]:
        spec, status = self.spec, self.status
        for wanted in (spec.containers, spec.init_containers, spec.ephemeral_containers):
            yield from (each.image for each in wanted or ())
        for seen in (
            status.container_statuses,
            status.init_container_statuses,
            status.ephemeral_container_statuses,
        ):
            for each in seen or ():
                yield each.image
                yield each.image_id


class Cleanup:
    """The passes. ``others`` are executions of other kinds, ``used`` references in their statuses: both count."""

    def __init__(
        self,
        client: Api,
        watches: Watches,
        registries: Deletes,
        inputs: Inputs,
        *,
        turns: Turns,
        recorder: Posts,
        metrics: BuildMetrics,
        clock: Clock,
        is_leading: Callable[[], bool] = lambda: True,
        others: Callable[[], Iterable[Execution]] = tuple,
        used: Callable[[], Iterable[str]] = tuple,
    ) -> None:
        self._client = client
        self._watches = watches
        self._registries = registries
        self._inputs = inputs
        self._turns = turns
        self._recorder = recorder
        self._metrics = metrics
        self._clock = clock
        self._is_leading = is_leading
        self._others = others
        self._used = used
        self._running: tuple[float, tuple[str, ...]] | None = None
        self._said: set[tuple[str, str]] = set()

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

    async def _mark(self, build: BuildObject, runs: Sequence[RunObject]) -> None:
        """The finalizer is there exactly where images are to be deleted (BD-233, BD-236)."""
        deletes = build.spec.history.images == "Delete"
        secret = build.spec.output.push_secret.name if build.spec.output.push_secret is not None else ""
        for run in runs:
            metadata = run.metadata
            if metadata.deletion_timestamp is not None or not self._is_leading():
                continue
            known = metadata.finalizers or []
            if not deletes:
                await finalizers.remove(self._client, names.IMAGE_BUILD_RUNS, metadata, names.IMAGES_FINALIZER)
            elif names.IMAGES_FINALIZER not in known or _secret_of(run) != secret:
                marks = {
                    "resourceVersion": metadata.resource_version,
                    "finalizers": [*known, *({names.IMAGES_FINALIZER} - set(known))],
                    "annotations": {names.PUSH_SECRET_ANNOTATION: secret or None},
                }
                await self._patch(run, {"metadata": marks})

    async def _delete_runs(self, build: BuildObject, runs: Sequence[RunObject]) -> float | None:
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
        going = old(count((), published=self._published(), running=await self._texts()))
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

    async def _patch(self, run: RunObject, document: Mapping[str, Any]) -> None:
        try:
            await self._client.patch(
                names.IMAGE_BUILD_RUNS, run.metadata.name, MergePatch(document), namespace=run.metadata.namespace
            )
        except NotFound:
            return

    # -- images --------------------------------------------------------------------------------------------------------

    async def _delete_images(self, leaving: Sequence[RunObject]) -> float | None:
        """Delete what only these Runs refer to; seconds until the next try, None if they are all released."""
        first = leaving[0]
        if not self._is_leading():
            return None
        async with self._turns.of(first.spec.repository):
            going = [execution_of(run) for run in leaving]
            every = [*(execution_of(run) for run in self._watches.runs.store.values()), *self._others()]
            claims = count(
                (each for each in every if not each.deleting),
                published=self._published(),
                running=await self._texts(),
            )
            images = unreferenced(going, claims, known=every)
            secrets = tuple(dict.fromkeys(secret for run in leaving if (secret := _secret_of(run))))
            credentials = self._inputs.credentials(first.metadata.namespace, secrets)
            found = await self._registries.delete_images(images, credentials=credentials)
        self._metrics.images_deleted(len(found.done))
        self._tell(first, found)
        holds = [
            hold
            for run, execution in zip(leaving, going, strict=True)
            if (hold := await self._release(run, execution, found))
        ]
        return max(min(holds), found.retry_after or 0.0) if holds else None

    async def _release(self, run: RunObject, execution: Execution, found: Deleted) -> float | None:
        """Remove the finalizer, or seconds until the next try."""
        own = digests_of(execution)
        remaining = [each for each in found.remaining if each.rpartition("@")[2] in own]
        verdict = decide(
            remaining,
            execution=execution.name,
            deleting_since=seconds(run.metadata.deletion_timestamp) or 0.0,
            now=self._clock.now().timestamp(),
            problem=found.problem,
        )
        if isinstance(verdict, Hold):
            return verdict.seconds
        if verdict.event is not None:
            self._metrics.cleanup_abandoned()
            self._post(run, verdict.event)
        if self._is_leading():
            await finalizers.remove(self._client, names.IMAGE_BUILD_RUNS, run.metadata, names.IMAGES_FINALIZER)
        return None

    def _tell(self, run: RunObject, found: Deleted) -> None:
        if found.done:
            message = f"Deleted {', '.join(found.done)}: nothing refers to them any more"
            self._post(run, PlannedEvent(type="Normal", reason="ImageDeleted", message=message))
        for kept in found.warnings(self._said):
            self._said.add((kept.repository, kept.outcome))
            message = f"Images in {kept.repository} are left there: {kept.message}"
            self._post(run, PlannedEvent(type="Warning", reason="ImageNotDeleted", message=message))

    def _post(self, run: RunObject, event: PlannedEvent) -> None:
        regarding = Regarding.of(names.IMAGE_BUILD_RUNS, run.metadata)
        self._recorder.event(regarding, type=event.type, reason=event.reason, note=event.message, action="Prune")

    # -- who refers to images ------------------------------------------------------------------------------------------

    def _published(self) -> Iterable[str]:
        """References in the statuses of all ImageBuilds, and of what else there is."""
        for build in self._watches.builds.store.values():
            status = build.status or {}
            yield str(status.get("image") or "")
            images = status.get("images")
            for each in images if isinstance(images, list) else ():
                if isinstance(each, Mapping):
                    yield str(each.get("reference") or "")
        yield from self._used()

    async def _texts(self) -> tuple[str, ...]:
        """What pods and nodes say of images, at most some seconds ago."""
        now = self._clock.monotonic()
        if self._running is None or now - self._running[0] > SHARED:
            pods = await self._client.list(PODS, type=PodImages)
            texts = {text for pod in pods.items for text in pod.texts() if text}
            self._running = (now, tuple(sorted(texts)))
        nodes = self._watches.nodes.store.values()
        wanted = ((node.metadata.annotations or {}).get(name, "") for node in nodes for name in NODE_IMAGES)
        return (*self._running[1], *(text for text in wanted if text))


def _leaving(runs: Iterable[RunObject]) -> list[RunObject]:
    return [
        run
        for run in runs
        if run.metadata.deletion_timestamp is not None and names.IMAGES_FINALIZER in (run.metadata.finalizers or ())
    ]


def _by_repository(runs: Iterable[RunObject]) -> list[list[RunObject]]:
    found: dict[str, list[RunObject]] = {}
    for run in sorted(runs, key=lambda each: each.metadata.name):
        found.setdefault(handles.repository(run.spec.repository), []).append(run)
    return list(found.values())


def _secret_of(run: RunObject) -> str:
    return (run.metadata.annotations or {}).get(names.PUSH_SECRET_ANNOTATION, "")


def subscribe(watches: Watches, enqueue: Callable[[WishKey], None]) -> None:
    """Call ``enqueue`` with every build of which Runs may have to go, also one that is gone itself."""

    def run_changed(change: Change[RunObject]) -> None:
        run = change.new or change.old
        if run is not None:
            enqueue(WishKey("ImageBuild", change.key.namespace, run.spec.image_build.name))

    watches.runs.add_handler(run_changed)
    watches.builds.add_handler(lambda change: enqueue(WishKey("ImageBuild", *change.key)))
