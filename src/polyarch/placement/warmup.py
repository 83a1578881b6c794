"""Reads images of workload templates before their pods are created.

The leader watches the chosen kinds while the policy enables it, and asks for images that are not known: at the
policy's pace, a few at a time, those of new and changed templates first. It is a help for pods to come, so it never
stands in the way of pods that are there: a failed image is left alone for ten minutes, an image with
``imagePullPolicy: Always`` is asked for once, and a host that is paused or low on its rate limit waits.
"""

import asyncio
from collections import OrderedDict, defaultdict
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Final, NamedTuple

import msgspec
import structlog

from polyarch.clock import Clock, deadline
from polyarch.images.pod_images import images_of
from polyarch.images.pull_secrets import PullSecretNames, PullSecrets
from polyarch.images.resolver import ImageInspector, LowPriorityLookups
from polyarch.images.waiting import failure_of
from polyarch.kube.informer import OnDemandInformer, Shares
from polyarch.kube.resources import CRONJOBS, DAEMONSETS, DEPLOYMENTS, STATEFULSETS, Resource
from polyarch.kube.store import ObjectChange
from polyarch.objects import Container, LocalObjectReference, ObjectMeta, Pod, PodSpec, Volume
from polyarch.oci.concurrency import SharedCapacity
from polyarch.oci.lru_cache import LRUCache
from polyarch.oci.reference import Reference
from polyarch.oci.settings import Share
from polyarch.placement.facts import ClusterFacts
from polyarch.placement.settings import WarmUpKind

# -- workloads, reduced to images, pull secrets and the namespace ------------------------------------------------------
# Labels and annotations are dropped when an object is decoded: the annotation of ``kubectl apply`` alone is as large as
# the whole object, and thousands of them stay in the cache.


class TemplateSpec(msgspec.Struct, frozen=True, gc=False, rename="camel", omit_defaults=True):
    """``template.spec``: what pulling its images depends on."""

    containers: list[Container] | None = None
    init_containers: list[Container] | None = None
    volumes: list[Volume] | None = None
    image_pull_secrets: list[LocalObjectReference] | None = None


class Template(msgspec.Struct, frozen=True, gc=False):
    """core/v1 PodTemplateSpec."""

    spec: TemplateSpec = TemplateSpec()


class WorkloadSpec(msgspec.Struct, frozen=True, gc=False):
    """The spec of a Deployment, StatefulSet, DaemonSet or Job."""

    template: Template = Template()


class Workload(msgspec.Struct, frozen=True, gc=False):
    """A Deployment, StatefulSet or DaemonSet."""

    metadata: ObjectMeta = ObjectMeta()
    spec: WorkloadSpec = WorkloadSpec()

    def __post_init__(self) -> None:
        _reduce(self)

    @property
    def template(self) -> TemplateSpec:
        return self.spec.template.spec


class JobTemplate(msgspec.Struct, frozen=True, gc=False):
    """batch/v1 JobTemplateSpec."""

    spec: WorkloadSpec = WorkloadSpec()


class CronJobSpec(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    """batch/v1 CronJobSpec."""

    job_template: JobTemplate = JobTemplate()


class CronJob(msgspec.Struct, frozen=True, gc=False):
    """batch/v1 CronJob."""

    metadata: ObjectMeta = ObjectMeta()
    spec: CronJobSpec = CronJobSpec()

    def __post_init__(self) -> None:
        _reduce(self)

    @property
    def template(self) -> TemplateSpec:
        return self.spec.job_template.spec.template.spec


KINDS: Final[Mapping[WarmUpKind, tuple[Resource, type[Workload | CronJob]]]] = {
    "Deployment": (DEPLOYMENTS, Workload),
    "StatefulSet": (STATEFULSETS, Workload),
    "DaemonSet": (DAEMONSETS, Workload),
    "CronJob": (CRONJOBS, CronJob),
}
"""By the words of ``warmUp.kinds``."""


def pod_of(workload: Workload | CronJob) -> Pod:
    """The pod that would be created, as far as its images go. The secrets of its ServiceAccount are not known."""
    spec = workload.template
    return Pod(
        metadata=ObjectMeta(namespace=workload.metadata.namespace),
        spec=PodSpec(
            containers=spec.containers,
            init_containers=spec.init_containers,
            volumes=spec.volumes,
            image_pull_secrets=spec.image_pull_secrets,
        ),
    )


def _reduce(workload: Workload | CronJob) -> None:
    metadata = workload.metadata
    bare = ObjectMeta(
        name=metadata.name,
        namespace=metadata.namespace,
        uid=metadata.uid,
        resource_version=metadata.resource_version,
    )
    msgspec.structs.force_setattr(workload, "metadata", bare)


# -- the warm-up -------------------------------------------------------------------------------------------------------

log = structlog.get_logger(__name__)

MAX_QUEUED: Final = 20_000
"""Images that wait to be asked for; beyond that the oldest are dropped of the namespace that has most. Their pods ask
for them."""
MAX_REMEMBERED: Final = 20_000
FAILURE_RETRY_DELAY: Final = 600.0
"""Seconds for which a failed image is not asked for again."""
BUSY_HOST_DELAY: Final = 30.0
"""Seconds after which images are looked at again whose hosts were paused or low on their rate limits."""
CONCURRENT_LOOKUPS: Final = Share(4, minimum=1, maximum=16)
PAUSE_AFTER: Final = 50


class WarmUpImage(NamedTuple):
    """One image, and the pull secrets to ask with."""

    reference: Reference
    source: PullSecretNames
    always: bool = False
    """A tag that each pod checks anew, so that it is of little use to know it before."""

    @property
    def key(self) -> "WarmUpKey":
        """Workloads without pull secrets of their own share their images."""
        return self.reference.canonical, self.source if self.source.names else None


WarmUpKey = tuple[str, PullSecretNames | None]


class WarmUpQueue:
    """Images that wait to be asked for: namespaces in turn, those of one in order of arrival."""

    def __init__(self) -> None:
        self._images: OrderedDict[str, dict[WarmUpKey, WarmUpImage]] = OrderedDict()
        self._namespaces: dict[WarmUpKey, str] = {}
        self._by_length: defaultdict[int, dict[str, None]] = defaultdict(dict)
        """Namespaces by how many images they have, so that the largest is found without a look at all."""
        self.longest = 0
        """How many images the namespace has that has most."""

    def __len__(self) -> int:
        return len(self._namespaces)

    def __contains__(self, key: WarmUpKey) -> bool:
        return key in self._namespaces

    def add(self, image: WarmUpImage) -> None:
        """Add an image, or replace the one with this key in its position."""
        namespace = self._namespaces.setdefault(image.key, image.source.namespace)
        images = self._images.setdefault(namespace, {})
        before = len(images)
        images[image.key] = image
        self._note_length(namespace, before, len(images))

    def drop(self, key: WarmUpKey) -> None:
        """Remove the image with this key, if there is one."""
        namespace = self._namespaces.pop(key, None)
        if namespace is not None:
            self._remove(namespace, key)

    def drop_one(self) -> None:
        """Remove the oldest image of the namespace that has most."""
        most = next(iter(self._by_length[self.longest]))
        self.drop(next(iter(self._images[most])))

    def next(self, allows: Callable[[str], bool]) -> WarmUpImage | None:
        """Remove and return the next image of a namespace that is allowed; None without one."""
        namespace = next(filter(allows, self._images), None)
        if namespace is None:
            return None
        self._images.move_to_end(namespace)
        image = next(iter(self._images[namespace].values()))
        self.drop(image.key)
        return image

    def take_all(self) -> list[WarmUpImage]:
        """Remove and return all images."""
        images = [image for each in self._images.values() for image in each.values()]
        self.clear()
        return images

    def clear(self) -> None:
        self._images.clear()
        self._namespaces.clear()
        self._by_length.clear()
        self.longest = 0

    def _remove(self, namespace: str, key: WarmUpKey) -> None:
        images = self._images[namespace]
        del images[key]
        if not images:
            del self._images[namespace]
        self._note_length(namespace, len(images) + 1, len(images))

    def _note_length(self, namespace: str, before: int, after: int) -> None:
        """The namespace has one image more, one less, or as many as before."""
        if (same := self._by_length.get(before)) is not None:
            same.pop(namespace, None)
            if not same:
                del self._by_length[before]
        if after:
            self._by_length[after][namespace] = None
        self.longest = max(self.longest, after)
        if self.longest not in self._by_length:
            self.longest = after


class WarmUp:
    """``images`` is this warm-up's own, so that its lookups wait for nobody else's."""

    def __init__(
        self,
        *,
        informers: Shares,
        facts: ClusterFacts,
        inspector: ImageInspector,
        secrets: PullSecrets,
        images: LowPriorityLookups,
        clock: Clock,
    ) -> None:
        self._facts = facts
        self._inspector = inspector
        self._secrets = secrets
        self._images = images
        self._clock = clock
        self._watched = {
            kind: OnDemandInformer(informers, resource, model, self._observe)
            for kind, (resource, model) in KINDS.items()
        }
        self._fresh = WarmUpQueue()
        """Of new and changed templates."""
        self._rest = WarmUpQueue()
        """Of the first list."""
        self._later = WarmUpQueue()
        """Of hosts that are to be left alone."""
        self._look_again_at = 0.0
        """When those are looked at again."""
        self._failed: LRUCache[WarmUpKey, float] = LRUCache(MAX_REMEMBERED)
        self._once: LRUCache[WarmUpKey, bool] = LRUCache(MAX_REMEMBERED)
        """Images with ``Always`` that were asked for."""
        self._wake = asyncio.Event()
        facts.on_change(lambda namespace: self._wake.set() if namespace is None else None)

    @property
    def queued(self) -> int:
        """Images that wait to be asked for."""
        return len(self._fresh) + len(self._rest) + len(self._later)

    async def run(self) -> None:
        """Warms up while the policy says so, until cancelled; for the leader alone."""
        places = SharedCapacity(CONCURRENT_LOOKUPS)

        def ended(namespace: str, _: asyncio.Task[None]) -> None:
            places.give_back(namespace)
            self._wake.set()

        try:
            async with asyncio.TaskGroup() as tasks:
                while True:
                    self._wake.clear()
                    enabled = self._want()
                    item = await self._next(places.allows) if enabled else None
                    if item is None:
                        await self._rest_for(BUSY_HOST_DELAY if self._later else None)
                        continue
                    namespace = item.source.namespace
                    places.take(namespace)
                    ask = tasks.create_task(self._ask(item), name=f"warm up {item.reference}")
                    ask.add_done_callback(partial(ended, namespace))
                    await self._clock.sleep(60.0 / self._facts.table.spec.warm_up_images_per_minute)
        finally:
            self._want(False)

    def _want(self, wanted: bool = True) -> bool:
        """Watches what the policy names, and nothing else; whether it names anything."""
        kinds: Iterable[str] = ()
        if wanted and self._facts.is_ready and not self._facts.is_deprovisioning:
            spec = self._facts.table.spec
            kinds = spec.warm_up_kinds if spec.warm_up_enabled else ()
        for kind, watched in self._watched.items():
            watched.want(kind in kinds)
        if not kinds:
            self._fresh.clear()
            self._rest.clear()
            self._later.clear()
        return bool(kinds)

    async def _rest_for(self, seconds: float | None) -> None:
        try:
            async with deadline(self._clock, seconds):
                await self._wake.wait()
        except TimeoutError:
            return

    def _observe(self, change: ObjectChange[Workload | CronJob]) -> None:
        new, old = change.new, change.old
        if new is None or (old is not None and old.template == new.template):
            return
        namespace = new.metadata.namespace
        settings = self._facts.of(namespace).settings
        if namespace == settings.operator_namespace or namespace.startswith("kube-") or settings.excludes(namespace):
            return
        pod = pod_of(new)
        source = PullSecretNames.of(pod, namespace)
        for use in images_of(pod, searched=settings.short_names_searched):
            if use.reference is None or use.never:
                continue
            always = use.always and use.reference.digest is None
            self._add(WarmUpImage(use.reference, source, always), fresh=not change.initial)
        self._wake.set()

    def _add(self, item: WarmUpImage, *, fresh: bool) -> None:
        self._later.drop(item.key)
        if fresh:
            self._rest.drop(item.key)
            self._fresh.add(item)
        elif item.key not in self._fresh:
            self._rest.add(item)
        if self.queued > MAX_QUEUED:
            max(self._later, self._rest, self._fresh, key=lambda queue: queue.longest).drop_one()

    async def _next(self, allows: Callable[[str], bool]) -> WarmUpImage | None:
        """The next image that is not known and may be asked for now, of a namespace that is allowed."""
        now = self._clock.monotonic()
        if self._later and now >= self._look_again_at:
            for waited in self._later.take_all():
                self._rest.add(waited)
        looked = 0
        while item := self._fresh.next(allows) or self._rest.next(allows):
            looked += 1
            if looked % PAUSE_AFTER == 0:
                await self._clock.sleep(0)
            failed_at = self._failed.get(item.key)
            if failed_at is not None and now - failed_at < FAILURE_RETRY_DELAY:
                continue
            if item.always and self._once.get(item.key) is not None:
                continue
            if self._inspector.peek(item.reference, self._secrets.lazy(item.source)) is not None:
                continue
            if self._inspector.host_busy(item.reference, item.source.namespace) or self._inspector.host_low(
                item.reference
            ):
                if not self._later:
                    self._look_again_at = now + BUSY_HOST_DELAY
                self._later.add(item)
                continue
            return item
        return None

    async def _ask(self, item: WarmUpImage) -> None:
        if item.always:
            self._once.put(item.key, True)
        inspection = await self._images.inspect(item.reference, item.source)
        if inspection is None or failure_of(inspection):
            self._failed.put(item.key, self._clock.monotonic())
            log.debug(
                "an image could not be read ahead", image=item.reference.canonical, failure=failure_of(inspection)
            )
