"""How the sandbox's steps look on stderr: a bar on a terminal, plain lines in a pipe."""

import sys
import time
from typing import Self, TextIO

from rich.console import Console
from rich.progress import BarColumn, Progress, SpinnerColumn, TaskID, TextColumn, TimeElapsedColumn

from polyarch.cli.output.messages import Messages

LINE_SECONDS = 10.0
"""In a pipe, a step that counts something says so this often."""


class TerminalProgress:
    """One line that lives: what is done now, how far it is. Finished steps stay above it."""

    def __init__(self, console: Console) -> None:
        self._progress = Progress(
            SpinnerColumn(),
            TextColumn("{task.description}"),
            BarColumn(bar_width=30),
            TextColumn("{task.fields[count]}", style="dim"),
            TimeElapsedColumn(),
            console=console,
            transient=True,
        )
        self._task: TaskID | None = None
        self._text = ""
        self._began = 0.0

    def __enter__(self) -> Self:
        self._progress.start()
        return self

    def __exit__(self, failure: type[BaseException] | None, *_: object) -> None:
        self._finish(done=failure is None)
        self._progress.stop()

    def step(self, text: str) -> None:
        self._finish(done=True)
        self._text, self._began = text, time.monotonic()
        self._task = self._progress.add_task(text, total=None, count="")

    def advance(self, done: int, total: int, detail: str = "") -> None:
        if self._task is not None:
            self._progress.update(self._task, completed=done, total=total or None, count=_count(done, total, detail))

    def _finish(self, *, done: bool) -> None:
        if self._task is None:
            return
        self._progress.remove_task(self._task)
        self._task = None
        mark = "[green]✓[/]" if done else "[red]✗[/]"
        self._progress.console.print(f"{mark} {self._text} [dim]{time.monotonic() - self._began:.1f} s[/]")


class LineProgress:
    """One line for each step, and one in a while for what a long step counts."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._told = 0.0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._stream.flush()

    def step(self, text: str) -> None:
        self._told = time.monotonic()
        print(text, file=self._stream, flush=True)

    def advance(self, done: int, total: int, detail: str = "") -> None:
        if time.monotonic() - self._told >= LINE_SECONDS:
            self._told = time.monotonic()
            print(f"  {_count(done, total, detail)}", file=self._stream, flush=True)


def _count(done: int, total: int, detail: str) -> str:
    if detail == "bytes":
        return f"{done / 1e6:.0f} of {total / 1e6:.0f} MB" if total else f"{done / 1e6:.0f} MB"
    if detail.startswith("go: downloading"):
        return detail.removeprefix("go: ")[:60]
    return f"{done} of {total} packages" if total else detail[-60:]


class NoProgress:
    """Nothing, for ``-q``."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def step(self, text: str) -> None:
        """Not told."""

    def advance(self, done: int, total: int, detail: str = "") -> None:
        """Not told."""


def shown(messages: Messages) -> TerminalProgress | LineProgress | NoProgress:
    """What fits stderr and the command line; use it as a context manager."""
    if messages.quiet:
        return NoProgress()
    console = Console(stderr=True, highlight=False)
    return TerminalProgress(console) if console.is_terminal else LineProgress(sys.stderr)
