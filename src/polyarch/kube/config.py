"""Finds the client configuration: in a kubeconfig, or in the pod's service account.

:func:`load` does what kubectl does: an explicit file, else the ``KUBECONFIG`` list, else ``~/.kube/config``, else the
cluster in which this process runs. Nothing here sends a request or starts a program: tokens are fetched and credential
plugins run when the client first needs them (``credentials.py``)."""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from polyarch.kube.errors import ConfigurationError
from polyarch.kube.settings import Configuration, PemSource, TlsSettings, User

SERVICE_ACCOUNT_DIRECTORY: Final = Path("/var/run/secrets/kubernetes.io/serviceaccount")


def load(
    kubeconfig: str | None = None, context: str | None = None, environ: Mapping[str, str] | None = None
) -> Configuration:
    """The configuration that kubectl would use; raises :class:`ConfigurationError`.

    An explicit ``kubeconfig`` must exist. Missing files in the ``KUBECONFIG`` list are skipped; the first file to
    define a context, cluster or user wins. Without any file, and without ``context``, the pod's service account is used
    if there is one.
    """
    environ = os.environ if environ is None else environ
    if kubeconfig:
        paths = [Path(kubeconfig).expanduser()]
    else:
        listed = environ.get("KUBECONFIG", "")
        paths = [Path(part) for part in listed.split(os.pathsep) if part] or [_home(environ) / ".kube" / "config"]
        if context is None and not any(path.exists() for path in paths) and running_in_cluster(environ):
            return in_cluster(environ)
    # Imported here because only processes outside a cluster read YAML.
    from polyarch.kube import kubeconfig as files

    return files.configuration(paths, context, environ, required=bool(kubeconfig))


def running_in_cluster(environ: Mapping[str, str], root: Path = SERVICE_ACCOUNT_DIRECTORY) -> bool:
    """Whether this process runs in a pod with a mounted service account."""
    return bool(environ.get("KUBERNETES_SERVICE_HOST")) and (root / "token").exists()


def in_cluster(environ: Mapping[str, str] | None = None, root: Path = SERVICE_ACCOUNT_DIRECTORY) -> Configuration:
    """The pod's service account. Its token file is read every minute, as the kubelet renews it.

    Proxies of the environment do not apply: a pod reaches its own API server directly.
    """
    environ = os.environ if environ is None else environ
    host, port = environ.get("KUBERNETES_SERVICE_HOST", ""), environ.get("KUBERNETES_SERVICE_PORT", "")
    if not host or not port:
        raise ConfigurationError(
            "in-cluster",
            "KUBERNETES_SERVICE_HOST, KUBERNETES_SERVICE_PORT",
            "are not both set",
            "this works in a pod only; elsewhere give a kubeconfig",
        )
    for name in ("token", "ca.crt"):
        if not (root / name).is_file():
            raise ConfigurationError(
                str(root / name), "", "there is no such file", "does the pod set automountServiceAccountToken: false?"
            )
    namespace = root / "namespace"
    return Configuration(
        server=f"https://{f'[{host}]' if ':' in host else host}:{port}",
        namespace=namespace.read_text().strip() if namespace.is_file() else "default",
        tls=TlsSettings(ca=PemSource(path="in-cluster", field="ca.crt", file=str(root / "ca.crt"))),
        user=User(path="in-cluster", field="token", token_file=str(root / "token")),
        compression=False,
        origin="in-cluster",
    )


def _home(environ: Mapping[str, str]) -> Path:
    """``/`` for a user that no file of users knows, as for runtimes of containers."""
    if home := environ.get("HOME"):
        return Path(home)
    try:
        return Path.home()
    except RuntimeError:
        return Path("/")
