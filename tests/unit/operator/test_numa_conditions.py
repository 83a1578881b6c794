"""The four conditions of both custom resources."""

import pytest

from polyarch.operator.components.numa_facts import STATES, OperatorCondition, State, four
from polyarch.operator.operands import MAX_MESSAGE


@pytest.mark.req("NO-090")
@pytest.mark.parametrize("state", STATES)
def test_exactly_one_state_holds_and_what_is_available_alone_can_be_upgraded(state: State) -> None:
    """Tools wait for one of them: two at once, or none, would have them wait for ever or go on too early."""
    told = four(OperatorCondition(state, "SomeReason", "why"))
    held = {each.type: each.status for each in told}
    assert held == {
        "Available": "True" if state == "Available" else "False",
        "Upgradeable": "True" if state == "Available" else "False",
        "Progressing": "True" if state == "Progressing" else "False",
        "Degraded": "True" if state == "Degraded" else "False",
    }
    assert {(each.reason, each.message) for each in told} == {("SomeReason", "why")}


@pytest.mark.req("NO-090")
def test_a_message_of_many_problems_is_cut_before_the_api_server_refuses_the_status() -> None:
    (message,) = {each.message for each in four(OperatorCondition("Degraded", "SomeReason", "x" * (MAX_MESSAGE + 1)))}
    assert (len(message), message[-1]) == (MAX_MESSAGE, "…")
    (whole,) = {each.message for each in four(OperatorCondition("Degraded", "SomeReason", "x" * MAX_MESSAGE))}
    assert whole == "x" * MAX_MESSAGE
