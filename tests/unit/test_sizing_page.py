"""What the page on sizing says that each role requests is what its pods request."""

import re
from pathlib import Path

import pytest

from polyarch.operator.components.builds_objects import deployment as builder
from polyarch.operator.components.placement_objects import controller_deployment, webhook_deployment
from polyarch.operator.components.placement_objects import monitor_handler as handler
from polyarch.operator.components.taints_objects import deployment as taints
from polyarch.operator.operands import OperandDeployment
from polyarch.operator.settings import OperatorSettings

PAGE = (Path(__file__).parents[2] / "docs" / "guide" / "sizing.md").read_text(encoding="utf-8")
SETTINGS = OperatorSettings()


@pytest.mark.parametrize(
    ("role", "workload"),
    [
        ("webhook", webhook_deployment(SETTINGS)),
        ("controller", controller_deployment(SETTINGS)),
        ("monitor, handler", handler(SETTINGS)),
        ("taints", taints(SETTINGS)),
        ("builder", builder(SETTINGS)),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_the_page_says_what_a_role_requests(role: str, workload: OperandDeployment) -> None:
    row = re.search(rf"^\| {role}(?:, if [^|]*)? \| (\d+) \| (\S+), (\S+) \| (\S+) \|$", PAGE, re.MULTILINE)
    assert row is not None
    assert row.groups() == (str(workload.replicas), workload.cpu, workload.memory, workload.memory_limit)


def requested(roles: str = ".*", *, replicas: int | None = None) -> str:
    """CPU and memory of these rows of the table; a role that has one pod for each node has one."""
    cpu = memory = 0
    for count, requests in re.findall(rf"^\| (?:{roles}) \| (\d+|one per [^|]*) \| ([^|]*) \|.*$", PAGE, re.MULTILINE):
        pods = replicas or (int(count) if count.isdigit() else 1)
        for thousandths, mebibytes in re.findall(r"(\d+)m, (\d+)Mi", requests):
            cpu += pods * int(thousandths)
            memory += pods * int(mebibytes)
    return f"{cpu}m and {memory}Mi"


def test_the_page_adds_up_what_an_installation_requests() -> None:
    placement = "operator|webhook|controller"
    assert f"{requested(placement)} altogether, with `--replicas 1` {requested(placement, replicas=1)}." in PAGE
    assert f"Everything in the table on a cluster of one node requests {requested()}." in PAGE
