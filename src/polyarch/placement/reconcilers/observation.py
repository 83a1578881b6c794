"""What the operator's leader watches, and the facts that each pass takes from it."""

import hashlib
from collections.abc import Callable
from typing import Any, Final

import msgspec

from polyarch.kube.process.roles import Process
from polyarch.kube.resources import CONFIGMAPS, DEPLOYMENTS, NAMESPACES
from polyarch.kube.runtime.informer import Informer
from polyarch.kube.runtime.on_demand import OnDemand
from polyarch.kube.runtime.store import Change
from polyarch.model.meta import Key, PartialObjectMetadata
from polyarch.model.unstructured import Unstructured
from polyarch.placement import names
from polyarch.placement.api.resources import (
    CPPCS,
    POLICIES,
    PPCS,
    ClusterPodPlacementConfig,
    PlacementPolicy,
    PodPlacementConfig,
)
from polyarch.placement.api.settings import SettingsTable
from polyarch.placement.operator.operator_rules import PREDECESSOR
from polyarch.placement.operator.settings import OperatorSettings

SINGLETON: Final = Key("", names.SINGLETON)


class Observation:
    """The caches, complete when the process has started."""

    def __init__(self, process: Process, settings: OperatorSettings) -> None:
        self._settings = settings
        home = settings.namespace
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
        self._namespaces = process.informer(NAMESPACES, Unstructured, field_selector=f"metadata.name={home}")
        self._own = process.informer(
            DEPLOYMENTS, Unstructured, namespace=home, field_selector=f"metadata.name={names.OPERATOR}"
        )
        self._predecessors = process.informer(DEPLOYMENTS, Unstructured, field_selector=f"metadata.name={PREDECESSOR}")
        self._registries: Informer[Unstructured] | None = None
        if settings.registries_configmap:
            self._registries = process.informer(
                CONFIGMAPS,
                Unstructured,
                namespace=home,
                field_selector=f"metadata.name={settings.registries_configmap}",
            )

    def on_change(self, changed: Callable[[], None]) -> None:
        """Calls ``changed`` with every change that a pass may have to answer."""

        def handle(_: Change[Any]) -> None:
            changed()

        for informer in (self.documents, self.policies, self.configs, self._namespaces, self._predecessors, self._own):
            informer.add_handler(handle)
        if self._registries is not None:
            self._registries.add_handler(handle)

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
    def namespace(self) -> Unstructured | None:
        """The operator's own."""
        return self._namespaces.store.get(Key("", self._settings.namespace))

    @property
    def is_namespace_terminating(self) -> bool:
        """The operator's namespace is being deleted, or is gone."""
        namespace = self.namespace
        return namespace is None or namespace.metadata.deletion_timestamp is not None

    @property
    def is_operator_available(self) -> bool:
        """The operator's Deployment has a pod that serves."""
        own = self._own.store.get(Key(self._settings.namespace, names.OPERATOR))
        return own is not None and own.status.get("availableReplicas", 0) > 0

    @property
    def predecessor(self) -> Key | None:
        """The predecessor's operator, while it runs (PL-503)."""
        for deployment in self._predecessors.store.values():
            wanted = (deployment.document.get("spec") or {}).get("replicas", 1)
            if wanted or deployment.status.get("replicas", 0):
                return deployment.metadata.key
        return None

    @property
    def registries(self) -> str:
        """A digest of the registries' ConfigMap; empty if there is none."""
        if self._registries is None:
            return ""
        found = self._registries.store.get(Key(self._settings.namespace, self._settings.registries_configmap))
        if found is None:
            return ""
        content = [found.document.get(field) for field in ("data", "binaryData")]
        return hashlib.blake2b(msgspec.json.encode(content, order="sorted"), digest_size=8).hexdigest()
