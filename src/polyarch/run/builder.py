"""``polyarch run builder``: builds images for several architectures. One replica leads and does all of it."""

import math
import os
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final, NamedTuple

import msgspec

from polyarch.builds import names
from polyarch.builds.architectures import NodeIndex
from polyarch.builds.controller.image_builds import ArchitecturesConfigMap, ImageBuildReader
from polyarch.builds.controller.informers import BuildInformers, BuildReader, BuildRef, RecordConfigMap
from polyarch.builds.controller.machine_os import MachineOSConfigReader, MachineOSImages, MachineOSMetrics
from polyarch.builds.controller.pruner import ImagePruner, PruneJobs, subscribe, subscribe_prune_jobs
from polyarch.builds.controller.reconciler import BuildReconciler, RepositoryLocks
from polyarch.builds.controller.resolver import BuildResolver, NamedObjects, SpecInputs
from polyarch.builds.controller.writes import (
    BuildExpectations,
    ObjectWrites,
    PreparedObjects,
    Registries,
    RegistryWrites,
)
from polyarch.builds.facts.build_facts import PlanSettings
from polyarch.builds.metrics import BuildMetrics
from polyarch.builds.places import JobPlaces
from polyarch.builds.plan.planner import plan_build
from polyarch.kube.controller import Controller, Result
from polyarch.kube.events import Recorder
from polyarch.kube.lease import LeaderElection
from polyarch.kube.manager import Components, Leadership, Process, Role, leader_check
from polyarch.kube.queue import Tenants, WorkQueue
from polyarch.kube.resources import CONFIGMAPS
from polyarch.objects import ObjectKey
from polyarch.oci.auth.credential_plugins import ProviderCredentials
from polyarch.oci.inspector import InspectorOptions, open_inspector
from polyarch.oci.pull_sources import Configuration
from polyarch.oci.settings import CLUSTER
from polyarch.oci.transport.addresses import AddressPolicy
from polyarch.oci.transport.tls import TrustSettings
from polyarch.proxies import passed_on
from polyarch.run.logs import Verbosity
from polyarch.run.registries import registry_metrics
from polyarch.run.settings import BuilderSettings, RegistrySettings

REPORTER: Final = "polyarch.dev/builder"
"""In Events."""
WORKERS: Final = 32
"""Builds that are looked at side by side: most of a pass is waiting for registries."""
CLEANERS: Final = 8
"""Builds whose old Runs are deleted side by side."""
PASS_SECONDS: Final = 900.0
"""A pass may copy images from one registry to another."""


async def setup(process: Process) -> Components:
    """The role: in the leader only."""
    services = await process.share(open_build_registries)
    informers, nodes = BuildInformers.of(process), NodeIndex()
    own = process.settings_of(BuilderSettings)
    reader = ImageBuildReader(
        informers,
        nodes,
        plan_build,
        settings=plan_settings(process),
        clock=process.clock,
        metrics=services.metrics,
        machine_namespace=own.machine_os_namespace if own.machine_os != "off" else "",
    )
    election = process.election(names.LEASE)
    recorder = process.recorder(REPORTER)
    locks = RepositoryLocks()
    machine = machine_os_reader(process, informers, services, recorder, places=reader.places)
    controllers: list[Controller[Any]] = [
        build_controller(process, each, services, recorder=recorder, locks=locks, election=election)
        for each in (reader, machine)
        if each is not None
    ]
    controllers += [
        _record_controller(process, informers, nodes),
        *_cleanup_controllers(process, informers, services, machine, recorder=recorder, locks=locks, election=election),
    ]
    background = {"machine-os": lambda: machine.attend(process.client)} if machine is not None else {}
    return Components(
        leaderships=(Leadership(election=election, controllers=tuple(controllers), background=background),),
        recorders=(recorder,),
    )


class BuildServices(NamedTuple):
    """What the builds of one process share."""

    registries: Registries
    metrics: BuildMetrics


def machine_os_reader(
    process: Process,
    informers: BuildInformers,
    services: BuildServices,
    recorder: Recorder,
    *,
    places: Callable[[str], JobPlaces],
) -> MachineOSConfigReader | None:
    """The reader-end of machine OS images, where it is not off; whether their kinds are served it finds out."""
    own = process.settings_of(BuilderSettings)
    if own.machine_os == "off":
        return None
    return MachineOSConfigReader(
        informers,
        process.informers,
        namespace=own.machine_os_namespace,
        settings=plan_settings(process),
        clock=process.clock,
        metrics=services.metrics,
        own_metrics=MachineOSMetrics(process.metrics),
        places=places,
        recorder=recorder,
    )


def build_controller(
    process: Process,
    reader: BuildReader,
    services: BuildServices,
    *,
    recorder: Recorder,
    locks: RepositoryLocks,
    election: LeaderElection | None,
) -> Controller[BuildRef]:
    """What does the builds of one reader-end. ``turns`` are those of all reader-ends: they share repositories."""
    client, clock = process.client, process.clock
    queue: WorkQueue[BuildRef] = WorkQueue(
        f"{reader.kind.lower()}s", clock, metrics=process.metrics, tenants=Tenants(namespace_of, workers=WORKERS)
    )
    expectations: BuildExpectations[BuildRef] = BuildExpectations(clock)
    inputs = SpecInputs(client, process.informers, clock, namespace=process.settings.namespace, enqueue=queue.add)
    passes = BuildReconciler(
        reader,
        resolver=BuildResolver(services.registries, inputs, clock, named=NamedObjects(client)),
        inputs=inputs,
        objects=ObjectWrites(client, reader, expectations, clock, prepared=PreparedObjects(client)),
        registries=RegistryWrites(services.registries),
        expectations=expectations,
        recorder=recorder,
        metrics=services.metrics,
        clock=clock,
        locks=locks,
        is_leading=leader_check(election),
        leading_for=lambda: election.leading_for if election is not None else math.inf,
    )
    reader.subscribe(queue.add)
    return Controller(
        queue.name,
        passes.reconcile,
        queue=queue,
        workers=WORKERS,
        timeout=PASS_SECONDS,
        clock=clock,
        metrics=process.metrics,
        writes=expectations,
    )


def namespace_of(ref: BuildRef) -> str:
    """Whose a build is."""
    return ref.namespace


def plan_settings(process: Process) -> PlanSettings:
    """The settings that plans depend on."""
    own, registries = process.settings_of(BuilderSettings), process.settings_of(RegistrySettings)
    registries_conf, trust_bundle = texts(registries)
    return PlanSettings(
        allow_privileged=own.allow_privileged,
        arch_taint_keys=own.arch_taint_keys,
        max_active_jobs=own.max_active_jobs,
        machine_os=own.machine_os,
        builder_image=own.builder_image,
        push_image=own.push_image,
        operator_namespace=process.settings.namespace,
        registries_conf=registries_conf,
        trust_bundle=trust_bundle,
        proxies=passed_on(os.environ),
    )


def _record_controller(process: Process, informers: BuildInformers, nodes: NodeIndex) -> Controller[ObjectKey]:
    """What keeps ``polyarch-architectures``."""
    namespace = process.settings.namespace
    records = process.informer(
        CONFIGMAPS,
        RecordConfigMap,
        namespace=namespace,
        field_selector=f"metadata.name={names.ARCHITECTURES_CONFIGMAP}",
    )
    record = ArchitecturesConfigMap(
        process.client,
        namespace,
        stored=records.store.get,
        architectures=lambda: nodes.architectures if informers.nodes.has_synced else None,
        wrote=records.writes.note_write,
    )
    queue: WorkQueue[ObjectKey] = WorkQueue("cluster-architectures", process.clock, metrics=process.metrics)
    for informer in (informers.nodes, records):
        informer.add_handler(lambda _: queue.add(record.key))
    return Controller(
        queue.name,
        record.reconcile,
        queue=queue,
        workers=1,
        clock=process.clock,
        metrics=process.metrics,
        writes=records.writes,
    )


def _cleanup_controllers(
    process: Process,
    informers: BuildInformers,
    services: BuildServices,
    machine: MachineOSConfigReader | None,
    *,
    recorder: Recorder,
    locks: RepositoryLocks,
    election: LeaderElection | None,
) -> list[Controller[Any]]:
    """What deletes old Runs, and images that nothing refers to any more."""
    client, clock = process.client, process.clock
    queue: WorkQueue[BuildRef] = WorkQueue(
        "old-runs", clock, metrics=process.metrics, tenants=Tenants(namespace_of, workers=CLEANERS)
    )
    inputs = SpecInputs(client, process.informers, clock, namespace=process.settings.namespace, enqueue=queue.add)
    cleaning = ImagePruner(
        client,
        informers,
        services.registries,
        inputs,
        jobs=PruneJobs(client, informers, plan_settings(process)),
        locks=locks,
        recorder=recorder,
        metrics=services.metrics,
        clock=clock,
        is_leading=leader_check(election),
        others=machine.executions if machine is not None else tuple,
        used=machine.published if machine is not None else tuple,
    )
    subscribe(informers, queue.add)
    subscribe_prune_jobs(informers, queue.add)
    records: WorkQueue[ObjectKey] = WorkQueue("old-machine-os-records", clock, metrics=process.metrics)
    images = MachineOSImages(
        client,
        informers.records,
        cleaning,
        services.registries,
        inputs,
        namespace=process.settings_of(BuilderSettings).machine_os_namespace,
        lives=machine.lives if machine is not None else lambda _: True,  # off: records go, and images stay
        locks=locks,
        recorder=recorder,
        metrics=services.metrics,
        clock=clock,
        is_leading=leader_check(election),
    )
    images.subscribe(records.add)
    cleaning_up: tuple[tuple[WorkQueue[Any], Callable[[Any], Awaitable[Result]], int], ...] = (
        (queue, cleaning.reconcile, CLEANERS),
        (records, images.reconcile, 1),
    )
    return [
        Controller(
            each.name,
            reconcile,
            queue=each,
            workers=workers,
            timeout=PASS_SECONDS,
            clock=clock,
            metrics=process.metrics,
        )
        for each, reconcile, workers in cleaning_up
    ]


ROLE: Final = Role(name="builder", setup=setup, settings=(RegistrySettings, BuilderSettings, Verbosity))
SETTINGS: Final = msgspec.structs.replace(CLUSTER, public_probe=False)
"""A build brings the credentials that it needs: no request is spent on finding out whether it could do without."""


@asynccontextmanager
async def open_build_registries(process: Process) -> AsyncIterator[BuildServices]:
    """Open the client. Raises ``InvalidConfiguration`` or ``InvalidSetting``, naming the file or range."""
    settings = process.settings_of(RegistrySettings)
    wiring = InspectorOptions(
        settings=SETTINGS,
        configuration=Configuration.load(settings.registries_conf) if settings.registries_conf else Configuration(),
        policy=AddressPolicy.of("cluster", allow=settings.allow_addresses, deny=settings.deny_addresses),
        trust=TrustSettings.of(ca=settings.ca, system_directories=()),
    )
    metrics = BuildMetrics(process.metrics)
    counted = metrics.counting(registry_metrics(process.metrics))
    plugins = settings.credential_providers
    providers = ProviderCredentials(plugins, clock=process.clock) if plugins is not None else None
    async with open_inspector(wiring, clock=process.clock, metrics=counted) as inspector:
        yield BuildServices(Registries(inspector, providers), metrics)


def texts(settings: RegistrySettings) -> tuple[str, str]:
    """The mirror configuration and the CAs as texts: build pods reach the same registries in the same way."""
    configuration = Path(settings.registries_conf).read_text() if settings.registries_conf else ""
    return configuration, "".join(Path(each).read_text() for each in settings.ca)
