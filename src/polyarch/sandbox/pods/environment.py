"""The environment variables of a container and the files in a pod's volumes, made from objects. Pure.

Kubernetes' rules: ``envFrom`` first, then ``env`` in order; a later one wins; ``$(NAME)`` sees those before it. Volumes
of one ConfigMap, Secret or downwardAPI are treated as a projection of this one source.
"""

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from fractions import Fraction
from pathlib import PurePosixPath
from typing import Final

import msgspec

from polyarch.objects import Secret
from polyarch.sandbox.pods.programs import expanded
from polyarch.sandbox.pods.spec import (
    ConfigMap,
    Container,
    DownwardVolume,
    KeyToPath,
    PodDocument,
    ResourceFieldSelector,
    SecretProjection,
    Source,
    TokenProjection,
    ValueFrom,
    Volume,
)

NODE_LIMITS: Final = {"cpu": "16", "memory": "64Gi", "ephemeral-storage": "100Gi"}
"""What a container without a limit is told: the node's capacity."""
_SUBSCRIPT: Final = re.compile(r"metadata\.(labels|annotations)\['(.+)'\]")
_SUFFIXES: Final = {
    "n": Fraction(1, 10**9),
    "u": Fraction(1, 10**6),
    "m": Fraction(1, 1000),
    "": Fraction(1),
    **{letter: Fraction(1000**power) for power, letter in enumerate(("k", "M", "G", "T", "P", "E"), 1)},
    **{f"{letter}i": Fraction(1024**power) for power, letter in enumerate(("K", "M", "G", "T", "P", "E"), 1)},
}


class MissingReference(Exception):  # noqa: N818 - what is wrong
    """Something that the pod needs is not there; the text is a kubelet's."""


class ContainerFacts(msgspec.Struct, frozen=True):
    """What a pod's environment and files are made of."""

    pod: PodDocument
    pod_address: str
    """The loopback address on which its processes listen."""
    host_address: str
    """The one on which its node's kubelet does."""
    config_maps: Mapping[str, ConfigMap] = {}
    """Of the pod's namespace, by name; those that exist."""
    secrets: Mapping[str, Secret] = {}
    tokens: Mapping[tuple[str, int], str] = {}
    """ServiceAccount tokens by audience and lifetime."""


def variable_references(container: Container) -> tuple[set[str], set[str]]:
    """The names of the ConfigMaps and of the Secrets that the container's environment refers to."""
    values = [each.value_from for each in container.env or () if each.value_from is not None]
    sources = container.env_from or ()
    maps = {value.config_map_key_ref.name for value in values if value.config_map_key_ref is not None}
    secrets = {value.secret_key_ref.name for value in values if value.secret_key_ref is not None}
    return (
        maps | {each.config_map_ref.name for each in sources if each.config_map_ref is not None},
        secrets | {each.secret_ref.name for each in sources if each.secret_ref is not None},
    )


def environment_variables(container: Container, facts: ContainerFacts, base: Mapping[str, str]) -> dict[str, str]:
    """All variables of the container on top of ``base``; MissingReference if a reference that is not optional leads
    nowhere.
    """
    found = dict(base)
    for source in container.env_from or ():
        for reference, kind in ((source.config_map_ref, "configmap"), (source.secret_ref, "secret")):
            if reference is None:
                continue
            content = _content(facts, kind, reference.name)
            if content is None and not reference.optional:
                raise MissingReference(f'{kind} "{reference.name}" not found')
            found |= {source.prefix + key: _text(data) for key, data in (content or {}).items()}
    for variable in container.env or ():
        if variable.value_from is None:
            found[variable.name] = expanded(variable.value, found)
        elif (value := _value(variable.value_from, container, facts)) is not None:
            found[variable.name] = value
    return found


def _value(source: ValueFrom, container: Container, facts: ContainerFacts) -> str | None:
    """None: an optional key that is not there."""
    if source.field_ref is not None:
        return field(source.field_ref.field_path, facts)
    if source.resource_field_ref is not None:
        return resource(source.resource_field_ref, facts.pod, container)
    for selector, kind in ((source.config_map_key_ref, "configmap"), (source.secret_key_ref, "secret")):
        if selector is None:
            continue
        content = _content(facts, kind, selector.name)
        if content is not None and selector.key in content:
            return _text(content[selector.key])
        if selector.optional:
            return None
        if content is None:
            raise MissingReference(f'{kind} "{selector.name}" not found')
        kinds = {"configmap": "ConfigMap", "secret": "Secret"}
        namespace = facts.pod.metadata.namespace
        raise MissingReference(f"couldn't find key {selector.key} in {kinds[kind]} {namespace}/{selector.name}")
    return None


def _content(facts: ContainerFacts, kind: str, name: str) -> Mapping[str, bytes] | None:
    if kind == "configmap":
        found = facts.config_maps.get(name)
        return None if found is None else found.content
    secret = facts.secrets.get(name)
    return None if secret is None else secret_content(secret)


def secret_content(secret: Secret) -> dict[str, bytes]:
    return {key: value or b"" for key, value in (secret.data or {}).items()}


def _text(data: bytes) -> str:
    return data.decode("utf-8", "surrogateescape")


def field(path: str, facts: ContainerFacts) -> str:
    """The value of ``fieldRef.fieldPath``. Addresses of the pod and its host are loopback ones, on which it
    can listen and reach its kubelet."""
    metadata, spec = facts.pod.metadata, facts.pod.spec
    if (match := _SUBSCRIPT.fullmatch(path)) is not None:
        values = metadata.labels if match[1] == "labels" else metadata.annotations
        return (values or {}).get(match[2], "")
    known = {
        "metadata.name": metadata.name,
        "metadata.namespace": metadata.namespace,
        "metadata.uid": metadata.uid,
        "metadata.labels": _lines(metadata.labels),
        "metadata.annotations": _lines(metadata.annotations),
        "spec.nodeName": spec.node_name,
        "spec.serviceAccountName": spec.service_account_name,
        "status.podIP": facts.pod_address,
        "status.podIPs": facts.pod_address,
        "status.hostIP": facts.host_address,
        "status.hostIPs": facts.host_address,
    }
    if path not in known:
        raise MissingReference(f"unsupported fieldPath: {path}")
    return known[path]


def _lines(values: Mapping[str, str] | None) -> str:
    quoted = (f'{key}="{value}"' for key, value in sorted((values or {}).items()))
    return "\n".join(quoted)


def resource(selector: ResourceFieldSelector, pod: PodDocument, container: Container | None = None) -> str:
    """The value of a ``resourceFieldRef``, rounded up to whole divisors."""
    if selector.container_name or container is None:
        container = pod.container(selector.container_name)
    kind, _, name = selector.resource.partition(".")
    limits, requests = container.resources.limits or {}, container.resources.requests or {}
    found = limits.get(name, NODE_LIMITS.get(name, "0")) if kind == "limits" else requests.get(name, "0")
    return str(math.ceil(quantity(found) / (quantity(selector.divisor) or 1)))


def quantity(text: str | int) -> Fraction:
    """A Kubernetes quantity: ``500m``, ``1.5Gi``, ``1e3``; ValueError for anything else."""
    match = re.fullmatch(r"([+-]?[0-9.]+)(?:([eE][+-]?[0-9]+)|([numkMGTPE]|[KMGTPE]i)?)", str(text))
    if match is None:
        raise ValueError(f"{text!r} is not a quantity")
    return Fraction(match[1] + (match[2] or "")) * _SUFFIXES[match[3] or ""]


# -- volumes -----------------------------------------------------------------------------------------------------------


DEFAULT_MODE = 0o644


class File(msgspec.Struct, frozen=True):
    """A file of a volume: its content and mode."""

    content: bytes
    mode: int = DEFAULT_MODE

    def __repr__(self) -> str:
        return f"File({len(self.content)} bytes, {self.mode:o})"


def projection(volume: Volume) -> tuple[Sequence[Source], int] | None:
    """The volume's sources and the mode of its files; None if the API server's objects do not fill it."""
    if (projected := volume.projected) is not None:
        return projected.sources or (), projected.default_mode or DEFAULT_MODE
    if (config_map := volume.config_map) is not None:
        return (Source(config_map=config_map),), config_map.default_mode or DEFAULT_MODE
    if (secret := volume.secret) is not None:
        one = SecretProjection(secret.secret_name, secret.items, secret.optional)
        return (Source(secret=one),), secret.default_mode or DEFAULT_MODE
    if (downward := volume.downward_api) is not None:
        return (Source(downward_api=downward),), downward.default_mode or DEFAULT_MODE
    return None


def _sources(pod: PodDocument) -> Iterator[Source]:
    for volume in pod.spec.volumes or ():
        found = projection(volume)
        yield from found[0] if found is not None else ()


def volume_references(pod: PodDocument) -> tuple[set[str], set[str]]:
    """The names of the ConfigMaps and of the Secrets that are mounted."""
    found = list(_sources(pod))
    return (
        {each.config_map.name for each in found if each.config_map is not None},
        {each.secret.name for each in found if each.secret is not None},
    )


def tokens(pod: PodDocument) -> list[TokenProjection]:
    """The tokens that are mounted."""
    return [each.service_account_token for each in _sources(pod) if each.service_account_token is not None]


def token_path(pod: PodDocument) -> tuple[str, str] | None:
    """(volume, path) of the first token for the API server itself; None if the pod has none."""
    for volume in pod.spec.volumes or ():
        found = projection(volume)
        for source in found[0] if found is not None else ():
            if (token := source.service_account_token) is not None and not token.audience:
                return volume.name, token.path
    return None


def volume_files(volume: Volume, facts: ContainerFacts) -> dict[str, File]:
    """The volume's files by path; MissingReference if a source that is not optional is not there."""
    found = projection(volume)
    result: dict[str, File] = {}
    for source in found[0] if found is not None else ():
        mode = found[1] if found is not None else DEFAULT_MODE
        result |= {_inside(path): file for path, file in _files(source, facts, mode).items()}
    return result


def _files(source: Source, facts: ContainerFacts, mode: int) -> dict[str, File]:
    if (one := source.config_map) is not None:
        config_map = facts.config_maps.get(one.name)
        content = None if config_map is None else config_map.content
        return _selected("configmap", one.name, content, one.items, mode, optional=bool(one.optional))
    if (other := source.secret) is not None:
        secret = facts.secrets.get(other.name)
        content = None if secret is None else secret_content(secret)
        return _selected("secret", other.name, content, other.items, mode, optional=bool(other.optional))
    if (token := source.service_account_token) is not None:
        # A kubelet gives tokens mode 0600 to the pod's user; here there is one user.
        return {token.path: File(facts.tokens[token.audience, token.expiration_seconds].encode(), 0o600)}
    if (downward := source.downward_api) is not None:
        return _downward(downward, facts, mode)
    return {}


def _selected(
    kind: str,
    name: str,
    content: Mapping[str, bytes] | None,
    items: Sequence[KeyToPath] | None,
    mode: int,
    *,
    optional: bool,
) -> dict[str, File]:
    if content is None and not optional:
        raise MissingReference(f'{kind} "{name}" not found')
    content = content or {}
    if not items:
        return {key: File(data, mode) for key, data in content.items()}
    chosen: dict[str, File] = {}
    for item in items:
        if item.key in content:
            chosen[item.path] = File(content[item.key], item.mode or mode)
        elif not optional:
            raise MissingReference(f"{kind} references non-existent {kind} key: {item.key}")
    return chosen


def _downward(volume: DownwardVolume, facts: ContainerFacts, mode: int) -> dict[str, File]:
    found: dict[str, File] = {}
    for item in volume.items or ():
        if item.field_ref is not None:
            text = field(item.field_ref.field_path, facts)
        elif item.resource_field_ref is not None:
            text = resource(item.resource_field_ref, facts.pod)
        else:
            continue
        found[item.path] = File(text.encode(), item.mode or mode)
    return found


def _inside(path: str) -> str:
    """The API server refuses ``..`` in such paths; checked again, because we write to this machine's disk."""
    if PurePosixPath(path).is_absolute() or ".." in PurePosixPath(path).parts:
        raise MissingReference(f"path {path!r} leads out of the volume")
    return path
