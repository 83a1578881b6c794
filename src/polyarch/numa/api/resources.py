"""Types of NUMAResourcesOperator and NUMAResourcesScheduler (NO-001 – NO-003, NO-010 – NO-012).

Decoding is tolerant: an object that was stored under an older schema is read, too, and ``validation`` says what is
wrong with it. ``crds`` has the schema, ``settings`` what the values mean. Selectors and tolerations stay as they are
written, since they are passed on. Pure.
"""

from typing import Any, Final

import msgspec

from polyarch.kube.resources import Resource
from polyarch.numa.names import OPERATOR_GROUP
from polyarch.objects import ObjectMeta

VERSION: Final = "v1"
"""The stored one."""
OLD_VERSION: Final = "v1alpha1"
"""Served with a warning; of the same schema, so that nothing has to be converted."""
OPERATORS: Final = Resource(
    OPERATOR_GROUP, VERSION, "numaresourcesoperators", "NUMAResourcesOperator", namespaced=False
)
SCHEDULERS: Final = Resource(
    OPERATOR_GROUP, VERSION, "numaresourcesschedulers", "NUMAResourcesScheduler", namespaced=False
)


class NamespacedName(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """An object; in ``podExcludes``, globs for pods."""

    namespace: str = ""
    name: str = ""


class NodeGroupConfig(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """``nodeGroups[].config``; empty: the default."""

    pods_fingerprinting: str | None = None
    info_refresh_mode: str | None = None
    info_refresh_period: str | None = None
    info_refresh_pause: str | None = None
    tolerations: list[dict[str, Any]] | None = None


class NodeGroup(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """``nodeGroups[]``: nodes that get exporters, and how these work."""

    machine_config_pool_selector: dict[str, Any] | None = None
    pool_name: str | None = None
    node_selector: dict[str, Any] | None = None
    config: NodeGroupConfig | None = None
    annotations: dict[str, str] | None = None
    disable_pods_fingerprinting: bool | None = None
    """Of v1alpha1; ``config.podsFingerprinting`` wins."""


class NUMAResourcesOperatorSpec(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """NO-002."""

    node_groups: list[NodeGroup] | None = None
    image_spec: str | None = None
    log_level: str | None = None
    pod_excludes: list[NamespacedName] | None = None


class NUMAResourcesOperator(msgspec.Struct, frozen=True, rename="camel"):
    """Which nodes publish their NUMA zones; the only one is named ``numaresourcesoperator``."""

    metadata: ObjectMeta = ObjectMeta()
    spec: NUMAResourcesOperatorSpec = NUMAResourcesOperatorSpec()
    status: dict[str, Any] = {}


class ScoredResource(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """``scoringStrategy.resources[]``."""

    name: str = ""
    weight: int = 1


class ScoringStrategy(msgspec.Struct, frozen=True, omit_defaults=True):
    """``scoringStrategy``."""

    type: str | None = None
    resources: list[ScoredResource] | None = None


class NUMAResourcesSchedulerSpec(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """NO-011."""

    image_spec: str | None = None
    scheduler_name: str | None = None
    log_level: str | None = None
    cache_resync_period: str | None = None
    cache_resync_debug: str | None = None
    scheduler_informer: str | None = None
    cache_resync_detection: str | None = None
    scoring_strategy: ScoringStrategy | None = None
    preemption_mode: str | None = None
    replicas: int | None = None


class NUMAResourcesScheduler(msgspec.Struct, frozen=True, rename="camel"):
    """The secondary scheduler; the only one is named ``numaresourcesscheduler``."""

    metadata: ObjectMeta = ObjectMeta()
    spec: NUMAResourcesSchedulerSpec = NUMAResourcesSchedulerSpec()
    status: dict[str, Any] = {}
