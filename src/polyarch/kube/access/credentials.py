"""Credentials of the client, kept current while the process runs (KR-001).

Tokens live shorter than processes. A token file is read again every minute and when the server answers 401; a
credential plugin runs again when what it gave expires, or is refused. However many requests are refused at once, one
look at the source serves them all.
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
"""Pairs, as ``Impersonate-Group`` may come more than once."""

REREAD: Final = 60.0
"""Seconds after which a token file is read again."""


class Credential(NamedTuple):
    """What goes with a request. Never printed."""

    headers: Headers
    certificate: ClientCertificate | None = None

    def __repr__(self) -> str:
        parts = [name for name, _ in self.headers] + ["client certificate"] * (self.certificate is not None)
        return f"Credential({', '.join(parts)})"


class Credentials(Protocol):
    """The seam between the transport and the ways to be somebody."""

    async def current(self) -> Credential:
        """What to send now; raises ConfigurationError when there is none to be had."""
        ...

    async def refused(self, credential: Credential) -> bool:
        """The server answered 401 to this one: is there another to try?"""
        ...


def credentials_of(user: User, clock: Clock) -> Credentials:
    """The living form of a kubeconfig's user. As in kubectl: the file before the token, both before a password."""
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
    """Headers that never change (or none: a client certificate of the configuration speaks for itself)."""

    def __init__(self, headers: Headers) -> None:
        self._credential = Credential(headers)

    async def current(self) -> Credential:
        return self._credential

    async def refused(self, credential: Credential) -> bool:
        return False


class TokenFile:
    """A bearer token in a file that somebody else renews."""

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
        """The last good token serves while the file cannot be read; without one that is an error."""
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
    """What a credential plugin hands out, until it expires or is refused."""

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
        # The plugin wrote wall-clock time, so wall-clock time it is compared with.
        self._expired = (lambda: self._clock.now() >= expires) if expires is not None else bool
        self._credential = credential = Credential(headers, issued.certificate)
        return credential
