"""Serving certificates, reloaded while they are in use.

A certificate comes from files (a mounted Secret, cert-manager, an administrator) or directly from a Secret. The source
is read every few seconds, or as soon as a watch shows a change. Changed content is first loaded into a new TLS context
as a test, then into the live one: new connections use it, open connections continue. Content that does not load (a
certificate without its key, half a file) is reported, and the present certificate stays in use.
"""

import asyncio
import binascii
import hashlib
import math
import os
import re
import ssl
import tempfile
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Final, NamedTuple

import msgspec
import structlog

from polyarch.clock import Clock, SystemClock, deadline
from polyarch.kube.client import Client
from polyarch.kube.errors import KubernetesError, NotFound
from polyarch.kube.informer import Informer
from polyarch.kube.metrics import Metrics
from polyarch.kube.resources import SECRETS
from polyarch.objects import ObjectKey, Secret

log = structlog.get_logger(__name__)

INTERVAL: Final = 10.0
"""Seconds between two reads of the source."""


class CertificateError(Exception):
    """A certificate cannot be used. The text names it, the problem, and what is expected."""


class KeyPair(NamedTuple):
    """A certificate chain and its private key, PEM."""

    certificate: bytes
    key: bytes

    def __repr__(self) -> str:
        return "KeyPair(…)"

    @property
    def fingerprint(self) -> str:
        digest = hashlib.blake2b(self.certificate, digest_size=16)
        digest.update(b"\0" + self.key)
        return digest.hexdigest()


class Certificates:
    """A live TLS context, kept current from ``read``; see :class:`FileCertificates` and :class:`SecretCertificates`."""

    def __init__(
        self,
        read: Callable[[], Awaitable[KeyPair]],
        origin: str,
        *,
        clock: Clock | None = None,
        metrics: Metrics | None = None,
        interval: float = INTERVAL,
    ) -> None:
        self._read = read
        self._origin = origin
        self._clock = clock or SystemClock()
        self._interval = interval
        self._fingerprint = ""
        self._refused = ""
        self._taken = asyncio.Event()
        self._news = asyncio.Event()
        self.context: ssl.SSLContext = server_context()
        self.expires_at: datetime | None = None
        self.problem: str | None = f"no certificate was loaded from {origin} yet"
        if metrics is not None:
            gauge = metrics.gauge(
                "polyarch_certificate_expiry_seconds", "Seconds until the certificate in use ends; NaN: none is loaded"
            )
            gauge.set_function(self._seconds_left)

    @property
    def loaded(self) -> bool:
        """Whether the context has a certificate, current or not."""
        return self._taken.is_set()

    def not_ready(self) -> str | None:
        """The readiness check: None once a certificate is loaded."""
        return None if self.loaded else self.problem

    async def ready(self) -> None:
        """Returns once a certificate is loaded; :meth:`run` has to run meanwhile."""
        await self._taken.wait()

    def _seconds_left(self) -> float:
        return (self.expires_at - self._clock.now()).total_seconds() if self.expires_at else math.nan

    async def load(self) -> bool:
        """Reads the source once; True if a new certificate was loaded. Raises :class:`CertificateError`."""
        try:
            pair = await self._read()
            if pair.fingerprint == self._fingerprint:
                self.problem = None
                return False
            expires_at = not_after(pair.certificate, self._origin)
            load_into(server_context(), pair, self._origin)
        except CertificateError as error:
            self.problem = str(error)
            raise
        load_into(self.context, pair, self._origin)
        self._fingerprint, self.expires_at, self.problem = pair.fingerprint, expires_at, None
        self._taken.set()
        log.info("certificate loaded", origin=self._origin, expires_at=expires_at.isoformat())
        return True

    async def run(self) -> None:
        """Reads the source until cancelled; every second before the first success, because readiness waits for it."""
        while True:
            self._news.clear()
            try:
                await self.load()
            except CertificateError as error:
                if str(error) != self._refused:
                    log.warning("certificate not usable", problem=str(error), serving_another=self.loaded)
                self._refused = str(error)
            else:
                self._refused = ""
            with suppress(TimeoutError):
                async with deadline(self._clock, self._interval if self.loaded else min(1.0, self._interval)):
                    await self._news.wait()

    def changed(self) -> None:
        """The source has changed: it is read now."""
        self._news.set()


class FileCertificates(Certificates):
    """``tls.crt`` and ``tls.key`` in a directory, as the kubelet mounts a Secret of type ``kubernetes.io/tls``."""

    def __init__(
        self,
        folder: Path | str,
        *,
        certificate: str = "tls.crt",
        key: str = "tls.key",
        clock: Clock | None = None,
        metrics: Metrics | None = None,
        interval: float = INTERVAL,
    ) -> None:
        paths = Path(folder) / certificate, Path(folder) / key

        async def read() -> KeyPair:
            return await asyncio.to_thread(lambda: KeyPair(*map(_file, paths)))

        super().__init__(read, str(folder), clock=clock, metrics=metrics, interval=interval)


class _SecretData(msgspec.Struct, frozen=True):
    data: dict[str, str] | None = None


class SecretCertificates(Certificates):
    """``tls.crt`` and ``tls.key`` of a Secret; needs the verb ``get`` on that one Secret only."""

    def __init__(
        self,
        client: Client,
        namespace: str,
        name: str,
        *,
        clock: Clock | None = None,
        metrics: Metrics | None = None,
        interval: float = INTERVAL,
    ) -> None:
        origin = f"Secret {namespace}/{name}"

        async def read() -> KeyPair:
            try:
                secret = await client.get(SECRETS, name, namespace=namespace, type=_SecretData)
            except NotFound:
                raise CertificateError(f"{origin} does not exist; the operator makes it, or create it") from None
            except KubernetesError as error:
                raise CertificateError(f"{origin} cannot be read: {error}") from None
            return KeyPair(*(_entry(secret, key, origin) for key in ("tls.crt", "tls.key")))

        super().__init__(read, origin, clock=clock, metrics=metrics, interval=interval)


class WatchedCertificates(Certificates):
    """``tls.crt`` and ``tls.key`` of a Secret that is watched: a change is served at once, without a mount."""

    def __init__(
        self,
        secrets: Informer[Secret],
        key: ObjectKey,
        *,
        clock: Clock | None = None,
        metrics: Metrics | None = None,
    ) -> None:
        origin = f"Secret {key}"

        async def read() -> KeyPair:
            secret = secrets.store.get(key)
            if secret is None:
                raise CertificateError(f"{origin} does not exist (yet)")
            data = secret.data or {}
            return KeyPair(*(_required(data.get(entry), entry, origin) for entry in ("tls.crt", "tls.key")))

        super().__init__(read, origin, clock=clock, metrics=metrics)
        self._synced = secrets.synced
        secrets.add_handler(lambda _: self.changed())

    async def run(self) -> None:
        """As above, from when the Secret was read: before that nobody knows whether it exists."""
        await self._synced()
        await super().run()


def server_context() -> ssl.SSLContext:
    """A TLS context for TLS 1.2 or newer and HTTP/1.1 only, without a certificate yet."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.set_alpn_protocols(["http/1.1"])
    return context


def load_into(context: ssl.SSLContext, pair: KeyPair, origin: str) -> None:
    """Loads a certificate into a context. A failure leaves the context unusable, so try a new one first."""
    with _as_files(pair) as (certificate, key):
        try:
            context.load_cert_chain(certificate, key, password=_no_password)
        except (ssl.SSLError, ValueError) as error:
            raise CertificateError(
                f"{origin}: tls.crt and tls.key are not a certificate and its own unencrypted key, both PEM: {error}"
            ) from None


def not_after(certificate: bytes, origin: str) -> datetime:
    """The expiry of the first certificate in a PEM text."""
    try:
        return expiry_of(certificate)
    except ValueError as error:
        raise CertificateError(f"{origin}: tls.crt does not begin with a certificate in PEM: {error}") from None


@contextmanager
def _as_files(pair: KeyPair) -> Iterator[tuple[str, str]]:
    """OpenSSL reads only files. They are in memory where possible, as the root file system may be read-only."""
    if hasattr(os, "memfd_create"):
        descriptors = [os.memfd_create("polyarch-tls"), os.memfd_create("polyarch-tls")]
        try:
            for descriptor, content in zip(descriptors, pair, strict=True):
                with os.fdopen(os.dup(descriptor), "wb") as file:
                    file.write(content)
            yield (f"/proc/self/fd/{descriptors[0]}", f"/proc/self/fd/{descriptors[1]}")
        finally:
            for descriptor in descriptors:
                os.close(descriptor)
    else:
        with tempfile.TemporaryDirectory() as folder:
            paths = Path(folder, "tls.crt"), Path(folder, "tls.key")
            for path, content in zip(paths, pair, strict=True):
                path.touch(mode=0o600)
                path.write_bytes(content)
            yield (str(paths[0]), str(paths[1]))


def _no_password() -> str:
    """Without it OpenSSL would prompt on the terminal."""
    return ""


def _file(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise CertificateError(f"{path} cannot be read: {error.strerror}") from None


def _required(content: bytes | None, key: str, origin: str) -> bytes:
    if not content:
        raise CertificateError(f"{origin} has no entry {key} (type kubernetes.io/tls is expected)")
    return content


def _entry(secret: _SecretData, key: str, origin: str) -> bytes:
    try:
        return binascii.a2b_base64((secret.data or {})[key], strict_mode=True)
    except KeyError:
        raise CertificateError(f"{origin} has no entry {key} (type kubernetes.io/tls is expected)") from None
    except binascii.Error:
        raise CertificateError(f"{origin}: entry {key} is not base64") from None


# -- the expiry, read from the bytes -----------------------------------------------------------------------------------


_PEM: Final = re.compile(rb"-----BEGIN CERTIFICATE-----(.*?)-----END CERTIFICATE-----", re.DOTALL)
_VERSION: Final = 0xA0
_UTC_TIME: Final = 0x17
_CENTURY: Final = 50
"""Two digits from here on are of the twentieth century (RFC 5280, 4.1.2.5.1)."""


def expiry_of(text: bytes) -> datetime:
    """The expiry of the first certificate in a PEM text. Raises ValueError if there is none."""
    found = _PEM.search(text)
    if found is None:
        raise ValueError("there is none")
    try:
        certificate = binascii.a2b_base64(found[1])
        _, whole = next(_elements(certificate))
        _, signed = next(_elements(whole))
        fields = [content for tag, content in _elements(signed) if tag != _VERSION]
        _, (tag, end) = _elements(fields[3])  # serial number, signature, issuer, validity
        written = end.decode("ascii")
        if tag == _UTC_TIME:
            written = f"{19 if int(written[:2]) >= _CENTURY else 20}{written}"
        return datetime.strptime(written, "%Y%m%d%H%M%SZ").replace(tzinfo=UTC)
    except (IndexError, StopIteration, binascii.Error) as error:
        raise ValueError(f"it is damaged: {error!r}") from None


def _elements(content: bytes) -> Iterator[tuple[int, bytes]]:
    """The elements of a DER sequence: tag and content."""
    at = 0
    while at < len(content):
        tag, length, at = content[at], content[at + 1], at + 2
        if length & 0x80:
            size = length & 0x7F
            length, at = int.from_bytes(content[at : at + size]), at + size
        yield tag, content[at : at + length]
        at += length
