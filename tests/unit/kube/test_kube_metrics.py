"""What the runtime exports of its own requests."""

import asyncio

import pytest
from manual_clock import ManualClock

from polyarch.kube.metrics import (
    FOLLOW_INTERVAL,
    NAMESPACES,
    Metrics,
    NamespaceCounter,
    NamespaceGauge,
    RequestMetrics,
)


@pytest.mark.req("PL-702")
def test_requests_are_counted_by_verb_and_resource_and_failures_by_code():
    """``polyarch_api_requests_total{verb,resource}``; a request without an answer has the code 0."""
    metrics = Metrics()
    requests = RequestMetrics(metrics)
    for code in (200, 409, 0):
        requests.request("patch", "pods", code)

    def value(name, **labels):
        return metrics.registry.get_sample_value(name, {"verb": "patch", "resource": "pods", **labels})

    assert value("polyarch_api_requests_total") == 3
    failures = {code: value("polyarch_api_request_failures_total", code=code) for code in ("0", "200", "409")}
    assert failures == {"0": 1, "200": None, "409": 1}


def test_two_clients_of_one_process_count_together():
    """A family is made once, whoever asks for it."""
    metrics = Metrics()
    for requests in (RequestMetrics(metrics), RequestMetrics(metrics)):
        requests.request("get", "secrets", 200)
    labels = {"verb": "get", "resource": "secrets"}
    assert metrics.registry.get_sample_value("polyarch_api_requests_total", labels) == 2


def shown(metrics: Metrics, family: str) -> dict[str, float]:
    (found,) = (each for each in metrics.registry.collect() if each.name == family)
    return {
        sample.labels["namespace"]: sample.value for sample in found.samples if not sample.name.endswith("_created")
    }


@pytest.mark.parametrize(
    ("rest", "other"), [(sum, 6), (max, 3)], ids=["counts are added", "of ages the oldest is kept"]
)
def test_the_largest_namespaces_have_a_label_and_the_rest_share_one(rest, other):
    metrics = Metrics()
    gauge = NamespaceGauge(metrics.gauge("waiting", "x", ("namespace",)), rest=rest)
    assert shown(metrics, "waiting") == {"other": 0}
    gauge.show({f"n{number}": number + 1 for number in range(NAMESPACES + 3)})
    values = shown(metrics, "waiting")
    assert len(values) == NAMESPACES + 1
    assert values["other"] == other
    assert f"n{NAMESPACES + 2}" in values
    gauge.show({"n5": 1})
    assert shown(metrics, "waiting") == {"n5": 1, "other": 0}


async def test_what_only_a_leader_knows_is_shown_while_it_leads():
    metrics, clock, counts = Metrics(), ManualClock(), {"a": 1.0}
    gauge = NamespaceGauge(metrics.gauge("waiting", "x", ("namespace",)))
    task = asyncio.create_task(gauge.follow(lambda: counts, clock))
    await clock.run(1)
    assert shown(metrics, "waiting") == {"a": 1, "other": 0}
    counts["a"] = 2.0
    await clock.run(FOLLOW_INTERVAL)
    assert shown(metrics, "waiting") == {"a": 2, "other": 0}
    task.cancel()
    await asyncio.wait([task])
    assert shown(metrics, "waiting") == {"other": 0}


def test_a_counter_has_a_label_for_the_first_namespaces_and_one_for_all_others():
    metrics = Metrics()
    counter = NamespaceCounter(metrics.counter("failures_total", "x", ("namespace",)))
    assert shown(metrics, "failures") == {"other": 0}
    for number in (*range(NAMESPACES + 7), 0):
        counter.inc(f"n{number}")
    values = shown(metrics, "failures")
    assert len(values) == NAMESPACES + 1
    assert (values["n0"], values["other"]) == (2, 7)
