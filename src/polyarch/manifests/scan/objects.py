"""The Kubernetes objects of a document: the document itself, or the items of a list.

Other texts (a values file with a pod specification) get a :class:`KubeObject` with an empty kind, too, so that every
finding has an object and a position.

Pure.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass

from yaml.nodes import Node, SequenceNode

from polyarch.kube.patches import pointer
from polyarch.manifests.finding import ObjectReference
from polyarch.manifests.scan.nodes import Document, duplicate_keys, find, get, text_of

_SOURCE = re.compile(r"^# Source: (\S.*?)[ \t]*$", re.MULTILINE)
_ORIGIN_ANNOTATION = "config.kubernetes.io/origin"


@dataclass(frozen=True, eq=False)
class KubeObject:
    """One object of a file; ``pointer`` is its place in the document, ``/items/3`` in a list."""

    document: Document
    node: Node
    pointer: str
    api_version: str
    kind: str
    namespace: str
    name: str
    origin: str
    """Source of the text, if it names one (MF-013)."""
    patched_by: str | None = None
    """The folder of the kustomization that names the file as a patch: then this is a part of an object. None: it is
    whole.
    """

    @property
    def reference(self) -> ObjectReference:
        return ObjectReference(self.api_version, self.kind, self.namespace, self.name)

    @property
    def group(self) -> str:
        return self.api_version.rpartition("/")[0]

    @property
    def metadata(self) -> Node | None:
        return get(self.node, "metadata")

    @property
    def duplicate_labels(self) -> list[tuple[str, Node]]:
        """Duplicate labels: the key, and the node of its repetition."""
        labels = get(self.metadata, "labels")
        return duplicate_keys(labels) if labels is not None else []


def objects_of(document: Document, *, patched_by: str | None = None) -> Iterator[KubeObject]:
    """The object of a document, or those in lists at any depth (MF-011: any kind ending in ``List``)."""
    yield from _objects(document, document.root, "", _chart_source(document), patched_by)


def _objects(document: Document, node: Node, path: str, source: str, patched_by: str | None) -> Iterator[KubeObject]:
    kind = text_of(get(node, "kind")) or ""
    if kind.endswith("List"):
        items = get(node, "items")
        if isinstance(items, SequenceNode):
            for index, item in enumerate(items.value):
                yield from _objects(document, item, f"{path}{pointer('items', index)}", source, patched_by)
            return
    metadata = get(node, "metadata")
    annotation = text_of(find(metadata, "annotations", _ORIGIN_ANNOTATION))
    yield KubeObject(
        document=document,
        node=node,
        pointer=path,
        api_version=text_of(get(node, "apiVersion")) or "",
        kind=kind,
        namespace=text_of(get(metadata, "namespace")) or "",
        name=text_of(get(metadata, "name")) or text_of(get(metadata, "generateName")) or "",
        origin=", ".join(annotation.split("\n")).rstrip(", ") if annotation else source,
        patched_by=patched_by,
    )


def _chart_source(document: Document) -> str:
    """The path in the comment that ``helm template`` writes: ``# Source: chart/templates/web.yaml``."""
    text = document.source.text
    start, end = document.chunk_start, document.start(document.root)
    match = _SOURCE.search(text, start, end) if text.find("# Source:", start, end) >= 0 else None
    return match[1] if match else ""
