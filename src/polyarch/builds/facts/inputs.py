"""ConfigMaps and Secrets that a build names: what may be known of them (BD-064, BD-073).

Of a Secret nothing leaves this module but its type, its keys, and keyed hashes of its values; messages never quote it.
"""

import base64
import binascii
import hashlib
import hmac
from collections.abc import Iterator, Mapping
from typing import Any, Final, NamedTuple

import msgspec

from polyarch.builds.api.resources import ImageBuildSpec
from polyarch.builds.facts.facts import SecretFacts
from polyarch.objects import DOCKER_CONFIG, DOCKER_CONFIG_JSON, Namespace, ObjectMeta
from polyarch.oci.auth.entries import MalformedDocument, read_object

DOCUMENTS: Final[Mapping[str, str]] = {DOCKER_CONFIG_JSON: ".dockerconfigjson", DOCKER_CONFIG: ".dockercfg"}
"""Types of Secrets that hold registry credentials → the key of their document."""
ENFORCE_LABEL: Final = "pod-security.kubernetes.io/enforce"
_LEVELS: Final = frozenset({"baseline", "restricted"})


class ConfigMapObject(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """What builds read of a core/v1 ConfigMap."""

    metadata: ObjectMeta = ObjectMeta()
    data: dict[str, str] | None = None
    binary_data: dict[str, str] | None = None
    """In base64, as it stands in the key of a context."""


class SecretObject(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """What builds read of a core/v1 Secret; ``data`` is in base64, so that what cannot be decoded can be named."""

    metadata: ObjectMeta = ObjectMeta()
    type: str = ""
    data: dict[str, str | None] | None = None
    string_data: dict[str, str] | None = None
    """In files only: the API server keeps it as ``data``."""

    def __repr__(self) -> str:
        return f"SecretObject({self.metadata.key})"


class Named(NamedTuple):
    """Objects that a spec names, in its own namespace."""

    config_maps: frozenset[str]
    secrets: frozenset[str]
    keyed_secrets: frozenset[str] = frozenset()
    """Build secrets with ``rebuildOnChange``: their bytes are part of the key (BD-073)."""
    registry_secrets: tuple[str, ...] = ()
    """Those with which registries are asked, the push secret first."""


def named_by(spec: ImageBuildSpec) -> Named:
    """Everything that has to be read before the effective inputs are known or a Job is made."""
    output = spec.output
    keyed = (each.secret.name for each in spec.source.secrets or () if each.rebuild_on_change)
    registries = (each.name for each in (output.push_secret, *(output.pull_secrets or ())) if each is not None)
    return Named(
        config_maps=frozenset(each for each in _config_maps(spec) if each),
        secrets=frozenset(each for each in _secrets(spec) if each),
        keyed_secrets=frozenset(each for each in keyed if each),
        registry_secrets=tuple(dict.fromkeys(each for each in registries if each)),
    )


def config_map_data(config_map: ConfigMapObject) -> dict[str, Any]:
    """``data`` and ``binaryData``, those that are there."""
    parts = {"data": config_map.data, "binaryData": config_map.binary_data}
    return {name: dict(part) for name, part in parts.items() if part}


def secret_facts(secret: SecretObject, key: bytes) -> SecretFacts:
    """The facts of a Secret; ``key`` is the role's random one. Without a key there are no fingerprints."""
    values: dict[str, bytes] = {}
    invalid = ""
    for name, text in sorted((secret.data or {}).items()):
        try:
            values[name] = base64.b64decode(text or "", validate=True)
        except (binascii.Error, ValueError):
            invalid = invalid or f"data[{name}] is not base64"
    values.update((name, text.encode()) for name, text in (secret.string_data or {}).items())
    return SecretFacts(
        type=secret.type or "Opaque",
        resource_version=secret.metadata.resource_version,
        keys=frozenset(values),
        fingerprints={name: fingerprint(value, key) for name, value in sorted(values.items())} if key else {},
        invalid=invalid or _problem(secret.type, values),
    )


def fingerprint(value: bytes, key: bytes) -> str:
    """HMAC-SHA-256 in hex (BD-073)."""
    return hmac.new(key, value, hashlib.sha256).hexdigest()


def pod_security(namespace: Namespace | None) -> str:
    """The level that a namespace enforces, empty where it enforces nothing that forbids builds (BD-153)."""
    labels = namespace.metadata.labels if namespace is not None else None
    level = (labels or {}).get(ENFORCE_LABEL, "")
    return level if level in _LEVELS else ""


def _problem(type: str, values: Mapping[str, bytes]) -> str:
    """Why registry credentials cannot be read."""
    name = DOCUMENTS.get(type)
    if name is None:
        return ""
    if not values.get(name):
        return f"it is of type {type} and has no {name}"
    try:
        document = read_object(values[name])
    except MalformedDocument as error:
        return f"its {name} cannot be read: {error}"
    if type == DOCKER_CONFIG_JSON and not isinstance(document.get("auths", {}), Mapping):
        return f"its {name} has 'auths' that is not an object"
    return ""


def _config_maps(spec: ImageBuildSpec) -> Iterator[str]:
    source = spec.source
    for place in (source, *(source.overrides or ())):
        if place.containerfile_from is not None:
            yield place.containerfile_from.name
    if source.context.type == "ConfigMap" and source.context.config_map is not None:
        yield source.context.config_map.name


def _secrets(spec: ImageBuildSpec) -> Iterator[str]:
    source, output = spec.source, spec.output
    for secret in source.secrets or ():
        yield secret.secret.name
    if source.context.type == "Git" and source.context.git is not None and source.context.git.credentials is not None:
        yield source.context.git.credentials.name
    if output.push_secret is not None:
        yield output.push_secret.name
    for pull in output.pull_secrets or ():
        yield pull.name
