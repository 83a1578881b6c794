"""``polyarch run taints``: taints nodes and adds tolerations (TN-003, TN-080). One replica leads."""

from typing import Final

from polyarch.kube.process.components import Components, Leadership
from polyarch.kube.process.roles import Process, Role
from polyarch.run.logs import Verbosity
from polyarch.run.parts.taints import TaintParts, open_taints
from polyarch.run.settings import RegistrySettings, TaintRoleSettings
from polyarch.taints import names


async def setup(process: Process) -> Components:
    """The role, built from the shared parts of its process."""
    return components(process, await process.share(open_taints))


def components(process: Process, parts: TaintParts) -> Components:
    """All replicas serve; only the leader writes to the cluster."""
    election = process.election(names.LEASE)
    return Components(
        caches=tuple(parts.caches),
        leaderships=(Leadership(election=election),),
        background={} if election is not None else {"lease": process.candidate(names.LEASE).run},
    )


ROLE: Final = Role(name="taints", setup=setup, settings=(RegistrySettings, TaintRoleSettings, Verbosity))
