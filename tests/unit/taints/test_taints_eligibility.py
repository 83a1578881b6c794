"""Which pods are not touched, and why."""

from typing import Any

import pytest
from placement_cases import APP, answers, index, pod
from taint_cases import admitted, reconciled, settings, tolerating, toleration

from polyarch.selectors import Requirement, Selector

FOUND = answers(index(APP, "amd64", "arm64"))
TIER = Selector((Requirement("tier", "In", ("web",)),))


def told(document: dict[str, Any], **more: Any) -> str:
    found = admitted(document, FOUND, **more)
    assert bool(found.operations) == (found.decision.reason == "Images")
    assert found.decision.message.endswith(".")
    return found.decision.reason.value


def with_metadata(**metadata: Any) -> dict[str, Any]:
    document = pod()
    document["metadata"] |= metadata
    return document


@pytest.mark.req("TN-041")
@pytest.mark.parametrize("phase", ["Succeeded", "Failed"])
def test_a_finished_pod_is_not_touched(phase: str) -> None:
    assert told(pod() | {"status": {"phase": phase}}) == "Finished"
    assert told(pod() | {"status": {"phase": "Pending"}}) == "Images"


@pytest.mark.req("TN-041")
def test_a_terminating_pod_and_a_mirror_pod_are_not_touched() -> None:
    assert told(with_metadata(deletionTimestamp="2026-01-01T00:00:00Z")) == "Terminating"
    assert told(pod(annotations={"kubernetes.io/config.mirror": "0b5c"})) == "MirrorPod"


@pytest.mark.req("TN-041")
def test_a_pod_that_is_created_for_a_node_is_not_touched_but_a_bound_one_may_be() -> None:
    assert told(pod(nodeName="node-1")) == "AlreadyBound"
    assert reconciled(pod(nodeName="node-1"), FOUND).told == ("Images", "tolerated", ("amd64", "arm64"))


@pytest.mark.req("TN-041")
def test_pods_and_namespaces_opt_out() -> None:
    assert told(pod(annotations={"polyarch.dev/taints": "disabled"})) == "OptedOut"
    assert told(pod(annotations={"polyarch.dev/taints": "off"})) == "Images"
    assert told(pod(), namespace_labels={"polyarch.dev/taints": "disabled"}) == "OptedOut"
    assert told(pod(labels={"polyarch.dev/taints": "disabled"})) == "Images"


@pytest.mark.req("TN-041")
@pytest.mark.parametrize(
    ("changes", "more", "expected"),
    [
        ({"excluded_namespaces": ("shop",)}, {}, "NotSelected"),
        ({"excluded_namespaces": ("sh*",)}, {}, "NotSelected"),
        ({"excluded_namespaces": ("sho",)}, {}, "Images"),
        ({"excluded_namespaces": ("*",)}, {}, "NotSelected"),
        ({"pod_selector": TIER}, {}, "NotSelected"),
        ({"namespace_selector": TIER}, {}, "NotSelected"),
        ({"namespace_selector": TIER}, {"namespace_labels": {"tier": "web"}}, "Images"),
    ],
)
def test_excluded_and_unselected_pods(changes: dict[str, Any], more: dict[str, Any], expected: str) -> None:
    assert told(pod(labels={"app": "shop"}), using=settings(**changes), **more) == expected


@pytest.mark.req("TN-041")
def test_a_selected_pod() -> None:
    assert told(pod(labels={"tier": "web"}), using=settings(pod_selector=TIER)) == "Images"


@pytest.mark.req("TN-041")
@pytest.mark.parametrize("namespace", ["kube-system", "polyarch-system", "default"])
def test_system_namespaces_get_no_exception(namespace: str) -> None:
    assert told(pod(), namespace=namespace) == "Images"


@pytest.mark.req("TN-045")
def test_pods_of_a_daemon_set_are_treated_like_others() -> None:
    assert told(pod(owner="DaemonSet")) == "Images"
    assert told(pod(owner="DaemonSet", tolerations=tolerating("amd64", "arm64"))) == "Covered"


@pytest.mark.req("TN-041")
def test_a_covered_pod_needs_no_look_at_its_images() -> None:
    """Whatever the images are: the pod tolerates every taint that its constraints leave to it."""
    everything = pod(tolerations=[{"operator": "Exists"}])
    one = pod(nodeSelector={"kubernetes.io/arch": "arm64"}, tolerations=[toleration("arm64", operator=None)])
    on_primary = pod(nodeSelector={"kubernetes.io/arch": "amd64"})
    for document, using in ((everything, None), (one, None), (on_primary, settings(mode="secondary-only"))):
        found = admitted(document, {}, using)
        assert found.told == ("Covered", "unchanged", ())
        assert found.case.images == ()


@pytest.mark.req("TN-041")
def test_a_pod_whose_images_turn_out_to_need_nothing_is_covered() -> None:
    found = admitted(pod(tolerations=tolerating("amd64", "arm64")), FOUND)
    assert found.told == ("Covered", "unchanged", ())
    assert found.case.images != ()
    secondary = admitted(pod(), answers(index(APP, "amd64")), settings(mode="secondary-only"))
    assert secondary.told == ("Covered", "unchanged", ())
    assert "amd64" in secondary.decision.message


@pytest.mark.req("TN-041")
def test_nothing_is_added_while_paused_or_removing() -> None:
    assert told(pod(), using=settings(state="paused")) == "Paused"
    assert told(pod(), using=settings(state="removing")) == "Removing"
