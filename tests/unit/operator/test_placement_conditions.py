"""The conditions of the ClusterPodPlacementConfig: every row of PL-020's table, and what is said of problems."""

import itertools

import pytest

from polyarch.kube.managed_fields import FieldConflict
from polyarch.kube.resources import DEPLOYMENTS, ObjectRef
from polyarch.objects import ObjectKey
from polyarch.operator.components.placement_status import (
    PlacementFacts,
    conditions,
    contested,
    left_out,
    refused_webhook,
    version_problem,
)
from polyarch.operator.operands import RolloutStatus
from polyarch.operator.settings import ClusterCapabilities

DONE = RolloutStatus(available=True, up_to_date=True, summary="2 of 2 pods are available, 2 are up to date")
ROLLING = RolloutStatus(available=True, up_to_date=False, summary="2 of 2 pods are available, 1 are up to date")
DOWN = RolloutStatus(available=False, up_to_date=False, summary="0 of 2 pods are available, 2 are up to date")
CONTROLLER, WEBHOOK, CONFIGURATION = (
    "PodPlacementControllerNotRolledOut",
    "PodPlacementWebhookNotRolledOut",
    "MutatingWebhookConfigurationNotAvailable",
)


def table(**observed):
    given = {"controller": DONE, "webhook": DONE, "configured": True} | observed
    return {each.type: each for each in conditions(PlacementFacts(**given))}


def told(**observed):
    return {kind: (each.status, each.reason) for kind, each in table(**observed).items()}


@pytest.mark.req("PL-020")
def test_the_types_and_their_order_are_those_that_tools_know():
    assert list(table()) == [
        "Available",
        "Progressing",
        "Degraded",
        "Deprovisioning",
        CONTROLLER,
        WEBHOOK,
        CONFIGURATION,
    ]


@pytest.mark.req("PL-020")
def test_everything_stands():
    assert told() == {
        "Available": ("True", "AllComponentsReady"),
        "Progressing": ("False", "AllComponentsReady"),
        "Degraded": ("False", "NotDegraded"),
        "Deprovisioning": ("False", "NotDeprovisioning"),
        CONTROLLER: ("False", "PodPlacementControllerReady"),
        WEBHOOK: ("False", "PodPlacementWebhookReady"),
        CONFIGURATION: ("False", "AllComponentsReady"),
    }


@pytest.mark.req("PL-020")
@pytest.mark.parametrize(
    ("observed", "available", "progressing", "degraded", "reason"),
    [
        ({"controller": ROLLING}, "True", "True", "False", CONTROLLER),
        ({"webhook": ROLLING}, "True", "True", "False", WEBHOOK),
        ({"controller": ROLLING, "webhook": ROLLING}, "True", "True", "False", CONTROLLER + WEBHOOK),
        ({"controller": DOWN}, "False", "True", "True", CONTROLLER),
        ({"webhook": DOWN}, "False", "True", "True", WEBHOOK),
        ({"configured": False}, "False", "True", "True", CONFIGURATION),
        ({"controller": DOWN, "configured": False}, "False", "True", "True", CONTROLLER + CONFIGURATION),
        (
            {"controller": DOWN, "webhook": DOWN, "configured": False},
            "False",
            "True",
            "True",
            CONTROLLER + WEBHOOK + CONFIGURATION,
        ),
        ({"deleting": True}, "True", "False", "False", "AllComponentsReady"),
        (
            {"deleting": True, "webhook": RolloutStatus(), "configured": False},
            "False",
            "False",
            "False",
            WEBHOOK + CONFIGURATION,
        ),
    ],
    ids=[
        "controller rolls",
        "webhook rolls",
        "both roll",
        "controller down",
        "webhook down",
        "not registered",
        "controller down and not registered",
        "nothing there yet",
        "just deleted",
        "webhook already removed",
    ],
)
def test_the_summaries_name_what_is_not_ready(observed, available, progressing, degraded, reason):
    """The reason is the concatenation of the last three types that are True."""
    found = told(**observed)
    assert found["Available"] == (available, reason)
    assert found["Progressing"] == (progressing, reason)
    assert found["Degraded"] == (degraded, "Degraded" if degraded == "True" else "NotDegraded")
    assert found[CONFIGURATION][1] == reason
    for kind in (CONTROLLER, WEBHOOK, CONFIGURATION):
        assert (found[kind][0] == "True") == (kind in reason)


@pytest.mark.req("PL-020")
def test_the_components_say_ready_or_not():
    for controller, webhook in itertools.product((DONE, ROLLING, DOWN), repeat=2):
        found = told(controller=controller, webhook=webhook)
        for kind, rollout, name in (
            (CONTROLLER, controller, "PodPlacementController"),
            (WEBHOOK, webhook, "PodPlacementWebhook"),
        ):
            ready = rollout is DONE
            assert found[kind] == ("False", f"{name}Ready") if ready else ("True", f"{name}NotReady")


@pytest.mark.req("PL-020")
def test_every_reason_is_one_that_the_api_server_takes():
    """A reason is a word, also where it is made of three."""
    for controller, webhook, configured, deleting in itertools.product(
        (DONE, ROLLING, DOWN, RolloutStatus()), (DONE, ROLLING, DOWN, RolloutStatus()), (True, False), (True, False)
    ):
        for each in conditions(
            PlacementFacts(controller=controller, webhook=webhook, configured=configured, deleting=deleting)
        ):
            assert each.reason.isalpha()
            assert len(each.reason) <= 1024
            assert len(each.message) <= 32768


@pytest.mark.req("PL-020")
def test_people_are_told_which_deployment_and_how_far():
    message = table(controller=DOWN, configured=False)["Available"].message
    assert "Deployment pod-placement-controller: 0 of 2 pods are available" in message
    assert "registered once both Deployments are available" in message


@pytest.mark.req("PL-021")
@pytest.mark.parametrize(
    ("observed", "message"),
    [
        ({"gated_pods": 3}, "3 pods still gated"),
        ({"gated_pods": 1}, "1 pod still gated"),
        ({"gated_pods": 0, "waiting_for": "waits for Deployment x"}, "0 pods still gated; waits for Deployment x"),
        ({}, "placement is being removed"),
    ],
    ids=["several", "one", "none", "not counted yet"],
)
def test_an_uninstall_counts_the_pods_that_are_still_gated(observed, message):
    """From the first pass after the DELETE."""
    found = table(deleting=True, **observed)["Deprovisioning"]
    assert (found.status, found.reason, found.message) == ("True", "Deprovisioning", message)


PROBLEM = contested(
    [(ObjectRef(DEPLOYMENTS, ObjectKey("ns", "pod-placement-controller")), FieldConflict("hpa", ".spec.replicas"))]
)


@pytest.mark.req("PL-301", "PL-501", "PL-504", "PL-750")
@pytest.mark.parametrize(
    ("problems", "words"),
    [
        (PROBLEM, ["hpa", ".spec.replicas", "ns/pod-placement-controller"]),
        (left_out({"nodes": 'cannot list resource "nodes"'}), ["nodes", 'cannot list resource "nodes"']),
        (refused_webhook("invalid label value"), ["invalid label value", "the one in force stays"]),
        (version_problem(ClusterCapabilities(version=(1, 29))), ["1.29", "1.30"]),
    ],
    ids=["contested", "left out", "refused", "too old"],
)
def test_a_problem_turns_degraded_true_and_is_named(problems, words):
    """Though every pod is available."""
    found = table(problems=problems)
    assert (found["Degraded"].status, found["Degraded"].reason) == ("True", "Degraded")
    for word in words:
        assert word in found["Degraded"].message
    assert found["Available"].status == "True"


@pytest.mark.req("PL-020")
def test_a_problem_does_not_degrade_what_is_being_removed():
    """Degraded is False while deleting."""
    assert table(problems=PROBLEM, deleting=True)["Degraded"].status == "False"


def test_many_problems_are_counted():
    """A status is read on a screen."""
    message = table(problems=tuple(f"problem {number}" for number in range(9)))["Degraded"].message
    assert "problem 4" in message
    assert "problem 5" not in message
    assert message.endswith("and 4 more")


@pytest.mark.req("PL-504")
def test_a_kubernetes_that_is_new_enough_is_no_problem():
    assert (
        version_problem(ClusterCapabilities(version=(1, 30)))
        == version_problem(ClusterCapabilities(version=(2, 0)))
        == ()
    )


def deployment(**status):
    whole = {
        "replicas": 3,
        "updatedReplicas": 3,
        "readyReplicas": 3,
        "availableReplicas": 3,
        "observedGeneration": 4,
    }
    return {"metadata": {"generation": 4}, "spec": {"replicas": 3}, "status": whole | status}


@pytest.mark.req("PL-020")
@pytest.mark.parametrize(
    ("status", "available", "up_to_date"),
    [
        ({}, True, True),
        ({"availableReplicas": 1, "unavailableReplicas": 2}, True, False),
        ({"availableReplicas": 0, "readyReplicas": 0, "unavailableReplicas": 3}, False, False),
        ({"updatedReplicas": 1}, True, False),
        ({"replicas": 4}, True, False),
        ({"readyReplicas": 2}, True, False),
        ({"unavailableReplicas": 1}, True, False),
        ({"observedGeneration": 3}, True, False),
        ({"replicas": 2, "updatedReplicas": 2, "readyReplicas": 2, "availableReplicas": 2}, True, False),
    ],
    ids=[
        "done",
        "two of three missing",
        "none",
        "old pods",
        "one pod too many",
        "not ready",
        "one unavailable",
        "spec not seen yet",
        "not scaled yet",
    ],
)
def test_available_and_up_to_date(status, available, up_to_date):
    """Updated = total = available = ready = spec.replicas, none unavailable, and the spec was seen."""
    found = RolloutStatus.of(deployment(**status))
    assert (found.available, found.up_to_date) == (available, up_to_date)


@pytest.mark.req("PL-020")
def test_a_deployment_that_is_new_or_gone_is_neither():
    """There is no status yet."""
    for document in (None, {"metadata": {"generation": 1}, "spec": {"replicas": 2}}):
        found = RolloutStatus.of(document)
        assert (found.available, found.up_to_date) == (False, False)
    assert RolloutStatus.of(None).summary == "it does not exist"


@pytest.mark.req("PL-020")
def test_what_the_api_server_says_at_length_still_fits_into_a_condition():
    """It repeats a refused selector with all its values, and refuses more than 32768 characters."""
    found = table(problems=refused_webhook("Invalid value: " + "x" * 100_000))["Degraded"]
    assert found.status == "True"
    assert "spec.namespaceSelector" in found.message
    assert len(found.message) <= 32768


@pytest.mark.req("PL-020")
def test_a_webhook_that_cannot_be_called_is_not_available_whatever_runs():
    found = table(unreachable=("services a/b: kubectl-patch changed .spec.ports[port=1]; it is being put right",))
    assert (found["Available"].status, found["Available"].reason) == ("False", "PodPlacementWebhookUnreachable")
    assert "new pods are not placed: services a/b: kubectl-patch changed" in found["Available"].message
    assert found["Degraded"].status == "True"
    assert found["Available"].message in found["Degraded"].message
    assert {found[each].status for each in (CONTROLLER, WEBHOOK, CONFIGURATION)} == {"False"}
    assert found[CONFIGURATION].reason == "PodPlacementWebhookUnreachable"
    assert "Unreachable" not in table(unreachable=("x",), deleting=True)["Available"].reason
