"""Fill the roles' caches up to their bound (RG-110) before a soak, so that any memory growth afterwards is a leak.

Each image is a different index in a repository of its own; its children are never fetched and do not exist.
"""

import asyncio
import hashlib
import json
from collections.abc import Iterator, Sequence
from typing import Any

import aiohttp

from bench import load
from polyarch.kube.client import Client
from polyarch.kube.errors import NotFound
from polyarch.kube.resources import PODS
from polyarch.objects import Pod
from polyarch.placement import names

INDEX = "application/vnd.oci.image.index.v1+json"
MANIFEST = "application/vnd.oci.image.manifest.v1+json"
AT_ONCE = 16
IMAGES_PER_POD = 10
SECONDS = 120.0
"""Time for one pod; the pace at which one host may be asked limits it."""


def index(number: int, architectures: Sequence[str]) -> bytes:
    """A unique index for this number: the digests of its children are derived from it."""
    children = [
        {
            "mediaType": MANIFEST,
            "digest": f"sha256:{hashlib.sha256(f'{number}/{architecture}'.encode()).hexdigest()}",
            "size": 700,
            "platform": {"os": "linux", "architecture": architecture},
        }
        for architecture in architectures
    ]
    return json.dumps({"schemaVersion": 2, "mediaType": INDEX, "manifests": children}).encode()


async def push(address: str, folder: str, count: int, architectures: Sequence[str]) -> list[str]:
    """Push ``count`` images below ``folder`` of the registry; return their repositories, without the folder."""
    repositories = [f"fill{number}" for number in range(count)]
    limit = asyncio.Semaphore(AT_ONCE)
    async with aiohttp.ClientSession(f"http://{address}", timeout=aiohttp.ClientTimeout(total=60)) as session:

        async def put(number: int, repository: str) -> None:
            path = f"/v2/{folder}/{repository}/manifests/1"
            body = index(number, architectures)
            async with limit, session.put(path, data=body, headers={"Content-Type": INDEX}) as answer:
                answer.raise_for_status()

        async with asyncio.TaskGroup() as tasks:
            for number, repository in enumerate(repositories):
                tasks.create_task(put(number, repository))
    return repositories


async def ask(client: Client, namespace: str, images: Sequence[str], *, gated: bool) -> None:
    """Create pods of these images, and delete each once it may be scheduled.

    ``gated`` pods are created with the gate, so that the controller has to ask the registry.
    """
    limit = asyncio.Semaphore(AT_ONCE)

    async def one(number: int, some: Sequence[str]) -> None:
        async with limit, asyncio.timeout(SECONDS):
            name = f"fill-{'gated' if gated else 'plain'}-{number}"
            await client.create(PODS, document(name, some, gated=gated), namespace=namespace)
            while True:
                if not load.gated(await client.get(PODS, name, namespace=namespace, type=Pod)):
                    break
                await asyncio.sleep(0.1)
            try:
                await client.delete(PODS, name, namespace=namespace, grace_period_seconds=0)
            except NotFound:
                return

    async with asyncio.TaskGroup() as tasks:
        for number, some in enumerate(_portions(images)):
            tasks.create_task(one(number, some))


def _portions(images: Sequence[str]) -> Iterator[Sequence[str]]:
    return (images[at : at + IMAGES_PER_POD] for at in range(0, len(images), IMAGES_PER_POD))


def document(name: str, images: Sequence[str], *, gated: bool) -> dict[str, Any]:
    found = load.pod(images[0], name=name)
    [main] = found["spec"]["containers"]
    main["ports"] = []
    found["spec"]["containers"] = [{**main, "name": f"c{at}", "image": image} for at, image in enumerate(images)]
    if gated:
        found["metadata"]["labels"][names.SCHEDULING_GATE_LABEL] = names.GATED
        found["spec"]["schedulingGates"] = [{"name": names.GATE}]
    return found
