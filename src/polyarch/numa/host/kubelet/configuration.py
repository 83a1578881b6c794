"""KubeletConfiguration: the file, its drop-ins, and what ``/configz`` answers (NE-101, NE-102), as the settings that
decide how a kubelet places containers.

Missing keys mean the kubelet's defaults, an empty value is a missing one. Keys that are of no interest here may hold
anything. This is the one module that reads YAML for an exporter. Pure.

Format: k8s.io/kubelet ``config/v1beta1``; drop-ins: kubernetes.io/docs/reference/node/kubelet-config-directory-merging.
"""

from collections.abc import Iterable, Mapping
from typing import Any, Final, cast, get_args

import msgspec
import yaml

from polyarch.numa.decide.facts import KubeletSettings, TopologyPolicy, TopologyScope

MAX_NUMA_NODES: Final = "max-allowable-numa-nodes"
POD_LEVEL_MANAGERS: Final = "PodLevelResourceManagers"
_LOADER: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


class UnusableConfiguration(ValueError):  # noqa: N818 - the name says what is the matter
    """A configuration that no kubelet would start with, or that is none; the message begins with its place."""


def from_files(main: tuple[str, bytes], drop_ins: Iterable[tuple[str, bytes]] = ()) -> KubeletSettings:
    """The settings of a file and its drop-ins, each as place and content, in the order in which they are merged.

    Raises UnusableConfiguration.
    """
    place, content = main
    merged = _document(place, content)
    for path, patch in drop_ins:
        merged = _merged(merged, _document(path, patch))
    return settings(merged, place=place)


def from_configz(content: bytes) -> KubeletSettings:
    """The settings in an answer of ``/configz``, which shows flags and drop-ins, too. Raises UnusableConfiguration."""
    try:
        found = msgspec.json.decode(content, type=dict[str, Any]).get("kubeletconfig")
    except ValueError as error:
        raise UnusableConfiguration(f"configz: {error}") from None
    if not isinstance(found, dict):
        raise UnusableConfiguration("configz: no kubeletconfig in the answer; is this a kubelet?")
    return settings(found, place="configz")


def chosen(policy: str, scope: str, *, place: str) -> tuple[TopologyPolicy, TopologyScope]:
    """Both values if the kubelet knows them; raises UnusableConfiguration."""
    for key, value, known in (
        ("topologyManagerPolicy", policy, get_args(TopologyPolicy)),
        ("topologyManagerScope", scope, get_args(TopologyScope)),
    ):
        if value not in known:
            raise UnusableConfiguration(f"{place}: {key}: {value!r} is none of {', '.join(known)}")
    return cast("TopologyPolicy", policy), cast("TopologyScope", scope)


def settings(document: Mapping[str, Any], *, place: str) -> KubeletSettings:
    """The settings in a KubeletConfiguration; raises UnusableConfiguration."""
    policy, scope = chosen(
        _text(document, "topologyManagerPolicy", "none", place),
        _text(document, "topologyManagerScope", "container", place),
        place=place,
    )
    options = _options(document, "topologyManagerPolicyOptions", place)
    limit = dict(options).get(MAX_NUMA_NODES)
    if limit is not None and not (limit.isascii() and limit.isdigit()):
        raise UnusableConfiguration(
            f"{place}: topologyManagerPolicyOptions.{MAX_NUMA_NODES}: {limit!r} is not a number of cells"
        )
    return KubeletSettings(
        policy=policy,
        scope=scope,
        max_numa_nodes=None if limit is None else int(limit),
        topology_options=options,
        cpu_manager_policy=_text(document, "cpuManagerPolicy", "none", place),
        cpu_manager_options=_options(document, "cpuManagerPolicyOptions", place),
        memory_manager_policy=_text(document, "memoryManagerPolicy", "None", place),
        pod_level_managers=dict(_options(document, "featureGates", place)).get(POD_LEVEL_MANAGERS) == "true",
        reserves_cpus=bool(_text(document, "reservedSystemCPUs", "", place))
        or any(_reserves(_options(document, key, place)) for key in ("kubeReserved", "systemReserved")),
    )


def manifest(place: str, content: bytes) -> dict[str, Any]:
    """The object that a text of YAML describes, of whatever kind. Raises UnusableConfiguration."""
    try:
        found = yaml.load(content, _LOADER)  # noqa: S506 - safe
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        line = f":{mark.line + 1}" if mark is not None else ""
        raise UnusableConfiguration(f"{place}{line}: {error.problem or error.context}") from None
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise UnusableConfiguration(f"{place}: not YAML ({' '.join(str(error).split())})") from None
    if not isinstance(found, dict):
        raise UnusableConfiguration(f"{place}: expected a KubeletConfiguration, found {_kind(found)}")
    return found


def _document(place: str, content: bytes) -> dict[str, Any]:
    found = manifest(place, content)
    kind = found.get("kind", "KubeletConfiguration")
    if kind != "KubeletConfiguration":
        raise UnusableConfiguration(f"{place}: kind: expected KubeletConfiguration, found {kind!r}")
    return found


def _merged(below: Mapping[str, Any], above: Mapping[str, Any]) -> dict[str, Any]:
    """Maps are merged key by key, everything else is replaced; null removes a key (RFC 7386)."""
    result = dict(below)
    for key, value in above.items():
        if value is None:
            result.pop(key, None)
        elif isinstance(value, dict):
            old = result.get(key)
            result[key] = _merged(old if isinstance(old, dict) else {}, value)
        else:
            result[key] = value
    return result


def _text(document: Mapping[str, Any], key: str, default: str, place: str) -> str:
    value = document.get(key)
    if value is None or value == "":
        return default
    if isinstance(value, bool) or not isinstance(value, str | int):  # 3 is a list of CPUs
        raise UnusableConfiguration(f"{place}: {key}: expected a text, found {_kind(value)}")
    return str(value)


def _options(document: Mapping[str, Any], key: str, place: str) -> tuple[tuple[str, str], ...]:
    """A map of names and values, sorted."""
    found = document.get(key)
    if found is None:
        return ()
    if not isinstance(found, dict):
        raise UnusableConfiguration(f"{place}: {key}: expected a map, found {_kind(found)}")
    return tuple(sorted((str(name), _spelt(value)) for name, value in found.items()))


def _spelt(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _reserves(resources: Iterable[tuple[str, str]]) -> bool:
    """Whether a list of quantities keeps CPUs for the system."""
    amount = dict(resources).get("cpu", "")
    return any(digit in "123456789" for digit in amount)


def _kind(value: object) -> str:
    if value is None:
        return "nothing"
    return {dict: "a map", list: "a list", str: "a text", bool: "true or false"}.get(type(value), "a number")
