"""The controllers of NUMA cost nothing where nobody uses them, and fail at their own pace."""

import subprocess
import sys
from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any

import pytest
from manual_clock import ManualClock

from polyarch.kube.controller import NoRequeue, RequeueAfter, Result
from polyarch.kube.metrics import Metrics
from polyarch.kube.queue import WorkQueue
from polyarch.kube.resources import Resource
from polyarch.numa.api.resources import OPERATORS, SCHEDULERS
from polyarch.objects import ObjectKey
from polyarch.operator.settings import OperatorSettings
from polyarch.run.numa_component import BACKOFF, MAX_BACKOFF, NAMES, START, NumaComponent
from polyarch.run.numa_controllers import NumaControllers

DONE = NoRequeue()
LOADED = """
import sys, polyarch.run.operator
print(*sorted(each for each in sys.modules if each.startswith(("polyarch.numa.", "polyarch.operator.components.numa"))))
"""


@pytest.mark.req("NO-040")
def test_an_operator_starts_without_what_the_controllers_of_numa_are_made_of() -> None:
    found = subprocess.run([sys.executable, "-c", LOADED], capture_output=True, text=True, check=True).stdout.split()
    assert set(found) == {"polyarch.numa.api", "polyarch.numa.api.resources", "polyarch.numa.names"}


@pytest.mark.req("NO-046")
def test_a_pass_that_fails_comes_again_after_one_second_and_at_last_every_two_minutes() -> None:
    queue = WorkQueue[ObjectKey]("numa", ManualClock(), random=lambda: 0.0, backoff=BACKOFF, longest=MAX_BACKOFF)
    delays = [queue.retry(ObjectKey("", "numaresourcesoperator")) for _ in range(10)]
    assert delays[:3] == [1.0, 2.0, 4.0]
    assert delays[-1] == 60.0, "the upper half of two minutes is chance"
    assert (
        WorkQueue[ObjectKey]("numa", ManualClock(), random=lambda: 1.0, backoff=BACKOFF, longest=MAX_BACKOFF).retry(
            ObjectKey("", "numaresourcesoperator")
        )
        == 2.0
    )


class Cache:
    """Of one kind."""

    def __init__(self) -> None:
        self.store: dict[ObjectKey, object] = {}
        self.has_synced = self.is_missing = False

    def add_handler(self, handler: object) -> None:
        pass


class Controllers(NumaControllers):
    """Every pass ends as a test says."""

    def __init__(self) -> None:
        self.ends: Result = NoRequeue()

    async def reconcile(self, name: str, key: ObjectKey) -> Result:
        return self.ends


class Operated(NumaComponent):
    def __init__(self, numa: str = "auto") -> None:
        self.caches: dict[Resource, Cache] = {OPERATORS: Cache(), SCHEDULERS: Cache()}
        self.passes = Controllers()
        informers = SimpleNamespace(informer=lambda kind, *_, **__: self.caches[kind])
        process: Any = SimpleNamespace(clock=ManualClock(), metrics=Metrics(), informers=informers)
        parts: Any = dict.fromkeys(("namespace", "discovery", "recorder"))
        super().__init__(process, OperatorSettings(numa=numa), tolerated=tuple, **parts)  # type: ignore[arg-type]

    def _load(self, environment: Mapping[str, str] = {}) -> NumaControllers:
        return self.passes

    def there_is(self, *names: str) -> None:
        """These custom resources alone, and their caches are complete."""
        for name, cache in zip(NAMES, self.caches.values(), strict=False):
            cache.has_synced = True
            cache.store = {ObjectKey("", name): object()} if name in names else {}

    async def passes_over(self, name: str, *, key: str | None = None, ends: Result = DONE) -> None:
        self.passes.ends = ends
        await self._reconcile(name, ObjectKey("", name if key is None else key))


EXPORTERS, SCHEDULER, KUBELETS = NAMES


@pytest.mark.req("IN-002")
async def test_an_operator_has_looked_when_each_custom_resource_that_is_there_had_its_pass() -> None:
    numa = Operated()
    assert not numa.is_synced, "nobody knows what there is"
    numa.there_is(EXPORTERS, SCHEDULER)
    assert not numa.is_synced
    await numa.passes_over(EXPORTERS)
    assert not numa.is_synced
    await numa.passes_over(SCHEDULER, ends=RequeueAfter(5.0))
    assert numa.is_synced


@pytest.mark.req("IN-002")
@pytest.mark.parametrize("numa", ["auto", "on"])
async def test_nobody_waits_for_a_custom_resource_that_is_not_there(numa: str) -> None:
    operated = Operated(numa)
    operated.there_is(SCHEDULER)
    await operated.passes_over(SCHEDULER)
    assert operated.is_synced
    operated.there_is()
    assert operated.is_synced


@pytest.mark.req("IN-002")
def test_without_the_definitions_or_the_feature_there_is_nothing_to_look_at() -> None:
    numa = Operated()
    for cache in numa.caches.values():
        cache.is_missing = True
    assert numa.is_synced
    assert Operated("off").is_synced


@pytest.mark.req("IN-002")
@pytest.mark.parametrize(
    "empty",
    [
        {"ends": RequeueAfter(0.2)},
        {"key": "another"},
        {"key": START.name},
    ],
    ids=["waits for a cache", "an object of another name", "only loaded"],
)
async def test_a_pass_that_has_seen_nothing_does_not_count(empty: dict[str, Any]) -> None:
    numa = Operated()
    numa.there_is(EXPORTERS)
    numa.caches[OPERATORS].store[ObjectKey("", "another")] = object()
    await numa.passes_over(EXPORTERS, **empty)
    assert not numa.is_synced


@pytest.mark.req("IN-002")
async def test_a_pass_before_the_cache_showed_the_object_does_not_count() -> None:
    numa = Operated()
    await numa.passes_over(EXPORTERS)
    numa.there_is(EXPORTERS)
    assert not numa.is_synced
