"""Who waits for a Job before whom, and what takes no place."""

import msgspec
import pytest

from polyarch.builds.controller.informers import NO_LIMIT, JobQueue
from polyarch.builds.facts.objects import StoredRun
from polyarch.objects import ObjectKey

QUEUED = {"phase": "Pending", "reason": "Queued"}


def run(build: str, *, minute: int, queued: int, building: int = 0, phase: str = "Building") -> StoredRun:
    architectures = [*[QUEUED] * queued, *[{"phase": "Building"}] * building]
    metadata = {"name": f"{build}-1", "namespace": "team", "creationTimestamp": f"2026-01-01T00:{minute:02}:00Z"}
    document = {
        "metadata": metadata,
        "spec": {"imageBuild": {"name": build}},
        "status": {"phase": phase, "architectures": architectures},
    }
    return msgspec.json.decode(msgspec.json.encode(document), type=StoredRun)


@pytest.fixture
def queue() -> JobQueue:
    return JobQueue()


def put(queue: JobQueue, *runs: StoredRun) -> None:
    for each in runs:
        queue.run_changed(ObjectKey("team", each.metadata.name), each)


@pytest.mark.req("BD-154")
def test_what_waits_counts_until_it_does_not(queue: JobQueue) -> None:
    put(queue, run("web", minute=1, queued=3), run("db", minute=2, queued=1))
    assert queue.before(None, lambda build: NO_LIMIT) == 4
    put(queue, run("web", minute=1, queued=2, building=1))
    assert queue.before(None, lambda build: NO_LIMIT) == 3
    put(queue, run("web", minute=1, queued=2, phase="Superseded"))
    queue.run_changed(ObjectKey("team", "db-1"), None)
    assert queue.before(None, lambda build: NO_LIMIT) == 0


@pytest.mark.req("BD-154")
def test_what_its_own_build_holds_back_takes_no_place_of_others(queue: JobQueue) -> None:
    """Five builds of four architectures, one at a time: five Jobs are under way, and not twenty places are taken."""
    put(queue, *(run(f"b{each}", minute=each, queued=3, building=1) for each in range(5)))
    assert queue.before(None, lambda build: 1) == 0
    assert queue.before(None, lambda build: 2) == 5


@pytest.mark.req("BD-154")
def test_a_run_that_nobody_carries_on_takes_no_place(queue: JobQueue) -> None:
    """Its build has become invalid, or is gone."""
    put(queue, run("web", minute=1, queued=16), run("db", minute=2, queued=2))
    assert queue.before(None, lambda build: NO_LIMIT if build.name == "db" else None) == 2
