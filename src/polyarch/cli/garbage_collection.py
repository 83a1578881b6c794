"""How often the cyclic collector looks while a command runs.

A command makes some ten thousand objects before it starts and, where it reads manifests, some thousand per document,
all without a cycle. Looking through them after every 700 costs a tenth of a start and a fifth of a run, and
finds nothing. What runs for days looks as often as Python means it to."""

import gc
from collections.abc import Iterator
from contextlib import contextmanager

RARELY = (100_000, 50, 1_000)
AS_USUAL = gc.get_threshold()


@contextmanager
def collecting_rarely() -> Iterator[None]:
    """Until the end of the block the collector looks after 100 000 objects."""
    before = gc.get_threshold()
    gc.set_threshold(*RARELY)
    try:
        yield
    finally:
        gc.set_threshold(*before)


def leave_all_as_it_is() -> None:
    """For a process that ends: Python looks through everything twice before it does, and what it could find ends too.
    With the look that is overdue this is a seventh of the CPU of inspecting a hundred images."""
    gc.freeze()


def collect_as_usual() -> None:
    """For a process that serves: from now on as often as Python does by itself.

    The hundred thousand objects of its modules stay until it ends. One look through them takes 50 ms, and would be
    taken again and again.
    """
    gc.freeze()
    gc.set_threshold(*AS_USUAL)
