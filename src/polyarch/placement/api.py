"""The custom resources of placement, the conversion between their versions, and what the leader tells the operator.

ClusterPodPlacementConfig, PodPlacementConfig and ENoExecEvent are of the predecessor's group, PlacementPolicy is ours.
Decoding is tolerant: objects that an older schema accepted decode here, and ``settings`` reports their invalid values.
The schemas are in ``crd``. Pure.
"""

from collections.abc import Mapping
from typing import Annotated, Any, Final, Literal, NamedTuple, get_args

import msgspec

from polyarch.kube.resources import Resource
from polyarch.objects import ObjectMeta
from polyarch.placement.names import FALLBACK_ANNOTATION, GROUP, OWN_GROUP, PLUGINS_ANNOTATION
from polyarch.selectors import LabelSelector

CPPCS: Final = Resource(GROUP, "v1beta1", "clusterpodplacementconfigs", "ClusterPodPlacementConfig", namespaced=False)
PPCS: Final = Resource(GROUP, "v1beta1", "podplacementconfigs", "PodPlacementConfig")
ENOEXECEVENTS: Final = Resource(GROUP, "v1beta1", "enoexecevents", "ENoExecEvent")
POLICIES: Final = Resource(OWN_GROUP, "v1alpha1", "placementpolicies", "PlacementPolicy", namespaced=False)

ScoringArchitecture = Literal["arm64", "amd64", "ppc64le", "s390x"]
WEIGHTS: Final = (1, 100)
"""Lowest and highest weight of a preference."""
FallbackArchitecture = Literal[ScoringArchitecture, ""]
LogVerbosity = Literal["Normal", "Debug", "Trace", "TraceAll"]


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
        """The entries of ``spec.overrides``: settings for the namespaces that a selector matches. What an older schema
        may have let in that is no entry at all is left out."""
        entries = self.spec.get("overrides")
        return [entry for entry in entries if isinstance(entry, dict)] if isinstance(entries, list) else []


def override_name(entry: Mapping[str, Any]) -> str:
    """The name of an entry of ``spec.overrides``; empty if it has none."""
    name = entry.get("name")
    return name if isinstance(name, str) else ""


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


# -- conversion --------------------------------------------------------------------------------------------------------
# Lossless conversion of ClusterPodPlacementConfig between v1alpha1 and v1beta1. v1alpha1 has neither ``spec.plugins``
# nor ``spec.fallbackArchitecture``: there they are annotations, so clients that read and write v1alpha1 preserve them.
# All other fields, including unknown ones, stay unchanged. For objects as the API server stores them (v1beta1 has a
# default for ``fallbackArchitecture``) and annotations as we write them, both round trips are identities.
#
# A client that creates an object through v1alpha1 may write anything into the annotations. A value that v1beta1 does
# not allow is not converted: the annotation stays, and :func:`conversion_problems` describes the error. Documents in,
# documents out, none of them changed in place.

V1ALPHA1: Final = f"{CPPCS.group}/v1alpha1"
V1BETA1: Final = CPPCS.api_version
PLUGINS: Final = "plugins"
FALLBACK: Final = "fallbackArchitecture"

Document = dict[str, Any]

_write = msgspec.json.Encoder(order="sorted").encode


def to_v1alpha1(config: Mapping[str, Any]) -> Document:
    """Converts a v1beta1 object to v1alpha1."""
    spec = dict(config.get("spec") or {})
    annotations = _annotations(config)
    if fallback := spec.pop(FALLBACK, ""):
        annotations[FALLBACK_ANNOTATION] = fallback
    if (plugins := spec.pop(PLUGINS, None)) is not None:
        annotations[PLUGINS_ANNOTATION] = _write(plugins).decode()
    return _with(config, V1ALPHA1, spec, annotations)


def to_v1beta1(config: Mapping[str, Any]) -> Document:
    """Converts a v1alpha1 object to v1beta1; invalid annotations stay (see :func:`conversion_problems`)."""
    spec = dict(config.get("spec") or {})
    annotations = _annotations(config)
    fallback, plugins = annotations.get(FALLBACK_ANNOTATION), annotations.get(PLUGINS_ANNOTATION)
    if fallback is not None and not _fallback_problem(fallback):
        spec[FALLBACK] = annotations.pop(FALLBACK_ANNOTATION)
    elif "spec" in config:
        spec.setdefault(FALLBACK, "")
    if plugins is not None and not _plugins_problem(plugins):
        spec[PLUGINS] = msgspec.json.decode(annotations.pop(PLUGINS_ANNOTATION))
    return _with(config, V1BETA1, spec, annotations)


def conversion_problems(config: Mapping[str, Any]) -> tuple[str, ...]:
    """Errors in the annotations of a v1beta1 object that were not converted, for the condition ``Degraded``."""
    annotations = _annotations(config)
    found = []
    for key, problem_of in ((FALLBACK_ANNOTATION, _fallback_problem), (PLUGINS_ANNOTATION, _plugins_problem)):
        if (text := annotations.get(key)) is not None and (problem := problem_of(text)):
            found.append(f"annotation {key} is ignored: {problem}; set the field in v1beta1 and remove the annotation")
    return tuple(found)


def annotations_to_keep(old: Mapping[str, Any], new: Mapping[str, Any]) -> dict[str, str]:
    """Annotations that an UPDATE through v1alpha1 dropped and that must be restored: a client that does not know them
    must not switch plugins off. Both objects are v1alpha1; the values can be removed through v1beta1 only."""
    before, after = _annotations(old), _annotations(new)
    return {key: before[key] for key in (FALLBACK_ANNOTATION, PLUGINS_ANNOTATION) if key in before.keys() - after}


def _annotations(config: Mapping[str, Any]) -> dict[str, str]:
    return dict((config.get("metadata") or {}).get("annotations") or {})


def _with(config: Mapping[str, Any], version: str, spec: Document, annotations: dict[str, str]) -> Document:
    """A copy with this version, spec and annotations; empty ones are not added to an object that has none."""
    changed: Document = {**config, "apiVersion": version}
    if spec or "spec" in config:
        changed["spec"] = spec
    if annotations != _annotations(config):
        metadata = {**(config.get("metadata") or {}), "annotations": annotations}
        if not annotations:
            del metadata["annotations"]
        changed["metadata"] = metadata
    return changed


def _fallback_problem(text: str) -> str:
    allowed = [each for each in get_args(FallbackArchitecture) if each]
    return "" if text in allowed else f"{text[:40]!r} is none of {', '.join(allowed)}"


class _Platform(msgspec.Struct):
    architecture: ScoringArchitecture
    weight: Annotated[int, msgspec.Meta(ge=WEIGHTS[0], le=WEIGHTS[1])]


class _Scoring(msgspec.Struct):
    enabled: bool
    platforms: Annotated[list[_Platform], msgspec.Meta(min_length=1)]


class _Monitor(msgspec.Struct):
    enabled: bool


class _Plugins(msgspec.Struct, rename="camel"):
    """``spec.plugins`` with the schema of v1beta1, which the API server does not apply to an annotation."""

    node_affinity_scoring: _Scoring | msgspec.UnsetType = msgspec.UNSET
    exec_format_error_monitor: _Monitor | msgspec.UnsetType = msgspec.UNSET


def _plugins_problem(text: str) -> str:
    try:
        plugins = msgspec.json.decode(text, type=_Plugins)
    except (msgspec.MsgspecError, RecursionError) as error:
        return f"it is not the JSON of spec.plugins: {error}"
    scoring = plugins.node_affinity_scoring
    listed = [each.architecture for each in scoring.platforms] if isinstance(scoring, _Scoring) else []
    twice = next((each for each in listed if listed.count(each) > 1), None)
    return f"nodeAffinityScoring.platforms has {twice} twice" if twice is not None else ""
