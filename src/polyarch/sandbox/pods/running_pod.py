"""A pod that is run: who it is, and what is known of its processes (SB-011)."""

import asyncio
from pathlib import Path

import msgspec

from polyarch.objects import Key
from polyarch.sandbox.pods.containers import Container
from polyarch.sandbox.pods.contents import Contents
from polyarch.sandbox.pods.environment import Facts
from polyarch.sandbox.pods.folders import PodFolder
from polyarch.sandbox.pods.outcome import Exit
from polyarch.sandbox.pods.probes.supervision import Supervision
from polyarch.sandbox.pods.spec import PodDocument


class BoundPod(msgspec.Struct, frozen=True):
    """A pod that is bound to a node: its identity, its node, and its addresses."""

    key: Key
    uid: str
    node: str
    host_address: str
    loopback: str
    """The address on this machine on which its processes listen."""


class RunningPod:
    """What is known of one pod that is run."""

    def __init__(
        self, bound: BoundPod, document: PodDocument, folder: PodFolder, host: Path, contents: Contents
    ) -> None:
        self.bound = bound
        self.document = document
        self.folder = folder
        self.host = host
        """What it sees as its node's own files (hostPath)."""
        self.contents = contents
        self.containers: dict[str, Container] = {}
        self.supervisions: dict[str, Supervision] = {}
        self.exits: dict[tuple[str, int], Exit] = {}
        self.tasks: set[asyncio.Task[None]] = set()
        self.ends_at: float | None = None
        """When its containers are killed, on the monotonic clock; None: it is not to end."""

    @property
    def facts(self) -> Facts:
        return Facts(self.document, self.bound.loopback, self.bound.host_address)

    @property
    def living(self) -> list[Container]:
        return [each for each in self.containers.values() if each.exit is None]
