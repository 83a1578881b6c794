"""Logging of a process: one line per entry on stderr, JSON in a cluster.

``spec.logVerbosity`` of the ClusterPodPlacementConfig changes the level while the process runs.
"""

import logging
import sys
from contextlib import suppress
from typing import Final, TextIO, cast

import structlog
import structlog.tracebacks
from structlog.typing import EventDict, WrappedLogger

from polyarch.run.settings import LogFormat, LogLevel

_LEVELS: Final = {"debug": logging.DEBUG, "info": logging.INFO, "warning": logging.WARNING}
_VERBOSITY: Final = {"Debug": logging.DEBUG, "Trace": logging.DEBUG, "TraceAll": logging.DEBUG}


class Verbosity:
    """The lowest level that is logged; a structlog processor."""

    def __init__(self, level: LogLevel = "info") -> None:
        self._usual = _LEVELS[level]
        self._least = self._usual

    def set(self, word: str) -> None:
        """``Debug``, ``Trace`` or ``TraceAll`` log everything; any other word restores the level of the startup."""
        self._least = _VERBOSITY.get(word, self._usual)

    def __call__(self, logger: WrappedLogger, method: str, event: EventDict) -> EventDict:
        if _LEVELS.get(method, logging.ERROR) < self._least:
            raise structlog.DropEvent
        return event


class _LossyStream:
    """A stream whose errors cost only what was to be written.

    A disk that is full, or a reader that is gone, must not end the process whose log this is.
    """

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def write(self, text: str) -> int:
        with suppress(OSError):
            self._stream.write(text)
        return len(text)

    def flush(self) -> None:
        with suppress(OSError):
            self._stream.flush()


def configure(format: LogFormat, level: LogLevel = "info") -> Verbosity:
    """Send the logs of this process to stderr; stdout is for machine-readable output."""
    verbosity = Verbosity(level)
    processors: list[structlog.typing.Processor] = [
        verbosity,
        structlog.contextvars.merge_contextvars,
        structlog.processors.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
    ]
    if format == "json":
        frames = structlog.tracebacks.ExceptionDictTransformer(show_locals=False)
        processors += [structlog.processors.ExceptionRenderer(frames), structlog.processors.JSONRenderer()]
    else:
        # No local variables in tracebacks, here or above: a transport's hold the Authorization header.
        plain = structlog.dev.plain_traceback
        processors.append(structlog.dev.ConsoleRenderer(colors=sys.stderr.isatty(), exception_formatter=plain))
    structlog.configure(
        processors=processors,
        wrapper_class=structlog.make_filtering_bound_logger(logging.DEBUG),
        logger_factory=structlog.PrintLoggerFactory(cast("TextIO", _LossyStream(sys.stderr))),
        cache_logger_on_first_use=False,
    )
    return verbosity
