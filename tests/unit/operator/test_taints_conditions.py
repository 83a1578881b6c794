"""What the operator says of taints beside the role's own word."""

import pytest

from polyarch.operator.components.taints_objects import refused
from polyarch.operator.operands import MAX_PROBLEMS


@pytest.mark.req("TN-013")
def test_deployed_is_there_only_while_something_is_refused_or_fought_over() -> None:
    assert refused(()) is None
    found = refused([f"services n/{number}: no" for number in range(MAX_PROBLEMS + 2)])
    assert found is not None
    assert (found.type, found.status, found.reason) == ("Deployed", "False", "OperandRefused")
    assert found.message.startswith("services n/0: no; ")
    assert found.message.endswith("and 2 more")
