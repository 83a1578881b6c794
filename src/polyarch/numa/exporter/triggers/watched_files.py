"""Files whose change means a scan, told by ``stat`` (NE-118, NE-119).

The kubelet replaces its state files by renaming, and on a host mount inotify reports what another mount does to a file
only with luck. A look at five files takes some microseconds.
"""

import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final, Literal

import msgspec

from polyarch.numa.host.podresources.address import Identity, identity, parse

State = Literal["cpu", "memory", "devices"]

STATE_FILES: Final[Mapping[State, str]] = {
    "cpu": "cpu_manager_state",
    "memory": "memory_manager_state",
    "devices": "device-plugins/kubelet_internal_checkpoint",
}
"""Below the kubelet's directory."""

Seen = tuple[int, ...] | None
"""What tells one version of a file from the next; None: there is none."""


class Watched(msgspec.Struct, frozen=True, kw_only=True):
    """Where they are; None: not looked at."""

    kubelet: Path | None = None
    """The kubelet's directory."""
    socket: Path | None = None
    notify: Path | None = None


def watched(podresources: str, *, kubelet: Path | None, notify: str) -> Watched:
    """What to watch for a URL of podresources (a fake one has no socket) and ``--notify-file`` (may be empty)."""
    address = parse(podresources)
    return Watched(
        kubelet=kubelet, socket=None if address.fake else address.path, notify=Path(notify) if notify else None
    )


class FileChanges:
    """Compares with what was seen last; what is there at the beginning is no change."""

    def __init__(self, files: Watched) -> None:
        self._files = files
        self._state = dict(self._look_at_state())
        self._socket: Identity | None = identity(files.socket) if files.socket else None
        self._notify = _notify_seen(files.notify)

    def state(self) -> list[State]:
        """Which state of the kubelet changed, by inode, size or time, came or went."""
        found = dict(self._look_at_state())
        changed = [each for each, seen in found.items() if seen != self._state[each]]
        self._state = found
        return changed

    def socket(self) -> bool:
        """Whether there is another socket than the last one. That it is gone is nothing yet."""
        found = identity(self._files.socket) if self._files.socket else None
        if found is None or found == self._socket:
            return False
        self._socket = found
        return True

    def notify(self) -> bool:
        """Whether the notify file was touched."""
        found = _notify_seen(self._files.notify)
        changed = found is not None and found != self._notify
        self._notify = found
        return changed

    def _look_at_state(self) -> Iterator[tuple[State, Seen]]:
        if self._files.kubelet is not None:
            for state, name in STATE_FILES.items():
                yield state, _state_seen(self._files.kubelet / name)


def _state_seen(path: Path) -> Seen:
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_ino, found.st_size, found.st_mtime_ns


def _notify_seen(path: Path | None) -> Seen:
    if path is None:
        return None
    try:
        found = os.lstat(path)
    except OSError:
        return None
    return found.st_ino, found.st_mtime_ns, found.st_ctime_ns
