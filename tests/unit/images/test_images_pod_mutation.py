"""One patch of what two features write to the same pod."""

from itertools import permutations
from typing import Any

import pytest

from polyarch.images.pod_mutation import ORDER, join_patches
from polyarch.kube.patches import Operation, add, apply_patch, remove
from polyarch.kube.patches import test as check

LABELS, ANNOTATIONS, TOLERATIONS, AFFINITY, GATES = ORDER
TOLERATION = {"key": "supported-arch", "operator": "Equal", "value": "arm64", "effect": "NoSchedule"}


def pod(metadata: dict[str, Any] | None = None, **spec: Any) -> dict[str, Any]:
    return {"metadata": metadata or {}, "spec": spec}


@pytest.mark.req("PL-303", "TN-003")
def test_tolerations_come_between_annotations_and_affinity():
    """Whatever the features' own order is; the tests of uid and version stay first."""
    placement = (
        check("/metadata/uid", "u"),
        check("/metadata/resourceVersion", "7"),
        add(f"{LABELS}/placed", "yes"),
        add(f"{ANNOTATIONS}/decision", "{}"),
        add(AFFINITY, {}),
        check(f"{GATES}/0/name", "placement"),
        remove(f"{GATES}/0"),
    )
    taints = (add(f"{ANNOTATIONS}/tolerations", "arm64"), add(f"{TOLERATIONS}/-", TOLERATION))
    paths = [(each.op, each.path) for each in join_patches(placement, taints)]
    assert paths == [
        ("test", "/metadata/uid"),
        ("test", "/metadata/resourceVersion"),
        ("add", f"{LABELS}/placed"),
        ("add", f"{ANNOTATIONS}/decision"),
        ("add", f"{ANNOTATIONS}/tolerations"),
        ("add", f"{TOLERATIONS}/-"),
        ("add", AFFINITY),
        ("test", f"{GATES}/0/name"),
        ("remove", f"{GATES}/0"),
    ]


@pytest.mark.req("TN-003")
@pytest.mark.parametrize(
    ("one", "other", "expected"),
    [
        pytest.param(
            (add(LABELS, {"a": "1"}),), (add(LABELS, {"b": "2"}),), {"labels": {"a": "1", "b": "2"}}, id="labels"
        ),
        pytest.param(
            (add(ANNOTATIONS, {"a": "1"}),),
            (add(ANNOTATIONS, {"b": "2"}),),
            {"annotations": {"a": "1", "b": "2"}},
            id="annotations",
        ),
    ],
)
def test_a_map_that_both_create_has_what_both_put_in_it(one, other, expected):
    """The second ``add`` of a member would replace the first."""
    assert apply_patch(pod(), join_patches(one, other))["metadata"] == expected
    assert len(join_patches(one, other)) == 1


@pytest.mark.req("TN-003")
def test_a_list_that_both_create_has_what_both_put_in_it():
    """Two gates on a pod without any."""
    one, other = (add(GATES, [{"name": "a"}]),), (add(GATES, [{"name": "b"}]),)
    assert apply_patch(pod(), join_patches(one, other))["spec"] == {"schedulingGates": [{"name": "a"}, {"name": "b"}]}


@pytest.mark.req("TN-003")
def test_what_both_append_to_a_list_is_appended_twice():
    """The same path, but not the same member."""
    one, other = (add(f"{GATES}/-", {"name": "b"}),), (add(f"{GATES}/-", {"name": "c"}),)
    after = apply_patch(pod(schedulingGates=[{"name": "a"}]), join_patches(one, other))
    assert [gate["name"] for gate in after["spec"]["schedulingGates"]] == ["a", "b", "c"]


@pytest.mark.req("PL-303", "TN-048")
@pytest.mark.parametrize(("placement", "taints"), list(permutations(range(3), 2)))
def test_both_gates_go_wherever_they_are_in_the_list(placement, taints):
    """Each feature counted its index in the list as it was."""
    gates = [{"name": f"other-{at}"} for at in range(3)]
    gates[placement], gates[taints] = {"name": "placement"}, {"name": "taints"}
    one = (check(f"{GATES}/{placement}/name", "placement"), remove(f"{GATES}/{placement}"))
    other = (check(f"{GATES}/{taints}/name", "taints"), remove(f"{GATES}/{taints}"))
    after = apply_patch(pod(schedulingGates=gates), join_patches(one, other))
    assert [gate["name"][:5] for gate in after["spec"]["schedulingGates"]] == ["other"]


@pytest.mark.req("TN-003")
def test_without_anything_to_add_the_patch_is_the_own_one():
    """Nothing of the features' own order is lost, and no operation appears."""
    own: tuple[Operation, ...] = (add(f"{LABELS}/b", "1"), add(f"{LABELS}/a", "2"))
    assert join_patches(own, ()) == own
    assert join_patches((), own) == own
    assert join_patches((), ()) == ()
