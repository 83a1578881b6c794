"""NodeResourceTopology of ``topology.node.k8s.io`` (NE-001 – NE-005): one object per node, named like it.

Decoding is lenient, since objects of other producers are read, too: unknown fields, null lists, missing optional fields
and numeric quantities are accepted. What we write is made in ``result``. The schema is in ``topology_crd``.
"""

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
