"""What a write has to change of the object in the cluster, if anything (NE-014, NE-017, NE-018, NE-110, NE-111).

The answer is a JSON merge patch (RFC 7386) of the top-level fields that differ. Such a patch replaces a list as a
whole, so a list with entries of others, ``ownerReferences``, is written with them in it. It removes with null what was
ours and is no longer wanted. Labels, annotations and owner references of others are never in it.

Values are compared as written. So another producer's spelling of a quantity (``12``, ``16Gi``) is rewritten once, and
comes back from the API server as we wrote it. An empty list, null and an absent one are the same. Pure.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

import msgspec

from polyarch.kube.resources import NODES
from polyarch.numa import names
from polyarch.numa.api.topology import NodeResourceTopology, Zone
from polyarch.objects import ObjectMeta, OwnerReference

Document = dict[str, Any]

OWN_LABELS: Final = (names.NODE_GROUP_LABEL,)
OWN_ANNOTATIONS: Final = (names.LEGACY_FINGERPRINT,)
"""What is removed when it is no longer wanted. What only tells about a write stays until the next one."""


def change(wanted: Mapping[str, Any], found: NodeResourceTopology) -> Document | None:
    """The merge patch that makes ``found``, the object in the cluster, what is ``wanted``; None: it is."""
    patch: Document = {}
    if metadata := _metadata(wanted["metadata"], found.metadata):
        patch["metadata"] = metadata
    contents: tuple[tuple[str, Sequence[Any]], ...] = (
        ("topologyPolicies", found.topology_policies or ()),
        ("attributes", [_plain(each) for each in found.attributes or ()]),
        ("zones", [_zone(each) for each in found.zones or ()]),
    )
    for field, present in contents:
        content = wanted.get(field) or []
        if content != list(present):
            # The API requires zones; the other lists are removed when they have nothing in them.
            patch[field] = content if content or field == "zones" else None
    return patch or None


def stamped(body: Mapping[str, Any], annotations: Mapping[str, str]) -> Document:
    """A document or a patch with annotations that tell about this write: trigger, timing, last scan (NE-019, NE-113).

    They are added to what is written anyway, so they never are a reason to write.
    """
    if not annotations:
        return dict(body)
    metadata = body.get("metadata") or {}
    return {**body, "metadata": {**metadata, "annotations": {**(metadata.get("annotations") or {}), **annotations}}}


def merged(document: Mapping[str, Any], patch: Mapping[str, Any]) -> Document:
    """The document after a merge patch, as the API server would make it: what a PUT carries instead of the patch."""
    result = dict(document)
    for key, value in patch.items():
        if value is None:
            result.pop(key, None)
        elif isinstance(value, Mapping):
            inner = result.get(key)
            result[key] = merged(inner if isinstance(inner, Mapping) else {}, value)
        else:
            result[key] = value
    return result


def _metadata(wanted: Mapping[str, Any], found: ObjectMeta) -> Document:
    patch: Document = {}
    if labels := _own(OWN_LABELS, wanted.get("labels") or {}, found.labels or {}):
        patch["labels"] = labels
    if annotations := _own(OWN_ANNOTATIONS, wanted.get("annotations") or {}, found.annotations or {}):
        patch["annotations"] = annotations
    present = found.owner_references or []
    references = _references(wanted.get("ownerReferences") or (), present)
    if references != [_plain(each) for each in present]:
        patch["ownerReferences"] = references
    return patch


def _own(keys: Iterable[str], wanted: Mapping[str, str], found: Mapping[str, str]) -> dict[str, str | None]:
    return {key: wanted.get(key) for key in keys if wanted.get(key) != found.get(key)}


def _references(wanted: Iterable[Document], present: Iterable[OwnerReference]) -> list[Document]:
    """Those of others in their order, ours in place of an older one of ours, which names a Node that is gone.

    Without a wanted one nothing is changed: whether the Node of an older reference lives is not known then.
    """
    references = [_plain(each) for each in present]
    for ours in wanted:
        same = [index for index, each in enumerate(references) if _is_for_same_node(each, ours)]
        if len(same) == 1 and references[same[0]]["uid"] == ours["uid"] and not references[same[0]].get("controller"):
            continue
        at = same[0] if same else len(references)
        before = references[:at]
        after = [each for each in references[at:] if not _is_for_same_node(each, ours)]
        references = [*before, ours, *after]
    return references


def _is_for_same_node(reference: Mapping[str, Any], ours: Mapping[str, Any]) -> bool:
    return reference.get("kind") == NODES.kind and reference.get("name") == ours["name"]


def _zone(zone: Zone) -> Document:
    plain = _plain(zone)
    present = {key: value for key, value in plain.items() if value}
    return {"name": zone.name, "type": zone.type, "resources": [], **present}


def _plain(value: Any) -> Document:
    plain: Document = msgspec.to_builtins(value)
    return plain
