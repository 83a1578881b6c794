"""Startup of the control plane: etcd, the API server, then controller manager and scheduler together.

Each component is started only if it does not run yet. The control plane is up when the default ServiceAccount exists,
because only then can pods be created.
"""

import datetime as dt
from collections.abc import Callable

from polyarch.sandbox import processes
from polyarch.sandbox.control_plane import components, kubeconfigs
from polyarch.sandbox.control_plane.components import Layout
from polyarch.sandbox.control_plane.health import Probe, until_healthy
from polyarch.sandbox.files import write_json
from polyarch.sandbox.processes import Command, Record, is_running
from polyarch.sandbox.progress import Progress
from polyarch.sandbox.state import LOOPBACK
from polyarch.sandbox.tasks import together

START_SECONDS = 90.0
"""Enough for a very busy machine; an idle one needs a tenth."""


def write_files(layout: Layout, now: dt.datetime) -> None:
    """Write certificates (only once), kubeconfigs and configuration files (at each start, with its ports)."""
    pki = layout.pki
    pki.ensure(now)
    name = kubeconfigs.context_name(layout.folder.name)
    for client in ("kube-controller-manager", "kube-scheduler", "nodes", "egress"):
        document = kubeconfigs.with_certificate(client, layout.api_server, pki.ca, pki.client(client))
        write_json(layout.folder.kubeconfig_of(client), document)
    admin = kubeconfigs.with_certificate(name, layout.api_server, pki.ca, pki.client("admin"))
    write_json(layout.folder.kubeconfig, admin)
    for file, content in components.configuration_files(layout).items():
        write_json(layout.folder.configuration / file, content)


def probes(layout: Layout) -> dict[str, Probe]:
    """The health probe of each component."""
    pki, ports = layout.pki, layout.ports
    admin = pki.client("admin")
    base = f"https://{LOOPBACK}"
    return {
        "etcd": Probe(f"{base}:{ports.etcd}/health", pki.etcd_ca, pki.etcd_client),
        "kube-apiserver": Probe(f"{layout.api_server}/readyz", pki.ca, admin),
        "kube-controller-manager": Probe(f"{base}:{ports.controller_manager}/healthz", pki.ca),
        "kube-scheduler": Probe(f"{base}:{ports.scheduler}/readyz", pki.ca),
    }


def default_account(layout: Layout) -> Probe:
    """Answers 200 once the controller manager has created the ServiceAccount that every pod needs."""
    url = f"{layout.api_server}/api/v1/namespaces/default/serviceaccounts/default"
    return Probe(url, layout.pki.ca, layout.pki.client("admin"))


async def start(layout: Layout, progress: Progress) -> None:
    """Start what does not run; return when all components are healthy and pods can be created."""
    ask = probes(layout)

    async def bring_up(make: Callable[[Layout], Command]) -> Record:
        command = make(layout)
        record = await ensure(layout, command)
        await until_healthy(record, ask[command.name], seconds=START_SECONDS)
        return record

    progress.step("starting etcd and kube-apiserver")
    await bring_up(components.etcd)
    await bring_up(components.kube_apiserver)
    progress.step("starting kube-controller-manager and kube-scheduler")
    manager, _ = await together(
        bring_up(make) for make in (components.kube_controller_manager, components.kube_scheduler)
    )
    await until_healthy(manager, default_account(layout), seconds=START_SECONDS)


async def ensure(layout: Layout, command: Command) -> Record:
    """The record of this process, started now if need be; one that was started from other inputs is stopped first."""
    records = layout.folder.records
    known = processes.load(records).get(command.name)
    if known is not None and is_running(known):
        if known.inputs == command.inputs:
            return known
        await processes.stop([known], records=records)
    return processes.start(command, records=records)
