"""The client of a kubelet's socket, against a gRPC server in the same process."""

import asyncio
import contextlib
import os
from collections.abc import AsyncIterator
from pathlib import Path

import podresources_server
import pytest
from grpclib import GRPCError, Status
from hypothesis import given, settings
from hypothesis import strategies as st
from manual_clock import ManualClock
from podresources_server import Answers, Counted, saying, serving
from structlog.testing import capture_logs

from polyarch.clock import is_cancelled
from polyarch.numa.exporter.scan import open_podresources
from polyarch.numa.facts import Allocatable, Container, Devices, ListedPod, MemoryBlock
from polyarch.numa.host import podresources_pb2 as api
from polyarch.numa.host.podresources import PodResources, PodResourcesError

POD = api.PodResources(
    name="web",
    namespace="shop",
    containers=[
        api.ContainerResources(
            name="main",
            cpu_ids=[3, 2],
            memory=[
                api.ContainerMemory(
                    memory_type="memory",
                    size=2**63,
                    topology=api.TopologyInfo(nodes=[api.NUMANode(ID=0), api.NUMANode(ID=2)]),
                )
            ],
            devices=[
                api.ContainerDevices(
                    resource_name="example.com/nic",
                    device_ids=["eth0"],
                    topology=api.TopologyInfo(nodes=[api.NUMANode(ID=-1)]),
                ),
                api.ContainerDevices(resource_name="example.com/tpm", device_ids=["tpm0"]),
            ],
            dynamic_resources=[api.DynamicResource(claim_name="gpu")],
        ),
        api.ContainerResources(name="side"),
    ],
)
FACTS = ListedPod(
    "shop",
    "web",
    (
        Container(
            name="main",
            cpus=(3, 2),
            memory=(MemoryBlock("memory", 2**63, (0, 2)),),
            devices=(Devices("example.com/nic", ("eth0",), (-1,)), Devices("example.com/tpm", ("tpm0",))),
        ),
        Container(name="side"),
    ),
)


@pytest.fixture
def answers() -> Answers:
    return Answers()


@pytest.fixture
def counted() -> Counted:
    return Counted()


@pytest.fixture
def socket(tmp_path: Path) -> Path:
    return tmp_path / "kubelet.sock"


@contextlib.asynccontextmanager
async def asking(
    socket: Path, counted: Counted | None = None, clock: ManualClock | None = None
) -> AsyncIterator[PodResources]:
    client = open_podresources(f"unix://{socket}", metrics=counted, clock=clock)
    try:
        yield client
    finally:
        await client.close()


@pytest.mark.req("NE-050")
async def test_list_and_allocatable_are_facts(answers: Answers, socket: Path) -> None:
    answers.pods.pod_resources.append(POD)
    answers.resources.cpu_ids.extend([1, 2, 3])
    answers.resources.memory.append(POD.containers[0].memory[0])
    answers.resources.devices.append(POD.containers[0].devices[1])
    async with serving(answers, socket), asking(socket) as client:
        assert await client.list() == [FACTS]
        assert await client.allocatable() == Allocatable(
            cpus=(1, 2, 3),
            memory=(MemoryBlock("memory", 2**63, (0, 2)),),
            devices=(Devices("example.com/tpm", ("tpm0",)),),
        )


@pytest.mark.req("NE-050")
async def test_get_gives_one_pod(answers: Answers, socket: Path) -> None:
    answers.pod = api.GetPodResourcesResponse(pod_resources=POD)
    async with serving(answers, socket), asking(socket) as client:
        assert await client.get("shop", "web") == FACTS
    assert answers.calls == ["Get"]


@pytest.mark.req("NE-056")
@pytest.mark.parametrize(
    "refusal",
    [
        GRPCError(Status.UNIMPLEMENTED, "unknown method Get for service v1.PodResourcesLister"),
        GRPCError(Status.UNKNOWN, "PodResources API Get method disabled"),
    ],
)
async def test_without_get_the_pod_is_picked_out_of_the_list(
    answers: Answers, socket: Path, refusal: GRPCError
) -> None:
    answers.pod = refusal
    answers.pods.pod_resources.extend([api.PodResources(name="web", namespace="other"), POD])
    async with serving(answers, socket), asking(socket) as client:
        assert await client.get("shop", "web") == FACTS
        with pytest.raises(PodResourcesError, match="no pod shop/db"):
            await client.get("shop", "db")


@pytest.mark.req("NE-056")
async def test_another_refusal_of_get_is_an_error(answers: Answers, socket: Path) -> None:
    answers.pod = GRPCError(Status.UNKNOWN, "pod web in namespace shop not found")
    async with serving(answers, socket), asking(socket) as client:
        with pytest.raises(PodResourcesError, match="UNKNOWN: pod web in namespace shop not found"):
            await client.get("shop", "web")


@pytest.mark.req("NE-057")
async def test_pods_without_a_name_are_passed_over_and_counted(
    answers: Answers, socket: Path, counted: Counted
) -> None:
    answers.pods.pod_resources.extend([api.PodResources(name="web"), POD, api.PodResources(namespace="shop")])
    async with serving(answers, socket), asking(socket, counted) as client:
        assert await client.list() == [FACTS]
    assert counted.unnamed == 2
    assert counted.failed == []


@pytest.mark.req("NE-053")
async def test_every_failed_call_is_counted_by_its_name(answers: Answers, socket: Path, counted: Counted) -> None:
    """Each failed call is counted."""
    answers.error = GRPCError(Status.RESOURCE_EXHAUSTED, "rejected by rate limit")
    answers.pod = GRPCError(Status.INTERNAL)
    async with serving(answers, socket), asking(socket, counted) as client:
        with pytest.raises(PodResourcesError, match=r"list: unix://.*RESOURCE_EXHAUSTED: rejected by rate limit"):
            await client.list()
        with pytest.raises(PodResourcesError):
            await client.allocatable()
        with pytest.raises(PodResourcesError):
            await client.get("shop", "web")
    with pytest.raises(PodResourcesError, match="is the kubelet running"):
        await client.list()
    assert counted.failed == ["list", "get_allocatable_resources", "get", "list"]


@pytest.mark.req("NE-050")
async def test_an_answer_up_to_16_mib_is_read_and_a_longer_one_is_refused(
    answers: Answers, socket: Path, counted: Counted
) -> None:
    """The refusal names the limit, and the connection serves the next call."""
    limit = 16 * 1024 * 1024
    pod = answers.pods.pod_resources.add(name="web", namespace="shop")
    pod.containers.add(name="x" * (limit - answers.pods.ByteSize() - 16))
    pod.containers[0].name += "x" * (limit - answers.pods.ByteSize())
    assert answers.pods.ByteSize() == limit
    async with serving(answers, socket), asking(socket, counted) as client:
        assert len(await client.list()) == 1
        pod.containers[0].name += "x"
        with pytest.raises(PodResourcesError, match="an answer of 16777217 bytes is over the limit of 16 MiB"):
            await client.list()
        assert await client.allocatable() == Allocatable()
    assert counted.failed == ["list"]


@pytest.mark.req("NE-050")
async def test_a_call_ends_after_ten_seconds(answers: Answers, socket: Path, counted: Counted) -> None:
    clock = ManualClock()
    asked = asyncio.Event()

    async def hang(_: int) -> None:
        asked.set()
        await asyncio.Event().wait()

    answers.before = hang
    async with serving(answers, socket), asking(socket, counted, clock) as client:
        call = asyncio.create_task(client.list())
        await asked.wait()
        clock.advance(9.9)
        await asyncio.wait({call}, timeout=0.1)
        assert not call.done()
        clock.advance(0.2)
        with pytest.raises(PodResourcesError, match="waited 10 s for an answer"):
            await call
        answers.before = None
        assert await client.list() == []
    assert counted.failed == ["list"]


@pytest.mark.req("NE-052")
async def test_a_call_in_flight_when_the_kubelet_restarts_is_made_once_more(
    answers: Answers, socket: Path, counted: Counted
) -> None:
    """The socket is removed, later there is another: the caller sees nothing of it."""
    old = Answers()
    asked = asyncio.Event()

    async def hang(_: int) -> None:
        asked.set()
        await asyncio.Event().wait()

    old.before = hang
    answers.pods.pod_resources.append(POD)
    async with asking(socket, counted) as client:
        async with serving(old, socket) as server:
            call = asyncio.create_task(client.list())
            await asked.wait()
            socket.unlink()
            server.close()
        assert not call.done()
        async with serving(answers, socket):
            assert await call == [FACTS]
            assert await client.list() == [FACTS]
    assert counted.failed == ["list"]


@pytest.mark.req("NE-052")
async def test_a_new_socket_ends_a_call_that_hangs_at_the_old_kubelet(
    answers: Answers, socket: Path, counted: Counted, tmp_path: Path
) -> None:
    """The old process may live on with its connection open; nobody will answer there."""
    old = Answers()
    asked = asyncio.Event()

    async def hang(_: int) -> None:
        asked.set()
        await asyncio.Event().wait()

    old.before = hang
    answers.pods.pod_resources.append(POD)
    async with asking(socket, counted) as client, serving(old, socket):
        call = asyncio.create_task(client.list())
        await asked.wait()
        socket.rename(tmp_path / "old.sock")
        async with serving(answers, socket):
            assert await call == [FACTS]
    assert counted.failed == ["list"]


@pytest.mark.req("NE-052")
async def test_between_two_calls_a_new_socket_is_used_at_once(
    answers: Answers, socket: Path, counted: Counted, tmp_path: Path
) -> None:
    old = Answers()
    async with asking(socket, counted) as client, serving(old, socket):
        assert await client.list() == []
        socket.rename(tmp_path / "old.sock")
        answers.pods.pod_resources.append(POD)
        async with serving(answers, socket):
            assert await client.list() == [FACTS]
    assert old.calls == ["List"]
    assert counted.failed == []


@pytest.mark.req("NE-052")
async def test_a_call_is_made_no_more_than_twice(socket: Path, counted: Counted) -> None:
    async with saying(b"", socket), asking(socket, counted) as client:
        with pytest.raises(PodResourcesError, match="lost twice"):
            await client.list()
    assert counted.failed == ["list", "list"]


@pytest.mark.req("NE-052")
async def test_when_the_kubelet_stays_away_the_call_fails_at_its_deadline(
    answers: Answers, socket: Path, counted: Counted
) -> None:
    clock = ManualClock()
    asked = asyncio.Event()

    async def hang(_: int) -> None:
        asked.set()
        await asyncio.Event().wait()

    answers.before = hang
    async with asking(socket, counted, clock) as client:
        async with serving(answers, socket) as server:
            call = asyncio.create_task(client.list())
            await asked.wait()
            socket.unlink()
            server.close()
        while clock.sleepers < 2:
            await asyncio.sleep(0.01)
        await clock.run(10)
        with pytest.raises(PodResourcesError, match="waited 10 s for the socket to come back"):
            await call
    assert counted.failed == ["list", "list"]


@pytest.mark.req("NE-052")
async def test_the_wait_for_the_socket_has_no_end_and_is_logged_once_a_minute(answers: Answers, socket: Path) -> None:
    clock = ManualClock()
    async with asking(socket, clock=clock) as client:
        with capture_logs() as logs:
            waiting = asyncio.create_task(client.until_ready())
            await clock.run(3600)
            assert not waiting.done()
            assert [(line["event"], line["log_level"]) for line in logs] == [
                ("waiting for the kubelet's podresources socket", "warning")
            ] * 61
            socket.write_text("no socket")
            await clock.run(5)
            assert not waiting.done()
            socket.unlink()
            async with serving(answers, socket):
                await clock.run(1)
                await waiting


@pytest.mark.req("NE-052")
async def test_a_caller_is_not_taken_for_cancelled_when_its_connection_is_lost(socket: Path) -> None:
    """grpclib cancels the task that calls; a loop of ours asks ``is_cancelled`` and would end."""
    async with saying(b"", socket), asking(socket) as client:
        with pytest.raises(PodResourcesError):
            await client.list()
    assert not is_cancelled()


async def test_a_caller_that_is_cancelled_ends(answers: Answers, socket: Path, counted: Counted) -> None:
    asked = asyncio.Event()

    async def hang(_: int) -> None:
        asked.set()
        await asyncio.Event().wait()

    answers.before = hang
    async with serving(answers, socket), asking(socket, counted) as client:
        call = asyncio.create_task(client.list())
        await asked.wait()
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call
        answers.before = None
        assert await client.list() == []
    assert counted.failed == []


async def test_a_socket_may_have_a_path_that_fits_no_address(answers: Answers, tmp_path: Path) -> None:
    """108 bytes is all that the kernel takes; the directory is opened instead, and closed again."""
    folder = tmp_path / ("kubelet-" * 12) / "pod-resources"
    folder.mkdir(parents=True)
    (tmp_path / "short").symlink_to(folder)
    socket = folder / "kubelet.sock"
    assert len(os.fsencode(socket)) > 108
    opened = len(list(Path("/proc/self/fd").iterdir()))
    async with serving(answers, tmp_path / "short" / "kubelet.sock"), asking(socket) as client:
        assert await client.list() == []
    assert len(list(Path("/proc/self/fd").iterdir())) == opened


async def test_a_socket_nobody_listens_at_is_said_so(socket: Path) -> None:
    async with serving(Answers(), socket):
        socket.rename(socket.with_suffix(".left"))
    async with asking(socket.with_suffix(".left")) as client:
        with pytest.raises(PodResourcesError, match="nobody listens"):
            await client.list()


@settings(max_examples=60)
@given(
    st.one_of(
        st.binary(max_size=200),
        # A proper beginning of HTTP/2, an empty SETTINGS frame, then anything.
        st.binary(max_size=200).map(lambda rest: b"\x00\x00\x00\x04\x00\x00\x00\x00\x00" + rest),
        # And a whole answer whose message is anything: HEADERS with :status 200 and a content type, then DATA.
        st.binary(max_size=80).map(podresources_server.answer_with),
    )
)
async def test_whatever_answers_ends_in_an_error_of_ours(tmp_path_factory: pytest.TempPathFactory, data: bytes) -> None:
    """No bytes lead to another exception, to a hang, or to a connection that stays open."""
    socket = tmp_path_factory.mktemp("s") / "k"
    async with saying(data, socket), asking(socket) as client:
        async with asyncio.timeout(60):
            with contextlib.suppress(PodResourcesError):
                await client.list()
    assert not is_cancelled()
