"""Objects as archaware-controller leaves them, and what polyarch makes of them."""

from collections.abc import Mapping
from typing import Any

import msgspec
import pytest
import taint_nodes
import taints_predecessor as predecessor
from placement_cases import index
from taints_predecessor import CONSISTENT, WRONG, Case

from polyarch.objects import Pod
from polyarch.oci.inspection import Inspection
from polyarch.taints.decision import PodDecision, Reason, TolerationOutcome
from polyarch.taints.node_rules import Kind, NodeDecision, decide_node
from polyarch.taints.patch import node_patch, stored_patch
from polyarch.taints.pod_rules import Case as Examined
from polyarch.taints.pod_rules import PodFacts, decide, examine
from polyarch.taints.settings import TaintSettings

AS_BEFORE = TaintSettings(mode="tolerations", primary=frozenset({"amd64"}))
"""It taints every node."""
FOREIGN = {"key": "dedicated", "value": "batch", "effect": "NoSchedule"}


def looked_up(reference: str, image: Mapping[str, Any]) -> Inspection:
    return index(reference, *image["platforms"], kind=image.get("kind", "index"))


def judged(case: Case, *tolerations: str) -> tuple[Examined, PodDecision]:
    """The decision about a stored pod with such tolerations of the predecessor."""
    images = {f"quay.io/{case.name.replace(' ', '-')}/{at}:1": each for at, each in enumerate(case.containers)}
    early = {f"quay.io/init/{at}:1": each for at, each in enumerate(case.init_containers)}
    spec = {
        "containers": [{"name": f"c{at}", "image": each} for at, each in enumerate(images)],
        "initContainers": [{"name": f"i{at}", "image": each} for at, each in enumerate(early)],
        "tolerations": [predecessor.toleration(each) for each in tolerations],
    }
    document = {"metadata": {"name": "p", "namespace": "n", "uid": "u", "resourceVersion": "7"}, "spec": spec}
    facts = PodFacts(pod=msgspec.convert(document, Pod), namespace="n", settings=AS_BEFORE, stored=True)
    examined = examine(facts)
    return examined, decide(examined, {each: looked_up(each, image) for each, image in (images | early).items()})


@pytest.mark.req("TN-082")
@pytest.mark.parametrize("case", list(CONSISTENT), ids=lambda case: case.name)
def test_a_pod_that_it_left_as_it_should_be_is_not_written(case: Case) -> None:
    examined, decision = judged(case, *case.left)
    assert (decision.outcome, decision.added) == (TolerationOutcome.UNCHANGED, ())
    assert stored_patch(examined, decision) == ()


@pytest.mark.req("TN-094")
@pytest.mark.parametrize("case", [*CONSISTENT, *WRONG], ids=lambda case: case.name)
def test_a_pod_that_it_never_saw_gets_what_its_images_allow_and_nothing_else(case: Case) -> None:
    _, decision = judged(case)
    assert decision.added == case.right
    if not case.right:
        assert decision.reason is Reason.NO_COMMON_ARCHITECTURE


@pytest.mark.req("TN-082")
@pytest.mark.parametrize("case", list(WRONG), ids=lambda case: case.name)
def test_a_pod_that_it_left_wrong_is_completed_and_what_is_too_much_stays(case: Case) -> None:
    """The API server refuses to take a toleration away, so a plan names such pods."""
    assert case.extra or case.missing
    examined, decision = judged(case, *case.left)
    assert decision.added == case.missing
    operations = stored_patch(examined, decision)
    assert bool(operations) == bool(case.missing)
    assert not [each for each in operations if each.op in ("remove", "replace")]


@pytest.mark.req("TN-082")
@pytest.mark.parametrize("architecture", ["amd64", "arm64", "ppc64le", "s390x"])
def test_a_node_that_it_tainted_is_ours_and_not_written(architecture: str) -> None:
    decision, _ = about(architecture, FOREIGN, predecessor.taint(architecture))
    assert (decision.kind, decision.carried) == (Kind.NONE, True)


def about(architecture: str, *taints: dict[str, str]) -> tuple[NodeDecision, list[dict[str, Any]]]:
    """The decision about a node with these taints, and its taints afterwards."""
    document = taint_nodes.document("n", architecture)
    document["spec"]["taints"] = list(taints)
    node = taint_nodes.node(document)
    decision = decide_node(node, AS_BEFORE)
    after = taint_nodes.patched(document, node_patch(node, decision)) if decision.kind is not Kind.NONE else document
    return decision, after["spec"]["taints"]


@pytest.mark.req("TN-094")
@pytest.mark.parametrize(
    ("before", "after"),
    [
        pytest.param(
            [predecessor.taint("amd64"), FOREIGN],
            [predecessor.taint("arm64"), FOREIGN],
            id="a wrong value: it moved the last taint to the front",
        ),
        pytest.param(
            [predecessor.taint("amd64"), predecessor.taint("s390x") | {"effect": "NoExecute"}, FOREIGN],
            [predecessor.taint("arm64"), FOREIGN],
            id="two wrong values: it ended with an index out of range",
        ),
        pytest.param(
            [FOREIGN, predecessor.taint("")],
            [FOREIGN, predecessor.taint("")],
            id="no value, of a node whose kubelet had not reported yet: it excludes ours, and is named in an event",
        ),
    ],
)
def test_taints_of_its_key_are_put_right_and_foreign_ones_stay_where_they_are(
    before: list[dict[str, str]], after: list[dict[str, str]]
) -> None:
    _, taints = about("arm64", *before)
    assert taints == after


@pytest.mark.req("TN-020")
def test_a_node_without_architecture_gets_no_taint_without_value() -> None:
    """It added ``supported-arch=:NoSchedule``, which no pod tolerates."""
    decision, taints = about("", FOREIGN)
    assert (decision.kind, taints) == (Kind.NONE, [FOREIGN])
