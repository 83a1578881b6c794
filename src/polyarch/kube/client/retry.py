"""The retry policy of requests (KR-002).

429 is retried for every verb, because the server has not started the request. So is a failed connect, but only a few
times: how to handle an absent server is the caller's decision. 5xx and lost responses are retried only for idempotent
requests. Any other 4xx is an answer, not a failure. Backoff has full jitter, so that a thousand clients of a restarted
server do not return at the same time. Pure: time and random numbers are arguments.
"""

from collections.abc import Callable

import msgspec

from polyarch.kube.errors import ApiError, ConnectionFailed, KubernetesError

Random = Callable[[], float]
"""A function that returns a number in [0, 1), uniformly distributed."""


class Retries(msgspec.Struct, frozen=True):
    """Limits of retries. ``deadline`` counts from the first attempt; a wait beyond it is not started."""

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
    """Seconds to wait before the next attempt; None if the error is final. ``attempt`` counts from 0."""
    if not _worth_it(error, idempotent, attempt, retries):
        return None
    wait = backoff(attempt, base=retries.base, cap=retries.cap, random=random)
    if isinstance(error, ApiError) and error.retry_after is not None:
        # Never before the server's Retry-After; the jitter on top spreads the clients that all got the same one.
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
