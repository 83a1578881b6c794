"""``polyarch run numa-exporter``: publishes the NUMA zones of the node that it runs on.

There is one on every node, so it imports what it needs and no more. The parts, and who calls whom::

    triggers ──> scan loop ──> scanner ──> kubelet, files of the host
                     │ offers
                     v
                 publisher ──> API server <── the followed topology, the own Node
"""

import asyncio
import os
import random
import sys
from pathlib import Path
from typing import Final

import msgspec
import structlog

from polyarch.clock import Clock, SystemClock, deadline
from polyarch.kube import config
from polyarch.kube.client import Client
from polyarch.kube.errors import ConfigurationError, KubernetesError
from polyarch.kube.manager import Addresses, Components, Process, Role, Task
from polyarch.kube.metrics import Metrics, RequestMetrics
from polyarch.kube.resources import NODES, PODS
from polyarch.kube.settings import Configuration, ProcessSettings
from polyarch.numa.api.topology import TOPOLOGIES, NodeResourceTopology
from polyarch.numa.exporter.cluster import (
    KubeletEndpoint,
    KubeletPort,
    NodeObject,
    OwnNode,
    OwnPod,
    PodPhase,
    TerminalPods,
    WatchedObject,
    asks_configz,
    needs_node,
    pods_of_node,
)
from polyarch.numa.exporter.publisher import Publisher, publish_once
from polyarch.numa.exporter.scan import Scanner, open_podresources, state_directory
from polyarch.numa.exporter.scan_loop import ConditionWriter, FingerprintStatusFile, NullConditions, ScanLoop
from polyarch.numa.exporter.schedule import ScanTrigger
from polyarch.numa.exporter.server import ExporterMetrics, ExporterServer
from polyarch.numa.exporter.settings import ExporterSettings
from polyarch.numa.exporter.triggers import NotifyFileError, ScanTriggers, watched_files
from polyarch.numa.host.kubelet import NoKubeletSettings
from polyarch.numa.host.machine import UnreadableMachine, host_files
from polyarch.numa.host.podresources import PodResourcesError
from polyarch.run.logs import configure

log = structlog.get_logger(__name__)

NAME: Final = "numa-exporter"
USAGE_ERRORS: Final = (ConfigurationError, NoKubeletSettings, NotifyFileError)
"""What settings cause, and others settings cure: exit code 2."""
DEBUG: Final = 4
"""klog's level from which everything is logged."""
ATTEMPTS: Final = 3
"""Of ``--oneshot``."""
ATTEMPT_SECONDS: Final = 30.0
BETWEEN_ATTEMPTS: Final = 2.0


def play(settings: ExporterSettings) -> int:
    """Exports until SIGTERM, or once; the exit code. Raises ``USAGE_ERRORS`` and ``KubernetesError``."""
    configure(settings.log_format, "debug" if settings.verbosity >= DEBUG else "info")
    try:
        return asyncio.run(_play(settings))
    except BaseExceptionGroup as group:
        known, unknown = group.split(USAGE_ERRORS)
        if known is None or unknown is not None:
            raise
        raise _first(known) from None


async def _play(settings: ExporterSettings) -> int:
    metrics, clock = Metrics(process=True), SystemClock()
    configuration = config.load(settings.kubeconfig or None, None, os.environ)
    async with Client(configuration, role=NAME, clock=clock, metrics=RequestMetrics(metrics)) as client:
        if settings.publish.oneshot:
            return await once(settings, client, clock=clock)
        own = ProcessSettings(namespace=settings.namespace)
        async with Process(NAME, own, client, metrics, role_settings=(settings,), announce=_announce) as process:
            await process.run(ROLE)
    return 0


async def once(settings: ExporterSettings, client: Client, *, clock: Clock) -> int:
    """``--oneshot``: 0 after one scan and one publish, 3 if that failed three times. It always ends."""
    podresources = open_podresources(settings.host.podresources_socket, clock=clock)
    port = kubelet_port(settings, client.configuration, clock)
    if port is not None and not settings.host.kubelet_address:
        port.is_at(*await _kubelet(client, settings.hostname))
    scans = Scanner(settings, podresources, clock=clock, configz=port)
    try:
        for attempt in range(1, ATTEMPTS + 1):
            try:
                async with deadline(clock, ATTEMPT_SECONDS):
                    await podresources.until_ready()
                    scanned = await scans.scan(ScanTrigger("reactive", frozenset({"start"}), clock.monotonic()))
                    if settings.publish.no_publish:
                        log.debug("not published", topology=scanned.document)
                        return 0
                    sent = await publish_once(client, scanned.document, settings)
            except (PodResourcesError, UnreadableMachine, KubernetesError, TimeoutError) as error:
                problem = str(error) or f"not done within {ATTEMPT_SECONDS:g} s"
                log.warning("scan or publish failed", attempt=attempt, of=ATTEMPTS, problem=problem)
            else:
                log.info("topology is published", operation=sent.operation)
                return 0
            if attempt < ATTEMPTS:
                await clock.sleep(BETWEEN_ATTEMPTS)
    finally:
        await podresources.close()
    return 3


async def setup(process: Process) -> Components:
    """The exporter's parts, wired."""
    settings = process.settings_of(ExporterSettings)
    client, clock, node = process.client, process.clock, settings.hostname
    chance = random.SystemRandom().random
    metrics = ExporterMetrics(process.metrics, node)
    background: dict[str, Task] = {}

    podresources = open_podresources(settings.host.podresources_socket, metrics=metrics, clock=clock)
    process.at_end(podresources.close)
    kubelet = host_files(settings.host.root).root.path(state_directory(settings.host))
    triggers = ScanTriggers(
        settings.triggers,
        watched_files(
            settings.host.podresources_socket,
            kubelet=Path(kubelet) if settings.triggers.state_poll else None,
            notify=settings.triggers.notify_file,
        ),
        clock=clock,
    )
    port = kubelet_port(settings, client.configuration, clock)

    def replaced() -> None:
        publisher.wake()

    def moved() -> None:
        if port is not None and owner is not None and not settings.host.kubelet_address:
            port.is_at(*owner.kubelet)

    def resized() -> None:
        if settings.triggers.refresh_node_resources:
            triggers.poke("node")

    owner = None
    if needs_node(settings):
        owner = OwnNode(
            client,
            node,
            clock=clock,
            resync=settings.publish.resync,
            replaced=replaced,
            resized=resized,
            moved=moved,
        )
        background["own node"] = owner.run
    topology: WatchedObject[NodeResourceTopology] = WatchedObject(
        client,
        TOPOLOGIES,
        node,
        NodeResourceTopology,
        clock=clock,
        resync=settings.publish.resync,
        changed=lambda: publisher.wake(),
    )
    if not settings.publish.no_publish:
        background["topology"] = topology.run

    conditions: ConditionWriter = NullConditions()
    if settings.publish.podreadiness and settings.pod and settings.namespace:
        pod = conditions = OwnPod(client, settings.namespace, settings.pod, clock=clock, chance=chance)
        background["own pod"] = pod.run
    elif settings.publish.podreadiness:
        log.warning("no conditions are written: the own Pod is not known (POD_NAME, POD_NAMESPACE)")

    publisher = Publisher(
        client,
        settings,
        topology=topology,
        owner=owner if settings.scan.add_nrt_owner else None,
        metrics=metrics,
        clock=clock,
        chance=chance,
        on_condition=conditions.set,
    )
    background["publisher"] = publisher.run

    terminal = None
    if settings.scan.exclude_terminal_pods:
        pods = process.informer(PODS, PodPhase, field_selector=pods_of_node(node))
        terminal = TerminalPods(pods, changed=lambda: triggers.poke("node"))

    async def ready() -> None:
        await podresources.until_ready()
        if terminal is not None:
            await terminal.known()
        if port is not None and owner is not None and not settings.host.kubelet_address:
            await owner.settled()

    status = settings.scan.pods_fingerprint_status_file
    scans = ScanLoop(
        triggers=triggers,
        scanner=Scanner(
            settings, podresources, clock=clock, count=metrics.fact_failed, configz=port, terminal=terminal
        ),
        publisher=publisher,
        metrics=metrics,
        clock=clock,
        chance=chance,
        period=settings.triggers.sleep_interval,
        ready=ready,
        conditions=conditions,
        status_file=FingerprintStatusFile(status) if status else None,
    )

    async def scan() -> None:
        with triggers.on_signal():
            await scans.run()

    background["scans"] = scan
    endpoints = ExporterServer(settings.metrics, health=process.health, metrics=process.metrics, clock=clock)
    if endpoints.certificates is not None:
        background |= {"certificate": endpoints.certificates.run, "endpoints": endpoints.run}
    return Components(
        background=background,
        readiness={"certificate": endpoints.not_ready, "published": publisher.not_ready},
        liveness={"scans": scans.stalled},
        probes=(endpoints,),
    )


def kubelet_port(settings: ExporterSettings, configuration: Configuration, clock: Clock) -> KubeletPort | None:
    """Where ``/configz`` is asked; None if it is not."""
    if not asks_configz(settings):
        return None
    host = settings.host
    port = KubeletPort(configuration, clock=clock, ca=host.kubelet_ca, insecure=host.kubelet_insecure_tls)
    port.is_at(host.kubelet_address)
    return port


async def _kubelet(client: Client, node: str) -> KubeletEndpoint:
    """Where it answers, if the Node can be read: there are other sources of its settings."""
    try:
        return (await client.get(NODES, node, type=NodeObject)).kubelet
    except KubernetesError as error:
        log.debug("own Node cannot be read", error=str(error))
        return NodeObject().kubelet


def _announce(addresses: Addresses) -> None:
    """Print the addresses as one JSON line to stdout."""
    sys.stdout.write(msgspec.json.encode(addresses).decode() + "\n")
    sys.stdout.flush()


def _first(group: BaseExceptionGroup[BaseException]) -> BaseException:
    error: BaseException = group
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error


ROLE: Final = Role(name=NAME, setup=setup, settings=(ExporterSettings,))
