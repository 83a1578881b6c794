"""The options of every command that asks registries (RG-140), and what they make: one meaning for all commands.

Files that an option names are read and checked before the first request; what is wrong with them is a usage error.
"""

import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from polyarch.cli.errors import UsageError
from polyarch.cli.options.values import REGISTRIES, Directory, File, Host, Number, Seconds, check_seconds, option

if TYPE_CHECKING:  # what --help does not need costs it nothing
    from polyarch.oci.auth.auth_files import FileCredentials
    from polyarch.oci.mirrors.sources import Configuration
    from polyarch.oci.transport.tls import TrustSettings


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class RegistryOptions:
    """Who asks, where, and whom to trust."""

    authfile: Annotated[File | None, option("Use only this registry credentials file", group=REGISTRIES)] = None
    registries_conf: Annotated[
        File | None, option("Mirror configuration, see containers-registries.conf(5)", group=REGISTRIES)
    ] = None
    hosts_dir: Annotated[
        Directory | None, option("Mirror configuration, containerd's hosts.toml directories", group=REGISTRIES)
    ] = None
    certs_dir: Annotated[Directory | None, option("Certificates by registry, HOST[:PORT]/*.crt", group=REGISTRIES)] = (
        None
    )
    ca: Annotated[list[File] | None, option("CA certificates (PEM) to trust; repeatable", group=REGISTRIES)] = None
    insecure: Annotated[
        list[Host] | None,
        option("Allow plain HTTP and unverified TLS for HOST[:PORT]; repeatable", group=REGISTRIES),
    ] = None
    timeout: Annotated[Seconds, option("Time limit for one image", group=REGISTRIES)] = 60.0
    max_wait: Annotated[Seconds, option("Longest wait for a registry's rate limit, per image", group=REGISTRIES)] = 60.0
    concurrency: Annotated[Number, option("Concurrent requests to one registry", group=REGISTRIES)] = 8

    def check(self) -> None:
        """``UsageError`` for numbers that are none."""
        check_seconds("--timeout", self.timeout)
        check_seconds("--max-wait", self.max_wait, may_be_zero=True)
        if self.concurrency < 1:
            raise UsageError(f"--concurrency {self.concurrency}: expected 1 or more")

    def configuration(self) -> "Configuration":
        """Mirrors and insecure hosts."""
        from polyarch.oci.mirrors.sources import Configuration, InvalidConfiguration
        from polyarch.oci.reference import parse_host

        hosts = []
        for text in self.insecure or []:
            try:
                hosts.append(parse_host(text))
            except ValueError as error:
                raise UsageError(f"--insecure {text}: {error}; write HOST or HOST:PORT") from None
        _check_folder("--hosts-dir", self.hosts_dir)
        try:
            return Configuration.load(self.registries_conf, self.hosts_dir, insecure_hosts=hosts)
        except InvalidConfiguration as error:
            raise UsageError(str(error)) from None

    def credentials(self) -> "FileCredentials":
        """The credential files of RG-080."""
        from polyarch.oci.auth.auth_files import FileCredentials, InvalidCredentialFile

        try:
            return FileCredentials.load(self.authfile)
        except InvalidCredentialFile as error:
            raise UsageError(str(error)) from None

    def trust(self) -> "TrustSettings":
        """The certificates of RG-100."""
        from polyarch.oci.transport.tls import TrustSettings

        _check_folder("--certs-dir", self.certs_dir)
        for path in self.ca or []:
            if not Path(path).is_file():
                raise UsageError(f"--ca {path}: no such file; expected CA certificates (PEM)")
        return TrustSettings.of(ca=self.ca or [], certs_dir=self.certs_dir)


DEFAULT_OPTIONS = RegistryOptions()


def cache_directory(named: str | None) -> Path | None:
    """``--cache-dir``, else ``$XDG_CACHE_HOME/polyarch``, else ``~/.cache/polyarch``; None without a home (RG-114)."""
    if named is not None:
        return Path(named)
    base = os.environ.get("XDG_CACHE_HOME", "")
    if base:
        return Path(base, "polyarch")
    home = os.environ.get("HOME", "")
    return Path(home, ".cache", "polyarch") if home else None


def _check_folder(option: str, path: str | None) -> None:
    if path is not None and not Path(path).is_dir():
        raise UsageError(f"{option} {path}: no such directory")
