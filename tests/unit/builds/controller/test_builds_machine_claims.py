"""Which images machine OS builds refer to is known once their kinds were looked for and read, or not served."""

import asyncio
import contextlib
from types import SimpleNamespace
from typing import Any

import pytest
from manual_clock import ManualClock

from polyarch.builds.controller.machine_os import MachineOSConfigReader
from polyarch.builds.facts.build_facts import PlanSettings
from polyarch.builds.places import NO_OTHERS
from polyarch.kube.errors import Unavailable
from polyarch.kube.store import Store, WriteExpectations
from polyarch.objects import ObjectKey


class Informers:
    """Caches that nothing fills."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.made: dict[str, Any] = {}

    def informer(self, resource: Any, type: Any, **_: Any) -> Any:
        store: Store[Any] = Store()
        writes = WriteExpectations(store, clock=self.clock)
        found = SimpleNamespace(
            resource=resource, store=store, writes=writes, has_synced=True, problem=None, add_handler=lambda _: None
        )
        self.made[resource.plural] = found
        return found


class Served:
    def __init__(self, answer: bool | None) -> None:
        self._answer = answer

    async def is_served(self, resource: Any) -> bool:
        if self._answer is None:
            raise Unavailable(503, reason="ServiceUnavailable")
        return self._answer


@pytest.fixture
def informers() -> Informers:
    return Informers()


@pytest.fixture
def machine(informers: Informers) -> MachineOSConfigReader:
    nothing: Any = None
    shared: Any = SimpleNamespace(
        **{each: informers.informer(SimpleNamespace(plural=each, kind=each), None) for each in ("jobs", "records")},
        nodes=informers.informer(SimpleNamespace(plural="nodes"), None),
        pods=informers.informer(SimpleNamespace(plural="pods"), None),
    )
    return MachineOSConfigReader(
        shared,
        informers,  # type: ignore[arg-type]
        namespace="machines",
        settings=PlanSettings(),
        clock=informers.clock,
        metrics=nothing,
        own_metrics=nothing,
        places=lambda namespace: NO_OTHERS,
        recorder=nothing,
    )


@pytest.mark.req("BD-231")
@pytest.mark.parametrize(("answer", "known"), [(None, None), (False, [])])
async def test_kinds_that_are_not_served_refer_to_nothing_and_unknown_ones_to_anything(
    machine: MachineOSConfigReader, answer: bool | None, known: list[Any] | None
) -> None:
    assert machine.executions() is None, "nobody has looked yet"
    client: Any = Served(answer)
    looking = asyncio.create_task(machine.attend(client))
    await asyncio.sleep(0)
    assert machine.executions() == known
    looking.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await looking


@pytest.mark.req("BD-231")
@pytest.mark.parametrize("late", ["machineosbuilds", "machineosconfigs", "records"])
def test_a_cache_that_is_behind_what_was_written_tells_nothing(
    machine: MachineOSConfigReader, informers: Informers, late: str
) -> None:
    """A MachineOSBuild that was just made may refer to any image."""
    machine.start()
    assert machine.executions() == []
    informers.made[late].writes.note_write(ObjectKey("", "new"), "999")
    assert machine.executions() is None
    informers.clock.advance(60)
    assert machine.executions() == []


@pytest.mark.req("BD-231")
@pytest.mark.parametrize("unread", ["machineosbuilds", "machineosconfigs", "records"])
def test_a_cache_that_was_not_read_tells_nothing(
    machine: MachineOSConfigReader, informers: Informers, unread: str
) -> None:
    machine.start()
    informers.made[unread].has_synced = False
    assert machine.executions() is None


@pytest.mark.req("BD-231")
@pytest.mark.parametrize("refused", ["machineosbuilds", "machineosconfigs", "machineconfigpools", "machineconfigs"])
def test_a_cache_that_the_api_server_does_not_fill_any_more_tells_nothing(
    machine: MachineOSConfigReader, informers: Informers, refused: str
) -> None:
    """It was read once, and somebody has taken the right away since: it gets older and older."""
    machine.start()
    assert machine.executions() == []
    informers.made[refused].problem = "403 Forbidden"
    assert machine.executions() is None
