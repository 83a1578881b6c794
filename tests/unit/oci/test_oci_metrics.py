"""What a scrape shows of registry traffic."""

from functools import partial

import pytest
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

from polyarch.oci.metrics import RegistryMetrics

pytestmark = pytest.mark.req("RG-160")


@pytest.fixture
def collected():
    return CollectorRegistry()


@pytest.fixture
def metrics(collected):
    return RegistryMetrics(*(partial(kind, registry=collected) for kind in (Counter, Gauge, Histogram)))


async def test_the_metrics_of_a_look_up(registry, make_inspector, ref, metrics, collected, answer):
    registry.headers = {"RateLimit-Limit": "100;w=60", "RateLimit-Remaining": "42;w=60"}
    registry.push_index("team/app", "1", "linux/amd64", "linux/arm64")
    inspector = make_inspector(metrics=metrics)
    await inspector.inspect(ref("team/app:1"))
    await inspector.inspect(ref("team/app:1"))
    host = {"host": registry.host}

    def value(name, **labels):
        return collected.get_sample_value(f"polyarch_registry_{name}", labels)

    assert value("requests_total", operation="manifest-get", result="200", **host) == 1
    assert value("request_seconds_count", operation="manifest-get") >= 1
    assert value("inspections_total", status="resolved") == 2
    assert value("cache_total", table="readings", result="hit") >= 1
    assert value("rate_limit_remaining", **host) == 42
    assert value("host_paused", **host) == 0
    assert value("in_flight", **host) == 0
    registry.script("GET", "", answer(429, headers={"Retry-After": "30"}))
    await inspector.inspect(ref("team/app:2"), wait=False)
    assert value("host_paused", **host) == 1
    assert value("requests_total", operation="manifest-get", result="429", **host) == 1


def test_fifty_hosts_have_labels_and_all_others_share_one(metrics, collected):
    for number in range(200):
        metrics.request(f"host-{number}.example", "manifest-get", "200", 0.1)
        metrics.in_flight(f"host-{number}.example", 1)
        metrics.rate_limit(f"host-{number}.example", 5)
        metrics.host_seen(f"host-{number}.example", lambda: True)
    text = generate_latest(collected).decode()
    shown = {line.split('host="')[1].split('"')[0] for line in text.splitlines() if 'host="' in line}
    assert len(shown) == 51
    assert "other" in shown
    assert (
        collected.get_sample_value(
            "polyarch_registry_requests_total", {"host": "other", "operation": "manifest-get", "result": "200"}
        )
        == 150
    )
