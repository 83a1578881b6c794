"""``polyarch index`` and ``inspect --deep`` against the distribution registry, read back by clients that are not ours.

``skopeo`` is the independent client where it is installed; where it is not, plain HTTP reads every byte back.
"""

import asyncio
import hashlib
import json
import os
import secrets
import signal
import sys
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any, NamedTuple

import aiohttp
import msgspec
import pytest
from registry_reader import Reader

from polyarch.sandbox.cluster import Sandbox
from polyarch.sandbox.registry.seed import Registry
from polyarch.sandbox.state import LOOPBACK

pytestmark = pytest.mark.req("RG-152", "RG-154", "RG-156")

PLATFORMS = ("linux/amd64", "linux/arm64", "linux/s390x")
COMMAND_SECONDS = 60


class Ran(NamedTuple):
    """A command that has ended."""

    code: int
    out: str
    err: str


@pytest.fixture
def unique() -> Callable[[str], str]:
    """A repository that no other test has."""
    return lambda prefix: f"{prefix}/{secrets.token_hex(4)}"


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    """Nothing of the developer's: no credentials, no mirrors, no cache."""
    return {"PATH": os.environ["PATH"], "HOME": str(tmp_path), "XDG_CACHE_HOME": str(tmp_path / "cache")}


@pytest.fixture
def skopeo(peer: Callable[[str], str]) -> str:
    return peer("skopeo")


async def _run(*arguments: str, environment: dict[str, str]) -> Ran:
    process = await asyncio.create_subprocess_exec(
        *arguments, env=environment, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE
    )
    async with asyncio.timeout(COMMAND_SECONDS):
        out, err = await process.communicate()
    return Ran(process.returncode or 0, out.decode(), err.decode())


def command(*arguments: str) -> tuple[str, ...]:
    return (sys.executable, "-c", "from polyarch.cli import main; raise SystemExit(main())", *arguments)


@pytest.fixture
def polyarch(environment: dict[str, str]) -> Callable[..., Any]:
    """``await polyarch("index", "create", …)``: a process of its own, as users run it."""

    async def polyarch(*arguments: str) -> Ran:
        return await _run(*command(*arguments), environment=environment)

    return polyarch


@pytest.fixture
async def parts(registry: Registry, unique: Callable[[str], str]) -> list[str]:
    """Single images of each platform, in a repository of their own; their names at the registry."""
    repository = unique("quay.io/parts")
    seeded = await registry.seed(
        {
            f"{repository}:{platform.partition('/')[2]}": {"platforms": [platform], "kind": "image"}
            for platform in PLATFORMS
        }
    )
    return [each.location for each in seeded]


@pytest.fixture
async def reader(registry: Registry) -> AsyncIterator[Reader]:
    async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=COMMAND_SECONDS)) as session:
        yield Reader(session, registry.address)


def writes(sandbox: Sandbox, repository: str) -> list[str]:
    """What was written to a repository, from the registry's own log."""
    lines = [msgspec.json.decode(line) for line in Path(sandbox.registry_log).read_bytes().splitlines()]
    return [
        each["method"]
        for each in lines
        if each["repository"] == repository and each["method"] in ("POST", "PUT", "PATCH", "DELETE")
    ]


@pytest.mark.req("RG-150", "RG-153", "RG-155", "RG-157")
async def test_an_index_is_pushed_whole_and_a_second_run_writes_nothing(
    sandbox: Sandbox, registry: Registry, polyarch: Any, parts: list[str], reader: Reader, unique: Callable[[str], str]
) -> None:
    """Mounts within one registry, everything there before the tag, then "unchanged"."""
    repository = unique("quay.io/made")
    arguments = ("index", "create", f"{registry.address}/{repository}:1", *parts, "--tag", "latest", "-o", "json")
    ran = await polyarch(*arguments)
    assert ran.code == 0, ran.err
    document = json.loads(ran.out)
    for tag in ("1", "latest"):
        assert await reader.whole(repository, tag) == (document["digest"], list(PLATFORMS))
    assert ran.err.count("(mounted)") == 6
    before = writes(sandbox, repository)
    again = json.loads((await polyarch(*arguments)).out)
    assert (again["changed"], again["digest"]) == (False, document["digest"])
    assert writes(sandbox, repository) == before


@pytest.mark.req("RG-153")
async def test_another_order_gives_the_same_digest(
    registry: Registry, polyarch: Any, parts: list[str], unique: Callable[[str], str]
) -> None:
    digests = set()
    for order in (parts, parts[::-1]):
        ran = await polyarch("index", "create", f"{registry.address}/{unique('quay.io/order')}:1", *order, "-o", "json")
        digests.add(json.loads(ran.out)["digest"])
    assert len(digests) == 1


@pytest.mark.req("RG-155")
async def test_images_are_copied_from_another_registry(
    sandbox: Sandbox, registry: Registry, polyarch: Any, parts: list[str], reader: Reader, unique: Callable[[str], str]
) -> None:
    """The storage behind the front is another host to a client: nothing can be mounted from it."""
    storage = f"{LOOPBACK}:{sandbox.state.ports.registry_storage}"
    sources = [part.replace(registry.address, storage) for part in parts]
    repository = unique("quay.io/copied")
    ran = await polyarch("index", "create", f"{registry.address}/{repository}:1", *sources, "-o", "json")
    assert ran.code == 0, ran.err
    assert await reader.whole(repository, "1") == (json.loads(ran.out)["digest"], list(PLATFORMS))
    assert ran.err.count("(copied)") == 6


@pytest.mark.req("RG-157")
async def test_a_run_that_was_killed_is_completed_by_another(
    sandbox: Sandbox,
    registry: Registry,
    polyarch: Any,
    parts: list[str],
    reader: Reader,
    unique: Callable[[str], str],
    environment: dict[str, str],
) -> None:
    """At whatever point it ends: no tag names an index of which a part is missing."""
    storage = f"{LOOPBACK}:{sandbox.state.ports.registry_storage}"
    sources = [part.replace(registry.address, storage) for part in parts]
    repository = unique("quay.io/killed")
    arguments = ("index", "create", f"{registry.address}/{repository}:1", *sources)
    process = await asyncio.create_subprocess_exec(
        *command(*arguments), env=environment, stdout=asyncio.subprocess.DEVNULL, stderr=asyncio.subprocess.DEVNULL
    )
    async with asyncio.timeout(COMMAND_SECONDS):
        while not writes(sandbox, repository) and process.returncode is None:
            await asyncio.sleep(0.002)
    if process.returncode is None:
        process.send_signal(signal.SIGKILL)
    await process.wait()
    ran = await polyarch(*arguments)
    assert ran.code == 0, ran.err
    assert (await reader.whole(repository, "1"))[1] == list(PLATFORMS)


@pytest.mark.req("RG-075", "RG-157")
@pytest.mark.parametrize("scheme", ["bearer", "basic"])
async def test_a_private_repository_is_written_with_the_users_credentials(
    registry: Registry, polyarch: Any, unique: Callable[[str], str], tmp_path: Path, scheme: str
) -> None:
    """Refused without, done with, and the secret is nowhere to be seen."""
    repository = unique("quay.io/private")
    users = {"alice": "wonderland-secret"}
    seeded = await registry.seed(
        {
            f"{repository}:{platform.partition('/')[2]}": {
                "platforms": [platform],
                "kind": "image",
                "users": users,
                "scheme": scheme,
            }
            for platform in PLATFORMS
        }
    )
    arguments = ("index", "create", f"{registry.address}/{repository}:1", *(each.location for each in seeded))
    refused = await polyarch(*arguments)
    assert (refused.code, refused.out) == (3, "")
    entry = {"username": "alice", "password": users["alice"]}
    (tmp_path / "auth.json").write_text(json.dumps({"auths": {registry.address: entry}}))
    ran = await polyarch(*arguments, "--authfile", str(tmp_path / "auth.json"))
    assert ran.code == 0, ran.err
    shown = await polyarch(
        "index",
        "inspect",
        f"{registry.address}/{repository}:1",
        "--authfile",
        str(tmp_path / "auth.json"),
    )
    assert (shown.code, [platform for platform in PLATFORMS if platform in shown.out]) == (0, list(PLATFORMS))
    assert users["alice"] not in ran.out + ran.err + shown.out + shown.err + refused.err


@pytest.mark.req("RG-151")
async def test_amending_adds_an_architecture_to_what_is_there(
    registry: Registry, polyarch: Any, parts: list[str], reader: Reader, unique: Callable[[str], str]
) -> None:
    repository = unique("quay.io/amended")
    for part in parts:
        ran = await polyarch("index", "create", "--amend", f"{registry.address}/{repository}:1", part)
        assert ran.code == 0, ran.err
    assert (await reader.whole(repository, "1"))[1] == list(PLATFORMS)


@pytest.mark.req("RG-048", "RG-049")
async def test_programs_are_what_their_images_say(
    registry: Registry, polyarch: Any, parts: list[str], unique: Callable[[str], str]
) -> None:
    """The sandbox's images have programs of the right machine; an index can still lie about them."""
    repository = unique("quay.io/deep")
    name = f"{registry.address}/{repository}"
    assert (await polyarch("index", "create", f"{name}:1", *parts)).code == 0
    true = await polyarch("inspect", "--deep", "elf", "-o", "json", f"{name}:1")
    assert (true.code, json.loads(true.out)["images"][0]["warnings"]) == (0, [])
    lying = await polyarch("index", "create", f"{name}:2", f"linux/amd64/v3={parts[0]}")
    assert lying.code == 0
    assert (await polyarch("index", "create", f"{name}:3", f"linux/arm64={parts[0]}")).code == 1


@pytest.mark.req("RG-153", "RG-155", "RG-170")
async def test_skopeo_reads_what_was_pushed(
    registry: Registry,
    polyarch: Any,
    parts: list[str],
    unique: Callable[[str], str],
    tmp_path: Path,
    environment: dict[str, str],
    skopeo: str,
) -> None:
    """The bytes by its digest, and a copy of all children, which needs every blob."""
    name = f"{registry.address}/{unique('quay.io/skopeo')}:1"
    ran = await polyarch("index", "create", name, *parts, "-o", "json")
    digest = json.loads(ran.out)["digest"]
    raw = await _run(skopeo, "inspect", "--raw", "--tls-verify=false", f"docker://{name}", environment=environment)
    assert raw.code == 0, raw.err
    assert f"sha256:{hashlib.sha256(raw.out.encode()).hexdigest()}" == digest
    copied = await _run(
        skopeo,
        "--insecure-policy",
        "copy",
        "--all",
        "--src-tls-verify=false",
        f"docker://{name}",
        f"dir:{tmp_path}/copy",
        environment=environment,
    )
    assert copied.code == 0, copied.err
    assert len(list((tmp_path / "copy").glob("*.manifest.json"))) == len(PLATFORMS)


@pytest.mark.req("BD-181", "RG-120")
async def test_a_layout_directory_of_skopeo_is_a_source(
    registry: Registry,
    polyarch: Any,
    parts: list[str],
    reader: Reader,
    unique: Callable[[str], str],
    tmp_path: Path,
    environment: dict[str, str],
    skopeo: str,
) -> None:
    """Written by another tool, inspected, and joined with an image of the registry."""
    for part, tag in zip(parts[1:], ("arm64", "s390x"), strict=True):
        copied = await _run(
            skopeo,
            "--insecure-policy",
            "copy",
            "--src-tls-verify=false",
            f"docker://{part}",
            f"oci:{tmp_path}/out:{tag}",
            environment=environment,
        )
        assert copied.code == 0, copied.err
    inspected = await polyarch("inspect", "--offline", "-o", "json", f"oci:{tmp_path}/out:s390x")
    assert json.loads(inspected.out)["images"][0]["nodePlatforms"] == ["linux/s390x"]
    assert "arm64, s390x" in (await polyarch("inspect", f"oci:{tmp_path}/out")).out
    repository = unique("quay.io/joined")
    sources = (parts[0], f"oci:{tmp_path}/out:arm64", f"oci:{tmp_path}/out:s390x")
    ran = await polyarch("index", "create", f"{registry.address}/{repository}:1", *sources)
    assert ran.code == 0, ran.err
    assert (await reader.whole(repository, "1"))[1] == list(PLATFORMS)
