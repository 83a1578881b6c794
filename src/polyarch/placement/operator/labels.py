"""Metadata of operands: the labels by which existing tooling, and the operator itself, find them (PL-002). Pure."""

from typing import Any

from polyarch.placement import names

Document = dict[str, Any]


def labels(controller: str = "") -> dict[str, str]:
    """Labels of an operand and its pods; ``controller`` is the Deployment or DaemonSet that it belongs to, if any."""
    return {names.OPERAND_LABEL: names.OPERAND} | ({names.CONTROLLER_LABEL: controller} if controller else {})


def metadata(name: str, controller: str = "", *, namespace: str = "") -> Document:
    """``metadata`` of an operand; without a namespace it is cluster-scoped."""
    return {"name": name} | ({"namespace": namespace} if namespace else {}) | {"labels": labels(controller)}
