"""Equal pods are decided once, and never by what was said of others."""

from typing import Any

import msgspec
import pytest
from placement_world import failed, pod, resolved
from taint_world import BOTH

from polyarch.images.decision_cache import MAX_INSPECTION_ENTRIES, MAX_KEY_BYTES
from polyarch.images.pod_mutation import NO_MUTATION
from polyarch.objects import Pod
from polyarch.oci.inspection import Inspection
from polyarch.oci.reference import parse
from polyarch.taints.decision import TolerationLookupProgress
from polyarch.taints.pod_rules import PodFacts
from polyarch.taints.settings import TaintSettings
from polyarch.taints.webhook import CAPACITY, recent_series

pytestmark = pytest.mark.req("TN-040")

SETTINGS = TaintSettings(mode="tolerations", given=frozenset({"amd64", "arm64"}))
EXISTING = frozenset({"amd64"})


def facts(document: dict[str, Any] | None = None, **change: Any) -> PodFacts:
    usual: dict[str, Any] = {"namespace": "team", "settings": SETTINGS, "existing": EXISTING, "namespace_labels": {}}
    return PodFacts(pod=msgspec.convert(document or pod("app:1"), Pod), **usual | change)


def answers(*platforms: str) -> dict[str, Inspection]:
    return {"app:1": resolved(parse("app:1"), *platforms)}


@pytest.mark.req("TN-091")
def test_the_pods_of_one_template_are_decided_once():
    """What is added is the same value, whatever the pod is called."""
    series = recent_series()
    first = series.get(facts(pod("app:1", name="a"))).said(answers(*BOTH), TolerationLookupProgress.FIRST)
    second = series.get(facts(pod("app:1", name="b"))).said(answers(*BOTH), TolerationLookupProgress.FIRST)
    assert second.addition is first.addition
    assert len(series) == 1


@pytest.mark.req("TN-002")
@pytest.mark.parametrize(
    "change",
    [
        pytest.param({"settings": TaintSettings(mode="tolerations", given=frozenset({"amd64"}))}, id="settings"),
        pytest.param({"existing": frozenset({"amd64", "s390x"})}, id="architectures of nodes"),
        pytest.param({"namespace_labels": {"polyarch.dev/taints": "disabled"}}, id="labels of the namespace"),
        pytest.param({"os": "windows"}, id="the os that placement writes"),
        pytest.param({"short_names_searched": True}, id="how short names are read"),
        pytest.param({"namespace": "other"}, id="the namespace"),
    ],
)
def test_other_facts_are_another_decision(change):
    series = recent_series()
    before = series.get(facts())
    assert series.get(facts(**change)) is not before


@pytest.mark.req("TN-002")
@pytest.mark.parametrize(
    "change",
    [
        pytest.param({"labels": {"a": "b"}}, id="labels"),
        pytest.param({"annotations": {"polyarch.dev/taints": "disabled"}}, id="annotations"),
        pytest.param({"tolerations": [{"operator": "Exists"}]}, id="tolerations"),
        pytest.param({"nodeName": "node"}, id="node"),
        pytest.param({"pull": "Always"}, id="pull policy"),
    ],
)
def test_another_pod_is_another_decision(change):
    """By everything that rules read."""
    series = recent_series()
    before = series.get(facts())
    assert series.get(facts(pod("app:1", **change))) is not before


@pytest.mark.req("TN-046")
def test_other_answers_and_the_end_of_the_leader_are_another_decision():
    look = recent_series().get(facts())
    both = look.said(answers(*BOTH), TolerationLookupProgress.FIRST)
    one = look.said(answers("linux/amd64"), TolerationLookupProgress.FIRST)
    assert (both.decision.added, one.decision.added) == (("amd64", "arm64"), ("amd64",))
    assert look.said({}, TolerationLookupProgress.FIRST).addition.operations
    assert look.said({}, TolerationLookupProgress.UNGUARDED).addition is NO_MUTATION


@pytest.mark.req("PL-810", "PL-854")
def test_what_pods_make_us_remember_is_bounded():
    """In number, in bytes, and in what a registry says of one image."""
    series = recent_series()
    for number in range(CAPACITY + 10):
        series.get(facts(pod(f"app:{number}")))
    assert len(series) == CAPACITY
    large = recent_series()
    large.get(facts(pod("app:1", annotations={"a": "x" * MAX_KEY_BYTES})))
    assert len(large) == 0
    look = series.get(facts())
    many = answers(*["linux/amd64"] * (MAX_INSPECTION_ENTRIES + 1))
    assert look.said(many, TolerationLookupProgress.FIRST) is not look.said(many, TolerationLookupProgress.FIRST)
    last_good = msgspec.structs.replace(failed(parse("app:1"), "network"), last_good=many["app:1"])
    failing = {"app:1": last_good}
    assert look.said(failing, TolerationLookupProgress.FIRST) is not look.said(failing, TolerationLookupProgress.FIRST)
