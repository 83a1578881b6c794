"""The ConfigMap of a group: what its exporters read from a file (NO-052). Pure.

The text is JSON, which is YAML. It goes by its digest into the template of the pods, so that a change replaces them.
"""

import hashlib
from collections.abc import Mapping
from typing import Any, Final

import msgspec

from polyarch.numa.operator.exporters.surroundings import Surroundings, of_group
from polyarch.numa.operator.groups import Group
from polyarch.operating.labels import Document

KEY: Final = "config.yaml"
DIRECTORY: Final = "/etc/rte/extra"
"""Where the pods find it: the exporter's file of additional configuration."""


def config_map(group: Group, surroundings: Surroundings, kubelet: Mapping[str, str] | None) -> Document:
    """``kubelet``: the group's settings of the topology manager; None: the exporter asks the kubelet itself."""
    content: dict[str, Any] = {"kubelet": dict(kubelet)} if kubelet is not None else {}
    if surroundings.pod_excludes:
        content["podExclude"] = [
            {"namespacePattern": each.namespace, "namePattern": each.name} for each in surroundings.pod_excludes
        ]
    text = msgspec.json.format(msgspec.json.encode(content), indent=2).decode() + "\n"
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": of_group(group.name, namespace=surroundings.namespace),
        "data": {KEY: text},
    }


def digest(document: Document) -> str:
    """Of the content."""
    return hashlib.sha256(document["data"][KEY].encode()).hexdigest()[:16]
