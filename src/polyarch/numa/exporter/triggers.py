"""The triggers of one exporter: its timer, files that change, a signal, and events of its own Node.

``schedule`` decides when which of them makes a scan; here are the clock, the files and the signal.
"""

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

POLL_INTERVAL: Final = 1.0
"""Seconds between two looks at socket and notify file where the kubelet's checkpoints are not looked at."""

CheckpointName = Literal["cpu", "memory", "devices"]

CHECKPOINTS: Final[Mapping[CheckpointName, str]] = {
    "cpu": "cpu_manager_state",
    "memory": "memory_manager_state",
    "devices": "device-plugins/kubelet_internal_checkpoint",
}
"""Below the kubelet's directory."""

FileVersion = tuple[int, ...] | None
"""Tells one version of a file from the next; None: there is no file."""


class ScanTriggers:
    """Waits for the next scan; the first is at once.

    ``next`` looks at the files itself, so nothing runs beside the loop that calls it; during a scan nobody looks, and
    changes meanwhile are found afterwards.
    """

    def __init__(
        self,
        settings: TriggerSettings,
        files: "WatchedFiles",
        *,
        clock: Clock,
        stretch: Callable[[], float] | None = None,
    ) -> None:
        """Makes the notify file. Raises NotifyFileError, a ValueError, if it cannot be used."""
        if files.notify is not None:
            prepare_notify_file(files.notify)
        self._clock = clock
        self._looks_at_checkpoints = settings.state_poll > 0
        self._interval = settings.state_poll or POLL_INTERVAL
        self._changes = FileChanges(files)
        now = clock.monotonic()
        self._next_look = now + self._interval
        self._poked = asyncio.Event()
        self._schedule = ScanSchedule(
            now,
            interval=settings.sleep_interval,
            allocatable=settings.allocatable_interval,
            rate=settings.max_events_per_second,
            stretch=stretch or random_stretch,
        )

    async def next(self) -> ScanTrigger:
        """The next scan; whoever cancels this loses nothing."""
        while True:
            now = self._clock.monotonic()
            if now >= min(self._next_look, self._schedule.quiet, self._schedule.due):
                self._look(now)
            if trigger := self._schedule.take(now):
                return trigger
            due = min(self._next_look, self._schedule.quiet, self._schedule.due)
            with contextlib.suppress(TimeoutError):
                async with deadline(self._clock, due - now):
                    await self._poked.wait()
            self._poked.clear()

    def poke(self, reason: Literal["node", "signal", "socket"]) -> None:
        """An event that no file shows: a scan is to be made."""
        self._schedule.note(reason, self._clock.monotonic())
        self._poked.set()

    def put_back(self, trigger: ScanTrigger, *, after: float) -> None:
        """The scan failed: it is wanted again in ``after`` seconds, or with any other before that."""
        self._schedule.put_back(trigger, self._clock.monotonic() + after)

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
            self._schedule.note("socket", now)
        if self._changes.notify():
            self._schedule.note("notify", now)
        if self._looks_at_checkpoints:
            for checkpoint in self._changes.checkpoints():
                self._schedule.note_state(checkpoint, now)
        self._schedule.looked(now)


def random_stretch() -> float:
    """The factor of an interval."""
    return random.SystemRandom().uniform(0.9, 1.1)


# -- watched files -----------------------------------------------------------------------------------------------------


class WatchedFiles(msgspec.Struct, frozen=True, kw_only=True):
    """The files whose change means a scan; None: not looked at."""

    kubelet: Path | None = None
    """The kubelet's directory."""
    socket: Path | None = None
    notify: Path | None = None


def watched_files(podresources: str, *, kubelet: Path | None, notify: str) -> WatchedFiles:
    """The files for a URL of podresources (a fake one has no socket) and ``--notify-file`` (may be empty)."""
    address = parse_podresources_url(podresources)
    return WatchedFiles(
        kubelet=kubelet, socket=None if address.fake else address.path, notify=Path(notify) if notify else None
    )


class FileChanges:
    """Compares files with their last versions; files that exist at the beginning are no change.

    The kubelet replaces its checkpoints by renaming, and on a host mount inotify reports what another mount does to a
    file only with luck. A ``stat`` of five files takes some microseconds.
    """

    def __init__(self, files: WatchedFiles) -> None:
        self._files = files
        self._checkpoints = dict(self._checkpoint_versions())
        self._socket: SocketIdentity | None = socket_identity(files.socket) if files.socket else None
        self._notify = _notify_file_version(files.notify)

    def checkpoints(self) -> list[CheckpointName]:
        """The checkpoints that changed by inode, size or time, came or went."""
        versions = dict(self._checkpoint_versions())
        changed = [name for name, version in versions.items() if version != self._checkpoints[name]]
        self._checkpoints = versions
        return changed

    def socket(self) -> bool:
        """Whether there is another socket than the last one. A socket that vanished is no change yet."""
        identity = socket_identity(self._files.socket) if self._files.socket else None
        if identity is None or identity == self._socket:
            return False
        self._socket = identity
        return True

    def notify(self) -> bool:
        """Whether the notify file was touched."""
        version = _notify_file_version(self._files.notify)
        changed = version is not None and version != self._notify
        self._notify = version
        return changed

    def _checkpoint_versions(self) -> Iterator[tuple[CheckpointName, FileVersion]]:
        if self._files.kubelet is not None:
            for name, path in CHECKPOINTS.items():
                yield name, _checkpoint_version(self._files.kubelet / path)


def _checkpoint_version(path: Path) -> FileVersion:
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_ino, status.st_size, status.st_mtime_ns


def _notify_file_version(path: Path | None) -> FileVersion:
    if path is None:
        return None
    try:
        status = os.lstat(path)
    except OSError:
        return None
    return status.st_ino, status.st_mtime_ns, status.st_ctime_ns


# -- the notify file ---------------------------------------------------------------------------------------------------

# Whoever touches it asks for a scan: a container runtime's hook, for example, which cannot call anybody. The file is on
# the host, so nothing but an empty regular file is accepted under its name.


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
        status = os.lstat(path)
    except OSError as error:
        raise NotifyFileError(f"--notify-file {path} cannot be read: {error.strerror}") from error
    if stat.S_ISLNK(status.st_mode):
        problem = "is a symbolic link"
    elif not stat.S_ISREG(status.st_mode):
        problem = "is no regular file"
    elif status.st_size:
        problem = "is not empty"
    else:
        return
    raise NotifyFileError(f"--notify-file {path} {problem}: name an empty file, or one that does not exist yet")
