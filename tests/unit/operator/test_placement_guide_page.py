"""The guide explains every reason that a condition of placement may have, and none that it cannot."""

import itertools
import re
from pathlib import Path
from typing import get_args

import pytest

from polyarch.operator.components import placement_status
from polyarch.operator.components.placement_status import (
    ALL_READY,
    AVAILABLE,
    PROGRESSING,
    UNREACHABLE,
    PlacementFacts,
    conditions,
)
from polyarch.operator.operands import RolloutStatus

PAGE = (Path(__file__).parents[3] / "docs" / "guide" / "symptoms.md").read_text(encoding="utf-8")
DONE = RolloutStatus(available=True, up_to_date=True)


def explained(kind: str) -> set[str]:
    """What stands in the first cells of the table about this kind, each with what it means and what to do."""
    (rows,) = re.findall(rf"^\| {kind}: reason \|.*\n\|---\|---\|---\|\n((?:\|.*\n)+)", PAGE, re.MULTILINE)
    found = set()
    for row in rows.splitlines():
        first, means, do = (cell.strip() for cell in row.strip("|").split(" | "))
        assert means
        assert do
        found |= set(re.findall(r"`(\w+)`", first))
    return found


@pytest.mark.req("PL-020")
def test_every_reason_of_the_configuration_is_in_the_table() -> None:
    """Whatever is observed. What is made of several types is explained by each of them."""
    reasons = set()
    for controller, webhook, configured, deleting, problems, unreachable in itertools.product(
        (DONE, RolloutStatus()), (DONE, RolloutStatus()), (True, False), (True, False), ((), ("x",)), ((), ("x",))
    ):
        found = conditions(
            PlacementFacts(
                controller=controller,
                webhook=webhook,
                configured=configured,
                deleting=deleting,
                problems=problems,
                unreachable=unreachable,
            )
        )
        types = [*(each.type for each in found), UNREACHABLE]
        for each in found:
            parts = [name for name in types if name in each.reason and name not in (AVAILABLE, PROGRESSING)]
            reasons |= set(parts) if "".join(parts) == each.reason else {each.reason}
    assert ALL_READY in reasons
    assert explained("ClusterPodPlacementConfig") == reasons


@pytest.mark.req("PL-030", "PL-041")
def test_every_reason_of_ready_is_in_a_table() -> None:
    assert explained("PlacementPolicy") | explained("PodPlacementConfig") == set(get_args(placement_status.Reason))
