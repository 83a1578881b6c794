"""What the operator knows of its cluster: what the API server serves, where its own images run, and the namespace in
which polyarch runs."""

import hashlib
import re
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final, NamedTuple

import msgspec
import structlog

from polyarch import names
from polyarch.clock import Clock
from polyarch.kube.client import Client
from polyarch.kube.errors import Forbidden, KubernetesError, NotFound
from polyarch.kube.informer import Informer
from polyarch.kube.manager import Process
from polyarch.kube.resources import CONFIGMAPS, DEPLOYMENTS, NAMESPACES, Resource
from polyarch.kube.store import ObjectChange
from polyarch.numa.names import SCHEDULER
from polyarch.objects import ObjectKey, Unstructured
from polyarch.operator import certificates, registry_settings
from polyarch.operator.monitoring import RULES, SERVICE_MONITORS
from polyarch.operator.settings import ClusterCapabilities, OperatorSettings
from polyarch.platforms import IMAGE_ARCHITECTURES

log = structlog.get_logger(__name__)

DISCOVERY_INTERVAL: Final = 60.0
OPENSHIFT: Final = "config.openshift.io"
MONITORING: Final = frozenset((SERVICE_MONITORS, RULES))
ISSUING: Final = frozenset((certificates.ISSUERS, certificates.CERTIFICATES))
OPTIONAL: Final = MONITORING | ISSUING
"""Kinds of CRDs that others install."""


ReadArchitectures = Callable[[str], Awaitable[tuple[str, ...] | None]]
"""Read the Linux architectures of an image from its registry, sorted; None if the registry does not say."""
REREAD_INTERVAL: Final = 3600.0
"""Seconds after which the architectures of an image are read again: a tag may move."""
RETRY_INTERVAL: Final = 60.0
MOST_READINGS: Final = 16
"""Images of which readings are kept: each change of a custom resource may name another one."""


class _ImageReading(NamedTuple):
    architectures: tuple[str, ...] | None
    due: float
    """When to read again, on the monotonic clock."""


class ImageArchitectures:
    """The Linux architectures of the images that operands run.

    A mirror may hold an image for fewer architectures than its publisher, and a pod on another node would end with
    ``exec format error``. Where a registry cannot be asked, as with images that were loaded onto the nodes, what the
    running workloads have for the same image counts (:func:`applied_architectures`): an outage of a registry never
    rolls anything out.
    """

    def __init__(self, read: ReadArchitectures, *, clock: Clock) -> None:
        self._read = read
        self._clock = clock
        self._readings: dict[str, _ImageReading] = {}

    async def of(self, image: str) -> tuple[str, ...] | None:
        """As the registry says, or said last; None: it has not said."""
        known = self._readings.get(image)
        if known is None or known.due <= self._clock.monotonic():
            found = await self._read(image)
            wait = REREAD_INTERVAL if found is not None else RETRY_INTERVAL
            former = known.architectures if known is not None else None
            known = _ImageReading(found if found is not None else former, self._clock.monotonic() + wait)
            self._readings.pop(image, None)
            self._readings[image] = known
            if len(self._readings) > MOST_READINGS:
                del self._readings[next(iter(self._readings))]
        return known.architectures


def applied_architectures(workload: Mapping[str, Any], image: str) -> tuple[str, ...] | None:
    """The architectures to which a Deployment or DaemonSet with this image keeps; None: it has another, or no limit."""
    pod = workload["spec"]["template"]["spec"]
    if image not in (container.get("image") for container in pod.get("containers") or ()):
        return None
    required = ((pod.get("affinity") or {}).get("nodeAffinity") or {}).get(
        "requiredDuringSchedulingIgnoredDuringExecution"
    ) or {}
    return next(
        (
            tuple(requirement.get("values") or ())
            for term in required.get("nodeSelectorTerms") or ()
            for requirement in term.get("matchExpressions") or ()
            if requirement.get("key") == names.ARCH_KEY and requirement.get("operator") == "In"
        ),
        None,
    )


class Discovery:
    """What the API server serves: its version and the optional groups that operands need; and where their image runs.

    Groups come and go with their CRDs, so they are asked for once a minute. ``cluster`` is None before that.
    """

    def __init__(
        self,
        client: Client,
        changed: Callable[[], None],
        *,
        settings: OperatorSettings,
        images: ImageArchitectures,
        clock: Clock,
    ) -> None:
        self._client = client
        self._changed = changed
        self._settings = settings
        self._clock = clock
        self.images = images
        self.cluster: ClusterCapabilities | None = None
        self.served: frozenset[Resource] = frozenset()
        self.release = ""
        """``gitVersion`` of the API server, such as ``v1.33.2``."""

    async def run(self) -> None:
        """Ask every minute until cancelled; what cannot be read stays as it was."""
        while True:
            await self._clock.sleep(DISCOVERY_INTERVAL)
            try:
                await self.look()
            except KubernetesError as error:
                log.warning("discovery failed", error=str(error))

    async def look(self) -> ClusterCapabilities:
        """Ask once, and call ``changed`` if the answer is another one. Raises ``KubernetesError``."""
        groups = {resource.group for resource in OPTIONAL}
        found = {group: await self._client.discover(group) for group in (OPENSHIFT, *sorted(groups))}
        served = frozenset(kind for kind in OPTIONAL if kind in found[kind.group])
        version = msgspec.json.decode(await self._client.raw("GET", "/version"))
        self.release = str(version.get("gitVersion") or "")
        cluster = ClusterCapabilities(
            openshift=bool(found[OPENSHIFT]),
            monitoring=served >= MONITORING,
            version=version_of(version),
            image_architectures=(
                await self.images.of(self._settings.image) or await self._applied_architectures() or IMAGE_ARCHITECTURES
            ),
        )
        if (cluster, served) != (self.cluster, self.served):
            self.cluster, self.served = cluster, served
            log.info("discovered the cluster", cluster=msgspec.to_builtins(cluster), kinds=sorted(map(str, served)))
            self._changed()
        return cluster

    async def _applied_architectures(self) -> tuple[str, ...] | None:
        settings = self._settings
        workloads = [(settings.namespace, name) for name in (names.PLACEMENT_WEBHOOK, names.TAINTS, names.BUILDER)]
        if settings.numa != "off":  # may be all that is installed; where its other image runs, ours does
            workloads.append((settings.numa_home, SCHEDULER))
        for namespace, name in workloads:
            try:
                deployment = await self._client.get(DEPLOYMENTS, name, namespace=namespace)
            except (NotFound, Forbidden):  # a namespace of its own went with the Role in it
                continue
            if found := applied_architectures(deployment, settings.image):
                return found
        return None


def version_of(answer: dict[str, Any]) -> tuple[int, int]:
    """Major and minor of an answer to ``/version``; some providers write ``30+``."""
    major, minor = (int(re.match(r"\d*", str(answer.get(part, "")))[0] or 0) for part in ("major", "minor"))  # type: ignore[index]  # this pattern matches any text
    return major, minor


class OperatorNamespace:
    """The operator's own namespace: whether it is being deleted, the operator's Deployment, the registries' ConfigMap.

    Its caches are complete when the process has started.
    """

    def __init__(self, process: Process, settings: OperatorSettings) -> None:
        self._settings = settings
        home = settings.namespace
        self._namespaces = process.informer(NAMESPACES, Unstructured, field_selector=f"metadata.name={home}")
        self._own = process.informer(
            DEPLOYMENTS, Unstructured, namespace=home, field_selector=f"metadata.name={names.OPERATOR}"
        )
        self._registries: Informer[Unstructured] | None = None
        if settings.registries_configmap:
            self._registries = process.informer(
                CONFIGMAPS,
                Unstructured,
                namespace=home,
                field_selector=f"metadata.name={settings.registries_configmap}",
            )
        self._checked: tuple[str, tuple[str, ...]] | None = None

    def on_change(self, changed: Callable[[], None]) -> None:
        """Call ``changed`` with every change that a reconcile may have to answer."""

        def handle(_: ObjectChange[Any]) -> None:
            changed()

        for informer in (self._namespaces, self._own, self._registries):
            if informer is not None:
                informer.add_handler(handle)

    @property
    def namespace(self) -> Unstructured | None:
        return self._namespaces.store.get(ObjectKey("", self._settings.namespace))

    @property
    def is_terminating(self) -> bool:
        """The namespace is being deleted, or is gone."""
        namespace = self.namespace
        return namespace is None or namespace.metadata.deletion_timestamp is not None

    @property
    def is_operator_available(self) -> bool:
        """The operator's Deployment has a pod that serves."""
        own = self._own.store.get(ObjectKey(self._settings.namespace, names.OPERATOR))
        return own is not None and own.status.get("availableReplicas", 0) > 0

    @property
    def registries(self) -> str:
        """A digest of the registries' ConfigMap; empty if there is none."""
        found = self._registries_config_map
        if found is None:
            return ""
        content = [found.document.get(field) for field in ("data", "binaryData")]
        return hashlib.blake2b(msgspec.json.encode(content, order="sorted"), digest_size=8).hexdigest()

    @property
    def problems(self) -> tuple[str, ...]:
        """What roles that ask registries would refuse as they start: while there is any, none is changed."""
        digest = self.registries
        if self._checked is None or self._checked[0] != digest:
            self._checked = digest, self._check()
        return self._checked[1]

    def _check(self) -> tuple[str, ...]:
        ranges = registry_settings.wrong_ranges(self._settings.allow_addresses, self._settings.deny_addresses)
        found = self._registries_config_map
        if found is None:
            return ranges
        files, origin = registry_settings.files_in(found.document), f"ConfigMap {found.metadata.key}"
        wrong = registry_settings.wrong_files(files, origin)
        if registry_settings.PROVIDERS in files and not self._settings.provides_credentials:
            nowhere = (
                f"{origin}: {registry_settings.PROVIDERS}: say where its plugins are: --credential-provider-image or "
                "--credential-provider-directory"
            )
            wrong = (*wrong, nowhere)
        return (*ranges, *wrong)

    @property
    def _registries_config_map(self) -> Unstructured | None:
        if self._registries is None:
            return None
        return self._registries.store.get(ObjectKey(self._settings.namespace, self._settings.registries_configmap))
