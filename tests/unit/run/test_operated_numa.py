"""The controllers of NUMA cost nothing where nobody uses them (NO-040), and fail at their own pace (NO-046)."""

import subprocess
import sys

from manual_clock import ManualClock
from polyarch.kube.runtime.queue import WorkQueue
from polyarch.model.meta import Key
from polyarch.run.parts.operated_numa import BACKOFF, LONGEST

LOADED = """
import sys, polyarch.run.operator
print(*sorted(each for each in sys.modules if each.startswith("polyarch.numa.")))
"""


def test_no_040_an_operator_starts_without_what_the_controllers_of_numa_are_made_of() -> None:
    found = subprocess.run([sys.executable, "-c", LOADED], capture_output=True, text=True, check=True).stdout.split()
    assert set(found) == {"polyarch.numa.api", "polyarch.numa.api.resources", "polyarch.numa.names"}


def test_no_046_a_pass_that_fails_comes_again_after_one_second_and_at_last_every_two_minutes() -> None:
    queue = WorkQueue[Key]("numa", ManualClock(), random=lambda: 0.0, backoff=BACKOFF, longest=LONGEST)
    delays = [queue.retry(Key("", "numaresourcesoperator")) for _ in range(10)]
    assert delays[:3] == [1.0, 2.0, 4.0]
    assert delays[-1] == 60.0, "the upper half of two minutes is chance"
    assert (
        WorkQueue[Key]("numa", ManualClock(), random=lambda: 1.0, backoff=BACKOFF, longest=LONGEST).retry(
            Key("", "numaresourcesoperator")
        )
        == 2.0
    )
