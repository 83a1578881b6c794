"""A container image of a stored pod is changed."""

from typing import Any

import msgspec
import pytest
from placement_cases import APP, SIDE, Document, answers, failure, index, pod
from taint_cases import facts, settings, tolerating, toleration

from polyarch.kube.patches import apply_patch
from polyarch.objects import Pod
from polyarch.taints import names
from polyarch.taints.patch import admission_patch
from polyarch.taints.pod_rules import ImageChange, changes_images, decide_change, examine_change

pytestmark = pytest.mark.req("TN-094")

OLD = "quay.io/team/app:0"


def before(*architectures: str, record: str | None = None, **parts: Any) -> Document:
    text = ",".join(architectures) if record is None else record
    annotations = {names.TOLERATIONS_ANNOTATION: text, names.REASON_ANNOTATION: "Images"} if text else None
    return pod(OLD, annotations=annotations, tolerations=tolerating(*architectures), nodeName="node-1", **parts)


def changed(document: Document, *given: Any, **policies: Any) -> tuple[ImageChange, Document]:
    """The decision about the pod with image ``APP`` instead, and the pod with the patch."""
    after = document | {"spec": document["spec"] | {"containers": pod(APP)["spec"]["containers"]}}
    old = msgspec.convert(document, Pod)
    case = examine_change(facts(after, settings(**policies), stored=True), old)
    change = decide_change(case, answers(*given), old)
    return change, apply_patch(after, admission_patch(case, change.decision))


@pytest.mark.req("TN-049")
def test_what_the_new_image_justifies_is_added_in_the_same_request() -> None:
    change, document = changed(before("amd64"), index(APP, "amd64", "arm64"))
    assert (change.decision.added, change.lost) == (("arm64",), ())
    assert document["spec"]["tolerations"] == tolerating("amd64", "arm64")
    assert document["metadata"]["annotations"][names.TOLERATIONS_ANNOTATION] == "amd64,arm64"


@pytest.mark.req("TN-047", "TN-049")
@pytest.mark.parametrize(("given", "is_added"), [(index(APP, "amd64", "arm64"), True), (failure(APP), False)])
def test_only_images_without_a_common_architecture_are_refused(given: Any, *, is_added: bool) -> None:
    """With ``onNoCommonArchitecture: deny`` every other update goes through."""
    change, document = changed(before("amd64"), given, on_no_common="deny")
    assert change.decision.outcome != "denied"
    assert document["spec"]["tolerations"] == tolerating("amd64", *(["arm64"] if is_added else []))


@pytest.mark.req("TN-049")
@pytest.mark.parametrize("policy", ["event", "evict"])
def test_what_it_no_longer_justifies_stays_and_is_told(policy: str) -> None:
    change, document = changed(before("amd64", "arm64"), index(APP, "amd64"), image_change=policy)
    assert (change.lost, change.policy, change.decision.outcome) == (("arm64",), policy, "unchanged")
    assert document["spec"]["tolerations"] == tolerating("amd64", "arm64")
    assert "arm64" in change.message


@pytest.mark.req("TN-049")
def test_denied_with_the_architectures_lost() -> None:
    change, document = changed(before("amd64", "arm64"), index(APP, "amd64", "s390x"), image_change="deny")
    assert change.decision.outcome == "denied"
    assert change.decision.message == change.message
    assert "arm64" in change.message
    assert document["spec"]["tolerations"] == tolerating("amd64", "arm64")


@pytest.mark.req("TN-049")
@pytest.mark.parametrize("record", ["", "amd64"])
def test_tolerations_that_are_not_recorded_are_the_users_and_cause_nothing(record: str) -> None:
    change, _ = changed(before("amd64", "arm64", record=record), index(APP, "amd64"), image_change="deny")
    assert (change.lost, change.message, change.decision.outcome) == ((), "", "unchanged")


@pytest.mark.req("TN-049")
def test_the_record_of_the_old_pod_counts_not_one_that_comes_with_the_change() -> None:
    document = before("amd64", "arm64")
    old = msgspec.convert(document, Pod)
    stripped = pod(APP, tolerations=document["spec"]["tolerations"])
    case = examine_change(facts(stripped, stored=True), old)
    assert decide_change(case, answers(index(APP, "amd64")), old).lost == ("arm64",)


@pytest.mark.req("TN-049")
def test_a_covered_pod_still_has_its_new_image_looked_at() -> None:
    """It tolerates every taint, so nothing can be added; but something may be lost."""
    using = {"mode": "secondary-only", "given": frozenset({"amd64", "arm64"})}
    change, _ = changed(before("arm64"), index(APP, "amd64"), **using)
    assert change.lost == ("arm64",)


@pytest.mark.req("TN-049")
def test_nothing_is_lost_or_gated_while_an_answer_is_missing() -> None:
    for given in ((), (failure(APP),)):
        change, document = changed(before("amd64", "arm64", "s390x"), *given, image_change="deny")
        assert (change.lost, change.decision.outcome) == ((), "passed")
        assert "schedulingGates" not in document["spec"]


@pytest.mark.req("TN-049")
def test_images_that_exclude_each_other_lose_everything() -> None:
    windows = index(APP, "windows/amd64")
    change, _ = changed(before("amd64"), windows)
    assert (change.lost, change.decision.reason) == (("amd64",), "NoCommonArchitecture")
    assert "windows/amd64" in change.message
    denied, _ = changed(before("amd64"), windows, on_no_common="deny")
    assert denied.decision.outcome == "denied"


@pytest.mark.req("TN-049")
def test_a_pod_that_is_not_touched_loses_nothing() -> None:
    document = before("arm64", "amd64")
    document["metadata"]["annotations"][names.OPT_OUT] = names.DISABLED
    change, _ = changed(document, index(APP, "amd64"), image_change="deny")
    assert (change.decision.reason, change.lost) == ("OptedOut", ())


@pytest.mark.req("TN-049")
def test_a_pod_under_our_gate_keeps_it_while_the_new_image_is_unknown() -> None:
    document = before(record="", gates=[names.GATE], labels={names.GATED_LABEL: names.GATED})
    change, after = changed(document)
    assert change.decision.keeps_gate
    assert after["spec"]["schedulingGates"] == [{"name": names.GATE}]
    _, released = changed(document, index(APP, "arm64"))
    assert released["spec"]["schedulingGates"] == []
    assert released["spec"]["tolerations"] == [toleration("arm64")]


@pytest.mark.req("TN-049")
@pytest.mark.parametrize(
    ("after", "expected"),
    [
        (pod(OLD), False),
        (pod(OLD, labels={"a": "b"}, tolerations=tolerating("arm64")), False),
        (pod(APP), True),
        (pod(OLD, initContainers=[{"name": "setup", "image": SIDE}]), True),
    ],
)
def test_which_updates_change_an_image(after: Document, expected: bool) -> None:
    assert changes_images(msgspec.convert(pod(OLD), Pod), msgspec.convert(after, Pod)) is expected
