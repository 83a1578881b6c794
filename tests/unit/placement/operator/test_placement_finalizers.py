"""Finalizers follow what depends on an object, whatever happened before (PL-003, PL-013, PL-520, PL-630)."""

import pytest

from polyarch.placement.names import (
    ENOEXEC_EVENTS_FINALIZER,
    NO_POD_PLACEMENT_CONFIG_FINALIZER,
    POD_PLACEMENT_FINALIZER,
)
from polyarch.placement.operator.finalizers import Changes, Dependents, of_configuration, of_controller

PODS, CONFIGS, EVENTS = POD_PLACEMENT_FINALIZER, NO_POD_PLACEMENT_CONFIG_FINALIZER, ENOEXEC_EVENTS_FINALIZER
RUNNING = Dependents(
    deleting=False, webhook_configured=True, gated_pods=0, configs=0, monitor_enabled=False, monitor_objects=0
)
LEAVING = RUNNING._replace(deleting=True, webhook_configured=False)


@pytest.mark.parametrize(
    ("state", "present", "changes"),
    [
        pytest.param(RUNNING, (), Changes((PODS,), ()), id="first sight"),
        pytest.param(RUNNING, (PODS, "other.example/x"), Changes((), ()), id="nothing to do, a foreign one stays"),
        pytest.param(RUNNING._replace(configs=1), (PODS,), Changes((CONFIGS,), ()), id="the first config appears"),
        pytest.param(RUNNING, (PODS, CONFIGS), Changes((), (CONFIGS,)), id="the last config is gone"),
        pytest.param(RUNNING._replace(monitor_enabled=True), (PODS,), Changes((EVENTS,), ()), id="monitor enabled"),
        pytest.param(RUNNING, (PODS, EVENTS), Changes((), (EVENTS,)), id="monitor disabled and cleaned up"),
        pytest.param(RUNNING._replace(monitor_objects=2), (PODS, EVENTS), Changes((), ()), id="monitor to clean up"),
        pytest.param(
            LEAVING._replace(webhook_configured=True), (PODS,), Changes((), ()), id="deleted, pods are still gated"
        ),
        pytest.param(LEAVING._replace(gated_pods=3), (PODS,), Changes((), ()), id="deleted, gates to be removed"),
        pytest.param(LEAVING, (PODS,), Changes((), (PODS,)), id="deleted, the last gate is removed"),
        pytest.param(LEAVING._replace(configs=2), (PODS, CONFIGS), Changes((), (PODS,)), id="deleted, configs left"),
        pytest.param(
            LEAVING._replace(gated_pods=3, configs=1), (), Changes((), ()), id="an object being deleted takes none"
        ),
        pytest.param(
            LEAVING._replace(monitor_enabled=True), (EVENTS,), Changes((), (EVENTS,)), id="deleted, monitor cleaned up"
        ),
    ],
)
def test_pl_003_what_the_cluster_configuration_carries(state, present, changes) -> None:
    """PL-003, PL-013, PL-520."""
    assert of_configuration(state, present) == changes


@pytest.mark.parametrize(
    ("state", "deleting", "present", "changes"),
    [
        pytest.param(RUNNING, False, (), Changes((PODS,), ()), id="made"),
        pytest.param(LEAVING._replace(gated_pods=1), True, (PODS,), Changes((), ()), id="the last to go"),
        pytest.param(LEAVING, True, (PODS,), Changes((), (PODS,)), id="no gate is left"),
        pytest.param(RUNNING, True, (), Changes((), ()), id="somebody deletes it"),
    ],
)
def test_pl_003_what_the_controllers_deployment_carries(state, deleting, present, changes) -> None:
    """PL-003, PL-520: it removes the gates, so it goes last."""
    assert of_controller(state, present, deleting=deleting) == changes
