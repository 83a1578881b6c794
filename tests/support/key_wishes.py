"""A wish with two texts, and what it is made of, for tests of keys."""

from collections.abc import Mapping
from typing import Any

import msgspec

from polyarch.builds.api.resources import ImageBuildSpec
from polyarch.builds.facts.build_facts import BuildRequest, InputData, MachineOSInputs, SecretFacts
from polyarch.builds.keys import BuildInputs, arch_key_document, build_key_document, effective_inputs

ARCHITECTURES = ("amd64", "arm64", "s390x")
SPEC: Mapping[str, Any] = {
    "source": {
        "containerfile": "FROM busybox:1.36\nRUN true\n",
        "overrides": [{"architecture": "s390x", "containerfile": "FROM busybox:1.36\nRUN special\n"}],
        "buildArgs": {"MODE": "fast", "LEVEL": "2"},
        "context": {"type": "ConfigMap", "configMap": {"name": "context"}},
        "secrets": [{"id": "token", "secret": {"name": "tokens", "key": "a"}}],
    },
    "output": {"repository": "registry.example.com/team/app", "labels": {"a": "1", "b": "2"}},
}
DATA = InputData(
    config_maps={
        "context": {"data": {"x": "1", "y": "2"}, "binaryData": {"z": "AA=="}},
        "copy": {"data": {"y": "2", "x": "1"}, "binaryData": {"z": "AA=="}},
        "texts": {"data": {"Containerfile": "FROM busybox:1.36\nRUN true\n"}},
    },
    secrets={"tokens": SecretFacts(type="Opaque", keys=frozenset({"a", "b"}), fingerprints={"a": "11", "b": "22"})},
)
PINS = {A: {"docker.io/library/busybox:1.36": f"sha256:{index:064x}"} for index, A in enumerate(ARCHITECTURES)}


def wish(spec: Mapping[str, Any] = SPEC, *, machine: MachineOSInputs | None = None) -> BuildRequest:
    return BuildRequest(
        kind="MachineOSConfig" if machine is not None else "ImageBuild",
        namespace="ns",
        name="web",
        uid="u1",
        generation=1,
        spec=msgspec.convert(spec, ImageBuildSpec),
        machine=machine,
    )


def changed(spec: Mapping[str, Any], path: str, value: Any) -> dict[str, Any]:
    """The spec with one member replaced; None takes it out."""
    first, _, rest = path.partition(".")
    members = dict(spec)
    members[first] = changed(members.get(first) or {}, rest, value) if rest else value
    return {name: member for name, member in members.items() if member is not None}


def keys(
    spec: Mapping[str, Any] = SPEC,
    data: InputData = DATA,
    *,
    pins: Mapping[str, Mapping[str, str]] = PINS,
    machine: MachineOSInputs | None = None,
) -> dict[str, str]:
    """Architecture → key; the inputs have to be right."""
    found = effective(spec, data, machine=machine)
    assert found.errors == ()
    return {each: arch_key_document(found, each, pins.get(each, {})).hex for each in ARCHITECTURES}


def effective(
    spec: Mapping[str, Any] = SPEC, data: InputData = DATA, *, machine: MachineOSInputs | None = None
) -> BuildInputs:
    return effective_inputs(wish(spec, machine=machine), data, ARCHITECTURES)


def build_key(spec: Mapping[str, Any] = SPEC, found: Mapping[str, str] | None = None) -> str:
    return build_key_document(msgspec.convert(spec, ImageBuildSpec).output, found or keys(spec)).hex


def rebuilt(spec: Mapping[str, Any], data: InputData = DATA, **others: Any) -> set[str]:
    """The architectures whose key is not the one of ``SPEC``."""
    before, after = keys(), keys(spec, data, **others)
    return {each for each in ARCHITECTURES if before[each] != after[each]}
