"""Reads images back from a registry without any of our code."""

import hashlib
import json
from typing import Any

import aiohttp

ACCEPT = ", ".join(
    (
        "application/vnd.oci.image.index.v1+json",
        "application/vnd.oci.image.manifest.v1+json",
        "application/vnd.docker.distribution.manifest.list.v2+json",
        "application/vnd.docker.distribution.manifest.v2+json",
    )
)


class Reader:
    """Reads an image back without any of our code, and checks every digest on the way."""

    def __init__(self, session: aiohttp.ClientSession, address: str) -> None:
        self._session = session
        self._address = address

    async def document(self, repository: str, selector: str) -> tuple[str, dict[str, Any]]:
        """Digest and content of a manifest."""
        body = await self._get(f"{repository}/manifests/{selector}")
        digest = f"sha256:{hashlib.sha256(body).hexdigest()}"
        assert selector in (digest, selector if ":" not in selector else digest)
        return digest, json.loads(body)

    async def whole(self, repository: str, tag: str) -> tuple[str, list[str]]:
        """The digest of an index of which every child and every blob is there, and its platforms."""
        digest, index = await self.document(repository, tag)
        platforms = []
        for entry in index["manifests"]:
            child, manifest = await self.document(repository, entry["digest"])
            assert child == entry["digest"]
            for blob in (manifest["config"], *manifest["layers"]):
                await self.blob(repository, blob)
            platforms.append("/".join((entry["platform"]["os"], entry["platform"]["architecture"])))
        return digest, platforms

    async def blob(self, repository: str, descriptor: dict[str, Any]) -> bytes:
        """The blob, which has its digest and its size."""
        body = await self._get(f"{repository}/blobs/{descriptor['digest']}")
        assert (f"sha256:{hashlib.sha256(body).hexdigest()}", len(body)) == (descriptor["digest"], descriptor["size"])
        return body

    async def has(self, repository: str, selector: str) -> bool:
        """Whether a manifest is there."""
        url = f"http://{self._address}/v2/{repository}/manifests/{selector}"
        async with self._session.get(url, headers={"Accept": ACCEPT}) as answer:
            assert answer.status in (200, 404), await answer.text()
            return answer.status == 200

    async def _get(self, path: str) -> bytes:
        async with self._session.get(f"http://{self._address}/v2/{path}", headers={"Accept": ACCEPT}) as answer:
            assert answer.status == 200, f"{path}: {await answer.text()}"
            return await answer.read()
