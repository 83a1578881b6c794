"""Laws of the requirement algebra: intersection means *and*, and an empty set admits nothing."""

from hypothesis import given
from hypothesis import strategies as st

from polyarch.requirements import ANY, NodeTerm, Requirement, Selector, Values, admits

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


def intersection(given: list[Requirement]) -> Values:
    values = ANY
    for requirement in given:
        values &= requirement.allowed
    return values


@given(st.lists(requirements, max_size=5), present)
def test_an_intersection_admits_what_every_requirement_admits(given: list[Requirement], value: str | None) -> None:
    labels = {} if value is None else {"k": value}
    assert intersection(given).admits(value) is all(requirement.matches(labels) for requirement in given)


@given(requirements, requirements, requirements)
def test_intersection_is_commutative_associative_and_idempotent(
    one: Requirement, two: Requirement, three: Requirement
) -> None:
    a, b, c = one.allowed, two.allowed, three.allowed
    assert a & b == b & a
    assert (a & b) & c == a & (b & c)
    assert (a & b) & (a & b) == a & b


@given(st.lists(requirements, max_size=5))
def test_empty_means_that_no_label_passes(given: list[Requirement]) -> None:
    values = intersection(given)
    candidates = [None, "some-other-value", *LABELS, *map(str, range(14)), str(2**63 - 1)]
    assert values.is_empty is not any(values.admits(candidate) for candidate in candidates)


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
