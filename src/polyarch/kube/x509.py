"""X.509 certificates: create, read and compare, for webhooks and for the sandbox.

The only module that imports ``cryptography``. Keys are ECDSA P-256. Validity starts an hour in the past, for
clients whose clocks are slow. Pure except for the random numbers of keys and serials: callers handle files and Secrets
and decide when to create something."""

import ipaddress
from collections.abc import Sequence
from datetime import datetime, timedelta
from enum import Enum
from typing import Final

import msgspec
from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509 import Certificate
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

__all__ = [
    "RENEW_AT",
    "SKEW",
    "Certificate",
    "IssuedCertificate",
    "Purpose",
    "Subject",
    "certificates_of",
    "fits",
    "is_due",
    "issue",
    "issued_of",
    "key_pem",
    "make_authority",
    "new_key",
    "pem",
    "public_pem",
]

SKEW: Final = timedelta(hours=1)
RENEW_AT: Final = 0.65
"""The fraction of its life after which a certificate is replaced: early, so that a late check is in time."""


class Purpose(Enum):
    """The extended key usage of a certificate."""

    SERVER = ExtendedKeyUsageOID.SERVER_AUTH
    CLIENT = ExtendedKeyUsageOID.CLIENT_AUTH


class Subject(msgspec.Struct, frozen=True):
    """To Kubernetes, the common name is the user's name and the organizations are the user's groups."""

    name: str
    organizations: tuple[str, ...] = ()


class IssuedCertificate(msgspec.Struct, frozen=True):
    """A certificate with its key."""

    certificate: Certificate
    key: ec.EllipticCurvePrivateKey

    def __repr__(self) -> str:
        return f"IssuedCertificate({self.certificate.subject.rfc4514_string()}, …)"

    @property
    def certificate_pem(self) -> bytes:
        return pem(self.certificate)

    @property
    def key_pem(self) -> bytes:
        return key_pem(self.key)


def new_key() -> ec.EllipticCurvePrivateKey:
    return ec.generate_private_key(ec.SECP256R1())


def key_pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    """The key as PKCS #8, not encrypted."""
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )


def public_pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.public_key().public_bytes(serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo)


def pem(*certificates: Certificate) -> bytes:
    """The certificates as one PEM text."""
    return b"".join(certificate.public_bytes(serialization.Encoding.PEM) for certificate in certificates)


def certificates_of(text: bytes) -> tuple[Certificate, ...]:
    """The certificates of a PEM text; empty if it is damaged."""
    try:
        return tuple(x509.load_pem_x509_certificates(text))
    except ValueError:
        return ()


def issued_of(certificate: bytes, key: bytes) -> IssuedCertificate | None:
    """The first certificate of a PEM text with its key; None if one is damaged or they do not match."""
    certificates = certificates_of(certificate)
    try:
        private = serialization.load_pem_private_key(key, password=None)
    except (ValueError, TypeError):
        return None
    if not certificates or not isinstance(private, ec.EllipticCurvePrivateKey):
        return None
    return IssuedCertificate(certificates[0], private) if private.public_key() == certificates[0].public_key() else None


def is_due(certificate: Certificate, now: datetime) -> bool:
    """Whether the certificate is old enough to be replaced, or not valid yet: its maker's clock was ahead."""
    begin, end = certificate.not_valid_before_utc, certificate.not_valid_after_utc
    return now < begin or now >= begin + (end - begin) * RENEW_AT


def fits(certificate: Certificate, authority: Certificate, subject: Subject, names: Sequence[str] = ()) -> bool:
    """Whether it was signed by this authority, for this subject and exactly these names."""
    if not has_signed(authority, certificate):
        return False
    try:
        found = set(certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value)
    except x509.ExtensionNotFound:
        found = set()
    return certificate.subject == _name(subject) and found == set(_alternative_names(names))


def has_signed(authority: Certificate, certificate: Certificate) -> bool:
    """Whether the signature is this authority's; validity aside."""
    try:
        certificate.verify_directly_issued_by(authority)
    except (ValueError, TypeError, InvalidSignature):
        return False
    return True


def make_authority(name: str, *, now: datetime, lifetime: timedelta) -> IssuedCertificate:
    """A new certificate authority, which may sign leaves only."""
    key = new_key()
    subject = _name(Subject(name))
    certificate = (
        _builder(subject, subject, key, now, now + lifetime)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_key_usage(authority=True), critical=True)
        .sign(key, hashes.SHA256())
    )
    return IssuedCertificate(certificate, key)


def issue(
    authority: IssuedCertificate,
    subject: Subject,
    *,
    now: datetime,
    lifetime: timedelta,
    purposes: Sequence[Purpose],
    names: Sequence[str] = (),
) -> IssuedCertificate:
    """A leaf that expires no later than its authority. ``names`` are its DNS names and IP addresses."""
    key = new_key()
    end = min(now + lifetime, authority.certificate.not_valid_after_utc)
    issuer = authority.certificate.extensions.get_extension_for_class(x509.SubjectKeyIdentifier).value
    builder = (
        _builder(_name(subject), authority.certificate.subject, key, now, end)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_key_usage(authority=False), critical=True)
        .add_extension(x509.ExtendedKeyUsage([purpose.value for purpose in purposes]), critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_subject_key_identifier(issuer), critical=False)
    )
    if names:
        builder = builder.add_extension(x509.SubjectAlternativeName(_alternative_names(names)), critical=False)
    return IssuedCertificate(builder.sign(authority.key, hashes.SHA256()), key)


def _name(subject: Subject) -> x509.Name:
    organizations = [x509.NameAttribute(NameOID.ORGANIZATION_NAME, group) for group in subject.organizations]
    return x509.Name([*organizations, x509.NameAttribute(NameOID.COMMON_NAME, subject.name)])


def _builder(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePrivateKey, begin: datetime, end: datetime
) -> x509.CertificateBuilder:
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(begin - SKEW)
        .not_valid_after(end)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
    )


def _key_usage(*, authority: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not authority,
        key_cert_sign=authority,
        crl_sign=authority,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )


def _alternative_names(names: Sequence[str]) -> list[x509.GeneralName]:
    def general(name: str) -> x509.GeneralName:
        try:
            return x509.IPAddress(ipaddress.ip_address(name))
        except ValueError:
            return x509.DNSName(name)

    return [general(name) for name in names]
