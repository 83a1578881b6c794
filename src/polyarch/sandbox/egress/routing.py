"""Where a connection of the API server into the cluster leads: what kube-proxy does in a real one (SB-012).

    10.96.4.1:443    → the Service with this ClusterIP → one of its ready endpoints in turn, at its target port
    10.244.0.7:8081  → the pod's process, 127.244.0.7:8081
    10.250.0.1:10250 → the kubelet endpoint of the sandbox's nodes

Everything else is refused. As in kube-proxy, an endpoint that does not answer is not replaced by another one, and pods
that are terminating but still serve are used only if no endpoint is ready. Reads memory only.
"""

from collections.abc import Iterable, Sequence
from typing import Final

import msgspec

from polyarch.kube.store import Store
from polyarch.objects import ObjectMeta
from polyarch.sandbox.network import addresses
from polyarch.sandbox.network.addresses import KUBELET_PORT

SERVICE_NAME: Final = "kubernetes.io/service-name"
BY_ADDRESS: Final = "address"
BY_SERVICE: Final = "service"
MAXIMUM_TURNS: Final = 10_000


class Port(msgspec.Struct, frozen=True, gc=False):
    """A port of a Service, or of an EndpointSlice, which have the same name there."""

    name: str | None = None
    port: int | None = None
    protocol: str | None = "TCP"


class ServiceSpec(msgspec.Struct, frozen=True, gc=False):
    cluster_ip: str = msgspec.field(default="", name="clusterIP")
    ports: list[Port] | None = None


class Service(msgspec.Struct, frozen=True, gc=False):
    """core/v1 Service, as far as routing reads it."""

    metadata: ObjectMeta = ObjectMeta()
    spec: ServiceSpec = ServiceSpec()


class Conditions(msgspec.Struct, frozen=True, gc=False):
    """``ready`` that is absent means ready (discovery/v1)."""

    ready: bool | None = None
    serving: bool | None = None
    terminating: bool | None = None


class Endpoint(msgspec.Struct, frozen=True, gc=False):
    addresses: list[str] | None = None
    conditions: Conditions = Conditions()

    @property
    def is_ready(self) -> bool:
        return self.conditions.ready is not False

    @property
    def ends_but_serves(self) -> bool:
        return bool(self.conditions.serving and self.conditions.terminating)


class EndpointSlice(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    """discovery.k8s.io/v1 EndpointSlice, as far as routing reads it."""

    metadata: ObjectMeta = ObjectMeta()
    address_type: str = ""
    endpoints: list[Endpoint] | None = None
    ports: list[Port] | None = None


class ToPod(msgspec.Struct, frozen=True):
    """Connect to the pod's process, which listens at this loopback address."""

    pod: str
    port: int

    @property
    def loopback(self) -> str:
        return addresses.loopback_of(self.pod)


class ToKubelet(msgspec.Struct, frozen=True):
    """Connect to the kubelet endpoint that all nodes share."""


class Refused(msgspec.Struct, frozen=True):
    """Do not connect; ``status`` is the answer to the CONNECT request, ``reason`` one line for people."""

    status: int
    reason: str


Route = ToPod | ToKubelet | Refused


class Routes:
    """The routing table of one sandbox, over the stores of Services and EndpointSlices."""

    def __init__(self, services: Store[Service], slices: Store[EndpointSlice], *, pod_network: int) -> None:
        """Adds the indexes it needs to the stores."""
        services.add_index(BY_ADDRESS, cluster_addresses)
        slices.add_index(BY_SERVICE, service_of)
        self._services = services
        self._slices = slices
        self._pod_network = pod_network
        self._turns: dict[tuple[str, int], int] = {}

    def route(self, target: str) -> Route:
        """The way to ``ADDRESS:PORT``."""
        address, _, digits = target.rpartition(":")
        port = int(digits) if digits.isascii() and digits.isdigit() and len(digits) < 6 else 0
        if addresses.is_service(address) and port:
            return self._to_service(address, port)
        if addresses.is_node(address) and port == KUBELET_PORT:
            return ToKubelet()
        if addresses.is_pod(address, network=self._pod_network) and port:
            return ToPod(address, port)
        return Refused(403, f"{target} is neither a Service nor a pod nor a kubelet of this sandbox")

    def _to_service(self, address: str, port: int) -> Route:
        service = next(filter(None, map(self._services.get, self._services.by_index(BY_ADDRESS, address))), None)
        if service is None:
            return Refused(403, f"no Service has the address {address}")
        name = str(service.metadata.key)
        found = [each for each in service.spec.ports or () if each.port == port and each.protocol in (None, "TCP")]
        if not found:
            return Refused(403, f"Service {name} has no TCP port {port}")
        slices = [self._slices.get(key) for key in self._slices.by_index(BY_SERVICE, name)]
        endpoints = serving(filter(None, slices), found[0].name or "")
        if not endpoints:
            return Refused(503, f"Service {name} has no ready endpoint for port {port}")
        pod, target_port = endpoints[self._turn(address, port) % len(endpoints)]
        if not addresses.is_pod(pod, network=self._pod_network):
            return Refused(403, f"endpoint {pod} of Service {name} is not a pod of this sandbox")
        return ToPod(pod, target_port)

    def _turn(self, address: str, port: int) -> int:
        turn = self._turns.pop((address, port), 0)
        self._turns[address, port] = turn + 1
        if len(self._turns) > MAXIMUM_TURNS:
            del self._turns[next(iter(self._turns))]
        return turn


def serving(slices: Iterable[EndpointSlice], port: str) -> Sequence[tuple[str, int]]:
    """(address, port) of the endpoints that serve the port of this name: the ready ones, else those that terminate but
    still serve."""
    ready: set[tuple[str, int]] = set()
    ending: set[tuple[str, int]] = set()
    for each in slices:
        if each.address_type != "IPv4":
            continue
        numbers = [one.port for one in each.ports or () if (one.name or "") == port and one.port]
        for endpoint in each.endpoints or ():
            pairs = {(address, number) for address in (endpoint.addresses or ())[:1] for number in numbers}
            if endpoint.is_ready:
                ready |= pairs
            elif endpoint.ends_but_serves:
                ending |= pairs
    return sorted(ready or ending)


def cluster_addresses(service: Service) -> tuple[str, ...]:
    return (service.spec.cluster_ip,)


def service_of(slice_: EndpointSlice) -> tuple[str, ...]:
    """``namespace/name`` of the Service that the slice belongs to."""
    labels = slice_.metadata.labels or {}
    return (f"{slice_.metadata.namespace}/{labels.get(SERVICE_NAME, '')}",)
