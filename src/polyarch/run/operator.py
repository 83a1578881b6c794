"""``polyarch run operator``: makes the other roles and serves the custom resources' webhooks (PL-500)."""

from typing import Final

from polyarch.kube.process.components import Components, Leadership
from polyarch.kube.process.roles import Process, Role
from polyarch.kube.runtime.controller import Controller
from polyarch.placement import names
from polyarch.placement.api.resources import CPPCS, PPCS, ClusterPodPlacementConfig, PodPlacementConfig
from polyarch.placement.lifecycle.resource_webhooks import ResourceWebhooks
from polyarch.placement.lifecycle.serving_secrets import ServingSecrets, operator_account
from polyarch.placement.operator.settings import OperatorSettings
from polyarch.run.logs import Verbosity


async def setup(process: Process) -> Components:
    """Every replica serves the webhooks; the leader does the rest."""
    settings, client, clock = process.settings_of(OperatorSettings), process.client, process.clock
    webhooks = ResourceWebhooks(
        client,
        process.informer(CPPCS, ClusterPodPlacementConfig).store,
        process.informer(PPCS, PodPlacementConfig).store,
    )
    owner = await operator_account(client, settings.namespace)
    secrets = ServingSecrets(client, settings, owner=owner, clock=clock)
    certificates = Controller("certificates", secrets.reconcile, workers=1, clock=clock, metrics=process.metrics)
    certificates.queue.add(secrets.key)
    return Components(
        routes=webhooks.routes(),
        leaderships=(Leadership(election=process.election(names.OPERATOR_LEASE), controllers=(certificates,)),),
    )


ROLE: Final = Role(name="operator", setup=setup, settings=(OperatorSettings, Verbosity))
