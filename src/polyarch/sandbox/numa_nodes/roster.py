"""The kubelets of all nodes with cells: started together, asked by node, served until the process ends."""

import asyncio
import contextlib
from collections.abc import Iterable, Mapping
from pathlib import Path

from polyarch.clock import Clock
from polyarch.sandbox.kubelet_model.machine import Node
from polyarch.sandbox.kubelet_model.requests import Pod
from polyarch.sandbox.numa_nodes import podresources
from polyarch.sandbox.numa_nodes.account import Kubelet
from polyarch.sandbox.numa_nodes.configuration import RECONCILE_SECONDS


class NumaKubelets:
    """One for each node with cells, by the node's name; pods of other nodes are admitted always."""

    def __init__(self, nodes: Mapping[str, tuple[Node, Path]], *, clock: Clock) -> None:
        self._kubelets = {name: Kubelet(name, node, folder) for name, (node, folder) in nodes.items()}
        self._clock = clock

    def of(self, node: str) -> Kubelet | None:
        return self._kubelets.get(node)

    def over(self, node: str, uid: str) -> None:
        """A pod of this node has ended or is gone."""
        if (kubelet := self._kubelets.get(node)) is not None:
            kubelet.over(uid)

    def start(self, pods: Mapping[str, Iterable[Pod]]) -> None:
        """Start all, with the pods that are on the nodes already."""
        for name, kubelet in self._kubelets.items():
            kubelet.start(pods.get(name, ()))

    async def run(self) -> None:
        """Serve all sockets and forget pods that are over, until cancelled."""
        async with contextlib.AsyncExitStack() as stack:
            for kubelet in self._kubelets.values():
                await stack.enter_async_context(podresources.serving(kubelet))
            if not self._kubelets:
                await asyncio.get_running_loop().create_future()
            while True:
                await self._clock.sleep(RECONCILE_SECONDS)
                for kubelet in self._kubelets.values():
                    kubelet.reconcile()
