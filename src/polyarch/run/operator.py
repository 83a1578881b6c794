"""``polyarch run operator``: makes the other roles and serves the custom resources' webhooks (PL-500)."""

from typing import Final

from polyarch.kube.process.components import Components, Leadership
from polyarch.kube.process.roles import Process, Role
from polyarch.kube.runtime.controller import Controller
from polyarch.kube.runtime.queue import WorkQueue
from polyarch.model.meta import Key
from polyarch.placement import names
from polyarch.placement.lifecycle.configuration import Placement
from polyarch.placement.lifecycle.deploying import Deploying
from polyarch.placement.lifecycle.discovery import Discovery
from polyarch.placement.lifecycle.lifting import Gates
from polyarch.placement.lifecycle.observation import SINGLETON, Observation
from polyarch.placement.lifecycle.operand_sets import OperandSets
from polyarch.placement.lifecycle.resource_webhooks import ResourceWebhooks
from polyarch.placement.lifecycle.serving_secrets import ServingSecrets, operator_account
from polyarch.placement.lifecycle.uninstalling import Uninstalling
from polyarch.placement.operator.operator_rules import operator_rules
from polyarch.placement.operator.settings import OperatorSettings
from polyarch.run.logs import Verbosity


async def setup(process: Process) -> Components:
    """Every replica serves the webhooks and caches what the leader needs; the leader does the rest."""
    settings, client, clock = process.settings_of(OperatorSettings), process.client, process.clock
    home = settings.namespace
    recorder = process.recorder("polyarch.dev/operator")
    queue: WorkQueue[Key] = WorkQueue("placement", clock, metrics=process.metrics)
    observation = Observation(process, settings)

    def changed() -> None:
        queue.add(SINGLETON)

    discovery = Discovery(client, changed, clock=clock)
    namespaces = operator_rules(settings, await discovery.look()).namespaces
    sets = OperandSets(client, process.informers, (home, *namespaces), clock=clock)
    secrets = ServingSecrets(client, settings, owner=await operator_account(client, home), changed=changed, clock=clock)
    forced = process.metrics.counter(
        "polyarch_placement_forced_releases_total", "Gates that the operator lifted during an uninstall"
    )
    uninstalling = Uninstalling(client, sets, Gates(client, recorder, forced), home=home, clock=clock)
    logic = Placement(
        client,
        observation,
        discovery,
        sets,
        Deploying(client, settings, observation, sets, secrets),
        uninstalling,
        recorder,
        clock,
    )
    placement: Controller[Key] = Controller(
        "placement", logic.reconcile, queue=queue, workers=1, clock=clock, metrics=process.metrics
    )
    certificates = Controller("certificates", secrets.reconcile, workers=1, clock=clock, metrics=process.metrics)
    certificates.queue.add(secrets.key)
    changed()
    observation.on_change(changed)
    sets.add_handler(lambda _: changed())
    webhooks = ResourceWebhooks(client, observation.configurations.store, observation.configs.store)
    return Components(
        routes=webhooks.routes(),
        leaderships=(
            Leadership(election=process.election(names.OPERATOR_LEASE), controllers=(certificates, placement)),
        ),
        background={"discovery": discovery.run},
        recorders=(recorder,),
    )


ROLE: Final = Role(name="operator", setup=setup, settings=(OperatorSettings, Verbosity))
