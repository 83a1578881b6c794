"""Registry configuration from OpenShift's objects: mirrors, blocked and insecure hosts, CAs (PL-424, RG-095).

It applies where the API group ``config.openshift.io`` is served. The objects are watched and a change takes effect at
once, while the nodes' own files change only after a roll-out. An invalid object is logged and ignored.
"""

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final

import msgspec
import structlog

from polyarch.kube.client import Client
from polyarch.kube.informer import Informer
from polyarch.kube.manager import Process
from polyarch.kube.requests import Selection
from polyarch.kube.resources import CONFIGMAPS, Resource
from polyarch.names import CONFIG_HOME, TRUSTED_CA
from polyarch.objects import Key, ObjectMeta
from polyarch.oci.mirrors.mirror_objects import registries as mirror_rules
from polyarch.oci.mirrors.registries_conf import Registry, check_location, without_port
from polyarch.oci.mirrors.toml_files import InvalidConfiguration
from polyarch.oci.transport.addresses import InvalidSetting
from polyarch.oci.transport.tls import check_certificates
from polyarch.run.parts.registries import Registries

log = structlog.get_logger(__name__)

CONFIG_GROUP: Final = "config.openshift.io"
OPERATOR_GROUP: Final = "operator.openshift.io"
MIRROR_KINDS: Final = ("ImageDigestMirrorSet", "ImageTagMirrorSet", "ImageContentSourcePolicy")
IMAGE_CONFIG: Final = Resource(CONFIG_GROUP, "v1", "images", "Image", namespaced=False)
PULL_SECRET: Final = (CONFIG_HOME, "pull-secret")
TRUSTED_CA_KEY: Final = "ca-bundle.crt"


class Configured(msgspec.Struct, frozen=True, gc=False):
    """An object of any of these kinds; ``spec`` stays a document."""

    metadata: ObjectMeta = ObjectMeta()
    spec: dict[str, Any] | None = None


class ConfigMap(msgspec.Struct, frozen=True, gc=False):
    """core/v1 ConfigMap."""

    metadata: ObjectMeta = ObjectMeta()
    data: dict[str, str] | None = None


class OpenShift:
    """Watches the objects and applies them to the process's :class:`~polyarch.run.parts.registries.Registries`.

    ``search_short_names`` is called with whether the nodes search registries for short names.
    """

    def __init__(
        self,
        process: Process,
        served: Iterable[Resource],
        registries: Registries,
        *,
        search_short_names: Callable[[bool], None],
    ) -> None:
        self._process = process
        self._registries = registries
        self._search_short_names = search_short_names
        self._mirrors: list[Informer[Configured]] = [
            process.informer(resource, Configured) for resource in served if resource.kind in MIRROR_KINDS
        ]
        self._image = process.informer(IMAGE_CONFIG, Configured, field_selector="metadata.name=cluster")
        self._rules: tuple[Registry, ...] = ()
        self._search: tuple[str, ...] = ()
        for informer in (*self._mirrors, self._image):
            informer.add_handler(self._changed)
        authority = process.informer(
            CONFIGMAPS, ConfigMap, namespace=process.settings.namespace, field_selector=f"metadata.name={TRUSTED_CA}"
        )
        authority.add_handler(lambda change: self._trust(change.new))
        self._certificates = ""
        self._host_certificates: dict[str, str] = {}
        self._wanted = ""
        self._wants_other = asyncio.Event()

    @property
    def rules(self) -> tuple[Registry, ...]:
        """The rules of the present objects."""
        return self._rules

    @property
    def problems(self) -> list[str]:
        """Always empty: the shared informers report their own problems, and readiness does not depend on certificates
        for single hosts, which may not exist or not be readable."""
        return []

    async def synced(self) -> None:
        """Returns at once; see ``problems``."""

    async def run(self) -> None:
        """Watch the ConfigMap that the image configuration names at the time, until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            while True:
                self._wants_other.clear()
                following = tasks.create_task(self._follow(self._wanted), name="follow additional CAs")
                await self._wants_other.wait()
                following.cancel()
                await asyncio.wait([following])
                self._trust_hosts(None)

    async def _follow(self, name: str) -> None:
        if not name:
            return
        selection = Selection(namespace=CONFIG_HOME, field_selector=f"metadata.name={name}")
        process = self._process
        informer = Informer(process.client, CONFIGMAPS, ConfigMap, selection=selection, clock=process.clock)
        informer.add_handler(lambda change: self._trust_hosts(change.new))
        await informer.run()

    def _changed(self, _: object) -> None:
        objects = [
            {"kind": informer.resource.kind, "metadata": {"name": each.metadata.name}, "spec": each.spec}
            for informer in self._mirrors
            for each in sorted(informer.store.values(), key=lambda each: each.metadata.name)
        ]
        image = self._image.store.get(Key("", "cluster"))
        spec = (image.spec if image is not None else None) or {}
        wanted = (spec.get("additionalTrustedCA") or {}).get("name", "")
        if wanted != self._wanted:
            self._wanted = wanted
            self._wants_other.set()
        rules, search = registry_rules(objects, spec), search_registries(spec)
        if (rules, search) != (self._rules, self._search):
            self._rules, self._search = rules, search
            self._registries.use(rules, search=search)
            self._search_short_names(bool(search))
            log.info("registry configuration of the cluster applied", rules=len(rules), search=search)

    def _trust(self, authority: ConfigMap | None) -> None:
        certificates = (authority.data or {}).get(TRUSTED_CA_KEY, "") if authority is not None else ""
        if certificates and not _are_certificates(certificates, TRUSTED_CA):
            return
        self._certificates = certificates
        self._registries.trust(self._certificates, hosts=self._host_certificates)

    def _trust_hosts(self, authorities: ConfigMap | None) -> None:
        found = host_certificates(authorities.data or {} if authorities is not None else {})
        if found != self._host_certificates:
            self._host_certificates = found
            self._registries.trust(self._certificates, hosts=self._host_certificates)


async def served_by(client: Client) -> tuple[Resource, ...]:
    """The OpenShift resources to watch; empty on any other Kubernetes."""
    configuration = await client.discover(CONFIG_GROUP)
    if not configuration:
        return ()
    found: dict[str, Resource] = {}
    for resource in (*configuration, *await client.discover(OPERATOR_GROUP)):
        if resource.kind in (*MIRROR_KINDS, IMAGE_CONFIG.kind):
            found.setdefault(resource.kind, resource)  # the preferred version comes first
    return tuple(found.values())


def registry_rules(mirrors: Sequence[Mapping[str, Any]], image_spec: Mapping[str, Any]) -> tuple[Registry, ...]:
    """Mirror objects and ``spec.registrySources`` of the image configuration, as rules of a ``registries.conf``.

    As on the nodes, only the most specific rule applies to an image, so the settings of a scope are copied to the rules
    and mirrors inside it. A host without a port matches every port (PL-424).
    """
    usable = [each for each in mirrors if _makes_sense(each)]
    rules = {rule.prefix: rule for rule in mirror_rules(usable)}
    sources = image_spec.get("registrySources") or {}
    insecure, blocked = (_scopes(sources, field) for field in ("insecureRegistries", "blockedRegistries"))
    for scope in (*insecure, *blocked):
        rules.setdefault(
            scope, Registry(scope, "" if scope.startswith("*.") else scope, origin="images.config/cluster")
        )
    return tuple(
        msgspec.structs.replace(
            rule,
            insecure=rule.insecure or _covered(prefix, insecure),
            blocked=rule.blocked or _covered(prefix, blocked),
            mirrors=tuple(
                msgspec.structs.replace(mirror, insecure=mirror.insecure or _covered(mirror.location, insecure))
                for mirror in rule.mirrors
            ),
            every_port=True,
        )
        for prefix, rule in rules.items()
    )


def search_registries(image_spec: Mapping[str, Any]) -> tuple[str, ...]:
    """The registries that nodes search for short names, in order; empty: Docker Hub (PL-424)."""
    return tuple(_scopes(image_spec.get("registrySources") or {}, "containerRuntimeSearchRegistries"))


def host_certificates(data: Mapping[str, str]) -> dict[str, str]:
    """``additionalTrustedCA``: PEM by ``host[:port]``. Keys of a ConfigMap cannot contain a colon; they have two dots
    before the port instead."""
    return {
        key.replace("..", ":"): certificates
        for key, certificates in data.items()
        if _are_certificates(certificates, f"additionalTrustedCA {key}")
    }


def _are_certificates(text: str, where: str) -> bool:
    try:
        check_certificates(text)
    except InvalidSetting as error:
        log.warning("ignoring trusted certificates of the cluster", where=where, error=str(error))
        return False
    return True


def _makes_sense(mirror: Mapping[str, Any]) -> bool:
    try:
        mirror_rules([mirror])
    except InvalidConfiguration as error:
        log.warning("ignoring a mirror object", error=str(error))
        return False
    return True


def _scopes(sources: Mapping[str, Any], field: str) -> list[str]:
    found = []
    for scope in sources.get(field) or ():
        try:
            found.append(check_location(scope))
        except ValueError as error:
            log.warning("ignoring a registry of images.config/cluster", field=field, error=str(error))
    return found


def _covered(place: str, scopes: Iterable[str]) -> bool:
    """Whether a scope (host, host with path, ``*.domain``) covers this prefix or location."""
    host = without_port(place.partition("/")[0])
    return any(
        place == scope or place.startswith(f"{scope}/") or (scope.startswith("*.") and host.endswith(scope[1:]))
        for scope in scopes
    )
