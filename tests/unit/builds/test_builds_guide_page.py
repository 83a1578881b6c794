"""The page on builds explains every reason for which a build fails, and every condition."""

import re
from pathlib import Path

import pytest

from polyarch.builds.plan import conditions
from polyarch.builds.plan.failures import RELEASES

PAGE = (Path(__file__).parents[3] / "docs" / "guide" / "builds.md").read_text(encoding="utf-8")
FIRST_CELLS = " ".join(re.findall(r"^\| ([^|]*`[^|]*) \|", PAGE, re.MULTILINE))
OF_A_RUN = (conditions.CHILDREN_READY, conditions.INDEX_PUSHED, conditions.SUCCEEDED, conditions.BUILDER_PINNED)


@pytest.mark.req("BD-218")
@pytest.mark.parametrize("reason", RELEASES)
def test_a_reason_is_in_the_table(reason: str) -> None:
    assert f"`{reason}`" in FIRST_CELLS


@pytest.mark.req("BD-240")
@pytest.mark.parametrize(
    "condition",
    [
        conditions.ARCHITECTURES_RESOLVED,
        conditions.INPUTS_VALID,
        conditions.PROGRESSING,
        conditions.READY,
        conditions.DEGRADED,
    ],
)
def test_a_condition_of_a_build_is_in_the_table(condition: str) -> None:
    assert f"`{condition}`" in FIRST_CELLS


@pytest.mark.req("BD-241")
def test_the_conditions_of_a_run_are_named() -> None:
    (sentence,) = re.findall(r"^An ImageBuildRun has .*$", PAGE, re.MULTILINE)
    assert re.findall(r"`(\w+)`", sentence) == list(OF_A_RUN)
