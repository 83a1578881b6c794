"""What the placement roles of one process share: cluster facts, images, metrics, the signing key, and the tolerations
that taints adds to pods.

Most clusters with placement have no configuration of taints, and should not pay for it: rules, patches and metrics of
taints are 1 MiB of modules in each process. They are loaded when the configuration appears, not by the first pod that
needs them."""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

import structlog

from polyarch.clock import Clock
from polyarch.images.pod_mutation import NO_MUTATION, MutationContext, PodMutation, PodMutator
from polyarch.kube.admission import AdmissionRequest
from polyarch.kube.manager import Caches, Process
from polyarch.objects import Pod
from polyarch.oci.inspection import Inspection
from polyarch.placement.decision import RecordSigner, parse_keys
from polyarch.placement.facts import ClusterFacts
from polyarch.placement.metrics import PlacementMetrics
from polyarch.placement.shared_readings import SharedReadings
from polyarch.run.logs import Verbosity
from polyarch.run.services import ImageServices, open_admission_lookups, open_images, open_taint_facts


class PlacementServices:
    """The shared services of the placement roles in one process."""

    def __init__(
        self,
        process: Process,
        facts: ClusterFacts,
        images: ImageServices,
        *,
        additions: PodMutator | None = None,
        caches: Iterable[Caches] = (),
    ) -> None:
        """``additions``: what another feature adds to pods; ``caches``: what that needs."""
        self.process = process
        self.facts = facts
        self.images = images
        self.additions = additions
        self.metrics = PlacementMetrics(process.metrics, images.metrics)
        self.metrics.watch_facts(lambda: facts.left_out)
        self.shared_readings = SharedReadings(
            informers=process.informers,
            client=process.client,
            facts=facts,
            secrets=images.secrets,
            cache=images.registries.cache,
            clock=process.clock,
            namespace=process.settings.namespace,
        )
        self.caches: list[Caches] = [
            facts,
            SigningKeyFile(process.settings.cert_dir, facts.take, process.clock),
            self.shared_readings,
            *images.caches,
            *caches,
        ]
        """To be run by each role that uses these services."""
        images.global_secret_changed.append(self.shared_readings.global_secret_changed)
        images.short_names_searched.append(facts.search_short_names)
        facts.on_change(self._take_verbosity)

    def _take_verbosity(self, namespace: str | None) -> None:
        cppc = self.facts.cppc
        if namespace is None and cppc is not None:
            self.process.settings_of(Verbosity).set(cppc.spec.log_verbosity)


@asynccontextmanager
async def open_placement_services(process: Process) -> AsyncIterator[PlacementServices]:
    """Open the services; watches start when the process runs."""
    images = await process.share(open_images)
    facts = ClusterFacts(process.informers, operator_namespace=process.settings.namespace, clock=process.clock)
    taints = await process.share(open_taint_facts)
    yield PlacementServices(process, facts, images, additions=await process.share(open_additions), caches=(taints,))


# -- what taints add to the pods of placement


class LazyPodMutator:
    """Nothing, until :meth:`want` has loaded what adds."""

    def __init__(self, load: Callable[[], PodMutator]) -> None:
        self._load = load
        self._loaded: PodMutator | None = None

    def want(self) -> None:
        """Loads it, once."""
        if self._loaded is None:
            self._loaded = self._load()

    async def at_admission(
        self,
        request: AdmissionRequest[Pod],
        answers: Mapping[str, Inspection],
        alongside: MutationContext,
        *,
        until: float,
    ) -> PodMutation:
        if self._loaded is None:
            return NO_MUTATION
        return await self._loaded.at_admission(request, answers, alongside, until=until)

    def at_release(self, pod: Pod, answers: Mapping[str, Inspection], alongside: MutationContext) -> PodMutation:
        return self._loaded.at_release(pod, answers, alongside) if self._loaded is not None else NO_MUTATION


@asynccontextmanager
async def open_additions(process: Process) -> AsyncIterator[LazyPodMutator]:
    """Open what placement adds for taints; the facts have to be run."""
    facts = await process.share(open_taint_facts)
    lookups = await process.share(open_admission_lookups)
    images = await process.share(open_images)

    def load() -> PodMutator:
        from polyarch.taints.metrics import TaintMetrics
        from polyarch.taints.webhook import PodAdmission

        return PodAdmission(
            facts=facts,
            lookups=lookups,
            clock=process.clock,
            metrics=TaintMetrics(process.metrics),
            failed=images.metrics.internal_errors.inc,
        )

    additions = LazyPodMutator(load)

    def changed(namespace: str | None) -> None:
        if facts.settings is not None:
            additions.want()

    facts.on_change(changed)
    yield additions


# -- the key that signs decision annotations


log = structlog.get_logger(__name__)
FILE: Final = "record.key"
INTERVAL: Final = 10.0
"""Seconds between two reads of the file."""
SPREAD: Final = 180.0
"""Seconds until every process has a new key; a kubelet updates a mounted Secret within two minutes."""
ACCEPTED_AFTER: Final = 600.0
"""Seconds for which a key is accepted that is no longer in the file: until then another process may sign with it."""
LARGEST: Final = 4096
"""The most bytes that are read of the file."""


class SigningKeyFile:
    """Calls ``take`` with each new :class:`RecordSigner`.

    ``folder`` is that of the certificates; empty: there is no key.
    """

    def __init__(self, folder: str, take: Callable[[RecordSigner], None], clock: Clock) -> None:
        self._path = Path(folder) / FILE if folder else None
        self._take = take
        self._clock = clock
        self._keys: tuple[bytes, ...] = ()
        self._signs_anew_at: float | None = None
        self._gone_since: float | None = None
        """Since when one of the keys is not in the file."""
        self._told = ""
        self._looked = asyncio.Event()

    @property
    def problems(self) -> list[str]:
        """Always empty: readiness does not depend on the key."""
        return []

    async def synced(self) -> None:
        """Returns once the file was read."""
        await self._looked.wait()

    async def run(self) -> None:
        """Read the file periodically, until cancelled."""
        while True:
            await self.look()
            self._looked.set()
            await self._clock.sleep(INTERVAL)

    async def look(self) -> None:
        """Read the file once."""
        try:
            found = parse_keys(await asyncio.to_thread(_read, self._path)) if self._path is not None else ()
        except (OSError, ValueError) as error:
            self._tell(error)
            found = ()
        if found and found[0] not in self._keys[:1]:
            self._found(found)
        elif found[1:] and found != self._keys and self._signs_anew_at is None:
            self._keys = found  # the one before it was put back
            self._take(RecordSigner(found))
        if self._signs_anew_at is not None and self._clock.monotonic() >= self._signs_anew_at:
            self._signs_anew_at = None
            self._take(RecordSigner(self._keys))
        if found:
            self._drop_gone(found)
        if not self._keys and self._path is None:
            self._tell(FileNotFoundError())

    def _found(self, keys: tuple[bytes, ...]) -> None:
        """Take a new newest key. The former one is in the file, or still in memory."""
        self._keys = tuple(dict.fromkeys((*keys, *self._keys)))[:2]
        self._told = ""
        self._gone_since = None
        log.info("signing decision annotations", file=str(self._path), keys=len(self._keys))
        if len(self._keys) == 1:
            self._take(RecordSigner(self._keys))
        else:
            self._signs_anew_at = self._clock.monotonic() + SPREAD
            self._take(RecordSigner(self._keys, signing=1))

    def _drop_gone(self, found: tuple[bytes, ...]) -> None:
        """Stop accepting a key that has long not been in the file."""
        now = self._clock.monotonic()
        if set(self._keys) <= set(found):
            self._gone_since = None
        elif self._gone_since is None:
            self._gone_since = now
        elif now - self._gone_since >= ACCEPTED_AFTER:
            self._keys, self._gone_since = found, None
            log.info("a former key of decision annotations is no longer accepted", file=str(self._path))
            self._take(RecordSigner(self._keys))

    def _tell(self, error: Exception) -> None:
        """Log a problem once, until another one occurs."""
        what = "there is none" if isinstance(error, FileNotFoundError) else str(error)
        if what == self._told:
            return
        self._told = what
        if self._keys:
            log.warning("cannot read the key of decision annotations, using those in memory", problem=what)
        else:
            log.warning(
                "no key: decision annotations are not signed, and unsigned ones are accepted",
                file=str(self._path or FILE),
                problem=what,
            )


def _read(path: Path) -> bytes:
    with path.open("rb") as file:
        return file.read(LARGEST)
