"""The order in which the monitor is removed."""

from typing import Any

import msgspec
import pytest

from polyarch.placement.exec_monitor_rules import (
    HANDLER_TIMEOUT,
    ExecMonitorFacts,
    MonitorUninstallStep,
    next_monitor_step,
)

ALL = ExecMonitorFacts(
    node_side=5,
    failed_events=1,
    events=2,
    waited=0.0,
    handler_finalizer=True,
    handler=9,
    configuration_finalizer=True,
)
DONE: dict[MonitorUninstallStep, dict[str, Any]] = {
    MonitorUninstallStep.DELETE_NODE_SIDE: {"node_side": 0},
    MonitorUninstallStep.DELETE_FAILED_EVENTS: {"failed_events": 0},
    MonitorUninstallStep.WAIT: {"waited": HANDLER_TIMEOUT},
    MonitorUninstallStep.DELETE_EVENTS: {"events": 0},
    MonitorUninstallStep.DROP_HANDLER_FINALIZER: {"handler_finalizer": False},
    MonitorUninstallStep.DELETE_HANDLER: {"handler": 0},
    MonitorUninstallStep.DROP_CONFIGURATION_FINALIZER: {"configuration_finalizer": False},
}
"""What each step changes."""


@pytest.mark.req("PL-630")
def test_the_steps_come_in_this_order() -> None:
    observed, steps = ALL, [next_monitor_step(ALL)]
    while steps[-1] is not MonitorUninstallStep.DONE:
        observed = msgspec.structs.replace(observed, **DONE[steps[-1]])
        steps.append(next_monitor_step(observed))
    assert steps == [*DONE, MonitorUninstallStep.DONE] == list(MonitorUninstallStep)


@pytest.mark.req("PL-630")
def test_events_that_the_handler_consumes_end_the_wait() -> None:
    waiting = msgspec.structs.replace(ALL, node_side=0, failed_events=0, waited=HANDLER_TIMEOUT - 1)
    assert next_monitor_step(waiting) is MonitorUninstallStep.WAIT
    assert next_monitor_step(msgspec.structs.replace(waiting, events=0)) is MonitorUninstallStep.DROP_HANDLER_FINALIZER


@pytest.mark.req("PL-630")
def test_without_a_handler_nobody_is_waited_for() -> None:
    assert (
        next_monitor_step(msgspec.structs.replace(ALL, node_side=0, failed_events=0, handler=0))
        is MonitorUninstallStep.DELETE_EVENTS
    )


@pytest.mark.req("PL-630")
@pytest.mark.parametrize(
    ("change", "step"),
    [
        ({"node_side": 1}, MonitorUninstallStep.DELETE_NODE_SIDE),
        ({"events": 1, "waited": 0.0}, MonitorUninstallStep.DELETE_EVENTS),
    ],
    ids=["somebody makes the DaemonSet again", "an event comes late"],
)
def test_each_pass_looks_anew(change: dict[str, Any], step: MonitorUninstallStep) -> None:
    nothing = ExecMonitorFacts(
        node_side=0,
        failed_events=0,
        events=0,
        waited=0.0,
        handler_finalizer=False,
        handler=0,
        configuration_finalizer=False,
    )
    assert next_monitor_step(nothing) is MonitorUninstallStep.DONE
    assert next_monitor_step(msgspec.structs.replace(nothing, **change)) is step
