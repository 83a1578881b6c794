"""What an installation of polyarch makes, and what its uninstall leaves: all objects are listed before and after."""

import time
from collections.abc import Collection, Iterable
from typing import Final, Self

import msgspec

from polyarch.installation.apply import Applied
from polyarch.installation.inventory import IN_EVERY_NAMESPACE, Found, Survey, survey
from polyarch.kube.client import Client
from polyarch.kube.resources import ENDPOINT_SLICES, NAMESPACES, PODS, REPLICASETS, Ref
from polyarch.sandbox.cluster import Sandbox
from polyarch.sandbox.document import DemoOperator
from polyarch.sandbox.progress import Silent

OF_KUBERNETES: Final = frozenset({PODS, REPLICASETS, ENDPOINT_SLICES})
"""Kinds whose objects Kubernetes' controllers make from others."""


class RoundTrip:
    """An installation and its uninstall, compared with the objects of before."""

    def __init__(self, sandbox: Sandbox, client: Client, before: Survey, *, besides: Collection[str]) -> None:
        self._sandbox = sandbox
        self._client = client
        self._before = before
        self._besides = besides
        self._line = DemoOperator(installed=0, made=0, install_seconds=0.0)

    @classmethod
    async def begin(cls, sandbox: Sandbox, client: Client, *, besides: Collection[str]) -> Self:
        """Uninstall polyarch if it is there, then list all objects. Namespaces in ``besides`` do not count."""
        if sandbox.state.installed:
            await sandbox.uninstall(Silent())
        return cls(sandbox, client, await survey(client), besides=besides)

    async def install(self) -> DemoOperator:
        """Install polyarch; how many objects came to be, and in how long."""
        begun = time.monotonic()
        applied = await self._sandbox.install(Silent())
        seconds = round(time.monotonic() - begun, 1)
        new = self._new(await survey(self._client))
        self._line = DemoOperator(installed=len(applied), made=len(made(new, applied)), install_seconds=seconds)
        return self._line

    async def uninstall(self) -> DemoOperator:
        """Uninstall polyarch; the line of :meth:`install`, with what is left."""
        begun = time.monotonic()
        await self._sandbox.uninstall(Silent())
        seconds = round(time.monotonic() - begun, 1)
        left = [str(each) for each in self._new(await survey(self._client))]
        self._line = msgspec.structs.replace(self._line, uninstall_seconds=seconds, left=left)
        return self._line

    def _new(self, now: Survey) -> list[Found]:
        return [each for each in now.since(self._before) if not _is_of(each.ref, self._besides)]


def made(new: Iterable[Found], applied: Iterable[Applied]) -> list[Ref]:
    """The objects among ``new`` that neither the installation applied nor Kubernetes' controllers made. Pure."""
    ours = {each.ref for each in applied}
    return [
        each.ref
        for each in new
        if each.ref not in ours
        and each.ref.resource not in OF_KUBERNETES
        and (each.ref.resource, each.ref.key.name) not in IN_EVERY_NAMESPACE
    ]


def _is_of(ref: Ref, namespaces: Collection[str]) -> bool:
    return ref.key.namespace in namespaces or (ref.resource == NAMESPACES and ref.key.name in namespaces)
