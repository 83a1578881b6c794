"""The client's credentials, kept valid while the process runs (KR-001).

Tokens expire sooner than processes end. A token file is read again every minute and after a 401; a credential plugin
runs again when its credential expires or is rejected. If many requests get a 401 at once, the source is read only once
for all of them.
"""

import asyncio
import base64
from collections.abc import Callable
from pathlib import Path
from typing import Final, NamedTuple, Protocol

import structlog

from polyarch.kube.access.exec_plugin import ExecPlugin
from polyarch.kube.access.settings import User
from polyarch.kube.access.tls import ClientCertificate
from polyarch.kube.clock import Clock
from polyarch.kube.errors import ConfigurationError

log = structlog.get_logger(__name__)

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
        return Fixed((_bearer(user.token), *extra))
    if user.exec is not None:
        return PluginCredentials(ExecPlugin(user.exec), extra, clock)
    if user.username:
        pair = base64.b64encode(f"{user.username}:{user.password}".encode()).decode()
        return Fixed((("Authorization", f"Basic {pair}"), *extra))
    return Fixed(extra)


def _bearer(token: str) -> tuple[str, str]:
    return "Authorization", f"Bearer {token}"


class Fixed:
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
