"""The objects that the operator makes for the placement roles (PL-002, PL-500). Pure."""

from polyarch.placement.operator.labels import Document
from polyarch.placement.operator.settings import DEFAULT_NAMESPACE


def namespace(name: str = DEFAULT_NAMESPACE) -> Document:
    """The operator's namespace, with pod security level ``restricted`` (PL-552)."""
    labels = {f"pod-security.kubernetes.io/{mode}": "restricted" for mode in ("enforce", "warn")}
    return {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": labels}}
