"""The algebra of label requirements: what Kubernetes lets through."""

from typing import Any

import pytest

from polyarch.objects import NodeSelectorRequirement, NodeSelectorTerm
from polyarch.selectors import (
    InvalidSelector,
    LabelSelector,
    LabelSelectorRequirement,
    NodeTerm,
    Requirement,
    Selector,
    admits,
)

ARCH = "kubernetes.io/arch"


@pytest.mark.parametrize(
    ("operator", "values", "value", "expected"),
    [
        pytest.param("In", ("a", "b"), "a", True, id="In lists the value"),
        pytest.param("In", ("a", "b"), "c", False, id="In does not list the value"),
        pytest.param("In", ("a",), None, False, id="In needs the label"),
        pytest.param("NotIn", ("a",), "b", True, id="NotIn does not list the value"),
        pytest.param("NotIn", ("a",), "a", False, id="NotIn lists the value"),
        pytest.param("NotIn", ("a",), None, True, id="NotIn matches without the label"),
        pytest.param("Exists", (), "", True, id="Exists with an empty value"),
        pytest.param("Exists", (), None, False, id="Exists without the label"),
        pytest.param("DoesNotExist", (), None, True, id="DoesNotExist without the label"),
        pytest.param("DoesNotExist", (), "a", False, id="DoesNotExist with the label"),
        pytest.param("Gt", ("5",), "6", True, id="Gt a greater number"),
        pytest.param("Gt", ("5",), "5", False, id="Gt is strict"),
        pytest.param("Gt", ("5",), "10", True, id="Gt compares numbers, not texts"),
        pytest.param("Gt", ("5",), "x", False, id="Gt a text"),
        pytest.param("Gt", ("5",), None, False, id="Gt without the label"),
        pytest.param("Gt", ("5",), "99999999999999999999", False, id="Gt beyond 64 bits"),
        pytest.param("Lt", ("5",), "4", True, id="Lt a smaller number"),
        pytest.param("Lt", ("5",), "5", False, id="Lt is strict"),
        pytest.param("Lt", ("5",), "0_1", False, id="Lt no underscores"),
        pytest.param("Lt", ("x",), "1", False, id="Lt with a bound that is no number"),
        pytest.param("Lt", ("1", "9"), "0", False, id="Lt with two bounds"),
    ],
)
def test_an_expression_matches_as_in_kubernetes(
    operator: str, values: tuple[str, ...], value: str | None, expected: bool
) -> None:
    labels = {} if value is None else {"k": value}
    assert Requirement("k", operator, values).matches(labels) is expected


def test_an_operator_that_does_not_exist_is_refused() -> None:
    with pytest.raises(InvalidSelector, match="'Near' is not one of In"):
        Requirement("k", "Near").matches({})


@pytest.mark.parametrize("operator", ["Gt", "Lt"])
def test_a_comparison_of_numbers_has_no_negation(operator: str) -> None:
    with pytest.raises(ValueError, match=f"k {operator}: no expression matches the rest"):
        _ = Requirement("k", operator, ("5",)).negated


@pytest.mark.req("PL-030")
@pytest.mark.parametrize(
    ("selector", "labels", "expected"),
    [
        pytest.param({}, {}, True, id="an empty selector matches everything"),
        pytest.param({"matchLabels": None, "matchExpressions": None}, {"a": "b"}, True, id="null members"),
        pytest.param({"matchLabels": {"a": "b"}}, {"a": "b", "c": "d"}, True, id="a label that is there"),
        pytest.param({"matchLabels": {"a": "b"}}, {"a": "c"}, False, id="a label of another value"),
        pytest.param({"matchLabels": {"a": ""}}, {}, False, id="an empty value is not absence"),
        pytest.param(
            {"matchLabels": {"a": "b"}, "matchExpressions": [{"key": "c", "operator": "DoesNotExist"}]},
            {"a": "b", "c": "d"},
            False,
            id="everything has to match",
        ),
        pytest.param(
            LabelSelector(
                match_labels={"a": "b"}, match_expressions=[LabelSelectorRequirement("x.io/c", "In", ["d", "e"])]
            ),
            {"a": "b", "x.io/c": "e"},
            True,
            id="a selector as struct",
        ),
    ],
)
def test_a_label_selector_matches_as_in_kubernetes(selector: Any, labels: dict[str, str], expected: bool) -> None:
    assert Selector.parse(selector).matches(labels) is expected


def test_an_object_without_labels_has_none() -> None:
    assert Selector.parse({}).matches(None)
    assert not Selector.parse({"matchLabels": {"a": "b"}}).matches(None)


@pytest.mark.req("PL-033")
@pytest.mark.parametrize(
    ("selector", "field", "problem"),
    [
        pytest.param(None, "", "no selector", id="no selector at all"),
        pytest.param("a=b", "", "expected an object", id="a text"),
        pytest.param({"matchLabels": []}, "matchLabels", "must map labels", id="labels as list"),
        pytest.param({"matchLabels": {"a": 1}}, "matchLabels[a]", "not a string", id="a value that is a number"),
        pytest.param({"matchLabels": {"a": "b c"}}, "matchLabels[a]", "a label value", id="a bad value"),
        pytest.param({"matchLabels": {"a": "x" * 64}}, "matchLabels[a]", "up to 63", id="a long value"),
        pytest.param({"matchLabels": {"-a": "b"}}, "matchLabels[-a]", "is not a label", id="a bad label"),
        pytest.param({"matchLabels": {"A.io/a": "b"}}, "matchLabels[A.io/a]", "DNS name", id="a bad prefix"),
        pytest.param({"matchLabels": {"/a": "b"}}, "matchLabels[/a]", "DNS name", id="an empty prefix"),
        pytest.param({"matchExpressions": {}}, "matchExpressions", "must be a list", id="expressions as mapping"),
        pytest.param(
            {"matchExpressions": [{"operator": "Exists"}]}, "matchExpressions[0].key", "is missing", id="no key"
        ),
        pytest.param(
            {"matchExpressions": [{"key": "a", "operator": "Gt", "values": ["1"]}]},
            "matchExpressions[0].operator",
            "'Gt' is not a valid operator; expected one of In, NotIn, Exists, DoesNotExist",
            id="an operator of nodes only",
        ),
        pytest.param(
            {"matchExpressions": [{"key": "a", "operator": "In"}]},
            "matchExpressions[0].values",
            "needs at least one",
            id="In without values",
        ),
        pytest.param(
            {"matchExpressions": [{"key": "a", "operator": "Exists", "values": ["b"]}]},
            "matchExpressions[0].values",
            "does not take",
            id="Exists with values",
        ),
        pytest.param(
            {"matchExpressions": [{"key": "a", "operator": "In", "values": "b"}]},
            "matchExpressions[0].values",
            "list of strings",
            id="a text for values",
        ),
        pytest.param(
            {"matchExpressions": [{"key": "a", "operator": "In", "values": ["b", "c d"]}]},
            "matchExpressions[0].values[1]",
            "a label value",
            id="a bad value in a list",
        ),
    ],
)
def test_a_selector_that_kubernetes_would_refuse_names_the_field(selector: Any, field: str, problem: str) -> None:
    with pytest.raises(InvalidSelector) as caught:
        Selector.parse(selector)
    assert caught.value.field == field
    assert problem in caught.value.problem


def term(*expressions: tuple[str, ...], fields: tuple[tuple[str, ...], ...] = ()) -> dict[str, Any]:
    def listed(given: tuple[tuple[str, ...], ...]) -> list[dict[str, Any]]:
        return [{"key": key, "operator": operator, "values": values} for key, operator, *values in given]

    return {"matchExpressions": listed(expressions), "matchFields": listed(fields)}


NODE = {ARCH: "arm64", "zone": "a", "memory": "64"}


@pytest.mark.req("PL-202")
@pytest.mark.parametrize(
    ("terms", "node_selector", "expected"),
    [
        pytest.param(None, None, True, id="no requirement at all"),
        pytest.param([], None, False, id="no term matches no node"),
        pytest.param([{}], None, False, id="an empty term matches no node"),
        pytest.param([{}, term((ARCH, "In", "arm64"))], None, True, id="one of the terms has to match"),
        pytest.param(
            [term((ARCH, "In", "amd64")), term((ARCH, "In", "s390x"))], None, False, id="none of the terms matches"
        ),
        pytest.param(
            [term((ARCH, "In", "arm64"), ("zone", "In", "b"))],
            None,
            False,
            id="all expressions of a term have to match",
        ),
        pytest.param([term(("memory", "Gt", "32"))], None, True, id="a number above"),
        pytest.param([term(fields=(("metadata.name", "In", "node-1"),))], None, True, id="the node by name"),
        pytest.param([term(fields=(("metadata.name", "NotIn", "node-1"),))], None, False, id="not the node by name"),
        pytest.param(
            [term((ARCH, "In", "amd64"), fields=(("metadata.name", "In", "node-1"),))],
            None,
            False,
            id="fields and expressions together",
        ),
        pytest.param(None, {"zone": "a"}, True, id="the node selector alone"),
        pytest.param(None, {"zone": "b"}, False, id="the node selector does not match"),
        pytest.param(None, {"none": ""}, False, id="the node selector needs the label"),
        pytest.param([term((ARCH, "In", "arm64"))], {"zone": "b"}, False, id="node selector and terms both count"),
        pytest.param(
            [NodeSelectorTerm(match_expressions=[NodeSelectorRequirement(ARCH, "In", ["arm64"])])],
            {},
            True,
            id="a term as struct",
        ),
        pytest.param([NodeTerm((Requirement(ARCH, "Exists"),))], {}, True, id="a term already parsed"),
    ],
)
def test_node_affinity_and_node_selector_admit_a_node(
    terms: list[Any] | None, node_selector: dict[str, str] | None, expected: bool
) -> None:
    assert admits(terms, NODE, node_selector=node_selector, node_name="node-1") is expected


@pytest.mark.parametrize(
    ("given", "field"),
    [
        pytest.param(term(("a", "Near")), "matchExpressions[0].operator", id="an unknown operator"),
        pytest.param(term(("a", "Gt", "x")), "matchExpressions[0].values", id="Gt without a number"),
        pytest.param(term(("a", "Lt", "1", "2")), "matchExpressions[0].values", id="Lt with two numbers"),
        pytest.param(term(fields=(("metadata.uid", "In", "x"),)), "matchFields[0].key", id="another field"),
        pytest.param(term(fields=(("metadata.name", "Exists"),)), "matchFields[0].operator", id="a field's operator"),
    ],
)
def test_a_term_that_kubernetes_would_refuse_names_the_field(given: dict[str, Any], field: str) -> None:
    with pytest.raises(InvalidSelector) as caught:
        NodeTerm.parse(given)
    assert caught.value.field == field
