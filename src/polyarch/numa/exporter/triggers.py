"""The notify file: whoever touches it asks for a scan.

A container runtime's hook does, for example, which cannot call anybody. The file is on the host, so nothing but an
empty regular file is accepted under its name."""

import asyncio
import contextlib
import os
import random
import signal
import stat
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Final, Literal

import msgspec

from polyarch.clock import Clock, deadline
from polyarch.numa.exporter.schedule import ScanSchedule, ScanTrigger
from polyarch.numa.exporter.settings import TriggerSettings
from polyarch.numa.host.podresources import SocketIdentity, parse_podresources_url, socket_identity


class NotifyFileError(ValueError):
    """``--notify-file`` names something that cannot be used."""


def prepare_notify_file(path: Path) -> None:
    """Creates the file, empty and for its owner alone, if there is none. Raises NotifyFileError."""
    try:
        os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600))
    except FileExistsError:
        _check_notify_file(path)
    except OSError as error:
        raise NotifyFileError(f"--notify-file {path} cannot be created: {error.strerror}") from error


def _check_notify_file(path: Path) -> None:
    try:
        found = os.lstat(path)
    except OSError as error:
        raise NotifyFileError(f"--notify-file {path} cannot be read: {error.strerror}") from error
    if stat.S_ISLNK(found.st_mode):
        problem = "is a symbolic link"
    elif not stat.S_ISREG(found.st_mode):
        problem = "is no regular file"
    elif found.st_size:
        problem = "is not empty"
    else:
        return
    raise NotifyFileError(f"--notify-file {path} {problem}: name an empty file, or one that does not exist yet")


# -- Files whose change means a scan, told by ``stat``.


CheckpointName = Literal["cpu", "memory", "devices"]

CHECKPOINTS: Final[Mapping[CheckpointName, str]] = {
    "cpu": "cpu_manager_state",
    "memory": "memory_manager_state",
    "devices": "device-plugins/kubelet_internal_checkpoint",
}
"""Below the kubelet's directory."""

FileVersion = tuple[int, ...] | None
"""What tells one version of a file from the next; None: there is none."""


class WatchedFiles(msgspec.Struct, frozen=True, kw_only=True):
    """Where they are; None: not looked at."""

    kubelet: Path | None = None
    """The kubelet's directory."""
    socket: Path | None = None
    notify: Path | None = None


def watched_files(podresources: str, *, kubelet: Path | None, notify: str) -> WatchedFiles:
    """What to watch for a URL of podresources (a fake one has no socket) and ``--notify-file`` (may be empty)."""
    address = parse_podresources_url(podresources)
    return WatchedFiles(
        kubelet=kubelet, socket=None if address.fake else address.path, notify=Path(notify) if notify else None
    )


class FileChanges:
    """Compares with what was seen last; what is there at the beginning is no change."""

    def __init__(self, files: WatchedFiles) -> None:
        self._files = files
        self._state = dict(self._look_at_state())
        self._socket: SocketIdentity | None = socket_identity(files.socket) if files.socket else None
        self._notify = _notify_file_version(files.notify)

    def state(self) -> list[CheckpointName]:
        """Which state of the kubelet changed, by inode, size or time, came or went."""
        found = dict(self._look_at_state())
        changed = [each for each, seen in found.items() if seen != self._state[each]]
        self._state = found
        return changed

    def socket(self) -> bool:
        """Whether there is another socket than the last one. That it is gone is nothing yet."""
        found = socket_identity(self._files.socket) if self._files.socket else None
        if found is None or found == self._socket:
            return False
        self._socket = found
        return True

    def notify(self) -> bool:
        """Whether the notify file was touched."""
        found = _notify_file_version(self._files.notify)
        changed = found is not None and found != self._notify
        self._notify = found
        return changed

    def _look_at_state(self) -> Iterator[tuple[CheckpointName, FileVersion]]:
        if self._files.kubelet is not None:
            for state, name in CHECKPOINTS.items():
                yield state, _checkpoint_version(self._files.kubelet / name)


def _checkpoint_version(path: Path) -> FileVersion:
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_ino, found.st_size, found.st_mtime_ns


def _notify_file_version(path: Path | None) -> FileVersion:
    if path is None:
        return None
    try:
        found = os.lstat(path)
    except OSError:
        return None
    return found.st_ino, found.st_mtime_ns, found.st_ctime_ns


# -- The triggers of one exporter: waits for the next scan.


POLL_INTERVAL: Final = 1.0
"""Seconds between two looks at socket and notify file where the kubelet's state is not looked at."""


def random_stretch() -> float:
    """The factor of an interval."""
    return random.SystemRandom().uniform(0.9, 1.1)


class ScanTriggers:
    """Waits for scans; the first is at once."""

    def __init__(
        self,
        settings: TriggerSettings,
        files: WatchedFiles,
        *,
        clock: Clock,
        stretch: Callable[[], float] = random_stretch,
    ) -> None:
        """Makes the notify file. Raises NotifyFileError, a ValueError, if it cannot be used."""
        if files.notify is not None:
            prepare_notify_file(files.notify)
        self._clock = clock
        self._look_at_state = settings.state_poll > 0
        self._interval = settings.state_poll or POLL_INTERVAL
        self._changes = FileChanges(files)
        now = clock.monotonic()
        self._next_look = now + self._interval
        self._told = asyncio.Event()
        self._pacing = ScanSchedule(
            now,
            interval=settings.sleep_interval,
            allocatable=settings.allocatable_interval,
            rate=settings.max_events_per_second,
            stretch=stretch,
        )

    async def next(self) -> ScanTrigger:
        """The next scan that is to be made; whoever cancels this loses nothing."""
        while True:
            now = self._clock.monotonic()
            if now >= min(self._next_look, self._pacing.quiet, self._pacing.due):
                self._look(now)
            if wake := self._pacing.take(now):
                return wake
            due = min(self._next_look, self._pacing.quiet, self._pacing.due)
            with contextlib.suppress(TimeoutError):
                async with deadline(self._clock, due - now):
                    await self._told.wait()
            self._told.clear()

    def poke(self, reason: Literal["node", "signal", "socket"]) -> None:
        """Something happened that no file tells: a scan is to be made."""
        self._pacing.note(reason, self._clock.monotonic())
        self._told.set()

    def put_back(self, wake: ScanTrigger, *, after: float) -> None:
        """The scan failed: it is wanted again in ``after`` seconds, or with any other before that."""
        self._pacing.put_back(wake, self._clock.monotonic() + after)

    @contextlib.contextmanager
    def on_signal(self, number: signal.Signals = signal.SIGUSR1) -> Iterator[None]:
        """The signal asks for a scan within this block."""
        loop = asyncio.get_running_loop()
        loop.add_signal_handler(number, self.poke, "signal")
        try:
            yield
        finally:
            loop.remove_signal_handler(number)

    def _look(self, now: float) -> None:
        self._next_look = now + self._interval
        if self._changes.socket():
            self._pacing.note("socket", now)
        if self._changes.notify():
            self._pacing.note("notify", now)
        if self._look_at_state:
            for state in self._changes.state():
                self._pacing.note_state(state, now)
        self._pacing.looked(now)
