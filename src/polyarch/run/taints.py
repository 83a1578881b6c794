"""``polyarch run taints``: taints nodes and adds tolerations (TN-003, TN-080). One replica leads."""

from typing import Any, Final

from polyarch.kube.process.components import Components, Leadership
from polyarch.kube.process.roles import Process, Role
from polyarch.kube.serving.reviews import Route
from polyarch.run.logs import Verbosity
from polyarch.run.parts.images import open_admission_lookups
from polyarch.run.parts.taints import TaintParts, open_pod_admission, open_taints
from polyarch.run.settings import RegistrySettings, TaintRoleSettings
from polyarch.taints import names
from polyarch.taints.admission.template_admission import TemplateAdmission


async def setup(process: Process) -> Components:
    """The role, built from the shared parts of its process. Without a certificate it serves no webhook."""
    parts = await process.share(open_taints)
    if not process.settings.cert_dir:
        return components(process, parts)
    pods = await process.share(open_pod_admission)
    templates = TemplateAdmission(
        facts=parts.facts,
        lookups=await process.share(open_admission_lookups),
        failed=parts.images.metrics.internal_errors.inc,
    )
    return components(process, parts, routes=(pods.route(), templates.route()))


def components(process: Process, parts: TaintParts, *, routes: tuple[Route[Any], ...] = ()) -> Components:
    """All replicas serve; only the leader writes to the cluster."""
    election = process.election(names.LEASE)
    return Components(
        routes=routes,
        caches=tuple(parts.caches),
        leaderships=(Leadership(election=election),),
        background={} if election is not None else {"lease": process.candidate(names.LEASE).run},
    )


ROLE: Final = Role(name="taints", setup=setup, settings=(RegistrySettings, TaintRoleSettings, Verbosity))
