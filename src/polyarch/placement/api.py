"""The custom resources of placement, and what its leader tells the operator.

ClusterPodPlacementConfig, PodPlacementConfig and ENoExecEvent are of the predecessor's group, PlacementPolicy is ours.
Decoding is tolerant: objects that an older schema accepted decode here, and ``settings`` reports their invalid values.
The schemas are in ``crd``.
"""

from collections.abc import Mapping
from typing import Any, Final, NamedTuple

import msgspec

from polyarch.kube.resources import Resource
from polyarch.objects import ObjectMeta
from polyarch.placement.names import GROUP, OWN_GROUP
from polyarch.selectors import LabelSelector

CPPCS: Final = Resource(GROUP, "v1beta1", "clusterpodplacementconfigs", "ClusterPodPlacementConfig", namespaced=False)
PPCS: Final = Resource(GROUP, "v1beta1", "podplacementconfigs", "PodPlacementConfig")
ENOEXECEVENTS: Final = Resource(GROUP, "v1beta1", "enoexecevents", "ENoExecEvent")
POLICIES: Final = Resource(OWN_GROUP, "v1alpha1", "placementpolicies", "PlacementPolicy", namespaced=False)


class Condition(msgspec.Struct, frozen=True, gc=False, rename="camel", omit_defaults=True):
    """meta/v1 Condition."""

    type: str = ""
    status: str = ""
    reason: str = ""
    message: str = ""
    last_transition_time: str = ""
    observed_generation: int = 0


class ScoringPlatform(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    """One soft preference: an architecture and its weight."""

    architecture: str = ""
    weight: int = 0


class NodeAffinityScoring(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    """``plugins.nodeAffinityScoring``."""

    enabled: bool = False
    platforms: list[ScoringPlatform] | None = None


class ExecFormatErrorMonitor(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    """``plugins.execFormatErrorMonitor``."""

    enabled: bool = False


class Plugins(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    """``plugins`` of a CPPC; a PPC has only ``nodeAffinityScoring``."""

    node_affinity_scoring: NodeAffinityScoring | None = None
    exec_format_error_monitor: ExecFormatErrorMonitor | None = None


class ClusterPodPlacementConfigSpec(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    log_verbosity: str = "Normal"
    namespace_selector: LabelSelector | None = None
    plugins: Plugins | None = None
    fallback_architecture: str = ""


class ConditionsStatus(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    """A status that consists of conditions."""

    conditions: list[Condition] | None = None


class ClusterPodPlacementConfig(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    """Enables placement for the cluster; a singleton named ``cluster``."""

    metadata: ObjectMeta = ObjectMeta()
    spec: ClusterPodPlacementConfigSpec = ClusterPodPlacementConfigSpec()
    status: ConditionsStatus | None = None


class PodPlacementConfigSpec(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    label_selector: LabelSelector | None = None
    plugins: Plugins | None = None
    priority: int = 0


class PodPlacementConfig(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    """Soft preferences for some pods of one namespace."""

    metadata: ObjectMeta = ObjectMeta()
    spec: PodPlacementConfigSpec = PodPlacementConfigSpec()
    status: ConditionsStatus | None = None


class ENoExecEventStatus(msgspec.Struct, frozen=True, gc=False, rename={"container_id": "containerID"}):
    node_name: str = msgspec.field(default="", name="nodeName")
    pod_name: str = msgspec.field(default="", name="podName")
    pod_namespace: str = msgspec.field(default="", name="podNamespace")
    container_id: str = ""


class ENoExecEvent(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    """Sent from the node agent of the exec-format-error monitor to its controller."""

    metadata: ObjectMeta = ObjectMeta()
    status: ENoExecEventStatus | None = None


class PlacementPolicy(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    """Settings that the predecessor lacks: modes, retry windows, exclusions, overrides. Optional, named ``cluster``.

    ``spec`` stays JSON: the fields are declared in ``settings``, each once.
    """

    metadata: ObjectMeta = ObjectMeta()
    spec: dict[str, Any] = {}

    @property
    def overrides(self) -> list[dict[str, Any]]:
        """The entries of ``spec.overrides``: settings for the namespaces that a selector matches."""
        return self.spec.get("overrides") or []


# -- annotations of the leader's Lease ---------------------------------------------------------------------------------
# The controllers' leader tells the operator what only it knows. Annotations travel with the Lease's renewals, which are
# written anyway, so telling costs no request.

HELD_PODS_ANNOTATION: Final = f"{OWN_GROUP}/held-pods"
UNPLACED_PODS_ANNOTATION: Final = f"{OWN_GROUP}/unplaced-pods"
LEFT_OUT_ANNOTATION: Final = f"{OWN_GROUP}/left-out"


class LeaderNotes(NamedTuple):
    """Counts of pods, and facts that decisions are made without: a sentence by resource."""

    held: int = 0
    unplaced: int = 0
    left_out: Mapping[str, str] = {}

    def annotations(self) -> dict[str, str]:
        """Empty values take an annotation away."""
        left_out = msgspec.json.encode(self.left_out, order="sorted").decode() if self.left_out else ""
        return {
            HELD_PODS_ANNOTATION: str(self.held),
            UNPLACED_PODS_ANNOTATION: str(self.unplaced),
            LEFT_OUT_ANNOTATION: left_out,
        }

    @classmethod
    def of(cls, annotations: Mapping[str, str] | None) -> "LeaderNotes":
        """What is unreadable or absent counts as nothing told."""
        found = annotations or {}
        try:
            left_out = msgspec.json.decode(found.get(LEFT_OUT_ANNOTATION) or "{}", type=dict[str, str])
        except msgspec.MsgspecError:
            left_out = {}
        return cls(
            _count(found.get(HELD_PODS_ANNOTATION, "")), _count(found.get(UNPLACED_PODS_ANNOTATION, "")), left_out
        )


def _count(text: str) -> int:
    return int(text) if text.isascii() and text.isdecimal() else 0
