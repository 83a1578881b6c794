"""The sandbox of a soak: polyarch installed with all components, its processes behind a fault proxy, nodes that change.

``hosts`` are registries, each behind a proxy of its own: public and private images of pods, and what builds write.
"""

import contextlib
import os
import ssl
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final

import msgspec
from fault_installation import restart_api_server
from fault_proxy import FaultProxy, server_tls

from polyarch.installation import uninstall
from polyarch.installation.inventory import ClusterInventory, survey
from polyarch.kube.client import Client
from polyarch.kube.patches import MergePatch
from polyarch.kube.resources import NODES
from polyarch.names import DEFAULT_NAMESPACE
from polyarch.placement import names as placement_names
from polyarch.placement.api import CPPCS
from polyarch.platforms import ASSUMED_ARCHITECTURES
from polyarch.sandbox.cluster import Sandbox
from polyarch.sandbox.kubelet_model.layout import NumaLayout
from polyarch.sandbox.nodes.plans import Node
from polyarch.sandbox.registry.seed import PushedImage
from polyarch.sandbox.state import Settings
from polyarch.sandbox.tasks import until
from polyarch.taints.api import ARCHITECTURE_TAINTS
from polyarch.taints.names import MANAGED_TAINTS_ANNOTATION
from polyarch.taints.names import SINGLETON as TAINTS
from polyarch.taints.settings import PRESET_KEYS

PUBLIC, PRIVATE, BUILT = "soak.test", "private.test", "built.test"
GROWING: Final = "arm64"
"""Nodes of this architecture join and leave."""
GATE_TIMEOUT: Final = "30s"
START_SECONDS: Final = 180.0
MONITOR: Final = {"spec": {"plugins": {"execFormatErrorMonitor": {"enabled": True}}}}


class Stage:
    """What parts of a soak ask of it."""

    def __init__(
        self,
        sandbox: Sandbox,
        client: Client,
        api: FaultProxy,
        hosts: Mapping[str, FaultProxy],
        before: ClusterInventory,
    ) -> None:
        self.sandbox, self.client, self.api, self.hosts = sandbox, client, api, hosts
        self._before = before
        self._least = dict(sandbox.state.settings.nodes)

    @classmethod
    @asynccontextmanager
    async def opened(cls, folder: Path, nodes: int, replicas: int, numa: str) -> AsyncIterator["Stage"]:
        """``nodes`` of each architecture."""
        settings = Settings(
            name=f"soak-{os.getpid()}",
            nodes=dict.fromkeys(ASSUMED_ARCHITECTURES, nodes),
            numa=NumaLayout.parse(numa),
            replicas=replicas,
            polyarch=False,
            builds=True,
        )
        sandbox = await Sandbox.start(settings, owner=os.getpid())
        try:
            async with contextlib.AsyncExitStack() as stack:
                client = await stack.enter_async_context(sandbox.client())
                trusted = ssl.create_default_context(cafile=str(sandbox.ca))
                api = await stack.enter_async_context(
                    FaultProxy(sandbox.api_server, upstream_ssl=trusted, server_ssl=server_tls(sandbox, folder))
                )
                upstream = f"http://{sandbox.registry.address}"
                hosts = {
                    name: await stack.enter_async_context(FaultProxy(upstream)) for name in (PUBLIC, PRIVATE, BUILT)
                }
                configuration = folder / "registries.conf"
                configuration.write_text(_registries(hosts))
                before = await survey(client)
                wanted = msgspec.structs.replace(
                    settings, polyarch=True, registries_conf=str(configuration), api_server_of_pods=api.url
                )
                sandbox = await Sandbox.start(wanted, owner=os.getpid())
                stage = cls(sandbox, client, api, hosts, before)
                await stage._switch_on()
                yield stage
        finally:
            await sandbox.delete()

    async def _switch_on(self) -> None:
        """What an installation leaves to the administrator: the monitor and the taints."""
        await self.client.patch(CPPCS, placement_names.SINGLETON, MergePatch(MONITOR))
        await self.client.create(
            ARCHITECTURE_TAINTS,
            {
                "apiVersion": ARCHITECTURE_TAINTS.api_version,
                "kind": ARCHITECTURE_TAINTS.kind,
                "metadata": {"name": TAINTS},
                "spec": {"pods": {"gateTimeout": GATE_TIMEOUT}},
            },
        )

        async def are_ready() -> bool:
            found = await self.client.get(ARCHITECTURE_TAINTS, TAINTS)
            conditions = (found.get("status") or {}).get("conditions") or ()
            return any((each["type"], each["status"]) == ("Ready", "True") for each in conditions)

        if not await until(are_ready, seconds=START_SECONDS, every=0.5):
            raise RuntimeError(f"taints are not ready after {START_SECONDS:.0f} s; see the logs of polyarch's pods")

    async def push(
        self, host: str, repositories: Sequence[str], platforms: Sequence[str], **more: Any
    ) -> list[PushedImage]:
        """Images ``HOST/REPOSITORY:1``."""
        described = {
            f"{self.sandbox.registry.address}/soak/{host}/{repository}:1": {
                "platforms": [f"linux/{architecture}" for architecture in platforms],
                **more,
            }
            for repository in repositories
        }
        return await self.sandbox.registry.seed(described)

    # -- nodes and components ------------------------------------------------------------------------------------------

    async def resize(self, more: int) -> None:
        """So many nodes more than at the beginning. All kubelets restart."""
        nodes = self._least | {GROWING: self._least[GROWING] + more}
        wanted = msgspec.structs.replace(self.sandbox.state.settings, nodes=nodes)
        self.sandbox = await Sandbox.start(wanted, install=False, home=self.sandbox.folder.root.parent)

    async def untainted(self) -> list[str]:
        """Nodes that should have a taint and have none."""
        found = (await self.client.list(NODES, type=Node)).items
        return sorted(
            node.metadata.name
            for node in found
            if (node.metadata.labels or {}).get(placement_names.ARCH_KEY) != "amd64" and not _is_tainted(node)
        )

    async def restart_api_server(self) -> None:
        await restart_api_server(self.sandbox, away=3)

    # -- the end -------------------------------------------------------------------------------------------------------

    async def removed(self, tell: uninstall.Tell) -> list[str]:
        """Uninstall polyarch, and return what is left of it."""
        removal = await uninstall.remove(self.client, DEFAULT_NAMESPACE, tell=tell)
        left = [f"uninstalled by force: {removal.by_force}"] if removal.by_force else []
        left += removal.left
        seen = await survey(self.client)
        left += sorted({str(each) for each in seen.since(self._before)} - set(left))
        for node in (await self.client.list(NODES, type=Node)).items:
            if _is_tainted(node) or MANAGED_TAINTS_ANNOTATION in (node.metadata.annotations or {}):
                left.append(f"a taint on node {node.metadata.name}")
        return left


def _is_tainted(node: Node) -> bool:
    return any(taint.get("key") == PRESET_KEYS["archaware"] for taint in node.spec.taints or ())


def _registries(hosts: Mapping[str, FaultProxy]) -> str:
    """Names of a soak lead to its proxies; builds name theirs by its address, as one does who pushes."""
    named = "".join(
        f'[[registry]]\nprefix = "{name}"\nlocation = "{proxy.address}/soak/{name}"\ninsecure = true\n\n'
        for name, proxy in hosts.items()
    )
    return f'{named}[[registry]]\nlocation = "{hosts[BUILT].address}"\ninsecure = true\n'
