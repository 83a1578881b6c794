"""The client of podresources against a server with Kubernetes' own types and gRPC.

The program is ``tools/peers/podresources/server``; it answers from the files that ``fake://`` reads, so both ways to
ask have to lead to the same facts.
"""

import asyncio
import contextlib
import json
import random
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest
from google.protobuf.json_format import MessageToJson

from polyarch.numa.exporter.scan import open_podresources
from polyarch.numa.facts import ListedPod
from polyarch.numa.host import podresources_pb2 as api
from polyarch.numa.host.podresources import PodResources, PodResourcesError

pytestmark = pytest.mark.req("NE-051", "NE-053", "NE-054", "NE-055")

SEED = 12
PODS = 250
CELLS = [-1, 0, 1, 2, 7]
LIMIT = 16 * 1024 * 1024

Serve = Callable[..., contextlib.AbstractAsyncContextManager[asyncio.subprocess.Process]]


@pytest.fixture
def socket(tmp_path: Path) -> Path:
    return tmp_path / "kubelet.sock"


@pytest.fixture
def serve(peer: Callable[[str], str], tmp_path: Path, socket: Path) -> Serve:
    program = peer("podresources-server")

    @contextlib.asynccontextmanager
    async def serving(*options: str, at: Path = socket) -> AsyncIterator[asyncio.subprocess.Process]:
        process = await asyncio.create_subprocess_exec(
            program, "--socket", str(at), "--answers", str(tmp_path), *options, stderr=asyncio.subprocess.PIPE
        )
        try:
            await said(process, "listening")
            yield process
        finally:
            if process.returncode is None:
                process.kill()
            await process.wait()

    return serving


async def said(process: asyncio.subprocess.Process, words: str) -> None:
    """Waits until the server logs these words."""
    assert process.stderr is not None
    async with asyncio.timeout(60):
        while line := await process.stderr.readline():
            if words in line.decode():
                return
    raise AssertionError(f"the server ended without saying {words!r}")


@contextlib.asynccontextmanager
async def asking(url: str) -> AsyncIterator[PodResources]:
    client = open_podresources(url)
    try:
        yield client
    finally:
        await client.close()


def nodes(choice: random.Random) -> dict[str, Any]:
    return {"nodes": [{"ID": str(cell)} for cell in choice.sample(CELLS, choice.randint(0, 2))]}


def resources(choice: random.Random) -> dict[str, Any]:
    return {
        "cpu_ids": choice.sample(range(256), choice.randint(0, 8)),
        "memory": [
            {"memory_type": kind, "size": str(choice.randrange(2**64)), "topology": nodes(choice)}
            for kind in choice.sample(["memory", "hugepages-2Mi", "hugepages-1Gi"], choice.randint(0, 2))
        ],
        "devices": [
            {"resource_name": f"example.com/{kind}", "device_ids": [f"{kind}{choice.randrange(9)}"]}
            | ({"topology": nodes(choice)} if choice.random() < 0.8 else {})
            for kind in choice.sample(["nic", "gpu", "qat"], choice.randint(0, 2))
        ],
    }


def pod(number: int, choice: random.Random) -> dict[str, Any]:
    containers = [{"name": f"c{index}", **resources(choice)} for index in range(choice.randint(1, 3))]
    containers[0]["dynamic_resources"] = [{"claim_name": "gpu", "claim_namespace": "ns"}]
    return {"name": f"pod-{number}" if number % 50 else "", "namespace": f"ns-{number % 7}", "containers": containers}


def save(folder: Path, name: str, answer: Any) -> None:
    (folder / f"{name}.json").write_text(json.dumps(answer))


@pytest.mark.req("NE-050", "NE-057")
@pytest.mark.parametrize("options", [(), ("--unknown",)], ids=["as-it-is", "with-fields-from-the-future"])
async def test_answers_of_the_real_types_are_read_as_they_are_meant(
    serve: Serve, tmp_path: Path, socket: Path, options: tuple[str, ...]
) -> None:
    """Two hundred and fifty pods with everything the messages have, and NE-057: fields nobody knows change nothing."""
    choice = random.Random(SEED)
    save(tmp_path, "list", {"pod_resources": [pod(number, choice) for number in range(PODS)]})
    save(tmp_path, "get_allocatable_resources", resources(choice))
    save(tmp_path, "get", {"pod_resources": pod(1, choice)})
    async with serve(*options), asking(f"unix://{socket}") as kubelet, asking(f"fake://{tmp_path}") as files:
        listed = await kubelet.list()
        assert listed == await files.list()
        assert len(listed) == PODS - PODS // 50
        assert await kubelet.allocatable() == await files.allocatable()
        assert await kubelet.get("ns-1", "pod-1") == await files.get("ns-1", "pod-1")
    cells = {cell for each in listed for held in each.containers for block in held.memory for cell in block.zones}
    assert cells == set(CELLS)


@pytest.mark.req("NE-056")
async def test_a_kubelet_without_get_is_asked_for_the_list(serve: Serve, tmp_path: Path, socket: Path) -> None:
    save(tmp_path, "list", {"pod_resources": [{"name": "web", "namespace": "shop"}]})
    async with serve("--no-get"), asking(f"unix://{socket}") as kubelet:
        assert await kubelet.get("shop", "web") == ListedPod("shop", "web")


@pytest.mark.req("NE-050")
async def test_sixteen_mib_are_read_and_a_byte_more_is_refused(serve: Serve, tmp_path: Path, socket: Path) -> None:
    answer = api.ListPodResourcesResponse(pod_resources=[api.PodResources(name="web", namespace="shop")])
    for _ in range(2):  # the lengths before a longer name take some bytes more themselves
        answer.pod_resources[0].name += "n" * (LIMIT - answer.ByteSize() - 8)
    answer.pod_resources[0].name += "n" * (LIMIT - answer.ByteSize())
    assert answer.ByteSize() == LIMIT
    async with serve(), asking(f"unix://{socket}") as kubelet:
        (tmp_path / "list.json").write_text(MessageToJson(answer))
        assert len(await kubelet.list()) == 1
        answer.pod_resources[0].name += "n"
        (tmp_path / "list.json").write_text(MessageToJson(answer))
        with pytest.raises(PodResourcesError, match="an answer of 16777217 bytes is over the limit of 16 MiB"):
            await kubelet.list()


@pytest.mark.req("NE-052")
async def test_a_kubelet_that_dies_and_comes_back_is_not_seen_by_the_caller(
    serve: Serve, tmp_path: Path, socket: Path
) -> None:
    """Killed with a call in flight; the next one removes the socket and makes its own."""
    save(tmp_path, "list", {"pod_resources": [{"name": "web", "namespace": "shop"}]})
    async with asking(f"unix://{socket}") as kubelet:
        async with serve("--hold", "60s") as first:
            call = asyncio.create_task(kubelet.list())
            await said(first, "call list")
            socket.unlink()
        async with serve():
            assert await call == [ListedPod("shop", "web")]
            assert await kubelet.list() == [ListedPod("shop", "web")]


@pytest.mark.req("NE-120")
async def test_an_error_of_the_server_is_told_in_its_words(serve: Serve, tmp_path: Path, socket: Path) -> None:
    (tmp_path / "list.json").write_text('{"pod_resources": 1}')
    async with serve(), asking(f"unix://{socket}") as kubelet:
        with pytest.raises(PodResourcesError, match=r"list: unix:///.*/kubelet.sock: the kubelet answers UNKNOWN: "):
            await kubelet.list()
