"""Names of MachineOSBuilds."""

import hashlib
from typing import Any

import pytest

from polyarch.builds.machineos.build_name import (
    SALT,
    configuration_of,
    keeps_stock_name,
    mixed_name,
    os_images,
    stock_name,
)
from polyarch.builds.machineos.request import missing_objects

SPEC: dict[str, Any] = {
    "machineConfigPool": {"name": "worker"},
    "imageBuilder": {"imageBuilderType": "Job"},
    "renderedImagePushSecret": {"name": ""},
    "renderedImagePushSpec": "registry.hostname.com/org/repo:latest",
    "containerFile": [],
}
IMAGES = os_images(
    os_image="registry.hostname.com/org/repo@sha256 string = "
    "220a60ecd4a3c32c282622a625a54db9ba0ff55b5ba9c29c7064a2bc358b6a3e",
    extensions_image="registry.hostname.com/org/repo@sha256 string = "
    "5fb4ba1a651bae8057ec6b5cdafc93fa7e0b7d944d6f02a4b751de4e15464def",
    release="release-version",
)
GOLDEN = "worker-699e6be74658adcb3ff2b48f32cd1584"


def name(spec: dict[str, Any], configuration: dict[str, Any] | None = None) -> str:
    return stock_name("worker", configuration=configuration or {}, spec=spec, os_images=IMAGES)


@pytest.mark.req("BD-266")
@pytest.mark.parametrize(("entries", "expected"), [([], GOLDEN), (None, "worker-a45fa0692b2e163b920ef1e7d0d2aac8")])
def test_golden_names(entries: list[Any] | None, expected: str) -> None:
    """An empty list and null are two names."""
    assert name(SPEC | {"containerFile": entries}) == expected


@pytest.mark.req("BD-264")
def test_objects_as_stored() -> None:
    """Absent is null, unknown fields are dropped, empty references of a pool are omitted."""
    without = {field: value for field, value in SPEC.items() if field != "containerFile"}
    assert name(without) == "worker-a45fa0692b2e163b920ef1e7d0d2aac8"
    assert name(SPEC | {"buildInputs": {"x": 1}, "paused": True}) == GOLDEN
    assert name(SPEC, {"name": "", "source": []}) == GOLDEN
    assert name(SPEC | {"baseImagePullSecret": None}) == GOLDEN


@pytest.mark.req("BD-264")
@pytest.mark.parametrize(
    "changed",
    [
        {"renderedImagePushSpec": "registry.hostname.com/org/repo:other"},
        {"renderedImagePushSecret": {"name": "push"}},
        {"baseImagePullSecret": {"name": "pull"}},
        {"containerFile": [{"containerfileArch": "NoArch", "content": "RUN x\n"}]},
    ],
)
def test_edits_that_give_another_stock_name(changed: dict[str, Any]) -> None:
    """Also edits that no key depends on; the result is reused all the same."""
    assert name(SPEC | changed) != GOLDEN


@pytest.mark.req("BD-264")
def test_what_is_hashed_of_a_pool() -> None:
    stored = {"name": "rendered-worker-1", "apiVersion": "", "other": 1, "source": [{"kind": "MachineConfig", "x": 1}]}
    assert configuration_of(stored) == {"name": "rendered-worker-1", "source": [{"kind": "MachineConfig"}]}


@pytest.mark.req("BD-263")
@pytest.mark.parametrize(
    ("architectures", "entries", "expected"),
    [
        (["amd64"], None, True),
        (["amd64"], [], True),
        (["arm64", "arm64"], [{"content": "x"}], True),
        (["amd64"], [{"containerfileArch": "NoArch"}], True),
        (["amd64"], [{"containerfileArch": "AMD64"}], False),
        (["amd64"], [{"containerfileArch": "NoArch"}, {"containerfileArch": "ARM64"}], False),
        (["amd64", "arm64"], [], False),
    ],
)
def test_who_keeps_the_stock_name(architectures: list[str], entries: Any, expected: bool) -> None:
    """One architecture, and no text that is for one architecture only."""
    assert keeps_stock_name(architectures, entries) is expected


@pytest.mark.req("BD-263")
def test_mixed_name() -> None:
    """Salt, the pool's configuration, and the build key as text."""
    key = "0123456789abcdef" * 4
    expected = hashlib.md5(SALT + b"name: rendered-worker-1\n" + key.encode()).hexdigest()
    found = mixed_name("layered", configuration={"name": "rendered-worker-1"}, build_key=key)
    assert found == f"layered-{expected}"


POOL = {"metadata": {"name": "worker"}}
CONFIG = {"metadata": {"name": "worker"}, "spec": {"machineConfigPool": {"name": "worker"}}}
RENDERED = {
    "metadata": {
        "name": "rendered-worker-1",
        "annotations": {
            "machineconfiguration.openshift.io/release-image-version": "4.18",
            "machineconfiguration.openshift.io/generated-by-controller-version": "abc",
        },
    }
}


def annotated(**values: str) -> dict[str, Any]:
    prefix = "machineconfiguration.openshift.io/"
    return {
        "metadata": {"name": "rendered-worker-1", "annotations": {f"{prefix}{key}": v for key, v in values.items()}}
    }


@pytest.mark.req("BD-267")
@pytest.mark.parametrize(
    ("pool", "config", "rendered", "words"),
    [
        (POOL, CONFIG, RENDERED, []),
        (None, CONFIG, RENDERED, ["there is no MachineConfigPool worker, which spec.machineConfigPool.name names"]),
        (POOL, None, RENDERED, ["there is no MachineOSConfig"]),
        (POOL, CONFIG, None, ["there is no rendered MachineConfig"]),
        ({"metadata": {"name": "infra"}}, CONFIG, RENDERED, ["is for the pool 'worker', not for 'infra'"]),
        (POOL, CONFIG, {"metadata": {"name": "99-x"}}, ["does not begin with 'rendered-'", "release", "generated-by"]),
        (POOL, CONFIG, annotated(**{"release-image-version": "4.18"}), ["generated-by-controller-version"]),
        (
            POOL,
            CONFIG,
            annotated(**{"release-image-version": "", "generated-by-controller-version": "a"}),
            ["release-image-version"],
        ),
        (
            None,
            {"spec": {"machineConfigPool": None}},
            RENDERED,
            ["MachineConfigPool: spec.machineConfigPool.name is empty"],
        ),
        (
            {**POOL, "spec": {"configuration": {"name": "rendered-worker-9"}}},
            CONFIG,
            None,
            ["rendered-worker-9, which"],
        ),
        (None, None, None, ["MachineConfigPool", "MachineOSConfig"]),
    ],
)
def test_what_a_name_needs(pool: Any, config: Any, rendered: Any, words: list[str]) -> None:
    """Everything that is missing is named, at once."""
    found = missing_objects(pool, config, rendered)
    assert len(found) == len(words)
    assert all(word in sentence for word, sentence in zip(words, found, strict=True))
