"""Checks whether a typed reader would accept a ClusterServiceVersion, as far as ``compat`` reads it.

operator-sdk decodes the whole object into Go types before its validator runs, so a list in place of a mapping is an
invalid bundle there and must not pass here. A missing or null member is fine, and every scalar is a string.

Pure.
"""

from collections.abc import Mapping
from typing import Any

from polyarch.manifests.scan.pod_specs import REQUIRED, TERMS

Shape = Any
"""A mapping of members (``EACH`` for all of them), a list with the shape of its elements, or ``TEXT``."""

TEXT = "text"
EACH = "*"

_EXPRESSION = {"key": TEXT, "operator": TEXT, "values": [TEXT]}
_POD_SPEC = {
    "containers": [{"name": TEXT, "image": TEXT}],
    "affinity": {"nodeAffinity": {REQUIRED: {TERMS: [{"matchExpressions": [_EXPRESSION]}]}}},
}
_SERVICE_VERSION = {
    "metadata": {"name": TEXT, "labels": {EACH: TEXT}},
    "spec": {
        "install": {"spec": {"deployments": [{"name": TEXT, "spec": {"template": {"spec": _POD_SPEC}}}]}},
        "relatedImages": [{"name": TEXT, "image": TEXT}],
    },
}


def misshapen(service_version: Mapping[str, Any]) -> str:
    """The first member of the wrong type, as a sentence; empty if there is none."""
    return _problem(service_version, _SERVICE_VERSION, "")


def _problem(value: object, shape: Shape, path: str) -> str:
    if value is None:
        return ""
    if isinstance(shape, dict):
        if not isinstance(value, Mapping):
            return f"{path} is not a mapping"
        named = ((key, shape.get(str(key), shape.get(EACH))) for key in value)
        below = ((value[key], each, f"{path}.{key}".lstrip(".")) for key, each in named if each is not None)
    elif isinstance(shape, list):
        if not isinstance(value, list):
            return f"{path} is not a list"
        below = ((each, shape[0], f"{path}[{index}]") for index, each in enumerate(value))
    else:
        return f"{path} is not a string" if isinstance(value, Mapping | list) else ""
    return next(filter(None, (_problem(*each) for each in below)), "")
