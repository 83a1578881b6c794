"""What the labels of nodes do not say: their runtimes, and the platforms of nodes that may come.

Nodes are watched by their metadata, since their status changes every few minutes. The runtime stands in the status and
hardly ever changes, so it is read as the API server prints it (``kubectl get nodes -o wide``): one answer of some
hundred bytes a node when a process starts, when nodes have joined, and once an hour. Templates of autoscalers and
clouds are read every five minutes, and only the kinds that the API server has.
"""

import asyncio
from collections.abc import Callable, Iterable
from functools import partial
from typing import Final, Protocol

import msgspec
import structlog

from polyarch.clock import Clock, deadline
from polyarch.images.node_templates import platforms_of_template
from polyarch.images.template_lists import TemplateClient, read_templates
from polyarch.kube.client import served_groups
from polyarch.kube.errors import KubernetesError
from polyarch.kube.resources import NODES, Resource
from polyarch.platforms import NO_RUNTIMES, NodePlatform, NodeRuntimes

log = structlog.get_logger(__name__)

RUNTIME_COLUMN: Final = "Container-Runtime"
RUNTIMES_EVERY: Final = 3600.0
"""Seconds after which runtimes are read again though no node has joined: one may have got another."""
RUNTIMES_AFTER: Final = 10.0
"""Seconds in which nodes that join are collected, and at least between two readings."""
TEMPLATES_EVERY: Final = 300.0


class NodeDetailsClient(TemplateClient, Protocol):
    """The part of the client that is needed here."""

    async def column(self, resource: Resource, name: str) -> dict[str, str]: ...

    async def raw(self, method: str, path: str) -> bytes: ...


class NodeDetails:
    """Read while :meth:`run` runs. ``told`` is called after each change, and when both are known for the first time."""

    def __init__(self, client: NodeDetailsClient, *, told: Callable[[], None], clock: Clock) -> None:
        self.coming: frozenset[NodePlatform] = frozenset()
        """Platforms of the nodes that templates may make; see ``TemplateReading.platforms``."""
        self._client = client
        self._told = told
        self._clock = clock
        self._runtimes: dict[str, str] | None = None
        self._asked = {"runtimes": False, "templates": False}
        self._problems = {"runtimes": "", "templates": ""}
        self._joined = asyncio.Event()

    @property
    def is_known(self) -> bool:
        """Both have been asked for, if in vain."""
        return all(self._asked.values())

    def joined(self, name: str) -> None:
        """A node is there: its runtime is read soon, if it is not known."""
        if name not in (self._runtimes or {}):
            self._joined.set()

    def left(self, name: str) -> None:
        """A node is gone; another one may get its name."""
        if self._runtimes is not None:
            self._runtimes.pop(name, None)

    def runtimes(self, nodes: Iterable[tuple[str, NodePlatform]]) -> NodeRuntimes:
        """By name and platform of the nodes; a node of which nothing is known yet counts as the others of its kind."""
        found = self._runtimes
        if found is None:
            return NO_RUNTIMES
        return NodeRuntimes.of((platform, found[name]) for name, platform in nodes if name in found)

    async def run(self) -> None:
        """Reads until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._read_runtimes(), name="runtimes of nodes")
            tasks.create_task(self._read_templates(), name="templates of nodes")

    async def _read_runtimes(self) -> None:
        while True:
            self._joined.clear()
            try:
                found: dict[str, str] | None = await self._client.column(NODES, RUNTIME_COLUMN)
                self._done("runtimes")
            except KubernetesError as error:
                found = self._runtimes
                self._done("runtimes", str(error))
            if found != self._runtimes:
                self._runtimes = found or None
                self._told()
            await self._clock.sleep(RUNTIMES_AFTER)
            try:
                async with deadline(self._clock, RUNTIMES_EVERY):
                    await self._joined.wait()
            except TimeoutError:
                continue
            await self._clock.sleep(RUNTIMES_AFTER)

    async def _read_templates(self) -> None:
        while True:
            try:
                groups = await served_groups(partial(self._client.raw, "GET"))
                read = await read_templates(self._client, groups)
                found = frozenset[NodePlatform]().union(
                    *(platforms_of_template(each.kind, document) for each in read for document in each.documents)
                )
                self._done("templates", "; ".join(f"{each.resource}: {each.problem}" for each in read if each.problem))
            except (KubernetesError, msgspec.DecodeError) as error:
                found = self.coming
                self._done("templates", str(error))
            if found != self.coming:
                self.coming = found
                self._told()
            await self._clock.sleep(TEMPLATES_EVERY)

    def _done(self, what: str, problem: str = "") -> None:
        if problem and problem != self._problems[what]:
            log.warning("not read of nodes, so placement goes by their labels", what=what, problem=problem)
        self._problems[what] = problem
        was_known = self.is_known
        self._asked[what] = True
        if not was_known and self.is_known:
            self._told()
