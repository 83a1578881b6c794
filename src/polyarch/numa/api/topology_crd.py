"""The CustomResourceDefinition of NodeResourceTopology, and whether an installed one has to be brought up to date.

The API is older than this project and has other producers and readers, so the CRD says what theirs says: names,
versions, what is required, no types of lists. Its fields are read off the structs in ``topology``, so what we read and
what the API server admits cannot part. Pure.
"""

from collections.abc import Collection, Iterator, Mapping
from typing import Any, Final

import msgspec.inspect
import msgspec.structs

from polyarch.kube.schema import Schema, array, custom_resource, integer, obj, quantity, text
from polyarch.numa.api.topology import TOPOLOGIES, Attribute, Cost, NodeResourceTopology, Quantity, Zone, ZoneResource

OLDER_VERSION: Final = "v1alpha1"
SHORT_NAMES: Final = ("node-res-topo", "nrt")
APPROVAL: Final = {"api-approved.kubernetes.io": "https://github.com/kubernetes/enhancements/pull/1870"}

_REQUIRED: Final[dict[type, tuple[str, ...]]] = {
    NodeResourceTopology: ("zones",),
    Zone: ("name", "type"),
    ZoneResource: ("name", "capacity", "allocatable", "available"),
    Attribute: ("name", "value"),
    Cost: ("name", "value"),
}
_WORDS: Final = {
    "NodeResourceTopology": "The NUMA zones of one node: what each has, what pods may get, and what is left.",
    "NodeResourceTopology.topologyPolicies": "Policy and scope of the kubelet in one word. Deprecated: see attributes.",
    "NodeResourceTopology.zones": "One per NUMA cell.",
    "NodeResourceTopology.attributes": "Named values about the node: policy and scope of the kubelet, the fingerprint "
    "of the pods that are accounted for.",
    "Zone.name": "node-<id>, where the id is the kernel's number of the cell.",
    "Zone.type": "Node for a NUMA cell.",
    "Zone.parent": "Name of the zone that contains this one.",
    "Zone.costs": "Distances to the zones, as the kernel gives them; 10 is local.",
    "Zone.attributes": "Named values about the zone.",
    "Zone.resources": "What the zone has.",
    "ZoneResource.name": "cpu, memory, hugepages-<size>, or the resource of a device plugin.",
    "ZoneResource.capacity": "What there is.",
    "ZoneResource.allocatable": "What pods may get: capacity without what is reserved.",
    "ZoneResource.available": "What is left of allocatable.",
    "Cost.name": "Name of the other zone.",
    "Cost.value": "The distance.",
}
_UNDESCRIBED: Final = frozenset({"metadata"})


def topology_crd() -> Schema:
    """The whole document. v1alpha2 is stored; v1alpha1 lacks ``attributes`` at the top and requires the policies."""
    older = _root(without=("attributes",), required=("topologyPolicies",))
    versions = (_version(OLDER_VERSION, older), _version(TOPOLOGIES.version, _root(), storage=True))
    document = custom_resource(TOPOLOGIES, versions, short_names=SHORT_NAMES)
    document["metadata"] |= {"annotations": dict(APPROVAL)}
    document["spec"] |= {"conversion": {"strategy": "None"}}
    return document


def _version(name: str, root: Schema, *, storage: bool = False) -> Schema:
    return {"name": name, "served": True, "storage": storage, "schema": {"openAPIV3Schema": root}}


def _root(*, without: Collection[str] = (), required: Collection[str] = ()) -> Schema:
    members = {
        "apiVersion": text(description="Group and version."),
        "kind": text(description="Kind of the object."),
        "metadata": {"type": "object"},
    }
    fields = _struct_fields(NodeResourceTopology, without={*_UNDESCRIBED, *without})
    return obj(
        members | fields,
        description=_WORDS[NodeResourceTopology.__name__],
        required=(*required, *_REQUIRED[NodeResourceTopology]),
    )


def _struct(of: type) -> Schema:
    return obj(_struct_fields(of), required=_REQUIRED[of])


def _struct_fields(of: type, *, without: Collection[str] = ()) -> dict[str, Schema]:
    fields = {field.encode_name: msgspec.inspect.type_info(field.type) for field in msgspec.structs.fields(of)}
    return {
        name: _described(type_, _WORDS.get(f"{of.__name__}.{name}", ""))
        for name, type_ in fields.items()
        if name not in without
    }


def _described(type_: msgspec.inspect.Type, words: str) -> Schema:
    """The schema of a type that the structs use. Raises TypeError for one that none of them has used so far."""
    if type_ == _QUANTITY:
        return quantity(description=words)
    match type_:
        case msgspec.inspect.StrType():
            return text(description=words)
        case msgspec.inspect.IntType():
            return integer(description=words, format="int64")
        case msgspec.inspect.UnionType(types=types):
            (present,) = (inner for inner in types if not isinstance(inner, msgspec.inspect.NoneType))
            return _described(present, words)
        case msgspec.inspect.ListType(item_type=msgspec.inspect.StructType(cls=of)):
            return array(_struct(of), description=words, list_type="")
        case msgspec.inspect.ListType(item_type=items):
            return array(_described(items, ""), description=words, list_type="")
    raise TypeError(f"the definition does not know how to say {type_}; teach it, or use another type")


_QUANTITY: Final[Any] = msgspec.inspect.type_info(Quantity)


# -- an installed CRD --------------------------------------------------------------------------------------------------

# Several products install this CRD. Ours replaces another one only if nothing gets lost by that: if it has every
# version and every field of the installed one. It is never taken back to less.

Document = Mapping[str, Any]
Fields = frozenset[str]


def is_behind(installed: Document, ours: Document) -> bool:
    """True if the installed CRD lacks something that ours has, and has nothing that ours lacks."""
    theirs, own = _crd_fields(installed, served_only=False), _crd_fields(ours, served_only=False)
    loses = any(name not in own or not fields <= own[name] for name, fields in theirs.items())
    if loses:
        return False
    served, wanted = _crd_fields(installed, served_only=True), _crd_fields(ours, served_only=True)
    return any(name not in served or not fields <= served[name] for name, fields in wanted.items())


def fields_beyond_ours(installed: Document, ours: Document) -> tuple[str, ...]:
    """Fields of the installed CRD that ours lacks, as ``version.field``: the reason to leave it alone."""
    own = _crd_fields(ours, served_only=False)
    return tuple(
        sorted(
            f"{name}{field}"
            for name, fields in _crd_fields(installed, served_only=False).items()
            for field in (fields - own[name] if name in own else ("",))
        )
    )


def _crd_fields(crd: Document, *, served_only: bool) -> dict[str, Fields]:
    versions = (crd.get("spec") or {}).get("versions") or ()
    return {
        version["name"]: frozenset(_paths((version.get("schema") or {}).get("openAPIV3Schema") or {}, ""))
        for version in versions
        if version.get("served") or not served_only
    }


def _paths(schema: Document, at: str) -> Iterator[str]:
    if schema.get("x-kubernetes-preserve-unknown-fields"):
        yield f"{at}.*"
    for name, inner in (schema.get("properties") or {}).items():
        yield f"{at}.{name}"
        yield from _paths(inner, f"{at}.{name}")
    items = schema.get("items")
    if isinstance(items, Mapping):
        yield from _paths(items, f"{at}[]")
    values = schema.get("additionalProperties")
    if isinstance(values, Mapping):
        yield from _paths(values, f"{at}{{}}")
