"""Own writes that the caches do not show yet are forgotten, whoever they were for."""

from types import SimpleNamespace

import pytest
from manual_clock import ManualClock

from polyarch.builds.controller.informers import BuildRef
from polyarch.builds.controller.writes import EXPECTATION_LIFETIME, BuildExpectations, jobs_of
from polyarch.kube.store import Store, WriteExpectations
from polyarch.kube.watch import Apply, Delete
from polyarch.objects import ObjectKey, ObjectMeta, PartialObjectMetadata


def shown(key: ObjectKey, version: int) -> PartialObjectMetadata:
    metadata = ObjectMeta(name=key.name, namespace=key.namespace, uid=str(key), resource_version=str(version))
    return PartialObjectMetadata(metadata=metadata)


@pytest.mark.req("BD-137")
def test_builds_and_namespaces_that_are_gone_are_forgotten() -> None:
    """Nobody asks again whether their writes have settled: each namespace that ever had a build was kept."""
    clock = ManualClock()
    store: Store[PartialObjectMetadata] = Store()
    writes = WriteExpectations(store, clock=clock)
    expectations: BuildExpectations[BuildRef] = BuildExpectations(clock)
    for number in range(0, 3000, 3):
        key = ObjectKey(f"branch-{number}", "web-1-amd64")
        for build in (BuildRef("ImageBuild", key.namespace, "web"), jobs_of(key.namespace)):
            expectations.wrote(build, writes, key, str(number + 1))
            assert expectations.is_stale(build)
        store.take(Apply(shown(key, number + 1)))
        expectations.deleted(jobs_of(key.namespace), store, key, str(key))
        store.take(Delete(key, str(number + 2)))
        clock.advance(1)
    assert len(expectations._pending) <= 2


@pytest.mark.req("BD-137")
def test_what_the_cache_never_shows_is_forgotten_in_time() -> None:
    clock = ManualClock()
    writes = SimpleNamespace(note_write=lambda key, version: None, is_stale=lambda key: clock.monotonic() < until[key])
    expectations: BuildExpectations[int] = BuildExpectations(clock)
    until: dict[ObjectKey, float] = {}
    for number in range(1000):
        key = ObjectKey("team", str(number))
        until[key] = clock.monotonic() + EXPECTATION_LIFETIME
        expectations.wrote(number, writes, key, "1")  # type: ignore[arg-type]
        assert expectations.is_stale(number)
        clock.advance(1)
    assert len(expectations._pending) <= EXPECTATION_LIFETIME + 1
