"""Certificates that need nobody else: a CA and a serving certificate in one Secret, made and rotated here (KR-033).

Run by the leader, as a controller: each pass looks at the Secret and at everything that has to trust it, and takes the
next step; each step may be the last one before a crash. The order is what keeps every admission working:

1. a new CA goes into the Secret *in front of* the old ones, the leaf stays as it is;
2. webhook configurations and CRD conversions trust all of them;
3. only then the leaf is replaced by one of the new CA, and replicas load it whenever they look next;
4. an old CA leaves the bundle when the last leaf it signed has expired: until then some replica may still serve it.

Should the Secret get lost, step 2 also keeps CAs of ours that it finds in the configurations, so that replicas that
still serve the lost leaf from memory stay trusted. The CA's key is in the same Secret as the leaf's: whoever may read
that Secret by name could sign names for our webhooks, nothing else trusts it.

The only module that imports ``cryptography``; the roles that need it import this module when they do.
"""

import binascii
import ipaddress
from collections.abc import Awaitable, Callable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Final

import msgspec
import structlog
from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from polyarch.kube.client.client import Client, JsonPatch, MergePatch
from polyarch.kube.client.jsonpatch import Operation, add, pointer, test
from polyarch.kube.clock import Clock, SystemClock
from polyarch.kube.errors import NotFound
from polyarch.kube.resources import CRDS, MUTATING_WEBHOOKS, SECRETS, VALIDATING_WEBHOOKS, Resource
from polyarch.kube.runtime.controller import After
from polyarch.model.meta import Key, ObjectMeta

log = structlog.get_logger(__name__)

RENEW_AT: Final = 0.65
"""The part of its life after which a certificate is replaced: before two thirds, however late the pass is."""

_STEPS: Final = 4
"""A CA, a leaf, an end of old CAs, and the look that finds nothing more to do; more means that somebody undoes them."""

_SKEW: Final = timedelta(hours=1)
"""Validity begins in the past by this, for clients whose clocks are slow."""


class SelfManagedSettings(msgspec.Struct, frozen=True, kw_only=True):
    """``names`` are DNS names and IP addresses of the leaf; webhooks and conversions are where the CA is trusted."""

    namespace: str
    names: tuple[str, ...]
    secret: str = "polyarch-certificates"
    mutating_webhooks: tuple[str, ...] = ()
    validating_webhooks: tuple[str, ...] = ()
    conversions: tuple[str, ...] = ()
    labels: Mapping[str, str] = {}
    ca_lifetime: timedelta = timedelta(days=3650)
    leaf_lifetime: timedelta = timedelta(days=90)
    interval: float = 60.0


class Issued(msgspec.Struct, frozen=True):
    """A certificate with its key."""

    certificate: x509.Certificate
    key: ec.EllipticCurvePrivateKey

    @property
    def key_pem(self) -> bytes:
        return self.key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )


class Material(msgspec.Struct, frozen=True):
    """What a Secret holds that is usable; ``bundle`` has the current CA first."""

    authority: Issued | None = None
    bundle: tuple[x509.Certificate, ...] = ()
    leaf: Issued | None = None


class _Secret(msgspec.Struct, frozen=True):
    metadata: ObjectMeta = ObjectMeta()
    data: dict[str, str] | None = None


class _ClientConfig(msgspec.Struct, frozen=True, rename={"ca_bundle": "caBundle"}):
    ca_bundle: str = ""


class _Webhook(msgspec.Struct, frozen=True, rename="camel"):
    name: str
    client_config: _ClientConfig = _ClientConfig()


class _WebhookConfiguration(msgspec.Struct, frozen=True):
    webhooks: list[_Webhook] | None = None


class _ConversionWebhook(msgspec.Struct, frozen=True, rename="camel"):
    client_config: _ClientConfig | None = None


class _Conversion(msgspec.Struct, frozen=True):
    strategy: str = "None"
    webhook: _ConversionWebhook | None = None


class _CrdSpec(msgspec.Struct, frozen=True):
    conversion: _Conversion | None = None


class _Crd(msgspec.Struct, frozen=True):
    spec: _CrdSpec


class SelfManaged:
    """The reconcile function of one Secret; enqueue :attr:`key` once, it comes back by itself."""

    def __init__(self, client: Client, settings: SelfManagedSettings, *, clock: Clock | None = None) -> None:
        if not settings.names:
            raise ValueError("a serving certificate needs at least one name: <service>.<namespace>.svc")
        self._client = client
        self._settings = settings
        self._clock = clock or SystemClock()
        self._bundle = b""
        self.key = Key(settings.namespace, settings.secret)

    @property
    def ca_bundle(self) -> str:
        """``caBundle`` for configurations made elsewhere, base64; empty before the first pass."""
        return _base64(self._bundle)

    async def reconcile(self, key: Key) -> After:
        """One pass: CA, trust, leaf, old CAs, as far as each is due. Any step may be the last before a crash."""
        settings = self._settings
        for _ in range(_STEPS):
            now = self._clock.now()
            secret = await self._read()
            material = material_of(secret.data or {})
            authority, leaf = material.authority, material.leaf
            if authority is None or is_due(authority.certificate, now):
                authority = make_authority(settings.namespace, settings.ca_lifetime, now)
                old = tuple(known for known in material.bundle if known.not_valid_after_utc > now)
                await self._write(secret, {"ca.crt": _pem(authority.certificate, *old), "ca.key": authority.key_pem})
                log.info("certificate authority made", secret=str(key), old_ones_kept=len(old))
                continue
            overlapping = now < authority.certificate.not_valid_before_utc + settings.leaf_lifetime + 2 * _SKEW
            bundle = material.bundle if overlapping else material.bundle[:1]
            await self._trust(bundle, overlapping, now)
            if leaf is None or needs_leaf(leaf, authority.certificate, settings.names, now):
                leaf = make_leaf(authority, settings.names, settings.leaf_lifetime, now)
                await self._write(secret, {"tls.crt": _pem(leaf.certificate), "tls.key": leaf.key_pem})
                log.info("serving certificate made", secret=str(key), names=settings.names)
                continue
            if len(bundle) < len(material.bundle):
                await self._write(secret, {"ca.crt": _pem(*bundle)})
                log.info("old certificate authorities dropped", secret=str(key))
                continue
            break
        return After(settings.interval)

    async def _read(self) -> _Secret:
        try:
            return await self._client.get(SECRETS, self.key.name, namespace=self.key.namespace, type=_Secret)
        except NotFound:
            return _Secret()

    async def _write(self, known: _Secret, entries: Mapping[str, bytes]) -> None:
        """Changes these entries if nobody else wrote in between (else Conflict or AlreadyExists, and another pass)."""
        data = {name: _base64(content) for name, content in entries.items()}
        name, namespace = self.key.name, self.key.namespace
        version = known.metadata.resource_version
        if version:
            change = MergePatch({"metadata": {"resourceVersion": version}, "data": data})
            await self._client.patch(SECRETS, name, change, namespace=namespace)
        else:
            metadata = {"name": name, "namespace": namespace, "labels": dict(self._settings.labels)}
            document = {"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "type": "Opaque", "data": data}
            await self._client.create(SECRETS, document, namespace=namespace)

    async def _trust(self, bundle: Sequence[x509.Certificate], overlapping: bool, now: datetime) -> None:
        """Writes the bundle wherever it is not; objects that do not exist yet get it from whoever makes them."""
        self._bundle = _pem(*bundle)

        def wanted(found: str) -> str:
            lost = [
                known
                for known in certificates_of(_from_base64(found))
                if overlapping
                and known not in bundle
                and known.subject == bundle[0].subject
                and known.not_valid_after_utc > now
            ]
            return _base64(_pem(*bundle, *lost))

        settings = self._settings
        for resource, names in (
            (MUTATING_WEBHOOKS, settings.mutating_webhooks),
            (VALIDATING_WEBHOOKS, settings.validating_webhooks),
        ):
            for name in names:
                await self._patch(resource, name, self._webhook_operations, wanted)
        for name in settings.conversions:
            await self._patch(CRDS, name, self._conversion_operations, wanted)

    async def _patch(
        self,
        resource: Resource,
        name: str,
        operations_of: Callable[[Resource, str, Callable[[str], str]], Awaitable[tuple[Operation, ...]]],
        wanted: Callable[[str], str],
    ) -> None:
        try:
            operations = await operations_of(resource, name, wanted)
            if operations:
                await self._client.patch(resource, name, JsonPatch(operations))
                log.info("caBundle written", resource=str(resource), name=name)
        except NotFound:
            log.debug("nothing to write caBundle into yet", resource=str(resource), name=name)

    async def _webhook_operations(
        self, resource: Resource, name: str, wanted: Callable[[str], str]
    ) -> tuple[Operation, ...]:
        configuration = await self._client.get(resource, name, type=_WebhookConfiguration)
        operations: list[Operation] = []
        for index, webhook in enumerate(configuration.webhooks or ()):
            found = webhook.client_config.ca_bundle
            if found != (bundle := wanted(found)):
                operations += [
                    test(pointer("webhooks", index, "name"), webhook.name),
                    add(pointer("webhooks", index, "clientConfig", "caBundle"), bundle),
                ]
        return tuple(operations)

    async def _conversion_operations(
        self, resource: Resource, name: str, wanted: Callable[[str], str]
    ) -> tuple[Operation, ...]:
        conversion = (await self._client.get(resource, name, type=_Crd)).spec.conversion
        if conversion is None or conversion.webhook is None or conversion.webhook.client_config is None:
            return ()
        found = conversion.webhook.client_config.ca_bundle
        if found == (bundle := wanted(found)):
            return ()
        return (
            test("/spec/conversion/strategy", conversion.strategy),
            add("/spec/conversion/webhook/clientConfig/caBundle", bundle),
        )


def material_of(data: Mapping[str, str]) -> Material:
    """What is usable of a Secret's entries. Damaged parts count as absent and are made anew."""
    content = {name: _from_base64(data.get(name, "")) for name in ("ca.crt", "ca.key", "tls.crt", "tls.key")}
    bundle = certificates_of(content["ca.crt"])
    authority = _issued(bundle[0], content["ca.key"]) if bundle else None
    leaves = certificates_of(content["tls.crt"])
    leaf = _issued(leaves[0], content["tls.key"]) if leaves else None
    return Material(authority, bundle, leaf)


def certificates_of(pem: bytes) -> tuple[x509.Certificate, ...]:
    """The certificates of a PEM text; none if it is damaged."""
    try:
        return tuple(x509.load_pem_x509_certificates(pem))
    except ValueError:
        return ()


def is_due(certificate: x509.Certificate, now: datetime) -> bool:
    """Has it lived long enough to be replaced?"""
    begin, end = certificate.not_valid_before_utc, certificate.not_valid_after_utc
    return now >= begin + (end - begin) * RENEW_AT


def needs_leaf(leaf: Issued, authority: x509.Certificate, names: Sequence[str], now: datetime) -> bool:
    """Is the leaf too old, of another CA, or for other names?"""
    if is_due(leaf.certificate, now):
        return True
    try:
        leaf.certificate.verify_directly_issued_by(authority)
        found = leaf.certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except (ValueError, TypeError, InvalidSignature, x509.ExtensionNotFound):
        return True
    return set(found) != set(_alternative_names(names))


def make_authority(namespace: str, lifetime: timedelta, now: datetime) -> Issued:
    """A new CA. Its name is the same for all CAs of a namespace, which is how lost ones are recognised."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, f"polyarch CA of {namespace}"[:64])])
    certificate = (
        _builder(name, name, key, now, now + lifetime)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_key_usage(certificate_sign=True), critical=True)
        .sign(key, hashes.SHA256())
    )
    return Issued(certificate, key)


def make_leaf(authority: Issued, names: Sequence[str], lifetime: timedelta, now: datetime) -> Issued:
    """A serving certificate for these names."""
    key = ec.generate_private_key(ec.SECP256R1())
    end = min(now + lifetime, authority.certificate.not_valid_after_utc)
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "polyarch")])
    issuer = authority.certificate.extensions.get_extension_for_class(x509.SubjectKeyIdentifier).value
    certificate = (
        _builder(subject, authority.certificate.subject, key, now, end)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_key_usage(certificate_sign=False), critical=True)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .add_extension(x509.SubjectAlternativeName(_alternative_names(names)), critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_subject_key_identifier(issuer), critical=False)
        .sign(authority.key, hashes.SHA256())
    )
    return Issued(certificate, key)


def _builder(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePrivateKey, begin: datetime, end: datetime
) -> x509.CertificateBuilder:
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(begin - _SKEW)
        .not_valid_after(end)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
    )


def _key_usage(*, certificate_sign: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not certificate_sign,
        key_cert_sign=certificate_sign,
        crl_sign=certificate_sign,
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


def _issued(certificate: x509.Certificate, key_pem: bytes) -> Issued | None:
    try:
        key = serialization.load_pem_private_key(key_pem, password=None)
    except (ValueError, TypeError):
        return None
    if not isinstance(key, ec.EllipticCurvePrivateKey) or key.public_key() != certificate.public_key():
        return None
    return Issued(certificate, key)


def _pem(*certificates: x509.Certificate) -> bytes:
    return b"".join(certificate.public_bytes(serialization.Encoding.PEM) for certificate in certificates)


def _base64(content: bytes) -> str:
    return binascii.b2a_base64(content, newline=False).decode("ascii")


def _from_base64(text: str) -> bytes:
    try:
        return binascii.a2b_base64(text)
    except binascii.Error:
        return b""
