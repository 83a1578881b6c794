"""Amounts of resources, and what their names say (NS-002). Pure.

An amount is a whole number of thousandths (:mod:`polyarch.quantity`), by the name of its resource.
"""

from collections.abc import Mapping
from typing import Final

CPU: Final = "cpu"
MEMORY: Final = "memory"
PAGES: Final = "hugepages-"
_STORAGE: Final = frozenset({"ephemeral-storage", "storage"})

Amounts = Mapping[str, int]
"""Thousandths by resource; a resource that is not there is not listed, which is not the same as 0."""


def is_native(resource: str) -> bool:
    """Kubernetes' own: the rest are devices."""
    return "/" not in resource or "kubernetes.io/" in resource


def is_device(resource: str) -> bool:
    return not is_native(resource)


def is_memory(resource: str) -> bool:
    """Memory, or huge pages of one size."""
    return resource == MEMORY or resource.startswith(PAGES)


def is_affine(resource: str) -> bool:
    """CPUs, memory and huge pages: counted for pods with their own only."""
    return resource == CPU or is_memory(resource)


def is_host_level(resource: str) -> bool:
    """May be on a node without being on a cell of it."""
    return resource in _STORAGE or is_device(resource)


def positive(amounts: Amounts) -> dict[str, int]:
    """Without what asks for nothing."""
    return {name: amount for name, amount in amounts.items() if amount > 0}
