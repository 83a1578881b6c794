"""``polyarch run operator``: makes the other roles and serves the custom resources' webhooks."""

import os
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final

import msgspec

from polyarch import names as shared
from polyarch.installation.operator import operator_rights
from polyarch.kube.client import Client
from polyarch.kube.controller import After, Controller, Result
from polyarch.kube.informer import Informer
from polyarch.kube.manager import Components, Leadership, Process, Role, leader_check
from polyarch.kube.queue import WorkQueue
from polyarch.kube.resources import CRDS, MUTATING_WEBHOOKS, PODS
from polyarch.objects import Key, Unstructured
from polyarch.operator.apply_sets import OperandApplySets, operand_kinds
from polyarch.operator.cluster import Discovery, InitialSync, OperatorNamespace
from polyarch.operator.components import placement_status
from polyarch.operator.components.builds_reconciler import BuildsReconciler
from polyarch.operator.components.placement_reconciler import (
    SINGLETON,
    Deployer,
    PlacementInformers,
    PlacementReconciler,
    StatusReconciler,
)
from polyarch.operator.components.placement_uninstall import ForcedRelease, Uninstaller
from polyarch.operator.components.placement_webhooks import KINDS, Definition, RegistrationReconciler, ResourceWebhooks
from polyarch.operator.components.taints_reconciler import TaintsReconciler, TaintsUninstaller
from polyarch.operator.components.taints_status import PlacementScope
from polyarch.operator.operands import OPERATOR_CONTAINER
from polyarch.operator.serving_secrets import ServingSecrets, operator_account
from polyarch.operator.settings import DEFAULT_IMAGE, OperatorSettings
from polyarch.operator.uninstall import SOON
from polyarch.placement import names
from polyarch.placement.api import CPPCS
from polyarch.run.logs import Verbosity
from polyarch.run.numa_component import NumaComponent
from polyarch.selectors import InvalidSelector, Selector
from polyarch.taints.api import ARCHITECTURE_TAINTS
from polyarch.taints.settings import NOTHING


class PlacementBeside:
    """Placement as taints sees it."""

    def __init__(self, observation: PlacementInformers, operands: OperandApplySets) -> None:
        self._observation = observation
        self._operands = operands

    @property
    def configuration(self) -> PlacementScope | None:
        """What the ClusterPodPlacementConfig and the policy say; None without the former."""
        found, policy = self._observation.configuration, self._observation.policy.spec
        if found is None:
            return None
        selector = found.spec.namespace_selector
        try:
            namespaces = Selector.parse(selector) if selector is not None else None
        except InvalidSelector:
            namespaces = NOTHING
        return PlacementScope(namespaces=namespaces, excluded=policy.excluded_namespaces, audits=policy.mode == "audit")

    @property
    def webhook(self) -> Mapping[str, Any] | None:
        """The entry of the pod webhook's configuration, as the API server has it."""
        found = self._operands.get(MUTATING_WEBHOOKS, names.WEBHOOK_CONFIGURATION)
        if found is None or found.metadata.deletion_timestamp is not None:
            return None
        registered: list[dict[str, Any]] = found.document.get("webhooks") or []
        return registered[0] if registered else None


class TaintsComponent:
    """The reconciler of taints and what it watches. ``placed``: the operands of placement, whose kinds are the same."""

    def __init__(
        self,
        process: Process,
        settings: OperatorSettings,
        *,
        home: OperatorNamespace,
        discovery: Discovery,
        observation: PlacementInformers,
        placed: OperandApplySets,
        sets: OperandApplySets,
        secrets: ServingSecrets,
    ) -> None:
        self._objects: Informer[Unstructured] = process.informer(ARCHITECTURE_TAINTS, Unstructured)
        self._sets = sets
        client, clock = process.client, process.clock
        self.reconciler = TaintsReconciler(
            client,
            settings,
            self._objects,
            home=home,
            discovery=discovery,
            sets=sets,
            trust=secrets,
            placement=PlacementBeside(observation, placed),
            farewell=TaintsUninstaller(client, process.informers, sets, home=settings.namespace, clock=clock),
            clock=clock,
        )

    def on_change(self, changed: Callable[..., None]) -> None:
        """Calls ``changed`` with every change that a pass may have to answer."""
        self._objects.add_handler(changed)
        self._sets.add_handler(changed)


# -- ``polyarch run operator``: makes the other roles and serves the custom resources' webhooks.


PROXIES: Final = ("HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "http_proxy", "https_proxy", "no_proxy")
"""Variables of the operator that it passes on to the roles which ask registries."""


async def setup(process: Process) -> Components:
    """Every replica serves the webhooks and caches what the leader needs; the leader does the rest."""
    client, clock = process.client, process.clock
    settings = await as_own_pod(client, process.settings_of(OperatorSettings), os.environ)
    namespace = settings.namespace
    recorder = process.recorder("polyarch.dev/operator")
    home, observation = OperatorNamespace(process, settings), PlacementInformers(process, settings)
    definitions = process.informer(CRDS, Definition, field_selector=f"metadata.name={CPPCS}")
    certificates, registrations, placements, status_keys, taint_keys, build_keys = (
        WorkQueue[Key](name, clock, metrics=process.metrics)
        for name in ("certificates", "registration", "placement", "statuses", "taints", "builds")
    )

    def changed(*_: object) -> None:
        placements.add(SINGLETON)
        taint_keys.add(SINGLETON)
        build_keys.add(SINGLETON)
        registrations.add(Key(namespace, names.OPERATOR))
        if numa is not None:
            numa.changed()

    numa: NumaComponent | None = None
    discovery = Discovery(client, changed, clock=clock)
    cluster = await discovery.look()
    secrets = ServingSecrets(
        client, settings, owner=await operator_account(client, namespace), changed=changed, clock=clock
    )
    own = OperandApplySets(
        client,
        process.informers,
        KINDS,
        home=namespace,
        label=names.CONTROLLER_LABEL,
        part_of=names.OPERATOR,
        clock=clock,
        recorder=recorder,
    )
    registration = RegistrationReconciler(client, settings, home, discovery, definitions, own, secrets)
    without_numa = msgspec.structs.replace(settings, numa="off")  # it has kinds of its own, and is not loaded for this
    kinds = operand_kinds(namespace, operator_rights(without_numa, cluster).namespaces)
    sets, taint_sets, build_sets = (
        OperandApplySets(client, process.informers, kinds, home=namespace, part_of=part, clock=clock, recorder=recorder)
        for part in (names.OPERAND, shared.TAINTS, shared.BUILDER)
    )
    taints = TaintsComponent(
        process,
        settings,
        home=home,
        discovery=discovery,
        observation=observation,
        placed=sets,
        sets=taint_sets,
        secrets=secrets,
    )
    builds = BuildsReconciler(
        process,
        settings,
        home=home,
        discovery=discovery,
        sets=build_sets,
        trust=secrets,
        tainted=lambda: taints.reconciler.tolerated,
        placed=lambda: observation.configuration is not None,
    )
    numa = NumaComponent(process, settings, home=home, discovery=discovery, recorder=recorder)
    forced = process.metrics.counter(
        "polyarch_placement_forced_releases_total", "Pods that the operator released during an uninstall"
    )
    statuses = StatusReconciler(client, observation, home=namespace, clock=clock, left_out=changed)
    placement = PlacementReconciler(
        client,
        home,
        observation,
        discovery,
        sets,
        Deployer(client, settings, home, observation, sets, secrets, lambda: taints.reconciler.tolerated),
        Uninstaller(client, sets, ForcedRelease(client, recorder, forced), home=namespace, clock=clock),
        recorder,
        clock,
        lambda: placement_status.left_out(statuses.notes.left_out),
    )

    def controller(name: str, reconcile: Callable[[Key], Awaitable[Result]], keys: WorkQueue[Key]) -> Controller[Key]:
        return Controller(name, reconcile, queue=keys, workers=1, clock=clock, metrics=process.metrics)

    first = InitialSync(("placement", "taints", "builds"), not_yet=After(SOON))
    controllers = [
        controller("certificates", secrets.reconcile, certificates),
        controller("placement", first.of("placement", placement.reconcile), placements),
        controller("statuses", statuses.reconcile, status_keys),
        controller("taints", first.of("taints", taints.reconciler.reconcile), taint_keys),
        controller("builds", first.of("builds", builds.reconcile), build_keys),
        *numa.controllers,
    ]
    if settings.resource_webhooks == "operator":
        controllers.append(controller("registration", registration.reconcile, registrations))
        process.at_end(registration.close)
    certificates.add(secrets.key)
    status_keys.add(SINGLETON)
    statuses.listen(status_keys)
    changed()
    home.on_change(changed)
    observation.on_change(changed)
    definitions.add_handler(changed)
    taints.on_change(changed)
    builds.on_change(changed)
    for several in (sets, own):
        several.add_handler(changed)
    webhooks = ResourceWebhooks(client, observation.configurations.store, observation.configs.store)

    def notes() -> Mapping[str, str]:
        return {names.OPERATOR_SETTLED: process.identity if first.are_over and numa.has_looked else ""}

    election = process.election(names.OPERATOR_LEASE, notes=notes)
    leads = leader_check(election)
    return Components(
        routes=webhooks.routes(),
        leaderships=(Leadership(election=election, controllers=tuple(controllers)),),
        background={"discovery": discovery.run, "predecessor": lambda: placement.watch_predecessor(leads)},
        recorders=(recorder,),
    )


async def as_own_pod(client: Client, settings: OperatorSettings, environment: Mapping[str, str]) -> OperatorSettings:
    """What the settings leave open of the image and of how it is pulled is as the operator's own pod has it.

    ``POD_NAME`` and ``POD_NAMESPACE`` say which that is; without them it is as usual. Its proxies are passed on, too.
    Raises ``KubernetesError``.
    """
    name, namespace = environment.get("POD_NAME", ""), environment.get("POD_NAMESPACE", "")
    pod = await client.get(PODS, name, namespace=namespace) if name and namespace else {"spec": {}}
    containers: dict[str, dict[str, Any]] = {each["name"]: each for each in pod["spec"].get("containers", ())}
    own = containers.get(OPERATOR_CONTAINER) or next(iter(containers.values()), {})  # a mesh may put its own in front
    secrets = pod["spec"].get("imagePullSecrets") or ()
    return msgspec.structs.replace(
        settings,
        image=settings.image or own.get("image") or DEFAULT_IMAGE,
        image_pull_policy=settings.image_pull_policy or own.get("imagePullPolicy") or "IfNotPresent",
        image_pull_secrets=settings.image_pull_secrets or tuple(each["name"] for each in secrets),
        proxies=tuple((name, environment[name]) for name in PROXIES if environment.get(name)),
    )


ROLE: Final = Role(name="operator", setup=setup, settings=(OperatorSettings, Verbosity))
