"""The sandbox's registry as its readers meet it: our own client, through the mirror configuration."""

import asyncio
import secrets
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from polyarch.oci.auth.credential_stores import KeyringCredentials
from polyarch.oci.auth.credentials import Document
from polyarch.oci.inspection import Inspection
from polyarch.oci.inspector import Inspector
from polyarch.oci.pull_sources import Configuration
from polyarch.oci.settings import InspectorSettings
from polyarch.oci.transport.http import AiohttpTransport
from polyarch.sandbox.cluster import Sandbox
from polyarch.sandbox.registry.seed import Registry


@pytest.fixture
async def inspector(sandbox: Sandbox) -> AsyncIterator[Inspector]:
    transport = AiohttpTransport()
    inspector = Inspector(
        transport=transport,
        configuration=Configuration.load(sandbox.registries_conf),
        settings=InspectorSettings(revalidate_interval=0.0),
    )
    yield inspector
    await inspector.close()
    await transport.close()


@pytest.fixture
def unique() -> Callable[[str], str]:
    """A name that no other test has: ``unique("quay.io/acme")`` → ``quay.io/acme/3f9a:1``."""
    return lambda prefix: f"{prefix}/{secrets.token_hex(4)}:1"


def platforms(answer: Inspection) -> list[str]:
    assert answer.error is None, answer.error
    return [str(platform) for platform in answer.platforms]


@pytest.mark.req("SB-005")
@pytest.mark.parametrize(
    ("description", "kind", "expected"),
    [
        pytest.param(["linux/amd64", "linux/arm/v6"], "index", ["linux/amd64", "linux/arm/v6"], id="index"),
        pytest.param({"platforms": ["linux/s390x"], "kind": "image"}, "image", ["linux/s390x"], id="image"),
        pytest.param({"platforms": ["linux/amd64"], "format": "docker"}, "index", ["linux/amd64"], id="schema-2 list"),
        pytest.param(
            {"platforms": ["linux/amd64", "linux/arm64"], "attestations": True},
            "index",
            ["linux/amd64", "linux/arm64"],
            id="attestations",
        ),
        pytest.param(
            {"platforms": ["linux/amd64", "linux/arm64"], "nested": True},
            "index",
            ["linux/amd64", "linux/arm64"],
            id="nested",
        ),
        pytest.param(
            {"platforms": ["linux/amd64", "linux/arm64"], "withoutPlatform": ["linux/arm64"]},
            "index",
            ["linux/amd64", "linux/arm64"],
            id="an entry without platform",
        ),
        pytest.param(
            {"platforms": ["linux/amd64", "linux/arm64"], "missing": ["linux/arm64"]},
            "index",
            ["linux/amd64", "linux/arm64"],
            id="a child that is not there",
        ),
        pytest.param({"kind": "artifact"}, "artifact", [], id="artifact"),
        pytest.param({"kind": "bundle"}, "image", [], id="operator bundle"),
        pytest.param([], "index", [], id="empty index"),
    ],
)
async def test_every_shape_is_taken_and_read_back(
    registry: Registry,
    inspector: Inspector,
    unique: Callable[[str], str],
    description: object,
    kind: str,
    expected: list[str],
) -> None:
    image = unique("quay.io/shapes")
    (seeded,) = await registry.seed({image: description})
    answer = await inspector.inspect(image)
    assert answer.kind == kind
    assert answer.digest == seeded.digest
    assert (platforms(answer) if answer.status == "resolved" else []) == expected


@pytest.mark.req("SB-005")
async def test_familiar_names_are_there_from_the_start(inspector: Inspector) -> None:
    assert "linux/s390x" in platforms(await inspector.inspect("nginx:1.27"))


@pytest.mark.req("SB-005")
async def test_a_private_image_is_for_its_users(
    registry: Registry, inspector: Inspector, unique: Callable[[str], str]
) -> None:
    for scheme in ("bearer", "basic"):
        image = unique("quay.io/private")
        users = {"alice": "wonderland"}
        await registry.seed({image: {"platforms": ["linux/arm64"], "users": users, "scheme": scheme}})
        refused = await inspector.inspect(image)
        assert refused.error is not None
        assert refused.error.code == "unauthorized"
        entry = {"username": "alice", "password": "wonderland"}
        body = msgspec.json.encode({"auths": {registry.address: entry}})
        store = KeyringCredentials([Document("test", body)])
        assert platforms(await inspector.inspect(image, credentials=store)) == ["linux/arm64"]
        # Users are the registry's, not the repository's: a word that no other test gives to an alice of its own.
        wrong = msgspec.json.encode({"auths": {registry.address: entry | {"password": f"not {image}"}}})
        refused = await inspector.inspect(image, credentials=KeyringCredentials([Document("test", wrong)]))
        assert refused.error is not None


@pytest.mark.req("SB-005")
async def test_an_identity_token_works_as_with_docker_login(
    registry: Registry, inspector: Inspector, unique: Callable[[str], str]
) -> None:
    image = unique("quay.io/private")
    description = {"platforms": ["linux/arm64"], "users": {"alice": "x"}, "identityTokens": {"long-lived": "alice"}}
    await registry.seed({image: description})
    body = msgspec.json.encode({"auths": {registry.address: {"identitytoken": "long-lived"}}})
    answer = await inspector.inspect(image, credentials=KeyringCredentials([Document("test", body)]))
    assert platforms(answer) == ["linux/arm64"]


@pytest.mark.req("SB-005")
async def test_seeding_again_moves_the_tag_and_deleting_takes_it_away(
    registry: Registry, inspector: Inspector, unique: Callable[[str], str]
) -> None:
    image = unique("quay.io/moving")
    (first,) = await registry.seed({image: ["linux/amd64"]})
    (second,) = await registry.seed({image: ["linux/arm64"]})
    assert first.digest != second.digest
    assert platforms(await inspector.inspect(image)) == ["linux/arm64"]
    await registry.delete(image)
    gone = await inspector.inspect(image, fresh=True)
    assert gone.error is not None
    assert gone.error.code == "not-found"


@pytest.mark.req("SB-010")
async def test_the_registry_log_tells_who_asked_for_what(
    sandbox: Sandbox, registry: Registry, inspector: Inspector, unique: Callable[[str], str]
) -> None:
    image = unique("quay.io/logged")
    await registry.seed({image: ["linux/amd64", "linux/arm64"]})
    await inspector.inspect(image)
    repository = image.removesuffix(":1")
    asked: list[dict[str, Any]] = []
    async with asyncio.timeout(10):
        while not asked:  # a line is written after the answer that it tells of
            await asyncio.sleep(0.05)
            complete = Path(sandbox.registry_log).read_bytes().rpartition(b"\n")[0].splitlines()
            lines = [msgspec.json.decode(line) for line in complete]
            asked = [
                each for each in lines if each["repository"] == repository and each["userAgent"].startswith("polyarch/")
            ]
    assert [(each["method"], each["reference"], each["status"]) for each in asked] == [("GET", "1", 200)]
