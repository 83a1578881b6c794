"""Progress on a terminal: a bar that appears when a work takes longer, and leaves nothing behind.

Imported by ``messages`` only, and only for a terminal.
"""

import threading
from typing import Self

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn
from rich.text import Text

from polyarch.cli.output.terminal import printable

SHOWN_AFTER = 1.0
"""Seconds before the bar appears: what is quicker needs none."""


class Bar:
    """A bar on a terminal that appears after a second and leaves nothing behind."""

    def __init__(self, text: str, total: int, target: Console | None = None) -> None:
        target = target or Console(stderr=True, highlight=False, soft_wrap=True)
        columns = (SpinnerColumn(), TextColumn("{task.description}"), BarColumn(bar_width=30), MofNCompleteColumn())
        self._progress = Progress(*columns, TimeElapsedColumn(), console=target, transient=True)
        self._task = self._progress.add_task(printable(text), total=total)
        self._timer = threading.Timer(SHOWN_AFTER, self._progress.start)
        self._timer.daemon = True

    def __enter__(self) -> Self:
        self._timer.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._timer.cancel()
        self._timer.join()
        self._progress.stop()

    def advance(self) -> None:
        """One more is done."""
        self._progress.advance(self._task)

    def remark(self, text: str) -> None:
        """A line that stays, above the bar."""
        self._progress.console.print(Text(printable(text)), soft_wrap=True)
