"""The order in which taints leave a cluster."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from polyarch.operator.uninstall import (
    ROLE_IDLE_TIMEOUT,
    SETTLING,
    RemainingTaints,
    TaintsUninstallStep,
    next_taints_step,
)

WHOLE = RemainingTaints(registered=True, marks=5, role=12, lives=True, settling=0.0, finalizer=True)
GONE = WHOLE._replace(registered=False)


@pytest.mark.req("TN-073")
@pytest.mark.parametrize(
    ("left", "step"),
    [
        (WHOLE, TaintsUninstallStep.UNREGISTER),
        (GONE, TaintsUninstallStep.LET_ROLE_CLEAN),
        (GONE._replace(idle=ROLE_IDLE_TIMEOUT), TaintsUninstallStep.CLEAN),
        (GONE._replace(lives=False), TaintsUninstallStep.CLEAN),
        (GONE._replace(marks=0), TaintsUninstallStep.SETTLE),
        (GONE._replace(marks=0, settling=SETTLING), TaintsUninstallStep.REMOVE_ROLE),
        (GONE._replace(marks=1, settling=SETTLING, role=0, lives=False), TaintsUninstallStep.CLEAN),
        (GONE._replace(marks=0, settling=SETTLING, role=0), TaintsUninstallStep.RELEASE),
        (RemainingTaints(), TaintsUninstallStep.FINISHED),
        (RemainingTaints(role=1), TaintsUninstallStep.REMOVE_ROLE),
    ],
    ids=lambda value: value.name if isinstance(value, TaintsUninstallStep) else "",
)
def test_the_next_step(left: RemainingTaints, step: TaintsUninstallStep) -> None:
    """The webhook first, so that nothing comes back; taints before the role; the finalizer last."""
    assert next_taints_step(left) is step


LEFT = st.builds(
    RemainingTaints,
    registered=st.booleans(),
    marks=st.integers(0, 50),
    role=st.integers(0, 5),
    lives=st.booleans(),
    idle=st.floats(0, 60),
    settling=st.floats(0, 20),
    finalizer=st.booleans(),
)


@pytest.mark.req("TN-073")
@given(LEFT, st.booleans())
def test_whatever_is_found_first_it_ends_with_nothing_left(left: RemainingTaints, works: bool) -> None:
    """Also with a role that is dead, or does nothing although its Lease is renewed. ``works``: it cleans."""
    for _ in range(400):
        step = next_taints_step(left)
        if step is TaintsUninstallStep.FINISHED:
            break
        marks = left.marks
        match step:
            case TaintsUninstallStep.UNREGISTER:
                left = left._replace(registered=False, settling=0.0)
            case TaintsUninstallStep.LET_ROLE_CLEAN:
                marks -= works
            case TaintsUninstallStep.CLEAN:
                marks = 0
            case TaintsUninstallStep.REMOVE_ROLE:
                left = left._replace(role=left.role - 1, lives=False)
            case TaintsUninstallStep.RELEASE:
                left = left._replace(finalizer=False)
        idle = 0.0 if marks < left.marks else left.idle + 1
        left = left._replace(marks=marks, idle=idle, settling=left.settling + 1)
    assert next_taints_step(left) is TaintsUninstallStep.FINISHED
    assert (left.registered, left.marks, left.role, left.finalizer) == (False, 0, 0, False)


@pytest.mark.req("TN-073")
@given(LEFT)
def test_the_object_goes_only_when_nothing_of_ours_is_left(left: RemainingTaints) -> None:
    if next_taints_step(left) is TaintsUninstallStep.RELEASE:
        assert (left.registered, left.marks, left.role) == (False, 0, 0)
    if next_taints_step(left) is TaintsUninstallStep.REMOVE_ROLE:
        assert left.marks == 0
