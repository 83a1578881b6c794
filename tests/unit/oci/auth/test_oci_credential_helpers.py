"""Programs that hold credentials, run for real."""

import asyncio
import os
import sys
from pathlib import Path

import pytest

from polyarch.oci.auth.credential_plugins import MAX_OUTPUT, HelperFailure, HelperOutput, ProgramHelper, ask_helper

MARKER = "s3cr3t-marker"


def program(folder: Path, name: str, body: str, *, shell: bool = False) -> str:
    """A Python program, or one of the shell where it has to start fast; returns its path."""
    path = folder / name
    path.write_text(f"#!/bin/sh\n{body}\n" if shell else f"#!{sys.executable}\nimport os, sys\n{body}\n")
    path.chmod(0o755)
    return str(path)


async def run(path: str, *, stdin: bytes = b"", timeout: float = 20.0, **environ: str) -> HelperOutput:
    return await ProgramHelper().run(path, (), stdin=stdin, environ={**os.environ, **environ}, timeout=timeout)


async def gone(pid: int) -> bool:
    """Whether a process has ended; it may need a moment to be reaped."""
    for _ in range(200):
        try:
            state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
        except (FileNotFoundError, ProcessLookupError):
            return True
        if state == "Z":
            return True
        await asyncio.sleep(0.02)
    return False


@pytest.mark.req("RG-083")
async def test_a_helper_is_given_the_host_and_read_as_json(tmp_path: Path) -> None:
    """`docker-credential-NAME get` with the host on standard input."""
    program(
        tmp_path,
        "docker-credential-test",
        'assert sys.argv[1:] == ["get"]\n'
        'print(\'{"ServerURL":"x","Username":"\' + sys.stdin.read() + \'","Secret":"p"}\')',
    )
    environ = {"PATH": str(tmp_path)}
    found = await ask_helper(ProgramHelper(), "test", "r.example:5000", environ=environ)
    assert found is not None
    assert (found.username, found.password) == ("r.example:5000", "p")


@pytest.mark.req("RG-083")
async def test_a_helper_that_is_not_installed_is_named(tmp_path: Path) -> None:
    with pytest.raises(HelperFailure, match="docker-credential-absent is not on PATH; install it or remove it"):
        await ask_helper(ProgramHelper(), "absent", "r.example", environ={"PATH": str(tmp_path)})


async def test_a_program_that_cannot_be_executed_is_named(tmp_path: Path) -> None:
    path = tmp_path / "text"
    path.write_text("no program")
    with pytest.raises(HelperFailure, match="text is missing or not executable"):
        await run(str(path))
    path.chmod(0o755)
    with pytest.raises(HelperFailure, match="text cannot be started: Exec format error"):
        await run(str(path))


@pytest.mark.req("RG-087")
async def test_what_a_program_prints_to_its_error_stream_goes_nowhere(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    path = program(tmp_path, "chatty", f"print({MARKER!r}, file=sys.stderr); sys.exit(4)")
    output = await run(path)
    assert output.status == 4
    assert MARKER not in "".join(capfd.readouterr())


async def test_a_program_that_answers_without_reading_is_no_fault(tmp_path: Path) -> None:
    path = program(tmp_path, "deaf", 'os.close(0); print("done")')
    assert await run(path, stdin=b"x" * 1_000_000) == HelperOutput(0, b"done\n")


@pytest.mark.req("RG-083")
async def test_a_program_that_takes_too_long_is_stopped_with_its_children(tmp_path: Path) -> None:
    """More than the limit is a failure, and nothing is left running."""
    pids = tmp_path / "pids"
    path = program(tmp_path, "slow", f"sleep 60 & echo $$ $! > {pids}; wait", shell=True)
    task = asyncio.create_task(run(path, timeout=2.0))
    with pytest.raises(HelperFailure, match="slow did not answer within 2 s"):
        await task
    found = [int(pid) for pid in pids.read_text().split()]
    assert len(found) == 2
    assert [await gone(pid) for pid in found] == [True, True]


async def test_a_child_that_keeps_the_output_open_is_stopped_too(tmp_path: Path) -> None:
    """The program itself has ended; its child would hold the pipe for a minute."""
    pids = tmp_path / "pids"
    path = program(tmp_path, "parent", f"sleep 60 & echo $! > {pids}", shell=True)
    with pytest.raises(HelperFailure, match="did not answer within 2 s"):
        await run(path, timeout=2.0)
    assert await gone(int(pids.read_text()))


async def test_a_cancelled_caller_leaves_no_program_behind(tmp_path: Path) -> None:
    pids = tmp_path / "pids"
    path = program(tmp_path, "slow", f"echo $$ > {pids}; sleep 60", shell=True)
    task = asyncio.create_task(run(path))
    for _ in range(500):
        if pids.exists() and pids.read_text():
            break
        await asyncio.sleep(0.02)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert await gone(int(pids.read_text()))


async def test_endless_output_is_a_failure(tmp_path: Path) -> None:
    path = program(tmp_path, "endless", f'while True: print("{MARKER}" * 1000)')
    with pytest.raises(HelperFailure, match=f"endless printed more than {MAX_OUTPUT // 1024} KiB") as caught:
        await run(path)
    assert MARKER not in str(caught.value)


async def test_only_the_given_environment_is_passed_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("POLYARCH_TEST_SECRET", MARKER)
    path = program(tmp_path, "env", "print(sorted(key for key in os.environ if key.startswith('POLYARCH')))")
    output = await ProgramHelper().run(path, (), stdin=b"", environ={"POLYARCH_GIVEN": "1"}, timeout=20.0)
    assert output.output == b"['POLYARCH_GIVEN']\n"


@pytest.mark.req("RG-087")
def test_output_is_not_shown() -> None:
    output = HelperOutput(0, MARKER.encode())
    assert MARKER not in repr(output) + repr(output.__rich_repr__())
    assert repr(output) == "HelperOutput(status=0, output=<13 bytes>)"


async def test_many_programs_at_a_time_do_not_get_in_each_others_way(tmp_path: Path) -> None:
    path = program(tmp_path, "echo", "print(sys.stdin.read(), end='')")
    outputs = await asyncio.gather(*(run(path, stdin=str(number).encode()) for number in range(8)))
    assert [output.output for output in outputs] == [str(number).encode() for number in range(8)]
