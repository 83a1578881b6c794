"""What the controllers' leader tells the operator reaches the conditions."""

from types import SimpleNamespace
from typing import Any

import pytest
from fake_api import FakeApi
from manual_clock import ManualClock

from polyarch.kube.resources import LEASES
from polyarch.operator.components.placement_reconciler import COUNTING, SINGLETON, StatusReconciler
from polyarch.placement import names
from polyarch.placement.api import LeaderNotes

pytestmark = pytest.mark.req("PL-041")


@pytest.mark.req("PL-301")
async def test_a_fact_that_is_left_out_or_known_again_begins_a_pass() -> None:
    """Degraded says what is the case now, although nothing else in the cluster has changed."""
    api, clock, passes = FakeApi(), ManualClock(), []
    nothing = SimpleNamespace(store=SimpleNamespace(get=lambda _: None))
    observation: Any = SimpleNamespace(
        configuration=object(), policies=nothing, policy_documents=nothing, want_namespaces=lambda _: None
    )
    client: Any = api
    statuses = StatusReconciler(
        client, observation, namespace="home", clock=clock, left_out=lambda: passes.append(statuses.notes.left_out)
    )
    for told in ({}, {"nodes": "forbidden"}, {"nodes": "forbidden"}, {}):
        notes = LeaderNotes(held=len(passes), left_out=told).annotations()
        api.put(LEASES, {"metadata": {"name": names.CONTROLLER_LEASE, "namespace": "home", "annotations": notes}})
        await statuses.reconcile(SINGLETON)
        clock.advance(COUNTING)
    assert passes == [{"nodes": "forbidden"}, {}]
