"""How far a long work is: a line once in a while in a pipe, or nothing; ``progress_bar`` has what a terminal shows."""

import time
from typing import Protocol, Self, TextIO

from polyarch.cli.output.terminal import printable

LINE_EVERY = 10.0
"""Seconds between the lines of progress in a pipe."""


class Progress(Protocol):
    """How far a long work is, while its block lasts."""

    def __enter__(self) -> Self: ...

    def __exit__(self, *_: object) -> None: ...

    def advance(self) -> None:
        """One more is done."""

    def remark(self, text: str) -> None:
        """A line that stays."""


class Lines:
    """Progress in a pipe: a line once in a while."""

    def __init__(self, text: str, total: int, stream: TextIO) -> None:
        self._text = printable(text)
        self._total = total
        self._done = 0
        self._stream = stream
        self._told = time.monotonic()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._stream.flush()

    def advance(self) -> None:
        """One more is done."""
        self._done += 1
        if time.monotonic() - self._told >= LINE_EVERY and self._done < self._total:
            self._told = time.monotonic()
            self.remark(f"{self._text}: {self._done} of {self._total}")

    def remark(self, text: str) -> None:
        """A line of its own."""
        print(printable(text), file=self._stream, flush=True)


class Silent:
    """No progress, and no remarks."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def advance(self) -> None:
        """Nothing is said."""

    def remark(self, text: str) -> None:
        """Nothing is said."""
