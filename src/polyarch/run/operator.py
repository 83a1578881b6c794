"""``polyarch run operator``: makes the other roles and serves the custom resources' webhooks."""

import asyncio
import os
from collections.abc import Mapping
from functools import partial
from typing import Any, Final

import msgspec
import structlog

from polyarch import names as shared
from polyarch.kube.client import Client
from polyarch.kube.controller import Controller
from polyarch.kube.errors import KubernetesError
from polyarch.kube.manager import Components, Leadership, Process, Role, leader_check
from polyarch.kube.queue import WorkQueue
from polyarch.kube.resources import CONFIGMAPS, CRDS, PODS, SECRETS
from polyarch.objects import ObjectKey, Secret
from polyarch.operator import registry_settings
from polyarch.operator.apply_sets import OperandApplySets, operand_kinds
from polyarch.operator.cluster import Discovery, ImageArchitectures, OperatorNamespace
from polyarch.operator.components import placement_status
from polyarch.operator.components.builds_reconciler import BuildsReconciler
from polyarch.operator.components.operator_rbac import operator_permissions
from polyarch.operator.components.placement_reconciler import (
    SINGLETON,
    PlacementInformers,
    PlacementReconciler,
    StatusReconciler,
)
from polyarch.operator.components.placement_webhooks import (
    KINDS,
    ConvertedCRD,
    RegistrationReconciler,
    ResourceWebhooks,
)
from polyarch.operator.components.taints_reconciler import PlacementState, TaintsReconciler
from polyarch.operator.operands import OPERATOR_CONTAINER
from polyarch.operator.reconciler import ComponentReconciler, InitialSync
from polyarch.operator.serving_secrets import ServingSecrets, operator_account
from polyarch.operator.settings import DEFAULT_IMAGE, OperatorSettings
from polyarch.placement import names
from polyarch.placement.api import CPPCS
from polyarch.run.logs import Verbosity
from polyarch.run.numa_component import NumaComponent

log = structlog.get_logger(__name__)

# -- taints beside placement: each feature learns of the other what concerns it


PROXIES: Final = ("HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "http_proxy", "https_proxy", "no_proxy")
"""Variables of the operator that it passes on to the roles which ask registries."""


async def setup(process: Process) -> Components:
    """Every replica serves the webhooks and caches what the leader needs; the leader does the rest."""
    client, clock = process.client, process.clock
    settings = await as_own_pod(client, process.settings_of(OperatorSettings), os.environ)
    namespace = settings.namespace
    recorder = process.recorder("polyarch.dev/operator")
    own_namespace, informers = OperatorNamespace(process, settings), PlacementInformers(process, settings)
    crds = process.informer(CRDS, ConvertedCRD, field_selector=f"metadata.name={CPPCS}")
    queues = {
        name: WorkQueue[ObjectKey](name, clock, metrics=process.metrics)
        for name in ("certificates", "registration", "placement", "statuses", "taints", "builds")
    }

    def changed(*_: object) -> None:
        for name in ("placement", "taints", "builds"):
            queues[name].add(SINGLETON)
        queues["registration"].add(ObjectKey(namespace, names.OPERATOR))
        if numa is not None:
            numa.changed()

    numa: NumaComponent | None = None
    images = ImageArchitectures(partial(read_architectures, process, settings), clock=clock)
    discovery = Discovery(client, changed, settings=settings, images=images, clock=clock)
    cluster = await discovery.look()
    secrets = ServingSecrets(
        client, settings, owner=await operator_account(client, namespace), changed=changed, clock=clock
    )
    own = OperandApplySets(
        client,
        process.informers,
        KINDS if settings.resource_webhooks == "operator" else (),
        namespace=namespace,
        label=names.CONTROLLER_LABEL,
        part_of=names.OPERATOR,
        clock=clock,
        recorder=recorder,
    )
    registration = RegistrationReconciler(client, settings, own_namespace, discovery, crds, own, secrets)
    without_numa = msgspec.structs.replace(settings, numa="off")  # it has kinds of its own, and is not loaded for this
    kinds = operand_kinds(namespace, operator_permissions(without_numa, cluster).namespaces)
    sets, taint_sets, build_sets = (
        OperandApplySets(
            client, process.informers, kinds, namespace=namespace, part_of=part, clock=clock, recorder=recorder
        )
        for part in (names.OPERAND, shared.TAINTS, shared.BUILDER)
    )
    taints = TaintsReconciler(
        process,
        settings,
        namespace=own_namespace,
        discovery=discovery,
        sets=taint_sets,
        secrets=secrets,
        placement=PlacementState(informers, sets),
    )
    builds = BuildsReconciler(
        process,
        settings,
        namespace=own_namespace,
        discovery=discovery,
        sets=build_sets,
        secrets=secrets,
        tainted=lambda: taints.tolerated,
        placed=lambda: informers.configuration is not None,
    )
    numa = NumaComponent(
        process,
        settings,
        namespace=own_namespace,
        discovery=discovery,
        recorder=recorder,
        tolerated=lambda: taints.tolerated,
    )
    releases = process.metrics.counter(
        "polyarch_placement_forced_releases_total", "Pods that the operator released during an uninstall"
    )
    statuses = StatusReconciler(client, informers, namespace=namespace, clock=clock, left_out=changed)
    placement = PlacementReconciler(
        process,
        settings,
        namespace=own_namespace,
        discovery=discovery,
        informers=informers,
        sets=sets,
        secrets=secrets,
        recorder=recorder,
        releases=releases,
        tolerated=lambda: taints.tolerated,
        left_out=lambda: placement_status.left_out(statuses.notes.left_out),
    )
    components: dict[str, ComponentReconciler] = {"placement": placement, "taints": taints, "builds": builds}
    sync = InitialSync(components)
    reconcilers = {
        "certificates": secrets.reconcile,
        "placement": sync.of("placement", placement.reconcile),
        "statuses": statuses.reconcile,
        "taints": sync.of("taints", taints.reconcile),
        "builds": sync.of("builds", builds.reconcile),
        "registration": registration.reconcile,
    }
    if settings.resource_webhooks == "operator":
        process.at_end(registration.close)
    controllers = [
        Controller(name, reconcile, queue=queues[name], workers=1, clock=clock, metrics=process.metrics)
        for name, reconcile in reconcilers.items()
    ]
    queues["certificates"].add(secrets.key)
    queues["statuses"].add(SINGLETON)
    statuses.listen(queues["statuses"])
    changed()
    own_namespace.on_change(changed)
    crds.add_handler(changed)
    own.add_handler(changed)
    for component in components.values():
        component.on_change(changed)
    webhooks = ResourceWebhooks(client, informers.configurations.store, informers.configs.store)

    def notes() -> Mapping[str, str]:
        return {names.OPERATOR_SETTLED: process.identity if sync.is_complete and numa.is_synced else ""}

    election = process.election(names.OPERATOR_LEASE, notes=notes)
    leads = leader_check(election)
    return Components(
        routes=webhooks.routes(),
        leaderships=(Leadership(election=election, controllers=(*controllers, *numa.controllers)),),
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


IMAGE_SECONDS: Final = 5.0
"""The longest that a start waits for the registry of the operands' image."""


async def read_architectures(process: Process, settings: OperatorSettings, image: str) -> tuple[str, ...] | None:
    """The Linux architectures of an image of ours, sorted; None if no registry answers in time, or it does not say.

    Mirrors and CAs are those of the registries' ConfigMap, pull secrets those of the operator's own pod. Mirrors of
    OpenShift's API objects do not count.
    """
    from polyarch.images.pull_secrets import PullSecretNames, PullSecrets  # read once an hour, by one process
    from polyarch.oci.inspector import InspectorOptions, open_inspector
    from polyarch.oci.mirror_files import parse_registries_conf, table_of
    from polyarch.oci.pull_sources import Configuration
    from polyarch.oci.reference import parse
    from polyarch.oci.settings import CLUSTER
    from polyarch.oci.transport.addresses import AddressPolicy
    from polyarch.oci.transport.tls import TrustSettings

    async def secret(namespace: str, name: str) -> Secret:
        return await process.client.get(SECRETS, name, namespace=namespace, type=Secret)

    secrets = PullSecrets(secret, process.clock)
    try:
        files: dict[str, bytes] = {}
        if settings.registries_configmap:
            config_map = await process.client.get(
                CONFIGMAPS, settings.registries_configmap, namespace=settings.namespace
            )
            files = registry_settings.files_in(config_map)
        conf = parse_registries_conf(table_of(files.get(registry_settings.CONFIGURATION, b""), "registries.conf"))
        options = InspectorOptions(
            settings=CLUSTER,
            configuration=Configuration(registries=conf.registries, search=conf.search or (), aliases=conf.aliases),
            policy=AddressPolicy.of("cluster", allow=settings.allow_addresses, deny=settings.deny_addresses),
            trust=TrustSettings(ca_data=files.get(registry_settings.AUTHORITIES, b"").decode("ascii", "ignore")),
        )
        async with asyncio.timeout(IMAGE_SECONDS), open_inspector(options, clock=process.clock) as inspector:
            credentials = secrets.lazy(PullSecretNames(settings.namespace, settings.image_pull_secrets))
            inspection = await inspector.inspect(parse(image), credentials=credentials)
    except (ValueError, TimeoutError, KubernetesError) as error:  # ``OperatorNamespace`` tells what is wrong with files
        log.info("architectures of the image not read", image=image, error=str(error) or "no answer in time")
        return None
    finally:
        await secrets.aclose()
    if not inspection.constrains or not inspection.entries:
        log.info("architectures of the image not read", image=image, error=str(inspection.error or inspection.status))
        return None
    return tuple(sorted({each.architecture for each in inspection.node_platforms if each.os == "linux"}))


ROLE: Final = Role(name="operator", setup=setup, settings=(OperatorSettings, Verbosity))
