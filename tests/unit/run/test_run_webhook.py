"""No gate without someone to remove it: the webhook watches whether the controllers' Lease moves."""

from collections.abc import Callable
from typing import Any

import pytest
from manual_clock import ManualClock

from polyarch.kube.lease import Lease, LeaseSpec
from polyarch.kube.settings import ProcessSettings
from polyarch.kube.store import ObjectChange
from polyarch.objects import ObjectKey
from polyarch.run.services import lease_watch

KEY = ObjectKey("polyarch-system", "ppc-controllers-208d7abd.multiarch.openshift.io")


class Process:
    """What the watch of the Lease needs of a process."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.settings = ProcessSettings(namespace=KEY.namespace)
        self.asked_for: dict[str, str] = {}
        self.blind_seconds = 0.0
        self._handlers: list[Callable[[ObjectChange[Lease]], None]] = []

    def informer(self, resource: Any, type: Any, **selection: str) -> "Process":
        self.asked_for = selection
        return self

    def add_handler(self, handler: Callable[[ObjectChange[Lease]], None]) -> None:
        self._handlers.append(handler)

    def renew(self, time: str | None, holder: str = "a") -> None:
        lease = None if time is None else Lease(spec=LeaseSpec(holder_identity=holder, renew_time=time))
        for handler in self._handlers:
            handler(ObjectChange("apply" if lease else "delete", KEY, None, lease))


@pytest.fixture
def process() -> Process:
    return Process()


@pytest.mark.req("PL-107")
def test_the_controllers_live_while_their_lease_moves(process):
    """Judged by how long this process has seen no change, on its own clock."""
    lives = lease_watch(process)  # type: ignore[arg-type]
    assert process.asked_for == {"namespace": KEY.namespace, "field_selector": f"metadata.name={KEY.name}"}
    for second in range(0, 120, 10):
        process.renew(f"2001-01-01T00:00:{second:02}Z")
        assert lives(), "what the other clock says does not matter"
        process.clock.advance(29)
        assert lives()
    process.clock.advance(1)
    assert not lives()
    process.renew("2030-01-01T00:00:00Z")
    assert lives()


@pytest.mark.req("PL-107")
def test_an_event_that_changes_nothing_does_not_count(process):
    lives = lease_watch(process)  # type: ignore[arg-type]
    process.renew("t")
    process.clock.advance(20)
    process.renew("t")
    process.clock.advance(10)
    assert not lives()


@pytest.mark.req("PL-107")
def test_without_any_lease_pods_are_gated_for_thirty_seconds_at_most(process):
    """A fresh installation, whose controller has not started yet, or none at all."""
    lives = lease_watch(process)  # type: ignore[arg-type]
    assert lives()
    process.clock.advance(30)
    assert not lives()


@pytest.mark.req("PL-107", "PL-811")
def test_an_outage_of_the_api_server_is_not_silence_of_the_controllers(process):
    """The first pods after it are gated, not let through to wherever they fall."""
    lives = lease_watch(process)  # type: ignore[arg-type]
    process.renew("t")
    process.clock.advance(65)
    process.blind_seconds = 60.0
    assert lives()
    process.clock.advance(24)
    assert lives()
    process.clock.advance(1)
    assert not lives(), "and if nobody renews then, nobody is there"
