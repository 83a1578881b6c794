"""Reproduces results and messages of operator-sdk's ``multiarch`` validator, and answers operator-sdk itself.

Scripts search its output for words. This module prints them, false alarms included; native mode (``rules.bundle_run``)
is what agrees with a cluster, and the guide lists where the two differ on purpose. Here, platforms are those of an
image's *index* alone, labels are searched as texts, affinity is a product of values, and an image that cannot be
inspected has the platform ``error/error``.

The messages are word for word those of ``MultipleArchitecturesValidator`` in operator-framework/api 0.41
(Apache-2.0), typos included; only the cause of a failed inspection is ours. The tests hold recorded results of the
real validator.

Pure.
"""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

import msgspec

from polyarch.manifests.bundle import ARCHITECTURE_PREFIX, MANAGER, PROXY, SUPPORTED, SYSTEM_PREFIX
from polyarch.manifests.finding import Finding, Severity
from polyarch.manifests.operations import at, elements, mapping
from polyarch.manifests.scan.pod_specs import REQUIRED, TERMS
from polyarch.manifests.scan.sets import ARCHITECTURE_KEY, OS_KEY, ImageInspections
from polyarch.oci.inspection import Status

Level = Literal["error", "warning"]

CONTAINER_TOOLS = ("docker", "podman", "none")
NESTED_INDEX = "nested-index"
"""The inspection warning of an index of indexes, which the validator's tools cannot list."""
ERROR = "error"


class Output(msgspec.Struct, frozen=True):
    """One message; ``detail`` is worded as operator-sdk words it."""

    level: Level
    detail: str
    type: str = "ValidationFailed"


class Pair(NamedTuple):
    """A platform as the validator sees it."""

    os: str
    architecture: str

    def __str__(self) -> str:
        return f"{self.os}/{self.architecture}"


_FAILED = Pair(ERROR, ERROR)


def no_bundle(problem: str = "") -> Output:
    """V0a, without a bundle."""
    return Output("error", f"bundle is nil: {problem}" if problem else "bundle is nil", type="BundleNotValid")


def no_service_version() -> Output:
    """V0a, without a ClusterServiceVersion."""
    return Output("error", "bundle csv is nil", type="BundleNotValid")


def validate(
    service_version: Mapping[str, Any], answers: ImageInspections, *, container_tool: str = ""
) -> tuple[Output, ...]:
    """The validator's messages about a ClusterServiceVersion in its order: warnings, then errors.

    ``container_tool`` is checked, as the validator does, but otherwise ignored: nothing is pulled (V0b).
    """
    if container_tool and container_tool.lower() not in CONTAINER_TOOLS:
        return (
            Output(
                "error",
                f"invalid value (container-tools) for ({container_tool.lower()}). One of: [docker, podman, none] "
                "(If not set, the default value is docker)",
            ),
        )
    state = _State.of(service_version)
    for group in (state.managers, state.others, state.related):
        state.warnings += _inspect(group, answers)
    state.add_platforms_of_managers()
    _missing_labels(state)
    for group in (state.others, state.related):
        _missing_support(state, group)
    for group in (state.managers, state.others):
        _affinity(state, group)
    return (
        *(Output("warning", detail) for detail in state.warnings),
        *(Output("error", detail) for detail in _broken_promises(state)),
    )


Images = dict[str, list[Pair]]


@dataclass
class _State:
    """Data that the validator collects first: images by group in order of appearance, with their platforms."""

    architecture_keys: list[str]
    system_keys: list[str]
    managers: Images = field(default_factory=dict)
    others: Images = field(default_factory=dict)
    related: Images = field(default_factory=dict)
    affinity: dict[str, list[Pair]] = field(default_factory=dict)
    architectures: set[str] = field(default_factory=set)
    systems: set[str] = field(default_factory=set)
    warnings: list[str] = field(default_factory=list)

    @classmethod
    def of(cls, service_version: Mapping[str, Any]) -> "_State":
        labels = mapping(at(service_version, "metadata", "labels"))
        supported = [str(key) for key, value in labels.items() if value == SUPPORTED]
        state = cls(
            [key for key in supported if ARCHITECTURE_PREFIX in key], [key for key in supported if SYSTEM_PREFIX in key]
        )
        deployments = elements(at(service_version, "spec", "install", "spec", "deployments"))
        pod_specs = [mapping(at(each, "spec", "template", "spec")) for each in deployments]
        for pod_spec in pod_specs:
            state._add_managers(pod_spec)
        for pod_spec in pod_specs:
            for container in _mappings(pod_spec.get("containers")):
                if _text(container, "image") not in state.managers:
                    state.others[_text(container, "image")] = []
        for image in _mappings(at(service_version, "spec", "relatedImages")):
            state.related[_text(image, "image")] = []
        return state

    def _add_managers(self, pod_spec: Mapping[str, Any]) -> None:
        found = False
        containers = _mappings(pod_spec.get("containers"))
        for container in containers:
            image = _text(container, "image")
            if image in self.managers:
                continue
            if container.get("name") == MANAGER:
                self.managers[image] = []
                found = True
            self.affinity[image] = _pairs(pod_spec)
        if not found:
            for container in containers:
                if container.get("name") != PROXY:
                    self.managers.setdefault(_text(container, "image"), [])

    def add_platforms_of_managers(self) -> None:
        """The architectures and operating systems that the bundle is assumed to support: of labels and managers."""
        pairs = [pair for platforms in self.managers.values() for pair in platforms]
        self.architectures = {*self.labelled_architectures, *(pair.architecture for pair in pairs)}
        self.systems = {*self.labelled_systems, *(pair.os for pair in pairs)}

    @property
    def labelled_architectures(self) -> list[str]:
        return [key.replace(ARCHITECTURE_PREFIX, "") for key in self.architecture_keys] or ["amd64"]

    @property
    def labelled_systems(self) -> list[str]:
        return [key.replace(SYSTEM_PREFIX, "") for key in self.system_keys] or ["linux"]


def _pairs(pod_spec: Mapping[str, Any]) -> list[Pair]:
    """The platforms that node affinity names, term by term."""
    found: list[Pair] = []
    for term in _mappings(at(pod_spec, "affinity", "nodeAffinity", REQUIRED, TERMS)):
        last: dict[str, list[str]] = {}
        for expression in _mappings(term.get("matchExpressions")):
            if expression.get("operator") == "In":
                last[_text(expression, "key")] = [str(each) for each in elements(expression.get("values"))]
        found += [Pair(os, each) for os in last.get(OS_KEY, ()) for each in last.get(ARCHITECTURE_KEY, ())]
    return found


def _inspect(images: Images, answers: ImageInspections) -> Iterator[str]:
    """Fills in the platforms of a group; V1 for those without an answer."""
    for image, platforms in images.items():
        answer = answers.of(image)
        inspection = answer.inspection
        problem = ""
        if answer.reference is None:
            problem = answer.problem
        elif inspection is None:
            problem = "nobody was asked"
        elif inspection.status is Status.ERROR:
            problem = inspection.error.message if inspection.error is not None else ERROR
        elif any(warning.code == NESTED_INDEX for warning in inspection.warnings):
            problem = "it is an index of indexes"
        if problem:
            platforms.append(_FAILED)
            yield f"unable to inspect the image ({image}) : {problem}"
        elif inspection is not None and inspection.kind == "index":
            platforms += [Pair(each.os, each.architecture) for each in inspection.platforms]


def _missing_labels(state: _State) -> None:
    for names, keys, prefix, noun, default, more in (
        (state.architectures, state.architecture_keys, ARCHITECTURE_PREFIX, "Arch", "amd64", "amd64 architectures,"),
        (state.systems, state.system_keys, SYSTEM_PREFIX, "OS", "linux", "linux OS"),
    ):
        missing = [name for name in names if name != ERROR and not any(name in key for key in keys)]
        if missing and names != {default}:
            state.warnings.append(
                f"check if the CSV is missing the label ({prefix}<value>) for the {noun}(s): {_list(sorted(missing))}. "
                f"Be aware that your Operator manager image {_list(state.managers)} provides this support. "
                f"Thus, it is very likely that you want to provide it and if you support more than {more} you MUST,"
                "use the required labels for all which are supported."
                "Otherwise, your solution cannot be listed on the cluster for these architectures"
            )


def _missing_support(state: _State, images: Images) -> None:
    for image, platforms in images.items():
        if _FAILED in platforms:
            continue
        for names, has, noun in (
            (state.architectures, {pair.architecture for pair in platforms}, "Arch"),
            (state.systems, {pair.os for pair in platforms}, "OS"),
        ):
            lacking = sorted(names - has - {ERROR})
            if lacking:
                state.warnings.append(
                    f"check if the image {image} should not support {_list(lacking)}. "
                    f"Note that this CSV has labels for this {noun}(s) Your manager image {_list(state.managers)} are "
                    "providing this support OR the CSV is configured via labels to support it. Then, please verify if "
                    "this image should not support it"
                )


def _affinity(state: _State, images: Images) -> None:
    for image, platforms in images.items():
        pairs, name = state.affinity.get(image, []), _quoted(image)
        if not pairs:
            if _FAILED in platforms:
                state.warnings.append(
                    f"check if the CSV is missing a node affinity configuration for the image: {name}. "
                )
            state.warnings.append(
                f"check if the CSV has a missing or invalid node affinity configuration for the image: {name}. "
                f"The image data suggests the following platforms are supported: {_list(platforms)}"
            )
            continue
        extra = [pair for pair in pairs if pair not in platforms]
        if extra:
            state.warnings.append(
                f"the CSV includes {_list(extra)} in the node affinity configuration for the image: {name}, but the "
                f"image data suggests the following platforms are supported: {_list(platforms)}"
            )
        untold = [pair for pair in platforms if pair not in pairs]
        if untold:
            state.warnings.append(
                f"the image data indicates {_list(untold)} is supported for the image: {name}, but the node affinity "
                f"configuration for the image only specifies {_list(pairs)}"
            )


def _broken_promises(state: _State) -> Iterator[str]:
    pairs = {(os, each) for os in state.labelled_systems for each in state.labelled_architectures}
    for os, architecture in sorted(pairs, key=lambda pair: f"{pair[0]}.{pair[1]}"):
        lacking = sorted(
            image
            for group in (state.managers, state.others, state.related)
            for image, platforms in group.items()
            if _FAILED not in platforms and Pair(os, architecture) not in platforms
        )
        if lacking:
            yield (
                "not all images specified are providing the support described via the CSV labels. Note that "
                f"(OS.architecture): ({os}.{architecture}) was not found for the image(s) [{' '.join(lacking)}]"
            )


# Printing -------------------------------------------------------------------------------------------------------------


def line(output: Output, name: str) -> str:
    """A message as the validator prints it; ``name`` is that of the ClusterServiceVersion."""
    return f"{output.level.capitalize()}: Value {name}: {output.detail}"


def passed(outputs: Iterable[Output]) -> bool:
    return all(output.level != "error" for output in outputs)


def json_alpha1(messages: Iterable[tuple[str, str]], *, passed: bool) -> str:
    """The document that operator-sdk prints with ``-o json-alpha1``, from pairs of type and message.

    Character for character: Go's encoder escapes HTML, and messages contain ``<value>``. Without messages operator-sdk
    writes ``null``; here it is an empty list, which clients need not guard against.
    """
    outputs = [{"type": kind, "message": message} for kind, message in messages]
    text = json.dumps({"passed": passed, "outputs": outputs}, indent=4, ensure_ascii=False)
    return text.translate(_HTML)


_HTML = {ord(sign): f"\\u{ord(sign):04x}" for sign in "<>&\u2028\u2029"}


def _quoted(text: object) -> str:
    return json.dumps(str(text), ensure_ascii=False)


def _list(texts: Iterable[object]) -> str:
    return f"[{' '.join(map(_quoted, texts))}]"


def _mappings(value: object) -> list[Mapping[str, Any]]:
    """Every element, an empty mapping for what is none."""
    return [mapping(each) for each in elements(value)]


def _text(value: Mapping[str, Any], key: str) -> str:
    found = value.get(key)
    return "" if found is None else str(found)


# -- whether a typed reader would accept a ClusterServiceVersion, as far as the validator reads it ---------------------
# operator-sdk decodes the whole object into Go types before its validator runs, so a list in place of a mapping is an
# invalid bundle there and must not pass here. A missing or null member is fine, and every scalar is a string.


Shape = Any
"""A mapping of members (``EACH`` for all of them), a list with the shape of its elements, or ``TEXT``."""

TEXT = "text"
EACH = "*"

_EXPRESSION = {"key": TEXT, "operator": TEXT, "values": [TEXT]}
_POD_SPEC = {
    "containers": [{"name": TEXT, "image": TEXT}],
    "affinity": {"nodeAffinity": {REQUIRED: {TERMS: [{"matchExpressions": [_EXPRESSION]}]}}},
}
_SERVICE_VERSION = {
    "metadata": {"name": TEXT, "labels": {EACH: TEXT}},
    "spec": {
        "install": {"spec": {"deployments": [{"name": TEXT, "spec": {"template": {"spec": _POD_SPEC}}}]}},
        "relatedImages": [{"name": TEXT, "image": TEXT}],
    },
}


def misshapen(service_version: Mapping[str, Any]) -> str:
    """The first member of the wrong type, as a sentence; empty if there is none."""
    return _problem(service_version, _SERVICE_VERSION, "")


def _problem(value: object, shape: Shape, path: str) -> str:
    if value is None:
        return ""
    if isinstance(shape, dict):
        if not isinstance(value, Mapping):
            return f"{path} is not a mapping"
        named = ((key, shape.get(str(key), shape.get(EACH))) for key in value)
        below = ((value[key], each, f"{path}.{key}".lstrip(".")) for key, each in named if each is not None)
    elif isinstance(shape, list):
        if not isinstance(value, list):
            return f"{path} is not a list"
        below = ((each, shape[0], f"{path}[{index}]") for index, each in enumerate(value))
    else:
        return f"{path} is not a string" if isinstance(value, Mapping | list) else ""
    return next(filter(None, (_problem(*each) for each in below)), "")


# -- the answer to operator-sdk bundle validate --alpha-select-external ------------------------------------------------
# operator-sdk runs the program with the bundle's directory and strictly decodes one object from its stdout: the members
# are those of ``ManifestResult``, lists are never null, and there is no place for findings that are only information.


class Entry(msgspec.Struct, frozen=True):
    """One ``Error`` of operator-framework's ``ManifestResult``."""

    type: str
    level: str
    field: str
    bad_value: str
    detail: str

    def document(self) -> dict[str, str]:
        return {
            "Type": self.type,
            "Level": self.level,
            "Field": self.field,
            "BadValue": self.bad_value,
            "Detail": self.detail,
        }


def native_entries(findings: Iterable[Finding], name: str) -> list[Entry]:
    """Errors and warnings that count; ``name`` is the ClusterServiceVersion's."""
    return [
        Entry(
            type="ValidationFailed",
            level=finding.severity.value.capitalize(),
            field=finding.path,
            bad_value=name,
            detail=f"{finding.rule}: {finding.message}",
        )
        for finding in findings
        if finding.suppressed is None and finding.severity is not Severity.INFO
    ]


def compat_entries(outputs: Iterable[Output], name: str) -> list[Entry]:
    """The entries that the built-in validator would return."""
    return [
        Entry(type=each.type, level=each.level.capitalize(), field="", bad_value=name, detail=each.detail)
        for each in outputs
    ]


def invalid(problem: str, name: str) -> Entry:
    """A directory that is no bundle."""
    return Entry(type="BundleNotValid", level="Error", field="", bad_value=name, detail=problem)


def result(name: str, entries: Sequence[Entry]) -> str:
    """The one object; ends with a line break."""
    document = {
        "Name": name,
        "Errors": [each.document() for each in entries if each.level == "Error"],
        "Warnings": [each.document() for each in entries if each.level == "Warning"],
    }
    return json.dumps(document, ensure_ascii=False) + "\n"
