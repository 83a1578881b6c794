"""What OpenShift's objects say about registries: mirrors, blocked and insecure hosts, certificates (PL-424, RG-095).

Only where the API group ``config.openshift.io`` is served. The objects are watched, and a change is in force at once,
where a file on the nodes would follow after a roll-out. An object that makes no sense is named in the log and left out;
the others count.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

import msgspec
import structlog

from polyarch.kube.client.client import Client
from polyarch.kube.process.roles import Process
from polyarch.kube.resources import CONFIGMAPS, Resource
from polyarch.kube.runtime.informer import Informer
from polyarch.model.meta import Key, ObjectMeta
from polyarch.oci.mirrors.mirror_objects import registries as mirror_rules
from polyarch.oci.mirrors.registries_conf import Registry
from polyarch.oci.mirrors.toml_files import InvalidConfiguration
from polyarch.oci.transport.addresses import InvalidSetting
from polyarch.placement.operator.objects import TRUSTED_CA
from polyarch.run.registries import Registries

log = structlog.get_logger(__name__)

CONFIG_GROUP: Final = "config.openshift.io"
OPERATOR_GROUP: Final = "operator.openshift.io"
MIRROR_KINDS: Final = ("ImageDigestMirrorSet", "ImageTagMirrorSet", "ImageContentSourcePolicy")
IMAGE_CONFIG: Final = Resource(CONFIG_GROUP, "v1", "images", "Image", namespaced=False)
PULL_SECRET: Final = ("openshift-config", "pull-secret")
TRUSTED_CA_KEY: Final = "ca-bundle.crt"


class Configured(msgspec.Struct, frozen=True, gc=False):
    """Any of these objects: what is in ``spec`` is read by those who know the kind."""

    metadata: ObjectMeta = ObjectMeta()
    spec: dict[str, Any] | None = None


class ConfigMap(msgspec.Struct, frozen=True, gc=False):
    """core/v1 ConfigMap."""

    metadata: ObjectMeta = ObjectMeta()
    data: dict[str, str] | None = None


class OpenShift:
    """Follows the objects into the process's :class:`~polyarch.run.registries.Registries`."""

    def __init__(self, process: Process, served: Iterable[Resource], registries: Registries, *, namespace: str) -> None:
        self._registries = registries
        self._mirrors: list[Informer[Configured]] = [
            process.informer(resource, Configured) for resource in served if resource.kind in MIRROR_KINDS
        ]
        self._image = process.informer(IMAGE_CONFIG, Configured, field_selector="metadata.name=cluster")
        self._rules: tuple[Registry, ...] = ()
        for informer in (*self._mirrors, self._image):
            informer.add_handler(self._changed)
        authority = process.informer(
            CONFIGMAPS, ConfigMap, namespace=namespace, field_selector=f"metadata.name={TRUSTED_CA}"
        )
        authority.add_handler(lambda change: self._trust(change.new))

    @property
    def rules(self) -> tuple[Registry, ...]:
        """What the objects say now."""
        return self._rules

    def _changed(self, _: object) -> None:
        objects = [
            {"kind": informer.resource.kind, "metadata": {"name": each.metadata.name}, "spec": each.spec}
            for informer in self._mirrors
            for each in sorted(informer.store.values(), key=lambda each: each.metadata.name)
        ]
        image = self._image.store.get(Key("", "cluster"))
        rules = registry_rules(objects, (image.spec if image is not None else None) or {})
        if rules != self._rules:
            self._rules = rules
            self._registries.use(rules)
            log.info("the cluster's registry configuration is in force", rules=len(rules))

    def _trust(self, authority: ConfigMap | None) -> None:
        certificates = (authority.data or {}).get(TRUSTED_CA_KEY, "") if authority is not None else ""
        try:
            self._registries.trust(certificates)
        except InvalidSetting as error:
            log.warning(
                "the trusted certificates of the cluster cannot be used", config_map=TRUSTED_CA, error=str(error)
            )


async def served_by(client: Client) -> tuple[Resource, ...]:
    """The resources of OpenShift that matter here; empty on any other Kubernetes."""
    configuration = await client.discover(CONFIG_GROUP)
    if not configuration:
        return ()
    found: dict[str, Resource] = {}
    for resource in (*configuration, *await client.discover(OPERATOR_GROUP)):
        if resource.kind in (*MIRROR_KINDS, IMAGE_CONFIG.kind):
            found.setdefault(resource.kind, resource)  # the preferred version comes first
    return tuple(found.values())


def registry_rules(mirrors: Sequence[Mapping[str, Any]], image_spec: Mapping[str, Any]) -> tuple[Registry, ...]:
    """Mirror objects, and ``spec.registrySources`` of the image configuration, as rules of a ``registries.conf``."""
    usable = [each for each in mirrors if _makes_sense(each)]
    rules = {rule.prefix: rule for rule in mirror_rules(usable)}
    sources = image_spec.get("registrySources") or {}
    insecure, blocked = sources.get("insecureRegistries") or (), sources.get("blockedRegistries") or ()
    for scope in (*insecure, *blocked):
        rules.setdefault(
            scope, Registry(scope, "" if scope.startswith("*.") else scope, origin="images.config/cluster")
        )
    for prefix, rule in rules.items():
        rules[prefix] = msgspec.structs.replace(
            rule,
            insecure=rule.insecure or _covered(rule.location or prefix, insecure),
            blocked=rule.blocked or prefix in blocked,
            mirrors=tuple(
                msgspec.structs.replace(mirror, insecure=mirror.insecure or _covered(mirror.location, insecure))
                for mirror in rule.mirrors
            ),
        )
    return tuple(rules.values())


def _makes_sense(mirror: Mapping[str, Any]) -> bool:
    try:
        mirror_rules([mirror])
    except InvalidConfiguration as error:
        log.warning("a mirror object is not used", error=str(error))
        return False
    return True


def _covered(location: str, scopes: Iterable[str]) -> bool:
    """Whether a scope of the image configuration (host, host with path, ``*.domain``) covers this place."""
    host = location.partition("/")[0]
    return any(
        host.endswith(scope[1:]) and len(host) > len(scope) - 1
        if scope.startswith("*.")
        else location == scope or location.startswith(f"{scope}/")
        for scope in scopes
    )
