"""How the Operator Lifecycle Manager changes an operator's pods where a subscription configures them.

``spec.config`` of a Subscription and ``spec.config.inline.deploymentConfig`` of a ClusterExtension override affinity,
node selector and tolerations of a bundle's deployments, but not of pods that the operator creates later. Node
affinity is replaced as a whole, so an override written for another reason silently removes an architecture
constraint. An empty ``podAntiAffinity`` removes the whole affinity, which is not documented (see
``OVERRIDDEN_AS_A_WHOLE``).

Other members of a config (env, volumes, resources) do not affect scheduling and are ignored.

Pure: values in, values out; the arguments are not changed.
"""

from collections.abc import Mapping
from typing import Any, Literal

Behaviour = Literal["olm", "documented"]

OVERRIDDEN_AS_A_WHOLE = "podAntiAffinity"
"""``{}`` here removes the whole affinity in OLM, not just this attribute."""

ATTRIBUTES = ("nodeAffinity", "podAffinity", OVERRIDDEN_AS_A_WHOLE)
_EXTENSION_PATH = ("spec", "config", "inline", "deploymentConfig")
_SUBSCRIPTION_PATH = ("spec", "config")


class InvalidConfig(ValueError):  # noqa: N818 - reads as a noun
    """A config that OLM could not decode; ``member`` is the dotted name of the member with the wrong type."""

    def __init__(self, member: str, expected: str, value: object) -> None:
        super().__init__(f"{member} is {_kind_of(value)}; expected {expected}")
        self.member = member


def config_path(kind: str) -> tuple[str, ...] | None:
    """The path of the config in an object of this kind; None for other kinds."""
    return {"Subscription": _SUBSCRIPTION_PATH, "ClusterExtension": _EXTENSION_PATH}.get(kind)


def config_of(document: Mapping[str, Any]) -> Mapping[str, Any]:
    """The config of a Subscription or ClusterExtension, empty if it has none; raises :class:`InvalidConfig`."""
    kind = document.get("kind")
    path = config_path(kind) if isinstance(kind, str) else None
    if path is None:
        raise InvalidConfig("kind", "Subscription or ClusterExtension", kind)
    value: Any = document
    for depth, segment in enumerate(path):
        value = _mapping(value.get(segment), ".".join(path[: depth + 1]))
    found: Mapping[str, Any] = value
    return found


def apply_config(
    pod_spec: Mapping[str, Any], config: Mapping[str, Any], *, behaviour: Behaviour = "olm"
) -> dict[str, Any]:
    """The pod specification that OLM deploys; raises :class:`InvalidConfig`.

    ``behaviour="documented"`` ignores the exception that an empty ``podAntiAffinity`` removes the whole affinity.
    """
    result = dict(pod_spec)
    override = _mapping_or_none(config.get("affinity"), "affinity")
    if override is not None:
        affinity = _affinity(_mapping(pod_spec.get("affinity"), "affinity of the pod"), override, behaviour)
        if affinity:
            result["affinity"] = affinity
        else:
            result.pop("affinity", None)
    selector = _mapping_or_none(config.get("nodeSelector"), "nodeSelector")
    if selector is not None:
        result["nodeSelector"] = dict(selector)
    added = _list(config.get("tolerations"), "tolerations")
    if added:
        before = _list(pod_spec.get("tolerations"), "tolerations of the pod")
        known = [_without_nulls(each) for each in before]
        result["tolerations"] = [*before, *(each for each in added if _without_nulls(each) not in known)]
    return result


def exception_applies(pod_spec: Mapping[str, Any], config: Mapping[str, Any]) -> bool:
    """Whether it matters that, against OLM's documentation, an empty ``podAntiAffinity`` removes other affinity."""
    as_it_is = apply_config(pod_spec, config)
    return as_it_is.get("affinity") != apply_config(pod_spec, config, behaviour="documented").get("affinity")


def _affinity(own: Mapping[str, Any], override: Mapping[str, Any], behaviour: Behaviour) -> dict[str, Any]:
    """The affinity after the override; empty where none is left."""
    present = {
        attribute: _without_nulls(_mapping(override[attribute], f"affinity.{attribute}"))
        for attribute in ATTRIBUTES
        if override.get(attribute) is not None
    }
    kept = {key: value for key, value in own.items() if value is not None}
    if not kept or not present:
        return present
    for attribute, value in present.items():
        if value:
            kept[attribute] = value
        elif attribute == OVERRIDDEN_AS_A_WHOLE and behaviour == "olm":
            return {}
        else:
            kept.pop(attribute, None)
    return kept


def _mapping_or_none(value: object, member: str) -> Mapping[str, Any] | None:
    return None if value is None else _mapping(value, member)


def _mapping(value: object, member: str) -> Mapping[str, Any]:
    """A mapping; null and absent are empty."""
    if value is None:
        return {}
    if not isinstance(value, Mapping):
        raise InvalidConfig(member, "a mapping", value)
    return value


def _list(value: object, member: str) -> list[Any]:
    if value is None:
        return []
    if not isinstance(value, list):
        raise InvalidConfig(member, "a list", value)
    for index, each in enumerate(value):
        if not isinstance(each, Mapping):
            raise InvalidConfig(f"{member}[{index}]", "a mapping", each)
    return value


def _without_nulls(value: Mapping[str, Any]) -> dict[str, Any]:
    return {key: member for key, member in value.items() if member is not None}


def _kind_of(value: object) -> str:
    names = {dict: "a mapping", list: "a list", str: "a string", bool: "a boolean", type(None): "missing"}
    return names.get(type(value), "a number" if isinstance(value, int | float) else type(value).__name__)
