"""When a probe's answers count, and what a log shows."""

import asyncio
import datetime as dt
from pathlib import Path

import aiohttp
import pytest

from polyarch.sandbox.pods import containers
from polyarch.sandbox.pods.probes import ProbeResult, ProbeTarget, ask, port_of
from polyarch.sandbox.pods.spec import Container, Exec, HttpGet, Port, Probe, TcpSocket

NOW = dt.datetime(2026, 1, 1, tzinfo=dt.UTC)


@pytest.mark.req("SB-011")
@pytest.mark.parametrize(
    ("answers", "results"),
    [
        pytest.param("++", "-+", id="two successes make it ready"),
        pytest.param("+-+-+", "-----", id="never two in a row"),
        pytest.param("++--+---", "-++++++-", id="three failures in a row end it"),
        pytest.param("++----++", "-+++---+", id="and two successes bring it back"),
    ],
)
def test_thresholds_count_answers_in_a_row(answers: str, results: str) -> None:
    probe = Probe(success_threshold=2, failure_threshold=3)
    tally, seen = ProbeResult(False), ""
    for answer in answers:
        tally = tally.count(answer == "+", probe)
        seen += "+" if tally.result else "-"
    assert seen == results


@pytest.mark.req("SB-011")
def test_a_living_container_dies_after_three_failures() -> None:
    probe, tally = Probe(failure_threshold=3), ProbeResult(True)
    for expected in (True, True, False):
        tally = tally.count(False, probe)
        assert tally.result is expected


@pytest.mark.req("SB-011")
def test_ports_by_name() -> None:
    container = Container("c", ports=[Port(8081, "health")])
    assert [port_of(each, container) for each in (80, "81", "health")] == [80, 81, 8081]
    with pytest.raises(LookupError, match="no port named 'metrics'"):
        port_of("metrics", container)


async def answered(status: int, probe: Probe, *, late: bool = False) -> str:
    """What comes of asking a server that answers with this status, or ``late``: when nobody listens any more."""
    over, tasks = asyncio.Event(), []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        tasks.append(asyncio.current_task())
        if late:
            await over.wait()
        writer.write(f"HTTP/1.1 {status} X\r\nContent-Length: 4\r\nConnection: close\r\n\r\nbody".encode())
        writer.close()
        await writer.wait_closed()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    container = Container("c", ports=[Port(server.sockets[0].getsockname()[1], "health")])
    async with server, aiohttp.ClientSession() as session:
        found = await ask(probe, ProbeTarget(container, "127.0.0.1", {}, {}), session)
        over.set()
        await asyncio.gather(*tasks, return_exceptions=True)
        return found


@pytest.mark.req("SB-011")
@pytest.mark.parametrize(
    ("status", "said"), [(200, ""), (302, ""), (503, "HTTP probe failed with statuscode: 503 (body)"), (404, "404")]
)
async def test_an_http_probe(status: int, said: str) -> None:
    found = await answered(status, Probe(http_get=HttpGet("health", "/readyz")))
    assert found == said if not said else said in found


@pytest.mark.req("SB-011")
async def test_a_probe_waits_no_longer_than_its_timeout() -> None:
    assert await answered(200, Probe(http_get=HttpGet("health")), late=True) == "no answer within 1 s"


@pytest.mark.req("SB-011")
async def test_a_tcp_probe() -> None:
    assert await answered(200, Probe(tcp_socket=TcpSocket("health"))) == ""
    async with aiohttp.ClientSession() as session:
        target = ProbeTarget(Container("c"), "127.0.0.1", {}, {})
        assert "Connect call failed" in await ask(Probe(tcp_socket=TcpSocket(1)), target, session)


@pytest.mark.req("SB-011")
@pytest.mark.parametrize(
    ("command", "said"),
    [
        (["polyarch", "--version"], ""),
        (["polyarch", "lint", "/m/none"], "/v/none"),
        (["cat", "/etc/passwd"], "executable file not found"),
    ],
    ids=["well", "fails", "no such program"],
)
async def test_an_exec_probe_runs_polyarch_beside_the_container(command: list[str], said: str) -> None:
    target = ProbeTarget(Container("c"), "127.0.0.1", {}, {"/m": "/v"})
    async with aiohttp.ClientSession() as session:
        found = await ask(Probe(exec=Exec(command), timeout_seconds=30), target, session)
    assert found == said if not said else said in found


# -- logs -------------------------------------------------------------------------------------------------------------

LINES = (
    b'{"event": "a", "timestamp": "2026-01-01T00:00:01.5Z"}\n'
    b"Traceback\n"
    b"2026-01-01 00:00:03,250 b\n"
    b'{"event": "c", "timestamp": "2026-01-01T02:00:02+02:00"}\n'
)


def read(tmp_path: Path, **options: object) -> list[bytes]:
    path = tmp_path / "log"
    path.write_bytes(LINES)
    timestamps = bool(options.pop("timestamps", False))
    with containers.LogReader(path, start=NOW, timestamps=timestamps) as reader:
        return reader.begin(**options)  # type: ignore[arg-type]  # the options of a row of a table


@pytest.mark.req("SB-013")
def test_a_line_has_its_own_time_or_that_of_the_line_before(tmp_path: Path) -> None:
    """The last one is from before the third: times do not go back."""
    stamps = [line.split(b" ")[0] for line in read(tmp_path, timestamps=True)]
    first, third = b"2026-01-01T00:00:01.500000000Z", b"2026-01-01T00:00:03.250000000Z"
    assert stamps == [first, first, third, third]


@pytest.mark.req("SB-013")
@pytest.mark.parametrize(
    ("options", "count"),
    [
        ({}, 4),
        ({"tail": 2}, 2),
        ({"tail": 0}, 0),
        ({"tail": -1}, 4),
        ({"tail": 9}, 4),
        ({"since": NOW + dt.timedelta(seconds=2)}, 2),
        ({"since": NOW + dt.timedelta(seconds=2), "tail": 1}, 1),
        ({"since": NOW + dt.timedelta(hours=1)}, 0),
    ],
)
def test_the_lines_that_were_asked_for(tmp_path: Path, options: dict[str, object], count: int) -> None:
    assert read(tmp_path, **options) == LINES.splitlines(keepends=True)[len(LINES.splitlines()) - count :]


@pytest.mark.req("SB-013")
def test_a_line_that_is_being_written_is_shown_when_it_is_complete(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_bytes(b"one\ntw")
    with containers.LogReader(path, start=NOW, timestamps=False) as reader, path.open("ab", buffering=0) as writing:
        assert reader.begin() == [b"one\n"]
        assert reader.more(over=False) == []
        writing.write(b"o\nthree")
        assert reader.more(over=False) == [b"two\n"]
        assert reader.more(over=True) == [b"three"], "the container has ended"


@pytest.mark.req("SB-013")
def test_of_a_huge_log_the_end_is_shown(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_bytes(b"x" * 99 + b"\n" + (b"y" * 99 + b"\n") * (containers.MAXIMUM_BYTES // 100))
    with containers.LogReader(path, start=NOW, timestamps=False) as reader:
        assert sum(map(len, reader.begin())) <= containers.MAXIMUM_BYTES
