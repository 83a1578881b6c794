"""The side of the exec monitor that handles events, as its replicas see them."""

from types import SimpleNamespace
from typing import Any

import pytest
from manual_clock import ManualClock

from polyarch.kube.metrics import Metrics
from polyarch.kube.store import ObjectChange
from polyarch.objects import ObjectKey
from polyarch.run.exec_monitor import handler_side

KEY = ObjectKey("polyarch-system", "worker-1-4711")


@pytest.mark.req("PL-600")
@pytest.mark.parametrize(("leads", "kept"), [(False, 0), (True, 1)], ids=["standby", "leader"])
def test_a_standby_keeps_no_key_of_an_event_that_the_leader_has_handled(leads: bool, kept: int) -> None:
    """Each event has a name of its own: weeks of them would be all of a standby's memory. The leader forgets the
    rest of what it knows of an event in one more pass."""
    handlers: list[Any] = []
    informer = SimpleNamespace(store={}, add_handler=handlers.append)
    process: Any = SimpleNamespace(
        clock=ManualClock(),
        metrics=Metrics(),
        client=None,
        settings=SimpleNamespace(namespace="polyarch-system"),
        recorder=lambda _: SimpleNamespace(event=lambda *_, **__: None),
        informer=lambda *_: informer,
        election=lambda _: SimpleNamespace(is_leader=leads),
    )
    [leadership] = handler_side(process).leaderships
    [passes] = leadership.controllers
    [seen] = handlers
    event: Any = object()
    seen(ObjectChange("apply", KEY, None, event, False))
    assert len(passes.queue) == 1
    seen(ObjectChange("delete", KEY, event, None, False))
    assert len(passes.queue) == kept
