"""Laws of selectors: terms are alternatives, expressions within a term are not."""

from hypothesis import given
from hypothesis import strategies as st

from polyarch.selectors import NodeTerm, Requirement, Selector, admits

LABELS = ["a", "b", "0", "1", "2", "07", "9", "x"]
label_values = st.one_of(st.sampled_from(LABELS), st.integers(0, 12).map(str))
requirements = st.one_of(
    st.builds(
        Requirement,
        st.just("k"),
        st.sampled_from(["In", "NotIn"]),
        st.lists(label_values, min_size=1, max_size=3).map(tuple),
    ),
    st.builds(Requirement, st.just("k"), st.sampled_from(["Exists", "DoesNotExist"])),
    st.builds(
        Requirement, st.just("k"), st.sampled_from(["Gt", "Lt"]), st.integers(-3, 12).map(lambda number: (str(number),))
    ),
)
present = st.one_of(st.none(), label_values)


@given(st.lists(st.lists(requirements, max_size=3), max_size=3), present)
def test_terms_are_alternatives_and_expressions_are_not(given: list[list[Requirement]], value: str | None) -> None:
    labels = {} if value is None else {"k": value}
    terms = [NodeTerm(tuple(expressions)) for expressions in given]
    expected = any(expressions and all(each.matches(labels) for each in expressions) for expressions in given)
    assert admits(terms, labels) is expected
    documents = [
        {
            "matchExpressions": [
                {"key": each.key, "operator": each.operator, "values": each.values} for each in expressions
            ]
        }
        for expressions in given
    ]
    assert admits(documents, labels) is expected


@given(
    st.dictionaries(st.sampled_from("klm"), st.sampled_from(LABELS)),
    st.dictionaries(st.sampled_from("klm"), label_values),
)
def test_match_labels_is_a_subset_test(selector: dict[str, str], labels: dict[str, str]) -> None:
    assert Selector.parse({"matchLabels": selector}).matches(labels) is (selector.items() <= labels.items())


@given(requirements.filter(lambda each: each.operator not in ("Gt", "Lt")), present)
def test_an_expression_and_its_negation_share_no_object_and_miss_none(given: Requirement, value: str | None) -> None:
    labels = {} if value is None else {"k": value}
    assert given.negated.matches(labels) is not given.matches(labels)
    assert given.negated.negated == given
