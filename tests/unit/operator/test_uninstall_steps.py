"""The next step of an uninstall."""

from typing import Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from polyarch.operator.uninstall import (
    GATES_SECONDS,
    RELEASE_SECONDS,
    SETTLING,
    PlacementUninstallStep,
    RemainingController,
    RemainingPlacement,
    UninstallBackoff,
    next_placement_step,
)

STANDING: Final = RemainingController(8, exists=True)


def leaving(seconds: float, objects: int = 8) -> RemainingController:
    return RemainingController(objects, exists=True, deleting_for=seconds)


WHOLE = RemainingPlacement(configuration=True, webhook_configured=True, webhook=9, controller=STANDING, gated=5)
UNASKED = WHOLE._replace(webhook_configured=False)
ALONE = UNASKED._replace(webhook=0)


@pytest.mark.req("PL-520", "PL-521")
@pytest.mark.parametrize(
    ("left", "step"),
    [
        pytest.param(WHOLE, PlacementUninstallStep.DELETE_WEBHOOK_CONFIGURATION, id="no more pods are gated"),
        pytest.param(
            WHOLE._replace(configs=2),
            PlacementUninstallStep.DELETE_WEBHOOK_CONFIGURATION,
            id="also while there are configs",
        ),
        pytest.param(UNASKED._replace(configs=2), PlacementUninstallStep.WAIT_FOR_CONFIGS, id="configs go first"),
        pytest.param(
            UNASKED._replace(configs=2, forced=True), PlacementUninstallStep.REMOVE_WEBHOOK, id="unless when forced"
        ),
        pytest.param(
            UNASKED._replace(monitor=True), PlacementUninstallStep.REMOVE_MONITOR, id="the monitor goes first"
        ),
        pytest.param(UNASKED, PlacementUninstallStep.REMOVE_WEBHOOK, id="the webhook goes before the controller"),
        pytest.param(ALONE, PlacementUninstallStep.RETIRE_CONTROLLER, id="the controller's time begins"),
        pytest.param(
            ALONE._replace(gated=0), PlacementUninstallStep.RETIRE_CONTROLLER, id="also if no pod seems to be gated"
        ),
        pytest.param(
            ALONE._replace(gated=0, controller=leaving(SETTLING - 1)),
            PlacementUninstallStep.WAIT_FOR_GATES,
            id="an admission on its way may still gate a pod",
        ),
        pytest.param(
            ALONE._replace(controller=leaving(119)), PlacementUninstallStep.WAIT_FOR_GATES, id="gates are being removed"
        ),
        pytest.param(
            ALONE._replace(controller=leaving(121)),
            PlacementUninstallStep.RELEASE_PODS,
            id="after 2 min the operator removes",
        ),
        pytest.param(
            ALONE._replace(controller=leaving(181)),
            PlacementUninstallStep.REMOVE_CONTROLLER,
            id="after 3 min it goes on",
        ),
        pytest.param(
            ALONE._replace(controller=leaving(0), forced=True),
            PlacementUninstallStep.RELEASE_PODS,
            id="when forced the operator removes",
        ),
        pytest.param(
            ALONE._replace(controller=leaving(SETTLING + RELEASE_SECONDS + 1), forced=True),
            PlacementUninstallStep.REMOVE_CONTROLLER,
            id="when forced it goes on after a minute",
        ),
        pytest.param(
            ALONE._replace(gated=0, controller=leaving(SETTLING)),
            PlacementUninstallStep.REMOVE_CONTROLLER,
            id="no pod is gated",
        ),
        pytest.param(
            ALONE._replace(controller=RemainingController(3)),
            PlacementUninstallStep.RELEASE_PODS,
            id="without a controller the operator removes gates",
        ),
        pytest.param(
            ALONE._replace(controller=RemainingController(3), releasing_for=61),
            PlacementUninstallStep.REMOVE_CONTROLLER,
            id="not for ever",
        ),
        pytest.param(
            ALONE._replace(gated=0, controller=RemainingController(3)),
            PlacementUninstallStep.REMOVE_CONTROLLER,
            id="what belongs to it",
        ),
        pytest.param(
            RemainingPlacement(configuration=True), PlacementUninstallStep.RELEASE_CONFIGURATION, id="finalizers last"
        ),
        pytest.param(RemainingPlacement(), PlacementUninstallStep.FINISHED, id="nothing is left"),
        pytest.param(
            RemainingPlacement(webhook=2), PlacementUninstallStep.REMOVE_WEBHOOK, id="operands without a configuration"
        ),
        pytest.param(
            RemainingPlacement(gated=1), PlacementUninstallStep.RELEASE_PODS, id="gates without anything else"
        ),
    ],
)
def test_the_next_step(left: RemainingPlacement, step: PlacementUninstallStep) -> None:
    assert next_placement_step(left) is step


class UninstallWorld:
    """A cluster in which each step has its effect, somewhat later; ``removes``: the controller does its work."""

    def __init__(self, left: RemainingPlacement, *, removes: bool, lets: bool) -> None:
        self.left = left
        self.removes = removes
        self.lets = lets
        self.seconds = 0.0

    def take(self, step: PlacementUninstallStep) -> None:
        left = self.left
        match step:
            case PlacementUninstallStep.DELETE_WEBHOOK_CONFIGURATION:
                left = left._replace(webhook_configured=False)
            case PlacementUninstallStep.REMOVE_MONITOR:
                left = left._replace(monitor=False)
            case PlacementUninstallStep.REMOVE_WEBHOOK:
                left = left._replace(webhook=left.webhook - 1)
            case PlacementUninstallStep.RETIRE_CONTROLLER:
                left = left._replace(controller=left.controller._replace(deleting_for=0.0))
            case PlacementUninstallStep.REMOVE_CONTROLLER:
                left = left._replace(controller=RemainingController(left.controller.objects - 1))
            case PlacementUninstallStep.RELEASE_PODS:
                left = left._replace(gated=0 if self.lets else left.gated)
            case PlacementUninstallStep.WAIT_FOR_CONFIGS:
                left = left._replace(configs=left.configs - 1)
            case PlacementUninstallStep.RELEASE_CONFIGURATION:
                left = left._replace(configuration=False)
        self.left = left
        self._pass_time(2.0, releasing=step is PlacementUninstallStep.RELEASE_PODS)

    def _pass_time(self, seconds: float, *, releasing: bool) -> None:
        def later(controller: RemainingController) -> RemainingController:
            since = controller.deleting_for
            return controller if since is None else controller._replace(deleting_for=since + seconds)

        left, self.seconds = self.left, self.seconds + seconds
        if self.removes and left.controller.exists and left.gated:
            left = left._replace(gated=left.gated - 1)
        self.left = left._replace(
            controller=later(left.controller),
            releasing_for=left.releasing_for + seconds if releasing else left.releasing_for,
        )


def controllers() -> st.SearchStrategy[RemainingController]:
    absent = st.integers(0, 4).map(RemainingController)
    there = st.tuples(st.integers(1, 4), st.just(True), st.none() | st.floats(0, 60)).map(RemainingController._make)
    return absent | there


LEFT = st.builds(
    RemainingPlacement,
    configuration=st.booleans(),
    configs=st.integers(0, 3),
    webhook_configured=st.booleans(),
    webhook=st.integers(0, 4),
    monitor=st.booleans(),
    controller=controllers(),
    gated=st.integers(0, 40),
    releasing_for=st.floats(0, 30),
    forced=st.booleans(),
)


@pytest.mark.req("PL-522", "PL-900")
@given(LEFT, st.booleans(), st.booleans())
def test_whatever_is_found_first_it_ends_with_nothing_left(left: RemainingPlacement, removes: bool, lets: bool) -> None:
    """Also with a controller that removes no gate, and an API server that refuses to let the operator do so: one stuck
    pod does not block the uninstall."""
    world = UninstallWorld(left, removes=removes, lets=lets)
    for _ in range(400):
        step = next_placement_step(world.left)
        if step is PlacementUninstallStep.FINISHED:
            break
        world.take(step)
    end = world.left
    assert next_placement_step(end) is PlacementUninstallStep.FINISHED
    assert (end.configuration, end.webhook_configured) == (False, False)
    assert (end.webhook, end.monitor, end.controller.objects) == (0, False, 0)
    assert not end.gated or not lets
    assert world.seconds <= 4 * 60


@pytest.mark.req("PL-520")
@given(LEFT)
def test_the_controller_stays_while_pods_are_gated_until_time_is_up(left: RemainingPlacement) -> None:
    """And the webhook stays away from the time on that the first step is done."""
    step = next_placement_step(left)
    if step is PlacementUninstallStep.REMOVE_CONTROLLER and left.gated:
        since = left.controller.deleting_for
        is_late = since is not None and since >= RELEASE_SECONDS + (SETTLING if left.forced else GATES_SECONDS)
        assert is_late or (not left.controller.exists and left.releasing_for >= RELEASE_SECONDS)
    if step is not PlacementUninstallStep.DELETE_WEBHOOK_CONFIGURATION:
        assert not left.webhook_configured
    if step is PlacementUninstallStep.RETIRE_CONTROLLER:
        assert not left.webhook, "the controller's time begins when no pod can be gated any more"


@pytest.mark.req("PL-521")
@given(LEFT)
def test_when_forced_nothing_is_waited_for_but_admissions_on_their_way(left: RemainingPlacement) -> None:
    step = next_placement_step(left._replace(forced=True))
    assert step is not PlacementUninstallStep.WAIT_FOR_CONFIGS
    if step is PlacementUninstallStep.WAIT_FOR_GATES:
        assert left.controller.deleting_for is not None
        assert left.controller.deleting_for < SETTLING


@pytest.mark.req("PL-520")
def test_passes_follow_each_other_soon_as_long_as_something_goes() -> None:
    """What is deleted without being watched begins no pass by itself: the Leases, at the end."""
    pauses = UninstallBackoff()
    assert {pauses.after(PlacementUninstallStep.REMOVE_CONTROLLER, left=each) for each in range(20, 0, -1)} == {0.2}
    held = [pauses.after(PlacementUninstallStep.REMOVE_CONTROLLER, left=1) for _ in range(15)]
    assert held == sorted(held), "and ever later while something is held by others"
    assert held[0] < 0.5
    assert 10 < held[-1] == held[-2] < 12
    assert pauses.after(PlacementUninstallStep.RELEASE_CONFIGURATION, left=1) == 0.2
