"""``polyarch run operator``: makes the other roles and serves the custom resources' webhooks (PL-500)."""

from typing import Final

from polyarch.kube.process.components import Components, Leadership
from polyarch.kube.process.roles import Process, Role
from polyarch.kube.resources import CRDS
from polyarch.kube.runtime.controller import Controller
from polyarch.kube.runtime.queue import WorkQueue
from polyarch.model.meta import Key
from polyarch.placement import names
from polyarch.placement.api.resources import CPPCS
from polyarch.placement.lifecycle.configuration import Placement
from polyarch.placement.lifecycle.deploying import Deploying
from polyarch.placement.lifecycle.discovery import Discovery
from polyarch.placement.lifecycle.lifting import Gates
from polyarch.placement.lifecycle.observation import SINGLETON, Observation
from polyarch.placement.lifecycle.operand_sets import OperandSets, operand_kinds
from polyarch.placement.lifecycle.registration import KINDS, Definition, Registration
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
    observation = Observation(process, settings)
    definitions = process.informer(CRDS, Definition, field_selector=f"metadata.name={CPPCS}")
    placements: WorkQueue[Key] = WorkQueue("placement", clock, metrics=process.metrics)
    registrations: WorkQueue[Key] = WorkQueue("registration", clock, metrics=process.metrics)

    def changed(*_: object) -> None:
        placements.add(SINGLETON)
        registrations.add(Key(home, names.OPERATOR))

    discovery = Discovery(client, changed, clock=clock)
    cluster = await discovery.look()
    secrets = ServingSecrets(client, settings, owner=await operator_account(client, home), changed=changed, clock=clock)
    own = OperandSets(
        client, process.informers, KINDS, home=home, label=names.CONTROLLER_LABEL, part_of=names.OPERATOR, clock=clock
    )
    registration = Registration(client, settings, observation, discovery, definitions, own, secrets)
    kinds = operand_kinds(home, operator_rules(settings, cluster).namespaces)
    sets = OperandSets(client, process.informers, kinds, home=home, clock=clock)
    forced = process.metrics.counter(
        "polyarch_placement_forced_releases_total", "Gates that the operator lifted during an uninstall"
    )
    placement = Placement(
        client,
        observation,
        discovery,
        sets,
        Deploying(client, settings, observation, sets, secrets),
        Uninstalling(client, sets, Gates(client, recorder, forced), home=home, clock=clock),
        recorder,
        clock,
    )
    controllers = (
        Controller("certificates", secrets.reconcile, workers=1, clock=clock, metrics=process.metrics),
        Controller(
            "registration",
            registration.reconcile,
            queue=registrations,
            workers=1,
            clock=clock,
            metrics=process.metrics,
        ),
        Controller("placement", placement.reconcile, queue=placements, workers=1, clock=clock, metrics=process.metrics),
    )
    controllers[0].queue.add(secrets.key)
    changed()
    observation.on_change(changed)
    definitions.add_handler(changed)
    for several in (sets, own):
        several.add_handler(changed)
    process.at_end(registration.close)
    webhooks = ResourceWebhooks(client, observation.configurations.store, observation.configs.store)
    return Components(
        routes=webhooks.routes(),
        leaderships=(Leadership(election=process.election(names.OPERATOR_LEASE), controllers=controllers),),
        background={"discovery": discovery.run},
        recorders=(recorder,),
    )


ROLE: Final = Role(name="operator", setup=setup, settings=(OperatorSettings, Verbosity))
