"""What a scan decides by, and what its object says (NE-013 – NE-018, §6 – §8): the part of an exporter's settings that
the pure rules take. ``exporter.settings`` contains it. Pure.
"""

from collections.abc import Mapping
from typing import Literal

import msgspec

FingerprintMethod = Literal["all", "with-exclusive-resources"]
UsageSource = Literal["max", "podresources"]


class PodPattern(msgspec.Struct, frozen=True):
    """An item of ``podExclude``: shell globs, both must match (NE-067)."""

    namespace: str
    name: str


class ContainerName(msgspec.Struct, frozen=True):
    """The reference container, whose CPUs are the shared pool (NE-065)."""

    namespace: str
    pod: str
    container: str


class ScanSettings(msgspec.Struct, frozen=True, kw_only=True):
    """What counts, and what the object says (NE-013 – NE-018, §6 – §8)."""

    reference_container: ContainerName | None = None
    pod_exclude: tuple[PodPattern, ...] = ()
    exclude_terminal_pods: bool = False
    resource_exclude: Mapping[str, tuple[str, ...]] = {}
    """By node name, or ``*``."""
    usage_source: UsageSource = "max"
    pods_fingerprint: bool = True
    pods_fingerprint_method: FingerprintMethod = "with-exclusive-resources"
    pods_fingerprint_status_file: str = ""
    placement_vectors: bool = False
    extra_attributes: bool = True
    legacy_fields: bool = True
    node_group: str = ""
    add_nrt_owner: bool = True
    expose_timing: bool = False
