"""What an administrator chooses about the plugin's rules. Pure."""

from collections.abc import Mapping

import msgspec

from polyarch.numa.api.settings import Detection, Informer, Scoring


class CompatOptions(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """How fitting nodes are compared."""

    strategy: Scoring = "LeastAllocated"
    weights: Mapping[str, int] = {}
    """By resource; what is not here, or is below 1, counts as 1 (NS-031)."""

    def weight(self, resource: str) -> int:
        return max(1, self.weights.get(resource, 1))


class CacheOptions(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """Whose pods count, and when."""

    scheduler_names: frozenset[str] = frozenset()
    """Ours: pods bound by others are foreign (NS-132)."""
    informer: Informer = "Dedicated"
    """Which pods a fingerprint is compared with: all bound ones past Pending, or with ``Shared`` running ones."""
    detection: Detection = "Relaxed"
    """Which foreign pods count: those with exclusive resources, or with ``Aggressive`` all."""
    strict: bool = False
    """A flush also forgets bound pods that are still Pending, as the plugin does (NS-134)."""
