"""Conditions that the operator writes: AffinityCovered, and what the role cannot say itself."""

import pytest

from polyarch.operator.components.taints_objects import PlacementScope, affinity_covered, not_available, not_removed
from polyarch.operator.operands import RolloutStatus
from polyarch.selectors import Requirement, Selector
from polyarch.taints.settings import TaintSettings

PLACED = Selector((Requirement("placed", "Exists"),))
EVERYWHERE = PlacementScope()


def of(mode: str = "both", *, excluded: tuple[str, ...] = (), selector: object = None) -> TaintSettings:
    pods = {"excludeNamespaces": list(excluded), "namespaceSelector": selector}
    return TaintSettings.of({"mode": mode, "pods": pods})


@pytest.mark.req("TN-013")
@pytest.mark.parametrize("mode", ["tolerations", "secondary-only"])
def test_only_mode_both_asks_for_placement(mode):
    assert affinity_covered(of(mode), None) is None


@pytest.mark.req("TN-013")
def test_without_a_configuration_of_placement():
    found = affinity_covered(of(), None)
    assert (found.type, found.status, found.reason) == ("AffinityCovered", "False", "PlacementNotConfigured")
    assert "create the one that is called cluster" in found.message


LABELS = {"matchExpressions": [{"key": "placed", "operator": "Exists"}]}


@pytest.mark.req("TN-013")
@pytest.mark.parametrize(
    ("taints", "placement", "reason", "said"),
    [
        (of(), EVERYWHERE, "SamePods", ""),
        (of(), PlacementScope(audits=True), "PlacementAudits", "mode: enforce"),
        (of(), PlacementScope(namespaces=PLACED), "PodsNotPlaced", "placed Exists"),
        (of(selector=LABELS), PlacementScope(namespaces=PLACED), "SamePods", ""),
        (of(selector=LABELS), EVERYWHERE, "SamePods", ""),
        (of(), PlacementScope(excluded=("kube-system",)), "PodsNotPlaced", "other than kube-system"),
        (of(excluded=("kube-system", "a-*")), PlacementScope(excluded=("kube-system", "a-*")), "SamePods", ""),
        (
            of(excluded=("kube-system",)),
            PlacementScope(
                namespaces=Selector((Requirement("kubernetes.io/metadata.name", "NotIn", ("kube-system",)),))
            ),
            "SamePods",
            "",
        ),
    ],
)
def test_whether_placement_constrains_the_same_pods(taints, placement, reason, said):
    """Whatever placement leaves out has to be left out here as well."""
    found = affinity_covered(taints, placement)
    assert (found.reason, found.status) == (reason, "True" if reason == "SamePods" else "False")
    assert said in found.message


@pytest.mark.req("TN-014")
def test_without_an_available_pod_the_operator_says_why_it_is_not_ready():
    """Somebody has to."""
    found = not_available(RolloutStatus(), ("Service polyarch-taints could not be changed: no",))
    assert (found.type, found.status, found.reason) == ("Ready", "False", "RoleNotAvailable")
    assert "it does not exist" in found.message
    assert "could not be changed: no" in found.message


@pytest.mark.req("TN-073")
def test_what_cannot_be_removed_is_named():
    """The first few; more are counted."""
    found = not_removed([f"Node n{number}: refused" for number in range(7)])
    assert (found.type, found.status) == ("Degraded", "True")
    assert "Node n4: refused" in found.message
    assert "n5" not in found.message
    assert "and 2 more" in found.message
    assert len(not_removed(["x" * 9000]).message) <= 4096
