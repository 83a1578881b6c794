"""The controller ``kubeletconfig``: what OpenShift and HyperShift tell the kubelets of each pool (NO-110 – NO-112).

It keeps the configurations in one form, whichever kind of object has them, and wakes the controller of the exporters
when they have become others, a deletion included. Nothing is polled: without a NUMAResourcesOperator nobody asks.
"""

from collections.abc import Callable, Mapping
from typing import Any, Final

import structlog

from polyarch.kube.controller import After, Done, Result
from polyarch.numa.operator.kubelet_configs import HOSTED_KEY, KUBELET_CONFIGS
from polyarch.numa.operator.observed import Platform
from polyarch.numa.reconcilers.watching import Watched
from polyarch.objects import Key, Unstructured

log = structlog.get_logger(__name__)

KEY: Final = Key("", "kubeletconfigs")
SOON: Final = 0.2

Document = Mapping[str, Any]
Decoder = Callable[[str, str], Document]
"""From the place and the text of a manifest to the object; raises ``ValueError``."""


class KubeletConfigReconciler:
    """Its only key is :data:`KEY`. ``changed`` is called when :attr:`documents` are others than before."""

    def __init__(self, watched: Watched, *, changed: Callable[[], None], decode: Decoder) -> None:
        self._watched = watched
        self._changed = changed
        self._decode = decode
        self._platform: Platform = "kubernetes"
        self._found: tuple[Document, ...] | None = None

    def expect(self, platform: Platform) -> bool:
        """Whether the configurations are known, on this platform. On plain Kubernetes there are none."""
        self._platform = platform
        return platform == "kubernetes" or self._found is not None

    @property
    def documents(self) -> tuple[Document, ...]:
        """As KubeletConfigs; those of HyperShift have the metadata of their ConfigMaps."""
        return self._found or ()

    async def reconcile(self, _: Key) -> Result:
        """One pass."""
        if self._platform == "kubernetes":
            return Done()
        if not self._watched.has_synced:
            return After(SOON)
        found = self._watched.kubelet_configs
        if self._platform == "hypershift":
            several = (self._hosted(each) for each in self._watched.mirrored)
            found = tuple(each for each in several if each is not None)
        if found != self._found:
            self._found = found
            self._changed()
        return Done()

    def _hosted(self, config_map: Unstructured) -> Document | None:
        """None: there is nothing in it, or nothing that can be read, which is no error of ours (NO-112)."""
        place = f"ConfigMap {config_map.metadata.key}"
        content = (config_map.document.get("data") or {}).get(HOSTED_KEY)
        if not content:
            log.debug("no kubelet configuration in it", object=place)
            return None
        try:
            found = self._decode(place, content)
        except ValueError as error:
            log.warning("kubelet configuration left out", object=place, error=str(error))
            return None
        spec = found.get("spec")
        metadata = config_map.document["metadata"]
        return {"apiVersion": KUBELET_CONFIGS.api_version, "kind": KUBELET_CONFIGS.kind, "metadata": metadata} | (
            {"spec": spec} if isinstance(spec, dict) else {}
        )
