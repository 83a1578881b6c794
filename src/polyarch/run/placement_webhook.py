"""``polyarch run placement-webhook``: answers admissions of pods (PL-100). Every replica serves; none leads."""

from collections.abc import Awaitable, Callable
from typing import NamedTuple

from polyarch.kube.resources import LEASES
from polyarch.kube.runtime.lease import Lease, RecordAge
from polyarch.kube.serving.admission import AdmissionServer
from polyarch.placement import names
from polyarch.placement.webhook.pod_webhook import PodWebhook
from polyarch.run.placement import Parts, open_parts
from polyarch.run.process import Process, open_process
from polyarch.run.settings import RunSettings

CONTROLLER_SILENCE = 30.0
"""Seconds without a change of its Lease after which the controller counts as gone (PL-107)."""


class WebhookRole(NamedTuple):
    """What the manager has to run for the webhook."""

    admission: AdmissionServer
    close: Callable[[], Awaitable[None]]


def webhook_role(parts: Parts) -> WebhookRole:
    """The webhook on the shared parts of its process."""
    process = parts.process
    webhook = PodWebhook(
        facts=parts.facts,
        secrets=parts.secrets,
        inspector=parts.registries,
        controller_lives=lease_watch(process),
        clock=process.clock,
        metrics=parts.metrics,
    )
    admission = AdmissionServer(
        [webhook.route()],
        process.certificates,
        host=process.settings.bind,
        port=process.settings.port,
        clock=process.clock,
        metrics=process.metrics,
    )
    return WebhookRole(admission, webhook.close)


def lease_watch(process: Process) -> Callable[[], bool]:
    """Whether the controllers' Lease moved lately, judged by this process's own clock (PL-107).

    While the API server is away nobody can renew a Lease and we would not see it: when it is back, controllers get the
    rest of their time before pods are let through without them.
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


async def run(settings: RunSettings) -> None:
    """Until SIGTERM."""
    async with open_process("placement-webhook", settings) as process, open_parts(process) as parts:
        role = webhook_role(parts)
        try:
            await process.run(
                caches=[parts.facts],
                admission=role.admission,
            )
        finally:
            await role.close()
