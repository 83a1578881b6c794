"""Which architectures' keys a change touches: those and no others are built again."""

from typing import Any

import msgspec
import pytest
from key_wishes import (
    ARCHITECTURES,
    DATA,
    PINS,
    SPEC,
    build_key,
    changed,
    effective,
    keys,
    rebuilt,
)

from polyarch.builds.facts.build_facts import InputData, MachineOSInputs, SecretFacts

pytestmark = pytest.mark.req("BD-075")

ALL = set(ARCHITECTURES)
COMMON = {"amd64", "arm64"}
TEXT = SPEC["source"]["containerfile"]
OVERRIDE = SPEC["source"]["overrides"][0]
SECRET = SPEC["source"]["secrets"][0]

SPEC_CHANGES: dict[str, tuple[str, Any, set[str]]] = {
    "order of maps": ("source.buildArgs", {"LEVEL": "2", "MODE": "fast"}, set()),
    "order of labels": ("output.labels", {"b": "2", "a": "1"}, set()),
    "strategy": ("strategy", "PreferNative", set()),
    "timeouts": ("timeouts.build", "9h", set()),
    "retries": ("retries", 9, set()),
    "scheduling": ("scheduling.maxParallel", 1, set()),
    "failFast": ("failFast", True, set()),
    "history": ("history.successful", 9, set()),
    "builder": ("builder.image", "quay.io/x/builder:1", set()),
    "profile": ("builder.securityProfile", "Rootless", set()),
    "preflight": ("baseImages.preflight", "Warn", set()),
    "policy": ("baseImages.policy", "Never", set()),
    "staging": ("output.stagingRepository", "registry.example.com/staging/app", set()),
    "archTags": ("output.archTags", "None", set()),
    "suspend": ("suspend", True, set()),
    "emulation": ("emulation.hosts", ["arm64"], set()),
    "tags": ("output.tags", ["latest"], set()),
    "text of one": (
        "source.overrides",
        [OVERRIDE | {"containerfile": "FROM busybox:1.36\nRUN other\n"}],
        {"s390x"},
    ),
    "arguments of one": (
        "source.overrides",
        [OVERRIDE, {"architecture": "arm64", "buildArgs": {"MODE": "slow"}}],
        {"arm64"},
    ),
    "common text": ("source.containerfile", f"{TEXT}USER 1\n", COMMON),
    "a comment": ("source.containerfile", f"# why\n{TEXT}", COMMON),
    "common argument": ("source.buildArgs", {"MODE": "fast", "LEVEL": "3"}, ALL),
    "override of another architecture": (
        "source.overrides",
        [OVERRIDE, {"architecture": "riscv64", "containerfile": "FROM other\n"}],
        set(),
    ),
    "override that says the same": (
        "source.overrides",
        [OVERRIDE, {"architecture": "arm64", "containerfile": TEXT, "buildArgs": {"MODE": "fast"}}],
        set(),
    ),
    "override by ConfigMap": (
        "source.overrides",
        [OVERRIDE, {"architecture": "arm64", "containerfileFrom": {"name": "texts"}}],
        set(),
    ),
    "line ends": ("source.containerfile", "\ufeffFROM busybox:1.36\r\nRUN true\r\n\r\n", set()),
    "target": ("source.target", "0", ALL),
    "format": ("output.format", "Docker", ALL),
    "labels": ("output.labels", {"a": "1"}, ALL),
    "timestamp": ("reproducible", {"enabled": True, "timestamp": 1}, ALL),
    "not reproducible": ("reproducible", {"enabled": False}, ALL),
    "no context": ("source.context", {"type": "None"}, ALL),
    "another context": (
        "source.context",
        {"type": "Image", "image": {"reference": f"registry.example.com/x@sha256:{64 * 'a'}"}},
        ALL,
    ),
    "ConfigMap with equal content": (
        "source.context",
        {"type": "ConfigMap", "configMap": {"name": "copy"}},
        set(),
    ),
    "name of a build secret": (
        "source.secrets",
        [SECRET | {"secret": {"name": "tokens", "key": "b"}}],
        set(),
    ),
    "id of a build secret": ("source.secrets", [SECRET | {"id": "other"}], ALL),
    "index": ("output.index", "Always", set()),
    "annotations": ("output.annotations", {"a": "b"}, set()),
    "attestations": ("output.attestations", "Keep", set()),
    "repository": ("output.repository", "registry.example.com/other/app", set()),
}


@pytest.mark.req("BD-100", "BD-105", "BD-110", "BD-113", "BD-114")
@pytest.mark.parametrize(("path", "value", "expected"), SPEC_CHANGES.values(), ids=SPEC_CHANGES)
def test_keys_that_a_change_of_the_spec_touches(path: str, value: Any, expected: set[str]) -> None:
    """The rows as far as keys decide them."""
    assert rebuilt(changed(SPEC, path, value)) == expected


@pytest.mark.req("BD-076", "BD-102", "BD-113", "BD-114")
@pytest.mark.parametrize(
    ("path", "value", "same"),
    [
        ("output.index", "Always", False),
        ("output.annotations", {"a": "b"}, False),
        ("output.attestations", "Keep", False),
        ("output.repository", "registry.example.com/other/app", False),
        ("output.format", "Docker", False),
        ("output.tags", ["latest"], True),
        ("output.attestations", "Drop", True),
        ("output.annotations", {}, True),
        ("output.repository", "REGISTRY.example.com/team/app", True),
        ("output.stagingRepository", "registry.example.com/staging/app", True),
        ("strategy", "Emulated", True),
    ],
)
def test_what_enters_the_build_key(path: str, value: Any, *, same: bool) -> None:
    """Tags do not, the options of the index and the repository do."""
    assert (build_key(changed(SPEC, path, value), keys()) == build_key(SPEC, keys())) is same


@pytest.mark.req("BD-076")
def test_order_and_set_of_architectures() -> None:
    found = keys()
    assert build_key(found=dict(reversed(found.items()))) == build_key(found=found)
    assert build_key(found={each: found[each] for each in COMMON}) != build_key(found=found)


@pytest.mark.req("BD-100")
def test_order_of_overrides() -> None:
    more = [OVERRIDE, {"architecture": "arm64", "buildArgs": {"MODE": "slow"}}]
    assert keys(changed(SPEC, "source.overrides", more)) == keys(changed(SPEC, "source.overrides", more[::-1]))


@pytest.mark.req("BD-105")
def test_unused_overrides_are_named() -> None:
    spec = changed(SPEC, "source.overrides", [OVERRIDE, {"architecture": "riscv64", "containerfile": "FROM x\n"}])
    assert effective(spec).unused_overrides == ("riscv64",)
    assert effective().unused_overrides == ()


@pytest.mark.req("BD-072", "BD-109")
@pytest.mark.parametrize(
    ("git", "expected"),
    [
        ({"url": "https://other.example.com/x", "commit": 40 * "a", "directory": "sub"}, set()),
        ({"url": "https://x", "commit": 40 * "a", "directory": "sub", "credentials": {"name": "c"}}, set()),
        ({"url": "https://x", "commit": 40 * "b", "directory": "sub"}, ALL),
        ({"url": "https://x", "commit": 40 * "a"}, ALL),
    ],
)
def test_git_by_commit_and_directory(git: dict[str, Any], expected: set[str]) -> None:
    """The URL and its credentials are not inputs, commit and directory are."""
    before = {"type": "Git", "git": {"url": "https://x", "commit": 40 * "a", "directory": "sub"}}
    first = keys(changed(SPEC, "source.context", before))
    second = keys(changed(SPEC, "source.context", {"type": "Git", "git": git}))
    assert {each for each in ARCHITECTURES if first[each] != second[each]} == expected


@pytest.mark.req("BD-072", "BD-108")
def test_content_of_the_context() -> None:
    """A changed file of the ConfigMap is a changed context."""
    maps = {**DATA.config_maps, "context": {"data": {"x": "2", "y": "2"}, "binaryData": {"z": "AA=="}}}
    assert rebuilt(SPEC, msgspec.structs.replace(DATA, config_maps=maps)) == ALL


@pytest.mark.req("BD-073", "BD-110")
@pytest.mark.parametrize(("asked", "expected"), [(False, set()), (True, ALL)])
def test_data_of_a_build_secret(asked: bool, expected: set[str]) -> None:
    """Rotating a credential rebuilds nothing unless asked for."""
    spec = changed(SPEC, "source.secrets", [SECRET | {"rebuildOnChange": asked}])
    rotated = SecretFacts(type="Opaque", keys=frozenset({"a", "b"}), fingerprints={"a": "99", "b": "22"})
    before, after = keys(spec), keys(spec, msgspec.structs.replace(DATA, secrets={"tokens": rotated}))
    assert {each for each in ARCHITECTURES if before[each] != after[each]} == expected


@pytest.mark.req("BD-111", "BD-112")
def test_a_base_that_moved_for_one() -> None:
    """Only the child's digest counts, and an architecture without pin is its own case."""
    moved = {**PINS, "arm64": {"docker.io/library/busybox:1.36": f"sha256:{64 * 'f'}"}}
    assert rebuilt(SPEC, pins=moved) == {"arm64"}
    assert rebuilt(SPEC, pins={**PINS, "amd64": {}}) == {"amd64"}


@pytest.mark.req("BD-071")
def test_substitutes_count_by_digest() -> None:
    """The base keeps the name that the Containerfile has; what is pulled for it is another reference."""
    spec = changed(SPEC, "baseImages.substitute", [{"from": "busybox:1.36", "to": "mirror.example.com/busybox:1"}])
    (base,) = effective(spec).per_architecture["arm64"].bases
    assert (base.name, base.pull) == ("docker.io/library/busybox:1.36", "mirror.example.com/busybox:1")
    assert rebuilt(spec) == set()


MACHINE = MachineOSInputs(
    os_image=f"quay.io/os@sha256:{64 * '1'}",
    extensions_image=f"quay.io/ext@sha256:{64 * '2'}",
    kernel_type="realtime",
    extensions=("usbguard", "kerberos"),
    kernel_arguments=("a=1", "b=2"),
    trust="aa",
    entitlements=("etc-pki-entitlement",),
)
MACHINE_CHANGES: dict[str, tuple[dict[str, Any], set[str]]] = {
    "nothing": ({}, set()),
    "kernelType": ({"kernel_type": ""}, ALL),
    "an extension": ({"extensions": ("usbguard",)}, ALL),
    "order of extensions": ({"extensions": ("kerberos", "usbguard", "usbguard")}, set()),
    "kernel arguments": ({"kernel_arguments": ("a=1",)}, ALL),
    "order of kernel arguments": ({"kernel_arguments": ("b=2", "a=1")}, ALL),
    "trust bundle": ({"trust": "bb"}, ALL),
    "entitlement": ({"entitlements": ()}, ALL),
    "the same children under another reference": ({"os_image": f"quay.io/other@sha256:{64 * '1'}"}, set()),
}


@pytest.mark.req("BD-074", "BD-129", "BD-130", "BD-131")
@pytest.mark.parametrize(("members", "expected"), MACHINE_CHANGES.values(), ids=MACHINE_CHANGES)
def test_inputs_of_a_machine_os(members: dict[str, Any], expected: set[str]) -> None:
    """Order of kernel arguments counts, order of extensions does not."""
    images = {MACHINE.os_image: "sha256:os", MACHINE.extensions_image: "sha256:ext"}
    machine = msgspec.structs.replace(MACHINE, **members)
    pins = {each: {**PINS[each], **images, machine.os_image: "sha256:os"} for each in ARCHITECTURES}
    before, after = keys(machine=MACHINE, pins=pins), keys(machine=machine, pins=pins)
    assert {each for each in ARCHITECTURES if before[each] != after[each]} == expected


@pytest.mark.req("BD-131")
def test_os_image_of_one_architecture() -> None:
    """Those are built again whose child of the OS image differs."""
    pins = {each: {**PINS[each], MACHINE.os_image: "sha256:os"} for each in ARCHITECTURES}
    moved = {**pins, "arm64": {**pins["arm64"], MACHINE.os_image: "sha256:new"}}
    before, after = keys(machine=MACHINE, pins=pins), keys(machine=MACHINE, pins=moved)
    assert {each for each in ARCHITECTURES if before[each] != after[each]} == {"arm64"}


@pytest.mark.req("BD-074")
def test_default_kernel_is_none() -> None:
    """``default`` and nothing are the same kernel, and empty members are left out."""
    empty, default = MachineOSInputs(), MachineOSInputs(kernel_type="default")
    assert keys(machine=empty) == keys(machine=default)


def test_keys_need_no_objects_that_are_not_named() -> None:
    """Facts about objects that the spec does not name change nothing."""
    more = InputData(
        config_maps={**DATA.config_maps, "other": {"data": {"x": "y"}}},
        secrets={**DATA.secrets, "other": None},
    )
    assert rebuilt(SPEC, more) == set()
