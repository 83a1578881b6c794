"""The operator's own namespace: whether it is being deleted, the operator's Deployment, the registries' ConfigMap."""

import base64
import hashlib
from collections.abc import Callable
from typing import Any

import msgspec

from polyarch.kube.informer import Informer
from polyarch.kube.manager import Process
from polyarch.kube.resources import CONFIGMAPS, DEPLOYMENTS, NAMESPACES
from polyarch.kube.store import Change
from polyarch.objects import Key, Unstructured
from polyarch.operating import names, registry_settings
from polyarch.operating.settings import OperatorSettings


class Home:
    """The caches, complete when the process has started."""

    def __init__(self, process: Process, settings: OperatorSettings) -> None:
        self._settings = settings
        home = settings.namespace
        self._namespaces = process.informer(NAMESPACES, Unstructured, field_selector=f"metadata.name={home}")
        self._own = process.informer(
            DEPLOYMENTS, Unstructured, namespace=home, field_selector=f"metadata.name={names.OPERATOR}"
        )
        self._registries: Informer[Unstructured] | None = None
        if settings.registries_configmap:
            self._registries = process.informer(
                CONFIGMAPS,
                Unstructured,
                namespace=home,
                field_selector=f"metadata.name={settings.registries_configmap}",
            )
        self._looked: tuple[str, tuple[str, ...]] | None = None

    def on_change(self, changed: Callable[[], None]) -> None:
        """Calls ``changed`` with every change that a pass may have to answer."""

        def handle(_: Change[Any]) -> None:
            changed()

        for informer in (self._namespaces, self._own, self._registries):
            if informer is not None:
                informer.add_handler(handle)

    @property
    def namespace(self) -> Unstructured | None:
        return self._namespaces.store.get(Key("", self._settings.namespace))

    @property
    def is_terminating(self) -> bool:
        """The namespace is being deleted, or is gone."""
        namespace = self.namespace
        return namespace is None or namespace.metadata.deletion_timestamp is not None

    @property
    def is_operator_available(self) -> bool:
        """The operator's Deployment has a pod that serves."""
        own = self._own.store.get(Key(self._settings.namespace, names.OPERATOR))
        return own is not None and own.status.get("availableReplicas", 0) > 0

    @property
    def registries(self) -> str:
        """A digest of the registries' ConfigMap; empty if there is none."""
        found = self._registries_found
        if found is None:
            return ""
        content = [found.document.get(field) for field in ("data", "binaryData")]
        return hashlib.blake2b(msgspec.json.encode(content, order="sorted"), digest_size=8).hexdigest()

    @property
    def problems(self) -> tuple[str, ...]:
        """What roles that ask registries would refuse as they start (IN-030): while there is any, none is changed."""
        digest = self.registries
        if self._looked is None or self._looked[0] != digest:
            self._looked = digest, self._wrong()
        return self._looked[1]

    def _wrong(self) -> tuple[str, ...]:
        ranges = registry_settings.wrong_ranges(self._settings.allow_addresses)
        found = self._registries_found
        if found is None:
            return ranges
        data, binary = (found.document.get(field) or {} for field in ("data", "binaryData"))
        files = {name: text.encode() for name, text in data.items()}
        files |= {name: base64.b64decode(text) for name, text in binary.items()}
        return (*ranges, *registry_settings.wrong_files(files, f"ConfigMap {found.metadata.key}"))

    @property
    def _registries_found(self) -> Unstructured | None:
        if self._registries is None:
            return None
        return self._registries.store.get(Key(self._settings.namespace, self._settings.registries_configmap))
