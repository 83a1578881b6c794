"""The metric families of taints, as a scrape shows them."""

import pytest

from polyarch.kube.metrics import Metrics
from polyarch.taints.metrics import TaintMetrics

FAMILIES = {
    "polyarch_taints_nodes": "gauge",
    "polyarch_taints_writes": "counter",
    "polyarch_taints_pods": "counter",
    "polyarch_taints_gated_pods": "gauge",
    "polyarch_taints_oldest_gate_seconds": "gauge",
    "polyarch_taints_degraded": "gauge",
    "polyarch_taints_gate_seconds": "histogram",
    "polyarch_taints_blocked_templates": "gauge",
    "polyarch_taints_unknown_images": "gauge",
    "polyarch_taints_node_reaction_seconds": "histogram",
    "polyarch_internal_errors": "counter",
}


def scrape(metrics: Metrics) -> str:
    return metrics.render()[0].decode()


@pytest.mark.req("TN-083")
def test_every_family_is_there_before_anything_happened():
    metrics = Metrics()
    TaintMetrics(metrics)
    assert {family.name: family.type for family in metrics.registry.collect()} == FAMILIES
    assert 'polyarch_taints_writes_total{kind="node",result="done"} 0.0' in scrape(metrics)


@pytest.mark.req("TN-083")
def test_writes_and_decisions_are_counted_by_what_they_were():
    metrics = Metrics()
    taints = TaintMetrics(metrics)
    taints.wrote("pod", "done")
    taints.wrote("pod", "done")
    taints.decided("NoCommonArchitecture")
    page = scrape(metrics)
    assert 'polyarch_taints_writes_total{kind="pod",result="done"} 2.0' in page
    assert 'polyarch_taints_pods_total{decision="NoCommonArchitecture"} 1.0' in page


@pytest.mark.req("TN-083")
def test_nodes_that_are_gone_are_not_shown_any_more():
    metrics = Metrics()
    taints = TaintMetrics(metrics)
    taints.show_nodes({("arm64", "tainted"): 3, ("s390x", "waiting"): 1})
    taints.show_nodes({("arm64", "tainted"): 4})
    page = scrape(metrics)
    assert 'polyarch_taints_nodes{architecture="arm64",state="tainted"} 4.0' in page
    assert "s390x" not in page
