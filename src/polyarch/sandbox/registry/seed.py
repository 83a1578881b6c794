"""Pushes images to the sandbox's registry over plain HTTP, and maps public names to it in a registries.conf.

Blobs are pushed first, then child manifests, then the index; blobs that exist are not sent again. Private repositories
are added to the access list before anything is pushed to them.
"""

import asyncio
import base64
import io
import shutil
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import aiohttp
import msgspec

from polyarch.oci.documents import ACCEPT
from polyarch.oci.reference import parse
from polyarch.sandbox.errors import SandboxError
from polyarch.sandbox.files import file_lock, write_private
from polyarch.sandbox.registry.access import ADMINISTRATOR, AccessFile
from polyarch.sandbox.registry.images import DescribedImage, Manifest, digest_of, read_descriptions
from polyarch.sandbox.state import Folder
from polyarch.sandbox.tasks import together

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


def registries_conf(address: str, own: str = "", origin: str = "", *, insecure: bool = True) -> str:
    """The file's text: the user's ``own`` file first, then our entries for every prefix that it lacks.

    It sets ``location`` and not ``[[registry.mirror]]``: for an image that a mirror lacks, clients ask the real
    registry, and requests must not leave the machine. Hosts that are not listed are not mapped. ``insecure`` means
    plain HTTP.
    """
    taken = _prefixes(own, origin) if own else set()
    plain = "insecure = true\n" if insecure else ""
    parts = [own.rstrip("\n") + "\n"] if own else []
    if address not in taken:
        parts.append(f'[[registry]]\nlocation = "{address}"\n{plain}')
    parts += [
        f'[[registry]]\nprefix = "{host}"\nlocation = "{address}/{host}"\n{plain}'
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


def write_registries_conf(path: Path, address: str, own_file: str) -> None:
    """Write the sandbox's registries.conf, and copy the drop-ins of the user's own file."""
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


# -- pushes ------------------------------------------------------------------------------------------------------------


MAX_CONCURRENT_PUSHES = 8
OCTETS = {"Content-Type": "application/octet-stream"}
PUSH_SECONDS = 60.0


class PushedImage(msgspec.Struct, frozen=True, rename="camel"):
    """A pushed image: its public name, its location, its digest, and the digest for each platform."""

    image: str
    location: str
    digest: str
    children: dict[str, str]
    private: bool = False


class Registry:
    """The sandbox's registry: its address, and how to push to it and delete from it."""

    def __init__(self, address: str, folder: Folder) -> None:
        self.address = address
        self.insecure = True
        self._access = AccessFile(folder.access)
        self._lock = folder.access.with_suffix(".lock")

    def _session(self) -> aiohttp.ClientSession:
        """A session as the administrator, who may also write to private repositories."""
        password = self._access.current().administrator_password
        credentials = base64.b64encode(f"{ADMINISTRATOR}:{password}".encode()).decode()
        return aiohttp.ClientSession(
            f"http://{self.address}",
            headers={"Authorization": f"Basic {credentials}"},
            timeout=aiohttp.ClientTimeout(total=PUSH_SECONDS),
        )

    async def seed(self, images: Mapping[str, Any], *, origin: str = "images") -> list[PushedImage]:
        """Push every described image (see ``images``); results are in the order given."""
        described = read_descriptions(images, origin)
        places = [
            repository_here(each.reference.registry, each.reference.repository, self.address) for each in described
        ]
        async with file_lock(self._lock):
            known = current = self._access.current()
            for place, each in zip(places, described, strict=True):
                current = current.with_delay(place, each.description.delay)
                if (access := each.description.access) is not None:
                    current = current.with_private(place, access)
            if current != known:
                self._access.write(current)
        limit = asyncio.Semaphore(MAX_CONCURRENT_PUSHES)
        async with self._session() as session:

            async def push(place: str, each: DescribedImage) -> PushedImage:
                async with limit:
                    await _push(session, place, each.manifest, each.reference.tag or "latest")
                return PushedImage(
                    image=each.reference.canonical,
                    location=f"{self.address}/{place}:{each.reference.tag}",
                    digest=each.manifest.digest,
                    children=each.children,
                    private=place in current.private,
                )

            return await together(push(*pair) for pair in zip(places, described, strict=True))

    async def push(self, image: str, manifest: Manifest) -> None:
        """Push this content under a public name and tag; blobs that are there are not sent again."""
        reference = parse(image)
        async with self._session() as session:
            place = repository_here(reference.registry, reference.repository, self.address)
            await _push(session, place, manifest, reference.tag or "latest")

    async def delete(self, image: str) -> None:
        """Delete an image by its public name: later pulls fail with `not-found`."""
        reference = parse(image)
        place = repository_here(reference.registry, reference.repository, self.address)
        async with self._session() as session:
            accept = {"Accept": ", ".join(ACCEPT)}
            path = f"/v2/{place}/manifests/"
            async with session.head(f"{path}{reference.selector}", headers=accept) as answer:
                digest = answer.headers.get("Docker-Content-Digest", "")
                if answer.status != 200:
                    raise SandboxError(f"{image}: not in the registry (HTTP {answer.status})")
            async with session.delete(f"{path}{digest}") as answer:
                await _expect(answer, 202, f"delete {image}")


async def _push(session: aiohttp.ClientSession, repository: str, manifest: Manifest, reference: str) -> None:
    """Push blobs and child manifests, then the manifest under ``reference`` (a tag, or its digest)."""
    for blob in manifest.blobs:
        await _push_blob(session, repository, blob)
    for child in manifest.children:
        await _push(session, repository, child, child.digest)
    headers = {"Content-Type": manifest.descriptor.media_type}
    path = f"/v2/{repository}/manifests/{reference}"
    async with session.put(path, data=manifest.content, headers=headers) as answer:
        await _expect(answer, 201, f"push {repository}:{reference}")


async def _push_blob(session: aiohttp.ClientSession, repository: str, content: bytes) -> None:
    digest = digest_of(content)
    async with session.head(f"/v2/{repository}/blobs/{digest}") as answer:
        if answer.status == 200:
            return
    async with session.post(f"/v2/{repository}/blobs/uploads/") as answer:
        await _expect(answer, 202, f"begin an upload to {repository}")
        location = answer.headers["Location"]
    separator = "&" if "?" in location else "?"
    target = f"{location}{separator}{urlencode({'digest': digest})}"
    async with session.put(target, data=io.BytesIO(content), headers=OCTETS) as answer:
        await _expect(answer, 201, f"upload a blob to {repository}")


async def _expect(answer: aiohttp.ClientResponse, status: int, what: str) -> None:
    if answer.status != status:
        body = (await answer.text())[:300]
        raise SandboxError(f"{what}: the sandbox's registry answered HTTP {answer.status}: {body}")
