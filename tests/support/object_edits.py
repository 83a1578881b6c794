"""Edits that somebody may make to an object: of every list, map and scalar of it, as JSON patches. Pure."""

import copy
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from polyarch.kube.patches import Operation, add, pointer, remove, replace

Json = dict[str, Any]
LEFT_OUT = ("status", "apiVersion", "kind")
OF_METADATA = ("labels", "annotations", "ownerReferences", "finalizers")
FOREIGN: Mapping[str, Json] = {
    "Service": {
        "spec": {"externalIPs": ["192.0.2.1"], "sessionAffinity": "ClientIP", "externalName": "a.example.com"},
    },
    "Deployment": {
        "spec": {"minReadySeconds": 7, "paused": True},
        "spec/template/spec": {
            "hostNetwork": True,
            "hostAliases": [{"ip": "192.0.2.1", "hostnames": ["a"]}],
            "dnsPolicy": "Default",
            "nodeName": "nowhere",
            "schedulerName": "other",
            "initContainers": [{"name": "more", "image": "registry.invalid/more:1"}],
            "shareProcessNamespace": True,
            "runtimeClassName": "other",
            "activeDeadlineSeconds": 5,
        },
        "spec/template/spec/containers/0": {"args": ["--no"], "stdin": True, "workingDir": "/x", "tty": True},
    },
    "PodDisruptionBudget": {"spec": {"unhealthyPodEvictionPolicy": "IfHealthyBudget"}},
    "ClusterRole": {"": {"aggregationRule": {"clusterRoleSelectors": [{"matchLabels": {"a": "b"}}]}}},
    "ConfigMap": {"": {"binaryData": {"more": "eA=="}}},
    "ServiceAccount": {"": {"automountServiceAccountToken": True}},
    "MutatingWebhookConfiguration": {
        "webhooks/0": {"matchConditions": [{"name": "never", "expression": "false"}]},
        "webhooks/0/objectSelector": {"matchLabels": {"a": "b"}},
    },
}
"""Fields that documents of ours mostly lack, by kind and place; a DaemonSet's are a Deployment's."""


class Edit(NamedTuple):
    """One change, for people and as a patch."""

    words: str
    operations: tuple[Operation, ...]


def edits(document: Json) -> Iterator[Edit]:
    """Every edit of one kind at every place."""
    for name, value in document.items():
        if name == "metadata":
            for part in OF_METADATA:
                yield from _at(value.get(part), ("metadata", part))
        elif name not in LEFT_OUT:
            yield from _at(value, (name,))
    kind = "Deployment" if document["kind"] == "DaemonSet" else document["kind"]
    for place, fields in FOREIGN.get(kind, {}).items():
        path = tuple(filter(None, place.split("/")))
        for name, value in fields.items():
            yield Edit(f"add {pointer(*path, name)}", (add(pointer(*path, name), value),))


def _at(value: Any, path: tuple[str, ...]) -> Iterator[Edit]:
    place = pointer(*path)
    if isinstance(value, dict):
        if value and all(isinstance(each, str) for each in value.values()):
            yield Edit(f"add a key to {place}", (add(pointer(*path, "more.example.com"), "more"),))
        for name, inner in value.items():
            yield from _at(inner, (*path, name))
        if path[-1] not in ("spec", "template"):
            yield Edit(f"remove {place}", (remove(place),))
    elif isinstance(value, list):
        if value:
            yield Edit(f"add an item to {place}", (add(f"{place}/-", _other(value[-1])),))
            yield Edit(f"remove {place}/0", (remove(f"{place}/0"),))
        if len(value) > 1:
            yield Edit(f"reverse {place}", (replace(place, value[::-1]),))
        for index, inner in enumerate(value):
            yield from _at(inner, (*path, str(index)))
    elif value is not None:
        yield Edit(f"change {place}", (replace(place, _other(value)),))


def _other(value: Any) -> Any:
    """A value of the same form that differs in everything that may be a key."""
    if isinstance(value, bool):
        return not value
    if isinstance(value, int):
        return value + 1
    if isinstance(value, str):
        return f"{value}x"
    if isinstance(value, dict):
        keys = ("name", "port", "containerPort", "mountPath", "key", "uid", "topologyKey", "expression")
        return {name: _other(each) if name in keys else copy.deepcopy(each) for name, each in value.items()}
    return value


def differing(before: Any, after: Any, path: str = "") -> Iterator[str]:
    """Dotted places at which two objects differ, without indexes of lists."""
    if isinstance(before, dict) and isinstance(after, dict):
        for name in dict.fromkeys((*before, *after)):
            if before.get(name) != after.get(name):
                yield from differing(before.get(name), after.get(name), f"{path}.{name}".lstrip("."))
    elif isinstance(before, list) and isinstance(after, list) and len(before) == len(after):
        for one, other in zip(before, after, strict=True):
            if one != other:
                yield from differing(one, other, path)
    elif before != after:
        yield path
