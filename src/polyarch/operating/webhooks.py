"""What the webhook configurations of all features have in common: who is called, and for which namespaces.

Namespaces are excluded where it costs the API server least: by name in the selector, which costs nothing; by prefix in
a CEL match condition, which it evaluates for every request (0.7 ms for a pod). Pure.
"""

import json
from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

import msgspec

from polyarch.operating import serving
from polyarch.operating.labels import Document, metadata
from polyarch.operating.settings import OperatorSettings

NAMESPACE_NAME: Final = "kubernetes.io/metadata.name"
"""The label that the API server puts on each Namespace."""


class Excluded(NamedTuple):
    """Namespaces for which nobody is called, from a list of names and ``prefix-*``."""

    names: tuple[str, ...] = ()
    prefixes: tuple[str, ...] = ()

    @classmethod
    def of(cls, patterns: Sequence[str]) -> "Excluded":
        names = sorted({each for each in patterns if not each.endswith("*")})
        prefixes = sorted({each[:-1] for each in patterns if each.endswith("*")})
        return cls(tuple(names), tuple(prefixes))

    @property
    def requirements(self) -> list[Document]:
        """For a ``namespaceSelector``."""
        return [{"key": NAMESPACE_NAME, "operator": "NotIn", "values": list(self.names)}] if self.names else []

    @property
    def conditions(self) -> list[Document]:
        """For ``matchConditions``."""
        if not self.prefixes:
            return []
        parts = [f"request.namespace.startsWith({json.dumps(prefix)})" for prefix in self.prefixes]
        return [{"name": "excluded-namespaces", "expression": f"!({' || '.join(parts)})"}]


def client(namespace: str, service: str, path: str, *, url: str = "", ca_bundle: bytes = b"") -> Document:
    """``clientConfig``: a Service, or its address outside the cluster if ``url`` is given. ``ca_bundle``: PEM."""
    document: Document = (
        {"url": url.rstrip("/") + path}
        if url
        else {"service": {"name": service, "namespace": namespace, "path": path, "port": 443}}
    )
    return document | ({"caBundle": str(msgspec.to_builtins(ca_bundle))} if ca_bundle else {})


def configuration(name: str, controller: str, webhooks: Sequence[Mapping[str, Any]], *, kind: str) -> Document:
    """A ``MutatingWebhookConfiguration`` or ``ValidatingWebhookConfiguration``, as ``kind`` says."""
    return {
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": kind,
        "metadata": metadata(name, controller),
        "webhooks": list(webhooks),
    }


def injected(document: Document, settings: OperatorSettings) -> Document:
    """With the annotation by which another writes ``caBundle``, if the settings say so (PL-541)."""
    annotations = serving.ca_annotations(settings)
    if not annotations:
        return document
    return {**document, "metadata": {**document["metadata"], "annotations": dict(annotations)}}
