"""What the page on sizing says that each role requests is what its pods request."""

import re
from pathlib import Path

import pytest

from polyarch.builds.operator.operands import deployment as builder
from polyarch.operating.settings import OperatorSettings
from polyarch.operating.workloads import Workload
from polyarch.placement.operator.deployments import controller, webhook
from polyarch.placement.operator.monitor_objects import workload as handler
from polyarch.taints.operator.operands import deployment as taints

PAGE = (Path(__file__).parents[2] / "docs" / "guide" / "sizing.md").read_text(encoding="utf-8")
SETTINGS = OperatorSettings()


@pytest.mark.parametrize(
    ("role", "workload"),
    [
        ("webhook", webhook(SETTINGS)),
        ("controller", controller(SETTINGS)),
        ("monitor, handler", handler(SETTINGS)),
        ("taints", taints(SETTINGS)),
        ("builder", builder(SETTINGS)),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_the_page_says_what_a_role_requests(role: str, workload: Workload) -> None:
    row = re.search(rf"^\| {role}(?:, if [^|]*)? \| (\d+) \| (\S+), (\S+) \| (\S+) \|$", PAGE, re.MULTILINE)
    assert row is not None
    assert row.groups() == (str(workload.replicas), workload.cpu, workload.memory, workload.memory_limit)
