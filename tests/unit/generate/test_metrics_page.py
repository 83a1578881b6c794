"""The page of metrics has every metric that a module creates, with its labels."""

import pytest
from tools.generate import metrics_page
from tools.generate.metrics_page import Metric

from polyarch.cli.errors import UsageError

PAGE = metrics_page.metrics_page()


def test_calls_are_read_whatever_they_are_called_by() -> None:
    source = """
PREFIX = "polyarch_registry_"
def make(metrics):
    gauge, own = metrics.gauge, ("zone", "resource")
    labels = ("a", "b")
    metrics.counter(f"{PREFIX}requests_total", "Requests.", ("host",))
    gauge("polyarch_up", "1 while it runs")
    metrics.histogram("polyarch_seconds", "How long", labels, buckets=(1, 2))
"""
    assert metrics_page.metrics_of(source, "x.py") == (
        Metric("polyarch_registry_requests_total", "counter", ("host",), "Requests."),
        Metric("polyarch_up", "gauge", (), "1 while it runs"),
        Metric("polyarch_seconds", "histogram", ("a", "b"), "How long"),
    )


@pytest.mark.parametrize(
    "call",
    [
        "metrics.gauge(name(), 'x')",
        "metrics.gauge('polyarch_x', 'x', labels())",
        "metrics.gauge('polyarch_x', unknown)",
    ],
)
def test_what_cannot_be_read_is_an_error_with_its_place(call: str) -> None:
    with pytest.raises(UsageError, match=r"x\.py:1: "):
        metrics_page.metrics_of(call, "x.py")


def test_modules_that_no_part_of_the_page_has_are_an_error() -> None:
    with pytest.raises(UsageError, match=r"kube/metrics\.py.*add it to PARTS"):
        metrics_page.metrics_page(metrics_page.PARTS[1:])


@pytest.mark.parametrize(
    "row",
    [
        "| `polyarch_placement_unplaced_pods` | gauge | `namespace` |",
        "| `polyarch_registry_requests_total` | counter | `host`, `operation`, `result` |",
        "| `polyarch_numa_zone_capacity` | gauge | `node`, `zone`, `resource` |",
        "| `mto_ppo_pods_gated` | gauge |  |",
    ],
)
def test_the_page_has_metrics_of_every_form(row: str) -> None:
    assert row in PAGE
