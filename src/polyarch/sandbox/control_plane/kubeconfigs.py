"""Kubeconfig documents, to be written as JSON, which is valid YAML and needs no quoting rules.

Certificates and tokens are embedded, so that the file can be copied.
"""

import base64
from pathlib import Path

from polyarch.sandbox.control_plane.certificates import PairFiles


def _data(path: str) -> str:
    return base64.b64encode(Path(path).read_bytes()).decode()


def context_name(sandbox: str) -> str:
    """The name of cluster, context and administrator in kubeconfigs: ``polyarch-<sandbox>``."""
    return f"polyarch-{sandbox}"


def document(name: str, server: str, ca: str, user: dict[str, str]) -> dict[str, object]:
    """A kubeconfig with one cluster, user and context, all called ``name``."""
    return {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": name, "cluster": {"server": server, "certificate-authority-data": _data(ca)}}],
        "users": [{"name": name, "user": user}],
        "contexts": [{"name": name, "context": {"cluster": name, "user": name}}],
        "current-context": name,
    }


def with_certificate(name: str, server: str, ca: str, client: PairFiles) -> dict[str, object]:
    """For the administrator and the components."""
    user = {"client-certificate-data": _data(client.certificate), "client-key-data": _data(client.key)}
    return document(name, server, ca, user)


def with_token(name: str, server: str, ca: str, token: str) -> dict[str, object]:
    """For a ServiceAccount: what polyarch's roles run with (SB-006)."""
    return document(name, server, ca, {"token": token})
