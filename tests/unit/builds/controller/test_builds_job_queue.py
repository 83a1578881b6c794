"""Who waits for a Job before whom, and what takes no place."""

import msgspec
import pytest

from polyarch.builds.controller.informers import NO_LIMIT, JobQueue
from polyarch.builds.facts.build_facts import seconds
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
    assert queue.before("team", None, lambda build: NO_LIMIT, 20) == (4, "db-1")
    put(queue, run("web", minute=1, queued=2, building=1))
    assert queue.before("team", None, lambda build: NO_LIMIT, 20) == (3, "db-1")
    put(queue, run("web", minute=1, queued=2, phase="Superseded"))
    queue.run_changed(ObjectKey("team", "db-1"), None)
    assert queue.before("team", None, lambda build: NO_LIMIT, 20) == (0, "")


@pytest.mark.req("BD-154")
def test_what_its_own_build_holds_back_takes_no_place_of_others(queue: JobQueue) -> None:
    """Five builds of four architectures, one at a time: five Jobs are under way, and not twenty places are taken."""
    put(queue, *(run(f"b{each}", minute=each, queued=3, building=1) for each in range(5)))
    assert queue.before("team", None, lambda build: 1, 20) == (0, "")
    assert queue.before("team", None, lambda build: 2, 20) == (5, "b4-1")


@pytest.mark.req("BD-154")
def test_a_run_that_nobody_carries_on_takes_no_place(queue: JobQueue) -> None:
    """Its build has become invalid, or is gone."""
    put(queue, run("web", minute=1, queued=16), run("db", minute=2, queued=2))
    assert queue.before("team", None, lambda build: NO_LIMIT if build.name == "db" else None, 20) == (2, "db-1")


@pytest.mark.req("BD-156")
def test_thousands_of_runs_of_one_namespace_are_no_more_than_it_could_have_jobs(queue: JobQueue) -> None:
    """Neither for what others may have, nor for who is looked at again when a Job has ended."""
    put(queue, *(run(f"b{each:04}", minute=each % 60, queued=2) for each in range(2000)))
    other = run("web", minute=5, queued=1)
    queue.run_changed(ObjectKey("other", "web-1"), other)
    found = queue.queued(lambda build: NO_LIMIT, 20)
    assert {name: count for name, (count, _) in found.items()} == {"team": 20, "other": 1}
    builds = queue.next_builds(lambda build: NO_LIMIT, 20)
    assert len(builds) == 21
    assert {each.name for each in builds[:20]} == {f"b{each:04}" for each in range(0, 1200, 60)}
    assert queue.before("other", None, lambda build: NO_LIMIT, 20) == (1, "web-1")


@pytest.mark.req("BD-156")
def test_the_oldest_run_that_waits_says_since_when_a_namespace_waits(queue: JobQueue) -> None:
    put(queue, run("db", minute=2, queued=1), run("web", minute=1, queued=1), run("full", minute=0, queued=1))
    ((_, since),) = queue.queued(lambda build: 1 if build.name != "full" else None, 20).values()
    assert since == seconds("2026-01-01T00:01:00Z")
