"""Programs are started, found again and ended by what they are, not by their number alone."""

import asyncio
import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from polyarch.sandbox import processes
from polyarch.sandbox.errors import ProcessFailed
from polyarch.sandbox.processes import Command, Record, is_running

STUBBORN = (
    "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('ready', flush=True); time.sleep(60)"
)
PATIENT = "import time; print('ready', flush=True); time.sleep(60)"


@pytest.fixture
def started(tmp_path: Path) -> Iterator[list[Record]]:
    records: list[Record] = []
    yield records
    for record in records:
        if is_running(record):
            os.kill(record.pid, signal.SIGKILL)
            os.waitpid(record.pid, 0)


def python(name: str, program: str, tmp_path: Path) -> Command:
    return Command(
        name=name,
        arguments=(sys.executable, "-c", program),
        environment={"PATH": os.environ["PATH"]},
        log=str(tmp_path / f"{name}.log"),
    )


async def until_ready(record: Record) -> None:
    while "ready" not in Path(record.log).read_text():
        await asyncio.sleep(0.02)


@pytest.mark.req("SB-003")
async def test_a_program_runs_in_its_own_session_and_is_found_by_its_record(
    tmp_path: Path, started: list[Record]
) -> None:
    record = processes.start(python("a", PATIENT, tmp_path), records=tmp_path / "records")
    started.append(record)
    await until_ready(record)
    assert os.getsid(record.pid) == record.pid
    assert processes.load(tmp_path / "records") == {"a": record}
    assert is_running(record)


@pytest.mark.req("SB-003")
async def test_a_program_that_ignores_sigterm_is_killed_and_its_record_goes(
    tmp_path: Path, started: list[Record]
) -> None:
    records = tmp_path / "records"
    record = processes.start(python("a", STUBBORN, tmp_path), records=records)
    started.append(record)
    await until_ready(record)
    await processes.stop([record], records=records, grace=0.2)
    assert not is_running(record)
    assert processes.load(records) == {}


@pytest.mark.req("SB-003")
@pytest.mark.parametrize(
    "difference",
    [
        pytest.param({"start_time": 1}, id="the pid was given to a later program"),
        pytest.param({"boot": "another"}, id="the machine was started again since"),
    ],
)
async def test_a_stranger_with_the_recorded_pid_is_left_alone(
    tmp_path: Path, started: list[Record], difference: dict[str, object]
) -> None:
    record = processes.start(python("a", PATIENT, tmp_path), records=tmp_path / "records")
    started.append(record)
    await until_ready(record)
    stale = msgspec.structs.replace(record, **difference)
    assert not is_running(stale)
    await processes.stop([stale], records=tmp_path / "records", grace=0.1)
    assert is_running(record), "it was not ours to end"


@pytest.mark.req("SB-002", "SB-003")
@pytest.mark.parametrize("start", ["exec", ""], ids=["a script that becomes the program", "a script that waits for it"])
async def test_a_script_around_a_program_is_the_program_to_us(
    tmp_path: Path, started: list[Record], start: str
) -> None:
    """--assets may hold wrappers; before, they counted as ended at once and were never signalled."""
    script = tmp_path / "etcd"
    script.write_text(f'#!/bin/sh\n{start} {sys.executable} -c "$1"\nexit 0\n')
    script.chmod(0o755)
    command = Command(
        name="etcd",
        arguments=(str(script), STUBBORN),
        environment={"PATH": os.environ["PATH"]},
        log=str(tmp_path / "log"),
    )
    record = processes.start(command, records=tmp_path / "records")
    started.append(record)
    await until_ready(record)
    assert is_running(record)
    inside = processes._group(record.pid)
    await processes.stop([record], records=tmp_path / "records", grace=0.2)
    assert not is_running(record)
    ended = [stat is None or stat.has_ended for stat in map(processes._stat, inside)]
    assert all(ended), "what the script started has ended, too"


@pytest.mark.req("SB-003")
def test_inputs_differ_with_what_a_program_depends_on(tmp_path: Path) -> None:
    file = tmp_path / "registries.conf"
    before = processes.inputs_of("a", "b", files=[file])
    assert processes.inputs_of("ab", "", files=[file]) != before
    file.write_text("x")
    assert processes.inputs_of("a", "b", files=[file]) != before
    assert processes.inputs_of("a", "b", files=[file]) == processes.inputs_of("a", "b", files=[file])


@pytest.mark.req("SB-003")
async def test_a_program_that_an_older_version_started_is_known(tmp_path: Path, started: list[Record]) -> None:
    """Else `down` would leave it running, and `up` would start it twice."""
    record = processes.start(python("a", PATIENT, tmp_path), records=tmp_path / "records")
    started.append(record)
    assert is_running(msgspec.structs.replace(record, boot=""))


@pytest.mark.req("SB-003")
async def test_whoever_stops_the_sandbox_does_not_stop_itself(tmp_path: Path) -> None:
    me = processes.identify("me", os.getpid())
    assert me is not None
    assert is_running(me)
    await processes.stop([me], records=tmp_path, grace=0.1)


@pytest.mark.req("SB-003")
async def test_a_program_that_ended_is_not_running_even_before_it_is_collected(tmp_path: Path) -> None:
    record = processes.start(python("a", "pass", tmp_path), records=tmp_path / "records")
    async with asyncio.timeout(10):
        while is_running(record):
            await asyncio.sleep(0.02)


@pytest.mark.req("SB-003")
def test_a_missing_program_is_named(tmp_path: Path) -> None:
    command = Command(name="etcd", arguments=("/nowhere/etcd",), log=str(tmp_path / "log"))
    with pytest.raises(ProcessFailed, match="etcd: /nowhere/etcd does not start: No such file"):
        processes.start(command, records=tmp_path)


@pytest.mark.req("SB-003")
@pytest.mark.parametrize("content", [b'{"pid": ', b'{"name": "\xff"}'], ids=["cut short", "not UTF-8"])
def test_a_damaged_record_is_named_and_nothing_is_ended(content: bytes, tmp_path: Path) -> None:
    (tmp_path / "etcd.json").write_bytes(content)
    with pytest.raises(ProcessFailed, match=r"etcd\.json: not a process record"):
        processes.load(tmp_path)


@pytest.mark.req("SB-003")
def test_names_with_spaces_and_parentheses_do_not_shift_the_start_time() -> None:
    fields = " ".join(str(number) for number in range(4, 53))
    assert processes.parse_stat(f"7 (a) (b c) S {fields}") == ("S", 5, 22)


def test_components_collect_garbage_as_those_want_who_start_them() -> None:
    outside = {"GOGC": "300", "GOMEMLIMIT": "1GiB", "GOFLAGS": "-mod=vendor"}
    assert processes.inherited_environment(outside) == {"GOGC": "300", "GOMEMLIMIT": "1GiB"}


@pytest.mark.req("SB-008")
def test_components_do_not_inherit_proxies() -> None:
    outside = {"PATH": "/bin", "HTTPS_PROXY": "http://proxy:3128", "SECRET": "x", "HOME": "/root"}
    assert processes.inherited_environment(outside) == {"PATH": "/bin", "HOME": "/root"}
    assert "HTTPS_PROXY" in processes.inherited_environment(outside, names=("HTTPS_PROXY",))
