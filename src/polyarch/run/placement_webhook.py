"""``polyarch run placement-webhook``: the admission webhook for pods (PL-100). All replicas serve; none leads."""

from collections.abc import Callable
from typing import Final

from polyarch.kube.process.components import Components
from polyarch.kube.process.roles import Process, Role
from polyarch.kube.resources import LEASES
from polyarch.kube.runtime.lease import Lease, RecordAge
from polyarch.placement import names
from polyarch.placement.webhook.pod_webhook import PodWebhook
from polyarch.run.logs import Verbosity
from polyarch.run.parts.images import open_admission_lookups
from polyarch.run.parts.placement import open_parts
from polyarch.run.settings import RegistrySettings, TaintRoleSettings

CONTROLLER_SILENCE = 30.0
"""Seconds without a change of its Lease after which the controller counts as unavailable (PL-107)."""


async def setup(process: Process) -> Components:
    """The webhook, built from the shared parts of its process."""
    parts = await process.share(open_parts)
    webhook = PodWebhook(
        facts=parts.facts,
        secrets=parts.images.secrets,
        controller_lives=lease_watch(process),
        clock=process.clock,
        metrics=parts.metrics,
        lookups=await process.share(open_admission_lookups),
        additions=parts.additions,
    )
    process.at_end(webhook.close)
    return Components(routes=(webhook.route(),), caches=tuple(parts.caches))


def lease_watch(process: Process) -> Callable[[], bool]:
    """Whether the controllers' Lease changed recently, by this process's own clock (PL-107).

    Time during which the watch was broken does not count, because no renewal could be seen then. After an outage of the
    API server, controllers therefore keep the rest of their time before pods are admitted without them.
    """
    informer = process.informer(
        LEASES,
        Lease,
        namespace=process.settings.namespace,
        field_selector=f"metadata.name={names.CONTROLLER_LEASE}",
    )
    age = RecordAge(process.clock, blind=lambda: informer.blind_seconds)
    informer.add_handler(lambda change: age.observe(change.new))
    return lambda: age.age() < CONTROLLER_SILENCE


ROLE: Final = Role(
    name="placement-webhook",
    setup=setup,
    settings=(RegistrySettings, TaintRoleSettings, Verbosity),
    needs_certificate=True,
)
