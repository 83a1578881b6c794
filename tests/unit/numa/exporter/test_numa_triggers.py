"""The triggers on real files, with a clock that is moved by hand."""

import asyncio
import os
import signal
import socket as sockets
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from manual_clock import ManualClock

from polyarch.numa.exporter.schedule import ScanTrigger
from polyarch.numa.exporter.settings import TriggerSettings
from polyarch.numa.exporter.triggers import (
    CHECKPOINTS,
    NotifyFileError,
    ScanTriggers,
    WatchedFiles,
    random_stretch,
    watched_files,
)

QUIET = TriggerSettings(sleep_interval=0, allocatable_interval=0, max_events_per_second=0)
STATE = sorted(CHECKPOINTS)


class Loop:
    """Calls ``next`` for ever, as the exporter does, and keeps what it got with the second of it."""

    def __init__(self, triggers: ScanTriggers, clock: ManualClock) -> None:
        self.triggers = triggers
        self.clock = clock
        self.seen: list[tuple[float, ScanTrigger]] = []
        self.task = asyncio.create_task(self._run())

    async def _run(self) -> None:
        while True:
            wake = await self.triggers.next()
            self.seen.append((round(self.clock.monotonic() - 1000, 3), wake))

    @property
    def reasons(self) -> list[tuple[float, list[str]]]:
        return [(second, sorted(wake.reasons)) for second, wake in self.seen]


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def files(tmp_path: Path) -> WatchedFiles:
    kubelet = tmp_path / "kubelet"
    (kubelet / "device-plugins").mkdir(parents=True)
    for name in CHECKPOINTS.values():
        (kubelet / name).write_text("{}")
    return WatchedFiles(kubelet=kubelet, socket=tmp_path / "kubelet.sock", notify=tmp_path / "notify")


@pytest.fixture
async def start(files: WatchedFiles, clock: ManualClock) -> AsyncIterator:
    loops: list[Loop] = []

    async def begin(settings: TriggerSettings = QUIET, watched: WatchedFiles = files) -> Loop:
        loops.append(Loop(ScanTriggers(settings, watched, clock=clock, stretch=lambda: 1.0), clock))
        await clock.settle()
        assert loops[-1].reasons == [(0, ["start"])]
        loops[-1].seen.clear()
        return loops[-1]

    yield begin
    for loop in loops:
        loop.task.cancel()


def replace(path: Path, text: str) -> None:
    """As the kubelet writes a checkpoint."""
    new = path.with_suffix(".tmp")
    new.write_text(text)
    new.rename(path)


def listen(path: Path) -> None:
    path.unlink(missing_ok=True)
    with sockets.socket(sockets.AF_UNIX) as made:
        made.bind(str(path))


@pytest.mark.req("NE-118")
@pytest.mark.parametrize("state", STATE)
async def test_a_state_file_that_is_replaced_starts_a_scan_within_the_poll_and_200_ms(
    start, files: WatchedFiles, clock: ManualClock, state: str
) -> None:
    loop = await start()
    await clock.run(2.5)
    replace(files.kubelet / CHECKPOINTS[state], "[]")
    await clock.run(10)
    assert loop.reasons == [(3.2, [state])]


@pytest.mark.req("NE-118")
async def test_the_same_content_again_is_a_change_and_a_file_that_goes_too(
    start, files: WatchedFiles, clock: ManualClock
) -> None:
    loop = await start()
    replace(files.kubelet / CHECKPOINTS["cpu"], "{}")
    await clock.run(5)
    (files.kubelet / CHECKPOINTS["memory"]).unlink()
    await clock.run(5)
    (files.kubelet / CHECKPOINTS["memory"]).write_text("{}")
    await clock.run(5)
    assert [reasons for _, reasons in loop.reasons] == [["cpu"], ["memory"], ["memory"]]


@pytest.mark.req("NE-118")
async def test_a_busy_kubelet_is_looked_at_until_it_is_quiet_or_a_second_has_passed(
    start, files: WatchedFiles, clock: ManualClock
) -> None:
    loop = await start()
    for step in range(30):
        replace(files.kubelet / CHECKPOINTS["cpu"], str(step))
        await clock.run(0.1)
    assert loop.reasons[0] == (2.0, ["cpu"])
    await clock.run(10)
    assert loop.reasons[-1][0] <= 4.2


@pytest.mark.req("NE-118")
async def test_polling_can_be_switched_off_and_the_others_stay(start, files: WatchedFiles, clock: ManualClock) -> None:
    loop = await start(TriggerSettings(sleep_interval=0, allocatable_interval=0, state_poll=0, max_events_per_second=0))
    for name in CHECKPOINTS.values():
        replace(files.kubelet / name, "[]")
    await clock.run(30)
    assert loop.reasons == []
    listen(files.socket)
    await clock.run(1)
    os.utime(files.notify)
    await clock.run(1)
    assert [reasons for _, reasons in loop.reasons] == [["socket"], ["notify"]]


@pytest.mark.req("NE-118")
async def test_the_poll_has_the_period_that_is_asked_for(start, files: WatchedFiles, clock: ManualClock) -> None:
    loop = await start(TriggerSettings(sleep_interval=0, allocatable_interval=0, state_poll=7, max_events_per_second=0))
    replace(files.kubelet / CHECKPOINTS["cpu"], "[]")
    await clock.run(20)
    assert loop.reasons == [(7.2, ["cpu"])]


@pytest.mark.req("NE-142")
async def test_a_kubelet_directory_that_is_not_mounted_leaves_the_other_triggers(
    start, files: WatchedFiles, clock: ManualClock, tmp_path: Path
) -> None:
    loop = await start(watched=WatchedFiles(kubelet=tmp_path / "absent", socket=files.socket, notify=files.notify))
    os.utime(files.notify)
    await clock.run(30)
    assert [reasons for _, reasons in loop.reasons] == [["notify"]]


@pytest.mark.req("NE-119")
async def test_a_new_socket_starts_a_scan_and_one_that_goes_does_not(
    start, files: WatchedFiles, clock: ManualClock
) -> None:
    listen(files.socket)
    loop = await start()
    files.socket.unlink()
    await clock.run(5)
    assert loop.reasons == []
    listen(files.socket)
    await clock.run(5)
    assert loop.reasons == [(6, ["socket"])]
    files.socket.chmod(0o600)
    await clock.run(5)
    assert len(loop.reasons) == 1


@pytest.mark.req("NE-119")
async def test_the_notify_file_is_made_empty_and_for_its_owner(start, files: WatchedFiles) -> None:
    await start()
    found = files.notify.stat()
    assert (found.st_size, oct(found.st_mode & 0o777)) == (0, "0o600")


@pytest.mark.req("NE-119")
async def test_a_touch_and_a_change_of_mode_start_a_scan(start, files: WatchedFiles, clock: ManualClock) -> None:
    files.notify.touch()
    loop = await start()
    os.utime(files.notify, (1, 1))
    await clock.run(5)
    files.notify.chmod(0o640)
    await clock.run(5)
    assert loop.reasons == [(1, ["notify"]), (6, ["notify"])]


def _link(path: Path) -> None:
    (path.parent / "target").touch()
    path.symlink_to(path.parent / "target")


@pytest.mark.req("NE-119")
@pytest.mark.parametrize(
    ("make", "words"),
    [
        (_link, "is a symbolic link"),
        (lambda path: path.symlink_to("nowhere"), "is a symbolic link"),
        (lambda path: path.mkdir(), "is no regular file"),
        (os.mkfifo, "is no regular file"),
        (lambda path: path.write_text("x"), "is not empty"),
        (lambda path: path.parent.joinpath("kubelet.sock").touch(), None),
    ],
    ids=["link", "dangling", "directory", "pipe", "content", "nothing"],
)
async def test_nothing_but_an_empty_regular_file_is_taken(files: WatchedFiles, clock, make, words: str | None) -> None:
    make(files.notify)
    if words is None:
        ScanTriggers(QUIET, files, clock=clock)
        return
    with pytest.raises(NotifyFileError, match=words):
        ScanTriggers(QUIET, files, clock=clock)


@pytest.mark.req("NE-119")
async def test_a_notify_file_in_no_directory_is_refused(clock: ManualClock, tmp_path: Path) -> None:
    with pytest.raises(NotifyFileError, match="cannot be created: No such file or directory"):
        ScanTriggers(QUIET, WatchedFiles(notify=tmp_path / "absent" / "notify"), clock=clock)


@pytest.mark.req("NE-119")
async def test_sigusr1_starts_a_scan_within_the_block(start, clock: ManualClock) -> None:
    loop = await start()
    before = signal.getsignal(signal.SIGUSR1)
    with loop.triggers.on_signal():
        os.kill(os.getpid(), signal.SIGUSR1)
        await asyncio.sleep(0)
        await clock.run(0.1)
    assert [reasons for _, reasons in loop.reasons] == [["signal"]]
    assert signal.getsignal(signal.SIGUSR1) == before


@pytest.mark.req("NE-119")
async def test_a_change_of_the_node_starts_a_scan(start, clock: ManualClock) -> None:
    loop = await start()
    loop.triggers.poke("node")
    await clock.run(0.1)
    assert loop.reasons == [(0, ["node"])]


@pytest.mark.req("NE-119")
async def test_everything_during_a_scan_makes_one_more(files: WatchedFiles, clock: ManualClock) -> None:
    """Nobody looks while the scan is made: what changed is found afterwards."""
    triggers = ScanTriggers(QUIET, files, clock=clock)
    await triggers.next()
    listen(files.socket)
    os.utime(files.notify)
    replace(files.kubelet / CHECKPOINTS["cpu"], "[]")
    triggers.poke("node")
    triggers.poke("node")
    clock.advance(3)
    wake = await triggers.next()
    assert wake.reasons == {"socket", "notify", "cpu", "node"}
    following = asyncio.create_task(triggers.next())
    await clock.run(600)
    assert not following.done()
    following.cancel()


@pytest.mark.req("NE-119")
async def test_whoever_cancels_the_wait_loses_nothing(files: WatchedFiles, clock: ManualClock) -> None:
    triggers = ScanTriggers(QUIET, files, clock=clock)
    await triggers.next()
    replace(files.kubelet / CHECKPOINTS["cpu"], "[]")
    waiting = asyncio.create_task(triggers.next())
    await clock.run(1.1)
    waiting.cancel()
    await clock.run(0.2)
    assert (await triggers.next()).reasons == {"cpu"}


@pytest.mark.req("NE-117")
async def test_intervals_are_measured_on_the_monotonic_clock(start, clock: ManualClock) -> None:
    """The clock of the wall is never asked: it may jump."""

    def jumps() -> None:
        raise AssertionError("the wall clock was read")

    clock.now = jumps  # type: ignore[method-assign, assignment]
    loop = await start(TriggerSettings(sleep_interval=60, allocatable_interval=0))
    await clock.run(121)
    assert loop.reasons == [(60, ["timer"]), (120, ["timer"])]


async def test_a_scan_that_failed_is_asked_for_again(files: WatchedFiles, clock: ManualClock) -> None:
    triggers = ScanTriggers(QUIET, files, clock=clock)
    first = await triggers.next()
    triggers.put_back(first, after=2)
    again = asyncio.create_task(triggers.next())
    await clock.run(1.9)
    assert not again.done()
    await clock.run(0.1)
    assert await again == first


@pytest.mark.req("NE-151")
async def test_waiting_for_the_rate_does_not_look_without_a_pause(files: WatchedFiles) -> None:
    """Between a change that is quiet and the scan that the rate allows lie ten seconds and as many looks."""

    class Counting(ManualClock):
        asked = 0

        def monotonic(self) -> float:
            self.asked += 1
            return super().monotonic()

    clock = Counting()
    triggers = ScanTriggers(
        TriggerSettings(sleep_interval=0, allocatable_interval=0, max_events_per_second=0.1), files, clock=clock
    )
    await triggers.next()
    replace(files.kubelet / CHECKPOINTS["cpu"], "[]")
    waiting = asyncio.create_task(triggers.next())
    await clock.run(9.9)
    assert not waiting.done()
    await clock.run(0.1)
    assert (await waiting).reasons == {"cpu"}
    assert clock.asked < 60


@pytest.mark.req("NE-117")
def test_the_spread_is_ten_percent_either_way() -> None:
    factors = [random_stretch() for _ in range(500)]
    assert min(factors) >= 0.9
    assert max(factors) <= 1.1
    assert max(factors) - min(factors) > 0.1


@pytest.mark.req("NE-119")
def test_what_is_watched_follows_from_the_settings(tmp_path: Path) -> None:
    assert watched_files("unix:///pods/kubelet.sock", kubelet=tmp_path, notify="/run/notify") == WatchedFiles(
        kubelet=tmp_path, socket=Path("/pods/kubelet.sock"), notify=Path("/run/notify")
    )
    assert watched_files("fake:///pods", kubelet=None, notify="") == WatchedFiles()
