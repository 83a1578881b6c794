"""Every new pod is seen by one webhook: placement's or that of taints."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from polyarch.operator.components.taints_objects import webhook_configuration
from polyarch.selectors import Selector
from polyarch.taints.settings import TaintSettings

KEYS, VALUES = ("a", "b", "c"), ("0", "1", "2")
expressions = st.one_of(
    st.fixed_dictionaries(
        {
            "key": st.sampled_from(KEYS),
            "operator": st.sampled_from(["In", "NotIn"]),
            "values": st.lists(st.sampled_from(VALUES), min_size=1, max_size=2),
        }
    ),
    st.fixed_dictionaries(
        {"key": st.sampled_from(KEYS), "operator": st.sampled_from(["Exists", "DoesNotExist"])},
    ),
)
selectors = st.fixed_dictionaries(
    {
        "matchLabels": st.dictionaries(st.sampled_from(KEYS), st.sampled_from(VALUES), max_size=2),
        "matchExpressions": st.lists(expressions, max_size=3),
    }
)
namespaces = st.dictionaries(st.sampled_from(KEYS), st.sampled_from(VALUES))


@pytest.mark.req("TN-004")
@given(selector=selectors, labels=namespaces, conditions=st.lists(st.booleans(), max_size=2))
def test_every_new_pod_is_seen_by_exactly_one_webhook(
    selector: dict[str, Any], labels: dict[str, str], conditions: list[bool]
) -> None:
    named = [{"name": f"c{at}", "expression": f"c{at}"} for at in range(len(conditions))]
    placement = {"namespaceSelector": selector, "matchConditions": named}
    truth = {f"c{at}": holds for at, holds in enumerate(conditions)}
    calls = [Selector.parse(selector).matches(labels) and all(conditions)]
    for each in webhook_configuration(TaintSettings(), placement=placement)["webhooks"]:
        if each["rules"][0]["operations"] == ["CREATE"]:
            selected = Selector.parse(each["namespaceSelector"]).matches(labels)
            calls.append(selected and all(_holds(one["expression"], truth) for one in each.get("matchConditions", ())))
    assert calls.count(True) == 1


def _holds(expression: str, truth: dict[str, bool]) -> bool:
    """``!((c0) && (c1))``, as CEL evaluates it."""
    return bool(eval(expression.replace("!", " not ").replace("&&", " and "), {}, truth))
