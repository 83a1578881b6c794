"""The conditions of the ClusterPodPlacementConfig: every row of PL-020's table, and what is said of problems."""

import itertools

import pytest

from polyarch.kube.managed_fields import FieldConflict
from polyarch.kube.resources import DEPLOYMENTS, Ref
from polyarch.objects import Key
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


def test_pl_020_the_types_and_their_order_are_those_that_tools_know():
    """PL-020."""
    assert list(table()) == [
        "Available",
        "Progressing",
        "Degraded",
        "Deprovisioning",
        CONTROLLER,
        WEBHOOK,
        CONFIGURATION,
    ]


def test_pl_020_everything_stands():
    """PL-020."""
    assert told() == {
        "Available": ("True", "AllComponentsReady"),
        "Progressing": ("False", "AllComponentsReady"),
        "Degraded": ("False", "NotDegraded"),
        "Deprovisioning": ("False", "NotDeprovisioning"),
        CONTROLLER: ("False", "PodPlacementControllerReady"),
        WEBHOOK: ("False", "PodPlacementWebhookReady"),
        CONFIGURATION: ("False", "AllComponentsReady"),
    }


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
def test_pl_020_the_summaries_name_what_is_not_ready(observed, available, progressing, degraded, reason):
    """PL-020: the reason is the concatenation of the last three types that are True."""
    found = told(**observed)
    assert found["Available"] == (available, reason)
    assert found["Progressing"] == (progressing, reason)
    assert found["Degraded"] == (degraded, "Degraded" if degraded == "True" else "NotDegraded")
    assert found[CONFIGURATION][1] == reason
    for kind in (CONTROLLER, WEBHOOK, CONFIGURATION):
        assert (found[kind][0] == "True") == (kind in reason)


def test_pl_020_the_components_say_ready_or_not():
    """PL-020."""
    for controller, webhook in itertools.product((DONE, ROLLING, DOWN), repeat=2):
        found = told(controller=controller, webhook=webhook)
        for kind, rollout, name in (
            (CONTROLLER, controller, "PodPlacementController"),
            (WEBHOOK, webhook, "PodPlacementWebhook"),
        ):
            ready = rollout is DONE
            assert found[kind] == ("False", f"{name}Ready") if ready else ("True", f"{name}NotReady")


def test_pl_020_every_reason_is_one_that_the_api_server_takes():
    """PL-020: a reason is a word, also where it is made of three."""
    for controller, webhook, configured, deleting in itertools.product(
        (DONE, ROLLING, DOWN, RolloutStatus()), (DONE, ROLLING, DOWN, RolloutStatus()), (True, False), (True, False)
    ):
        for each in conditions(
            PlacementFacts(controller=controller, webhook=webhook, configured=configured, deleting=deleting)
        ):
            assert each.reason.isalpha()
            assert len(each.reason) <= 1024
            assert len(each.message) <= 32768


def test_pl_020_people_are_told_which_deployment_and_how_far():
    """PL-020."""
    message = table(controller=DOWN, configured=False)["Available"].message
    assert "Deployment pod-placement-controller: 0 of 2 pods are available" in message
    assert "registered once both Deployments are available" in message


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
def test_pl_021_an_uninstall_counts_the_pods_that_are_still_gated(observed, message):
    """PL-021: from the first pass after the DELETE."""
    found = table(deleting=True, **observed)["Deprovisioning"]
    assert (found.status, found.reason, found.message) == ("True", "Deprovisioning", message)


PROBLEM = contested([(Ref(DEPLOYMENTS, Key("ns", "pod-placement-controller")), FieldConflict("hpa", ".spec.replicas"))])


@pytest.mark.parametrize(
    ("problems", "words"),
    [
        (PROBLEM, ["hpa", ".spec.replicas", "ns/pod-placement-controller"]),
        (left_out({"nodes": 'cannot list resource "nodes"'}), ["nodes", 'cannot list resource "nodes"']),
        (refused_webhook("invalid label value"), ["invalid label value", "the one in force stays"]),
        (version_problem(ClusterCapabilities(version=(1, 29))), ["1.29", "1.30"]),
    ],
    ids=["PL-501 contested", "PL-301 left out", "PL-750 refused", "PL-504 too old"],
)
def test_a_problem_turns_degraded_true_and_is_named(problems, words):
    """PL-301, PL-501, PL-504, PL-750: though every pod is available."""
    found = table(problems=problems)
    assert (found["Degraded"].status, found["Degraded"].reason) == ("True", "Degraded")
    for word in words:
        assert word in found["Degraded"].message
    assert found["Available"].status == "True"


def test_a_problem_does_not_degrade_what_is_being_removed():
    """PL-020: Degraded is False while deleting."""
    assert table(problems=PROBLEM, deleting=True)["Degraded"].status == "False"


def test_many_problems_are_counted():
    """A status is read on a screen."""
    message = table(problems=tuple(f"problem {number}" for number in range(9)))["Degraded"].message
    assert "problem 4" in message
    assert "problem 5" not in message
    assert message.endswith("and 4 more")


def test_pl_504_a_kubernetes_that_is_new_enough_is_no_problem():
    """PL-504."""
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
def test_pl_020_available_and_up_to_date(status, available, up_to_date):
    """PL-020: updated = total = available = ready = spec.replicas, none unavailable, and the spec was seen."""
    found = RolloutStatus.of(deployment(**status))
    assert (found.available, found.up_to_date) == (available, up_to_date)


def test_pl_020_a_deployment_that_is_new_or_gone_is_neither():
    """PL-020: there is no status yet."""
    for document in (None, {"metadata": {"generation": 1}, "spec": {"replicas": 2}}):
        found = RolloutStatus.of(document)
        assert (found.available, found.up_to_date) == (False, False)
    assert RolloutStatus.of(None).summary == "it does not exist"


def test_pl_020_what_the_api_server_says_at_length_still_fits_into_a_condition():
    """PL-020: it repeats a refused selector with all its values, and refuses more than 32768 characters."""
    found = table(problems=refused_webhook("Invalid value: " + "x" * 100_000))["Degraded"]
    assert found.status == "True"
    assert "spec.namespaceSelector" in found.message
    assert len(found.message) <= 32768


def test_pl_020_a_webhook_that_cannot_be_called_is_not_available_whatever_runs():
    found = table(unreachable=("services a/b: kubectl-patch changed .spec.ports[port=1]; it is being put right",))
    assert (found["Available"].status, found["Available"].reason) == ("False", "PodPlacementWebhookUnreachable")
    assert "new pods are not placed: services a/b: kubectl-patch changed" in found["Available"].message
    assert found["Degraded"].status == "True"
    assert found["Available"].message in found["Degraded"].message
    assert {found[each].status for each in (CONTROLLER, WEBHOOK, CONFIGURATION)} == {"False"}
    assert found[CONFIGURATION].reason == "PodPlacementWebhookUnreachable"
    assert "Unreachable" not in table(unreachable=("x",), deleting=True)["Available"].reason
