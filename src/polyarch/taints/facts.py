"""The configuration of taints, watched and compiled once per change, with what else decisions need.

Processes of placement use it, too, in clusters that never heard of taints. So everything here is optional: without the
custom resource, or without the right to read it, there is no configuration, nothing is added, and nobody waits.

* The ArchitectureTaints ``cluster``, or the object from ``--config`` in its place.
* While there is one: metadata of Namespaces, all of them if the object selects namespaces by their labels, else only
  those that opt out; and the Lease of the role ``taints``, whose leader lifts our gates.

Handlers registered with ``on_change`` are called with the namespace whose facts changed, or with None for all. The
rules are imported where they are needed: a process without a configuration does not load them.
"""

import asyncio
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Final

import msgspec
import structlog

from polyarch.clock import Clock
from polyarch.kube.informer import OnDemandInformer, Shares
from polyarch.kube.lease import Lease, LeaseAge
from polyarch.kube.resources import LEASES, NAMESPACES
from polyarch.kube.store import ObjectChange
from polyarch.objects import ObjectKey, PartialObjectMetadata, Pod
from polyarch.taints import names
from polyarch.taints.api import ARCHITECTURE_TAINTS, ArchitectureTaints
from polyarch.taints.settings import TaintSettings

if TYPE_CHECKING:
    from polyarch.objects import DaemonSet
    from polyarch.taints.pod_rules import PodFacts, TemplateFacts

log = structlog.get_logger(__name__)

LEADER_SILENCE: Final = 30.0
"""Seconds without a change of its Lease after which no gate is added: nobody would lift it."""
READ_TIMEOUT: Final = 5.0
"""Seconds after which facts that cannot be read are given up for a while."""
RETRY_INTERVAL: Final = 60.0
POLL_INTERVAL: Final = 0.1
OBJECT: Final = ObjectKey("", names.SINGLETON)


class TaintFacts:
    """The compiled facts. ``namespace`` is where polyarch runs; ``given`` is the object from ``--config``."""

    def __init__(
        self, informers: Shares, *, namespace: str, clock: Clock, given: ArchitectureTaints | None = None
    ) -> None:
        self._given = given
        self._clock = clock
        self._objects = OnDemandInformer(informers, ARCHITECTURE_TAINTS, ArchitectureTaints, self._object_changed)
        self._namespaces = OnDemandInformer(informers, NAMESPACES, PartialObjectMetadata, self._namespace_changed)
        self._opted_out = OnDemandInformer(
            informers,
            NAMESPACES,
            PartialObjectMetadata,
            self._namespace_changed,
            label_selector=f"{names.OPT_OUT}={names.DISABLED}",
        )
        self._lease = OnDemandInformer(
            informers, LEASES, Lease, self._lease_changed, namespace=namespace, name=names.LEASE
        )
        self._lease_key = ObjectKey(namespace, names.LEASE)
        self._age: LeaseAge | None = None
        self._settings: TaintSettings | None = None
        self._existing: frozenset[str] = frozenset()
        self._short_names_searched = False
        self._handlers: list[Callable[[str | None], None]] = []
        self._settled = asyncio.Event()
        self._problem_told = ""

    # -- for decisions -------------------------------------------------------------------------------------------------

    @property
    def is_ready(self) -> bool:
        """It is known whether there is a configuration, and everything that it needs."""
        if self._given is None and not self._objects.is_known:
            return False
        return self._settings is None or self._wanted_namespaces.is_known

    @property
    def configuration(self) -> ArchitectureTaints | None:
        """The object; None if there is none, or it is not known."""
        return self._given or self._objects.get(OBJECT)

    @property
    def settings(self) -> TaintSettings | None:
        """What the object means; None without one. While it is being deleted, its state is ``removing``."""
        return self._settings

    def about(self, pod: Pod, namespace: str, *, stored: bool, os: str = "") -> "PodFacts | None":
        """The facts for a pod; None: nothing is decided, as there is no configuration, or not all is known yet.

        ``os``: the operating system that placement writes to the pod in the same patch.
        """
        settings, labels = self._settings, self._labels_if_ready(namespace)
        if settings is None or labels is None:
            return None
        from polyarch.taints.pod_rules import PodFacts

        return PodFacts(
            pod=pod,
            namespace=namespace,
            settings=settings,
            namespace_labels=labels,
            existing=self._existing,
            stored=stored,
            os=os,
            short_names_searched=self._short_names_searched,
            is_own=namespace == self._lease_key.namespace,
        )

    def about_template(self, daemon_set: "DaemonSet", namespace: str) -> "TemplateFacts | None":
        """The facts for the template of a DaemonSet; None: as for a pod."""
        settings, labels = self._settings, self._labels_if_ready(namespace)
        if settings is None or labels is None:
            return None
        from polyarch.taints.pod_rules import TemplateFacts

        return TemplateFacts(
            daemon_set=daemon_set,
            namespace=namespace,
            settings=settings,
            namespace_labels=labels,
            existing=self._existing,
            short_names_searched=self._short_names_searched,
        )

    def labels_of(self, namespace: str) -> Mapping[str, str] | None:
        """The labels of a Namespace by which pods are chosen; None if they are not known yet."""
        found = self._wanted_namespaces.get(ObjectKey("", namespace))
        if found is not None:
            return found.metadata.labels or {}
        return None if self._namespaces.is_wanted else {}

    def _labels_if_ready(self, namespace: str) -> Mapping[str, str] | None:
        return self.labels_of(namespace) if self.is_ready else None

    @property
    def existing(self) -> frozenset[str]:
        """Architectures of the cluster's nodes, as the object's status has them."""
        return self._existing

    @property
    def leader_lives(self) -> bool:
        """Somebody will lift a gate of ours: the Lease of the role ``taints`` has changed lately.

        Time during which the watch was broken does not count, as no renewal could be seen then.
        """
        if self._age is None or self._lease.get(self._lease_key) is None:
            return False
        return self._age.age() < LEADER_SILENCE

    # -- changes -------------------------------------------------------------------------------------------------------

    def on_change(self, handler: Callable[[str | None], None]) -> None:
        """Calls ``handler`` with the namespace whose facts changed, or None for all namespaces."""
        self._handlers.append(handler)

    def take_architectures(self, existing: Iterable[str]) -> None:
        """The architectures of the cluster's nodes, from who watches these: before a status says so, or without one."""
        found = frozenset(existing)
        if found != self._existing:
            self._existing = found
            self._tell(None)

    def search_short_names(self, searched: bool) -> None:
        """Sets whether nodes search several registries for image names without a registry."""
        if searched != self._short_names_searched:
            self._short_names_searched = searched
            self._tell(None)

    # -- running -------------------------------------------------------------------------------------------------------

    @property
    def problems(self) -> list[str]:
        """Always empty: a process that adds tolerations beside other work is ready without them."""
        return []

    @property
    def problem(self) -> str | None:
        """Why a resource cannot be read that the configuration needs; for those who live by it."""
        return next((each.problem for each in self._read if each.problem is not None), None)

    async def synced(self) -> None:
        """Returns when the facts are known, or cannot be had for now; ``run`` must be running."""
        await self._settled.wait()

    async def run(self) -> None:
        """Watches until cancelled. What cannot be read is tried again every minute."""
        while True:
            if self._given is not None:
                self._compile(self._given)
            else:
                self._objects.want(True)
            if await self._is_known_in_time():
                break
            self._give_up()
            self._settled.set()
            await self._clock.sleep(RETRY_INTERVAL)
        self._problem_told = ""
        self._settled.set()
        await asyncio.get_running_loop().create_future()

    async def _is_known_in_time(self) -> bool:
        started = self._clock.monotonic()
        while not self.is_ready:
            if any(each.last_error is not None for each in self._read):
                self._settled.set()
            if self._clock.monotonic() - started >= READ_TIMEOUT:
                return False
            await self._clock.sleep(POLL_INTERVAL)
        return True

    def _give_up(self) -> None:
        errors = [each.problem or each.last_error for each in self._read if not each.is_known]
        problem = next((each for each in errors if each), "there was no answer in time")
        if problem != self._problem_told:
            log.info(
                "no tolerations are added: a resource cannot be read", problem=problem, again_seconds=RETRY_INTERVAL
            )
        self._problem_told = problem
        self._objects.want(False)
        self._compile(None)

    @property
    def _read(self) -> tuple[OnDemandInformer[ArchitectureTaints] | OnDemandInformer[PartialObjectMetadata], ...]:
        """What has to be read before anything is decided."""
        return self._objects, self._namespaces, self._opted_out

    @property
    def _wanted_namespaces(self) -> OnDemandInformer[PartialObjectMetadata]:
        return self._namespaces if self._namespaces.is_wanted else self._opted_out

    # -- handlers ------------------------------------------------------------------------------------------------------

    def _object_changed(self, change: ObjectChange[ArchitectureTaints]) -> None:
        if change.key == OBJECT:
            self._compile(change.new)

    def _compile(self, found: ArchitectureTaints | None) -> None:
        settings = settings_of(found) if found is not None else None
        existing = self._existing
        if found is not None and found.status.architectures is not None:
            existing = frozenset(each.name for each in found.status.architectures)
        if (settings, existing) == (self._settings, self._existing):
            return  # its conditions or numbers
        if settings is not None and settings != self._settings:
            for problem in settings.problems:
                log.warning("invalid configuration value ignored", problem=problem)
        self._settings, self._existing = settings, existing
        self._watch(settings)
        self._tell(None)

    def _watch(self, settings: TaintSettings | None) -> None:
        selects = settings is not None and settings.namespace_selector is not None
        self._namespaces.want(selects)
        self._opted_out.want(settings is not None and not selects)
        if (settings is None) != (self._age is None):
            self._age = None if settings is None else LeaseAge(self._clock, blind=lambda: self._lease.blind_seconds)
            self._lease.want(settings is not None)

    def _namespace_changed(self, change: ObjectChange[PartialObjectMetadata]) -> None:
        old, new = change.old, change.new
        if (old.metadata.labels if old else None) != (new.metadata.labels if new else None):
            self._tell(change.key.name)

    def _lease_changed(self, change: ObjectChange[Lease]) -> None:
        if self._age is not None:
            self._age.observe(change.new)

    def _tell(self, namespace: str | None) -> None:
        for handler in self._handlers:
            handler(namespace)


def settings_of(found: ArchitectureTaints) -> TaintSettings:
    """What an object means. While it is being deleted everything is removed, whatever its spec says."""
    settings = TaintSettings.of(found.spec)
    if found.metadata.deletion_timestamp is None:
        return settings
    return msgspec.structs.replace(settings, state="removing")
