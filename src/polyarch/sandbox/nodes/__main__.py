"""The nodes' process: its informers, controllers and servers."""

import asyncio
import contextlib
import os
import signal
import sys
from collections.abc import Iterable
from pathlib import Path

from polyarch.clock import SystemClock
from polyarch.kube import config
from polyarch.kube.client import Client
from polyarch.kube.controller import Controller
from polyarch.kube.events import Recorder
from polyarch.kube.informer import InformerFactory
from polyarch.kube.resources import NODES, PODS
from polyarch.kube.store import ObjectChange
from polyarch.objects import ObjectKey
from polyarch.oci.inspector import InspectorOptions, open_inspector
from polyarch.oci.pull_sources import Configuration
from polyarch.oci.settings import InspectorSettings
from polyarch.oci.transport.addresses import AddressPolicy
from polyarch.oci.transport.tls import TrustSettings
from polyarch.sandbox import network
from polyarch.sandbox.certificates import Pki
from polyarch.sandbox.kubelet_model.requests import NodeObject
from polyarch.sandbox.kubelet_model.requests import Pod as PodRequest
from polyarch.sandbox.network import kubelet_socket
from polyarch.sandbox.nodes import registration
from polyarch.sandbox.nodes.kubelet_api import KubeletApi, tls
from polyarch.sandbox.nodes.kubelets import Kubelets
from polyarch.sandbox.nodes.plans import NODE_LABEL, Node, NodePlan, node_object, node_plans
from polyarch.sandbox.nodes.pods import Pod, pod_request
from polyarch.sandbox.nodes.registration import Registration
from polyarch.sandbox.nodes.simulated_kubelet import (
    SimulatedKubelet,
    SimulatedKubeletPort,
    SimulatedKubelets,
    certified,
)
from polyarch.sandbox.pods.runner import PodRunner
from polyarch.sandbox.pods.volumes import Cluster
from polyarch.sandbox.state import Folder, Settings

PULL_SECONDS = 20.0
REVALIDATE_SECONDS = 0.25
"""Short, so that the next pull after a missing image was pushed succeeds."""


def inspector_options(folder: Folder, settings: Settings) -> InspectorOptions:
    """Nodes may connect to every address that the command line may connect to."""
    return InspectorOptions(
        settings=InspectorSettings(timeout=PULL_SECONDS, max_wait=0.0, revalidate_interval=REVALIDATE_SECONDS),
        configuration=Configuration.load(folder.registries_conf),
        policy=AddressPolicy.of("cli"),
        trust=TrustSettings.of(ca=(settings.ca,) if settings.ca else ()),
    )


WORKERS = 16


async def serve(folder: Folder, kube_scheduler: str) -> None:
    """Run the kubelets of all nodes until SIGTERM or SIGINT."""
    state = folder.load()
    if state is None:
        raise SystemExit(f"{folder.root}: there is no sandbox here")
    main = asyncio.current_task()
    assert main is not None  # noqa: S101  this coroutine runs in a task
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, main.cancel)
    clock = SystemClock()
    plans = node_plans(state.settings, state.fleet)
    configuration = config.load(str(folder.kubeconfig_of("nodes")))
    options = inspector_options(folder, state.settings)
    async with Client(configuration, role="nodes", clock=clock) as client, open_inspector(options) as images:
        informers = InformerFactory(client, clock=clock)
        # The API server has an index for this selector: it never sends us pods without a node.
        pods = informers.informer(PODS, Pod, field_selector="spec.nodeName!=")
        events = Recorder(client, controller="polyarch.dev/sandbox-nodes", instance=folder.name, clock=clock)
        nodes = informers.informer(NODES, Node, label_selector=NODE_LABEL)

        def is_lost(name: str) -> bool:
            node = nodes.store.get(ObjectKey("", name))
            return node is not None and node.is_lost

        def seen(name: str) -> NodeObject:
            return node_object(nodes.store.get(ObjectKey("", name)))

        runner = PodRunner(
            client,
            informers,
            folder.root,
            cluster=Cluster(state.api_server_of_pods, Path(Pki(folder.pki).ca)),
            kube_scheduler=kube_scheduler,
            environment=os.environ,
            is_lost=is_lost,
            clock=clock,
            events=events,
            changed=lambda key: controller.queue.add(key),
        )
        numa = SimulatedKubelets(
            {plan.name: (plan.model, runner.node_folder(plan.name) if plan.numa else None) for plan in plans},
            clock=clock,
        )
        kubelets = Kubelets(
            client,
            images,
            pods.store,
            plans,
            clock=clock,
            events=events,
            runner=runner,
            numa=numa,
            sources=options.configuration,
            is_lost=is_lost,
            seen=seen,
            pod_network=state.pod_network,
        )
        controller: Controller[ObjectKey] = Controller("kubelets", kubelets.reconcile, workers=WORKERS, clock=clock)
        pods.add_handler(lambda change: controller.queue.add(change.key))
        kubelet_api = KubeletApi(pods.store, runner, now=clock.now)
        registered = Registration(client, nodes.store, plans, clock=clock)
        keeper: Controller[ObjectKey] = Controller("nodes", registered.reconcile, workers=WORKERS, clock=clock)

        def note(change: ObjectChange[Node]) -> None:
            keeper.queue.add(change.key)
            if change.new is not None and change.new.is_lost != (change.old is not None and change.old.is_lost):
                runner.cut_off(change.key.name, is_lost=change.new.is_lost)
                for pod in pods.store.values():
                    if pod.spec.node_name == change.key.name:
                        controller.queue.add(pod.metadata.key)

        nodes.add_handler(note)
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(informers.run())
            tasks.create_task(events.run())
            adopted = asyncio.Event()
            tasks.create_task(runner.run(adopted))
            await nodes.synced()
            await pods.synced()
            await adopted.wait()
            numa.start(_by_node(pods.store.values()), seen)
            names = {plan.name for plan in plans}
            runner.sweep({pod.metadata.uid for pod in pods.store.values() if pod.spec.node_name in names})
            for key in registered.keys:
                keeper.queue.add(key)
            tasks.create_task(numa.run())
            if kubelets_at := _by_address(plans, numa, state.pod_network):
                port = SimulatedKubeletPort(kubelets_at, client, clock=clock)
                tasks.create_task(port.run(certified(Pki(folder.pki), kubelets_at, clock.now())))
            tasks.create_task(keeper.run())
            tasks.create_task(controller.run())
            tasks.create_task(kubelet_api.run(kubelet_socket(folder.root), tls(Pki(folder.pki))))
            tasks.create_task(registration.renew(client, nodes.store, plans, clock))


def _by_address(plans: Iterable[NodePlan], numa: SimulatedKubelets, pod_network: int) -> dict[str, SimulatedKubelet]:
    """The kubelets of nodes with cells, by the address on which pods reach their node."""
    return {
        network.loopback_on_node(plan.address, network=pod_network): kubelet
        for plan in plans
        if (kubelet := numa.of(plan.name)) is not None
    }


def _by_node(pods: Iterable[Pod]) -> dict[str, list[PodRequest]]:
    """The pods that have started and are not over, by their node, the oldest first."""
    found: dict[str, list[PodRequest]] = {}
    for pod in sorted(pods, key=lambda pod: (pod.metadata.creation_timestamp or "", pod.metadata.uid)):
        if pod.status.start_time and not pod.finished:
            found.setdefault(pod.spec.node_name, []).append(pod_request(pod))
    return found


def main(folder: Path, kube_scheduler: str) -> int:
    with contextlib.suppress(asyncio.CancelledError):
        asyncio.run(serve(Folder(folder), kube_scheduler))
    return 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), sys.argv[2]))
