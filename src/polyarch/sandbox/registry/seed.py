"""Push of images to the sandbox's registry over plain HTTP (SB-005).

Blobs are pushed first, then child manifests, then the index; blobs that exist are not sent again. Private repositories
are added to the access list before anything is pushed to them.
"""

import asyncio
import base64
from collections.abc import Mapping
from typing import Any
from urllib.parse import urlencode

import aiohttp
import msgspec

from polyarch.oci.documents import ACCEPT
from polyarch.oci.reference import parse
from polyarch.sandbox.errors import SandboxError
from polyarch.sandbox.locks import file_lock
from polyarch.sandbox.registry import catalogue
from polyarch.sandbox.registry.access import ADMINISTRATOR, AccessFile
from polyarch.sandbox.registry.catalogue import Described
from polyarch.sandbox.registry.images import Manifest, digest_of
from polyarch.sandbox.registry.mirrors import repository_here
from polyarch.sandbox.state import Folder
from polyarch.sandbox.tasks import together

AT_ONCE = 8
PUSH_SECONDS = 60.0


class Seeded(msgspec.Struct, frozen=True, rename="camel"):
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

    async def seed(self, images: Mapping[str, Any], *, origin: str = "images") -> list[Seeded]:
        """Push every described image (see ``catalogue``); results are in the order given."""
        described = catalogue.read(images, origin)
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
        limit = asyncio.Semaphore(AT_ONCE)
        async with self._session() as session:

            async def push(place: str, each: Described) -> Seeded:
                async with limit:
                    await _push(session, place, each.manifest, each.reference.tag or "latest")
                return Seeded(
                    image=each.reference.canonical,
                    location=f"{self.address}/{place}:{each.reference.tag}",
                    digest=each.manifest.digest,
                    children=each.children,
                    private=place in current.private,
                )

            return await together(push(*pair) for pair in zip(places, described, strict=True))

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
    async with session.put(target, data=content, headers={"Content-Type": "application/octet-stream"}) as answer:
        await _expect(answer, 201, f"upload a blob to {repository}")


async def _expect(answer: aiohttp.ClientResponse, status: int, what: str) -> None:
    if answer.status != status:
        body = (await answer.text())[:300]
        raise SandboxError(f"{what}: the sandbox's registry answered HTTP {answer.status}: {body}")
