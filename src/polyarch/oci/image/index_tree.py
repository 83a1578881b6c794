"""An index with everything below it: each raw descriptor and how it was classified (RG-150, RG-151).

Inspection keeps only the platforms of an entry. Copying or printing an index needs the descriptors themselves:
annotations, attestations, skipped entries and the reasons.
"""

from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

from polyarch.oci.answer import InspectionError, Kind
from polyarch.oci.documents import Document, classify, decode
from polyarch.oci.image.client import Fetched
from polyarch.oci.image.contents import Contents
from polyarch.oci.image.descent import ImageReader
from polyarch.oci.image.flattening import Artifact, Finding, Flattened, flatten
from polyarch.oci.image.parsing import (
    ATTESTATION_ANNOTATIONS,
    ConfigReading,
    IndexEntry,
    IndexReading,
)
from polyarch.platforms import Platform


class Node(msgspec.Struct, frozen=True):
    """One descriptor of an index. ``raw`` is the JSON; ``inner`` are the nodes of an index behind it."""

    raw: Mapping[str, Any]
    entry: IndexEntry
    platform: Platform | None = None
    reason: str = ""
    """Why it is no runnable image; ``""`` if it is one, or an index."""
    inner: "tuple[Node, ...] | None" = None

    @property
    def annotations(self) -> dict[str, str]:
        return annotations_of(self.raw)

    @property
    def is_attestation(self) -> bool:
        return any(name in self.annotations for name in ATTESTATION_ANNOTATIONS)


class Tree(msgspec.Struct, frozen=True):
    """A manifest and what is below it; ``platform`` is that of a single image, if stated."""

    digest: str
    kind: Kind
    media_type: str
    size: int
    annotations: Mapping[str, str] = {}
    nodes: tuple[Node, ...] = ()
    flat: Flattened = Flattened()
    platform: Platform | None = None

    def walk(self) -> Iterator[Node]:
        """Every node once; the nodes of an inner index replace the node that names it."""
        seen: set[str] = set()
        pending = [iter(self.nodes)]
        while pending:
            node = next(pending[-1], None)
            if node is None:
                pending.pop()
            elif node.inner is None:
                yield node
            elif node.entry.digest not in seen:
                seen.add(node.entry.digest)
                pending.append(iter(node.inner))


async def read_tree(contents: Contents, manifest: Fetched) -> Tree:
    """The tree of a manifest; an unreadable child becomes a node's ``reason``.

    Raises ``ContentError`` and ``Failure``.
    """
    document = classify(manifest.body)
    annotations = annotations_of(decode(document.body, dict[str, Any], "the manifest"))
    if document.type != "index":
        config = await read_platform(contents, document)
        kind: Kind = "schema1" if document.type == "schema1" else "image" if config is not None else "artifact"
        platform = config.platform if config is not None else None
        return Tree(manifest.digest, kind, document.media_type, len(manifest.body), annotations, platform=platform)
    reader = ImageReader(contents.holder)
    top, found = await reader.read_tree(document, manifest.digest, contents.access, contents.visit())
    documents = {manifest.digest: manifest.body}
    for digest, finding in found.items():
        if isinstance(finding, IndexReading) and digest not in documents:
            documents[digest] = (await contents.manifest(digest)).body
    nodes = _Nodes(documents, found).of(manifest.digest, top)
    flat = flatten(top, found, every=True)
    return Tree(manifest.digest, "index", document.media_type, len(manifest.body), annotations, nodes, flat)


async def read_platform(contents: Contents, document: Document) -> ConfigReading | None:
    """The platform of a single image; None for an artifact. Raises ``ContentError`` and ``Failure``."""
    found = await ImageReader(contents.holder).read_image(document, contents.access, contents.visit())
    return found if isinstance(found, ConfigReading) else None


def annotations_of(raw: Mapping[str, Any]) -> dict[str, str]:
    """The string annotations of a descriptor or document."""
    found = raw.get("annotations")
    if not isinstance(found, Mapping):
        return {}
    return {key: value for key, value in found.items() if isinstance(key, str) and isinstance(value, str)}


class _Index(msgspec.Struct):
    manifests: list[dict[str, Any]] | None = None


class _Nodes:
    """Builds the nodes; an index named several times is built once."""

    def __init__(self, documents: Mapping[str, bytes], found: Mapping[str, Finding]) -> None:
        self._documents = documents
        self._found = found
        self._made: dict[str, tuple[Node, ...]] = {}

    def of(self, digest: str, reading: IndexReading) -> tuple[Node, ...]:
        nodes = self._made.get(digest)
        if nodes is None:
            raw = decode(self._documents[digest], _Index, "the index").manifests or []
            nodes = tuple(self._node(*pair) for pair in zip(raw, reading.entries, strict=True))
            self._made[digest] = nodes
        return nodes

    def _node(self, raw: Mapping[str, Any], entry: IndexEntry) -> Node:
        if entry.outcome == "skipped":
            return Node(raw, entry, reason=entry.reason)
        if entry.outcome == "runnable":
            return Node(raw, entry, entry.platform)
        finding = self._found.get(entry.digest)
        if isinstance(finding, IndexReading):
            return Node(raw, entry, inner=self.of(entry.digest, finding))
        if isinstance(finding, ConfigReading):
            return Node(raw, entry, finding.platform, "" if finding.platform is not None else "empty-config")
        if isinstance(finding, Artifact):
            return Node(raw, entry, reason="artifact")
        error = finding.message if isinstance(finding, InspectionError) else "it was not read"
        return Node(raw, entry, reason=f"no-platform: {error}")
