"""What the operator's leader watches of placement, and the facts that each pass takes from it."""

from collections.abc import Callable
from typing import Any, Final

from polyarch.kube.informer import OnDemand
from polyarch.kube.manager import Process
from polyarch.kube.resources import DEPLOYMENTS, NAMESPACES
from polyarch.kube.store import Change
from polyarch.objects import Key, PartialObjectMetadata, Unstructured
from polyarch.operating.settings import OperatorSettings
from polyarch.placement import names
from polyarch.placement.api import CPPCS, POLICIES, PPCS, ClusterPodPlacementConfig, PlacementPolicy, PodPlacementConfig
from polyarch.placement.operator.operator_rules import PREDECESSOR
from polyarch.placement.settings import SettingsTable

SINGLETON: Final = Key("", names.SINGLETON)


class Observation:
    """The caches, complete when the process has started."""

    def __init__(self, process: Process, settings: OperatorSettings) -> None:
        self._settings = settings
        self.configurations = process.informer(CPPCS, ClusterPodPlacementConfig)
        self.documents = process.informer(CPPCS, Unstructured)
        """The same objects with all their fields."""
        self.configs = process.informer(PPCS, PodPlacementConfig)
        self.config_documents = process.informer(PPCS, Unstructured)
        self.policies = process.informer(POLICIES, PlacementPolicy)
        self.policy_documents = process.informer(POLICIES, Unstructured)
        self.namespaces_changed: Callable[[], None] = lambda: None
        """Called when the labels of namespaces may be others, while they are wanted."""
        self._all_namespaces = OnDemand(
            process.informers, NAMESPACES, PartialObjectMetadata, lambda _: self.namespaces_changed()
        )
        self._predecessors = process.informer(DEPLOYMENTS, Unstructured, field_selector=f"metadata.name={PREDECESSOR}")

    def on_change(self, changed: Callable[[], None]) -> None:
        """Calls ``changed`` with every change that a pass may have to answer."""

        def handle(_: Change[Any]) -> None:
            changed()

        for informer in (self.documents, self.policies, self.configs, self._predecessors):
            informer.add_handler(handle)

    @property
    def configuration(self) -> ClusterPodPlacementConfig | None:
        return self.configurations.store.get(SINGLETON)

    @property
    def document(self) -> Unstructured | None:
        """The ClusterPodPlacementConfig with all its fields."""
        return self.documents.store.get(SINGLETON)

    @property
    def policy(self) -> SettingsTable:
        """The settings in force."""
        return SettingsTable.of(
            self.policies.store.get(SINGLETON), self.configuration, operator_namespace=self._settings.namespace
        )

    def want_namespaces(self, wanted: bool) -> None:
        """Watches all namespaces while the policy has overrides."""
        self._all_namespaces.want(wanted)

    @property
    def namespaces(self) -> list[PartialObjectMetadata]:
        """All namespaces, if they are wanted."""
        return list(self._all_namespaces.values())

    @property
    def predecessor(self) -> Key | None:
        """The predecessor's operator, while it runs (PL-503)."""
        for deployment in self._predecessors.store.values():
            wanted = (deployment.document.get("spec") or {}).get("replicas", 1)
            if wanted or deployment.status.get("replicas", 0):
                return deployment.metadata.key
        return None
