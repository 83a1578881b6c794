"""PL-630: the order in which the monitor is removed."""

from typing import Any

import msgspec
import pytest

from polyarch.placement.execmonitor.removal import MOST_SECONDS, Observed, Step, next_step

ALL = Observed(
    node_side=5,
    failed_events=1,
    events=2,
    waited=0.0,
    handler_finalizer=True,
    handler=9,
    configuration_finalizer=True,
)
DONE: dict[Step, dict[str, Any]] = {
    Step.DELETE_NODE_SIDE: {"node_side": 0},
    Step.DELETE_FAILED_EVENTS: {"failed_events": 0},
    Step.WAIT: {"waited": MOST_SECONDS},
    Step.DELETE_EVENTS: {"events": 0},
    Step.DROP_HANDLER_FINALIZER: {"handler_finalizer": False},
    Step.DELETE_HANDLER: {"handler": 0},
    Step.DROP_CONFIGURATION_FINALIZER: {"configuration_finalizer": False},
}
"""What each step changes."""


def test_the_steps_come_in_this_order_pl_630() -> None:
    observed, steps = ALL, [next_step(ALL)]
    while steps[-1] is not Step.DONE:
        observed = msgspec.structs.replace(observed, **DONE[steps[-1]])
        steps.append(next_step(observed))
    assert steps == [*DONE, Step.DONE] == list(Step)


def test_events_that_the_handler_consumes_end_the_wait_pl_630() -> None:
    waiting = msgspec.structs.replace(ALL, node_side=0, failed_events=0, waited=MOST_SECONDS - 1)
    assert next_step(waiting) is Step.WAIT
    assert next_step(msgspec.structs.replace(waiting, events=0)) is Step.DROP_HANDLER_FINALIZER


def test_without_a_handler_nobody_is_waited_for_pl_630() -> None:
    assert next_step(msgspec.structs.replace(ALL, node_side=0, failed_events=0, handler=0)) is Step.DELETE_EVENTS


@pytest.mark.parametrize(
    ("change", "step"),
    [({"node_side": 1}, Step.DELETE_NODE_SIDE), ({"events": 1, "waited": 0.0}, Step.DELETE_EVENTS)],
    ids=["somebody makes the DaemonSet again", "an event comes late"],
)
def test_each_pass_looks_anew_pl_630(change: dict[str, Any], step: Step) -> None:
    nothing = Observed(
        node_side=0,
        failed_events=0,
        events=0,
        waited=0.0,
        handler_finalizer=False,
        handler=0,
        configuration_finalizer=False,
    )
    assert next_step(nothing) is Step.DONE
    assert next_step(msgspec.structs.replace(nothing, **change)) is step
