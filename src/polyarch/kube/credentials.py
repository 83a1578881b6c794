"""The client's credentials, kept valid while the process runs: tokens, credential plugins, client certificates.

Tokens expire sooner than processes end. A token file is read again every minute and after a 401; a credential plugin
runs again when its credential expires or is rejected. If many requests get a 401 at once, the source is read only once
for all of them. A changed certificate makes a new TLS context.
"""

import asyncio
import base64
import os
import ssl
import sys
import tempfile
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final, NamedTuple, Protocol

import msgspec
import structlog

from polyarch.clock import Clock
from polyarch.kube.errors import ConfigurationError
from polyarch.kube.settings import ExecSettings, TlsSettings, User

log = structlog.get_logger(__name__)


# -- the TLS context ---------------------------------------------------------------------------------------------------

# aiohttp keys its connection pool by the context of a request. So after a rotation new requests use new connections,
# and requests in flight finish on the old ones.

RECHECK: Final = 60.0
"""Seconds between two reads of the certificate files."""


class ClientCertificate(NamedTuple):
    """A client certificate from a credential plugin, as PEM bytes."""

    certificate: bytes
    key: bytes

    def __repr__(self) -> str:
        return "ClientCertificate(…)"


class _Material(NamedTuple):
    ca: bytes | None
    certificate: bytes
    key: bytes


class TlsContexts:
    """Provides the current context. Files are read again every minute; a plugin's certificate is used as it comes.

    If the certificates cannot be used, the present context stays in use. It is an error only if there is none, or if a
    plugin has issued a new certificate.
    """

    def __init__(self, settings: TlsSettings, clock: Clock) -> None:
        self._settings = settings
        self._clock = clock
        self._due = float("-inf")
        self._plugin: ClientCertificate | None = None
        self._material: _Material | None = None
        self._context: ssl.SSLContext | None = None

    def current(self, plugin: ClientCertificate | None = None) -> ssl.SSLContext:
        """The context for the next request; the same object until a certificate changes."""
        now = self._clock.monotonic()
        if self._context is not None and now < self._due and plugin is self._plugin:
            return self._context
        try:
            material = self._read(plugin)
            if self._context is None or material != self._material:
                self._context = _context(material, self._settings)
        except ConfigurationError as error:
            if self._context is None or plugin is not self._plugin:
                raise
            # A rotation writes the files one by one; until it is complete the last context still works.
            log.warning("certificates unusable, using the last ones", problem=str(error))
            self._due = now + RECHECK
            return self._context
        self._material, self._plugin, self._due = material, plugin, now + RECHECK
        return self._context

    def expire(self) -> None:
        """Makes the next request read the files again: the server rejected our certificate."""
        self._due = float("-inf")

    def _read(self, plugin: ClientCertificate | None) -> _Material:
        settings = self._settings
        ca = settings.ca.read() if settings.ca is not None else None
        if plugin is not None:
            return _Material(ca, plugin.certificate, plugin.key)
        if settings.certificate is None or settings.key is None:
            return _Material(ca, b"", b"")
        return _Material(ca, settings.certificate.read(), settings.key.read())


def _context(material: _Material, settings: TlsSettings) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    if settings.skip_verify:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    elif material.ca is None:
        context.load_default_certs()
    else:
        # As in Go: every certificate of the bundle is trusted, also an intermediate or the server's own.
        context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
        try:
            context.load_verify_locations(cadata=material.ca.decode("ascii", "replace"))
        except (ssl.SSLError, ValueError) as error:
            raise _unusable(settings, "ca", "no certificate in PEM form can be read", error) from error
    if material.certificate:
        _load_chain(context, material, settings)
    return context


def _load_chain(context: ssl.SSLContext, material: _Material, settings: TlsSettings) -> None:
    """OpenSSL reads chains only from files; they are in a private directory, deleted at once."""
    with tempfile.TemporaryDirectory(prefix="polyarch-") as folder:
        chain = Path(folder) / "client.pem"
        chain.touch(mode=0o600)
        chain.write_bytes(material.certificate + b"\n" + material.key)
        try:
            context.load_cert_chain(chain, password=_no_password)
        except (ssl.SSLError, ValueError) as error:
            problem = "certificate and key do not belong together, or are not in PEM form"
            raise _unusable(settings, "certificate", problem, error) from error


def _no_password() -> str:
    # Without this OpenSSL would prompt on the terminal.
    raise ValueError("the client key is encrypted; a kubeconfig has no place for its password")


def _unusable(settings: TlsSettings, name: str, problem: str, error: Exception) -> ConfigurationError:
    pem = getattr(settings, name)
    detail = getattr(error, "reason", None) or str(error)
    if pem is None:
        return ConfigurationError("credential plugin", "status.clientCertificateData", f"{problem}: {detail}")
    source = f" in {pem.file}" if pem.file and pem.data is None else ""
    return ConfigurationError(pem.path, pem.field, f"{problem}{source}: {detail}")


# -- credential plugins: programs, named in a kubeconfig ---------------------------------------------------------------


# The contract is client.authentication.k8s.io (v1 and v1beta1): the request is in ``KUBERNETES_EXEC_INFO``, the answer
# is an ExecCredential on stdout. If a plugin is missing, fails, hangs or prints something else, the ConfigurationError
# names it, quotes its stderr and gives the kubeconfig's install hint. Its stdout is secret and is never quoted.

GROUP: Final = "client.authentication.k8s.io"
VERSIONS: Final = (f"{GROUP}/v1", f"{GROUP}/v1beta1")
TIMEOUT: Final = 60.0
INTERACTIVE_TIMEOUT: Final = 600.0
"""Seconds; a person may have to log in with a browser."""


class _Issued(msgspec.Struct, frozen=True, rename="camel"):
    token: str = ""
    expiration_timestamp: datetime | None = None
    client_certificate_data: str = ""
    client_key_data: str = ""


class _ExecCredential(msgspec.Struct, frozen=True, rename="camel"):
    api_version: str = ""
    kind: str = ""
    status: _Issued | None = None


class IssuedCredential(NamedTuple):
    """A plugin's credential; ``expires`` is None if it is valid until the server rejects it."""

    token: str
    certificate: ClientCertificate | None
    expires: datetime | None

    def __repr__(self) -> str:
        return f"IssuedCredential(…, expires={self.expires})"


class ExecPlugin:
    """Runs one plugin. ``timeout`` is in seconds; the default is longer for interactive plugins."""

    def __init__(
        self,
        settings: ExecSettings,
        *,
        timeout: float | None = None,
        terminal: Callable[[], bool] = lambda: sys.stdin is not None and sys.stdin.isatty(),
    ) -> None:
        self._settings = settings
        self._timeout = timeout
        self._terminal = terminal

    async def run(self) -> IssuedCredential:
        """Runs the plugin once; raises ConfigurationError."""
        settings = self._settings
        interactive = settings.interactive_mode != "Never" and self._terminal()
        if settings.interactive_mode == "Always" and not interactive:
            raise self._error("it has to ask a person, and there is no terminal", "run this from a terminal")
        try:
            process = await asyncio.create_subprocess_exec(
                settings.command,
                *settings.args,
                env={**os.environ, **dict(settings.env), "KUBERNETES_EXEC_INFO": self._request(interactive)},
                stdin=None if interactive else asyncio.subprocess.DEVNULL,
                stdout=asyncio.subprocess.PIPE,
                stderr=None if interactive else asyncio.subprocess.PIPE,
            )
        except OSError as error:
            problem = f"cannot run {settings.command!r}: {error.strerror or error}"
            raise self._error(problem, settings.install_hint or "is it installed and on PATH?") from error
        timeout = self._timeout or (INTERACTIVE_TIMEOUT if interactive else TIMEOUT)
        try:
            async with asyncio.timeout(timeout):
                stdout, stderr = await process.communicate()
        except TimeoutError as error:
            raise self._error(f"{settings.command!r} did not answer within {timeout:g} s") from error
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()
        if process.returncode:
            said = " ".join((stderr or b"").decode("utf-8", "replace").split())[-300:]
            problem = f"{settings.command!r} failed with exit code {process.returncode}{f': {said}' if said else ''}"
            raise self._error(problem, settings.install_hint)
        return self._read(stdout)

    def _request(self, interactive: bool) -> str:
        spec: dict[str, Any] = {"interactive": interactive}
        if self._settings.cluster is not None:
            spec["cluster"] = self._settings.cluster
        request = {"apiVersion": self._settings.api_version, "kind": "ExecCredential", "spec": spec}
        return msgspec.json.encode(request).decode()

    def _read(self, stdout: bytes) -> IssuedCredential:
        command = self._settings.command
        try:
            answer = msgspec.json.decode(stdout, type=_ExecCredential)
        except msgspec.DecodeError as error:
            raise self._error(f"{command!r} did not print an ExecCredential: {error}") from None
        if answer.kind != "ExecCredential" or answer.api_version != self._settings.api_version:
            problem = f"{command!r} printed {answer.api_version or 'no apiVersion'} {answer.kind or 'without kind'}"
            raise self._error(problem, f"expected {self._settings.api_version} ExecCredential")
        issued = answer.status
        if issued is None or not (issued.token or issued.client_certificate_data):
            raise self._error(f"{command!r} printed neither a token nor a client certificate")
        if bool(issued.client_certificate_data) != bool(issued.client_key_data):
            raise self._error(f"{command!r} printed only one of clientCertificateData and clientKeyData")
        certificate = None
        if issued.client_certificate_data:
            certificate = ClientCertificate(issued.client_certificate_data.encode(), issued.client_key_data.encode())
        expires = issued.expiration_timestamp
        if expires is not None and expires.tzinfo is None:
            expires = expires.replace(tzinfo=UTC)
        return IssuedCredential(issued.token, certificate, expires)

    def _error(self, problem: str, hint: str = "") -> ConfigurationError:
        return ConfigurationError(self._settings.path, self._settings.field, problem, hint)


# -- credentials, from whatever source ---------------------------------------------------------------------------------


Headers = tuple[tuple[str, str], ...]
"""Name and value pairs; ``Impersonate-Group`` may occur more than once."""

REREAD: Final = 60.0
"""Seconds after which a token file is read again."""


class Credential(NamedTuple):
    """What authenticates a request. Never printed."""

    headers: Headers
    certificate: ClientCertificate | None = None

    def __repr__(self) -> str:
        parts = [name for name, _ in self.headers] + ["client certificate"] * (self.certificate is not None)
        return f"Credential({', '.join(parts)})"


class Credentials(Protocol):
    """The seam between the transport and the ways to authenticate."""

    async def current(self) -> Credential:
        """The credential to send now; raises ConfigurationError if there is none."""
        ...

    async def refused(self, credential: Credential) -> bool:
        """Called when the server answered 401 to this credential; True if there is another one to try."""
        ...


def credentials_of(user: User, clock: Clock) -> Credentials:
    """The credentials of a kubeconfig's user. As in kubectl: a token file wins over a token, both over a password."""
    extra = user.impersonate
    if user.token_file:
        return TokenFile(user, extra, clock)
    if user.token:
        return StaticCredentials((_bearer(user.token), *extra))
    if user.exec is not None:
        return PluginCredentials(ExecPlugin(user.exec), extra, clock)
    if user.username:
        pair = base64.b64encode(f"{user.username}:{user.password}".encode()).decode()
        return StaticCredentials((("Authorization", f"Basic {pair}"), *extra))
    return StaticCredentials(extra)


def _bearer(token: str) -> tuple[str, str]:
    return "Authorization", f"Bearer {token}"


class StaticCredentials:
    """Headers that never change; none if a client certificate is all there is."""

    def __init__(self, headers: Headers) -> None:
        self._credential = Credential(headers)

    async def current(self) -> Credential:
        return self._credential

    async def refused(self, credential: Credential) -> bool:
        return False


class TokenFile:
    """A bearer token in a file that another process renews."""

    def __init__(self, user: User, extra: Headers, clock: Clock) -> None:
        self._user = user
        self._extra = extra
        self._clock = clock
        self._token = user.token
        self._credential: Credential | None = None
        self._due = float("-inf")

    async def current(self) -> Credential:
        if self._credential is None or self._clock.monotonic() >= self._due:
            self._credential = self._read()
        return self._credential

    async def refused(self, credential: Credential) -> bool:
        if self._credential is credential:
            self._credential = self._read()
        return self._credential is not credential

    def _read(self) -> Credential:
        """While the file cannot be read the last good token is used; without one that is an error."""
        user = self._user
        self._due = self._clock.monotonic() + REREAD
        try:
            token = Path(user.token_file).read_text().strip()
        except (OSError, UnicodeDecodeError) as error:
            token, problem = "", f"cannot read {user.token_file}: {getattr(error, 'strerror', None) or error}"
        else:
            problem = f"{user.token_file} is empty"
        if not token:
            if not self._token:
                raise ConfigurationError(user.path, user.field, problem, "who writes this file?")
            log.warning("token file unusable, using the last token", problem=problem)
            token = self._token
        if self._credential is not None and token == self._token:
            return self._credential
        self._token = token
        return Credential((_bearer(token), *self._extra))


class PluginCredentials:
    """The credential that a plugin issued, until it expires or is rejected."""

    def __init__(self, plugin: ExecPlugin, extra: Headers, clock: Clock) -> None:
        self._plugin = plugin
        self._extra = extra
        self._clock = clock
        self._lock = asyncio.Lock()
        self._credential: Credential | None = None
        self._expired: Callable[[], bool] = bool

    async def current(self) -> Credential:
        credential = self._credential
        if credential is not None and not self._expired():
            return credential
        async with self._lock:
            credential = self._credential
            if credential is None or self._expired():
                credential = await self._run()
            return credential

    async def refused(self, credential: Credential) -> bool:
        async with self._lock:
            if self._credential is credential:
                await self._run()
            return True

    async def _run(self) -> Credential:
        issued = await self._plugin.run()
        headers = (_bearer(issued.token), *self._extra) if issued.token else self._extra
        expires = issued.expires
        # Wall-clock time, because the plugin states the expiry in it.
        self._expired = (lambda: self._clock.now() >= expires) if expires is not None else bool
        self._credential = credential = Credential(headers, issued.certificate)
        return credential
