"""Self-managed certificates: creates and rotates a CA and a serving certificate.

The CA and its key are in a Secret that only this controller may read; the leaf is in another, which the servers read.
The controller runs in the leader. Each reconcile looks at both Secrets and at everything that has to trust the CA, and
takes the next step; the process may crash after any step. This order keeps every admission working:

1. a new CA is added to its Secret *in front of* the old ones; the leaf is unchanged;
2. webhook configurations and CRD conversions trust all of them;
3. when API servers have had time to see that, a leaf of the new CA replaces the old leaf; replicas load it at their
   next read;
4. an old CA is removed from the bundle when the last leaf it signed has expired: until then a replica may still serve
   that leaf.

If the Secrets are lost, step 2 also keeps our CAs that it finds in the configurations, so that replicas that still
serve the lost leaf from memory stay trusted. If somebody else has made the leaf until now, its CA stays trusted in the
same way until replicas have had time to load ours."""

import binascii
from collections.abc import Awaitable, Callable, Mapping
from datetime import datetime, timedelta
from typing import Any, Final

import msgspec
import structlog

from polyarch.clock import Clock, SystemClock
from polyarch.kube import x509
from polyarch.kube.client import Client
from polyarch.kube.controller import RequeueAfter
from polyarch.kube.errors import NotFound
from polyarch.kube.patches import JsonPatch, MergePatch, Operation, add, pointer, test
from polyarch.kube.resources import CRDS, MUTATING_WEBHOOKS, SECRETS, VALIDATING_WEBHOOKS, Resource
from polyarch.kube.x509 import Certificate, IssuedCertificate, Purpose, Subject
from polyarch.objects import ObjectKey, ObjectMeta

log = structlog.get_logger(__name__)

PROPAGATION: Final = 30.0
"""Seconds after which every API server has seen, by its watch, a caBundle that was written."""

LOADING: Final = 180.0
"""Seconds after which every replica has loaded a leaf that was written: kubelets renew mounted Secrets each minute."""

_STEPS: Final = 4
"""Create a CA, create a leaf, remove old CAs, find nothing to do; more passes mean that something undoes our writes."""

_LEAF: Final = Subject("polyarch")


class SelfManagedSettings(msgspec.Struct, frozen=True, kw_only=True):
    """``names`` are the leaf's DNS names and IP addresses; ``webhooks`` and ``conversions`` get the CA to trust."""

    namespace: str
    names: tuple[str, ...]
    secret: str = "polyarch-certificates"
    """The Secret with the leaf: ``tls.crt`` and ``tls.key``."""
    authority_secret: str = "polyarch-ca"
    """The Secret with the CA: ``ca.crt`` (the current CA first, then old ones still trusted) and ``ca.key``."""
    mutating_webhooks: tuple[str, ...] = ()
    validating_webhooks: tuple[str, ...] = ()
    conversions: tuple[str, ...] = ()
    labels: Mapping[str, str] = {}
    owner: Mapping[str, Any] | None = None
    """An owner reference for both Secrets: they are deleted with it."""
    ca_lifetime: timedelta = timedelta(days=3650)
    leaf_lifetime: timedelta = timedelta(days=90)
    interval: float = 60.0


class CertificateAuthority(msgspec.Struct, frozen=True):
    """The usable part of the CA's Secret; ``bundle`` has the current CA first."""

    current: IssuedCertificate | None = None
    bundle: tuple[Certificate, ...] = ()


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
    """The reconciler of one CA and its leaf; enqueue :attr:`key` once, it requeues itself."""

    def __init__(self, client: Client, settings: SelfManagedSettings, *, clock: Clock | None = None) -> None:
        if not settings.names:
            raise ValueError("a serving certificate needs at least one name: <service>.<namespace>.svc")
        self._client = client
        self._settings = settings
        self._clock = clock or SystemClock()
        self._bundle: tuple[Certificate, ...] = ()
        self._overlapping = False
        self._trusted_since: tuple[Certificate | None, float] = (None, 0.0)
        self._foreign: tuple[Certificate | None, float] = (None, 0.0)
        """A leaf that somebody else's CA has signed, and until when replicas may serve it."""
        self.key = ObjectKey(settings.namespace, settings.secret)

    @property
    def ca_bundle(self) -> str:
        """``caBundle`` (base64) for configurations created elsewhere; empty before the first reconcile."""
        return self.wanted("")

    def wanted(self, found: str) -> str:
        """``caBundle`` for a configuration that has ``found``: it keeps our CAs that are lost from the Secret.

        Who writes configurations beside this controller writes this value, so that the two agree.
        """
        bundle, now = self._bundle, self._clock.now()
        lost = [
            known
            for known in x509.certificates_of(_from_base64(found))
            if known not in bundle
            and known.not_valid_after_utc > now
            and ((self._overlapping and known.subject == bundle[0].subject) or self._has_signed_foreign(known))
        ]
        return _base64(x509.pem(*bundle, *lost))

    def _has_signed_foreign(self, authority: Certificate) -> bool:
        leaf, until = self._foreign
        return leaf is not None and self._clock.monotonic() < until and x509.has_signed(authority, leaf)

    def _notice_foreign(self, leaf: IssuedCertificate | None, bundle: tuple[Certificate, ...]) -> None:
        if leaf is None or any(x509.has_signed(each, leaf.certificate) for each in bundle):
            return
        self._foreign = (leaf.certificate, self._clock.monotonic() + PROPAGATION + LOADING)

    async def reconcile(self, key: ObjectKey) -> RequeueAfter:
        """One pass over CA, trust, leaf and old CAs, as far as each is due. The process may crash after any step."""
        settings = self._settings
        for _ in range(_STEPS):
            now = self._clock.now()
            kept = await self._read(settings.authority_secret)
            known = authority_of(kept.data or {})
            if known.current is None or x509.is_due(known.current.certificate, now):
                made = x509.make_authority(_ca_name(settings.namespace), now=now, lifetime=settings.ca_lifetime)
                old = tuple(each for each in known.bundle if each.not_valid_after_utc > now)
                entries = {"ca.crt": x509.pem(made.certificate, *old), "ca.key": made.key_pem}
                await self._write(settings.authority_secret, "Opaque", kept, entries)
                log.info("certificate authority made", secret=settings.authority_secret, old_ones_kept=len(old))
                continue
            authority = known.current
            overlapping = now < authority.certificate.not_valid_before_utc + settings.leaf_lifetime + 2 * x509.SKEW
            bundle = known.bundle if overlapping else known.bundle[:1]
            served = await self._read(settings.secret)
            leaf = leaf_of(served.data or {})
            self._notice_foreign(leaf, bundle)
            others = await self._trust(bundle, overlapping)
            if leaf is None or needs_leaf(leaf, authority.certificate, settings.names, now):
                # An expired leaf is accepted by nobody, so there is nothing that a wait would keep alive.
                in_use = leaf is None or now < leaf.certificate.not_valid_after_utc
                if others and in_use and (left := self._until_known(authority.certificate)) > 0:
                    return RequeueAfter(left)
                leaf = x509.issue(
                    authority,
                    _LEAF,
                    now=now,
                    lifetime=settings.leaf_lifetime,
                    purposes=[Purpose.SERVER],
                    names=settings.names,
                )
                entries = {"tls.crt": leaf.certificate_pem, "tls.key": leaf.key_pem}
                await self._write(settings.secret, "kubernetes.io/tls", served, entries)
                log.info("serving certificate made", secret=str(key), names=settings.names)
                continue
            if len(bundle) < len(known.bundle):
                await self._write(settings.authority_secret, "Opaque", kept, {"ca.crt": x509.pem(*bundle)})
                log.info("old certificate authorities dropped", secret=settings.authority_secret)
                continue
            break
        return RequeueAfter(settings.interval)

    async def _read(self, name: str) -> _Secret:
        try:
            return await self._client.get(SECRETS, name, namespace=self.key.namespace, type=_Secret)
        except NotFound:
            return _Secret()

    async def _write(self, name: str, type: str, known: _Secret, entries: Mapping[str, bytes]) -> None:
        """Writes these entries. Raises Conflict or AlreadyExists if somebody else wrote meanwhile."""
        data = {entry: _base64(content) for entry, content in entries.items()}
        namespace, version = self.key.namespace, known.metadata.resource_version
        if version:
            change = MergePatch({"metadata": {"resourceVersion": version}, "data": data})
            await self._client.patch(SECRETS, name, change, namespace=namespace)
        else:
            metadata: dict[str, Any] = {"name": name, "namespace": namespace, "labels": dict(self._settings.labels)}
            if self._settings.owner is not None:
                metadata["ownerReferences"] = [self._settings.owner]
            document = {"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "type": type, "data": data}
            await self._client.create(SECRETS, document, namespace=namespace)

    def _until_known(self, authority: Certificate) -> float:
        """Seconds until every API server trusts this CA, counted from when all configurations had it."""
        trusted, since = self._trusted_since
        return since + PROPAGATION - self._clock.monotonic() if trusted == authority else PROPAGATION

    async def _trust(self, bundle: tuple[Certificate, ...], overlapping: bool) -> bool:
        """Writes the bundle wherever it is missing; objects that do not exist yet get it from their creator.

        True if a CA other than the current one is trusted: then its leaves may still be in use.
        """
        self._bundle, self._overlapping = bundle, overlapping
        others, written = len(bundle) > 1, False

        def wanted(found: str) -> str:
            nonlocal others, written
            text = self.wanted(found)
            others, written = others or text != current, written or text != found
            return text

        current = self.wanted("")
        settings = self._settings
        for resource, names in (
            (MUTATING_WEBHOOKS, settings.mutating_webhooks),
            (VALIDATING_WEBHOOKS, settings.validating_webhooks),
        ):
            for name in names:
                await self._patch(resource, name, self._webhook_operations, wanted)
        for name in settings.conversions:
            await self._patch(CRDS, name, self._conversion_operations, wanted)
        if written or self._trusted_since[0] != bundle[0]:
            self._trusted_since = (bundle[0], self._clock.monotonic())
        return others

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


def authority_of(data: Mapping[str, str]) -> CertificateAuthority:
    """The usable part of a CA's Secret. Damaged parts count as absent and are created again."""
    certificates, key = (_from_base64(data.get(name, "")) for name in ("ca.crt", "ca.key"))
    return CertificateAuthority(x509.issued_of(certificates, key), x509.certificates_of(certificates))


def leaf_of(data: Mapping[str, str]) -> IssuedCertificate | None:
    """The leaf in a Secret; None if it is not usable."""
    return x509.issued_of(*(_from_base64(data.get(name, "")) for name in ("tls.crt", "tls.key")))


def needs_leaf(leaf: IssuedCertificate, authority: Certificate, names: tuple[str, ...], now: datetime) -> bool:
    """Whether the leaf is due for renewal, signed by another CA, or for other names."""
    return x509.is_due(leaf.certificate, now) or not x509.fits(leaf.certificate, authority, _LEAF, names)


def _ca_name(namespace: str) -> str:
    """The same name for all CAs of a namespace, so that lost ones are recognised."""
    return f"polyarch CA of {namespace}"[:64]


def _base64(content: bytes) -> str:
    return binascii.b2a_base64(content, newline=False).decode("ascii")


def _from_base64(text: str) -> bytes:
    try:
        return binascii.a2b_base64(text)
    except binascii.Error:
        return b""
