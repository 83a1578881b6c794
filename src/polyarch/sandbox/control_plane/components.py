"""Command lines and configuration files of the control plane, as pure values (SB-001).

Unusual flags have their reason beside them. All components listen on 127.0.0.1 only, and ``egress_selector`` keeps the
API server from connecting to Service and pod addresses itself (SB-008).
"""

from collections.abc import Mapping
from pathlib import Path

import msgspec

from polyarch.sandbox.control_plane.certificates import KUBELET_CLIENT, Pki
from polyarch.sandbox.network import sockets
from polyarch.sandbox.network.addresses import SERVICE_RANGE
from polyarch.sandbox.processes import Command, inherited_environment, inputs_of
from polyarch.sandbox.state import LOOPBACK, Folder, Ports

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
        "egress.json": egress_selector(sockets.egress(layout.folder.root)),
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
        # Host names of nodes would be resolved by the machine's DNS, which is outside of the sandbox (SB-008).
        "--kubelet-preferred-address-types=InternalIP",
        f"--kubelet-client-certificate={pki.client(KUBELET_CLIENT).certificate}",
        f"--kubelet-client-key={pki.client(KUBELET_CLIENT).key}",
        "--profiling=false",
        # Without this a stop waits for open watches.
        "--shutdown-delay-duration=0s",
    ]
    # A running API server of an earlier version, or with another socket, is started again.
    inputs = inputs_of(*flags, sockets.egress(layout.folder.root))
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
    return layout.command("kube-controller-manager", flags, url)


def kube_scheduler(layout: Layout) -> Command:
    kubeconfig = layout.folder.kubeconfig_of("kube-scheduler")
    flags = [
        f"--config={layout.configuration('scheduler.json')}",
        *_serving(layout, layout.ports.scheduler, kubeconfig),
    ]
    return layout.command("kube-scheduler", flags, f"https://{LOOPBACK}:{layout.ports.scheduler}")
