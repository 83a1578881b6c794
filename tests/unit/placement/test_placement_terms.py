"""Where expressions go among required terms."""

from typing import Any

import pytest
from placement_cases import (
    APP,
    MARKER,
    SIDE,
    admitted,
    answers,
    arch,
    controlled,
    index,
    pod,
    record,
    required,
    term,
    zone,
)

from polyarch.placement import names
from polyarch.placement.decision import Reason

KNOWN = answers(index(APP, "amd64", "arm64"))
APART = answers(index(APP, "amd64"), index(SIDE, "arm64"))
A = arch("amd64", "arm64")
FIELDS = [{"key": "metadata.name", "operator": "In", "values": ["n1"]}]


@pytest.mark.req("PL-221", "PL-900")
@pytest.mark.parametrize(
    ("before", "after", "terms", "created"),
    [
        (None, [term(A)], [0], True),
        ([term(zone("a"))], [term(zone("a"), A)], [0], False),
        ([{}, term(zone("a"))], [{}, term(zone("a"), A)], [1], False),
        ([term(arch("s390x")), term(zone("a"))], [term(arch("s390x")), term(zone("a"), A)], [1], False),
        ([term(fields=FIELDS)], [{"matchFields": FIELDS, "matchExpressions": [A]}], [0], False),
        (
            [{"matchExpressions": [], "matchFields": FIELDS}],
            [{"matchExpressions": [A], "matchFields": FIELDS}],
            [0],
            False,
        ),
        ([term(zone("a")), term(zone("a"))], [term(zone("a"), A), term(zone("a"), A)], [0, 1], False),
        (
            [term({"key": "beta.kubernetes.io/arch", "operator": "In", "values": ["s390x"]})],
            [term({"key": "beta.kubernetes.io/arch", "operator": "In", "values": ["s390x"]}, A)],
            [0],
            False,
        ),
    ],
    ids=[
        "no required",
        "one term",
        "an empty term stays empty",
        "the user's own architecture stays",
        "fields only",
        "empty list of expressions",
        "equal terms are not merged",
        "the beta key is another key",
    ],
)
@pytest.mark.parametrize("way", ["admission", "controller"])
def test_each_term_by_itself(
    way: str, before: list[dict[str, Any]] | None, after: list[dict[str, Any]], terms: list[int], created: bool
) -> None:
    document = pod(terms=before)
    result = admitted(document, KNOWN).pod if way == "admission" else controlled(document, KNOWN).pod
    assert required(result) == after
    written = record(result)
    assert written is not None
    assert written["terms"] == terms
    assert written["created"] is created
    assert result["metadata"]["labels"][names.NODE_AFFINITY_LABEL] == "set"


@pytest.mark.req("PL-220")
def test_no_supported_architecture_writes_the_marker_and_no_os() -> None:
    result = controlled(pod(APP, SIDE), APART)
    assert required(result.pod) == [term(MARKER)]


@pytest.mark.req("PL-222")
def test_a_term_with_the_users_own_architecture_gets_the_marker_too() -> None:
    document = pod(APP, SIDE, terms=[term(arch("amd64")), term(zone("a")), {}])
    result = controlled(document, APART)
    assert result.decision.reason is Reason.NO_SUPPORTED_ARCHITECTURE
    assert required(result.pod) == [term(arch("amd64"), MARKER), term(zone("a"), MARKER), {}]


@pytest.mark.req("PL-222")
def test_nothing_else_is_touched() -> None:
    document = pod(
        nodeSelector={"disk": "fast"},
        tolerations=[{"key": "a"}],
        affinity={"podAntiAffinity": {"x": 1}, "nodeAffinity": {"unknown": 1}},
    )
    after = admitted(document, KNOWN).pod
    assert after["spec"]["affinity"].pop("nodeAffinity") == {
        "unknown": 1,
        "requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [term(A)]},
    }
    del document["spec"]["affinity"]["nodeAffinity"]
    assert after["spec"] == document["spec"]


@pytest.mark.req("PL-222")
@pytest.mark.parametrize(
    "affinity",
    [None, {}, {"nodeAffinity": None}, {"nodeAffinity": {}}, {"podAffinity": {"x": 1}, "nodeAffinity": None}],
    ids=["null", "empty", "node affinity null", "node affinity empty", "other affinity"],
)
def test_absent_parents_are_created_and_present_ones_extended(affinity: Any) -> None:
    after = admitted(pod(affinity=affinity), KNOWN).pod
    assert required(after) == [term(A)]
    if affinity and "podAffinity" in affinity:
        assert after["spec"]["affinity"]["podAffinity"] == {"x": 1}


@pytest.mark.req("PL-221")
def test_a_required_with_unknown_fields_keeps_them() -> None:
    selector = {"nodeSelectorTerms": [term(zone("a"))], "someday": 1}
    document = pod(affinity={"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": selector}})
    after = admitted(document, KNOWN).pod["spec"]["affinity"]["nodeAffinity"]
    terms = [term(zone("a"), A)]
    assert after["requiredDuringSchedulingIgnoredDuringExecution"] == {"nodeSelectorTerms": terms, "someday": 1}


@pytest.mark.req("PL-223")
def test_node_affinity_is_not_set_where_every_term_has_the_marker_already() -> None:
    document = pod(APP, SIDE, terms=[term(zone("a"), MARKER)])
    result = controlled(document, APART)
    assert required(result.pod) == [term(zone("a"), MARKER)]
    assert result.pod["metadata"]["labels"][names.NODE_AFFINITY_LABEL] == "not-set"
    assert names.NO_SUPPORTED_ARCH_LABEL in result.pod["metadata"]["labels"]


@pytest.mark.req("PL-223")
def test_labels_follow_the_values_written_not_the_users_terms() -> None:
    result = admitted(pod(terms=[term(arch("s390x")), term(zone("a"))]), KNOWN)
    assert {"multiarch.openshift.io/amd64", "multiarch.openshift.io/arm64"} <= set(result.labels)
    assert "multiarch.openshift.io/s390x" not in result.labels
