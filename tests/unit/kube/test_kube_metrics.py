"""What the runtime exports of its own requests."""

import pytest

from polyarch.kube.metrics import Metrics, RequestMetrics


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
