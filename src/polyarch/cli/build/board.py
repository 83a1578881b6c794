"""How a build that is followed is shown: a bar for each architecture on a terminal, a line for each change in a pipe
(BD-301)."""

from collections.abc import Callable
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Protocol, TextIO

from polyarch.cli.build.observation import GOOD, Row, Sight, elapsed
from polyarch.cli.output.terminal import is_terminal, printable

if TYPE_CHECKING:
    from rich.table import Table

BAR = 24
STYLES = {"Failed": "red", "Interrupted": "yellow", "Cancelled": "yellow", "WaitingForNode": "yellow"}


class Board(Protocol):
    """Shows builds by name."""

    def show(self, name: str, seen: Sight) -> None: ...

    def close(self) -> None: ...


class Silent:
    """Nothing: the answer alone."""

    def show(self, name: str, seen: Sight) -> None: ...

    def close(self) -> None: ...


class Lines:
    """One line for each change."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._told: dict[tuple[str, str], str] = {}

    def show(self, name: str, seen: Sight) -> None:
        if seen.headline and seen.end is None:
            self._tell(name, "", seen.headline)
        for row in seen.rows:
            self._tell(name, row.architecture, row.words)

    def _tell(self, name: str, architecture: str, words: str) -> None:
        if self._told.get((name, architecture)) != words:
            self._told[name, architecture] = words
            who = f"{name} {architecture}" if architecture else name
            print(printable(f"{who}: {words}"), file=self._stream, flush=True)

    def close(self) -> None: ...


class Bars:
    """A table that stays in its place until it is closed."""

    def __init__(self, stream: TextIO, now: Callable[[], datetime] = lambda: datetime.now(UTC)) -> None:
        from rich.console import Console
        from rich.live import Live

        self._now = now
        self._sights: dict[str, Sight] = {}
        console = Console(file=stream, highlight=False)
        self._live: Live = Live(console=console, refresh_per_second=4, get_renderable=self._table)
        self._live.start()

    def show(self, name: str, seen: Sight) -> None:
        self._sights[name] = seen
        self._live.refresh()

    def close(self) -> None:
        self._live.stop()

    def _table(self) -> "Table":
        return table(self._sights, self._now())


def table(sights: dict[str, Sight], now: datetime) -> "Table":
    """What the terminal shows."""
    from rich.table import Table
    from rich.text import Text

    shown = Table(box=None, pad_edge=False, show_header=False)
    for _ in range(3):
        shown.add_column(no_wrap=True)
    shown.add_column(overflow="ellipsis", no_wrap=True)
    for name, seen in sights.items():
        if seen.headline:
            shown.add_row(Text(printable(name), style="bold"), "", "", Text(printable(seen.headline)))
        for row in seen.rows:
            seconds = elapsed(row, now)
            style = STYLES.get(row.phase, "green" if row.phase in GOOD else "")
            shown.add_row(
                Text(f"  {row.architecture}"),
                Text(bar(row), style=style),
                Text("" if seconds is None else spent(seconds), style="dim"),
                Text(printable(row.words), style=style),
            )
    return shown


def bar(row: Row) -> str:
    """How far one architecture is."""
    filled = round(BAR * row.share)
    return "█" * filled + "░" * (BAR - filled)


def spent(seconds: float) -> str:
    """``1:05``, or ``1:02:05``."""
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{rest:02d}" if hours else f"{minutes}:{rest:02d}"


def open_board(stream: TextIO, *, quiet: bool) -> Board:
    """What suits the stream."""
    if quiet:
        return Silent()
    return Bars(stream) if is_terminal(stream) else Lines(stream)
