"""Metadata of operands: owners, and the labels by which tools and the operator itself find them (PL-002). Pure."""

from typing import Any, Final

from polyarch.kube.owners import Owner, owned_by
from polyarch.operating import names

Document = dict[str, Any]

PART_OF: Final = {"app.kubernetes.io/part-of": "polyarch"}
"""On every object of ours."""
PARTS: Final = (names.TAINTS, names.BUILDER, names.NUMA_EXPORTER, names.NUMA_SCHEDULER)
"""Parts that come and go by themselves, named like what their objects belong to; all else is placement's."""


def labels(controller: str) -> dict[str, str]:
    """Labels of an object that belongs to the Deployment or DaemonSet ``controller``.

    What the operator makes carries the label of operands, and is removed with its feature; its own objects do not.
    """
    part = part_of(controller)
    return ({names.OPERAND_LABEL: part} if part else {}) | {names.CONTROLLER_LABEL: controller}


def part_of(controller: str) -> str:
    """The part that objects of this Deployment or DaemonSet are removed with; empty: the operator's own."""
    if controller == names.OPERATOR:
        return ""
    return controller if controller in PARTS else names.PLACEMENT


def metadata(name: str, controller: str, *, namespace: str = "") -> Document:
    """``metadata`` of an object; without a namespace it is cluster-scoped."""
    return {"name": name} | ({"namespace": namespace} if namespace else {}) | {"labels": labels(controller)}


def finished(document: Document) -> Document:
    """The document with the label of every object of ours."""
    described = document["metadata"]
    return {**document, "metadata": {**described, "labels": described["labels"] | PART_OF}}


def owned(document: Document, owner: Owner | None) -> Document:
    """The document with an owner reference, if there is an owner.

    It does not block the owner's deletion. The operator waits for what it made by itself, and where API servers check
    such references it needs no right to the owner's finalizers.
    """
    if owner is None:
        return document
    referring = owned_by(owner, document)
    *others, reference = referring["metadata"]["ownerReferences"]
    references = [*others, {**reference, "blockOwnerDeletion": False}]
    return {**document, "metadata": {**referring["metadata"], "ownerReferences": references}}
