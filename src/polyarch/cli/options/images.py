"""The options of commands that ask registries, and of those that run rules.

Files that an option names are read and checked before the first request; what is wrong with them is a usage error.
"""

import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from cyclopts import Parameter

from polyarch.cli.errors import UsageError
from polyarch.cli.options.values import (
    IMAGES,
    REGISTRIES,
    RULES,
    Directory,
    File,
    Glob,
    Host,
    Levels,
    Number,
    Placeholder,
    Platforms,
    Rules,
    Seconds,
    check_seconds,
    flag,
    option,
    subject,
)
from polyarch.platforms import ASSUMED_ARCHITECTURES

if TYPE_CHECKING:
    from polyarch.oci.auth.credential_stores import FileCredentials
    from polyarch.oci.pull_sources import Configuration
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
        list[Directory] | None,
        option(
            "Mirror configuration, containerd's hosts.toml directories: DIR or DIR:DIR; repeatable", group=REGISTRIES
        ),
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
        from polyarch.oci.mirror_files import InvalidMirrorConfiguration, hosts_directories
        from polyarch.oci.pull_sources import Configuration
        from polyarch.oci.reference import parse_host

        hosts = []
        for text in self.insecure or []:
            try:
                hosts.append(parse_host(text))
            except ValueError as error:
                raise UsageError(f"--insecure {text}: {error}; write HOST or HOST:PORT") from None
        if self.hosts_dir and not any(each.is_dir() for each in hosts_directories(self.hosts_dir)):
            raise UsageError(f"--hosts-dir {' '.join(self.hosts_dir)}: no such directory")
        try:
            return Configuration.load(self.registries_conf, self.hosts_dir or (), insecure_hosts=hosts)
        except InvalidMirrorConfiguration as error:
            raise UsageError(str(error)) from None

    def credentials(self) -> "FileCredentials":
        """The credential files that podman and docker use."""
        from polyarch.oci.auth.credential_stores import FileCredentials, InvalidCredentialFile

        try:
            return FileCredentials.load(self.authfile)
        except InvalidCredentialFile as error:
            raise UsageError(str(error)) from None

    def trust(self) -> "TrustSettings":
        """The CAs and client certificates of registries."""
        from polyarch.oci.transport.tls import TrustSettings

        _check_folder("--certs-dir", self.certs_dir)
        for path in self.ca or []:
            if not Path(path).is_file():
                raise UsageError(f"--ca {path}: no such file; expected CA certificates (PEM)")
        return TrustSettings.of(ca=self.ca or [], certs_dir=self.certs_dir)


DEFAULT_OPTIONS = RegistryOptions()


def cache_directory(named: str | None) -> Path | None:
    """``--cache-dir``, else ``$XDG_CACHE_HOME/polyarch``, else ``~/.cache/polyarch``; None without a home."""
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


# -- images and rules


CHECKED = subject("What to check")
FailOnOption = Annotated[Literal["error", "warning", "info", "never"], Placeholder("LEVEL")]
Unresolved = Annotated[Literal["auto", "finding", "ignore"], Placeholder("POLICY")]
Depth = Annotated[Literal["config", "elf"], Placeholder("DEPTH")]
ReportFormat = Annotated[
    Literal["text", "json", "yaml", "sarif", "junit", "github", "markdown", "csv"], Placeholder("FORMAT[=FILE]")
]
REPORT_FORMATS = ("text", "json", "yaml", "sarif", "junit", "github", "markdown", "csv")


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class ImageOptions:
    """Where the platforms of images come from."""

    platforms_file: Annotated[
        File | None,
        option("Known platforms of images, YAML or JSON; polyarch inspect -o json writes one", group=IMAGES),
    ] = None
    offline: Annotated[bool, flag("Do not contact registries", group=IMAGES)] = False
    deep: Annotated[
        Depth | None,
        option("Also check every platform's config (config), or its entrypoint binary, too (elf)", group=IMAGES),
    ] = None
    cache_dir: Annotated[
        Directory | None, option("Cache directory", group=IMAGES, show_default="~/.cache/polyarch")
    ] = None
    no_cache: Annotated[bool, flag("Do not read or write the cache", group=IMAGES)] = False
    fresh: Annotated[bool, flag("Check every tag again, even if it is cached", group=IMAGES)] = False
    access: RegistryOptions = DEFAULT_OPTIONS

    def check(self) -> None:
        """``UsageError`` for options that contradict each other."""
        self.access.check()
        if self.no_cache and self.cache_dir is not None:
            raise UsageError("--no-cache and --cache-dir cannot be combined; remove one of them")
        if self.deep is not None and self.offline:
            raise UsageError("--deep needs registries and cannot be combined with --offline")


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class RuleOptions:
    """Which rules run, on what, and how bad findings are."""

    platforms: Annotated[
        list[Platforms] | None,
        option(
            "Platforms of the cluster's nodes, comma-separated; arm64 is short for linux/arm64",
            group=RULES,
            show_default=f"linux on {', '.join(ASSUMED_ARCHITECTURES)}",
        ),
    ] = None
    require: Annotated[
        list[Platforms] | None, option("Platforms that every image must support, comma-separated", group=RULES)
    ] = None
    include: Annotated[
        list[Rules] | None, option("Extra rules to enable, comma-separated, such as MA112,MA3*", group=RULES)
    ] = None
    exclude: Annotated[
        list[Rules] | None, option("Rules to disable, comma-separated; the longer pattern wins", group=RULES)
    ] = None
    severity: Annotated[
        list[Levels] | None,
        option("Change severities, comma-separated; LEVEL is error, warning or info", group=RULES),
    ] = None
    fail_on: Annotated[
        FailOnOption | None,
        option("Exit with 1 for findings of at least this severity", group=RULES, show_default="warning"),
    ] = None
    strict: Annotated[bool, flag("Treat images without an answer (MA001) as errors", group=RULES)] = False
    unresolved: Annotated[
        Unresolved,
        option("If images could not be inspected: exit with 3 (auto), report only (finding), or ignore", group=RULES),
    ] = "auto"
    ignore_path: Annotated[
        list[Glob] | None, option("Skip files and directories, as .gitignore has it; repeatable", group=CHECKED)
    ] = None
    config: Annotated[
        File | None, option("Configuration file", group=CHECKED, show_default="the nearest .polyarch.yaml")
    ] = None


DEFAULT_IMAGES = ImageOptions()
DEFAULT_RULES = RuleOptions()
