"""Metrics and health of an exporter, all on one port.

By mode: ``disabled`` answers health on 127.0.0.1 alone and no metrics, ``http`` answers both to everybody, ``httptls``
the same over TLS. Where a certificate is still missing, health is answered without TLS on the same port until it is
there, so that ``/readyz`` can say so; metrics are not.

Metrics that begin with ``rte_`` have the names of the resource-topology-exporter, since dashboards and alerts use them.
"""

import ssl
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import structlog
from aiohttp.web_request import BaseRequest
from aiohttp.web_response import Response
from prometheus_client import Gauge

from polyarch.clock import Clock
from polyarch.kube.certificates import Certificates, FileCertificates
from polyarch.kube.metrics import Metrics
from polyarch.kube.server import Health, HttpServer, MetricsPage, text
from polyarch.numa.api.topology import zone_name
from polyarch.numa.exporter.publisher import WriteOperation
from polyarch.numa.exporter.settings import TLS_VERSIONS, MetricsSettings, openssl_ciphers
from polyarch.numa.exporter.zones import NodeZones
from polyarch.numa.host.podresources import PodResourcesCall

log = structlog.get_logger(__name__)

LOOPBACK: Final = "127.0.0.1"
AUTHORITIES: Final = "ca.crt"
"""In the directory of the certificate: the CAs of clients, if clients need certificates; without it the system's."""
SCAN: Final = "podresources_scan"
UPDATE: Final = "node_resource_object_update"

Series = tuple[str, str]
"""Zone and resource."""


class ExporterServer:
    """The one listener of an exporter; ``run`` follows the certificate."""

    def __init__(self, settings: MetricsSettings, *, health: Health, metrics: Metrics, clock: Clock) -> None:
        self._settings = settings
        self._health = health
        self._page = MetricsPage(metrics)
        self.certificates = self._certificate_source(clock, metrics) if settings.mode == "httptls" else None
        self._host = LOOPBACK if settings.mode == "disabled" else settings.address
        self._listener = HttpServer(self._serve_first, host=self._host, port=settings.port)

    def _certificate_source(self, clock: Clock, metrics: Metrics) -> Certificates:
        settings = self._settings
        return FileCertificates(
            settings.certs_dir, certificate=settings.cert_file, key=settings.key_file, clock=clock, metrics=metrics
        )

    @property
    def url(self) -> str:
        return self._listener.url

    def not_ready(self) -> str | None:
        """The readiness check."""
        return self.certificates.not_ready() if self.certificates is not None else None

    async def start(self) -> None:
        """Listens. Raises OSError if the port is taken."""
        await self._listener.start()

    def retire(self) -> None:
        self._listener.retire()

    async def stop(self, seconds: float = 0.0) -> None:
        await self._listener.stop(seconds)

    async def run(self) -> None:
        """Begins with TLS as soon as there is a certificate; returns then."""
        certificates = self.certificates
        if certificates is None:
            return
        await certificates.ready()
        context = certificates.context
        restrict_tls(context, self._settings)
        port = self._listener.port
        await self._listener.stop()
        self._listener = HttpServer(self._serve, host=self._host, port=port, tls=context)
        await self._listener.start()
        log.info("metrics and health are served over TLS", url=self._listener.url)

    async def _serve_first(self, request: BaseRequest) -> Response:
        if self._settings.mode == "http":
            return await self._serve(request)
        if request.path == "/metrics":
            why = "metrics are turned off" if self.certificates is None else "no certificate was loaded yet"
            return text(404 if self.certificates is None else 503, why)
        return await self._health.serve(request)

    async def _serve(self, request: BaseRequest) -> Response:
        """A kubelet that asks for health has no certificate."""
        if request.path != "/metrics":
            return await self._health.serve(request)
        transport = request.transport
        if self._settings.want_client_certificates and not (transport and transport.get_extra_info("peercert")):
            return text(401, "send a client certificate: --metrics-want-cli-auth is set")
        return await self._page.serve(request)


def restrict_tls(context: ssl.SSLContext, settings: MetricsSettings) -> None:
    """Sets versions, ciphers and client certificates. Raises OSError or ssl.SSLError for unusable CAs."""
    if settings.min_tls_version:
        context.minimum_version = ssl.TLSVersion[TLS_VERSIONS[settings.min_tls_version]]
    if ciphers := openssl_ciphers(settings.cipher_suites):
        context.set_ciphers(ciphers)
    if settings.want_client_certificates:
        authorities = Path(settings.certs_dir) / AUTHORITIES
        if authorities.is_file():
            context.load_verify_locations(cafile=str(authorities))
        else:
            context.load_default_certs(ssl.Purpose.CLIENT_AUTH)
        context.verify_mode = ssl.CERT_OPTIONAL


# -- metrics -----------------------------------------------------------------------------------------------------------


class ExporterMetrics:
    """The metrics of one node's exporter. Children are looked up when a value changes, not with every scan."""

    def __init__(self, metrics: Metrics, node: str) -> None:
        self._node = node
        self._call_failures = metrics.counter(
            "rte_podresource_api_call_failures_total", "Calls of the kubelet that failed", ("node", "function_name")
        )
        self._writes = metrics.counter(
            "rte_noderesourcetopology_writes_total",
            "Writes of the NodeResourceTopology",
            ("node", "operation", "trigger"),
        )
        self._delay = metrics.gauge(
            "rte_operation_delay_milliseconds",
            "How long the last scan took, and how long its result took to be written",
            ("node", "operation_name", "trigger"),
        )
        self._wakeup = metrics.gauge(
            "rte_wakeup_delay_milliseconds", "From the event to the scan that it started", ("node", "trigger")
        )
        self._patch_failures = metrics.counter(
            "rte_noderesourcetopology_patch_failures_total", "Patches that failed", ("node", "trigger")
        )
        self._size_ratio = metrics.gauge(
            "rte_noderesourcetopology_patch_size_ratio", "Size of the last patch by that of the whole object", ("node",)
        ).labels(node)
        own = ("node", "zone", "resource")
        self._capacity = _ZoneGauge(metrics.gauge("polyarch_numa_zone_capacity", "What the zone has", own), node)
        self._allocatable = _ZoneGauge(
            metrics.gauge("polyarch_numa_zone_allocatable", "What pods may get of the zone", own), node
        )
        self._available = _ZoneGauge(
            metrics.gauge("polyarch_numa_zone_available", "What no container has exclusively", own), node
        )
        self._hidden = _ZoneGauge(
            metrics.gauge(
                "polyarch_numa_hidden_usage",
                "Usage that the kubelet keeps for pods but does not list",
                ("zone", "resource"),
            )
        )
        self._scan_seconds = metrics.histogram("polyarch_numa_scan_seconds", "How long scans take")
        self._scans = metrics.counter("polyarch_numa_scans_total", "Scans", ("trigger", "result"))
        self._skipped = metrics.counter(
            "polyarch_numa_publish_skipped_total", "Scans whose result the API server had already"
        )
        self._last_publish = metrics.gauge(
            "polyarch_numa_last_publish_timestamp_seconds",
            "When the API server was last known to have the result of a scan",
        )
        self._pods = metrics.gauge("polyarch_numa_pods", "Pods of the last scan", ("kind",))
        self._facts_errors = metrics.counter(
            "polyarch_numa_facts_errors_total", "Files, and parts of answers, that could not be used", ("file",)
        )

    # -- of calls and files -------------------------------------------------------------------------------------------

    def call_failed(self, function: PodResourcesCall) -> None:
        self._call_failures.labels(self._node, function).inc()

    def pods_unnamed(self, count: int) -> None:
        self.fact_failed("pods_unnamed", count)

    def fact_failed(self, file: str, count: int = 1) -> None:
        self._facts_errors.labels(file).inc(count)

    # -- of scans -----------------------------------------------------------------------------------------------------

    def woken(self, trigger: str, *, seconds: float) -> None:
        self._wakeup.labels(self._node, trigger).set(seconds * 1000.0)

    def scanned(self, trigger: str, *, seconds: float, success: bool) -> None:
        self._scans.labels(trigger, "success" if success else "failure").inc()
        self._scan_seconds.observe(seconds)
        if success:
            self._delay.labels(self._node, SCAN, trigger).set(seconds * 1000.0)

    def show(self, zones: NodeZones) -> None:
        """The zones and pods of the last scan."""
        series = {
            (zone_name(zone.host_zone.id), amounts.resource): amounts
            for zone in zones.zones
            for amounts in zone.resources
        }
        self._capacity.show({labels: float(amounts.capacity) for labels, amounts in series.items()})
        self._allocatable.show({labels: float(amounts.allocatable) for labels, amounts in series.items()})
        self._available.show({labels: float(amounts.available) for labels, amounts in series.items()})
        self._hidden.show({labels: float(amounts.hidden) for labels, amounts in series.items() if amounts.hidden})
        counts = zones.counts
        for kind, count in (("listed", counts.listed), ("exclusive", counts.exclusive), ("excluded", counts.excluded)):
            self._pods.labels(kind).set(count)

    # -- of publishing ------------------------------------------------------------------------------------------------

    def written(self, operation: WriteOperation, trigger: str, *, seconds: float, size_ratio: float) -> None:
        self._writes.labels(self._node, operation, trigger).inc()
        self._delay.labels(self._node, UPDATE, trigger).set(seconds * 1000.0)
        if operation == "patch":
            self._size_ratio.set(size_ratio)

    def patch_failed(self, trigger: str) -> None:
        self._patch_failures.labels(self._node, trigger).inc()

    def skipped(self) -> None:
        self._skipped.inc()

    def published(self) -> None:
        self._last_publish.set_to_current_time()


class _ZoneGauge:
    """A gauge with a series per zone and resource; series that vanish are removed."""

    def __init__(self, gauge: Gauge, *labels: str) -> None:
        self._gauge = gauge
        self._labels = labels
        self._shown: dict[Series, float] = {}

    def show(self, values: Mapping[Series, float]) -> None:
        for series in self._shown.keys() - values.keys():
            self._gauge.remove(*self._labels, *series)
        for series, value in values.items():
            if self._shown.get(series) != value:
                self._gauge.labels(*self._labels, *series).set(value)
        self._shown = dict(values)
