"""Shared by the tests of ``polyarch install`` and its kin: commands as a user types them, on a cluster of their own."""

import asyncio
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from polyarch.cli import main
from polyarch.installation.inventory import InventoryObject, survey
from polyarch.kube.client import Client
from polyarch.sandbox.cluster import Sandbox

PROJECT = Path(__file__).parents[2]
NAMESPACE = "polyarch-system"
Json = dict[str, Any]


class Ran(NamedTuple):
    code: int
    out: str
    err: str


class Cluster:
    """The cluster, and the commands that a test runs on it."""

    def __init__(
        self, sandbox: Sandbox, client: Client, capsys: pytest.CaptureFixture[str], peer: Callable[[str], str]
    ) -> None:
        self.sandbox = sandbox
        self.client = client
        self._capsys = capsys
        self._peer = peer

    async def polyarch(self, *arguments: str, kubeconfig: Path | None = None) -> Ran:
        """One command line, in a thread: it has an event loop of its own."""
        self._capsys.readouterr()
        access = ("--kubeconfig", str(kubeconfig or self.sandbox.kubeconfig))
        code = await asyncio.to_thread(main, [*arguments, *access])
        captured = self._capsys.readouterr()
        return Ran(code, captured.out, captured.err)

    async def kubectl(self, *arguments: str, stdin: str = "", code: int | None = 0, seconds: float = 60) -> Ran:
        """The real kubectl; ``code`` None: however it ends."""
        command = [self._peer("kubectl"), "--kubeconfig", str(self.sandbox.kubeconfig), *arguments]
        done = await asyncio.to_thread(
            subprocess.run,
            command,
            input=stdin,
            capture_output=True,
            text=True,
            check=False,
            timeout=seconds,
            cwd=PROJECT,
        )
        assert code in (None, done.returncode), done.stderr
        return Ran(done.returncode, done.stdout, done.stderr)

    async def everything(self) -> dict[str, InventoryObject]:
        """Every object of the API server, by name; without the Leases and addresses that Kubernetes itself renews."""
        seen = await survey(self.client)
        assert not seen.unread
        return {str(each.ref): each for each in seen.found}

    async def versions(self) -> dict[str, str]:
        """What changes of an object when somebody writes it, but not when a controller reports its state."""
        found = await self.everything()
        return {
            name: str(each.metadata.generation or each.metadata.resource_version)
            for name, each in found.items()
            if not name.startswith(("leases.", "pods ", "replicasets.", "endpointslices."))
        }
