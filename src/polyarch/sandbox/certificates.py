"""The sandbox's CAs, certificates, service-account key and kubeconfigs, as files.

There are two CAs: one for the API server and its clients, one for etcd alone, so that a cluster user's client
certificate gives no access to etcd.
"""

import base64
import datetime as dt
import os
from collections.abc import Iterable
from pathlib import Path

import msgspec

from polyarch.kube import x509
from polyarch.kube.x509 import IssuedCertificate, Purpose, Subject
from polyarch.sandbox.files import write_private
from polyarch.sandbox.state import LOOPBACK

LIFETIME = dt.timedelta(days=3650)

SERVER_NAMES = (
    "localhost",
    "kubernetes",
    "kubernetes.default",
    "kubernetes.default.svc",
    "kubernetes.default.svc.cluster.local",
    LOOPBACK,
)

KUBELET_CLIENT = "kube-apiserver-kubelet-client"
"""Whom the nodes' kubelet API believes that it is the API server."""
CLIENTS = {
    "admin": Subject("polyarch-sandbox-admin", ("system:masters",)),
    "kube-controller-manager": Subject("system:kube-controller-manager"),
    "kube-scheduler": Subject("system:kube-scheduler"),
    "nodes": Subject("polyarch-sandbox-nodes", ("polyarch-sandbox:nodes",)),
    "egress": Subject("polyarch-sandbox-egress", ("polyarch-sandbox:egress",)),
    KUBELET_CLIENT: Subject(KUBELET_CLIENT),
    "kube-proxy": Subject("system:kube-proxy"),
}
"""Client → its user (common name) and groups (organizations) at the API server."""


class PairFiles(msgspec.Struct, frozen=True):
    """Paths of a certificate and its key (PEM)."""

    certificate: str
    key: str

    @classmethod
    def of(cls, folder: Path, name: str) -> "PairFiles":
        return cls(str(folder / f"{name}.crt"), str(folder / f"{name}.key"))

    def read(self) -> IssuedCertificate | None:
        """The pair; None if a file is missing or damaged, or the two do not belong together."""
        try:
            return x509.issued_of(Path(self.certificate).read_bytes(), Path(self.key).read_bytes())
        except FileNotFoundError:
            return None

    def write(self, issued: IssuedCertificate) -> None:
        write_private(Path(self.certificate), issued.certificate_pem)
        write_private(Path(self.key), issued.key_pem)


class Pki:
    """The files below ``pki/``. Each is created once and kept across ``down`` and ``up``."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.ca = str(folder / "ca.crt")
        self.etcd_ca = str(folder / "etcd-ca.crt")
        self.service_account_key = str(folder / "service-account.key")
        self.service_account_public = str(folder / "service-account.pub")
        self.server = PairFiles.of(folder, "server")
        self.etcd_server = PairFiles.of(folder, "etcd-server")
        self.etcd_client = PairFiles.of(folder, "etcd-client")
        self.webhook_folder = folder / "webhook"

    def client(self, name: str) -> PairFiles:
        """The client certificate of one of ``CLIENTS``."""
        return PairFiles.of(self.folder, f"client-{name}")

    def ensure(self, now: dt.datetime, *, addresses: Iterable[str] = ()) -> None:
        """Create what is missing or not signed by our CA: at the first start, after an interrupted one, and for
        identities that an older version did not have. The API server is valid at these ``addresses``, too."""
        cluster, store = (self._authority(name, now) for name in ("ca", "etcd-ca"))
        _keep(self.server, cluster, Subject("kube-apiserver"), now, serves=True, addresses=addresses)
        _keep(self.etcd_server, store, Subject("etcd"), now, serves=True)
        _keep(self.etcd_client, store, Subject("kube-apiserver-etcd-client"), now)
        for name, identity in CLIENTS.items():
            _keep(self.client(name), cluster, identity, now)
        # File names as in a mounted Secret of type kubernetes.io/tls.
        _keep(PairFiles.of(self.webhook_folder, "tls"), cluster, Subject("polyarch-webhook"), now, serves=True)
        write_private(self.webhook_folder / "ca.crt", cluster.certificate_pem)
        record_key = self.webhook_folder / "record.key"  # the key that signs placement's annotations
        if not record_key.exists():
            write_private(record_key, base64.b64encode(os.urandom(32)) + b"\n")
        if not Path(self.service_account_public).exists():
            signing = x509.new_key()
            write_private(Path(self.service_account_key), x509.key_pem(signing))
            write_private(Path(self.service_account_public), x509.public_pem(signing))

    def serving(self, name: str, folder: Path, now: dt.datetime, *, addresses: Iterable[str] = ()) -> PairFiles:
        """A server certificate signed by the cluster's CA, for a server that is added later (a test's own webhook);
        it is valid at these addresses too."""
        files = PairFiles.of(folder, name)
        _keep(files, self._authority("ca", now), Subject(name), now, serves=True, addresses=addresses)
        return files

    def node(self, name: str, folder: Path, now: dt.datetime, *, address: str) -> PairFiles:
        """The certificate of a kubelet, as a client of the API server and as the server at the node's address."""
        files = PairFiles.of(folder, "serving")
        identity = Subject(f"system:node:{name}", ("system:nodes",))
        _keep(files, self._authority("ca", now), identity, now, serves=True, addresses=(name, address))
        return files

    def _authority(self, name: str, now: dt.datetime) -> IssuedCertificate:
        files = PairFiles.of(self.folder, name)
        authority = files.read()
        if authority is None:
            full_name = "polyarch-sandbox" if name == "ca" else f"polyarch-sandbox-{name.removesuffix('-ca')}"
            authority = x509.make_authority(full_name, now=now, lifetime=LIFETIME)
            files.write(authority)
        return authority


def _keep(
    files: PairFiles,
    authority: IssuedCertificate,
    subject: Subject,
    now: dt.datetime,
    *,
    serves: bool = False,
    addresses: Iterable[str] = (),
) -> None:
    """Issue the certificate unless a fitting one exists. Servers get client usage too: an etcd peer is both."""
    names = (*SERVER_NAMES, *addresses) if serves else ()
    known = files.read()
    if known is None or not x509.fits(known.certificate, authority.certificate, subject, names):
        purposes = (Purpose.SERVER, Purpose.CLIENT) if serves else (Purpose.CLIENT,)
        files.write(x509.issue(authority, subject, now=now, lifetime=LIFETIME, purposes=purposes, names=names))


# -- kubeconfigs, as JSON, which is valid YAML and needs no quoting rules ----------------------------------------------


def _data(path: str) -> str:
    return base64.b64encode(Path(path).read_bytes()).decode()


def context_name(sandbox: str) -> str:
    """The name of cluster, context and administrator in kubeconfigs: ``polyarch-<sandbox>``."""
    return f"polyarch-{sandbox}"


def kubeconfig_document(name: str, server: str, ca: str, user: dict[str, str]) -> dict[str, object]:
    """A kubeconfig with one cluster, user and context, all called ``name``.

    Certificates and tokens are embedded, so that the file can be copied.
    """
    return {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": name, "cluster": {"server": server, "certificate-authority-data": _data(ca)}}],
        "users": [{"name": name, "user": user}],
        "contexts": [{"name": name, "context": {"cluster": name, "user": name}}],
        "current-context": name,
    }


def kubeconfig_with_certificate(name: str, server: str, ca: str, client: PairFiles) -> dict[str, object]:
    """For the administrator and the components."""
    user = {"client-certificate-data": _data(client.certificate), "client-key-data": _data(client.key)}
    return kubeconfig_document(name, server, ca, user)


def kubeconfig_with_token(name: str, server: str, ca: str, token: str) -> dict[str, object]:
    """For a ServiceAccount: what polyarch's roles run with."""
    return kubeconfig_document(name, server, ca, {"token": token})
