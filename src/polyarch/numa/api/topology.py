"""NodeResourceTopology of ``topology.node.k8s.io``: one object per node, named like it.

Decoding is lenient, since objects of other producers are read, too: unknown fields, null lists, missing optional fields
and numeric quantities are accepted. What we write is made in ``result``. The schema is in ``topology_crd``."""

from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import Final

import msgspec

from polyarch.kube.resources import Resource
from polyarch.numa.names import TOPOLOGY_GROUP
from polyarch.objects import ObjectMeta

TOPOLOGIES: Final = Resource(
    TOPOLOGY_GROUP, "v1alpha2", "noderesourcetopologies", "NodeResourceTopology", namespaced=False
)

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


# -- Names of zones, and lists of named values as objects and zones carry them. Pure.


_ZONE_PREFIX: Final = "node-"
_MAX_ZONE_DIGITS: Final = 9
"""No machine has more cells, and a text from elsewhere must not cost more than a glance."""


def zone_name(cell: int) -> str:
    """``node-<id>``. Raises ValueError for a negative id."""
    if cell < 0:
        raise ValueError(f"{cell} is not the id of a cell; ids begin at 0")
    return f"{_ZONE_PREFIX}{cell}"


@lru_cache(maxsize=1 << 10)  # a fleet has few names of zones, each of them in many places
def zone_id(zone: str) -> int | None:
    """The cell that a zone of this name stands for; None: it is not a cell."""
    digits = zone.removeprefix(_ZONE_PREFIX)
    if digits == zone or not (digits.isascii() and digits.isdecimal()) or len(digits) > _MAX_ZONE_DIGITS:
        return None
    return int(digits) if digits == "0" or digits[0] != "0" else None


def attribute_value(attributes: Iterable[Attribute], name: str) -> str | None:
    """Of the first attribute of this name; None: there is none."""
    return next((each.value for each in attributes if each.name == name), None)


def with_attribute(attributes: Sequence[Attribute], name: str, new: str) -> list[Attribute]:
    """The first attribute of this name has the value, in its place; appended if there is none."""
    attribute = Attribute(name, new)
    for index, each in enumerate(attributes):
        if each.name == name:
            return [*attributes[:index], attribute, *attributes[index + 1 :]]
    return [*attributes, attribute]


def merged_attributes(attributes: Sequence[Attribute], newer: Iterable[Attribute]) -> list[Attribute]:
    """All of both in their order; where both have a name, the newer value in the older place."""
    result = list(attributes)
    for each in newer:
        result = with_attribute(result, each.name, each.value)
    return result


def without_attribute(attributes: Iterable[Attribute], name: str) -> list[Attribute]:
    """All but those of this name."""
    return [each for each in attributes if each.name != name]
