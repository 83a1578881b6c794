"""Nodes for tests, as the API server stores them: JSON documents, so that patches can be applied to them."""

from typing import Any

import msgspec

from polyarch.kube.patches import Operation, apply_patch
from polyarch.objects import Node
from polyarch.taints.names import MANAGED_TAINTS_ANNOTATION

Json = dict[str, Any]


def taint(text: str) -> Json:
    """``key=value:effect`` as JSON."""
    left, _, effect = text.rpartition(":")
    key, _, value = left.partition("=")
    return {"key": key, "value": value, "effect": effect}


def document(
    name: str = "node-1",
    architecture: str = "arm64",
    *taints: str,
    label: str | None = None,
    os: str = "linux",
    record: str | None = None,
    labels: dict[str, str] | None = None,
) -> Json:
    """A node with these taints; ``label`` is its architecture label if it differs, ``""`` if it has none."""
    known = {"kubernetes.io/arch": architecture if label is None else label, "kubernetes.io/os": os, **(labels or {})}
    metadata: Json = {
        "name": name,
        "uid": f"uid-{name}",
        "resourceVersion": "7",
        "labels": {key: value for key, value in known.items() if value or key in (labels or {})},
    }
    if record is not None:
        metadata["annotations"] = {MANAGED_TAINTS_ANNOTATION: record}
    spec = {"taints": [taint(each) for each in taints]} if taints else {}
    info = {"architecture": architecture, "operatingSystem": os}
    return {"metadata": metadata, "spec": spec, "status": {"nodeInfo": info}}


def node(source: Json) -> Node:
    return msgspec.convert(source, Node)


def patched(source: Json, operations: tuple[Operation, ...]) -> Json:
    """The document after the patch."""
    changed: Json = apply_patch(source, operations)
    return changed


def taints_of(source: Json) -> list[str]:
    return [f"{each['key']}={each.get('value', '')}:{each['effect']}" for each in source["spec"].get("taints") or ()]


def record_of(source: Json) -> str | None:
    value: str | None = (source["metadata"].get("annotations") or {}).get(MANAGED_TAINTS_ANNOTATION)
    return value
