"""The look-ups that pods and templates wait for: one per image and credential, whoever waits.

Pods and templates of one namespace may have the same name, so a template waits under a name that no pod can have.
"""

from collections.abc import Callable
from typing import Final

from polyarch.clock import Clock
from polyarch.images.backoff import Backoff
from polyarch.images.lookup_runner import LookupRunner, PodImageResolver
from polyarch.images.metrics import LookupMetrics
from polyarch.images.pull_secrets import PullSecretNames, PullSecretReader, PullSecrets
from polyarch.images.resolver import ImageInspector, PodImageRequest
from polyarch.images.waiting import ImageLookupKey, WaitingPods
from polyarch.kube.metrics import Metrics
from polyarch.kube.queue import WorkQueue
from polyarch.objects import ObjectKey
from polyarch.oci.inspection import Inspection
from polyarch.taints.pod_rules import Case, assess

ABSENT_EVERY: Final = 60.0
MENDED_EVERY: Final = 120.0
RETRIES: Final = Backoff(
    most=120.0,
    every={
        "absent": ABSENT_EVERY,
        "content": ABSENT_EVERY,
        "unknown": ABSENT_EVERY,
        "auth": MENDED_EVERY,
        "configuration": MENDED_EVERY,
    },
)
"""What somebody has to push or to mend is asked for at intervals; the rest soon, and then less often."""
SECRETS_EVERY: Final = 15.0
"""Seconds between two looks for changed pull secrets of images that failed with auth."""
_TEMPLATE: Final = "template/"


def waiter_of(template: ObjectKey) -> ObjectKey:
    """What a template waits as."""
    return ObjectKey(template.namespace, _TEMPLATE + template.name)


def image_request(case: Case) -> PodImageRequest:
    """The images of a pod or template, as they are looked up."""
    return PodImageRequest(
        case.images,
        PullSecretNames.of(case.pod, case.facts.namespace),
        case.facts.stale_for,
        lambda answers: assess(case, answers).is_impossible,
    )


class ImageWaiting:
    """``pods`` and ``templates`` are the queues of those that are woken by answers."""

    def __init__(
        self,
        *,
        pods: WorkQueue[ObjectKey],
        templates: WorkQueue[ObjectKey],
        inspector: ImageInspector,
        secrets: PullSecrets,
        metrics: LookupMetrics,
        is_leading: Callable[[], bool],
        clock: Clock,
        process_metrics: Metrics | None = None,
    ) -> None:
        self._pods = pods
        self._templates = templates
        self._is_leading = is_leading
        self._clock = clock
        images: WorkQueue[ImageLookupKey] = WorkQueue("taint-images", clock, metrics=process_metrics)
        self.waiting = WaitingPods(
            clock, schedule=images.add_after, wake=self._wake, insists=is_leading, retries=RETRIES
        )
        self.attempts = LookupRunner(self.waiting, images, inspector, secrets, clock, metrics)
        self.reads = PullSecretReader(secrets, self._wake)
        self.inquiry = PodImageResolver(inspector, secrets, self.reads, self.waiting, clock)

    @property
    def unknown(self) -> int:
        """Number of images that somebody waits for and that are not known."""
        return sum(1 for lookup in self.waiting.lookups() if lookup.inspection is None or lookup.failure)

    async def look_for_new_secrets(self) -> None:
        """Asks again for images that failed with auth as soon as a pull secret has changed, until cancelled."""
        while True:
            await self._clock.sleep(SECRETS_EVERY)
            if self._is_leading():
                await self.attempts.look_for_new_secrets()

    def credentials_changed(self) -> None:
        """The global pull secret changed: images that failed with auth are asked for again, and answers obtained with
        the former one are not used."""
        self.waiting.revoke()
        self.waiting.hasten(lambda lookup: lookup.failure == "auth")

    def registries_changed(self) -> None:
        """Mirrors, blocked hosts or certificates changed. Hosts that asked for time get it nevertheless."""
        self.waiting.hasten(lambda lookup: lookup.failure not in ("", "limit"))

    def _wake(self, waiter: ObjectKey, seconds: float = 0.0) -> None:
        if waiter.name.startswith(_TEMPLATE):
            self._templates.add_after(ObjectKey(waiter.namespace, waiter.name.removeprefix(_TEMPLATE)), seconds)
        else:
            self._pods.add_after(waiter, seconds)


# -- what is remembered of a pod or template while it waits ------------------------------------------------------------
# No decision needs it: a process that starts without it asks again and may repeat an event. It is dropped when the
# object goes or its uid changes.

_NONE_FAILED: Final[dict[str, Inspection]] = {}
"""Shared by all without such a failure; never changed."""


class WaitingObject:
    """One pod or template; what ``images.lookup_runner`` remembers, too. Times are ``Clock.monotonic()``."""

    __slots__ = ("_told", "failed_once", "seen_at", "uid")

    def __init__(self, uid: str, now: float) -> None:
        self.uid: Final = uid
        self.seen_at: Final = now
        self.failed_once: dict[str, Inspection] = _NONE_FAILED
        """Failures of images that may exist on nodes only; replaced, never changed."""
        self._told: frozenset[tuple[str, ...]] = frozenset()

    def waits(self, now: float, *, begun: float | None) -> None:
        """Nothing to remember: no time counts from the first attempt."""

    def waits_for_nothing(self, now: float) -> None:
        """As :meth:`waits`."""

    def is_news(self, *said: str) -> bool:
        """Whether this was not said about it before; it counts as said from now on."""
        if said in self._told:
            return False
        self._told = self._told | {said}
        return True
