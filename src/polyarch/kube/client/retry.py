"""Retry policy of requests (KR-002).

429 is retried for every verb, as the server did not begin; a connection that could not be made likewise, but only
briefly: a server that is not there is its caller's business. 5xx and answers cut off are retried only where doing the
thing twice is the same as once. Everything else in the 4xx range is an answer, not a failure. Waits have full jitter,
so that a thousand clients of a restarted server do not come back in step. Pure: chance and time are handed in.
"""

from collections.abc import Callable

import msgspec

from polyarch.kube.errors import ApiError, ConnectionFailed, KubernetesError

Random = Callable[[], float]
"""Uniform in [0, 1)."""


class Retries(msgspec.Struct, frozen=True):
    """How long and how often. ``deadline`` counts from the first attempt; a wait that would pass it is not begun."""

    deadline: float = 30.0
    base: float = 0.1
    cap: float = 5.0
    connect_attempts: int = 3


def backoff(attempt: int, *, base: float, cap: float, random: Random) -> float:
    """Full jitter: uniform between 0 and ``base`` doubled ``attempt`` times, at most ``cap`` seconds."""
    return random() * min(cap, base * 2.0 ** min(attempt, 32))


def delay(
    error: KubernetesError, *, idempotent: bool, attempt: int, elapsed: float, retries: Retries, random: Random
) -> float | None:
    """Seconds to wait before the next try, or None if the error is final. ``attempt`` counts from 0."""
    if not _worth_it(error, idempotent, attempt, retries):
        return None
    wait = backoff(attempt, base=retries.base, cap=retries.cap, random=random)
    if isinstance(error, ApiError) and error.retry_after is not None:
        # Never before the server's own word; the jitter on top keeps those it sent away from returning together.
        wait += error.retry_after
    return wait if elapsed + wait <= retries.deadline else None


def _worth_it(error: KubernetesError, idempotent: bool, attempt: int, retries: Retries) -> bool:
    if isinstance(error, ConnectionFailed):
        if error.permanent:
            return False
        if not error.sent:
            return attempt + 1 < retries.connect_attempts
        return idempotent
    if isinstance(error, ApiError):
        return error.status == 429 or (error.status >= 500 and idempotent)
    return False
