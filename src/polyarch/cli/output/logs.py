"""Logs of commands that people run: errors only, on stderr, and no local variables in tracebacks.

stdout is for the answer. Processes of the operator have their own settings (``polyarch.run.logs``).
"""

import logging
import sys

import structlog


def errors_only(*, verbose: bool = False) -> None:
    """From now on what libraries log goes to the stderr of this moment, if it is an error; ``verbose``: all of it."""
    structlog.configure(
        processors=[
            structlog.processors.add_log_level,
            structlog.dev.ConsoleRenderer(
                colors=sys.stderr.isatty(), exception_formatter=structlog.dev.plain_traceback
            ),
        ],
        wrapper_class=structlog.make_filtering_bound_logger(logging.DEBUG if verbose else logging.ERROR),
        logger_factory=lambda *_: structlog.PrintLogger(sys.stderr),
    )
