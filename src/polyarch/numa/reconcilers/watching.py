"""What the controllers of NUMA watch (NO-045).

Everything is watched from the moment on that the controllers run, and nothing of it keeps the process from being ready:
whoever has no use for NUMA is not disturbed by it. Of Nodes only the metadata is asked for, and a heartbeat, which
changes no label, wakes nobody.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final, Protocol

import msgspec

from polyarch.kube.informer import Informer, OnDemand, Shares
from polyarch.kube.resources import CONFIGMAPS, CRDS, ENDPOINT_SLICES, NAMESPACES, NODES
from polyarch.kube.store import Change
from polyarch.numa.api.resources import OPERATORS, SCHEDULERS
from polyarch.numa.api.topology import TOPOLOGIES
from polyarch.numa.names import NODE_POOL_LABEL
from polyarch.numa.operator.kubelet_configs import HOSTED_LABEL, HOSTED_NAMESPACE, KUBELET_CONFIGS
from polyarch.numa.operator.observed import API_SERVERS, POOLS, USUAL_API_PORTS, Platform
from polyarch.objects import Key, ObjectMeta, PartialObjectMetadata, Unstructured
from polyarch.operating.settings import OperatorSettings

API_SERVICE: Final = Key("default", "kubernetes")

Changed = Callable[[], None]


class EndpointPort(msgspec.Struct, frozen=True, gc=False):
    """``ports[]`` of an EndpointSlice."""

    port: int | None = None


class Endpoints(msgspec.Struct, frozen=True, gc=False):
    """An EndpointSlice reduced to its ports."""

    metadata: ObjectMeta = ObjectMeta()
    ports: list[EndpointPort] | None = None


class Watching(Protocol):
    """What of a cache tells whether it is complete."""

    @property
    def has_synced(self) -> bool: ...


class Watched:
    """The caches. ``changed`` is called when anything has become another but the custom resources themselves, and the
    configurations of kubelets, for which it is ``kubelets_changed``."""

    def __init__(
        self, informers: Shares, settings: OperatorSettings, *, changed: Changed, kubelets_changed: Changed
    ) -> None:
        self._settings = settings
        self._changed = changed

        def every(_: Change[Any]) -> None:
            changed()

        def kubelets(_: Change[Any]) -> None:
            kubelets_changed()

        self.operators: Informer[Unstructured] = informers.informer(OPERATORS, Unstructured, required=False)
        self.schedulers: Informer[Unstructured] = informers.informer(SCHEDULERS, Unstructured, required=False)
        self.nodes: Informer[PartialObjectMetadata] = informers.informer(NODES, PartialObjectMetadata, required=False)
        self.nodes.add_handler(self._node_changed)
        self.node_arrivals = 0
        """How often a node came, went or got other labels."""
        self.definition: Informer[PartialObjectMetadata] = informers.informer(
            CRDS, PartialObjectMetadata, required=False, field_selector=f"metadata.name={TOPOLOGIES}"
        )
        self._namespace = informers.informer(
            NAMESPACES, Unstructured, required=False, field_selector=f"metadata.name={settings.numa_home}"
        )
        self._endpoints = informers.informer(
            ENDPOINT_SLICES,
            Endpoints,
            required=False,
            namespace=API_SERVICE.namespace,
            field_selector=f"metadata.name={API_SERVICE.name}",
        )
        self.definition.add_handler(every)
        self._namespace.add_handler(every)
        self._endpoints.add_handler(every)
        self._pools = OnDemand(informers, POOLS, Unstructured, every)
        self._kubelet_configs = OnDemand(informers, KUBELET_CONFIGS, Unstructured, kubelets)
        self._api_server = OnDemand(informers, API_SERVERS, Unstructured, every, name="cluster")
        self._mirrored = OnDemand(
            informers, CONFIGMAPS, Unstructured, kubelets, namespace=HOSTED_NAMESPACE, label_selector=HOSTED_LABEL
        )

    def expect(self, platform: Platform) -> None:
        """Watches what this platform has, and nothing that another one has."""
        self._pools.want(platform == "openshift")
        self._kubelet_configs.want(platform == "openshift")
        self._api_server.want(platform != "kubernetes")
        self._mirrored.want(platform == "hypershift")

    @property
    def has_synced(self) -> bool:
        """Every cache that is watched is complete."""
        always: Iterable[Watching] = (
            self.operators,
            self.schedulers,
            self.nodes,
            self.definition,
            self._namespace,
            self._endpoints,
        )
        wanted = (self._pools, self._kubelet_configs, self._api_server, self._mirrored)
        return all(each.has_synced for each in always) and all(each.is_known for each in wanted if each.is_wanted)

    # -- what they show -----------------------------------------------------------------------------------------------

    @property
    def namespace(self) -> ObjectMeta | None:
        """Of the namespace of the exporters; None: there is none."""
        found = self._namespace.store.get(Key("", self._settings.numa_home))
        return found.metadata if found is not None else None

    @property
    def api_server_ports(self) -> tuple[int, ...]:
        """Of the endpoints of the Service ``kubernetes``; the usual ones while they are unknown."""
        found = self._endpoints.store.get(API_SERVICE)
        ports = sorted({each.port for each in (found.ports or () if found is not None else ()) if each.port})
        return tuple(ports) or USUAL_API_PORTS

    @property
    def pools(self) -> tuple[Mapping[str, Any], ...]:
        return _documents(self._pools.values())

    @property
    def kubelet_configs(self) -> tuple[Mapping[str, Any], ...]:
        return _documents(self._kubelet_configs.values())

    @property
    def mirrored(self) -> tuple[Unstructured, ...]:
        """ConfigMaps with a kubelet configuration of a node pool (HyperShift)."""
        several = (each for each in self._mirrored.values() if NODE_POOL_LABEL in (each.metadata.labels or {}))
        return tuple(sorted(several, key=lambda each: each.metadata.name))

    @property
    def tls_profile(self) -> Mapping[str, Any] | None:
        found = self._api_server.get(Key("", "cluster"))
        profile: Mapping[str, Any] | None = ((found.document.get("spec") or {}) if found is not None else {}).get(
            "tlsSecurityProfile"
        )
        return profile

    def _node_changed(self, change: Change[PartialObjectMetadata]) -> None:
        old, new = change.old, change.new
        if old is not None and new is not None and old.metadata.labels == new.metadata.labels:
            return
        self.node_arrivals += 1
        self._changed()


def _documents(several: Iterable[Unstructured]) -> tuple[Mapping[str, Any], ...]:
    return tuple(each.document for each in sorted(several, key=lambda each: each.metadata.name))
