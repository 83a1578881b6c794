"""The sandbox's certificate authorities, certificates and service-account key (SB-003).

Two authorities: one for everything that speaks to the API server, one for etcd alone, so that a cluster user's client
certificate opens no door to the store. Elliptic curves, as a dozen RSA keys would cost seconds at every first start.
"""

import datetime as dt
import ipaddress
from collections.abc import Sequence
from pathlib import Path

import msgspec
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from polyarch.sandbox.state import LOOPBACK, write_private

LIFETIME = dt.timedelta(days=3650)
BACKDATED = dt.timedelta(hours=1)
"""A machine whose clock is set back a little can still use the sandbox."""

SERVER_NAMES = (
    "localhost",
    "kubernetes",
    "kubernetes.default",
    "kubernetes.default.svc",
    "kubernetes.default.svc.cluster.local",
)


class Identity(msgspec.Struct, frozen=True):
    """Who a client certificate says one is: the user (common name) and its groups (organizations)."""

    user: str
    groups: tuple[str, ...] = ()


class Pair(msgspec.Struct, frozen=True):
    """A certificate and its key, PEM."""

    certificate: bytes
    key: bytes

    def write(self, folder: Path, name: str) -> "PairFiles":
        files = PairFiles(str(folder / f"{name}.crt"), str(folder / f"{name}.key"))
        write_private(Path(files.certificate), self.certificate)
        write_private(Path(files.key), self.key)
        return files

    @classmethod
    def read(cls, folder: Path, name: str) -> "Pair":
        return cls((folder / f"{name}.crt").read_bytes(), (folder / f"{name}.key").read_bytes())


class PairFiles(msgspec.Struct, frozen=True):
    """Where a pair is kept."""

    certificate: str
    key: str


def new_key() -> ec.EllipticCurvePrivateKey:
    return ec.generate_private_key(ec.SECP256R1())


def key_pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )


def public_pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.public_key().public_bytes(serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo)


class Authority:
    """A certificate authority: makes itself, and certificates."""

    def __init__(self, pair: Pair) -> None:
        self.pair = pair
        self._certificate = x509.load_pem_x509_certificate(pair.certificate)
        key = serialization.load_pem_private_key(pair.key, password=None)
        if not isinstance(key, ec.EllipticCurvePrivateKey):
            raise TypeError(f"authority key is {type(key).__name__}, expected an elliptic curve key")
        self._key = key

    @classmethod
    def create(cls, name: str, now: dt.datetime) -> "Authority":
        key = new_key()
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        certificate = (
            _builder(subject, subject, key, now)
            .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
            .add_extension(_usage(authority=True), critical=True)
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
            .sign(key, hashes.SHA256())
        )
        return cls(Pair(certificate.public_bytes(serialization.Encoding.PEM), key_pem(key)))

    def server(self, name: str, now: dt.datetime, *, addresses: Sequence[str] = (LOOPBACK,)) -> Pair:
        """A certificate for a server (and client: etcd's peers are both) on the loopback address and our host names."""
        alternatives = x509.SubjectAlternativeName(
            [x509.DNSName(host) for host in SERVER_NAMES]
            + [x509.IPAddress(ipaddress.ip_address(address)) for address in addresses]
        )
        usages = [ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH]
        return self._issue(Identity(name), now, usages, alternatives)

    def client(self, identity: Identity, now: dt.datetime) -> Pair:
        """A certificate that lets its holder act as ``identity``."""
        return self._issue(identity, now, [ExtendedKeyUsageOID.CLIENT_AUTH], None)

    def _issue(
        self,
        identity: Identity,
        now: dt.datetime,
        usages: Sequence[x509.ObjectIdentifier],
        alternatives: x509.SubjectAlternativeName | None,
    ) -> Pair:
        key = new_key()
        names = [x509.NameAttribute(NameOID.ORGANIZATION_NAME, group) for group in identity.groups]
        names.append(x509.NameAttribute(NameOID.COMMON_NAME, identity.user))
        builder = (
            _builder(x509.Name(names), self._certificate.subject, key, now)
            .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .add_extension(_usage(authority=False), critical=True)
            .add_extension(x509.ExtendedKeyUsage(usages), critical=False)
            .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key()), critical=False)
        )
        if alternatives is not None:
            builder = builder.add_extension(alternatives, critical=False)
        certificate = builder.sign(self._key, hashes.SHA256())
        return Pair(certificate.public_bytes(serialization.Encoding.PEM), key_pem(key))


def _builder(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePrivateKey, now: dt.datetime
) -> x509.CertificateBuilder:
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - BACKDATED)
        .not_valid_after(now + LIFETIME)
    )


def _usage(*, authority: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=True,
        content_commitment=False,
        key_encipherment=not authority,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=authority,
        crl_sign=authority,
        encipher_only=False,
        decipher_only=False,
    )


ADMINISTRATOR = Identity("polyarch-sandbox-admin", ("system:masters",))
CONTROLLER_MANAGER = Identity("system:kube-controller-manager")
SCHEDULER = Identity("system:kube-scheduler")
NODES = Identity("polyarch-sandbox-nodes", ("polyarch-sandbox:nodes",))

CLIENTS = {
    "admin": ADMINISTRATOR,
    "kube-controller-manager": CONTROLLER_MANAGER,
    "kube-scheduler": SCHEDULER,
    "nodes": NODES,
}


class Pki:
    """The files below ``pki/``; made once per sandbox, kept across ``down`` and ``up``."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.ca = str(folder / "ca.crt")
        self.etcd_ca = str(folder / "etcd-ca.crt")
        self.service_account_key = str(folder / "service-account.key")
        self.service_account_public = str(folder / "service-account.pub")
        self.server = self._files("server")
        self.etcd_server = self._files("etcd-server")
        self.etcd_client = self._files("etcd-client")
        self.webhook_folder = folder / "webhook"

    def _files(self, name: str) -> PairFiles:
        return PairFiles(str(self.folder / f"{name}.crt"), str(self.folder / f"{name}.key"))

    def client(self, name: str) -> PairFiles:
        """The client certificate of one of ``CLIENTS``."""
        return self._files(f"client-{name}")

    def ensure(self, now: dt.datetime) -> None:
        """Make everything, unless it is there; the mark is written last, so a cut-off attempt is made again."""
        mark = self.folder / "complete"
        if mark.exists():
            return
        cluster = Authority.create("polyarch-sandbox", now)
        store = Authority.create("polyarch-sandbox-etcd", now)
        cluster.pair.write(self.folder, "ca")
        store.pair.write(self.folder, "etcd-ca")
        cluster.server("kube-apiserver", now).write(self.folder, "server")
        store.server("etcd", now).write(self.folder, "etcd-server")
        store.client(Identity("kube-apiserver-etcd-client"), now).write(self.folder, "etcd-client")
        for name, identity in CLIENTS.items():
            cluster.client(identity, now).write(self.folder, f"client-{name}")
        # Names of files as a Secret of type kubernetes.io/tls would be mounted.
        webhook = cluster.server("polyarch-webhook", now)
        write_private(self.webhook_folder / "tls.crt", webhook.certificate)
        write_private(self.webhook_folder / "tls.key", webhook.key)
        write_private(self.webhook_folder / "ca.crt", cluster.pair.certificate)
        signing = new_key()
        write_private(Path(self.service_account_key), key_pem(signing))
        write_private(Path(self.service_account_public), public_pem(signing))
        write_private(mark, b"")

    def authority(self) -> Authority:
        """The cluster's authority, for certificates made later (a test's own webhook server)."""
        return Authority(Pair.read(self.folder, "ca"))
