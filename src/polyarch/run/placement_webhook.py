"""``polyarch run placement-webhook``: the admission webhook for pods. All replicas serve; none leads."""

from typing import Final

from polyarch.kube.manager import Components, Process, Role
from polyarch.placement.webhook import PodWebhook
from polyarch.run.logs import Verbosity
from polyarch.run.placement_services import open_placement_services
from polyarch.run.services import lease_watch, open_admission_lookups
from polyarch.run.settings import RegistrySettings, TaintRoleSettings


async def setup(process: Process) -> Components:
    """The webhook, built from the shared services of its process."""
    services = await process.share(open_placement_services)
    webhook = PodWebhook(
        facts=services.facts,
        secrets=services.images.secrets,
        controller_lives=lease_watch(process),
        clock=process.clock,
        metrics=services.metrics,
        lookups=await process.share(open_admission_lookups),
        mutator=services.additions,
    )
    process.at_end(webhook.close)
    return Components(routes=(webhook.route(),), caches=tuple(services.caches))


ROLE: Final = Role(
    name="placement-webhook",
    setup=setup,
    settings=(RegistrySettings, TaintRoleSettings, Verbosity),
    needs_certificate=True,
)
