"""Which architectures' keys a change touches: those and no others are built again (BD-100 to BD-110, BD-130)."""

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

ALL = set(ARCHITECTURES)
COMMON = {"amd64", "arm64"}
TEXT = SPEC["source"]["containerfile"]
OVERRIDE = SPEC["source"]["overrides"][0]
SECRET = SPEC["source"]["secrets"][0]

SPEC_CHANGES: dict[str, tuple[str, Any, set[str]]] = {
    "BD-100 order of maps": ("source.buildArgs", {"LEVEL": "2", "MODE": "fast"}, set()),
    "BD-100 order of labels": ("output.labels", {"b": "2", "a": "1"}, set()),
    "BD-101 strategy": ("strategy", "PreferNative", set()),
    "BD-101 timeouts": ("timeouts.build", "9h", set()),
    "BD-101 retries": ("retries", 9, set()),
    "BD-101 scheduling": ("scheduling.maxParallel", 1, set()),
    "BD-101 failFast": ("failFast", True, set()),
    "BD-101 history": ("history.successful", 9, set()),
    "BD-101 builder": ("builder.image", "quay.io/x/builder:1", set()),
    "BD-101 profile": ("builder.securityProfile", "Rootless", set()),
    "BD-101 preflight": ("baseImages.preflight", "Warn", set()),
    "BD-101 policy": ("baseImages.policy", "Never", set()),
    "BD-101 staging": ("output.stagingRepository", "registry.example.com/staging/app", set()),
    "BD-101 archTags": ("output.archTags", "None", set()),
    "BD-101 suspend": ("suspend", True, set()),
    "BD-101 emulation": ("emulation.hosts", ["arm64"], set()),
    "BD-102 tags": ("output.tags", ["latest"], set()),
    "BD-103 text of one": (
        "source.overrides",
        [OVERRIDE | {"containerfile": "FROM busybox:1.36\nRUN other\n"}],
        {"s390x"},
    ),
    "BD-103 arguments of one": (
        "source.overrides",
        [OVERRIDE, {"architecture": "arm64", "buildArgs": {"MODE": "slow"}}],
        {"arm64"},
    ),
    "BD-104 common text": ("source.containerfile", f"{TEXT}USER 1\n", COMMON),
    "BD-104 a comment": ("source.containerfile", f"# why\n{TEXT}", COMMON),
    "BD-104 common argument": ("source.buildArgs", {"MODE": "fast", "LEVEL": "3"}, ALL),
    "BD-105 override of another architecture": (
        "source.overrides",
        [OVERRIDE, {"architecture": "riscv64", "containerfile": "FROM other\n"}],
        set(),
    ),
    "BD-106 override that says the same": (
        "source.overrides",
        [OVERRIDE, {"architecture": "arm64", "containerfile": TEXT, "buildArgs": {"MODE": "fast"}}],
        set(),
    ),
    "BD-106 override by ConfigMap": (
        "source.overrides",
        [OVERRIDE, {"architecture": "arm64", "containerfileFrom": {"name": "texts"}}],
        set(),
    ),
    "BD-107 line ends": ("source.containerfile", "\ufeffFROM busybox:1.36\r\nRUN true\r\n\r\n", set()),
    "BD-108 target": ("source.target", "0", ALL),
    "BD-108 format": ("output.format", "Docker", ALL),
    "BD-108 labels": ("output.labels", {"a": "1"}, ALL),
    "BD-108 timestamp": ("reproducible", {"enabled": True, "timestamp": 1}, ALL),
    "BD-108 not reproducible": ("reproducible", {"enabled": False}, ALL),
    "BD-108 no context": ("source.context", {"type": "None"}, ALL),
    "BD-108 another context": (
        "source.context",
        {"type": "Image", "image": {"reference": f"registry.example.com/x@sha256:{64 * 'a'}"}},
        ALL,
    ),
    "BD-109 ConfigMap with equal content": (
        "source.context",
        {"type": "ConfigMap", "configMap": {"name": "copy"}},
        set(),
    ),
    "BD-075 name of a build secret": (
        "source.secrets",
        [SECRET | {"secret": {"name": "tokens", "key": "b"}}],
        set(),
    ),
    "BD-073 id of a build secret": ("source.secrets", [SECRET | {"id": "other"}], ALL),
    "BD-113 index": ("output.index", "Always", set()),
    "BD-113 annotations": ("output.annotations", {"a": "b"}, set()),
    "BD-113 attestations": ("output.attestations", "Keep", set()),
    "BD-114 repository": ("output.repository", "registry.example.com/other/app", set()),
}


@pytest.mark.parametrize(("path", "value", "expected"), SPEC_CHANGES.values(), ids=SPEC_CHANGES)
def test_keys_that_a_change_of_the_spec_touches(path: str, value: Any, expected: set[str]) -> None:
    """BD-100 to BD-110, BD-113, BD-114: the rows as far as keys decide them."""
    assert rebuilt(changed(SPEC, path, value)) == expected


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
def test_bd_076_what_enters_the_build_key(path: str, value: Any, *, same: bool) -> None:
    """BD-076, BD-102, BD-113, BD-114: tags do not, the options of the index and the repository do."""
    assert (build_key(changed(SPEC, path, value), keys()) == build_key(SPEC, keys())) is same


def test_bd_076_order_and_set_of_architectures() -> None:
    found = keys()
    assert build_key(found=dict(reversed(found.items()))) == build_key(found=found)
    assert build_key(found={each: found[each] for each in COMMON}) != build_key(found=found)


def test_bd_100_order_of_overrides() -> None:
    more = [OVERRIDE, {"architecture": "arm64", "buildArgs": {"MODE": "slow"}}]
    assert keys(changed(SPEC, "source.overrides", more)) == keys(changed(SPEC, "source.overrides", more[::-1]))


def test_bd_105_unused_overrides_are_named() -> None:
    spec = changed(SPEC, "source.overrides", [OVERRIDE, {"architecture": "riscv64", "containerfile": "FROM x\n"}])
    assert effective(spec).unused_overrides == ("riscv64",)
    assert effective().unused_overrides == ()


@pytest.mark.parametrize(
    ("git", "expected"),
    [
        ({"url": "https://other.example.com/x", "commit": 40 * "a", "directory": "sub"}, set()),
        ({"url": "https://x", "commit": 40 * "a", "directory": "sub", "credentials": {"name": "c"}}, set()),
        ({"url": "https://x", "commit": 40 * "b", "directory": "sub"}, ALL),
        ({"url": "https://x", "commit": 40 * "a"}, ALL),
    ],
)
def test_bd_109_git_by_commit_and_directory(git: dict[str, Any], expected: set[str]) -> None:
    """BD-072, BD-109: the URL and its credentials are not inputs, commit and directory are."""
    before = {"type": "Git", "git": {"url": "https://x", "commit": 40 * "a", "directory": "sub"}}
    first = keys(changed(SPEC, "source.context", before))
    second = keys(changed(SPEC, "source.context", {"type": "Git", "git": git}))
    assert {each for each in ARCHITECTURES if first[each] != second[each]} == expected


def test_bd_108_content_of_the_context() -> None:
    """BD-072, BD-108: a changed file of the ConfigMap is a changed context."""
    maps = {**DATA.config_maps, "context": {"data": {"x": "2", "y": "2"}, "binaryData": {"z": "AA=="}}}
    assert rebuilt(SPEC, msgspec.structs.replace(DATA, config_maps=maps)) == ALL


@pytest.mark.parametrize(("asked", "expected"), [(False, set()), (True, ALL)])
def test_bd_110_data_of_a_build_secret(asked: bool, expected: set[str]) -> None:
    """BD-073, BD-110: rotating a credential rebuilds nothing unless asked for."""
    spec = changed(SPEC, "source.secrets", [SECRET | {"rebuildOnChange": asked}])
    rotated = SecretFacts(type="Opaque", keys=frozenset({"a", "b"}), fingerprints={"a": "99", "b": "22"})
    before, after = keys(spec), keys(spec, msgspec.structs.replace(DATA, secrets={"tokens": rotated}))
    assert {each for each in ARCHITECTURES if before[each] != after[each]} == expected


def test_bd_111_a_base_that_moved_for_one() -> None:
    """BD-111, BD-112: only the child's digest counts, and an architecture without pin is its own case."""
    moved = {**PINS, "arm64": {"docker.io/library/busybox:1.36": f"sha256:{64 * 'f'}"}}
    assert rebuilt(SPEC, pins=moved) == {"arm64"}
    assert rebuilt(SPEC, pins={**PINS, "amd64": {}}) == {"amd64"}


def test_substitutes_count_by_digest() -> None:
    """BD-071: the base keeps the name that the Containerfile has; what is pulled for it is another reference."""
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
    "BD-129 nothing": ({}, set()),
    "BD-130 kernelType": ({"kernel_type": ""}, ALL),
    "BD-130 an extension": ({"extensions": ("usbguard",)}, ALL),
    "BD-130 order of extensions": ({"extensions": ("kerberos", "usbguard", "usbguard")}, set()),
    "BD-130 kernel arguments": ({"kernel_arguments": ("a=1",)}, ALL),
    "BD-130 order of kernel arguments": ({"kernel_arguments": ("b=2", "a=1")}, ALL),
    "BD-130 trust bundle": ({"trust": "bb"}, ALL),
    "BD-130 entitlement": ({"entitlements": ()}, ALL),
    "BD-131 the same children under another reference": ({"os_image": f"quay.io/other@sha256:{64 * '1'}"}, set()),
}


@pytest.mark.parametrize(("members", "expected"), MACHINE_CHANGES.values(), ids=MACHINE_CHANGES)
def test_bd_130_inputs_of_a_machine_os(members: dict[str, Any], expected: set[str]) -> None:
    """BD-074, BD-129 to BD-131: order of kernel arguments counts, order of extensions does not."""
    images = {MACHINE.os_image: "sha256:os", MACHINE.extensions_image: "sha256:ext"}
    machine = msgspec.structs.replace(MACHINE, **members)
    pins = {each: {**PINS[each], **images, machine.os_image: "sha256:os"} for each in ARCHITECTURES}
    before, after = keys(machine=MACHINE, pins=pins), keys(machine=machine, pins=pins)
    assert {each for each in ARCHITECTURES if before[each] != after[each]} == expected


def test_bd_131_os_image_of_one_architecture() -> None:
    """BD-131: those are built again whose child of the OS image differs."""
    pins = {each: {**PINS[each], MACHINE.os_image: "sha256:os"} for each in ARCHITECTURES}
    moved = {**pins, "arm64": {**pins["arm64"], MACHINE.os_image: "sha256:new"}}
    before, after = keys(machine=MACHINE, pins=pins), keys(machine=MACHINE, pins=moved)
    assert {each for each in ARCHITECTURES if before[each] != after[each]} == {"arm64"}


def test_bd_074_default_kernel_is_none() -> None:
    """BD-074: ``default`` and nothing are the same kernel, and empty members are left out."""
    empty, default = MachineOSInputs(), MachineOSInputs(kernel_type="default")
    assert keys(machine=empty) == keys(machine=default)


def test_keys_need_no_objects_that_are_not_named() -> None:
    """Facts about objects that the spec does not name change nothing."""
    more = InputData(
        config_maps={**DATA.config_maps, "other": {"data": {"x": "y"}}},
        secrets={**DATA.secrets, "other": None},
    )
    assert rebuilt(SPEC, more) == set()
