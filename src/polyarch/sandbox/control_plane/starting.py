"""Starting the control plane in its order, each component only if it does not run yet, and asking it how it is.

etcd, then the API server, then controller manager and scheduler together; done when the default ServiceAccount is
there, which is when pods can be created.
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
"""A machine that is busy with other things may take this long; a sandbox of its own needs a tenth."""


def write_files(layout: Layout, now: dt.datetime) -> None:
    """Certificates (made once), kubeconfigs and configuration files (written again for the ports of this start)."""
    pki = layout.pki
    pki.ensure(now)
    name = kubeconfigs.context_name(layout.folder.name)
    for client in ("kube-controller-manager", "kube-scheduler", "nodes"):
        document = kubeconfigs.with_certificate(client, layout.api_server, pki.ca, pki.client(client))
        write_json(layout.folder.kubeconfig_of(client), document)
    admin = kubeconfigs.with_certificate(name, layout.api_server, pki.ca, pki.client("admin"))
    write_json(layout.folder.kubeconfig, admin)
    for file, content in components.configuration_files(layout).items():
        write_json(layout.folder.configuration / file, content)


def probes(layout: Layout) -> dict[str, Probe]:
    """How each component says that it is well."""
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
    """Answers 200 once the controller manager has made the ServiceAccount that every pod needs."""
    url = f"{layout.api_server}/api/v1/namespaces/default/serviceaccounts/default"
    return Probe(url, layout.pki.ca, layout.pki.client("admin"))


async def start(layout: Layout, progress: Progress) -> None:
    """Bring up what does not run; returns when all is healthy and pods can be created."""
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
    """The record of this program: the running one, or one started now. One that was started from other inputs ends."""
    records = layout.folder.records
    known = processes.load(records).get(command.name)
    if known is not None and is_running(known):
        if known.inputs == command.inputs:
            return known
        await processes.stop([known], records=records)
    return processes.start(command, records=records)
