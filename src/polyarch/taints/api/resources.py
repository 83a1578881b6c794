"""Types of ArchitectureTaints (TN-010, TN-014).

Decoding is tolerant: ``crds`` has the schema, ``settings`` what the values mean.
"""

from typing import Final

import msgspec

from polyarch.kube.resources import Resource
from polyarch.objects import ObjectMeta
from polyarch.selectors import LabelSelector
from polyarch.taints.names import GROUP

ARCHITECTURE_TAINTS: Final = Resource(GROUP, "v1alpha1", "architecturetaints", "ArchitectureTaints", namespaced=False)


class TaintSpec(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    """``spec.taint``: key, effect and whose taints are ours (TN-011, TN-022)."""

    preset: str = "archaware"
    key: str = ""
    effect: str = "NoSchedule"
    acknowledge_eviction: bool = False
    ownership: str = ""
    """Empty: by preset."""


class NodesSpec(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    """``spec.nodes``: which nodes are managed, and how fast (TN-021, TN-025 to TN-027)."""

    selector: LabelSelector | None = None
    exclude_control_plane: bool = False
    operating_systems: list[str] | None = None
    """None: ``[linux]``."""
    rollout: str = "safe"
    per_minute: int = 60
    at_registration: str = "policy"


class PodsSpec(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    """``spec.pods``: which pods get tolerations, and what happens without answers (TN-041 to TN-049)."""

    namespace_selector: LabelSelector | None = None
    pod_selector: LabelSelector | None = None
    exclude_namespaces: list[str] | None = None
    on_unknown: str = "gate"
    gate_timeout: str = "5m"
    on_timeout: str = "primary-only"
    on_no_common: str = "admit"
    running: str = ""
    """Empty: by preset; ``NoExecute`` always tolerates."""
    image_change: str = "event"


class DaemonSetsSpec(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    """``spec.daemonSets`` (TN-050, TN-051)."""

    templates: str = "reconcile"
    max_concurrent_rollouts: int = 1
    rollout_timeout: str = "10m"


class Compatibility(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    """Nodes of one architecture that run programs of others (TN-031)."""

    node: str = ""
    runs: list[str] | None = None


class ArchitectureTaintsSpec(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    """TN-010."""

    state: str = "active"
    mode: str = "secondary-only"
    primary_architectures: list[str] | None = None
    """None: ``[amd64]``."""
    architectures: list[str] | None = None
    taint: TaintSpec = TaintSpec()
    nodes: NodesSpec = NodesSpec()
    pods: PodsSpec = PodsSpec()
    daemon_sets: DaemonSetsSpec = DaemonSetsSpec()
    compatibility: list[Compatibility] | None = None


class ArchitectureStatus(msgspec.Struct, frozen=True, gc=False, rename="camel", omit_defaults=True):
    """``status.architectures[]``: the nodes of one architecture (TN-014)."""

    name: str = ""
    nodes: int = 0
    tainted: int = 0
    waiting: int = 0
    reason: str = ""


class NodesStatus(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    """``status.nodes`` (TN-014)."""

    managed: int = 0
    tainted: int = 0
    skipped: int = 0
    unknown: int = 0
    summary: str = ""
    """For the column: how many carry a taint, and how many are to carry one: ``2/2`` if primary nodes carry none."""


class PodsStatus(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    """``status.pods`` (TN-014)."""

    gated: int = 0
    unknown: int = 0
    blocked: int = 0


class BlockedTemplate(msgspec.Struct, frozen=True, gc=False, rename="camel", omit_defaults=True):
    """``status.blockedTemplates[]`` (TN-014)."""

    kind: str = ""
    namespace: str = ""
    name: str = ""
    architectures: list[str] | None = None
    reason: str = ""


class Condition(msgspec.Struct, frozen=True, gc=False, rename="camel", omit_defaults=True):
    """meta/v1 Condition."""

    type: str = ""
    status: str = ""
    reason: str = ""
    message: str = ""
    last_transition_time: str = ""
    observed_generation: int = 0


class ArchitectureTaintsStatus(msgspec.Struct, frozen=True, gc=False, rename="camel", omit_defaults=True):
    """TN-014."""

    observed_generation: int = 0
    key: str = ""
    """K, for the column: a preset's key is not in the spec."""
    architectures: list[ArchitectureStatus] | None = None
    nodes: NodesStatus = NodesStatus()
    pods: PodsStatus = PodsStatus()
    blocked_templates: list[BlockedTemplate] | None = None
    blocked_templates_total: int = 0
    conditions: list[Condition] | None = None


class ArchitectureTaints(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    """The configuration of taints for the cluster; a singleton named ``cluster`` (TN-010)."""

    metadata: ObjectMeta = ObjectMeta()
    spec: ArchitectureTaintsSpec = ArchitectureTaintsSpec()
    status: ArchitectureTaintsStatus = ArchitectureTaintsStatus()
