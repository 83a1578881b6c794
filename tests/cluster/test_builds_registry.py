"""Results of builds in the distribution registry: published, counted request by request, read by others, deleted.

The children are small real images, as a Job pushes them. What is counted is what a proxy before the registry has seen.
"""

import asyncio
import hashlib
import json
import secrets
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any

import aiohttp
import msgspec
import pytest
from fault_proxy import FaultProxy
from registry_reader import Reader

from polyarch.builds.facts.build_facts import ChildRecord, Execution
from polyarch.builds.pruning import count_references, unreferenced
from polyarch.builds.registry import (
    ChildImage,
    Publication,
    PublishFailure,
    PublishResult,
    delete_images,
    head_image,
    move_tags,
    publish,
)
from polyarch.oci.auth.credential_stores import KeyringCredentials
from polyarch.oci.auth.credentials import Document
from polyarch.oci.image.contents import RegistryConnection, referrers_tag
from polyarch.oci.inspector import Inspector, InspectorOptions, open_inspector
from polyarch.oci.pull_sources import Configuration
from polyarch.oci.reference import parse
from polyarch.oci.settings import CLUSTER
from polyarch.oci.transport.addresses import AddressPolicy
from polyarch.oci.write.push import open_destination
from polyarch.platforms import ASSUMED_ARCHITECTURES
from polyarch.sandbox.cluster import Sandbox
from polyarch.sandbox.registry.seed import Registry
from polyarch.sandbox.state import LOOPBACK

SECONDS = 60


@pytest.fixture
async def counter(registry: Registry) -> AsyncIterator[FaultProxy]:
    """A proxy before the registry, which fails nothing."""
    async with FaultProxy(f"http://{registry.address}") as proxy:
        yield proxy


@pytest.fixture
async def inspector(sandbox: Sandbox, counter: FaultProxy) -> AsyncIterator[Inspector]:
    """As the builder's: nobody waits within a request, and loopback is reached because it is allowed."""
    hosts = (counter.address, f"{LOOPBACK}:{sandbox.state.ports.registry_storage}")
    wiring = InspectorOptions(
        settings=msgspec.structs.replace(CLUSTER, max_wait=0.0, revalidate_interval=0.0),
        configuration=Configuration.load(insecure_hosts=hosts),
        policy=AddressPolicy.of("cluster", allow=["127.0.0.0/8"]),
    )
    async with open_inspector(wiring) as inspector:
        yield inspector


@pytest.fixture
def connection(inspector: Inspector) -> RegistryConnection:
    return inspector.connection


@pytest.fixture
async def reader(registry: Registry) -> AsyncIterator[Reader]:
    async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=SECONDS)) as session:
        yield Reader(session, registry.address)


class Shop:
    """Children in a repository of the test's own, and what was asked about them."""

    def __init__(self, registry: Registry, counter: FaultProxy) -> None:
        self.name = f"quay.io/builds-{secrets.token_hex(4)}"
        self.registry = registry
        self.address = counter.address
        self._seen = counter.seen

    def repository(self, name: str = "app") -> str:
        return f"{self.address}/{self.name}/{name}"

    async def children(
        self, *architectures: str, at: str = "app", kept: bool = False, **access: Any
    ) -> tuple[ChildImage, ...]:
        """Single images, as Jobs push them; ``kept``: with tags for where they are copied to."""
        images = {
            f"{self.name}/{at}:run-{each}": {"platforms": [f"linux/{each}"], "kind": "image", **access}
            for each in architectures
        }
        seeded = await self.registry.seed(images)
        return tuple(
            ChildImage(
                architecture=architecture,
                reference=f"{self.repository(at)}@{each.digest}",
                tag=f"run-{architecture}" if kept else "",
            )
            for architecture, each in zip(architectures, seeded, strict=True)
        )

    def publication(self, children: Sequence[ChildImage], *tags: str, **more: Any) -> Publication:
        return Publication(repository=self.repository(), children=tuple(children), tags=tags or ("run",), **more)

    def begin(self) -> None:
        self._seen.clear()

    def asked(self, repository: str = "") -> list[str]:
        """``METHOD path`` of the requests for one repository, or all, since ``begin``."""
        below = f"/v2/{self.name}/{repository}"
        return [f"{each.method} {each.path}" for each in self._seen if each.path.startswith(below)]


@pytest.fixture
def shop(registry: Registry, counter: FaultProxy) -> Shop:
    return Shop(registry, counter)


def methods(asked: Sequence[str]) -> dict[str, int]:
    return {method: sum(each.startswith(f"{method} ") for each in asked) for method in ("GET", "HEAD", "PUT", "POST")}


@pytest.mark.req("BD-059", "BD-347")
async def test_requests_of_a_preflight(
    registry: Registry, counter: FaultProxy, inspector: Inspector, shop: Shop
) -> None:
    """One for an index, two for a plain image, none within the tag's time; one HEAD each when they are asked anew."""
    indexes = {f"{shop.name}/base-{n}:1": [f"linux/{each}" for each in ASSUMED_ARCHITECTURES] for n in range(3)}
    plain = {f"{shop.name}/plain:1": {"platforms": ["linux/amd64"], "kind": "image"}}
    seeded = await registry.seed({**indexes, **plain})
    references = [each.location.replace(registry.address, counter.address) for each in seeded]
    shop.begin()
    for _ in ASSUMED_ARCHITECTURES:  # every architecture, and every build, asks for the same
        found = await inspector.inspect_many(references)
        assert [len(each.platforms) for each in found] == [4, 4, 4, 1]
    assert methods(shop.asked()) == {"GET": 5, "HEAD": 0, "PUT": 0, "POST": 0}
    shop.begin()
    await inspector.inspect_many(references, fresh=True)
    assert methods(shop.asked()) == {"GET": 0, "HEAD": 4, "PUT": 0, "POST": 0}


@pytest.mark.req("BD-177", "BD-347")
@pytest.mark.parametrize("n", [2, 4])
@pytest.mark.parametrize("tags", [("run",), ("run", "latest", "1.0")])
async def test_requests_of_a_result(
    shop: Shop, connection: RegistryConnection, reader: Reader, n: int, tags: tuple[str, ...]
) -> None:
    """2N + 3 + 3T, then 2N + T and no write; exact."""
    children = await shop.children(*ASSUMED_ARCHITECTURES[:n])
    shop.begin()
    result = await publish(connection, shop.publication(children, *tags))
    assert isinstance(result, PublishResult), result
    asked = shop.asked()
    assert len(asked) == 2 * n + 3 + 3 * len(tags)
    assert methods(asked) == {"GET": 2 * n, "HEAD": 2 + 2 * len(tags), "PUT": 1 + len(tags), "POST": 0}
    shop.begin()
    again = await publish(connection, shop.publication(children, *tags))
    assert isinstance(again, PublishResult)
    assert (again.digest, again.changed) == (result.digest, False)
    assert methods(shop.asked()) == {"GET": 2 * n, "HEAD": len(tags), "PUT": 0, "POST": 0}
    for tag in tags:
        platforms = [f"linux/{each}" for each in ASSUMED_ARCHITECTURES[:n]]
        assert await reader.whole(f"{shop.name}/app", tag) == (result.digest, platforms)


@pytest.mark.req("BD-092", "BD-347", "BD-349")
async def test_reuse_is_one_head(shop: Shop, connection: RegistryConnection) -> None:
    """A child is found by one HEAD, with its size and type."""
    children = await shop.children(*ASSUMED_ARCHITECTURES)
    shop.begin()
    for child in children:
        found = await head_image(connection, child.reference)
        assert (found.digest, found.error) == (parse(child.reference).digest, "")
        assert found.size > 100
        assert "manifest" in found.media_type
    assert methods(shop.asked()) == {"GET": 0, "HEAD": 4, "PUT": 0, "POST": 0}
    assert (await head_image(connection, f"{shop.repository()}@sha256:{'0' * 64}")).error == "not-found"
    assert (await head_image(connection, f"{shop.repository()}:run-arm64")).digest == parse(
        children[1].reference
    ).digest


@pytest.mark.req("BD-179")
async def test_one_architecture_has_no_index(shop: Shop, connection: RegistryConnection, reader: Reader) -> None:
    (child,) = await shop.children("arm64")
    shop.begin()
    result = await publish(connection, shop.publication([child], "run", "latest", single=True))
    assert isinstance(result, PublishResult), result
    assert (result.digest, len(shop.asked())) == (parse(child.reference).digest, 2 + 3 * 2)
    assert (await reader.document(f"{shop.name}/app", "latest"))[0] == result.digest


@pytest.mark.req("BD-176", "BD-235")
async def test_children_of_another_repository_are_mounted(
    shop: Shop, connection: RegistryConnection, reader: Reader
) -> None:
    """201 for every blob, the children with their tags, then the index; and no layer is read."""
    children = await shop.children("amd64", "arm64", at="staging", kept=True)
    shop.begin()
    result = await publish(connection, shop.publication(children))
    assert isinstance(result, PublishResult), result
    assert await reader.whole(f"{shop.name}/app", "run") == (result.digest, ["linux/amd64", "linux/arm64"])
    writes = [each.rpartition("/")[2] for each in shop.asked("app") if each.startswith("PUT")]
    digests = [parse(each.reference).digest for each in children]
    assert writes == [*digests, "run-amd64", "run-arm64", result.digest, "run"]
    assert not [each for each in shop.asked("app") if each.startswith("PUT") and "/uploads/" in each]
    assert len([each for each in shop.asked("staging") if "/blobs/" in each]) == 2  # the configs


@pytest.mark.req("BD-092", "BD-176")
async def test_a_child_of_another_host_is_streamed(
    sandbox: Sandbox, shop: Shop, connection: RegistryConnection, reader: Reader
) -> None:
    """The storage behind the front is another host to a client."""
    (child,) = await shop.children("s390x", at="old")
    elsewhere = child.reference.replace(shop.address, f"{LOOPBACK}:{sandbox.state.ports.registry_storage}")
    there = ChildImage(architecture="s390x", reference=elsewhere, tag="run-s390x")
    copied = await publish(connection, shop.publication([there], single=True))
    assert isinstance(copied, PublishResult), copied
    digest, manifest = await reader.document(f"{shop.name}/app", "run-s390x")
    assert digest == copied.digest == parse(child.reference).digest
    for blob in (manifest["config"], *manifest["layers"]):
        await reader.blob(f"{shop.name}/app", blob)


@pytest.mark.req("BD-180")
async def test_signatures_come_along(shop: Shop, connection: RegistryConnection, reader: Reader) -> None:
    """This registry lists no referrers: they are found and written by the tag ``sha256-<hex>``."""
    (child,) = await shop.children("arm64", at="old")
    digest = parse(child.reference).digest or ""
    writer = await open_destination(connection, parse(shop.repository("old")))
    _, manifest = await reader.document(f"{shop.name}/old", digest)
    signature = msgspec.json.encode({**manifest, "subject": {"digest": digest, "size": 1, "mediaType": "x"}})
    name = f"sha256:{hashlib.sha256(signature).hexdigest()}"
    index_type = "application/vnd.oci.image.index.v1+json"
    await writer.put_manifest(name, signature, manifest["mediaType"], name)
    listing = {"mediaType": manifest["mediaType"], "digest": name, "size": len(signature)}
    index = msgspec.json.encode({"schemaVersion": 2, "mediaType": index_type, "manifests": [listing]})
    await writer.put_manifest(referrers_tag(digest), index, index_type, f"sha256:{hashlib.sha256(index).hexdigest()}")
    assert isinstance(await publish(connection, shop.publication([child], single=True)), PublishResult)
    _, listed = await reader.document(f"{shop.name}/app", referrers_tag(digest))
    assert [each["digest"] for each in listed["manifests"]] == [name]
    assert (await reader.document(f"{shop.name}/app", name))[1]["subject"]["digest"] == digest


@pytest.mark.req("BD-177")
async def test_a_child_that_is_gone_is_named_and_no_tag_moves(
    shop: Shop, connection: RegistryConnection, reader: Reader
) -> None:
    children = await shop.children("amd64", "arm64", "s390x")
    first = await publish(connection, shop.publication(children, "run", "latest"))
    assert isinstance(first, PublishResult)
    await shop.registry.delete(f"{shop.name}/app@{parse(children[1].reference).digest}")
    shop.begin()
    trouble = await publish(connection, shop.publication(children, "run-2", "latest"))
    assert isinstance(trouble, PublishFailure)
    assert (trouble.reason, trouble.missing) == ("RegistryInconsistent", ("arm64",))
    assert methods(shop.asked())["PUT"] == 0
    assert (await reader.document(f"{shop.name}/app", "latest"))[0] == first.digest


@pytest.mark.req("BD-102", "BD-123")
async def test_tags_move_back(shop: Shop, connection: RegistryConnection, reader: Reader) -> None:
    children = await shop.children("amd64", "arm64")
    old = await publish(connection, shop.publication(children, "run", "latest"))
    new = await publish(connection, shop.publication(children, "run-2", "latest", annotations={"a": "1"}))
    assert isinstance(old, PublishResult)
    assert isinstance(new, PublishResult)
    assert (await reader.document(f"{shop.name}/app", "latest"))[0] == new.digest != old.digest
    shop.begin()
    moved = await move_tags(connection, f"{shop.repository()}@{old.digest}", ["run", "latest"])
    assert isinstance(moved, PublishResult)
    assert methods(shop.asked())["PUT"] == 1
    assert (await reader.document(f"{shop.name}/app", "latest"))[0] == old.digest


@pytest.mark.req("BD-144", "BD-334")
@pytest.mark.parametrize("scheme", ["bearer", "basic"])
async def test_a_build_has_its_own_credentials(shop: Shop, connection: RegistryConnection, scheme: str) -> None:
    """Those of the push secret, given as bytes, and only for this build."""
    users = {"builder": "a-secret-of-the-build"}
    children = await shop.children("amd64", "arm64", users=users, scheme=scheme)
    work = shop.publication(children)
    refused = await publish(connection, work)
    assert isinstance(refused, PublishFailure)
    assert (refused.reason, refused.passing) == ("PushDenied", False)
    entry = {"username": "builder", "password": users["builder"]}
    body = json.dumps({"auths": {shop.repository(): entry}}).encode()
    own = connection.using(KeyringCredentials([Document("secret team/push", body)]))
    assert isinstance(await publish(own, work), PublishResult)
    assert isinstance(await publish(connection, work), PublishFailure)
    assert users["builder"] not in refused.message


@pytest.mark.req("BD-172", "BD-181")
async def test_skopeo_reads_the_index(shop: Shop, connection: RegistryConnection, tmp_path: Path, peer: Any) -> None:
    """The bytes by their digest, and a copy of all children, which needs every blob."""
    skopeo = peer("skopeo")
    result = await publish(connection, shop.publication(await shop.children(*ASSUMED_ARCHITECTURES)))
    assert isinstance(result, PublishResult), result
    name = f"docker://{shop.registry.address}/{shop.name}/app:run"
    raw = await _run(skopeo, "inspect", "--raw", "--tls-verify=false", name)
    assert f"sha256:{hashlib.sha256(raw).hexdigest()}" == result.digest
    assert [each["platform"]["architecture"] for each in json.loads(raw)["manifests"]] == list(ASSUMED_ARCHITECTURES)
    await _run(skopeo, "--insecure-policy", "copy", "--all", "--src-tls-verify=false", name, f"dir:{tmp_path}/copy")
    assert len(list((tmp_path / "copy").glob("*.manifest.json"))) == len(ASSUMED_ARCHITECTURES)


@pytest.mark.req("BD-231", "BD-234")
async def test_images_are_deleted_index_first(shop: Shop, connection: RegistryConnection, reader: Reader) -> None:
    """What the next result shares stays and can be read whole; the rest is gone, and again is no error."""
    shared, changed, other = await shop.children("amd64", "arm64", "s390x")
    old = await publish(connection, shop.publication([shared, changed], "old"))
    new = await publish(connection, shop.publication([shared, other], "new"))
    assert isinstance(old, PublishResult)
    assert isinstance(new, PublishResult)
    executions = [_execution(shop, "old", old), _execution(shop, "new", new)]
    images = unreferenced(executions[:1], count_references(executions[1:]), known=executions[1:])
    shop.begin()
    found = await delete_images(connection, images)
    assert found.done == tuple(f"{shop.repository()}@{each}" for each in (old.digest, parse(changed.reference).digest))
    assert [each.split()[0] for each in shop.asked()] == ["DELETE", "DELETE"]
    assert await reader.whole(f"{shop.name}/app", "new") == (new.digest, ["linux/amd64", "linux/s390x"])
    for tag in ("old", "run-arm64"):
        assert (await head_image(connection, f"{shop.repository()}:{tag}")).error == "not-found"
    assert (await delete_images(connection, images)).done == found.done


def _execution(shop: Shop, name: str, published: PublishResult) -> Execution:
    return Execution(
        namespace="team",
        name=name,
        phase="Succeeded",
        repository=shop.repository(),
        result=f"{shop.repository()}@{published.digest}",
        children=tuple(ChildRecord(architecture=each.architecture, digest=each.digest) for each in published.children),
    )


async def _run(*arguments: str) -> bytes:
    process = await asyncio.create_subprocess_exec(
        *arguments, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE
    )
    async with asyncio.timeout(SECONDS):
        out, err = await process.communicate()
    assert process.returncode == 0, err.decode()
    return out
