"""``polyarch numa export --once``: one scan of a machine, printed and, if that is wanted, published.

The exporter's own scan is made, by its own configuration. Nothing of a server is imported, and nothing of a client of
the API server before there is something to publish."""

import asyncio
import os
import re
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Final, NamedTuple

from msgspec.structs import replace

from polyarch.cli.errors import CouldNotComplete, UsageError
from polyarch.cli.options.common import USUAL_CLUSTER, ClusterFlags, Output, emit
from polyarch.cli.output.documents import document_text
from polyarch.cli.output.messages import Messages, errors_only
from polyarch.cli.output.tables import Row, table
from polyarch.clock import SystemClock
from polyarch.numa import names
from polyarch.numa.exporter.configuration import load_configuration
from polyarch.numa.exporter.scan import STATE_DIRECTORY, Scanner, ScanResult, open_podresources
from polyarch.numa.exporter.schedule import ScanTrigger
from polyarch.numa.exporter.settings import ExporterSettings, InvalidExporterConfiguration
from polyarch.numa.exporter.topology_document import ZONE_TABLE_HEADER, zone_table_rows
from polyarch.numa.facts import HostSettings, ListedPod
from polyarch.numa.host.kubelet import NoKubeletSettings
from polyarch.numa.host.machine import HostRoot, UnreadableMachine
from polyarch.numa.host.podresources import PodResources, PodResourcesError, parse_podresources_url

COMMAND: Final = "numa export"
PUBLISHED: Final = {"create": "created", "patch": "changed", "update": "changed", "": "was published already"}


class ExportOptions(NamedTuple):
    """What the command line asks for."""

    options: Sequence[tuple[str, str | None]]
    """Of the exporter, by name; None: not given."""
    flags: Sequence[str] = ()
    """Of the exporter, as they were written after ``--``."""
    pod: str | None = None
    """Namespace and name of the pod that alone counts."""
    publish: bool = False
    cluster: ClusterFlags = USUAL_CLUSTER


def run_once(asked: ExportOptions, wanted: Sequence[Output], *, messages: Messages) -> int:
    """Does it; the exit code. Raises CommandError."""
    settings = _settings(asked, messages)
    if not Path(settings.host.root).is_dir():
        raise UsageError(f"{COMMAND}: --root {settings.host.root}: no such directory; give the one that has sys/ in it")
    counted: list[str] = []
    try:
        scanned = asyncio.run(_scanned(settings, _pod(asked.pod), counted))
    except NoKubeletSettings as error:
        place = HostRoot(settings.host.root).path(f"{STATE_DIRECTORY}/config.yaml")
        raise UsageError(
            f"{COMMAND}: {error.problem}; put the kubelet's configuration at {place}, "
            "or give --topology-manager-policy and --topology-manager-scope"
        ) from None
    except (PodResourcesError, UnreadableMachine) as error:
        raise CouldNotComplete(f"{COMMAND}: {error}") from None
    for name in sorted(set(counted)):
        messages.detail(f"{name}: absent, or of no use; the object is made without it")
    if settings.host.topology_manager_policy is None or settings.host.topology_manager_scope is None:
        _tell_of_kubelet_flags(HostRoot(settings.host.root), messages)
    for finding in scanned.zones.warnings:
        if finding.message:
            messages.warn(finding.message)
    emit(wanted, lambda form, colour: _rendered(scanned, form, colour=colour))
    if asked.publish:
        messages.note(_publish(scanned.document, settings, asked.cluster))
    return 0


FLAG_FILES: Final = (
    f"{STATE_DIRECTORY}/kubeadm-flags.env",
    "etc/default/kubelet",
    "etc/sysconfig/kubelet",
    "etc/systemd/system/kubelet.service",
)
FLAG_DIRECTORIES: Final = ("etc/systemd/system/kubelet.service.d", "usr/lib/systemd/system/kubelet.service.d")
"""Where kubeadm and distributions write flags of a kubelet."""
_FLAG: Final = re.compile(
    r"--((?:topology|cpu|memory)-manager-(?:policy|policy-options|scope)|reserved-(?:cpus|memory))[= ][\"']?([^\s\"']+)"
)


def _tell_of_kubelet_flags(root: HostRoot, messages: Messages) -> None:
    """A kubelet's flags count more than its file, which alone is read here."""
    paths = list(FLAG_FILES)
    for directory in FLAG_DIRECTORIES:
        with suppress(OSError):
            paths += [f"{directory}/{name}" for name in root.names(directory) if name.endswith(".conf")]
    found: dict[str, str] = {}
    for path in paths:
        with suppress(OSError):
            lines = root.bytes(path).decode(errors="replace").splitlines()
            text = "\n".join(line for line in lines if not line.lstrip().startswith(("#", ";")))
            found |= {f"--{name}={value}": root.path(path) for name, value in _FLAG.findall(text)}
    if found:
        given = ", ".join(f"{flag} ({file})" for flag, file in found.items())
        messages.warn(
            f"the kubelet has flags that count more than its configuration file and are not read here: {given}; "
            "give --topology-manager-policy and --topology-manager-scope"
        )
    else:
        messages.detail("flags of the kubelet's command line would count more than its file; they are not seen here")


def _publish(document: dict[str, Any], settings: ExporterSettings, cluster: ClusterFlags) -> str:
    """Writes the object if the cluster has another one, and says what was done. Raises CommandError."""
    from polyarch.cli.cluster import on_cluster  # it imports HTTP, which the rest does without
    from polyarch.numa.exporter.publisher import publish_once

    cluster = ClusterFlags(kubeconfig=cluster.kubeconfig or settings.kubeconfig or None, context=cluster.context)
    sent = asyncio.run(on_cluster("numa export", cluster, lambda client: publish_once(client, document, settings)))
    return f"NodeResourceTopology {settings.hostname}: {PUBLISHED[sent.operation or '']}"


def _settings(asked: ExportOptions, messages: Messages) -> ExporterSettings:
    words = [word for name, value in asked.options if value is not None for word in (name, value)]
    try:
        found = load_configuration([*words, *asked.flags], os.environ, home=Path.home())
    except InvalidExporterConfiguration as error:
        raise UsageError(f"{COMMAND}: {error}") from None
    for sentence in found.warnings:
        messages.warn(sentence)
    settings = replace(found.settings, host=_by_files(found.settings.host))
    if settings.scan.exclude_terminal_pods:
        messages.warn("pods that have ended count as used here: without the cluster nobody knows which ones they are")
        settings = replace(settings, scan=replace(settings.scan, exclude_terminal_pods=False))
    if asked.pod is not None:  # what the kubelet keeps for pods together tells nothing of one of them
        settings = replace(settings, scan=replace(settings.scan, usage_source="podresources"))
    return settings


def _pod(text: str | None) -> tuple[str, str] | None:
    if text is None:
        return None
    namespace, slash, name = text.partition("/")
    if not (namespace and slash and name) or "/" in name:
        raise UsageError(f"{COMMAND}: --pod {text}: expected NAMESPACE/NAME, such as demo/web-0")
    return namespace, name


async def _scanned(settings: ExporterSettings, pod: tuple[str, str] | None, counted: list[str]) -> ScanResult:
    clock = SystemClock()
    podresources = _opened(settings.host)
    try:
        asked = podresources if pod is None else _OnePod(podresources, *pod)
        made = Scanner(settings, asked, clock=clock, count=counted.append)
        return await made.scan(ScanTrigger("periodic", frozenset({"start"}), clock.monotonic()))
    finally:
        await podresources.close()


def _opened(host: HostSettings) -> PodResources:
    """The kubelet's answers. A pod finds the socket where it is mounted, and whoever is on the node at the kubelet's
    own place.
    """
    url = host.podresources_socket
    if url == HostSettings().podresources_socket and not Path(url.removeprefix("unix://")).exists():
        own = Path(HostRoot(host.root).path(f"{STATE_DIRECTORY}/pod-resources/kubelet.sock")).absolute()
        if not own.exists():
            raise CouldNotComplete(
                f"{COMMAND}: no kubelet answers at {url} or unix://{own}; give --podresources-socket: unix:///PATH of "
                "its socket, or fake:///DIRECTORY with its saved answers (list.json, get_allocatable_resources.json)"
            )
        url = f"unix://{own}"
    try:
        opened = open_podresources(url)
    except ValueError as error:
        raise UsageError(f"{COMMAND}: --podresources-socket: {error}") from None
    if not parse_podresources_url(url).fake:
        errors_only()
    return opened


def _by_files(host: HostSettings) -> HostSettings:
    """The kubelet's settings from its file, where the exporter's pod has it or else where the kubelet has it: a cluster
    that could tell more is not needed.
    """
    file = host.kubelet_config_file
    if file == HostSettings().kubelet_config_file and HostRoot(host.root).identity(file) is None:
        file = f"/{STATE_DIRECTORY}/config.yaml"
    return replace(host, kubelet_config="file", kubelet_config_file=file)


class _OnePod:
    """A kubelet that lists one of its pods."""

    def __init__(self, podresources: PodResources, namespace: str, name: str) -> None:
        self._podresources = podresources
        self._pod = (namespace, name)
        self.until_ready, self.allocatable = podresources.until_ready, podresources.allocatable
        self.get, self.close = podresources.get, podresources.close

    async def list(self) -> list[ListedPod]:
        return [await self._podresources.get(*self._pod)]


def _rendered(scanned: ScanResult, form: str, *, colour: bool) -> str:
    if form != "text":
        return document_text(scanned.document, form)
    zones = scanned.zones
    attributes = {each["name"]: each["value"] for each in scanned.document["attributes"]}
    counts = zones.counts
    about = (
        f"Node {zones.node}, policy {attributes[names.POLICY]}, scope {attributes[names.SCOPE]}\n"
        f"Pods: {counts.listed}, with exclusive resources: {counts.exclusive}, left out: {counts.excluded}\n"
    )
    if zones.fingerprint:
        about += f"Fingerprint: {zones.fingerprint}\n"
    return f"{about}\n{table(ZONE_TABLE_HEADER, map(Row, zone_table_rows(zones)), colour=colour)}"
