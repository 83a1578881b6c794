"""What all parts of a soak share: the cluster, the clock, the dice, what was counted and what was wrong."""

import random
import sys
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Final, Literal

from polyarch.kube.client import Client
from polyarch.kube.errors import ApiError, ConnectionFailed
from polyarch.sandbox.tasks import until

AWAY: Final = (ApiError, ConnectionFailed, TimeoutError)
"""What a fault makes of a request."""
LOOK_SECONDS: Final = 2.0
Kind = Literal["wrong", "stuck", "orphan", "bug", "process", "requests"]


@dataclass(frozen=True)
class Problem:
    """``wrong``: a pod or an image that is not as it has to be. ``stuck``: something that does not come to its end.
    ``orphan``: what nobody looks after any more. ``bug``: a role's own words. ``process``: memory, descriptors, tasks.
    ``requests``: too many of them."""

    kind: Kind
    text: str


@dataclass
class Trial:
    """One soak."""

    client: Client
    """The administrator's, directly at the API server."""
    dice: random.Random
    began: float = field(default_factory=time.monotonic)
    churning: bool = True
    counts: Counter[str] = field(default_factory=Counter)
    problems: list[Problem] = field(default_factory=list)
    blind: list[tuple[float, float]] = field(default_factory=list)
    """Intervals in which the API server may not have reached a webhook, so that ``failurePolicy: Ignore`` applied."""

    @property
    def now(self) -> float:
        """Seconds since the begin."""
        return time.monotonic() - self.began

    def say(self, text: str) -> None:
        print(f"[{self.now:6.0f} s] {text}", file=sys.stderr, flush=True)

    def problem(self, kind: Kind, text: str) -> None:
        self.problems.append(Problem(kind, text))
        self.say(f"{kind}: {text[:300]}")

    async def tried(self, what: str, request: Awaitable[object]) -> bool:
        """Whether a change was made; a fault may refuse it."""
        try:
            await request
        except AWAY:
            self.counts["changes refused"] += 1
            return False
        self.counts[what] += 1
        return True

    async def cleared(self, kind: Kind, look: Callable[[], Awaitable[Sequence[str]]], *, seconds: float) -> None:
        """Look until nothing is found; what is still there after so many seconds is a problem."""
        found: Sequence[str] = ()

        async def is_clear() -> bool:
            nonlocal found
            found = await look()
            return not found

        await until(is_clear, seconds=seconds, every=LOOK_SECONDS)
        for each in found:
            self.problem(kind, each)

    @contextmanager
    def blinded(self, margin: float) -> Iterator[None]:
        """Within it, and so many seconds before and after, pods may be created that no webhook sees."""
        entry = (time.monotonic() - margin, float("inf"))
        self.blind.append(entry)
        try:
            yield
        finally:
            self.blind[self.blind.index(entry)] = (entry[0], time.monotonic() + margin)

    def is_blind(self, at: float) -> bool:
        """Whether a pod of this (monotonic) time may have been created while no webhook answered."""
        return any(since <= at <= until for since, until in self.blind)
