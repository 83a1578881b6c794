"""A LabelSelector as a request for a list writes it."""

import msgspec
import pytest

from polyarch.selectors import LabelSelector


@pytest.mark.parametrize(
    ("selector", "query"),
    [
        pytest.param({}, "", id="everything"),
        pytest.param({"matchLabels": {"app": "web", "tier": "a"}}, "app=web,tier=a", id="labels"),
        pytest.param(
            {"matchExpressions": [{"key": "tier", "operator": "In", "values": ["a", "b"]}]}, "tier in (a,b)", id="In"
        ),
        pytest.param(
            {"matchExpressions": [{"key": "tier", "operator": "NotIn", "values": ["a"]}]}, "tier notin (a)", id="NotIn"
        ),
        pytest.param({"matchExpressions": [{"key": "tier", "operator": "Exists"}]}, "tier", id="Exists"),
        pytest.param({"matchExpressions": [{"key": "tier", "operator": "DoesNotExist"}]}, "!tier", id="DoesNotExist"),
        pytest.param(
            {"matchLabels": {"app": "web"}, "matchExpressions": [{"key": "x", "operator": "Exists"}]},
            "app=web,x",
            id="both",
        ),
    ],
)
def test_a_selector_as_a_query(selector, query):
    assert msgspec.convert(selector, LabelSelector).query == query
