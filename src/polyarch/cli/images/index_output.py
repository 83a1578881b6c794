"""What ``polyarch index`` says: documents and rows made of the same values. Pure."""

from collections.abc import Iterator, Sequence
from typing import Any

from polyarch.cli.output.tables import Row
from polyarch.oci.image.index_tree import Node, Tree
from polyarch.oci.reference import Reference
from polyarch.oci.write.assembly import Assembled, Child
from polyarch.oci.write.push import Pushed

SCHEMA_VERSION = "polyarch.dev/index/v1"
TREE_SCHEMA_VERSION = "polyarch.dev/index-tree/v1"
CREATED_HEADER = ("PLATFORM", "DIGEST", "SIZE", "SOURCE", "NOTE")
TREE_HEADER = ("PLATFORM", "DIGEST", "SIZE", "TYPE", "NOTE")
ATTESTATION_PLATFORM = "unknown/unknown"


def created_document(
    reference: Reference, index: Assembled, tags: Sequence[str], *, changed: bool | None, pushed: Pushed
) -> dict[str, Any]:
    """``polyarch.dev/index/v1`` (RG-157). ``changed`` is null in a dry run that could not ask the destination."""
    return {
        "schemaVersion": SCHEMA_VERSION,
        "reference": reference.canonical,
        "digest": index.digest,
        "mediaType": index.media_type,
        "size": len(index.body),
        "tags": list(tags),
        "changed": changed,
        "children": [
            {
                "platform": _platform(child),
                "digest": child.digest,
                "size": child.size,
                "source": child.source,
                "copied": child.digest in pushed.copied,
            }
            for child in index.children
        ],
        "dropped": [
            {"digest": child.digest, "subject": child.subject, "source": child.source} for child in index.dropped
        ],
    }


def created_rows(index: Assembled, pushed: Pushed) -> list[Row]:
    """One row per child, in the order of the index."""
    return [
        Row(
            (
                _platform(child),
                child.digest,
                str(child.size),
                child.source,
                "attestation" if child.is_attestation else "copied" if child.digest in pushed.copied else "",
            )
        )
        for child in index.children
    ]


def dropped_line(child: Child) -> str:
    """An attestation that is not in the new index (RG-154)."""
    about = f" for {child.subject}" if child.subject else ""
    return f"dropped: attestation {child.digest}{about} of {child.source}"


def tree_document(reference: Reference, tree: Tree) -> dict[str, Any]:
    """``polyarch.dev/index-tree/v1``: every entry as it stands, with what became of it."""
    return {
        "schemaVersion": TREE_SCHEMA_VERSION,
        "reference": reference.canonical,
        "kind": tree.kind,
        "digest": tree.digest,
        "mediaType": tree.media_type,
        "size": tree.size,
        "platform": str(tree.platform) if tree.platform is not None else None,
        "annotations": dict(tree.annotations),
        "entries": [_entry(node) for node in tree.nodes],
    }


def tree_rows(tree: Tree) -> list[Row]:
    """One row per entry, those of an inner index below it and further in."""
    return list(_rows(tree.nodes, ""))


def _platform(child: Child) -> str:
    return ATTESTATION_PLATFORM if child.platform is None else str(child.platform)


def _entry(node: Node) -> dict[str, Any]:
    size = node.raw.get("size")
    return {
        "digest": node.entry.digest,
        "mediaType": _text(node, "mediaType"),
        "artifactType": _text(node, "artifactType"),
        "size": size if isinstance(size, int) else None,
        "platform": str(node.platform) if node.platform is not None else None,
        "status": _status(node),
        "reason": node.reason,
        "annotations": node.annotations,
        "entries": [_entry(each) for each in node.inner or ()],
    }


def _rows(nodes: Sequence[Node], indent: str) -> Iterator[Row]:
    for node in nodes:
        shown = str(node.platform) if node.platform is not None else _status(node)
        subject = node.annotations.get("vnd.docker.reference.digest", "")
        note = ", ".join(part for part in (node.reason, f"for {subject}" if subject else "") if part)
        cells = (f"{indent}{shown}", node.entry.digest, str(node.raw.get("size", "")), _text(node, "mediaType"), note)
        yield Row(cells, "dim" if node.reason else "")
        yield from _rows(node.inner or (), f"{indent}  ")


def _status(node: Node) -> str:
    return "index" if node.inner is not None else "skipped" if node.reason else "runnable"


def _text(node: Node, name: str) -> str:
    value = node.raw.get(name)
    return value if isinstance(value, str) else ""
