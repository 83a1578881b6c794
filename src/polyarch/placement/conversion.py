"""Lossless conversion of ClusterPodPlacementConfig between v1alpha1 and v1beta1.

v1alpha1 has neither ``spec.plugins`` nor ``spec.fallbackArchitecture``. In v1alpha1 they are annotations, so clients
that read and write v1alpha1 preserve them. All other fields, including unknown ones, stay unchanged. For objects as the
API server stores them (v1beta1 has a default for ``fallbackArchitecture``) and annotations as we write them, both round
trips are identities.

A client that creates an object through v1alpha1 may write anything into the annotations. A value that v1beta1 does not
allow is not converted: the annotation stays, and :func:`problems` describes the error. Pure: documents in, documents
out, none of them changed in place."""

from collections.abc import Mapping
from typing import Annotated, Any, Final, get_args

import msgspec

from polyarch.placement.api import CPPCS
from polyarch.placement.names import FALLBACK_ANNOTATION, PLUGINS_ANNOTATION
from polyarch.placement.settings import WEIGHTS, FallbackArchitecture, ScoringArchitecture

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
    """Converts a v1alpha1 object to v1beta1; invalid annotations stay (see :func:`problems`)."""
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
