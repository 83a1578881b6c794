"""Nodes that join a running sandbox."""

import msgspec

from polyarch.sandbox.cluster import Sandbox
from polyarch.sandbox.state import Taint


async def grow(sandbox: Sandbox, register_taints: tuple[Taint, ...] = (), **nodes: int) -> Sandbox:
    """As ``up --nodes`` with more nodes of these architectures."""
    settings = Sandbox.attach(sandbox.name, home=sandbox.folder.root.parent).state.settings
    wanted = msgspec.structs.replace(settings, nodes=settings.nodes | nodes, register_taints=register_taints)
    return await Sandbox.start(wanted, home=sandbox.folder.root.parent)
