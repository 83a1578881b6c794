"""NodeResourceTopology of ``topology.node.k8s.io``: one object per node, named like it.

Decoding is lenient, since objects of other producers are read, too: unknown fields, null lists, missing optional fields
and numeric quantities are accepted. ``exporter.topology_document`` makes what we write; the schema is in
``topology_crd``. Pure.
"""

from collections.abc import Iterable
from functools import lru_cache
from typing import Final

import msgspec

from polyarch.kube.resources import Resource
from polyarch.numa.names import TOPOLOGY_GROUP
from polyarch.objects import ObjectMeta

TOPOLOGIES: Final = Resource(
    TOPOLOGY_GROUP, "v1alpha2", "noderesourcetopologies", "NodeResourceTopology", namespaced=False
)

_ZONE_PREFIX: Final = "node-"
_MAX_ZONE_DIGITS: Final = 9
"""No machine has more zones, and a text from elsewhere must not cost more than a glance."""

Quantity = str | int | float
"""As it stands in the object: ``"12"``, ``12``, ``"16Gi"``."""


class Attribute(msgspec.Struct, frozen=True, gc=False):
    """A named value, of the object or of one zone."""

    name: str = ""
    value: str = ""


class Cost(msgspec.Struct, frozen=True, gc=False):
    """The distance to a zone, as the kernel gives it: 10 is local."""

    name: str = ""
    value: int = 0


class ZoneResource(msgspec.Struct, frozen=True, gc=False):
    """One resource of a zone."""

    name: str = ""
    capacity: Quantity = 0
    allocatable: Quantity = 0
    available: Quantity = 0


class Zone(msgspec.Struct, frozen=True, gc=False):
    """One entry of ``zones``."""

    name: str = ""
    type: str = ""
    parent: str | None = None
    costs: list[Cost] | None = None
    attributes: list[Attribute] | None = None
    resources: list[ZoneResource] | None = None


class NodeResourceTopology(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    """The zones of one node, version v1alpha2."""

    metadata: ObjectMeta = ObjectMeta()
    topology_policies: list[str] | None = None
    zones: list[Zone] | None = None
    attributes: list[Attribute] | None = None


def zone_name(zone: int) -> str:
    """``node-<id>``. Raises ValueError for a negative id."""
    if zone < 0:
        raise ValueError(f"{zone} is not the id of a cell; ids begin at 0")
    return f"{_ZONE_PREFIX}{zone}"


@lru_cache(maxsize=1 << 10)  # a cluster has few names of zones, each of them in many places
def zone_id(name: str) -> int | None:
    """The id in the name of a zone; None: the name is not ``node-<id>``."""
    digits = name.removeprefix(_ZONE_PREFIX)
    if digits == name or not (digits.isascii() and digits.isdecimal()) or len(digits) > _MAX_ZONE_DIGITS:
        return None
    return int(digits) if digits == "0" or digits[0] != "0" else None


def attribute_value(attributes: Iterable[Attribute], name: str) -> str | None:
    """The value of the first attribute of this name; None: there is none."""
    return next((attribute.value for attribute in attributes if attribute.name == name), None)
