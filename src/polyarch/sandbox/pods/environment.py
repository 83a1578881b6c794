"""The environment of a container: env, envFrom, fields of its pod, limits (SB-011). Pure.

Kubernetes' rules: ``envFrom`` first, then ``env`` in order; a later one wins; ``$(NAME)`` sees those before it.
"""

import math
import re
from collections.abc import Mapping
from fractions import Fraction
from typing import Final

import msgspec

from polyarch.objects import Secret
from polyarch.sandbox.pods.programs.arguments import expanded
from polyarch.sandbox.pods.spec import ConfigMap, Container, PodDocument, ResourceFieldSelector, ValueFrom

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


class Missing(Exception):  # noqa: N818 - what is wrong
    """Something that the pod needs is not there; the text is a kubelet's."""


class Facts(msgspec.Struct, frozen=True):
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


def references(container: Container) -> tuple[set[str], set[str]]:
    """The names of the ConfigMaps and of the Secrets that the container's environment refers to."""
    values = [each.value_from for each in container.env or () if each.value_from is not None]
    sources = container.env_from or ()
    maps = {value.config_map_key_ref.name for value in values if value.config_map_key_ref is not None}
    secrets = {value.secret_key_ref.name for value in values if value.secret_key_ref is not None}
    return (
        maps | {each.config_map_ref.name for each in sources if each.config_map_ref is not None},
        secrets | {each.secret_ref.name for each in sources if each.secret_ref is not None},
    )


def variables(container: Container, facts: Facts, base: Mapping[str, str]) -> dict[str, str]:
    """All variables of the container on top of ``base``; Missing if a reference that is not optional leads nowhere."""
    found = dict(base)
    for source in container.env_from or ():
        for reference, kind in ((source.config_map_ref, "configmap"), (source.secret_ref, "secret")):
            if reference is None:
                continue
            content = _content(facts, kind, reference.name)
            if content is None and not reference.optional:
                raise Missing(f'{kind} "{reference.name}" not found')
            found |= {source.prefix + key: _text(data) for key, data in (content or {}).items()}
    for variable in container.env or ():
        if variable.value_from is None:
            found[variable.name] = expanded(variable.value, found)
        elif (value := _value(variable.value_from, container, facts)) is not None:
            found[variable.name] = value
    return found


def _value(source: ValueFrom, container: Container, facts: Facts) -> str | None:
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
            raise Missing(f'{kind} "{selector.name}" not found')
        kinds = {"configmap": "ConfigMap", "secret": "Secret"}
        namespace = facts.pod.metadata.namespace
        raise Missing(f"couldn't find key {selector.key} in {kinds[kind]} {namespace}/{selector.name}")
    return None


def _content(facts: Facts, kind: str, name: str) -> Mapping[str, bytes] | None:
    if kind == "configmap":
        found = facts.config_maps.get(name)
        return None if found is None else found.content
    secret = facts.secrets.get(name)
    return None if secret is None else secret_content(secret)


def secret_content(secret: Secret) -> dict[str, bytes]:
    return {key: value or b"" for key, value in (secret.data or {}).items()}


def _text(data: bytes) -> str:
    return data.decode("utf-8", "surrogateescape")


def field(path: str, facts: Facts) -> str:
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
        raise Missing(f"unsupported fieldPath: {path}")
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
