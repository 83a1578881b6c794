"""Builds in a cluster as a user makes them: commands as they are typed, and what came of them."""

import asyncio
import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from placement_process import PROGRAM

from polyarch.builds.names import IMAGE_BUILD_RUNS, IMAGE_BUILDS
from polyarch.kube.client import Client
from polyarch.kube.resources import JOBS, PODS
from polyarch.objects import Unstructured
from polyarch.oci.inspection import Inspection
from polyarch.oci.inspector import open_inspector
from polyarch.sandbox.cluster import Sandbox
from polyarch.sandbox.fake_buildah import ARGUMENT
from polyarch.sandbox.nodes.__main__ import inspector_options

Json = dict[str, Any]
TEXT = "FROM docker.io/library/busybox:1.36\nRUN true\n"
SECONDS = 240.0
"""The longest that one build may take on a busy machine."""


class Ran(NamedTuple):
    code: int
    out: str
    err: str

    @property
    def document(self) -> Json:
        found: Json = json.loads(self.out)
        return found


class Yard:
    """One build in a namespace and a repository of its own."""

    def __init__(self, sandbox: Sandbox, client: Client, namespace: str, folder: Path, name: str = "shop") -> None:
        self.sandbox = sandbox
        self.client = client
        self.namespace = namespace
        self.folder = folder
        self.name = name
        self.repository = f"{sandbox.registry.address}/{namespace}/{name}"
        self.write("Containerfile", TEXT)

    def write(self, name: str, text: str) -> Path:
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
        return path

    # -- commands ------------------------------------------------------------------------------------------------------

    def words(self, *arguments: str) -> list[str]:
        """``polyarch build ARGUMENTS`` in the namespace."""
        access = ["--kubeconfig", str(self.sandbox.kubeconfig), "-n", self.namespace]
        return [sys.executable, "-c", PROGRAM, "build", *arguments, *access]

    async def command(self, *arguments: str) -> Ran:
        process = await asyncio.create_subprocess_exec(
            *self.words(*arguments),
            cwd=self.folder,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        out, err = await process.communicate()
        return Ran(process.returncode or 0, out.decode(), err.decode())

    async def run(self, *arguments: str) -> Ran:
        """``build run`` until it is over; the repository is always given, which changes nothing the second time."""
        places = ("--repository", self.repository, "--timeout", str(SECONDS))
        return await self.command("run", self.name, *places, *arguments)

    async def plan(self, *arguments: str) -> Ran:
        return await self.command("plan", self.name, "--registries-conf", str(self.sandbox.registries_conf), *arguments)

    # -- what came of it -----------------------------------------------------------------------------------------------

    async def build(self) -> Json:
        found: Json = await self.client.get(IMAGE_BUILDS, self.name, namespace=self.namespace)
        return found

    async def status(self) -> Json:
        found: Json = (await self.build()).get("status") or {}
        return found

    async def runs(self) -> list[Json]:
        """Oldest first."""
        found = await self.client.list(IMAGE_BUILD_RUNS, namespace=self.namespace, type=Unstructured)
        documents = [each.document for each in found.items]
        return sorted(documents, key=lambda each: (each["metadata"]["creationTimestamp"], each["metadata"]["name"]))

    async def current(self) -> Json:
        name = (await self.status())["currentRun"]
        return next(each for each in await self.runs() if each["metadata"]["name"] == name)

    async def jobs(self) -> list[Json]:
        found = await self.client.list(JOBS, namespace=self.namespace, type=Unstructured)
        return [each.document for each in found.items]

    async def pods(self) -> list[Json]:
        found = await self.client.list(PODS, namespace=self.namespace, type=Unstructured)
        return [each.document for each in found.items]

    async def inspect(self, reference: str) -> Inspection:
        """What is in the registry now."""
        async with open_inspector(inspector_options(self.sandbox.folder, self.sandbox.state.settings)) as inspector:
            return await inspector.inspect(reference, fresh=True)

    async def children(self) -> dict[str, str]:
        """Architecture → digest, of the image that is published."""
        answer = await self.inspect((await self.status())["image"])
        assert answer.error is None, answer.error
        return {each.platform.architecture: each.digest for each in answer.entries}


def mishap(text: str) -> tuple[str, str]:
    """The build argument that asks for it, for all architectures."""
    return ("--arg", f"{ARGUMENT}={text}")


def phases(run: Mapping[str, Any]) -> dict[str, str]:
    return {each["architecture"]: each["phase"] for each in run["status"]["architectures"]}


def one(run: Mapping[str, Any], architecture: str) -> Json:
    found: Json = next(each for each in run["status"]["architectures"] if each["architecture"] == architecture)
    return found


def images(requests: Sequence[Json], method: str) -> list[str]:
    """The manifests of these registry requests."""
    return [each["reference"] for each in requests if each["method"] == method and "/manifests/" in each["path"]]
