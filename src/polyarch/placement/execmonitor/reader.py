"""The thread that reads ``trace_pipe`` (PL-601, PL-602).

It waits in ``poll``, so it costs nothing while nothing fails. It ends when told to: closing a file does not wake a
thread that waits for it, so there is a pipe beside it.
"""

import os
import select
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Final

import structlog

from polyarch.placement.execmonitor import trace

log = structlog.get_logger(__name__)

CHUNK: Final = 65536
LONGEST_LINE: Final = 4096
PAUSE: Final = 1.0
"""Seconds after a read that brought nothing although poll said otherwise: somebody switched tracing off."""
STOP_SECONDS: Final = 5.0


class TraceReader:
    """Calls ``take`` with each event and ``unreadable`` with the kind of each line that is none: ``garbage``, ``cut``.

    ``tick`` is called after each read and returns the seconds after which it wants to be called again, or None. All
    three run in the thread.
    """

    def __init__(
        self,
        path: Path,
        *,
        take: Callable[[trace.Returned | trace.Forked | trace.Lost], None],
        unreadable: Callable[[str], None],
        tick: Callable[[], float | None],
        ended: Callable[[Exception], None],
    ) -> None:
        """``ended``: called if the file cannot be read any more. Raises OSError if it cannot be opened."""
        self._take = take
        self._unreadable = unreadable
        self._tick = tick
        self._ended = ended
        self._rest = b""
        self._file = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        self._told, self._tell = os.pipe2(os.O_CLOEXEC)
        self._thread = threading.Thread(target=self._run, name="trace", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Ends the thread and closes the file; blocks for some milliseconds."""
        os.close(self._tell)
        self._thread.join(STOP_SECONDS)
        if self._thread.is_alive():
            log.warning("the trace reader did not end in time", seconds=STOP_SECONDS)
            return
        os.close(self._file)
        os.close(self._told)

    def _run(self) -> None:
        try:
            both, told = select.poll(), select.poll()
            for poll in (both, told):
                poll.register(self._told, 0)  # POLLHUP is always reported
            both.register(self._file, select.POLLIN)
            while True:
                wait = self._tick()
                ready = dict(both.poll(None if wait is None else wait * 1000))
                if self._told in ready:
                    return
                if self._file in ready and not self._read() and told.poll(PAUSE * 1000):
                    return
        except Exception as error:  # noqa: BLE001 - raised by the event loop, which must learn that the thread has ended
            self._ended(error)

    def _read(self) -> bool:
        try:
            data = os.read(self._file, CHUNK)
        except BlockingIOError:
            return True
        *lines, self._rest = (self._rest + data).split(b"\n")
        for line in lines:
            self._line(line)
        if len(self._rest) > LONGEST_LINE:
            self._rest = b""
            self._unreadable("cut")
        return bool(data)

    def _line(self, line: bytes) -> None:
        event = trace.parse(line)
        if event is not None:
            self._take(event)
        elif line.strip():
            self._unreadable("garbage")
