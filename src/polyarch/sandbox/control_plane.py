"""etcd, the API server, the controller manager and the scheduler: command lines, health, and startup in order.

Unusual flags have their reason beside them. All components listen on 127.0.0.1 only, and ``egress_selector`` keeps the
API server from connecting to Service and pod addresses itself.
"""

import asyncio
import datetime as dt
import ssl
from collections.abc import Mapping
from pathlib import Path

import aiohttp
import msgspec

from polyarch.sandbox import processes
from polyarch.sandbox.certificates import KUBELET_CLIENT, PairFiles, Pki, context_name, kubeconfig_with_certificate
from polyarch.sandbox.errors import StepProgress
from polyarch.sandbox.files import write_json
from polyarch.sandbox.network import GATEWAY, KUBERNETES_SERVICE, SERVICE_RANGE, egress_socket
from polyarch.sandbox.processes import Command, Record, failure, inherited_environment, inputs_of, is_running
from polyarch.sandbox.state import LOOPBACK, Folder, Ports
from polyarch.sandbox.tasks import together
from polyarch.sandbox.versions import KUBERNETES, as_numbers

PROXY_VARIABLES = ("HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "http_proxy", "https_proxy", "no_proxy", "SSL_CERT_FILE")
ETCD_QUOTA_BYTES = 2 * 1024**3
CLIENT_RATE = 1000
"""QPS of controller manager and scheduler; their default of 20 to 50 would dominate every measurement."""


class Layout(msgspec.Struct, frozen=True):
    """The inputs of the command lines."""

    folder: Folder
    ports: Ports
    binaries: Mapping[str, Path]
    environ: Mapping[str, str]
    """The environment of the process that starts the sandbox."""
    kubernetes: str = KUBERNETES
    """Version of the Kubernetes programs among ``binaries``."""
    real: bool = False
    """Its nodes are real."""

    @property
    def environment(self) -> dict[str, str]:
        """The part of it that components inherit."""
        return inherited_environment(self.environ)

    @property
    def environment_with_proxies(self) -> dict[str, str]:
        """With the proxy variables, for processes that may reach registries outside of the sandbox."""
        return inherited_environment(self.environ, names=PROXY_VARIABLES)

    @property
    def pki(self) -> Pki:
        return Pki(self.folder.pki)

    @property
    def api_server(self) -> str:
        return f"https://{LOOPBACK}:{self.ports.apiserver}"

    def configuration(self, name: str) -> str:
        return str(self.folder.configuration / name)

    def command(self, name: str, flags: list[str], url: str, *, inputs: str = "") -> Command:
        return Command(
            name=name,
            arguments=(str(self.binaries[name]), *flags),
            environment=self.environment,
            log=str(self.folder.log(name)),
            url=url,
            inputs=inputs,
        )


def configuration_files(layout: Layout) -> dict[str, object]:
    """Documents that the command lines refer to, by file name below ``configuration/``."""
    return {
        "egress.json": egress_selector(egress_socket(layout.folder.root)),
        "audit.json": audit_policy(),
        "scheduler.json": {
            "apiVersion": "kubescheduler.config.k8s.io/v1",
            "kind": "KubeSchedulerConfiguration",
            "leaderElection": {"leaderElect": False},
            "clientConnection": {
                "kubeconfig": str(layout.folder.kubeconfig_of("kube-scheduler")),
                "qps": CLIENT_RATE,
                "burst": 2 * CLIENT_RATE,
            },
        },
    }


def egress_selector(socket: str) -> dict[str, object]:
    """Sends the API server's connections into the cluster to the egress proxy (``egress/``) on this socket.

    Webhooks and conversions given by ``url`` use another selection: the API server connects to them itself.
    """
    connection = {"proxyProtocol": "HTTPConnect", "transport": {"uds": {"udsName": socket}}}
    return {
        "apiVersion": "apiserver.k8s.io/v1beta1",
        "kind": "EgressSelectorConfiguration",
        "egressSelections": [{"name": "cluster", "connection": connection}],
    }


def audit_policy() -> dict[str, object]:
    """User, verb, object and time of every request; no bodies, so that no secret is logged."""
    return {
        "apiVersion": "audit.k8s.io/v1",
        "kind": "Policy",
        "omitStages": ["RequestReceived"],
        "rules": [{"level": "Metadata"}],
    }


def _serving(layout: Layout, port: int, kubeconfig: Path | None = None) -> list[str]:
    """Flags for where a component listens; with ``kubeconfig`` it authenticates callers through the API server."""
    flags = [
        f"--bind-address={LOOPBACK}",
        f"--secure-port={port}",
        f"--cert-dir={layout.folder.pki}",
        f"--tls-cert-file={layout.pki.server.certificate}",
        f"--tls-private-key-file={layout.pki.server.key}",
    ]
    if kubeconfig is not None:
        flags += [f"--authentication-kubeconfig={kubeconfig}", f"--authorization-kubeconfig={kubeconfig}"]
    return flags


def etcd(layout: Layout) -> Command:
    client = f"https://{LOOPBACK}:{layout.ports.etcd}"
    peer = f"https://{LOOPBACK}:{layout.ports.etcd_peer}"
    pki = layout.pki
    flags = [
        "--name=sandbox",
        f"--data-dir={layout.folder.etcd}",
        f"--listen-client-urls={client}",
        f"--advertise-client-urls={client}",
        f"--listen-peer-urls={peer}",
        f"--initial-advertise-peer-urls={peer}",
        f"--initial-cluster=sandbox={peer}",
        f"--cert-file={pki.etcd_server.certificate}",
        f"--key-file={pki.etcd_server.key}",
        f"--trusted-ca-file={pki.etcd_ca}",
        "--client-cert-auth",
        f"--peer-cert-file={pki.etcd_server.certificate}",
        f"--peer-key-file={pki.etcd_server.key}",
        f"--peer-trusted-ca-file={pki.etcd_ca}",
        "--peer-client-cert-auth",
        # Losing the last second when the machine crashes is acceptable; waiting for the disk is not.
        "--unsafe-no-fsync",
        f"--quota-backend-bytes={ETCD_QUOTA_BYTES}",
        "--log-level=warn",
    ]
    return layout.command("etcd", flags, client)


def kube_apiserver(layout: Layout) -> Command:
    pki = layout.pki
    flags = [
        *_serving(layout, layout.ports.apiserver),
        f"--advertise-address={LOOPBACK}",
        # No endpoints for the Service `kubernetes`: the API server refuses a loopback address there.
        "--endpoint-reconciler-type=none",
        f"--etcd-servers=https://{LOOPBACK}:{layout.ports.etcd}",
        f"--etcd-cafile={pki.etcd_ca}",
        f"--etcd-certfile={pki.etcd_client.certificate}",
        f"--etcd-keyfile={pki.etcd_client.key}",
        f"--client-ca-file={pki.ca}",
        "--authorization-mode=Node,RBAC",
        "--anonymous-auth=false",
        "--enable-admission-plugins=NodeRestriction",
        "--allow-privileged=true",
        "--service-account-issuer=https://kubernetes.default.svc.cluster.local",
        f"--service-account-key-file={pki.service_account_public}",
        f"--service-account-signing-key-file={pki.service_account_key}",
        f"--service-cluster-ip-range={SERVICE_RANGE}",
        f"--egress-selector-config-file={layout.configuration('egress.json')}",
        f"--audit-policy-file={layout.configuration('audit.json')}",
        f"--audit-log-path={layout.folder.audit_log}",
        "--audit-log-mode=batch",
        "--audit-log-batch-max-wait=1s",
        # Host names of nodes would be resolved by the machine's DNS, which is outside of the sandbox.
        "--kubelet-preferred-address-types=InternalIP",
        f"--kubelet-client-certificate={pki.client(KUBELET_CLIENT).certificate}",
        f"--kubelet-client-key={pki.client(KUBELET_CLIENT).key}",
        "--profiling=false",
        # Without this a stop waits for open watches.
        "--shutdown-delay-duration=0s",
    ]
    # A running API server of another version, or with another socket, is started again.
    inputs = inputs_of(layout.kubernetes, *flags, egress_socket(layout.folder.root))
    return layout.command("kube-apiserver", flags, layout.api_server, inputs=inputs)


def kube_controller_manager(layout: Layout) -> Command:
    pki = layout.pki
    kubeconfig = layout.folder.kubeconfig_of("kube-controller-manager")
    flags = [
        *_serving(layout, layout.ports.controller_manager, kubeconfig),
        f"--kubeconfig={kubeconfig}",
        f"--root-ca-file={pki.ca}",
        f"--service-account-private-key-file={pki.service_account_key}",
        f"--cluster-signing-cert-file={pki.ca}",
        f"--cluster-signing-key-file={pki.folder / 'ca.key'}",
        "--use-service-account-credentials=true",
        "--leader-elect=false",
        f"--kube-api-qps={CLIENT_RATE}",
        f"--kube-api-burst={2 * CLIENT_RATE}",
        "--profiling=false",
    ]
    url = f"https://{LOOPBACK}:{layout.ports.controller_manager}"
    return layout.command("kube-controller-manager", flags, url, inputs=layout.kubernetes)


def kube_scheduler(layout: Layout) -> Command:
    kubeconfig = layout.folder.kubeconfig_of("kube-scheduler")
    flags = [
        f"--config={layout.configuration('scheduler.json')}",
        *_serving(layout, layout.ports.scheduler, kubeconfig),
    ]
    url = f"https://{LOOPBACK}:{layout.ports.scheduler}"
    return layout.command("kube-scheduler", flags, url, inputs=layout.kubernetes)


# -- health, for ``polyarch status`` and for waiting at startup --------------------------------------------------------


PROBE_SECONDS = 2.0
POLL_SECONDS = 0.1
DETAIL_CHARACTERS = 200


class Health(msgspec.Struct, frozen=True):
    """One component's state; ``detail`` is empty when it is healthy."""

    name: str
    running: bool
    detail: str = ""

    @property
    def healthy(self) -> bool:
        return self.running and not self.detail


class Probe(msgspec.Struct, frozen=True):
    """A URL that answers 200 when healthy, with the CA to trust and the client certificate to present."""

    url: str
    ca: str = ""
    client: PairFiles | None = None
    socket: str = ""
    """The unix socket to ask, instead of the address in ``url``."""

    def connector(self) -> aiohttp.BaseConnector:
        if self.socket:
            return aiohttp.UnixConnector(self.socket, force_close=True)
        return aiohttp.TCPConnector(ssl=self.context(), force_close=True)

    def context(self) -> ssl.SSLContext | bool:
        if not self.ca:
            return True
        context = ssl.create_default_context(cafile=self.ca)
        if self.client is not None:
            context.load_cert_chain(self.client.certificate, self.client.key)
        return context


async def ask(probe: Probe) -> str:
    """Empty if the component is healthy, else its answer or the connection's error."""
    timeout = aiohttp.ClientTimeout(total=PROBE_SECONDS)
    try:
        async with (
            aiohttp.ClientSession(connector=probe.connector(), timeout=timeout) as session,
            session.get(probe.url, allow_redirects=False) as answer,
        ):
            body = await answer.text(errors="replace")
            return "" if answer.status == 200 else _failing(answer.status, body)
    except TimeoutError:
        return f"no answer from {probe.url} in {PROBE_SECONDS:.0f} s"
    except aiohttp.ClientError as error:
        return f"{probe.url}: {error}"


def _failing(status: int, body: str) -> str:
    """The failed checks of a Kubernetes health page, or the first characters of any other body."""
    bad = [line for line in body.splitlines() if line.startswith("[-]")]
    return f"HTTP {status}: {'; '.join(bad) or body.strip()}"[:DETAIL_CHARACTERS]


async def until_healthy(record: Record, probe: Probe, *, seconds: float) -> None:
    """Wait until the component is healthy; raise ProcessFailed if it ends first, or after ``seconds``."""
    loop = asyncio.get_running_loop()
    deadline = loop.time() + seconds
    detail = "not asked yet"
    while loop.time() < deadline:
        if not is_running(record):
            raise failure(record, "ended while starting")
        detail = await ask(probe)
        if not detail:
            return
        await asyncio.sleep(POLL_SECONDS)
    raise failure(record, f"is not healthy after {seconds:.0f} s ({detail})")


# -- startup -----------------------------------------------------------------------------------------------------------


START_SECONDS = 90.0
"""Enough for a very busy machine; an idle one needs a tenth."""


def write_files(layout: Layout, now: dt.datetime) -> None:
    """Write certificates (only once), kubeconfigs and configuration files (at each start, with its ports)."""
    pki = layout.pki
    pki.ensure(now, addresses=(GATEWAY, KUBERNETES_SERVICE) if layout.real else ())
    name = context_name(layout.folder.name)
    for client in ("kube-controller-manager", "kube-scheduler", "nodes", "egress"):
        document = kubeconfig_with_certificate(client, layout.api_server, pki.ca, pki.client(client))
        write_json(layout.folder.kubeconfig_of(client), document)
    admin = kubeconfig_with_certificate(name, layout.api_server, pki.ca, pki.client("admin"))
    write_json(layout.folder.kubeconfig, admin)
    for file, content in configuration_files(layout).items():
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
        "kube-scheduler": Probe(f"{base}:{ports.scheduler}{scheduler_health(layout.kubernetes)}", pki.ca),
    }


def scheduler_health(version: str) -> str:
    """Path of the scheduler's page that says whether it has read all that it watches; before 1.31, whether it lives."""
    return "/readyz" if as_numbers(version) >= (1, 31) else "/healthz"


def default_account(layout: Layout) -> Probe:
    """Answers 200 once the controller manager has created the ServiceAccount that every pod needs."""
    url = f"{layout.api_server}/api/v1/namespaces/default/serviceaccounts/default"
    return Probe(url, layout.pki.ca, layout.pki.client("admin"))


async def start(layout: Layout, progress: StepProgress) -> None:
    """Start what does not run; return when all components are healthy and pods can be created."""
    await start_api_server(layout, progress)
    progress.step("starting kube-controller-manager and kube-scheduler")
    await start_controllers(layout)


async def start_api_server(layout: Layout, progress: StepProgress) -> None:
    """With what it stores in; nodes can register when this returns."""
    progress.step("starting etcd and kube-apiserver")
    await _bring_up(layout, etcd(layout))
    await _bring_up(layout, kube_apiserver(layout))


async def start_controllers(layout: Layout) -> None:
    """They are up when the default ServiceAccount exists, because only then can pods be created."""
    commands = (kube_controller_manager(layout), kube_scheduler(layout))
    manager, _ = await together(_bring_up(layout, each) for each in commands)
    await until_healthy(manager, default_account(layout), seconds=START_SECONDS)


async def _bring_up(layout: Layout, command: Command) -> Record:
    record = await ensure(layout, command)
    await until_healthy(record, probes(layout)[command.name], seconds=START_SECONDS)
    return record


async def ensure(layout: Layout, command: Command) -> Record:
    """The record of this process, started now if need be; one that was started from other inputs is stopped first."""
    records = layout.folder.records
    known = processes.load(records).get(command.name)
    if known is not None and is_running(known):
        if known.inputs == command.inputs:
            return known
        await processes.stop([known], records=records)
    return processes.start(command, records=records)
