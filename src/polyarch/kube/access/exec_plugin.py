"""Credential plugins: programs, named in a kubeconfig, that print a token or a client certificate.

The contract is client.authentication.k8s.io (v1 and v1beta1): the request is in ``KUBERNETES_EXEC_INFO``, the answer is
an ExecCredential on stdout. If a plugin is missing, fails, hangs or prints something else, the ConfigurationError names
it, quotes its stderr and gives the kubeconfig's install hint. Its stdout is secret and is never quoted.
"""

import asyncio
import os
import sys
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any, Final, NamedTuple

import msgspec

from polyarch.kube.access.settings import ExecSettings
from polyarch.kube.access.tls import ClientCertificate
from polyarch.kube.errors import ConfigurationError

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


class Issued(NamedTuple):
    """A plugin's credential; ``expires`` is None if it is valid until the server rejects it."""

    token: str
    certificate: ClientCertificate | None
    expires: datetime | None

    def __repr__(self) -> str:
        return f"Issued(…, expires={self.expires})"


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

    async def run(self) -> Issued:
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

    def _read(self, stdout: bytes) -> Issued:
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
        return Issued(issued.token, certificate, expires)

    def _error(self, problem: str, hint: str = "") -> ConfigurationError:
        return ConfigurationError(self._settings.path, self._settings.field, problem, hint)
