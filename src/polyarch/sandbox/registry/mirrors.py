"""The registries.conf that maps public names to the sandbox's registry.

It sets ``location`` and not ``[[registry.mirror]]``: for an image that a mirror lacks, clients ask the real registry,
and requests must not leave the machine. Hosts that are not listed are not mapped.
"""

import shutil
import tomllib
from pathlib import Path

from polyarch.sandbox.errors import SandboxError
from polyarch.sandbox.files import write_private

PUBLIC_HOSTS = (
    "docker.io",
    "quay.io",
    "ghcr.io",
    "gcr.io",
    "registry.k8s.io",
    "mcr.microsoft.com",
    "public.ecr.aws",
    "registry.access.redhat.com",
    "registry.redhat.io",
    "registry.gitlab.com",
    "registry.example.com",
)
"""In the sandbox, only seeded images exist under these names."""


def repository_here(registry: str, repository: str, address: str) -> str:
    """The repository of a public name in the sandbox's registry; SandboxError if the host is not mapped."""
    if registry == address:
        return repository
    if registry not in PUBLIC_HOSTS:
        raise SandboxError(
            f"{registry}/{repository}: the sandbox's registry does not serve images of {registry}; "
            f"use {address}/{repository}, or one of {', '.join(PUBLIC_HOSTS)}"
        )
    return f"{registry}/{repository}"


def registries_conf(address: str, own: str = "", origin: str = "") -> str:
    """The file's text: the user's ``own`` file first, then our entries for every prefix that it lacks."""
    taken = _prefixes(own, origin) if own else set()
    parts = [own.rstrip("\n") + "\n"] if own else []
    if address not in taken:
        parts.append(f'[[registry]]\nlocation = "{address}"\ninsecure = true\n')
    parts += [
        f'[[registry]]\nprefix = "{host}"\nlocation = "{address}/{host}"\ninsecure = true\n'
        for host in PUBLIC_HOSTS
        if host not in taken
    ]
    return "\n".join(parts)


def _prefixes(text: str, origin: str) -> set[str]:
    try:
        document = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise SandboxError(f"{origin}: not TOML: {error}") from error
    entries = document.get("registry", [])
    if not isinstance(entries, list) or not all(isinstance(entry, dict) for entry in entries):
        raise SandboxError(f"{origin}: `registry` is not a list of tables; write each as [[registry]] (version 2)")
    return {str(entry.get("prefix") or entry.get("location")) for entry in entries}


def write(path: Path, address: str, own_file: str) -> None:
    """Write the sandbox's registries.conf, and copy the drop-ins of the user's own file (RG-090)."""
    own = ""
    drop_ins = path.with_name("registries.conf.d")
    if drop_ins.exists():
        shutil.rmtree(drop_ins)
    if own_file:
        try:
            own = Path(own_file).read_text(encoding="utf-8")
        except OSError as error:
            raise SandboxError(f"--registries-conf {own_file}: {error.strerror}") from error
        beside = Path(own_file).with_name("registries.conf.d")
        if beside.is_dir():
            shutil.copytree(beside, drop_ins)
    write_private(path, registries_conf(address, own, own_file).encode())
