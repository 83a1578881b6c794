"""Taints of nodes, for random lists of them."""

import hypothesis.strategies as st
import pytest
from hypothesis import given
from taint_nodes import Json, document, node, patched, record_of, taints_of

from polyarch.platforms import KNOWN_ARCHITECTURES
from polyarch.taints.node_rules import Kind, decide_node
from polyarch.taints.patch import node_patch
from polyarch.taints.settings import TaintSettings
from polyarch.tolerations import EFFECTS, Taint, parse_taints

pytestmark = pytest.mark.req("TN-022")

KEYS = st.sampled_from(["supported-arch", "other-key", "nvidia.com/gpu"])
VALUES = st.sampled_from(["amd64", "arm64", "s390x", "unknown", "", "gold"])
TAINTS = st.builds(lambda key, value, effect: f"{key}={value}:{effect}", KEYS, VALUES, st.sampled_from(EFFECTS))


def by_key_and_effect(text: str) -> tuple[str, str]:
    left, _, effect = text.rpartition(":")
    return left.partition("=")[0], effect


LISTS = st.lists(TAINTS, max_size=6, unique_by=by_key_and_effect)
RECORDS = st.none() | st.lists(TAINTS | st.just("nonsense"), max_size=3).map(",".join)
SETTINGS = st.builds(
    TaintSettings,
    state=st.sampled_from(["active", "paused", "removing"]),
    mode=st.sampled_from(["tolerations", "secondary-only", "both"]),
    given=st.sampled_from([frozenset(), frozenset({"arm64"}), frozenset({"amd64", "arm64"})]),
    effect=st.sampled_from(EFFECTS),
    ownership=st.sampled_from(["adopt", "recorded"]),
)
NODES = st.builds(
    lambda architecture, taints, record, labels: document("n", architecture, *taints, record=record, labels=labels),
    st.sampled_from(["amd64", "arm64", "s390x", "", "vax"]),
    LISTS,
    RECORDS,
    st.sampled_from([{}, {"polyarch.dev/taints": "disabled"}]),
)
RELEASED = st.none() | st.sets(st.sampled_from(["amd64", "arm64"])).map(frozenset)


def is_ours(text: str, record: str | None, settings: TaintSettings, others: list[str]) -> bool:
    """Ownership as TN-022 says it, written a second time; ``others`` are all taints of the node."""
    left, _, effect = text.rpartition(":")
    key, _, value = left.partition("=")
    for entry in parse_taints(record or ""):
        if text == str(entry):
            return True
        if str(entry) not in others and key == entry.key and (value == entry.value or effect == entry.effect):
            return True
    return settings.ownership == "adopt" and key == settings.key and value in KNOWN_ARCHITECTURES


def carried_out(source: Json, settings: TaintSettings, released: frozenset[str] | None) -> tuple[Kind, Json]:
    seen = node(source)
    decision = decide_node(seen, settings, released=released)
    return decision.kind, patched(source, node_patch(seen, decision))


@pytest.mark.req("TN-093")
@given(NODES, SETTINGS, RELEASED)
def test_deciding_again_finds_nothing_to_do(
    source: Json, settings: TaintSettings, released: frozenset[str] | None
) -> None:
    _, once = carried_out(source, settings, released)
    kind, twice = carried_out(once, settings, released)
    assert kind is Kind.NONE
    assert twice == once


@pytest.mark.req("TN-093")
@given(NODES, SETTINGS, RELEASED)
def test_foreign_taints_keep_identity_and_order(
    source: Json, settings: TaintSettings, released: frozenset[str] | None
) -> None:
    record = record_of(source)
    foreign = [each for each in taints_of(source) if not is_ours(each, record, settings, taints_of(source))]
    _, result = carried_out(source, settings, released)
    left = taints_of(result)
    assert [each for each in left if each in foreign] == foreign


@pytest.mark.req("TN-023")
@given(NODES, SETTINGS, RELEASED)
def test_the_list_stays_one_that_the_api_server_accepts(
    source: Json, settings: TaintSettings, released: frozenset[str] | None
) -> None:
    """Key and effect are unique, and at most the one desired taint is new."""
    _, result = carried_out(source, settings, released)
    pairs = [by_key_and_effect(each) for each in taints_of(result)]
    assert len(pairs) == len(set(pairs))
    new = set(taints_of(result)) - set(taints_of(source))
    architecture = source["status"]["nodeInfo"]["architecture"]
    assert new <= {str(settings.taint(architecture))}


@pytest.mark.req("TN-020")
@given(NODES, SETTINGS)
def test_no_taint_is_written_with_a_value_that_is_no_known_architecture(source: Json, settings: TaintSettings) -> None:
    decision = decide_node(node(source), settings)
    written: list[Taint] = [each for each in (decision.appended, decision.desired) if each is not None]
    assert all(each.value in KNOWN_ARCHITECTURES for each in written)
